package storecopy_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// backlog creates a job with n runs that wait for each other, and one in the slot.
func (w *world) backlog(n int) *store.Job {
	w.Helper()
	j := w.put("name: many\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}\npolicy: {overlap: queue}")
	var first store.Attempt
	for claims := 0; claims <= n; {
		var items []store.TriggerItem
		for ; claims <= n && len(items) < store.MaxBatch; claims++ {
			items = append(items, store.TriggerItem{
				ID: w.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Session: w.node.ID, Node: "a", Actor: "ann",
				Scheduled: start.Add(-time.Duration(claims) * time.Minute), Due: start.Add(time.Duration(claims-n) * time.Millisecond), Overlap: job.OverlapQueue,
			})
		}
		list, err := w.Trigger(w.ctx, items)
		w.must(err)
		var attempts []store.Attempt
		for _, r := range list {
			w.must(r.Err)
			attempts = append(attempts, store.Attempt{Job: j.Definition.UID, Run: r.Run, Number: 1, Token: w.id()})
		}
		got, err := w.Claim(w.ctx, w.node.ID, attempts)
		w.must(err)
		if first.Run.IsZero() {
			first = attempts[0]
		}
		if got[len(got)-1].Verdict != store.Waiting {
			w.Fatalf("claimed: %+v", got[len(got)-1])
		}
	}
	done, err := w.Finish(w.ctx, w.node.ID, []store.Result{{Attempt: first, Started: w.now, Ended: w.now, Outcome: job.OutcomeSucceeded}})
	w.must(err)
	if len(done[0].Ready) != 1 {
		w.Fatalf("finished: %+v", done[0])
	}
	return j
}

// A copied backlog is complete in each store, and is removed with its job.
func TestCopyTakesABacklogAlong(t *testing.T) {
	w := newWorld(t, inMemory)
	copyBacklog(t, w, 450, inFile(t), apart(t), inMemory)
}

func copyBacklog(t *testing.T, w *world, n int, opens ...func(func() time.Time) storecopy.Store) {
	w.join()
	j := w.backlog(n)
	w.leave()
	source, from := w.Store, w.Store
	var all []storecopy.Store
	for i, open := range opens {
		to := open(w.clock)
		if r := copied(t, from, to, storecopy.Options{}); r.Waiting != n-1 || r.Ready != 1 {
			t.Fatalf("copy %d: %+v", i, r)
		}
		if c := checked(t, to, false); len(c.Damage) > 0 || c.Runs != n {
			t.Fatalf("copy %d is checked: %+v", i, c)
		}
		from, all = to, append(all, to)
	}
	w.Store = source
	w.must(w.DeleteJob(w.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
	from = source
	for i, to := range all {
		if r := copied(t, from, to, storecopy.Options{}); r.Waiting+r.Ready != 0 {
			t.Fatalf("copy %d after the removal: %+v", i, r)
		}
		if c := checked(t, to, false); len(c.Damage) > 0 || c.Runs != 0 || c.Jobs != 0 {
			t.Fatalf("copy %d is checked after the removal: %+v", i, c)
		}
		from = to
	}
}
