// Package alerts has the tests of docs/alerts.yaml and docs/grafana-dashboard.json by the
// libraries of Prometheus.
package alerts
