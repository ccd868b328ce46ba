package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestEarlyClaimsAreRecalledWhenTheirJobChanges(t *testing.T) {
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
					now, err := store.JobByUID(context.Background(), r.memory, j.Definition.UID)
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

func TestCancelEndsRunningAndClaimedAttempts(t *testing.T) {
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
				if record := r.record(id); record == nil || !strings.Contains(record.Run.Reason.String()+record.Attempt.Reason.String(), "not today") {
					t.Errorf("recorded: %+v, want the reason", record)
				}
			})
		})
	}
}

func TestHintsAreFollowedAtOnceButRateLimited(t *testing.T) {
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
		// A slow store is not polled more often for many hints.
		r.store.set(func(h *hooks) { h.ready = 20 * time.Millisecond })
		before := r.store.looks()
		for range 3000 {
			select {
			case r.wake <- store.HintRuns:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		reads := r.store.looks() - before
		// Besides, it polls twice a second, for its own and for overdue runs.
		if reads > 40 {
			t.Errorf("%d reads in 3 s of hints, each of which takes 20 ms", reads)
		}
	})
}

// A worker that has claimed most of a page, and has little more to do, does not wait out its
// backoff.
func TestBackoffEndsWhenAPageIsClaimed(t *testing.T) {
	const page = 2000
	for n, ends := range map[int]bool{page - 50: false, page + 50: true} {
		t.Run(fmt.Sprintf("%d runs", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.capacity = 2 * page
				many, one := r.put("many", besides), r.put("one", besides)
				r.start()
				time.Sleep(3300 * time.Millisecond) // the next regular poll is in 700 ms
				r.store.set(func(h *hooks) { h.ready = 60 * time.Millisecond })
				r.shards(many, in(0), n)
				r.wake <- store.HintRuns
				time.Sleep(130 * time.Millisecond) // from here on it backs off, for 530 ms or more
				if begun := len(r.exec.starts()); begun != n {
					t.Fatalf("%d of %d have started", begun, n)
				}
				id := r.plan(one, in(0))[0]
				r.wake <- store.HintRuns
				time.Sleep(70 * time.Millisecond)
				if looked := r.startsOf(id) == 1; looked != ends {
					t.Errorf("the rest has ended: %t, want %t", looked, ends)
				}
			})
		})
	}
}

// A cancel, a pause or an edit does not wait for the backoff after a poll.
func TestRevocationsSkipTheBackoff(t *testing.T) {
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
		time.Sleep(110 * time.Millisecond) // from here on it backs off, for a second
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

func TestThousandsOfChangesShareReads(t *testing.T) {
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
		// Ten at once, twenty a second, and one regular poll.
		if n := reads.Load(); n < 30 || n > 10+3*21+1 {
			t.Errorf("%d reads in 3 s of hints", n)
		}
		// The last of them is not lost among them.
		if _, err := r.memory.Cancel(context.Background(), id, "ada", ""); err != nil {
			t.Fatal(err)
		}
		r.wake <- store.HintCancels
		time.Sleep(100 * time.Millisecond)
		if r.outcome(id) != job.OutcomeCancelled {
			t.Errorf("100 ms after its cancel the run is %q", r.outcome(id))
		} else if reason := r.record(id).Attempt.Reason; strings.Contains(reason.String(), "ada:") {
			t.Errorf("it was cancelled without a reason, which is %q", reason)
		}
	})
}

// Of very many jobs with claims the earliest starts are recalled first, a batch with each call.
func TestEarliestStartsAreRecalledFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const all, paused = 3 * store.MaxBatch, 50
		r.capacity = 2 * all
		r.start()
		r.claimsFar()
		due := in(2 * time.Second)
		var last job.ID
		for i := range all {
			last = r.plan(r.put(fmt.Sprintf("j%d", i), besides), due.Add(time.Duration(i)*10*time.Microsecond))[0]
		}
		r.claimedAhead(last)
		var calls atomic.Int64
		r.store.set(func(h *hooks) {
			h.job = func() error {
				calls.Add(1)
				time.Sleep(30 * time.Millisecond)
				return nil
			}
		})
		for i := range paused {
			r.put(fmt.Sprintf("j%d", i), "paused: true, "+besides)
		}
		r.wake <- store.HintJobs
		time.Sleep(50 * time.Millisecond)
		if n := len(r.store.givenBack()); n != paused {
			t.Errorf("50 ms after %d pauses %d were given back", paused, n)
		}
		time.Sleep(100 * time.Millisecond)
		if n := calls.Load(); n != all/store.MaxBatch {
			t.Errorf("%d jobs were read by %d calls", all, n)
		}
	})
}

// After a failed read a pause is read again, as no hint is repeated.
func TestPauseIsReadAgainAfterAStoreFailure(t *testing.T) {
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

func TestClaimInFlightIsRecalledWhenItsJobChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		id := r.claimUnderWay(j)
		r.put("j", "paused: true, "+besides)
		r.wake <- store.HintJobs
		time.Sleep(5 * time.Second)
		if r.startsOf(id) != 0 {
			t.Error("it was started after the pause was acknowledged, although it was not due yet")
		}
	})
}

// The answer to the change names it as running.
func TestRunAlreadyDueSurvivesAnEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.store.set(func(h *hooks) {
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				outcomes, err := do()
				time.Sleep(time.Second) // the answer arrives long after the run is due
				return outcomes, err
			}
		})
		id := r.plan(j, in(100*time.Millisecond))[0]
		r.until("the claim is made", 5*time.Second, func() bool { return r.state(id) == job.StateRunning })
		time.Sleep(500 * time.Millisecond)
		r.put("j", "paused: true, "+besides)
		r.wake <- store.HintJobs
		time.Sleep(5 * time.Second)
		if r.startsOf(id) != 1 || r.outcome(id) != job.OutcomeSucceeded {
			t.Errorf("%d starts, outcome %q; want 1, succeeded", r.startsOf(id), r.outcome(id))
		}
	})
}

func TestClaimWithALostAnswerIsRecalledAfterAnEdit(t *testing.T) {
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
							c.change(r, j) // without a hint about it
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

// A change concerns the nodes with its job, and a cancel the node with its run: other nodes read
// nothing.
func TestHintsAboutOtherRunsReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		r.claimsFar()
		r.exec.does(lasts(time.Hour))
		running := r.plan(j, in(time.Second))[0]
		r.until("it has started", 5*time.Second, func() bool { return r.startsOf(running) == 1 })
		ahead := r.plan(j, in(2*time.Second))[0]
		r.claimedAhead(ahead)
		var runs, jobs atomic.Int32
		r.store.set(func(h *hooks) {
			h.mine = func(do func() ([]store.Run, error)) ([]store.Run, error) {
				list, err := do()
				runs.Add(int32(len(list)))
				return list, err
			}
			h.job = func() error { jobs.Add(1); return nil }
		})
		read := func(hint store.Hint) (ofRuns, ofJobs int) {
			runs.Store(0)
			jobs.Store(0)
			r.wake <- hint
			time.Sleep(60 * time.Millisecond) // less than until the next regular poll
			return int(runs.Load()), int(jobs.Load())
		}
		other := job.ID{1, 2, 3}
		for _, c := range []struct {
			what       string
			hint       store.Hint
			runs, jobs int
		}{
			{"a cancel of another run", store.HintCancels | store.HintAbout(other), 0, 0},
			{"a change of another job", store.HintJobs | store.HintAbout(other), 0, 0},
			{"a cancel of its run", store.HintCancels | store.HintAbout(other) | store.HintAbout(running), 2, 0},
			{"a change of its job", store.HintJobs | store.HintAbout(j.Definition.UID), 0, 1},
			{"a cancel of any run", store.HintCancels, 2, 0},
			{"a change of any job", store.HintJobs | store.HintAny, 0, 1},
		} {
			if runs, jobs := read(c.hint); runs != c.runs || jobs != c.jobs {
				t.Errorf("%s: read %d runs and %d jobs, want %d and %d", c.what, runs, jobs, c.runs, c.jobs)
			}
		}
	})
}
