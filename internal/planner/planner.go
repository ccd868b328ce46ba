// Package planner writes the runs of the next seconds into the store, ahead of
// time and assigned to nodes. It keeps the timing and cursor of its jobs in
// memory; what it believes of them is compared in the store, so that two
// planners of one job do no harm. It runs nothing.
package planner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/lanes"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Store is what a planner wants of a store.
type Store interface {
	JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error)
	Summary(ctx context.Context) ([job.Partitions]store.PartitionSummary, error)
	Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	Calendars(ctx context.Context) ([]*job.Calendar, error)
	Registrations(ctx context.Context, kind string) ([]store.Registration, error)
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
	// LookAhead is how far ahead runs are written: longer than it takes the
	// others to notice that a planner is gone.
	LookAhead time.Duration
	// Lanes are those of this node. May be nil.
	Lanes *lanes.Lanes
	// Wake receives a hint when jobs have changed or runs must be placed. It is never
	// closed.
	Wake <-chan store.Hint
	// Now is the store's clock, as this node knows it.
	Now func() time.Time
	Log *slog.Logger
}

const (
	// every is how often a planner looks. As it looks ahead, nothing waits
	// for it but what it is woken for.
	every = 500 * time.Millisecond
	// pause is the wait after an error of the store.
	pause = time.Second

	// runsMax is how many runs go into one call, besides those of its last
	// item: a call that takes long holds up the claims.
	runsMax = store.MaxBatch
	// A job is planned for so many occurrences at a time: all of a look-ahead
	// at 10 ms, but only a few when more than a crowd of jobs are due, so that
	// after a start none waits until the others are planned to the end.
	occurrencesMax   = 2000
	occurrencesCrowd = 4
	crowd            = 2 * store.MaxBatch
	// laneEntries is among how many entries of a crowd those of one lane are sought: about
	// a batch of them, and no others wait for long.
	laneEntries = lanes.Number * store.MaxBatch

	// A job is planned again when less than this part of its look-ahead is
	// planned, and then for all of it: one that is due each second costs one
	// move of its cursor for some of its runs.
	planAgainAt, planAgainOf = 2, 3
)

// Planner plans. Use New.
type Planner struct {
	Config
	sync chan chan error // requests for a round, answered when it is over

	mu        sync.Mutex // guards what follows, never held across a store call
	table     *table
	mine      store.Partitions // that it plans, as of the last refresh
	calendars map[string]*job.Calendar
	// asked is up to which moment entries have left the queue.
	asked int64
	// gained are entries whose cursors another one may have moved, by which they were
	// planned before: to be read, the most urgent first.
	gained []uint32

	// since is how far the changes of jobs were read, unplaced how far the runs
	// to be placed. They are Run's alone.
	since    int64
	unplaced store.RunRef
	backlog  backlog
	saidHeld bool             // that jobs are held
	compared time.Time        // when the table was last compared with the store
	counting <-chan counted   // by the store, to compare; nil when it does not
	changing store.Partitions // with jobs that have changed since the count began
	doubtful store.Partitions // that have differed
	work     sync.WaitGroup   // beside the rounds
	ready    chan struct{}
	// failedAt is since when the store may have lost what this node has planned, because a
	// round has failed or the store says that it was away. Zero if that was read again.
	failedAt time.Time
	// executors are those that occurrences are split among, and executorsRead when they were
	// read. They are Run's alone.
	executors     []store.Registration
	executorsRead time.Time
	// used is what jobs whose strategy goes by it have used the nodes for.
	used map[job.ID]map[string]placement.Use
}

// New makes a planner; Run makes it work.
func New(c Config) *Planner {
	return &Planner{
		Config: c, table: newTable(), sync: make(chan chan error), ready: make(chan struct{}),
		used: map[job.ID]map[string]placement.Use{},
	}
}

// Run plans until ctx ends.
func (p *Planner) Run(ctx context.Context) error {
	defer p.work.Wait()
	ticker := time.NewTicker(every)
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
		if err != nil {
			p.mayHaveLost()
		}
		wait, wake := ticker.C, p.Wake
		switch {
		case err != nil:
			wait, wake = time.After(pause), nil
		case p.behind() > 0:
			continue
		case p.saidHeld && p.backlog.again < every:
			wait = time.After(p.backlog.again)
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
		p.mayHaveLost()
	}
}

func (p *Planner) mayHaveLost() {
	if p.failedAt.IsZero() {
		p.failedAt = p.Now()
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
	if err := p.readGained(ctx); err != nil {
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
	p.mu.Lock()
	splits := slices.ContainsFunc(p.table.timings, func(t timing) bool { return t.where.Split != "" })
	p.mu.Unlock()
	if !splits || time.Since(p.executorsRead) < executorsEvery {
		return nil
	}
	list, err := p.Store.Registrations(ctx, store.ExecutorsOfXXL)
	if err != nil {
		return fmt.Errorf("read executors: %w", err)
	}
	p.executors, p.executorsRead = list, time.Now()
	return nil
}

// planDue plans all jobs whose next occurrence is within the look-ahead.
func (p *Planner) planDue(ctx context.Context) error {
	var due []uint32
	for {
		now := p.Now()
		moment := now.Add(p.planAgain()).UnixNano()
		p.mu.Lock()
		if moment < p.asked-int64(store.PlanSlack) {
			p.table.rebuild() // the store's clock was put back
		}
		p.asked = moment
		due = p.table.due.Due(moment, due[:0])
		p.mu.Unlock()
		var admitted int
		var err error
		if due, admitted, err = p.admit(ctx, now, due); err != nil {
			p.requeue(due)
			return err
		}
		if len(due) == 0 {
			p.sayHeld()
			return nil
		}
		most, crowded := occurrencesMax, len(due) > crowd
		if crowded {
			most = occurrencesCrowd
		}
		for rest := due; len(rest) > 0; {
			some := rest
			within := p.Lanes.Enter(func(busy lanes.Set) (within lanes.Set) {
				if crowded || admitted > 0 {
					some, within = p.ofOneLane(rest, busy)
				}
				return within
			})
			n, err := p.planSome(ctx, now, some, most)
			p.Lanes.Leave(within)
			if err != nil {
				p.requeue(rest)
				return err
			}
			rest = rest[n:]
		}
	}
}

// ofOneLane returns those of the first entries that are in the same lane, one in which no
// other call is if there is one, and puts them before the others.
func (p *Planner) ofOneLane(due []uint32, busy lanes.Set) (some []uint32, within lanes.Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lane := func(i uint32) int { return lanes.Of(p.table.entries[i].uid) }
	first := due[:min(len(due), laneEntries)]
	free := slices.IndexFunc(first, func(i uint32) bool { return !busy.Has(lane(i)) })
	chosen := lane(first[max(0, free)])
	var others []uint32
	n := 0
	for _, i := range first {
		if lane(i) != chosen {
			others = append(others, i)
			continue
		}
		first[n] = i
		n++
	}
	copy(first[n:], others)
	within.Add(chosen)
	return first[:n], within
}

// planAgain returns how far ahead a job is planned at least.
func (p *Planner) planAgain() time.Duration { return p.LookAhead * planAgainAt / planAgainOf }

// requeue puts entries back that were not planned.
func (p *Planner) requeue(due []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range due {
		if e := &p.table.entries[i]; e.next != never {
			p.table.due.Push(e.next, i)
		}
	}
}

// planSome plans as many of the entries as make a batch, each for at most so many
// occurrences, and returns how many that were.
func (p *Planner) planSome(ctx context.Context, now time.Time, due []uint32, most int) (n int, err error) {
	items, decisions, n, err := p.decide(now, due, most)
	if err != nil || len(items) == 0 {
		return n, err
	}
	outcomes, err := p.plan(ctx, now, items)
	if err != nil {
		return 0, fmt.Errorf("plan: %w", err)
	}
	var moved []job.ID
	for i, outcome := range outcomes {
		switch outcome {
		case store.Planned:
			p.moved(items[i], decisions[i])
		case store.Moved:
			moved = append(moved, items[i].Job)
		case store.TooFar:
			// The clocks differ: it is not due yet by the store's.
			p.again(items[i].Job)
		case store.Withdrawn:
			// The change that has done so is about to be read.
		case store.Malformed:
			// It would be refused again: a fault of this program that must
			// not hold up the other jobs.
			p.Log.Error("the store refused the plan of a job", "uid", items[i].Job, "from", items[i].From, "to", items[i].To)
		}
	}
	return n, p.readCursors(ctx, moved)
}

// plan gives items to the store. Those of their runs that are for this node and due are claimed
// in the same step, as far as its worker has room for them: it makes half as many steps then.
func (p *Planner) plan(ctx context.Context, now time.Time, items []store.PlanItem) (outcomes []store.PlanOutcome, err error) {
	session := p.Session()
	var due []*store.NewRun
	var runs []store.ReadyRun
	for i := range items {
		for k := range items[i].Runs {
			if r := &items[i].Runs[k]; p.ClaimWith != nil && r.Session == session && !r.Due.After(now) {
				due = append(due, r)
				runs = append(runs, store.ReadyRun{RunRef: store.RunRef{Due: r.Due, ID: r.ID}, Job: items[i].Job, Session: session, Attempt: 1})
			}
		}
	}
	step := func(tokens []job.ID) (claims []store.ClaimOutcome, err error) {
		for i, token := range tokens {
			due[i].Token = token
		}
		outcomes, claims, err = p.Store.Plan(ctx, session, items)
		return claims, err
	}
	if len(due) == 0 {
		_, err = step(nil)
		return outcomes, err
	}
	err = p.ClaimWith(ctx, runs, step)
	return outcomes, err
}

// decide asks what to plan for the first of the entries, and returns how many it
// has asked for.
func (p *Planner) decide(now time.Time, due []uint32, most int) (items []store.PlanItem, decisions []engine.Decision, n int, err error) {
	live := p.Live()
	absences := engine.AbsencesOf(live)
	runs := 0
	p.mu.Lock()
	defer p.mu.Unlock()
	horizon := now.Add(p.LookAhead).UnixNano()
	seen := make(map[uint32]bool, len(due))
	for n < len(due) && len(items) < store.MaxBatch && runs < runsMax {
		i := due[n]
		n++
		e := &p.table.entries[i]
		if e.next > horizon || seen[i] || !p.mine.Has(job.Partition(e.uid)) {
			continue // it was planned or changed meanwhile, or is another's
		}
		seen[i] = true
		t := &p.table.timings[e.timing]
		timing := t.engine
		timing.UID = e.uid
		from, catchesUp := p.table.progress(i), p.catchesUp(e, now)
		d := timing.Decide(from, now, p.LookAhead, engine.Most{Missed: p.backlog.most(&timing), OnTime: most}, absences...)
		item := store.PlanItem{Job: e.uid, Epoch: e.epoch, From: from.Cursor, To: d.To, Complete: d.Complete, Planned: from.Planned}
		for sequence, o := range d.Due {
			request := placement.Request{
				UID: e.uid, Place: t.where.Place, Handler: t.where.Handler, Split: engine.SplitOf(t.where.Split, p.executors), Scheduled: o.Scheduled,
				Sequence: from.Planned + sequence, Used: p.used[e.uid],
			}
			if catchesUp {
				// Nodes that work through the same jobs at the same time would wait
				// for each other in the store, also the one that plans them.
				request.With, request.Near = d.Due[0].Scheduled, p.Session()
			}
			placed, _ := placement.Runs(request, live)
			p.remember(e.uid, t.where.Place.Strategy, placed, live, o.Scheduled)
			if catchesUp && !o.Due.After(now) {
				p.backlog.plan(len(placed))
			}
			for _, r := range placed {
				id, err := job.NewID(now, rand.Reader)
				if err != nil {
					return nil, nil, 0, err
				}
				item.Runs = append(item.Runs, store.NewRun{
					ID: id, Session: r.Session, Node: r.Node, Scheduled: o.Scheduled, Due: o.Due, NextDue: o.NextDue,
					Shard: r.Shard, Shards: r.Shards,
				})
			}
		}
		for _, s := range d.Missed {
			id, err := job.NewID(now, rand.Reader)
			if err != nil {
				return nil, nil, 0, err
			}
			item.Missed = append(item.Missed, store.MissedSpan{ID: id, First: s.First, Last: s.Last, Count: s.Count, Reason: s.Reason})
		}
		runs += len(item.Runs)
		items = append(items, item)
		decisions = append(decisions, d)
	}
	return items, decisions, n, nil
}

// remember keeps what a job has used the nodes for, where its strategy asks.
func (p *Planner) remember(uid job.ID, strategy job.Strategy, runs []placement.Placed, live []store.Session, at time.Time) {
	if strategy != job.StrategyLeastRecentlyUsed && strategy != job.StrategyLeastFrequentlyUsed {
		return
	}
	uses := p.used[uid]
	if uses == nil {
		uses = map[string]placement.Use{}
		p.used[uid] = uses
	}
	for _, r := range runs {
		for i := range live {
			if live[i].ID == r.Session {
				use := uses[live[i].Node]
				uses[live[i].Node] = placement.Use{Count: use.Count + 1, Last: at}
			}
		}
	}
}

// moved makes an entry agree with what was planned.
func (p *Planner) moved(item store.PlanItem, d engine.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.table.byUID[item.Job]
	if !ok || p.table.entries[i].epoch != item.Epoch {
		return
	}
	e := &p.table.entries[i]
	p.table.keepCatchUp(i, d.CatchUp)
	e.cursor = item.To.UnixNano()
	e.planned += uint32(len(d.Due))
	e.next = never
	if !d.Next.IsZero() {
		e.next = d.Next.UnixNano()
		p.table.due.Push(e.next, i)
	}
}

// again queues an entry that could not be planned yet, for the next look.
func (p *Planner) again(uid job.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.table.byUID[uid]; ok && p.table.entries[i].next != never {
		p.table.due.Push(p.Now().Add(p.planAgain()+every).UnixNano(), i)
	}
}

// ClockStepped must be called when the wall clock was set: what was queued goes
// by the old one.
func (p *Planner) ClockStepped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table.rebuild()
	p.asked = 0
}
