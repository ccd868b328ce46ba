package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/job"
)

const (
	// laneRuns is how many of the latest runs are drawn, and lanesMax how many lanes of nodes and pools: more
	// than a screen has rows are not compared any more.
	laneRuns = 500
	lanesMax = 28
	// byLabel begins the name of lanes by the values of a label, and labelTabs is how many labels
	// are offered.
	byLabel   = "label:"
	labelTabs = 3
)

// laneSet is spans by the lane that they are in.
type laneSet struct {
	page  *page
	by    string
	spans map[string][]draw.Span
	links map[string]string
}

// laneOf returns the lane of a run on a node, with a slot of a pool, and where its name leads.
func (l *laneSet) laneOf(node, pool string) (name, link string) {
	p := l.page
	switch {
	case l.by == "pool" && pool == "":
		return p.T("timeline.no_pool"), ""
	case l.by == "pool":
		return pool, ""
	case node == "":
		return p.T("timeline.no_node"), ""
	}
	return node, "/nodes#" + node
}

func (l *laneSet) add(node, pool string, span draw.Span) {
	name, link := l.laneOf(node, pool)
	l.spans[name], l.links[name] = append(l.spans[name], span), link
}

// lanes draws the latest runs of each node or pool side by side.
func (s *site) lanes(p *page, v *timelineView, from, to time.Time) error {
	l := laneSet{page: p, by: p.query("by"), spans: map[string][]draw.Span{}, links: map[string]string{}}
	var runs []client.Run
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
	laneTabs(p, v, nil)
	l.past(runs, from, to)
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
func laneTabs(p *page, v *timelineView, labels []map[string]string) {
	current := p.query("by")
	for _, by := range []string{"", "namespace", "node", "pool"} {
		v.Lane = append(v.Lane, tab{Name: p.T("timeline.by." + cmp.Or(by, "job")), Address: p.with("by", by, "page", ""), Current: current == by})
	}
	count := map[string]int{}
	for _, pairs := range labels {
		for key := range pairs {
			count[key]++
		}
	}
	keys := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	keys = keys[:min(len(keys), labelTabs)]
	if own, isLabel := strings.CutPrefix(current, byLabel); isLabel && !slices.Contains(keys, own) {
		keys = append(keys, own)
	}
	for _, key := range keys {
		v.Lane = append(v.Lane, tab{Name: p.T("timeline.by.label", "key", key), Address: p.with("by", byLabel+key, "page", ""), Current: current == byLabel+key})
	}
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
		l.add(r.Node, r.Pool, draw.Span{From: max(begin.Sub(from).Minutes(), 0), To: max(earlier(end, to).Sub(from).Minutes(), 0), Class: m.Class, Title: r.Job + ": " + m.Title, Link: m.Link})
	}
}
