package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// byHand makes a run that is due at once, and tells the worker.
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

// A herd is claimed far ahead, and what becomes due meanwhile is not part of it.
func TestARunThatIsDueWhileAHerdWasClaimedAheadStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const herd = 2000 // claimed by what was measured last, 173 ms ahead
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
