package node

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// remote hides all of a store but the contract of a worker.
type remote struct{ work.Store }

// A worker may have only a work.Store, with a server behind it.
func TestWorkerRoleNeedsOnlyTheWorkContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		start := func(name string, c Config) (stop func()) {
			c.Session.Node, c.Session.Machine, c.Session.DataDir = name, "m1", "/"+name
			c.Executors = func(*job.Job) executor.Executor { return w.exec }
			c.Boot = func() time.Duration { return time.Since(w.boot) }
			c.Log = slog.New(slog.DiscardHandler)
			n, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			if c.Planning == nil && n.Planner() != nil {
				t.Errorf("node %s has a planner", name)
			}
			return w.run(n)
		}
		ctx := context.Background()
		boot := w.apply("{name: boot, schedule: {boot: true}, run: {shell: 'true'}}")
		// A late takeover may find the next run claimed, which this test is not about.
		often := w.apply("{name: often, schedule: {every: 1s}, policy: {overlap: allow}, run: {shell: 'true'}}")
		stopPlanner := start("planner", Config{Session: store.Session{Roles: []string{store.RolePlanner}}, Members: w.store, Planning: w.store, Upkeep: w.store})
		contract := remote{work.On(w.store, time.Now)}
		stopWorker := start("worker", Config{Session: store.Session{Roles: []string{store.RoleWorker}, Capacity: 100}, Members: contract, Work: contract})

		// Runs left by another node are taken over through the contract as well.
		silent, err := w.store.Join(ctx, store.Session{ID: job.ID{1}, Node: "silent", Machine: "m2", DataDir: "/silent", Roles: []string{store.RoleWorker}, Capacity: 100})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if got := w.outcomes(boot); len(got) != 1 || got[0] != "succeeded" {
			t.Errorf("the job that is due at the start of the node ended as %v", got)
		}
		if got := w.outcomes(often); len(got) < 25 || count(got, "succeeded") != len(got) {
			t.Errorf("the job of each second ended as %v", got)
		}
		records, _, err := w.store.Attempts(ctx, store.HistoryQuery{Job: often.Definition.UID, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Attempt.Node != "worker" {
				t.Errorf("an attempt ran on node %q", r.Attempt.Node)
			}
		}
		if err := w.store.Leave(ctx, silent.ID); err != nil {
			t.Fatal(err)
		}
		stopWorker()
		stopPlanner()
	})
}

func TestNodeWithoutASessionStoreIsRefused(t *testing.T) {
	if _, err := New(Config{}); err == nil || err.Error() != "a node needs a store for its session" {
		t.Errorf("the error is %v", err)
	}
}
