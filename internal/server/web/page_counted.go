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
	"github.com/belfry-cron/belfry/job"
)

const (
	// countedPage is how many lanes of jobs a page has, and countedMax how many jobs lanes of namespaces and
	// labels are made of.
	countedPage = 100
	countedMax  = 300
	// dueShown is how many jobs that will start are drawn, startsEach how many starts of each: a job with
	// more runs oftener than every ten minutes, and is a line.
	dueShown   = 300
	startsEach = 72
	// A job is dense if it ended in denseOf out of ten columns: it is a line as well.
	denseOf = 7
	// idleShown is how many jobs without a start are named.
	idleShown = 40
)

// The heights of what lanes show, as shares of a lane.
const (
	lineHigh  = 0.17
	planHigh  = 0.25
	quietHigh = 0.5
	leastFail = 0.4
)

// laneView is lanes of jobs, from what is counted about them.
type laneView struct {
	Jobs   string
	Sum    string
	Text   string // of the filter
	By     string
	Groups []laneGroup
	Idle   []laneRow
	IdleOf string
	IdleTo string // how many more there are
	Axis   template.HTML
	Next   string
}

// laneGroup is lanes under a title.
type laneGroup struct {
	Title string
	Rows  []laneRow
}

// laneRow is one lane.
type laneRow struct {
	Namespace, Name, Full, Address string
	Picture                        template.HTML
	Number                         string
	IsBad                          bool
}

// laneCounts is what is known about a lane.
type laneCounts struct {
	client.Lane
	link    string
	running []client.Run
	planned []bool // by column
	always  bool   // it has starts in almost every column
}

// countedLanes draws what ended, runs and will start, by job, namespace or label.
func (s *site) countedLanes(p *page, v *timelineView, from, to time.Time, step time.Duration) error {
	search := splitSearch(p.query("q"))
	by := p.query("by")
	q := client.LanesQuery{Namespace: v.Namespace, Text: search.words, Labels: search.labels, From: from, To: earlier(to, p.now), Step: step, PageSize: countedPage, PageToken: p.query("page")}
	if by != "" {
		q.PageSize = countedMax
	}
	if !from.Before(p.now) { // nothing has ended: the names of the jobs alone are wanted
		q.To = to
	}
	lanes, err := s.Service.Stats.Lanes(p.ctx(), p.who, q)
	if err != nil {
		return err
	}
	c := &v.Counted
	c.Text, c.By = p.query("q"), by
	c.Jobs = p.T("timeline.lane_jobs", "n", lanes.Jobs)
	if lanes.Next != "" && by == "" {
		c.Next = p.with("page", lanes.Next)
	}
	columns := int(to.Sub(from) / step)
	list := make([]*laneCounts, len(lanes.Items))
	byJob := make(map[string]*laneCounts, len(list))
	labels := make([]map[string]string, len(list))
	runs, failed := 0, 0
	for i := range lanes.Items {
		one := &laneCounts{Lane: lanes.Items[i], link: "/jobs/" + lanes.Items[i].Job, planned: make([]bool, columns)}
		list[i], byJob[one.Job], labels[i] = one, one, one.Labels
		runs, failed = runs+one.Runs, failed+one.Failed
	}
	c.Sum = p.T("timeline.lane_sum", "runs", p.T("timeline.lane_runs", "n", runs), "bad", p.T("timeline.lane_failed", "n", failed), "d", p.took(step))
	if err := s.comingOf(p, v, byJob, from, to, step); err != nil {
		return err
	}
	laneTabs(p, v, labels)
	if by != "" {
		list = grouped(p, list, by, columns)
	}
	c.rows(p, list, from, step, by == "")
	length, now := to.Sub(from).Minutes(), -1.0
	if p.now.After(from) && p.now.Before(to) {
		now = p.now.Sub(from).Minutes()
	}
	c.Axis = picture(draw.Axis(p.ticks(from, to), length, now, p.T("now")+" "+p.now.In(p.zone).Format("15:04")))
	return nil
}

// comingOf adds what runs, and the starts to come.
func (s *site) comingOf(p *page, v *timelineView, byJob map[string]*laneCounts, from, to time.Time, step time.Duration) error {
	if from.Before(p.now) {
		active, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{Namespace: v.Namespace, States: []job.RunState{job.StateRunning}, PageSize: laneRuns})
		if err != nil {
			return err
		}
		for i := range active.Items {
			if one := byJob[active.Items[i].Job]; one != nil && active.Items[i].Parent.IsZero() {
				one.running = append(one.running, active.Items[i])
			}
		}
	}
	if !to.After(p.now) {
		return nil
	}
	planned, err := s.Service.Load.Planned(p.ctx(), p.who, v.Namespace, later(from, p.now), to, dueShown, startsEach)
	if err != nil {
		return err
	}
	for i := range planned {
		one := byJob[planned[i].Job]
		if one == nil {
			continue
		}
		one.always = planned[i].More
		for _, at := range planned[i].Times {
			if column := int(at.Sub(from) / step); column >= 0 && column < len(one.planned) {
				one.planned[column] = true
			}
		}
	}
	return nil
}

// grouped adds up lanes by namespace or by the value of a label.
func grouped(p *page, list []*laneCounts, by string, columns int) []*laneCounts {
	key, isLabel := strings.CutPrefix(by, byLabel)
	groups := map[string]*laneCounts{}
	for _, one := range list {
		name, _ := splitName(one.Job)
		link := p.with("namespace", name, "by", "")
		if isLabel {
			value, ok := one.Labels[key]
			if name, link = key+"="+value, "/jobs?q="+template.URLQueryEscaper("label:"+key+"="+value); !ok {
				name, link = p.T("timeline.no_label", "key", key), ""
			}
		}
		g := groups[name]
		if g == nil {
			g = &laneCounts{Lane: client.Lane{Job: name}, link: link, planned: make([]bool, columns)}
			groups[name] = g
		}
		g.Runs, g.Failed, g.always = g.Runs+one.Runs, g.Failed+one.Failed, g.always || one.always
		g.running = append(g.running, one.running...)
		for i, planned := range one.planned {
			g.planned[i] = g.planned[i] || planned
		}
		g.add(one.Buckets)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *laneCounts) int { return cmp.Compare(a.Job, b.Job) })
}

// add adds buckets to the lane, in the order of time.
func (c *laneCounts) add(more []client.StatsBucket) {
	for i := range more {
		at, found := slices.BinarySearchFunc(c.Buckets, more[i].Start, func(b client.StatsBucket, start time.Time) int { return b.Start.Compare(start) })
		if !found {
			c.Buckets = slices.Insert(c.Buckets, at, client.StatsBucket{Start: more[i].Start, Outcomes: map[job.Outcome]int{}})
		}
		for outcome, n := range more[i].Outcomes {
			c.Buckets[at].Outcomes[outcome] += n
		}
	}
}

// isIdle reports whether nothing is to be drawn.
func (c *laneCounts) isIdle() bool {
	return c.Runs == 0 && c.Failures == 0 && len(c.running) == 0 && !c.always && !slices.Contains(c.planned, true)
}

// rows makes the rows, jobs with trouble in a group of their own.
func (v *laneView) rows(p *page, list []*laneCounts, from time.Time, step time.Duration, ofJobs bool) {
	var bad, well []laneRow
	for _, one := range list {
		row := one.row(p, from, step)
		if !ofJobs {
			row.Namespace, row.Name = "", one.Job
		}
		switch {
		case ofJobs && one.HasTrouble():
			bad = append(bad, row)
		case ofJobs && one.isIdle():
			v.Idle = append(v.Idle, row)
		default:
			well = append(well, row)
		}
	}
	switch {
	case !ofJobs:
		v.Groups = []laneGroup{{"", well}}
	default:
		if len(bad) > 0 {
			v.Groups = append(v.Groups, laneGroup{p.T("timeline.trouble", "n", len(bad)), bad})
		}
		if len(well) > 0 {
			v.Groups = append(v.Groups, laneGroup{p.T("timeline.well", "n", len(well)), well})
		}
	}
	if n := len(v.Idle); n > 0 {
		v.IdleOf = p.T("timeline.idle", "n", n)
		if n > idleShown {
			v.Idle, v.IdleTo = v.Idle[:idleShown], p.T("timeline.idle_more", "n", n-idleShown)
		}
	}
}

// row draws a lane.
func (c *laneCounts) row(p *page, from time.Time, step time.Duration) laneRow {
	row := laneRow{Full: c.Job, Address: c.link, IsBad: c.Failed > 0, Number: number(int64(c.Runs))}
	row.Namespace, row.Name = splitName(c.Job)
	if c.Failed > 0 {
		row.Number = p.T("timeline.lane_failed", "n", c.Failed)
	}
	columns := len(c.planned)
	past := max(min(int(p.now.Sub(from)/step), columns), 1)
	isLine := len(c.Buckets)*10 >= past*denseOf && past >= 10
	slots := c.past(p, from, step, isLine)
	for i := range c.running {
		r := &c.running[i]
		begin := max(r.Started.Sub(from).Minutes()/step.Minutes(), 0)
		end := min(p.now.Sub(from).Minutes()/step.Minutes(), float64(columns))
		if end > begin {
			slots = append(slots, draw.Slot{From: begin, To: max(end, begin+0.6), Class: draw.Run, High: 0.7, Title: r.Job + ": " + p.markOf(r).Title, Link: "/runs/" + r.ID.String()})
		}
	}
	now := max(p.now.Sub(from).Minutes()/step.Minutes(), 0)
	if c.always && now < float64(columns) {
		slots = append(slots, draw.Slot{From: now, To: float64(columns), Class: draw.Next, High: lineHigh, Title: p.T("timeline.often")})
	} else {
		for i, planned := range c.planned {
			if planned {
				slots = append(slots, draw.Slot{From: float64(i), To: float64(i) + 0.7, Class: draw.Next, High: planHigh})
			}
		}
	}
	row.Picture = picture(draw.Slots(c.Job+": "+p.T("timeline.counted", "good", c.Runs-c.Failed, "bad", c.Failed), float64(columns), slots))
	return row
}

// past draws what ended: a line for a job that ends in most columns, with failures rising out of it.
func (c *laneCounts) past(p *page, from time.Time, step time.Duration, isLine bool) (slots []draw.Slot) {
	for i := range c.Buckets {
		b := &c.Buckets[i]
		at := float64(b.Start.Sub(from) / step)
		bad, all := 0, 0
		class := draw.OK
		for outcome, n := range b.Outcomes {
			all += n
			if outcome.Alarms() {
				if bad += n; class != draw.Lost {
					class = draw.Fail
				}
				if outcome == job.OutcomeLost && bad == n {
					class = draw.Lost
				}
			}
		}
		if bad > 0 {
			title := p.T("timeline.what_when", "when", p.day(b.Start, "15:04"), "what", p.T("timeline.failed", "n", bad, "all", all))
			link := "/runs?from=" + template.URLQueryEscaper(b.Start.UTC().Format(time.RFC3339)) + "&to=" + template.URLQueryEscaper(b.Start.Add(step).UTC().Format(time.RFC3339))
			if strings.Contains(c.Job, "/") {
				link += "&job=" + template.URLQueryEscaper(c.Job)
			}
			slots = append(slots, draw.Slot{From: at, To: at + 1, Class: class, High: max(float64(bad)/float64(all), leastFail), Title: title, Link: link})
			continue
		}
		if b.Outcomes[job.OutcomeSucceeded] == 0 {
			class = draw.Mute
		}
		high, wide := quietHigh, 0.7
		if isLine {
			high, wide = lineHigh, 1
		}
		if last := len(slots) - 1; isLine && last >= 0 && slots[last].Class == class && slots[last].To >= at-1 && slots[last].Link == "" {
			slots[last].To = at + 1 // one shape for all of a line
			continue
		}
		slots = append(slots, draw.Slot{From: at, To: at + wide, Class: class, High: high})
	}
	return slots
}
