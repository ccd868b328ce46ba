// Package columns encodes the columns of the SQL stores: enumerations as numbers, moments,
// definitions as texts, and compound values. It reads no database, and keeps only what it
// is given.
package columns

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
)

// Codes are the numbers of the values of an enumeration in the rows that each
// run writes. They never change: new ones go to the end.
type Codes[T ~string] []T

// The enumerations.
var (
	States   = Codes[job.RunState]{job.StateReady, job.StateWaiting, job.StateRunning, job.StateDone}
	Kinds    = Codes[job.RunKind]{job.RunScheduled, job.RunBackfill, job.RunByHand, job.RunOn, job.RunAfterEnd, job.RunBoot, job.RunStep, job.RunByFlow}
	Overlaps = Codes[job.Overlap]{"", job.OverlapSkip, job.OverlapQueue, job.OverlapReplace, job.OverlapAllow}
	Outcomes = Codes[job.Outcome]{
		"", job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeCancelled,
		job.OutcomeLost, job.OutcomeSkipped, job.OutcomeMissed, job.OutcomeWithdrawn,
	}
	JobStates = Codes[job.JobState]{job.JobActive, job.JobPaused, job.JobCompleted}
)

// Of returns the number of a value.
func (c Codes[T]) Of(v T) int64 { return int64(slices.Index(c, v)) }

// Value returns the value of a number. A newer Belfry may have written an unknown number.
func (c Codes[T]) Value(n int64) T {
	if n < 0 || n >= int64(len(c)) {
		return "unknown"
	}
	return c[n]
}
