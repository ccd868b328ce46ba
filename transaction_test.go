package belfry_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/memory"
	"github.com/belfry-cron/belfry/store/sqlite"
)

type welcome struct {
	Customer string `json:"customer"`
}

// shop is a program with a table of its own in the file of the store.
type shop struct {
	s  *belfry.Scheduler
	db *sql.DB

	mu   sync.Mutex
	seen map[string][]belfry.RunID // runs by customer
}

func openShop(t *testing.T, path string) *shop {
	t.Helper()
	p := &shop{s: belfry.New(sqlite.File(path), belfry.WithNamespace("shop")), seen: map[string][]belfry.RunID{}}
	h := belfry.Handle(p.s, "welcome", func(_ context.Context, run *belfry.Run, in welcome) (belfry.None, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen[in.Customer] = append(p.seen[in.Customer], run.ID)
		return belfry.None{}, nil
	})
	p.s.Job("welcome", h.Do(welcome{Customer: "?"}), belfry.Overlap(job.OverlapAllow))
	return p
}

// run runs the program until the end of the test or the call of stop, and opens the file for its transactions.
func (p *shop) run(t *testing.T, path string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	becomes(t, func() bool { return p.s.Resume(t.Context(), "welcome") == nil })
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	p.db = db
	return stop
}

func becomes(t *testing.T, is func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it has not come true in a minute")
		}
	}
}

func (p *shop) runsOf(customer string) []belfry.RunID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[customer]
}

// order makes a customer and a run in one transaction.
func (p *shop) order(ctx context.Context, customer string, commit bool) (id belfry.RunID, err error) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return id, err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "create table if not exists customers (name text)"); err != nil {
		return id, err
	}
	if id, err = p.s.TriggerTx(ctx, tx, "welcome", belfry.Params(map[string]string{"customer": customer})); err != nil || !commit {
		return id, err
	}
	return id, tx.Commit()
}

func TestRunExistsIfItsTransactionIsCommitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	p := openShop(t, path)
	stop := p.run(t, path)
	ids := map[string]belfry.RunID{}
	for i := range 40 {
		customer := fmt.Sprintf("客户 %d", i)
		id, err := p.order(t.Context(), customer, i%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		ids[customer] = id
		if i == 20 { // requests wait for the next process
			stop()
			next := openShop(t, path)
			next.seen = p.seen
			p = next
			p.run(t, path)
		}
	}
	becomes(t, func() bool { return len(p.runsOf("客户 38")) > 0 })
	becomes(t, func() bool {
		var left int
		return p.db.QueryRow("select count(*) from notes where name like 'request/%'").Scan(&left) == nil && left == 0
	})
	for i := range 40 {
		customer := fmt.Sprintf("客户 %d", i)
		becomes(t, func() bool { return len(p.runsOf(customer)) == 1-i%2 })
		if runs := p.runsOf(customer); i%2 == 0 && runs[0] != ids[customer] {
			t.Errorf("the run of %s is %s, announced was %s", customer, runs[0], ids[customer])
		}
	}
}

func TestMistakesOfATransactionAreSaidBeforeItsCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	p := openShop(t, path)
	p.run(t, path)
	other, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "other.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, c := range map[string]struct {
		db   *sql.DB
		job  string
		with map[string]string
		want string
	}{
		"an unknown job":       {p.db, "nightly", nil, "nightly"},
		"an unknown parameter": {p.db, "welcome", map[string]string{"costumer": "x"}, "params.costumer"},
		"another file":         {other, "welcome", nil, "other.db"},
	} {
		tx, err := c.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.s.TriggerTx(t.Context(), tx, c.job, belfry.Params(c.with)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.s.TriggerTx(t.Context(), p.db, "welcome"); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
		t.Errorf("a database instead of a transaction: %v", err)
	}
	kept := belfry.New(memory.Empty())
	if err := kept.Add(t.Context(), "welcome", belfry.Do("welcome", welcome{})); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*belfry.Scheduler{"memory": kept, "light": belfry.New(belfry.Light())} {
		if _, err := s.TriggerTx(t.Context(), nil, "welcome"); !errors.Is(err, belfry.ErrNoTransactions) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRequestOfADeletedJobIsAccountedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	p := openShop(t, path)
	stop := p.run(t, path)
	stop()
	p = openShop(t, path) // does not run
	p.db, _ = sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	defer p.db.Close()
	if err := p.s.Add(t.Context(), "gone", belfry.Do("welcome", welcome{})); err != nil {
		t.Fatal(err)
	}
	tx, err := p.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.TriggerTx(t.Context(), tx, "gone"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := p.s.Remove(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := p.s.Close(); err != nil {
		t.Fatal(err)
	}
	openShop(t, path).run(t, path)
	becomes(t, func() bool {
		var refused, left int
		err := p.db.QueryRow("select (select count(*) from audit where action = 'run.refuse' and object = 'shop/gone'), (select count(*) from notes where name like 'request/%')").Scan(&refused, &left)
		return err == nil && refused == 1 && left == 0
	})
}
