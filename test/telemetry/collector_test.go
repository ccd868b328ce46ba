//go:build long

package telemetry

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// The Collector takes what a server sends, by both protocols: spans with their parents, metrics and lines.
func TestTheCollectorTakesTelemetry(t *testing.T) {
	belfry := filepath.Join(t.TempDir(), "belfry")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", belfry, "./cmd/belfry")
	build.Dir = filepath.Join("..", "..")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for of, protocol := range map[string]string{"http": "http/protobuf", "grpc": "grpc"} {
		t.Run(of, func(t *testing.T) {
			at := freeAddress(t)
			traces, metrics, logs := &consumertest.TracesSink{}, &consumertest.MetricsSink{}, &consumertest.LogsSink{}
			factory := otlpreceiver.NewFactory()
			config := factory.CreateDefaultConfig()
			if err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{of: map[string]any{"endpoint": at}}}).Unmarshal(config); err != nil {
				t.Fatal(err)
			}
			settings := receivertest.NewNopSettings(factory.Type())
			receive, err := factory.CreateTraces(t.Context(), settings, config, traces)
			if err != nil {
				t.Fatal(err)
			}
			// It is one receiver for all signals of a configuration.
			if _, err = factory.CreateMetrics(t.Context(), settings, config, metrics); err != nil {
				t.Fatal(err)
			}
			if _, err = factory.CreateLogs(t.Context(), settings, config, logs); err != nil {
				t.Fatal(err)
			}
			start(t, receive)

			data := filepath.Join(t.TempDir(), "data")
			server := exec.CommandContext(t.Context(), belfry, "serve", "--data", data, "--listen", "127.0.0.1:0", "--run-as", me.Username)
			server.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+at, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_METRIC_EXPORT_INTERVAL=500", "OTEL_BSP_SCHEDULE_DELAY=200")
			var said bytes.Buffer
			server.Stderr = &said
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			apply := func() error {
				command := exec.CommandContext(t.Context(), belfry, "apply", "--data", data, "--yes", "-f", "-")
				command.Stdin = strings.NewReader(`{name: report, title: 报告, schedule: {every: 1s}, run: 'echo hello; exit 3'}`)
				return command.Run()
			}
			await(t, "the server takes a job", &said, func() bool { return apply() == nil })
			await(t, "spans, metrics and lines arrive", &said, func() bool {
				return traces.SpanCount() >= 4 && metrics.DataPointCount() > 100 && logs.LogRecordCount() > 1
			})
			_ = server.Process.Signal(syscall.SIGTERM)
			if err := server.Wait(); err != nil {
				t.Errorf("the server ended with %v\n%s", err, said.String())
			}
			children := 0
			for _, batch := range traces.AllTraces() {
				for _, resource := range batch.ResourceSpans().All() {
					if name, _ := resource.Resource().Attributes().Get("service.name"); name.AsString() != "belfry" {
						t.Errorf("the spans are of %q", name.AsString())
					}
					for _, scope := range resource.ScopeSpans().All() {
						for _, span := range scope.Spans().All() {
							if !span.ParentSpanID().IsEmpty() {
								children++
							}
							if !strings.Contains(span.Status().Message(), "3") {
								t.Errorf("the status of %s is %q", span.Name(), span.Status().Message())
							}
						}
					}
				}
			}
			if children == 0 {
				t.Error("no span is within another one")
			}
		})
	}
}

func start(t *testing.T, c component.Component) {
	t.Helper()
	if err := c.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// awaitMax bounds what happens within seconds on an idle machine.
const awaitMax = 5 * time.Minute

func await(t *testing.T, what string, said *bytes.Buffer, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(awaitMax); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s\n%s", what, awaitMax, said.String())
		}
	}
}
