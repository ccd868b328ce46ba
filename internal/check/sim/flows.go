package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// flowQuietAfter is quietAfter for a flow, whose steps take that long one after the other.
const flowQuietAfter = 3 * time.Minute

// The flows of the simulation.
const (
	// everyKind has each kind of step that needs no answer.
	everyKind = `{flow: {max_parallel: 3, steps: [
  {name: a, run: echo, retry: {attempts: 2, backoff: 1s, on: [failed, lost]}},
  {name: each, needs: [a], for_each: [x, y, z], max_parallel: 2, run: echo},
  {name: may, needs: [a], allow_failure: true, run: echo},
  {name: rest, needs: [a], wait: {for: 3s}},
  {name: not, needs: [a], if: 'false', run: echo},
  {name: other, needs: [may, not], run: {job: called}},
  {name: join, needs: [each, other, rest], run: echo, retry: {attempts: 1, backoff: 1s, on: [lost]}},
  {name: undo, needs: [join], when: failed, run: echo},
  {name: tell, needs: [join, undo], when: finished, run: echo}],
 finally: [{name: clean, run: echo}, {name: last, needs: [clean], when: finished, run: echo}]}}`
	// failsFast is a flow that ends with its first failure.
	failsFast = `{flow: {fail_fast: true, steps: [
  {name: a, run: echo}, {name: b, run: echo}, {name: c, needs: [a], for_each: [x, y], fail_fast: true, run: echo}, {name: d, needs: [b, c], run: echo}],
 finally: [{name: clean, run: echo}]}}`
	// asks is a flow that waits for a person.
	asks = `{flow: {steps: [
  {name: a, run: echo}, {name: ask, needs: [a], wait: {approval: 'ok?', for: 25s}}, {name: b, needs: [ask], run: echo}, {name: c, needs: [ask], when: failed, run: echo}]}}`
)

// flowRun is the data about a run of a flow.
type flowRun struct {
	job   string
	id    job.ID
	over  *store.Record // nil if it has not ended
	units map[string]map[int][]*store.Record
}

// checkFlows checks that every flow ends as its steps require, that a step starts when its needs
// have ended as required, once per attempt of its retry policy, and that finally runs.
func (c *checker) checkFlows() {
	known, err := documents()
	if err != nil {
		c.problem("flows", "%v", err)
		return
	}
	seen := map[job.ID][]*Attempt{}
	for _, a := range c.attempts {
		if a.Run.Kind == job.RunStep {
			seen[a.Run.ID] = append(seen[a.Run.ID], a)
		}
	}
	for _, f := range c.flowRuns() {
		spec := known[f.job].Run.Flow
		if f.over == nil || f.over.Attempt.Number == 0 && f.over.Attempt.Started.IsZero() && len(f.units) == 0 {
			continue // it has not ended, or never begun
		}
		c.Flows++
		e := &flowCheck{checker: c, flowRun: f, all: spec.All(), spec: spec, seen: seen, marks: map[string]flowMark{}}
		for i, s := range e.all {
			for item := range f.units[s.Name] {
				c.checkUnit(f, s, item)
			}
			e.checkStart(i)
		}
		e.checkEnd()
	}
	c.checkFlowOverlap()
}

// flowRuns returns the runs of flows with the data about their steps.
func (c *checker) flowRuns() map[job.ID]*flowRun {
	runs := map[job.ID]*flowRun{}
	for id, list := range c.records {
		last := list[len(list)-1]
		if specOf(last.Run.Name).run != "" && last.Run.Kind != job.RunStep && last.Final && last.Until.IsZero() {
			runs[id] = &flowRun{job: last.Run.Name, id: id, over: last, units: map[string]map[int][]*store.Record{}}
		}
	}
	for _, list := range c.records {
		r := &list[0].Run
		step, item := r.Step()
		f := runs[r.Parent]
		if step == "" || f == nil {
			continue
		}
		if f.units[step] == nil {
			f.units[step] = map[int][]*store.Record{}
		}
		if other := f.units[step][item]; other != nil {
			c.problem("flows", "step %s/%d of the flow %s of %s has the runs %s and %s", step, item, f.job, f.over.Run.Due, other[0].Run.ID, r.ID)
		}
		if list[0].Attempt.Number == 0 { // it ended between two attempts
			list = append(slices.Clone(list[1:]), list[0])
		}
		f.units[step][item] = list
	}
	for id := range c.active {
		r := c.active[id]
		if f := runs[r.Parent]; f != nil && r.Kind == job.RunStep {
			c.problem("flows", "the flow %s of %s has ended, and the run %s of it has not", f.job, f.over.Run.Due, r.Key)
		}
	}
	return runs
}

// checkUnit checks that a step has as many attempts as its retry policy requires.
func (c *checker) checkUnit(f *flowRun, s *job.Step, item int) {
	if s.Calls(job.DefaultNamespace) != "" {
		return // it is checked as a run of that job
	}
	for i, r := range f.units[s.Name][item] {
		if i == 0 {
			continue
		}
		before, allowed := f.units[s.Name][item][i-1].Attempt, 0
		on := job.Outcome("")
		if s.Retry != nil {
			allowed, on = *s.Retry.Attempts, before.Outcome
		}
		if r.Attempt.Number > 0 && (i > allowed || !slices.ContainsFunc(s.Retry.On, func(o job.RetryOn) bool { return string(o) == string(on) })) {
			c.problem("flows", "step %s/%d of the flow %s of %s ended as %s and has attempt %d", s.Name, item, f.job, f.over.Run.Due, before.Outcome, r.Attempt.Number)
		}
	}
}

// flowMark is the expected state of a step, by the documented rules and the ends of its needs.
type flowMark int

const (
	markStarts flowMark = iota
	markSucceeds
	markFails
	markBlocked
	markUnneeded
	markUnknown // the flow was ended early
)

// flowCheck checks the steps of a flow's run.
type flowCheck struct {
	*checker
	*flowRun
	spec  *job.Flow
	all   []*job.Step
	seen  map[job.ID][]*Attempt // the evidence of the steps' attempts, by run
	marks map[string]flowMark
	ended time.Time // the latest end of a step outside finally
}

// cut reports whether the flow was ended before all possible steps had started.
func (e *flowCheck) cut() bool {
	o := e.over.Attempt.Outcome
	return o == job.OutcomeCancelled || o == job.OutcomeTimedOut || e.spec.FailFast && o == job.OutcomeFailed
}

// checkStart compares whether a step has started, and when, with the rules.
func (e *flowCheck) checkStart(i int) {
	s := e.all[i]
	starts, items := e.units[s.Name], max(1, len(s.ForEach))
	mark, after := e.expect(i)
	first, fails := time.Time{}, false
	for _, list := range starts {
		for _, a := range e.seen[list[0].Run.ID] {
			if first.IsZero() || a.Started.Before(first) {
				first = a.Started
			}
		}
		end := list[len(list)-1].Attempt
		fails = fails || end.Outcome != job.OutcomeSucceeded || list[len(list)-1].Replaces
	}
	if last := e.endOf(s.Name); !e.spec.IsFinally(i) && last.After(e.ended) {
		e.ended = last
	}
	where := fmt.Sprintf("step %s of the flow %s of %s", s.Name, e.job, e.over.Run.Due)
	switch {
	case len(starts) > items:
		e.problem("flows", "%s has %d runs, want %d", where, len(starts), items)
	case mark != markStarts && mark != markUnknown && len(starts) > 0:
		e.problem("flows", "%s has started, and what it needs has not ended so", where)
	case mark == markStarts && len(starts) < items && !(e.cut() && !e.spec.IsFinally(i)) && !s.FailFast:
		e.problem("flows", "%s has %d of %d runs, and what it needs has ended so; the flow is %s: %s", where, len(starts), items, e.over.Attempt.Outcome, e.over.Attempt.Reason)
	case !first.IsZero() && first.Before(after):
		e.problem("flows", "%s has started at %s, and what it needs has ended at %s", where, first, after)
	}
	switch {
	case mark != markStarts:
	case len(starts) < items && (len(starts) == 0 || !fails):
		mark = markUnknown
	case fails:
		mark = markFails
	default:
		mark = markSucceeds
	}
	e.marks[s.Name] = mark
}

// expect returns whether a step should start, and the end of its needs.
func (e *flowCheck) expect(i int) (mark flowMark, after time.Time) {
	s := e.all[i]
	if e.spec.IsFinally(i) {
		after = e.ended
		if e.cancels[e.id] > 1 {
			return markUnknown, after // finally was ended as well
		}
	}
	failed, bad, unneeded, unknown := false, false, false, false
	for _, name := range s.Needs {
		allowed := false
		for _, need := range e.all {
			allowed = allowed || need.Name == name && need.AllowFailure
		}
		switch e.marks[name] {
		case markFails:
			failed, bad = true, bad || !allowed
		case markBlocked:
			failed, bad = true, true
		case markUnneeded:
			unneeded = true
		case markUnknown:
			unknown = true
		}
		if end := e.endOf(name); end.After(after) {
			after = end
		}
	}
	switch {
	case s.If == "false":
		return markSucceeds, after
	case unknown:
		return markUnknown, after
	case s.When == job.OnFailed && !failed:
		return markUnneeded, after
	case (s.When == job.OnSucceeded || s.When == "") && bad:
		return markBlocked, after
	case (s.When == job.OnSucceeded || s.When == "") && unneeded:
		return markUnneeded, after
	}
	return markStarts, after
}

// endOf returns when the last attempt of a step ended by its own evidence, unless it was lost
// before.
func (e *flowCheck) endOf(name string) (last time.Time) {
	for _, list := range e.units[name] {
		end := list[len(list)-1].Attempt
		for _, a := range e.seen[list[0].Run.ID] {
			if a.Number == end.Number && end.Outcome == a.Outcome && end.Outcome != job.OutcomeLost && a.Ended.After(last) {
				last = a.Ended
			}
		}
	}
	return last
}

// checkEnd compares how the flow has ended with how its steps have.
func (e *flowCheck) checkEnd() {
	failed := false
	for _, s := range e.all {
		failed = failed || e.marks[s.Name] == markFails && !s.AllowFailure
	}
	want := job.OutcomeSucceeded
	if failed {
		want = job.OutcomeFailed
	}
	switch got := e.over.Attempt.Outcome; {
	case got == job.OutcomeCancelled && e.cancels[e.id] == 0:
		e.problem("flows", "the flow %s of %s was cancelled by no user: %s", e.job, e.over.Run.Due, e.over.Attempt.Reason)
	case got == job.OutcomeCancelled, got == job.OutcomeTimedOut:
	case got != want:
		e.problem("flows", "the flow %s of %s is %s, want %s: %s", e.job, e.over.Run.Due, got, want, e.over.Attempt.Reason)
	}
}

// checkFlowOverlap: the runs of a flow that may not overlap follow each other.
func (c *checker) checkFlowOverlap() {
	byName := map[string][]job.Attempt{}
	for _, f := range c.flowRuns() {
		if a := f.over.Attempt; specOf(f.job).flowMost == 1 && len(f.units) > 0 {
			byName[f.job] = append(byName[f.job], a)
		}
	}
	for name, list := range byName {
		slices.SortFunc(list, func(a, b job.Attempt) int { return a.Started.Compare(b.Started) })
		for i := range list[1:] {
			if list[i+1].Started.Before(list[i].Ended.Add(-stalledMax)) { // by the clocks of two steps
				c.problem("overlap", "a run of the flow %s began at %s, and another one ended at %s", name, list[i+1].Started, list[i].Ended)
			}
		}
	}
}

// ranThen reports whether a run of a flow ran at a moment.
func (c *checker) ranThen(run job.ID, at time.Time) bool {
	list := c.records[run]
	if len(list) == 0 {
		return c.active[run].State == job.StateRunning
	}
	a := list[len(list)-1].Attempt
	return !at.Before(a.Started.Add(-store.ClaimAhead)) && !at.After(a.Ended)
}
