package otelbelfry

import (
	"context"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/internal/server/otelmetrics"
)

// Metrics gives the metrics of a scheduler to a reader of the SDK, under the names that they have for
// Prometheus:
//
//	reader := sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(otelbelfry.Metrics(s)))
func Metrics(s *belfry.Scheduler) sdkmetric.Producer {
	return otelmetrics.New(func(ctx context.Context) []metrics.Family {
		parts, err := s.Inside(ctx)
		if err != nil {
			return nil
		}
		return parts.Families(ctx)
	})
}
