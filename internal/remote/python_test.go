//go:build servers

package remote_test

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The example shows that the protocol is enough to write a worker.
func TestPythonWorkerRunsJobs(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("this test runs a worker in Python: install python3:", err)
	}
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(w.server(ctx, "a"))
	defer server.Close()
	planner, err := node.New(node.Config{Session: store.Session{Node: "server", Machine: "s", DataDir: "/", Roles: []string{store.RolePlanner, store.RoleAPI}}}.On(w.store))
	if err != nil {
		t.Fatal(err)
	}
	var nodes sync.WaitGroup
	nodes.Go(func() { _ = planner.Run(ctx) })

	command := exec.CommandContext(ctx, python, "../../examples/python-worker/worker.py")
	command.Env = append(os.Environ(), "BELFRY_SERVER="+server.URL, "BELFRY_TOKEN="+w.grant("edge", ""))
	var said strings.Builder
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	j := w.apply(`{name: greeting, params: {name: {default: Ada}}, schedule: {every: 1s}, run: {handler: greet}, policy: {overlap: allow}}`)
	var records []store.Record
	for deadline := time.Now().Add(time.Minute); len(records) < 2 && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if records, _, err = w.store.Attempts(ctx, store.HistoryQuery{Job: j.Definition.UID, Limit: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("the worker has ended with %v: %s", err, said.String())
	}
	if len(records) < 2 {
		t.Fatalf("%d attempts are recorded: %s", len(records), said.String())
	}
	for _, r := range records {
		chunks, err := w.store.Output(ctx, r.Run.ID, r.Attempt.Number, 0, 10)
		if err != nil || len(chunks) != 1 || !strings.Contains(string(chunks[0].Data), "hello Ada") {
			t.Errorf("the output is %+v: %v", chunks, err)
		}
		if r.Attempt.Outcome != job.OutcomeSucceeded || !strings.HasPrefix(r.Attempt.Node, "python-") {
			t.Errorf("attempt %d of run %s has the outcome %s on node %s: %s", r.Attempt.Number, r.Run.ID, r.Attempt.Outcome, r.Attempt.Node, r.Attempt.Reason)
		}
	}
	cancel()
	nodes.Wait()
	w.over.Wait()
}
