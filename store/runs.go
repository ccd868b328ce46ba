package store

import (
	"bytes"
	"context"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Run is a planned or running run in a store.
type Run struct {
	job.Run

	// Session is the session of the node that the run is assigned to or runs on; zero while
	// it must be placed.
	Session job.ID
	// Token was created by the latest claim. A result without it is refused.
	Token job.ID
	// Slot is the key of the slot that the run needs or holds, as engine.Policy.SlotKey returns it.
	Slot string
	// Overlap is the overlap policy of a backfill; "" is the job's.
	Overlap job.Overlap
	// AwaitsPrevious is set on a waiting run that waits for the occurrence
	// before it, not for a slot.
	AwaitsPrevious bool
	// Priority orders runs that are due together on a full node.
	Priority int
	// LateAfter is the time after which the first attempt is too late by the job's current
	// definition; zero for never.
	LateAfter time.Time
	// Last is the result of the previous attempt, while a run is ready for the next.
	Last job.Outcome
	// First is when the first attempt was claimed.
	First time.Time
	// Claimed is when the current attempt was claimed.
	Claimed time.Time
	// FirstDue is when the first attempt was due; zero while that is Due.
	FirstDue time.Time
	// NextDue is when the occurrence after this one is due by the schedule that the run
	// was planned by; zero if it is the last or not an occurrence of a schedule.
	NextDue time.Time
	// FloorBefore is the floor of the job before the claim raised it to this run, so that
	// a released claim can return its occurrence.
	FloorBefore time.Time
	// LostAfter is how long the node of a claimed attempt may be silent before the attempt
	// counts as lost, as defined at the claim: an edit changes neither that nor when the
	// node ends the attempt. Zero before the claim. It has whole milliseconds: stores keep
	// Unfenced in the bits below.
	LostAfter time.Duration
	// Unfenced says that the node of a claimed attempt does not end it when it cannot renew its
	// session: by the definition at the claim, no other attempt follows from the loss.
	Unfenced bool
	// AlertAt is the next moment at which an expectation of the job is missed that Alerts
	// has not returned; zero for none.
	AlertAt time.Time
	// Others is the outcome of the run's other shards that did not succeed, as far as following
	// jobs and max_runs need it. A run without shards has it if max_runs counted it before the
	// count was reset.
	Others job.Outcome
	// CancelBy and CancelReason are set when a running attempt must end.
	CancelBy     string
	CancelReason job.Reason
}

// Present returns the current attempt of a run.
func (r *Run) Present() Attempt {
	return Attempt{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: r.Token}
}

// IsPostponed reports whether the run waits for something that its attempt needs, named by Reason:
// see Result.Postponed.
func (r *Run) IsPostponed() bool {
	return r.State == job.StateReady && r.Last == "" && !r.FirstDue.IsZero()
}

// Ref returns the place of a run.
func (r *Run) Ref() RunRef { return RunRef{Due: r.Due, ID: r.ID} }

// Ready returns the data that a node needs to claim the run.
func (r *Run) Ready() ReadyRun {
	return ReadyRun{RunRef: r.Ref(), Job: r.JobUID, Session: r.Session, Attempt: r.Attempt, Priority: r.Priority}
}

// Planning creates runs.
type Planning interface {
	// LookAhead is how far ahead runs are planned.
	LookAhead() time.Duration
	// Plan moves cursors and creates the runs of the occurrences that they pass, both or neither
	// for each item. An item is refused if the cursor or epoch differs, if the job is paused or
	// deleted, or if a run is beyond the look-ahead. An item repeated by the same session returns
	// [Planned] again and creates nothing. Runs with a token that can start now are claimed for the
	// session in the same step: see NewRun.Token.
	Plan(ctx context.Context, session job.ID, items []PlanItem) ([]PlanOutcome, []ClaimOutcome, error)
	// Trigger creates runs outside of cursors: manual runs, backfills, boots. A request
	// with the key of one made in the last 24 hours returns that run, even if it has ended.
	Trigger(ctx context.Context, items []TriggerItem) ([]TriggerOutcome, error)
	// Backlog returns the number of due ready runs of each session, the zero id for unplaced ones;
	// it counts at most limit per session.
	Backlog(ctx context.Context, limit int) (map[job.ID]int, error)
	// Unplaced returns ready runs that are assigned to no live session, by due time and
	// id, after a place in that order.
	Unplaced(ctx context.Context, after RunRef, limit int) ([]Run, error)
	// Place assigns ready runs to sessions. It skips runs that have been claimed or have another
	// attempt number, and runs for a leaving or unknown session.
	Place(ctx context.Context, placements []Placement) error
}

// PlanItem moves the cursor of a job from one scheduled time to another.
type PlanItem struct {
	Job      job.ID
	Epoch    int64
	From, To time.Time
	// Runs are the occurrences in between. Their identity is ([Job], schedule, Scheduled,
	// Shard).
	Runs []NewRun
	// Missed are the occurrences that will not run. They go to history.
	Missed []MissedSpan
	// Complete is set when no occurrence follows: the job is completed.
	Complete bool
	// Planned is the planner's count of occurrences that became runs. A job with max_runs
	// refuses another count, like another cursor.
	Planned int
}

// NewRun is a run to be created.
type NewRun struct {
	ID            job.ID
	Session       job.ID // zero leaves the run unplaced
	Node          string // the node of the session
	Scheduled     time.Time
	Due           time.Time
	NextDue       time.Time // see Run
	Shard, Shards int
	// Token is the token of a claim by the planning session, zero for none. The results of the
	// claims are returned in the order of the runs with a token, across all items. Taken means a
	// run that was not created, or needs a separate claim.
	Token job.ID
}

// MissedSpan is one record for occurrences that were missed.
type MissedSpan struct {
	ID          job.ID
	First, Last time.Time // scheduled
	Count       int       // at most the limit
	Reason      job.Reason
}

// PlanOutcome is the result of a [PlanItem].
type PlanOutcome uint8

// The results of a [PlanItem].
const (
	Planned   PlanOutcome = iota
	Moved                 // another planner has moved the cursor
	Withdrawn             // the epoch differs, or the job is paused, completed or deleted
	TooFar                // an occurrence exceeds the store's now plus the look-ahead, or is missed and after now
	Malformed             // an occurrence is not between From and To, by a bug of the planner
)

// TriggerItem is a request for a run.
type TriggerItem struct {
	ID      job.ID
	Job     job.ID
	Kind    job.RunKind // hand, backfill or boot
	Key     string      // identifies the request: see job.Run.Key
	Session job.ID      // where it is placed; zero leaves it unplaced
	Node    string      // the node of the session
	// Scheduled is the moment that the run is for, Due when it may start; zero is the
	// store's now.
	Scheduled, Due time.Time
	Shard, Shards  int
	Params         map[string]string
	Overlap        job.Overlap // for a backfill; "" is the job's
	Actor          string      // "" for boots, which the audit omits
	// KeyFor is how long the key stands for this request, 0 for KeyLife. With PutOff the run is due after
	// this time, and a request with the same key puts it off again, until it starts or PutOffMax after
	// the first.
	KeyFor, PutOff time.Duration
	// Again is the run that this one repeats, zero for none, and Flow the flow's initial state,
	// encoded by package flow; nil for a fresh start.
	Again job.ID
	Flow  []byte
}

// PutOffMax is how many times as long as one request does all together may put off a run: an endless
// row of requests starts it in the end.
const PutOffMax = 10

// TriggerOutcome is the run that a [TriggerItem] has created, or had created before.
type TriggerOutcome struct {
	Run  job.ID
	Made bool
	Err  error // ErrNotFound for a deleted job or, except for manual runs, a paused one
}

// Placement assigns a run to a session.
type Placement struct {
	Job, Run job.ID
	Attempt  int
	Session  job.ID
}

// Working is the worker's part of a store.
type Working interface {
	// Ready returns ready runs, by due time and id.
	Ready(ctx context.Context, q ReadyQuery) ([]ReadyRun, error)
	// Claim starts attempts, each separately. See [ClaimOutcome]. A repeated claim, or a claim of a
	// run that an earlier claim has ended, gets the same answer again.
	Claim(ctx context.Context, session job.ID, attempts []Attempt) ([]ClaimOutcome, error)
	// Release returns attempts that were claimed and certainly not started, under the id of any
	// session, or the zero session for handed-over ones. An attempt that was cancelled or withdrawn
	// in the meantime ends.
	Release(ctx context.Context, session job.ID, attempts []Attempt) error
	// Finish ends attempts. In the same step the slot passes to the waiting run, the retry,
	// the followers and the successor are created, and the attempt is written to history. A
	// result is refused if its attempt is not running under its token, unless it replaces
	// "lost" or was accepted before. The session need not be live: results may be late.
	Finish(ctx context.Context, session job.ID, results []Result) ([]FinishOutcome, error)
	// Report records the start or the end of external work, with run.external. It applies to the
	// run whose start was reported, or to the latest due run, or to a new one. [ErrNotFound] is for a
	// deleted job, [ErrConflict] for a job that Belfry starts, [ErrExists] for a start with Lock while
	// another run has not ended. A report with the key of one from the last 24 hours returns the
	// same run and changes nothing. A second start of a run is a sign of life.
	Report(ctx context.Context, r Report) (ReportOutcome, error)
	// Cancel ends a run: at once if it is not running, or by a request to its node. It returns the
	// resulting run, or a finished one from history; [ErrNotFound] is for an unknown run.
	Cancel(ctx context.Context, run job.ID, by, reason string) (Run, error)
	// AnswerFlow ends the steps of a flow that wait for a person or a signal. [ErrNotFound]
	// is for a finished or unknown run, [ErrConflict] for a run without such a waiting step.
	AnswerFlow(ctx context.Context, a FlowAnswer) error
	// CancelRuns ends several runs of a job, each separately, as Cancel does, and returns
	// those that had not ended before.
	CancelRuns(ctx context.Context, uid job.ID, runs []job.ID, by, reason string) ([]Run, error)
	// ListActive returns runs that are planned or running, by due time and id.
	ListActive(ctx context.Context, q ActiveQuery) ([]Run, error)
	// Lost returns running attempts whose session is silent for longer than
	// the job's lost_after.
	Lost(ctx context.Context, limit int) ([]Attempt, error)
	// Alerts returns unfinished runs with their missed expectations, each expectation once: the
	// returning call records that. If its answer is lost, the record of the run still contains it.
	Alerts(ctx context.Context, limit int) ([]Alert, error)
	// Reap ends attempts as lost, as far as Lost would still return them, or
	// their session is a predecessor of the reaper's.
	Reap(ctx context.Context, session job.ID, attempts []Attempt) error
}

// Alert is a run with a missed expectation.
type Alert struct {
	Run Run
	// Unmet describes the unmet expectations of the job.
	Unmet []job.Reason
}

// Attempt identifies an attempt. Job is the job of the run: a store may keep runs with
// their job. The token is made before the claim, so that a repeated claim is recognized.
type Attempt struct {
	Job, Run job.ID
	Number   int
	Token    job.ID
}

// ReadyRun is the data that a node needs to claim a run: a seventh of the run, because
// nodes poll many of them.
type ReadyRun struct {
	RunRef
	Job      job.ID
	Session  job.ID // the assigned session; zero while unplaced
	Attempt  int
	Priority int
}

// RunRef is a place in the order of due time and id.
type RunRef struct {
	Due time.Time
	ID  job.ID
}

// Compare compares two places.
func (r RunRef) Compare(other RunRef) int {
	if c := r.Due.Compare(other.Due); c != 0 {
		return c
	}
	return bytes.Compare(r.ID[:], other.ID[:])
}

// ClaimOutcome is the result of a claim.
type ClaimOutcome struct {
	Verdict Verdict
	// Job and [Run] are set with [Started]: the definition that applies, and the current run.
	Job *Job
	Run *Run
	// Now is the store's clock: the run starts at Due - Now from here.
	Now time.Time
	// Reason is set with [Waiting], [Skipped] and [Late].
	Reason job.Reason
	// For the run of a step: the results that its templates read, its item, nil for none, with its
	// place, and whether its flow is kept together.
	Steps    map[string]job.StepData
	Item     []byte
	Index    int
	Together bool
}

// Verdict is a store's answer to a claim.
type Verdict uint8

// The answers to a claim.
const (
	Started Verdict = iota // the claim succeeded, now or earlier
	Taken                  // another node has the run, it has ended, or no node runs it
	Gone                   // it was withdrawn
	Early                  // too early by the store's clock, or the slot is taken before the due time: ask again then, or in ClaimAgain once it is due
	Late                   // too late to start, recorded as missed
	Waiting                // it waits for its slot or for the previous occurrence
	Skipped                // the overlap policy dropped it
)

// Result is how an attempt ended.
type Result struct {
	Attempt
	Started, Ended time.Time
	Outcome        job.Outcome
	Reason         job.Reason
	ExitCode       *int
	Signal         string
	HTTPStatus     int
	// Cause is the failure in the words of the work, masked like its output; "" for none.
	Cause string
	// Usage is what the attempt used of its machine, as far as that is known.
	Usage job.Usage
	// Retryable is set on failures outside of the retry policy's exit codes.
	Retryable bool
	// Permanent is set on a failure that another attempt would repeat: the run is not
	// retried, whatever the policy.
	Permanent bool
	// Postponed is set on an attempt without effect because something that Reason names could not
	// be read. The run keeps its number of attempts and is due again later.
	Postponed bool
	// Output is the part of the output that is not in the store yet, and its size.
	Output      []OutputChunk
	OutputBytes int64
	// Value is the result of a step of a flow, in JSON; nil for none.
	Value []byte
}

// FinishOutcome is the response to a [Result].
type FinishOutcome struct {
	Accepted bool
	// Undecided is set when the record of the attempt is in a separate history that is away: the
	// result must be reported again.
	Undecided bool
	// Unplaced is set when the step has created runs that must be placed.
	Unplaced bool
	// Ready are runs that the step made ready for the reporting session, to save a poll. A repeated
	// call may omit them: Ready finds them.
	Ready []ReadyRun
}

// Report is an external report on work that Belfry does not start.
type Report struct {
	Job job.ID
	// ID is the id of the new run if no occurrence waits for the report.
	ID job.ID
	// Key identifies repeated reports; "" for none.
	Key string
	// Run is the run whose start was reported; zero for the latest. An end for a finished
	// run creates a new one.
	Run job.ID
	// Starts is set for a start. Lock refuses it while another run has not ended.
	Starts, Lock bool
	// At is when the work started or ended; zero is now.
	At time.Time
	// Result is how it ended. Its [Attempt] and Ended are filled in.
	Result Result
}

// ReportOutcome is the run of a [Report].
type ReportOutcome struct {
	Run job.ID
	// Attempt is the number of the attempt that the report ended: 0 for a start or a repeated
	// report.
	Attempt int
	// Until is when the end of a started run is due; zero for a finished one.
	Until time.Time
}

// ReadyQuery selects ready runs. All set fields must match.
type ReadyQuery struct {
	// Session is the session of the runs, unless Any is set.
	Session job.ID
	Any     bool
	Until   time.Time // the latest due time
	After   RunRef    // the last run before the list
	Limit   int
}

// ActiveQuery selects runs that are planned or running. All set fields must match.
type ActiveQuery struct {
	Run       job.ID
	Job       job.ID
	Namespace string
	State     job.RunState
	// Sessions are the sessions that the runs are assigned to or run on. With Except they
	// are excluded instead.
	Sessions []job.ID
	Except   bool
	After    RunRef // the last run before the list
	Limit    int
}
