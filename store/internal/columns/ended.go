package columns

import (
	"slices"
	"sync/atomic"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// outcomesMax is more than there are outcomes.
const outcomesMax = 16

// EndCounts are how many runs a call has ended, by the numbers of outcomes.
type EndCounts [outcomesMax]int32

// Count adds the records that end runs. One that stands for several occurrences
// counts as so many.
func (e *EndCounts) Count(records []*store.Record) {
	for _, r := range records {
		if n := Outcomes.Of(r.Attempt.Outcome); r.Final && n >= 0 {
			e[n] += int32(max(1, r.Count))
		}
	}
}

// Ends are how many runs have ended since a store was opened. Anybody adds and
// reads.
type Ends [outcomesMax]atomic.Int64

// Add adds what a call has ended.
func (e *Ends) Add(more *EndCounts) {
	for i, n := range more {
		if n != 0 {
			e[i].Add(int64(n))
		}
	}
}

// Of returns how many runs have ended so.
func (e *Ends) Of(outcome job.Outcome) int64 {
	n := slices.Index(Outcomes, outcome)
	if n < 0 {
		return 0
	}
	return e[n].Load()
}
