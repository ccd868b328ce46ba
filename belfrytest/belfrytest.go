// Package belfrytest tests the handlers and schedules of programs that use package belfry. It uses
// a store in memory and the fake time of testing/synctest, so that a simulated month takes seconds.
//
//	synctest.Test(t, func(t *testing.T) {
//		s := belfrytest.New(t)
//		billing.Register(s) // what the program does with its scheduler
//		belfrytest.Run(t, s)
//		belfrytest.Advance(24 * time.Hour)
//		if runs := belfrytest.Ended(t, s, "nightly"); len(runs) != 1 {
//			t.Errorf("nightly ran %d times in a day", len(runs))
//		}
//	})
//
// A test sees the behaviour of production: the same planner, claims and retries, on the reference
// store.
package belfrytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// New returns a scheduler on an empty store in memory, for use in a bubble of fake time.
// Its node logs to the log of the test.
func New(t testing.TB, options ...belfry.Option) *belfry.Scheduler {
	open := func(context.Context) (store.Store, error) { return memory.New(memory.Options{}), nil } //nolint:contextcheck // it is open at once
	return belfry.New(open, append(Options(t), options...)...)
}

// Shared returns an opener of one store in memory for several schedulers of a test, like
// instances of a program that share a database.
func Shared() store.Opener {
	s := sharedStore{memory.New(memory.Options{})}
	return func(context.Context) (store.Store, error) { return s, nil }
}

// sharedStore is a store that does not belong to one process.
type sharedStore struct{ *memory.Store }

// EventsElsewhere implements [store.Control]: all processes are this one.
func (sharedStore) EventsElsewhere(ctx context.Context) <-chan []store.Event {
	events := make(chan []store.Event)
	context.AfterFunc(ctx, func() { close(events) })
	return events
}

// Options returns the options of a scheduler in a bubble, for programs that call [belfry.New]
// themselves.
func Options(t testing.TB) []belfry.Option {
	began := time.Now()
	return []belfry.Option{
		belfry.WithClock(time.Now, func() time.Duration { return time.Since(began) }),
		belfry.WithLogger(slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))),
		belfry.WithNodeName("test"), belfry.WithOwner("test"),
	}
}

// writer writes into the log of a test.
type writer struct{ t testing.TB }

func (w writer) Write(p []byte) (int, error) {
	_, err := w.t.Output().Write(p)
	return len(p), err
}

var _ io.Writer = writer{}

// Run runs a scheduler until the test ends or stop is called, and waits until it has brought its
// jobs into the store.
func Run(t testing.TB, s *belfry.Scheduler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // of capacity one
	go func() { ended <- s.Run(ctx) }()
	over := false
	stop = func() {
		t.Helper()
		if over {
			return
		}
		over = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("belfry: %v", err)
		}
	}
	t.Cleanup(stop)
	synctest.Wait()
	select {
	case err := <-ended:
		over = true
		cancel()
		t.Fatalf("belfry: the scheduler has not started: %v", err)
	default:
	}
	return stop
}

// Advance advances the time of the bubble, and waits until the runs that fall due have
// started.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Ended returns the runs of a job that have ended, the oldest first.
func Ended(t testing.TB, s *belfry.Scheduler, name string) []client.Run {
	t.Helper()
	const most = 100_000 // in one test
	runs, err := s.Runs(t.Context(), name, most)
	if err != nil {
		t.Fatalf("belfry: read the runs of %s: %v", name, err)
	}
	runs = slices.DeleteFunc(runs, func(r client.Run) bool { return r.State != job.StateDone })
	slices.Reverse(runs)
	return runs
}

// Call is the result of a handler call.
type Call[Out any] struct {
	Result Out
	Run    client.Run // with its outcome, attempts and reason
	Output string     // its log and output
}

// Do runs a handler with an input like Belfry, under a job with the given options, and waits for its
// end. The scheduler must be running.
func Do[In, Out any](t testing.TB, s *belfry.Scheduler, h *belfry.Handler[In, Out], in In, options ...belfry.JobOption) Call[Out] {
	t.Helper()
	ctx := t.Context()
	id, remove := start(t, s, append([]belfry.JobOption{h.Do(in)}, options...))
	defer remove()
	call := Call[Out]{Run: waitFor(t, s, id)}
	var err error
	var failed *belfry.RunError
	if call.Result, err = h.Result(ctx, id); err != nil && !errors.As(err, &failed) {
		t.Fatalf("belfry: %v", err)
	}
	if call.Output, err = s.Output(ctx, id); err != nil {
		t.Fatalf("belfry: %v", err)
	}
	return call
}

// started numbers the jobs of start: in a bubble of synctest, two may start at the same
// time.
var started atomic.Int64

// start runs a new job, which remove deletes.
func start(t testing.TB, s *belfry.Scheduler, options []belfry.JobOption) (id belfry.RunID, remove func()) {
	t.Helper()
	ctx := t.Context()
	name := fmt.Sprintf("test-of-%d-%d", time.Now().UnixNano(), started.Add(1))
	if err := s.Add(ctx, name, options...); err != nil {
		t.Fatalf("belfry: %v", err)
	}
	id, err := s.Trigger(ctx, name)
	if err != nil {
		t.Fatalf("belfry: %v", err)
	}
	return id, func() {
		t.Helper()
		// The context of the test has ended at its cleanup.
		if err := s.Remove(context.WithoutCancel(ctx), name); err != nil && !errors.Is(err, belfry.ErrClosed) {
			t.Errorf("belfry: %v", err)
		}
	}
}

func waitFor(t testing.TB, s *belfry.Scheduler, id belfry.RunID) client.Run {
	t.Helper()
	run, err := s.Wait(t.Context(), id)
	if err != nil {
		t.Fatalf("belfry: %v", err)
	}
	return run
}

// Times returns the scheduled times of a declared job from one instant, included, to another,
// excluded, without running it.
func Times(t testing.TB, s *belfry.Scheduler, name string, from, to time.Time) []time.Time {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatalf("belfry: %v", err)
	}
	for _, j := range s.Jobs() {
		if j.Name != name {
			continue
		}
		schedule, err := j.WithDefaults(job.Defaults{}).CompileSchedule(nil)
		if err != nil {
			t.Fatalf("belfry: the schedule of %s: %v", name, err)
		}
		var list []time.Time
		for at := schedule.Next(from.Add(-1)); !at.IsZero() && at.Before(to); at = schedule.Next(at) {
			list = append(list, at)
		}
		return list
	}
	t.Fatalf("belfry: no job %s is declared", name)
	return nil
}
