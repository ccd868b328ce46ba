package shell

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

// together is an attempt of a step in a flow that stays on one node.
func together(flow job.ID, command, user string) executor.Attempt {
	a := attempt(job.RunSpec{Shell: &job.Shell{Command: command, User: user}})
	a.Together, a.Run.Parent, a.Run.Kind = true, flow, job.RunStep
	return a
}

// settle makes an executor check as late as possible, and returns the runs that it asked about.
func settle(t *testing.T, e *Executor, over ...job.ID) (asked []job.ID) {
	t.Helper()
	e.flows.mu.Lock()
	for flow := range e.flows.idle {
		e.flows.idle[flow] = e.flows.idle[flow].Add(-settleMost)
	}
	for flow := range e.flows.asked {
		e.flows.asked[flow] = e.flows.asked[flow].Add(-settleMost)
	}
	e.flows.mu.Unlock()
	err := e.SettleFlows(t.Context(), func(_ context.Context, runs []job.ID) ([]job.ID, error) {
		asked = runs
		return over, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return asked
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestFlowKeptTogetherSharesADirectory(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(t.TempDir(), "flows")
	e := newExecutor(t, func(c *Config) { c.FlowsDir = parent })
	flow, other := job.ID{1, 2}, job.ID{1, 3}
	dir := filepath.Join(parent, flow.String())
	for _, command := range []string{
		`test "$PWD" = "$BELFRY_FLOW_DIR" && stat -c %a . && mkdir locked && echo rows >locked/file && chmod 500 locked`,
		`cat locked/file`,
	} {
		if r, out, stderr := run(t, e, together(flow, command, "")); r.Outcome != job.OutcomeSucceeded || out != "700\n" && out != "rows\n" {
			t.Fatalf("%q, %q, %s", out, stderr, describe(r))
		}
	}
	if r, out, _ := run(t, e, attempt(job.RunSpec{Shell: &job.Shell{Command: `echo "$BELFRY_FLOW_DIR"`}})); out != "\n" {
		t.Errorf("a command outside of such a flow has %q, %s", out, describe(r))
	}
	if _, out, _ := run(t, e, together(other, "ls; pwd", "")); out != filepath.Join(parent, other.String())+"\n" {
		t.Errorf("another flow sees %q", out)
	}
	if asked := settle(t, e, other); len(asked) != 2 || !exists(dir) || exists(filepath.Join(parent, other.String())) {
		t.Errorf("asked about %v; the directory of the flow that runs is there: %v", asked, exists(dir))
	}

	// The process dies, and the next one finds its directories.
	again := newExecutor(t, func(c *Config) { c.FlowsDir = parent })
	if _, out, _ := run(t, again, together(flow, "cat locked/file", "")); out != "rows\n" {
		t.Errorf("after a restart the flow has %q", out)
	}
	if settle(t, again); !exists(dir) {
		t.Error("the directory of a flow that runs is gone")
	}
	last := newExecutor(t, func(c *Config) { c.FlowsDir = parent })
	if asked := settle(t, last, flow); len(asked) != 1 || exists(dir) {
		t.Errorf("asked about %v, and the directory of a flow that is over is there: %v", asked, exists(dir))
	}
	if asked := settle(t, last); len(asked) != 0 {
		t.Errorf("asked about %v, which is gone", asked)
	}
}

func TestPollsOfAFlowDirectoryBackOff(t *testing.T) {
	t.Parallel()
	d, flow, start := newFlowDirs(t.TempDir()), job.ID{1}, time.Now()
	if _, err := d.enter(flow, account{}); err != nil {
		t.Fatal(err)
	}
	if list, err := d.due(start.Add(time.Hour)); err != nil || len(list) > 0 {
		t.Fatalf("a directory in use is asked about: %v, %v", list, err)
	}
	d.leave(flow)
	asked := 0
	for now := start; now.Before(start.Add(time.Hour)); now = now.Add(time.Second) {
		list, err := d.due(now)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			d.asked[flow] = now
			asked++
		}
	}
	if asked < 50 || asked > 90 {
		t.Errorf("asked %d times in an hour", asked)
	}
}

func TestTheDirectoryOfAFlowBelongsToTheUserOfItsSteps(t *testing.T) {
	needRoot(t)
	t.Parallel()
	temp, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, func(c *Config) { c.TempDir, c.FlowsDir, c.Dir = temp, filepath.Join(temp, "flows"), "/" })
	flow := job.ID{1}
	if r, out, stderr := run(t, e, together(flow, "stat -c '%a %U' . ; touch mine", "nobody")); out != "700 nobody\n" {
		t.Fatalf("%q, %q, %s", out, stderr, describe(r))
	}
	if r, _, _ := run(t, e, together(flow, "true", "daemon")); !strings.Contains(r.Reason.String(), "need the same user") {
		t.Errorf("another user: %s", describe(r))
	}
	if r, out, _ := run(t, e, attempt(job.RunSpec{Shell: &job.Shell{Command: "ls " + filepath.Join(temp, "flows"), User: "daemon"}})); r.Outcome == job.OutcomeSucceeded {
		t.Errorf("another user lists the flows: %q", out)
	}
	// A directory of another user is not used.
	foreign := newFlowDirs(filepath.Join(temp, "foreign"))
	if err := os.Mkdir(foreign.parent, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(foreign.parent, 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.enter(flow, account{}); err == nil || !strings.Contains(err.Error(), "this node alone can change") {
		t.Errorf("the directory of another user is used: %v", err)
	}
}
