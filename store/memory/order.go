package memory

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// runSet has the runs that are planned or running. None is changed in place.
type runSet struct {
	byID  map[job.ID]*store.Run
	index ledger.RunIndex
	// Those of a job and of a slot, in the order of due time and id.
	byJob  map[job.ID][]*store.Run
	bySlot map[string][]*store.Run
	// Those with an alarm to be raised, and those that an attempt has left to be tried again.
	alarms, retried map[job.ID]*store.Run
}

func newRunSet() runSet {
	return runSet{
		byID: map[job.ID]*store.Run{}, byJob: map[job.ID][]*store.Run{}, bySlot: map[string][]*store.Run{},
		alarms: map[job.ID]*store.Run{}, retried: map[job.ID]*store.Run{},
	}
}

// put adds a run, or takes it in place of the one that there was.
func (l *runSet) put(r *store.Run) {
	if was := l.byID[r.ID]; was != nil {
		if was.Ref() == r.Ref() && was.Slot == r.Slot { // as with every claim
			swap(l.byJob[r.JobUID], r)
			swap(l.bySlot[r.Slot], r)
			l.index.Remove(was)
		} else {
			l.remove(r.ID)
		}
	}
	l.index.Put(r)
	if l.byID[r.ID] == nil {
		l.byJob[r.JobUID] = inserted(l.byJob[r.JobUID], r)
		if r.Slot != "" {
			l.bySlot[r.Slot] = inserted(l.bySlot[r.Slot], r)
		}
	}
	l.byID[r.ID] = r
	note(l.alarms, r, !r.AlertAt.IsZero())
	note(l.retried, r, r.Last != "")
}

func (l *runSet) remove(id job.ID) {
	r := l.byID[id]
	if r == nil {
		return
	}
	delete(l.byID, id)
	delete(l.alarms, id)
	delete(l.retried, id)
	l.index.Remove(r)
	without(l.byJob, r.JobUID, r)
	if r.Slot != "" {
		without(l.bySlot, r.Slot, r)
	}
}

// note keeps a run in a set of those that something holds for.
func note(set map[job.ID]*store.Run, r *store.Run, holds bool) {
	if holds {
		set[r.ID] = r
	} else if len(set) > 0 {
		delete(set, r.ID)
	}
}

// find returns where in a list something is or would be.
func find(list []*store.Run, r *store.Run) (int, bool) {
	return slices.BinarySearchFunc(list, r.Ref(), func(r *store.Run, at store.RunRef) int { return r.Ref().Compare(at) })
}

func swap(list []*store.Run, r *store.Run) {
	if i, ok := find(list, r); ok {
		list[i] = r
	}
}

func inserted(list []*store.Run, r *store.Run) []*store.Run {
	i, _ := find(list, r)
	return slices.Insert(list, i, r)
}

// without takes a run out of a list, and the list away with its last one.
func without[K comparable](lists map[K][]*store.Run, key K, r *store.Run) {
	list := lists[key]
	if i, ok := find(list, r); ok {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = list
}

// inOrder sorts runs, and leaves each there once.
func inOrder(list []*store.Run) []*store.Run {
	slices.SortFunc(list, func(a, b *store.Run) int { return a.Ref().Compare(b.Ref()) })
	return slices.Compact(list)
}
