package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestFencedAttemptsEndBeforeOthersMayTakeThem(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy string
		own    job.Overlap   // the run's policy; "" for the job's
		after  time.Duration // time of the last renewal; 0 for never
	}{
		{"one that holds a slot", "policy: {lost_after: 30s, kill_grace: 5s}", "", 30*time.Second - 5*time.Second - 3*time.Second},
		{"one by whose loss nothing is gained", "policy: {overlap: allow, lost_after: 30s, kill_grace: 5s}", "", 0},
		{"one that holds a slot of a pool", "policy: {overlap: allow, concurrency_key: db, lost_after: 30s, kill_grace: 5s}", "", 22 * time.Second},
		{"one that holds a slot by itself", "policy: {overlap: allow, lost_after: 30s, kill_grace: 5s}", job.OverlapQueue, 22 * time.Second},
		{"one that needs no slot by itself", "policy: {lost_after: 30s, kill_grace: 5s}", job.OverlapAllow, 0},
		{"one that is only retried when it fails", "policy: {overlap: allow, lost_after: 30s, kill_grace: 5s, retry: {attempts: 1, on: [failed]}}", "", 0},
		{"one that is retried when it is lost", "policy: {overlap: allow, lost_after: 40s, kill_grace: 2s, retry: {attempts: 1, on: [lost]}}", "", 35 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var ended atomic.Int64
				r.exec.do = func(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
					if a.Fence != c.after {
						t.Errorf("the executor receives a fence of %s, want %s", a.Fence, c.after)
					}
					<-ctx.Done()
					ended.Store(int64(time.Since(r.began)))
					return executor.Result{Outcome: job.OutcomeLost}
				}
				r.start()
				j := r.put("j", c.policy)
				var id job.ID
				if c.own != "" {
					id = r.backfill(j, c.own)
				} else {
					id = r.plan(j, in(time.Second))[0]
				}
				time.Sleep(10 * time.Second)
				if r.startsOf(id) != 1 {
					t.Fatal("it did not start")
				}
				r.silent.Store(true)
				synctest.Wait() // allows a renewal at this instant
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

// The loss of a step starts the next steps of its flow, and another run of the flow.
func TestStepsEndBeforeTheirFlowContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var mu sync.Mutex
		fences, ended := map[string]time.Duration{}, map[string]time.Duration{}
		r.exec.do = func(ctx context.Context, a executor.Attempt, _ executor.Output) executor.Result {
			_, name, _ := strings.Cut(a.Run.Key, "/")
			mu.Lock()
			fences[name] = a.Fence
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			ended[name] = time.Since(r.began)
			mu.Unlock()
			return executor.Result{Outcome: job.OutcomeLost}
		}
		r.start()
		r.put("called", besides)
		flow := r.putText(`{name: flow, schedule: {cron: '* * * * * *'}, policy: {overlap: allow, lost_after: 30s, kill_grace: 5s},
			run: {flow: {steps: [{name: step, run: 'true'}, {name: call, run: {job: called}}]}}}`)
		r.plan(flow, in(time.Second))
		time.Sleep(10 * time.Second)
		r.silent.Store(true)
		synctest.Wait() // allows a renewal at this instant
		renewed := time.Duration(r.renewed.Load())
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string]time.Duration{"step": 22 * time.Second, "call": 7 * time.Second} {
			if at := ended[name] - renewed; fences[name] != want || at < want || at > want+1100*time.Millisecond {
				t.Errorf("the fence of %s is %s, and it was ended %s after the last renewal; want %s", name, fences[name], at, want)
			}
		}
	})
}

// A network that drops everything gives no errors: a call ends by a timeout.
func TestFencesHoldWhileTheStoreIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var ended atomic.Int64
		r.exec.do = func(ctx context.Context, _ executor.Attempt, _ executor.Output) executor.Result {
			<-ctx.Done()
			ended.Store(int64(time.Since(r.began)))
			return executor.Result{Outcome: job.OutcomeLost}
		}
		r.start()
		id := r.plan(r.put("j", "policy: {lost_after: 30s, kill_grace: 5s}"), in(time.Second))[0]
		time.Sleep(10 * time.Second)
		r.silent.Store(true)
		r.store.set(func(h *hooks) {
			h.mine = func(func() ([]store.Run, error)) ([]store.Run, error) {
				time.Sleep(time.Minute)
				return nil, errAway
			}
		})
		synctest.Wait() // allows a renewal at this instant
		renewed := time.Duration(r.renewed.Load())
		time.Sleep(50 * time.Second)
		const fence = 30*time.Second - 5*time.Second - 3*time.Second
		if at := time.Duration(ended.Load()) - renewed; at < fence || at > fence+1100*time.Millisecond {
			t.Errorf("it was ended %s after the last renewal, want %s and a second", at, fence)
		}
		if !errors.Is(r.exec.cause(id), executor.ErrFenced) {
			t.Errorf("it was ended because of %v", r.exec.cause(id))
		}
	})
}

func TestNothingStartsPastItsFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.exec.before = func(executor.Attempt) { time.Sleep(30 * time.Second) } // no resources to start it
		r.start()
		id := r.plan(r.put("j", "policy: {lost_after: 30s, kill_grace: 5s}"), in(time.Second))[0]
		time.Sleep(1500 * time.Millisecond)
		r.silent.Store(true)
		// Other nodes cannot take it yet: they do not count as steady.
		time.Sleep(29800 * time.Millisecond)
		if r.startsOf(id) != 0 {
			t.Error("it was started past its fence")
		}
		if slices.ContainsFunc(r.book.all(), func(line string) bool { return strings.HasPrefix(line, "announce") }) {
			t.Error("it is in the journal although it never began")
		}
		if results := r.store.reported(); results != 0 || !slices.ContainsFunc(r.store.givenBack(), func(a store.Attempt) bool { return a.Run == id }) {
			t.Errorf("%d results, released %v; want it to be given back", results, r.store.givenBack())
		}
	})
}

func TestAttemptTakenByAnotherNodeIsEnded(t *testing.T) {
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

func TestReconcileIgnoresAttemptsThatBeganMeanwhile(t *testing.T) {
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

func TestUnknownAttemptsAreReleased(t *testing.T) {
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

func TestOverdueRunsOfOtherNodesAreStolen(t *testing.T) {
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

// A node whose poll took long, since a network dropped it or delayed its answer, must not back off
// for a multiple of that.
func TestOverdueRunsAreStolenSoonAfterTheStoreIsBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		within time.Duration // after it became overdue
	}{
		{"that ended with an error", errAway, 350 * time.Millisecond},
		{"that ended with an answer", nil, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.start()
				other := r.join("b", nil)
				j := r.put("j", besides)
				asked := make(chan struct{}, 1)
				r.store.set(func(h *hooks) {
					h.overdue = func() error {
						time.Sleep(30 * time.Second)
						asked <- struct{}{}
						return c.answer
					}
				})
				<-asked
				r.store.set(func(h *hooks) { h.overdue = nil })
				id := r.planFor(other.ID, j, in(100*time.Millisecond))[0]
				time.Sleep(time.Second + 100*time.Millisecond + c.within)
				if r.startsOf(id) != 1 {
					t.Errorf("it was not taken over within %s", c.within)
				}
			})
		})
	}
}

func TestFullNodeStealsNothing(t *testing.T) {
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
