package web

import (
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/job"
)

// param is a value that a form keeps.
type param struct{ Name, Value string }

// runsView is the list of runs.
type runsView struct {
	*Layout
	Text, Job   string
	Tokens      []filterToken
	Keep        []param // filters that the form keeps
	Outcomes    []choice
	Ranges      []choice
	Kinds       []choice
	Nodes       []choice
	Chart       template.HTML
	ChartTitle  string
	From, To    int64 // of the chart, in milliseconds since 1970
	Step        int64 // of its columns, in milliseconds
	Rows        []runRow
	Older       string
	Filtered    bool
	RangeText   string
	OutcomeText string
}

// choice is one of several in a menu.
type choice struct {
	Name, Value, Address string
	Current              bool
	State                State
}

type runRow struct {
	ID, Address          string
	State                State
	Job, Namespace, Name string
	Scheduled            When
	Took                 string
	Starts               When // that it has not begun
	Share                template.HTML
	Late                 string
	Node, Kind           string
	Attempt              int
	Reason               string
	Version              int64
}

// runsPage is how many runs a page has.
const runsPage = 100

// histogramSteps are what a column of the histogram may count, so that there are histogramColumns at
// most; longer spans have multiples of the last.
var histogramSteps = []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour}

const histogramColumns = 120

// runRanges are the spans that a list of runs can be limited to.
var runRanges = []struct {
	name string
	span time.Duration
}{{"1h", time.Hour}, {"8h", 8 * time.Hour}, {"24h", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}}

func (s *site) runs(p *page) error {
	l := p.layout("runs.title", "runs")
	v := runsView{Layout: l, Text: p.query("q"), Job: p.query("job")}
	if id, err := job.ParseID(v.Text); err == nil {
		http.Redirect(p.w, p.r, "/runs/"+id.String(), http.StatusSeeOther)
		return nil
	}
	q := client.RunQuery{Namespace: l.Namespace, Job: v.Job, Text: v.Text, PageSize: runsPage, PageToken: p.query("page")}
	if q.Job != "" {
		q.Namespace = ""
	}
	chosen := p.r.URL.Query()["outcome"]
	for _, o := range job.Outcome("").Values() {
		current := slices.Contains(chosen, o)
		if current {
			q.Outcomes = append(q.Outcomes, job.Outcome(o))
		}
		v.Outcomes = append(v.Outcomes, choice{Name: p.T("outcome." + o), Value: o, Current: current, State: p.outcome(job.Outcome(o))})
	}
	if state := p.query("state"); state != "" {
		q.States = []job.RunState{job.RunState(state)}
	}
	q.Unmet, q.Node, q.Reason = p.query("unmet") != "", p.query("node"), p.query("reason")
	q.CauseFingerprint = p.query("cause")
	if kind := p.query("kind"); kind != "" {
		q.Kinds = []job.RunKind{job.RunKind(kind)}
	}
	for _, token := range []struct{ name, key, shown string }{
		{"node", "runs.node", q.Node}, {"kind", "runs.kind", p.query("kind")}, {"state", "runs.state", p.query("state")},
		{"reason", "runs.reason", q.Reason},
	} {
		if token.shown == "" {
			continue
		}
		v.Keep = append(v.Keep, param{Name: token.name, Value: token.shown})
		if key := token.name + "." + token.shown; i18n.Has(key) {
			token.shown = p.T(key)
		}
		v.Tokens = append(v.Tokens, filterToken{p.T(token.key), clean(token.shown), p.with(token.name, "", "page", "")})
	}
	for _, kind := range job.RunKind("").Values() {
		v.Kinds = append(v.Kinds, choice{Name: p.T("kind." + kind), Address: p.with("kind", kind, "page", ""), Current: kind == p.query("kind")})
	}
	for _, n := range s.frame(p.ctx(), p.who, frameFor).list {
		v.Nodes = append(v.Nodes, choice{Name: n.Name, Address: p.with("node", n.Name, "page", ""), Current: n.Name == q.Node})
	}
	v.RangeText = p.T("runs.any_time")
	for _, r := range runRanges {
		current := p.query("range") == r.name
		if current {
			q.From = p.now.Add(-r.span)
			v.RangeText = p.T("runs.last", "d", p.coarse(r.span))
		}
		v.Ranges = append(v.Ranges, choice{Name: p.T("runs.last", "d", p.coarse(r.span)), Address: p.with("range", r.name, "from", "", "to", "", "page", ""), Current: current})
	}
	for name, into := range map[string]*time.Time{"from": &q.From, "to": &q.To} {
		if t, err := time.Parse(time.RFC3339, p.query(name)); err == nil {
			*into = t
			v.RangeText = p.T("runs.selected")
		}
	}
	v.Filtered = v.Text != "" || v.Job != "" || len(chosen) > 0 || p.query("range") != "" || len(v.Tokens) > 0 || !q.From.IsZero()
	page, err := s.Service.Runs.List(p.ctx(), p.who, q)
	if err != nil {
		return err
	}
	if q.CauseFingerprint != "" {
		text := q.CauseFingerprint
		if len(page.Items) > 0 {
			text = reason.Alike(cmp.Or(page.Items[0].Cause, page.Items[0].Reason))
		}
		v.Keep = append(v.Keep, param{Name: "cause", Value: q.CauseFingerprint})
		v.Tokens, v.Filtered = append(v.Tokens, filterToken{p.T("runs.cause"), clean(text), p.with("cause", "", "page", "")}), true
	}
	for i := range page.Items {
		v.Rows = append(v.Rows, p.runRow(&page.Items[i]))
	}
	p.shares(page.Items, v.Rows)
	if page.NextPageToken != "" {
		v.Older = p.with("page", page.NextPageToken)
	}
	if v.Text == "" && q.CauseFingerprint == "" {
		if err := s.histogram(p, &v, q); err != nil {
			return err
		}
	}
	l.Events = "kind=run"
	if v.Job != "" {
		l.Events += "&job=" + template.URLQueryEscaper(v.Job)
	} else if l.Namespace != "" {
		l.Events += "&namespace=" + template.URLQueryEscaper(l.Namespace)
	}
	l.Commands = []Command{
		{p.T("command.shell"), "belfry run list" + flagIf("--job", v.Job) + flagIf("--namespace", q.Namespace)},
		{"curl", p.curl("GET", "/api/v1/runs", "")},
	}
	return p.show("runs", v)
}

// histogram draws how many runs ended when; each column selects its time.
func (s *site) histogram(p *page, v *runsView, q client.RunQuery) error {
	from, to := q.From, q.To
	if to.IsZero() {
		to = p.now
	}
	if from.IsZero() {
		from = to.Add(-8 * time.Hour)
	}
	step := histogramSteps[0]
	for _, longer := range histogramSteps {
		if to.Sub(from)/step > histogramColumns {
			step = longer
		}
	}
	for to.Sub(from)/step > histogramColumns {
		step *= 2
	}
	stats, err := s.Service.Stats.Over(p.ctx(), p.who, client.StatsQuery{Namespace: q.Namespace, Job: q.Job, From: from, To: to, Step: step})
	if err != nil {
		return err
	}
	first := from.Truncate(step)
	columns := make([]draw.Column, (to.Sub(first)+step-1)/step)
	v.From, v.To, v.Step = first.UnixMilli(), first.Add(time.Duration(len(columns))*step).UnixMilli(), step.Milliseconds()
	for i := range columns {
		at := first.Add(time.Duration(i) * step)
		columns[i].Title = p.day(at, "15:04")
		if i%(len(columns)/8+1) == 0 {
			columns[i].Tick = p.day(at, "15:04")
		}
		columns[i].Link = p.with("from", at.UTC().Format(time.RFC3339), "to", at.Add(step).UTC().Format(time.RFC3339), "range", "", "page", "")
	}
	for _, b := range stats.Items {
		at := int(b.Start.Sub(first) / step)
		if at < 0 || at >= len(columns) {
			continue
		}
		counts := map[draw.Class]int{}
		for o, n := range b.Outcomes {
			if len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, o) {
				counts[outcomeClasses[o]] += n
			}
		}
		for _, class := range []draw.Class{draw.Fail, draw.Time, draw.Missed, draw.Lost, draw.Mute, draw.OK} {
			columns[at].Parts = append(columns[at].Parts, draw.Part{Class: class, Value: float64(counts[class])})
		}
	}
	v.ChartTitle = p.T("runs.ended", "d", p.coarse(step))
	v.Chart = picture(draw.Columns(v.ChartTitle, columns, -1, "", whole, 64))
	return nil
}

func (p *page) runRow(r *client.Run) runRow {
	namespace, name := splitName(r.Job)
	row := runRow{
		ID: r.ID.String(), Address: "/runs/" + r.ID.String(), State: p.runState(r), Job: r.Job, Namespace: namespace, Name: name,
		Scheduled: p.at(r.Scheduled), Node: r.Node, Kind: p.T("kind." + string(r.Kind)), Attempt: r.Attempt, Reason: p.withCause(p.reason(r.Value()), r.Reason, &r.Failure), Version: r.Version,
	}
	if r.Step != "" {
		row.Name += " / " + r.Step
	}
	if r.Outcome == job.OutcomeSucceeded {
		row.Reason = "" // the outcome says it
	}
	if r.Count > 1 {
		row.Reason = strings.TrimSpace(p.T("runs.count", "n", r.Count) + " " + row.Reason)
	}
	if r.Unmet != "" {
		row.Reason = strings.TrimSpace(row.Reason + " " + p.reason(r.UnmetArgs.Reason(r.Unmet, r.UnmetCode)))
	}
	if d := p.duration(r); !r.Started.IsZero() {
		row.Took = p.took(d)
		if late := r.Started.Sub(r.Scheduled); r.Attempt <= 1 && late >= 0 && r.Kind == job.RunScheduled {
			row.Late = p.took(late)
		}
	}
	if r.State == job.StateReady && r.Due.After(p.now) && r.Kind != job.RunStep { // which may wait for a person, until then at most
		row.Starts = p.relative(r.Due)
	}
	return row
}

// shares draws how long each run took beside the longest of the page.
func (p *page) shares(runs []client.Run, rows []runRow) {
	var longest time.Duration
	for i := range runs {
		longest = max(longest, p.duration(&runs[i]))
	}
	for i := range runs {
		if d := p.duration(&runs[i]); d > 0 {
			class := draw.Run
			if runs[i].State == job.StateDone {
				class = outcomeClasses[runs[i].Outcome]
			}
			rows[i].Share = picture(draw.Share(float64(d), float64(longest), class))
		}
	}
}
