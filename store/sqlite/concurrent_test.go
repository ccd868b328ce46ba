package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Readers see each run in exactly one place, whatever the writer does meanwhile.
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
					doubled, err := number(c, "select count(*) from active a join history h on h.run = a.id where h.final = 1")
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
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	for _, when := range []string{"before a statement", "in a statement"} {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.read(ctx, func(c *conn) error {
			if when == "before a statement" {
				cancel()
				time.Sleep(2 * interruptEvery) // so that it is interrupted while nothing goes on
			} else {
				time.AfterFunc(interruptEvery, cancel)
			}
			_, err := number(c, "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n")
			return err
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: got %v, want that it is cancelled", when, err)
		}
	}
	// The connection is of use to others.
	for range readersMax + 1 {
		if _, err := s.Sessions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A call that fails undoes its own changes, and not those of the others in its
// group.
func TestACallThatFailsLeavesTheRestOfItsGroup(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	audit := func(object string) func(*tx) error {
		return func(t *tx) error { return t.insertAudit(store.AuditRecord{Object: object}) }
	}
	wrong := errors.New("wrong")
	calls := []func(*tx) error{
		func(t *tx) error { return errors.Join(audit("undone")(t), wrong) },
		audit("first"),
		func(t *tx) error { return errors.Join(audit("undone")(t), wrong) },
		audit("second"),
	}
	// All are in one group: the writer is held until they have come.
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

func TestCallsAfterCloseAreRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
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

// What is remembered of a job is all that a decision may change.
func TestTheStateOfAJobIsCopiedWhole(t *testing.T) {
	full := engine.Job{}
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanSet() {
			continue
		}
		switch f.Interface().(type) {
		case time.Time:
			f.Set(reflect.ValueOf(time.Unix(1, 0)))
		case *engine.Policy:
			f.Set(reflect.ValueOf(&engine.Policy{}))
		case job.ID:
			f.Set(reflect.ValueOf(job.ID{1}))
		default:
			switch f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Bool:
				f.SetBool(true)
			default:
				f.SetInt(1)
			}
		}
	}
	if got := stateOf(&full); !reflect.DeepEqual(got, full) {
		t.Fatalf("got %+v\nof  %+v", got, full)
	}
}

// The log is written back beside the writer and begun anew, so that it does not
// grow with what is written.
func TestTheLogIsWrittenBack(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	ids := &tally{}
	write := func(size int) {
		t.Helper()
		if err := s.AppendOutput(t.Context(), []store.OutputChunk{{Run: ids.next(), Attempt: 1, Data: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := connect(s.path, false, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	longest := 0
	for range 200_000 { // little at a time, for as long as a busy machine may take
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
			return // it was begun anew
		}
		longest = pages
	}
	t.Fatalf("the log has %d pages", longest)
}
