package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/server/inside"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/job"
)

// listenHealth listens for probes and Prometheus, if configured. A worker cannot check tokens, so
// that the answers have no secrets.
func (w *Worker) listenHealth() error {
	address := string(w.parts.Settings.Worker.HealthListen)
	if address == "" {
		return nil
	}
	if err := w.parts.listenOn(address); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) { answerProbe(rw, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		status, text := readiness(w.node.Stats())
		answerProbe(rw, status, text)
	})
	mux.Handle("GET /metrics", metrics.Handler(w.families))
	w.parts.http = w.parts.answersWith(mux)
	return nil
}

// families returns the metrics of the worker.
func (w *Worker) families(context.Context) []metrics.Family {
	stats := w.node.Stats()
	return w.parts.metrics.WorkerFamilies(w.parts.Version, inside.LoadOf(stats), stats.Live)
}

// readiness reports whether a worker can run jobs, and why not, like /readyz of a server.
func readiness(s node.Stats) (status int, text string) {
	switch {
	case s.Session.IsZero():
		return http.StatusServiceUnavailable, "no session: no server has accepted this worker yet"
	case !s.Live:
		return http.StatusServiceUnavailable, fmt.Sprintf("the session was not renewed for %s: no server answers", job.Duration(s.Silent.Round(time.Second)).InWords())
	case s.Drained:
		return http.StatusOK, "ok; node is drained, not accepting runs"
	}
	return http.StatusOK, "ok"
}

func answerProbe(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// serveHealth answers probes until the returned function is called.
func (w *Worker) serveHealth(ctx context.Context) (stop func() error) {
	if w.parts.http == nil {
		return func() error { return nil }
	}
	served := make(chan error, 1)
	go func() { served <- w.parts.serve() }()
	w.parts.Log.Info("answering probes and Prometheus", "address", w.parts.listen.Addr().String())
	return func() error {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if err := w.parts.http.Shutdown(closing); err != nil {
			_ = w.parts.http.Close()
		}
		return <-served
	}
}
