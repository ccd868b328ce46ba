// Package otelbelfry traces the runs of a program with OpenTelemetry: each attempt is a
// span, in the trace of the context that triggered the run, or the run that it follows.
//
//	s := belfry.New(postgres.URL(url), otelbelfry.Tracing())
//
// The trace context is in the metadata of the run, so it reaches other processes and
// machines, and retries. A scheduled run begins a new trace. The package uses only the API
// of OpenTelemetry: without an SDK in the program it does nothing.
package otelbelfry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfry-cron/belfry"
)

// scope names the instrumentation of the spans.
const scope = "github.com/belfry-cron/belfry/otelbelfry"

// Option changes what [Tracing] uses.
type Option func(*config)

type config struct {
	provider   trace.TracerProvider
	propagator propagation.TextMapPropagator
}

// WithTracerProvider sets the provider of the spans. Default: otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.provider = p } }

// WithPropagator sets the format of the context in the metadata. Default: W3C trace context
// and baggage.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.propagator = p }
}

// Tracing makes a scheduler trace its runs. Middleware of later options runs inside the span.
func Tracing(options ...Option) belfry.Option {
	c := config{propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}
	for _, option := range options {
		option(&c)
	}
	if c.provider == nil {
		c.provider = otel.GetTracerProvider()
	}
	return belfry.WithOptions(belfry.WithMiddleware(c.middleware), belfry.WithMetadata(c.inject))
}

func (c config) inject(ctx context.Context, metadata map[string]string) {
	c.propagator.Inject(ctx, propagation.MapCarrier(metadata))
}

func (c config) middleware(next belfry.HandlerFunc) belfry.HandlerFunc {
	tracer := c.provider.Tracer(scope)
	return func(ctx context.Context, run *belfry.Run) error {
		ctx = c.propagator.Extract(ctx, propagation.MapCarrier(run.Metadata))
		ctx, span := tracer.Start(ctx, "run "+run.Job, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("belfry.namespace", run.Namespace),
			attribute.String("belfry.job", run.Job),
			attribute.String("belfry.run", run.ID.String()),
			attribute.String("belfry.kind", string(run.Kind)),
			attribute.String("belfry.node", run.Node),
			attribute.String("belfry.scheduled", run.Scheduled.Format(time.RFC3339Nano)),
			attribute.Int("belfry.attempt", run.Attempt),
			attribute.Int("belfry.shard", run.Shard),
			attribute.Int("belfry.shards", run.Shards),
		))
		defer span.End()
		err := next(ctx, run)
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	}
}
