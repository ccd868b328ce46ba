package storetest

import (
	"encoding/json"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// repeat creates a run that repeats a run of a flow, and returns its initial state.
func (e *env) repeat(j *store.Job, of store.Attempt, a flow.Again) (store.Attempt, flow.Saved) {
	e.Helper()
	var was flow.Saved
	for _, r := range e.attempts(of.Run) {
		if r.Final {
			e.must(json.Unmarshal(r.Run.Flow, &was))
		}
	}
	a.Of = of.Run
	state, err := flow.NewGraph(j.Filled.Run.Flow).Again(&was.State, &a)
	e.must(err)
	begin := flow.Saved{State: *state, Again: &a}
	begin.Definition, err = json.Marshal(j.Filled)
	e.must(err)
	text, err := json.Marshal(&begin)
	e.must(err)
	return e.triggered(store.TriggerItem{
		ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: e.id().String(), Session: e.a.ID, Actor: "ann", Again: of.Run, Flow: text,
	}), begin
}

var flowAgainTests = []test{
	{"a flow that runs again takes over what has succeeded", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, run: 'true'}, {name: b, needs: a, run: 'true'}, {name: c, needs: b, run: 'echo {{ .Steps.a.Result.n }}'}, {name: d, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeSucceeded, `{"n": 7}`)
		e.step(f, "d", job.OutcomeSucceeded, "")
		e.step(f, "b", job.OutcomeFailed, "")
		e.gone(f.Run, job.OutcomeFailed)

		again, begin := e.repeat(j, f, flow.Again{})
		r := e.run(again.Run)
		equal(e, "state", r.State, job.StateReady)
		equal(e, "parent", r.Parent, f.Run)
		equal(e, "taken over from", begin.State.Steps[0].From, f.Run)
		e.begin(again)
		e.begin(again) // its answer was lost
		equal(e, "open", e.open(again), "b")
		e.step(again, "b", job.OutcomeSucceeded, "")
		got := e.step(again, "c", job.OutcomeSucceeded, "")
		equal(e, "result", string(got.Steps["a"].Result), `{"n":7}`)
		end := e.gone(again.Run, job.OutcomeSucceeded)
		equal(e, "parent in history", end.Run.Parent, f.Run)
		equal(e, "unfinished runs", len(e.active(j)), 0)
		last, err := e.Recent(e.ctx, []job.ID{j.Definition.UID}, 1)
		e.must(err)
		for _, r := range e.attempts(last[0][0].Run.ID) {
			if r.Final {
				equal(e, "state of the flow in its last run", string(last[0][0].Run.Flow), string(r.Run.Flow))
			}
		}
	}},
	{"a flow that runs again has the definition of the run that it repeats", func(e *env) {
		j := e.put(flowJob("f", "", diamond))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeFailed, "")
		e.gone(f.Run, job.OutcomeFailed)
		e.put("name: f\nschedule: {cron: '* * * * *'}\nrun: 'true'")
		again, _ := e.repeat(j, f, flow.Again{Skip: []string{"a"}})
		e.begin(again)
		equal(e, "open", e.open(again), "b c")
		e.put(flowJob("f", "", `steps: [{name: other, run: 'true'}]`))
		for _, name := range []string{"b", "c", "d"} {
			e.step(again, name, job.OutcomeSucceeded, "")
		}
		e.gone(again.Run, job.OutcomeSucceeded)
	}},
	{"a flow that runs again obeys the overlap policy, and can be cancelled before it begins", func(e *env) {
		j := e.put(flowJob("f", "overlap: queue", diamond))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeFailed, "")
		other := e.trigger(j)
		e.begin(other)
		again, _ := e.repeat(j, f, flow.Again{Only: []string{"a"}})
		e.claim(e.a, again, store.Waiting)
		_, err := e.Cancel(e.ctx, again.Run, "ann", "")
		e.must(err)
		e.gone(again.Run, job.OutcomeCancelled)
		again, _ = e.repeat(j, f, flow.Again{Only: []string{"a"}})
		e.claim(e.a, again, store.Waiting)
		_, err = e.Cancel(e.ctx, other.Run, "ann", "")
		e.must(err)
		e.begin(again)
		equal(e, "open", e.open(again), "a")
		e.step(again, "a", job.OutcomeSucceeded, "")
		contains(e, "reason", e.gone(again.Run, job.OutcomeFailed).Attempt.Reason.String(), "not yet run again: b, c, d")
	}},
}
