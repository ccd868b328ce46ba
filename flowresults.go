package belfry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ErrNoResult means that a step has no result: it failed, was skipped, or has not ended.
var ErrNoResult = errors.New("no result")

// Result returns the result of the step, for a run of a step that needs it. If the step has
// not succeeded, the error is [ErrNoResult].
func (s *StepOf[Out]) Result(run *Run) (Out, error) { return stepResult[Out](run, s.name, s.path) }

// Outcome returns the outcome of the step, for a run of a step that needs it:
// [job.OutcomeSkipped] if it did not run, "" if it is not needed.
func (s *StepOf[Out]) Outcome(run *Run) job.Outcome { return run.Steps[s.name].Outcome }

// StepResult returns the result of a step by name, for handlers in flows that are defined
// elsewhere. The handler's step must need that step. With [StepOf.Result], the compiler
// checks the type.
func StepResult[Out any](run *Run, step string) (Out, error) { return stepResult[Out](run, step, nil) }

func stepResult[Out any](run *Run, step string, path []string) (out Out, err error) {
	data, needed := run.Steps[step]
	switch {
	case run.Step == "":
		return out, Permanent(fmt.Errorf("the run is no step of a flow: step %q has %w in it", step, ErrNoResult))
	case !needed:
		return out, Permanent(fmt.Errorf("step %q does not need step %q: name it in Needs to read its result", run.Step, step))
	}
	return decodeResult[Out](step, data.Outcome, data.Result, path)
}

// decodeResult decodes a part or all of a step's result.
func decodeResult[Out any](step string, outcome job.Outcome, result json.RawMessage, path []string) (out Out, err error) {
	if result == nil {
		if _, none := any(out).(None); none && outcome == job.OutcomeSucceeded {
			return out, nil
		}
		return out, fmt.Errorf("step %q has %w: it is %s", step, ErrNoResult, strings.ReplaceAll(string(outcome), "_", " "))
	}
	for _, name := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(result, &object); err != nil {
			return out, Permanent(fmt.Errorf("the result of step %q has no field %q: it is no object there", step, name))
		}
		part, ok := object[name]
		if !ok {
			return out, Permanent(fmt.Errorf("the result of step %q has no field %q", step, name))
		}
		result = part
	}
	if err := json.Unmarshal(result, &out); err != nil {
		return out, Permanent(fmt.Errorf("read the result of step %q: %w", step, err))
	}
	return out, nil
}

// ItemOf returns the item of a run of a step with for_each. [ForEach] passes it to its
// function.
func ItemOf[Item any](run *Run) (item Item, err error) {
	if run.item == nil {
		return item, Permanent(errors.New("the run is not one of a step with items"))
	}
	// A document can write any value as text.
	if err = json.Unmarshal(run.item, &item); err == nil {
		return item, nil
	}
	var text string
	if json.Unmarshal(run.item, &text) == nil && json.Unmarshal([]byte(text), &item) == nil {
		return item, nil
	}
	return item, Permanent(fmt.Errorf("read the item %s: %w", bounded(string(run.item)), err))
}

// Wait waits for the end of a flow's run, and returns the step's result in it.
func (s *StepOf[Out]) Wait(ctx context.Context, flow RunID) (out Out, err error) {
	run, err := s.of.s.Wait(ctx, flow)
	if err != nil {
		return out, err
	}
	i := slices.IndexFunc(run.Steps, func(state client.StepState) bool { return state.Name == s.name })
	if i < 0 {
		return out, fmt.Errorf("run %s has %w of step %q: there is no such step in it", flow, ErrNoResult, s.name)
	}
	state := run.Steps[i]
	outcome := state.Outcome
	if outcome == "" {
		outcome = job.Outcome(state.State)
	}
	return decodeResult[Out](s.name, outcome, state.Result, s.path)
}

// Steps returns the finished runs of the steps and items of a flow, in the order of their
// ends. Output returns their output.
func (s *Scheduler) Steps(ctx context.Context, flow RunID) ([]client.Run, error) {
	svc, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	of, err := svc.Runs.Get(ctx, s.caller(), flow)
	if err != nil {
		return nil, outside(err)
	}
	st, err := s.opened()
	if err != nil {
		return nil, err
	}
	query := store.HistoryQuery{Job: of.JobUID, Kinds: []job.RunKind{job.RunStep}, From: of.Started, Limit: stepsPage}
	var ids []RunID
	for more := true; more; more = query.Before != (store.RecordRef{}) {
		var records []store.Record
		if records, query.Before, err = st.Attempts(ctx, query); err != nil {
			return nil, outside(err)
		}
		for i := range records {
			if r := &records[i].Run; r.Parent == flow && !slices.Contains(ids, r.ID) {
				ids = append(ids, r.ID)
			}
		}
	}
	slices.Reverse(ids)
	runs := make([]client.Run, len(ids))
	for i, id := range ids {
		if runs[i], err = svc.Runs.Get(ctx, s.caller(), id); err != nil {
			return nil, outside(err)
		}
	}
	return runs, nil
}

// stepsPage is how many records one read of Steps returns.
const stepsPage = 500

// Approve approves a waiting step of a flow's run: the step succeeds.
func (s *Scheduler) Approve(ctx context.Context, flow RunID, step, note string) error {
	return s.answer(ctx, flow, step, false, note)
}

// Reject rejects a waiting step of a flow's run: the step fails.
func (s *Scheduler) Reject(ctx context.Context, flow RunID, step, note string) error {
	return s.answer(ctx, flow, step, true, note)
}

func (s *Scheduler) answer(ctx context.Context, flow RunID, step string, reject bool, note string) error {
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	_, err = svc.Runs.Approve(ctx, s.caller(), flow, step, reject, note)
	return outside(err)
}

// Signal sends a signal to a flow's run: the steps that wait for it succeed, with the data
// as their result. The error wraps [ErrConflict] if no step waits or will wait for it.
func (s *Scheduler) Signal(ctx context.Context, flow RunID, name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode the data of signal %s: %w", name, err)
	}
	svc, err := s.open(ctx)
	if err != nil {
		return err
	}
	_, err = svc.Runs.Signal(ctx, s.caller(), flow, name, text)
	return outside(err)
}
