// Package telemetry has the test of OTLP against the receiver of the OpenTelemetry Collector. The module
// exists so that the Collector does not become a dependency of Belfry.
package telemetry
