package belfry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Flow is one run with several dependent steps. Every step receives the input In, like a [Handler].
// Do makes a job run the flow.
//
// Each step has a run of its own, on any eligible node, with its own retries and output. A step
// starts when the steps that it needs have ended, and reads their results by [StepOf.Result]. The
// state of a flow is in the store and survives the loss of any instance of the program.
type Flow[In any] struct{ *flow }

// flow is a [Flow] without its types.
type flow struct {
	s      *Scheduler
	name   string
	place  string // in the program
	input  func() (map[string]job.Param, error)
	spec   job.Flow
	places map[string]string // places of the steps in the program, by name
}

// NewFlow creates a flow without steps; [Step], [ForEach] and the methods of the flow add
// them, before [Run]. The options, such as [Retry] and [Timeout], are defaults for its steps.
// Its functions are handlers, named by flow and step: nightly.extract.
func NewFlow[In any](s *Scheduler, name string, defaults ...StepOption) *Flow[In] {
	f := &flow{s: s, name: name, place: caller(), places: map[string]string{}}
	f.input = func() (map[string]job.Param, error) {
		var none In
		return declared(none)
	}
	d := f.configure("defaults", job.Step{}, defaults)
	if s := d.step; s.Retry != nil || s.Timeout != nil || s.Place != nil {
		f.spec.Defaults = &job.StepDefaults{Retry: s.Retry, Timeout: s.Timeout, Place: s.Place}
		d.step.Retry, d.step.Timeout, d.step.Place = nil, nil, nil
	}
	for _, text := range saidBy(&d.step) {
		d.mistake("%s is of a single step: the options of NewFlow are Retry, Timeout, PlaceOn and Strategy", text)
	}
	d.report()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flows = append(s.flows, f)
	return &Flow[In]{f}
}

// Name returns the name of the flow.
func (f *Flow[In]) Name() string { return f.name }

// Do makes a job run the flow with an input. Several jobs may run the same flow.
func (f *Flow[In]) Do(in In) JobOption {
	return func(d *declaration) {
		params, err := declared(in)
		if err != nil {
			d.mistakes = append(d.mistakes, err.Error())
		}
		d.handler, d.function, d.flow, d.job.Params = "", nil, f.flow, params
	}
}

// Trigger runs a job of the flow now with another input, like [Scheduler.Trigger].
func (f *Flow[In]) Trigger(ctx context.Context, job string, in In, options ...TriggerOption) (RunID, error) {
	params, err := valuesOf(in)
	if err != nil {
		return RunID{}, err
	}
	return f.s.Trigger(ctx, job, append([]TriggerOption{Params(params)}, options...)...)
}

// Edit changes the definition, for settings without an option, such as the number of parallel
// steps, or whether the first failure ends the flow.
func (f *Flow[In]) Edit(change func(*job.Flow)) { change(&f.spec) }

// Definition returns the flow in the form of documents.
func (f *Flow[In]) Definition() job.Flow {
	spec := f.spec
	spec.Steps, spec.Finally = slices.Clone(spec.Steps), slices.Clone(spec.Finally)
	return spec
}

// add adds a step whose options are not applied yet, and returns its reference.
func (f *flow) add(step job.Step, options []StepOption) stepRef {
	place := caller()
	d := f.configure(step.Name, step, options)
	d.place = place
	ref := stepRef{of: f, name: step.Name}
	switch _, twice := f.places[step.Name]; {
	case f.isClosed():
		d.mistake("is added after Run: the other nodes would not know that this one has it")
	case twice:
		d.mistake("is added twice")
	case d.finally:
		f.spec.Finally, f.places[step.Name] = append(f.spec.Finally, d.step), place
	default:
		f.spec.Steps, f.places[step.Name] = append(f.spec.Steps, d.step), place
	}
	d.report()
	return ref
}

// isClosed reports whether [Run] was called.
func (f *flow) isClosed() bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.s.running || f.s.closed
}

// handlerName returns the name under which the function of a step is registered.
func (f *flow) handlerName(step string) string { return f.name + "." + step }

// check returns the mistakes in the flow, each with the place of its step.
func (f *flow) check() (list []error) {
	params, err := f.input()
	if err != nil {
		list = append(list, fmt.Errorf("%s: flow %q: %w", f.place, f.name, err))
	}
	sample := job.Job{Name: "flow", Params: params, Run: job.RunSpec{Flow: &f.spec}}
	var problems job.Problems
	err = job.Document{Job: &sample}.Validate()
	if !errors.As(err, &problems) {
		if err != nil {
			list = append(list, fmt.Errorf("%s: flow %q: %w", f.place, f.name, err))
		}
		return list
	}
	for _, p := range problems {
		place, path := f.placeOf(p.Path)
		p.Path = path
		list = append(list, fmt.Errorf("%s: flow %q: %s", place, f.name, p.Error()))
	}
	return list
}

// flowPath begins the path of all fields of a flow in the document of a job.
const flowPath = "run.flow."

// placeOf returns the file and line that set the field of a document, and its path with the name
// of the step.
func (f *flow) placeOf(path string) (place, named string) {
	named = strings.TrimPrefix(path, flowPath)
	for section, steps := range map[string][]job.Step{"steps": f.spec.Steps, "finally": f.spec.Finally} {
		rest, is := strings.CutPrefix(named, section+"[")
		if !is {
			continue
		}
		index, rest, _ := strings.Cut(rest, "]")
		if i, err := strconv.Atoi(index); err == nil && i < len(steps) {
			return f.places[steps[i].Name], fmt.Sprintf("step %q%s", steps[i].Name, strings.Replace(rest, ".", ": ", 1))
		}
	}
	return f.place, named
}
