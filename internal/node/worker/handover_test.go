package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// hands is an attempt that is handed over, and sent after some time.
func hands(sending time.Duration) func(context.Context, executor.Attempt, executor.Output) executor.Result {
	return func(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
		if _, err := a.HandOver(ctx, executor.Handover{Kind: "stub", To: "someone"}); err != nil {
			return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
		}
		select {
		case <-time.After(sending):
			return executor.Result{HandedOver: true}
		case <-ctx.Done():
			outcome, reason := executor.ByCause(ctx)
			return executor.Result{Outcome: outcome, Reason: reason}
		}
	}
}

// handoversOf returns the handovers of a run.
func (r *rig) handoversOf(run job.ID) []store.Handover {
	r.t.Helper()
	list, err := r.memory.Handovers(context.Background(), store.HandoverQuery{Run: run, Limit: store.MaxBatch})
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

func TestHandedOverAttemptUsesNoCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 3
		r.exec.do = hands(time.Millisecond)
		j := r.put("j", "policy: {overlap: allow, timeout: 1s, retry: {attempts: 1, on: [lost]}}")
		r.start()
		r.shards(j, in(3*time.Second), 20)
		time.Sleep(10 * time.Second)
		active, err := r.memory.ListActive(context.Background(), store.ActiveQuery{State: job.StateRunning, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(active) != 20 || len(r.exec.starts()) != 20 {
			t.Errorf("%d runs are handed over after %d starts, want 20 of both", len(active), len(r.exec.starts()))
		}
		seen := map[int64]bool{}
		for i := range active {
			list := r.handoversOf(active[i].ID)
			if len(list) != 1 || seen[list[0].Number] || list[0].Timeout != time.Second || list[0].Attempt != active[i].Present() || !active[i].Session.IsZero() {
				t.Fatalf("run %+v was handed over as %+v", active[i], list)
			}
			seen[list[0].Number] = true
		}
		if load := r.worker.Load(); load.Running != 0 || r.store.reported() != 0 || len(r.store.givenBack()) != 0 {
			t.Errorf("the load is %+v, %d results were reported, %d given back; want nothing", load, r.store.reported(), len(r.store.givenBack()))
		}
	})
}

// The node keeps comparing its attempts with the store, which no longer lists this one: while it is
// sent, when the session is over, and when the node stops.
func TestNodeNeverLosesHandedOverAttempts(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(r *rig)
		// cause is why the sending is ended; nil if it is not.
		cause error
	}{
		{"it sends for a long time", func(*rig) { time.Sleep(time.Minute) }, nil},
		{"it loses touch with the store", func(r *rig) { r.silent.Store(true); time.Sleep(5 * time.Minute) }, nil},
		{"it stops", func(r *rig) { r.stop() }, executor.ErrStopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.exec.do = hands(30 * time.Second)
				j := r.put("j", "policy: {overlap: skip, timeout: 10s, lost_after: 20s, retry: {attempts: 1, on: [lost]}}")
				r.start()
				id := r.plan(j, in(2*time.Second))[0]
				time.Sleep(5 * time.Second)
				c.then(r)
				if r.state(id) != job.StateRunning || r.startsOf(id) != 1 || r.record(id) != nil {
					t.Errorf("the run is %s after %d starts, its record %+v", r.state(id), r.startsOf(id), r.record(id))
				}
				r.exec.mu.Lock()
				cause := r.exec.causes[id]
				r.exec.mu.Unlock()
				if want := c.cause; !errors.Is(cause, want) {
					t.Errorf("the sending was ended because %v, want %v", cause, want)
				}
				if list := r.handoversOf(id); len(list) != 1 {
					t.Errorf("handovers: %+v", list)
				}
			})
		})
	}
}

// A store's answer from before the handover does not release the sent attempt.
func TestStaleReconcileReleasesNoHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = hands(0)
		var mu sync.Mutex
		var stale []store.Run
		r.store.set(func(h *hooks) {
			h.mine = func(do func() ([]store.Run, error)) ([]store.Run, error) {
				mu.Lock()
				defer mu.Unlock()
				return stale, nil
			}
			h.claim = func(do func() ([]store.ClaimOutcome, error), _ []store.Attempt) ([]store.ClaimOutcome, error) {
				out, err := do()
				mu.Lock()
				defer mu.Unlock()
				for i := range out {
					stale = append(stale, *out[i].Run)
				}
				return out, err
			}
		})
		j := r.put("j", "policy: {overlap: allow}")
		r.start()
		id := r.plan(j, in(2*time.Second))[0]
		time.Sleep(10 * time.Second)
		if len(r.store.givenBack()) == 0 {
			t.Fatal("nothing was given back: the test shows nothing")
		}
		if r.state(id) != job.StateRunning || r.startsOf(id) != 1 {
			t.Errorf("the run is %s after %d starts, want it running after one", r.state(id), r.startsOf(id))
		}
	})
}

func TestUnsentHandoverIsReleasedAndRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tries := 0
		r.exec.do = func(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
			if _, err := a.HandOver(ctx, executor.Handover{Kind: "stub"}); err != nil {
				t.Error(err)
			}
			if tries++; tries == 1 {
				return executor.Result{Unstarted: true, Reason: job.Text("no connection")}
			}
			return executor.Result{HandedOver: true}
		}
		j := r.put("j", "policy: {overlap: skip}")
		r.start()
		id := r.plan(j, in(2*time.Second))[0]
		time.Sleep(10 * time.Second)
		if list := r.handoversOf(id); r.state(id) != job.StateRunning || tries != 2 || len(list) != 2 || list[1].Attempt.Number != 1 {
			t.Errorf("the run is %s after %d tries, its handovers %+v", r.state(id), tries, list)
		}
	})
}

func TestCancelledAttemptIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var refused error
		r.exec.do = func(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
			if _, err := r.memory.Cancel(ctx, a.Run.ID, "ann", ""); err != nil {
				t.Error(err)
			}
			_, refused = a.HandOver(ctx, executor.Handover{Kind: "stub"})
			return executor.Result{Unstarted: true, Reason: job.Text(refused.Error())}
		}
		j := r.put("j", "policy: {overlap: skip}")
		r.start()
		id := r.plan(j, in(2*time.Second))[0]
		r.until("the run is over", 10*time.Second, r.isOver(id))
		if !errors.Is(refused, executor.ErrCancelled) || r.outcome(id) != job.OutcomeCancelled || len(r.handoversOf(id)) != 0 {
			t.Errorf("the handover was refused with %v, the run is %s, its handovers %+v", refused, r.outcome(id), r.handoversOf(id))
		}
	})
}

// Several loops hand over, with numbers from one block.
func TestNumbersOfANodeGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.do = hands(0)
		j := r.put("j", "policy: {overlap: allow}")
		r.start()
		for want := int64(1); want <= 5; want++ {
			id := r.plan(j, in(2*time.Second))[0]
			time.Sleep(5 * time.Second)
			if list := r.handoversOf(id); len(list) != 1 || list[0].Number != want {
				t.Fatalf("handovers: %+v, want one with the number %d", list, want)
			}
		}
	})
}
