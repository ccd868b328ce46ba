package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestDrainReleasesUnstartedRunsAndWaitsForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.exec.does(lasts(3 * time.Second))
		running := r.plan(j, in(2*time.Second))[0]
		r.until("it runs", 5*time.Second, func() bool { return r.startsOf(running) == 1 })
		ids := r.plan(j, in(1500*time.Millisecond), in(5*time.Second))
		r.claimedAhead(ids[0])
		drained := time.Now()
		if err := r.worker.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(drained); took > 3100*time.Millisecond || r.outcome(running) != job.OutcomeSucceeded {
			t.Errorf("it took %s, and what ran ended as %q", took, r.outcome(running))
		}
		time.Sleep(10 * time.Second)
		for _, id := range ids {
			if r.startsOf(id) != 0 || r.state(id) != job.StateReady {
				t.Errorf("run %s: %d starts, state %s; want it to be ready for others", id, r.startsOf(id), r.state(id))
			}
		}
		if len(r.store.claimsOf(ids[1])) != 0 {
			t.Error("a run was claimed after it")
		}
	})
}

// The rig fails for an oversized batch.
func TestReleasesAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 3 * store.MaxBatch
		j := r.put("j", besides)
		k := r.put("k", besides)
		r.start()
		r.claimsFar()
		due := in(1500 * time.Millisecond)
		r.shards(j, due, store.MaxBatch)
		r.shards(k, due, store.MaxBatch)
		before := len(r.store.allClaims())
		r.until("all are claimed ahead", 1400*time.Millisecond, func() bool { return len(r.store.allClaims()) == before+2*store.MaxBatch })
		synctest.Wait()
		if err := r.worker.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := len(r.store.givenBack()); n != 2*store.MaxBatch {
			t.Errorf("%d were given back, want all %d", n, 2*store.MaxBatch)
		}
	})
}

func TestDrainingNodeStealsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		other := r.join("b", nil)
		id := r.planFor(other.ID, j, in(time.Second))[0]
		if err := r.worker.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if len(r.store.claimsOf(id)) != 0 {
			t.Error("a node that leaves has taken a run over")
		}
	})
}

func TestDrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = lasts(time.Hour)
		r.start()
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := r.worker.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5100*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		r.stop()
		if cause := r.exec.cause(id); !errors.Is(cause, executor.ErrStopped) || r.outcome(id) != job.OutcomeLost {
			t.Errorf("it was ended because of %v and recorded as %q", cause, r.outcome(id))
		}
	})
}

// A store that is away returns; a full one waits for an operator.
func TestDrainWaitsForResultsButNotForAFullStore(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want time.Duration // after the end of the last run
	}{{"the store is away", errAway, 20 * time.Second}, {"the store is full", store.ErrNoSpace, time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var said logtest.Log
				r.log = slog.New(slog.NewTextHandler(&said, nil))
				r.exec.do = lasts(8 * time.Second)
				r.start()
				j := r.put("j", besides)
				first := r.plan(j, in(time.Second))[0]
				r.until("the first runs", 5*time.Second, func() bool { return r.startsOf(first) == 1 })
				second := r.plan(j, in(2*time.Second))[0]
				r.until("the second runs", 5*time.Second, func() bool { return r.startsOf(second) == 1 })
				began := time.Now()
				r.store.set(func(h *hooks) { h.finish = func(func() error, []store.Result) error { return c.err } })
				ctx, cancel := context.WithTimeout(context.Background(), 28*time.Second)
				defer cancel()
				_ = r.worker.Leave(ctx)
				if took := time.Since(began); took < 8*time.Second || took > 8*time.Second+c.want || errors.Is(c.err, errAway) && took < 28*time.Second {
					t.Errorf("leaving took %s", took)
				}
				r.stop()
				if log := said.String(); strings.Count(log, "a result was not accepted") != 2 || !strings.Contains(log, "results=2") || !strings.Contains(log, second.String()) {
					t.Errorf("the log does not name both results:\n%s", log)
				}
			})
		})
	}
}

// A full disk is often why a node is stopped, while claims of due runs are unanswered.
func TestDrainWaitsForClaimsButNotForAFullStore(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want time.Duration // the least; at most 5 s more
	}{{"the store is away", errAway, 28 * time.Second}, {"the store is full", store.ErrNoSpace, 5 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.exec.do = lasts(8 * time.Second)
				r.start()
				j := r.put("j", besides)
				first := r.plan(j, in(time.Second))[0]
				r.until("the first runs", 5*time.Second, func() bool { return r.startsOf(first) == 1 })
				var refused atomic.Int32
				r.store.set(func(h *hooks) {
					h.claim = func(func() ([]store.ClaimOutcome, error), []store.Attempt) ([]store.ClaimOutcome, error) {
						refused.Add(1)
						return nil, c.err
					}
				})
				r.plan(j, in(time.Second))
				r.until("the second is refused", 5*time.Second, func() bool { return refused.Load() > 0 })
				began := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 28*time.Second)
				defer cancel()
				_ = r.worker.Leave(ctx)
				if took := time.Since(began); took < c.want || took > c.want+5*time.Second {
					t.Errorf("leaving took %s", took)
				}
				r.stop()
			})
		})
	}
}

// A drain that ends during the release of a late claim does not abandon the call: otherwise the
// session could not end.
func TestReleaseInFlightOutlivesTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.store.set(func(h *hooks) {
			h.release = func(do func() error, _ []store.Attempt) error {
				time.Sleep(300 * time.Millisecond)
				return do()
			}
		})
		id := r.claimUnderWay(j)
		if err := r.worker.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.cancel(executor.ErrStopped)
		<-r.ended
		if r.startsOf(id) != 0 || r.state(id) != job.StateReady {
			t.Errorf("%d starts, state %s; want it to be ready for others", r.startsOf(id), r.state(id))
		}
	})
}

func TestStopIsQuickWithoutAStore(t *testing.T) {
	for _, c := range []struct {
		name  string
		hangs bool
	}{{"the store fails", false}, {"the store hangs", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.exec.do = lasts(time.Hour)
				r.start()
				id := r.plan(r.put("j", besides), in(time.Second))[0]
				time.Sleep(2 * time.Second)
				r.store.set(func(h *hooks) {
					h.finish = func(func() error, []store.Result) error {
						if c.hangs {
							time.Sleep(8 * time.Second) // longer than the drain waits
						}
						return errAway
					}
				})
				began := time.Now()
				r.cancel(executor.ErrFenced)
				<-r.ended
				if took := time.Since(began); took > 9*time.Second {
					t.Errorf("it took %s", took)
				}
				if cause := r.exec.cause(id); !errors.Is(cause, executor.ErrFenced) {
					t.Errorf("it was ended because of %v, want what ended the worker", cause)
				}
			})
		})
	}
}

func TestStopReportsTheAttemptsItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.exec.does(lasts(time.Hour))
		ids := r.plan(j, in(2*time.Second), in(3*time.Second))
		r.claimedAhead(ids[1])
		r.until("the first runs", 3*time.Second, func() bool { return r.startsOf(ids[0]) == 1 })
		var fails atomic.Int32
		r.store.set(func(h *hooks) {
			h.finish = func(do func() error, _ []store.Result) error {
				if fails.Add(1) < 4 {
					return errAway
				}
				return do()
			}
		})
		r.stop()
		if r.outcome(ids[0]) != job.OutcomeLost {
			t.Errorf("what ran is recorded as %q, want lost", r.outcome(ids[0]))
		}
		if r.startsOf(ids[1]) != 0 || r.state(ids[1]) != job.StateReady {
			t.Errorf("what had not started was started %d times and is %s, want ready", r.startsOf(ids[1]), r.state(ids[1]))
		}
	})
}

func TestClaimInFlightIsReleasedWhenTheNodeLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		id := r.claimUnderWay(j)
		if err := r.worker.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if r.startsOf(id) != 0 || r.state(id) != job.StateReady {
			t.Errorf("%d starts, state %s; want it to be ready for others", r.startsOf(id), r.state(id))
		}
	})
}

// drawer is a spool in memory.
type drawer struct{ kept, forgotten atomic.Int32 }

func (d *drawer) Keep(*store.Result) { d.kept.Add(1) }
func (d *drawer) Forget(job.ID)      { d.forgotten.Add(1) }

// The next process reports the results in the spool, so that a node does not wait for an absent or
// silent store.
func TestDrainWithASpoolWaitsFiveSecondsForTheStore(t *testing.T) {
	hang := func() error { time.Sleep(time.Hour); return errAway }
	for name, answer := range map[string]func() error{"away": func() error { return errAway }, "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var spool drawer
				r.spool = &spool
				r.exec.do = lasts(8 * time.Second)
				r.start()
				j := r.put("j", besides)
				id := r.plan(j, in(time.Second))[0]
				r.until("it runs", 5*time.Second, func() bool { return r.startsOf(id) == 1 })
				var asked atomic.Bool
				r.store.set(func(h *hooks) {
					h.finish = func(func() error, []store.Result) error { return answer() }
					h.claim = func(func() ([]store.ClaimOutcome, error), []store.Attempt) ([]store.ClaimOutcome, error) {
						asked.Store(true)
						return nil, errAway
					}
				})
				r.plan(j, in(time.Second))
				r.until("another is claimed in vain", 5*time.Second, asked.Load)
				began := time.Now()
				if err := r.worker.Leave(context.Background()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < 11*time.Second || took > 13*time.Second+100*time.Millisecond {
					t.Errorf("leaving took %s, with an attempt of 8 s", took)
				}
				stopped := time.Now()
				r.cancel(executor.ErrStopped)
				if name == "away" {
					<-r.ended
					if took := time.Since(stopped); took > 100*time.Millisecond {
						t.Errorf("after that, stopping took %s", took)
					}
				}
				r.stop()
				if spool.kept.Load() != 1 || spool.forgotten.Load() != 0 {
					t.Errorf("the spool was given %d results, and %d were forgotten", spool.kept.Load(), spool.forgotten.Load())
				}
			})
		})
	}
}

// An attempt that certainly has not begun leaves the journal before the store knows: the next
// process releases it.
func TestUnstartedAttemptLeavesTheJournalAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.does(func(context.Context, executor.Attempt, executor.Output) executor.Result {
			return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("too many open files"), Unstarted: true}
		})
		r.start()
		r.store.set(func(h *hooks) { h.release = func(func() error, []store.Attempt) error { return errAway } })
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(3 * time.Second)
		if got := r.book.all(); !slices.Contains(got, fmt.Sprintf("forget %s 1", id)) {
			t.Errorf("the journal keeps an attempt that has not started: %v", got)
		}
		r.store.set(func(h *hooks) { h.release = nil })
	})
}
