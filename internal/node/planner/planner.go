// Package planner writes the runs of the next seconds into the store, ahead of time and assigned to
// nodes. Package planqueue decides what to plan; this package reads its inputs from the store and
// writes its decisions. The store compares the planner's view of a job, so that two planners of one
// job do no harm.
package planner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is the planner's part of a store.
type Store interface {
	// LookAhead is how far ahead runs are written: longer than other nodes need to notice
	// the loss of a planner.
	LookAhead() time.Duration
	JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error)
	Summary(ctx context.Context) ([job.Partitions]store.PartitionSummary, error)
	Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
	Registrations(ctx context.Context, kind string) ([]store.Registration, error)
	Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error)
	Backlog(ctx context.Context, limit int) (map[job.ID]int, error)
	Unplaced(ctx context.Context, after store.RunRef, limit int) ([]store.Run, error)
	Place(ctx context.Context, placements []store.Placement) error
}

// Config configures a planner.
type Config struct {
	Store Store
	// Session is the session of this node, Live the sessions that accept runs.
	Session func() job.ID
	Live    func() []store.Session
	// Partitions are the partitions that this node plans now. It has the jobs of all partitions, to
	// answer when they fall due.
	Partitions func() store.Partitions
	// Look refreshes Live and Partitions. It is called for runs without a node, whose
	// node may just have left. May be nil.
	Look func(ctx context.Context) error
	// ClaimWith lets the worker of this node claim runs in the step that plans them: see
	// worker.ClaimWith. May be nil; if set, Ended must be called as well.
	ClaimWith func(ctx context.Context, runs []store.ReadyRun, step func(tokens []job.ID) ([]store.ClaimOutcome, error)) error
	// Stripes are the stripes of this node. May be nil.
	Stripes *stripes.Stripes
	// Wake receives a hint when jobs have changed or runs must be placed. It is never
	// closed.
	Wake <-chan store.Hint
	// Now is this node's estimate of the store's clock.
	Now func() time.Time
	Log *slog.Logger
}

// pause is the wait after an error of the store.
const pause = time.Second

// Stats are metrics of the planner.
type Stats = planqueue.Stats

// Planner plans. Use [New].
type Planner struct {
	Config
	sync  chan chan error // waiting calls of Sync, answered at the end of a round
	ready chan struct{}
	freed chan struct{} // signalled after ends that allow more planning

	mu sync.Mutex // guards queue; never held across a store call
	// queue makes the decisions. Only Run changes it, apart from the clock; others query it.
	queue *planqueue.Queue

	// Only Run uses the following: positions in the feeds of changed jobs and of unplaced runs,
	// whether jobs are held, when the table is next compared with the store, how long the last
	// comparison counted, and whether one counts now.
	since     int64
	unplaced  store.RunRef
	saidHeld  bool
	compareAt time.Time
	counted   time.Duration
	counting  <-chan comparison
	work      sync.WaitGroup // beside the rounds
	// executors are the executors that occurrences are split among, and executorsRead when
	// they were read.
	executors     []store.Registration
	executorsRead time.Time
}

// New returns a planner; Run runs it.
func New(c Config) *Planner {
	c.Store = boundedStore{c.Store}
	return &Planner{Config: c, queue: planqueue.New(c.Store.LookAhead(), stripes.Of), sync: make(chan chan error), ready: make(chan struct{}), freed: make(chan struct{}, 1)}
}

// ask calls a function with the queue, under its lock.
func (p *Planner) ask(do func(queue *planqueue.Queue)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p.queue)
}

// Run plans until ctx ends.
func (p *Planner) Run(ctx context.Context) error {
	defer p.work.Wait()
	ticker := time.NewTicker(planqueue.Every)
	defer ticker.Stop()
	fails := failurelog.New(p.Log, "planning has stopped because the store fails", "planning continues")
	var asked []chan error // calls of Sync for the next round
	var last time.Time     // when the last round began
	freed := false         // an end allows more planning, and no other work is due
	for {
		var err error
		if freed && time.Since(last) < planqueue.Every {
			err = p.planDue(ctx)
		} else {
			last = time.Now()
			asked = p.waiting(asked)
			err = p.round(ctx)
		}
		freed = false
		for _, answer := range asked {
			answer <- err
		}
		asked = asked[:0]
		if ctx.Err() != nil {
			return nil
		}
		fails.Saw(err)
		var behind int
		var soon time.Duration
		p.ask(func(queue *planqueue.Queue) {
			if err != nil {
				queue.MayHaveLost(p.Now())
			}
			behind, soon = queue.Behind(), queue.LookSoon()
		})
		wait, wake, free := ticker.C, p.Wake, p.freed
		switch {
		case err != nil:
			wait, wake, free = time.After(pause), nil, nil
		case behind > 0:
			continue
		case p.saidHeld && soon < planqueue.Every:
			wait = time.After(soon)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wait:
		case <-free:
			freed = true
		case hint := <-wake:
			p.woken(hint)
		case answer := <-p.sync:
			asked = append(asked, answer)
		}
	}
}

// Ended must be called when the store has accepted results of this node: jobs with serial runs are
// caught up at the pace of their runs.
func (p *Planner) Ended(results []store.Result) {
	var more bool
	p.ask(func(queue *planqueue.Queue) { more = queue.Ended(results) })
	if more {
		select {
		case p.freed <- struct{}{}:
		default:
		}
	}
}

// waiting adds the waiting calls of Sync whose round has not begun, and clears pending
// wake-ups: one round serves all of them.
func (p *Planner) waiting(asked []chan error) []chan error {
	for {
		select {
		case answer := <-p.sync:
			asked = append(asked, answer)
		case hint := <-p.Wake:
			p.woken(hint)
		default:
			return asked
		}
	}
}

// woken records the hint that woke the planner; the store has the rest.
func (p *Planner) woken(hint store.Hint) {
	if hint&store.HintLost != 0 {
		p.ask(func(queue *planqueue.Queue) { queue.MayHaveLost(p.Now()) })
	}
}

// Sync makes the planner run a round at once and returns at its end, when earlier changes are
// planned.
func (p *Planner) Sync(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case p.sync <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ready is closed when all jobs have been read once.
func (p *Planner) Ready() <-chan struct{} { return p.ready }

// round does each task of the planner once.
func (p *Planner) round(ctx context.Context) error {
	if err := p.refresh(ctx); err != nil {
		return err
	}
	if err := p.compare(ctx); err != nil {
		return err
	}
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
	if err := p.readCursors(ctx, page); err != nil {
		return err
	}
	// Runs of departed nodes come before missed occurrences: they were due first. If they cannot be
	// placed, planning continues.
	err := p.placeRest(ctx)
	if err := p.readExecutors(ctx); err != nil {
		return err
	}
	return errors.Join(err, p.planDue(ctx))
}

// executorsEvery is the interval for reading the executors that occurrences are split
// among: as often as nodes read each other's sessions.
const executorsEvery = 2 * time.Second

// readExecutors reads the executors among which occurrences are split, if there are such jobs.
func (p *Planner) readExecutors(ctx context.Context) error {
	var splits bool
	p.ask(func(queue *planqueue.Queue) { splits = queue.Splits() })
	if !splits || time.Since(p.executorsRead) < executorsEvery {
		return nil
	}
	list, err := p.Store.Registrations(ctx, store.ExecutorsOfXXL)
	if err != nil {
		return fmt.Errorf("read executors: %w", err)
	}
	listed, err := p.Store.Documents(ctx, job.KindExecutors)
	if err != nil {
		return fmt.Errorf("read executors: %w", err)
	}
	p.executors, p.executorsRead = store.Candidates(list, listed), time.Now()
	return nil
}

// planDue plans all jobs with an occurrence within the look-ahead, in batches.
func (p *Planner) planDue(ctx context.Context) error {
	for {
		now := p.Now()
		var wantsRoom bool
		p.ask(func(queue *planqueue.Queue) { wantsRoom = queue.Collect(now, time.Now()) })
		err := p.measureRoom(ctx, wantsRoom)
		left := 0
		if err == nil {
			p.ask(func(queue *planqueue.Queue) { left = queue.Admit() })
		}
		if left == 0 && err == nil {
			p.sayHeld()
			return nil
		}
		for left > 0 && err == nil {
			err = p.planSome(ctx, now)
			p.ask(func(queue *planqueue.Queue) { left = queue.Left() })
		}
		if err != nil {
			p.ask((*planqueue.Queue).Failed)
			return err
		}
	}
}

// planSome plans a batch.
func (p *Planner) planSome(ctx context.Context, now time.Time) (err error) {
	v := planqueue.View{Now: now, Self: p.Session(), Live: p.Live(), Executors: p.executors, Paced: p.ClaimWith != nil}
	newID := func() (job.ID, error) { return job.NewID(now, rand.Reader) }
	var b planqueue.Batch
	var within runqueue.Set
	p.ask(func(queue *planqueue.Queue) { b, within, err = queue.Next(v, p.Stripes.Enter, newID) })
	defer p.Stripes.Leave(within)
	if err != nil || len(b.Items) == 0 {
		return err
	}
	outcomes, err := p.plan(ctx, &v, &b)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	var moved bool
	var refused []*store.PlanItem
	p.ask(func(queue *planqueue.Queue) { moved, refused = queue.Answered(&b, outcomes, p.Now(), time.Now()) })
	for _, item := range refused {
		p.Log.Error("the store refused the plan of a job", "uid", item.Job, "from", item.From, "to", item.To)
	}
	if moved {
		return p.readCursors(ctx, store.MaxBatch)
	}
	return nil
}

// plan writes a batch to the store. Due runs for this node are claimed in the same step,
// within the capacity of its worker, which saves half of the steps.
func (p *Planner) plan(ctx context.Context, v *planqueue.View, b *planqueue.Batch) (outcomes []store.PlanOutcome, err error) {
	var due []*store.NewRun
	var runs []store.ReadyRun
	if p.ClaimWith != nil {
		due, runs = b.Own(v.Self, v.Now)
	}
	step := func(tokens []job.ID) (claims []store.ClaimOutcome, err error) {
		for i, token := range tokens {
			due[i].Token = token
		}
		outcomes, claims, err = p.Store.Plan(ctx, v.Self, b.Items)
		b.Claimed(runs, claims)
		return claims, err
	}
	if len(due) == 0 {
		_, err = step(nil)
		return outcomes, err
	}
	err = p.ClaimWith(ctx, runs, step)
	return outcomes, err
}

// measureRoom measures how many runs this node may add to the backlog, if requested.
func (p *Planner) measureRoom(ctx context.Context, wanted bool) error {
	if !wanted {
		return nil
	}
	waiting, err := p.Store.Backlog(ctx, planqueue.BacklogMax)
	if err != nil {
		return fmt.Errorf("count the backlog: %w", err)
	}
	p.ask(func(queue *planqueue.Queue) { queue.Room(waiting, p.Live(), time.Now()) })
	return nil
}

// sayHeld logs when jobs begin to wait, and when none waits any more.
func (p *Planner) sayHeld() {
	var slots int
	p.ask(func(queue *planqueue.Queue) { slots = queue.Held() })
	if (slots > 0) == p.saidHeld {
		return
	}
	if p.saidHeld = slots > 0; p.saidHeld {
		p.Log.Info("more occurrences were missed than can run at once; catching up step by step", "jobs", slots)
	} else {
		p.Log.Info("caught up: all missed occurrences are planned")
	}
}

// ClockStepped must be called after a step of the wall clock: the queue uses the old time.
func (p *Planner) ClockStepped() { p.ask((*planqueue.Queue).ClockStepped) }

// NextAfter returns the first due time of a job at a moment or later; the zero time and false if
// this node does not plan it.
func (p *Planner) NextAfter(uid job.ID, at time.Time) (next time.Time, ok bool) {
	p.ask(func(queue *planqueue.Queue) { next, ok = queue.NextAfter(uid, at) })
	return next, ok
}

// Upcoming returns the n jobs, at least one, that fall due first at a moment or later, in order,
// after a position; the zero Upcoming is the beginning. With the same moment for all pages an
// unchanged job is on exactly one. Jobs without a known due time are omitted. It blocks planning
// for some ten microseconds at a time, for any number of jobs.
func (p *Planner) Upcoming(at time.Time, after engine.Upcoming, n int) []engine.Upcoming {
	scan := planqueue.NewScan(at, after, n)
	var parts int
	p.ask(func(queue *planqueue.Queue) { parts = queue.Parts() })
	// Random order, since tables are often sorted: in the reverse order each entry would be
	// among the first when it is visited.
	for _, part := range mathrand.Perm(parts) {
		p.ask(func(queue *planqueue.Queue) { queue.Scan(scan, part) })
	}
	return scan.Found()
}

// Timings returns the distinct schedules of the active jobs. Of restricts the jobs; nil
// means all.
func (p *Planner) Timings(of []job.ID) (list []forecast.Timing) {
	p.ask(func(queue *planqueue.Queue) { list = queue.Timings(of) })
	return list
}

// Stats returns the planner's numbers.
func (p *Planner) Stats() (s Stats) {
	p.ask(func(queue *planqueue.Queue) { s = queue.Stats(p.Now()) })
	return s
}
