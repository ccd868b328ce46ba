package engine

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A flow is a run whose claim starts nothing on a node: it creates the runs of its first
// steps, and the end of each creates, in the same step of the store, the runs of the next
// ones. The state of the flow is part of its run. The runs of its steps belong to the same
// job, and thus to the same cell; they are never withdrawn, so that a flow in progress
// completes even if the job is changed or deleted.

// Flow is the decision data of a flow in a version of a job.
type Flow struct {
	graph   *flow.Graph
	steps   []flowStep
	filled  *job.Job
	spec    *job.Flow
	timeout time.Duration
	zone    *time.Location
	// jobs are the full names of the jobs that steps run.
	jobs []string
}

// flowStep is a compiled step of a flow.
type flowStep struct {
	*job.Step
	policy *Policy
	filled *job.Job // the definition of the step's attempts
	calls  string   // the job that it runs; "" for none
	uses   []string // the steps whose results its templates read
}

// compileFlow returns the flow of a job with its defaults filled in.
func compileFlow(filled *job.Job) *Flow {
	spec := filled.Run.Flow
	f := &Flow{graph: flow.NewGraph(spec), filled: filled, spec: spec, zone: time.UTC}
	if zone, err := cron.LoadZone(filled.Schedule.Timezone); err == nil { // validation has reported other zones
		f.zone = zone.Location()
	}
	if t := filled.Policy.Timeout; t != nil {
		f.timeout = time.Duration(*t)
	}
	params := make([]string, 0, len(filled.Params))
	for name := range filled.Params {
		params = append(params, name)
	}
	for i, s := range spec.All() {
		step := flowStep{Step: s, uses: spec.Uses(i, params), filled: filled.OfStep(s)}
		step.policy = CompilePolicy(step.filled)
		step.policy.ofStep(spec.KeepTogether)
		if s.Wait != nil {
			step.policy.Handler = job.AnyNode
		}
		if step.calls = s.Calls(filled.Namespace); step.calls != "" {
			f.jobs = append(f.jobs, step.calls)
		}
		f.steps = append(f.steps, step)
	}
	return f
}

// ofStep removes the settings for occurrences of the job, which belong to the flow.
func (p *Policy) ofStep(together bool) {
	p.Planned, p.AfterEnd, p.Start, p.End, p.MaxRuns, p.On, p.Boot, p.DeleteAfter = false, 0, time.Time{}, time.Time{}, 0, nil, false, -1
	p.LateBy, p.Bound = forever, p.Bound || together
}

// step returns the place of a step in the flow, or nil.
func (f *Flow) step(name string) *flowStep {
	if i := f.graph.Index(name); i >= 0 {
		return &f.steps[i]
	}
	return nil
}

// flowRun is a run of a begun flow.
type flowRun struct {
	flow.Saved
	plan    *Flow
	changed bool
}

// isFlow reports whether a run is a flow in progress. A repeated one has a state from its
// start.
func isFlow(r *store.Run) bool {
	return r.Flow != nil && r.State != job.StateReady && r.State != job.StateWaiting
}

// toBegin returns the flow that the claim of a run begins, nil for none.
func (b *Batch) toBegin(j *Job, m *member) *Flow {
	switch {
	case isFlow(&m.Run), isStep(&m.Run.Run):
		return nil
	case m.Flow != nil:
		return b.flowOf(m).plan
	}
	return j.Policy.Flow
}

// isStep reports whether a run is part of a flow's run.
func isStep(r *job.Run) bool { return r.Kind == job.RunStep }

// noFlow replaces an unreadable flow: it starts no step.
var noFlow = &Flow{graph: flow.NewGraph(&job.Flow{}), spec: &job.Flow{}, filled: &job.Job{}, zone: time.UTC}

// flowOf returns the flow of a begun run.
func (b *Batch) flowOf(m *member) *flowRun {
	if m.flow != nil {
		return m.flow
	}
	m.flow = &flowRun{plan: noFlow}
	if m.flow.Read(m.Flow) != nil {
		return m.flow
	}
	if own := m.flow.Definition; own != nil {
		m.flow.plan = b.compiled(own)
	} else if j := b.job(m.JobUID); j != nil && j.Policy.Flow != nil {
		m.flow.plan = j.Policy.Flow
	}
	return m.flow
}

// A run that began under an earlier definition has it in its state, and each step about the run
// needs it compiled. A batch caches a few of them, and no long ones, to bound its memory.
const (
	ownFlowsMax = 16
	ownFlowMax  = 64 << 10
)

// compiled returns the flow of a definition in JSON.
func (b *Batch) compiled(definition []byte) *Flow {
	if known := b.ownFlows[string(definition)]; known != nil {
		return known
	}
	plan, filled := noFlow, job.Job{}
	if json.Unmarshal(definition, &filled) == nil && filled.Run.IsFlow() {
		plan = compileFlow(&filled)
	}
	if len(definition) <= ownFlowMax {
		if len(b.ownFlows) >= ownFlowsMax {
			clear(b.ownFlows)
		}
		put(&b.ownFlows, string(definition), plan)
	}
	return plan
}

// saveFlow notes that the state of a flow has changed.
func (b *Batch) saveFlow(m *member) {
	m.flow.changed = true
	b.save(m)
}

// settleFlow writes the state of a flow into its run.
func (m *member) settleFlow() {
	if m.flow != nil && m.flow.changed {
		m.Flow = m.flow.Append(make([]byte, 0, len(m.Flow)+len(m.Flow)/4))
		m.flow.changed = false
	}
}

// policyOfStep returns the policy of a step's run: if its flow is unknown, a policy that lets it
// end.
func (b *Batch) policyOfStep(r *store.Run) *Policy {
	if p := b.run(r.Parent); p != nil && isFlow(&p.Run) {
		name, _ := r.Step()
		if s := b.flowOf(p).plan.step(name); s != nil {
			return s.policy
		}
	}
	return &Policy{Overlap: job.OverlapAllow, LateBy: forever, DeleteAfter: -1}
}

// lookFlow requests the inputs of decisions about a flow: the runs of its steps, and the
// jobs that it runs.
func (b *Batch) lookFlow(n *Need, m *member) bool {
	if _, known := b.lookJob(n, m.JobUID); !known {
		return false
	}
	f, all := b.flowOf(m), true
	open := f.Open()
	if !b.mayCancelUnits(m, f) {
		open = nil // the consequences depend on the state alone
	}
	for _, ref := range open {
		of := RunRef{Run: b.unitID(m, f, ref), Job: m.JobUID}
		if f.plan.steps[ref.Step].calls != "" {
			of.Job = job.ID{}
		}
		unit, known := b.lookRun(n, of)
		if unit != nil {
			unit.mayEnd = true
		}
		all = all && known
	}
	if f.plan.timeout > 0 {
		_, known := b.lookRun(n, RunRef{Run: b.stepID(m, "", -1), Job: m.JobUID})
		all = all && known
	}
	return b.lookNames(n, f.plan.jobs) && all
}

// mayCancelUnits reports whether the step may end open units of a flow.
func (b *Batch) mayCancelUnits(m *member, f *flowRun) bool {
	if !b.onlyUnitsEnd || m.mayStop || f.Ending != "" || f.plan.graph.CancelsUnits() {
		return true
	}
	if m.Kind != job.RunByFlow {
		return false
	}
	p := b.runs[m.Parent]
	return p != nil && isFlow(&p.Run) && b.mayCancelUnits(p, b.flowOf(p))
}

// lookNames reports whether some jobs are known, or requests them.
func (b *Batch) lookNames(n *Need, names []string) bool {
	all := true
	for _, full := range names {
		b.lookName(n, full)
		_, known := b.facts.names[full]
		all = all && known
	}
	return all
}

// lookParent requests the flow of a step's run, with the inputs of its end.
func (b *Batch) lookParent(n *Need, m *member) bool {
	ref := RunRef{Run: m.Parent}
	if isStep(&m.Run.Run) {
		ref.Job = m.JobUID
	}
	p, known := b.lookRun(n, ref)
	if p == nil {
		return known
	}
	b.lookSessions(n)
	if b.startsSteps && isStep(&m.Run.Run) && isFlow(&p.Run) {
		if _, known := b.lookJob(n, p.JobUID); !known {
			return false
		}
		if b.onlyStarts(m, p) {
			return true
		}
		name, _ := m.Step()
		p.mayStop = p.mayStop || name == "" // its timeout
	}
	p.mayEnd = true
	b.lookAround(n, p, "")
	return p.around
}

// onlyStarts reports whether the claim of a step can only start it, not end it.
func (b *Batch) onlyStarts(m, p *member) bool {
	name, _ := m.Step()
	s := b.flowOf(p).plan.step(name)
	return s != nil && s.Wait == nil && m.Last == ""
}

// unitID returns the id of the run of a unit.
func (b *Batch) unitID(m *member, f *flowRun, ref flow.Ref) job.ID {
	return b.stepID(m, f.State.Steps[ref.Step].Name, ref.Item)
}

// stepID returns the id of the run of a step: a repeated step creates the same id, and the
// state of the flow determines its runs.
func (b *Batch) stepID(m *member, step string, item int) job.ID {
	return StepID(m.ID, Begun(&m.Run), step, item)
}

// StepID returns the id of the run of a step in a flow that began at a time; item is -1 for a step
// without items.
func StepID(run job.ID, began time.Time, step string, item int) job.ID {
	return idAt(began, "step "+step, run, job.ID{}, item)
}

// unitOf returns the unit of a run in a flow.
func (f *flowRun) unitOf(r *job.Run) flow.Ref {
	name, item := r.Step()
	return flow.Ref{Step: f.plan.graph.Index(name), Item: item}
}

// isTimer reports whether the claim of a run starts nothing: a wait, or the timeout of a
// flow.
func (b *Batch) isTimer(r *store.Run) bool {
	if !isStep(&r.Run) {
		return false
	}
	name, _ := r.Step()
	if name == "" {
		return true
	}
	p := b.run(r.Parent)
	if p == nil || !isFlow(&p.Run) {
		return false
	}
	s := b.flowOf(p).plan.step(name)
	return s != nil && s.Wait != nil
}

// ring decides about a due timer.
func (b *Batch) ring(m *member) {
	p := b.run(m.Parent)
	name, _ := m.Step()
	if name == "" {
		b.remove(m)
		if p != nil && !p.removed {
			timeout := b.flowOf(p).plan.timeout
			b.stopFlow(p, job.OutcomeTimedOut, reason.Timeout.Of(timeout), false)
		}
		return
	}
	m.First = b.now
	a := job.Attempt{Run: m.ID, Number: 1, Started: m.Claimed, Ended: b.now, Outcome: job.OutcomeSucceeded, Reason: reason.TimeCame.Of()}
	if w := b.flowOf(p).plan.step(name).Wait; w.Approval != "" || w.Signal != "" {
		a.Outcome, a.Reason = job.OutcomeTimedOut, reason.NothingWithin.Of(time.Duration(w.For))
	}
	b.end(m, a, 0, true)
}

// beginFlow starts a claimed flow.
func (b *Batch) beginFlow(j *Job, m *member) {
	var f *flowRun
	if m.Flow != nil {
		f = b.flowOf(m)
		f.Resume(b.now.UnixMilli())
	} else {
		f = &flowRun{plan: j.Policy.Flow}
		f.State = *f.plan.graph.Begin()
	}
	if m.Kind == job.RunByFlow {
		if p := b.run(m.Parent); p != nil && isFlow(&p.Run) {
			f.Depth = b.flowOf(p).Depth + 1
		}
	}
	m.flow = f
	m.State, m.Token, m.Session, m.Node = job.StateRunning, job.ID{}, job.ID{}, ""
	m.HoldsSlot, m.Version, m.Claimed, m.Reason, m.Last = true, j.Version, b.now, job.Reason{}, ""
	m.First = b.now
	m.Flow = []byte("{}")
	b.rememberFloor(j, m)
	b.saveFlow(m)
	b.raiseFloor(j, &m.Run)
	if f.plan.timeout > 0 {
		b.makeStep(m, "", -1, startOf(b.now, m.Due).Add(f.plan.timeout), j.Policy)
	}
	b.advance(m)
}

// asker evaluates templates with the results of a flow.
type asker struct {
	b *Batch
	m *member
	f *flowRun
}

// If implements [flow.Asker].
func (a asker) If(step int) (bool, error) {
	return a.b.dataOf(a.m, a.f, flow.Ref{Step: step, Item: -1}).Condition(a.f.plan.steps[step].If)
}

// Items implements [flow.Asker].
func (a asker) Items(step int) ([]json.RawMessage, error) {
	return a.b.dataOf(a.m, a.f, flow.Ref{Step: step, Item: -1}).Items(a.f.plan.steps[step].ForEach)
}

// dataOf returns the data for the templates of a unit that are evaluated before its start.
func (b *Batch) dataOf(m *member, f *flowRun, ref flow.Ref) job.TemplateData {
	data := job.TemplateData{
		Scheduled: m.Scheduled.In(f.plan.zone), Run: m.ID, Attempt: 1, Shards: 1, Namespace: m.Namespace, Name: m.Name,
		Params: map[string]string{}, Steps: f.results(f.plan.steps[ref.Step].uses),
	}
	for name, p := range f.plan.filled.Params {
		data.Params[name] = p.Default
		if value, given := m.Params[name]; given {
			data.Params[name] = value
		}
	}
	data.Item, data.Index = f.item(ref)
	return data
}

// item returns the item of a unit, nil for none, with its place.
func (f *flowRun) item(ref flow.Ref) (json.RawMessage, int) {
	if ref.Step < 0 || ref.Item < 0 || ref.Item >= len(f.State.Steps[ref.Step].Items) {
		return nil, 0
	}
	return f.State.Steps[ref.Step].Items[ref.Item].Value, ref.Item
}

// results returns the data of some steps for templates.
func (f *flowRun) results(names []string) map[string]job.StepData {
	list := make(map[string]job.StepData, len(names))
	for _, name := range names {
		if i := f.plan.graph.Index(name); i >= 0 {
			s := &f.State.Steps[i]
			outcome := s.Outcome
			if outcome == "" && s.Mark.IsOver() {
				outcome = job.OutcomeSkipped
			}
			list[name] = job.StepData{Outcome: outcome, Attempt: s.Attempt, Result: s.Result}
		}
	}
	return list
}

// resultsSize returns how many bytes the results of a flow have.
func (f *flowRun) resultsSize() (n int) {
	for i := range f.State.Steps {
		n += len(f.State.Steps[i].Result)
		for k := range f.State.Steps[i].Items {
			n += len(f.State.Steps[i].Items[k].Result)
		}
	}
	for _, early := range f.Early {
		n += len(early.Data)
	}
	return n
}

// bounded turns a success with an oversized result into a failure.
func (b *Batch) bounded(m *member, res *store.Result) {
	if res.Outcome != job.OutcomeSucceeded || len(res.Value) == 0 {
		return
	}
	var f *flowRun
	if p := b.run(m.Parent); p != nil && isFlow(&p.Run) {
		f = b.flowOf(p)
	}
	why := tooLarge(f, res.Value)
	res.Value = bytes.ToValidUTF8(res.Value, []byte("\uFFFD"))
	if !why.IsZero() {
		res.Outcome, res.Reason, res.Permanent, res.Value = job.OutcomeFailed, why, true, nil
	}
}

// tooLarge explains why a flow refuses a result; none if it accepts it.
func tooLarge(f *flowRun, value []byte) (why job.Reason) {
	switch {
	case len(value) > job.ResultMax:
		return reason.ResultTooLong.Of(len(value), job.ResultMax)
	case len(value) > 0 && !json.Valid(value):
		return reason.ResultNotJSON.Of()
	case f != nil && f.resultsSize()+len(value) > job.ResultsMax:
		return reason.ResultsTooLong.Of(job.ResultsMax)
	}
	return why
}

// stepEnded reports the end of a step's run to its flow, and advances the flow.
func (b *Batch) stepEnded(m *member, a job.Attempt) {
	if p := b.noteEnd(m, a); p != nil {
		b.advance(p)
	}
}

// noteEnd records the end of a unit's run in its flow. It returns nil if nothing changes.
func (b *Batch) noteEnd(m *member, a job.Attempt) *member {
	p := b.run(m.Parent)
	if p == nil || p.removed || !isFlow(&p.Run) {
		return nil
	}
	f := b.flowOf(p)
	ref := f.unitOf(&m.Run.Run)
	end := flow.End{Outcome: a.Outcome, Reason: a.Reason, Attempt: a.Number, Result: m.value, At: b.now.UnixMilli()}
	began := Begun(&m.Run)
	if a.Number == 1 && !a.Started.IsZero() {
		began = a.Started // the record of its run has the same
	}
	if !began.IsZero() {
		end.Began = began.UnixMilli()
	}
	if !f.End(ref, end) {
		return nil
	}
	if f.Cause == "" && a.Outcome.Failed() && f.Ending == "" && !f.plan.graph.Steps[ref.Step].AllowFailure {
		f.Cause = a.Cause
	}
	b.saveFlow(p)
	return p
}

// advance applies the consequences of a flow's state until no more follow.
func (b *Batch) advance(m *member) {
	f := b.flowOf(m)
	for !m.removed {
		next := f.plan.graph.Advance(&f.State, asker{b, m, f}, b.now.UnixMilli())
		again := false
		for _, ref := range next.Cancel {
			again = b.cancelUnit(m, f, ref) || again
		}
		for _, ref := range next.Start {
			again = !b.startUnit(m, f, ref) || again
		}
		if len(next.Start)+len(next.Cancel) > 0 || next.Over {
			b.saveFlow(m)
		}
		if next.Over {
			b.endFlow(m, next.Outcome, next.Reason)
			return
		}
		if !again {
			b.saveFlow(m) // records units that never start
			return
		}
	}
}

// endFlow ends the run of a flow.
func (b *Batch) endFlow(m *member, outcome job.Outcome, why job.Reason) {
	if timer := b.flowTimer(m); timer != nil {
		b.remove(timer)
	}
	cause := ""
	if f := b.flowOf(m); f.Ending == "" {
		cause = f.Cause
	}
	m.settleFlow()
	b.end(m, job.Attempt{Run: m.ID, Number: m.Attempt, Node: m.Node, Started: Begun(&m.Run), Ended: lastOf(b.now, Begun(&m.Run)), Outcome: outcome, Reason: why, Cause: cause}, 0, true)
}

// flowTimer returns the run of a flow's timeout, or nil.
func (b *Batch) flowTimer(m *member) *member {
	if b.flowOf(m).plan.timeout == 0 {
		return nil
	}
	if t := b.run(b.stepID(m, "", -1)); t != nil && !t.removed {
		return t
	}
	return nil
}

// stopFlow ends the running steps of a flow; with all, also its finally steps.
func (b *Batch) stopFlow(m *member, outcome job.Outcome, why job.Reason, all bool) {
	f := b.flowOf(m)
	f.Stop(outcome, why)
	f.Abandoned = f.Abandoned || all
	b.saveFlow(m)
	b.advance(m)
}

// cancelUnit ends the run of an open unit, and reports whether it has ended at once.
func (b *Batch) cancelUnit(m *member, f *flowRun, ref flow.Ref) bool {
	by, why := System, reason.OtherFailed.Of()
	if f.Ending != "" {
		why = reason.FlowEnded.Of(f.Ending)
	}
	c := b.run(b.unitID(m, f, ref))
	switch {
	case c == nil || c.removed:
		return f.End(ref, flow.End{Outcome: job.OutcomeCancelled, Reason: reason.Cancelled.Of(by, why), At: b.now.UnixMilli()})
	case isFlow(&c.Run):
		if c.CancelBy == "" {
			c.CancelBy, c.CancelReason, c.quiet = by, why, true
			b.save(c)
			b.stopFlow(c, job.OutcomeCancelled, reason.Cancelled.Of(by, why), false)
			if c.quiet = c.removed; c.removed {
				b.noteEnd(c, job.Attempt{Number: c.Attempt, Outcome: c.Outcome, Reason: c.Reason})
			}
		}
	case c.State != job.StateRunning:
		b.endQuietly(c, job.Attempt{Run: c.ID, Node: c.Node, Ended: b.now, Outcome: job.OutcomeCancelled, Reason: reason.Cancelled.Of(by, why)})
	case c.CancelBy == "":
		b.endRunning(c, by, why)
	}
	return f.Unit(ref).Mark != flow.Open
}

// endQuietly ends the run of a unit and leaves the consequences to the caller.
func (b *Batch) endQuietly(c *member, a job.Attempt) {
	c.quiet = true
	b.end(c, a, 0, true)
	b.noteEnd(c, a)
}

// startUnit creates the run of a unit, or ends the unit, and reports whether it created the run.
func (b *Batch) startUnit(m *member, f *flowRun, ref flow.Ref) bool {
	s := &f.plan.steps[ref.Step]
	fail := func(why job.Reason) bool {
		f.End(ref, flow.End{Outcome: job.OutcomeFailed, Reason: why, At: b.now.UnixMilli()})
		return false
	}
	due := lastOf(b.now, m.Due)
	switch {
	case s.calls != "":
		if why := b.startJob(m, f, s, ref); !why.IsZero() {
			return fail(why)
		}
		return true
	case s.Wait != nil:
		data := b.dataOf(m, f, ref)
		switch w := s.Wait; {
		case w.Until != "":
			until, err := data.Instant(w.Until)
			if err != nil {
				return fail(reason.FieldFailed.Of("wait.until", reason.Words(err.Error())))
			}
			due = lastOf(due, until)
		case w.Approval != "":
			asked, err := data.Text(w.Approval)
			if err != nil {
				return fail(reason.FieldFailed.Of("wait.approval", reason.Words(err.Error())))
			}
			f.Unit(ref).Reason = job.Text(asked)
		case w.Signal != "":
			if early, came := f.Early[w.Signal]; came {
				delete(f.Early, w.Signal)
				f.End(ref, flow.End{Outcome: job.OutcomeSucceeded, Reason: reason.Signalled.Of(w.Signal, early.By), Result: early.Data, At: b.now.UnixMilli()})
				return false
			}
		}
		if w := s.Wait; w.Until == "" {
			due = due.Add(time.Duration(w.For))
		}
		c := b.makeStep(m, s.Name, ref.Item, due, s.policy)
		c.Claimed = b.now
		if w := s.Wait; w.For == 0 && w.Until == "" {
			c.State, c.Reason = job.StateWaiting, reason.NothingYet.Of()
		}
		return true
	}
	b.makeStep(m, s.Name, ref.Item, due, s.policy)
	return true
}

// makeStep makes the run of a step, or the timer of a flow.
func (b *Batch) makeStep(m *member, step string, item int, due time.Time, p *Policy) *member {
	r := store.Run{
		Run: job.Run{
			ID: b.stepID(m, step, item), JobUID: m.JobUID, Namespace: m.Namespace, Name: m.Name,
			Kind: job.RunStep, Key: job.StepKey(m.ID, step, item), Parent: m.ID,
			Epoch: m.Epoch, Version: m.Version, State: job.StateReady, Attempt: 1,
			Scheduled: m.Scheduled, Due: due, Params: m.Params, Node: "",
		},
		Priority: m.Priority, Slot: m.JobUID.String() + stepSlot,
	}
	f := b.flowOf(m)
	if f.plan.spec.KeepTogether {
		r.Node = m.Node
	}
	if s := b.seat(&r, p); s != nil {
		r.Session, r.Node = s.ID, s.Node
		if f.plan.spec.KeepTogether && step != "" && m.Node == "" {
			m.Node = s.Node
		}
	} else {
		b.unplaced++
	}
	b.makeRun(r)
	b.tellOf(&r)
	return b.runs[r.ID]
}

// stepSlot ends the slot keys of steps, which never wait for a slot.
const stepSlot = "~"

// seat returns the session for a step: the less loaded of two that suit, nil if a planner
// must place it.
func (b *Batch) seat(r *store.Run, p *Policy) *store.Session {
	if p.Strategy != job.StrategyAny {
		return nil
	}
	list := b.eligible(p)
	if Belongs(p.Bound, r.Node) {
		for _, s := range list {
			if s.Node == r.Node && s.Takes() {
				return s
			}
		}
		return nil
	}
	if len(list) == 0 {
		return nil
	}
	if len(b.handed) == 0 { // the reporting node has room for one
		for _, s := range list {
			if s.ID == b.reporter && s.Takes() {
				return s
			}
		}
	}
	n := int(r.ID[len(r.ID)-1])<<8 | int(r.ID[len(r.ID)-2])
	first, second := list[n%len(list)], list[(n/len(list)+1+n)%len(list)]
	if second.Load.Running+second.Load.Ready < first.Load.Running+first.Load.Ready {
		first = second
	}
	if !first.Takes() {
		return nil
	}
	return first
}

// startJob creates a run of another job for a step, or returns why that is not possible.
func (b *Batch) startJob(m *member, f *flowRun, s *flowStep, ref flow.Ref) (why job.Reason) {
	full := s.calls
	j := b.named(full)
	switch {
	case f.Depth+1 >= job.FlowDepthMax:
		return reason.FlowTooDeep.Of(job.FlowDepthMax)
	case j == nil || j.Deleted:
		return reason.NoJob.Of(full)
	case j.State == job.JobPaused:
		return reason.JobIsPaused.Of(full, j.PausedBy, j.PauseReason)
	case j.Policy.Reported || j.Policy.Broadcast || j.Policy.Shards > 0:
		return reason.NotForSteps.Of(full)
	}
	expanded, err := s.filled.Expand(b.dataOf(m, f, ref))
	if err != nil {
		return job.Text(err.Error())
	}
	r := b.newRun(j, b.stepID(m, s.Name, ref.Item), job.RunByFlow, job.StepKey(m.ID, s.Name, ref.Item))
	r.Parent, r.Scheduled, r.Due, r.Params = m.ID, m.Scheduled, lastOf(b.now, m.Due), expanded.Job.Params
	r.LateAfter = j.Policy.LateAfter(r.Kind, r.Due)
	r.Slot = j.Policy.SlotKey(&r.Run, "")
	if seat := b.seat(&r, j.Policy); seat != nil {
		r.Session, r.Node = seat.ID, seat.Node
	} else {
		b.unplaced++
	}
	b.makeRun(r)
	b.tellOf(&r)
	return why
}

// tellOf hints a new run to its node.
func (b *Batch) tellOf(r *store.Run) {
	if r.Due.After(b.now.Add(store.ClaimAhead)) || !b.handTo(r) {
		b.hint(r.Due)
	}
}

// ofClaim adds the data for a step's attempt to the answer to its claim.
func (b *Batch) ofClaim(out *store.ClaimOutcome) {
	if !isStep(&out.Run.Run) {
		return
	}
	p := b.run(out.Run.Parent)
	if p == nil || !isFlow(&p.Run) {
		return
	}
	f := b.flowOf(p)
	ref := f.unitOf(&out.Run.Run)
	if ref.Step < 0 {
		return
	}
	s := &f.plan.steps[ref.Step]
	definition, shown := *s.filled, out.Job
	definition.UID, definition.Version, definition.Epoch, definition.Status = shown.Definition.UID, shown.Definition.Version, shown.Definition.Epoch, shown.Definition.Status
	out.Job = &store.Job{Definition: &definition, Filled: &definition, Cursor: shown.Cursor, Planned: shown.Planned, Deleted: shown.Deleted}
	out.Steps = f.results(s.uses)
	out.Item, out.Index = f.item(ref)
	out.Together = f.plan.spec.KeepTogether
}

// freezeFlows copies the old definition of a changed job into its flows in progress.
func (b *Batch) freezeFlows(j *Job) {
	for _, m := range b.byJob[j.UID] {
		if m.removed || !isFlow(&m.Run) {
			continue
		}
		f := b.flowOf(m)
		if f.Definition != nil || f.plan == noFlow {
			continue
		}
		own := *f.plan.filled
		own.UID, own.Version, own.Epoch, own.Status = job.ID{}, 0, 0, nil
		// It was decoded from JSON.
		f.Definition, _ = json.Marshal(&own)
		b.saveFlow(m)
	}
}

// mayRunOn reports whether a step may run on a node: in a flow on one node, the first step
// determines the node.
func (b *Batch) mayRunOn(m *member, node string) bool {
	p := b.run(m.Parent)
	if p == nil || !isFlow(&p.Run) || !b.flowOf(p).plan.spec.KeepTogether {
		return true
	}
	return p.Node == "" || p.Node == node
}

// settleOn records the node of a flow whose steps run on one node.
func (b *Batch) settleOn(m *member, node string) {
	if p := b.run(m.Parent); p != nil && isFlow(&p.Run) && p.Node == "" && b.flowOf(p).plan.spec.KeepTogether {
		p.Node = node
		b.save(p)
	}
}
