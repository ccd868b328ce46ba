package prometheus_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	library "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/integrations/prometheus"
	"github.com/belfry-cron/belfry/store/memory"
)

// A registry with the library's own collectors has the metrics of a scheduler beside them.
func TestARegistryHasTheMetrics(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := belfry.New(memory.Empty())
	fails := belfry.Handle(s, "fails", func(context.Context, *belfry.Run, belfry.None) (belfry.None, error) {
		return belfry.None{}, belfry.Permanent(errors.New("disk full"))
	})
	s.Job("report", belfry.Cron("30 2 * * *"), fails.Do(belfry.None{}))
	registry := library.NewPedanticRegistry()
	registry.MustRegister(prometheus.Collector(s), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer group.Wait()
	defer stop()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if id, err := s.Trigger(ctx, "report"); err == nil {
			if _, err := s.Wait(ctx, id); err == nil {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("the job has not run in a minute")
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			switch {
			case m.Counter != nil:
				got[name] = m.Counter.GetValue()
			case m.Gauge != nil:
				got[name] = m.Gauge.GetValue()
			case m.Histogram != nil:
				got[name] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	if got["belfry_attempts_total failed"] < 1 || got["belfry_start_lateness_seconds"] < 1 || got["belfry_planned_jobs"] != 1 {
		t.Errorf("the metrics are %v", got)
	}
	next := got["belfry_job_next_run_timestamp_seconds report default"]
	if at := time.Unix(int64(next), 0); at.Before(time.Now()) || at.After(time.Now().Add(25*time.Hour)) {
		t.Errorf("the job falls due next at %v of %v", at, got)
	}
	for name := range got {
		if strings.HasPrefix(name, "belfry_runs_total") || strings.HasPrefix(name, "belfry_store_call") {
			t.Errorf("a program has %s, which it does not count", name)
		}
	}
}
