package otelbelfry_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/belfrytest"
	"github.com/belfry-cron/belfry/otelbelfry"
	"github.com/belfry-cron/belfry/store/memory"
)

// recorder records finished spans.
type recorder struct {
	embedded.TracerProvider
	mu    sync.Mutex
	spans []*span
}

type span struct {
	noop.Span
	name   string
	parent trace.SpanContext
	status string
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{recorder: r} }

type tracer struct {
	noop.Tracer
	recorder *recorder
}

func (r tracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{name: name, parent: trace.SpanContextFromContext(ctx)}
	r.recorder.mu.Lock()
	r.recorder.spans = append(r.recorder.spans, s)
	r.recorder.mu.Unlock()
	return ctx, s
}

func (s *span) SetStatus(_ codes.Code, text string) { s.status = text }

func TestARunBelongsToTheTraceThatTriggeredIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		s := belfrytest.New(t, otelbelfry.Tracing(otelbelfry.WithTracerProvider(r)))
		s.Job("fails", belfry.Retry(1, time.Second), belfry.Func(func(context.Context, *belfry.Run) error { return errors.New("no paper") }))
		s.Job("prints", belfry.Func(func(context.Context, *belfry.Run) error { return nil }))
		s.Job("sends", belfry.On("prints"), belfry.Func(func(context.Context, *belfry.Run) error { return nil }))
		s.Job("ticks", belfry.Every(time.Hour), belfry.Func(func(context.Context, *belfry.Run) error { return nil }))
		belfrytest.Run(t, s)
		id := trace.TraceID{0x4b, 0xf9}
		ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
		for _, name := range []string{"fails", "prints"} {
			if _, err := s.Trigger(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		belfrytest.Advance(61 * time.Minute)
		count := map[string]int{}
		for _, span := range r.spans {
			count[span.name]++
			if traced := span.name != "run ticks"; traced != (span.parent.TraceID() == id) {
				t.Errorf("%s is in the trace %s", span.name, span.parent.TraceID())
			}
			if failed := span.name == "run fails"; failed != (span.status == "no paper") {
				t.Errorf("%s has the status %q", span.name, span.status)
			}
		}
		if count["run fails"] != 2 || count["run prints"] != 1 || count["run sends"] != 1 || count["run ticks"] != 1 {
			t.Errorf("the spans are %v", count)
		}
	})
}

// A reader of the SDK gets the metrics of a scheduler.
func TestAReaderGetsTheMetrics(t *testing.T) {
	s := belfry.New(memory.Empty())
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(otelbelfry.Metrics(s)))
	defer sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Shutdown(context.Background()) //nolint:errcheck // nothing is sent
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			names[m.Name] = true
		}
	}
	if !names["belfry_attempts_total"] || !names["belfry_start_lateness_seconds"] || names["belfry_runs_total"] {
		t.Errorf("the metrics are %v", names)
	}
}
