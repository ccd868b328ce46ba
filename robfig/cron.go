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
// By default entries live in memory, as in robfig/cron. With On they are in a store, and
// run once for all instances of the program:
//
//	c := cron.New(cron.On(postgres.URL(url)))
//
// # Differences
//
//   - A panic of a job ends its run and not the program, with or without Recover.
//   - @every counts from 1970-01-01T00:00:00Z, so that all instances mean the same moments.
//   - Expressions are those of package belfry/cron, which refuses obvious mistakes. A local
//     time that the clock skips runs right after the gap, and a repeated one runs once.
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
	"github.com/belfry-cron/belfry/store/memory"
)

// Job is the work of an entry.
type Job interface{ Run() }

// FuncJob is a function as a Job.
type FuncJob func()

// Run calls the function.
func (f FuncJob) Run() { f() }

// EntryID identifies an entry of a Cron.
type EntryID int

// Entry is a schedule and the job that runs by it.
type Entry struct {
	ID         EntryID
	Name       string // of its job in the store
	Schedule   Schedule
	Next, Prev time.Time // Prev is the latest run in this process
	WrappedJob Job
	Job        Job
}

// Valid reports whether the entry exists.
func (e Entry) Valid() bool { return e.ID != 0 }

// Cron runs entries. Use New.
type Cron struct {
	open     store.Opener // nil for a store in memory of each Start
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
	running *running
}

// running is a Cron between Start and Stop.
type running struct {
	scheduler *belfry.Scheduler
	ctx       context.Context
	stop      context.CancelFunc
	ended     context.Context // ends when the scheduler has returned
	timers    sync.WaitGroup
}

// Option configures a Cron.
type Option func(*Cron)

// WithLocation sets the zone of expressions that name none. Default: time.Local.
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

// WithLogger sets where a Cron logs.
func WithLogger(l Logger) Option { return func(c *Cron) { c.logger = l } }

// On keeps the entries in a store, so that they run once across all instances of the
// program.
func On(open store.Opener, options ...belfry.Option) Option {
	return func(c *Cron) { c.open, c.options = open, append(c.options, options...) }
}

// WithPolicy gives all entries policies: belfry.Overlap(job.OverlapSkip) is
// SkipIfStillRunning across all instances. Default: runs may overlap, and missed
// occurrences do not run.
func WithPolicy(options ...belfry.JobOption) Option {
	return func(c *Cron) { c.policies = append(c.policies, options...) }
}

// capacity is the number of parallel jobs: robfig/cron has no bound, and this one only
// protects memory.
const capacity = 100_000

// New returns a Cron that runs nothing until Start.
func New(options ...Option) *Cron {
	c := &Cron{
		location: time.Local, parser: standard, logger: DefaultLogger, names: map[string]int{},
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
	return c.add(functionName(f), spec, FuncJob(f))
}

// AddJob adds a job with an expression as its schedule.
func (c *Cron) AddJob(spec string, j Job) (EntryID, error) { return c.add(jobName(j), spec, j) }

// AddNamed is AddJob with a name for the entry, which is the name of its job in the store:
// lower-case letters, digits, dots, dashes and underscores.
func (c *Cron) AddNamed(name, spec string, j Job) (EntryID, error) { return c.add(name, spec, j) }

func (c *Cron) add(name, spec string, j Job) (EntryID, error) {
	schedule, err := c.parser.Parse(spec)
	if err != nil {
		return 0, err
	}
	return c.schedule(name, schedule, j)
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
	if spec, ok := schedule.(*SpecSchedule); ok && spec.zone == "" {
		zoned, err := spec.in(c.location)
		if err != nil {
			return 0, err
		}
		schedule = zoned
	}
	c.names[name]++
	if n := c.names[name]; n > 1 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	c.lastID++
	e := &Entry{ID: c.lastID, Name: name, Schedule: schedule, Job: j, WrappedJob: c.chain.Then(j)}
	if c.running != nil {
		if err := c.running.scheduler.Add(c.running.ctx, e.Name, append(c.optionsOf(e), belfry.Do(anyEntry, e.Name))...); err != nil {
			return 0, err
		}
		c.watch(c.running, e)
	}
	c.entries = append(c.entries, e)
	return e.ID, nil
}

// anyEntry is the handler of entries that are added while the Cron runs, in memory.
const anyEntry = "entry"

// optionsOf returns the options of the job of an entry, except its function.
func (c *Cron) optionsOf(e *Entry) []belfry.JobOption {
	options := slices.Clone(c.policies)
	switch s := e.Schedule.(type) {
	case *SpecSchedule:
		return append(options, belfry.Cron(s.expression), belfry.Timezone(s.zone))
	case ConstantDelaySchedule:
		return append(options, belfry.Every(s.Delay))
	}
	return options // watch triggers it
}

// Entries returns the entries by their next times.
func (c *Cron) Entries() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
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
	if c.running == nil {
		return
	}
	if err := c.running.scheduler.Remove(c.running.ctx, e.Name); err != nil {
		c.logger.Error(err, "remove", "entry", id, "name", e.Name)
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
		open = memory.Empty()
	}
	r := &running{}
	r.ctx, r.stop = context.WithCancel(context.Background())
	ended, end := context.WithCancel(context.Background())
	r.ended = ended
	r.scheduler = belfry.New(open, append([]belfry.Option{belfry.WithLogger(slog.New(slogTo{c.logger}))}, c.options...)...)
	for _, e := range c.entries {
		r.scheduler.Job(e.Name, append(c.optionsOf(e), belfry.Func(func(context.Context, *belfry.Run) error { return c.run(e) }))...)
		c.watch(r, e)
	}
	if c.open == nil {
		belfry.Handle(r.scheduler, anyEntry, func(_ context.Context, _ *belfry.Run, name string) (belfry.None, error) {
			c.mu.Lock()
			i := slices.IndexFunc(c.entries, func(e *Entry) bool { return e.Name == name })
			var e *Entry
			if i >= 0 {
				e = c.entries[i]
			}
			c.mu.Unlock()
			if e == nil {
				return belfry.None{}, nil // it was removed when it was about to start
			}
			return belfry.None{}, c.run(e)
		})
	}
	go func() {
		defer end()
		if err := r.scheduler.Run(r.ctx); err != nil {
			c.logger.Error(err, "run")
		}
		r.stop()
		r.timers.Wait()
	}()
	c.running = r
	return r
}

// Stop stops the Cron. Running jobs continue, and the returned context ends when all of them
// have ended.
func (c *Cron) Stop() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		ended, end := context.WithCancel(context.Background())
		end()
		return ended
	}
	r := c.running
	c.running = nil
	r.stop()
	return r.ended
}

// run runs an entry.
func (c *Cron) run(e *Entry) error {
	c.mu.Lock()
	e.Prev = time.Now()
	c.mu.Unlock()
	e.WrappedJob.Run()
	return nil
}

// watch triggers an entry with a schedule of the program.
func (c *Cron) watch(r *running, e *Entry) {
	switch e.Schedule.(type) {
	case *SpecSchedule, ConstantDelaySchedule:
		return
	}
	r.timers.Go(func() {
		for at := e.Schedule.Next(time.Now()); !at.IsZero(); at = e.Schedule.Next(at) {
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(time.Until(at)):
			}
			_, err := r.scheduler.Trigger(r.ctx, e.Name, belfry.Key(at.UTC().Format(time.RFC3339Nano)))
			if errors.Is(err, belfry.ErrNotFound) || r.ctx.Err() != nil {
				return // it was removed
			}
			if err != nil {
				c.logger.Error(err, "trigger", "name", e.Name)
			}
		}
	})
}

// functionName returns the name of a function, as it may name a job.
func functionName(f any) string {
	return slug(runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name())
}

// jobName returns the name of a job, by its type.
func jobName(j Job) string {
	if f, ok := j.(FuncJob); ok {
		return functionName(f)
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
