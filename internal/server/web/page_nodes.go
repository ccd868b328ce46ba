package web

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// nodesView is the list of nodes.
type nodesView struct {
	*Layout
	Tabs      []tab
	Lead, Sub string
	Notes     []nodeNote
	Rows      []nodeRow
	Gone      []nodeRow
	// StoreName is the program of the store, with its version.
	StoreName   string
	Store, Late []fact
	LateOf      string
}

// nodeNote is a warning about a node.
type nodeNote struct{ Title, Text string }

type nodeRow struct {
	Name              string
	State             State
	Roles             string
	Labels            []string
	Running, Capacity int
	Share             template.HTML
	Backlog           int
	Clock             string
	ClockOff          bool
	Version           string
	Reaches           []string // the container engine and the clusters that it works with
	Up                string
	Renewed           When
	Drained, CanDrain bool
	DrainText         string
	Address           string
	Store, StoreMore  string // how long the store takes for a call, and for which
	Far               bool
	Partitions        int
	Hour              template.HTML // what it has started in the last hour
	HourCount         string
	Left              When
}

const (
	// clockOff is by how much a clock may differ before the page says so.
	clockOff = 0.5
	// far is how many seconds a call of the store usually takes from a node that the page calls
	// far from it: within a data center it takes some milliseconds, from the next continent 100.
	far = 0.05
	// lateSpan is of which time the page says how late runs started, and lateFor for how long
	// that is kept: the page is read again each second.
	lateSpan = time.Hour
	lateFor  = 10 * time.Second
)

// startsStep is how many minutes a mark of the last hour stands for.
const startsStep = 3

// precise writes seconds as milliseconds with a digit behind them.
func (p *page) precise(seconds float64) string {
	return fmt.Sprintf("%.1f %s", seconds*1000, units[p.lang][4])
}

var nodeLooks = map[string]State{
	"live":    {Class: "ok", Icon: "ok"},
	"drained": {Class: "mute", Icon: "drain"},
	"leaving": {Class: "warn", Icon: "drain"},
	"silent":  {Class: "lost", Icon: "lost"},
	"left":    {Class: "mute", Icon: "skip"},
}

func (s *site) nodes(p *page) error {
	l := p.layout("nodes.title", "nodes")
	list, err := s.Service.Nodes.All(p.ctx(), p.who)
	if err != nil {
		return err
	}
	about, err := s.Service.Nodes.About(p.ctx(), p.who)
	if err != nil {
		return err
	}
	late, err := s.lateness(p)
	if err != nil {
		return err
	}
	v := nodesView{Layout: l, Tabs: p.nodeTabs("nodes"), StoreName: about.StoreVersion, Store: p.storeFacts(&about, list)}
	v.Late, v.LateOf = p.lateFacts(late), p.lateOf(late)
	live, running, capacity, ready := 0, 0, 0, 0
	versions := map[string]bool{}
	for i := range list {
		n := &list[i]
		row := p.nodeRow(n)
		row.Left = p.relative(cmp.Or(n.Left, n.Renewed))
		if n.State == "left" || n.State == "silent" && n.Running == 0 {
			v.Gone = append(v.Gone, row)
			continue
		}
		if n.State == "live" {
			live++
			running, capacity, ready = running+n.Running, capacity+n.Capacity, ready+n.Ready
		}
		if n.Version != "" {
			versions[n.Version] = true
		}
		v.Rows = append(v.Rows, row)
		if note := p.nodeNote(n, list); note.Title != "" {
			v.Notes = append(v.Notes, note)
		}
	}
	v.Lead, v.Sub = p.T("nodes.lead", "n", live), p.T("nodes.slots", "running", number(int64(running)), "capacity", number(int64(capacity)))
	if ready > 0 {
		v.Sub += " " + p.T("nodes.waiting", "n", ready)
	}
	if len(versions) > 1 {
		v.Sub += " " + p.T("nodes.versions", "list", strings.Join(slices.Sorted(maps.Keys(versions)), p.T("comma")))
	}
	l.Events, l.Again = "kind=node&kind=run.running&kind=run.done", 3
	l.Commands = []Command{{p.T("command.shell"), "belfry node list"}, {"curl", p.curl("GET", "/api/v1/nodes", "")}}
	return p.show("nodes", v)
}

func (p *page) nodeRow(n *client.Node) nodeRow {
	state := nodeLooks[n.State]
	state.Text = p.T("node." + n.State)
	row := nodeRow{
		Name: n.Name, State: state, Roles: strings.Join(n.Roles, ", "), Running: n.Running, Capacity: n.Capacity, Backlog: n.Ready,
		Share: picture(draw.Share(float64(n.Running), float64(n.Capacity), draw.Run)), Version: n.Version, Up: p.coarse(p.now.Sub(n.Joined)),
		Renewed: p.relative(n.Renewed), Drained: n.State == "drained", CanDrain: n.State == "live" && p.who.May(administer) == nil, Address: n.Address,
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		row.Labels = append(row.Labels, key+"="+n.Labels[key])
	}
	if n.Engine != "" {
		row.Reaches = append(row.Reaches, n.Engine)
	}
	for _, handler := range n.Handlers {
		if cluster, is := job.ClusterOf(handler); is {
			row.Reaches = append(row.Reaches, "Kubernetes "+cluster)
		}
	}
	ahead := time.Duration(n.ClockAhead * float64(time.Second))
	row.Clock, row.ClockOff = fmt.Sprintf("%+d %s", ahead.Milliseconds(), units[p.lang][4]), n.ClockAhead > clockOff || n.ClockAhead < -clockOff
	row.Far = n.StoreP50 >= far
	if n.StoreP50 > 0 {
		row.Store, row.StoreMore = p.precise(n.StoreP50), "p50 "+p.precise(n.StoreP50)+", p99 "+p.precise(n.StoreP99)
	} else if n.StoreRead > 0 {
		row.Store, row.StoreMore = p.precise(n.StoreRead), p.T("nodes.last_read")
	}
	row.Partitions = n.Partitions
	if len(n.Starts) > 0 {
		sum, marks := 0, []draw.Mark{}
		for i := 0; i < len(n.Starts); i += startsStep {
			part := 0
			for _, count := range n.Starts[i:min(i+startsStep, len(n.Starts))] {
				part += count
			}
			class := draw.OK
			if part == 0 {
				class = draw.Mute
			}
			marks = append(marks, draw.Mark{Class: class, Value: float64(part), Title: p.T("nodes.started", "n", part, "d", p.coarse(startsStep*time.Minute))})
			sum += part
		}
		row.HourCount = number(int64(sum))
		row.Hour = picture(draw.Strip(p.T("nodes.hour_of", "n", sum), marks))
	}
	if n.DrainedBy != "" {
		row.DrainText = strings.TrimSuffix(p.T("nodes.drained_by", "who", n.DrainedBy, "when", p.distance(n.DrainedSince))+": "+clean(n.DrainReason), ": ")
	}
	return row
}

// nodeNote says that a node is far from its store, or has a wrong clock.
func (p *page) nodeNote(n *client.Node, all []client.Node) (note nodeNote) {
	if n.StoreP50 >= far {
		note = nodeNote{p.T("nodes.far", "name", n.Name), p.T("nodes.far_calls", "d", p.precise(n.StoreP50))}
		if best := nearest(all); best.StoreP50 < n.StoreP50 {
			note.Text = p.T("nodes.far_calls_than", "d", p.precise(n.StoreP50), "other", p.precise(best.StoreP50), "node", best.Name)
		}
	}
	if ahead := time.Duration(n.ClockAhead * float64(time.Second)); ahead.Abs().Seconds() > clockOff {
		key := "nodes.clock_ahead"
		if ahead < 0 {
			key = "nodes.clock_behind"
		}
		if note.Title == "" {
			note.Title = p.T("nodes.clock_off", "name", n.Name)
		}
		note.Text = strings.TrimSpace(note.Text + " " + p.T(key, "d", p.took(ahead.Abs())))
	}
	return note
}

// nearest is the node that the store answers soonest.
func nearest(all []client.Node) (best client.Node) {
	for i := range all {
		if n := &all[i]; n.StoreP50 > 0 && (best.StoreP50 == 0 || n.StoreP50 < best.StoreP50) {
			best = *n
		}
	}
	return best
}

// storeFacts are what the server says of its store, and how fast the store answers it and the
// node that it answers slowest.
func (p *page) storeFacts(about *client.Server, all []client.Node) []fact {
	var own, slowest *client.Node
	for i := range all {
		n := &all[i]
		if n.StoreP50 == 0 || n.State == "left" {
			continue
		}
		if n.Name == p.site.Node {
			own = n
		}
		if slowest == nil || n.StoreP50 > slowest.StoreP50 {
			slowest = n
		}
	}
	answers := func(n *client.Node) string {
		return p.T("nodes.answers_to", "p50", p.precise(n.StoreP50), "p99", p.precise(n.StoreP99), "node", p.site.host(n.Name))
	}
	var list []fact
	if own != nil {
		list = append(list, fact{Name: p.T("nodes.answers"), Value: answers(own)})
	}
	if slowest != nil && slowest != own {
		list = append(list, fact{Name: p.T("nodes.slowest"), Value: answers(slowest)})
	}
	list = append(list, fact{Name: p.T("settings.address"), Value: about.Store, Mono: true}, fact{Name: p.T("settings.history"), Value: about.History, Mono: true})
	if !about.Backup.IsZero() {
		list = append(list, fact{Name: p.T("settings.backup"), Value: p.distance(about.Backup)})
	}
	return slices.DeleteFunc(list, func(f fact) bool { return f.Value == "" })
}

// lateness is how long after they were due runs started that ended lately.
type lateness struct {
	read    time.Time
	late    []time.Duration // in order
	longest client.Run
	cut     bool // there were more
}

// lateness reads how late the runs started that ended in the last hour.
func (s *site) lateness(p *page) (*lateness, error) {
	old, _ := s.late.Load(p.who.Says())
	if l, _ := old.(*lateness); l != nil && p.now.Sub(l.read).Abs() < lateFor {
		return l, nil
	}
	l, err := s.latenessOf(p, client.RunQuery{From: p.now.Add(-lateSpan)})
	if err != nil {
		return nil, err
	}
	s.late.Store(p.who.Says(), l)
	return l, nil
}

// latenessOf reads how late the runs started that ended within a span, at most PageMax of them. First
// attempts on nodes count: a retry is due later, and what others report is not started by a node.
func (s *site) latenessOf(p *page, q client.RunQuery) (*lateness, error) {
	q.States, q.PageSize = []job.RunState{job.StateDone}, service.PageMax
	page, err := s.Service.Runs.List(p.ctx(), p.who, q)
	if err != nil {
		return nil, err
	}
	l := &lateness{read: p.now, cut: page.NextPageToken != ""}
	longest := time.Duration(-1)
	for i := range page.Items {
		r := &page.Items[i]
		if r.Attempt != 1 || r.Node == "" || r.Started.IsZero() {
			continue
		}
		late := max(r.Started.Sub(r.Due), 0)
		l.late = append(l.late, late)
		if late > longest {
			longest, l.longest = late, *r
		}
	}
	slices.Sort(l.late)
	return l, nil
}

// lateFacts says how late runs started.
func (p *page) lateFacts(l *lateness) []fact {
	n := len(l.late)
	if n == 0 {
		return nil
	}
	at := func(percent int) string { return p.took(l.late[(n*percent+99)/100-1]) }
	over, _ := slices.BinarySearch(l.late, time.Second+1)
	return []fact{
		{Name: "p50", Value: at(50)}, {Name: "p99", Value: at(99)},
		{Name: p.T("nodes.late_longest"), Value: p.took(l.late[n-1]) + p.T("comma") + l.longest.Job, Link: "/runs/" + l.longest.ID.String()},
		{Name: p.T("nodes.late_over", "d", p.coarse(time.Second)), Value: number(int64(n - over))},
	}
}

// lateOf says of which runs the nodes tell how late they started.
func (p *page) lateOf(l *lateness) string {
	switch n := len(l.late); {
	case n == 0:
		return p.T("nodes.late_none")
	case l.cut:
		return p.T("nodes.late_last", "n", n)
	default:
		return p.T("nodes.late_hour", "n", n)
	}
}
