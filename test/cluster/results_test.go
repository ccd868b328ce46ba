//go:build servers

package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// stranded are runs on node c whose commands end while the database is away.
type stranded struct {
	*cluster
	runs []client.Run
	flow client.Run
}

// strand starts runs on node c, takes the database away and lets the commands end. Those of jobs
// with a retry would run again if they were taken for lost.
func (c *cluster) strand(away func()) *stranded {
	t := c.t
	t.Helper()
	s := &stranded{cluster: c}
	release := filepath.Join(c.dir, "release")
	words := func(words ...string) string {
		args, err := json.Marshal(append([]string{c.evidence()}, words...))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("{shell: {command: %q, args: %s}}", programs.witness, args)
	}
	start := func(name, run, policy string) client.Run {
		c.nodes[0].apply(fmt.Sprintf("name: %s\nrun: %s\nplace: {labels: {node: c}}\npolicy: {lost_after: 30s, kill_grace: 0s, %s}\n", name, run, policy))
		r, err := c.nodes[0].RunJob(t.Context(), "default", name, client.RunRequest{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const again = "retry: {attempts: 2, backoff: 0s, on: [lost]}"
	for i := range 4 {
		policy := "overlap: skip"
		if i%2 == 0 {
			policy = again
		}
		s.runs = append(s.runs, start(fmt.Sprint("stranded", i), words("until="+release, "say=done"), policy))
	}
	s.flow = start("flow", "\n  flow:\n    defaults: {"+again+"}\n    steps:\n    - {name: one, run: "+words("until="+release)+"}\n    - {name: two, needs: [one], run: "+words()+"}", "overlap: skip")
	eventually(t, "all have started", func() bool { return len(c.events()) == len(s.runs)+1 })
	away()
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spool := filepath.Join(c.nodes[2].dir, "data", "spool", "*.json")
	eventually(t, "all have ended, and their results are on disk", func() bool {
		results := 0
		files, _ := filepath.Glob(spool)
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			results += strings.Count(string(text), "\n")
		}
		return len(c.events()) == 2*(len(s.runs)+1) && results == len(s.runs)+1
	})
	return s
}

// ended waits until a run has ended.
func (s *stranded) ended(id job.ID) (r client.Run) {
	s.t.Helper()
	eventually(s.t, "run "+id.String()+" has ended", func() (over bool) {
		var err error
		r, err = s.nodes[0].Run(s.t.Context(), id)
		return err == nil && r.State == job.StateDone
	})
	return r
}

// succeeded waits until all runs have ended, and checks that each has started once.
func (s *stranded) succeeded() {
	t := s.t
	t.Helper()
	for i := range s.runs {
		r := s.ended(s.runs[i].ID)
		if r.Outcome != job.OutcomeSucceeded || r.Reason != "" || len(r.Attempts) != 1 {
			t.Errorf("%s has ended as %s after %d attempts, want succeeded after 1: %q", r.Job, r.Outcome, len(r.Attempts), r.Reason)
		}
	}
	if r := s.ended(s.flow.ID); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("the flow has ended as %s: %q", r.Outcome, r.Reason)
	}
	starts := 0
	for _, e := range s.events() {
		if e.Kind == evidence.Start {
			starts++
		}
	}
	if want := len(s.runs) + 2; starts != want {
		t.Errorf("%d commands have started, want %d", starts, want)
	}
}

func (c *cluster) killDatabase() {
	c.t.Helper()
	if err := c.database.Kill(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) startDatabase() {
	c.t.Helper()
	if err := c.database.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// turn changes the weather between all nodes and the database.
func (c *cluster) turn(w weather) {
	for _, n := range c.nodes {
		n.proxy.turn(w)
	}
}

// stopMax is how long a stop may take without a database: the 10 s of docs/configuration.md,
// and half of them for a machine that is busy.
const stopMax = 15 * time.Second

// A command that succeeds while the database does not answer has succeeded, although its node is
// stopped before that ends. The watchdog says so while no other process of the node runs.
func TestResultsOfAnOutageOutliveAStop(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		s := c.strand(func() { c.turn(silent) })
		sent := time.Now()
		c.nodes[2].stop()
		if took := time.Since(sent); took > stopMax {
			t.Errorf("the stop took %s, want at most %s", took, stopMax)
		}
		c.turn(fair)
		for i := range s.runs {
			s.ended(s.runs[i].ID)
		}
		c.nodes[2].start()
		s.succeeded()
	})
}

// The next process of the node says so when node and watchdog were killed.
func TestResultsOfAnOutageOutliveAKill(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		s := c.strand(c.killDatabase)
		c.nodes[2].lose()
		c.startDatabase()
		c.nodes[2].start()
		s.succeeded()
	})
}

// A result that comes after its attempt was taken for lost and tried again ends nothing twice.
func TestALateResultIsNotDoubled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		s := c.strand(c.killDatabase)
		c.nodes[2].lose()
		c.startDatabase()
		run := func(i int) (r client.Run) {
			eventually(t, s.runs[i].Job+" has ended", func() bool {
				var err error
				r, err = c.nodes[0].Run(t.Context(), s.runs[i].ID)
				return err == nil && r.State == job.StateDone
			})
			return r
		}
		again := run(0)
		if again.Outcome != job.OutcomeSucceeded || len(again.Attempts) != 2 || again.Attempts[0].Outcome != job.OutcomeLost {
			t.Fatalf("with a retry it has ended as %s: %+v", again.Outcome, again.Attempts)
		}
		if once := run(1); once.Outcome != job.OutcomeLost || !strings.Contains(once.Reason, "node c was silent for") {
			t.Errorf("without a retry it has ended as %s: %s", once.Outcome, once.Reason)
		}
		starts := func() (n int) {
			for _, e := range c.events() {
				if e.Kind == evidence.Start && e.Run == s.runs[0].ID.String() {
					n++
				}
			}
			return n
		}
		before := starts()
		c.nodes[2].start()
		eventually(t, "the late results are known", func() bool {
			again, once := run(0), run(1)
			return strings.Contains(again.Attempts[0].Reason, "its node said later that it succeeded") && once.Outcome == job.OutcomeSucceeded
		})
		if again := run(0); len(again.Attempts) != 2 || starts() != before {
			t.Errorf("a late result was followed by %d commands, and attempts %+v", starts()-before, again.Attempts)
		}
	})
}

// A node stops between the claim of a run and its start, and continues after others have taken
// the run over: it starts nothing, and the reason of its attempt is true.
func TestAFrozenClaimIsHandedOver(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		args, err := json.Marshal([]string{c.evidence(), "fast"})
		if err != nil {
			t.Fatal(err)
		}
		// Answers that take a while make nodes claim earlier: the time to freeze one is longer.
		c.nodes[2].proxy.delay(answerDelay)
		apply := func(place string) {
			c.nodes[0].apply(fmt.Sprintf("name: beat\nschedule: {every: 1s}\nrun: {shell: {command: %q, args: %s}}\nplace: %s\n"+
				"policy: {overlap: allow, lost_after: 9s, kill_grace: 0s, retry: {attempts: 3, backoff: 0s, on: [lost]}}\n", programs.witness, args, place))
		}
		apply("{labels: {node: c}}")
		id := c.freezeClaim(c.nodes[2]).ID
		apply("{}")
		ended := func() (r client.Run) {
			eventually(t, "run "+id.String()+" has ended", func() bool {
				r, err = c.nodes[0].Run(t.Context(), id)
				return err == nil && r.State == job.StateDone
			})
			return r
		}
		ended()
		c.nodes[2].proxy.delay(0)
		c.nodes[2].signal(syscall.SIGCONT)
		back := time.Now()
		eventually(t, "node c starts runs again", func() bool {
			for _, r := range c.runs(job.StateDone) {
				if r.Node == "c" && r.Due.After(back) && r.Outcome == job.OutcomeSucceeded {
					return true
				}
			}
			return false
		})
		r := ended()
		if r.Outcome != job.OutcomeSucceeded || len(r.Attempts) != 2 || r.Attempts[0].Node != "c" || r.Attempts[1].Node == "c" {
			t.Fatalf("the run has ended as %s after the attempts %+v", r.Outcome, r.Attempts)
		}
		first := r.Attempts[0]
		var silent int
		if _, err := fmt.Sscanf(first.Reason, "node c was silent for %d s", &silent); first.Outcome != job.OutcomeLost || err != nil ||
			time.Duration(silent)*time.Second < c.lostAfter || first.Started.Before(r.Scheduled) {
			t.Errorf("the attempt of the frozen node is %+v", first)
		}
		starts := 0
		for _, e := range c.events() {
			if e.Kind == evidence.Start && e.Run == id.String() {
				starts++
			}
		}
		if starts != 1 {
			t.Errorf("the run has started %d times", starts)
		}
	})
}

// answerDelay is how much later each answer of a database arrives.
const answerDelay = 200 * time.Millisecond

// freezeClaim stops a node that has claimed a run and not started it, and returns the run.
func (c *cluster) freezeClaim(n *node) (run client.Run) {
	c.t.Helper()
	eventually(c.t, "node "+n.name+" is stopped between a claim and the start", func() bool {
		for _, r := range c.runs(job.StateRunning) {
			if r.Node != n.name || time.Until(r.Due) < answerDelay/4 {
				continue
			}
			n.signal(syscall.SIGSTOP)
			if time.Until(r.Due) < answerDelay/10 {
				n.signal(syscall.SIGCONT) // it may have started
				return false
			}
			run = r
			return true
		}
		return false
	})
	return run
}
