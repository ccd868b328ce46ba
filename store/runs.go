package store

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Run is a run that is planned or running, as a store keeps it.
type Run struct {
	job.Run

	// Session is that of the node which the run is assigned to or runs on;
	// zero while it must be placed.
	Session job.ID
	// Token was made by the latest claim. A result without it is not taken.
	Token job.ID
	// Slot is the key of the slot that the run needs or holds, as
	// engine.Policy.SlotKey makes it.
	Slot string
	// Overlap is that of a backfill; "" is the job's.
	Overlap job.Overlap
	// AwaitsPrevious is set on a waiting run that waits for the occurrence
	// before it, not for a slot.
	AwaitsPrevious bool
	// Priority orders runs that are due together on a full node.
	Priority int
	// LateAfter is when the first attempt is too late by the job as it is; zero for
	// never.
	LateAfter time.Time
	// Last is how the attempt before ended, while a run is ready for the next.
	Last job.Outcome
	// First is when the first attempt was claimed.
	First time.Time
	// Claimed is when the present attempt was claimed.
	Claimed time.Time
	// FirstDue is when the first attempt was due; zero while Due says it.
	FirstDue time.Time
	// NextDue is when the occurrence after this one is due by the schedule that the run
	// was planned by; zero if it is the last or not an occurrence of a schedule.
	NextDue time.Time
	// FloorBefore is the floor of the job before a claim raised it to this run, while
	// the attempt is claimed: a claim that is given back gives its instant back.
	FloorBefore time.Time
	// LostAfter is for how long the node of a claimed attempt may be silent before the
	// attempt counts as lost, as the job said at the claim: an edit changes neither that
	// nor when the node ends the attempt. Zero before the claim.
	LostAfter time.Duration
	// AlertAt is the next moment at which an expectation of the job is not met
	// that Alerts has not told; zero for none.
	AlertAt time.Time
	// Others is how those of the run's other shards have ended that did not succeed,
	// as far as this one is to remember it for the jobs that follow, and for max_runs
	// that some did. What is not split has it where it was counted for max_runs before
	// the count began anew.
	Others job.Outcome
	// CancelBy and CancelReason are set when a running attempt must end.
	CancelBy, CancelReason string
}

// Present returns the attempt that a run is at.
func (r *Run) Present() Attempt {
	return Attempt{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: r.Token}
}

// Planning makes runs.
type Planning interface {
	// LookAhead is how far ahead runs are planned.
	LookAhead() time.Duration
	// Plan moves cursors and creates the runs of what they have passed, each
	// item by itself: both or neither. An item is refused when the cursor or
	// epoch is another, when the job is paused or gone, or when a run lies
	// further ahead than the look-ahead allows. An item that the same session
	// repeats gives Planned again and makes nothing. Of the runs with a token those
	// that can start now are claimed for the session in the same step: see
	// NewRun.Token.
	Plan(ctx context.Context, session job.ID, items []PlanItem) ([]PlanOutcome, []ClaimOutcome, error)
	// Trigger makes runs that no cursor stands for: by hand, backfills, boots.
	// A request with the key of one made in the last 24 hours returns that
	// run, also when it has ended since.
	Trigger(ctx context.Context, items []TriggerItem) ([]TriggerOutcome, error)
	// Backlog returns how many ready runs of each session are due, the zero id for those
	// that must be placed; of each at most limit are counted.
	Backlog(ctx context.Context, limit int) (map[job.ID]int, error)
	// Unplaced returns ready runs that are assigned to no live session, by due
	// time and id, beginning behind a place in that order.
	Unplaced(ctx context.Context, after RunRef, limit int) ([]Run, error)
	// Place assigns ready runs to sessions. One that is claimed or has another
	// attempt number meanwhile is left alone, and so is one for a session that
	// leaves or is not known.
	Place(ctx context.Context, placements []Placement) error
}

// PlanItem moves the cursor of a job from one scheduled time to another.
type PlanItem struct {
	Job      job.ID
	Epoch    int64
	From, To time.Time
	// Runs are what fell due between. Their identity is (Job, schedule,
	// Scheduled, Shard).
	Runs []NewRun
	// Missed are the occurrences that will not run. They go to history.
	Missed []MissedSpan
	// Complete is set when nothing follows: the job is completed.
	Complete bool
	// Planned is how many occurrences the planner believes to have become
	// runs. A job with max_runs refuses another number, as another cursor.
	Planned int
}

// NewRun is a run to be created.
type NewRun struct {
	ID            job.ID
	Session       job.ID // zero: to be placed
	Node          string // that of the session
	Scheduled     time.Time
	Due           time.Time
	NextDue       time.Time // see Run
	Shard, Shards int
	// Token is that of a claim by the session that plans, zero for none. What becomes of the
	// claims is answered in the order of the runs that have one, across all items. Taken is
	// for a run that was not made, or is left for a claim of its own.
	Token job.ID
}

// MissedSpan is one record for occurrences that were missed.
type MissedSpan struct {
	ID          job.ID
	First, Last time.Time // scheduled
	Count       int       // as far as it was counted
	Reason      string
}

// PlanOutcome says what became of a PlanItem.
type PlanOutcome uint8

// What becomes of a PlanItem.
const (
	Planned   PlanOutcome = iota
	Moved                 // another planner has moved the cursor
	Withdrawn             // the epoch is another, or the job is paused, completed or gone
	TooFar                // an occurrence is later than the store's now and the look-ahead, or a missed one later than now
	Malformed             // an occurrence is not between From and To: a mistake of the planner
)

// TriggerItem asks for a run.
type TriggerItem struct {
	ID      job.ID
	Job     job.ID
	Kind    job.RunKind // hand, backfill or boot
	Key     string      // what makes the request one: see job.Run.Key
	Session job.ID      // where it is placed; zero: to be placed
	Node    string      // that of the session
	// Scheduled is the moment that the run stands for, Due when it may start;
	// zero is the store's now.
	Scheduled, Due time.Time
	Shard, Shards  int
	Params         map[string]string
	Overlap        job.Overlap // of a backfill; "" is the job's
	Actor          string      // "" for boots, which are not audited
	// Again is the run that this one repeats, zero for none, and Flow the state in which the
	// flow of the job begins, as package flow writes it; nil for one that begins anew.
	Again job.ID
	Flow  []byte
}

// TriggerOutcome is the run that a TriggerItem has made, or had made before.
type TriggerOutcome struct {
	Run  job.ID
	Made bool
	Err  error // ErrNotFound for a job that is gone or, but for runs by hand, paused
}

// Placement assigns a run to a session.
type Placement struct {
	Job, Run job.ID
	Attempt  int
	Session  job.ID
}

// Working is what a worker does with runs.
type Working interface {
	// Ready returns the ready runs assigned to a session that are due until a
	// moment, by due time and id, beginning behind a place in that order.
	Ready(ctx context.Context, session job.ID, after RunRef, until time.Time, limit int) ([]ReadyRun, error)
	// Overdue returns ready runs of any session that were due before a moment,
	// by due time and id, beginning behind a run of an earlier page.
	Overdue(ctx context.Context, before time.Time, after RunRef, limit int) ([]ReadyRun, error)
	// Claim starts attempts, each by itself. See ClaimOutcome. A claim that is
	// repeated, and one for a run that an earlier claim has ended, gets the same
	// answer again.
	Claim(ctx context.Context, session job.ID, attempts []Attempt) ([]ClaimOutcome, error)
	// Release gives back attempts that were claimed and surely not started: those of
	// nodes with the session of any, those that were handed over with the zero session.
	// One that was cancelled or withdrawn meanwhile ends.
	Release(ctx context.Context, session job.ID, attempts []Attempt) error
	// Finish ends attempts. In the same step the slot goes to the run that
	// waits for it, the retry, the followers and the successor are created,
	// and the attempt is written to history. A result whose attempt is not
	// running under its token is refused, but for one that replaces "lost" and
	// for one that was accepted before. Nothing else is asked of the session:
	// results come late, too.
	Finish(ctx context.Context, session job.ID, results []Result) ([]FinishOutcome, error)
	// Report says that work which something else does, with run.external, has started or
	// ended. It is about the run whose start was reported, else about the latest that is due,
	// else about one of its own. ErrNotFound is for a job that is gone, ErrConflict for one that
	// Belfry starts, ErrExists for a start with Lock while another one has not ended. A report
	// with the key of one that came in the last 24 hours gets the same run, and ends nothing.
	// A start of a run whose start was reported says that it is still running.
	Report(ctx context.Context, r Report) (ReportOutcome, error)
	// Mine returns what the store believes a session to run.
	Mine(ctx context.Context, session job.ID) ([]Run, error)
	// Cancel ends a run: at once when it is not running, else by asking its
	// node. It returns the run as it is then; one that is over is returned as
	// history has it, ErrNotFound is for what was never there.
	Cancel(ctx context.Context, run job.ID, by, reason string) (Run, error)
	// AnswerFlow ends the steps of a flow that wait for a person or a signal. ErrNotFound is for a
	// run that is over or was never there, ErrConflict for one in which no such step waits.
	AnswerFlow(ctx context.Context, a FlowAnswer) error
	// CancelRuns ends several runs of a job, each by itself, as Cancel does, and returns
	// those that had not ended before.
	CancelRuns(ctx context.Context, uid job.ID, runs []job.ID, by, reason string) ([]Run, error)
	// Active returns a run that is planned or running, ErrNotFound otherwise.
	Active(ctx context.Context, run job.ID) (Run, error)
	// ListActive returns a page of runs that are planned or running, by due
	// time and id.
	ListActive(ctx context.Context, q ActiveQuery) ([]Run, error)
	// Lost returns running attempts whose session is silent for longer than
	// the job's lost_after.
	Lost(ctx context.Context, limit int) ([]Attempt, error)
	// Alerts returns runs that have not ended and what was expected of them by
	// now, each expectation once: the call that returns it notes that. If its
	// answer is lost, the record of the run says it all the same.
	Alerts(ctx context.Context, limit int) ([]Alert, error)
	// Reap ends attempts as lost, as far as Lost would still return them, or
	// their session is a predecessor of the reaper's.
	Reap(ctx context.Context, session job.ID, attempts []Attempt) error
}

// Alert is a run of which more was expected by now.
type Alert struct {
	Run Run
	// Unmet says which expectations of the job are not met.
	Unmet []string
}

// Attempt is what identifies an attempt. Job is that of the run: a store may keep runs
// with their job. The token is made before the claim, so that a repeated claim is
// recognized.
type Attempt struct {
	Job, Run job.ID
	Number   int
	Token    job.ID
}

// ReadyRun is what a node needs to know of a run to claim it. It is a seventh of
// a run, and nodes read many, again and again.
type ReadyRun struct {
	RunRef
	Job      job.ID
	Session  job.ID // which it is assigned to; zero while it must be placed
	Attempt  int
	Priority int
}

// RunRef is a place in the order of due time and id.
type RunRef struct {
	Due time.Time
	ID  job.ID
}

// ClaimOutcome says what became of a claim.
type ClaimOutcome struct {
	Verdict Verdict
	// Job and Run are given with Started: the definition to run under, and
	// the run as it is now.
	Job *Job
	Run Run
	// Now is the store's clock: the run starts at Due - Now from here.
	Now time.Time
	// Reason is given with Waiting, Skipped and Late.
	Reason string
	// Of the run of a step: the results that its templates read, its item, nil for none, with
	// its place, and whether its flow is kept together.
	Steps    map[string]job.StepData
	Item     []byte
	Index    int
	Together bool
}

// Verdict is what a store says to a claim.
type Verdict uint8

// What a store says to a claim.
const (
	Started Verdict = iota // it is yours, or was already
	Taken                  // another node has it, it is over, or no node runs it
	Gone                   // it was withdrawn
	Early                  // too early for the store's clock, or its slot is taken before it is due: ask again when it is due
	Late                   // it may not start so late and was recorded as missed
	Waiting                // it waits for its slot, or for the occurrence before it
	Skipped                // the overlap policy dropped it
)

// Result is how an attempt ended.
type Result struct {
	Attempt
	Started, Ended time.Time
	Outcome        job.Outcome
	Reason         string
	ExitCode       *int
	Signal         string
	HTTPStatus     int
	// Retryable is set on failures that the exit codes of the retry policy do
	// not stand for.
	Retryable bool
	// Permanent is set on a failure that another attempt would repeat: there is none,
	// whatever the policy says.
	Permanent bool
	// Output is what of the output is not in the store yet, and its size.
	Output      []OutputChunk
	OutputBytes int64
	// Value is the result of a step of a flow, in JSON; nil for none.
	Value []byte
}

// FinishOutcome says what became of a Result.
type FinishOutcome struct {
	Accepted bool
	// Unplaced is set when the step has made runs that must be placed.
	Unplaced bool
	// Ready are runs that the step has made ready for the session that reports, so that it
	// need not look for them. A repeated call may not name them again: Ready finds them.
	Ready []ReadyRun
}

// Report is what something else says of work that it does.
type Report struct {
	Job job.ID
	// ID is that of a run to make if no occurrence waits for the report.
	ID job.ID
	// Key recognizes a report that comes again; "" for none.
	Key string
	// Run is that whose start was reported; zero for the latest. An end for a run that is over
	// makes a run of its own.
	Run job.ID
	// Starts is set for a start. Lock refuses it while another one has not ended.
	Starts, Lock bool
	// At is when the work started or ended; zero is now.
	At time.Time
	// Result is how it ended. Its Attempt and Ended are filled in.
	Result Result
}

// ReportOutcome is the run that a Report was about.
type ReportOutcome struct {
	Run job.ID
	// Attempt is the one that the report has ended: 0 for a start, and for a report that came
	// before.
	Attempt int
	// Until is when the end of a run whose start was reported is due; zero for one that is over.
	Until time.Time
}

// ActiveQuery selects runs that are planned or running.
type ActiveQuery struct {
	Namespace string
	Job       job.ID       // zero for all
	State     job.RunState // "" for all
	After     RunRef
	Limit     int
}
