package httpapi

import (
	"context"

	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// withBody is the input of an operation that reads nothing but a body.
type withBody[B any] struct{ Body B }

// sessionBody is the input of an operation about the session of a worker.
type sessionBody[B any] struct {
	WorkerSession
	Body B
}

// bare binds a use case that needs only its caller.
func bare[O any](do func(context.Context, service.Caller) (O, error)) func(context.Context, *struct{}) (*answer[O], error) {
	return func(ctx context.Context, _ *struct{}) (*answer[O], error) { return answered(do(ctx, caller(ctx))) }
}

// taking binds a use case that takes a body.
func taking[B, O any](do func(context.Context, service.Caller, B) (O, error)) func(context.Context, *withBody[B]) (*answer[O], error) {
	return func(ctx context.Context, in *withBody[B]) (*answer[O], error) {
		return answered(do(ctx, caller(ctx), in.Body))
	}
}

// ofSession binds a use case about the session of a worker.
func ofSession[O any](do func(context.Context, service.Caller, job.ID) (O, error)) func(context.Context, *WorkerSession) (*answer[O], error) {
	return func(ctx context.Context, in *WorkerSession) (*answer[O], error) {
		return answered(do(ctx, caller(ctx), in.Session))
	}
}

// sessionTaking binds a use case about the session of a worker that takes a body.
func sessionTaking[B, O any](do func(context.Context, service.Caller, job.ID, B) (O, error)) func(context.Context, *sessionBody[B]) (*answer[O], error) {
	return func(ctx context.Context, in *sessionBody[B]) (*answer[O], error) {
		return answered(do(ctx, caller(ctx), in.Session, in.Body))
	}
}

// sessionTelling binds a use case about the session of a worker that takes a body and answers nothing.
func sessionTelling[B any](do func(context.Context, service.Caller, job.ID, B) error) func(context.Context, *sessionBody[B]) (*struct{}, error) {
	return func(ctx context.Context, in *sessionBody[B]) (*struct{}, error) {
		return nil, do(ctx, caller(ctx), in.Session, in.Body)
	}
}
