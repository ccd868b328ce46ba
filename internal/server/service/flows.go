package service

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
)

// ofFlow adds the data of flows to a run: its step, or the progress of the steps of its flow,
// and the repeated run.
func ofFlow(run *client.Run, r *job.Run, began time.Time) {
	if r.Kind == job.RunByHand {
		run.RetryOf, run.Parent = r.Parent, job.ID{}
	}
	step, item := r.Step()
	if run.Step = step; item >= 0 {
		run.Item = &item
	}
	if r.Flow == nil {
		return
	}
	var state flow.Saved
	if json.Unmarshal(r.Flow, &state) != nil {
		return
	}
	if again := state.Again; again != nil {
		run.Retried = &client.RetryRequest{From: again.From, Only: again.Only, Skip: again.Skip}
	}
	run.Steps = make([]client.StepState, len(state.Steps))
	for i := range state.Steps {
		s := &state.Steps[i]
		shown := stepState(&s.Unit)
		shown.Name = s.Name
		if s.Items == nil {
			shown.Run = runOfUnit(&s.Unit, r.ID, began, s.Name, -1)
		}
		for k := range s.Items {
			item := stepState(&s.Items[k].Unit)
			item.Run, item.ItemValue = runOfUnit(&s.Items[k].Unit, r.ID, began, s.Name, k), s.Items[k].Name()
			sinceFlow(&item, began)
			shown.Items = append(shown.Items, item)
		}
		sinceFlow(&shown, began)
		run.Steps[i] = shown
	}
}

// sinceFlow lets a step begin with its flow at the earliest: the claim of a flow makes the runs of its first steps, and
// is a moment before it is due.
func sinceFlow(s *client.StepState, began time.Time) {
	if s.From.IsZero() && !s.Started.IsZero() && s.Started.Before(began) {
		s.Started = began
	}
}

// failedStep returns the run of the step or item with which a flow failed, zero for none.
func failedStep(run *client.Run) job.ID {
	if !run.Outcome.Failed() {
		return job.ID{}
	}
	named := run.ReasonArgs.Texts()["step"]
	isBad := func(s client.StepState) bool { return s.State == string(flow.Failed) && !s.Run.IsZero() }
	for i := range run.Steps {
		s := run.Steps[i]
		if named != "" && s.Name != named {
			continue
		}
		if k := slices.IndexFunc(s.Items, isBad); k >= 0 {
			return s.Items[k].Run
		}
		if isBad(s) {
			return s.Run
		}
	}
	return job.ID{}
}

// runOfUnit returns the run of a step or an item, zero for none: a unit that failed before
// an attempt, for example by its template, has none.
func runOfUnit(u *flow.Unit, of job.ID, began time.Time, step string, item int) job.ID {
	switch {
	case !u.From.IsZero():
		return u.Run
	case u.Mark == flow.Open || u.Attempt > 0:
		return engine.StepID(of, began, step, item)
	}
	return job.ID{}
}

// isFlowTimer reports whether a run is the timeout of a flow, which is not shown.
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
		State: state, Outcome: u.Outcome, Why: client.WhyOf(u.Reason), Attempt: u.Attempt, Result: u.Result,
		Started: milli(u.Began), Ended: milli(u.Ended), From: u.From,
	}
}

func milli(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
