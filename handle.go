package belfry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/belfry-cron/belfry/executor"
)

// None is the input type of a handler without input, and the result type of one without a
// result.
type None struct{}

// HandlerFunc is a handler for middleware: its input and its result are in the run.
type HandlerFunc func(ctx context.Context, run *Run) error

// Middleware wraps a handler, to act before and after it.
type Middleware func(next HandlerFunc) HandlerFunc

// chainOf puts middleware around a handler, the first outermost.
func chainOf(middleware []Middleware, h HandlerFunc) HandlerFunc {
	for i := range middleware {
		h = middleware[len(middleware)-1-i](h)
	}
	return h
}

// Handler is a registered function that takes an In and returns an Out.
type Handler[In, Out any] struct {
	s    *Scheduler
	name string
}

// handler is a [Handler] without its types.
type handler struct {
	input reflect.Type
	call  HandlerFunc
	chain HandlerFunc // call wrapped in the middleware, set by Run
}

// Handle registers a function under a name, by which jobs call it. It is called before [Run].
//
// The fields of In are the parameters of the jobs that call it, under their JSON names:
// texts, numbers and times as plain text, everything else as JSON. If In is not such a
// struct, it is one parameter named input. Out is written as JSON, at most [ResultMax] bytes.
// Use [None] for either.
func Handle[In, Out any](s *Scheduler, name string, f func(ctx context.Context, run *Run, in In) (Out, error)) *Handler[In, Out] {
	in := shapeOf(reflect.TypeFor[In]())
	hasResult := reflect.TypeFor[Out]() != reflect.TypeFor[None]()
	s.register(caller(), name, &handler{input: reflect.TypeFor[In](), call: func(ctx context.Context, run *Run) (err error) {
		var value In
		if err := in.decode(run.Params, reflect.ValueOf(&value).Elem()); err != nil {
			return Permanent(err)
		}
		out, err := safely(ctx, run, value, f)
		if err != nil || !hasResult {
			return err
		}
		if run.result, err = json.Marshal(out); err != nil {
			return Permanent(fmt.Errorf("encode the result: %w", err))
		}
		if len(run.result) > ResultMax {
			return Permanent(fmt.Errorf("the result has %d bytes as JSON, at most %d are kept: return where it is instead", len(run.result), ResultMax))
		}
		return nil
	}})
	return &Handler[In, Out]{s, name}
}

// HandleFunc registers a function that takes no input and has no result.
func HandleFunc(s *Scheduler, name string, f func(ctx context.Context, run *Run) error) *Handler[None, None] {
	return Handle(s, name, func(ctx context.Context, run *Run, _ None) (None, error) { return None{}, f(ctx, run) })
}

// register adds a handler.
func (s *Scheduler) register(place, name string, h *handler) {
	s.mu.Lock()
	_, twice := s.handlers[name]
	late := s.running || s.closed
	if !twice && !late {
		s.handlers[name] = h
	}
	s.mu.Unlock()
	switch {
	case late:
		s.mistake(place, "handler %q is registered after Run: the other nodes would not know that this one has it", name)
	case twice:
		s.mistake(place, "handler %q is registered twice", name)
	}
}

// safely calls a handler and returns a panic as an error.
func safely[In, Out any](ctx context.Context, run *Run, in In, f func(context.Context, *Run, In) (Out, error)) (out Out, err error) {
	defer recovered(&err)
	return f(ctx, run, in)
}

// Name returns the name of the handler.
func (h *Handler[In, Out]) Name() string { return h.name }

// Do makes a job call the handler with an input.
func (h *Handler[In, Out]) Do(in In) JobOption { return Do(h.name, in) }

// Trigger runs a job of the handler now with another input, like [Scheduler.Trigger].
func (h *Handler[In, Out]) Trigger(ctx context.Context, job string, in In, options ...TriggerOption) (RunID, error) {
	params, err := valuesOf(in)
	if err != nil {
		return RunID{}, err
	}
	return h.s.Trigger(ctx, job, append([]TriggerOption{Params(params)}, options...)...)
}

// TriggerTx is Trigger in a transaction of the program, like [Scheduler.TriggerTx].
func (h *Handler[In, Out]) TriggerTx(ctx context.Context, tx any, job string, in In, options ...TriggerOption) (RunID, error) {
	params, err := valuesOf(in)
	if err != nil {
		return RunID{}, err
	}
	return h.s.TriggerTx(ctx, tx, job, append([]TriggerOption{Params(params)}, options...)...)
}

// Result waits for a run of the handler and returns its result. A run that did not succeed is a
// [*RunError].
func (h *Handler[In, Out]) Result(ctx context.Context, id RunID) (Out, error) {
	return Result[Out](ctx, h.s, id)
}

// ResultMax is the most bytes of JSON that the result of a handler may have: it is part of the
// bounded output of the run.
const ResultMax = 256 << 10

// The reasons for the end of a handler's context: context.Cause(ctx) wraps one of them.
var (
	// ErrTimeout means that the run exceeded its [Timeout].
	ErrTimeout = executor.ErrTimeout
	// ErrCancelled means that a user or Overlap(job.OverlapReplace) cancelled the run.
	ErrCancelled = executor.ErrCancelled
	// ErrFenced means that the node could not reach the store for so long that another
	// node may run the job.
	ErrFenced = executor.ErrFenced
	// ErrStopped means that the node is stopping and no longer waits for the handler.
	ErrStopped = executor.ErrStopped
)

// Permanent marks an error that another attempt would repeat: the run is not retried.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

// Unwrap returns the error that is permanent.
func (e *permanentError) Unwrap() error { return e.error }

// IsPermanent reports whether an error was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
