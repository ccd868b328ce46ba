package store

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// History keeps finished attempts and their output.
type History interface {
	// Append adds at most [MaxBatch] records from elsewhere. A record whose run and attempt
	// exist is skipped, unless the existing one is "lost", which it replaces.
	Append(ctx context.Context, records []Record) error
	// HistoryID identifies this history.
	HistoryID(ctx context.Context) (HistoryID, error)

	// Attempts returns finished attempts, the latest first, and the record to continue
	// after, which is zero at the end. A call examines [LookMax] records: a selective query
	// may return fewer than its limit, even none, before the end.
	Attempts(ctx context.Context, q HistoryQuery) (list []Record, next RecordRef, err error)
	// AttemptsOf returns the attempts of one run by number.
	AttemptsOf(ctx context.Context, run job.ID) ([]Record, error)
	// Recent returns the latest n final records of each job, at most [MaxBatch] jobs, in the
	// order of the jobs, the latest record first. Withdrawn runs are skipped: they say
	// nothing about the health of the job. The records have at least what Brief leaves of
	// them, since a list of jobs reads thousands; with an n of 1 also the state of flows,
	// which may be a megabyte each.
	Recent(ctx context.Context, jobs []job.ID, n int) ([][]Record, error)
	// Aggregate counts final records by outcome and bucket of time, in the order of the buckets
	// and of the jobs. Where the buckets consist of slices, it may count records that have expired.
	Aggregate(ctx context.Context, q AggregateQuery) ([]Aggregate, error)

	// AppendOutput adds chunks. An existing chunk stays unchanged, but the drops that it
	// causes are repeated.
	AppendOutput(ctx context.Context, chunks []OutputChunk) error
	// Output returns the chunks of an attempt from a sequence number on.
	Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]OutputChunk, error)

	// Expire removes expired history, at most [ExpireMax] rows, and reports whether there may
	// be more.
	Expire(ctx context.Context, keep Retention) (more bool, err error)
}

// Record is a finished attempt, or an occurrence that never became one: missed,
// skipped, withdrawn or cancelled before it started.
type Record struct {
	Run     job.Run
	Attempt job.Attempt // with number 0 if there was no attempt
	// Final is set on the record that ends its run. Records of steps of a flow never have
	// it: the record of the flow holds their outcomes.
	Final bool
	// Count is more than 1 for a record of several occurrences, the last of which was
	// scheduled for Until.
	Count int
	Until time.Time
	// Replaces is set on a late result that replaced "lost".
	Replaces bool
	// Begun is when the first attempt of the run started; zero if this is the first.
	Begun time.Time
	// Claimed is the time of the claim; zero if there was none, and in records of older
	// programs.
	Claimed time.Time
	// Slot is the key of the slot that the run needed; "" for none, and in records of older
	// programs.
	Slot        string
	OutputBytes int64
	// Unmet describes the unmet expectations of the job.
	Unmet job.Reason
}

// EndsRun reports whether no attempt of the run follows: the record is final, or belongs to
// the last attempt of a step. Run.Attempt of a record is the next attempt, if there is one.
func (r *Record) EndsRun() bool {
	return r.Final || r.Run.Kind == job.RunStep && (r.Attempt.Number == 0 || r.Run.Attempt == r.Attempt.Number)
}

// HasFailed reports whether the record ends a run that failed.
func (r *Record) HasFailed() bool { return r.Final && r.Attempt.Outcome.Alarms() }

// Brief returns the part of a record that lists and statistics show.
func (r *Record) Brief() Record {
	return Record{
		Run: job.Run{
			ID: r.Run.ID, JobUID: r.Run.JobUID, Namespace: r.Run.Namespace, Name: r.Run.Name, Kind: r.Run.Kind, Version: r.Run.Version, Due: r.Run.Due,
			Attempt: r.Run.Attempt, State: r.Run.State, Node: r.Run.Node, Outcome: r.Run.Outcome, Reason: r.Run.Reason,
		},
		Attempt: job.Attempt{
			Run: r.Attempt.Run, Number: r.Attempt.Number, Started: r.Attempt.Started, Ended: r.Attempt.Ended, Outcome: r.Attempt.Outcome, Reason: r.Attempt.Reason, Node: r.Attempt.Node,
			Cause: r.Attempt.Cause, Fingerprint: r.Attempt.Fingerprint, Usage: r.Attempt.Usage,
		},
		Final: r.Final, Count: r.Count, Begun: r.Begun,
	}
}

// LookMax is the number of records that one call of Attempts examines, within the time and
// the job of the query, which all stores index. It bounds the time of a query without
// results, to some milliseconds, whatever the length of the history.
const LookMax = 2000

// HistoryQuery selects records. All set fields must match.
type HistoryQuery struct {
	Namespace string
	Job       job.ID
	Outcomes  []job.Outcome
	From, To  time.Time // range of the end; To is excluded
	Text      string    // searched in the job's name, the reason and the cause
	Reason    string    // a code in the reason: see [job.Reason.Has]
	// Fingerprint selects failures of one kind, see [job.Attempt]; 0 is any.
	Fingerprint job.Fingerprint
	Unmet       bool // only records that missed an expectation
	Kinds       []job.RunKind
	Node        string // the node that ran it or was assigned to it
	FinalOnly   bool
	// Failed selects the final records of failures. All stores index them: a call examines
	// [LookMax] failures, however many runs succeeded in between.
	Failed bool
	Except []job.ID  // jobs to leave out
	Before RecordRef // the record that the page follows; zero begins with the latest
	Limit  int
}

// RecordRef is a place in the order of records.
type RecordRef struct {
	Ended   time.Time
	Run     job.ID
	Attempt int
}

// Compare compares two places.
func (r RecordRef) Compare(other RecordRef) int {
	if c := r.Ended.Compare(other.Ended); c != 0 {
		return c
	}
	return cmp.Or(bytes.Compare(r.Run[:], other.Run[:]), cmp.Compare(r.Attempt, other.Attempt))
}

// Within reports whether a moment is in the time of the query.
func (q *HistoryQuery) Within(t time.Time) bool { return within(t, q.From, q.To) }

// Within reports whether a moment is in the time of the query.
func (q *AggregateQuery) Within(t time.Time) bool { return within(t, q.From, q.To) }

// within reports whether a moment is in a time span whose ends may be open. The second
// end is excluded.
func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}

// Ref returns the place of a record.
func (r *Record) Ref() RecordRef {
	return RecordRef{Ended: r.Attempt.Ended, Run: r.Run.ID, Attempt: r.Attempt.Number}
}

// Slice is the length of a slice of the roll-up: SQL stores count the final records of each job
// in each slice once, and add the counts up for queries whose buckets consist of slices. It divides
// the ten minutes of a lane and the quarters of an hour of a week.
const Slice = 5 * time.Minute

// SlicesFor is how long the counts of slices are kept, also of expired records: the timeline and
// the statistics look back that far.
const SlicesFor = 90 * 24 * time.Hour

// AggregateQuery selects counts of the final records.
type AggregateQuery struct {
	Namespace string
	Job       job.ID
	Jobs      []job.ID // at most MaxBatch jobs; nil for all
	From, To  time.Time
	Bucket    time.Duration // counted from From
	ByJob     bool          // separate counts for each job
	// Exact counts the records themselves, not the roll-up of their slices, which keeps the counts of
	// expired records.
	Exact bool
}

// Sliced reports whether the buckets of the query consist of whole slices.
func (q *AggregateQuery) Sliced() bool {
	return !q.Exact && !q.From.IsZero() && q.Bucket > 0 && q.Bucket%Slice == 0 && q.From.UnixNano()%int64(Slice) == 0
}

// Aggregate is the counts of one bucket.
type Aggregate struct {
	Start    time.Time
	Job      job.ID // with ByJob
	Outcomes map[job.Outcome]int
	// Duration is the sum over attempts that started, Longest the longest.
	Duration, Longest time.Duration
}

// OutputChunk is a part of the output of an attempt, under the key of run, attempt and
// sequence number. Its data are opaque to all but package internal/node/output.
type OutputChunk struct {
	Run     job.ID
	Attempt int
	Seq     int
	Offset  int64     // offset in the whole output
	Bytes   int       // length of the chunk in the output
	Time    time.Time // when it was written
	Data    []byte
	// DropFrom and DropTo tell the store to remove the attempt's chunks with DropFrom <=
	// Seq < DropTo: they exceed the bound of a run.
	DropFrom, DropTo int
}

// ExpireMax is the number of rows that one call of Expire or ExpireAudit removes: records
// and chunks of their output together, or changes. The call blocks other writes, for about
// ten milliseconds.
const ExpireMax = 1000

// Retention is how long a server keeps history. Zero means no limit.
type Retention struct {
	// Limits of history for jobs that set none.
	Runs      int
	For       time.Duration
	OutputFor time.Duration
	// Of the audit.
	Audit    int
	AuditFor time.Duration
	// Jobs are for a history without access to the jobs. A caller passes another pointer
	// after a change.
	Jobs *JobKeeps
}

// JobKeeps is the retention of jobs that set their own.
type JobKeeps map[job.ID]job.Keep

// Of returns the entry of a job in [Jobs], and false if it has none.
func (r *Retention) Of(uid job.ID) (keep job.Keep, isSet bool) {
	if r.Jobs == nil {
		return job.Keep{}, false
	}
	keep, isSet = (*r.Jobs)[uid]
	return keep, isSet
}

// With returns the retention of a job with its own settings.
func (r Retention) With(keep job.Keep) Retention {
	return Retention{
		Runs:      cmp.Or(keep.Runs, r.Runs),
		For:       cmp.Or(time.Duration(keep.For), r.For),
		OutputFor: cmp.Or(time.Duration(keep.OutputFor), r.OutputFor),
	}
}
