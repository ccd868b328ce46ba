package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestResultsAreRetriedUntilAcknowledged(t *testing.T) {
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
				before := r.store.reported()
				time.Sleep(30 * time.Second)
				if n := len(r.store.claimsOf(later)); n != 0 {
					t.Errorf("%d claims while the store takes no results", n)
				}
				if results := r.store.reported(); results-before > 20*store.MaxBatch {
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

func TestRefusedResultIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		j := r.put("j", besides)
		r.exec.do = func(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
			if len(r.exec.starts()) == 1 {
				// Another node takes over while it runs.
				active, err := store.ActiveRun(ctx, r.memory, a.Run.ID)
				if err != nil {
					t.Error(err)
				}
				_, err = r.memory.Finish(ctx, r.self.ID, []store.Result{{
					Attempt: store.Attempt{Run: a.Run.ID, Number: 1, Token: active.Token}, Outcome: job.OutcomeFailed, Reason: job.Text("by another node"),
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

// A store whose history is away is undecided about some results: these are kept and reported again,
// without delaying results of other attempts.
func TestAnUndecidedResultHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 2
		j := r.put("j", besides)
		r.start()
		ids := r.plan(j, in(time.Second), in(2*time.Second), in(3*time.Second))
		var back atomic.Bool
		r.store.set(func(h *hooks) {
			h.undecided = func(res store.Result) bool { return res.Run == ids[0] && !back.Load() }
		})
		forgotten := func() (n int) {
			for _, line := range r.book.all() {
				if strings.HasPrefix(line, "forget") {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute)
		if r.outcome(ids[1]) != job.OutcomeSucceeded || r.outcome(ids[2]) != job.OutcomeSucceeded {
			t.Error("another result was held up")
		}
		if load := r.worker.Load(); load.Running != 1 || forgotten() != 2 {
			t.Errorf("%d take room and %d are forgotten, want the undecided one kept alone", load.Running, forgotten())
		}
		if n := r.store.reported(); n < 12 || n > 16 {
			t.Errorf("%d results were reported in a minute, want the undecided one each 5 s", n)
		}
		back.Store(true)
		time.Sleep(10 * time.Second)
		if load := r.worker.Load(); load.Running != 0 || forgotten() != 3 {
			t.Errorf("%d take room and %d are forgotten after the decision", load.Running, forgotten())
		}
	})
}

func TestEndedAttemptUsesCapacityUntilReported(t *testing.T) {
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

func TestResultCarriesItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = func(_ context.Context, _ executor.Attempt, out executor.Output) executor.Result {
			fmt.Fprint(out.Stdout, "hello")
			fmt.Fprint(out.Stderr, "oh")
			code := 3
			return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text("exit status 3"), ExitCode: &code}
		}
		r.start()
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(2 * time.Second)
		chunks, err := r.memory.Output(context.Background(), id, 1, 0, 10)
		if err != nil || len(chunks) == 0 {
			t.Fatalf("%d chunks in the store: %v", len(chunks), err)
		}
		record := r.record(id)
		if record.OutputBytes != 7 || record.Attempt.ExitCode == nil || *record.Attempt.ExitCode != 3 || record.Attempt.Reason.String() != "exit status 3" {
			t.Errorf("recorded: %+v", record)
		}
	})
}

func TestTimeoutCountsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.before = func(executor.Attempt) { time.Sleep(4 * time.Second) } // no resources to start it
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

func TestPanickingExecutorFailsTheAttempt(t *testing.T) {
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

func TestJournalCoversAnAttemptFromStartToAcknowledgedResult(t *testing.T) {
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

func TestFullJournalStartsNothing(t *testing.T) {
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

// After an outage a call may hang on a dead connection although the store answers others: the
// result is reported again, before its attempt seems to run.
func TestHangingReportIsSentAgainOnceTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var calls atomic.Int32
		r.store.set(func(h *hooks) {
			h.hang = func(ctx context.Context) error {
				if calls.Add(1) > 1 {
					return nil
				}
				select {
				case <-ctx.Done():
				case <-time.After(30 * time.Second):
				}
				return errAway
			}
		})
		r.start()
		id := r.plan(r.put("j", besides), in(time.Second))[0]
		time.Sleep(2 * time.Second)
		if calls.Load() != 1 || r.outcome(id) != "" {
			t.Fatalf("%d reports were sent, and the outcome is %q", calls.Load(), r.outcome(id))
		}
		time.Sleep(6 * time.Second)
		if r.outcome(id) != job.OutcomeSucceeded {
			t.Errorf("after 8 s of a report that hangs the outcome is %q", r.outcome(id))
		}
	})
}
