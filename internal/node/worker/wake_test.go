package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// byHand creates a manual run that is due at once, and hints at it.
func (r *rig) byHand(j *store.Job) job.ID {
	r.t.Helper()
	id := job.ID{byte(r.ids.Add(1)), 1}
	item := store.TriggerItem{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Session: r.self.ID, Key: id.String(), Actor: "test"}
	if _, err := r.memory.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
		r.t.Fatal(err)
	}
	r.wake <- store.HintRuns
	return id
}

func TestHintSurvivesAFailedPoll(t *testing.T) {
	for fails, after := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.put("j", besides)
				r.start()
				time.Sleep(3010 * time.Millisecond) // the next regular poll is almost a second away
				var asked atomic.Int32
				r.store.set(func(h *hooks) {
					h.read = func() error {
						if asked.Add(1) <= int32(fails) {
							return errAway
						}
						return nil
					}
				})
				id := r.byHand(j)
				time.Sleep(after + 10*time.Millisecond)
				if n := asked.Load(); r.startsOf(id) != 1 || n != int32(fails+1) {
					t.Errorf("%d starts after %d looks, want 1 after %d", r.startsOf(id), n, fails+1)
				}
			})
		})
	}
}

func TestHintsBackOffWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		var asked atomic.Int32
		r.store.set(func(h *hooks) {
			h.read = func() error {
				asked.Add(1)
				return errAway
			}
		})
		id := r.byHand(j)
		time.Sleep(time.Minute)
		if n := asked.Load(); n > 130 {
			t.Errorf("in a minute without the store it was asked %d times", n)
		}
		r.store.set(func(h *hooks) { h.read = nil })
		time.Sleep(1050 * time.Millisecond) // the next regular poll is almost a second away
		if r.startsOf(id) != 1 {
			t.Errorf("%d starts a second after the store is back, want 1", r.startsOf(id))
		}
		id = r.byHand(j)
		time.Sleep(10 * time.Millisecond)
		if r.startsOf(id) != 1 {
			t.Errorf("%d starts after another hint, want 1 at once", r.startsOf(id))
		}
	})
}

// Nothing else wakes the claiming loop: its next poll may be a second later.
func TestCapacityFreedByAPauseIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		paused, other := r.put("paused", besides), r.put("other", besides)
		r.start()
		r.claimsFar()
		r.claimedAhead(r.plan(paused, in(2*time.Second))[0])
		waits := r.byHand(other)
		time.Sleep(20 * time.Millisecond)
		if r.startsOf(waits) != 0 {
			t.Fatal("there is room all the same: this shows nothing")
		}
		r.put("paused", "paused: true, "+besides)
		r.wake <- store.HintJobs
		time.Sleep(20 * time.Millisecond)
		if r.startsOf(waits) != 1 {
			t.Error("there is room, and what waits for it has not started")
		}
	})
}

// A run's slot may become free, with a hint, while the answer that it must wait is still on its
// way.
func TestSlotFreedDuringAClaimStartsItsRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx := context.Background()
		j := r.put("j", "policy: {overlap: queue, queue_limit: 5}")
		r.start()
		time.Sleep(3100 * time.Millisecond)
		// Another node holds the slot.
		other := r.join("b", nil)
		held := r.planFor(other.ID, j, in(0))[0]
		holder := store.Attempt{Run: held, Number: 1, Token: job.ID{9}}
		if got, err := r.memory.Claim(ctx, other.ID, []store.Attempt{holder}); err != nil || got[0].Verdict != store.Started {
			t.Fatal(got, err)
		}
		r.store.set(func(h *hooks) {
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				outcomes, err := do()
				if err == nil && outcomes[0].Verdict == store.Waiting {
					result := store.Result{Attempt: holder, Outcome: job.OutcomeSucceeded, Started: time.Now(), Ended: time.Now()}
					if _, err := r.memory.Finish(ctx, other.ID, []store.Result{result}); err != nil {
						t.Error(err)
					}
					r.wake <- store.HintRuns
					time.Sleep(50 * time.Millisecond)
				}
				return outcomes, err
			}
		})
		id := r.byHand(j)
		time.Sleep(70 * time.Millisecond)
		if claims := r.store.claimsOf(id); len(claims) == 0 || claims[0].verdict != store.Waiting {
			t.Fatalf("the claims are %+v, want one that has to wait: this shows nothing", claims)
		}
		if r.startsOf(id) != 1 {
			t.Error("its slot is free, and it has not started")
		}
	})
}

// The next attempt may be due, with a hint, before the node learns that the store has the result of
// this one.
func TestRetryDueBeforeItsAcknowledgementStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", "policy: {overlap: allow, retry: {attempts: 1, backoff: 0s, jitter: 0s}}")
		r.exec.does(func(context.Context, executor.Attempt, executor.Output) executor.Result {
			return executor.Result{Outcome: job.OutcomeFailed}
		})
		r.store.set(func(h *hooks) {
			h.finish = func(do func() error, _ []store.Result) error {
				err := do()
				r.wake <- store.HintRuns
				time.Sleep(50 * time.Millisecond)
				return err
			}
		})
		r.start()
		time.Sleep(3100 * time.Millisecond)
		id := r.byHand(j)
		time.Sleep(70 * time.Millisecond)
		if r.startsOf(id) != 2 {
			t.Errorf("%d attempts have started, want both", r.startsOf(id))
		}
	})
}

// Cancelled attempts are compared with the store, which may be slow.
func TestDueRunsDoNotWaitForCancellations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		time.Sleep(3100 * time.Millisecond)
		r.store.set(func(h *hooks) {
			h.mine = func(do func() ([]store.Run, error)) ([]store.Run, error) {
				time.Sleep(500 * time.Millisecond)
				return do()
			}
		})
		r.wake <- store.HintCancels
		time.Sleep(10 * time.Millisecond)
		id := r.byHand(j)
		time.Sleep(10 * time.Millisecond)
		if r.startsOf(id) != 1 {
			t.Error("a run that is due has not started while the store is asked what is to end")
		}
	})
}

// A read of ready runs from before their claims does not describe their state after them.
func TestRunReadBeforeItsClaimIsNotReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		read         time.Duration // start of the read after the due time
		claim, takes time.Duration // durations of the claim and of the read
	}{
		"read before":                    {-60 * time.Millisecond, 0, 100 * time.Millisecond},
		"read meanwhile":                 {10 * time.Millisecond, 200 * time.Millisecond, 20 * time.Millisecond},
		"read meanwhile, notified later": {10 * time.Millisecond, 200 * time.Millisecond, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.put("j", besides)
				r.exec.does(lasts(3 * time.Second))
				r.start()
				due := in(3600 * time.Millisecond) // between the polls of each second
				id := r.plan(j, due)[0]
				r.store.set(func(h *hooks) { h.claim = slow(c.claim) })
				time.Sleep(time.Until(due) + c.read)
				r.store.set(func(h *hooks) { h.tell = c.takes })
				r.wake <- store.HintRuns
				time.Sleep(c.takes + time.Millisecond)
				r.store.set(func(h *hooks) { h.tell = 0 })
				before := 0
				r.until("it has ended", 5*time.Second, func() bool {
					if r.outcome(id) != "" {
						return true
					}
					before = r.store.looks()
					return false
				})
				time.Sleep(5 * time.Millisecond)
				if n := r.store.looks() - before; n != 0 {
					t.Errorf("when it has ended the store is asked %d times for what is ready", n)
				}
			})
		})
	}
}

// A herd is claimed far ahead, and runs due later are not part of it.
func TestRunDueBehindAHerdStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const herd = 2000 // claimed 173 ms ahead, by the last measurement
		r := newRig(t)
		r.capacity = 2 * herd
		j := r.put("j", besides)
		r.start()
		due := in(3500 * time.Millisecond)
		for i := range 2 {
			r.shards(r.put(fmt.Sprint("herd", i), besides), due, herd/2)
		}
		time.Sleep(time.Until(due) - 150*time.Millisecond)
		if n := len(r.store.allClaims()); n != herd {
			t.Fatalf("%d of the herd were claimed so far ahead: this shows nothing", n)
		}
		for range 2 {
			id := r.byHand(j)
			time.Sleep(5 * time.Millisecond)
			if r.startsOf(id) != 1 {
				t.Error("what is due at once has not started")
			}
		}
	})
}
