//go:build servers

package cluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

const (
	// tickers is how many jobs fall due each second.
	tickers = 20
	// killedMost is how many occurrences a job each second may miss when a process is
	// killed, and lostMost when its machine is lost: the default lost_after of such a
	// job, and two seconds.
	killedMost = 3
	lostMost   = 22
	// tickSlack is for a machine that is busy, and lateSlack how many more occurrences each
	// second costs by which the latest start before the kill was late: what a restart needs
	// takes longer there by as much, and more.
	tickSlack = 2
	lateSlack = 3
	// nearTick is how close to the second half of the kills are: then most is claimed.
	nearTick = 50 * time.Millisecond
)

// tick makes the jobs that fall due each second, with the default policy.
func (c *cluster) tick() {
	c.t.Helper()
	c.began = time.Now().Add(5 * time.Second).Truncate(time.Second)
	for i := range tickers {
		c.add(evidence.Job{Name: fmt.Sprint("tick", i), Slots: 1}, "", "fast")
	}
}

// killAt returns a moment at which to kill a node, some seconds from now: every second one
// is close to the second.
func killAt(random *rand.Rand, i int) time.Time {
	at := time.Now().Add(3 * time.Second).Truncate(time.Second)
	if i%2 == 0 {
		return at.Add(time.Duration(random.Int64N(int64(2 * nearTick)))).Add(-nearTick)
	}
	return at.Add(time.Duration(random.Int64N(int64(time.Second))))
}

// missed returns how many ticks of a time did not start, of the job that missed most, and
// of all jobs.
func (c *cluster) missed(from, to time.Time) (worst string, most, all int) {
	c.t.Helper()
	started := map[string]map[int64]bool{}
	for _, e := range c.events() {
		if e.Kind == evidence.Start {
			if started[e.Job] == nil {
				started[e.Job] = map[int64]bool{}
			}
			started[e.Job][e.Scheduled.Unix()] = true
		}
	}
	for _, j := range c.jobs {
		n := 0
		for at := from.Truncate(time.Second); at.Before(to); at = at.Add(time.Second) {
			if !at.Before(c.began) && !started[j.Name][at.Unix()] {
				n++
			}
		}
		if all += n; n > most {
			worst, most = j.Name, n
		}
	}
	return worst, most, all
}

// tell logs what became of the ticks of a job, with times in seconds since a kill.
func (c *cluster) tell(name string, killed time.Time) {
	c.t.Helper()
	page, err := c.nodes[0].Runs(c.t.Context(), client.RunQuery{Job: name, From: killed.Add(-2 * time.Second), PageSize: 50})
	if err != nil {
		c.t.Fatal(err)
	}
	since := func(at time.Time) string {
		if at.IsZero() {
			return "-"
		}
		return fmt.Sprintf("%.3f", at.Sub(killed).Seconds())
	}
	for _, r := range slices.Backward(page.Items) {
		c.t.Logf("%s due %s, claimed %s, started %s, ended %s on %s: %s %s", name, since(r.Scheduled), since(r.Claimed), since(r.Started), since(r.Ended), r.Node, r.Outcome, r.Reason)
	}
}

// latest returns by how much the latest start since a moment was late.
func (c *cluster) latest(since time.Time) (late time.Duration) {
	c.t.Helper()
	for _, e := range c.events() {
		if e.Kind == evidence.Start && e.At.After(since) {
			late = max(late, e.At.Sub(e.Scheduled))
		}
	}
	return late
}

// kills kills nodes, one after the other, and demands that no job misses more than n
// occurrences each time.
func (c *cluster) kills(times int, kill func(*node), dead time.Duration, want int) {
	c.t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("BELFRY_SEED"); given != "" {
		seed, _ = strconv.ParseUint(given, 10, 64)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	c.tick()
	<-time.After(time.Until(c.began.Add(3 * time.Second)))
	var down []evidence.Span
	for i := range times {
		n := c.nodes[1+i%2]
		late := c.latest(time.Now().Add(-3 * time.Second))
		at := killAt(random, i)
		<-time.After(time.Until(at))
		kill(n)
		killed := time.Now()
		<-time.After(dead)
		n.start()
		<-time.After(3 * time.Second)
		worst, most, all := c.missed(at.Add(-time.Second), time.Now().Add(-2*time.Second))
		c.t.Logf("BELFRY_SEED=%d: killed %s after the second, starts were up to %s late: a job missed at most %d occurrences, all %d jobs %d",
			seed, at.Sub(at.Truncate(time.Second)), late, most, tickers, all)
		if most > want {
			c.tell(worst, killed)
		}
		if most > want+tickSlack+int(lateSlack*late.Seconds()) {
			c.t.Errorf("a job missed %d occurrences, want at most %d", most, want)
		}
		down = append(down, evidence.Span{From: at.Add(-time.Second), To: killed.Add(dead)})
	}
	c.finish(down...)
}

func TestAKilledProcessCostsFewOccurrences(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) { c.kills(6, (*node).kill, 10*time.Second, killedMost) })
}

func TestALostMachineCostsNoMoreThanLostAfter(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) { c.kills(2, (*node).lose, 28*time.Second, lostMost) })
}

// lose ends the process and its watchdog, as the loss of a machine does.
func (n *node) lose() {
	n.t.Helper()
	n.signal(syscall.SIGSTOP) // so that it starts no other watchdog
	if err := syscall.Kill(n.watchdog(), syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	n.kill()
}

// watchdog returns the process that ends what runs when the node dies.
func (n *node) watchdog() int {
	n.t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range files {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if len(fields) > 1 && fields[1] == strconv.Itoa(n.cmd.Process.Pid) && bytes.HasPrefix(line, []byte("belfry-watchdog\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return pid
		}
	}
	n.t.Fatalf("node %s has no watchdog", n.name)
	return 0
}

// absence is how long no node runs, twice as long as the grace.
const absence = 2 * grace

// grace is the part of an absence before its end whose latest occurrence is on time.
const grace = 30 * time.Second

func TestAnAbsenceOfAllNodesFollowsTheMissedPolicy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		const every = 5 * time.Second
		args, err := json.Marshal([]string{c.evidence(), "fast"})
		if err != nil {
			t.Fatal(err)
		}
		policies := []string{"none", "latest", "all"}
		for _, missed := range policies {
			c.nodes[0].apply(fmt.Sprintf("name: %s\nschedule: {every: %s, start: %q}\nrun: {shell: {command: %q, args: %s}}\npolicy: {missed: %s, late_by: forever}\n",
				missed, every, time.Now().Truncate(every).Format(time.RFC3339), programs.witness, args, missed))
		}
		started := func() map[string][]time.Time {
			all := map[string][]time.Time{}
			for _, e := range c.events() {
				if e.Kind == evidence.Start {
					all[e.Job] = append(all[e.Job], e.Scheduled)
				}
			}
			return all
		}
		since := func(at time.Time) bool {
			all := started()
			for _, missed := range policies {
				if !slices.ContainsFunc(all["default/"+missed], func(s time.Time) bool { return s.After(at) }) {
					return false
				}
			}
			return true
		}
		eventually(t, "all jobs run", func() bool { return since(time.Time{}) })
		c.nodes[1].kill()
		c.nodes[0].stop()
		c.nodes[2].stop()
		<-time.After(absence)
		for _, n := range c.nodes {
			n.start()
		}
		eventually(t, "all jobs run again", func() bool { return since(time.Now().Add(-every)) })

		from, to := c.absent("default/none")
		before := func(list []time.Time) (some []time.Time) {
			for _, at := range list {
				if at.After(from.Add(2*time.Second)) && at.Before(to.Add(-grace)) { // what was claimed before the stop may still start
					some = append(some, at)
				}
			}
			return some
		}
		var due []time.Time
		for at := from.Truncate(every); at.Before(to); at = at.Add(every) {
			due = append(due, at)
		}
		early := before(due)
		eventually(t, "all that was missed runs", func() bool { return len(before(started()["default/all"])) == len(early) })
		if to.Truncate(every).Equal(to) {
			return // its end is known to the second: whether the last occurrence fell due before it is not
		}
		latest := due[len(due)-1]
		for missed, ran := range started() {
			for _, at := range due {
				switch did := slices.ContainsFunc(ran, at.Equal); {
				case at.Before(from.Add(2 * time.Second)): // what was claimed before the stop may still start
				case missed == "default/all" || at.Equal(latest):
					if !did {
						t.Errorf("%s: of the absence from %s to %s the occurrence of %s did not run", missed, from, to, at)
					}
				case did:
					t.Errorf("%s: of the absence from %s to %s the occurrence of %s ran, which was not the latest", missed, from, to, at)
				}
			}
		}
	})
}

// absent returns the absence of all nodes that the records of a job name.
func (c *cluster) absent(name string) (from, to time.Time) {
	c.t.Helper()
	eventually(c.t, "a record names the absence", func() bool {
		page, err := c.nodes[0].Runs(c.t.Context(), client.RunQuery{Job: name, Outcomes: []job.Outcome{job.OutcomeMissed}})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, r := range page.Items {
			reason, _, _ := strings.Cut(r.Reason, ",")
			var a, b string
			if _, err := fmt.Sscanf(reason, "no node was running from %s to %s", &a, &b); err != nil {
				continue
			}
			var errs [2]error
			from, errs[0] = time.Parse(time.RFC3339, a)
			to, errs[1] = time.Parse(time.RFC3339, b)
			return errors.Join(errs[:]...) == nil
		}
		return false
	})
	return from, to
}

// An outage that is longer than the lost_after of the job: no node was silent, so that none
// is gone.
func TestBroadcastRunsOutliveAnOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		<-time.After(5 * time.Second) // the nodes read every 2 s who is there
		c.nodes[0].apply("name: all\nschedule: {every: 2s}\nrun: {shell: 'true'}\nplace: {strategy: broadcast}\npolicy: {overlap: allow, missed: all, late_by: forever}\n")
		<-time.After(6 * time.Second)
		if err := c.database.Stop(); err != nil {
			t.Fatal(err)
		}
		away := time.Now()
		<-time.After(35 * time.Second)
		if err := c.database.Start(); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		nodes := map[int64][]string{}
		complete := func(at time.Time) bool {
			slices.Sort(nodes[at.Unix()])
			return slices.Equal(nodes[at.Unix()], []string{"a", "b", "c"})
		}
		until := back.Add(20 * time.Second)
		eventually(t, "all nodes run what falls due", func() bool {
			clear(nodes)
			for _, r := range c.runs(job.StateDone) {
				if r.Outcome != job.OutcomeSucceeded {
					t.Fatalf("the run of %s on %s is %s: %s", r.Scheduled, r.Node, r.Outcome, r.Reason)
				}
				nodes[r.Scheduled.Unix()] = append(nodes[r.Scheduled.Unix()], r.Node)
			}
			return time.Now().After(until.Add(5*time.Second)) && complete(until.Truncate(2*time.Second))
		})
		for at := away.Add(-2 * time.Second).Truncate(2 * time.Second); at.Before(until); at = at.Add(2 * time.Second) {
			if !complete(at) {
				t.Errorf("the occurrence of %s, %s after the database was back, ran on %v", at, at.Sub(back), nodes[at.Unix()])
			}
		}
	})
}

// Runs that ended by themselves while their node was stopped, and were taken for lost, are
// as they ended once the node can say so, also when their timeout has passed meanwhile.
func TestALateResultReplacesLost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		args, err := json.Marshal([]string{c.evidence(), "for=3s"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, asked := t.Context(), c.nodes[0]
		runs := make([]client.Run, 6)
		for i := range runs {
			name := fmt.Sprint("late", i)
			asked.apply(fmt.Sprintf("name: %s\nrun: {shell: {command: %q, args: %s}}\nplace: {strategy: last}\npolicy: {lost_after: 9s, kill_grace: 0s, timeout: 6s}\n", name, programs.witness, args))
			if runs[i], err = asked.RunJob(ctx, "default", name, client.RunRequest{}, ""); err != nil {
				t.Fatal(err)
			}
		}
		are := func(what string, outcome job.Outcome) {
			t.Helper()
			eventually(t, what, func() bool {
				for i := range runs {
					if runs[i], err = asked.Run(ctx, runs[i].ID); err != nil || runs[i].Outcome != outcome {
						return false
					}
				}
				return true
			})
		}
		eventually(t, "all have started", func() bool { return len(c.events()) == len(runs) })
		c.nodes[2].signal(syscall.SIGSTOP)
		are("they are lost", job.OutcomeLost)
		c.nodes[2].signal(syscall.SIGCONT)
		are("they are as they ended", job.OutcomeSucceeded)
		for _, r := range runs {
			if len(r.Attempts) != 1 || r.Node != "c" {
				t.Errorf("run %s on %s has the attempts %+v", r.ID, r.Node, r.Attempts)
			}
		}
	})
}
