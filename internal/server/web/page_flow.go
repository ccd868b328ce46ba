package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// flowView is what the page of a run shows of its steps.
type flowView struct {
	Graph, Gantt template.HTML
	Tabs         []tab
	Took         string // so far, and how long runs usually take
	Rows         []stepRow
	Done, Count  int
	Step         *stepView // that is looked at
	Items        *itemsView
	Part, All    string   // how many of its steps are listed, and the address of all
	Signals      []string // that steps wait for now
}

// stepRow is a row of the table of steps.
type stepRow struct {
	Name, Address    string
	State            State
	Does, Words      string
	Icon             string // of what it does
	Took, Usual      string
	Long             bool // it took longer than it usually does
	Attempt          string
	Run              string // the page of its own run
	Number           string // of an item: the step and its place
	Items            []stepRow
	ItemsText        string
	Bad              bool // one of its items needs a look
	Critical, Chosen bool
}

// stepView is the step that is looked at.
type stepView struct {
	stepRow
	Run    string
	Item   string // of a step with several items the first that failed: the output is its own
	Node   string
	Ask    string // the question to a person
	From   string // the page of the run that it was taken over from
	Again  bool   // the flow can be run again from it
	Signal string
	Result string
	Output []outputLine
	Raw    string
}

const (
	// stepTail is how many of the last lines of a step the page of its flow shows.
	stepTail = 12
	// resultShown is how much of a result a page shows: more is in the API.
	resultShown = 4 << 10
	// itemsShown is how many items of a step a page lists: with the items of all steps, a page of a
	// megabyte.
	itemsShown = 200
)

// flowOf fills in what a run of a flow has beside others.
func (s *site) flowOf(p *page, r *client.Run, usual time.Duration, v *runView) error {
	if len(r.Steps) == 0 {
		return nil
	}
	f, err := s.progressOf(p, r)
	if err != nil {
		return err
	}
	link := selectStep("/runs/" + r.ID.String())
	chosen := f.chosen(p.query("step"))
	view := &flowView{Count: len(r.Steps), Tabs: p.flowTabs(r)}
	v.Section = "flows"
	if !r.Started.IsZero() {
		view.Took = p.took(max(cmp.Or(r.Ended, p.now).Sub(r.Started), 0))
		if usual > 0 {
			view.Took += "; " + p.T("flow.usually", "d", p.took(usual))
		}
	}
	shown, listed := p.notable(f, chosen), 0
	view.Graph, view.Gantt, view.Items = p.graph(f, r.Steps[chosen].Name, link), p.gantt(f, shown, link), p.items(f, chosen)
	for i := range r.Steps {
		u := &r.Steps[i]
		if isStepOver(u.State) {
			view.Done++
		}
		if shown[i] {
			row := p.stepRow(f, i)
			row.Address, row.Chosen = link(u.Name), i == chosen
			view.Rows = append(view.Rows, row)
			listed++
		}
		if w := f.steps[i].Wait; w != nil && w.Signal != "" && u.State == stepOpen && !slices.Contains(view.Signals, w.Signal) {
			view.Signals = append(view.Signals, w.Signal)
		}
	}
	if listed < len(r.Steps) {
		view.Part, view.All = p.T("flow.part", "i", listed, "n", len(r.Steps)), p.with("steps", "all")+"#steps"
	}
	if n := failedItems(r); n > 0 {
		v.RetryText = p.T("run.retry_items", "n", n)
	}
	if view.Step, err = s.stepView(p, f, chosen); err != nil {
		return err
	}
	v.Flow = view
	if v.Active {
		v.Again = 10
		v.Runs, v.WordEnd = When{}, ""
		v.Word = p.T("flow.running", "i", view.Done, "n", view.Count)
	}
	v.Output.Text = ""
	return nil
}

// flowTabs lead from a run of a flow to the pages of the flow.
func (p *page) flowTabs(r *client.Run) []tab {
	address := "/jobs/" + r.Job
	list := []tab{
		{Name: p.T("run.this"), Address: "/runs/" + r.ID.String(), Current: true}, {Name: p.T("job.graph"), Address: address + "/graph"},
		{Name: p.T("job.runs"), Address: address}, {Name: p.T("job.schedule"), Address: address + "/schedule"},
	}
	if r.Version > 0 {
		v := strconv.FormatInt(r.Version, 10)
		list = append(list, tab{Name: p.T("job.definition"), Address: address + "/definition?version=" + v, Small: "v" + v})
	}
	return list
}

// chosen is the step that a page shows: the named one, else the one that needs a person, has
// failed, runs, or ended last.
func (f *flowProgress) chosen(name string) int {
	if i, known := f.index[name]; known {
		return i
	}
	best, rank := 0, -1
	for i := range f.run.Steps {
		u := &f.run.Steps[i]
		r := 0
		switch {
		case u.State == stepOpen && f.steps[i].Wait != nil && f.steps[i].Wait.Approval != "":
			r = 4
		case u.State == stepFailed && !f.steps[i].AllowFailure:
			r = 3
		case u.State == stepOpen:
			r = 2
		case !u.Ended.IsZero():
			r = 1
		}
		if r > rank || r == rank && r == 1 && u.Ended.After(f.run.Steps[best].Ended) {
			best, rank = i, r
		}
	}
	return best
}

func (p *page) stepRow(f *flowProgress, i int) stepRow {
	u := &f.run.Steps[i]
	row := p.unitRow(u, f.runOf(u))
	row.Name, row.Does, row.Words, row.Critical, row.Icon = u.Name, p.does(f.steps[i]), p.stepWords(f, i), f.critical[i], doesIcon(f.steps[i])
	if d, known := f.usual[u.Name]; known && f.steps[i].Wait == nil {
		row.Usual, row.Long = p.took(d.p50), p.stepTook(u) > d.p95
	}
	if len(u.Items) == 0 {
		return row
	}
	row.ItemsText = p.T("step.items_done", "i", itemsOver(u.Items), "n", len(u.Items))
	for k := range u.Items {
		item := p.itemRow(f, u, k)
		if isBad := u.Items[k].State == stepFailed; isBad || k < itemsShown {
			row.Items = append(row.Items, item)
			row.Bad = row.Bad || isBad
		}
	}
	slices.SortStableFunc(row.Items, func(a, b stepRow) int { return badFirst(a.State) - badFirst(b.State) })
	return row
}

// itemRow is an item of a step by its value, or by its number where its value says nothing.
func (p *page) itemRow(f *flowProgress, u *client.StepState, k int) stepRow {
	it := &u.Items[k]
	row := p.unitRow(it, f.runOf(it))
	row.Name, row.Words, row.Number = itemName(u, k), p.reason(it.Value()), fmt.Sprintf("%s/%d", u.Name, k)
	if it.State == stepSucceeded {
		row.Words = ""
	}
	return row
}

func itemName(u *client.StepState, k int) string {
	return cmp.Or(clean(u.Items[k].ItemValue), fmt.Sprintf("%s/%d", u.Name, k))
}

// itemsView lists the items of the step that is looked at.
type itemsView struct {
	Step, Counts string
	Query, Sort  string
	Sorts        []tab
	Keep         []param // of the address
	Rows         []stepRow
	More         int
}

// itemsFew is how many items the list of all steps shows well; itemsPage how many the list of one does; causesShown of how many
// that failed it reads the causes.
const (
	itemsFew    = 10
	itemsPage   = 100
	causesShown = 20
)

// items lists the items of a step: those that failed first, by value, or the slowest first, as far as they match a text.
func (p *page) items(f *flowProgress, i int) *itemsView {
	u := &f.run.Steps[i]
	if len(u.Items) < itemsFew {
		return nil
	}
	v := &itemsView{Step: u.Name, Query: p.query("item"), Sort: p.query("order"), Keep: []param{{Name: "step", Value: u.Name}}}
	for _, order := range []string{"", "value", "slowest"} {
		v.Sorts = append(v.Sorts, tab{Name: p.T("items.sort." + cmp.Or(order, "failed")), Address: p.with("step", u.Name, "order", order) + "#items", Current: order == v.Sort})
	}
	if v.Sort != "" {
		v.Keep = append(v.Keep, param{Name: "order", Value: v.Sort})
	}
	counts, names := map[string]int{}, []string(nil)
	var found []int
	for k := range u.Items {
		state := p.stepState(&u.Items[k], f.runOf(&u.Items[k])).Text
		if counts[state]++; counts[state] == 1 {
			names = append(names, state)
		}
		if text := strings.ToLower(itemName(u, k)); strings.Contains(text, strings.ToLower(v.Query)) {
			found = append(found, k)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return counts[b] - counts[a] })
	for at, name := range names {
		names[at] = strconv.Itoa(counts[name]) + " " + name
	}
	v.Counts = strings.Join(names, p.T("comma"))
	slices.SortStableFunc(found, func(a, b int) int {
		x, y := &u.Items[a], &u.Items[b]
		switch v.Sort {
		case "value":
			return cmp.Compare(itemName(u, a), itemName(u, b))
		case "slowest":
			return cmp.Compare(p.stepTook(y), p.stepTook(x))
		}
		return badFirst(p.stepState(x, nil)) - badFirst(p.stepState(y, nil))
	})
	most := itemsPage
	if v.Sort == "" && v.Query == "" { // what failed, and some of the others
		bad := 0
		for k := range u.Items {
			bad += 1 - badFirst(p.stepState(&u.Items[k], nil))
		}
		most = min(bad+itemsFew, itemsPage)
	}
	if v.More = max(len(found)-most, 0); v.More > 0 {
		found = found[:most]
	}
	causes := causesShown
	for _, k := range found {
		row := p.itemRow(f, u, k)
		if it := &u.Items[k]; causes > 0 && it.State == stepFailed && !it.Run.IsZero() {
			causes--
			if run, err := p.site.Service.Runs.Get(p.ctx(), p.who, it.Run); err == nil { // history may have dropped it
				row.Words = p.withCause(row.Words, it.Reason, &run.Failure)
			}
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

const (
	// stepsFew is how many steps a page of a run lists without a choice, and stepsLong how many of the longest
	// steps it lists of a larger flow.
	stepsFew  = 40
	stepsLong = 5
)

// notable marks the steps that the page of a large flow lists: what has failed, is open, was critical, is looked at or
// took longest.
func (p *page) notable(f *flowProgress, chosen int) []bool {
	shown, order := make([]bool, len(f.steps)), make([]int, len(f.steps))
	all := len(f.steps) <= stepsFew || p.query("steps") == "all"
	for i := range f.steps {
		u := &f.run.Steps[i]
		order[i], shown[i] = i, all || i == chosen || f.critical[i] || u.State == stepFailed || u.State == stepOpen
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.stepTook(&f.run.Steps[b]), p.stepTook(&f.run.Steps[a])) })
	for _, i := range order[:min(stepsLong, len(order))] {
		shown[i] = shown[i] || !f.run.Steps[i].Started.IsZero()
	}
	return shown
}

// failedItems is how many items a retry repeats, where they are all that has failed: it keeps those that succeeded.
func failedItems(r *client.Run) (n int) {
	for i := range r.Steps {
		u := &r.Steps[i]
		if u.State != stepFailed {
			continue
		}
		if n > 0 || len(u.Items) == 0 {
			return 0
		}
		for k := range u.Items {
			if u.Items[k].State != stepSucceeded {
				n++
			}
		}
	}
	return n
}

// badFirst orders what has failed before all else.
func badFirst(s State) int {
	if s.Class == "fail" || s.Class == "lost" {
		return 0
	}
	return 1
}

// unitRow is what a step and an item have in common.
func (p *page) unitRow(u *client.StepState, run *client.Run) stepRow {
	row := stepRow{State: p.stepState(u, run)}
	if d := p.stepTook(u); !u.Started.IsZero() {
		row.Took = p.took(d)
	}
	if u.Attempt > 1 {
		row.Attempt = strconv.Itoa(u.Attempt)
	}
	if !u.Run.IsZero() {
		row.Run = "/runs/" + u.Run.String()
	}
	return row
}

// stepView reads what there is to know of the step that is looked at.
func (s *site) stepView(p *page, f *flowProgress, i int) (*stepView, error) {
	u := &f.run.Steps[i]
	v := &stepView{stepRow: p.stepRow(f, i)}
	if w := f.steps[i].Wait; w != nil && u.State == stepOpen {
		if v.Signal = w.Signal; w.Approval != "" {
			v.Ask = p.reason(u.Value())
		}
	}
	if len(u.Result) > 0 {
		v.Result = clean(string(u.Result))
		if len(v.Result) > resultShown {
			v.Result = strings.ToValidUTF8(v.Result[:resultShown], "") + "…"
		}
	}
	namespace, _ := splitName(f.run.Job)
	v.Again = f.run.State == job.StateDone && p.mayIn(service.Operate, namespace)
	if !u.From.IsZero() {
		v.From = selectStep("/runs/" + u.From.String())(u.Name)
	}
	v.Run = v.stepRow.Run
	of := u.Run
	if bad := slices.IndexFunc(u.Items, func(item client.StepState) bool { return item.State == stepFailed }); bad >= 0 && of.IsZero() && !u.Items[bad].Run.IsZero() {
		of = u.Items[bad].Run
		v.Item, v.Run, v.Result = itemName(u, bad), "/runs/"+of.String(), "" // results of other items say nothing about it
	}
	if of.IsZero() || f.steps[i].Wait != nil {
		return v, nil
	}
	run, err := s.Service.Runs.Get(p.ctx(), p.who, of)
	if service.ErrorOf(err).Type == client.TypeNotFound && err != nil {
		v.Run = ""    // of another namespace, or removed with its history
		return v, nil //nolint:nilerr // the step is shown without it
	}
	if err != nil {
		return nil, err
	}
	v.Node = run.Node
	if attempt := lastAttempt(&run); attempt > 0 {
		v.Raw = fmt.Sprintf("/api/v1/runs/%s/output?attempt=%d", run.ID, attempt)
		text, err := s.Service.Output.Tail(p.ctx(), p.who, &run, client.OutputQuery{Attempt: attempt, Tail: stepTail, Times: true})
		if err != nil {
			return nil, err
		}
		v.Output = parseOutput(text, p.zone)
		for k := range v.Output {
			v.Output[k].Number = 0 // which lines of all these are is not known
		}
	}
	return v, nil
}

// lastFlow draws the latest run of a flow that has begun, or the document before there is one.
func (s *site) lastFlow(p *page, v *jobView, runs []client.Run) error {
	if !v.job.Run.IsFlow() {
		return nil
	}
	at := slices.IndexFunc(runs, func(r client.Run) bool { return len(r.Steps) > 0 })
	if at < 0 {
		v.Graph = p.graphOfPlan(planOf(v.job.Run.Flow), func(string) string { return "" })
		return nil
	}
	f, err := s.progressOf(p, &runs[at])
	if err != nil {
		return err
	}
	v.GraphRun, v.GraphAt = "/runs/"+runs[at].ID.String(), p.minute(runs[at].Scheduled)
	v.Graph = p.graph(f, "", selectStep(v.GraphRun))
	return nil
}

// graphView is the page of the graph of a flow.
type graphView struct {
	*jobHead
	Graph  template.HTML
	Rows   []graphRow
	Text   []textPart
	Before int // how many runs the rows are of
}

// textPart is lines of a document: of a step, or between steps.
type textPart struct {
	Step  string
	Lines []string
}

// stepLine begins a step in a document.
var stepLine = regexp.MustCompile(`^( +)- name: ['"]?([^'"]+)['"]?$`)

// stepParts cuts the document of a flow into its steps and what is between them.
func stepParts(text string) []textPart {
	parts := []textPart{{}}
	indent, inRun := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		// Texts of several lines are indented further than the steps that have them, and texts of
		// other fields do not follow run.
		inRun = line == "run:" || inRun && (line == "" || strings.HasPrefix(line, " "))
		if m := stepLine.FindStringSubmatch(line); inRun && m != nil && (indent == "" || indent == m[1]) {
			indent = m[1]
			parts = append(parts, textPart{Step: m[2]})
		} else if at := &parts[len(parts)-1]; at.Step != "" && !strings.HasPrefix(line, indent+" ") && strings.TrimSpace(line) != "" {
			parts = append(parts, textPart{})
		}
		at := &parts[len(parts)-1]
		at.Lines = append(at.Lines, clean(line))
	}
	return parts
}

// graphRow is a step of a flow, and how it does.
type graphRow struct {
	Name, Does, After string
	Icon              string
	P50, P95          string
	Fails             int
	Strip             template.HTML
}

// graphPage shows a flow as its document has it, and how its steps did.
func (s *site) graphPage(p *page) error {
	h, err := s.jobHeadOf(p, "graph")
	if err != nil {
		return err
	}
	if !h.job.Run.IsFlow() {
		return &service.Error{Type: client.TypeNotFound, Detail: job.Text(p.T("flow.none", "name", h.Full))}
	}
	d, _, err := s.Service.Jobs.Get(p.ctx(), p.who, p.namedJob(), false)
	if err != nil {
		return err
	}
	text, err := yamlOf(d)
	if err != nil {
		return err
	}
	before, err := s.endedFlows(p, h.Full)
	if err != nil {
		return err
	}
	plan := planOf(h.job.Run.Flow)
	v := graphView{jobHead: h, Before: len(before), Text: stepParts(text)}
	v.Graph = p.graphOfPlan(plan, func(step string) string { return "#doc-" + step })
	known := usualOf(before)
	for _, step := range plan.steps {
		row := graphRow{Name: step.Name, Does: p.doesAtLength(step), After: p.after(step), Icon: doesIcon(step)}
		if d, ok := known[step.Name]; ok && step.Wait == nil {
			row.P50, row.P95 = p.took(d.p50), p.took(d.p95)
		}
		row.Fails, row.Strip = p.stepHistory(step.Name, before)
		v.Rows = append(v.Rows, row)
	}
	h.Commands = append(h.Commands, Command{p.T("flow.graph"), "belfry job get " + h.Full + " -o yaml | belfry validate -f - --graph mermaid"})
	return p.show("graph", v)
}

// after says what a step needs.
func (p *page) after(s *job.Step) string {
	text := ""
	if len(s.Needs) > 0 {
		when := s.When
		if when == "" {
			when = job.OnSucceeded
		}
		text = p.T("step.after."+string(when), "names", strings.Join(s.Needs, p.T("comma")))
	}
	if s.If != "" {
		text = strings.TrimSpace(text + " " + p.T("step.if", "text", s.If))
	}
	return text
}

// stepHistory draws how a step did in the last runs, and counts its failures.
func (p *page) stepHistory(name string, runs []client.Run) (fails int, strip template.HTML) {
	var list []client.Run
	for i := range runs {
		at := slices.IndexFunc(runs[i].Steps, func(s client.StepState) bool { return s.Name == name })
		if at < 0 || runs[i].Steps[at].Outcome == "" {
			continue
		}
		u := &runs[i].Steps[at]
		if u.State == stepFailed {
			fails++
		}
		list = append(list, client.Run{ID: runs[i].ID, State: job.StateDone, Outcome: u.Outcome, Started: u.Started, Ended: u.Ended, Scheduled: runs[i].Scheduled})
	}
	return fails, picture(p.strip(list))
}

// flowsView is the list of flows.
type flowsView struct {
	*Layout
	Rows  []flowRow
	Older string
}

type flowRow struct {
	jobRow
	Sketch   template.HTML
	Progress string
}

// flowsPage is how many flows a page has: each has its graph and a strip of its runs.
const flowsPage = 50

func (s *site) flows(p *page) error {
	l := p.layout("flows.title", "flows")
	page, err := s.jobPage(p, client.JobQuery{Namespace: l.Namespace, Work: job.WorkFlow, PageSize: flowsPage, PageToken: p.query("page"), Recent: stripRuns})
	if err != nil {
		return err
	}
	v := flowsView{Layout: l}
	for i := range page.Items {
		v.Rows = append(v.Rows, p.flowRow(&page.Items[i]))
	}
	if page.NextPageToken != "" {
		v.Older = p.with("page", page.NextPageToken)
	}
	l.Events = "kind=run&kind=job"
	if l.Namespace != "" {
		l.Events += "&namespace=" + template.URLQueryEscaper(l.Namespace)
	}
	l.Commands = []Command{{p.T("command.shell"), "belfry job list --work flow" + flagIf("--namespace", l.Namespace)}, {"curl", p.curl("GET", "/api/v1/jobs?work=flow", "")}}
	return p.show("flows", v)
}

func (p *page) flowRow(j *listedJob) flowRow {
	row := flowRow{jobRow: p.jobRow(j)}
	var states []string
	if len(j.Recent) > 0 {
		latest := &j.Recent[0]
		over := 0
		for i := range latest.Steps {
			states = append(states, latest.Steps[i].State)
			if isStepOver(latest.Steps[i].State) {
				over++
			}
			if latest.Outcome.Alarms() && latest.Steps[i].State == stepFailed && row.Progress == "" {
				row.Progress = p.T("flow.failed_at", "name", latest.Steps[i].Name)
			}
		}
		if row.Progress == "" && len(states) > 0 {
			row.Progress = p.T("flow.steps_of", "i", over, "n", len(states))
		}
	}
	row.Sketch = p.sketch(j.Run.Flow, states)
	return row
}

// answerStep approves or rejects a step that waits for it.
func (s *site) answerStep(p *page) error {
	id, err := p.namedRun()
	if err != nil {
		return err
	}
	answer, note := p.r.PostForm.Get("answer"), strings.TrimSpace(p.r.PostForm.Get("note"))
	if answer != "approve" && answer != "reject" {
		return service.WrongParameter("answer", phrase.NeitherAnswer)
	}
	if _, err := s.Service.Runs.Approve(p.ctx(), p.who, id, p.r.PathValue("step"), answer == "reject", note); err != nil {
		return err
	}
	return p.done("/runs/"+id.String()+"?step="+url.QueryEscape(p.r.PathValue("step")), map[string]string{"approve": "approved", "reject": "rejected"}[answer])
}

// signalFlow sends a signal to the steps that wait for it.
func (s *site) signalFlow(p *page) error {
	id, err := p.namedRun()
	if err != nil {
		return err
	}
	data := strings.TrimSpace(p.r.PostForm.Get("data"))
	if data != "" && !json.Valid([]byte(data)) {
		return service.WrongParameter("data", phrase.ValueNotJSON, phrase.TextsQuoted.Of(`"ready"`))
	}
	if _, err := s.Service.Runs.Signal(p.ctx(), p.who, id, p.r.PostForm.Get("signal"), []byte(data)); err != nil {
		return err
	}
	return p.done("/runs/"+id.String(), "signalled")
}

// lastAttempt is the number of the latest attempt that has started, 0 for none.
func lastAttempt(r *client.Run) int {
	latest := r.Attempt
	if r.State == job.StateReady || r.State == job.StateWaiting {
		latest--
	}
	if r.Started.IsZero() {
		return 0
	}
	return max(latest, 0)
}
