package belfry

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// StepOption configures a step of a flow: Needs, [When], [If], [AllowFailure], [FailFast], [Within] and
// [Finally], and options of jobs that make sense for a step, such as [Retry], [Timeout], [PlaceOn] and,
// for the items of [ForEach], [MaxParallel].
type StepOption interface{ configure(d *stepDeclaration) }

// stepOption is an option that only steps have.
type stepOption func(*stepDeclaration)

func (o stepOption) configure(d *stepDeclaration) { o(d) }

func (o JobOption) configure(d *stepDeclaration) { o(&d.ofJob) }

// stepDeclaration is a step while its options are applied.
type stepDeclaration struct {
	flow     *flow
	place    string
	name     string
	step     job.Step
	finally  bool
	within   time.Duration
	ofJob    declaration // set by options of jobs
	mistakes []string
}

func (d *stepDeclaration) mistake(format string, args ...any) {
	d.mistakes = append(d.mistakes, fmt.Sprintf(format, args...))
}

// report passes the mistakes to the scheduler.
func (d *stepDeclaration) report() {
	for _, m := range d.mistakes {
		d.flow.s.mistake(d.place, "flow %q: step %q: %s", d.flow.name, d.name, m)
	}
}

// configure applies options to a step.
func (f *flow) configure(name string, step job.Step, options []StepOption) *stepDeclaration {
	d := &stepDeclaration{flow: f, place: f.place, name: name, step: step}
	for _, option := range options {
		option.configure(d)
	}
	d.take()
	return d
}

// take moves the settings of job options into the step.
func (d *stepDeclaration) take() {
	j := &d.ofJob.job
	p := &j.Policy
	d.step.Retry, d.step.Timeout, d.step.KillGrace, d.step.LostAfter, d.step.Success = p.Retry, p.Timeout, p.KillGrace, p.LostAfter, p.Success
	d.step.MaxParallel = p.MaxParallel
	p.Retry, p.Timeout, p.KillGrace, p.LostAfter, p.Success, p.MaxParallel = nil, nil, nil, 0, nil, 0
	if len(saidBy(&j.Place)) > 0 {
		place := j.Place
		d.step.Place, j.Place = &place, job.Place{}
	}
	if d.ofJob.handler != "" || d.ofJob.function != nil || d.ofJob.flow != nil {
		d.mistake("Do and Func are for jobs: Step takes the function itself, and Flow.Run the name of a handler")
		j.Params = nil
	}
	for _, text := range append(saidBy(p), saidBy(j)...) {
		if text != "policy" {
			d.mistake("an option sets %s, which jobs have and steps have not", text)
		}
	}
	if d.within > 0 {
		if d.step.Wait == nil {
			d.mistake("Within is for Approval and Signal: use Timeout")
		} else {
			d.step.Wait.For = job.Duration(d.within)
		}
	}
}

// saidBy returns the names of a struct's non-zero fields.
func saidBy(of any) (names []string) {
	v := reflect.ValueOf(of).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" && !v.Field(i).IsZero() {
			names = append(names, name)
		}
	}
	return names
}

// Needs makes a step start after these steps have ended. The function of the step can read
// their results.
func Needs(steps ...AnyStep) StepOption {
	return stepOption(func(d *stepDeclaration) {
		for _, s := range steps {
			ref := s.ref()
			if ref.of != d.flow {
				d.mistake("needs step %q, which is of another flow", ref.name)
			} else if !slices.Contains(d.step.Needs, ref.name) {
				d.step.Needs = append(d.step.Needs, ref.name)
			}
		}
	})
}

// When sets the outcome that the needed steps must have: [job.OnSucceeded] (default),
// [job.OnFailed], for at least one of them, or [job.OnFinished].
func When(end job.UpstreamOn) StepOption {
	return stepOption(func(d *stepDeclaration) { d.step.When = end })
}

// If makes a step start only if a template yields true, such as {{ gt .Steps.extract.Result.rows
// 1000 }}. Otherwise the step is skipped, and counts as succeeded.
func If(template string) StepOption {
	return stepOption(func(d *stepDeclaration) { d.step.If = template })
}

// AllowFailure lets the flow succeed and the next steps start even if the step fails.
func AllowFailure() StepOption {
	return stepOption(func(d *stepDeclaration) { d.step.AllowFailure = true })
}

// FailFast cancels the remaining items of [ForEach] after the first failure.
func FailFast() StepOption {
	return stepOption(func(d *stepDeclaration) { d.step.FailFast = true })
}

// Within is the time limit of Approval and [Signal]: after it the step fails.
func Within(d time.Duration) StepOption {
	return stepOption(func(s *stepDeclaration) { s.within = d })
}

// Finally runs a step after all others have ended, even after a cancel or a timeout of the
// flow. Its function may read all their results.
func Finally() StepOption {
	return stepOption(func(d *stepDeclaration) { d.finally = true })
}
