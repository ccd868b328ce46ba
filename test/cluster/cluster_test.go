//go:build servers

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// beyondSession is longer than a node is believed to live that says nothing, 6 s.
const beyondSession = 10 * time.Second

// lateMax bounds how late an unclaimed run starts when something went
// wrong: five times the 1.5 s of docs/benchmarks.md, on machines that are busy.
const lateMax = 7500 * time.Millisecond

// restartedMax bounds how late nearly all runs start while nodes are restarted one after the
// other: five times the 100 ms of docs/benchmarks.md, likewise.
const restartedMax = 500 * time.Millisecond

// cluster is nodes on one database, three if a test says nothing else, and the jobs that they run.
type cluster struct {
	t        testing.TB
	dir      string
	database database
	nodes    []*node
	jobs     []evidence.Job
	created  []evidence.Span // of each job, from the request to its answer
	began    time.Time
	// lostAfter is the lost_after of the jobs.
	lostAfter time.Duration
	// rules has what reasons may name of the jobs' policies, by their full name.
	rules map[string]truth.Rule
	// edited has what edits of jobs leave open, by their full name.
	edited map[string]*evidence.Job
	// renewals ends the watch on the nodes, and returns their sessions.
	renewals func() map[job.ID]*truth.Session
	// load is the highest load of the machine for a processor.
	load float64
}

// each makes a test of each database, which has a server and three nodes of its own.
func each(t *testing.T, test func(t *testing.T, c *cluster)) {
	for _, name := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, name))
		})
	}
}

// start starts a database server and three nodes.
func start(t testing.TB, name string) *cluster { return startWith(t, name, three, func(*node) {}) }

// startWith starts some nodes, and prepares each of them before.
func startWith(t testing.TB, name string, nodes int, prepare func(*node)) *cluster {
	t.Helper()
	server, address := startDatabase(t, name)
	return startOn(t, server, address, nodes, prepare)
}

// three is the number of nodes of most tests.
const three = 3

func newCluster(t testing.TB) *cluster {
	return &cluster{t: t, dir: t.TempDir(), lostAfter: 9 * time.Second, edited: map[string]*evidence.Job{}, rules: map[string]truth.Rule{}}
}

// startOn starts some nodes on a database.
func startOn(t testing.TB, server database, address *url.URL, nodes int, prepare func(*node)) *cluster {
	t.Helper()
	c := newCluster(t)
	c.database = server
	for i, name := range []string{"a", "b", "c", "d", "e"}[:nodes] {
		dir := filepath.Join(c.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		n := &node{t: t, name: name, dir: dir, proxy: newProxy(t, port(t, address))}
		store := *address
		store.Host = fmt.Sprintf("127.0.0.1:%d", n.proxy.address())
		n.store = store.String()
		if i > 0 {
			n.token = c.nodes[0].token
		}
		t.Cleanup(n.end)
		prepare(n)
		n.start()
		c.nodes = append(c.nodes, n)
	}
	c.renewals = c.watch()
	return c
}

func port(t testing.TB, u *url.URL) (port int) {
	t.Helper()
	if _, err := fmt.Sscan(u.Port(), &port); err != nil {
		t.Fatal(err)
	}
	return port
}

func (c *cluster) evidence() string { return filepath.Join(c.dir, "evidence") }

// create makes the jobs: some that do nothing, one that is tried again when its node is
// lost, and one that is longer than the second between two occurrences and has one slot.
func (c *cluster) create() {
	c.t.Helper()
	c.began = time.Now().Add(5 * time.Second).Truncate(time.Second)
	add := func(expect evidence.Job, policy string, words ...string) {
		c.t.Helper()
		c.add(expect, fmt.Sprintf("lost_after: %s, kill_grace: 0s, missed: all, %s", c.lostAfter, policy), words...)
	}
	for i := range 6 {
		add(evidence.Job{Name: fmt.Sprintf("beat%d", i)}, "overlap: allow")
	}
	add(evidence.Job{Name: "again", Retries: 3}, "overlap: allow, retry: {attempts: 3, backoff: 0s, on: [lost]}", "for=300ms")
	add(evidence.Job{Name: "slot", Slots: 1}, "overlap: skip", "slots=1", "for=1300ms")
}

// events returns what the jobs have written so far.
func (c *cluster) events() []evidence.Event {
	c.t.Helper()
	data, err := os.ReadFile(c.evidence())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	events, err := evidence.Parse(string(data))
	if err != nil {
		c.t.Fatal(err)
	}
	return events
}

// calm waits until every job that has a slot for each occurrence is punctual again: all
// that fell due more than a second ago has started, for three seconds. The longer it waits,
// the later runs may start: a machine that is busy enough never becomes so punctual.
func (c *cluster) calm() {
	c.t.Helper()
	began := time.Now()
	eventually(c.t, "the cluster is punctual again", func() bool {
		started := map[int64]int{}
		for _, e := range c.events() {
			if e.Kind == evidence.Start && e.Job != "default/slot" {
				started[e.Scheduled.Unix()]++
			}
		}
		last := time.Now().Add(-time.Second - time.Since(began)/4).Truncate(time.Second)
		for i := range 3 {
			if started[last.Add(-time.Duration(i)*time.Second).Unix()] < len(c.jobs)-1 {
				return false
			}
		}
		return true
	})
}

// withstand lets a fault happen while the jobs run, and returns what has happened once
// it is over and all nodes are punctual again.
func (c *cluster) withstand(lasts time.Duration, fault, mend func()) *history {
	c.t.Helper()
	c.create()
	// While runs are claimed and start.
	<-time.After(time.Until(c.began.Add(4*time.Second + 20*time.Millisecond)))
	down := evidence.Span{From: time.Now()}
	fault()
	<-time.After(time.Until(down.From.Add(lasts)))
	mend()
	down.To = time.Now()
	for _, n := range c.nodes {
		eventually(c.t, "node "+n.name+" is live again", func() bool { return n.live(n.name) })
	}
	c.calm()
	return c.finish(down)
}

// finish pauses all jobs, waits until all is over, and returns what has happened.
func (c *cluster) finish(down ...evidence.Span) *history {
	c.t.Helper()
	jobs := slices.Clone(c.jobs)
	for i := range jobs {
		jobs[i] = c.pause(jobs[i], c.created[i])
	}
	over := false
	defer func() {
		if !over {
			c.tellLeft()
		}
	}()
	eventually(c.t, "all runs end", func() bool {
		over = len(c.runs(job.StateReady, job.StateWaiting, job.StateRunning)) == 0
		return over
	})
	h := &history{t: c.t, runs: c.runs(job.StateDone)}
	h.Jobs, h.Down, h.Events = jobs, down, c.events()
	var steps []client.Run
	for i, r := range h.runs {
		whole := c.run(r.ID)
		h.runs[i] = whole
		steps = append(steps, c.stepsOf(whole.Steps)...)
		record := evidence.Record{
			Job: r.Job, Run: r.ID.String(), Kind: string(r.Kind), Scheduled: r.Scheduled, Until: r.Until, Outcome: string(r.Outcome),
		}
		for _, a := range whole.Attempts {
			record.Attempts = append(record.Attempts, string(a.Outcome))
		}
		h.Records = append(h.Records, record)
	}
	untrue := c.judge(slices.Concat(h.runs, steps), h.Events, c.renewals())
	violations := evidence.Check(h.History)
	for _, v := range violations {
		c.t.Errorf("%s: %s", v.Invariant, v.Text)
	}
	if len(violations)+len(untrue) > 0 {
		c.explain(h)
	}
	h.measure()
	return h
}

// run returns a run with its attempts.
func (c *cluster) run(id job.ID) client.Run {
	c.t.Helper()
	r, err := c.nodes[0].Run(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// stepsOf returns the runs of steps of a flow.
func (c *cluster) stepsOf(list []client.StepState) (runs []client.Run) {
	for i := range list {
		if !list[i].Run.IsZero() {
			runs = append(runs, c.run(list[i].Run))
		}
		runs = append(runs, c.stepsOf(list[i].Items)...)
	}
	return runs
}

// explain logs what a violation may come from. The logs of the nodes follow at the end of
// the test.
func (c *cluster) explain(h *history) {
	c.t.Helper()
	for i, j := range h.Jobs {
		c.t.Logf("%s: created %v, paused %v, named %v", j.Name, c.created[i], j.Open[1], j.Named)
	}
	for _, r := range h.Records {
		c.t.Logf("record: %+v", r)
	}
	for _, e := range h.Events {
		c.t.Logf("evidence: %s", e.Line())
	}
	nodes, err := c.nodes[0].Nodes(c.t.Context())
	c.t.Logf("nodes: %+v, %v", nodes.Items, err)
	audit, err := c.nodes[0].Audit(c.t.Context(), client.AuditQuery{PageSize: 500})
	c.t.Logf("audit: %+v, %v", audit.Items, err)
}

// pause pauses a job for good, and returns what is expected of it until then. Attempts that
// the answer names as claimed may still start.
func (c *cluster) pause(j evidence.Job, created evidence.Span) evidence.Job {
	c.t.Helper()
	paused := evidence.Span{From: time.Now()}
	answer, err := c.nodes[0].Pause(c.t.Context(), "default", strings.TrimPrefix(j.Name, "default/"), client.PauseRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	paused.To = time.Now()
	j.Between(c.began, time.Second, created, paused)
	j.Named = map[string]int{}
	nameClaimed(&j, &answer)
	if edits := c.edited[j.Name]; edits != nil {
		j.Open, j.Withdrawn = append(j.Open, edits.Open...), append(j.Withdrawn, edits.Withdrawn...)
		for run, attempt := range edits.Named {
			j.Named[run] = max(j.Named[run], attempt)
		}
	}
	return j
}

// nameClaimed adds what an answer names as claimed.
func nameClaimed(j *evidence.Job, answer *client.Change) {
	for _, r := range slices.Concat(answer.Running, answer.MayStart) {
		j.Named[r.ID.String()] = r.Attempt
	}
}

// runs returns all runs in some states.
func (c *cluster) runs(states ...job.RunState) []client.Run {
	c.t.Helper()
	var all []client.Run
	q := client.RunQuery{States: states, PageSize: 500}
	for {
		page, err := c.nodes[0].Runs(c.t.Context(), q)
		if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, page.Items...)
		if page.NextPageToken == "" {
			return all
		}
		q.PageToken = page.NextPageToken
	}
}

// history is what has happened in a test, with what was measured of it.
type history struct {
	evidence.History
	t    testing.TB
	runs []client.Run

	outcomes map[job.Outcome]int
	late     []time.Duration // of first attempts, without the slotted job, from the least
	gap      time.Duration   // the longest time without a start
}

func (h *history) measure() {
	h.outcomes = map[job.Outcome]int{}
	for _, r := range h.runs {
		h.outcomes[r.Outcome] += max(1, r.Count)
	}
	var starts []time.Time
	for _, e := range h.Events {
		if e.Kind != evidence.Start {
			continue
		}
		starts = append(starts, e.At)
		if e.Attempt == 1 && e.Job != "default/slot" {
			h.late = append(h.late, e.At.Sub(e.Scheduled))
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	for i := 1; i < len(starts); i++ {
		h.gap = max(h.gap, starts[i].Sub(starts[i-1]))
	}
	slices.Sort(h.late)
	occurrences := 0
	for _, j := range h.Jobs {
		occurrences += len(j.Occurrences)
	}
	h.t.Logf("%d occurrences of %d jobs: %v; late p50 %s, p99 %s, at most %s; longest time without a start %s",
		occurrences, len(h.Jobs), h.outcomes, h.percentile(50), h.percentile(99), h.percentile(100), h.gap.Round(time.Millisecond))
}

func (h *history) percentile(p int) time.Duration {
	return h.late[(len(h.late)-1)*p/100].Round(100 * time.Microsecond)
}

// punctual demands that no run started, and at no time nothing started, later than a
// bound.
func (h *history) punctual(bound time.Duration) {
	h.t.Helper()
	if late := h.percentile(100); late > bound {
		h.t.Errorf("a run started %s late, want at most %s", late, bound)
	}
	if h.gap > time.Second+bound {
		h.t.Errorf("nothing started for %s, want at most %s", h.gap, time.Second+bound)
	}
}

// lostBy demands that one node had all attempts that were lost; "" is of none.
func (h *history) lostBy(name string) {
	h.t.Helper()
	for _, r := range h.runs {
		for _, a := range r.Attempts {
			if a.Outcome == job.OutcomeLost && a.Node != name {
				h.t.Errorf("%s: attempt %d of run %s on %s was lost: %s", r.Job, a.Number, r.ID, a.Node, a.Reason)
			}
		}
	}
}

func TestANodeIsKilled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		h := c.withstand(beyondSession, c.nodes[2].kill, c.nodes[2].start)
		h.punctual(lateMax)
		h.lostBy("c")
	})
}

func TestANodeIsFrozen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		h := c.withstand(beyondSession, func() { c.nodes[2].signal(syscall.SIGSTOP) }, func() { c.nodes[2].signal(syscall.SIGCONT) })
		h.punctual(lateMax)
		h.lostBy("c")
	})
}

func TestANodeIsCutOff(t *testing.T) {
	for name, w := range map[string]weather{"by ends of its connections": cut, "by silence": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, c *cluster) {
				h := c.withstand(beyondSession, func() { c.nodes[2].proxy.turn(w) }, func() { c.nodes[2].proxy.turn(fair) })
				h.punctual(lateMax)
				h.lostBy("c")
			})
		})
	}
}

func TestAllNodesAreCutOff(t *testing.T) {
	for name, w := range map[string]weather{"by ends of their connections": cut, "by silence": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, c *cluster) {
				turn := func(w weather) {
					for _, n := range c.nodes {
						n.proxy.turn(w)
					}
				}
				h := c.withstand(beyondSession, func() { turn(w) }, func() { turn(fair) })
				h.punctual(h.Down[0].To.Sub(h.Down[0].From) + lateMax)
			})
		})
	}
}

func TestTheDatabaseIsRestarted(t *testing.T) {
	for name, end := range map[string]func(database) error{"gently": database.Stop, "after a crash": database.Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, c *cluster) {
				must := func(err error) {
					if err != nil {
						t.Fatal(err)
					}
				}
				h := c.withstand(3*time.Second, func() { must(end(c.database)) }, func() { must(c.database.Start()) })
				h.punctual(h.Down[0].To.Sub(h.Down[0].From) + lateMax)
			})
		})
	}
}

func TestRollingRestart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		h := c.withstand(0, func() {
			for _, n := range c.nodes {
				n.stop()
				n.start()
			}
		}, func() {})
		h.punctual(lateMax)
		if late := h.percentile(99); late > restartedMax {
			t.Errorf("of all runs 99 %% started up to %s late, want at most %s", late, restartedMax)
		}
		h.lostBy("")
	})
}

// The short form: what takes least time of all that can go wrong, on machines that may
// be busy. The lateness of runs is logged, and bounded by the patience of the tests alone.
func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		c.cancels(10)
		// So that a node which has no processor for seconds is not lost as well: what the
		// killed one ran is given up when it is back.
		c.lostAfter = patience
		c.withstand(beyondSession, c.nodes[2].kill, func() {
			c.nodes[2].start()
			c.nodes[1].stop()
			c.nodes[1].start()
		})
	})
}

func TestACancelReachesAnotherNode(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) { c.cancels(50) })
}

// cancelMax bounds how long most cancels take to end a run on another node, since a machine may
// stand still during one of them: 100 ms on PostgreSQL and a second elsewhere are what is promised
// of machines that are not busy, and docs/benchmarks.md has what was measured.
const cancelMax = 10 * time.Second

// cancels asks one node to cancel runs of another, and measures how long that takes.
func (c *cluster) cancels(n int) {
	c.t.Helper()
	ctx, asked := c.t.Context(), c.nodes[0]
	asked.apply("name: long\nrun: {shell: exec sleep 1000}\nplace: {strategy: last}\n")
	var took []time.Duration
	for tries := 0; len(took) < n; tries++ {
		run, err := asked.RunJob(ctx, "default", "long", client.RunRequest{}, "")
		if err != nil {
			c.t.Fatal(err)
		}
		look := func(state job.RunState) {
			c.t.Helper()
			eventually(c.t, fmt.Sprintf("run %s is %s", run.ID, state), func() bool {
				run, err = asked.Run(ctx, run.ID)
				return err == nil && run.State == state
			})
		}
		look(job.StateRunning)
		// The last one is c, unless that was silent for seconds.
		elsewhere := run.Node != asked.name
		if !elsewhere && tries > 2*n {
			c.t.Fatalf("run %s is on node %s as many before it, want c", run.ID, run.Node)
		}
		sent := time.Now()
		if _, err := asked.Cancel(ctx, run.ID, client.CancelRequest{}); err != nil {
			c.t.Fatal(err)
		}
		look(job.StateDone)
		if run.Outcome != job.OutcomeCancelled || len(run.Attempts) != 1 {
			c.t.Fatalf("run %s is %s after %d attempts", run.ID, run.Outcome, len(run.Attempts))
		}
		if elsewhere {
			took = append(took, run.Attempts[0].Ended.Sub(sent))
		}
	}
	slices.Sort(took)
	c.t.Logf("%d cancels of runs on another node: p50 %s, at most %s", n, took[n/2].Round(100*time.Microsecond), took[n-1].Round(100*time.Microsecond))
	if took[n/2] > cancelMax {
		c.t.Errorf("half of the cancels took %s or more, want at most %s", took[n/2], cancelMax)
	}
}

// Any node serves the events of the others.
func TestEachNodeServesTheEventsOfAll(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) {
		c.nodes[1].apply("name: quick\nrun: {shell: 'true'}\nplace: {strategy: last}\n")
		// One that begins to tell late is a gap, after which a client begins anew. Each
		// node tells in its order, and one of them may be slower than another.
		want := []string{"run.done", "run.ready", "run.running"}
		enough := errors.New("all events have come")
		eventually(t, "the end of a run on another node is an event", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var run client.Run
			var kinds []string
			err := c.nodes[0].Events(ctx, client.EventQuery{Kinds: []string{"run"}}, func() {
				var err error
				if run, err = c.nodes[1].RunJob(ctx, "default", "quick", client.RunRequest{}, ""); err != nil {
					t.Error(err)
				}
			}, func(e client.Event) error {
				if e.Kind == client.EventGap {
					return errors.New("a gap")
				}
				if e.Run != nil && e.Run.ID == run.ID {
					kinds = append(kinds, e.Kind)
				}
				if len(kinds) == len(want) {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Logf("told were %v, then %v", kinds, err)
				return false
			}
			if slices.Sort(kinds); !slices.Equal(kinds, want) {
				t.Errorf("told were %v, want %v", kinds, want)
			}
			return true
		})
	})
}
