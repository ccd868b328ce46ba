package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const besides = "policy: {overlap: allow}"

func TestClaimLeadFollowsTheMeasuredRoundTrip(t *testing.T) {
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

func TestCapacityBoundsRunningAttempts(t *testing.T) {
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

func TestRunsAreTakenByPriorityThenDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 1
		r.exec.do = lasts(time.Second)
		r.start()
		r.plan(r.put("blocker", besides), in(500*time.Millisecond))
		// All become due while it runs, the ones to be first last.
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

// A worker that never waited would not let fake time advance.
func TestFullWorkerKeepsItsQueue(t *testing.T) {
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

func TestClaimWithALostAnswerIsRepeatedUnderItsToken(t *testing.T) {
	for _, c := range []struct {
		name string
		made bool // the claim was made nevertheless
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

func TestRefusedClaimUsesNoCapacity(t *testing.T) {
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
		time.Sleep(2500 * time.Millisecond) // they are held now, even if the first poll came before
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

func TestRefusedClaimsBackOff(t *testing.T) {
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

// The claiming loops share a backoff after errors. Its length in an outage does not apply to the
// next error.
func TestBackoffIsResetAfterAnOutage(t *testing.T) {
	for name, fails := range map[string]func(h *hooks, fail func() error){
		"of a claim": func(h *hooks, fail func() error) {
			h.claim = func(func() ([]store.ClaimOutcome, error), []store.Attempt) ([]store.ClaimOutcome, error) {
				return nil, fail()
			}
		},
		"of a report": func(h *hooks, fail func() error) {
			h.finish = func(func() error, []store.Result) error { return fail() }
		},
	} {
		after := func(t *testing.T, before int) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.capacity = 10 * store.MaxBatch
				r.start()
				var calls atomic.Int32
				r.store.set(func(h *hooks) {
					fails(h, func() error { // the loops are not in step
						time.Sleep(2*time.Second + time.Duration(calls.Add(1))*37*time.Millisecond)
						return errAway
					})
				})
				due := in(2 * time.Second)
				for i := range 4 { // for all loops
					r.shards(r.put(fmt.Sprint("herd", i), besides), due, store.MaxBatch)
				}
				time.Sleep(2 * time.Minute)
				r.store.set(func(h *hooks) { h.claim, h.finish = nil, nil })
				time.Sleep(10 * time.Second)
				if n := len(r.exec.starts()); n != 4*store.MaxBatch || r.worker.Load().Running != 0 {
					t.Fatalf("%d have started after the outage, and %d have not ended", n, r.worker.Load().Running)
				}
				j := r.put("j", besides)
				for range before {
					r.until("one has ended", time.Second, r.isOver(r.byHand(j)))
					time.Sleep(100 * time.Millisecond)
				}
				r.store.set(func(h *hooks) { fails(h, func() error { return errAway }) })
				first := r.byHand(j)
				time.Sleep(50 * time.Millisecond)
				r.store.set(func(h *hooks) { h.claim, h.finish = nil, nil })
				second := r.byHand(j)
				r.until("the first has ended", 500*time.Millisecond, r.isOver(first))
				r.until("the second has ended", 500*time.Millisecond, r.isOver(second))
			})
		}
		for before := range 2 { // whichever loop fails last
			t.Run(fmt.Sprint(name, " after ", before, " that go well"), func(t *testing.T) { after(t, before) })
		}
	}
}

func TestFollowerReceivesItsDeclaredParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		leader := r.putText("{name: leader, params: {who: nobody, code: '0'}, run: {shell: 'true'}}")
		between := r.putText("{name: between, params: {code: '1', other: z}, schedule: {on: leader}, run: {shell: 'true'}}")
		r.putText("{name: last, params: {who: nobody}, schedule: {on: between}, run: {shell: 'true'}}")
		r.start()
		item := store.TriggerItem{
			ID: job.ID{7}, Job: leader.Definition.UID, Kind: job.RunByHand, Session: r.self.ID, Params: map[string]string{"who": "ada"}, Actor: "test",
		}
		if _, err := r.memory.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		// One of them is run once more.
		item.ID, item.Job = job.ID{8}, between.Definition.UID
		if _, err := r.memory.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		followers := []string{"between map[code:1 other:z]", "last map[who:ada]"}
		want := slices.Concat([]string{"leader map[code:0 who:ada]"}, followers, followers)
		var got []string
		for _, s := range r.exec.starts() {
			got = append(got, fmt.Sprint(s.name, " ", s.params))
		}
		if !slices.Equal(got, want) {
			t.Errorf("started %q, want %q", got, want)
		}
	})
}

func TestRetryIsClaimedUnderItsNumberWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", "policy: {overlap: allow, retry: {attempts: 1, backoff: 10s, jitter: 0s}}")
		r.start()
		id := r.plan(j, in(3500*time.Millisecond))[0]
		time.Sleep(1600 * time.Millisecond) // it is held now
		// Another node claims it early, and fails.
		other := r.join("b", nil)
		ctx := context.Background()
		claim := store.Attempt{Run: id, Number: 1, Token: job.ID{9}}
		if got, err := r.memory.Claim(ctx, other.ID, []store.Attempt{claim}); err != nil || got[0].Verdict != store.Started {
			t.Fatal(got, err)
		}
		if _, err := r.memory.Finish(ctx, other.ID, []store.Result{{Attempt: claim, Outcome: job.OutcomeFailed, Started: time.Now(), Ended: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		retry, err := store.ActiveRun(ctx, r.memory, id)
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

func TestHeldRetryMovesToItsNewTime(t *testing.T) {
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
		retry, err := store.ActiveRun(ctx, r.memory, id)
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

func TestClaimWithoutASlotIsRepeatedAtItsInstant(t *testing.T) {
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

// endless is a store with more ready runs than fit into any memory.
type endless struct {
	*between
	pages atomic.Int32
}

func (e *endless) Ready(ctx context.Context, q store.ReadyQuery) ([]store.ReadyRun, error) {
	if q.Any {
		return e.between.Ready(ctx, q)
	}
	page := int(e.pages.Add(1))
	if page > 1000 {
		return nil, nil // the test has failed and need not hang as well
	}
	runs := make([]store.ReadyRun, q.Limit)
	for i := range runs {
		runs[i].ID[0], runs[i].ID[1], runs[i].ID[2], runs[i].ID[3] = 1, byte(page>>8), byte(page), byte(i>>8)
		runs[i].ID[4] = byte(i)
		runs[i].Due, runs[i].Attempt, runs[i].Session = q.Until, 1, q.Session
	}
	return runs, nil
}

func TestHeldRunsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e := &endless{between: r.store}
		collector, err := output.New(output.Config{Sink: unwritten{}})
		if err != nil {
			t.Fatal(err)
		}
		w := worker.New(worker.Config{
			Store: work.On(e, time.Now), Self: r.join("a", nil), Executors: func(*job.Job) executor.Executor { return r.exec }, Output: collector,
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

// paged is a store with many ready runs of one instant, all of whose claims succeed.
type paged struct {
	*between
	job  *store.Job
	runs []store.ReadyRun
}

func (p *paged) Ready(ctx context.Context, q store.ReadyQuery) ([]store.ReadyRun, error) {
	if q.Any {
		return p.between.Ready(ctx, q)
	}
	from := slices.IndexFunc(p.runs, func(r store.ReadyRun) bool {
		return !r.Due.After(q.Until) && (r.Due.After(q.After.Due) || r.Due.Equal(q.After.Due) && string(r.ID[:]) > string(q.After.ID[:]))
	})
	if from < 0 {
		return nil, nil
	}
	return p.runs[from:min(len(p.runs), from+q.Limit)], nil
}

func (p *paged) Claim(_ context.Context, _ job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	p.bounded(len(attempts))
	outcomes := make([]store.ClaimOutcome, len(attempts))
	for i, a := range attempts {
		run := job.Run{ID: a.Run, Version: p.job.Definition.Version, Attempt: 1, Due: p.runs[0].Due}
		outcomes[i] = store.ClaimOutcome{Job: p.job, Run: &store.Run{Run: run, Token: a.Token}, Now: time.Now()}
	}
	return outcomes, nil
}

func (p *paged) Finish(_ context.Context, _ job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	p.bounded(len(results))
	return make([]store.FinishOutcome, len(results)), nil
}

func (p *paged) ListActive(context.Context, store.ActiveQuery) ([]store.Run, error) { return nil, nil }

func TestEveryPageOfReadyRunsIsReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000 // several pages
		r := newRig(t)
		p := &paged{between: r.store, job: r.put("j", besides)}
		due := in(2500 * time.Millisecond) // between two polls
		for i := range n {
			run := store.ReadyRun{RunRef: store.RunRef{Due: due, ID: job.ID{1, byte(i >> 8), byte(i)}}, Job: p.job.Definition.UID, Attempt: 1}
			p.runs = append(p.runs, run)
		}
		collector, err := output.New(output.Config{Sink: unwritten{}})
		if err != nil {
			t.Fatal(err)
		}
		w := worker.New(worker.Config{
			Store: work.On(p, time.Now), Self: r.join("a", nil), Executors: func(*job.Job) executor.Executor { return r.exec }, Output: collector,
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

func TestHerdOfLongAttemptsStartsTogether(t *testing.T) {
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

// An attempt with unknown neighbours in time is released, and starts once they are known.
func TestAttemptWithoutItsNeighboursIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var away atomic.Bool
		away.Store(true)
		r.around = func(_ context.Context, _ *store.Job, at time.Time) (previous, same, next time.Time, err error) {
			if away.Load() {
				return previous, same, next, errAway
			}
			return at.Add(-time.Minute), at, at.Add(time.Minute), nil
		}
		j := r.put("j", besides)
		r.start()
		id := r.plan(j, in(time.Second))[0]
		time.Sleep(5 * time.Second)
		if r.startsOf(id) != 0 || r.outcome(id) != "" {
			t.Fatalf("%d starts, outcome %q while the store is away; want none", r.startsOf(id), r.outcome(id))
		}
		if n := len(r.store.givenBack()); n < 1 || n > 10 {
			t.Errorf("it was given back %d times in 4 s, want some", n)
		}
		away.Store(false)
		r.until("it has ended", 5*time.Second, r.isOver(id))
		for _, s := range r.exec.starts() {
			if s.Run == id && (s.data.Previous.IsZero() || s.data.Next.IsZero()) {
				t.Errorf("it started with the neighbours %s and %s", s.data.Previous, s.data.Next)
			}
		}
	})
}

func TestARunSeesTheIntervalThatItsRequestHasChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		zone := time.FixedZone("there", 8*60*60)
		r.around = func(_ context.Context, _ *store.Job, at time.Time) (previous, same, next time.Time, err error) {
			return at.Add(-time.Minute), at.In(zone), at.Add(time.Minute), nil
		}
		j := r.put("j", besides)
		r.start()
		id, from, to := job.ID{byte(r.ids.Add(1)), 1}, time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		item := store.TriggerItem{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Session: r.self.ID, Key: id.String(), Actor: "test", Scheduled: to, Params: job.WithPrevious(nil, from)}
		if _, err := r.memory.Trigger(context.Background(), []store.TriggerItem{item}); err != nil {
			t.Fatal(err)
		}
		r.wake <- store.HintRuns
		r.until("it has ended", 5*time.Second, r.isOver(id))
		for _, s := range r.exec.starts() {
			if d := s.data; !d.Previous.Equal(from) || d.Previous.Location() != zone || !d.Scheduled.Equal(to) || !d.Next.Equal(to.Add(time.Minute)) || len(d.Params) != 0 {
				t.Errorf("it sees the times %s, %s and %s and the parameters %v", d.Previous, d.Scheduled, d.Next, d.Params)
			}
		}
		if r.startsOf(id) != 1 {
			t.Errorf("it has started %d times", r.startsOf(id))
		}
	})
}
