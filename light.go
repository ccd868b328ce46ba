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

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Light makes [New] return a scheduler without a store: belfry.New(belfry.Light()). It runs the
// declared jobs in this process alone, at the cost of a timer and a function call. The declarations
// are the same, so that another store is one argument away.
//
// It keeps schedules, [Overlap], [MaxParallel], [LateBy], [Timeout], [Retry], [PauseOnFailure], [MaxRuns] and
// [Jitter], the number of runs of each job by outcome ([Counts]) and the latest of them (Runs), and for
// Wait and [Result] the last 100 runs that Trigger created. Features that need a record are a
// mistake, which [Scheduler.Check] and [Scheduler.Run] report: flows, [On], [Pool], [Shards], [Strategy],
// [PlaceOn], [Priority], [Keep], and [Missed] other than [job.MissedNone], since there is no memory of the
// time when the program did not run. Run.Log and [Run.Write] write to the logger of [WithLogger], and
// each failed run is logged there. [WithHistory], [WithLabels], [WithOutputLimit] and [WithOwner] have no
// effect.
func Light() store.Opener { return noStore }

// noStore is the opener of [Light], by which [New] recognizes it.
func noStore(context.Context) (store.Store, error) { return nil, errLight }

// errLight is returned by methods that need the record of a run or an output.
var errLight = errors.New("light mode keeps no history and no output: give belfry.New a store, such as memory.Empty()")

// isLight reports whether [Light] returned an opener.
func isLight(open store.Opener) bool {
	return open != nil && reflect.ValueOf(open).Pointer() == reflect.ValueOf(noStore).Pointer()
}

// Schedule makes the job due by a schedule of the program: only in light mode, since a store needs
// schedules as text. Jobs with the same pointer fall due together.
func Schedule(s cron.Schedule) JobOption { return func(d *declaration) { d.schedule = s } }

// lightKind is what many jobs share that differ in name, parameters and function: they fall
// due together.
type lightKind struct {
	key      lightKey
	job      job.Job // without name, parameters and handler
	policy   *engine.Policy
	timeout  time.Duration
	grace    time.Duration
	schedule cron.Schedule // nil for none
	own      bool          // its schedule comes from Schedule
	zone     *time.Location

	jobs         []*lightJob // appended to or copied: herds read a part of it
	gone         int         // number of jobs that now have another kind
	previous, at time.Time   // due times of the last and the next occurrence; zero for none
}

type lightKey struct {
	text     string
	schedule cron.Schedule
}

// lightJob is a job of light mode. There may be very many, so it is small. The mutex of light
// guards what changes.
type lightJob struct {
	name    string
	handler *lightHandler
	params  map[string]string
	call    HandlerFunc
	kind    *lightKind // nil once it is removed

	since            int64 // earlier occurrences do not count
	next             *lightRun
	planned          int32 // towards MaxRuns
	running, waiting int32 // runs that hold a slot, and runs that wait for one
	failures         int32 // in a row
	pauses           int32 // how often it was paused
	counts           [len(outcomes)]uint32
	paused           bool
	plain            bool // no caller keeps its runs
	last             lightEnd
}

// lightHandler is the handler of a declaration, shared by all jobs of a line of the program.
type lightHandler struct {
	place   string
	handler string       // "" for the job's own function
	input   reflect.Type // of Do; nil if unknown
}

// lightEnd is how a run ended.
type lightEnd struct {
	outcome, kind          uint8 // indices of outcomes and kinds
	attempt                int32
	id                     RunID
	scheduled, began, over int64
	reason                 *job.Reason // nil for none
}

var (
	outcomes = [...]job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeCancelled, job.OutcomeLost, job.OutcomeSkipped, job.OutcomeMissed}
	kinds    = [...]job.RunKind{job.RunScheduled, job.RunByHand, job.RunAfterEnd, job.RunBoot}
)

// Counts are the numbers of runs of a job by their outcomes, since [Run] began.
type Counts struct{ Succeeded, Failed, TimedOut, Cancelled, Lost, Skipped, Missed int }

// Counts returns how many runs of a job have ended since [Run] began. It is for light mode: a
// store has the runs themselves, see Runs.
func (s *Scheduler) Counts(name string) (c Counts, err error) {
	if s.light == nil {
		return c, fmt.Errorf("%w: Counts is for light mode, a store has the runs themselves", ErrInvalid)
	}
	err = s.light.with(name, func(j *lightJob) error {
		for i, n := range []*int{&c.Succeeded, &c.Failed, &c.TimedOut, &c.Cancelled, &c.Lost, &c.Skipped, &c.Missed} { // as outcomes
			*n = int(j.counts[i])
		}
		return nil
	})
	return c, err
}

// lightRefusals returns the features of a declaration that light mode lacks.
func (d *declaration) lightRefusals() (list []string) {
	p, s, place := &d.job.Policy, &d.job.Schedule, &d.job.Place
	for what, is := range map[string]bool{
		"a flow": d.flow != nil, "On": len(s.On) > 0, "Pool": p.ConcurrencyKey != "", "RateKey": p.RateKey != "", "Keep": p.Keep != nil,
		"Missed other than job.MissedNone": p.Missed != "" && p.Missed != job.MissedNone,
		"Shards":                           place.Shards > 0, "Strategy": place.Strategy != "", "PlaceOn": len(place.Labels) > 0,
		"Priority": p.Priority != nil, "needs_previous": p.NeedsPrevious != nil && *p.NeedsPrevious, "expect": p.Expect != nil,
		"spread": s.Spread > 0, "calendars": len(engine.Calendars(&d.job)) > 0,
	} {
		if is {
			list = append(list, what+" needs a store, and light mode has none: leave it out, or give belfry.New a store such as memory.Empty()")
		}
	}
	slices.Sort(list)
	return list
}

// kindOf returns the kind of a valid declaration, creating it if it is new. l.mu is held.
func (l *light) kindOf(d *declaration, now time.Time) (*lightKind, error) {
	shared := d.job
	shared.Name, shared.Params = "", nil
	if slices.ContainsFunc(shared.Schedule.Cron, func(text string) bool { return strings.ContainsAny(text, "H~") }) {
		shared.Name = d.job.Name // the schedule draws from it
	}
	shared.Run = runSpec("any")
	key := lightKey{text: string(job.AppendJSON(nil, job.Document{Kind: job.KindJob, Job: &shared}))}
	if d.schedule != nil && reflect.TypeOf(d.schedule).Kind() == reflect.Pointer {
		key.schedule = d.schedule
	}
	isShared := d.schedule == nil || key.schedule != nil
	if k := l.kinds[key]; k != nil && isShared {
		return k, nil
	}
	filled := shared.WithDefaults(job.Defaults{})
	k := &lightKind{key: key, job: shared, policy: engine.CompilePolicy(filled), schedule: d.schedule, own: d.schedule != nil, grace: time.Duration(*filled.Policy.KillGrace), zone: time.UTC}
	if filled.Policy.Timeout != nil {
		k.timeout = time.Duration(*filled.Policy.Timeout)
	}
	switch {
	case k.own:
		k.zone = nil
	case k.policy.Planned:
		filled.Name = d.job.Name
		var err error
		if k.schedule, err = filled.CompileSchedule(nil); err != nil {
			return nil, err
		}
		if zone, err := cron.LoadZone(filled.Schedule.Timezone); err == nil {
			k.zone = zone.Location()
		}
	}
	if isShared {
		l.kinds[key] = k
	}
	if l.running {
		l.arm(k, now)
	}
	return k, nil
}

// mistakes returns the mistakes in a declaration.
func (l *light) mistakes(d *declaration) (list []error) {
	if mistakes := d.check(nil); len(mistakes) > 0 {
		return mistakes
	}
	for _, m := range d.lightRefusals() {
		list = append(list, fmt.Errorf("%s: job %q: %s", d.place, d.job.Name, m))
	}
	return list
}

// has reports whether a job with a name exists.
func (l *light) has(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[name] != nil
}

// declare adds a job, or changes the declaration of an existing one.
func (l *light) declare(d *declaration) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	k, err := l.kindOf(d, now)
	if err != nil {
		return []error{fmt.Errorf("%s: job %q: %w", d.place, d.job.Name, err)}
	}
	j := l.jobs[d.job.Name]
	if j == nil {
		j = &lightJob{name: d.job.Name}
		l.jobs[d.job.Name] = j
	}
	j.call, j.params, j.since = nil, nil, now.UnixNano()
	for name, p := range d.job.Params {
		if j.params == nil {
			j.params = make(map[string]string, len(d.job.Params))
		}
		j.params[name] = p.Default
	}
	j.plain = d.plain && len(l.s.settings.middleware) == 0 && k.timeout == 0
	h := lightHandler{d.place, d.handler, d.input}
	if d.function != nil {
		h.handler, j.call = "", chainOf(l.s.settings.middleware, d.function)
	}
	if l.handler == nil || *l.handler != h {
		l.handler = &h
	}
	j.handler = l.handler
	l.leave(j)
	if k.gone > 0 { // perhaps this one
		k.jobs, k.gone = slices.DeleteFunc(slices.Clone(k.jobs), func(j *lightJob) bool { return j.kind != k }), 0
	}
	j.kind, k.jobs = k, append(k.jobs, j)
	if l.running {
		l.resolve(j)
		l.chain(j, now)
	}
	return nil
}

// leave removes a job from its kind.
func (l *light) leave(j *lightJob) {
	if j.kind == nil {
		return
	}
	if j.kind.gone++; j.kind.gone == len(j.kind.jobs) && l.kinds[j.kind.key] == j.kind {
		delete(l.kinds, j.kind.key)
	}
	j.kind = nil
}

// resolve finds the handler of a job.
func (l *light) resolve(j *lightJob) {
	if j.call == nil {
		j.call = l.s.handlers[j.handler.handler].chain
	}
}

// check returns the mistakes that only show when all is declared.
func (l *light) check(handlers map[string]*handler) (list []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.jobs)) {
		j := l.jobs[name]
		if err := j.checkHandler(handlers); err != nil {
			list = append(list, err)
		}
	}
	return list
}

func (j *lightJob) checkHandler(handlers map[string]*handler) error {
	owner := j.handler
	h := handlers[owner.handler]
	switch {
	case j.call != nil && handlers[j.name] != nil:
		return fmt.Errorf("%s: job %q: handler %q is registered twice", owner.place, j.name, j.name)
	case j.call != nil:
		return nil
	case h == nil:
		return fmt.Errorf("%s: job %q: the handler %q is not registered, and light mode runs all jobs in this program", owner.place, j.name, owner.handler)
	case owner.input != nil && owner.input != h.input:
		return fmt.Errorf("%s: job %q: Do gives %s to the handler %q, which takes %s", owner.place, j.name, owner.input, owner.handler, h.input)
	}
	return nil
}

// definitions returns the jobs as declared.
func (l *light) definitions() (list []job.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.jobs)) {
		list = append(list, l.jobs[name].definition())
	}
	return list
}

func (j *lightJob) definition() job.Job {
	d := j.kind.job
	d.Name, d.Run = j.name, runSpec(j.handler.handler)
	if j.handler.handler == "" {
		d.Run = runSpec(j.name)
	}
	if len(j.params) > 0 {
		d.Params = make(map[string]job.Param, len(j.params))
		for name, value := range j.params {
			d.Params[name] = job.Param{Default: value}
		}
	}
	return d
}

// with calls a function with a job, under the lock.
func (l *light) with(name string, f func(j *lightJob) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	j := l.jobs[name]
	if j == nil {
		return fmt.Errorf("job %q: %w", name, ErrNotFound)
	}
	return f(j)
}

// put is Add and Update.
func (l *light) put(verb string, d *declaration, exists bool) error {
	if d.after > 0 {
		d.job.Schedule.At = []time.Time{l.now().Add(d.after)}
	}
	mistakes := l.mistakes(d)
	if len(mistakes) == 0 && d.function == nil {
		j := lightJob{name: d.job.Name, handler: &lightHandler{d.place, d.handler, d.input}}
		l.s.mu.Lock()
		err := j.checkHandler(l.s.handlers)
		l.s.mu.Unlock()
		if err != nil {
			mistakes = []error{err}
		}
	}
	if len(mistakes) > 0 {
		return fmt.Errorf("%s job %q: %w: %w", verb, d.job.Name, ErrInvalid, errors.Join(mistakes...))
	}
	l.mu.Lock()
	closed, found := l.closed, l.jobs[d.job.Name] != nil
	l.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case found && !exists:
		return fmt.Errorf("job %q: %w", d.job.Name, ErrExists)
	case !found && exists:
		return fmt.Errorf("job %q: %w", d.job.Name, ErrNotFound)
	}
	if err := errors.Join(l.declare(d)...); err != nil || d.after == 0 {
		return err
	}
	return l.with(d.job.Name, func(j *lightJob) error {
		l.at(d.job.Schedule.At[0].Add(time.Hour), func(time.Time) {
			if k := j.kind; k != nil && l.jobs[j.name] == j && len(k.job.Schedule.At) > 0 {
				l.leave(j)
				delete(l.jobs, j.name)
			}
		})
		return nil
	})
}

// remove removes a job; its running runs continue.
func (l *light) remove(name string) error {
	return l.with(name, func(j *lightJob) error {
		l.leave(j)
		delete(l.jobs, name)
		return nil
	})
}

// pause pauses a job, until an instant unless that is zero, or resumes it.
func (l *light) pause(name string, paused bool, until time.Time) error {
	return l.with(name, func(j *lightJob) error {
		j.setPaused(l, paused)
		if pauses := j.pauses; paused && !until.IsZero() {
			l.at(until, func(time.Time) {
				if j.pauses == pauses {
					j.setPaused(l, false)
				}
			})
		}
		return nil
	})
}

func (j *lightJob) setPaused(l *light, paused bool) {
	resumed := j.paused && !paused
	j.paused, j.failures = paused, 0
	j.pauses++
	if now := l.now(); resumed {
		j.since = now.UnixNano() // occurrences during the pause do not run
		l.chain(j, now)
	}
}

// trigger creates a run of a job.
func (l *light) trigger(ctx context.Context, name string, t *triggering) (id RunID, err error) {
	if t.key != "" || t.unique != nil || t.debounce != nil || !t.at.IsZero() {
		return id, fmt.Errorf("trigger job %q: %w: Key, Unique, Debounce, AtTime and In need a store, and light mode has none", name, ErrInvalid)
	}
	metadata := l.s.metadataFor(ctx)
	err = l.with(name, func(j *lightJob) error { //nolint:contextcheck // runs have contexts of their own
		definition := j.definition()
		if err := service.CheckParams(&definition, t.params, nil); err != nil {
			return outside(err)
		}
		r := l.newRun(j, job.RunByHand, l.now())
		r.forWait, r.Metadata, r.Params = true, metadata, merged(r.Params, t.params)
		id = r.ID
		l.ready.push(herd{run: r})
		l.help()
		return nil
	})
	return id, err
}

// cancel ends a run.
func (l *light) cancel(id RunID, by, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(id)
	if r == nil {
		return fmt.Errorf("run %s: %w: it has ended, or never was", id, ErrNotFound)
	}
	l.end(r, &executor.Cancelled{By: by, Reason: job.Text(why)})
	return nil
}

// next returns the next n due times of a job.
func (l *light) next(name string, n int) (list []time.Time, err error) {
	err = l.with(name, func(j *lightJob) error {
		at := l.now()
		for j.kind.schedule != nil && len(list) < n {
			if at = j.kind.schedule.Next(at); at.IsZero() {
				break
			}
			list = append(list, at)
		}
		return nil
	})
	return list, err
}

// runs returns the runs of a job that have not ended, and the last one that has.
func (l *light) runs(name string, n int) (list []client.Run, err error) {
	err = l.with(name, func(j *lightJob) error {
		for r := l.first; r != nil; r = r.after {
			if r.job == j {
				list = append(list, r.view())
			}
		}
		slices.SortStableFunc(list, func(a, b client.Run) int { return a.Due.Compare(b.Due) })
		if !j.last.id.IsZero() {
			list = append(list, l.ended(j, &j.last))
		}
		return nil
	})
	return list[:min(n, len(list))], err
}

// wait waits until a run that Trigger created has ended, and returns it with its result.
func (l *light) wait(ctx context.Context, id RunID) (client.Run, []byte, error) {
	l.mu.Lock()
	r := l.find(id)
	if r == nil {
		i := slices.IndexFunc(l.results, func(r *lightRun) bool { return r.ID == id })
		if i < 0 {
			l.mu.Unlock()
			return client.Run{}, nil, fmt.Errorf("run %s: %w: light mode keeps the last %d that were triggered", id, ErrNotFound, keptMax)
		}
		r = l.results[i]
	} else if r.done == nil {
		r.done = make(chan struct{})
		r.forWait = true
	}
	done := r.done
	l.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return r.view(), nil, ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.results, func(r *lightRun) bool { return r.ID == id }); i >= 0 {
		r = l.results[i] // its last attempt
	}
	return l.ended(r.job, &r.how), r.result, nil
}

// view returns an unfinished run. l.mu is held.
func (r *lightRun) view() client.Run {
	return client.Run{
		ID: r.ID, Job: r.Namespace + "/" + r.Job, Kind: r.Kind, State: r.state,
		Scheduled: r.Scheduled, Due: r.due, Started: r.began, Attempt: r.Attempt, Node: r.Node, Params: r.Params,
	}
}

// ended returns a run that has ended.
func (l *light) ended(j *lightJob, e *lightEnd) client.Run {
	at := func(nano int64) time.Time {
		if nano == 0 {
			return time.Time{}
		}
		return time.Unix(0, nano).UTC()
	}
	var why job.Reason
	if e.reason != nil {
		why = *e.reason
	}
	return client.Run{
		ID: e.id, Job: l.s.settings.namespace + "/" + j.name, Kind: kinds[e.kind], State: job.StateDone, Outcome: outcomes[e.outcome], Why: client.WhyOf(why),
		Scheduled: at(e.scheduled), Due: at(e.scheduled), Started: at(e.began), Ended: at(e.over), Attempt: int(e.attempt), Node: l.s.settings.node,
	}
}
