package sqlite

import (
	"slices"
	"sync/atomic"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// outcomesMax is more than there are outcomes.
const outcomesMax = 16

// endCounts are how many runs a call has ended, by the numbers of outcomes.
type endCounts [outcomesMax]int32

// count adds the records that end runs. One that stands for several occurrences
// counts as so many.
func (e *endCounts) count(records []*store.Record) {
	for _, r := range records {
		if n := outcomes.of(r.Attempt.Outcome); r.Final && n >= 0 {
			e[n] += int32(max(1, r.Count))
		}
	}
}

// ends are how many runs have ended since the store was opened. The writer adds,
// anybody reads.
type ends [outcomesMax]atomic.Int64

func (e *ends) add(more *endCounts) {
	for i, n := range more {
		if n != 0 {
			e[i].Add(int64(n))
		}
	}
}

// Ended returns how many runs have ended so since the store was opened, those too
// that have never started. It counts what is on disk.
func (s *Store) Ended(outcome job.Outcome) int64 {
	n := slices.Index(outcomes, outcome)
	if n < 0 {
		return 0
	}
	return s.ended[n].Load()
}
