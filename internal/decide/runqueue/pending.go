package runqueue

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Stripes is the number of stripes of jobs: see package stripes.
const Stripes = 8

// Set is a set of stripes.
type Set uint8

// Add adds a stripe.
func (s *Set) Add(stripe int) { *s |= 1 << stripe }

// Has reports whether a stripe is in the set.
func (s Set) Has(stripe int) bool { return s&(1<<stripe) != 0 }

// choiceFrom is the number of items from which a batch of claims avoids the stripes of other
// calls: fewer fit into one batch.
const choiceFrom = 2 * store.MaxBatch

// pending holds the claimable items, by the stripes of their jobs.
type pending[P any] struct {
	stripeOf func(job.ID) int
	stripes  [Stripes]queue[P]
	n        int
}

func (p *pending[P]) len() int { return p.n }

func (p *pending[P]) push(it *Item[P]) {
	heap.Push(&p.stripes[p.stripeOf(it.Ready.Job)], it)
	p.n++
}

// pop removes the first item of a stripe.
func (p *pending[P]) pop(stripe int) *Item[P] {
	p.n--
	return heap.Pop(&p.stripes[stripe]).(*Item[P])
}

// deleteFunc removes the items that are chosen.
func (p *pending[P]) deleteFunc(chosen func(*Item[P]) bool) {
	p.n = 0
	for stripe := range p.stripes {
		p.stripes[stripe] = slices.DeleteFunc(p.stripes[stripe], chosen)
		heap.Init(&p.stripes[stripe])
		p.n += len(p.stripes[stripe])
	}
}

// first returns the stripe of the next item for a batch, or false. With a choice it is one of the
// most urgent items, preferably in a stripe of the batch or an idle one; without, the most urgent.
func (p *pending[P]) first(choice bool, within, busy Set) (stripe int, ok bool) {
	for i, q := range p.stripes {
		if len(q) == 0 {
			continue
		}
		if !ok || p.comesFirst(i, stripe, choice, within, busy) {
			stripe, ok = i, true
		}
	}
	return stripe, ok
}

// comesFirst reports whether to take from stripe a rather than from stripe b.
func (p *pending[P]) comesFirst(a, b int, choice bool, within, busy Set) bool {
	x, y := p.stripes[a][0], p.stripes[b][0]
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

// queue is a heap of items: claims to repeat come first, then by priority, due time and id.
type queue[P any] []*Item[P]

func (q queue[P]) Len() int           { return len(q) }
func (q queue[P]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q queue[P]) Less(i, j int) bool { return before(q[i], q[j]) < 0 }
func (q *queue[P]) Push(x any)        { *q = append(*q, x.(*Item[P])) }

func (q *queue[P]) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	return last
}

// urgency compares the criteria that precede due times.
func urgency[P any](a, b *Item[P]) int {
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(b.Ready.Priority, a.Ready.Priority))
}

func before[P any](a, b *Item[P]) int {
	return cmp.Or(urgency(a, b), a.Ready.Due.Compare(b.Ready.Due),
		// Runs that were planned together lie together in a store.
		bytes.Compare(a.Ready.ID[:], b.Ready.ID[:]))
}
