// Package metrics answers Prometheus with the metrics of a program's scheduler: how late attempts begin,
// how many run and wait, how they end, when jobs fall due next and have last succeeded.
//
//	mux.Handle("/metrics", metrics.Handler(s))
//
// A program that has a registry of its own registers integrations/prometheus there, and one with the SDK
// of OpenTelemetry uses otelbelfry.Metrics.
package metrics

import (
	"context"
	"net/http"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/internal/server/metrics"
)

// Handler answers with the metrics of a scheduler in the text format of Prometheus; with none while its
// store cannot be opened, and for [belfry.Light], which counts by itself.
func Handler(s *belfry.Scheduler) http.Handler {
	return metrics.Handler(func(ctx context.Context) []metrics.Family {
		parts, err := s.Inside(ctx)
		if err != nil {
			return nil
		}
		return parts.Families(ctx)
	})
}
