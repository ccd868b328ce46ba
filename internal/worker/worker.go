// Package worker claims the runs that are assigned to a node when they are due,
// executes them and reports how they ended. Which runs it may start is decided
// in the store; this package only tries in time, keeps within the capacity of
// the node, and sees to it that no result is lost while the store lives.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/agenda"
	"github.com/belfry-cron/belfry/internal/lanes"
	"github.com/belfry-cron/belfry/internal/output"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/internal/work"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Journal keeps on this machine which attempts have begun.
type Journal interface {
	Announce(run job.ID, attempt int) error
	Forget(run job.ID, attempt int)
}

// Observer counts attempts. It is called by many goroutines at moments that
// matter: it must neither wait nor take long.
type Observer interface {
	// Started receives how long after it was due an attempt has begun, Ended is called
	// when it is over. An attempt that never begins is neither.
	Started(late time.Duration)
	// Resumed is told that an attempt continues that an earlier version of the program in this
	// process has begun.
	Resumed()
	Ended(job job.ID, outcome job.Outcome, at time.Time)
}

// Executors returns what runs the attempts of a job.
type Executors func(*job.Job) executor.Executor

// Config is what a worker needs.
type Config struct {
	Store work.Runs
	// Self is the session of this node.
	Self store.Session
	// Executors is asked for each attempt; nil means that the node has none
	// for the job.
	Executors Executors
	Output    *output.Collector
	// Journal notes each attempt before it begins and when the store has its
	// result, so that the next process on this machine knows what may have
	// taken effect. May be nil.
	Journal Journal
	// Spool keeps results until the store has them, beyond the life of this process. May be nil.
	Spool Spool
	// Observer is called when attempts begin and end. May be nil.
	Observer Observer
	// Lanes are those of this node. May be nil.
	Lanes *lanes.Lanes
	// NeedRoom is called when so much is done that collecting garbage takes a good part
	// of the time, and what it returns when that is over. May be nil.
	NeedRoom func() (done func())
	// Capacity bounds how many attempts may run at once, StealAfter is how long a
	// run of another node must be overdue to be taken over.
	Capacity   int
	StealAfter time.Duration
	// Renewed returns when the last acknowledged renewal of the session was
	// sent, by Boot.
	Renewed func() time.Duration
	// Drained reports whether this node is to take no runs. May be nil.
	Drained func() bool
	Boot    func() time.Duration
	Now     func() time.Time
	// Around returns a scheduled time of a job, in the job's zone, between the
	// ones before and after it. An attempt for which it fails is released.
	Around func(ctx context.Context, j *store.Job, scheduled time.Time) (previous, same, next time.Time, err error)
	// Secrets returns the values of the secrets that an attempt names, all of them. An error that
	// is no *secret.Missing may go away: the attempt is not started, and tried again. Nil: there
	// are none.
	Secrets func(ctx context.Context, of work.SecretsOf) (map[string]string, error)
	// Wake receives a hint when there may be runs or cancels. It is never closed.
	Wake  <-chan store.Hint
	NewID func() (job.ID, error)
	Log   *slog.Logger
}

const (
	// restFactor is how many times longer than a look that was asked for the
	// rest after it is: a node whose store is busy must not read all the time. When it
	// has claimed a page of them, and less than a batch is left, the rest ends: after it
	// has read thousands of runs it would have nothing to do for most of it.
	restFactor = 10
	// heedEvery is how often, and heedBurst how many times at once, a worker looks
	// at what was cancelled or changed, for which it does not rest so: a cancel is to
	// reach its attempt within 100 ms, and a thousand edits a second are not to be a
	// thousand reads on each node.
	heedEvery = 50 * time.Millisecond
	heedBurst = 10
	// leaveEvery is how often a worker that leaves looks whether its attempts have ended.
	leaveEvery = 50 * time.Millisecond
	// stealEvery is how often it looks for what others have left lying.
	stealEvery = 250 * time.Millisecond
	// callsUnderWay is how many batches of claims, and of results, are under way
	// at once: a store that works on one finds the next.
	callsUnderWay = 2
	// backoffMin and backoffMax bound the wait after an error of the store.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// Worker works. Use New.
type Worker struct {
	Config
	base time.Time // moments on the monotonic clock count from here

	mu sync.Mutex // guards mind, never held across a store call
	// mind decides. Use decide.
	mind *agenda.Agenda[claim]

	results   results
	handovers handovers

	unstarted trouble.Limit // of what the log says

	starter              *starter
	claimWake, startWake chan struct{}
	clockWake            chan struct{} // the store's clock is to be read
	restWake             chan struct{} // the rest after a look is to end
	lookWake, heedWake   chan struct{}
}

// item is a run that the worker holds.
type item = agenda.Item[claim]

// claim is what the worker keeps of a run that it has claimed.
type claim struct {
	run      *store.Run
	job      *store.Job
	prepared *prepared
	// Of a step of a flow: what it reads of others, its item, and whether the flow is kept on
	// one node.
	steps    map[string]job.StepData
	item     []byte
	index    int
	together bool
	// fence is when the attempt must have ended, after the last renewal; 0 when nothing is
	// gained by its loss.
	fence time.Duration
	// carried is what it continues with under another program; nil if it does not.
	carried *Carried
}

// decide lets the mind decide, and tells the loops what there is to do.
func (w *Worker) decide(decide func(mind *agenda.Agenda[claim])) {
	w.mu.Lock()
	defer w.mu.Unlock()
	decide(w.mind)
	wake := w.mind.Wakes()
	if wake == 0 {
		return
	}
	if wake&agenda.WakeClaims != 0 {
		signal(w.claimWake)
	}
	if wake&agenda.WakeStarts != 0 {
		signal(w.startWake)
	}
	if wake&agenda.WakeReader != 0 {
		signal(w.restWake)
	}
	if wake&agenda.WakeLook != 0 {
		signal(w.lookWake)
	}
	if wake&agenda.WakeHeed != 0 {
		signal(w.heedWake)
	}
}

// New makes a worker; Run makes it work.
func New(c Config) *Worker {
	w := &Worker{
		Config: c, base: time.Now(), unstarted: trouble.Limit{Every: unstartedEvery}, mind: agenda.New[claim](c.Capacity, lanes.Of),
		claimWake: make(chan struct{}, 1), startWake: make(chan struct{}, 1), results: results{wake: make(chan struct{}, 1)},
		handovers: handovers{wake: make(chan struct{}, 1)},
		clockWake: make(chan struct{}, 1), restWake: make(chan struct{}, 1), lookWake: make(chan struct{}, 1), heedWake: make(chan struct{}, 1),
	}
	w.starter = newStarter(w.execute, w.ended)
	return w
}

// Run works until ctx ends. Then attempts that run are ended with the cause of
// ctx, executor.ErrFenced or else executor.ErrStopped, and Run returns when their
// results are reported or the store did not take them for reportAfterStop. Call
// Leave before for a gentle stop.
func (w *Worker) Run(ctx context.Context) error {
	// Reports outlive ctx for a moment, as attempts do.
	outer, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var loops, reporters sync.WaitGroup
	for _, loop := range []func(context.Context){w.hintLoop, w.heedLoop, w.lookLoop, w.stealLoop, w.startLoop, w.fenceLoop, w.reconcileLoop} {
		loops.Go(func() { loop(ctx) })
	}
	claims := trouble.With(w.Log, "cannot claim runs", "claiming runs works again")
	reports := trouble.With(w.Log, "cannot report results; keeping them", "reporting results works again")
	var claimAgain, reportAgain backoff
	for range callsUnderWay {
		loops.Go(func() { w.claimLoop(ctx, claims, &claimAgain) })
		reporters.Go(func() { w.reportLoop(outer, reports, &reportAgain) })
		reporters.Go(func() { w.handOverLoop(outer) })
	}
	loops.Wait()
	w.giveBack(outer)
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

// signal wakes a loop, if it is not awake already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// elapsed returns the time on the monotonic clock.
func (w *Worker) elapsed() time.Duration { return time.Since(w.base) }

// hintLoop hands on hints to those who look at what they are about: neither waits for what
// the store answers the other.
func (w *Worker) hintLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case hint := <-w.Wake:
			w.decide(func(mind *agenda.Agenda[claim]) { mind.Hint(hint) })
		}
	}
}

// heedLoop looks at once at what was cancelled or changed.
func (w *Worker) heedLoop(ctx context.Context) {
	hints := trouble.With(w.Log, "cannot read cancelled and changed runs", "reading cancelled and changed runs works again")
	var due store.Hint // what is to be looked at
	var rested <-chan time.Time
	var full time.Time // when a whole burst may be made again
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
		w.decide(func(mind *agenda.Agenda[claim]) { due = due.With(mind.Heeds()) })
		if due == 0 {
			continue
		}
		err := w.heed(ctx, due)
		if ctx.Err() != nil {
			return
		}
		hints.Saw(err)
		if err != nil {
			rested = time.After(backoff) // no hint says it again
			backoff = min(2*backoff, agenda.LookEvery)
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

// heed ends what was cancelled and gives back what is not to start: first what takes
// one call, however much there is.
func (w *Worker) heed(ctx context.Context, hint store.Hint) error {
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

// has reports whether a hint may be about a run that this node has claimed or is claiming.
func (w *Worker) has(hint store.Hint) (yes bool) {
	w.decide(func(mind *agenda.Agenda[claim]) {
		yes = mind.AnyBusy(func(it *item) bool { return hint.MayConcern(it.Ready.ID) })
	})
	return yes
}

// drained reports whether this node is to take no runs. The store refuses its claims
// in any case: it need not try.
func (w *Worker) drained() bool { return w.Drained != nil && w.Drained() }

// lookLoop reads what is assigned to the node.
func (w *Worker) lookLoop(ctx context.Context) {
	ticker := time.NewTicker(agenda.LookEvery)
	defer ticker.Stop()
	looks := trouble.With(w.Log, "cannot read runs", "reading runs works again")
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
			wake, rested = nil, time.After(max(restAsked(began), min(again.after(err), agenda.LookEvery)))
			if err == nil {
				continue // it may be that the store was not asked
			}
		}
		if ctx.Err() == nil {
			looks.Saw(err)
		}
	}
}

// hinted looks for what is due at once.
func (w *Worker) hinted(ctx context.Context) error {
	var windows []agenda.Window
	var hint store.Hint
	w.decide(func(mind *agenda.Agenda[claim]) { windows, hint = mind.Hinted(w.elapsed()) })
	err := w.read(ctx, windows)
	if err != nil {
		w.decide(func(mind *agenda.Agenda[claim]) { mind.Hint(hint) })
	}
	return err
}

// restAsked returns how long to rest after a look that has begun at a moment.
func restAsked(began time.Time) time.Duration {
	return min(agenda.RestMax, restFactor*time.Since(began))
}

// restUnasked returns how long to rest after what was done unasked since a moment.
func restUnasked(began time.Time) time.Duration {
	return min(agenda.RestMax, agenda.RestUnasked*time.Since(began))
}

// look reads the store's clock and what was assigned to this session.
func (w *Worker) look(ctx context.Context) error {
	if err := w.readClock(ctx); err != nil {
		return err
	}
	var windows []agenda.Window
	w.decide(func(mind *agenda.Agenda[claim]) { windows = mind.Looks(w.elapsed()) })
	return w.read(ctx, windows)
}

// read reads ready runs of this session.
func (w *Worker) read(ctx context.Context, windows []agenda.Window) error {
	for _, window := range windows {
		began := w.elapsed()
		if err := w.readWindow(ctx, window); err != nil {
			return err
		}
		w.decide(func(mind *agenda.Agenda[claim]) { mind.Saw(window, began, w.elapsed()) })
	}
	return nil
}

func (w *Worker) readWindow(ctx context.Context, window agenda.Window) error {
	for after := window.After; ; {
		began := w.elapsed()
		runs, err := w.Store.Ready(ctx, w.Self.ID, after, window.Until, agenda.PageSize)
		if err != nil {
			return err
		}
		if !w.hold(runs, began) || len(runs) < agenda.PageSize {
			return nil
		}
		after = runs[len(runs)-1].RunRef
	}
}

// hold takes runs into memory and returns false when there is no more room. It is told
// when the reading of them began.
func (w *Worker) hold(runs []store.ReadyRun, began time.Duration) (room bool) {
	w.decide(func(mind *agenda.Agenda[claim]) { room = mind.Hold(runs, began) })
	return room
}

// ClockStepped must be called when the wall clock was set: it may be the store's
// clock, too, by which runs are queued. Until that was read nothing is claimed. What
// is claimed goes by the monotonic clock and stays.
func (w *Worker) ClockStepped() {
	w.decide(func(mind *agenda.Agenda[claim]) { mind.ForgetClock() })
	signal(w.clockWake)
}

// Leave makes the worker claim nothing more and gives back what it has claimed
// and not started. It returns when all attempts have ended and are reported, or
// ctx has. If the store has no space for claims, or for what attempts came to, it does
// not wait for that, which takes somebody who makes room.
func (w *Worker) Leave(ctx context.Context) error {
	w.decide(func(mind *agenda.Agenda[claim]) { mind.Leave() })
	w.giveBack(ctx)
	ticker := time.NewTicker(leaveEvery)
	defer ticker.Stop()
	for {
		left, unreported := 0, w.results.len()
		w.decide(func(mind *agenda.Agenda[claim]) { left = mind.Left(unreported) })
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Load returns what the worker has to do. What it asks for is ready until it is said to
// be its own: it may be another's, or the store may refuse all claims.
func (w *Worker) Load() store.Load {
	load := w.load()
	return store.Load{Running: load.Busy - load.Asked, Ready: load.Pending + load.Asking}
}

func (w *Worker) load() (load agenda.Load) {
	w.decide(func(mind *agenda.Agenda[claim]) { load = mind.Load() })
	return load
}
