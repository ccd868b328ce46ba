package sqldb

import (
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// TestCachedRunsAreForgottenUnlessTheyAreStored takes a step on a shared database from its reads to the
// end of its commit.
func TestCachedRunsAreForgottenUnlessTheyAreStored(t *testing.T) {
	uid, run := job.ID{1}, job.ID{2}
	list := []job.ID{uid}
	own, anothers := func(job.ID) bool { return true }, func(job.ID) bool { return false }
	for name, test := range map[string]struct {
		then func(h *hot, st *step)
		kept bool
	}{
		"committed":                           {func(h *hot, st *step) { h.settle(st, true); h.admit(list, own) }, true},
		"rolled back":                         {func(h *hot, st *step) { h.settle(st, false); h.admit(list, own) }, false},
		"locked by a step before the end":     {func(h *hot, st *step) { h.admit(list, own); h.settle(st, true) }, false},
		"written by another process":          {func(h *hot, st *step) { h.settle(st, true); h.admit(list, anothers) }, false},
		"in another era":                      {func(h *hot, st *step) { h.settle(st, true); h.renew(2) }, false},
		"read by another step before the end": {func(h *hot, st *step) { h.keepSlot(uid, nil, false); h.settle(st, false) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var h hot
			h.renew(1)
			h.keepSlot(uid, nil, false)
			st := &step{era: 1, uncertain: list}
			made := store.Run{Run: job.Run{ID: run, JobUID: uid, State: job.StateRunning}, Slot: uid.String()}
			if cached := h.wroteOf(st, list, &engine.Changes{Made: []*store.Run{&made}}); !cached[uid] || !h.hasSlot(uid) {
				t.Fatal("the written run is not cached")
			}
			if test.then(&h, st); h.hasSlot(uid) != test.kept {
				t.Errorf("the runs of the job are cached: %t, want %t", !test.kept, test.kept)
			}
		})
	}
}

func TestASlotWithTooManyRunsIsNotCached(t *testing.T) {
	var h hot
	h.renew(1)
	uid := job.ID{1}
	runs := make([]store.Run, hotRuns+1)
	for i := range runs {
		runs[i] = store.Run{Run: job.Run{ID: job.ID{2, byte(i)}, JobUID: uid, State: job.StateWaiting}, Slot: uid.String()}
	}
	if h.keepSlot(uid, runs, false); h.hasSlot(uid) {
		t.Error("it is cached")
	}
	n := 0
	for h.isLarge(uid) {
		n++
	}
	if n != hotLarge {
		t.Errorf("it is not read as a whole for %d steps, want %d", n, hotLarge)
	}
}
