package web

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// executorsView is the list of executors of XXL-JOB.
type executorsView struct {
	*Layout
	Lead   string
	Tabs   []tab
	Groups []executorGroup
}

// executorGroup are the executors that registered with one name.
type executorGroup struct {
	Name    string
	Jobs    string // how many jobs name it
	Unnamed bool   // by any job
	Running int
	Rows    []executorRow
}

type executorRow struct {
	Address, Generation string
	State               State
	Running             int
	Seen                When
}

// quietAfter is how long after its last beat a page says that an executor is quiet: it gives
// one each half a minute.
const quietAfter = 45 * time.Second

func (s *site) executors(p *page) error {
	l := p.layout("executors.title", "nodes")
	page, err := s.Service.Executors.List(p.ctx(), p.who)
	if err != nil {
		return err
	}
	v := executorsView{Layout: l, Tabs: p.nodeTabs("executors")}
	running, empty, at := 0, 0, map[string]int{}
	for _, g := range page.Groups {
		at[g.Group] = len(v.Groups)
		key := "executors.jobs"
		if !page.AllJobs {
			key = "executors.jobs_at_least"
		}
		v.Groups = append(v.Groups, executorGroup{Name: clean(g.Group), Jobs: p.T(key, "n", g.Jobs), Unnamed: g.Jobs == 0 && page.AllJobs})
		if g.Executors == 0 {
			empty++
		}
	}
	for i := range page.Items {
		e := &page.Items[i]
		group := &v.Groups[at[e.Group]]
		running, group.Running = running+e.Running, group.Running+e.Running
		group.Rows = append(group.Rows, p.executorRow(e))
	}
	v.Lead = p.T("executors.lead", "n", len(page.Items), "groups", len(v.Groups)-empty, "running", running)
	if empty > 0 {
		v.Lead += p.T("executors.lead_empty", "n", empty)
	}
	if len(v.Groups) == 0 {
		v.Lead = p.T("executors.none")
	}
	l.Again = 5 // a beat is no event
	l.Events = "kind=run.running&kind=run.done"
	l.Commands = []Command{{p.T("command.shell"), "belfry xxl executors"}, {"curl", p.curl("GET", "/api/v1/xxl/executors", "")}}
	return p.show("executors", v)
}

// addressesOf returns the executors of a group.
func (s *site) addressesOf(p *page, group string) (list []string, err error) {
	all, err := s.Service.Executors.Addresses(p.ctx(), p.who, group)
	for _, address := range all {
		list = append(list, clean(address))
	}
	return list, err
}

func (p *page) executorRow(e *client.Executor) executorRow {
	row := executorRow{Address: clean(e.Address), Generation: p.T("executors.generation"), Running: e.Running, Seen: p.relative(e.Seen)}
	if e.Generation != "" {
		row.Generation = p.T("executors.generation_of", "name", e.Generation)
	}
	row.State = State{Class: "ok", Icon: "ok", Text: p.T("executors.online")}
	switch {
	case e.Seen.IsZero():
		row.State, row.Seen = State{Class: "mute", Icon: "edit", Text: p.T("executors.listed")}, When{}
	case p.now.Sub(e.Seen) > quietAfter:
		row.State = State{Class: "warn", Icon: "lost", Text: p.T("executors.quiet")}
	}
	return row
}

// nodeTabs are the pages about what does the work.
func (p *page) nodeTabs(current string) []tab {
	return []tab{
		{Name: p.T("nodes.title"), Address: "/nodes", Current: current == "nodes"},
		{Name: p.T("executors.title"), Address: "/executors", Current: current == "executors"},
	}
}

// shard is one share of work that is split, as the pages of all show it.
type shard struct {
	Number, Address string
	State           State
	Where, Took     string
	Reason          string
	This            bool
}

const (
	// shardsLook is how many runs around one are looked at for the others of its shards.
	shardsLook = service.PageMax
	// shardsApart is how much later than one shard another may have ended.
	shardsApart = time.Hour
)

// shardsOf returns the runs that share the work of a run, by their number.
func (s *site) shardsOf(p *page, r *client.Run) (list []shard, counts string, err error) {
	if r.Shards < 2 || r.Step != "" {
		return nil, "", nil
	}
	runs, err := s.sameWork(p.ctx(), p.who, r, p.now)
	if err != nil {
		return nil, "", err
	}
	done := 0
	for i := range runs {
		other := &runs[i]
		one := shard{
			Number: p.T("run.shard_of", "i", other.Shard+1, "n", other.Shards), Address: "/runs/" + other.ID.String(), State: p.runState(other),
			Where: clean(other.Node), This: other.ID == r.ID,
		}
		if one.This && r.Executor != "" {
			one.Where = clean(r.Executor)
		}
		if d := p.duration(other); d > 0 {
			one.Took = p.took(d)
		}
		if other.State == job.StateDone {
			done++
		}
		if other.Outcome != job.OutcomeSucceeded {
			one.Reason = p.reason(other.Value())
		}
		list = append(list, one)
	}
	return list, p.T("run.shards_done", "i", done, "n", r.Shards), nil
}

// sameWork finds the runs that were made together with one.
func (s *site) sameWork(ctx context.Context, who service.Caller, r *client.Run, now time.Time) ([]client.Run, error) {
	to := now.Add(time.Second)
	if !r.Ended.IsZero() && r.Ended.Add(shardsApart).Before(to) {
		to = r.Ended.Add(shardsApart)
	}
	runs := []client.Run{*r}
	for _, q := range []client.RunQuery{
		{Job: r.Job, States: []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning}, PageSize: shardsLook},
		{Job: r.Job, States: []job.RunState{job.StateDone}, From: r.Scheduled, To: to, PageSize: shardsLook},
	} {
		if !q.To.IsZero() && !q.From.Before(q.To) {
			continue
		}
		list, err := s.Service.Runs.List(ctx, who, q)
		if err != nil {
			return nil, err
		}
		for _, other := range list.Items {
			isNew := !slices.ContainsFunc(runs, func(known client.Run) bool { return known.ID == other.ID })
			if isNew && other.Kind == r.Kind && other.Key == r.Key && other.Shards == r.Shards {
				runs = append(runs, other)
			}
		}
	}
	slices.SortFunc(runs, func(a, b client.Run) int { return a.Shard - b.Shard })
	return runs, nil
}

// executorFact is who outside does the work of a run.
func (p *page) executorFact(r *client.Run) []fact {
	if r.Executor == "" {
		return nil
	}
	at := fact{Name: p.T("run.executor"), Value: clean(r.Executor), Link: "/executors#" + anchor(r.Executor), Mono: true}
	if strings.Contains(r.Executor, "/belfry-") { // a Job of Kubernetes, which is not on the page of executors
		at.Link = ""
	}
	return []fact{at}
}

// anchor is the place of an executor on its page.
func anchor(address string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, fmt.Sprint("x-", address))
}
