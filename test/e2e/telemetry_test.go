//go:build servers

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/check/otlptest"
	"github.com/belfry-cron/belfry/job"
)

// A server whose environment names a receiver sends it the traces of runs, its metrics and its log. Commands
// and requests get the trace of their attempt, and what the request for the run said of its own.
func TestTelemetryReachesAReceiver(t *testing.T) {
	t.Parallel()
	received, url := otlptest.Start(t, "http/protobuf")
	requests := make(chan http.Header, 1)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests <- r.Header }))
	defer service.Close()
	f := newFolder(t)
	s := f.serve(t, options{env: []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_SERVICE_NAME=night", "OTEL_METRIC_EXPORT_INTERVAL=500", "OTEL_BSP_SCHEDULE_DELAY=200",
	}})
	s.apply(`
{name: report, run: 'echo "$TRACEPARENT $BAGGAGE"; exit 3'}
---
{name: warm, run: {http: {url: "` + service.URL + `"}}}
---
{name: close, run: {flow: {steps: [{name: extract, run: 'echo "$TRACEPARENT $BAGGAGE"'}]}}}
`)
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	token, err := os.ReadFile(filepath.Join(f.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	traced, err := client.New(client.Config{URL: s.url, Token: strings.TrimSpace(string(token)), HTTP: &http.Client{Transport: tracing(caller)}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name string) client.Run {
		t.Helper()
		run, err := traced.RunJob(t.Context(), "default", name, client.RunRequest{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return s.ended(run.ID)
	}
	attemptOf := func(run job.ID) string {
		t.Helper()
		name := run.String() + " 1"
		eventually(t, "the span of the attempt arrives", func() bool { return received.Span(name) != nil })
		span := received.Span(name)
		return fmt.Sprintf("00-%x-%x-01", span.TraceId, span.SpanId)
	}

	report := ask("report").ID
	if out, want := s.output(report), attemptOf(report)+" tenant=7\n"; out != want {
		t.Errorf("the command was told %q, not %q", out, want)
	}
	eventually(t, "the span of the run arrives", func() bool { return received.Span(report.String()) != nil })
	whole := received.Span(report.String())
	if len(whole.Links) != 1 || fmt.Sprintf("%x", whole.Links[0].TraceId) != caller[3:35] || !strings.Contains(whole.Status.GetMessage(), "3") {
		t.Errorf("the span of the run is %v", whole)
	}
	warm := ask("warm").ID
	if got := <-requests; got.Get("traceparent") != attemptOf(warm) || got.Get("baggage") != "tenant=7" {
		t.Errorf("the service was told %q, %q", got.Get("traceparent"), got.Get("baggage"))
	}
	closing := ask("close")
	eventually(t, "the span of the flow arrives", func() bool { return received.Span(closing.ID.String()) != nil })
	if len(closing.Steps) != 1 {
		t.Fatalf("the steps are %v", closing.Steps)
	}
	step := closing.Steps[0].Run
	if out, want := s.output(step), attemptOf(step)+" tenant=7\n"; out != want || !strings.Contains(want, fmt.Sprintf("%x", received.Span(closing.ID.String()).TraceId)) {
		t.Errorf("the step was told %q, not %q", out, want)
	}

	eventually(t, "the metrics arrive", func() bool {
		m := received.Metric("belfry_runs_total").GetSum()
		for _, p := range m.GetDataPoints() {
			if otlptest.Value(p.Attributes, "outcome") == "failed" && p.GetAsDouble() == 1 {
				return received.Of("service.name") == "night" && received.Of("service.instance.id") == "one"
			}
		}
		return false
	})
	s.stop()
	if lines := strings.Join(received.Lines(), "\n"); !strings.Contains(lines, "listening") || !strings.Contains(lines, "a run failed default/report") {
		t.Errorf("the lines are %s", lines)
	}
}

// tracing sends requests within a trace.
type tracing string

// RoundTrip implements [http.RoundTripper].
func (t tracing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("traceparent", string(t))
	r.Header.Set("baggage", "tenant=7")
	return http.DefaultTransport.RoundTrip(r)
}
