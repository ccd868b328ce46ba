package belfry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
)

// declaration is a job that the program declares.
type declaration struct {
	place    string // in the program
	light    bool
	job      job.Job
	handler  string
	input    reflect.Type  // of Do; nil if unknown
	function HandlerFunc   // the function of Func or Call
	plain    bool          // of Call
	flow     *flow         // of Flow.Do
	schedule cron.Schedule // of Schedule
	after    time.Duration
	mistakes []string
}

// JobOption configures the schedule, the handler or a policy of a job. A later option overrides
// an earlier one.
type JobOption func(*declaration)

// Job declares a job, which belongs to the program from the next [Run] on. It needs an option with
// its work, [Do], [Func] or [Flow.Do], and usually one with its schedule: Cron, [Every], [At], [AfterEnd], [On]
// or [Boot]. Without a schedule it runs only when triggered. Call Job before [Run]; Check and [Run]
// report mistakes.
func (s *Scheduler) Job(name string, options ...JobOption) {
	d := s.declare(caller(), name, options)
	s.mu.Lock()
	_, twice := s.jobs[name]
	late := s.running || s.closed
	switch {
	case late:
	case s.light != nil:
		twice = s.light.has(name)
	case !twice:
		s.jobs[name] = d
		s.names = append(s.names, name)
	}
	s.mu.Unlock()
	switch {
	case late:
		s.mistake(d.place, "job %q is declared after Run: use Add for a job that comes later", name)
	case twice:
		s.mistake(d.place, "job %q is declared twice", name)
	case s.settings.handlersOnly:
		s.mistake(d.place, "job %q is declared by a program WithHandlersOnly, which declares none", name)
	case d.after > 0:
		s.mistake(d.place, "job %q: After counts from now, and each instance of the program would mean another moment: use At here, or Add", name)
	case s.light != nil:
		mistakes := s.light.mistakes(d)
		if len(mistakes) == 0 {
			mistakes = s.light.declare(d)
		}
		s.mu.Lock()
		s.mistakes = append(s.mistakes, mistakes...)
		s.mu.Unlock()
	case d.function != nil:
		s.register(d.place, name, &handler{call: d.function})
	}
}

// declare applies options to a new declaration.
func (s *Scheduler) declare(place, name string, options []JobOption) *declaration {
	d := &declaration{place: place, light: s.light != nil, job: job.Job{Namespace: s.settings.namespace, Name: name}}
	for _, option := range options {
		option(d)
	}
	if d.function != nil {
		d.handler = name
	}
	switch {
	case d.flow != nil:
		d.job.Run = job.RunSpec{Flow: &d.flow.spec}
	case d.handler != "":
		d.job.Run = runSpec(d.handler)
	}
	return d
}

// check returns the mistakes in a declaration.
func (d *declaration) check(handlers map[string]*handler) (list []error) {
	report := func(format string, args ...any) {
		list = append(list, fmt.Errorf("%s: job %q: "+format, append([]any{d.place, d.job.Name}, args...)...))
	}
	for _, m := range d.mistakes {
		report("%s", m)
	}
	if d.handler == "" && d.flow == nil {
		report("calls nothing: add Do or Func")
		return list
	}
	if h := handlers[d.handler]; h != nil && d.input != nil && h.input != d.input {
		report("Do gives %s to the handler %q, which takes %s", d.input, d.handler, h.input)
	}
	if d.schedule != nil && !d.light {
		report("Schedule is for light mode: a store has to know schedules as text: use Cron, Every or At")
	}
	err := job.Document{Job: &d.job}.Validate()
	var problems job.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			if d.flow == nil || !strings.HasPrefix(p.Path, flowPath) { // the flow has reported other mistakes
				report("%s", p.Error())
			}
		}
	} else if err != nil {
		report("%w", err)
	}
	return list
}

// Do makes the job call a handler by its name, with an input. The handler may belong to another
// program on the same store. With [Handler.Do], the compiler checks the type of the input.
func Do(handler string, input any) JobOption {
	return func(d *declaration) {
		params, err := declared(input)
		if err != nil {
			d.mistakes = append(d.mistakes, err.Error())
		}
		d.handler, d.input, d.job.Params, d.flow = handler, reflect.TypeOf(input), params, nil
	}
}

// Func makes the job call a function, and registers it as a handler with the name of the
// job. It is for declared jobs, not for Add.
func Func(f func(ctx context.Context, run *Run) error) JobOption {
	return func(d *declaration) {
		d.flow, d.plain = nil, false
		d.function = func(ctx context.Context, run *Run) (err error) {
			defer recovered(&err)
			return f(ctx, run)
		}
	}
}

// Call is [Func] for a function that needs neither a context nor a run; light mode makes none for
// it then.
func Call(f func()) JobOption {
	return func(d *declaration) {
		d.flow, d.plain = nil, true
		d.function = func(context.Context, *Run) (err error) {
			defer recovered(&err)
			f()
			return nil
		}
	}
}

// Cron makes the job due when one of the cron expressions matches. An expression has 5 fields,
// 6 with seconds first, or 7 with seconds first and years last, or is a macro such as @daily.
// Package cron describes the grammar.
func Cron(expressions ...string) JobOption {
	return func(d *declaration) { d.job.Schedule.Cron = expressions }
}

// Every makes the job due at a fixed interval of at least 10 ms, counted from
// 1970-01-01T00:00:00Z so that all instances agree on the due times.
func Every(d time.Duration) JobOption {
	return func(o *declaration) { o.job.Schedule.Every = job.Duration(d) }
}

// AfterEnd makes the job due when d has passed since the end of its previous run.
func AfterEnd(d time.Duration) JobOption {
	return func(o *declaration) { o.job.Schedule.AfterEnd = job.Duration(d) }
}

// At makes the job due at instants, and completed after the last.
func At(instants ...time.Time) JobOption {
	return func(d *declaration) { d.job.Schedule.At = instants }
}

// After makes a job created by Add due once, d after the call by the clock of the store. The job
// is removed an hour after its run.
func After(d time.Duration) JobOption {
	return func(o *declaration) {
		if d <= 0 {
			o.mistakes = append(o.mistakes, fmt.Sprintf("After(%s) is not in the future", d))
		}
		o.after = d
	}
}

// Starting keeps the job from falling due before an instant.
func Starting(at time.Time) JobOption { return func(d *declaration) { d.job.Schedule.Start = at } }

// MaxRuns completes the job after n scheduled runs, over all instances.
func MaxRuns(n int) JobOption { return func(d *declaration) { d.job.Schedule.MaxRuns = n } }

// On makes the job due when a run of one of the upstream jobs succeeds. The new run
// inherits the parameters and the scheduled time of that run.
func On(upstream ...string) JobOption {
	return func(d *declaration) {
		for _, name := range upstream {
			d.job.Schedule.On = append(d.job.Schedule.On, job.Upstream{Job: name})
		}
	}
}

// Boot makes the job due each time an instance of a program with its handler starts.
func Boot() JobOption { return func(d *declaration) { d.job.Schedule.Boot = true } }

// Timezone is the IANA time zone of [Cron]. Default: UTC.
func Timezone(name string) JobOption {
	return func(d *declaration) { d.job.Schedule.Timezone = name }
}

// Jitter delays each occurrence by up to max, by the same amount on every node.
func Jitter(max time.Duration) JobOption {
	return func(d *declaration) { d.job.Schedule.Jitter = job.Duration(max) }
}

// Overlap sets what happens to a due run while the previous one has not ended: skip
// (default), queue, replace or allow. It applies across all instances.
func Overlap(o job.Overlap) JobOption { return func(d *declaration) { d.job.Policy.Overlap = o } }

// MaxParallel lets n runs of the job run side by side before [Overlap] applies.
func MaxParallel(n int) JobOption { return func(d *declaration) { d.job.Policy.MaxParallel = n } }

// Pool makes the job share slots with the other jobs that name the pool. An undeclared pool
// has one slot.
func Pool(name string) JobOption { return func(d *declaration) { d.job.Policy.ConcurrencyKey = name } }

// RateKey makes the starts of the job count against the rate of a pool.
func RateKey(name string) JobOption { return func(d *declaration) { d.job.Policy.RateKey = name } }

// Missed sets what happens to occurrences that fell due while no instance was running: run
// none, only the latest (default) or all of them, late.
func Missed(m job.Missed) JobOption { return func(d *declaration) { d.job.Policy.Missed = m } }

// LateBy sets how late a run may start; a later one is missed. Default: an hour.
func LateBy(d time.Duration) JobOption {
	return func(o *declaration) { o.job.Policy.LateBy = new(job.Duration(d)) }
}

// Timeout ends the context of the handler after d. Default: never.
func Timeout(d time.Duration) JobOption {
	return func(o *declaration) { o.job.Policy.Timeout = new(job.Duration(d)) }
}

// Retry retries a run that failed, timed out or was lost, up to the given number of further
// attempts. The first one starts after backoff; the wait doubles after each, up to 10 minutes.
// Edit can set more.
func Retry(attempts int, backoff time.Duration) JobOption {
	return func(d *declaration) {
		d.job.Policy.Retry = &job.Retry{Attempts: &attempts, Backoff: new(job.Duration(backoff))}
	}
}

// PauseOnFailure pauses the job after this many consecutive failed runs.
func PauseOnFailure(runs int) JobOption {
	return func(d *declaration) { d.job.Policy.PauseOnFailure = &runs }
}

// Priority orders runs that are due together on a full node, from -100 to 100, the highest first.
func Priority(n int) JobOption { return func(d *declaration) { d.job.Policy.Priority = &n } }

// Keep sets how long the history of the job is kept.
func Keep(k job.Keep) JobOption { return func(d *declaration) { d.job.Policy.Keep = &k } }

// Shards splits each occurrence into n runs, which are spread over the nodes. A handler finds its
// part of the work in Run.Shard and Run.Shards.
func Shards(n int) JobOption { return func(d *declaration) { d.job.Place.Shards = n } }

// Broadcast runs each occurrence once on every node that has the handler.
func Broadcast() JobOption { return Strategy(job.StrategyBroadcast) }

// Strategy sets which of the eligible nodes runs the job. Default: any, the less loaded of two
// random ones.
func Strategy(s job.Strategy) JobOption { return func(d *declaration) { d.job.Place.Strategy = s } }

// PlaceOn runs the job on nodes that have all of these labels, see [WithLabels].
func PlaceOn(labels map[string]string) JobOption {
	return func(d *declaration) { d.job.Place.Labels = labels }
}

// Labels adds labels to the job; lists and commands select jobs by them.
func Labels(labels map[string]string) JobOption {
	return func(d *declaration) { d.job.Labels = merged(d.job.Labels, labels) }
}

// Description describes the purpose of the job.
func Description(text string) JobOption { return func(d *declaration) { d.job.Description = text } }

// Edit changes the definition itself, for settings without an option. The name and the
// handler cannot change.
func Edit(change func(*job.Job)) JobOption {
	return func(d *declaration) {
		namespace, name := d.job.Namespace, d.job.Name
		change(&d.job)
		d.job.Namespace, d.job.Name = namespace, name
	}
}

// sortedJobs returns the declared jobs by name.
func (s *Scheduler) sortedJobs() []*declaration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.jobs), func(a, b *declaration) int { return strings.Compare(a.job.Name, b.job.Name) })
}

// Jobs returns the definitions of the declared jobs by name, as declared, without the
// defaults.
func (s *Scheduler) Jobs() []job.Job {
	if s.light != nil {
		return s.light.definitions()
	}
	var list []job.Job
	for _, d := range s.sortedJobs() {
		list = append(list, d.job)
	}
	return list
}
