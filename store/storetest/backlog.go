package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Backlog tests a store with a job that has very many unfinished runs.
type Backlog struct {
	*env
	job     *store.Job
	holder  store.Attempt // has the slot that all other runs wait for
	waiting []store.Attempt
	count   int // runs
}

// NewBacklog opens a store with a job and one running run.
func NewBacklog(t *testing.T, open Open) *Backlog {
	b := &Backlog{env: newEnv(t, open)}
	b.job = b.put(everyMinute + "\npolicy: {overlap: queue}")
	b.holder = b.requested(1)[0]
	b.claim(b.a, b.holder, store.Started)
	return b
}

// requested creates runs that are due now and wait for each other.
func (b *Backlog) requested(n int) (list []store.Attempt) {
	b.Helper()
	items := make([]store.TriggerItem, n)
	for i := range items {
		b.count++
		items[i] = store.TriggerItem{
			ID: b.id(), Job: b.job.Definition.UID, Kind: job.RunBackfill, Session: b.a.ID, Node: b.a.Node,
			Scheduled: start.Add(-time.Duration(b.count) * time.Second), Due: start.Add(time.Duration(b.count)*time.Millisecond - time.Hour), Overlap: job.OverlapQueue, Actor: "ann",
		}
	}
	outcomes, err := b.Trigger(b.ctx, items)
	b.must(err)
	for _, m := range outcomes {
		b.must(m.Err)
		list = append(list, store.Attempt{Job: b.job.Definition.UID, Run: m.Run, Number: 1, Token: b.id()})
	}
	return list
}

// Grow makes n runs wait.
func (b *Backlog) Grow(n int) {
	b.Helper()
	for len(b.waiting) < n {
		list := b.requested(min(store.MaxBatch, n-len(b.waiting)))
		got, err := b.Claim(b.ctx, b.a.ID, list)
		b.must(err)
		for i := range got {
			if got[i].Verdict != store.Waiting {
				b.Fatalf("run %d of the backlog: got %s (%s), want waiting", len(b.waiting)+i, verdicts[got[i].Verdict], got[i].Reason)
			}
		}
		b.waiting = append(b.waiting, list...)
		b.must(b.Renew(b.ctx, b.a.ID, b.a.Load))
	}
}

// Cycle ends the run in the slot, starts the next one, and adds one to the backlog.
func (b *Backlog) Cycle() {
	b.Helper()
	got := b.finish(b.holder, job.OutcomeSucceeded)
	if len(got.Ready) != 1 {
		b.Fatalf("%d runs get the slot, want 1", len(got.Ready))
	}
	next := b.waiting[0]
	if next.Run != got.Ready[0].ID {
		b.Fatalf("run %s gets the slot, want %s, which is due first", got.Ready[0].ID, next.Run)
	}
	b.holder, b.waiting = next, b.waiting[1:]
	b.claim(b.a, b.holder, store.Started)
	b.Grow(len(b.waiting) + 1)
}

// pace returns the shortest time of a cycle of some, or best if that is shorter.
func (b *Backlog) pace(cycles int, best time.Duration) time.Duration {
	b.Helper()
	for range cycles {
		began := time.Now()
		b.Cycle()
		best = min(best, time.Since(began))
	}
	return best
}

// Move edits the job so that all waiting runs need the slot of a pool, and back, while one runs.
func (b *Backlog) Move() {
	b.Helper()
	for _, edit := range []struct{ policy, slot string }{
		{"overlap: queue, concurrency_key: shared", "pool default/shared"},
		{"overlap: queue", b.job.Definition.UID.String()},
	} {
		b.job = b.put(everyMinute + "\npolicy: {" + edit.policy + "}")
		moved := 0
		b.each(job.StateWaiting, func(r *store.Run) {
			if moved++; r.Slot != edit.slot {
				b.Fatalf("run %s waits for slot %q, want %q", r.ID, r.Slot, edit.slot)
			}
		})
		equal(b.env, "waiting runs after an edit that moves them", moved, len(b.waiting)-1) // the other slot was free
		last := b.holder
		b.holder, b.waiting = b.waiting[0], b.waiting[1:]
		b.claim(b.a, b.holder, store.Started)
		equal(b.env, "runs that get the slot that nothing waits for", len(b.finish(last, job.OutcomeSucceeded).Ready), 0)
		b.Cycle()
	}
}

// each calls f with the unfinished runs of the job in a state.
func (b *Backlog) each(state job.RunState, f func(*store.Run)) {
	b.Helper()
	q := store.ActiveQuery{Job: b.job.Definition.UID, State: state, Limit: 1000}
	for {
		list, err := b.ListActive(b.ctx, q)
		b.must(err)
		for i := range list {
			f(&list[i])
		}
		if len(list) < q.Limit {
			return
		}
		q.After = list[len(list)-1].Ref()
	}
}

// Live makes every change of a job with a backlog, until no run is left.
func (b *Backlog) Live() {
	b.Helper()
	many, uid := len(b.waiting), b.job.Definition.UID
	count := func(what string, state job.RunState, want int) {
		b.Helper()
		n := 0
		b.each(state, func(*store.Run) { n++ })
		if n != want {
			b.Fatalf("%s: %d runs are %q, want %d", what, n, state, want)
		}
	}
	count("at first", job.StateWaiting, many)
	b.plan(b.job, 5*time.Second)
	count("planned", job.StateReady, 1)
	b.Cycle()
	count("after a cycle", job.StateWaiting, many)

	cancelled := b.waiting[:min(store.MaxBatch, many/2)]
	var ids []job.ID
	for _, a := range cancelled {
		ids = append(ids, a.Run)
	}
	list, err := b.CancelRuns(b.ctx, uid, ids, "ann", "by the test")
	b.must(err)
	equal(b.env, "cancelled runs", len(list), len(ids))
	b.gone(ids[0], job.OutcomeCancelled)
	b.waiting = b.waiting[len(ids):]
	count("after the cancel", job.StateWaiting, len(b.waiting))
	b.Cycle()

	b.job = b.put(everyMinute + "\npolicy: {overlap: queue, max_parallel: 3}")
	count("after an edit", job.StateWaiting, len(b.waiting)-2)
	count("with two more slots", job.StateReady, 1+2)

	b.must(b.Leave(b.ctx, b.a.ID))
	ready, err := b.Ready(b.ctx, store.ReadyQuery{Session: b.a.ID, Until: b.now().Add(time.Hour), Limit: 10})
	b.must(err)
	equal(b.env, "ready runs of a node that leaves", len(ready), 0)

	b.must(b.DeleteJob(b.ctx, store.DeleteJob{UID: uid, IfVersion: store.AnyVersion, Actor: "ann"}))
	b.finish(b.holder, job.OutcomeSucceeded)
	for rounds := 0; ; rounds++ {
		more, err := b.Tidy(b.ctx)
		b.must(err)
		if !more {
			break
		}
		if rounds > many {
			b.Fatal("tidying does not end")
		}
	}
	count("after the removal", "", 0)
	for _, i := range []int{0, len(b.waiting) / 2, len(b.waiting) - 1} {
		b.gone(b.waiting[i].Run, job.OutcomeWithdrawn)
	}
	b.clock.Advance(store.TombstoneLife + time.Hour)
	b.tidy()
	if _, err := store.JobByUID(b.ctx, b, uid); !errors.Is(err, store.ErrNotFound) {
		b.Errorf("the tombstone is still there: %v", err)
	}
}

// TestPace compares the time of a cycle with few and with many waiting runs, and fails if it stays
// more than most times as long. It measures both in turns and takes the minimum of each, since the
// machine may be busy during some turns.
func TestPace(t *testing.T, open Open, most float64, many ...int) {
	const (
		turn  = 10 // cycles
		turns = 10 // at least
		limit = 40 // turns after which the difference is not chance
	)
	few, b := NewBacklog(t, open), NewBacklog(t, open)
	few.Grow(10)
	for _, n := range many {
		b.Grow(n)
		least, took, taken := time.Hour, time.Hour, 0
		slower := func() bool { return took > time.Duration(most*float64(least)) }
		for ; taken < turns || slower() && taken < limit; taken++ {
			least, took = few.pace(turn, least), b.pace(turn, took)
		}
		if slower() {
			t.Errorf("with %d waiting runs a cycle takes %s, more than %.1f times as long as with 10, %s", n, took, most, least)
		}
		t.Logf("a cycle with 10 waiting runs takes %s, with %d %s, in %d turns", least, n, took, taken)
	}
	b.Live()
}
