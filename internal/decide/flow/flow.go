// Package flow decides what follows when a step of a flow ends: which steps start, which are
// cancelled, and how the flow ends. It works on graphs and states, without runs, stores or clocks.
//
// The same ends in any order give the same state, each step starts at most once, and a flow ends
// exactly when no step is open and none can start.
package flow

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// Graph is the dependencies of the steps of a flow. It is immutable.
type Graph struct {
	Steps       []Step // steps of finally last
	MaxParallel int
	FailFast    bool
	index       map[string]int
}

// JobsMax bounds the jobs that the open steps of a flow run at once: the start, the end and the
// pool of each are keys of one commit, and etcd takes 128.
const JobsMax = 50

// Step is the decision data of a step.
type Step struct {
	Name         string
	Needs        []int
	When         job.UpstreamOn
	AllowFailure bool
	Finally      bool
	Calls        string // the job that it runs, "" for none
	// HasIf and HasItems are set if [Asker] must be called; Waits if the step takes no capacity.
	HasIf, HasItems, Waits bool
	MaxParallel            int // of items; 0 is the flow's limit
	FailFast               bool
}

// NewGraph returns the graph of a flow with its defaults filled in.
func NewGraph(f *job.Flow) *Graph {
	all := f.All()
	g := &Graph{MaxParallel: max(1, f.MaxParallel), FailFast: f.FailFast, index: make(map[string]int, len(all))}
	for i, s := range all {
		g.index[s.Name] = i
	}
	for i, s := range all {
		step := Step{
			Name: s.Name, When: s.When, AllowFailure: s.AllowFailure, Finally: f.IsFinally(i), Calls: s.Calls(""),
			HasIf: s.If != "", HasItems: len(s.ForEach) > 0, Waits: s.Wait != nil,
			MaxParallel: s.MaxParallel, FailFast: s.FailFast,
		}
		for _, need := range s.Needs {
			if n, ok := g.index[need]; ok {
				step.Needs = append(step.Needs, n)
			}
		}
		g.Steps = append(g.Steps, step)
	}
	return g
}

// Index returns the index of a step, -1 for an unknown one.
func (g *Graph) Index(name string) int {
	if i, ok := g.index[name]; ok {
		return i
	}
	return -1
}

// CancelsUnits reports whether the end of a unit may cancel others.
func (g *Graph) CancelsUnits() bool {
	return g.FailFast || slices.ContainsFunc(g.Steps, func(s Step) bool { return s.FailFast })
}

// Mark is the state of a step or an item.
type Mark string

// The states of a step or an item.
const (
	Pending   Mark = ""          // it may still start
	Open      Mark = "open"      // it has started
	Succeeded Mark = "succeeded" // it ended in success
	Failed    Mark = "failed"    // it ended in another way
	Skipped   Mark = "skipped"   // its if was false: it counts as succeeded
	Blocked   Mark = "blocked"   // it never starts: a needed step has failed, or the flow was ended
	Unneeded  Mark = "unneeded"  // it never starts: a needed step did not end in the required way
)

// IsOver reports whether the state is final.
func (m Mark) IsOver() bool { return m != Pending && m != Open }

// State is the state of a run of a flow.
type State struct {
	Steps []StepState `json:"steps"`
	// Ending is set when the flow was cancelled or timed out: only finally still starts.
	Ending    job.Outcome `json:"ending,omitempty"`
	EndReason job.Reason  `json:"end_reason,omitzero"`
	// Cause is the cause of the first failed step that must not fail.
	Cause string `json:"cause,omitempty"`
	// Abandoned is set when finally was ended as well.
	Abandoned bool `json:"abandoned,omitempty"`
}

// StepState is the state of a step.
type StepState struct {
	Name string `json:"name"`
	Unit
	// Items are the items of a started for_each.
	Items []Item `json:"items,omitempty"`
}

// Item is an item of a for_each.
type Item struct {
	Unit
	Value json.RawMessage `json:"value"`
}

// itemNameMax bounds the name of an item, in bytes: pages and tables show it in a line.
const itemNameMax = 120

// Name returns a readable name of an item: a text or number as it is, the name, id or key of an object
// or its first text or number in the order of its fields, and the JSON of any other value.
func (it *Item) Name() string {
	var value any
	if json.Unmarshal(it.Value, &value) != nil {
		return ""
	}
	name := scalar(value)
	if fields, ok := value.(map[string]any); ok {
		for _, field := range append([]string{"name", "id", "key"}, slices.Sorted(maps.Keys(fields))...) {
			if name = scalar(fields[field]); name != "" {
				break
			}
		}
	}
	if name == "" {
		name = string(it.Value)
	}
	if len(name) > itemNameMax {
		name = strings.ToValidUTF8(name[:itemNameMax-len("…")], "") + "…"
	}
	return name
}

// scalar writes a text or a number, "" for another value.
func scalar(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// Unit is the part of a flow with its own run: a step without items, or an item.
type Unit struct {
	Mark    Mark            `json:"mark,omitempty"`
	Outcome job.Outcome     `json:"outcome,omitempty"`
	Reason  job.Reason      `json:"reason,omitzero"`
	Attempt int             `json:"attempt,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	// Began is when its run was made or, once it has ended, started, and Ended when it ended, in
	// milliseconds since 1970.
	Began int64 `json:"began,omitempty"`
	Ended int64 `json:"ended,omitempty"`
	// From is the flow's run whose result is reused, and Run its run there.
	From job.ID `json:"from,omitzero"`
	Run  job.ID `json:"run,omitzero"`
}

// End is how a unit has ended.
type End struct {
	Outcome job.Outcome
	Reason  job.Reason
	Attempt int
	Result  json.RawMessage
	Began   int64 // when its first attempt started, 0 for none
	At      int64
}

// Ref names a unit: a step, and its item, -1 for a step without.
type Ref struct{ Step, Item int }

// Begin returns the state of a flow before its start.
func (g *Graph) Begin() *State {
	s := &State{Steps: make([]StepState, len(g.Steps))}
	for i := range g.Steps {
		s.Steps[i].Name = g.Steps[i].Name
	}
	return s
}

// Unit returns a unit, or nil.
func (s *State) Unit(ref Ref) *Unit {
	if ref.Step < 0 || ref.Step >= len(s.Steps) {
		return nil
	}
	step := &s.Steps[ref.Step]
	if ref.Item < 0 {
		return &step.Unit
	}
	if ref.Item >= len(step.Items) {
		return nil
	}
	return &step.Items[ref.Item].Unit
}

// Open returns the units that have started and not ended.
func (s *State) Open() (list []Ref) {
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Mark != Open {
			continue
		}
		if step.Items == nil {
			list = append(list, Ref{i, -1})
		}
		for k := range step.Items {
			if step.Items[k].Mark == Open {
				list = append(list, Ref{i, k})
			}
		}
	}
	return list
}

// End records the end of an open unit, and reports whether it was open.
func (s *State) End(ref Ref, end End) bool {
	u := s.Unit(ref)
	if u == nil || u.Mark != Open {
		return false
	}
	u.Mark = Failed
	if end.Outcome == job.OutcomeSucceeded {
		u.Mark = Succeeded
	}
	u.Outcome, u.Reason, u.Attempt, u.Result, u.Ended = end.Outcome, end.Reason, end.Attempt, end.Result, end.At
	if end.Began != 0 {
		u.Began = min(end.Began, end.At)
	}
	return true
}

// Stop ends a flow as cancelled or timed out; the second time, finally with it.
func (s *State) Stop(outcome job.Outcome, why job.Reason) {
	if s.Ending != "" {
		s.Abandoned = true
		return
	}
	s.Ending, s.EndReason = outcome, why
}

// Asker answers what depends on the results of steps that are over.
type Asker interface {
	// If reports whether a step is to start.
	If(step int) (bool, error)
	// Items returns the items of a step.
	Items(step int) ([]json.RawMessage, error)
}

// Next is the list of actions.
type Next struct {
	Start  []Ref // units to start, now open
	Cancel []Ref // open units to cancel
	// Over is set when the flow has ended, with this outcome and reason.
	Over    bool
	Outcome job.Outcome
	Reason  job.Reason
}

// Advance decides the next actions, and records which steps start and which never will. It
// is called again when the cancelled units have ended.
func (g *Graph) Advance(s *State, ask Asker, now int64) (next Next) {
	p := pass{g: g, s: s, ask: ask, now: now, room: g.MaxParallel}
	for _, ref := range s.Open() {
		if !g.Steps[ref.Step].Waits {
			p.room--
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range g.Steps {
			changed = p.step(i) || changed
		}
	}
	next.Start, next.Cancel = p.start, p.cancels()
	if next.Over = !slices.ContainsFunc(s.Steps, func(st StepState) bool { return !st.Mark.IsOver() }); next.Over {
		next.Outcome, next.Reason = g.outcome(s)
	}
	return next
}

// pass is one call of Advance.
type pass struct {
	g     *Graph
	s     *State
	ask   Asker
	now   int64
	room  int
	start []Ref
}

// step advances one step, and reports whether that may affect others.
func (p *pass) step(i int) bool {
	step, state := &p.g.Steps[i], &p.s.Steps[i]
	switch {
	case state.Mark == Pending:
		return p.begin(step, state, i)
	case state.Mark == Open && state.Items != nil:
		return p.items(step, state, i)
	}
	return false
}

// begin decides about a step that has not started.
func (p *pass) begin(step *Step, state *StepState, i int) bool {
	over := func(mark Mark, why job.Reason) bool {
		state.Mark, state.Reason = mark, why
		if mark == Failed {
			state.Outcome, state.Ended = job.OutcomeFailed, p.now
		}
		return true
	}
	if why, yes := p.refused(step); yes {
		return over(Blocked, why)
	}
	ready, mark, why := p.needs(step)
	switch {
	case !ready:
		return false
	case mark != Pending:
		return over(mark, why)
	}
	if !step.Waits && p.room <= 0 || !p.mayCall(step) {
		return false
	}
	if step.HasIf {
		yes, err := p.ask.If(i)
		if err != nil {
			return over(Failed, reason.FieldFailed.Of("if", reason.Words(err.Error())))
		}
		if !yes {
			return over(Skipped, reason.IfFalse.Of())
		}
	}
	state.Began = p.now
	if !step.HasItems {
		state.Mark = Open
		p.start = append(p.start, Ref{i, -1})
		if !step.Waits {
			p.room--
		}
		return true
	}
	values, err := p.ask.Items(i)
	if err != nil {
		return over(Failed, reason.FieldFailed.Of("for_each", reason.Words(err.Error())))
	}
	state.Mark, state.Items = Open, make([]Item, len(values))
	for k := range values {
		state.Items[k].Value = values[k]
	}
	p.items(step, state, i)
	return true
}

// mayCall reports whether the jobs of the open steps leave room for a step's job.
func (p *pass) mayCall(step *Step) bool {
	if step.Calls == "" {
		return true
	}
	open := make(map[string]bool)
	for i := range p.g.Steps {
		if p.s.Steps[i].Mark == Open && p.g.Steps[i].Calls != "" {
			open[p.g.Steps[i].Calls] = true
		}
	}
	return open[step.Calls] || len(open) < JobsMax
}

// refused reports whether an unstarted step will never start, whatever it needs.
func (p *pass) refused(step *Step) (why job.Reason, yes bool) {
	switch {
	case p.s.Ending != "" && (!step.Finally || p.s.Abandoned):
		return reason.FlowEnded.Of(p.s.Ending), true
	case p.g.FailFast && !step.Finally:
		if name := p.firstFailure(); name != "" {
			return reason.StepFailed.Of(name, why), true
		}
	}
	return why, false
}

// firstFailure returns the first step that has failed and must not, "" for none.
func (p *pass) firstFailure() string {
	for i := range p.g.Steps {
		// A reused step failed in another run, and stops nothing here.
		if p.s.Steps[i].Mark == Failed && p.s.Steps[i].From.IsZero() && !p.g.Steps[i].AllowFailure && !p.g.Steps[i].Finally {
			return p.g.Steps[i].Name
		}
	}
	return ""
}

// needs reports whether all needs of a step have ended and, if it then does not start, why.
func (p *pass) needs(step *Step) (ready bool, mark Mark, why job.Reason) {
	if step.Finally {
		for i := range p.g.Steps {
			if !p.g.Steps[i].Finally && !p.s.Steps[i].Mark.IsOver() {
				return false, Pending, why
			}
		}
	}
	failed, unneeded, bad := "", "", ""
	for _, n := range step.Needs {
		name := p.g.Steps[n].Name
		switch p.s.Steps[n].Mark {
		case Pending, Open:
			return false, Pending, why
		case Failed:
			failed = name
			if !p.g.Steps[n].AllowFailure {
				bad = name
			}
		case Blocked:
			failed, bad = name, name
		case Unneeded:
			unneeded = name
		}
	}
	switch {
	case step.When == job.OnFinished, step.When == job.OnFailed && failed != "":
		return true, Pending, why
	case step.When == job.OnFailed:
		return true, Unneeded, reason.NothingFailed.Of()
	case bad != "":
		return true, Blocked, reason.StepNotOK.Of(bad)
	case unneeded != "":
		return true, Unneeded, reason.StepUnneeded.Of(unneeded)
	}
	return true, Pending, why
}

// items starts items of a step while there is room, and ends the step with the last.
func (p *pass) items(step *Step, state *StepState, i int) (ended bool) {
	var refusal job.Reason
	switch {
	case p.s.Ending != "" && (!step.Finally || p.s.Abandoned):
		refusal = reason.FlowEnded.Of(p.s.Ending)
	case p.g.FailFast && !step.Finally && p.firstFailure() != "":
		refusal = reason.StepFailed.Of(p.firstFailure(), job.Reason{})
	case step.FailFast && slices.ContainsFunc(state.Items, func(it Item) bool { return it.Mark == Failed }):
		refusal = reason.ItemFailed.Of()
	}
	open, left := 0, 0
	for k := range state.Items {
		if state.Items[k].Mark == Open {
			open++
		}
	}
	for k := range state.Items {
		it := &state.Items[k]
		switch {
		case it.Mark != Pending:
		case !refusal.IsZero():
			it.Mark, it.Reason = Blocked, refusal
		case p.room > 0 && (step.MaxParallel == 0 || open < step.MaxParallel):
			it.Mark, it.Began = Open, p.now
			p.start = append(p.start, Ref{i, k})
			p.room--
			open++
		default:
			left++
		}
	}
	if open+left > 0 {
		return false
	}
	p.endItems(state)
	return true
}

// endItems ends a step whose items have all ended: it has failed if an item has.
func (p *pass) endItems(state *StepState) {
	state.Mark, state.Outcome, state.Ended = Succeeded, job.OutcomeSucceeded, p.now
	failed := 0
	results := make([]json.RawMessage, len(state.Items))
	for k := range state.Items {
		it := &state.Items[k]
		if it.Mark != Succeeded {
			failed++
		}
		if results[k] = it.Result; it.Result == nil {
			results[k] = json.RawMessage("null")
		}
		state.Attempt = max(state.Attempt, it.Attempt)
	}
	if failed > 0 {
		state.Mark, state.Outcome = Failed, job.OutcomeFailed
		state.Reason = reason.ItemsFailed.Of(failed, len(state.Items))
	}
	// A list of values that were read from JSON can be written.
	state.Result, _ = json.Marshal(results)
}

// cancels returns the open units that must end.
func (p *pass) cancels() (list []Ref) {
	fast := p.g.FailFast && p.firstFailure() != ""
	for _, ref := range p.s.Open() {
		step := &p.g.Steps[ref.Step]
		items := p.s.Steps[ref.Step].Items
		switch {
		case p.s.Ending != "" && (!step.Finally || p.s.Abandoned), fast && !step.Finally:
		case step.FailFast && slices.ContainsFunc(items, func(it Item) bool { return it.Mark == Failed }):
		default:
			continue
		}
		list = append(list, ref)
	}
	return list
}

// outcome returns how a flow has ended.
func (g *Graph) outcome(s *State) (job.Outcome, job.Reason) {
	if s.Ending != "" {
		return s.Ending, s.EndReason
	}
	var failed, blocked []string
	for i := range g.Steps {
		switch {
		case s.Steps[i].Mark == Failed && !g.Steps[i].AllowFailure:
			failed = append(failed, g.Steps[i].Name)
		case s.Steps[i].Mark == Blocked:
			blocked = append(blocked, g.Steps[i].Name)
		}
	}
	switch {
	case len(failed) == 1:
		return job.OutcomeFailed, reason.StepFailed.Of(failed[0], s.Steps[g.Index(failed[0])].Reason)
	case len(failed) > 1:
		return job.OutcomeFailed, reason.StepsFailed.Of(failed)
	case len(blocked) > 0: // only a part of the flow was repeated
		return job.OutcomeFailed, reason.NotRunAgain.Of(blocked)
	}
	return job.OutcomeSucceeded, reason.AllSucceeded.Of()
}
