// Package otelmetrics hands metrics to the SDK of OpenTelemetry.
package otelmetrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/belfry-cron/belfry/internal/server/metrics"
)

// scope names the instrumentation.
const scope = "github.com/belfry-cron/belfry"

// Producer reads the metrics of a process, under the names that they have for Prometheus. It implements
// sdkmetric.Producer.
type Producer struct {
	families func(context.Context) []metrics.Family
	since    time.Time
}

// New returns a producer of families that count from now.
func New(families func(context.Context) []metrics.Family) Producer {
	return Producer{families, time.Now()}
}

// Produce implements sdkmetric.Producer.
func (p Producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	families, now := p.families(ctx), time.Now()
	list := make([]metricdata.Metrics, len(families))
	for i := range families {
		list[i] = metricdata.Metrics{Name: families[i].Name, Description: families[i].Help, Data: p.dataOf(&families[i], now)}
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: list}}, nil
}

func (p Producer) dataOf(f *metrics.Family, now time.Time) metricdata.Aggregation {
	if f.Kind == metrics.Histogram {
		points := make([]metricdata.HistogramDataPoint[float64], len(f.Samples))
		for i, s := range f.Samples {
			count := uint64(0)
			for _, n := range s.Buckets {
				count += n
			}
			points[i] = metricdata.HistogramDataPoint[float64]{
				Attributes: labelsOf(s), StartTime: p.since, Time: now, Count: count, Sum: s.Value, Bounds: metrics.Bounds(), BucketCounts: s.Buckets,
			}
		}
		return metricdata.Histogram[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality}
	}
	points := make([]metricdata.DataPoint[float64], len(f.Samples))
	for i, s := range f.Samples {
		points[i] = metricdata.DataPoint[float64]{Attributes: labelsOf(s), Time: now, Value: s.Value}
		if f.Kind == metrics.Counter {
			points[i].StartTime = p.since
		}
	}
	if f.Kind == metrics.Counter {
		return metricdata.Sum[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	}
	return metricdata.Gauge[float64]{DataPoints: points}
}

func labelsOf(s metrics.Sample) attribute.Set {
	labels := make([]attribute.KeyValue, 0, len(s.Labels)/2)
	for i := 0; i < len(s.Labels); i += 2 {
		labels = append(labels, attribute.String(s.Labels[i], s.Labels[i+1]))
	}
	return attribute.NewSet(labels...)
}
