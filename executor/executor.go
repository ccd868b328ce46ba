// Package executor is the contract between a worker and the code that runs an attempt: a command,
// an HTTP call, a function. Each kind has a package in this directory. It has no effects and uses
// no store.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// Executor runs attempts of one kind. Run may be called from many goroutines at once.
type Executor interface {
	// Run executes one attempt from start to end and returns its result. When it returns,
	// no part of the attempt is running.
	//
	// When ctx ends, the attempt must end: gracefully first, by force after Attempt.Grace.
	// context.Cause(ctx) wraps [ErrTimeout], [ErrCancelled], [ErrFenced] or [ErrStopped]; [ByCause]
	// returns the resulting outcome.
	Run(ctx context.Context, a Attempt, out Output) Result
}

// The causes of an attempt's context that end the attempt early.
var (
	ErrTimeout   = errors.New("the timeout has passed")
	ErrCancelled = errors.New("cancelled")
	// ErrFenced ends an attempt because its node could not reach the store
	// for so long that another node may take over.
	ErrFenced = errors.New("the node has lost touch with the store")
	// ErrStopped ends an attempt because its node is stopping and no longer waits for it.
	ErrStopped = errors.New("the node has stopped")
	// ErrCarried means that the node's process will execute another version of its program. A
	// [Carrier] leaves the attempt running and returns a [Result] with CarryOver set; if it cannot, it
	// ends the attempt as for [ErrStopped].
	ErrCarried = fmt.Errorf("%w, to continue as another version", ErrStopped)
)

// Carrier is an executor whose attempts can continue while the process of the node executes
// another version of its program.
type Carrier interface {
	Executor
	// Carries reports whether attempts can continue in that way on this machine.
	Carries() bool
}

// Outliving is an executor whose attempts run on when the process of the node dies, so that its next
// process can continue them.
type Outliving interface {
	Executor
	// Outlives reports whether they do.
	Outlives() bool
}

// Attempt is the input of an executor.
type Attempt struct {
	// Job is the definition that the attempt was claimed under, its defaults
	// filled in. It is shared and must not be changed.
	Job *job.Job
	Run job.Run
	// Number counts the attempts of the run, from 1.
	Number int
	// Data is the data for the templates of the definition.
	Data job.TemplateData
	// WantsResult is set for a step of a flow, whose result is stored.
	WantsResult bool
	// Together is set for a step of a flow that stays on one node: its commands share a
	// directory.
	Together bool
	// Grace is the time between asking the attempt to end and ending it by
	// force.
	Grace time.Duration
	// Fence is the time after the last renewal of the node's session after which the
	// attempt is ended even if the node hangs; 0 for never.
	Fence time.Duration
	// Start is called once, right before the attempt takes effect: before the process is
	// started or the request is sent. If it returns an error the attempt must not start,
	// and Run returns a [Result] with Unstarted set.
	Start func() error
	// CarryOver is the state that the executor of the previous version returned for a running
	// attempt: then neither Start nor HandOver is called. Nil: the attempt is new.
	CarryOver json.RawMessage
	// Kept is set for an attempt of an [Outliving] executor that the next process of the node can
	// continue. It then gets [Anew] as CarryOver.
	Kept bool
	// HandOver records the handover of the work to a receiver outside of Belfry. It is called
	// before each request, once for each tried address, and returns a number that identifies the
	// request. After an error nothing may be sent, and Run returns a [Result] with Unstarted set.
	// After success the attempt belongs to no node, and the timeout runs: if the request may have
	// arrived, Run returns a [Result] with HandedOver set.
	HandOver func(ctx context.Context, h Handover) (number int64, err error)
}

// Anew is the CarryOver of an attempt whose executor died with its process: all output is read again.
var Anew = json.RawMessage(`{"anew":true}`)

// Handover identifies the receiver of the work of an attempt.
type Handover struct {
	// Kind is the protocol, To describes the receiver, and About has the protocol's data for
	// finding the work again.
	Kind, To, About string
}

// Process is the command of an attempt for the node's watchdog.
type Process struct {
	Run    job.ID
	Number int // of the attempt
	// PID is the process, and the process group that it leads, or zero before its start.
	PID int
	// Cgroup is the folder of the cgroup that the process is in, or "".
	Cgroup string
	// Container is the container of the command, as the socket of its engine, # and its name; ""
	// for none. It has no PID and no Cgroup.
	Container string
	// Grace, Fence and Kept are the values of the [Attempt].
	Grace, Fence time.Duration
	Kept         bool
}

// Output receives the output of an attempt. Both writers may be used from different
// goroutines, never fail and never block for long: output beyond the bound of a run is
// dropped, and the gap marked.
type Output struct {
	Stdout, Stderr io.Writer
}

// Result is how an attempt ended.
type Result struct {
	Outcome job.Outcome
	// Reason explains every outcome but success.
	Reason job.Reason
	// ExitCode is set when a command exited, Signal when a signal ended it, HTTPStatus when
	// a response arrived.
	ExitCode   *int
	Signal     string
	HTTPStatus int
	// Cause is the failure in the words of the receiver of the work, such as the first line of its
	// answer. If it is "", the cause of a failure is the last line of the output.
	Cause string
	// Usage is what the attempt used of its machine, as far as that is known.
	Usage job.Usage
	// Value is the result of the attempt in JSON, at most [job.ResultMax] bytes; nil for none. It
	// counts only with Attempt.WantsResult.
	Value []byte
	// Unstarted is set when the attempt had no effect: another node may run it.
	Unstarted bool
	// Postponed is set with Unstarted when the attempt lacks something, named by Reason, that may
	// take a while: the run is due again some seconds later.
	Postponed bool
	// HandedOver is set after Attempt.HandOver if an external receiver has the work and will report
	// its end. No other field is set then.
	HandedOver bool
	// CarryOver is the state for the executor of the next version, when the attempt continues
	// after [ErrCarried]. No other field is set then.
	CarryOver json.RawMessage
	// Release, unless nil, is called once the result is kept. It removes what the attempt has left so
	// that another process could find the result.
	Release func()
	// Retryable is set on a failure unrelated to the job, such as a fork without enough
	// memory: it may be retried even if the policy restricts the exit codes.
	Retryable bool
	// Permanent is set on a failure that another attempt would repeat: the run is not
	// retried.
	Permanent bool
}

// Cancelled is an [ErrCancelled] with the person who cancelled the run, and the reason.
type Cancelled struct {
	By     string
	Reason job.Reason
}

// Error implements error.
func (c *Cancelled) Error() string { return reason.Cancelled.Of(c.By, c.Reason).String() }

// Is reports that it is an [ErrCancelled].
func (c *Cancelled) Is(err error) bool { return err == ErrCancelled }

// ByCause returns the outcome and reason of an attempt whose context has ended.
func ByCause(ctx context.Context) (job.Outcome, job.Reason) {
	cause := context.Cause(ctx)
	var cancelled *Cancelled
	switch {
	case errors.Is(cause, ErrTimeout):
		return job.OutcomeTimedOut, reason.TimeoutPassed.Of()
	case errors.Is(cause, ErrFenced):
		return job.OutcomeLost, reason.NodeFenced.Of()
	case errors.Is(cause, ErrCarried):
		return job.OutcomeLost, reason.NodeUpgraded.Of()
	case errors.Is(cause, ErrStopped):
		return job.OutcomeLost, reason.NodeStopped.Of()
	case errors.As(cause, &cancelled):
		return job.OutcomeCancelled, reason.Cancelled.Of(cancelled.By, cancelled.Reason)
	case errors.Is(cause, ErrCancelled), errors.Is(cause, context.Canceled):
		return job.OutcomeCancelled, reason.CancelledOnly.Of()
	default:
		return job.OutcomeCancelled, job.Text(cause.Error())
	}
}
