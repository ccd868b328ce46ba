// Package prometheus registers the metrics of a program's scheduler with a registry of Prometheus' Go library:
//
//	registry.MustRegister(prometheus.Collector(s))
//
// It is a module of its own, so that programs without that library do not get it. Package metrics answers
// Prometheus without a registry.
package prometheus

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/internal/server/metrics"
)

// readWithin bounds the reading of a silent store, below the 10 s that Prometheus waits for all collectors.
const readWithin = 6 * time.Second

// Collector returns a collector of the metrics of a scheduler. It leaves out those of the process and of Go,
// for which the library has collectors of its own.
func Collector(s *belfry.Scheduler) prometheus.Collector { return collector{s} }

type collector struct{ scheduler *belfry.Scheduler }

// Describe implements [prometheus.Collector]: which metrics there are is known when they are read.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	parts, err := c.scheduler.Inside(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewDesc("belfry_error", "The store of the scheduler cannot be opened.", nil, nil), err)
		return
	}
	for _, f := range parts.Families(ctx) {
		if !f.IsOwn() {
			continue
		}
		for _, s := range f.Samples {
			to <- metricOf(&f, s)
		}
	}
}

func metricOf(f *metrics.Family, s metrics.Sample) prometheus.Metric {
	var names, values []string
	for i := 0; i < len(s.Labels); i += 2 {
		names, values = append(names, s.Labels[i]), append(values, s.Labels[i+1])
	}
	desc := prometheus.NewDesc(f.Name, f.Help, names, nil)
	if f.Kind == metrics.Histogram {
		buckets, total := map[float64]uint64{}, uint64(0)
		bounds := metrics.Bounds()
		for i, n := range s.Buckets {
			total += n
			if i < len(bounds) {
				buckets[bounds[i]] = total
			}
		}
		return prometheus.MustNewConstHistogram(desc, total, s.Value, buckets, values...)
	}
	kind := prometheus.GaugeValue
	if f.Kind == metrics.Counter {
		kind = prometheus.CounterValue
	}
	return prometheus.MustNewConstMetric(desc, kind, s.Value, values...)
}
