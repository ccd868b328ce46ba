package worker_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestNoAttemptStartsEarlyByTheStoreClock(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset time.Duration        // of the node's clock
		ask    time.Duration        // how long requests take to reach the store, including claims
		answer func() time.Duration // how long the answer to a reading of the clock takes
		late   time.Duration        // at most
	}{
		{"the clocks agree", 0, 0, nil, 2 * time.Millisecond},
		{"the node is ahead", 700 * time.Millisecond, 0, nil, 2 * time.Millisecond},
		{"the node is behind", -700 * time.Millisecond, 0, nil, 2 * time.Millisecond},
		{"the answers take long", 0, 0, func() time.Duration { return 300 * time.Millisecond }, 302 * time.Millisecond},
		{"some answers take long", 0, 0, func() time.Duration { return time.Duration(time.Now().Second()%3) * 150 * time.Millisecond }, 2 * time.Millisecond},
		{"the questions take long", 0, 300 * time.Millisecond, func() time.Duration { return 0 }, 302 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.now = func() time.Time { return time.Now().Add(c.offset) }
				if c.answer != nil {
					r.store.set(func(h *hooks) {
						h.claim = slow(c.ask)
						h.now = func() (time.Time, error) {
							time.Sleep(c.ask)
							now := time.Now()
							time.Sleep(c.answer())
							return now, nil
						}
					})
				}
				j := r.put("j", besides)
				r.start()
				var due []time.Time
				for i := range 10 {
					due = append(due, in(2*time.Second+time.Duration(i)*777*time.Millisecond))
				}
				r.plan(j, due...)
				time.Sleep(12 * time.Second)
				starts := r.exec.starts()
				if len(starts) != 10 {
					t.Fatalf("%d starts, want 10", len(starts))
				}
				for _, s := range starts {
					if late := s.at.Sub(s.due); late < 0 || late > c.late {
						t.Errorf("started %s after its time, want 0 to %s", late, c.late)
					}
				}
			})
		})
	}
}

func TestClockStepMovesHeldRuns(t *testing.T) {
	for _, c := range []struct {
		name  string
		step  time.Duration
		start time.Duration // the latest start after the step; due 3 s after it by the old clock
		never bool
	}{
		{"forward over the due time", time.Hour, 1200 * time.Millisecond, false},
		{"back", -time.Hour, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.put("j", besides)
				r.start()
				id := r.plan(j, in(4*time.Second))[0]
				time.Sleep(time.Second)
				r.set.Store(int64(c.step))
				r.worker.ClockStepped()
				time.Sleep(1500 * time.Millisecond)
				claims := len(r.store.claimsOf(id))
				if c.never != (claims == 0) {
					t.Errorf("%d claims 1.5 s after the step", claims)
				}
				time.Sleep(8 * time.Second)
				if c.never && r.startsOf(id) != 0 {
					t.Error("it has started although its time is an hour away")
				}
				r.set.Store(0)
				r.worker.ClockStepped()
				time.Sleep(3 * time.Second)
				if r.startsOf(id) != 1 {
					t.Errorf("%d starts when the clock was right again, want 1", r.startsOf(id))
				}
			})
		})
	}
}

func TestNodeClockStepStartsNothingEarly(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Second, time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var set atomic.Int64 // on this node only
				r.now = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
				j := r.put("j", besides)
				r.start()
				r.claimsFar()
				id := r.plan(j, in(2*time.Second))[0]
				// The step is unnoticed yet.
				r.store.set(func(h *hooks) {
					h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
						set.Store(int64(step))
						return do()
					}
				})
				time.Sleep(3 * time.Second)
				for _, start := range r.exec.starts() {
					if late := start.at.Sub(start.due); start.Run == id && (late < 0 || late > 5*time.Millisecond) {
						t.Errorf("it has started %s late", late)
					}
				}
				if r.startsOf(id) != 1 {
					t.Errorf("%d starts, want 1", r.startsOf(id))
				}
			})
		})
	}
}

func TestClockStepKeepsClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.store.set(func(h *hooks) {
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				_, _ = do()
				return nil, errAway
			}
		})
		j := r.put("j", besides)
		r.start()
		id := r.plan(j, in(2*time.Second))[0]
		r.until("the claim is made", 5*time.Second, func() bool { return r.state(id) == job.StateRunning })
		r.set.Store(int64(time.Minute))
		r.worker.ClockStepped()
		r.store.set(func(h *hooks) { h.claim = nil })
		time.Sleep(5 * time.Second)
		if r.startsOf(id) != 1 || r.outcome(id) != job.OutcomeSucceeded {
			t.Errorf("%d starts, outcome %q; want the claim whose answer was lost to be made again", r.startsOf(id), r.outcome(id))
		}
	})
}

func TestClaimedRunsStartOnTimeAfterAClockStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		id := r.plan(j, in(2*time.Second))[0]
		r.claimedAhead(id)
		r.set.Store(int64(-time.Hour))
		r.worker.ClockStepped()
		time.Sleep(3 * time.Second)
		starts := r.exec.starts()
		if last := starts[len(starts)-1]; last.Run != id || last.at.Sub(last.due) > 2*time.Millisecond || last.at.Before(last.due) {
			t.Errorf("the last start is %+v, want the run that was claimed before", last)
		}
	})
}

func TestStoreClockGoingBackDoesNotCauseBusyPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.now = time.Now
		j := r.put("j", besides)
		r.store.set(func(h *hooks) { h.claim = slow(time.Millisecond) })
		r.start()
		id := r.plan(j, in(3*time.Second))[0]
		time.Sleep(2500 * time.Millisecond)
		r.set.Store(int64(-3 * time.Second)) // of the store only
		time.Sleep(8 * time.Second)
		if n := len(r.store.claimsOf(id)); n > 20 {
			t.Errorf("the claim was made %d times", n)
		}
		if r.startsOf(id) != 1 {
			t.Errorf("%d starts, want 1", r.startsOf(id))
		}
	})
}

func TestSlowClaimAnswersDelayNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar() // so that it is claimed in time
		before := len(r.exec.starts())
		r.store.set(func(h *hooks) {
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				outcomes, err := do()
				time.Sleep(200 * time.Millisecond)
				return outcomes, err
			}
		})
		r.plan(j, in(2*time.Second), in(3*time.Second))
		time.Sleep(5 * time.Second)
		starts := r.exec.starts()[before:]
		for _, s := range starts {
			if late := s.at.Sub(s.due); late < 0 || late > 2*time.Millisecond {
				t.Errorf("started %s after its time, want 0 to 2ms", late)
			}
		}
		if len(starts) != 2 {
			t.Errorf("%d starts, want 2", len(starts))
		}
	})
}

func TestStoreClockStepIsFollowed(t *testing.T) {
	for _, step := range []time.Duration{
		time.Hour, 1500 * time.Millisecond, 20 * time.Millisecond, -20 * time.Millisecond, -1500 * time.Millisecond,
	} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.now = time.Now
				j := r.put("j", besides)
				r.store.set(func(h *hooks) { h.claim = slow(time.Millisecond) })
				r.start()
				time.Sleep(10 * time.Second) // until the clock is well known
				r.set.Store(int64(step))     // of the store only
				known := max(0, step) + 1100*time.Millisecond
				var due []time.Time
				for i := range 10 {
					due = append(due, in(known+time.Duration(i)*777*time.Millisecond))
				}
				r.plan(j, due...)
				time.Sleep(2*step.Abs() + 15*time.Second)
				starts := r.exec.starts()
				if len(starts) != len(due) {
					t.Fatalf("%d starts, want %d", len(starts), len(due))
				}
				for _, s := range starts {
					if late := s.at.Add(step).Sub(s.due); late < 0 || late > 5*time.Millisecond {
						t.Errorf("started %s after its time, want 0 to 5ms", late)
					}
				}
			})
		})
	}
}
