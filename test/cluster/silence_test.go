//go:build servers

package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
	"github.com/belfry-cron/belfry/test/servers"
)

// Bounds on the silence of a job that is due each second, on a quiet machine; docs/testing.md has the
// table of what was measured. A job whose run a node held when it was cut off waits until its
// lost_after has passed.
const (
	killedSilence    = 3 * time.Second
	allKilledSilence = 6 * time.Second
	awaySilence      = 3 * time.Second // beyond the outage
	leaderSilence    = 6 * time.Second
	cutSilence       = 2 * time.Second // beyond lost_after
	takenOverSilence = 1500 * time.Millisecond
	// A database keeps the locks of a transaction on a half-open connection for 5 s.
	lockedSilence = 5*time.Second + takenOverSilence
)

// slowAnswer is how much later each answer of a slow database arrives.
const slowAnswer = 500 * time.Millisecond

// outage is how long a database is away.
const outage = 10 * time.Second

// busyFor is how long the runs of the busy jobs are running.
const busyFor = 700 * time.Millisecond

// beats is how many jobs are due each second, unless the environment says more.
const beats = 16

// beat makes jobs that are due each second: three quarters of them end at once, and the runs of the
// others are running for the most part of it.
func (c *cluster) beat(jobs int) {
	c.t.Helper()
	c.began = time.Now().Add(5 * time.Second).Truncate(time.Second)
	for i := range jobs {
		name, words := fmt.Sprint("quick", i), []string{"fast"}
		if i%4 == 0 {
			name, words = fmt.Sprint("busy", i), append(words, "for="+busyFor.String())
		}
		c.add(evidence.Job{Name: name, Slots: 1}, fmt.Sprintf("lost_after: %s, kill_grace: 0s", c.lostAfter), words...)
	}
	<-time.After(time.Until(c.began.Add(4 * time.Second)))
}

// silence is the longest time between two starts of a job, without the second of its schedule.
type silence struct {
	job  string
	span time.Duration
}

// silences returns the silences of all jobs since a moment, from the longest.
func (c *cluster) silences(since time.Time) (all []silence) {
	c.t.Helper()
	starts := map[string][]time.Time{}
	for _, e := range c.events() {
		if e.Kind == evidence.Start && e.At.After(since.Add(-3*time.Second)) {
			starts[e.Job] = append(starts[e.Job], e.At)
		}
	}
	for _, j := range c.jobs {
		list := append(starts[j.Name], time.Now())
		slices.SortFunc(list, time.Time.Compare)
		s := silence{job: j.Name}
		for i := 1; i < len(list); i++ {
			s.span = max(s.span, list[i].Sub(list[i-1])-time.Second)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b silence) int { return int(b.span - a.span) })
	return all
}

// disturbance is a fault and the silence that it may cause.
type disturbance struct {
	what  string
	fault func()
	lasts time.Duration
	mend  func()
	// of is the node that it hits, nil for all.
	of *node
	// bound is of all jobs or, where the node keeps the runs that it holds, of the jobs of these. It begins
	// at the end of a fault that no node can work around.
	bound        time.Duration
	keeps, stops bool
	// others is the bound of the other jobs where a node keeps its runs.
	others time.Duration
}

// disturb measures the silences of a fault, which comes while the busy jobs run.
func (c *cluster) disturb(d *disturbance) evidence.Span {
	c.t.Helper()
	c.steady()
	late := c.latest(time.Now().Add(-3 * time.Second))
	eventually(c.t, "a node holds a run", func() bool {
		return slices.ContainsFunc(c.runs(job.StateRunning), func(r client.Run) bool {
			since := time.Since(r.Due)
			return (d.of == nil || r.Node == d.of.name) && strings.Contains(r.Job, "/busy") && since > busyFor/7 && since < busyFor/2
		})
	})
	down := evidence.Span{From: time.Now()}
	d.fault()
	<-time.After(time.Until(down.From.Add(d.lasts)))
	d.mend()
	down.To = time.Now()
	for _, n := range c.nodes {
		eventually(c.t, "node "+n.name+" is live again", func() bool { return n.live(n.name) })
	}
	c.steady()
	bound := d.bound
	if d.stops {
		bound += down.To.Sub(down.From)
	}
	slack := tickSlack*time.Second + lateSlack*late
	held := map[string]bool{}
	if d.keeps {
		held = c.held(d.of, down)
	}
	var worst, others silence
	for _, s := range c.silences(down.From) {
		if d.keeps && !held[s.job] {
			others.span = max(others.span, s.span)
			if s.span > d.others+slack {
				c.t.Errorf("%s: %s was silent for %s, want at most %s: the node held no run of it", d.what, s.job, s.span, d.others)
			}
			continue
		}
		if s.span > worst.span {
			worst = s
		}
		if s.span > bound+slack {
			c.t.Errorf("%s: %s was silent for %s, want at most %s", d.what, s.job, s.span, bound)
			c.tell(s.job, down.From)
		}
	}
	c.t.Logf("%s, for %.1f s at starts up to %.3f s late: silent for %.2f s (%s)", d.what, down.To.Sub(down.From).Seconds(), late.Seconds(), worst.span.Seconds(), worst.job)
	if d.keeps {
		c.t.Logf("%s: the node held runs of %d jobs; all others were silent for at most %.2f s", d.what, len(held), others.span.Seconds())
	}
	return down
}

// held returns the jobs of which a node held a run when it was cut off.
func (c *cluster) held(by *node, down evidence.Span) map[string]bool {
	c.t.Helper()
	held := map[string]bool{}
	for _, r := range c.runs(job.StateDone, job.StateRunning) {
		if r.Node == by.name && r.Claimed.Before(down.From.Add(100*time.Millisecond)) && (r.Ended.IsZero() || r.Ended.After(down.From.Add(-100*time.Millisecond))) {
			held[r.Job] = true
		}
	}
	return held
}

// steady waits until each job has started in each of the last three seconds but one.
func (c *cluster) steady() {
	c.t.Helper()
	began := time.Now()
	eventually(c.t, "all jobs start each second", func() bool {
		<-time.After(100 * time.Millisecond)
		started := map[string]map[int64]bool{}
		for _, e := range c.events() {
			if e.Kind == evidence.Start {
				if started[e.Job] == nil {
					started[e.Job] = map[int64]bool{}
				}
				started[e.Job][e.Scheduled.Unix()] = true
			}
		}
		last := time.Now().Add(-time.Second - time.Since(began)/4).Unix()
		for _, j := range c.jobs {
			for i := range int64(3) {
				if !started[j.Name][last-i] {
					return false
				}
			}
		}
		return true
	})
}

// Each job is due each second. What a fault costs it is bounded for each kind of fault.
func TestSilencesAreBounded(t *testing.T) {
	for _, name := range databases() {
		t.Run(name, func(t *testing.T) {
			c := start(t, name)
			c.beat(beats)
			weak := c.nodes[2]
			var down []evidence.Span
			for _, d := range []disturbance{
				{what: "a node is killed", of: weak, fault: weak.kill, lasts: beyondSession, mend: weak.start, bound: killedSilence},
				{what: "all nodes are killed and started", fault: c.killAll, mend: c.startAll, bound: allKilledSilence},
				{what: "the database is away", fault: c.killDatabase, lasts: outage, mend: c.startDatabase, bound: awaySilence, stops: true},
				{
					what: "the network of a node is cut", fault: func() { weak.proxy.turn(cut) }, lasts: 2 * beyondSession, mend: func() { weak.proxy.turn(fair) },
					bound: c.lostAfter + cutSilence, of: weak, keeps: true, others: takenOverSilence,
				},
				{
					what: "the network of a node is silent", fault: func() { weak.proxy.turn(silent) }, lasts: 2 * beyondSession, mend: func() { weak.proxy.turn(fair) },
					bound: c.lostAfter + cutSilence, of: weak, keeps: true, others: takenOverSilence,
				},
				{
					what: "the connections of a node are half-open", fault: weak.proxy.strand, lasts: 2 * beyondSession, mend: func() {},
					bound: c.lostAfter + cutSilence, of: weak, keeps: true, others: lockedSilence,
				},
				{what: "each answer is late", fault: func() { c.delay(slowAnswer) }, lasts: outage, mend: func() { c.delay(0) }, bound: awaySilence, stops: true},
				{
					what: "the database does what it is asked, and answers nothing", fault: func() { c.turn(mute) }, lasts: outage, mend: func() { c.turn(fair) },
					bound: awaySilence, stops: true,
				},
			} {
				down = append(down, c.disturb(&d))
			}
			c.finish(down...)
		})
	}
}

func (c *cluster) delay(by time.Duration) {
	for _, n := range c.nodes {
		n.proxy.delay(by)
	}
}

func (c *cluster) killAll() {
	for _, n := range c.nodes {
		n.kill()
	}
}

func (c *cluster) startAll() {
	for _, n := range c.nodes {
		n.launch()
	}
	for _, n := range c.nodes {
		n.await()
	}
}

// The leader of an etcd of three members is killed, and the nodes know all three.
func TestSilenceOfAKilledLeaderIsBounded(t *testing.T) {
	if !slices.Contains(databases(), "etcd") {
		return
	}
	members, err := servers.NewEtcdCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, m := range members {
		t.Cleanup(func() { _ = m.Close() })
		hosts = append(hosts, strings.TrimPrefix(m.URL(), "http://"))
	}
	address, err := url.Parse(members[0].URL())
	if err != nil {
		t.Fatal(err)
	}
	c := startOn(t, members[0], address, three, func(n *node) { n.store = "etcd://" + strings.Join(hosts, ",") })
	c.beat(beats)
	var leader *servers.Etcd
	c.finish(c.disturb(&disturbance{
		what: "the leader of etcd is killed", lasts: beyondSession, bound: leaderSilence,
		fault: func() {
			leader = leaderOf(t, members)
			if err := leader.Kill(); err != nil {
				t.Fatal(err)
			}
		},
		mend: func() {
			if err := leader.Start(); err != nil {
				t.Fatal(err)
			}
		},
	}))
}

// leaderOf returns the member of an etcd that leads it.
func leaderOf(t *testing.T, members []*servers.Etcd) (leader *servers.Etcd) {
	t.Helper()
	eventually(t, "etcd has a leader", func() bool {
		for _, m := range members {
			answer, err := http.Post(m.URL()+"/v3/maintenance/status", "application/json", bytes.NewReader([]byte("{}")))
			if err != nil {
				continue
			}
			var status struct {
				Header struct {
					Member string `json:"member_id"`
				}
				Leader string
			}
			err = json.NewDecoder(answer.Body).Decode(&status)
			answer.Body.Close()
			if err == nil && status.Leader != "" && status.Leader == status.Header.Member {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}
