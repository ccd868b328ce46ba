package web

import (
	"errors"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// flowPlan is the graph of a flow: its steps, and what each needs.
type flowPlan struct {
	steps  []*job.Step // the steps of finally last
	layers []int
	edges  []draw.Edge
	before [][]int // of each step, those that lead to it
	index  map[string]int
}

// planOf returns the graph of a flow.
func planOf(f *job.Flow) *flowPlan {
	plan := &flowPlan{steps: f.All(), layers: flow.NewGraph(f).Layers(), index: map[string]int{}}
	for i, s := range plan.steps {
		plan.index[s.Name] = i
	}
	plan.before = make([][]int, len(plan.steps))
	flow.Edges(f, func(from, to, label string) {
		a, known := plan.index[from]
		b, too := plan.index[to]
		if known && too {
			plan.edges = append(plan.edges, draw.Edge{From: a, To: b, Text: label})
			plan.before[b] = append(plan.before[b], a)
		}
	})
	return plan
}

// planOfRun returns the graph that a run of a flow began with. That of a version which is not
// kept any more has its steps alone.
func (s *site) planOfRun(p *page, r *client.Run) (*flowPlan, error) {
	namespace, name := splitName(r.Job)
	revision, err := s.Service.Jobs.Revision(p.ctx(), p.who, service.Name{Namespace: namespace, Name: name}, r.Version, 0)
	var refusal *service.Error
	if err != nil && !(errors.As(err, &refusal) && refusal.Type == client.TypeNotFound) {
		return nil, err
	}
	if err == nil {
		if j, err := jobOf(revision.Job); err == nil && j.Run.IsFlow() {
			if plan := planOf(j.Run.Flow); plan.fits(r.Steps) {
				return plan, nil
			}
		}
	}
	bare := &job.Flow{}
	for i := range r.Steps {
		bare.Steps = append(bare.Steps, job.Step{Name: r.Steps[i].Name})
	}
	return planOf(bare), nil
}

// fits reports whether steps are the steps of the graph.
func (plan *flowPlan) fits(steps []client.StepState) bool {
	return slices.EqualFunc(plan.steps, steps, func(s *job.Step, state client.StepState) bool { return s.Name == state.Name })
}

// How far steps have come, as the API says it.
const (
	stepPending   = "pending"
	stepOpen      = "open"
	stepSucceeded = "succeeded"
	stepFailed    = "failed"
)

func isStepOver(state string) bool { return state != stepPending && state != stepOpen }

var stepLooks = map[string]State{
	stepPending: {Class: "mute", Icon: "ready"}, stepOpen: {Class: "run", Icon: "run", Spin: true}, stepSucceeded: {Class: "ok", Icon: "ok"},
	stepFailed: {Class: "fail", Icon: "fail"}, "skipped": {Class: "mute", Icon: "skip"}, "blocked": {Class: "mute", Icon: "cancel"}, "unneeded": {Class: "mute", Icon: "skip"},
}

// stepState is how a step or an item is. run is its own active run, nil for none.
func (p *page) stepState(u *client.StepState, run *client.Run) State {
	switch {
	case u.State == stepFailed && u.Outcome != "":
		return p.outcome(u.Outcome)
	case u.State == stepOpen && run != nil && run.State != job.StateRunning:
		s := stateLooks[job.StateWaiting]
		s.Text = p.T("state.waiting")
		return s
	}
	s := stepLooks[u.State]
	s.Text = p.T("step." + u.State)
	return s
}

// class is how a state looks in a graph, and in a row of a chart.
func graphClass(s State) (string, draw.Class) {
	switch s.Class {
	case "ok":
		return "ok", draw.OK
	case "fail":
		return "fail", draw.Fail
	case "lost":
		return "fail", draw.Lost
	case "run":
		return "run", draw.Run
	}
	return "todo", draw.Mute
}

// does says what a step does.
func (p *page) does(s *job.Step) string {
	var text string
	switch w := s.Wait; {
	case w != nil && w.Approval != "":
		text = p.T("step.approval")
	case w != nil && w.Signal != "":
		text = p.T("step.signal", "name", w.Signal)
	case w != nil && w.Until != "":
		text = p.T("step.until", "t", w.Until)
	case w != nil:
		text = p.T("step.for", "d", p.coarse(time.Duration(w.For)))
	case s.Calls("") != "":
		text = p.T("step.job", "name", s.Run.Job.Name)
	case s.Run.Does(job.WorkHandler):
		text = p.T("job.handler", "name", s.Run.HandlerName())
	default:
		text = string(s.Run.Work())
	}
	if len(s.ForEach) > 0 {
		text += p.T("step.each")
	}
	if s.Retry != nil && s.Retry.Attempts != nil && *s.Retry.Attempts > 0 {
		text += p.T("step.retries", "n", *s.Retry.Attempts)
	}
	if s.AllowFailure {
		text += p.T("step.may_fail")
	}
	return text
}

// doesAtLength says what a step does with its command or address.
func (p *page) doesAtLength(s *job.Step) string {
	kind := string(s.Run.Work())
	what, _, _ := strings.Cut(strings.TrimSpace(s.Run.Subject()), "\n")
	return strings.Replace(p.does(s), kind, strings.TrimSpace(kind+" "+clean(what)), 1)
}

// doesIcon is the symbol of what a step does. A step whose document is not kept has none.
func doesIcon(s *job.Step) string {
	switch w := s.Wait; {
	case w != nil && w.Approval != "":
		return "user"
	case w != nil && w.Signal != "":
		return "bell"
	case w != nil:
		return "clock"
	case s.Calls("") != "":
		return "jobs"
	}
	return workIcons[s.Run.Work()]
}

// workIcons are the symbols of the kinds of work.
var workIcons = map[job.Work]string{
	job.WorkShell: "term", job.WorkContainer: "term", job.WorkKubernetes: "nodes", job.WorkHTTP: "globe", job.WorkHandler: "code", job.WorkXXL: "nodes", job.WorkExternal: "link", job.WorkJob: "jobs", job.WorkFlow: "flows",
}

// graphOfPlan draws a flow as its document has it.
func (p *page) graphOfPlan(plan *flowPlan, link func(step string) string) template.HTML {
	nodes := make([]draw.Node, len(plan.steps))
	for i, s := range plan.steps {
		does := p.does(s)
		nodes[i] = draw.Node{
			Layer: plan.layers[i], Name: s.Name, Text: does, Title: does, Icon: p.icon(doesIcon(s)), IconClass: "faint", Link: link(s.Name), Several: len(s.ForEach) > 0,
		}
	}
	return picture(draw.Graph(p.T("flow.graph"), nodes, plan.edges))
}

// icon is the address of a symbol.
func (p *page) icon(name string) string { return p.site.assets.prefix + "icons.svg#" + name }

// flowProgress is a run of a flow with all that pages show of its steps.
type flowProgress struct {
	*flowPlan
	run      *client.Run
	active   map[job.ID]*client.Run // the runs of its steps that have not ended
	usual    map[string]usual
	critical []bool
}

// usual is how long a step takes: the middle, and what nineteen of twenty stay below.
type usual struct{ p50, p95 time.Duration }

const (
	// usualRuns is how many of the last runs of a flow say how long its steps usually take,
	// and usualFew how many must have ended in success.
	usualRuns = 20
	usualFew  = 3
)

// progressOf reads what is needed to show a run of a flow.
func (s *site) progressOf(p *page, r *client.Run) (*flowProgress, error) {
	plan, err := s.planOfRun(p, r)
	if err != nil {
		return nil, err
	}
	f := &flowProgress{flowPlan: plan, run: r, active: map[job.ID]*client.Run{}}
	if r.State != job.StateDone {
		list, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{
			Job: r.Job, States: []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning}, Kinds: []job.RunKind{job.RunStep}, PageSize: service.PageMax,
		})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			f.active[list.Items[i].ID] = &list.Items[i]
		}
	}
	before, err := s.endedFlows(p, r.Job)
	f.usual = usualOf(before)
	f.critical = f.criticalPath()
	return f, err
}

// endedFlows are the last runs of a flow that have ended, the latest first.
func (s *site) endedFlows(p *page, name string) ([]client.Run, error) {
	list, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{Job: name, States: []job.RunState{job.StateDone}, PageSize: usualRuns})
	return list.Items, err
}

// usualOf says how long each step usually takes, by its name.
func usualOf(runs []client.Run) map[string]usual {
	took := map[string][]time.Duration{}
	for i := range runs {
		for k := range runs[i].Steps {
			if s := &runs[i].Steps[k]; s.State == stepSucceeded && !s.Started.IsZero() && !s.Ended.IsZero() {
				took[s.Name] = append(took[s.Name], s.Ended.Sub(s.Started))
			}
		}
	}
	list := map[string]usual{}
	for name, d := range took {
		if len(d) >= usualFew {
			slices.Sort(d)
			list[name] = usual{d[len(d)/2], d[min(len(d)*95/100, len(d)-1)]}
		}
	}
	return list
}

// criticalPath marks the steps that decided when the flow ended, or how far it is: the last one,
// and from each the one that it waited for longest.
func (f *flowProgress) criticalPath() []bool {
	marked := make([]bool, len(f.steps))
	at := -1
	for i := range f.run.Steps {
		s := &f.run.Steps[i]
		if s.Started.IsZero() {
			continue
		}
		if at < 0 || f.lasts(s, &f.run.Steps[at]) {
			at = i
		}
	}
	for at >= 0 && !marked[at] {
		marked[at] = true
		next := -1
		for _, n := range f.before[at] {
			if s := &f.run.Steps[n]; !s.Started.IsZero() && (next < 0 || s.Ended.After(f.run.Steps[next].Ended)) {
				next = n
			}
		}
		at = next
	}
	return marked
}

// lasts reports whether a step ends later than another: of two open ones, the one that began
// first.
func (f *flowProgress) lasts(a, b *client.StepState) bool {
	switch {
	case a.Ended.IsZero() && b.Ended.IsZero():
		return a.Started.Before(b.Started)
	case a.Ended.IsZero() || b.Ended.IsZero():
		return a.Ended.IsZero()
	}
	return a.Ended.After(b.Ended)
}

// runOf returns the active run of a step or an item, nil for none.
func (f *flowProgress) runOf(u *client.StepState) *client.Run { return f.active[u.Run] }

// took is how long a step or an item has taken, 0 for one that has not started.
func (p *page) stepTook(u *client.StepState) time.Duration {
	switch {
	case u.Started.IsZero():
		return 0
	case u.Ended.IsZero():
		return max(p.now.Sub(u.Started), 0)
	}
	return max(u.Ended.Sub(u.Started), 0)
}

// stepWords says why a step is as it is: what it waits for, or its reason.
func (p *page) stepWords(f *flowProgress, i int) string {
	u := &f.run.Steps[i]
	switch {
	case u.State == stepPending:
		return p.waitsFor(f, i)
	case u.State == stepOpen && len(u.Items) > 0:
		return p.T("step.items_done", "i", itemsOver(u.Items), "n", len(u.Items))
	case u.State == stepOpen:
		return p.openWords(f, i)
	case u.State == stepSucceeded && len(u.Items) > 0:
		return p.T("step.items", "n", len(u.Items))
	case u.State == stepSucceeded && f.steps[i].Wait == nil:
		return "" // the state says it
	}
	return p.reason(u.Value())
}

// openWords says what a step waits for that has started.
func (p *page) openWords(f *flowProgress, i int) string {
	u, run := &f.run.Steps[i], f.runOf(&f.run.Steps[i])
	since := p.day(u.Started, "15:04")
	switch w := f.steps[i].Wait; {
	case w != nil && w.Approval != "":
		return p.T("step.waits_person", "t", since, "text", p.reason(u.Value()))
	case w != nil && w.Signal != "":
		return p.T("step.waits_signal", "name", w.Signal, "t", since)
	case w != nil && run != nil:
		return p.T("step.waits_until", "t", p.day(run.Due, "15:04:05"))
	case run != nil && run.State != job.StateRunning:
		return p.reason(run.Value())
	case run != nil && run.Node != "":
		return p.T("run.on", "node", run.Node)
	}
	return ""
}

// waitsFor says what a step waits for that has not started.
func (p *page) waitsFor(f *flowProgress, i int) string {
	var open []string
	for _, n := range f.before[i] {
		u := &f.run.Steps[n]
		if isStepOver(u.State) {
			continue
		}
		name := u.Name
		if len(u.Items) > 0 {
			name += " (" + p.T("step.items_done", "i", itemsOver(u.Items), "n", len(u.Items)) + ")"
		}
		open = append(open, name)
	}
	switch {
	case len(open) > 0 && f.steps[i].When == job.OnFailed:
		return p.T("step.only_failed", "names", strings.Join(open, p.T("comma")))
	case len(open) > 0:
		return p.T("step.waits", "names", strings.Join(open, p.T("comma")))
	case f.run.State == job.StateDone:
		return ""
	}
	return p.T("step.waits_room")
}

func itemsOver(items []client.StepState) (n int) {
	for i := range items {
		if isStepOver(items[i].State) {
			n++
		}
	}
	return n
}

// graph draws a run of a flow.
func (p *page) graph(f *flowProgress, selected string, link func(step string) string) template.HTML {
	nodes := make([]draw.Node, len(f.steps))
	for i := range f.steps {
		u := &f.run.Steps[i]
		state := p.stepState(u, f.runOf(u))
		words := p.stepWords(f, i)
		text := words
		if d := p.stepTook(u); d > 0 && u.State != stepOpen {
			text = p.took(d)
		} else if u.State == stepOpen && f.steps[i].Wait == nil && len(u.Items) == 0 && state.Spin {
			text = p.coarse(d)
			if run := f.runOf(u); run != nil && run.Node != "" {
				text += " · " + run.Node
			}
		}
		if u.State == stepOpen && f.steps[i].Wait != nil {
			state = State{Class: "run", Icon: doesIcon(f.steps[i]), Text: p.T("state.waiting")}
			if f.steps[i].Wait.Approval != "" {
				text = p.T("step.person")
			}
		}
		class, _ := graphClass(state)
		title := state.Text
		if words != "" {
			title += ", " + words
		}
		nodes[i] = draw.Node{
			Layer: f.layers[i], Name: u.Name, Text: text, Class: class, Icon: p.icon(state.Icon), IconClass: state.Class, Link: link(u.Name),
			Title: title, Several: len(u.Items) > 0 || len(f.steps[i].ForEach) > 0, Selected: u.Name == selected,
		}
	}
	edges := slices.Clone(f.edges)
	for k := range edges {
		edges[k].Critical = f.critical[edges[k].From] && f.critical[edges[k].To]
	}
	return picture(draw.Graph(p.T("flow.graph"), nodes, edges))
}

// gantt draws when the steps ran.
func (p *page) gantt(f *flowProgress, shown []bool, link func(step string) string) template.HTML {
	begin, end := f.run.Started, f.run.Ended
	if end.IsZero() {
		end = p.now
	}
	if begin.IsZero() || !end.After(begin) {
		return ""
	}
	length := end.Sub(begin).Seconds()
	var order []int
	for i := range f.run.Steps {
		if u := &f.run.Steps[i]; shown[i] && !u.Started.IsZero() {
			order = append(order, i)
			if d, known := f.usual[u.Name]; known && u.State == stepOpen && f.steps[i].Wait == nil {
				length = max(length, u.Started.Add(d.p95).Sub(begin).Seconds()*1.05)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return f.run.Steps[a].Started.Compare(f.run.Steps[b].Started) })
	length *= 1.04 // room for the words of the last ones
	var lanes []draw.Lane
	for _, i := range order {
		lanes = append(lanes, p.ganttLane(f, i, begin, link))
	}
	return picture(draw.Lanes(draw.LanesWide, p.T("flow.gantt"), lanes, length, p.timeTicks(begin, length), -1, ""))
}

// ganttLane is the row of a step.
func (p *page) ganttLane(f *flowProgress, i int, begin time.Time, link func(step string) string) draw.Lane {
	u := &f.run.Steps[i]
	state := p.stepState(u, f.runOf(u))
	_, class := graphClass(state)
	if f.steps[i].Wait != nil && class != draw.Fail {
		class = draw.Plan
	}
	took := p.stepTook(u)
	span := draw.Span{
		From: u.Started.Sub(begin).Seconds(), To: u.Started.Add(took).Sub(begin).Seconds(), Class: class, Critical: f.critical[i],
		Title: u.Name + ": " + state.Text + ", " + p.took(took),
	}
	if d, known := f.usual[u.Name]; known && f.steps[i].Wait == nil {
		span.Title += ", " + p.T("flow.usually", "d", p.took(d.p50))
		if took > d.p95 || u.State == stepOpen {
			span.Usual = span.From + d.p95.Seconds()
		}
		if u.State == stepOpen {
			span.UsualText = p.T("flow.p95", "d", p.took(d.p95))
		}
	}
	return draw.Lane{Name: u.Name, Link: link(u.Name), Strong: f.critical[i], Spans: []draw.Span{span}}
}

// tickSteps are the distances of words on an axis of time.
var tickSteps = []time.Duration{
	10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// ticksMost is how many words an axis has at most.
const ticksMost = 9

// timeTicks are the words below a stretch of time, as distances from its beginning.
func (p *page) timeTicks(begin time.Time, seconds float64) (ticks []draw.Tick) {
	length := time.Duration(seconds * float64(time.Second))
	step := tickSteps[len(tickSteps)-1]
	for _, d := range tickSteps {
		if length/d < ticksMost {
			step = d
			break
		}
	}
	for d := time.Duration(0); d < length && len(ticks) < 2*ticksMost; d += step {
		text := "+" + p.tick(d)
		if d == 0 {
			text = p.day(begin, "15:04:05")
		}
		ticks = append(ticks, draw.Tick{At: d.Seconds(), Text: text})
	}
	return ticks
}

func (p *page) tick(d time.Duration) string {
	if d >= 10*time.Second {
		return p.took(d)
	}
	return strings.Replace(p.took(d), ".0 ", " ", 1)
}

// sketch draws a flow for a row of a list. states are how far the steps of its last run came.
func (p *page) sketch(f *job.Flow, states []string) template.HTML {
	plan := planOf(f)
	dots := make([]draw.Dot, len(plan.steps))
	for i := range dots {
		dots[i] = draw.Dot{Layer: plan.layers[i], Class: draw.Plan}
		if len(states) == len(dots) && states[i] != stepPending {
			_, dots[i].Class = graphClass(stepLooks[states[i]])
		}
	}
	return picture(draw.Sketch(p.T("flow.graph"), dots, plan.edges))
}

// selectStep is the address of a page with a step chosen.
func selectStep(address string) func(step string) string {
	return func(step string) string { return address + "?step=" + url.QueryEscape(step) + "#step" }
}
