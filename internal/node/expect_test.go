package node

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestOverlongRunAlertsOnceWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.exec.do = sleeps(time.Minute)
		log := &logtest.Log{}
		n, err := New(Config{
			Session:   store.Session{Node: "a", Machine: "m1", DataDir: "/a", Roles: []string{store.RolePlanner, store.RoleWorker}, Capacity: 100},
			Executors: func(*job.Job) executor.Executor { return w.exec },
			Now:       func() time.Time { return w.now() },
			Boot:      func() time.Duration { return time.Since(w.boot) },
			Log:       slog.New(slog.NewTextHandler(log, nil)),
		}.On(w.store))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		j := w.apply("name: a\nschedule: {every: 1h, start: " + time.Now().UTC().Add(10*time.Second).Format(time.RFC3339) + ", align: start, max_runs: 1}\n" +
			"run: {shell: 'true'}\npolicy: {expect: {duration_below: 20s, finish_within: 30s}}")
		time.Sleep(29 * time.Second)
		if early := log.Lines("expectation="); len(early) != 0 {
			t.Errorf("before its time: %v", early)
		}
		time.Sleep(3 * time.Second)
		first := log.Lines("expectation=")
		if len(first) != 1 || !strings.Contains(first[0], "level=WARN") || !strings.Contains(first[0], "attempt 1 has not ended 20 s after it started") ||
			!strings.Contains(first[0], "job=default/a") || !strings.Contains(first[0], "run=") {
			t.Errorf("after 22 s: %v", first)
		}
		time.Sleep(time.Minute)
		if all := log.Lines("expectation="); len(all) != 2 || !strings.Contains(all[1], "it has not ended 30 s after it was due") {
			t.Errorf("in the end: %v", all)
		}
		records, _, err := w.store.Attempts(context.Background(), store.HistoryQuery{Job: j.Definition.UID, Unmet: true, Limit: 10})
		if err != nil || len(records) != 1 || records[0].Attempt.Outcome != job.OutcomeSucceeded {
			t.Errorf("%v, the records are %+v", err, records)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
