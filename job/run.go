package job

import "time"

// Run is the work for one occurrence of a job, or for one request. Kind, Key
// and Shard tell it apart from all other runs of the job, so that making it
// twice gives one run.
type Run struct {
	ID        ID
	JobUID    ID
	Namespace string
	Name      string
	Kind      RunKind
	// Key is the scheduled time (schedule, backfill), the idempotency key or
	// request id (hand), the parent run (on, after_end) or the process id of
	// the node (boot).
	Key           string
	Shard, Shards int // Shards is 0 where the occurrence is not split

	Epoch   int64 // of the job when the run was planned
	Version int64 // of the job that the latest attempt was claimed under

	State     RunState
	Scheduled time.Time // the moment that the run stands for
	Due       time.Time // when its next attempt may start
	Attempt   int       // the number of the latest attempt or, while ready, of the next; from 1
	Node      string    // the node that it is assigned to or runs on
	HoldsSlot bool

	Params map[string]string
	Parent ID // the run that made this one; zero for none

	Outcome Outcome // once it is done
	Reason  string  // why it waits, or ended so, in words
}

// Attempt is one try of a run on a node.
type Attempt struct {
	Run    ID
	Number int // from 1
	Token  ID  // made by the claim; a result without it is not taken
	Node   string

	Started, Ended time.Time
	Outcome        Outcome
	Reason         string // in words
	ExitCode       *int   // of a command that ended by itself
	Signal         string // that ended the command, for example SIGKILL
	HTTPStatus     int    // of the answer; 0 for none
}

// RunKind is what a run was made by.
type RunKind string

// What a run was made by.
const (
	RunScheduled RunKind = "schedule"
	RunBackfill  RunKind = "backfill"
	RunByHand    RunKind = "hand"
	RunOn        RunKind = "on"        // the end of another job's run
	RunAfterEnd  RunKind = "after_end" // the end of the job's previous run
	RunBoot      RunKind = "boot"      // the start of a node
)

// Values returns all kinds of runs.
func (RunKind) Values() []string {
	return texts(RunScheduled, RunBackfill, RunByHand, RunOn, RunAfterEnd, RunBoot)
}

// RunState is how far a run has come.
type RunState string

// How far a run has come.
const (
	StateReady   RunState = "ready"   // planned, or due for its next attempt
	StateWaiting RunState = "waiting" // due, and waiting for a slot
	StateRunning RunState = "running" // claimed by a node
	StateDone    RunState = "done"    // it has an outcome
)

// Values returns all states of a run.
func (RunState) Values() []string {
	return texts(StateReady, StateWaiting, StateRunning, StateDone)
}

// Outcome is how a run or an attempt ended.
type Outcome string

// How a run or an attempt ended. The last three never started.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
	OutcomeTimedOut  Outcome = "timed_out"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeLost      Outcome = "lost"      // its node was not heard of in time
	OutcomeSkipped   Outcome = "skipped"   // by the overlap policy
	OutcomeMissed    Outcome = "missed"    // too late
	OutcomeWithdrawn Outcome = "withdrawn" // the job was paused, deleted or given another schedule
)

// Alarms tells whether a run that ended so is one that its owner wants to hear of: it
// failed, timed out, was lost or missed.
func (o Outcome) Alarms() bool {
	switch o {
	case OutcomeFailed, OutcomeTimedOut, OutcomeLost, OutcomeMissed:
		return true
	}
	return false
}

// Values returns all outcomes.
func (Outcome) Values() []string {
	return texts(OutcomeSucceeded, OutcomeFailed, OutcomeTimedOut, OutcomeCancelled, OutcomeLost, OutcomeSkipped, OutcomeMissed, OutcomeWithdrawn)
}
