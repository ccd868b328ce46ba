package job

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Run is the work for one occurrence of a job, or for one request. Kind, Key and Shard
// identify it among all runs of the job, so that creating it twice gives one run.
type Run struct {
	ID        ID
	JobUID    ID
	Namespace string
	Name      string
	Kind      RunKind
	// Key is the scheduled time (schedule, backfill), the idempotency key or
	// request id (hand), the parent run (on, after_end), the process id of the
	// node (boot), or the parent run with the step and its item (step, flow): see [StepKey].
	Key           string
	Shard, Shards int // Shards is 0 if the occurrence is not split

	Epoch   int64 // epoch of the job when the run was planned
	Version int64 // version of the job at the latest claim

	State     RunState
	Scheduled time.Time // the moment that the run is for
	Due       time.Time // the earliest start of its next attempt
	Attempt   int       // number of the latest attempt or, while ready, of the next; from 1
	Node      string    // the node that it is assigned to or runs on
	HoldsSlot bool

	Params map[string]string
	Parent ID // the run that created this one; zero for none

	// Flow is the state of a run of a flow, as package flow writes it; nil before its
	// start, and for all other runs.
	Flow []byte

	Outcome Outcome // once it is done
	Reason  Reason  // why it waits, or has its outcome
}

// StepKey returns the key of the run of a step; item is -1 for a step without items.
func StepKey(flow ID, step string, item int) string {
	key := flow.String() + "/" + step
	if item >= 0 {
		key += "/" + strconv.Itoa(item)
	}
	return key
}

// Step returns the step of a run, "" for none, and its item, -1 for none.
func (r *Run) Step() (step string, item int) {
	if r.Kind != RunStep && r.Kind != RunByFlow {
		return "", -1
	}
	_, step, _ = strings.Cut(r.Key, "/")
	step, number, isItem := strings.Cut(step, "/")
	if !isItem {
		return step, -1
	}
	item, err := strconv.Atoi(number)
	if err != nil {
		return step, -1
	}
	return step, item
}

// Attempt is one try of a run on a node.
type Attempt struct {
	Run    ID
	Number int // from 1
	Token  ID  // made by the claim; results need it
	Node   string

	Started, Ended time.Time
	Outcome        Outcome
	Reason         Reason
	ExitCode       *int   // exit code of a command
	Signal         string // signal that ended the command, for example SIGKILL
	HTTPStatus     int    // status of the answer; 0 for none
	// Cause is the failure in the words of the work, such as the last line of its standard error;
	// "" if unknown, for successes, and in records of older programs.
	Cause string `json:",omitzero"`
	// Fingerprint is the same for failures of one kind: see reason.FingerprintOf.
	Fingerprint Fingerprint `json:",omitzero"`
	// Usage is what it used of its machine, as far as that is known.
	Usage Usage `json:",omitzero"`
}

// Fingerprint identifies a kind of failures; 0 is none.
type Fingerprint uint64

// String returns 16 hexadecimal digits, "" for none.
func (f Fingerprint) String() string {
	if f == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(f))
}

// ParseFingerprint reads the 16 hexadecimal digits of a fingerprint.
func ParseFingerprint(text string) (Fingerprint, error) {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 || n == 0 {
		return 0, fmt.Errorf("%q is not a fingerprint: 16 hexadecimal digits", text)
	}
	return Fingerprint(n), nil
}

// RunKind is the origin of a run.
type RunKind string

// The origins of runs.
const (
	RunScheduled RunKind = "schedule"
	RunBackfill  RunKind = "backfill"
	RunByHand    RunKind = "hand"
	RunOn        RunKind = "on"        // the end of another job's run
	RunAfterEnd  RunKind = "after_end" // the end of the job's previous run
	RunBoot      RunKind = "boot"      // the start of a node
	RunStep      RunKind = "step"      // a step of a flow: a part of its parent run
	RunByFlow    RunKind = "flow"      // a step of another job's flow
)

// Values returns all kinds of runs.
func (RunKind) Values() []string {
	return texts(RunScheduled, RunBackfill, RunByHand, RunOn, RunAfterEnd, RunBoot, RunStep, RunByFlow)
}

// RunState is the state of a run.
type RunState string

// The states of a run.
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

// The outcomes of runs and attempts. Runs with the last three never started.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
	OutcomeTimedOut  Outcome = "timed_out"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeLost      Outcome = "lost"      // its node was silent for too long
	OutcomeSkipped   Outcome = "skipped"   // by the overlap policy
	OutcomeMissed    Outcome = "missed"    // too late
	OutcomeWithdrawn Outcome = "withdrawn" // the job was paused, deleted or given another schedule
)

// Alarms reports whether the outcome warrants a notification: failed, timed out, lost or
// missed.
func (o Outcome) Alarms() bool {
	switch o {
	case OutcomeFailed, OutcomeTimedOut, OutcomeLost, OutcomeMissed:
		return true
	}
	return false
}

// Failed reports whether the outcome is a failure of the work itself.
func (o Outcome) Failed() bool {
	return o == OutcomeFailed || o == OutcomeTimedOut || o == OutcomeLost
}

// Values returns all outcomes.
func (Outcome) Values() []string {
	return texts(OutcomeSucceeded, OutcomeFailed, OutcomeTimedOut, OutcomeCancelled, OutcomeLost, OutcomeSkipped, OutcomeMissed, OutcomeWithdrawn)
}
