// Package robfig implements the interface of github.com/robfig/cron/v3 on package belfry: a
// program changes its import and keeps its code.
//
//	import cron "github.com/belfry-cron/belfry/robfig"
//
//	c := cron.New(cron.WithSeconds())
//	c.AddFunc("*/5 * * * * *", refresh)
//	c.Start()
//	defer c.Stop()
//
// By default there is no store behind, as in robfig/cron: see [belfry.Light]. With [On] entries are
// in a store, and run once for all instances of the program:
//
//	c := cron.New(cron.On(postgres.URL(url)))
//
// # Differences
//
//   - A panic of a job ends its run and not the program, with or without Recover.
//   - With On, @every counts from 1970-01-01T00:00:00Z, so that all instances mean the same moments.
//   - Expressions may also have the forms of package belfry/cron, such as L for the last day.
//   - With On, add entries before Start: the other instances must have them too.
//   - With On, instances match entries by function and order; AddNamed names an entry.
package robfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Job is the work of an entry.
type Job interface{ Run() }

// FuncJob is a function as a [Job].
type FuncJob func()

// Run calls the function.
func (f FuncJob) Run() { f() }

// EntryID identifies an entry of a [Cron].
type EntryID int

// Entry is a schedule and the job that runs by it.
type Entry struct {
	ID         EntryID
	Name       string // of its job in the store
	Schedule   Schedule
	Next, Prev time.Time // Prev is the latest run in this process
	WrappedJob Job
	Job        Job

	removed chan struct{} // closed by Remove; nil without a store
}

// Valid reports whether the entry exists.
func (e Entry) Valid() bool { return e.ID != 0 }

// Cron runs entries. Use [New].
type Cron struct {
	open     store.Opener // nil for none
	options  []belfry.Option
	policies []belfry.JobOption
	location *time.Location
	parser   ScheduleParser
	chain    Chain
	logger   Logger

	mu      sync.Mutex
	entries []*Entry
	lastID  EntryID
	names   map[string]int // how many entries have a name
	specs   map[SpecSchedule]*local
	running *running
	last    *running // the latest that was started
}

// running is a [Cron] between Start and Stop.
type running struct {
	scheduler  *belfry.Scheduler
	ctx        context.Context
	stop       context.CancelFunc
	ended      context.Context // ends when the scheduler has returned
	background sync.WaitGroup  // triggers and removes entries, and runs jobs, which may outlast the drain
}

// Option configures a [Cron].
type Option func(*Cron)

// WithLocation sets the zone of expressions that name none. Default: [time.Local].
func WithLocation(loc *time.Location) Option { return func(c *Cron) { c.location = loc } }

// WithSeconds makes expressions have seconds as their first field.
func WithSeconds() Option {
	return WithParser(NewParser(Second | Minute | Hour | Dom | Month | Dow | Descriptor))
}

// WithParser sets what reads expressions.
func WithParser(p ScheduleParser) Option { return func(c *Cron) { c.parser = p } }

// WithChain puts wrappers around the jobs of all entries.
func WithChain(wrappers ...JobWrapper) Option {
	return func(c *Cron) { c.chain = NewChain(wrappers...) }
}

// WithLogger sets where a [Cron] logs.
func WithLogger(l Logger) Option { return func(c *Cron) { c.logger = l } }

// On keeps the entries in a store, so that they run once across all instances of the
// program.
func On(open store.Opener, options ...belfry.Option) Option {
	return func(c *Cron) { c.open, c.options = open, append(c.options, options...) }
}

// WithPolicy gives all entries policies: belfry.Overlap([job.OverlapSkip]) is
// [SkipIfStillRunning] across all instances. Default: runs may overlap, and missed
// occurrences do not run.
func WithPolicy(options ...belfry.JobOption) Option {
	return func(c *Cron) { c.policies = append(c.policies, options...) }
}

// capacity is the number of parallel jobs: robfig/cron has no bound, and this one only
// protects memory.
const capacity = 100_000

// New returns a [Cron] that runs nothing until Start.
func New(options ...Option) *Cron {
	c := &Cron{
		location: time.Local, parser: standard, logger: DefaultLogger, names: map[string]int{}, specs: map[SpecSchedule]*local{},
		options:  []belfry.Option{belfry.WithCapacity(capacity)},
		policies: []belfry.JobOption{belfry.Overlap(job.OverlapAllow), belfry.Missed(job.MissedNone)},
	}
	for _, option := range options {
		option(c)
	}
	return c
}

// AddFunc adds a function with an expression as its schedule.
func (c *Cron) AddFunc(spec string, f func()) (EntryID, error) {
	return c.add("", spec, FuncJob(f))
}

// AddJob adds a job with an expression as its schedule.
func (c *Cron) AddJob(spec string, j Job) (EntryID, error) { return c.add("", spec, j) }

// AddNamed is AddJob with a name for the entry, which is the name of its job in the store:
// lower-case letters, digits, dots, dashes and underscores.
func (c *Cron) AddNamed(name, spec string, j Job) (EntryID, error) { return c.add(name, spec, j) }

func (c *Cron) add(name, spec string, j Job) (EntryID, error) {
	schedule, err := c.parser.Parse(spec)
	if err != nil {
		return 0, err
	}
	if spec, is := schedule.(*SpecSchedule); is { // equal ones share memory
		schedule = c.same(spec).Schedule
	}
	return c.schedule(cmp.Or(name, jobName(j)), schedule, j)
}

// Schedule adds a job with a schedule. Each instance evaluates a schedule from outside this
// package, and an instant that several instances name runs once.
func (c *Cron) Schedule(schedule Schedule, j Job) EntryID {
	id, err := c.schedule(jobName(j), schedule, j)
	if err != nil {
		c.logger.Error(err, "schedule")
	}
	return id
}

func (c *Cron) schedule(name string, schedule Schedule, j Job) (EntryID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil && c.open != nil {
		return 0, errors.New("add an entry: the other instances have to know it: add entries before Start")
	}
	switch s := schedule.(type) {
	case *otherSchedule:
		within, err := s.within(c.location)
		if err != nil {
			return 0, err
		}
		schedule = within
	case ConstantDelaySchedule:
		if c.open != nil {
			schedule = epochDelay{s}
		}
	}
	c.names[name]++
	if n := c.names[name]; n > 1 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	c.lastID++
	e := &Entry{ID: c.lastID, Name: name, Schedule: schedule, Job: j, WrappedJob: c.chain.Then(j)}
	if c.open != nil {
		e.removed = make(chan struct{})
	}
	if c.running != nil {
		if err := c.running.scheduler.Add(c.running.ctx, e.Name, c.light(c.running, e)...); err != nil {
			return 0, err
		}
		c.say("added", e)
	}
	c.entries = append(c.entries, e)
	return e.ID, nil
}

// say logs the next time of an entry.
func (c *Cron) say(what string, e *Entry) {
	if !isQuiet(c.logger) {
		now := c.now()
		c.logger.Info(what, "now", now, "entry", e.ID, "next", e.Schedule.Next(now))
	}
}

// local is a schedule in the zone of a [Cron].
type local struct {
	Schedule
	location *time.Location
}

// Next returns the next time after a moment.
func (l *local) Next(t time.Time) time.Time { return l.Schedule.Next(t.In(l.location)) }

// light returns the options of an entry without a store. Equal expressions share a schedule.
func (c *Cron) light(r *running, e *Entry) []belfry.JobOption {
	schedule := &local{e.Schedule, c.location}
	if spec, is := e.Schedule.(*SpecSchedule); is {
		schedule = c.same(spec)
	}
	return append([]belfry.JobOption{belfry.LateBy(time.Duration(job.Forever)), belfry.Schedule(schedule), c.call(r, e)}, c.policies...)
}

// same returns the schedule that equal specifications share.
func (c *Cron) same(spec *SpecSchedule) *local {
	l := c.specs[*spec]
	if l == nil {
		l = &local{spec, c.location}
		c.specs[*spec] = l
	}
	return l
}

// call returns the option that makes a job run an entry.
func (c *Cron) call(r *running, e *Entry) belfry.JobOption {
	return belfry.Call(func() { c.run(r, e) })
}

// planned returns the options by which a store plans an entry; none if watch has to trigger it,
// because the schedule is of the program, never falls due, or is in a zone that has no name.
func (c *Cron) planned(e *Entry) []belfry.JobOption {
	var expression string
	var location *time.Location
	switch s := e.Schedule.(type) {
	case epochDelay:
		return []belfry.JobOption{belfry.Every(s.Delay)}
	case *SpecSchedule:
		expression, location = s.expression(), s.in(c.location)
	case *otherSchedule:
		expression, location = s.text, s.location
	default:
		return nil
	}
	now := time.Now()
	zone := zoneName(location, now)
	if zone == "" || e.Schedule.Next(now).IsZero() {
		return nil
	}
	return []belfry.JobOption{
		belfry.Cron(expression), belfry.Timezone(zone),
		belfry.Edit(func(j *job.Job) { j.Schedule.ClockChange = job.ClockLiteral }),
	}
}

// Entries returns the entries by their next times.
func (c *Cron) Entries() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	list := make([]Entry, len(c.entries))
	for i, e := range c.entries {
		list[i] = *e
		list[i].Next = e.Schedule.Next(now)
	}
	slices.SortStableFunc(list, func(a, b Entry) int {
		if a.Next.IsZero() != b.Next.IsZero() {
			return cmp.Compare(btoi(a.Next.IsZero()), btoi(b.Next.IsZero()))
		}
		return a.Next.Compare(b.Next)
	})
	return list
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Entry returns an entry. An entry that does not exist is not Valid.
func (c *Cron) Entry(id EntryID) Entry {
	for _, e := range c.Entries() {
		if e.ID == id {
			return e
		}
	}
	return Entry{}
}

func (c *Cron) now() time.Time { return time.Now().In(c.location) }

// Location returns the zone of expressions that name none.
func (c *Cron) Location() *time.Location { return c.location }

// Remove removes an entry. Its running runs continue.
func (c *Cron) Remove(id EntryID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.entries, func(e *Entry) bool { return e.ID == id })
	if i < 0 {
		return
	}
	e := c.entries[i]
	c.entries = slices.Delete(c.entries, i, i+1)
	if e.removed != nil {
		close(e.removed)
	}
	c.logger.Info("removed", "entry", id)
	if r := c.running; r != nil {
		r.background.Go(func() { c.forget(r, e) })
	}
}

const (
	// declaredMax is how long an entry waits for its job: a [Cron] on a store that has just started
	// may not have declared it yet, and another instance may have removed it.
	declaredMax = time.Minute
	retryEvery  = 50 * time.Millisecond
)

// forget removes the job of an entry.
func (c *Cron) forget(r *running, e *Entry) {
	over := time.After(declaredMax)
	for {
		err := r.scheduler.Remove(r.ctx, e.Name)
		switch {
		case err == nil || r.ctx.Err() != nil:
			return
		case !errors.Is(err, belfry.ErrNotFound):
			c.logger.Error(err, "remove", "entry", e.ID, "name", e.Name)
			return
		}
		select {
		case <-r.ctx.Done():
			return
		case <-over:
			return
		case <-time.After(retryEvery):
		}
	}
}

// Start runs the entries until Stop. It returns at once; a second call changes nothing.
func (c *Cron) Start() { c.start() }

// Run is like Start, but returns after Stop.
func (c *Cron) Run() { <-c.start().ended.Done() }

func (c *Cron) start() *running {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return c.running
	}
	open := c.open
	if open == nil {
		open = belfry.Light()
	}
	r := &running{}
	r.ctx, r.stop = context.WithCancel(context.Background())
	ended, end := context.WithCancel(context.Background())
	r.ended = ended
	r.scheduler = belfry.New(open, append([]belfry.Option{belfry.WithLogger(slog.New(slogTo{c.logger}))}, c.options...)...)
	c.logger.Info("start")
	for _, e := range c.entries {
		if c.open == nil {
			if err := r.scheduler.Add(r.ctx, e.Name, c.light(r, e)...); err != nil {
				c.logger.Error(err, "schedule", "entry", e.ID)
			}
			c.say("schedule", e)
			continue
		}
		planned := c.planned(e)
		r.scheduler.Job(e.Name, append(append(slices.Clone(c.policies), c.call(r, e)), planned...)...)
		if planned == nil {
			c.watch(r, e)
		} else {
			c.say("schedule", e)
		}
	}
	before := c.last
	go func() {
		defer end()
		if err := r.scheduler.Run(r.ctx); err != nil {
			c.logger.Error(err, "run")
		}
		r.stop()
		r.background.Wait()
		if before != nil {
			<-before.ended.Done()
		}
	}()
	c.running, c.last = r, r
	return r
}

// Stop stops the [Cron]. Running jobs continue, and the returned context ends when all of them
// have ended, also of a second call.
func (c *Cron) Stop() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		ended, end := context.WithCancel(context.Background())
		end()
		return ended
	}
	if c.running != nil {
		c.logger.Info("stop")
		c.running.stop()
		c.running = nil
	}
	return c.last.ended
}

// run runs an entry.
func (c *Cron) run(r *running, e *Entry) {
	r.background.Add(1)
	defer r.background.Done()
	now := c.now()
	c.mu.Lock()
	e.Prev = now
	c.mu.Unlock()
	if c.open == nil && !isQuiet(c.logger) {
		c.logger.Info("wake", "now", now)
	}
	c.say("run", e)
	e.WrappedJob.Run()
}

// watch triggers an entry that a store cannot plan.
func (c *Cron) watch(r *running, e *Entry) {
	now := c.now()
	at := e.Schedule.Next(now)
	c.logger.Info("schedule", "now", now, "entry", e.ID, "next", at)
	r.background.Go(func() {
		for ; !at.IsZero(); at = e.Schedule.Next(now) {
			timer := time.NewTimer(time.Until(at))
			select {
			case <-r.ctx.Done():
				timer.Stop()
				return
			case <-e.removed:
				timer.Stop()
				return
			case <-timer.C:
			}
			if now = c.now(); now.Before(at) {
				now = at // the clock of the timer is another one
			}
			c.logger.Info("wake", "now", now)
			if err := c.trigger(r, e, at); err != nil {
				c.logger.Error(err, "trigger", "name", e.Name)
			}
		}
	})
}

// trigger runs an entry once for all instances at a time. The job of a [Cron] on a store may not be
// declared yet.
func (c *Cron) trigger(r *running, e *Entry, at time.Time) error {
	over := time.After(declaredMax)
	for {
		_, err := r.scheduler.Trigger(r.ctx, e.Name, belfry.Key(at.UTC().Format(time.RFC3339Nano)))
		if r.ctx.Err() != nil {
			return nil //nolint:nilerr // the program stops, and says so itself
		}
		if !errors.Is(err, belfry.ErrNotFound) {
			return err
		}
		select {
		case <-r.ctx.Done():
			return nil
		case <-e.removed:
			return nil
		case <-over:
			return err
		case <-time.After(retryEvery):
		}
	}
}

// functionName returns the name of a function, as it may name a job.
func functionName(f any) string {
	return slug(runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name())
}

// jobName returns the name of a job, by its type.
func jobName(j Job) string {
	if f, ok := j.(FuncJob); ok && f != nil {
		return functionName(f)
	}
	if j == nil {
		return "nil"
	}
	t := reflect.TypeOf(j)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return slug(t.String())
}

// slug makes a valid name of any text.
func slug(text string) string {
	const most = 100 // of 128, for a number behind it
	text = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-':
			return r
		default:
			return '-'
		}
	}, strings.ToLower(path.Base(text)))
	return strings.TrimLeft(text[max(0, len(text)-most):], "-._")
}
