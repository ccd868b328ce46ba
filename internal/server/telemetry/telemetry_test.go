package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/belfry-cron/belfry/internal/check/otlptest"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// receiving starts a receiver, and points the environment at it.
func receiving(t *testing.T, protocol string) *otlptest.Receiver {
	t.Helper()
	r, url := otlptest.Start(t, protocol)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	return r
}

// open opens telemetry that logs into said.
func open(t *testing.T, said io.Writer) *Telemetry {
	t.Helper()
	return Open(t.Context(), Config{
		Getenv: os.Getenv, Node: "tower", Version: "1.2.3", Level: slog.LevelInfo, Log: slog.New(slog.NewTextHandler(said, nil)),
		Families: func(context.Context) []metrics.Family {
			buckets := make([]uint64, len(metrics.Bounds())+1)
			buckets[1], buckets[len(buckets)-1] = 2, 3
			return []metrics.Family{
				{Name: "belfry_runs_total", Kind: metrics.Counter, Samples: []metrics.Sample{{Labels: []string{"outcome", "failed"}, Value: 7}}},
				{Name: "belfry_clock_off", Kind: metrics.Gauge, Samples: []metrics.Sample{{Value: 1}}},
				{Name: "belfry_start_lateness_seconds", Kind: metrics.Histogram, Samples: []metrics.Sample{{Value: 12.5, Buckets: buckets}}},
			}
		},
	})
}

func id(t *testing.T, at time.Time, n byte) job.ID {
	t.Helper()
	id, err := job.NewID(at, strings.NewReader(strings.Repeat(string(rune('a'+n)), 10)))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

var due = time.Date(2026, 11, 28, 2, 30, 0, 0, time.UTC)

// attempts returns the records of a run that fails and then succeeds.
func attempts(run job.Run) []*store.Record {
	failed := job.Attempt{Run: run.ID, Number: 1, Node: "tower", Started: due.Add(time.Second), Ended: due.Add(2 * time.Second), Outcome: job.OutcomeFailed, Reason: job.Text("exit status 3"), Cause: "disk full", ExitCode: new(int)}
	*failed.ExitCode = 3
	succeeded := job.Attempt{Run: run.ID, Number: 2, Node: "belfry-2", Started: due.Add(5 * time.Second), Ended: due.Add(9 * time.Second), Outcome: job.OutcomeSucceeded}
	return []*store.Record{{Run: run, Attempt: failed}, {Run: run, Attempt: succeeded, Final: true}}
}

func TestRunsMetricsAndLinesReachAReceiver(t *testing.T) {
	for _, protocol := range []string{overHTTP, overGRPC} {
		t.Run(protocol, func(t *testing.T) {
			r := receiving(t, protocol)
			var said strings.Builder
			sent := open(t, &said)
			log := sent.Logging(slog.New(slog.DiscardHandler))
			log.Warn("a run failed", "job", "shop/report")
			log.Debug("left out", "job", "shop/report")

			run := job.Run{ID: id(t, due.Add(-time.Minute), 0), Namespace: "shop", Name: "report", Kind: job.RunScheduled, Scheduled: due}
			const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			flow := job.Run{ID: id(t, due.Add(time.Minute), 1), Namespace: "shop", Name: "close", Kind: job.RunByHand, Scheduled: due, Params: job.WithTrace(nil, job.Trace{Parent: caller, Baggage: "tenant=7"})}
			step := flow
			step.ID, step.Kind, step.Parent, step.Key = id(t, due.Add(time.Minute), 2), job.RunStep, flow.ID, job.StepKey(flow.ID, "extract", -1)
			told := sent.Tracer()(&step, 2)
			sent.Ended(store.Ends{Records: append(attempts(run), append(attempts(step), &store.Record{Run: flow, Attempt: attempts(flow)[1].Attempt, Final: true})...)})
			sent.Ended(store.Ends{Records: []*store.Record{{Run: job.Run{ID: id(t, due, 3)}, Attempt: job.Attempt{Outcome: job.OutcomeMissed}, Final: true, Count: 12}}})
			sent.Close()

			if said.Len() > 0 {
				t.Errorf("the log says %s", said.String())
			}
			if r.Of("service.name") != "belfry" || r.Of("service.version") != "1.2.3" || r.Of("service.instance.id") != "tower" {
				t.Errorf("the process is %s %s %s", r.Of("service.name"), r.Of("service.version"), r.Of("service.instance.id"))
			}
			whole, first, second := r.Span(run.ID.String()), r.Span(run.ID.String()+" 1"), r.Span(run.ID.String()+" 2")
			if whole == nil || first == nil || second == nil || r.Spans() != 3+3+2 {
				t.Fatalf("the spans are %v, %v, %v of %d", whole, first, second, r.Spans())
			}
			if whole.Name != "run shop/report" || string(whole.TraceId) != string(run.ID[:]) || len(whole.ParentSpanId) != 0 ||
				whole.StartTimeUnixNano != uint64(due.UnixNano()) || whole.EndTimeUnixNano != uint64(due.Add(9*time.Second).UnixNano()) {
				t.Errorf("the run is %v", whole)
			}
			if string(first.ParentSpanId) != string(whole.SpanId) || string(first.TraceId) != string(whole.TraceId) || first.Status.Code != tracepb.Status_STATUS_CODE_ERROR ||
				first.Status.Message != "exit status 3: disk full" || otlptest.Value(first.Attributes, "process.exit.code") != "3" || otlptest.Value(first.Attributes, "belfry.node") != "tower" {
				t.Errorf("the failed attempt is %v", first)
			}
			if otlptest.Value(whole.Attributes, "belfry.outcome") != "succeeded" || second.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
				t.Errorf("the successful attempt is %v in %v", second, whole)
			}
			asked, inner := r.Span(flow.ID.String()), r.Span(step.ID.String())
			if len(asked.Links) != 1 || fmt.Sprintf("%x", asked.Links[0].TraceId) != caller[3:35] || fmt.Sprintf("%x", asked.Links[0].SpanId) != caller[36:52] {
				t.Errorf("the request of the flow is %v", asked.Links)
			}
			if string(inner.TraceId) != string(flow.ID[:]) || string(inner.ParentSpanId) != string(asked.SpanId) {
				t.Errorf("the step is %v, in %v", inner, asked)
			}
			at := r.Span(step.ID.String() + " 2")
			if want := (job.Trace{Parent: fmt.Sprintf("00-%x-%x-01", at.TraceId, at.SpanId), Baggage: "tenant=7"}); told != want {
				t.Errorf("the command of the step is told %v and not %v", told, want)
			}

			runs, off, late := r.Metric("belfry_runs_total").GetSum(), r.Metric("belfry_clock_off").GetGauge(), r.Metric("belfry_start_lateness_seconds").GetHistogram()
			if !runs.GetIsMonotonic() || runs.DataPoints[0].GetAsDouble() != 7 || otlptest.Value(runs.DataPoints[0].Attributes, "outcome") != "failed" {
				t.Errorf("the counter is %v", runs)
			}
			if off.GetDataPoints()[0].GetAsDouble() != 1 {
				t.Errorf("the gauge is %v", off)
			}
			if h := late.GetDataPoints()[0]; h.Count != 5 || h.GetSum() != 12.5 || h.BucketCounts[1] != 2 || len(h.ExplicitBounds) != len(h.BucketCounts)-1 {
				t.Errorf("the histogram is %v", h)
			}
			if lines := r.Lines(); len(lines) != 1 || lines[0] != "a run failed shop/report" {
				t.Errorf("the lines are %q", lines)
			}
		})
	}
}

// A sampled trace is whole, and commands know whether theirs is.
func TestTracesAreSampledWhole(t *testing.T) {
	r := receiving(t, overHTTP)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
	sent := open(t, io.Discard)
	const flows = 100
	sampled := 0
	want := map[string]bool{}
	for i := range flows {
		random := fmt.Sprintf("%010d", i*7919*7919)
		flow := job.Run{Namespace: "shop", Name: "close", Kind: job.RunByHand, Scheduled: due}
		flow.ID, _ = job.NewID(due, strings.NewReader(random[len(random)-10:]))
		flow.ID[9], flow.ID[8] = byte(i), byte(i*37) // the sampler looks at the last eight bytes
		step := flow
		step.ID, _ = job.NewID(due, strings.NewReader("s"+random))
		step.ID[15] = byte(i)
		step.Kind, step.Parent = job.RunStep, flow.ID
		of := strings.HasSuffix(sent.Tracer()(&step, 1).Parent, "-01")
		if of != strings.HasSuffix(sent.Tracer()(&flow, 1).Parent, "-01") {
			t.Fatal("a step is not sampled like its flow")
		}
		if of {
			sampled++
		}
		want[flow.ID.String()], want[step.ID.String()+" 2"] = of, of
		sent.Ended(store.Ends{Records: append(attempts(flow), attempts(step)...)})
	}
	sent.Close()
	if sampled < flows/5 || sampled > flows*4/5 {
		t.Errorf("%d of %d traces are sampled", sampled, flows)
	}
	for name, of := range want {
		if there := r.Span(name) != nil; there != of {
			t.Errorf("the span of %s is there: %v; sampled: %v", name, there, of)
		}
	}
}

func TestNothingIsSentUnlessItIsAskedFor(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no variables": {},
		"none":         {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"},
		"disabled":     {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
	} {
		var said strings.Builder
		sent := Open(t.Context(), Config{Getenv: func(name string) string { return env[name] }, Log: slog.New(slog.NewTextHandler(&said, nil))})
		log := slog.New(slog.DiscardHandler)
		sent.Ended(store.Ends{Records: attempts(job.Run{})})
		if sent != nil || sent.Tracer() != nil || sent.Logging(log) != log || said.Len() > 0 {
			t.Errorf("%s: something is sent; %s", name, said.String())
		}
		sent.Close()
	}
}

// A mistake in a variable leaves out its signal and is logged: jobs run all the same.
func TestMistakesInVariablesAreLogged(t *testing.T) {
	for want, env := range map[string]map[string]string{
		`OTEL_TRACES_EXPORTER: \"zipkin\" is neither otlp nor none`:                    {"OTEL_TRACES_EXPORTER": "zipkin"},
		`OTEL_EXPORTER_OTLP_PROTOCOL: \"http/json\" is neither http/protobuf nor grpc`: {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
		`OTEL_EXPORTER_OTLP_LOGS_PROTOCOL: \"json\" is neither http/protobuf nor grpc`: {"OTEL_LOGS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "json"},
		`OTEL_EXPORTER_OTLP_ENDPOINT must be like http://collector:4318`:               {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
		`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT must be like http://collector:4318`:       {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://user:hush@"},
	} {
		var said strings.Builder
		if sent := Open(t.Context(), Config{Getenv: func(name string) string { return env[name] }, Log: slog.New(slog.NewTextHandler(&said, nil))}); sent != nil {
			t.Errorf("with %v something is sent", env)
		}
		if !strings.Contains(said.String(), want) || strings.Contains(said.String(), "hush") {
			t.Errorf("with %v the log says %s", env, said.String())
		}
	}
}
