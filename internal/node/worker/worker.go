// Package worker claims the due runs of a node, executes them and reports their results. The store
// decides which runs may start; this package claims in time, stays within the capacity of the node,
// and keeps results until the store has them.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Journal records on this machine which attempts have started.
type Journal interface {
	Announce(run job.ID, attempt int) error
	Forget(run job.ID, attempt int)
}

// Keeper keeps the state of attempts that outlive this process, until [Journal].Forget. The next
// process continues them.
type Keeper interface {
	Keep(run job.ID, attempt int, state []byte) error
	// Chunks records that the chunks of the attempt's output may get numbers below another one.
	Chunks(run job.ID, attempt, below int)
}

// Observer counts attempts. It is called by many goroutines on hot paths: it must be quick and
// never wait.
type Observer interface {
	// Started receives the lateness of a started attempt, Ended is called at its end.
	// Neither is called for an attempt that never starts.
	Started(late time.Duration)
	// Resumed is called for an attempt continued from an earlier version of the program in
	// this process.
	Resumed()
	Ended(job job.ID, outcome job.Outcome, at time.Time)
}

// Executors returns the executor of a job.
type Executors func(*job.Job) executor.Executor

// Config configures a worker.
type Config struct {
	Store work.Runs
	// Self is the session of this node.
	Self store.Session
	// Executors is called for each attempt; nil means that the node cannot run the job.
	Executors Executors
	Output    *output.Collector
	// Journal records each attempt before it starts and when the store has its result, so that the
	// next process on this machine knows which attempts may have taken effect. May be nil.
	Journal Journal
	// Keeper keeps the state of attempts that outlive this process. May be nil.
	Keeper Keeper
	// Spool keeps results on disk until the store has them. May be nil.
	Spool Spool
	// Observer is called when attempts start and end. May be nil.
	Observer Observer
	// Trace returns the trace of an attempt. Nil: it is that of the request for the run.
	Trace func(run *job.Run, attempt int) job.Trace
	// Stripes are the stripes of this node. May be nil.
	Stripes *stripes.Stripes
	// NeedRoom is called when the rate is so high that garbage collection takes much time; the
	// returned function is called at the end. May be nil.
	NeedRoom func() (done func())
	// Capacity bounds concurrent attempts, and StealAfter is how long another node's run must be
	// overdue to be taken over.
	Capacity   int
	StealAfter time.Duration
	// Renewed returns when the last acknowledged renewal of the session was
	// sent, by Boot.
	Renewed func() time.Duration
	// Drained reports whether this node is drained. May be nil.
	Drained func() bool
	Boot    func() time.Duration
	Now     func() time.Time // the store's clock: history does not depend on that of a machine
	// Around returns a scheduled time in the job's zone, with the previous and next one. If it
	// fails, the attempt is released.
	Around func(ctx context.Context, j *store.Job, scheduled time.Time) (previous, same, next time.Time, err error)
	// Secrets returns the values of all secrets that an attempt names. Any error but
	// *secret.Missing may be temporary: the attempt is postponed. Nil: no secrets exist.
	Secrets func(ctx context.Context, of work.SecretsOf) (map[string]string, error)
	// Wake receives a hint when there may be runs or cancels. It is never closed.
	Wake  <-chan store.Hint
	NewID func() (job.ID, error)
	Log   *slog.Logger
}

const (
	// restFactor is the backoff after a hinted poll, as a multiple of its duration: a node with a
	// busy store must not read all the time. The backoff ends early when a page is claimed and less
	// than a batch is left: otherwise the worker would be idle after a poll of thousands of runs.
	restFactor = 10
	// heedEvery is the interval, and heedBurst the burst, of polls for cancelled or changed work,
	// which do not back off: a cancel must reach its attempt within 100 ms, and a thousand edits a
	// second must not cause a thousand reads on each node.
	heedEvery = 50 * time.Millisecond
	heedBurst = 10
	// leaveEvery is the interval of a leaving worker's checks for the end of its attempts.
	leaveEvery = 50 * time.Millisecond
	// stealEvery is the interval of polls for overdue runs of other nodes.
	stealEvery = 250 * time.Millisecond
	// callsUnderWay is the number of concurrent batches of claims, and of results, so that a store
	// can overlap them.
	callsUnderWay = 2
	// backoffMin and backoffMax bound the wait after an error of the store.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// Worker claims, executes and reports runs. Use [New].
type Worker struct {
	Config
	base time.Time // the monotonic clock starts here

	mu sync.Mutex // guards queue; never held across a store call
	// queue decides. Use decide.
	queue *runqueue.Queue[claim]

	results   results
	handovers *handovers

	unstarted failurelog.Limit // limits log lines about unstarted attempts
	// away is set once Leave no longer waits for the store: results stay in the spool.
	away atomic.Bool

	starter              *starter
	claimWake, startWake chan struct{}
	clockWake            chan struct{} // the store's clock must be read
	restWake             chan struct{} // the backoff after a poll must end
	lookWake, heedWake   chan struct{}
}

// item is a run that the worker holds.
type item = runqueue.Item[claim]

// claim is the worker's data of a claimed run.
type claim struct {
	run      *store.Run
	job      *store.Job
	prepared *preparedAttempt
	// For a step of a flow: the results that it reads, its item, and whether the flow stays on one
	// node.
	steps    map[string]job.StepData
	item     []byte
	index    int
	together bool
	// fence is when the attempt must have ended, after the last renewal; 0 if its loss
	// starts no other attempt.
	fence time.Duration
	// carried is the state for continuing under another program, or nil.
	carried *CarryOver
}

// decide runs a decision of the queue, and wakes the loops that have work.
func (w *Worker) decide(decide func(queue *runqueue.Queue[claim])) {
	w.mu.Lock()
	defer w.mu.Unlock()
	decide(w.queue)
	wake := w.queue.Wakes()
	if wake == 0 {
		return
	}
	if wake&runqueue.WakeClaims != 0 {
		signal(w.claimWake)
	}
	if wake&runqueue.WakeStarts != 0 {
		signal(w.startWake)
	}
	if wake&runqueue.WakeReader != 0 {
		signal(w.restWake)
	}
	if wake&runqueue.WakeLook != 0 {
		signal(w.lookWake)
	}
	if wake&runqueue.WakeRevoke != 0 {
		signal(w.heedWake)
	}
}

// New returns a worker; Run runs it.
func New(c Config) *Worker {
	w := &Worker{
		Config: c, base: time.Now(), unstarted: failurelog.Limit{Every: unstartedEvery}, queue: runqueue.New[claim](c.Capacity, stripes.Of),
		claimWake: make(chan struct{}, 1), startWake: make(chan struct{}, 1), results: results{wake: make(chan struct{}, 1)},
		handovers: newHandovers(),
		clockWake: make(chan struct{}, 1), restWake: make(chan struct{}, 1), lookWake: make(chan struct{}, 1), heedWake: make(chan struct{}, 1),
	}
	w.starter = newStarter(w.execute, w.ended)
	return w
}

// Run works until ctx ends. Then it ends running attempts with [executor.ErrFenced], if that is the
// cause of ctx, or [executor.ErrStopped]. It returns when their results are reported, or after
// reportAfterStop without a response of the store. Call Leave first for a gentle stop.
func (w *Worker) Run(ctx context.Context) error {
	// Reports outlive ctx for a moment, like attempts.
	outer, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var loops, reporters sync.WaitGroup
	for _, loop := range []func(context.Context){w.hintLoop, w.heedLoop, w.lookLoop, w.stealLoop, w.startLoop, w.fenceLoop, w.reconcileLoop} {
		loops.Go(func() { loop(ctx) })
	}
	claims := failurelog.New(w.Log, "cannot claim runs", "claiming runs works again")
	reports := failurelog.New(w.Log, "cannot report results; keeping them", "reporting results works again")
	var claimAgain, reportAgain backoff
	for range callsUnderWay {
		loops.Go(func() { w.claimLoop(ctx, claims, &claimAgain) })
		reporters.Go(func() { w.reportLoop(outer, reports, &reportAgain) })
		reporters.Go(func() { w.handOverLoop(outer) })
	}
	loops.Wait()
	giving, given := context.WithTimeout(outer, reportAfterStop)
	w.giveBack(giving)
	given()
	cause := context.Cause(ctx)
	if !errors.Is(cause, executor.ErrFenced) {
		cause = executor.ErrStopped
	}
	w.endRunning(cause, func(*item) bool { return true })
	w.starter.close()
	w.awaitReports(outer)
	stop()
	reporters.Wait()
	return nil
}

// signal wakes a loop, unless it is awake.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// elapsed returns the time on the monotonic clock.
func (w *Worker) elapsed() time.Duration { return time.Since(w.base) }

// hintLoop passes hints to the loops of their subjects, which do not wait for each other's calls.
func (w *Worker) hintLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case hint := <-w.Wake:
			w.decide(func(queue *runqueue.Queue[claim]) { queue.Hint(hint) })
		}
	}
}

// heedLoop polls at once for cancelled or changed work.
func (w *Worker) heedLoop(ctx context.Context) {
	hints := failurelog.New(w.Log, "cannot read cancelled and changed runs", "reading cancelled and changed runs works again")
	var due store.Hint // hints to follow
	var rested <-chan time.Time
	var full time.Time // when a whole burst is allowed again
	backoff := backoffMin
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.heedWake:
		case <-rested:
			rested = nil
		}
		if rested != nil {
			continue
		}
		w.decide(func(queue *runqueue.Queue[claim]) { due = due.With(queue.Revocations()) })
		if due == 0 {
			continue
		}
		err := w.revoke(ctx, due)
		if ctx.Err() != nil {
			return
		}
		hints.Saw(err)
		if err != nil {
			rested = time.After(backoff) // hints are not repeated
			backoff = min(2*backoff, runqueue.LookEvery)
			continue
		}
		due, backoff = 0, backoffMin
		if now := time.Now(); full.Before(now) {
			full = now
		}
		full = full.Add(heedEvery)
		if wait := time.Until(full) - (heedBurst-1)*heedEvery; wait > 0 {
			rested = time.After(wait)
		}
	}
}

// revoke ends cancelled attempts and releases revoked runs, beginning with the work of a single
// call.
func (w *Worker) revoke(ctx context.Context, hint store.Hint) error {
	if hint&store.HintCancels != 0 && w.has(hint) {
		if err := w.reconcile(ctx); err != nil {
			return err
		}
	}
	if hint&store.HintNodes != 0 && w.drained() {
		if err := w.release(ctx, nil, func(*item) bool { return true }); err != nil {
			return err
		}
	}
	if hint&store.HintJobs != 0 {
		return w.recallAll(ctx, hint)
	}
	return nil
}

// has reports whether a hint may concern a run that this node has claimed or is claiming.
func (w *Worker) has(hint store.Hint) (yes bool) {
	w.decide(func(queue *runqueue.Queue[claim]) {
		yes = queue.AnyBusy(func(it *item) bool { return hint.MayConcern(it.Ready.ID) })
	})
	return yes
}

// drained reports whether this node is drained. The store refuses its claims anyway, so
// it need not try.
func (w *Worker) drained() bool { return w.Drained != nil && w.Drained() }

// lookLoop polls for runs assigned to the node.
func (w *Worker) lookLoop(ctx context.Context) {
	ticker := time.NewTicker(runqueue.LookEvery)
	defer ticker.Stop()
	looks := failurelog.New(w.Log, "cannot read runs", "reading runs works again")
	looks.Saw(w.look(ctx))
	wake := w.lookWake
	var rested <-chan time.Time
	var again backoff
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			err = w.look(ctx)
		case <-w.clockWake:
			err = w.look(ctx)
		case <-rested:
			wake, rested = w.lookWake, nil
			continue
		case <-w.restWake:
			wake, rested = w.lookWake, nil
			continue
		case <-wake:
			began := time.Now()
			err = w.hinted(ctx)
			wake, rested = nil, time.After(max(restAsked(began), min(again.after(err), runqueue.LookEvery)))
			if err == nil {
				continue // the store may not have been called
			}
		}
		if ctx.Err() == nil {
			looks.Saw(err)
		}
	}
}

// hinted polls for immediately due runs.
func (w *Worker) hinted(ctx context.Context) error {
	var windows []runqueue.Window
	var hint store.Hint
	w.decide(func(queue *runqueue.Queue[claim]) { windows, hint = queue.Hinted(w.elapsed()) })
	err := w.read(ctx, windows)
	if err != nil {
		w.decide(func(queue *runqueue.Queue[claim]) { queue.Hint(hint) })
	}
	return err
}

// restAsked returns the backoff after a hinted poll that began at a moment.
func restAsked(began time.Time) time.Duration {
	return min(runqueue.RestMax, restFactor*time.Since(began))
}

// restUnasked returns the backoff after an unhinted poll that began at a moment.
func restUnasked(began time.Time) time.Duration {
	return min(runqueue.RestMax, runqueue.RestUnasked*time.Since(began))
}

// look polls the store's clock and the runs assigned to this session.
func (w *Worker) look(ctx context.Context) error {
	if err := w.readClock(ctx); err != nil {
		return err
	}
	var windows []runqueue.Window
	w.decide(func(queue *runqueue.Queue[claim]) { windows = queue.Looks(w.elapsed()) })
	return w.read(ctx, windows)
}

// read reads ready runs of this session.
func (w *Worker) read(ctx context.Context, windows []runqueue.Window) error {
	for _, window := range windows {
		began := w.elapsed()
		if err := w.readWindow(ctx, window); err != nil {
			return err
		}
		w.decide(func(queue *runqueue.Queue[claim]) { queue.Saw(window, began, w.elapsed()) })
	}
	return nil
}

func (w *Worker) readWindow(ctx context.Context, window runqueue.Window) error {
	for after := window.After; ; {
		began := w.elapsed()
		runs, err := w.Store.Ready(ctx, w.Self.ID, after, window.Until, runqueue.PageSize)
		if err != nil {
			return err
		}
		if !w.hold(runs, began) || len(runs) < runqueue.PageSize {
			return nil
		}
		after = runs[len(runs)-1].RunRef
	}
}

// hold adds runs, whose read began at a moment, to memory and returns false when it is
// full.
func (w *Worker) hold(runs []store.ReadyRun, began time.Duration) (room bool) {
	w.decide(func(queue *runqueue.Queue[claim]) { room = queue.Hold(runs, began) })
	return room
}

// ClockStepped must be called when the wall clock was set: it may be the store's clock, by which
// runs are queued. Until the worker has read that clock again it claims no runs. Claimed runs
// follow the monotonic clock and stay.
func (w *Worker) ClockStepped() {
	w.decide(func(queue *runqueue.Queue[claim]) { queue.ForgetClock() })
	signal(w.clockWake)
}

// Leave stops claims and releases claimed runs that have not started. It returns when all attempts
// have ended and are reported, or ctx has ended. It does not wait for a store that is out of space,
// which only an operator can fix, and with a spool only reportAfterStop for a store that is away,
// since the next process reports the results.
func (w *Worker) Leave(ctx context.Context) error {
	w.decide(func(queue *runqueue.Queue[claim]) { queue.Leave() })
	giving, stop := context.WithTimeout(ctx, reportAfterStop)
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { w.giveBack(giving) })
	ticker := time.NewTicker(leaveEvery)
	defer ticker.Stop()
	var over time.Time // when the last attempt ended; zero while some run
	for {
		left, running, unreported := 0, 0, w.results.len()
		w.decide(func(queue *runqueue.Queue[claim]) {
			load := queue.Load()
			left, running = queue.Left(unreported), load.Busy-load.Asked-unreported
		})
		switch {
		case left == 0:
			return nil
		case running > 0 || w.Spool == nil:
			over = time.Time{}
		case over.IsZero():
			over = time.Now()
		case time.Since(over) >= reportAfterStop:
			w.away.Store(true)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Load returns the worker's load. A run with an unanswered claim counts as ready: another
// node may have it, or the store may refuse all claims.
func (w *Worker) Load() store.Load {
	load := w.load()
	return store.Load{Running: load.Busy - load.Asked, Ready: load.Pending + load.Asking, Unreported: w.results.since(w.Boot() - unreportedAfter)}
}

func (w *Worker) load() (load runqueue.Load) {
	w.decide(func(queue *runqueue.Queue[claim]) { load = queue.Load() })
	return load
}
