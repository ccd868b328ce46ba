// Package stripes keeps the store calls of a node from blocking each other. Each call locks
// its jobs: two calls with common jobs wait for each other. So jobs are divided into lanes,
// and a batch prefers jobs of a lane without other calls.
//
// Lanes are advice: correctness depends only on the locks of the store.
package stripes

import (
	"sync"

	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/job"
)

// Number is how many lanes there are: some more than calls that a node makes at once.
const Number = runqueue.Lanes

// Of returns the lane of a job, by the random part of its uid.
func Of(uid job.ID) int { return int(uid[len(uid)-1] % Number) }

// Set is a set of lanes.
type Set = runqueue.Set

// Lanes tracks the lanes of calls. The zero value is ready for use; nil tracks none.
type Lanes struct {
	mu    sync.Mutex
	calls [Number]int
}

// Enter notes that a call begins in the lanes that are chosen, which depends on those
// that calls are in.
func (l *Lanes) Enter(choose func(busy Set) (within Set)) (within Set) {
	if l == nil {
		return choose(0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var busy Set
	for lane, n := range l.calls {
		if n > 0 {
			busy.Add(lane)
		}
	}
	within = choose(busy)
	l.count(within, 1)
	return within
}

// Leave notes that a call is over.
func (l *Lanes) Leave(within Set) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(within, -1)
}

func (l *Lanes) count(some Set, n int) {
	for lane := range l.calls {
		if some.Has(lane) {
			l.calls[lane] += n
		}
	}
}
