package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ending is an attempt that a test ends.
type ending struct{ began, end chan struct{} }

// Run implements executor.Executor.
func (e ending) Run(_ context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true}
	}
	e.began <- struct{}{}
	<-e.end
	fmt.Fprintln(out.Stdout, "done")
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

// An attempt that ends in an outage is reported by the next process, even if other nodes have
// counted it as lost.
func TestNextProcessReportsResultsOfAnOutage(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "spool")
			synctest.Test(t, func(t *testing.T) { outage(t, dir, late) })
		})
	}
}

func outage(t *testing.T, dir string, late bool) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := newNetwork()
	n.servers["a"] = w.server(ctx, "a")
	j := w.apply(`{name: long, schedule: {cron: "0 0 1 1 *"}, run: {shell: 'true'}, policy: {overlap: allow, lost_after: 40s}}`)
	boot := func() time.Duration { return time.Since(w.boot) }
	quiet := slog.New(slog.DiscardHandler)
	upkeep, err := node.New(node.Config{Session: store.Session{Node: "server", Machine: "s", DataDir: "/", Roles: []string{store.RolePlanner, store.RoleAPI}}, Boot: boot, Log: quiet}.On(w.store))
	if err != nil {
		t.Fatal(err)
	}
	var nodes sync.WaitGroup
	nodes.Go(func() { _ = upkeep.Run(ctx) })
	secret := w.grant("edge", "")
	e := ending{make(chan struct{}, 1), make(chan struct{})}
	work := func() (stop func()) {
		spool, err := unreported.Open(ctx, unreported.Config{Dir: dir, IsRefused: remote.IsRefused, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		c := connect(t, n, secret, "http://a")
		far, err := node.New(node.Config{
			Members: c, Work: c, Spool: spool, Boot: boot, Log: quiet, Capacity: 20, DrainTimeout: time.Second,
			Session:   store.Session{Node: "far", Machine: "m", DataDir: "/", Roles: []string{store.RoleWorker}, Capacity: 20},
			Executors: func(*job.Job) executor.Executor { return e },
		})
		if err != nil {
			t.Fatal(err)
		}
		working, end := context.WithCancel(ctx)
		var over sync.WaitGroup
		over.Go(func() { _ = c.Work(working, far.Run) })
		return func() { end(); over.Wait(); _ = spool.Close() }
	}
	stop := work()
	time.Sleep(2 * time.Second)
	run := w.trigger(j, job.ID{})
	<-e.began
	n.setDown("a", true)
	time.Sleep(time.Second)
	close(e.end)
	time.Sleep(time.Second)
	stop()
	if late {
		time.Sleep(2 * time.Minute)
	}
	n.setDown("a", false)
	stop = work()
	time.Sleep(10 * time.Second)
	stop()
	cancel()
	nodes.Wait()
	w.over.Wait()

	ctx = context.WithoutCancel(ctx)
	records, _, err := w.store.Attempts(ctx, store.HistoryQuery{Job: j.Definition.UID, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || records[0].Run.ID != run || records[0].Attempt.Outcome != job.OutcomeSucceeded || records[0].Replaces != late {
		t.Fatalf("the records are %+v", records)
	}
	chunks, err := w.store.Output(ctx, run, 1, 0, 10)
	if err != nil || len(chunks) != 1 || !strings.Contains(string(chunks[0].Data), "done") {
		t.Errorf("the output is %v, %v", chunks, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.json")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
