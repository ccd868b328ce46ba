package replica_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/store/storetest/shelf"
)

// inCell is so small that every test also has runs with keys of their own.
const inCell = 1

// openSmall returns the store of one process that keeps one run of each job in its cell.
func openSmall(t *testing.T, d replica.Driver, opt storetest.Options) store.Store {
	t.Helper()
	return openWith(t, d, opt, inCell)
}

// The suite again, where each job has at most one run in its cell: in turns by two processes.
func TestStoreWithRunsApart(t *testing.T) {
	storetest.Serial(storetest.Run)(t, func(t *testing.T, opt storetest.Options) store.Store {
		s, opt := newShelf(), withIDs(opt)
		return storetest.Nodes(openSmall(t, driver{Shelf: s}, opt), openSmall(t, driver{Shelf: s}, opt))
	})
}

// By processes with different limits for a cell runs move between cells and keys of their own. The whole suite runs
// with one limit for both.
func TestStoreWithRunsThatMove(t *testing.T) {
	storetest.Again(storetest.Run)(t, func(t *testing.T, opt storetest.Options) store.Store {
		s, opt := newShelf(), withIDs(opt)
		return storetest.Nodes(openSmall(t, driver{Shelf: s}, opt), openWith(t, driver{Shelf: s}, opt, 3))
	})
}

// measured is a driver that notes the largest commit.
type measured struct {
	driver
	keys, bytes int
}

func (d *measured) Commit(ctx context.Context, txn *replica.Txn) (int64, bool, error) {
	bytes := 0
	for _, p := range txn.Puts {
		bytes += len(p.Key) + len(p.Value)
	}
	d.keys, d.bytes = max(d.keys, len(txn.Puts)+len(txn.Deletes)), max(d.bytes, bytes)
	return d.driver.Commit(ctx, txn)
}

// What a step writes depends on the runs that it changes, not on other runs of their job.
func TestAStepWritesOnlyTheRunsItChanges(t *testing.T) {
	d := &measured{driver: driver{Shelf: newShelf()}}
	b := storetest.NewBacklog(t, func(t *testing.T, opt storetest.Options) store.Store {
		return storetest.Nodes(openOn(t, d, opt), openOn(t, d, opt))
	})
	largest := func(many int) (keys, bytes int) {
		b.Grow(many)
		d.keys, d.bytes = 0, 0
		b.Cycle()
		return d.keys, d.bytes
	}
	keys, bytes := largest(100)
	if again, more := largest(3000); again > keys+2 || more > bytes+bytes/10 {
		t.Errorf("with 100 waiting runs a commit has at most %d keys and %d bytes, with 3,000 %d and %d", keys, bytes, again, more)
	}
	d.keys, d.bytes = 0, 0
	b.Move()
	if d.keys > 200 {
		t.Errorf("an edit that moves 3,000 waiting runs writes %d keys", d.keys)
	}
	b.Live()
	if _, most := d.Bounds(); d.bytes > most+most/3 || d.keys > 1600 {
		t.Errorf("a commit has %d keys and %d bytes, a driver takes %d", d.keys, d.bytes, most)
	}
}

// A call about many runs of one job is committed in parts if it is too large for one commit.
func TestALargeCallAboutOneJobIsMadeInParts(t *testing.T) {
	d, now := &measured{driver: driver{Shelf: newShelf()}}, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	opt := withIDs(storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute})
	s := openOn(t, d, opt)
	documents, err := job.Decode("job.yaml", []byte("name: a\nrun: {shell: 'true'}\npolicy: {overlap: allow}"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: documents[0].Job, Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Join(t.Context(), store.Session{ID: opt.NewID(), Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 2000)
	var items []store.TriggerItem
	for i := range store.MaxBatch {
		items = append(items, store.TriggerItem{
			ID: opt.NewID(), Job: j.Definition.UID, Kind: job.RunByHand, Key: fmt.Sprint(i), Session: node.ID, Node: "n", Actor: "ann", Params: map[string]string{"x": large},
		})
	}
	outcomes, err := s.Trigger(t.Context(), items)
	if err != nil || len(outcomes) != len(items) {
		t.Fatalf("%d runs are made: %v", len(outcomes), err)
	}
	var attempts []store.Attempt
	for i, m := range outcomes {
		if !m.Made || m.Run != items[i].ID {
			t.Fatalf("run %d: %+v", i, m)
		}
		attempts = append(attempts, store.Attempt{Job: j.Definition.UID, Run: m.Run, Number: 1, Token: opt.NewID()})
	}
	claimed, err := s.Claim(t.Context(), node.ID, attempts)
	if err != nil || len(claimed) != len(attempts) {
		t.Fatalf("%d runs are claimed: %v", len(claimed), err)
	}
	var results []store.Result
	for i, c := range claimed {
		if c.Verdict != store.Started || c.Run.ID != attempts[i].Run {
			t.Fatalf("claim %d: %+v", i, c)
		}
		output := []store.OutputChunk{{Run: c.Run.ID, Attempt: 1, Bytes: len(large), Time: now, Data: []byte(large)}}
		results = append(results, store.Result{Attempt: attempts[i], Started: now, Ended: now, Outcome: job.OutcomeFailed, Reason: job.Text(large), Output: output, OutputBytes: int64(len(large))})
	}
	done, err := s.Finish(t.Context(), node.ID, results)
	if err != nil || len(done) != len(results) {
		t.Fatalf("%d results are taken: %v", len(done), err)
	}
	for i := range done {
		if !done[i].Accepted {
			t.Fatalf("result %d is refused", i)
		}
	}
	if _, size := d.Bounds(); d.bytes > size+size/3 {
		t.Errorf("a commit has %d bytes, a driver takes %d", d.bytes, size+size/3)
	}
}

// backlog creates a job with a few runs, all but one with keys of their own.
func backlog(t *testing.T, s *shelf.Shelf, in int) {
	t.Helper()
	b := storetest.NewBacklog(t, func(t *testing.T, opt storetest.Options) store.Store {
		return openWith(t, driver{Shelf: s}, opt, in)
	})
	b.Grow(5)
}

// A run whose own key is missing has not ended.
func TestAMissingRunIsDamage(t *testing.T) {
	shared := newShelf()
	backlog(t, shared, inCell)
	d := driver{Shelf: shared}
	runs, err := d.Range(t.Context(), replica.Copied+"c/", replica.Copied+"c0", 10, false)
	if err != nil || len(runs) != 1+5 {
		t.Fatal(len(runs), err)
	}
	lost := runs[3]
	if _, _, err := d.Commit(t.Context(), &replica.Txn{Deletes: []string{lost.Key}}); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	opt := storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute}
	if _, err := open(t, shared, opt).ListActive(t.Context(), store.ActiveQuery{Limit: 10}); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "4 unfinished runs have keys of their own, and should be 5") {
		t.Errorf("got %v", err)
	}
	if _, _, err := d.Commit(t.Context(), &replica.Txn{Puts: []replica.Pair{{Key: lost.Key, Value: lost.Value}}}); err != nil {
		t.Fatal(err)
	}
	if list, err := open(t, shared, opt).ListActive(t.Context(), store.ActiveQuery{Limit: 10}); err != nil || len(list) != 6 {
		t.Errorf("with the run back: %d runs, %v", len(list), err)
	}
}

// A check reports how many runs of a job are missing, and its repair keeps the rest.
func TestAMissingRunIsReportedAndLeftOut(t *testing.T) {
	shared := newShelf()
	backlog(t, shared, inCell)
	d := driver{Shelf: shared}
	runs, err := d.Range(t.Context(), replica.Copied+"c/", replica.Copied+"c0", 10, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Commit(t.Context(), &replica.Txn{Deletes: []string{runs[2].Key, runs[4].Key}}); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := open(t, shared, storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute}).(*replica.Store)
	for _, step := range []struct {
		name   string
		fix    bool
		damage int
		active int
	}{{"looked at", false, 1, -1}, {"mended", true, 1, 4}, {"looked at again", false, 0, 4}} {
		damage, err := s.MendKeys(t.Context(), step.fix)
		if err != nil || len(damage) != step.damage {
			t.Fatalf("%s: %+v, %v", step.name, damage, err)
		}
		for _, d := range damage {
			if d.Object != "job default/a" || !strings.Contains(d.Found, "2 of the runs that wait or run are gone: 3 keys are there, of 5") || d.Mended != step.fix {
				t.Errorf("%s: %+v", step.name, d)
			}
		}
		list, err := s.ListActive(t.Context(), store.ActiveQuery{Limit: 10})
		if step.active < 0 {
			if !errors.Is(err, store.ErrDamaged) {
				t.Errorf("%s: runs are read: %v", step.name, err)
			}
		} else if err != nil || len(list) != step.active {
			t.Errorf("%s: %d runs, %v", step.name, len(list), err)
		}
	}
	audit, _, err := s.Audit(t.Context(), store.AuditQuery{Action: "job.mend", Limit: 10})
	if err != nil || len(audit) != 1 || !strings.Contains(audit[0].Detail.String(), "2 of the runs") {
		t.Errorf("the audit has %+v, %v", audit, err)
	}
}

// An unreadable value is reported, and its repair is left to operators.
func TestAKeyThatCannotBeReadIsReported(t *testing.T) {
	shared := newShelf()
	backlog(t, shared, inCell)
	d := driver{Shelf: shared}
	runs, err := d.Range(t.Context(), replica.Copied+"c/", replica.Copied+"c0", 10, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Commit(t.Context(), &replica.Txn{Puts: []replica.Pair{{Key: runs[0].Key, Value: []byte{1, 2}}}}); err != nil {
		t.Fatal(err)
	}
	s := open(t, shared, storetest.Options{Now: time.Now, LookAhead: time.Minute}).(*replica.Store)
	damage, err := s.MendKeys(t.Context(), true)
	if err != nil || len(damage) != 1 || damage[0].Mended || damage[0].Check != "store" {
		t.Errorf("got %+v, %v", damage, err)
	}
}

// Versions that know no runs with keys of their own must not take these for jobs, or take the rest
// for all: each such value has a newer format. Without such runs they can read everything.
func TestRunsApartHaveANewerFormat(t *testing.T) {
	for in, want := range map[int]byte{inCell: 3, 10: 1} {
		s := newShelf()
		backlog(t, s, in)
		for key, p := range s.Pairs {
			if strings.HasPrefix(key, replica.Copied+"c/") && p.Value[0] != want {
				t.Errorf("with %d runs in a cell %q has format %d, want %d", in, key, p.Value[0], want)
			}
		}
	}
}

// A cell with many runs, as versions before wrote them, is read, and divided with the next steps.
func TestALargeCellIsDivided(t *testing.T) {
	s := newShelf()
	b := storetest.NewBacklog(t, func(t *testing.T, opt storetest.Options) store.Store {
		return storetest.Nodes(openWith(t, driver{Shelf: s}, opt, 1<<20), openOn(t, driver{Shelf: s}, opt))
	})
	b.Grow(1500)
	for range 8 {
		b.Cycle()
	}
	for key, p := range s.Pairs {
		if strings.HasPrefix(key, replica.Copied+"c/") && len(p.Value) > 24<<10 {
			t.Errorf("%q has %d bytes", key, len(p.Value))
		}
	}
	b.Live()
}

// A run whose job does not exist is withdrawn.
func TestARunWithoutAJobIsWithdrawn(t *testing.T) {
	shared := newShelf()
	backlog(t, shared, inCell)
	d := driver{Shelf: shared}
	pairs, err := d.Range(t.Context(), replica.Copied+"c/", replica.Copied+"c0", 10, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Commit(t.Context(), &replica.Txn{Deletes: []string{pairs[0].Key}}); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := open(t, shared, storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute})
	for range 3 {
		if _, err := s.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := s.ListActive(t.Context(), store.ActiveQuery{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("%d runs are left, %v", len(list), err)
	}
	left, err := d.Range(t.Context(), replica.Copied+"c/", replica.Copied+"c0", 10, false)
	if err != nil || len(left) != 0 {
		t.Errorf("%d keys are left, %v", len(left), err)
	}
	var ids []job.ID
	history, _, err := s.Attempts(t.Context(), store.HistoryQuery{Limit: 10})
	for _, r := range history {
		if r.Final && r.Attempt.Outcome == job.OutcomeWithdrawn {
			ids = append(ids, r.Run.ID)
		}
	}
	if err != nil || len(ids) != 5 {
		t.Errorf("%d runs are withdrawn, want 5: %v", len(ids), err)
	}
}

// A process does not receive its own changes as changes from elsewhere: the ledger reports them.
func TestOwnCommitsAreNoChangesOfOthers(t *testing.T) {
	shared, now := newShelf(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	opt := storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute}
	own := openSmall(t, driver{Shelf: shared}, opt)
	other := openSmall(t, driver{Shelf: shared}, opt)
	told := own.EventsElsewhere(t.Context())
	documents, err := job.Decode("job.yaml", []byte("name: a\nschedule: {every: 1h}\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(t.Context(), own, store.PutJob{Definition: documents[0].Job, Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	var runs []job.ID
	for range 4 {
		outcomes, err := own.Trigger(t.Context(), []store.TriggerItem{{ID: withIDs(opt).NewID(), Job: j.Definition.UID, Kind: job.RunByHand, Scheduled: now, Actor: "ann"}})
		if err != nil || outcomes[0].Err != nil {
			t.Fatal(err, outcomes)
		}
		runs = append(runs, outcomes[0].Run)
	}
	for i, s := range []store.Store{own, own, other, other} {
		if _, err := s.Cancel(t.Context(), runs[i], "ann", ""); err != nil {
			t.Fatal(err)
		}
	}
	var ended []job.ID
	for len(ended) < 2 {
		select {
		case events := <-told:
			for _, e := range events {
				ended = append(ended, e.Run.ID)
			}
		case <-time.After(time.Minute):
			t.Fatalf("told were the ends of %v", ended)
		}
	}
	if ended[0] != runs[2] || ended[1] != runs[3] {
		t.Errorf("told were the ends of %v, want those of %v", ended, runs[2:])
	}
}
