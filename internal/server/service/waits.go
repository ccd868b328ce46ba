package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// explainedMax is the most open steps of a flow whose wait is explained: the first ones block
// the rest.
const explainedMax = 20

// sayWaits explains for each open step of a flow what it waits for.
func (s *Runs) sayWaits(ctx context.Context, run *client.Run, r *store.Run) error {
	if len(run.Steps) == 0 || run.State == job.StateDone {
		return nil
	}
	definition, err := s.planOf(ctx, r)
	if err != nil || definition == nil || !definition.Run.IsFlow() {
		return err
	}
	all := definition.Run.Flow.All()
	if len(all) != len(run.Steps) {
		return nil
	}
	byName := make(map[string]*client.StepState, len(all))
	for i := range run.Steps {
		byName[run.Steps[i].Name] = &run.Steps[i]
	}
	var open []*client.StepState
	for i, step := range all {
		switch st := &run.Steps[i]; {
		case st.State == stepPending:
			st.SetWaits(waitsForOthers(definition.Run.Flow, i, step, run.Steps, byName))
		case st.State != stepOpen:
		case step.Wait != nil:
			st.SetWaits(waitsForOutside(step.Wait, st))
		case len(st.Items) > 0:
			st.SetWaits(reason.ItemsOver.Of(itemsOver(st)))
			for k := range st.Items {
				if st.Items[k].State == stepOpen {
					open = append(open, &st.Items[k])
				} else if st.Items[k].State == stepPending {
					st.Items[k].SetWaits(reason.ItemWaits.Of())
				}
			}
		default:
			open = append(open, st)
		}
	}
	return s.sayWhere(ctx, open[:min(len(open), explainedMax)])
}

// The states of steps that are not over.
const (
	stepPending = "pending"
	stepOpen    = string(flow.Open)
)

// sayWhere adds the node of started steps, or the reason why they do not run yet.
func (s *Runs) sayWhere(ctx context.Context, open []*client.StepState) error {
	var runs []store.Run
	var of []*client.StepState
	for _, st := range open {
		r, err := store.ActiveRun(ctx, s.store, st.Run)
		switch {
		case err == nil:
			runs, of = append(runs, r), append(of, st)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	if err := s.explain(ctx, runs); err != nil {
		return err
	}
	for i := range runs {
		switch r := &runs[i]; {
		case r.Flow != nil && r.State == job.StateRunning:
			of[i].SetWaits(reason.WaitsForRun.Of(r.ID, r.Namespace+"/"+r.Name))
		case r.State == job.StateRunning && r.Node != "":
			of[i].SetWaits(reason.RunsOnNode.Of(r.Node))
		default:
			of[i].SetWaits(r.Reason)
		}
	}
	return nil
}

// planOf returns the definition of a flow that runs; nil for one that is not known.
func (s *Runs) planOf(ctx context.Context, r *store.Run) (*job.Job, error) {
	var saved flow.Saved
	if err := json.Unmarshal(r.Flow, &saved); err != nil {
		return nil, nil //nolint:nilerr // a state that cannot be read has no plan to show
	}
	j, err := store.JobByUID(ctx, s.store, r.JobUID)
	if errors.Is(err, store.ErrNotFound) || err == nil && j == nil && saved.Definition == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	definition, err := s.definitionOf(ctx, j, r.Version, saved.Definition)
	if err != nil {
		return nil, nil //nolint:nilerr // what it waits for is said of those that are known
	}
	return definition, nil
}

// waitsForOthers names the steps that a step waits for.
func waitsForOthers(f *job.Flow, i int, step *job.Step, all []client.StepState, byName map[string]*client.StepState) job.Reason {
	var names []string
	for _, need := range step.Needs {
		if st := byName[need]; st != nil && (st.State == stepPending || st.State == stepOpen) {
			name := need
			if len(st.Items) > 0 {
				over, all, _ := itemsOver(st)
				name += fmt.Sprintf(" (%d/%d)", over, all)
			}
			names = append(names, name)
		}
	}
	switch {
	case len(names) > 0:
		return reason.WaitsForSteps.Of(names)
	case f.IsFinally(i):
		for k := range f.Steps {
			if st := &all[k]; st.State == stepPending || st.State == stepOpen {
				return reason.WaitsForOthers.Of()
			}
		}
	}
	return reason.WaitsForRoom.Of(int(f.MaxParallel))
}

// waitsForOutside explains what a waiting step waits for.
func waitsForOutside(w *job.Wait, st *client.StepState) job.Reason {
	limit := time.Duration(w.For)
	switch {
	case w.Approval != "":
		return reason.WaitsForPerson.Of(st.Started, limit, st.ReasonArgs.Reason(st.Reason, st.ReasonCode))
	case w.Signal != "":
		return reason.WaitsForSignal.Of(w.Signal, st.Started, limit)
	case w.Until != "":
		return reason.WaitsForInstant.Of(st.Started)
	}
	return reason.WaitsForSpan.Of(limit, st.Started)
}

// itemsOver counts the items of a step: those that have ended, all, and the open ones.
func itemsOver(st *client.StepState) (over, all, open int) {
	for k := range st.Items {
		switch st.Items[k].State {
		case stepOpen:
			open++
		case stepPending:
		default:
			over++
		}
	}
	return over, len(st.Items), open
}
