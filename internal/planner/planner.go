// Package planner writes the runs of the next seconds into the store, ahead of
// time and assigned to nodes. What to plan is decided by internal/timetable; this
// package asks the store what that must know, and tells it what it has decided. What it
// believes of jobs is compared in the store, so that two planners of one job do no
// harm. It runs nothing.
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

	"github.com/belfry-cron/belfry/internal/agenda"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/forecast"
	"github.com/belfry-cron/belfry/internal/lanes"
	"github.com/belfry-cron/belfry/internal/timetable"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is what a planner wants of a store.
type Store interface {
	// LookAhead is how far ahead runs are written: longer than it takes the others to notice
	// that a planner is gone.
	LookAhead() time.Duration
	JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error)
	Summary(ctx context.Context) ([job.Partitions]store.PartitionSummary, error)
	Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	Calendars(ctx context.Context) ([]*job.Calendar, error)
	Registrations(ctx context.Context, kind string) ([]store.Registration, error)
	Executors(ctx context.Context) ([]*job.Executors, error)
	Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error)
	Backlog(ctx context.Context, limit int) (map[job.ID]int, error)
	Unplaced(ctx context.Context, after store.RunRef, limit int) ([]store.Run, error)
	Place(ctx context.Context, placements []store.Placement) error
}

// Config is what a planner needs.
type Config struct {
	Store Store
	// Session is that of this node, Live those that runs can go to.
	Session func() job.ID
	Live    func() []store.Session
	// Partitions are those that this node plans now. It knows the jobs of all, to
	// say when they fall due.
	Partitions func() store.Partitions
	// Look makes Live and Partitions up to date. It is called when there are runs
	// without a node, which may be those of one that has just left. May be nil.
	Look func(ctx context.Context) error
	// ClaimWith lets the worker of this node claim runs in the step that plans them: see
	// worker.ClaimWith. May be nil.
	ClaimWith func(ctx context.Context, runs []store.ReadyRun, step func(tokens []job.ID) ([]store.ClaimOutcome, error)) error
	// Lanes are those of this node. May be nil.
	Lanes *lanes.Lanes
	// Wake receives a hint when jobs have changed or runs must be placed. It is never
	// closed.
	Wake <-chan store.Hint
	// Now is the store's clock, as this node knows it.
	Now func() time.Time
	Log *slog.Logger
}

// pause is the wait after an error of the store.
const pause = time.Second

// Stats are what a planner has at a moment.
type Stats = timetable.Stats

// Planner plans. Use New.
type Planner struct {
	Config
	sync  chan chan error // requests for a round, answered when it is over
	ready chan struct{}

	mu sync.Mutex // guards mind, never held across a store call
	// mind decides. Run alone changes it, but for the clock; others ask it.
	mind *timetable.Timetable

	// Run's alone is what follows: how far the changes of jobs and the runs to be placed were
	// read, that jobs are held, when the table was last compared with the store, and the
	// answer if that counts just now.
	since    int64
	unplaced store.RunRef
	saidHeld bool
	compared time.Time
	counting <-chan counted
	work     sync.WaitGroup // beside the rounds
	// executors are those that occurrences are split among, and executorsRead when they were
	// read.
	executors     []store.Registration
	executorsRead time.Time
}

// New makes a planner; Run makes it work.
func New(c Config) *Planner {
	return &Planner{Config: c, mind: timetable.New(c.Store.LookAhead(), lanes.Of), sync: make(chan chan error), ready: make(chan struct{})}
}

// ask asks the mind, or tells it something.
func (p *Planner) ask(do func(mind *timetable.Timetable)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p.mind)
}

// Run plans until ctx ends.
func (p *Planner) Run(ctx context.Context) error {
	defer p.work.Wait()
	ticker := time.NewTicker(timetable.Every)
	defer ticker.Stop()
	fails := trouble.With(p.Log, "planning has stopped because the store fails", "planning continues")
	var asked []chan error // by calls of Sync, for the next round
	for {
		asked = p.waiting(asked)
		err := p.round(ctx)
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
		p.ask(func(mind *timetable.Timetable) {
			if err != nil {
				mind.MayHaveLost(p.Now())
			}
			behind, soon = mind.Behind(), mind.LookSoon()
		})
		wait, wake := ticker.C, p.Wake
		switch {
		case err != nil:
			wait, wake = time.After(pause), nil
		case behind > 0:
			continue
		case p.saidHeld && soon < timetable.Every:
			wait = time.After(soon)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wait:
		case hint := <-wake:
			p.woken(hint)
		case answer := <-p.sync:
			asked = append(asked, answer)
		}
	}
}

// waiting adds the calls of Sync that wait for a round which has not begun, and
// takes what it was woken for: one round is for all of them.
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

// woken takes note of what woke the planner: all else is in the store.
func (p *Planner) woken(hint store.Hint) {
	if hint&store.HintLost != 0 {
		p.ask(func(mind *timetable.Timetable) { mind.MayHaveLost(p.Now()) })
	}
}

// Sync makes the planner look at once and returns when it has: what was changed
// before is planned then.
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

// Ready is closed when all jobs were read once.
func (p *Planner) Ready() <-chan struct{} { return p.ready }

// round does everything once.
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
	// What the node before has left comes before what it has missed: it was due first. But
	// where it cannot be placed, the others are planned all the same.
	err := p.placeRest(ctx)
	if err := p.readExecutors(ctx); err != nil {
		return err
	}
	return errors.Join(err, p.planDue(ctx))
}

// executorsEvery is how often the executors that occurrences are split among are read: as often
// as nodes read the sessions of each other.
const executorsEvery = 2 * time.Second

// readExecutors reads the executors that occurrences are split among, if there are such jobs.
func (p *Planner) readExecutors(ctx context.Context) error {
	var splits bool
	p.ask(func(mind *timetable.Timetable) { splits = mind.Splits() })
	if !splits || time.Since(p.executorsRead) < executorsEvery {
		return nil
	}
	list, err := p.Store.Registrations(ctx, store.ExecutorsOfXXL)
	if err != nil {
		return fmt.Errorf("read executors: %w", err)
	}
	listed, err := p.Store.Executors(ctx)
	if err != nil {
		return fmt.Errorf("read executors: %w", err)
	}
	p.executors, p.executorsRead = store.Candidates(list, listed), time.Now()
	return nil
}

// planDue plans all jobs whose next occurrence is within the look-ahead, in turns.
func (p *Planner) planDue(ctx context.Context) error {
	for {
		now := p.Now()
		var wantsRoom bool
		p.ask(func(mind *timetable.Timetable) { wantsRoom = mind.Collect(now, time.Now()) })
		err := p.measureRoom(ctx, wantsRoom)
		left := 0
		if err == nil {
			p.ask(func(mind *timetable.Timetable) { left = mind.Admit() })
		}
		if left == 0 && err == nil {
			p.sayHeld()
			return nil
		}
		for left > 0 && err == nil {
			err = p.planSome(ctx, now)
			p.ask(func(mind *timetable.Timetable) { left = mind.Left() })
		}
		if err != nil {
			p.ask((*timetable.Timetable).Failed)
			return err
		}
	}
}

// planSome plans a batch.
func (p *Planner) planSome(ctx context.Context, now time.Time) (err error) {
	v := timetable.View{Now: now, Self: p.Session(), Live: p.Live(), Executors: p.executors}
	newID := func() (job.ID, error) { return job.NewID(now, rand.Reader) }
	var b timetable.Batch
	var within agenda.Set
	p.ask(func(mind *timetable.Timetable) { b, within, err = mind.Next(v, p.Lanes.Enter, newID) })
	defer p.Lanes.Leave(within)
	if err != nil || len(b.Items) == 0 {
		return err
	}
	outcomes, err := p.plan(ctx, &v, &b)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	var moved bool
	var refused []*store.PlanItem
	p.ask(func(mind *timetable.Timetable) { moved, refused = mind.Answered(&b, outcomes, p.Now()) })
	for _, item := range refused {
		p.Log.Error("the store refused the plan of a job", "uid", item.Job, "from", item.From, "to", item.To)
	}
	if moved {
		return p.readCursors(ctx, store.MaxBatch)
	}
	return nil
}

// plan gives a batch to the store. Those of its runs that are for this node and due are claimed
// in the same step, as far as its worker has room for them: it makes half as many steps then.
func (p *Planner) plan(ctx context.Context, v *timetable.View, b *timetable.Batch) (outcomes []store.PlanOutcome, err error) {
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
		return claims, err
	}
	if len(due) == 0 {
		_, err = step(nil)
		return outcomes, err
	}
	err = p.ClaimWith(ctx, runs, step)
	return outcomes, err
}

// measureRoom finds out how many runs this node may add to what waits, if that is wanted.
func (p *Planner) measureRoom(ctx context.Context, wanted bool) error {
	if !wanted {
		return nil
	}
	waiting, err := p.Store.Backlog(ctx, timetable.BacklogMax)
	if err != nil {
		return fmt.Errorf("count the backlog: %w", err)
	}
	p.ask(func(mind *timetable.Timetable) { mind.Room(waiting, p.Live(), time.Now()) })
	return nil
}

// sayHeld logs that jobs have begun to wait, and that none does any more.
func (p *Planner) sayHeld() {
	var held int
	p.ask(func(mind *timetable.Timetable) { held = mind.Held() })
	if (held > 0) == p.saidHeld {
		return
	}
	if p.saidHeld = held > 0; p.saidHeld {
		p.Log.Info("more occurrences were missed than can run at once; catching up step by step", "jobs", held)
	} else {
		p.Log.Info("caught up: all missed occurrences are planned")
	}
}

// ClockStepped must be called when the wall clock was set: what was queued goes
// by the old one.
func (p *Planner) ClockStepped() { p.ask((*timetable.Timetable).ClockStepped) }

// NextAfter returns when a job falls due first at a moment or after it, as far as
// this node plans it; the zero time and false if it does not.
func (p *Planner) NextAfter(uid job.ID, at time.Time) (next time.Time, ok bool) {
	p.ask(func(mind *timetable.Timetable) { next, ok = mind.NextAfter(uid, at) })
	return next, ok
}

// Upcoming returns the jobs that fall due first at a moment or after it: at most
// n of them, which is positive, in order, of those that come after a place in it;
// the zero Upcoming is the beginning. With one moment for all pages a job that
// does not change is on one of them. Those that fall due at no known time are not
// among them. Planning waits for some ten microseconds at a time, however many jobs there are.
func (p *Planner) Upcoming(at time.Time, after engine.Upcoming, n int) []engine.Upcoming {
	scan := timetable.NewScan(at, after, n)
	var parts int
	p.ask(func(mind *timetable.Timetable) { parts = mind.Parts() })
	// By chance, since tables are often in some order: in the opposite one each
	// entry would be among the first when it is looked at.
	for _, part := range mathrand.Perm(parts) {
		p.ask(func(mind *timetable.Timetable) { mind.Scan(scan, part) })
	}
	return scan.Found()
}

// Timings returns the schedules of the active jobs, those of equal schedules once. Of lists
// the jobs to count; nil is for all.
func (p *Planner) Timings(of []job.ID) (list []forecast.Timing) {
	p.ask(func(mind *timetable.Timetable) { list = mind.Timings(of) })
	return list
}

// Stats returns what the planner has.
func (p *Planner) Stats() (s Stats) {
	p.ask(func(mind *timetable.Timetable) { s = mind.Stats(p.Now()) })
	return s
}
