//go:build servers

package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

const (
	// stalledMax bounds the time of a step from its clock to its commit, and how late what a node wrote
	// is seen, on machines that are busy.
	stalledMax = 2 * time.Second
	// untoldMax is how long the end of an attempt may be unknown when a reason says that it runs: renewals
	// mention it after a second, and are up to 2.5 s old. untoldSlack is added to it for each process that
	// waits for a processor.
	untoldMax   = 4 * time.Second
	untoldSlack = time.Second / 2
)

// load returns how many processes there are for a processor.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var minute float64
	_, _ = fmt.Sscan(string(text), &minute)
	return minute / float64(runtime.NumCPU())
}

// watch records renewals of the nodes, as all of them tell it, until the returned function is called.
func (c *cluster) watch() (stop func() map[job.ID]*truth.Session) {
	sessions := map[job.ID]*truth.Session{}
	ctx, cancel := context.WithCancel(c.t.Context())
	var mu sync.Mutex
	note := func(of client.Node) {
		mu.Lock()
		defer mu.Unlock()
		c.load = max(c.load, load())
		s := sessions[of.Session]
		if s == nil {
			s = &truth.Session{Node: of.Name, HeardAt: []time.Time{of.Joined}}
			sessions[of.Session] = s
		}
		if i, known := slices.BinarySearchFunc(s.HeardAt, of.Renewed, time.Time.Compare); !known {
			s.HeardAt = slices.Insert(s.HeardAt, i, of.Renewed)
		}
		if of.State == "left" && s.Left.IsZero() {
			s.Left = of.Left
		}
	}
	var group sync.WaitGroup
	for _, n := range c.nodes {
		group.Go(func() {
			look := time.NewTicker(300 * time.Millisecond)
			defer look.Stop()
			for ctx.Err() == nil {
				asked := n.asked.Load()
				if asked == nil {
					<-look.C
					continue
				}
				within, cancel := context.WithTimeout(ctx, time.Second)
				nodes, err := asked.Nodes(within)
				cancel()
				if err == nil {
					for _, of := range nodes.Items {
						note(of)
					}
				}
				<-look.C
			}
		})
	}
	return func() map[job.ID]*truth.Session {
		cancel()
		group.Wait()
		return sessions
	}
}

// judge compares the reason of each record with what the jobs have written and the nodes have told.
func (c *cluster) judge(runs []client.Run, events []evidence.Event, sessions map[job.ID]*truth.Session) (untrue []string) {
	c.t.Helper()
	w := &truth.World{
		Records: map[job.ID][]*store.Record{}, Attempts: map[job.ID][]truth.Attempt{}, Claims: map[job.ID][]truth.Claim{}, Sessions: sessions,
		Stalled: stalledMax, Untold: untoldMax + time.Duration(c.load*float64(untoldSlack)), OnItsWay: stalledMax,
		Handed:  func(job.ID, int) bool { return false },
		Changed: func(string, time.Time) bool { return true }, // all are paused at the end
		Rule: func(name string) (truth.Rule, bool) {
			rule, ok := c.rules[name]
			return rule, ok && c.edited[name] == nil
		},
		Texts: map[string]job.Outcome{
			"": job.OutcomeSucceeded, reason.NodeStopped.Of().String(): job.OutcomeLost, reason.NodeFenced.Of().String(): job.OutcomeLost,
		},
	}
	type attempt struct {
		run    job.ID
		number int
	}
	lost, ended := map[attempt]bool{}, map[attempt]time.Time{}
	for _, r := range runs {
		for _, record := range recordsOf(&r) {
			a := attempt{r.ID, record.Attempt.Number}
			lost[a] = record.Attempt.Outcome == job.OutcomeLost || record.Replaces
			ended[a] = record.Attempt.Ended
			w.Records[r.ID] = append(w.Records[r.ID], record)
			if record.Attempt.Number == 0 {
				continue
			}
			at := cmp.Or(record.Claimed, record.Attempt.Started, record.Attempt.Ended)
			w.Claims[r.ID] = append(w.Claims[r.ID], truth.Claim{By: claimer(sessions, record.Attempt.Node, at), Made: at, From: at, To: record.Attempt.Ended})
		}
	}
	w.Lost = func(run job.ID, number int) bool { return lost[attempt{run, number}] }
	for _, e := range events {
		id, err := job.ParseID(e.Run)
		if err != nil {
			c.t.Fatal(err)
		}
		switch list := w.Attempts[id]; e.Kind {
		case evidence.Start: // what has no end was killed, at the latest when the record says so
			w.Attempts[id] = append(list, truth.Attempt{Number: e.Attempt, Started: e.At, Ended: ended[attempt{id, e.Attempt}]})
		case evidence.End:
			for i := range list {
				if list[i].Number == e.Attempt {
					list[i].Ended, list[i].Outcome = e.At, outcomeOf[e.Detail]
				}
			}
		}
	}
	codes := map[string]int{}
	for _, list := range w.Records {
		for _, r := range list {
			if why := r.Attempt.Reason; !why.IsZero() {
				codes[why.Code()]++
			}
		}
	}
	untrue = w.Check()
	for _, text := range untrue {
		c.t.Error(text)
	}
	c.t.Logf("%d reasons of %d runs are untrue, at a load of %.0f: %v", len(untrue), len(runs), c.load, codes)
	return untrue
}

// outcomeOf has the outcomes of the exit codes that the jobs write down.
var outcomeOf = map[string]job.Outcome{"0": job.OutcomeSucceeded, "1": job.OutcomeFailed}

// claimer returns the session of a node that lived at a moment: the last that began before it or, by the
// clocks of two steps, right after it.
func claimer(sessions map[job.ID]*truth.Session, node string, at time.Time) (id job.ID) {
	for _, until := range []time.Time{at, at.Add(stalledMax)} {
		var joined time.Time
		for candidate, s := range sessions {
			if began := s.HeardAt[0]; s.Node == node && !began.After(until) && began.After(joined) {
				id, joined = candidate, began
			}
		}
		if !id.IsZero() {
			return id
		}
	}
	return id
}

// recordsOf returns the records of a run as a store has them.
func recordsOf(r *client.Run) (list []*store.Record) {
	of := job.Run{
		ID: r.ID, JobUID: r.JobUID, Name: r.Job, Kind: r.Kind, Key: r.Key, Scheduled: r.Scheduled, Due: r.Due, Attempt: r.Attempt, Node: r.Node,
		Parent: r.Parent, State: r.State, Outcome: r.Outcome,
	}
	said := func(why *client.Why) job.Reason { return why.ReasonArgs.Reason(why.Reason, why.ReasonCode) }
	for _, a := range r.Attempts {
		list = append(list, &store.Record{Run: of, Replaces: a.Late, Attempt: job.Attempt{
			Run: r.ID, Number: a.Number, Node: a.Node, Started: a.Started, Ended: a.Ended, Outcome: a.Outcome, Reason: said(&a.Why),
		}})
	}
	if last := len(list) - 1; last < 0 || list[last].Attempt.Outcome != r.Outcome || list[last].Attempt.Reason != said(&r.Why) {
		return slices.Insert(list, 0, &store.Record{
			Run: of, Final: true, Count: r.Count, Until: r.Until, Attempt: job.Attempt{Run: r.ID, Node: r.Node, Ended: r.Ended, Outcome: r.Outcome, Reason: said(&r.Why)},
		})
	}
	list[len(list)-1].Final, list[len(list)-1].Claimed = true, r.Claimed
	return list
}
