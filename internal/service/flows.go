package service

import (
	"encoding/json"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/flow"
	"github.com/belfry-cron/belfry/job"
)

// ofFlow adds to a run what flows have: the step that it is of, or how far its steps have come.
func ofFlow(run *client.Run, r *job.Run) {
	step, item := r.Step()
	if run.Step = step; item >= 0 {
		run.Item = &item
	}
	if r.Flow == nil {
		return
	}
	var state flow.State
	if json.Unmarshal(r.Flow, &state) != nil {
		return
	}
	run.Steps = make([]client.StepState, len(state.Steps))
	for i := range state.Steps {
		s := &state.Steps[i]
		shown := stepState(&s.Unit)
		shown.Name = s.Name
		for k := range s.Items {
			shown.Items = append(shown.Items, stepState(&s.Items[k].Unit))
		}
		run.Steps[i] = shown
	}
}

// isFlowTimer tells whether a run stands for the timeout of a flow, which is no work to show.
func isFlowTimer(r *job.Run) bool {
	step, _ := r.Step()
	return r.Kind == job.RunStep && step == ""
}

// stepState is a step or an item as clients see it.
func stepState(u *flow.Unit) client.StepState {
	state := string(u.Mark)
	if u.Mark == flow.Pending {
		state = "pending"
	}
	return client.StepState{
		State: state, Outcome: u.Outcome, Reason: u.Reason, Attempt: u.Attempt, Result: u.Result,
		Started: milli(u.Began), Ended: milli(u.Ended),
	}
}

func milli(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
