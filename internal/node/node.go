// Package node combines the parts of a node in one process: a session, a planner, a worker and the
// upkeep of the store. It has no rules of its own.
//
// Config has one narrow interface for each part of a node, and a part without its store is absent. A
// server or a program that embeds a node has a whole store and passes it with [Config.On]. A worker that
// must not reach the store has only a [work.Store], and sets Members and Work:
//
//	remote := ... // a work.Store over the network
//	n, err := node.New(node.Config{Session: self, Members: remote, Work: remote, Executors: executors})
//
// The package links no store, no command line and no HTTP.
package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/internal/node/garbage"
	"github.com/belfry-cron/belfry/internal/node/membership"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/node/planner"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Config configures a node. Zero durations and counts are replaced by the defaults.
type Config struct {
	// Members keeps the session of the node. Every node needs it.
	Members work.Session
	// Work is the store for running attempts. Nil: the node runs nothing, whatever its roles.
	Work work.Store
	// Planning is the planner's store. Nil: the node plans nothing, whatever its roles, and does
	// not know when jobs fall due.
	Planning planner.Store
	// Upkeep is the housekeeping of a node with a store. Nil: other nodes do it.
	Upkeep Upkeep
	// StoreName is the name of the store in the log, for the operator who must make room in
	// it.
	StoreName string
	// Session describes the node to other nodes.
	Session store.Session
	// Executors returns the executor of a job.
	Executors worker.Executors
	// Secrets returns the secrets of attempts: see [worker.Config].
	Secrets func(ctx context.Context, of work.SecretsOf) (map[string]string, error)
	// Keepers poll handed-over work, on a node that runs jobs.
	Keepers []Keeper
	// Folders are the directories of flows kept on one node. May be nil.
	Folders Folders
	// CarryOver is the result of [Node.ToCarry] in the previous version of the program in this
	// process, or nil.
	CarryOver *CarryOver
	// Watchdog ends running commands when this process dies or hangs, and keeps the journal
	// of started ones. Nil if no commands run.
	Watchdog *watchdog.Node
	// Spool keeps results that the store lacks, beyond the life of this process. May be nil.
	Spool Spool
	// Observer is called when attempts begin and end. May be nil.
	Observer worker.Observer
	// Trace returns the trace of an attempt: see [worker.Config].
	Trace func(run *job.Run, attempt int) job.Trace
	// Wrote is called for each running run whose output has reached the store. May be nil.
	Wrote func(run job.ID)
	// OutputLimit bounds the stored output of an attempt. Default: 1 MiB.
	OutputLimit int
	// StealAfter is how long a run must be overdue before another node takes it over. Default: 1 s.
	StealAfter time.Duration
	// Capacity is how many attempts may run at once. Default: 512.
	Capacity int
	// DrainTimeout (drain_timeout) is how long a leaving node waits for its attempts. Default: 30
	// s.
	DrainTimeout time.Duration
	// Retention is the default retention of history.
	Retention store.Retention

	Now  func() time.Time
	Boot func() time.Duration
	Log  *slog.Logger
}

// Folders removes the directories of flows that have ended.
type Folders interface {
	// SettleFlows is called each second by one goroutine. It calls over to learn which runs have
	// ended.
	SettleFlows(ctx context.Context, over func(ctx context.Context, runs []job.ID) ([]job.ID, error)) error
}

// Spool is the spool of a worker, and moves its content to the store.
type Spool interface {
	worker.Spool
	// Deliver moves the results of earlier sessions to the store, for a session that is
	// about to begin, and returns their attempts.
	Deliver(ctx context.Context, session job.ID, finish func(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)) ([]store.Attempt, error)
}

// Upkeep is the housekeeping for which nodes with a store take turns: see [store.Control].
type Upkeep interface {
	Tidy(ctx context.Context) (more bool, err error)
	Expire(ctx context.Context, keep store.Retention) (more bool, err error)
	ExpireAudit(ctx context.Context, keep store.Retention) (more bool, err error)
	Alerts(ctx context.Context, limit int) ([]store.Alert, error)
	Lost(ctx context.Context, limit int) ([]store.Attempt, error)
	Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error
}

// Store is what a node with every part needs of a store.
type Store interface {
	work.Backing
	planner.Store
	Upkeep
}

// On returns the config of a node with every part on one store. The roles of its session
// decide what it plans and runs.
func (c Config) On(s Store) Config {
	c = c.withDefaults()
	c.Members, c.Work, c.Planning, c.Upkeep = s, work.On(s, c.Now), s, s
	return c
}

// The defaults of a [Config].
const (
	defaultStealAfter   = time.Second
	DefaultCapacity     = 512
	DefaultDrainTimeout = 30 * time.Second
)

// joinEvery is the wait between two tries to begin another session.
const joinEvery = time.Second

func (c Config) withDefaults() Config {
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

// Node is a running process. Use [New].
type Node struct {
	config Config
	// writable notices when the store cannot be written.
	writable *writable
	planner  *planner.Planner // nil without Config.Planning
	stripes  stripes.Stripes  // keeps planner and worker in different stripes
	output   *output.Collector
	process  job.ID // id of this start, for jobs with boot
	// booted is set once these were started. Later sessions start none: the process is the same,
	// and its keys expire.
	booted bool

	plannerWake, workerWake chan store.Hint
	keeperWakes             []chan store.Hint
	carried                 *CarryOver // attempts that continue without this program; nil for none
	// left are the containers that an earlier process has left, until the first worker has them.
	left []worker.Kept
	// unreadable are those that it cannot continue with.
	unreadable []watchdog.Key
	// member and worker belong to the present session.
	member atomic.Pointer[membership.Member]
	// handlers replace Config.Session's; nil if they do not.
	handlers atomic.Pointer[[]string]
	worker   atomic.Pointer[worker.Worker]
	share    placement.Share
	// schedules finds the neighbours in time of attempts.
	schedules *schedules // nil without Config.Work
	retention atomic.Pointer[store.Retention]
	clock     *clock.Watch
	// predecessors has room for one list of sessions to be settled again.
	predecessors chan []job.ID
	// clockSet has room for one request to renew the session.
	clockSet chan struct{}
}

// New makes a node; Run makes it work.
func New(c Config) (*Node, error) {
	c = c.withDefaults()
	if c.Members == nil {
		return nil, errors.New("a node needs a store for its session")
	}
	writable := c.observe()
	c.Log = slog.New(quiet{c.Log.Handler()})
	n := &Node{
		config: c, writable: writable, plannerWake: make(chan store.Hint, 1), workerWake: make(chan store.Hint, 1),
		clock: clock.NewWatch(c.Now, c.Boot), clockSet: make(chan struct{}, 1),
		predecessors: make(chan []job.ID, 1),
	}
	n.Keep(c.Retention)
	var err error
	if n.process, err = n.newID(); err != nil {
		return nil, err
	}
	if c.CarryOver != nil {
		n.process, n.booted = c.CarryOver.Process, true
	}
	if c.Work != nil {
		n.schedules = newSchedules(c.Work)
		n.output, err = output.New(output.Config{Sink: sink{c.Work, c.Wrote}, Limit: c.OutputLimit, Log: c.Log, Now: c.Now})
		if err != nil {
			return nil, err
		}
	}
	n.readLeft()
	if c.Planning != nil {
		n.planner = planner.New(planner.Config{
			Store:      c.Planning,
			Session:    func() job.ID { return n.member.Load().ID() },
			Live:       func() []store.Session { return n.member.Load().Live() },
			Partitions: n.partitions,
			Look:       func(ctx context.Context) error { return n.member.Load().Look(ctx) },
			ClaimWith:  n.claimWith,
			Stripes:    &n.stripes, Wake: n.plannerWake, Now: n.storeNow, Log: c.Log,
		})
	}
	return n, nil
}

// Keep replaces Config.Retention. It may be called while the node runs.
func (n *Node) Keep(r store.Retention) { n.retention.Store(&r) }

// Kept returns the current retention.
func (n *Node) Kept() store.Retention { return *n.retention.Load() }

func (n *Node) newID() (job.ID, error) { return job.NewID(n.config.Now(), rand.Reader) }

// partitions returns the partitions that this node plans: none without the role, or while its clock is off.
func (n *Node) partitions() store.Partitions {
	m := n.member.Load()
	if !n.has(store.RolePlanner) || m.ClockOff() {
		return store.Partitions{}
	}
	return n.share.Of(m.ID(), m.Live())
}

// claimWith lets the worker claim its session's runs in a step of the planner.
func (n *Node) claimWith(ctx context.Context, runs []store.ReadyRun, step func(tokens []job.ID) ([]store.ClaimOutcome, error)) error {
	w := n.worker.Load()
	if w == nil || w.Self.ID != runs[0].Session {
		_, err := step(nil)
		return err
	}
	return w.ClaimWith(ctx, runs, step)
}

// reporting tells the node's planner about the results of its worker.
type reporting struct {
	work.Runs
	node *Node
}

func (r reporting) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	outcomes, err := r.Runs.Finish(ctx, session, results)
	if err == nil && r.node.planner != nil {
		r.node.planner.Ended(results)
	}
	return outcomes, err
}

// storeNow returns the store's clock, the clock of the cluster.
func (n *Node) storeNow() time.Time {
	if m := n.member.Load(); m != nil {
		return m.Now()
	}
	return n.config.Now() // nothing is planned yet
}

func (n *Node) has(role string) bool { return slices.Contains(n.config.Session.Roles, role) }

// Planner returns the planner, which knows when jobs fall due; nil without Config.Planning.
func (n *Node) Planner() *planner.Planner { return n.planner }

// Run works until ctx ends, then stops gracefully: it stops claiming, releases unstarted runs, and
// waits for its attempts, at most DrainTimeout.
func (n *Node) Run(ctx context.Context) error {
	if began, err := n.joinFirst(ctx); !began {
		return err
	}
	// The parts outlive ctx by the time of the gentle stop.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	// It subscribes before the planner starts: missed hints are not repeated.
	keepers := n.keeps()
	hints := n.config.Members.Hints(parts)
	group.Go(func() { n.distributeHints(parts, hints) })
	group.Go(func() { n.watchClock(parts) })
	group.Go(func() { n.renewAfterSteps(parts) })
	for _, keep := range keepers {
		group.Go(func() { keep(parts) })
	}
	planning, stopPlanning := context.WithCancel(parts)
	defer stopPlanning()
	var flushed error
	if n.config.Upkeep != nil {
		group.Go(func() { n.tend(parts) })
	}
	if n.config.Work != nil {
		group.Go(func() { n.settleAgain(parts) })
		group.Go(func() { n.settleFlows(parts) })
		group.Go(func() { flushed = n.output.Run(parts) })
	}
	if n.planner != nil {
		group.Go(func() { _ = n.planner.Run(planning) })
	}

	var err error
	for again := true; again && err == nil; {
		again, err = n.session(ctx, stopPlanning)
	}
	stop()
	group.Wait()
	return cmp.Or(err, flushed)
}

// join begins a session and settles the attempts of a predecessor on this machine.
func (n *Node) join(ctx context.Context) error {
	if err := n.deliver(ctx); err != nil {
		return err
	}
	m, err := n.begin(ctx)
	if err != nil {
		return err
	}
	n.member.Store(m)
	n.sayNamesake(m)
	if err := n.settlePredecessors(ctx, m); err != nil {
		return err
	}
	if n.config.Watchdog != nil {
		if err := n.config.Watchdog.Reconciled(); err != nil {
			return err
		}
		n.config.Watchdog.Session(m.ID())
	}
	select {
	case n.predecessors <- m.Predecessors():
	default: // sessions change faster than the loop handles them
	}
	return nil
}

// joinAs begins a session with an identity, a new one for the zero id.
func (n *Node) joinAs(ctx context.Context, id job.ID) (*membership.Member, error) {
	self := n.config.Session
	self.ID = id
	if handlers := n.handlers.Load(); handlers != nil {
		self.Handlers = *handlers
	}
	return membership.Join(ctx, membership.Config{
		Store: n.config.Members, Session: self, NewID: n.newID, Boot: n.config.Boot, Now: n.config.Now, Log: n.config.Log,
		Renewed: func(sent time.Duration) {
			if n.config.Watchdog != nil {
				n.config.Watchdog.Renewed(sent)
			}
		},
		StoreStepped: n.stepped,
		Load: func() store.Load {
			if w := n.worker.Load(); w != nil {
				return w.Load()
			}
			return store.Load{}
		},
	})
}

// Publish replaces the handlers that the node publishes, in this session and the next ones.
func (n *Node) Publish(handlers []string) {
	n.handlers.Store(&handlers)
	if m := n.member.Load(); m != nil {
		m.Publish(handlers)
	}
}

// sayNamesake logs that another live node has the same name, which must be unique for people,
// drains and broadcasts.
func (n *Node) sayNamesake(m *membership.Member) {
	for _, s := range m.Live() {
		if s.Node == n.config.Session.Node && s.ID != m.ID() && !slices.Contains(m.Predecessors(), s.ID) {
			n.config.Log.Warn("another node has the same name; drains and broadcasts treat both as one", "node", s.Node, "joined", s.Joined, "data", s.DataDir, "better", "--name")
			return
		}
	}
}

// namedMax bounds the attempts that a log line names besides their total; history has each.
const namedMax = 20

// journal lets the worker write into the journal of the watchdog.
type journal struct{ watchdog *watchdog.Node }

// Announce implements [worker.Journal].
func (j journal) Announce(run job.ID, attempt int) error {
	return j.watchdog.Announce(watchdog.Key{Run: run, Number: attempt})
}

// Forget implements [worker.Journal].
func (j journal) Forget(run job.ID, attempt int) {
	j.watchdog.Forget(watchdog.Key{Run: run, Number: attempt})
}

// Keep implements [worker.Keeper].
func (j journal) Keep(run job.ID, attempt int, state []byte) error {
	return j.watchdog.Keep(watchdog.Key{Run: run, Number: attempt}, state)
}

// Chunks implements [worker.Keeper].
func (j journal) Chunks(run job.ID, attempt, below int) {
	j.watchdog.Chunks(watchdog.Key{Run: run, Number: attempt}, below)
}

// session works under one session until ctx ends or the session is over. It
// reports whether to begin another.
func (n *Node) session(ctx context.Context, stopPlanning func()) (again bool, err error) {
	m := n.member.Load()
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var group sync.WaitGroup
	group.Go(func() { _ = m.Run(working) })
	w := n.newWorker(m)
	if n.worker.Store(w); w != nil {
		if err := n.adopt(w); err != nil {
			return false, err
		}
		group.Go(func() { _ = w.Run(working) })
		n.startBootJobs(ctx, m)
	}
	select {
	case <-ctx.Done():
		stopPlanning()
		carry, announced := errors.Is(context.Cause(ctx), executor.ErrCarried), true
		if carry {
			n.carry(working, w)
		} else {
			announced = n.leave(working, m, w)
		}
		stop(executor.ErrStopped)
		group.Wait()
		if carry {
			n.carryOver(m, w)
			return false, nil
		}
		return false, n.end(context.WithoutCancel(ctx), m, w, announced)
	case <-m.Over():
		stop(executor.ErrFenced)
		group.Wait()
		return n.joinAgain(ctx), nil
	}
}

// newWorker returns the worker of a session, nil for a node that runs nothing.
func (n *Node) newWorker(m *membership.Member) *worker.Worker {
	if n.config.Work == nil || !n.config.Session.Works() {
		return nil
	}
	self := n.config.Session
	self.ID = m.ID()
	config := worker.Config{
		Store: reporting{n.config.Work, n}, Self: self, Executors: n.config.Executors, Output: n.output, Observer: n.config.Observer,
		Trace:   n.config.Trace,
		Stripes: &n.stripes, NeedRoom: garbage.NeedRoom,
		Capacity: n.config.Capacity, StealAfter: n.config.StealAfter,
		Renewed: m.Renewed, Drained: func() bool { return m.Drained() || m.ClockOff() }, Boot: n.config.Boot, Now: m.Now, Around: n.schedules.around,
		Secrets: n.config.Secrets, Wake: n.workerWake, NewID: n.newID, Log: n.config.Log,
	}
	if n.config.Watchdog != nil {
		config.Journal, config.Keeper = journal{n.config.Watchdog}, journal{n.config.Watchdog}
	}
	if n.config.Spool != nil {
		config.Spool = n.config.Spool
	}
	return worker.New(config)
}

// joinWithin bounds one try to begin a session, so that the log names a silent store, and a dead
// connection is given up.
const joinWithin = 30 * time.Second

// joinFirst begins the first session, and retries like joinAgain while the store is away. Other
// failures, of the watchdog or a damaged store, end the start.
func (n *Node) joinFirst(ctx context.Context) (began bool, err error) {
	err = n.tryJoin(ctx)
	if err == nil || ctx.Err() != nil || !errors.Is(err, store.ErrAway) && !errors.Is(err, store.ErrNoSpace) && !errors.Is(err, context.DeadlineExceeded) {
		return err == nil, err
	}
	n.config.Log.Warn("this node has no session and runs nothing yet: waiting for the store", "error", err)
	return n.joinAgain(ctx), nil
}

func (n *Node) tryJoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	return n.join(ctx)
}

// joinAgain retries until a new session has begun, and reports whether it has: ctx may end first.
func (n *Node) joinAgain(ctx context.Context) bool {
	fails := failurelog.New(n.config.Log, "this node has no session and runs nothing: cannot begin another session", "this node has a session again")
	for {
		err := n.tryJoin(ctx)
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

// farewellWithin bounds each call with which a node announces its stop: a node stops even if its
// store is away.
const farewellWithin = 5 * time.Second

// tryWithin bounds the last call to a store that did not answer within farewellWithin.
const tryWithin = time.Second

// leave releases unstarted runs and waits for running attempts. It reports whether the store has
// recorded the leaving.
func (n *Node) leave(ctx context.Context, m *membership.Member, w *worker.Worker) (announced bool) {
	ctx, cancel := context.WithTimeout(ctx, n.config.DrainTimeout)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() {
		telling, cancel := context.WithTimeout(ctx, farewellWithin)
		defer cancel()
		err := m.Leave(telling)
		if announced = err == nil; !announced {
			n.config.Log.Error("cannot tell the other nodes that this node is leaving", "error", err)
		}
	})
	if w != nil {
		n.sayEnded(w, w.Leave(ctx))
	}
	group.Wait()
	return announced
}

// end ends the session, whether or not the store has recorded the leaving. A session with results
// in the spool stays: otherwise their attempts would count as lost at once, although the watchdog
// and the next process have the results.
func (n *Node) end(ctx context.Context, m *membership.Member, w *worker.Worker, announced bool) error {
	if n.config.Spool != nil && w != nil && w.HasResults() {
		return nil
	}
	within := farewellWithin
	if !announced {
		within = tryWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := m.End(ctx)
	switch {
	case err == nil && n.config.Watchdog != nil:
		n.config.Watchdog.Session(job.ID{})
	case err != nil && !announced:
		n.config.Log.Warn("the session of this node was not ended: it expires, unless the next process ends it before", "error", err)
		return nil
	}
	return err
}

// sayEnded logs the attempts that did not end in time.
func (n *Node) sayEnded(w *worker.Worker, err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		list := w.Running()
		n.config.Log.Warn("ended attempts that did not finish within the drain timeout", "timeout", n.config.DrainTimeout, "attempts", len(list))
		for _, a := range list[:min(len(list), namedMax)] {
			n.config.Log.Warn("ended an attempt that did not finish within the drain timeout", "job", a.Job, "run", a.Run, "attempt", a.Attempt)
		}
	}
}

// startBootJobs starts the jobs that are due once for each start of a process, by its first session
// that can. A drained node starts none, even later: these jobs belong to its start.
func (n *Node) startBootJobs(ctx context.Context, m *membership.Member) {
	if n.booted {
		return
	}
	if m.Drained() {
		n.config.Log.Warn("node is drained; not starting the jobs that are due at the start of a node")
		n.booted = true
		return
	}
	self := n.config.Session
	self.ID = m.ID()
	err := n.config.Work.StartBoot(ctx, self, n.process)
	if err != nil && ctx.Err() == nil {
		n.config.Log.Error("cannot start the jobs that are due at the start of a node", "error", err)
	}
	n.booted = err == nil
}

// distributeHints passes hints to the parts of the node that they concern.
func (n *Node) distributeHints(ctx context.Context, hints <-chan store.Hint) {
	for hint := range hints {
		if hint&store.HintNodes != 0 {
			// Before the planner places the runs of a drained node. The next renewal
			// retries and reports a failure.
			_ = n.member.Load().Look(ctx)
		}
		if hint&(store.HintJobs|store.HintRuns) != 0 {
			pass(n.plannerWake, hint)
		}
		pass(n.workerWake, hint)
		if hint&store.HintCancels != 0 {
			for _, wake := range n.keeperWakes {
				pass(wake, hint)
			}
		}
	}
}

// pass passes a hint on, merged with a pending one.
func pass(c chan store.Hint, hint store.Hint) {
	for {
		select {
		case c <- hint:
			return
		default:
		}
		select {
		case earlier := <-c:
			hint = hint.With(earlier)
		default:
		}
	}
}

// sink writes output to the store, and reports it.
type sink struct {
	store interface {
		AppendOutput(ctx context.Context, chunks []store.OutputChunk) error
	}
	wrote func(run job.ID)
}

// Append implements [output.Sink].
func (s sink) Append(ctx context.Context, chunks []output.Chunk) error {
	list := make([]store.OutputChunk, len(chunks))
	for i := range chunks {
		list[i] = store.OutputChunk(chunks[i])
	}
	if err := s.store.AppendOutput(ctx, list); err != nil || s.wrote == nil {
		return err
	}
	for i := range list {
		if i == 0 || list[i].Run != list[i-1].Run { // chunks of one run are adjacent
			s.wrote(list[i].Run)
		}
	}
	return nil
}
