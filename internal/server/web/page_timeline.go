package web

import (
	"cmp"
	"html/template"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/job"
)

// timelineView shows what ran and what will run, around now.
type timelineView struct {
	*Layout
	Views []tab
	Range string
	Heat  template.HTML
	Lanes template.HTML
	// IsCounted is set for lanes of jobs, which are counted. Lanes of nodes and pools show the latest runs.
	IsCounted bool
	Counted   laneView
	LaneN     int
	Cut       bool
	Crowded   []minuteRow
	Quiet     []minuteRow
	Week      template.HTML
	WeekDone  template.HTML
	Hour      template.HTML // the day to come, by the minutes of the hour
	From, To  int64         // of the picture, in milliseconds since 1970
	// Left and Right are how far its axis is from its edges.
	Left, Right int
	Minute      When // of which the jobs are listed
	Due         []dueRow
	IsWeek      bool
	// Earlier and Later are links to the stretches before and after, "" where there is none; End says why.
	Earlier string
	Later   string
	End     string
	Now     string
	IsMoved bool // the page is not about now
	Per     string
	Lane    []tab // what lanes can be of
	// Measures are what the week can show, and the titles of its pictures.
	Measures              []tab
	AheadTitle, DoneTitle string
	AheadMost, DoneMost   string // what the darkest shade means
	Marked                string // what a mark in the past week means
	HourMost              string
	Facts                 weekFacts
	// Openings are the spans of maintenance windows within the picture.
	Openings []openingRow
}

// openingRow is a span in which a maintenance window is open.
type openingRow struct {
	Name, Why   string
	From, Until When
	Short, Does string // the same in a few words and in a sentence
	IsOpen      bool
}

// openingRows is how many openings a page lists.
const openingRows = 12

// openings lists spans of maintenance windows.
func (p *page) openings(list []client.Opening) (rows []openingRow) {
	for i := range list[:min(len(list), openingRows)] {
		o := &list[i]
		row := openingRow{Name: o.Window, Why: p.reason(o.Value()), From: p.minute(o.Opened), Until: p.minute(o.Until), Short: p.T("window." + string(o.Action) + ".short"), Does: p.T("window.holds")}
		if o.Action == job.WindowSkip {
			row.Does = p.T("window.skips")
		}
		row.IsOpen = !p.now.Before(o.Opened) && p.now.Before(o.Until)
		rows = append(rows, row)
	}
	return rows
}

// windowDoes says what a window does to a run that falls due in it.
func (p *page) windowDoes(o *client.Opening) string {
	return p.T("window."+string(o.Action), "until", p.day(o.Until, "15:04"), "name", o.Window)
}

type minuteRow struct {
	At      When
	Starts  string
	Address string
	Quieter []When
}

const (
	// daysAhead is how far ahead the page can be moved: a day less than starts are counted for, as
	// a day may have 25 hours.
	daysAhead = 31
	// yearsBack is how far back it can be moved at most, to compare with the same week a year ago.
	yearsBack = 1
	// minuteRows is how many crowded minutes are listed.
	minuteRows = 6
	// nearMinutes is how far from a crowded minute quieter ones are looked for, and quieterRows
	// how many are listed.
	nearMinutes = 15
	quieterRows = 3
)

func (s *site) timeline(p *page) error {
	l := p.layout("timeline.title", "timeline")
	v := timelineView{Layout: l}
	week := p.query("view") == "week"
	l.Again = 10
	l.Commands = []Command{{p.T("command.shell"), "belfry load" + flagIf("--namespace", l.Namespace)}, {"curl", p.curl("GET", "/api/v1/load?step=60s", "")}}
	if week {
		if err := s.timelineWeek(p, &v); err != nil {
			return err
		}
		for _, span := range timelineSpans {
			v.Views = append(v.Views, tab{Name: p.T("timeline.hours", "n", int(span.span/time.Hour)), Address: p.with("view", "", "minute", "", "span", span.name, "of", "", "spread", "")})
		}
	} else if err := s.timelineDay(p, &v); err != nil {
		return err
	} else if err := s.dueMinute(p, &v); err != nil {
		return err
	}
	v.Views = append(v.Views, tab{Name: p.T("timeline.week"), Address: p.with("view", "week", "minute", "", "span", "", "by", ""), Current: week})
	return p.show("timeline", v)
}

// dueMinute lists the jobs of the minute that was asked for.
func (s *site) dueMinute(p *page, v *timelineView) error {
	at, err := time.Parse(time.RFC3339, p.query("minute"))
	if err != nil {
		return nil //nolint:nilerr // no minute was asked for
	}
	v.Minute = p.minute(at)
	list, err := s.Service.Load.Due(p.ctx(), p.who, v.Namespace, at, at.Add(time.Minute), 100)
	if err != nil {
		return err
	}
	for _, d := range list {
		namespace, name := splitName(d.Job)
		v.Due = append(v.Due, dueRow{At: p.second(d.Due), In: p.relative(d.Due), Namespace: namespace, Name: name, Address: "/jobs/" + d.Job})
	}
	return nil
}

// second is a moment of a minute whose day is said elsewhere.
func (p *page) second(t time.Time) When {
	at := p.at(t)
	at.Text = t.In(p.zone).Format("15:04:05")
	return at
}

// timelineSpans are how much of time the page shows, and the steps in which it counts.
var timelineSpans = []struct {
	name       string
	span, step time.Duration
}{{"24h", 24 * time.Hour, 10 * time.Minute}, {"6h", 6 * time.Hour, 2 * time.Minute}, {"1h", time.Hour, 30 * time.Second}}

// laneSteps are the columns of lanes: slices of history where they have the size for it.
var laneSteps = map[string]time.Duration{"24h": 10 * time.Minute, "6h": 5 * time.Minute, "1h": time.Minute}

// reach is the time that the page can be moved in.
type reach struct {
	from, to  time.Time
	retention time.Duration // how long finished runs are kept, 0 if that is no bound
	ahead     int           // for how many days starts are counted, 0 if that is no bound
}

// reach returns how far back runs are kept, and how far ahead starts are counted.
func (s *site) reach(p *page) reach {
	r := reach{from: p.now.AddDate(-yearsBack, 0, 0), to: p.now.AddDate(0, 0, daysAhead), ahead: daysAhead}
	if life := s.Service.Runs.KeptFor(); life > 0 && p.now.Add(-life).After(r.from) {
		r.from, r.retention = p.now.Add(-life), life
	}
	return r
}

// asked returns the moment that was asked for, or another one if that is out of reach or none.
func (r *reach) asked(p *page, otherwise time.Time) time.Time {
	if t, err := time.Parse(time.RFC3339, p.query("at")); err == nil && !t.Before(r.from) && t.Before(r.to) {
		return t
	}
	return otherwise
}

// move sets where the page can be moved from here, and says why not further.
func (v *timelineView) move(p *page, r *reach, earlier, later time.Time) {
	at := func(t time.Time) string { return p.with("at", t.UTC().Format(time.RFC3339)) }
	switch {
	case !earlier.Before(r.from):
		v.Earlier = at(earlier)
	case r.retention > 0:
		v.End = p.T("timeline.kept", "d", p.coarse(r.retention))
	default:
		v.End = p.T("timeline.year")
	}
	switch {
	case later.Before(r.to):
		v.Later = at(later)
	case r.ahead > 0:
		v.End = p.T("timeline.ahead", "n", r.ahead)
	}
}

// timelineDay draws a span around now, or around the moment that was asked for.
func (s *site) timelineDay(p *page, v *timelineView) error {
	shown := timelineSpans[0]
	for _, span := range timelineSpans {
		current := p.query("span") == span.name || p.query("span") == "" && span == shown
		v.Views = append(v.Views, tab{Name: p.T("timeline.hours", "n", int(span.span/time.Hour)), Address: p.with("view", "", "span", span.name), Current: current})
		if current {
			shown = span
		}
	}
	reach := s.reach(p)
	middle := reach.asked(p, p.now)
	from := middle.Add(-shown.span / 2).Truncate(shown.step) // where a column begins
	to := from.Add(shown.span)
	moment := func(t time.Time) string { return p.dated(t) + " " + t.In(p.zone).Format("15:04") }
	v.Range = p.T("run.from_to", "from", moment(from), "to", moment(to))
	v.move(p, &reach, middle.Add(-shown.span/2), middle.Add(shown.span/2))
	v.IsMoved = !middle.Equal(p.now)
	v.From, v.To = from.UnixMilli(), to.UnixMilli()
	v.Now, v.Per = p.with("at", ""), p.T("timeline.per", "d", p.took(shown.step))
	var stats client.Stats
	if from.Before(p.now) {
		var err error
		if stats, err = s.Service.Stats.Over(p.ctx(), p.who, client.StatsQuery{Namespace: v.Namespace, From: from, To: earlier(to, p.now), Step: shown.step}); err != nil {
			return err
		}
	}
	columns, _, err := s.columns(p, stats, from, to, shown.step, 18)
	if err != nil {
		return err
	}
	now := -1.0
	if p.now.After(from) && p.now.Before(to) {
		now = p.now.Sub(from).Seconds() / shown.step.Seconds()
	}
	v.Left, v.Right = draw.LanesLeft, draw.LanesRight
	if v.IsCounted = p.query("by") != "node" && p.query("by") != "pool"; v.IsCounted {
		v.Left, v.Right = draw.LaneNames, draw.LaneNumbers
	}
	v.Heat = picture(draw.ColumnsOverLanes(p.T("timeline.starts", "d", p.took(shown.step)), columns, now, p.T("now")+" "+p.now.Format("15:04"), float64(v.Left), float64(v.Right), 90))
	load, err := s.Service.Load.Ahead(p.ctx(), p.who, client.LoadQuery{Namespace: v.Namespace, From: p.now, To: p.now.Add(24 * time.Hour), Step: time.Minute})
	if err != nil {
		return err
	}
	v.crowded(p, load)
	openings, err := s.Service.Load.Openings(p.ctx(), p.who, v.Namespace, from, to)
	if err != nil {
		return err
	}
	v.Openings = p.openings(openings)
	if v.IsCounted {
		return s.countedLanes(p, v, from, to, laneSteps[shown.name])
	}
	return s.lanes(p, v, from, to)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// crowded lists the minutes with the most starts, and quieter ones near them.
func (v *timelineView) crowded(p *page, load client.Load) {
	order := make([]int, len(load.Starts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(load.Starts[b], load.Starts[a]) })
	minute := func(i int) When { return p.minute(load.From.Add(time.Duration(i) * time.Minute)) }
	for _, i := range order[:min(len(order), minuteRows)] {
		if load.Starts[i] == 0 {
			break
		}
		row := minuteRow{At: minute(i), Starts: number(int64(load.Starts[i])), Address: p.with("minute", load.From.Add(time.Duration(i)*time.Minute).UTC().Format(time.RFC3339)) + "#minute"}
		for _, quiet := range quieter(load.Starts, i, nil) {
			near := minute(quiet)
			near.Text = load.From.Add(time.Duration(quiet) * time.Minute).In(p.zone).Format("15:04") // on the day of the crowded one
			row.Quieter = append(row.Quieter, near)
		}
		v.Crowded = append(v.Crowded, row)
	}
}

// quieter returns the minutes near a crowded one that have the fewest starts, in the order of
// time. None has more than half of its starts, or is left out.
func quieter(starts []int, crowded int, out map[int]bool) []int {
	var near []int
	for i := max(0, crowded-nearMinutes); i <= min(len(starts)-1, crowded+nearMinutes); i++ {
		if 2*starts[i] <= starts[crowded] && i != crowded && !out[i] {
			near = append(near, i)
		}
	}
	slices.SortStableFunc(near, func(a, b int) int {
		return cmp.Or(cmp.Compare(starts[a], starts[b]), cmp.Compare(max(a-crowded, crowded-a), max(b-crowded, crowded-b)))
	})
	near = near[:min(len(near), quieterRows)]
	slices.Sort(near)
	return near
}

// ticks are full hours, or minutes, of which about eight fit into a span.
func (p *page) ticks(from, to time.Time) (list []draw.Tick) {
	step := 10 * time.Minute
	for _, longer := range []time.Duration{30 * time.Minute, time.Hour, 3 * time.Hour} {
		if to.Sub(from)/step > 10 {
			step = longer
		}
	}
	for t := from.Truncate(10 * time.Minute); t.Before(to); t = t.Add(10 * time.Minute) {
		own := t.In(p.zone)
		if t.After(from) && (own.Hour()*60+own.Minute())%int(step/time.Minute) == 0 {
			list = append(list, draw.Tick{At: t.Sub(from).Minutes(), Text: own.Format("15:04")})
		}
	}
	return list
}

// columns are what ended and what will start, by steps of time, and the column that is now.
func (s *site) columns(p *page, stats client.Stats, from, to time.Time, step time.Duration, ticks int) ([]draw.Column, int, error) {
	namespace := p.query("namespace")
	first := from.Truncate(step)
	n := int(to.Sub(first) / step)
	columns := make([]draw.Column, n)
	for i := range columns {
		at := first.Add(time.Duration(i) * step)
		columns[i].Title = p.day(at, "15:04")
		if i%ticks == ticks/2 {
			columns[i].Tick = p.day(at, "15:04")
		}
	}
	for i := range stats.Items {
		b := &stats.Items[i]
		at := int(b.Start.Sub(first) / step)
		if at < 0 || at >= n {
			continue
		}
		good, bad := 0, 0
		for o, count := range b.Outcomes {
			if o.Alarms() {
				bad += count
			} else if o != job.OutcomeWithdrawn {
				good += count
			}
		}
		columns[at].Parts = []draw.Part{{Class: draw.Fail, Value: float64(bad)}, {Class: draw.OK, Value: float64(good)}}
		columns[at].Title += ": " + p.T("timeline.counted", "good", good, "bad", bad)
		columns[at].Link = "/runs?from=" + template.URLQueryEscaper(b.Start.UTC().Format(time.RFC3339)) + "&to=" + template.URLQueryEscaper(b.Start.Add(step).UTC().Format(time.RFC3339))
	}
	now := int(p.now.Sub(first) / step)
	if p.now.Before(first) {
		now = -1
	}
	if !to.After(p.now) {
		return columns, -1, nil
	}
	load, err := s.Service.Load.Ahead(p.ctx(), p.who, client.LoadQuery{Namespace: namespace, From: later(p.now, first), To: to, Step: step})
	if err != nil {
		return nil, 0, err
	}
	for i, starts := range load.Starts {
		at := int(load.From.Add(time.Duration(i)*step).Sub(first) / step)
		if at >= now && at < n && starts > 0 {
			columns[at].Parts = append(columns[at].Parts, draw.Part{Class: draw.Next, Value: float64(starts)})
			columns[at].Title += ": " + p.T("timeline.planned", "n", starts)
		}
	}
	return columns, now, nil
}
