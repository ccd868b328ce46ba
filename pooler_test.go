//go:build servers

package belfry_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/test/servers"
)

// Two instances share a database through a pooler whose few connections go from one transaction to the
// next: each occurrence runs once, without a gap, while one of them ends and another begins.
func TestInstancesBehindAPoolerRunEachOccurrenceOnce(t *testing.T) {
	server := servers.StartPostgres(t, "fsync = off")
	address := server.StartPgbouncer(t, "transaction", "default_pool_size = 4").Through(server.Schema())
	type occurrence struct {
		job string
		at  time.Time
	}
	const jobs = 8
	var mu sync.Mutex
	ran, by := map[occurrence][]string{}, map[string]int{}
	start := func(name string) (stop func()) {
		s := belfry.New(postgres.URL(address), belfry.WithNodeName(name), belfry.WithLogger(slog.New(slog.DiscardHandler)))
		h := belfry.HandleFunc(s, "tick", func(_ context.Context, run *belfry.Run) error {
			mu.Lock()
			defer mu.Unlock()
			o := occurrence{run.Job, run.Scheduled.UTC()}
			ran[o] = append(ran[o], name)
			by[name]++
			return nil
		})
		for i := range jobs {
			s.Job(fmt.Sprintf("tick-%d", i), belfry.Every(time.Second), belfry.Overlap(job.OverlapAllow), belfry.Missed(job.MissedAll), h.Do(belfry.None{}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		return sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("instance %s: %v", name, err)
			}
		})
	}
	until := func(name string, n int) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			mu.Lock()
			enough := by[name] >= n*jobs
			mu.Unlock()
			if enough {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the instances have run %v, want %d of %s", by, n*jobs, name)
			}
		}
	}
	one, two := start("one"), start("two")
	until("one", 2)
	one()
	until("two", 5)
	three := start("three") // it gets runs that are not planned yet
	until("three", 2)
	two()
	three()
	times := map[string][]time.Time{}
	for o, names := range ran {
		times[o.job] = append(times[o.job], o.at)
		if len(names) != 1 {
			t.Errorf("the occurrence of %s at %s has run on %q", o.job, o.at, names)
		}
	}
	for name, list := range times {
		slices.SortFunc(list, time.Time.Compare)
		for i, at := range list[1:] {
			if gap := at.Sub(list[i]); gap != time.Second {
				t.Errorf("%s: after the occurrence of %s the next one that ran is %s later", name, list[i], gap)
			}
		}
	}
}
