// Package node makes one process of the parts: a session, a planner and a worker
// around a store. It holds no rules of its own.
package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/clock"
	"github.com/belfry-cron/belfry/internal/heap"
	"github.com/belfry-cron/belfry/internal/lanes"
	"github.com/belfry-cron/belfry/internal/membership"
	"github.com/belfry-cron/belfry/internal/output"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/internal/planner"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/internal/watchdog"
	"github.com/belfry-cron/belfry/internal/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Config is what a node needs. The zero values of durations and counts are
// replaced by the defaults.
type Config struct {
	Store store.Store
	// StoreName is what the log calls it, for whoever makes room for it.
	StoreName string
	// Session describes the node to the others.
	Session store.Session
	// Executors is asked for what runs the attempts of a job.
	Executors worker.Executors
	// Watchdog ends what runs when this process dies or hangs, and keeps the
	// journal of what has begun. Nil where commands are not run.
	Watchdog *watchdog.Node
	// Observer is told when attempts begin and end. May be nil.
	Observer worker.Observer
	// Wrote is told of each run of which output has come into the store while it
	// goes on. May be nil.
	Wrote func(run job.ID)
	// OutputLimit is how much of the output of an attempt is kept. Default:
	// 1 MiB.
	OutputLimit int
	// LookAhead is how far ahead runs are planned. Default: 15 s. The store
	// must have been opened with the same.
	LookAhead time.Duration
	// StealAfter is how long a run must be overdue before another node than
	// its own takes it. Default: 1 s.
	StealAfter time.Duration
	// Capacity is how many attempts run at once. Default: 512.
	Capacity int
	// DrainTimeout, which users know as drain_timeout, is how long a node that leaves waits for
	// its attempts. Default: 30 s.
	DrainTimeout time.Duration
	// Retention is how long history is kept where a job says nothing.
	Retention store.Retention

	Now  func() time.Time
	Boot func() time.Duration
	Log  *slog.Logger
}

// The defaults of a Config.
const (
	defaultStealAfter   = time.Second
	DefaultCapacity     = 512
	DefaultDrainTimeout = 30 * time.Second
)

// joinEvery is the wait between two tries to begin another session.
const joinEvery = time.Second

func (c Config) withDefaults() Config {
	if c.LookAhead == 0 {
		c.LookAhead = store.LookAheadDefault
	}
	if c.StealAfter == 0 {
		c.StealAfter = defaultStealAfter
	}
	if c.Capacity == 0 {
		c.Capacity = DefaultCapacity
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Boot == nil {
		c.Boot = clock.Boot
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Node is a running process. Use New.
type Node struct {
	config  Config
	planner *planner.Planner
	lanes   lanes.Lanes // in which the planner and the worker keep apart
	output  *output.Collector
	process job.ID // of this start, for jobs with boot
	// booted is set when these were started. A later session starts none: the
	// process is the same, and its keys are not kept for ever.
	booted bool

	plannerWake, workerWake chan store.Hint
	// member and worker are those of the present session.
	member atomic.Pointer[membership.Member]
	worker atomic.Pointer[worker.Worker]
	share  placement.Share // the planner's
	// schedules tell attempts their neighbours in time.
	schedules *schedules
	clock     *clock.Watch
	// clockSet has room for one message: that the session is to be renewed.
	clockSet chan struct{}
}

// New makes a node; Run makes it work.
func New(c Config) (*Node, error) {
	c = c.withDefaults()
	c.Store = &observed{c.Store, &writable{log: c.Log, store: c.StoreName}, &slow{log: c.Log, store: c.StoreName}}
	c.Log = slog.New(quiet{c.Log.Handler()})
	n := &Node{
		config: c, plannerWake: make(chan store.Hint, 1), workerWake: make(chan store.Hint, 1),
		schedules: newSchedules(c.Store), clock: clock.NewWatch(c.Now, c.Boot), clockSet: make(chan struct{}, 1),
	}
	var err error
	if n.process, err = n.newID(); err != nil {
		return nil, err
	}
	n.output, err = output.New(output.Config{Sink: sink{c.Store, c.Wrote}, Limit: c.OutputLimit, Log: c.Log, Now: c.Now})
	if err != nil {
		return nil, err
	}
	n.planner = planner.New(planner.Config{
		Store:      c.Store,
		Session:    func() job.ID { return n.member.Load().ID() },
		Live:       func() []store.Session { return n.member.Load().Live() },
		Partitions: n.partitions,
		Look:       func(ctx context.Context) error { return n.member.Load().Look(ctx) },
		LookAhead:  c.LookAhead, Lanes: &n.lanes, Wake: n.plannerWake, Now: n.storeNow, Log: c.Log,
	})
	return n, nil
}

func (n *Node) newID() (job.ID, error) { return job.NewID(n.config.Now(), rand.Reader) }

// partitions returns those that this node plans: none without the role.
func (n *Node) partitions() store.Partitions {
	if !n.has(store.RolePlanner) {
		return store.Partitions{}
	}
	m := n.member.Load()
	return n.share.Of(m.ID(), m.Live())
}

// storeNow returns what the store's clock shows, which is that of the cluster.
func (n *Node) storeNow() time.Time {
	if m := n.member.Load(); m != nil {
		return m.Now()
	}
	return n.config.Now() // nothing is planned yet
}

func (n *Node) has(role string) bool { return slices.Contains(n.config.Session.Roles, role) }

// Planner returns the planner, which knows when jobs fall due.
func (n *Node) Planner() *planner.Planner { return n.planner }

// Run works until ctx ends, then stops gently: it takes nothing new, hands on
// what it has not started, and waits for its attempts, at most DrainTimeout.
func (n *Node) Run(ctx context.Context) error {
	if err := n.join(ctx); err != nil {
		return err
	}
	// The parts outlive ctx by the time of the gentle stop.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	// It hears what the planner does first, which nobody says again.
	hints := n.config.Store.Hints(parts)
	group.Go(func() { n.distributeHints(parts, hints) })
	group.Go(func() { n.watchClock(parts) })
	group.Go(func() { n.renewAfterSteps(parts) })
	group.Go(func() { n.tend(parts) })
	outputDone := make(chan error, 1)
	go func() { outputDone <- n.output.Run(parts) }()
	planning, stopPlanning := context.WithCancel(parts)
	defer stopPlanning()
	group.Go(func() { _ = n.planner.Run(planning) })

	var err error
	for again := true; again && err == nil; {
		again, err = n.session(ctx, stopPlanning)
	}
	stop()
	group.Wait()
	if flushed := <-outputDone; err == nil {
		err = flushed
	}
	return err
}

// join begins a session and settles what a predecessor on this machine has left.
func (n *Node) join(ctx context.Context) error {
	m, err := membership.Join(ctx, membership.Config{
		Store: n.config.Store, Session: n.config.Session, NewID: n.newID, Boot: n.config.Boot, Now: n.config.Now, Log: n.config.Log,
		Renewed: func(sent time.Duration) {
			if n.config.Watchdog != nil {
				n.config.Watchdog.Renewed(sent)
			}
		},
		Load: func() store.Load {
			if w := n.worker.Load(); w != nil {
				return w.Load()
			}
			return store.Load{}
		},
	})
	if err != nil {
		return err
	}
	n.member.Store(m)
	n.sayNamesake(m)
	began := func(job.ID, int) bool { return true }
	if n.config.Watchdog != nil {
		journal := n.config.Watchdog.Journal()
		began = func(run job.ID, attempt int) bool {
			return journal.Began(watchdog.Key{Run: run, Number: attempt})
		}
	}
	for _, predecessor := range m.Predecessors() {
		if err := n.settle(ctx, m.ID(), predecessor, began); err != nil {
			return fmt.Errorf("settle what session %s has left: %w", predecessor, err)
		}
	}
	if n.config.Watchdog != nil {
		return n.config.Watchdog.Reconciled()
	}
	return nil
}

// sayNamesake says that another live node has the name of this one, which people mean
// by it and drains and broadcasts go by.
func (n *Node) sayNamesake(m *membership.Member) {
	for _, s := range m.Live() {
		if s.Node == n.config.Session.Node && s.ID != m.ID() && !slices.Contains(m.Predecessors(), s.ID) {
			n.config.Log.Warn("another node has the same name, so that a drain or broadcast takes both for one", "node", s.Node, "joined", s.Joined, "data", s.DataDir, "better", "--name")
			return
		}
	}
}

// settle ends the attempts of a session whose process is gone: those that may
// have begun are lost, the others are given back.
func (n *Node) settle(ctx context.Context, session, predecessor job.ID, began func(job.ID, int) bool) error {
	for {
		runs, err := n.config.Store.Mine(ctx, predecessor)
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			return nil
		}
		var lost, unbegun []store.Attempt
		for i := range runs[:min(len(runs), store.MaxBatch)] {
			attempt := store.Attempt{Run: runs[i].ID, Number: runs[i].Attempt, Token: runs[i].Token}
			if began(attempt.Run, attempt.Number) {
				lost = append(lost, attempt)
			} else {
				unbegun = append(unbegun, attempt)
			}
		}
		n.config.Log.Warn("the process before this one has ended with attempts", "lost", len(lost), "not_begun", len(unbegun))
		n.nameLost(runs, lost)
		if len(unbegun) > 0 {
			if err := n.config.Store.Release(ctx, predecessor, unbegun); err != nil {
				return err
			}
		}
		if len(lost) > 0 {
			if err := n.config.Store.Reap(ctx, session, lost); err != nil {
				return err
			}
		}
		if n.config.Watchdog != nil {
			for _, a := range lost {
				n.config.Watchdog.Forget(watchdog.Key{Run: a.Run, Number: a.Number})
			}
		}
	}
}

// namedMax is how many attempts are named in the log at once: the number of all of
// them is said besides, and each is in the history.
const namedMax = 20

// nameLost names attempts of runs that are lost.
func (n *Node) nameLost(runs []store.Run, lost []store.Attempt) {
	for _, a := range lost[:min(len(lost), namedMax)] {
		if i := slices.IndexFunc(runs, func(r store.Run) bool { return r.ID == a.Run }); i >= 0 {
			n.config.Log.Warn("an attempt is lost: the process before this one ended while it ran",
				"job", runs[i].Namespace+"/"+runs[i].Name, "run", a.Run, "attempt", a.Number)
		}
	}
}

// journal lets the worker write into the journal of the watchdog.
type journal struct{ watchdog *watchdog.Node }

// Announce implements worker.Journal.
func (j journal) Announce(run job.ID, attempt int) error {
	return j.watchdog.Announce(watchdog.Key{Run: run, Number: attempt})
}

// Forget implements worker.Journal.
func (j journal) Forget(run job.ID, attempt int) {
	j.watchdog.Forget(watchdog.Key{Run: run, Number: attempt})
}

// session works under one session until ctx ends or the session is over. It
// tells whether to begin another.
func (n *Node) session(ctx context.Context, stopPlanning func()) (again bool, err error) {
	m := n.member.Load()
	self := n.config.Session
	self.ID = m.ID()
	config := worker.Config{
		Store: n.config.Store, Self: self, Executors: n.config.Executors, Output: n.output, Observer: n.config.Observer,
		Lanes: &n.lanes, NeedRoom: heap.NeedRoom,
		Capacity: n.config.Capacity, StealAfter: n.config.StealAfter,
		Renewed: m.Renewed, Drained: m.Drained, Boot: n.config.Boot, Now: n.config.Now, Around: n.schedules.around,
		Wake: n.workerWake, NewID: n.newID, Log: n.config.Log,
	}
	if n.config.Watchdog != nil {
		config.Journal = journal{n.config.Watchdog}
	}
	w := worker.New(config)
	n.worker.Store(w)
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var group sync.WaitGroup
	group.Go(func() { _ = m.Run(working) })
	if n.has(store.RoleWorker) {
		group.Go(func() { _ = w.Run(working) })
	}
	if !n.booted {
		err := n.startBootJobs(ctx, m.ID())
		if err != nil && ctx.Err() == nil {
			n.config.Log.Error("jobs that are due at the start of a node could not be started", "error", err)
		}
		n.booted = err == nil
	}
	select {
	case <-ctx.Done():
		stopPlanning()
		n.leave(working, m, w)
		stop(executor.ErrStopped)
		group.Wait()
		return false, m.End(context.WithoutCancel(ctx))
	case <-m.Over():
		stop(executor.ErrFenced)
		group.Wait()
		return n.joinAgain(ctx), nil
	}
}

// joinAgain begins another session, however long the store takes to let it. It
// tells whether it has: ctx may end before.
func (n *Node) joinAgain(ctx context.Context) bool {
	fails := trouble.With(n.config.Log, "this node has no session and runs nothing: it cannot begin another", "this node has a session again")
	for {
		err := n.join(ctx)
		if err != nil && ctx.Err() != nil {
			return false
		}
		fails.Saw(err)
		if err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(joinEvery):
		}
	}
}

// leave hands on what can be handed on and waits for the rest.
func (n *Node) leave(ctx context.Context, m *membership.Member, w *worker.Worker) {
	ctx, cancel := context.WithTimeout(ctx, n.config.DrainTimeout)
	defer cancel()
	if err := m.Leave(ctx); err != nil {
		n.config.Log.Error("the others are not told that this node leaves", "error", err)
	}
	if err := w.Leave(ctx); errors.Is(err, context.DeadlineExceeded) {
		list := w.Running()
		n.config.Log.Warn("attempts are ended: they took longer than the time to stop", "timeout", n.config.DrainTimeout, "attempts", len(list))
		for _, a := range list[:min(len(list), namedMax)] {
			n.config.Log.Warn("an attempt is ended: it took longer than the time to stop", "job", a.Job, "run", a.Run, "attempt", a.Attempt)
		}
	}
}

// startBootJobs starts the jobs that are due once for each start of a process. A
// node that is drained starts none, then or later: they are for its start.
func (n *Node) startBootJobs(ctx context.Context, session job.ID) error {
	if n.member.Load().Drained() {
		n.config.Log.Warn("this node is drained: jobs that are due at the start of a node are not started")
		return nil
	}
	const page = 500
	query := store.JobQuery{Boot: true, State: job.JobActive, Limit: page}
	for {
		jobs, next, err := n.config.Store.ListJobs(ctx, query)
		if err != nil {
			return err
		}
		var items []store.TriggerItem
		for _, j := range jobs {
			if !placement.Eligible(&n.config.Session, &j.Filled.Place, j.Filled.Run.Handler) {
				continue
			}
			shards := j.Filled.Place.Shards
			for shard := range max(1, shards) {
				id, err := n.newID()
				if err != nil {
					return err
				}
				items = append(items, store.TriggerItem{
					ID: id, Job: j.Definition.UID, Kind: job.RunBoot, Key: n.process.String(), Session: session,
					Shard: shard, Shards: shards,
				})
			}
		}
		for part := range slices.Chunk(items, store.MaxBatch) {
			if _, err := n.config.Store.Trigger(ctx, part); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		query.After = next
	}
}

// distributeHints hands hints to those whom they concern.
func (n *Node) distributeHints(ctx context.Context, hints <-chan store.Hint) {
	for hint := range hints {
		if hint&store.HintNodes != 0 {
			// Before the planner places what was taken from a node. What fails is
			// made up for, and told, by the next renewal.
			_ = n.member.Load().Look(ctx)
		}
		if hint&(store.HintJobs|store.HintRuns) != 0 {
			pass(n.plannerWake, hint)
		}
		pass(n.workerWake, hint)
	}
}

// pass hands a hint on, together with one that was not taken yet.
func pass(c chan store.Hint, hint store.Hint) {
	for {
		select {
		case c <- hint:
			return
		default:
		}
		select {
		case earlier := <-c:
			hint |= earlier
		default:
		}
	}
}

// sink takes output for the store, and tells of it.
type sink struct {
	store store.History
	wrote func(run job.ID)
}

// Append implements output.Sink.
func (s sink) Append(ctx context.Context, chunks []output.Chunk) error {
	list := make([]store.OutputChunk, len(chunks))
	for i := range chunks {
		list[i] = store.OutputChunk(chunks[i])
	}
	if err := s.store.AppendOutput(ctx, list); err != nil || s.wrote == nil {
		return err
	}
	for i := range list {
		if i == 0 || list[i].Run != list[i-1].Run { // those of a run are beside each other
			s.wrote(list[i].Run)
		}
	}
	return nil
}
