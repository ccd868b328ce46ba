// Package telemetry sends the traces of runs, the metrics and the log of a process to a receiver of
// OpenTelemetry, over OTLP. The standard OTEL_ variables configure it; without them it does nothing.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/internal/server/otelmetrics"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
)

// scope names the instrumentation.
const scope = "github.com/belfry-cron/belfry"

const (
	// failuresEvery is the shortest interval between log lines about a receiver that fails: each batch fails.
	failuresEvery = time.Minute
	// closeMax bounds the last batches at the end, so that a silent receiver does not delay a restart.
	closeMax = 5 * time.Second
)

// Config configures [Open].
type Config struct {
	// Getenv reads the OTEL_ variables that choose what is sent and how. The exporters read the others
	// from the environment of the process.
	Getenv func(string) string
	// Node and Version describe the process.
	Node, Version string
	// Families returns the metrics, nil before there are any. It is called until [Telemetry.Close].
	Families func(context.Context) []metrics.Family
	// Level is the lowest level of the log that is sent.
	Level slog.Leveler
	Log   *slog.Logger
}

// Telemetry is what a process sends. A nil *Telemetry sends nothing.
type Telemetry struct {
	tracer   trace.Tracer // nil for none
	log      slog.Handler // nil for none
	failures *slog.Logger
	ends     []func(context.Context) error
}

// Open starts to send what the variables ask for, and returns nil if that is nothing. As OpenTelemetry
// demands, a mistake in a variable is logged, and only leaves out what it concerns.
func Open(ctx context.Context, c Config) *Telemetry {
	if c.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	limit := failurelog.Limit{Every: failuresEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if left, ok := limit.Allow(time.Now()); ok {
			c.Log.Warn("telemetry was not sent", "error", err, "left_out", left)
		}
	}))
	about := []attribute.KeyValue{attribute.String("service.version", c.Version), attribute.String("service.instance.id", c.Node)}
	if c.Getenv("OTEL_SERVICE_NAME") == "" {
		about = append(about, attribute.String("service.name", "belfry"))
	}
	// What the environment says of the process counts more.
	from, err := resource.New(ctx, resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithAttributes(about...), resource.WithFromEnv())
	if err != nil {
		c.Log.Warn("OTEL_RESOURCE_ATTRIBUTES was not read in full", "error", err)
	}
	t := &Telemetry{failures: c.Log}
	for _, s := range signals {
		by, err := protocolOf(c.Getenv, s.name)
		if err == nil && by != "" {
			err = s.send(ctx, t, c, by, from)
		}
		if err != nil {
			c.Log.Warn("telemetry is left out", "signal", s.name, "error", err)
		}
	}
	if len(t.ends) == 0 {
		return nil
	}
	return t
}

// The protocols of OTLP.
const (
	overHTTP = "http/protobuf"
	overGRPC = "grpc"
)

// signals are the kinds of telemetry, by their names in variables.
var signals = []struct {
	name string
	send func(ctx context.Context, t *Telemetry, c Config, protocol string, from *resource.Resource) error
}{
	{"TRACES", sendTraces}, {"METRICS", sendMetrics}, {"LOGS", sendLogs},
}

// protocolOf returns the protocol by which a signal is sent, "" if it is not.
func protocolOf(getenv func(string) string, signal string) (string, error) {
	endpoint, protocol := "OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", "OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL"
	if getenv(endpoint) == "" {
		endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	}
	if getenv(protocol) == "" {
		protocol = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	exporter := "OTEL_" + signal + "_EXPORTER"
	switch chosen := getenv(exporter); {
	case chosen == "none", chosen == "" && getenv(endpoint) == "":
		return "", nil
	case chosen != "" && chosen != "otlp":
		return "", fmt.Errorf("%s: %q is neither otlp nor none", exporter, chosen)
	}
	by := cmp.Or(getenv(protocol), overHTTP)
	if by != overHTTP && by != overGRPC {
		return "", fmt.Errorf("%s: %q is neither %s nor %s", protocol, by, overHTTP, overGRPC)
	}
	if to := getenv(endpoint); to != "" {
		if u, err := url.Parse(to); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", fmt.Errorf("%s must be like http://collector:4318", endpoint) // it may have a password
		}
	}
	return by, nil
}

func sendTraces(ctx context.Context, t *Telemetry, _ Config, by string, from *resource.Resource) (err error) {
	var exporter sdktrace.SpanExporter
	if by == overGRPC {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from), sdktrace.WithIDGenerator(chosenIDs{}))
	t.tracer = provider.Tracer(scope)
	t.ends = append(t.ends, provider.Shutdown)
	return nil
}

func sendMetrics(ctx context.Context, t *Telemetry, c Config, by string, from *resource.Resource) (err error) {
	var exporter sdkmetric.Exporter
	if by == overGRPC {
		exporter, err = otlpmetricgrpc.New(ctx)
	} else {
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return err
	}
	reader := sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(otelmetrics.New(c.Families)))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(from))
	t.ends = append(t.ends, provider.Shutdown)
	return nil
}

func sendLogs(ctx context.Context, t *Telemetry, c Config, by string, from *resource.Resource) (err error) {
	var exporter sdklog.Exporter
	if by == overGRPC {
		exporter, err = otlploggrpc.New(ctx)
	} else {
		exporter, err = otlploghttp.New(ctx)
	}
	if err != nil {
		return err
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)), sdklog.WithResource(from))
	t.log = leveled{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(provider)), c.Level}
	t.ends = append(t.ends, provider.Shutdown)
	return nil
}

// Logging returns a log that also sends what the given one writes.
func (t *Telemetry) Logging(log *slog.Logger) *slog.Logger {
	if t == nil || t.log == nil {
		return log
	}
	return slog.New(slog.NewMultiHandler(log.Handler(), t.log))
}

// Close sends what waits, and ends.
func (t *Telemetry) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	var errs []error
	for _, end := range t.ends {
		errs = append(errs, end(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		t.failures.Warn("the last telemetry was not sent", "error", err)
	}
}
