package httpapi

// metricsRoute adds the route that Prometheus reads, where there are metrics.
func (a *api) metricsRoute() {
	if a.Metrics != nil {
		a.mux.Handle("GET /metrics", a.Metrics)
	}
}
