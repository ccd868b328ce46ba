//go:build servers

package belfry_test

import (
	"context"
	"fmt"
	"log/slog"
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
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			mu.Lock()
			done := is()
			mu.Unlock()
			if done {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain until %s; the instances have run %v", what, by)
			}
		}
	}
	runs := func(name string, n int) {
		t.Helper()
		until(name+" has run", func() bool { return by[name] >= n*jobs })
	}
	// complete reports whether each occurrence has run from the first one of a job to a moment.
	complete := func(to time.Time) bool {
		first, n := map[string]time.Time{}, map[string]int{}
		for o := range ran {
			if at, ok := first[o.job]; !ok || o.at.Before(at) {
				first[o.job] = o.at
			}
			if !o.at.After(to) {
				n[o.job]++
			}
		}
		for name, at := range first {
			if n[name] != 1+int(to.Sub(at)/time.Second) {
				return false
			}
		}
		return len(first) == jobs
	}
	one, two := start("one"), start("two")
	runs("one", 2)
	one()
	runs("two", 5)
	three := start("three") // it gets runs that are not planned yet
	runs("three", 2)
	now := time.Now()
	two()
	until("each occurrence has run", func() bool { return complete(now) })
	three()
	for o, names := range ran {
		if len(names) != 1 {
			t.Errorf("the occurrence of %s at %s has run on %q", o.job, o.at, names)
		}
	}
}
