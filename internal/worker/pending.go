package worker

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"

	"github.com/belfry-cron/belfry/internal/lanes"
	"github.com/belfry-cron/belfry/store"
)

// choiceFrom is from how many items on a batch of claims keeps to the lanes that other
// calls are not in: with fewer there is one batch for all of them, or nearly.
const choiceFrom = 2 * store.MaxBatch

// pending holds the items that are to be claimed now, by the lanes of their jobs.
type pending struct {
	lanes [lanes.Number]queue
	n     int
}

func (p *pending) len() int { return p.n }

func (p *pending) push(it *item) {
	heap.Push(&p.lanes[lanes.Of(it.ready.Job)], it)
	p.n++
}

// pop removes the first item of a lane.
func (p *pending) pop(lane int) *item {
	p.n--
	return heap.Pop(&p.lanes[lane]).(*item)
}

// deleteFunc removes the items that are chosen.
func (p *pending) deleteFunc(chosen func(*item) bool) {
	p.n = 0
	for lane := range p.lanes {
		p.lanes[lane] = slices.DeleteFunc(p.lanes[lane], chosen)
		heap.Init(&p.lanes[lane])
		p.n += len(p.lanes[lane])
	}
}

// first returns the lane of the item to take next for a batch, or false. With a choice it
// is one of the most urgent items, in a lane that the batch is within or else in one that
// is not busy; otherwise the very first.
func (p *pending) first(choice bool, within, busy lanes.Set) (lane int, ok bool) {
	for i, q := range p.lanes {
		if len(q) == 0 {
			continue
		}
		if !ok || p.comesFirst(i, lane, choice, within, busy) {
			lane, ok = i, true
		}
	}
	return lane, ok
}

// comesFirst tells whether to take from lane a rather than from lane b.
func (p *pending) comesFirst(a, b int, choice bool, within, busy lanes.Set) bool {
	x, y := p.lanes[a][0], p.lanes[b][0]
	switch {
	case !choice || urgency(x, y) != 0:
		return before(x, y) < 0
	case within.Has(a) != within.Has(b):
		return within.Has(a)
	case busy.Has(a) != busy.Has(b):
		return busy.Has(b)
	}
	return before(x, y) < 0
}

// queue is a heap of items: those whose claim must be repeated first, then by
// priority, due time and id.
type queue []*item

func (q queue) Len() int           { return len(q) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool { return before(q[i], q[j]) < 0 }
func (q *queue) Push(x any)        { *q = append(*q, x.(*item)) }

func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	return last
}

// urgency compares what comes before due times.
func urgency(a, b *item) int {
	return cmp.Or(cmp.Compare(b.state, a.state), cmp.Compare(b.ready.Priority, a.ready.Priority))
}

func before(a, b *item) int {
	return cmp.Or(urgency(a, b), a.ready.Due.Compare(b.ready.Due),
		// Runs that were planned together lie together in a store.
		bytes.Compare(a.ready.ID[:], b.ready.ID[:]))
}
