package belfrytest

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// StartFlow starts a flow with an input, and returns its run, for flows in which the test gives an
// approval or sends a signal. StepOf.Wait returns the results. The scheduler must be running. The
// job is deleted when the test ends.
func StartFlow[In any](t testing.TB, s *belfry.Scheduler, f *belfry.Flow[In], in In, options ...belfry.JobOption) belfry.RunID {
	t.Helper()
	id, remove := start(t, s, append([]belfry.JobOption{f.Do(in)}, options...))
	t.Cleanup(remove)
	return id
}

// RunFlow runs a flow with an input to its end. StepOf.Wait returns the results.
func RunFlow[In any](t testing.TB, s *belfry.Scheduler, f *belfry.Flow[In], in In, options ...belfry.JobOption) client.Run {
	t.Helper()
	return waitFor(t, s, StartFlow(t, s, f, in, options...))
}

// Given is the result of a step that does not run in the test.
type Given struct {
	step string
	data json.RawMessage
	err  error
}

// Result sets the result of a step for a test.
func Result[Out any](step *belfry.StepOf[Out], value Out) Given {
	data, err := json.Marshal(value)
	return Given{step.Name(), data, err}
}

// DoStep runs one step of a flow like Belfry, with its retries and timeout, and waits for its end.
// Its needs do not run: they have the given results, and needs without one are removed. DoStep
// returns the result of the last attempt.
func DoStep[In, Out any](t testing.TB, s *belfry.Scheduler, f *belfry.Flow[In], step *belfry.StepOf[Out], in In, given ...Given) Call[Out] {
	t.Helper()
	definition := f.Definition()
	all := definition.All()
	i := slices.IndexFunc(all, func(one *job.Step) bool { return one.Name == step.Name() })
	if i < 0 {
		t.Fatalf("belfry: flow %s has no step %s", f.Name(), step.Name())
	}
	alone := belfry.NewFlow[In](s, "alone")
	alone.Edit(func(f *job.Flow) {
		one := *all[i]
		one.Needs, one.When = nil, ""
		f.Defaults, f.Steps = definition.Defaults, nil
		for _, g := range given {
			if g.err != nil {
				t.Fatalf("belfry: the result of step %s: %v", g.step, g.err)
			}
			f.Steps = append(f.Steps, job.Step{Name: g.step, Wait: &job.Wait{Signal: g.step}})
			one.Needs = append(one.Needs, g.step)
		}
		f.Steps = append(f.Steps, one)
	})
	id := StartFlow(t, s, alone, in)
	Advance(0) // the flow begins
	for _, g := range given {
		if err := s.Signal(t.Context(), id, g.step, g.data); err != nil {
			t.Fatalf("belfry: %v", err)
		}
	}
	call := Call[Out]{Run: waitFor(t, s, id)}
	call.Result, _ = step.Wait(t.Context(), id) // a failed step has no result
	runs, err := s.Steps(t.Context(), id)
	if err != nil {
		t.Fatalf("belfry: %v", err)
	}
	for _, r := range runs {
		if r.Step != step.Name() {
			continue
		}
		text, err := s.Output(t.Context(), r.ID)
		if err != nil {
			t.Fatalf("belfry: %v", err)
		}
		call.Output += text
		if r.Item == nil {
			call.Run = r
		}
	}
	return call
}
