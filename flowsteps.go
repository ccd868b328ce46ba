package belfry

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// StepOf is a step of a flow with a result of type Out.
type StepOf[Out any] struct {
	stepRef
	path []string // path to the selected part of the result; see As
}

// AnyStep is a step with a result of any type.
type AnyStep interface{ ref() stepRef }

// stepRef is a [StepOf] without its type.
type stepRef struct {
	of   *flow
	name string
}

func (r stepRef) ref() stepRef { return r }

// Name returns the name of the step.
func (r stepRef) Name() string { return r.name }

// Step adds a step that calls a function with the input of the flow. The function reads the
// results of the steps in [Needs] by [StepOf.Result].
func Step[In, Out any](f *Flow[In], name string, call func(ctx context.Context, run *Run, in In) (Out, error), options ...StepOption) *StepOf[Out] {
	h := Handle(f.s, f.handlerName(name), call)
	return &StepOf[Out]{stepRef: f.add(job.Step{Name: name, Run: runSpec(h.name)}, options)}
}

// Items is the list of [ForEach]: a step whose result is a list, or a [List].
type Items[Item any] interface{ list() ([]Item, source) }

// List is a fixed list of items.
type List[Item any] []Item

// source is the origin of the items of a step.
type source struct {
	forEach []string
	step    AnyStep // nil for none
	err     error
}

func (s *StepOf[Out]) list() (none Out, from source) { //nolint:unparam // its type is the type of the items
	return none, source{forEach: []string{s.Template()}, step: s}
}

func (l List[Item]) list() ([]Item, source) {
	text, err := json.Marshal([]Item(l))
	if err != nil {
		err = fmt.Errorf("encode the items: %w", err)
	}
	return l, source{forEach: []string{"{{ " + strconv.Quote(string(text)) + " }}"}, err: err}
}

// ForEach adds a step that calls a function for each item, each with its own attempts and
// output; [MaxParallel] bounds how many run at once. Its result is the list of the results in the
// order of the items. It needs the step with the items.
func ForEach[In, Item, Out any](f *Flow[In], name string, items Items[Item], call func(ctx context.Context, run *Run, in In, item Item) (Out, error), options ...StepOption) *StepOf[[]Out] {
	h := Handle(f.s, f.handlerName(name), func(ctx context.Context, run *Run, in In) (out Out, err error) {
		item, err := ItemOf[Item](run)
		if err != nil {
			return out, err
		}
		return call(ctx, run, in, item)
	})
	_, from := items.list()
	if from.step != nil {
		options = append([]StepOption{Needs(from.step)}, options...)
	}
	if from.err != nil {
		options = append(options, wrong(from.err))
	}
	return &StepOf[[]Out]{stepRef: f.add(job.Step{Name: name, Run: runSpec(h.name), ForEach: from.forEach}, options)}
}

func wrong(err error) StepOption {
	return stepOption(func(d *stepDeclaration) { d.mistake("%v", err) })
}

// Run adds a step of any kind of work: a command, a request, a handler of another program,
// an executor of XXL-JOB or another job. Commands and requests need a server with the same
// store. Its result depends on the kind of work; [As] gives it a type.
func (f *Flow[In]) Run(name string, work job.RunSpec, options ...StepOption) *StepOf[json.RawMessage] {
	return &StepOf[json.RawMessage]{stepRef: f.add(job.Step{Name: name, Run: work}, options)}
}

// Shell adds a step that runs a command on a server. The command writes its result to the file
// $BELFRY_RESULT, as a JSON object or as lines name=value. The command is a template: see
// [StepOf.Template].
func (f *Flow[In]) Shell(name, command string, options ...StepOption) *StepOf[json.RawMessage] {
	return f.Run(name, job.RunSpec{Shell: &job.Shell{Command: command}}, options...)
}

// HTTP adds a step that makes a request from a server. Its result is the response, if that is
// JSON.
func (f *Flow[In]) HTTP(name string, request job.HTTP, options ...StepOption) *StepOf[json.RawMessage] {
	return f.Run(name, job.RunSpec{HTTP: &request}, options...)
}

// Job adds a step that runs another job, with parameters that are templates. The step has the
// outcome of that run.
func (f *Flow[In]) Job(name, other string, params map[string]string, options ...StepOption) *StepOf[None] {
	return &StepOf[None]{stepRef: f.add(job.Step{Name: name, Run: job.RunSpec{Job: &job.OtherJob{Name: other, Params: params}}}, options)}
}

// Wait adds a step that waits for a duration. The wait is in the store, and takes no capacity
// of a node.
func (f *Flow[In]) Wait(name string, d time.Duration, options ...StepOption) *StepOf[None] {
	return &StepOf[None]{stepRef: f.add(job.Step{Name: name, Wait: &job.Wait{For: job.Duration(d)}}, options)}
}

// WaitUntil adds a step that waits for an instant, given by a template: see [StepOf.Template].
func (f *Flow[In]) WaitUntil(name, instant string, options ...StepOption) *StepOf[None] {
	return &StepOf[None]{stepRef: f.add(job.Step{Name: name, Wait: &job.Wait{Until: instant}}, options)}
}

// Approved is the result of an approval.
type Approved struct {
	By   string `json:"by"`
	Note string `json:"note"`
}

// Approval adds a step that asks people a question, which is a template. It succeeds when a
// person approves it, with belfry run approve RUN/STEP, on the page of the run, or through
// [Scheduler.Approve]. It fails when a person rejects it, or after the time limit of [Within].
func (f *Flow[In]) Approval(name, question string, options ...StepOption) *StepOf[Approved] {
	return &StepOf[Approved]{stepRef: f.add(job.Step{Name: name, Wait: &job.Wait{Approval: question}}, options)}
}

// SignalOf is a step that waits for a signal; the Data of the signal is its result.
type SignalOf[Data any] struct{ *StepOf[Data] }

// Signal adds a step that waits until a program sends a signal of that name: [SignalOf.Send],
// [Scheduler.Signal] or belfry run signal.
func Signal[Data, In any](f *Flow[In], name string, options ...StepOption) SignalOf[Data] {
	return SignalOf[Data]{&StepOf[Data]{stepRef: f.add(job.Step{Name: name, Wait: &job.Wait{Signal: name}}, options)}}
}

// Send sends the signal to the run of a flow, which waits for it.
func (s SignalOf[Data]) Send(ctx context.Context, flow RunID, data Data) error {
	return s.of.s.Signal(ctx, flow, s.name, data)
}

// As is the result of a step as the type Part, or the part of it at a path of field names:
// As[[]File](extract, "files"). Check reports unknown fields.
func As[Part, Out any](s *StepOf[Out], fields ...string) *StepOf[Part] {
	s.checkFields(fields)
	return &StepOf[Part]{stepRef: s.stepRef, path: append(s.path[:len(s.path):len(s.path)], fields...)}
}

// Template returns a template for the result of the step, or for the part of it at a path of
// field names: for commands, requests, questions and [If].
func (s *StepOf[Out]) Template(fields ...string) string {
	s.checkFields(fields)
	path := append(s.path[:len(s.path):len(s.path)], fields...)
	return "{{ " + strings.Join(append([]string{".Steps", s.name, "Result"}, path...), ".") + " }}"
}

// checkFields notes fields that a result cannot have.
func (s *StepOf[Out]) checkFields(fields []string) {
	t := reflect.TypeFor[Out]()
	for _, name := range fields {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.Implements(jsonMarshaler) || t.Implements(textMarshaler) {
			if t.Kind() == reflect.Struct || t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]() || isText(t) {
				s.of.s.mistake(caller(), "flow %q: step %q: its result %s has no field %q", s.of.name, s.name, t, name)
			}
			return // its other values are unknown
		}
		found := false
		for i := range t.NumField() {
			f := t.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				return // its fields may belong to the struct
			}
			if found = tag == name || tag == "" && f.Name == name; found {
				t = f.Type
				break
			}
		}
		if !found {
			s.of.s.mistake(caller(), "flow %q: step %q: its result %s has no field %q: give its name in JSON", s.of.name, s.name, t, name)
			return
		}
	}
}
