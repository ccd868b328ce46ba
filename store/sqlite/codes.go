package sqlite

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
)

// codes are the numbers of the values of an enumeration in the rows that each
// run writes. They are fixed for ever: what is new goes to the end.
type codes[T ~string] []T

var (
	states   = codes[job.RunState]{job.StateReady, job.StateWaiting, job.StateRunning, job.StateDone}
	kinds    = codes[job.RunKind]{job.RunScheduled, job.RunBackfill, job.RunByHand, job.RunOn, job.RunAfterEnd, job.RunBoot}
	overlaps = codes[job.Overlap]{"", job.OverlapSkip, job.OverlapQueue, job.OverlapReplace, job.OverlapAllow}
	outcomes = codes[job.Outcome]{
		"", job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeCancelled,
		job.OutcomeLost, job.OutcomeSkipped, job.OutcomeMissed, job.OutcomeWithdrawn,
	}
	jobStates = codes[job.JobState]{job.JobActive, job.JobPaused, job.JobCompleted}
)

// of returns the number of a value.
func (c codes[T]) of(v T) int64 { return int64(slices.Index(c, v)) }

// value returns the value of a number. A newer belfry may have written one that
// is not known here.
func (c codes[T]) value(n int64) T {
	if n < 0 || n >= int64(len(c)) {
		return "unknown"
	}
	return c[n]
}
