package telemetry

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A run has a trace of its own, and a flow one with all its steps. The identities of traces and spans
// follow from those of runs: each node knows the spans of all others, and the span of a run can be
// sent at its end, by the process that has recorded it.

// spanIDs are the identities of a span.
type spanIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// chosenIDs generates identities that are in the context.
type chosenIDs struct{}

// NewIDs implements sdktrace.IDGenerator.
func (chosenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ids, _ := ctx.Value(chosenIDs{}).(spanIDs)
	return ids.trace, ids.span
}

// NewSpanID implements sdktrace.IDGenerator.
func (c chosenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := c.NewIDs(ctx)
	return id
}

// idsOf returns the identities of the span of an attempt, or of the whole run with the attempt 0, in
// the trace that begins with a run.
func idsOf(root, run job.ID, attempt int) spanIDs {
	hash := fnv.New64a()
	hash.Write(run[:])
	_ = binary.Write(hash, binary.BigEndian, int64(attempt))
	ids := spanIDs{trace: trace.TraceID(root)}
	binary.BigEndian.PutUint64(ids.span[:], max(1, hash.Sum64()))
	return ids
}

// rootOf returns the run with which the trace of a run begins.
func rootOf(run *job.Run) job.ID {
	if run.Kind == job.RunStep {
		return run.Parent
	}
	return run.ID
}

// start begins a span of a chosen identity. A span that is not ended is not sent, and tells whether
// its trace is sampled.
func (t *Telemetry) start(ctx context.Context, ids spanIDs, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(context.WithValue(ctx, chosenIDs{}, ids), name, options...)
}

// startRun begins the span of a run.
func (t *Telemetry) startRun(run *job.Run, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, root := context.Background(), rootOf(run)
	if root != run.ID {
		ctx, _ = t.start(ctx, idsOf(root, root, 0), "")
	}
	return t.start(ctx, idsOf(root, run.ID, 0), "run "+run.Namespace+"/"+run.Name, options...)
}

// Tracer returns what knows the trace of an attempt; nil if no traces are sent.
func (t *Telemetry) Tracer() func(run *job.Run, attempt int) job.Trace {
	if t == nil || t.tracer == nil {
		return nil
	}
	return func(run *job.Run, attempt int) job.Trace {
		ctx, _ := t.startRun(run)
		ctx, _ = t.start(ctx, idsOf(rootOf(run), run.ID, attempt), "")
		header := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, header)
		return job.Trace{Parent: header["traceparent"], State: header["tracestate"], Baggage: job.TraceOf(run.Params).Baggage}
	}
}

// Ended sends the spans of attempts that have ended, and of runs that are over. It never waits.
func (t *Telemetry) Ended(e store.Ends) {
	if t == nil || t.tracer == nil {
		return
	}
	for _, r := range e.Records {
		if r.Attempt.Number > 0 && !r.Attempt.Started.IsZero() {
			t.ended(r)
		}
	}
}

func (t *Telemetry) ended(r *store.Record) {
	run, attempt := &r.Run, &r.Attempt
	about := []attribute.KeyValue{
		attribute.String("belfry.namespace", run.Namespace), attribute.String("belfry.job", run.Name),
		attribute.String("belfry.run", run.ID.String()), attribute.String("belfry.kind", string(run.Kind)),
		attribute.String("belfry.scheduled", run.Scheduled.UTC().Format(time.RFC3339Nano)),
	}
	if run.Shards > 0 {
		about = append(about, attribute.Int("belfry.shard", run.Shard), attribute.Int("belfry.shards", run.Shards))
	}
	if step, _ := run.Step(); step != "" {
		about = append(about, attribute.String("belfry.step", step))
	}
	// A run is planned ahead. One that waited begins when it was due, or asked for.
	begun := run.ID.Time()
	if run.Scheduled.After(begun) {
		begun = run.Scheduled
	}
	if attempt.Started.Before(begun) {
		begun = attempt.Started
	}
	ctx, whole := t.startRun(run, trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(about...), trace.WithLinks(linksOf(run)...))
	_, span := t.start(ctx, idsOf(rootOf(run), run.ID, attempt.Number), "attempt", trace.WithTimestamp(attempt.Started), trace.WithAttributes(append(about,
		attribute.Int("belfry.attempt", attempt.Number), attribute.String("belfry.node", attempt.Node))...))
	if attempt.ExitCode != nil {
		span.SetAttributes(attribute.Int("process.exit.code", *attempt.ExitCode))
	}
	if attempt.HTTPStatus != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", attempt.HTTPStatus))
	}
	end(span, attempt)
	if r.Final {
		end(whole, attempt)
	}
}

// end ends a span with the outcome of an attempt.
func end(span trace.Span, a *job.Attempt) {
	span.SetAttributes(attribute.String("belfry.outcome", string(a.Outcome)))
	if a.Outcome.Failed() {
		text := a.Reason.String()
		if a.Cause != "" {
			text += ": " + a.Cause
		}
		span.SetStatus(codes.Error, text)
	}
	span.End(trace.WithTimestamp(a.Ended))
}

// linksOf returns what a run follows: the request for it, and the run that has made it.
func linksOf(run *job.Run) (links []trace.Link) {
	asked := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(job.TraceOf(run.Params).Headers()))
	if s := trace.SpanContextFromContext(asked); s.IsValid() {
		links = append(links, trace.Link{SpanContext: s, Attributes: []attribute.KeyValue{attribute.String("belfry.link", "request")}})
	}
	if !run.Parent.IsZero() && run.Kind != job.RunStep {
		// The run that made it may be a step, whose trace is not known here.
		ids := idsOf(run.Parent, run.Parent, 0)
		links = append(links, trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: ids.trace, SpanID: ids.span, Remote: true}),
			Attributes:  []attribute.KeyValue{attribute.String("belfry.link", "parent")},
		})
	}
	return links
}
