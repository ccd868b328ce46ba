//go:build servers

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// flowsPatience is how long a flow may take from its start: several of its attempts may be lost,
// on machines that may be busy.
const flowsPatience = 10 * time.Minute

// flowText is a flow of ten steps that write down each attempt. All of them but one are tried
// again when they are lost, and fragile is not: then undo runs.
const flowText = `
name: ten
params: {id: none}
policy: {overlap: allow, lost_after: 9s, kill_grace: 0s}
run:
  flow:
    max_parallel: 4
    defaults: {retry: {attempts: 200, backoff: 0s, on: [lost]}}
    steps:
      - name: first
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s; echo id={{ .Param.id }} >"$BELFRY_RESULT"'
      - name: each
        needs: [first]
        for_each: [x, y, z]
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s; sleep 0.3; echo id={{ .Steps.first.Result.id }}-"$BELFRY_ITEM" >"$BELFRY_RESULT"'
      - name: may_fail
        needs: [first]
        allow_failure: true
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s; exit 3'
      - name: pause
        needs: [first]
        wait: {for: 100ms}
      - name: not
        needs: [first]
        if: '{{ ne .Steps.first.Result.id .Param.id }}'
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s'
      - name: join
        needs: [each, may_fail, pause, not]
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s; i="$BELFRY_PARAM_ID"; test {{ .Steps.each.Result }} = "[{\"id\":\"$i-x\"},{\"id\":\"$i-y\"},{\"id\":\"$i-z\"}]"'
      - name: fragile
        needs: [join]
        retry: {attempts: 0}
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s; sleep 0.1'
      - name: undo
        needs: [fragile]
        when: failed
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s'
      - name: after
        needs: [fragile, undo]
        when: finished
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s'
    finally:
      - name: clean
        run: 'echo "$BELFRY_RUN $BELFRY_ATTEMPT" >>%[1]s'
`

// startAlone starts one node with its store in SQLite.
func startAlone(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	n := &node{t: t, name: "a", dir: filepath.Join(c.dir, "a")}
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.end)
	n.start()
	c.nodes = append(c.nodes, n)
	return c
}

// Each node is killed in turn and each is restarted gently, again and again, while flows run:
// every flow ends, as it must by how its steps have, and no attempt of a step starts twice.
func TestFlowsEndAlthoughNodesAreKilled(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		flowsEnd(t, startAlone(t))
	})
	for _, name := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flowsEnd(t, start(t, name))
		})
	}
}

func flowsEnd(t *testing.T, c *cluster) {
	lines := filepath.Join(c.dir, "steps")
	c.nodes[0].apply(fmt.Sprintf(flowText, lines))
	count := numberOf(t, "BELFRY_FLOWS", 20)
	began := time.Now()
	runs := make([]job.ID, count)
	var turn sync.RWMutex // held for reading while a node is asked that must not go
	var kills, restarts int
	done := make(chan struct{})
	var trouble sync.WaitGroup
	trouble.Go(func() {
		defer close(done)
		pace := time.NewTicker(100 * time.Millisecond) // flows run during each of the faults
		defer pace.Stop()
		for i := range runs {
			<-pace.C
			key := fmt.Sprint("flow-", i)
			eventually(t, "flow "+key+" is started", func() bool {
				turn.RLock()
				defer turn.RUnlock()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				run, err := c.nodes[i%len(c.nodes)].RunJob(ctx, "default", "ten", client.RunRequest{Params: map[string]string{"id": key}}, key)
				runs[i] = run.ID
				return err == nil
			})
		}
	})
	// A node lives for a while after it was started, and longer in each round: on a busy machine
	// it would be killed before it has done anything.
	life := 700 * time.Millisecond
	started := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	for round := 0; round < 1 || !started() || c.flowsLeft(); round++ {
		life += life / 10
		if time.Since(began) > flowsPatience {
			t.Fatalf("after %s flows are left: %s", flowsPatience, c.flowsSay())
		}
		for _, n := range c.nodes {
			<-time.After(life)
			turn.Lock()
			n.kill()
			n.start()
			turn.Unlock()
			kills++
			<-time.After(life)
			turn.Lock()
			n.stop()
			n.start()
			turn.Unlock()
			restarts++
		}
	}
	trouble.Wait()
	c.checkFlows(runs, lines)
	t.Logf("%d flows of ten steps in %s: %d kills, %d restarts", count, time.Since(began).Round(time.Second), kills, restarts)
}

// flowsLeft tells whether flows have not ended.
func (c *cluster) flowsLeft() bool {
	page, err := c.nodes[0].Runs(c.t.Context(), client.RunQuery{States: []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning}, PageSize: 1})
	if err != nil {
		c.t.Fatal(err)
	}
	return len(page.Items) > 0
}

// flowsSay says of some flows that have not ended how far they have come.
func (c *cluster) flowsSay() string {
	var parts []string
	for i, r := range c.runs(job.StateReady, job.StateWaiting, job.StateRunning) {
		if i == 3 {
			break
		}
		whole, err := c.nodes[0].Run(c.t.Context(), r.ID)
		parts = append(parts, fmt.Sprintf("%+v %v", whole, err))
	}
	return strings.Join(parts, "\n")
}

// checkFlows compares how flows have ended with how their steps have, and these with what they
// have written down.
func (c *cluster) checkFlows(runs []job.ID, lines string) {
	c.t.Helper()
	text, err := os.ReadFile(lines)
	if err != nil {
		c.t.Fatal(err)
	}
	starts := map[string]int{} // by run and attempt
	for line := range strings.Lines(string(text)) {
		starts[strings.TrimSpace(line)]++
	}
	for attempt, n := range starts {
		if n > 1 {
			c.t.Errorf("attempt %q has started %d times", attempt, n)
		}
	}
	counts := map[string]int{}
	for i, id := range runs {
		r, err := c.nodes[0].Run(c.t.Context(), id)
		if err != nil {
			c.t.Fatal(err)
		}
		counts["flows "+string(r.Outcome)]++
		if err := c.checkFlow(&r, starts, counts); err != nil {
			c.t.Errorf("flow %d, %s, is %s (%s): %v\n%+v", i, id, r.Outcome, r.Reason, err, r.Steps)
		}
	}
	if len(starts) > 0 {
		c.t.Errorf("these attempts belong to no flow: %v", starts)
	}
	c.t.Logf("%v", counts)
}

// checkFlow compares a flow with its steps, and takes their attempts out of starts.
func (c *cluster) checkFlow(r *client.Run, starts, counts map[string]int) error {
	want := map[string]string{
		"first": "succeeded", "each": "succeeded", "may_fail": "failed", "pause": "succeeded", "not": "skipped", "join": "succeeded",
		"fragile": "succeeded", "undo": "unneeded", "after": "succeeded", "clean": "succeeded",
	}
	outcome := job.OutcomeSucceeded
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Name == "fragile" && s.Outcome == job.OutcomeLost {
			want["fragile"], want["undo"], outcome = "failed", "succeeded", job.OutcomeFailed
		}
	}
	if r.State != job.StateDone || r.Outcome != outcome || len(r.Steps) != len(want) {
		return fmt.Errorf("it is %s with %d steps, want that it %s", r.State, len(r.Steps), outcome)
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.State != want[s.Name] {
			return fmt.Errorf("step %s is %s, want %s: %s", s.Name, s.State, want[s.Name], s.Reason)
		}
		units := s.Items
		if s.Name == "each" && len(units) != 3 {
			return fmt.Errorf("step each has %d items", len(units))
		}
		if len(units) == 0 {
			units = []client.StepState{*s}
		}
		for k := range units {
			if err := c.checkUnit(s, &units[k], starts, counts); err != nil {
				return fmt.Errorf("step %s/%d: %w", s.Name, k, err)
			}
		}
	}
	return nil
}

func (c *cluster) checkUnit(s, u *client.StepState, starts, counts map[string]int) error {
	commands := s.Name != "pause"
	if s.State == "skipped" || s.State == "unneeded" {
		if !u.Run.IsZero() {
			return errors.New("it has a run")
		}
		return nil
	}
	run, err := c.nodes[0].Run(c.t.Context(), u.Run)
	if err != nil {
		return err
	}
	for i, a := range run.Attempts {
		counts["attempts "+string(a.Outcome)]++
		key := fmt.Sprintf("%s %d", u.Run, a.Number)
		if commands && starts[key] == 0 && a.Outcome != job.OutcomeLost {
			return fmt.Errorf("attempt %d is %s and has not started", a.Number, a.Outcome)
		}
		delete(starts, key)
		if i < len(run.Attempts)-1 && (a.Outcome != job.OutcomeLost || s.Name == "fragile") {
			return fmt.Errorf("attempt %d is %s, and there is another one", a.Number, a.Outcome)
		}
	}
	return nil
}
