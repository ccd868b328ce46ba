// Package otlptest is a receiver of OTLP for tests.
package otlptest

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Receiver keeps what it receives over OTLP.
type Receiver struct {
	mu      sync.Mutex
	spans   map[string]*tracepb.Span // by name and attempt
	metrics map[string]*metricspb.Metric
	lines   []string
	of      map[string]string // the resource
}

func (r *Receiver) about(list []*common.KeyValue) {
	r.of = map[string]string{}
	for _, kv := range list {
		r.of[kv.Key] = kv.Value.GetStringValue()
	}
}

func (r *Receiver) traces(request *collecttraces.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		r.about(resource.Resource.Attributes)
		for _, s := range resource.ScopeSpans {
			for _, span := range s.Spans {
				r.spans[nameOf(span)] = span
			}
		}
	}
}

// nameOf names a span: its run, and its attempt if it has one.
func nameOf(s *tracepb.Span) string {
	name := Value(s.Attributes, "belfry.run")
	if n := Value(s.Attributes, "belfry.attempt"); n != "" {
		name += " " + n
	}
	return name
}

// Value returns an attribute of a span, a point or a line.
func Value(list []*common.KeyValue, key string) string {
	for _, kv := range list {
		if kv.Key == key {
			if n, is := kv.Value.Value.(*common.AnyValue_IntValue); is {
				return fmt.Sprint(n.IntValue)
			}
			return kv.Value.GetStringValue()
		}
	}
	return ""
}

func (r *Receiver) measured(request *collectmetrics.ExportMetricsServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.ResourceMetrics {
		for _, s := range resource.ScopeMetrics {
			for _, m := range s.Metrics {
				r.metrics[m.Name] = m
			}
		}
	}
}

func (r *Receiver) logged(request *collectlogs.ExportLogsServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.ResourceLogs {
		for _, s := range resource.ScopeLogs {
			for _, l := range s.LogRecords {
				r.lines = append(r.lines, l.Body.GetStringValue()+" "+Value(l.Attributes, "job"))
			}
		}
	}
}

// ServeHTTP receives http/protobuf.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var body io.Reader = request.Body
	if request.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(body)
	}
	data, _ := io.ReadAll(body)
	switch request.URL.Path {
	case "/v1/traces":
		m := &collecttraces.ExportTraceServiceRequest{}
		if proto.Unmarshal(data, m) == nil {
			r.traces(m)
		}
	case "/v1/metrics":
		m := &collectmetrics.ExportMetricsServiceRequest{}
		if proto.Unmarshal(data, m) == nil {
			r.measured(m)
		}
	case "/v1/logs":
		m := &collectlogs.ExportLogsServiceRequest{}
		if proto.Unmarshal(data, m) == nil {
			r.logged(m)
		}
	default:
		http.NotFound(w, request)
	}
}

// The services of OTLP over gRPC, whose methods have one name.
type (
	traceService struct {
		collecttraces.UnimplementedTraceServiceServer
		*Receiver
	}
	metricsService struct {
		collectmetrics.UnimplementedMetricsServiceServer
		*Receiver
	}
	logsService struct {
		collectlogs.UnimplementedLogsServiceServer
		*Receiver
	}
)

func (s traceService) Export(_ context.Context, m *collecttraces.ExportTraceServiceRequest) (*collecttraces.ExportTraceServiceResponse, error) {
	s.traces(m)
	return &collecttraces.ExportTraceServiceResponse{}, nil
}

func (s metricsService) Export(_ context.Context, m *collectmetrics.ExportMetricsServiceRequest) (*collectmetrics.ExportMetricsServiceResponse, error) {
	s.measured(m)
	return &collectmetrics.ExportMetricsServiceResponse{}, nil
}

func (s logsService) Export(_ context.Context, m *collectlogs.ExportLogsServiceRequest) (*collectlogs.ExportLogsServiceResponse, error) {
	s.logged(m)
	return &collectlogs.ExportLogsServiceResponse{}, nil
}

// Start starts a receiver of http/protobuf or grpc, and returns its address.
func Start(t testing.TB, protocol string) (r *Receiver, url string) {
	t.Helper()
	r = &Receiver{spans: map[string]*tracepb.Span{}, metrics: map[string]*metricspb.Metric{}}
	if protocol == "grpc" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		collecttraces.RegisterTraceServiceServer(s, traceService{Receiver: r})
		collectmetrics.RegisterMetricsServiceServer(s, metricsService{Receiver: r})
		collectlogs.RegisterLogsServiceServer(s, logsService{Receiver: r})
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return r, "http://" + l.Addr().String()
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return r, s.URL
}

// Span returns the span of a run, or of one of its attempts by "RUN 1"; nil if it has not arrived.
func (r *Receiver) Span(name string) *tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans[name]
}

// Spans returns how many spans have arrived.
func (r *Receiver) Spans() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spans)
}

// Metric returns the latest values of a metric; nil if it has not arrived.
func (r *Receiver) Metric(name string) *metricspb.Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.metrics[name]
}

// Lines returns the lines of the log, each with the job that it names.
func (r *Receiver) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// Of returns an attribute of the process whose spans have arrived.
func (r *Receiver) Of(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[name]
}
