package store

import (
	"cmp"
	"context"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// History keeps what has run, and what it wrote.
type History interface {
	// Append adds at most MaxBatch records that were made elsewhere. One whose run and
	// attempt are there already is left out, unless the one that is there is "lost": then
	// it takes its place.
	Append(ctx context.Context, records []Record) error
	// HistoryID tells this history from others.
	HistoryID(ctx context.Context) (HistoryID, error)

	// Attempts returns finished attempts, the latest first, and the record to
	// go on behind, which is zero when there is nothing behind it. A call looks
	// at LookMax records: a query that selects few of many may return fewer
	// than its limit, even none, and not be at the end.
	Attempts(ctx context.Context, q HistoryQuery) (list []Record, next RecordRef, err error)
	// AttemptsOf returns the attempts of one run by number.
	AttemptsOf(ctx context.Context, run job.ID) ([]Record, error)
	// Recent returns the latest n final records of each job, at most MaxBatch jobs, in the
	// order of the jobs, the latest record first. Withdrawn runs are left out: they say
	// nothing about how the job does.
	Recent(ctx context.Context, jobs []job.ID, n int) ([][]Record, error)
	// Aggregate counts attempts by outcome and bucket of time.
	Aggregate(ctx context.Context, q AggregateQuery) ([]Aggregate, error)

	// AppendOutput adds chunks. One that is there already is left as it is,
	// but what it pushes out is pushed out again.
	AppendOutput(ctx context.Context, chunks []OutputChunk) error
	// Output returns the chunks of an attempt from a sequence number on.
	Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]OutputChunk, error)

	// Expire removes what need not be kept of the history, at most ExpireMax rows of it, and
	// reports whether there may be more.
	Expire(ctx context.Context, keep Retention) (more bool, err error)
}

// Record is a finished attempt, or an occurrence that never became one: missed,
// skipped, withdrawn or cancelled before it started.
type Record struct {
	Run     job.Run
	Attempt job.Attempt // its number is 0 when there was none
	// Final is set on the record that ends its run. Those of the steps of a flow have none: the
	// record of their flow says how they have ended.
	Final bool
	// Count is more than 1 for a record that stands for so many occurrences,
	// the last of which was scheduled for Until.
	Count int
	Until time.Time
	// Replaces is set on a late result that replaced "lost".
	Replaces bool
	// Begun is when the first attempt of the run started; zero if this is the first.
	Begun time.Time
	// Claimed is when the attempt was claimed; zero for what was never claimed, and in records
	// of older programs.
	Claimed time.Time
	// Slot is the key of the slot that the run needed; "" in records of older programs and of
	// what never needed one.
	Slot        string
	OutputBytes int64
	// Unmet says in words which expectations of the job were not met.
	Unmet string
}

// LookMax is how many records one call of Attempts looks at. They are counted
// within the time, and of the job, that the query names, since all stores find
// those at once. It bounds how long a query that finds nothing takes, some
// milliseconds, whatever the length of the history.
const LookMax = 2000

// HistoryQuery selects records. All that is given must match.
type HistoryQuery struct {
	Namespace string
	Job       job.ID
	Outcomes  []job.Outcome
	From, To  time.Time // of the end; To is excluded
	Text      string    // in the name of the job, or in the reason, which has the error
	Unmet     bool      // only those that have not met an expectation
	Kinds     []job.RunKind
	Node      string // that it ran on, or was assigned to
	FinalOnly bool
	Before    RecordRef // the record that the page follows; zero begins with the latest
	Limit     int
}

// RecordRef is a place in the order of records.
type RecordRef struct {
	Ended   time.Time
	Run     job.ID
	Attempt int
}

// Ref returns the place of a record.
func (r *Record) Ref() RecordRef {
	return RecordRef{Ended: r.Attempt.Ended, Run: r.Run.ID, Attempt: r.Attempt.Number}
}

// AggregateQuery asks for counts of the final records.
type AggregateQuery struct {
	Namespace string
	Job       job.ID
	From, To  time.Time
	Bucket    time.Duration // counted from From
}

// Aggregate is the counts of one bucket.
type Aggregate struct {
	Start    time.Time
	Outcomes map[job.Outcome]int
	// Duration is the sum over those that started, Longest the longest.
	Duration, Longest time.Duration
}

// OutputChunk is a part of what an attempt wrote, under the key of run, attempt
// and sequence number. Its data are for package internal/output to read.
type OutputChunk struct {
	Run     job.ID
	Attempt int
	Seq     int
	Offset  int64     // in all that was written
	Bytes   int       // how much of it the chunk holds
	Time    time.Time // when it was written
	Data    []byte
	// DropFrom and DropTo tell the store to remove the attempt's chunks with
	// DropFrom <= Seq < DropTo: they are beyond the bound of a run.
	DropFrom, DropTo int
}

// ExpireMax is how many rows one call of Expire or ExpireAudit removes: records and chunks
// of their output together, or changes. Nothing else is written meanwhile, and this takes
// about ten milliseconds.
const ExpireMax = 1000

// Retention is what a server keeps. Zero is without a bound.
type Retention struct {
	// Of history, where a job says nothing.
	Runs      int
	For       time.Duration
	OutputFor time.Duration
	// Of the audit.
	Audit    int
	AuditFor time.Duration
	// Jobs are for a history that does not have the jobs whose runs it keeps. A caller
	// passes another pointer when something in it has changed.
	Jobs *JobKeeps
}

// JobKeeps is how long the history of jobs is kept that say so themselves.
type JobKeeps map[job.ID]job.Keep

// Of returns what Jobs says about the history of a job.
func (r *Retention) Of(uid job.ID) (keep job.Keep, said bool) {
	if r.Jobs == nil {
		return job.Keep{}, false
	}
	keep, said = (*r.Jobs)[uid]
	return keep, said
}

// With returns how long history is kept of a job that says something itself.
func (r Retention) With(said job.Keep) Retention {
	return Retention{
		Runs:      cmp.Or(said.Runs, r.Runs),
		For:       cmp.Or(time.Duration(said.For), r.For),
		OutputFor: cmp.Or(time.Duration(said.OutputFor), r.OutputFor),
	}
}
