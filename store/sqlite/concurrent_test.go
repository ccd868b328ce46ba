package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Readers see each run in exactly one place, whatever the writer does.
func TestReadersSeeOneState(t *testing.T) {
	s, session, jobs := benchStore(t, 50, job.Policy{})
	l := newLives(s, session, jobs, 0)
	done := make(chan error, 1)
	go func() {
		var err error
		for round := 0; round < 20 && err == nil; round++ {
			err = l.run(t.Context(), round, 50, 50, 1)
		}
		done <- err
	}()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 * readersMax {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := s.read(t.Context(), func(c *conn) error {
					doubled, err := number(c, "select count(*) from active a join history h on h.run = a.id where h.is_final = 1")
					if err == nil && doubled > 0 {
						err = errors.New("a run that is over is active")
					}
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
	records, _, err := s.Attempts(t.Context(), store.HistoryQuery{Limit: 10_000})
	if err != nil || len(records) != 1000 {
		t.Fatalf("%d records, %v, want 1000", len(records), err)
	}
}

func TestAReadEndsWithItsContext(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	for _, when := range []string{"before a statement", "in a statement"} {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.read(ctx, func(c *conn) error {
			if when == "before a statement" {
				cancel()
				time.Sleep(2 * interruptEvery) // interrupts an idle connection
			} else {
				time.AfterFunc(interruptEvery, cancel)
			}
			_, err := number(c, "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n")
			return err
		})
		cancel()
		if !interrupted(err) {
			t.Fatalf("%s: got %v, want that it is cancelled", when, err)
		}
	}
	// The connections can be used again.
	for range readersMax + 1 {
		if _, err := s.Sessions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A failed call rolls back its own changes, and no others of its group.
func TestFailedCallSparesTheRestOfItsGroup(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	audit := func(object string) func(*tx) error {
		return func(t *tx) error {
			return t.c.stmt("insert into audit (written, actor, action, object, version, detail, changes) values (1, '', '', ?, 0, '', '')").bindText(object).exec()
		}
	}
	wrong := errors.New("wrong")
	calls := []func(*tx) error{
		func(t *tx) error { return errors.Join(audit("undone")(t), wrong) },
		audit("first"),
		func(t *tx) error { return errors.Join(audit("undone")(t), wrong) },
		audit("second"),
	}
	// All are in one group: the writer is held until they have arrived.
	hold, held := make(chan struct{}), make(chan struct{})
	results := make(chan error, len(calls)+1)
	go func() {
		results <- s.write(t.Context(), func(*tx) error {
			close(held)
			<-hold
			return nil
		})
	}()
	<-held
	for _, do := range calls {
		go func() { results <- s.write(t.Context(), do) }()
	}
	close(hold)
	failed := 0
	for range len(calls) + 1 {
		if err := <-results; errors.Is(err, wrong) {
			failed++
		} else if err != nil {
			t.Error(err)
		}
	}
	records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if failed != 2 || len(records) != 2 || records[0].Object == "undone" || records[1].Object == "undone" {
		t.Fatalf("%d failed, and there are %v", failed, records)
	}
}

// undone makes a call in a group whose transaction is rolled back, which must fail the call.
func undone(t *testing.T, s *Store, call func() error) {
	t.Helper()
	hold, held := make(chan struct{}), make(chan struct{})
	results := make(chan error, 3)
	begin := func(waiting int, call func() error) {
		go func() { results <- call() }()
		for queued := -1; queued < waiting; {
			s.d.writer.mu.Lock()
			queued = len(s.d.writer.queue)
			s.d.writer.mu.Unlock()
		}
	}
	begin(0, func() error {
		return s.write(t.Context(), func(*tx) error {
			s.d.writer.groupTime = time.Hour // a busy machine may take longer than a group lasts
			close(held)
			<-hold
			return nil
		})
	})
	<-held
	begin(1, call)
	begin(2, func() error {
		return s.write(t.Context(), func(t *tx) error { return t.c.stmt("rollback").exec() })
	})
	close(hold)
	for range 3 {
		if err := <-results; !errors.Is(err, errUndone) {
			t.Errorf("a call of the group: %v, want that it was undone", err)
		}
	}
}

// Later steps do not remember a rolled-back one.
func TestRolledBackStateIsEvicted(t *testing.T) {
	s, session, jobs := benchStore(t, 1, job.Policy{Overlap: job.OverlapAllow})
	from := jobs[0].Cursor
	item := store.PlanItem{
		Job: jobs[0].Definition.UID, Epoch: 1, From: from, To: from.Add(time.Microsecond),
		Runs: []store.NewRun{{ID: job.ID{1}, Session: session, Scheduled: from.Add(time.Microsecond), Due: from.Add(time.Microsecond)}},
	}
	plan := func() error {
		out, _, err := s.Plan(t.Context(), session, []store.PlanItem{item})
		if err == nil && out[0] != store.Planned {
			err = fmt.Errorf("plan: %v", out)
		}
		return err
	}
	claim := func(token byte) error {
		out, err := s.Claim(t.Context(), session, []store.Attempt{{Run: job.ID{1}, Number: 1, Token: job.ID{token}}})
		if err == nil && out[0].Verdict != store.Started {
			err = fmt.Errorf("claim: %+v", out)
		}
		return err
	}
	undone(t, s, plan)
	if err := plan(); err != nil {
		t.Fatal(err)
	}
	undone(t, s, func() error { return claim(2) })
	if err := claim(3); err != nil {
		t.Error(err)
	}
}

func TestCallsAfterCloseAreRefused(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sessions(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("read: %v", err)
	}
	if _, err := s.Tidy(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("write: %v", err)
	}
}

// The log is written back in the background and restarted, so that it does not grow without bound.
func TestTheLogIsWrittenBack(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	ids := &tally{}
	write := func(size int) {
		t.Helper()
		if err := s.AppendOutput(t.Context(), []store.OutputChunk{{Run: ids.next(), Attempt: 1, Data: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := connect(s.d.path, false, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	longest := 0
	for range 200_000 { // small writes, for as long as a busy machine may need
		if longest < 2*checkpointPages {
			write(1 << 20)
		} else {
			write(1)
		}
		pages, _, err := c.checkpoint(lib.SQLITE_CHECKPOINT_NOOP)
		if err != nil {
			t.Fatal(err)
		}
		if pages < longest {
			return // the log was restarted
		}
		longest = pages
	}
	t.Fatalf("the log has %d pages", longest)
}
