package httpapi

import "github.com/belfry-cron/belfry/internal/server/service"

// metricsRoute adds the route that Prometheus reads, where there are metrics.
func (a *api) metricsRoute() {
	if a.Metrics != nil {
		// It names jobs of all namespaces.
		a.mux.add("GET /metrics", need{right: service.Observe, without: true}, a.Metrics.ServeHTTP)
	}
}
