package memory

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// runSet has runs by id, and by due time and id, the order of nearly every query. None is
// changed in place. A program may have a hundred thousand planned runs, so that no periodic
// query may scan them all.
type runSet struct {
	byID  map[job.ID]*store.Run
	order *btree.BTreeG[ordered]
	// Those of a job and of a slot, in their order.
	byJob  map[job.ID][]*store.Run
	bySlot map[string][]*store.Run
	// Those with an alarm to be raised, and those that an attempt has left to be tried again.
	alarms, retried map[job.ID]*store.Run
}

// ordered is a run at its place: the key is beside it, so that comparing fetches no run.
type ordered struct {
	place place
	run   *store.Run
}

// degree makes trees of some hundred thousand runs fast: measured for etcd and Redis.
const degree = 32

func newRunSet() runSet {
	return runSet{
		byID: map[job.ID]*store.Run{}, byJob: map[job.ID][]*store.Run{}, bySlot: map[string][]*store.Run{},
		alarms: map[job.ID]*store.Run{}, retried: map[job.ID]*store.Run{},
		order: btree.NewG(degree, func(a, b ordered) bool { return a.place.compare(b.place) < 0 }),
	}
}

// put adds a run, or takes it in place of the one that there was.
func (l *runSet) put(r *store.Run) {
	if was := l.byID[r.ID]; was != nil {
		if refOf(was) == refOf(r) && was.Slot == r.Slot { // as with every claim
			swap(l.byJob[r.JobUID], r)
			swap(l.bySlot[r.Slot], r)
		} else {
			l.remove(r.ID)
		}
	}
	l.order.ReplaceOrInsert(ordered{refOf(r), r})
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
	l.order.Delete(ordered{place: refOf(r)})
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
func find(list []*store.Run, p place) (int, bool) {
	return slices.BinarySearchFunc(list, p, func(r *store.Run, p place) int { return refOf(r).compare(p) })
}

func swap(list []*store.Run, r *store.Run) {
	if i, ok := find(list, refOf(r)); ok {
		list[i] = r
	}
}

func inserted(list []*store.Run, r *store.Run) []*store.Run {
	i, _ := find(list, refOf(r))
	return slices.Insert(list, i, r)
}

// without takes a run out of a list, and the list away with its last one.
func without[K comparable](lists map[K][]*store.Run, key K, r *store.Run) {
	list := lists[key]
	if i, ok := find(list, refOf(r)); ok {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = list
}

// behind passes the runs behind a place on, in their order, until each returns false.
func (l *runSet) behind(after store.RunRef, each func(*store.Run) bool) {
	l.order.AscendGreaterOrEqual(ordered{place: place(after)}, func(o ordered) bool {
		return o.place == place(after) || each(o.run)
	})
}

// page returns the runs behind a place that a condition holds for, as many as a limit.
func (l *runSet) page(after store.RunRef, limit int, keep func(*store.Run) bool) (list []*store.Run) {
	l.behind(after, func(r *store.Run) bool {
		if len(list) < limit && keep(r) {
			list = append(list, r)
		}
		return len(list) < limit
	})
	return list
}

// due passes the runs on that are due until a time, in their order.
func (l *runSet) due(until time.Time, each func(*store.Run)) {
	l.behind(store.RunRef{}, func(r *store.Run) bool {
		if r.Due.After(until) {
			return false
		}
		each(r)
		return true
	})
}

// where returns the runs that a condition holds for, in their order.
func (l *runSet) where(keep func(*store.Run) bool) []*store.Run {
	return l.page(store.RunRef{}, math.MaxInt, keep)
}

// first returns the first run that a condition holds for, nil if there is none.
func (l *runSet) first(wanted func(*store.Run) bool) *store.Run {
	if list := l.page(store.RunRef{}, 1, wanted); len(list) > 0 {
		return list[0]
	}
	return nil
}

// inOrder sorts runs, and leaves each there once.
func inOrder(list []*store.Run) []*store.Run {
	slices.SortFunc(list, func(a, b *store.Run) int { return refOf(a).compare(refOf(b)) })
	return slices.Compact(list)
}

// place is a store.RunRef that can be compared.
type place store.RunRef

func refOf(r *store.Run) place { return place{r.Due, r.ID} }

func (p place) compare(q place) int {
	if c := p.Due.Compare(q.Due); c != 0 {
		return c
	}
	return bytes.Compare(p.ID[:], q.ID[:])
}

// copies returns what callers get of a list: theirs.
func copies(list []*store.Run) []store.Run {
	if len(list) == 0 {
		return nil
	}
	own := make([]store.Run, len(list))
	for i, r := range list {
		own[i] = *r
	}
	return own
}
