package worker_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Resumed implements worker.Observer.
func (*tally) Resumed() {}

// tally records the calls of an observer.
type tally struct {
	mu    sync.Mutex
	late  []time.Duration
	ended []job.Outcome
}

func (o *tally) Started(late time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = append(o.late, late)
}

func (o *tally) Ended(_ job.ID, outcome job.Outcome, _ time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, outcome)
}

func TestObserverSeesStartedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		told := &tally{}
		r.observer = told
		r.start()
		j := r.put("a", "policy: {overlap: allow}")
		r.exec.does(lasts(time.Second))
		due := in(2 * time.Second)
		id := r.plan(j, due)[0]
		r.until("it runs", 3*time.Second, func() bool { return r.startsOf(id) == 1 })
		if s := r.worker.Stats(); s.Busy != 1 || s.Held != 0 || s.Pending != 0 || s.Results != 0 {
			t.Errorf("while it runs the worker has %+v", s)
		}
		r.store.set(func(h *hooks) { h.finish = func(func() error, []store.Result) error { return errAway } })
		r.until("its result waits", 3*time.Second, func() bool { return r.worker.Stats().Results == 1 })
		if s := r.worker.Stats(); s.Busy != 1 {
			t.Errorf("a result that waits takes no capacity: %+v", s)
		}
		if n := r.worker.Load().Unreported; n != 0 {
			t.Errorf("renewals mention %d results that have just come", n)
		}
		r.until("renewals mention it", 2*time.Second, func() bool { return r.worker.Load().Unreported == 1 })
		r.store.set(func(h *hooks) { h.finish = nil })
		r.until("it is over", 10*time.Second, func() bool { return r.outcome(id) == job.OutcomeSucceeded })
		r.until("nothing is left", time.Second, func() bool { return r.worker.Stats().Busy == 0 && r.worker.Load().Unreported == 0 })

		far := r.plan(j, in(2500*time.Millisecond))
		r.until("a run of the next seconds is held", 2400*time.Millisecond, func() bool { return r.worker.Stats().Held == 1 })
		r.until("it is over", 10*time.Second, func() bool { return r.outcome(far[0]) == job.OutcomeSucceeded })
		r.stop()
		if len(told.late) != 2 || told.late[0] < 0 || told.late[0] > 10*time.Millisecond {
			t.Errorf("the starts were late by %v", told.late)
		}
		if !slices.Equal(told.ended, []job.Outcome{job.OutcomeSucceeded, job.OutcomeSucceeded}) {
			t.Errorf("the ends were %v", told.ended)
		}
	})
}

func TestObserverSeesNoAttemptThatNeverStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		told := &tally{}
		r.observer = told
		r.book.fails = true // an attempt that cannot be announced does not start
		r.start()
		id := r.plan(r.put("a", "policy: {overlap: allow}"), in(time.Second))[0]
		r.until("it is given back", 5*time.Second, func() bool {
			return slices.ContainsFunc(r.store.givenBack(), func(a store.Attempt) bool { return a.Run == id })
		})
		r.stop()
		if len(told.late)+len(told.ended) != 0 {
			t.Errorf("the observer received the starts %v and the ends %v", told.late, told.ended)
		}
	})
}

// Refused claims do not make a node look busy, and slow claims still count.
func TestStatsCountClaimsInFlightAsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 5
		r.exec.does(lasts(time.Hour))
		r.start()
		r.store.set(func(h *hooks) {
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				time.Sleep(200 * time.Millisecond)
				return nil, store.ErrNoSpace
			}
		})
		due := in(2 * time.Second)
		r.shards(r.put("j", besides), due, 8)
		load := func(when string, want store.Load) {
			t.Helper()
			if got := r.worker.Load(); got != want {
				t.Errorf("%s the load is %+v, want %+v", when, got, want)
			}
		}
		time.Sleep(time.Until(due) + 100*time.Millisecond)
		load("while claims are made", store.Load{Ready: 8})
		time.Sleep(100 * time.Millisecond)
		load("when they were refused", store.Load{Ready: 8})
		time.Sleep(150 * time.Millisecond)
		load("while they are made again", store.Load{Ready: 8})
		r.store.set(func(h *hooks) { h.claim = nil })
		time.Sleep(10 * time.Second)
		load("when they were answered", store.Load{Running: 5, Ready: 3})
		if n := len(r.store.allClaims()); n < 10 {
			t.Errorf("%d claims were made: this shows nothing", n)
		}
	})
}
