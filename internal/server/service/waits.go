package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/flow"
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
			st.Waits = waitsForOthers(definition.Run.Flow, i, step, run.Steps, byName)
		case st.State != stepOpen:
		case step.Wait != nil:
			st.Waits = waitsForOutside(step.Wait, st)
		case len(st.Items) > 0:
			st.Waits = itemsOver(st)
			for k := range st.Items {
				if st.Items[k].State == stepOpen {
					open = append(open, &st.Items[k])
				} else if st.Items[k].State == stepPending {
					st.Items[k].Waits = "waits for room: so many items run at once as may"
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
			of[i].Waits = fmt.Sprintf("waits for run %s of %s/%s", r.ID, r.Namespace, r.Name)
		case r.State == job.StateRunning && r.Node != "":
			of[i].Waits = "runs on node " + r.Node
		default:
			of[i].Waits = r.Reason.String()
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
func waitsForOthers(f *job.Flow, i int, step *job.Step, all []client.StepState, byName map[string]*client.StepState) string {
	var names []string
	for _, need := range step.Needs {
		if st := byName[need]; st != nil && (st.State == stepPending || st.State == stepOpen) {
			name := need
			if len(st.Items) > 0 {
				name += " (" + itemsOver(st) + ")"
			}
			names = append(names, name)
		}
	}
	switch {
	case len(names) > 0:
		return "waits for " + strings.Join(names, ", ")
	case f.IsFinally(i):
		for k := range f.Steps {
			if st := &all[k]; st.State == stepPending || st.State == stepOpen {
				return "waits for the end of all other steps"
			}
		}
	}
	return fmt.Sprintf("waits for room: %d steps of the flow may run at once", f.MaxParallel)
}

// waitsForOutside explains what a waiting step waits for.
func waitsForOutside(w *job.Wait, st *client.StepState) string {
	since := st.Started.Format("2006-01-02 15:04 MST")
	limit := ""
	if w.For > 0 {
		limit = ", for " + w.For.InWords() + " at most"
	}
	switch {
	case w.Approval != "":
		return "waits for a person since " + since + limit + ": " + st.Reason
	case w.Signal != "":
		return "waits for signal " + w.Signal + " since " + since + limit
	case w.Until != "":
		return "waits for an instant since " + since
	}
	return "waits for " + w.For.InWords() + " since " + since
}

func itemsOver(st *client.StepState) string {
	over, running := 0, 0
	for k := range st.Items {
		switch st.Items[k].State {
		case stepOpen:
			running++
		case stepPending:
		default:
			over++
		}
	}
	return fmt.Sprintf("%d of %d items have ended, %d are open", over, len(st.Items), running)
}
