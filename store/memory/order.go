package memory

import (
	"bytes"
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// runSet has runs by id, and in the order of due time and id, in which nearly every
// question wants them. None is changed in place.
type runSet struct {
	byID  map[job.ID]*store.Run
	order []*store.Run
}

// put adds a run, or takes it in place of the one that there was.
func (l *runSet) put(r *store.Run) {
	l.remove(r.ID)
	i, _ := l.find(refOf(r))
	l.byID[r.ID], l.order = r, slices.Insert(l.order, i, r)
}

func (l *runSet) remove(id job.ID) {
	if r, ok := l.byID[id]; ok {
		delete(l.byID, id)
		i, _ := l.find(refOf(r))
		l.order = slices.Delete(l.order, i, i+1)
	}
}

// find returns where in the order something is or would be.
func (l *runSet) find(p place) (int, bool) {
	return slices.BinarySearchFunc(l.order, p, func(r *store.Run, p place) int { return refOf(r).compare(p) })
}

// where returns the runs that a condition holds for, in their order.
func (l *runSet) where(keep func(*store.Run) bool) []*store.Run {
	var list []*store.Run
	for _, r := range l.order {
		if keep(r) {
			list = append(list, r)
		}
	}
	return list
}

// first returns the first run that a condition holds for, nil if there is none.
func (l *runSet) first(wanted func(*store.Run) bool) *store.Run {
	if i := slices.IndexFunc(l.order, wanted); i >= 0 {
		return l.order[i]
	}
	return nil
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

// page cuts a list behind a place and at a limit.
func page(list []*store.Run, after store.RunRef, limit int) []*store.Run {
	if after != (store.RunRef{}) {
		i := slices.IndexFunc(list, func(r *store.Run) bool { return refOf(r).compare(place(after)) > 0 })
		if i < 0 {
			return nil
		}
		list = list[i:]
	}
	return list[:min(limit, len(list))]
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
