package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// odd is a store whose calls run a function of the test first.
type odd struct {
	store.Store
	tidy func(context.Context)
	lost func()
	now  atomic.Pointer[func()] // called between reading the clock and answering
}

func (o *odd) Now(ctx context.Context) (time.Time, error) {
	now, err := o.Store.Now(ctx)
	if do := o.now.Load(); do != nil {
		(*do)()
	}
	return now, err
}

func (o *odd) Tidy(ctx context.Context) (bool, error) {
	if o.tidy != nil {
		o.tidy(ctx)
	}
	return o.Store.Tidy(ctx)
}

func (o *odd) Lost(ctx context.Context, limit int) ([]store.Attempt, error) {
	if o.lost != nil {
		o.lost()
	}
	return o.Store.Lost(ctx, limit)
}

// settable is a node in a bubble whose wall clock can be set.
type settable struct {
	store *odd
	exec  *fake
	log   *logtest.Log
	ahead atomic.Int64
	stop  func()
}

func newSettable(t *testing.T, o *odd) *settable {
	t.Helper()
	s := &settable{store: o, exec: &fake{}, log: &logtest.Log{}}
	now := func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	o.Store = memory.New(memory.Options{Now: now})
	booted := time.Now()
	n, err := New(Config{
		Session:   store.Session{Node: "a", Machine: "m1", DataDir: "/a", Roles: []string{store.RolePlanner, store.RoleWorker}, Capacity: 100},
		Executors: func(*job.Job) executor.Executor { return s.exec },
		Now:       now,
		Boot:      func() time.Duration { return time.Since(booted) },
		Log:       slog.New(slog.NewTextHandler(s.log, nil)),
	}.On(o))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	s.stop = func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return s
}

func TestClockStepIsNoticedWithASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
		}
		s := newSettable(t, &odd{tidy: hangs})
		time.Sleep(5*time.Second + 130*time.Millisecond)
		for n, step := range []time.Duration{time.Hour, -time.Hour, time.Hour} {
			s.ahead.Add(int64(step))
			time.Sleep(time.Second)
			if got := s.log.Count("the wall clock was set"); got != n+1 {
				t.Errorf("a second after step %d the log has %d of them", n+1, got)
			}
		}
		s.stop()
	})
}

func TestClockStepReapsNoLiveNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &odd{}
		s := newSettable(t, o)
		s.exec.do = sleeps(5 * time.Minute)
		var once sync.Once
		o.lost = func() { once.Do(func() { s.ahead.Add(int64(time.Hour)) }) } // exactly when the node looks
		w := &world{t: t, store: o}
		j := w.apply(`{name: j, schedule: {at: ["2000-01-01T00:00:10Z"]}, run: {shell: "true"}}`)
		time.Sleep(8 * time.Minute)
		s.stop()
		// An attempt counted as lost could still report its result.
		if got := w.outcomes(j); len(got) != 1 || got[0] != "succeeded" || s.log.Count("attempts are lost") > 0 || s.log.Count("session is over") > 0 {
			t.Errorf("history %v, want succeeded, and nothing lost:\n%s", got, s.log.String())
		}
	})
}

func TestClockStepDuringAComparisonStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &odd{}
		s := newSettable(t, o)
		w := &world{t: t, store: o}
		w.apply(`{name: j, schedule: {every: 1s}, run: {shell: "true"}}`)
		time.Sleep(10 * time.Second)
		s.ahead.Add(int64(time.Hour))
		time.Sleep(10 * time.Second)
		var back atomic.Bool
		now := func() {
			if back.CompareAndSwap(false, true) {
				s.ahead.Add(-int64(time.Hour)) // and back
				time.Sleep(time.Second)        // all others have noticed
			}
		}
		o.now.Store(&now)
		time.Sleep(5 * time.Second)
		by := w.apply(`{name: k, run: {shell: "true"}}`)
		if _, err := o.Trigger(t.Context(), []store.TriggerItem{{ID: job.ID{1}, Job: by.Definition.UID, Kind: job.RunByHand, Key: "k", Actor: "test"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		s.stop()
		if got := w.outcomes(by); len(got) != 1 || got[0] != "succeeded" {
			t.Errorf("a run by hand ended as %v, want succeeded", got)
		}
	})
}
