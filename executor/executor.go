// Package executor is the contract between a worker and what runs an attempt:
// a command, an HTTP call, a function. There is one package for each kind
// beside it. It starts nothing itself and knows no store.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Executor runs attempts of one kind. Its method may be called from many
// goroutines at once.
type Executor interface {
	// Run executes one attempt from start to end and says how it ended. It
	// returns only when nothing of the attempt is left running.
	//
	// When ctx ends, the attempt must end: politely first, by force
	// after Attempt.Grace. context.Cause(ctx) wraps ErrTimeout, ErrCancelled,
	// ErrFenced or ErrStopped, and ByCause says what that makes of it.
	Run(ctx context.Context, a Attempt, out Output) Result
}

// Why an attempt is ended before its own end, as the cause of its context.
var (
	ErrTimeout   = errors.New("the timeout has passed")
	ErrCancelled = errors.New("cancelled")
	// ErrFenced ends an attempt because its node could not reach the store
	// for so long that another node may take over.
	ErrFenced = errors.New("the node has lost touch with the store")
	// ErrStopped ends an attempt because its node stops and does not wait any
	// longer.
	ErrStopped = errors.New("the node has stopped")
	// ErrCarried says that the process of the node is about to execute another version of its
	// program. A Carrier leaves the attempt running and returns a Result with Carried set;
	// what it cannot carry over it ends as by ErrStopped.
	ErrCarried = fmt.Errorf("%w, to continue as another version", ErrStopped)
)

// Carrier is an executor whose attempts can continue while the process of the node executes
// another version of its program.
type Carrier interface {
	Executor
	// Carries reports whether they can, on this machine.
	Carries() bool
}

// Attempt is what an executor needs to know to run one.
type Attempt struct {
	// Job is the definition that the attempt was claimed under, its defaults
	// filled in. It is shared and must not be changed.
	Job *job.Job
	Run job.Run
	// Number is that of the attempt, from 1.
	Number int
	// Data is what the templates of the definition are executed with.
	Data job.TemplateData
	// WantsResult is set for a step of a flow: what it leaves as its result is kept.
	WantsResult bool
	// Together is set for a step of a flow that is kept together: its commands share a directory.
	Together bool
	// Grace is the time between asking the attempt to end and ending it by
	// force.
	Grace time.Duration
	// Fence is how long after the last renewal of the node's session the
	// attempt is ended even if the node itself hangs; 0 for never.
	Fence time.Duration
	// Start is called once, right before the attempt takes effect: before the
	// process is made or the request is sent. When it returns an error the
	// attempt must not start, and Run returns a Result with Unstarted set.
	Start func() error
	// Carried is what the executor of the version before has returned for the attempt, which
	// runs already: neither Start nor HandOver is called. Nil: the attempt is to begin.
	Carried json.RawMessage
	// HandOver says that a receiver outside of Belfry is asked to do the work, and is called before
	// anything is sent: once for each address that is tried. It returns a number that
	// identifies the request. When it returns an error nothing must be sent, and Run
	// returns a Result with Unstarted set. From then on the attempt belongs to no node, and
	// the timeout counts: where it is not known whether the request arrived, Run returns a
	// Result with HandedOver set.
	HandOver func(ctx context.Context, h Handover) (number int64, err error)
}

// Handover says who is asked to do the work of an attempt.
type Handover struct {
	// Kind is the protocol, To who is asked, in words, and About what the protocol needs to
	// find the work again.
	Kind, To, About string
}

// Process is a command that runs an attempt, as what watches over the node must
// know it.
type Process struct {
	Run    job.ID
	Number int // of the attempt
	// PID is the process, and the process group that it leads. It is zero as
	// long as there is none.
	PID int
	// Cgroup is the folder of the cgroup that the process is in, or "".
	Cgroup string
	// Grace and Fence are those of the Attempt.
	Grace, Fence time.Duration
}

// Output takes what an attempt writes. Both writers may be used from different
// goroutines, never fail and never block for long: what is beyond the bound of a
// run is left out, and marked.
type Output struct {
	Stdout, Stderr io.Writer
}

// Result is how an attempt ended.
type Result struct {
	Outcome job.Outcome
	// Reason says why in words, for every outcome but success.
	Reason string
	// ExitCode is set when a command ended by itself, Signal when one ended
	// it, HTTPStatus when there was an answer.
	ExitCode   *int
	Signal     string
	HTTPStatus int
	// Value is the result of the attempt in JSON, at most job.ResultMax bytes; nil for none.
	// It is only kept where Attempt.WantsResult says so.
	Value []byte
	// Unstarted is set when nothing has taken effect: another node may run the
	// attempt as if this one had never had it.
	Unstarted bool
	// HandedOver is set when a receiver outside of Belfry was asked to do the work, after
	// Attempt.HandOver, and will say how it ended. Nothing else is set then.
	HandedOver bool
	// Carried is set when the attempt continues after ErrCarried: what the executor of the
	// next version needs to continue with it. Nothing else is set then.
	Carried json.RawMessage
	// Retryable is set on a failure that has nothing to do with the job, such
	// as a fork for which the machine had no room: it may be retried however
	// the policy restricts the exit codes.
	Retryable bool
	// Permanent is set on a failure that another attempt would repeat: the run has no
	// further one.
	Permanent bool
}

// ByCause returns the outcome and reason of an attempt whose context has ended.
func ByCause(ctx context.Context) (job.Outcome, string) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrTimeout):
		return job.OutcomeTimedOut, cause.Error()
	case errors.Is(cause, ErrFenced), errors.Is(cause, ErrStopped):
		return job.OutcomeLost, cause.Error()
	default:
		return job.OutcomeCancelled, cause.Error()
	}
}
