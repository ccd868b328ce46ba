package web

import (
	"cmp"
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

const (
	// laneRuns is how many of the latest runs are drawn, and lanesMax how many lanes: more than a
	// screen has rows are not compared any more.
	laneRuns = 500
	lanesMax = 28
	// dueShown is how many jobs that will start are drawn.
	dueShown = 100
	// startsEach is how many starts of a job are drawn one by one: more are too close to each
	// other, and become a band. shapesMax bounds them for all jobs.
	startsEach = 72
	shapesMax  = 1500
	// byLabel begins the name of lanes by the values of a label, and labelTabs is how many labels
	// are offered.
	byLabel   = "label:"
	labelTabs = 3
)

// laneSet is spans by the lane that they are in.
type laneSet struct {
	page   *page
	by     string
	labels map[string]map[string]string // of jobs, where lanes are by label
	spans  map[string][]draw.Span
	links  map[string]string
	shapes int
}

// laneOf returns the lane of a run of a job on a node, with a slot of a pool, and where its name
// leads.
func (l *laneSet) laneOf(full, node, pool string) (name, link string) {
	p := l.page
	key, isLabel := strings.CutPrefix(l.by, byLabel)
	switch {
	case isLabel:
		value, ok := l.labels[full][key]
		if !ok {
			return p.T("timeline.no_label", "key", key), ""
		}
		return key + "=" + value, "/jobs?q=" + template.URLQueryEscaper("label:"+key+"="+value)
	case l.by == "namespace":
		name, _ = splitName(full)
		return name, p.with("namespace", name)
	case l.by == "node":
		if node == "" {
			return p.T("timeline.no_node"), ""
		}
		return node, "/nodes#" + node
	case l.by == "pool":
		if pool == "" {
			return p.T("timeline.no_pool"), ""
		}
		return pool, ""
	}
	return full, "/jobs/" + full
}

func (l *laneSet) add(full, node, pool string, span draw.Span) {
	name, link := l.laneOf(full, node, pool)
	l.spans[name], l.links[name] = append(l.spans[name], span), link
	l.shapes++
}

// lanes draws what ran, runs and will run side by side.
func (s *site) lanes(p *page, v *timelineView, from, to time.Time) error {
	l := laneSet{page: p, by: p.query("by"), spans: map[string][]draw.Span{}, links: map[string]string{}}
	var runs []client.Run
	var planned []service.PlannedJob
	if from.Before(p.now) {
		list, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{Namespace: v.Namespace, States: []job.RunState{job.StateDone}, From: from, PageSize: laneRuns})
		if err != nil {
			return err
		}
		runs, v.Cut = list.Items, list.NextPageToken != ""
		active, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{Namespace: v.Namespace, States: []job.RunState{job.StateRunning}, PageSize: laneRuns})
		if err != nil {
			return err
		}
		runs = append(active.Items, runs...)
	}
	if to.After(p.now) && l.by != "node" && l.by != "pool" { // which node will run it is not known
		var err error
		if planned, err = s.Service.Load.Planned(p.ctx(), p.who, v.Namespace, later(from, p.now), to, dueShown, startsEach); err != nil {
			return err
		}
	}
	if err := s.laneTabs(p, v, &l, runs, planned); err != nil {
		return err
	}
	l.past(runs, from, to)
	if err := s.future(p, &l, planned, from, to); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(l.spans))
	if len(names) > lanesMax {
		v.Cut, names = true, names[:lanesMax]
	}
	var lanes []draw.Lane
	for _, name := range names {
		lanes = append(lanes, draw.Lane{Name: name, Link: l.links[name], Spans: l.spans[name]})
	}
	v.LaneN = len(lanes)
	now := -1.0
	if p.now.After(from) && p.now.Before(to) {
		now = p.now.Sub(from).Minutes()
	}
	v.Lanes = picture(draw.Lanes(draw.LanesWide, p.T("timeline.lanes"), lanes, to.Sub(from).Minutes(), p.ticks(from, to), now, p.T("now")))
	return nil
}

// laneTabs offers what lanes can be of: also the labels that most of the jobs have.
func (s *site) laneTabs(p *page, v *timelineView, l *laneSet, runs []client.Run, planned []service.PlannedJob) error {
	l.labels = map[string]map[string]string{}
	for i := range planned {
		l.labels[planned[i].Job] = planned[i].Labels
	}
	own, isLabel := strings.CutPrefix(l.by, byLabel)
	if isLabel {
		var rest []string
		for i := range runs {
			if _, known := l.labels[runs[i].Job]; !known {
				l.labels[runs[i].Job] = nil
				rest = append(rest, runs[i].Job)
			}
		}
		more, err := s.Service.Jobs.Labels(p.ctx(), p.who, rest)
		if err != nil {
			return err
		}
		maps.Copy(l.labels, more)
	}
	for _, by := range []string{"", "namespace", "node", "pool"} {
		v.Lane = append(v.Lane, tab{Name: p.T("timeline.by." + cmp.Or(by, "job")), Address: p.with("by", by), Current: l.by == by})
	}
	count := map[string]int{}
	for _, labels := range l.labels {
		for key := range labels {
			count[key]++
		}
	}
	keys := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	keys = keys[:min(len(keys), labelTabs)]
	if isLabel && !slices.Contains(keys, own) {
		keys = append(keys, own)
	}
	for _, key := range keys {
		v.Lane = append(v.Lane, tab{Name: p.T("timeline.by.label", "key", key), Address: p.with("by", byLabel+key), Current: l.by == byLabel+key})
	}
	return nil
}

// past adds what ran and runs.
func (l *laneSet) past(runs []client.Run, from, to time.Time) {
	p := l.page
	for i := range slices.Backward(runs) {
		r := &runs[i]
		begin, end := cmp.Or(r.Started, r.Due), cmp.Or(r.Ended, p.now)
		if end.Before(from) || begin.After(to) {
			continue
		}
		m := p.markOf(r)
		l.add(r.Job, r.Node, r.Pool, draw.Span{From: max(begin.Sub(from).Minutes(), 0), To: max(earlier(end, to).Sub(from).Minutes(), 0), Class: m.Class, Title: r.Job + ": " + m.Title, Link: m.Link})
	}
}

// future adds each start to come, as long as runs of the job usually take. The starts of a job
// that has many are a band.
func (s *site) future(p *page, l *laneSet, planned []service.PlannedJob, from, to time.Time) error {
	if len(planned) == 0 {
		return nil
	}
	if l.by == "" { // the lanes that are cut need no times
		names := slices.Sorted(maps.Keys(l.spans))
		for i := range planned {
			names = append(names, planned[i].Job)
		}
		slices.Sort(names)
		if names = slices.Compact(names); len(names) > lanesMax {
			planned = slices.DeleteFunc(planned, func(j service.PlannedJob) bool { return j.Job > names[lanesMax] })
		}
	}
	var names []string
	for i := range planned {
		names = append(names, planned[i].Job)
	}
	recent, err := s.Service.Jobs.Recent(p.ctx(), p.who, names, stripRuns)
	if err != nil {
		return err
	}
	least := to.Sub(from) / 360
	for i := range planned {
		j := &planned[i]
		if len(j.Times) == 0 {
			continue
		}
		usual := p.usual(runsOf(recent[j.Job]))
		span := func(begin, end time.Time, title string) {
			l.add(j.Job, "", "", draw.Span{From: begin.Sub(from).Minutes(), To: earlier(end, to).Sub(from).Minutes(), Class: draw.Plan, Title: j.Job + ": " + title, Link: "/jobs/" + j.Job})
		}
		if j.More || l.shapes+len(j.Times) > shapesMax {
			span(j.Times[0], to, p.T("timeline.dense", "n", len(j.Times), "when", p.day(j.Times[len(j.Times)-1], "15:04")))
			continue
		}
		for _, at := range j.Times {
			title := p.day(at, "15:04:05")
			if usual > 0 {
				title += ", " + p.T("timeline.usual", "d", p.took(usual))
			}
			span(at, at.Add(max(usual, least)), title)
		}
	}
	return nil
}
