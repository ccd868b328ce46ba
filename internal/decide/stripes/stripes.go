// Package stripes keeps the store calls of a node from blocking each other. Each call locks
// its jobs: two calls with common jobs wait for each other. So jobs are divided into stripes,
// and a batch prefers jobs of a stripe without other calls.
//
// Stripes are advice: correctness depends only on the locks of the store.
package stripes

import (
	"sync"

	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/job"
)

// Number is the number of stripes: some more than a node's concurrent calls.
const Number = runqueue.Stripes

// Of returns the stripe of a job, by the random part of its uid.
func Of(uid job.ID) int { return int(uid[len(uid)-1] % Number) }

// Set is a set of stripes.
type Set = runqueue.Set

// Stripes tracks the stripes of calls. The zero value is ready for use; nil tracks none.
type Stripes struct {
	mu    sync.Mutex
	calls [Number]int
}

// Enter records that a call begins in chosen stripes; choose receives the stripes of current calls.
func (l *Stripes) Enter(choose func(busy Set) (within Set)) (within Set) {
	if l == nil {
		return choose(0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var busy Set
	for stripe, n := range l.calls {
		if n > 0 {
			busy.Add(stripe)
		}
	}
	within = choose(busy)
	l.count(within, 1)
	return within
}

// Leave records the end of a call.
func (l *Stripes) Leave(within Set) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(within, -1)
}

func (l *Stripes) count(some Set, n int) {
	for stripe := range l.calls {
		if some.Has(stripe) {
			l.calls[stripe] += n
		}
	}
}
