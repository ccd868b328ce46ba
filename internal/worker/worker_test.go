package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/output"
	"github.com/belfry-cron/belfry/internal/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const besides = "policy: {overlap: allow}"

func TestNothingStartsBeforeItsTimeByTheClockOfTheStore(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset time.Duration        // of the clock of the node
		answer func() time.Duration // how long the store takes to say what time it is
		late   time.Duration        // at most
	}{
		{"the clocks agree", 0, nil, 2 * time.Millisecond},
		{"the node is ahead", 700 * time.Millisecond, nil, 2 * time.Millisecond},
		{"the node is behind", -700 * time.Millisecond, nil, 2 * time.Millisecond},
		{"the answers take long", 0, func() time.Duration { return 300 * time.Millisecond }, 302 * time.Millisecond},
		{"some answers take long", 0, func() time.Duration { return time.Duration(time.Now().Second()%3) * 150 * time.Millisecond }, 2 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.now = func() time.Time { return time.Now().Add(c.offset) }
				if c.answer != nil {
					r.store.set(func(h *hooks) {
						h.now = func() (time.Time, error) {
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

func TestClaimsGoOutAsFarAheadAsTheyTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		second := func(claimsTake time.Duration, n int) (lead time.Duration, late time.Duration) {
			r.store.set(func(h *hooks) { h.claim = slow(claimsTake) })
			for range n {
				id := r.plan(j, in(1500*time.Millisecond))[0]
				r.until("the run has ended", 5*time.Second, func() bool { return r.outcome(id) != "" })
				starts, claims := r.exec.starts(), r.store.claimsOf(id)
				last := starts[len(starts)-1]
				lead, late = last.due.Sub(claims[0].at), last.at.Sub(last.due)
				if late < 0 {
					t.Fatalf("started %s early", -late)
				}
			}
			return lead, late
		}
		slowLead, late := second(100*time.Millisecond, 5)
		if slowLead < 100*time.Millisecond || late > 2*time.Millisecond {
			t.Errorf("claims that take 100 ms go out %s ahead, and the run starts %s late", slowLead, late)
		}
		if slowLead > store.ClaimAhead {
			t.Errorf("claims go out %s ahead, which the store refuses", slowLead)
		}
		quickLead, late := second(0, 80)
		if quickLead > slowLead/4 || late > 2*time.Millisecond {
			t.Errorf("when claims are quick again they go out %s ahead instead of %s, and the run starts %s late", quickLead, slowLead, late)
		}
	})
}

func TestAsManyRunAsTheNodeHasRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 3
		r.exec.do = lasts(time.Second)
		j := r.put("j", besides)
		r.start()
		r.shards(j, in(3*time.Second), 20)
		time.Sleep(3500 * time.Millisecond)
		active, err := r.memory.ListActive(context.Background(), store.ActiveQuery{State: job.StateRunning, Limit: 100})
		if err != nil || len(active) != 3 {
			t.Errorf("%d are claimed while three run, want no more: %v", len(active), err)
		}
		if load := r.worker.Load(); load.Running != 3 || load.Ready != 17 {
			t.Errorf("the load is said to be %+v, want 3 running and 17 ready", load)
		}
		time.Sleep(10 * time.Second)
		if len(r.exec.starts()) != 20 || r.exec.most != 3 {
			t.Errorf("%d starts and at most %d at once, want 20 and 3", len(r.exec.starts()), r.exec.most)
		}
	})
}

func TestPriorityAndThenTheDueTimeDecideWhoIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		r.exec.do = lasts(time.Second)
		r.start()
		r.plan(r.put("blocker", besides), in(500*time.Millisecond))
		// All of them become due while it runs, those that are to be first last.
		var jobs []*store.Job
		for i := range 15 {
			jobs = append(jobs, r.put(fmt.Sprintf("j%02d", i), fmt.Sprintf("policy: {overlap: allow, priority: %d}", i/5)))
		}
		for i, j := range jobs {
			r.plan(j, in(time.Duration(600+20*(7*i%15))*time.Millisecond))
		}
		time.Sleep(20 * time.Second)
		starts := r.exec.starts()
		if len(starts) != 16 {
			t.Fatalf("%d starts, want 16", len(starts))
		}
		for i := 2; i < len(starts); i++ {
			before, after := starts[i-1], starts[i]
			if p, q := *before.job.Policy.Priority, *after.job.Policy.Priority; p < q || p == q && after.due.Before(before.due) {
				t.Errorf("priority %d of %s has started before priority %d of %s", p, before.due, q, after.due)
			}
		}
	})
}

// A worker that had nothing to wait for would never let fake time go on.
func TestAFullWorkerWaitsWithALongQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		r.exec.do = lasts(10 * time.Second)
		r.start()
		due := make([]time.Time, 2*store.MaxBatch)
		for i := range due {
			due[i] = in(500*time.Millisecond + time.Duration(i)*time.Millisecond)
		}
		r.plan(r.put("many", "policy: {overlap: allow}"), due...)
		time.Sleep(25 * time.Second)
		if starts := len(r.exec.starts()); starts != 3 {
			t.Errorf("%d starts, want 3", starts)
		}
	})
}

func TestAClaimWhoseAnswerWasLostIsRepeatedAsTheSame(t *testing.T) {
	for _, c := range []struct {
		name string
		made bool // the claim was made all the same
	}{{"it was made", true}, {"it was not made", false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var lost atomic.Int32
				r.store.set(func(h *hooks) {
					h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
						if lost.Add(1) > 3 {
							return do()
						}
						if c.made {
							_, _ = do()
						}
						return nil, errAway
					}
				})
				j := r.put("j", besides)
				r.start()
				id := r.plan(j, in(2*time.Second))[0]
				time.Sleep(6 * time.Second)
				claims := r.store.claimsOf(id)
				if len(claims) != 4 || claims[3].verdict != store.Started {
					t.Fatalf("claims: %+v, want three whose answer was lost and one that is answered", claims)
				}
				for _, again := range claims {
					if again.Attempt != claims[0].Attempt {
						t.Errorf("the claim was made as %+v and repeated as %+v", claims[0].Attempt, again.Attempt)
					}
				}
				if r.startsOf(id) != 1 || r.outcome(id) != job.OutcomeSucceeded {
					t.Errorf("%d starts, outcome %q", r.startsOf(id), r.outcome(id))
				}
				if r.worker.Load().Running != 0 {
					t.Error("it takes room although it is over")
				}
			})
		})
	}
}

func TestAClaimThatIsRefusedTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 2
		j := r.put("j", besides)
		r.start()
		due := in(3 * time.Second)
		var ids []job.ID
		for i := range 6 {
			ids = append(ids, r.plan(j, due.Add(time.Duration(i)*time.Millisecond))...)
		}
		time.Sleep(2500 * time.Millisecond) // they are held by now, also if the first look was before
		other := r.join("b", nil)
		var claims []store.Attempt
		for _, id := range ids[:5] {
			claims = append(claims, store.Attempt{Run: id, Number: 1, Token: id})
		}
		if _, err := r.memory.Claim(context.Background(), other.ID, claims); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if len(r.store.claimsOf(ids[0])) == 0 {
			t.Error("what another has is not asked for: this shows nothing")
		}
		if r.startsOf(ids[5]) != 1 || len(r.exec.starts()) != 1 || r.worker.Load().Running != 0 {
			t.Errorf("%d starts, %d take room; want the last alone to run", len(r.exec.starts()), r.worker.Load().Running)
		}
	})
}

func TestAStoreThatRefusesClaimsIsNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.store.set(func(h *hooks) {
			h.claim = func(func() ([]store.ClaimOutcome, error), []store.Attempt) ([]store.ClaimOutcome, error) {
				return nil, errAway
			}
		})
		j := r.put("j", besides)
		r.start()
		id := r.plan(j, in(time.Second))[0]
		time.Sleep(31 * time.Second)
		if n := len(r.store.claimsOf(id)); n < 5 || n > 20 {
			t.Errorf("the claim was made %d times in 30 s", n)
		}
		r.store.set(func(h *hooks) { h.claim = nil })
		time.Sleep(6 * time.Second)
		if r.startsOf(id) != 1 {
			t.Error("it was not started when the store was back")
		}
	})
}

func TestResultsAreKeptUntilTheStoreHasThem(t *testing.T) {
	for _, c := range []struct {
		name string
		made bool
	}{{"their answers were lost", true}, {"they were not taken", false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const herd = 520 // more than a batch
				r := newRig(t)
				r.capacity = 5000
				var away atomic.Bool
				away.Store(true)
				r.store.set(func(h *hooks) {
					h.finish = func(do func() error, _ []store.Result) error {
						if !away.Load() {
							return do()
						}
						if c.made {
							_ = do()
						}
						return errAway
					}
				})
				j := r.put("j", besides)
				other := r.put("other", besides)
				r.start()
				r.shards(j, in(2*time.Second), herd)
				time.Sleep(3 * time.Second)
				if len(r.exec.starts()) != herd {
					t.Fatalf("%d starts, want %d", len(r.exec.starts()), herd)
				}
				later := r.plan(other, in(time.Second))[0]
				_, before := r.store.asked()
				time.Sleep(30 * time.Second)
				if n := len(r.store.claimsOf(later)); n != 0 {
					t.Errorf("%d claims while the store takes no results", n)
				}
				if _, results := r.store.asked(); results-before > 20*store.MaxBatch {
					t.Errorf("%d results sent in 30 s to a store that takes none", results-before)
				}
				if load := r.worker.Load(); load.Running != herd {
					t.Errorf("%d take room, want %d whose results are not taken", load.Running, herd)
				}
				forgotten := 0
				for _, line := range r.book.all() {
					if strings.HasPrefix(line, "forget") {
						forgotten++
					}
				}
				if forgotten != 0 {
					t.Errorf("the journal has forgotten %d attempts whose results are nowhere", forgotten)
				}
				away.Store(false)
				time.Sleep(6 * time.Second)
				for _, s := range r.exec.starts() {
					if r.outcome(s.Run) != job.OutcomeSucceeded {
						t.Fatalf("the result of %s was lost", s.Run)
					}
				}
				if r.startsOf(later) != 1 {
					t.Error("nothing is claimed after the store has come back")
				}
				if load := r.worker.Load(); load.Running != 0 {
					t.Errorf("%d take room although all is over", load.Running)
				}
			})
		})
	}
}

func TestAResultThatIsRefusedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		j := r.put("j", besides)
		r.exec.do = func(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
			if len(r.exec.starts()) == 1 {
				// Somebody takes it away while it runs.
				active, err := r.memory.Active(ctx, a.Run.ID)
				if err != nil {
					t.Error(err)
				}
				_, err = r.memory.Finish(ctx, r.self.ID, []store.Result{{
					Attempt: store.Attempt{Run: a.Run.ID, Number: 1, Token: active.Token}, Outcome: job.OutcomeFailed, Reason: "by somebody else",
				}})
				if err != nil {
					t.Error(err)
				}
			}
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		r.start()
		ids := r.plan(j, in(time.Second), in(2*time.Second))
		time.Sleep(5 * time.Second)
		if r.outcome(ids[0]) != job.OutcomeFailed || r.outcome(ids[1]) != job.OutcomeSucceeded {
			t.Errorf("outcomes %q, %q; want the refused result to change nothing and to hold up nothing", r.outcome(ids[0]), r.outcome(ids[1]))
		}
	})
}

func TestWhatHasEndedTakesRoomUntilItIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		r.store.set(func(h *hooks) {
			h.finish = func(do func() error, _ []store.Result) error {
				time.Sleep(3 * time.Second)
				return do()
			}
		})
		j := r.put("j", besides)
		r.start()
		ids := r.plan(j, in(time.Second), in(1100*time.Millisecond))
		time.Sleep(3500 * time.Millisecond)
		if len(r.exec.starts()) != 1 || len(r.store.claimsOf(ids[1])) != 0 {
			t.Error("the second was claimed before the store had the result of the first")
		}
		time.Sleep(2 * time.Second)
		if len(r.exec.starts()) != 2 {
			t.Error("the second was not started afterwards")
		}
	})
}

func TestAResultComesWithItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = func(_ context.Context, _ executor.Attempt, out executor.Output) executor.Result {
			fmt.Fprint(out.Stdout, "hello")
			fmt.Fprint(out.Stderr, "oh")
			code := 3
			return executor.Result{Outcome: job.OutcomeFailed, Reason: "exit status 3", ExitCode: &code}
		}
		r.start()
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(2 * time.Second)
		chunks, err := r.memory.Output(context.Background(), id, 1, 0, 10)
		if err != nil || len(chunks) == 0 {
			t.Fatalf("%d chunks in the store: %v", len(chunks), err)
		}
		record := r.record(id)
		if record.OutputBytes != 7 || record.Attempt.ExitCode == nil || *record.Attempt.ExitCode != 3 || record.Attempt.Reason != "exit status 3" {
			t.Errorf("recorded: %+v", record)
		}
	})
}

func TestDrainGivesBackWhatHasNotStartedAndWaitsForTheRest(t *testing.T) {
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
		if err := r.worker.Drain(context.Background()); err != nil {
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
			t.Error("a run was claimed after the drain")
		}
	})
}

func TestDrainTakesNothingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		other := r.join("b", nil)
		id := r.planFor(other.ID, j, in(time.Second))[0]
		if err := r.worker.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if len(r.store.claimsOf(id)) != 0 {
			t.Error("a node that drains has taken a run over")
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
		if err := r.worker.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5100*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		r.stop()
		if cause := r.exec.cause(id); !errors.Is(cause, executor.ErrStopped) || r.outcome(id) != job.OutcomeLost {
			t.Errorf("it was ended because of %v and recorded as %q", cause, r.outcome(id))
		}
	})
}

func TestAStopIsShortAlsoWithoutAStore(t *testing.T) {
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
							time.Sleep(8 * time.Second) // longer than it is waited for
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

func TestAStopReportsWhatItHasEnded(t *testing.T) {
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

func TestWhatWasClaimedAheadIsCalledBackWhenItsJobChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *rig, j *store.Job)
		want   job.Outcome
		starts int
	}{
		{"a pause", func(r *rig, j *store.Job) { r.put("j", "paused: true, "+besides) }, job.OutcomeWithdrawn, 0},
		{"another schedule", func(r *rig, j *store.Job) {
			r.putText("{name: j, schedule: {cron: '7 7 7 7 *'}, run: {shell: 'true'}, " + besides + "}")
		}, job.OutcomeWithdrawn, 0},
		{"a delete", func(r *rig, j *store.Job) {
			if err := r.memory.DeleteJob(context.Background(), store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "test"}); err != nil {
				r.t.Fatal(err)
			}
		}, job.OutcomeWithdrawn, 0},
		{"another command", func(r *rig, j *store.Job) {
			r.putText("{name: j, schedule: {cron: '* * * * * *'}, run: {shell: 'other'}, " + besides + "}")
		}, job.OutcomeSucceeded, 1},
		{"a change of another job", func(r *rig, j *store.Job) { r.put("teacher", "paused: true, "+besides) }, job.OutcomeSucceeded, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.put("j", besides)
				r.start()
				r.claimsFar()
				id := r.plan(j, in(2*time.Second))[0]
				r.claimedAhead(id)
				c.change(r, j)
				r.wake <- store.HintJobs
				time.Sleep(5 * time.Second)
				if _, err := r.memory.Tidy(context.Background()); err != nil {
					t.Fatal(err)
				}
				if r.startsOf(id) != c.starts || r.outcome(id) != c.want {
					t.Errorf("%d starts, outcome %q; want %d, %s", r.startsOf(id), r.outcome(id), c.starts, c.want)
				}
				if c.starts == 1 {
					now, err := r.memory.JobByUID(context.Background(), j.Definition.UID)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range r.exec.starts() {
						if s.Run == id && s.job.Run.Shell.Command != now.Filled.Run.Shell.Command {
							t.Errorf("it ran %q, the definition says %q", s.job.Run.Shell.Command, now.Filled.Run.Shell.Command)
						}
					}
				}
				if r.worker.Load().Running != 0 {
					t.Error("what was called back takes room")
				}
				if c.name == "a change of another job" && len(r.store.givenBack()) != 0 {
					t.Errorf("called back: %v", r.store.givenBack())
				}
			})
		})
	}
}

func TestACancelEndsWhatRunsAndWhatIsClaimed(t *testing.T) {
	for _, ahead := range []bool{true, false} {
		t.Run(fmt.Sprintf("ahead=%t", ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.put("j", besides)
				r.start()
				r.claimsFar()
				r.exec.does(lasts(time.Hour))
				id := r.plan(j, in(2*time.Second))[0]
				r.claimedAhead(id)
				if !ahead {
					time.Sleep(3 * time.Second)
				}
				if _, err := r.memory.Cancel(context.Background(), id, "ada", "not today"); err != nil {
					t.Fatal(err)
				}
				r.wake <- store.HintCancels
				time.Sleep(100 * time.Millisecond)
				if !ahead && r.outcome(id) != job.OutcomeCancelled {
					t.Errorf("100 ms later it is %q", r.outcome(id))
				}
				time.Sleep(3 * time.Second)
				if r.outcome(id) != job.OutcomeCancelled {
					t.Errorf("it ended as %q, want cancelled", r.outcome(id))
				}
				if ahead && r.startsOf(id) != 0 {
					t.Error("it was started after it was cancelled")
				}
				if record := r.record(id); record == nil || !strings.Contains(record.Run.Reason+record.Attempt.Reason, "not today") {
					t.Errorf("recorded: %+v, want the reason", record)
				}
			})
		})
	}
}

func TestWithoutRenewalsAttemptsEndBeforeOthersTakeThem(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy string
		after  time.Duration // the last renewal; 0 for never
	}{
		{"one that holds a slot", "policy: {lost_after: 30s, kill_grace: 5s}", 30*time.Second - 5*time.Second - 3*time.Second},
		{"one by whose loss nobody gains", "policy: {overlap: allow, lost_after: 30s, kill_grace: 5s}", 0},
		{"one that is only retried when it fails", "policy: {overlap: allow, lost_after: 30s, kill_grace: 5s, retry: {attempts: 1, on: [failed]}}", 0},
		{"one that is retried when it is lost", "policy: {overlap: allow, lost_after: 40s, kill_grace: 2s, retry: {attempts: 1, on: [lost]}}", 35 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var ended atomic.Int64
				r.exec.do = func(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
					if a.Fence != c.after {
						t.Errorf("the executor is told a fence of %s, want %s", a.Fence, c.after)
					}
					<-ctx.Done()
					ended.Store(int64(time.Since(r.began)))
					return executor.Result{Outcome: job.OutcomeLost}
				}
				r.start()
				id := r.plan(r.put("j", c.policy), in(time.Second))[0]
				time.Sleep(10 * time.Second)
				r.silent.Store(true)
				synctest.Wait() // for a renewal at this instant
				renewed := time.Duration(r.renewed.Load())
				time.Sleep(50 * time.Second)
				if c.after == 0 {
					if r.exec.cause(id) != nil || ended.Load() != 0 {
						t.Errorf("it was ended because of %v", r.exec.cause(id))
					}
					return
				}
				at := time.Duration(ended.Load()) - renewed
				if at < c.after || at > c.after+1100*time.Millisecond {
					t.Errorf("it was ended %s after the last renewal, want %s and a second", at, c.after)
				}
				if !errors.Is(r.exec.cause(id), executor.ErrFenced) {
					t.Errorf("it was ended because of %v", r.exec.cause(id))
				}
			})
		})
	}
}

func TestWhatComesPastTheFenceIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.before = func(executor.Attempt) { time.Sleep(30 * time.Second) } // no room to start it
		r.start()
		id := r.plan(r.put("j", "policy: {lost_after: 30s, kill_grace: 5s}"), in(time.Second))[0]
		time.Sleep(1500 * time.Millisecond)
		r.silent.Store(true)
		// Others cannot take it yet: they would not count as steady.
		time.Sleep(29800 * time.Millisecond)
		if r.startsOf(id) != 0 {
			t.Error("it was started past its fence")
		}
		if slices.ContainsFunc(r.book.all(), func(line string) bool { return strings.HasPrefix(line, "announce") }) {
			t.Error("it is in the journal although it never began")
		}
		if _, results := r.store.asked(); results != 0 || !slices.ContainsFunc(r.store.givenBack(), func(a store.Attempt) bool { return a.Run == id }) {
			t.Errorf("%d results, released %v; want it to be given back", results, r.store.givenBack())
		}
	})
}

func TestAnAttemptThatWasTakenAwayIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = lasts(time.Hour)
		r.start()
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(2 * time.Second)
		r.store.set(func(h *hooks) {
			h.mine = func(func() ([]store.Run, error)) ([]store.Run, error) { return nil, nil }
		})
		time.Sleep(1100 * time.Millisecond)
		if !errors.Is(r.exec.cause(id), executor.ErrFenced) {
			t.Errorf("a second after it was taken away: %v", r.exec.cause(id))
		}
	})
}

func TestWhatBeginsDuringAComparisonIsNotJudgedByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = lasts(5 * time.Second)
		r.store.set(func(h *hooks) {
			h.mine = func(do func() ([]store.Run, error)) ([]store.Run, error) {
				runs, err := do()
				time.Sleep(700 * time.Millisecond)
				return runs, err
			}
		})
		j := r.put("j", besides)
		r.start()
		r.plan(j, in(1100*time.Millisecond), in(1500*time.Millisecond), in(2200*time.Millisecond), in(3300*time.Millisecond))
		time.Sleep(12 * time.Second)
		if n := len(r.exec.starts()); n != 4 || len(r.exec.causes) != 0 {
			t.Errorf("%d starts, ended %v; want four that are left alone", n, r.exec.causes)
		}
		for _, s := range r.exec.starts() {
			if r.outcome(s.Run) != job.OutcomeSucceeded {
				t.Errorf("the run of %s is %q", s.due, r.outcome(s.Run))
			}
		}
	})
}

func TestWhatTheStoreBelievesToRunHereIsGivenBackIfItIsNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		id := r.planFor(job.ID{}, r.put("j", besides), in(time.Second))[0]
		claim := []store.Attempt{{Run: id, Number: 1, Token: job.ID{9}}}
		if got, err := r.memory.Claim(context.Background(), r.self.ID, claim); err != nil || got[0].Verdict != store.Started {
			t.Fatal(got, err)
		}
		time.Sleep(4 * time.Second)
		if r.startsOf(id) != 1 || r.outcome(id) != job.OutcomeSucceeded {
			t.Errorf("%d starts, outcome %q; want it to be released, claimed and run", r.startsOf(id), r.outcome(id))
		}
	})
}

func TestAStepOfTheClockMovesWhatIsHeld(t *testing.T) {
	for _, c := range []struct {
		name  string
		step  time.Duration
		start time.Duration // after the step, at most; it is due 3 s after it by the old clock
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

func TestAStepOfTheNodesClockMakesNothingEarly(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Second, time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var set atomic.Int64 // on this node alone
				r.now = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
				j := r.put("j", besides)
				r.start()
				r.claimsFar()
				id := r.plan(j, in(2*time.Second))[0]
				// Nobody has noticed the step yet.
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

func TestAStepOfTheClockForgetsNoClaim(t *testing.T) {
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

func TestWhatIsClaimedStartsInTimeWhenTheClockIsSet(t *testing.T) {
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

func TestWhatOthersLeaveLyingIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.labels = map[string]string{"zone": "a"}
		r.start()
		other := r.join("b", map[string]string{"zone": "b"})
		due := in(2 * time.Second)
		want := map[string]bool{"free": true, "here": true, "unplaced": true}
		names := map[job.ID]string{}
		for name, rest := range map[string]string{
			"free": besides, "here": "place: {labels: {zone: a}}, " + besides, "there": "place: {labels: {zone: b}}, " + besides,
			"sticky": "place: {sticky: true}, " + besides, "broadcast": "place: {strategy: broadcast}, " + besides,
		} {
			names[r.planFor(other.ID, r.put(name, rest), due)[0]] = name
		}
		names[r.planFor(job.ID{}, r.put("unplaced", "place: {sticky: true}, "+besides), due)[0]] = "unplaced"
		r.planFor(other.ID, r.putText("{name: handled, schedule: {cron: '* * * * * *'}, run: {handler: h}, "+besides+"}"), due)
		time.Sleep(6 * time.Second)
		got := map[string]bool{}
		for _, s := range r.exec.starts() {
			got[s.name] = true
			if late := s.at.Sub(s.due); late < time.Second || late > 1600*time.Millisecond {
				t.Errorf("%s was taken over %s after its time, want between 1 and 1.5 s", s.name, late)
			}
			if !want[s.name] {
				t.Errorf("%s was taken over", s.name)
			}
		}
		if len(got) != len(want) {
			t.Errorf("taken over: %v, want %v", got, want)
		}
		for _, c := range r.store.allClaims() {
			if at := due.Add(time.Second); c.at.Before(at) {
				t.Errorf("a run of another node is claimed %s early", at.Sub(c.at))
			}
			if !want[names[c.Run]] {
				t.Errorf("%q is claimed", names[c.Run])
			}
		}
	})
}

func TestAFullNodeTakesNothingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		r.exec.do = lasts(5 * time.Second)
		j := r.put("j", besides)
		r.start()
		r.plan(j, in(time.Second))
		other := r.join("b", nil)
		id := r.planFor(other.ID, r.put("k", besides), in(1500*time.Millisecond))[0]
		time.Sleep(5900 * time.Millisecond)
		if len(r.store.claimsOf(id)) != 0 {
			t.Error("it has claimed what it has no room for")
		}
		time.Sleep(time.Second)
		if r.startsOf(id) != 1 {
			t.Error("it was not taken over when there was room")
		}
	})
}

func TestARetryIsClaimedUnderItsNumberAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", "policy: {overlap: allow, retry: {attempts: 1, backoff: 10s, jitter: 0s}}")
		r.start()
		id := r.plan(j, in(3500*time.Millisecond))[0]
		time.Sleep(1600 * time.Millisecond) // it is held by now
		// Another node claims it ahead of its time, and fails.
		other := r.join("b", nil)
		ctx := context.Background()
		claim := store.Attempt{Run: id, Number: 1, Token: job.ID{9}}
		if got, err := r.memory.Claim(ctx, other.ID, []store.Attempt{claim}); err != nil || got[0].Verdict != store.Started {
			t.Fatal(got, err)
		}
		if _, err := r.memory.Finish(ctx, other.ID, []store.Result{{Attempt: claim, Outcome: job.OutcomeFailed, Started: time.Now(), Ended: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		retry, err := r.memory.Active(ctx, id)
		if err != nil || retry.Attempt != 2 {
			t.Fatalf("the retry is %+v, %v", retry, err)
		}
		if err := r.memory.Place(ctx, []store.Placement{{Run: id, Attempt: 2, Session: r.self.ID}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		starts := r.exec.starts()
		if len(starts) != 1 || starts[0].Number != 2 || starts[0].at.Sub(retry.Due) > 5*time.Millisecond || starts[0].at.Before(retry.Due) {
			t.Errorf("starts %+v, want attempt 2 at %s", starts, retry.Due)
		}
		for _, c := range r.store.claimsOf(id) {
			if c.Number == 2 && retry.Due.Sub(c.at) > store.ClaimAhead {
				t.Errorf("attempt 2 was claimed %s ahead", retry.Due.Sub(c.at))
			}
		}
	})
}

func TestARetryThatIsHeldAlreadyComesAtItsNewTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", "policy: {overlap: allow, retry: {attempts: 1, backoff: 1s, jitter: 0s}}")
		r.start()
		id := r.plan(j, in(3900*time.Millisecond))[0]
		time.Sleep(2100 * time.Millisecond)
		other := r.join("b", nil)
		ctx := context.Background()
		claim := store.Attempt{Run: id, Number: 1, Token: job.ID{9}}
		if got, err := r.memory.Claim(ctx, other.ID, []store.Attempt{claim}); err != nil || got[0].Verdict != store.Started {
			t.Fatal(got, err)
		}
		if _, err := r.memory.Finish(ctx, other.ID, []store.Result{{Attempt: claim, Outcome: job.OutcomeFailed, Started: time.Now(), Ended: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		retry, err := r.memory.Active(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.memory.Place(ctx, []store.Placement{{Run: id, Attempt: 2, Session: r.self.ID}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		claims := r.store.claimsOf(id)
		if len(claims) != 1 || claims[0].Number != 2 {
			t.Errorf("claims %+v, want one, of attempt 2", claims)
		}
		if starts := r.exec.starts(); len(starts) != 1 || starts[0].at.Sub(retry.Due) > 5*time.Millisecond {
			t.Errorf("starts %+v, want one at %s", starts, retry.Due)
		}
	})
}

func TestAClaimWhoseSlotIsTakenIsMadeAgainAtItsInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", "policy: {overlap: skip}")
		r.start()
		r.claimsFar()
		r.exec.does(lasts(1500 * time.Millisecond))
		first := in(2 * time.Second)
		ids := r.plan(j, first, first.Add(time.Second), first.Add(2*time.Second))
		time.Sleep(8 * time.Second)
		if r.outcome(ids[0]) != job.OutcomeSucceeded || r.outcome(ids[1]) != job.OutcomeSkipped || r.outcome(ids[2]) != job.OutcomeSucceeded {
			t.Errorf("outcomes %q, %q, %q; want the one in the middle to be skipped", r.outcome(ids[0]), r.outcome(ids[1]), r.outcome(ids[2]))
		}
		for _, id := range ids {
			if n := len(r.store.claimsOf(id)); n > 2 {
				t.Errorf("%d claims of a run, want at most one ahead and one at its instant", n)
			}
		}
	})
}

func TestATimeoutCountsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.before = func(executor.Attempt) { time.Sleep(4 * time.Second) } // no room to start it
		r.exec.do = lasts(time.Hour)
		r.start()
		id := r.plan(r.put("j", "policy: {overlap: allow, timeout: 3s}"), in(time.Second))[0]
		time.Sleep(12 * time.Second)
		record := r.record(id)
		if record == nil || record.Attempt.Outcome != job.OutcomeTimedOut {
			t.Fatalf("recorded: %+v", record)
		}
		if took := record.Attempt.Ended.Sub(record.Attempt.Started); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("it ran %s, want 3 s", took)
		}
	})
}

func TestAnExecutorThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		r.exec.do = func(context.Context, executor.Attempt, executor.Output) executor.Result {
			if len(r.exec.starts()) == 1 {
				panic("bad executor")
			}
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		r.start()
		ids := r.plan(r.put("j", besides), in(time.Second), in(2*time.Second))
		time.Sleep(4 * time.Second)
		if r.outcome(ids[0]) != job.OutcomeFailed || r.outcome(ids[1]) != job.OutcomeSucceeded {
			t.Errorf("outcomes %q, %q; want failed, succeeded", r.outcome(ids[0]), r.outcome(ids[1]))
		}
	})
}

func TestTheJournalIsWrittenBeforeTheStartAndUntilTheResultIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.before = func(executor.Attempt) { r.book.note("asks") }
		r.exec.do = func(context.Context, executor.Attempt, executor.Output) executor.Result {
			r.book.note("runs")
			return executor.Result{Outcome: job.OutcomeSucceeded}
		}
		r.store.set(func(h *hooks) {
			h.finish = func(do func() error, _ []store.Result) error {
				time.Sleep(time.Second)
				r.book.note("reports")
				return do()
			}
		})
		r.start()
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(5 * time.Second)
		want := []string{"asks", fmt.Sprintf("announce %s 1", id), "runs", "reports", fmt.Sprintf("forget %s 1", id)}
		if got := r.book.all(); !slices.Equal(got, want) {
			t.Errorf("journal: %v, want %v", got, want)
		}
	})
}

func TestWithoutRoomInTheJournalNothingStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.book.fails = true
		r.start()
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(1500 * time.Millisecond)
		if r.startsOf(id) != 0 || r.outcome(id) != "" {
			t.Errorf("%d starts, outcome %q; want it to be given back", r.startsOf(id), r.outcome(id))
		}
		r.book.mu.Lock()
		r.book.fails = false
		r.book.mu.Unlock()
		time.Sleep(3 * time.Second)
		if r.startsOf(id) != 1 || r.record(id) == nil || r.record(id).Attempt.Number != 1 {
			t.Errorf("%d starts afterwards, recorded %+v; want the same attempt", r.startsOf(id), r.record(id))
		}
	})
}

func TestHintsAreFollowedAtOnceAndNotAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		time.Sleep(3300 * time.Millisecond)
		id := r.plan(j, in(20*time.Millisecond))[0]
		r.wake <- store.HintRuns
		time.Sleep(25 * time.Millisecond)
		if r.startsOf(id) != 1 {
			t.Error("a run that a hint was about has not started at its time")
		}
		// A store that is slow is left in peace, however many hints there are.
		r.store.set(func(h *hooks) { h.ready = 20 * time.Millisecond })
		r.store.mu.Lock()
		before := r.store.reads
		r.store.mu.Unlock()
		for range 3000 {
			select {
			case r.wake <- store.HintRuns:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		r.store.mu.Lock()
		reads := r.store.reads - before
		r.store.mu.Unlock()
		// Besides, it looks twice a second and for what others leave lying.
		if reads > 40 {
			t.Errorf("%d reads in 3 s of hints, each of which takes 20 ms", reads)
		}
	})
}

// A cancel, a pause or an edit does not wait for the rest after a look for runs.
func TestWhatIsNotToRunIsLookedAtWithoutARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.exec.does(lasts(time.Hour))
		running := r.plan(j, in(time.Second))[0]
		r.until("the first has started", 5*time.Second, func() bool { return r.startsOf(running) == 1 })
		ahead := r.plan(j, in(2*time.Second))[0]
		r.claimedAhead(ahead)
		r.store.set(func(h *hooks) { h.ready = 100 * time.Millisecond })
		r.wake <- store.HintRuns
		time.Sleep(110 * time.Millisecond) // from here on it rests, for a second
		if _, err := r.memory.Cancel(context.Background(), running, "ada", "not today"); err != nil {
			t.Fatal(err)
		}
		r.wake <- store.HintCancels
		r.put("j", "paused: true, "+besides)
		r.wake <- store.HintJobs
		time.Sleep(100 * time.Millisecond)
		if r.outcome(running) != job.OutcomeCancelled {
			t.Errorf("100 ms after its cancel the run is %q", r.outcome(running))
		}
		if len(r.store.givenBack()) != 1 {
			t.Errorf("100 ms after the pause %d were given back, want what is claimed", len(r.store.givenBack()))
		}
	})
}

func TestThousandsOfChangesAreNotThousandsOfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.exec.does(lasts(time.Hour))
		id := r.plan(j, in(time.Second))[0]
		r.until("it has started", 5*time.Second, func() bool { return r.startsOf(id) == 1 })
		var reads atomic.Int32
		r.store.set(func(h *hooks) {
			h.mine = func(do func() ([]store.Run, error)) ([]store.Run, error) {
				reads.Add(1)
				return do()
			}
		})
		for range 3000 {
			select {
			case r.wake <- store.HintCancels:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		// Ten at once, twenty a second, and one that it makes by itself.
		if n := reads.Load(); n < 30 || n > 10+3*21+1 {
			t.Errorf("%d reads in 3 s of hints", n)
		}
		// The last of them is not lost in it.
		if _, err := r.memory.Cancel(context.Background(), id, "ada", ""); err != nil {
			t.Fatal(err)
		}
		r.wake <- store.HintCancels
		time.Sleep(100 * time.Millisecond)
		if r.outcome(id) != job.OutcomeCancelled {
			t.Errorf("100 ms after its cancel the run is %q", r.outcome(id))
		}
	})
}

// Of many that are claimed the one that starts first is called back first.
func TestWhatStartsFirstIsCalledBackFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.claimsFar()
		due := in(2 * time.Second)
		var last job.ID
		for i := range 100 {
			last = r.plan(r.put(fmt.Sprintf("j%d", i), besides), due.Add(time.Duration(i)*time.Millisecond))[0]
		}
		r.claimedAhead(last)
		r.store.set(func(h *hooks) {
			h.job = func() error {
				time.Sleep(5 * time.Millisecond)
				return nil
			}
		})
		r.put("j0", "paused: true, "+besides)
		r.wake <- store.HintJobs
		time.Sleep(50 * time.Millisecond)
		if n := len(r.store.givenBack()); n != 1 {
			t.Errorf("50 ms after the pause %d were given back, want the one of that job", n)
		}
	})
}

// A pause that could not be looked at is looked at again: no hint comes a second time.
func TestAPauseIsLookedAtAgainWhenTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		id := r.plan(j, in(2500*time.Millisecond))[0]
		r.claimedAhead(id)
		r.store.set(func(h *hooks) { h.job = func() error { return errAway } })
		r.put("j", "paused: true, "+besides)
		r.wake <- store.HintJobs
		time.Sleep(20 * time.Millisecond)
		r.store.set(func(h *hooks) { h.job = nil })
		time.Sleep(3 * time.Second)
		if r.startsOf(id) != 0 {
			t.Error("it was started after the pause")
		}
	})
}

// endless is a store with more ready runs than fit into any memory.
type endless struct {
	*between
	pages atomic.Int32
}

func (e *endless) Ready(_ context.Context, session job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	page := int(e.pages.Add(1))
	if page > 1000 {
		return nil, nil // the test has failed; it need not hang as well
	}
	runs := make([]store.ReadyRun, limit)
	for i := range runs {
		runs[i].ID[0], runs[i].ID[1], runs[i].ID[2], runs[i].ID[3] = 1, byte(page>>8), byte(page), byte(i>>8)
		runs[i].ID[4] = byte(i)
		runs[i].Due, runs[i].Attempt, runs[i].Session = until, 1, session
	}
	return runs, nil
}

func TestWhatIsHeldInMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e := &endless{between: r.store}
		collector, err := output.New(output.Config{Sink: unwritten{}})
		if err != nil {
			t.Fatal(err)
		}
		w := worker.New(worker.Config{
			Store: e, Self: r.join("a", nil), Executors: func(*job.Job) executor.Executor { return r.exec }, Output: collector,
			Capacity: 10, StealAfter: time.Second, Renewed: func() time.Duration { return 0 }, Boot: func() time.Duration { return 0 },
			Now: time.Now, NewID: r.newID, Log: slogDiscard,
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.Run(ctx) }()
		time.Sleep(500 * time.Millisecond)
		cancel()
		<-done
		// A page has some thousand runs, and some hundred thousand are held.
		if n := e.pages.Load(); n > 200 {
			t.Errorf("%d pages were read in one look", n)
		}
	})
}

// paged is a store with many ready runs of one instant, whose claims all succeed.
type paged struct {
	*between
	job  *store.Job
	runs []store.ReadyRun
}

func (p *paged) Ready(_ context.Context, _ job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	from := slices.IndexFunc(p.runs, func(r store.ReadyRun) bool {
		return !r.Due.After(until) && (r.Due.After(after.Due) || r.Due.Equal(after.Due) && string(r.ID[:]) > string(after.ID[:]))
	})
	if from < 0 {
		return nil, nil
	}
	return p.runs[from:min(len(p.runs), from+limit)], nil
}

func (p *paged) Claim(_ context.Context, _ job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	p.bounded(len(attempts))
	outcomes := make([]store.ClaimOutcome, len(attempts))
	for i, a := range attempts {
		run := job.Run{ID: a.Run, Version: p.job.Definition.Version, Attempt: 1, Due: p.runs[0].Due}
		outcomes[i] = store.ClaimOutcome{Job: p.job, Run: store.Run{Run: run, Token: a.Token}}
	}
	return outcomes, nil
}

func (p *paged) Finish(_ context.Context, _ job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	p.bounded(len(results))
	return make([]store.FinishOutcome, len(results)), nil
}

func (p *paged) Mine(context.Context, job.ID) ([]store.Run, error) { return nil, nil }

func TestAllPagesOfReadyRunsAreReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000 // several pages
		r := newRig(t)
		p := &paged{between: r.store, job: r.put("j", besides)}
		due := in(2500 * time.Millisecond) // between two looks: the store forgets nothing
		for i := range n {
			run := store.ReadyRun{RunRef: store.RunRef{Due: due, ID: job.ID{1, byte(i >> 8), byte(i)}}, Job: p.job.Definition.UID, Attempt: 1}
			p.runs = append(p.runs, run)
		}
		collector, err := output.New(output.Config{Sink: unwritten{}})
		if err != nil {
			t.Fatal(err)
		}
		w := worker.New(worker.Config{
			Store: p, Self: r.join("a", nil), Executors: func(*job.Job) executor.Executor { return r.exec }, Output: collector,
			Capacity: 2 * n, StealAfter: time.Second, Renewed: func() time.Duration { return 0 }, Boot: func() time.Duration { return 0 },
			Now: time.Now, NewID: r.newID, Log: slogDiscard,
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.Run(ctx) }()
		time.Sleep(2600 * time.Millisecond)
		cancel()
		<-done
		seen := map[job.ID]bool{}
		for _, s := range r.exec.starts() {
			if late := s.at.Sub(due); late < 0 || late > 5*time.Millisecond || seen[s.Run] {
				t.Fatalf("started %s after its time, again: %t", late, seen[s.Run])
			}
			seen[s.Run] = true
		}
		if len(seen) != n {
			t.Errorf("%d of %d have started", len(seen), n)
		}
	})
}

func TestAHerdOfLongAttemptsStartsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = lasts(5 * time.Second)
		j := r.put("j", besides)
		r.start()
		r.shards(j, in(2*time.Second), 80)
		time.Sleep(2010 * time.Millisecond)
		if n := len(r.exec.starts()); n != 80 {
			t.Errorf("10 ms after their instant %d of 80 have started", n)
		}
	})
}

func TestAClaimUnderWayWhenItsJobChangesIsCalledBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.store.set(func(h *hooks) {
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				outcomes, err := do()
				time.Sleep(300 * time.Millisecond) // the answer is on its way
				return outcomes, err
			}
		})
		id := r.plan(j, in(2*time.Second))[0]
		r.until("the claim is made", 5*time.Second, func() bool { return r.state(id) == job.StateRunning })
		r.put("j", "paused: true, "+besides)
		r.wake <- store.HintJobs
		time.Sleep(5 * time.Second)
		if r.startsOf(id) != 0 {
			t.Error("it was started after the pause was acknowledged, although it was not due yet")
		}
	})
}

func TestAClaimWhoseAnswerWasLostIsCalledBackIfItsJobHasChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig, j *store.Job)
		starts int
	}{
		"a pause": {func(r *rig, j *store.Job) { r.put("j", "paused: true, "+besides) }, 0},
		"a delete": {func(r *rig, j *store.Job) {
			if err := r.memory.DeleteJob(context.Background(), store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "test"}); err != nil {
				r.t.Fatal(err)
			}
		}, 0},
		"another command": {func(r *rig, j *store.Job) {
			r.putText("{name: j, schedule: {cron: '* * * * * *'}, run: {shell: 'other'}, " + besides + "}")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.put("j", besides)
				r.start()
				lost := false
				r.store.set(func(h *hooks) {
					h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
						outcomes, err := do()
						if !lost {
							lost = true
							c.change(r, j) // of which no hint comes
							return nil, errAway
						}
						return outcomes, err
					}
				})
				id := r.plan(j, in(2*time.Second))[0]
				time.Sleep(6 * time.Second)
				if r.startsOf(id) != c.starts || len(r.store.givenBack()) != 1 {
					t.Errorf("%d starts, %d were given back, want %d and 1", r.startsOf(id), len(r.store.givenBack()), c.starts)
				}
				for _, s := range r.exec.starts() {
					if s.job.Run.Shell.Command != "other" {
						t.Errorf("it ran %q, which was changed before", s.job.Run.Shell.Command)
					}
				}
				if r.worker.Load().Running != 0 {
					t.Error("what was called back takes room")
				}
			})
		})
	}
}

func TestAStoreWhoseClockGoesBackIsNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.now = time.Now
		j := r.put("j", besides)
		r.store.set(func(h *hooks) { h.claim = slow(time.Millisecond) })
		r.start()
		id := r.plan(j, in(3*time.Second))[0]
		time.Sleep(2500 * time.Millisecond)
		r.set.Store(int64(-3 * time.Second)) // of the store alone
		time.Sleep(8 * time.Second)
		if n := len(r.store.claimsOf(id)); n > 20 {
			t.Errorf("the claim was made %d times", n)
		}
		if r.startsOf(id) != 1 {
			t.Errorf("%d starts, want 1", r.startsOf(id))
		}
	})
}

func TestAClaimUnderWayWhenTheNodeDrainsIsGivenBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.store.set(func(h *hooks) {
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				outcomes, err := do()
				time.Sleep(300 * time.Millisecond) // the answer is on its way
				return outcomes, err
			}
		})
		id := r.plan(j, in(2*time.Second))[0]
		r.until("the claim is made", 5*time.Second, func() bool { return r.state(id) == job.StateRunning })
		if err := r.worker.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if r.startsOf(id) != 0 || r.state(id) != job.StateReady {
			t.Errorf("%d starts, state %s; want it to be ready for others", r.startsOf(id), r.state(id))
		}
	})
}
