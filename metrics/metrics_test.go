package metrics_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/metrics"
	"github.com/belfry-cron/belfry/store/memory"
)

// A program answers Prometheus before its scheduler runs, while it does, and in light mode, where there is nothing.
func TestAProgramAnswersPrometheus(t *testing.T) {
	read := func(s *belfry.Scheduler) string {
		w := httptest.NewRecorder()
		metrics.Handler(s).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("the answer is %d, %s", w.Code, w.Header())
		}
		return w.Body.String()
	}
	if got := read(belfry.New(belfry.Light())); got != "" {
		t.Errorf("in light mode: %s", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := belfry.New(memory.Empty())
	report := belfry.Handle(s, "report", func(context.Context, *belfry.Run, belfry.None) (belfry.None, error) { return belfry.None{}, nil })
	s.Job("report", belfry.Cron("30 2 * * *"), report.Do(belfry.None{}))
	if got := read(s); !strings.Contains(got, "\nbelfry_planned_jobs 0\n") || !strings.Contains(got, "\ngo_goroutines ") {
		t.Errorf("before it runs: %s", got)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer group.Wait()
	defer stop()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := read(s)
		if strings.Contains(got, "\nbelfry_planned_jobs 1\n") && strings.Contains(got, "\nbelfry_attempts_total{outcome=\"succeeded\"} 1\n") {
			break
		}
		if strings.Contains(got, "\nbelfry_planned_jobs 1\n") {
			if _, err := s.Trigger(ctx, "report", belfry.Key("once")); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s", got)
		}
	}
}
