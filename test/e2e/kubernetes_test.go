//go:build servers

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/check/kubetest"
	"github.com/belfry-cron/belfry/job"
)

// A Job runs on while the only server is killed, ends meanwhile, and counts once.
func TestAJobOfKubernetesOutlivesAllNodes(t *testing.T) {
	t.Parallel()
	cluster := kubetest.New(t)
	file := filepath.Join(t.TempDir(), "belfry.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "kubernetes: {clusters: {default: {kubeconfig: %s}}}\n", cluster.Kubeconfig(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFolder(t)
	s := f.serve(t, options{args: []string{"--config", file}})
	s.apply(`{name: etl, title: 夜间装载, run: {kubernetes: "alpine:3.20", shell: "echo hello"}, policy: {retry: {attempts: 1, on: [lost]}}}`)
	run := s.runByHand("etl").ID
	var name string
	eventually(t, "the Job is created", func() bool {
		created := cluster.Created()
		if len(created) > 0 {
			name = created[0]
		}
		return len(created) > 0
	})
	cluster.Do(name, func(j *kubetest.Job) {
		j.PodConditions = []map[string]any{{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}}
	})
	eventually(t, "the run says why it waits", func() bool { return strings.Contains(s.run(run).Reason, "Unschedulable: 0/3 nodes are available") })
	cluster.Do(name, func(j *kubetest.Job) { j.PodConditions = nil; j.Run("hello", "你好") })
	eventually(t, "the output is followed", func() bool { return strings.Contains(s.output(run), "你好") })
	s.kill()
	cluster.Do(name, func(j *kubetest.Job) { j.Write("bye"); j.Exit(0, "Completed", "") })
	s = f.serve(t, options{args: []string{"--config", file}})
	if r := s.ended(run); r.Outcome != job.OutcomeSucceeded || r.Attempt != 1 || len(r.Attempts) != 1 || r.Executor != "default/shop/"+name {
		t.Errorf("the run is %s, attempt %d of %d at %s: %s", r.Outcome, r.Attempt, len(r.Attempts), r.Executor, r.Reason)
	}
	if out := s.output(run); out != "hello\n你好\nbye\n" {
		t.Errorf("the output is %q", out)
	}
	if created := cluster.Created(); len(created) != 1 {
		t.Errorf("created %v", created)
	}
	s.stop()
}
