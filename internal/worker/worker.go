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
	// lookEvery is how often a worker reads what is assigned to it, and
	// window how far ahead: more than the longest lead of a claim and the
	// time to the next look.
	lookEvery = time.Second
	window    = store.ClaimAhead + 2*lookEvery
	// nearWindow is how far each look goes over what was read before, for
	// what was added since: as far as the next look. hintWindow is how far a
	// hint makes the worker look: what it is about is due at once, unless it says
	// that runs were placed anew.
	nearWindow = lookEvery + lookEvery/2
	hintWindow = 300 * time.Millisecond
	// restFactor is how many times longer than a look that was asked for the
	// rest after it is: a node whose store is busy must not read all the time. When it
	// has claimed a page of them, and less than a batch is left, the rest ends: after it
	// has read thousands of runs it would have nothing to do for most of it.
	restFactor = 10
	// unaskedFactor is the same for what takes long with a backlog and is done
	// unasked: other nodes do it as well, and all of it is found in the end.
	unaskedFactor = 50
	// restMax bounds each rest. A look may also have taken long because the network
	// was silent, which is no reason to rest when it is over.
	restMax = 5 * time.Second
	// plenty is how many runs that can be claimed are enough to look for no more
	// of what is overdue: what keeps the claims busy while more is read. recent is
	// how long due runs are read all the same: those that come one by one, such as
	// retries, are due when they are made.
	plenty = 2 * store.MaxBatch
	recent = 2 * lookEvery
	// heedEvery is how often, and heedBurst how many times at once, a worker looks
	// at what was cancelled or changed, for which it does not rest so: a cancel is to
	// reach its attempt within 100 ms, and a thousand edits a second are not to be a
	// thousand reads on each node.
	heedEvery = 50 * time.Millisecond
	heedBurst = 10
	// heeded are the hints that are about what must not go on or start, looked those
	// about what is to be claimed.
	heeded = store.HintJobs | store.HintCancels | store.HintNodes
	looked = store.HintRuns | store.HintPlaced
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

	mu sync.Mutex // guards what follows; never held across a store call
	// mind decides what to claim and to start. Use decide.
	mind *agenda.Agenda[claim]
	// looksFor is what lookLoop is to look for, which lookWake tells it, and heeds what
	// heedLoop is to look at, which heedWake tells.
	looksFor, heeds store.Hint
	claimed         int // runs, since garbage was last thought of
	edits           int // how often jobs are known to have changed
	// full is set while results are not taken because the store has no space, and noRoom
	// while claims are refused for that.
	full, noRoom bool

	// carried are the attempts that continue without this program.
	carried []Carried

	results   results
	handovers handovers

	unstarted trouble.Limit // of what the log says

	starter              *starter
	claimWake, startWake chan struct{}
	clockWake            chan struct{} // the store's clock is to be read
	restWake             chan struct{} // the rest after a look is to end
	lookWake, heedWake   chan struct{}
	// backlogAt is when the whole backlog is to be read again, if there is plenty
	// to do, and read how far ahead ready runs were read. Only lookLoop uses them.
	backlogAt time.Time
	read      store.RunRef
	readUnder int // how often the store's clock had been forgotten by then
}

// item is a run that the worker holds.
type item = agenda.Item[claim]

// claim is what the worker keeps of a run that it has claimed.
type claim struct {
	run      *store.Run
	job      *store.Job
	prepared *prepared
	// Of a step of a flow: what it reads of others, and its item.
	steps map[string]job.StepData
	item  []byte
	index int
	// fence is when the attempt must have ended, after the last renewal; 0 when nothing is
	// gained by its loss.
	fence time.Duration
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
		w.wakeLook(store.HintPlaced)
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
	w.endAll(cause)
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
			w.mu.Lock()
			w.wakeLook(hint & looked)
			if hint&heeded != 0 {
				w.heeds = w.heeds.With(hint & (heeded | store.HintAny))
				signal(w.heedWake)
			}
			w.mu.Unlock()
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
		w.mu.Lock()
		due = due.With(w.heeds)
		w.heeds = 0
		w.mu.Unlock()
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
			backoff = min(2*backoff, lookEvery)
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

// wakeLook makes lookLoop look, and also for what it was told before. The caller holds
// the mutex.
func (w *Worker) wakeLook(hint store.Hint) {
	if hint != 0 {
		w.looksFor |= hint
		signal(w.lookWake)
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
func (w *Worker) has(hint store.Hint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mind.AnyBusy(func(it *item) bool { return hint.MayConcern(it.Ready.ID) })
}

// drained reports whether this node is to take no runs. The store refuses its claims
// in any case: it need not try.
func (w *Worker) drained() bool { return w.Drained != nil && w.Drained() }

// lookLoop reads what is assigned to the node.
func (w *Worker) lookLoop(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
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
			wake, rested = nil, time.After(max(restAsked(began), min(again.after(err), lookEvery)))
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
	w.mu.Lock()
	hint := w.looksFor
	w.looksFor = 0
	now, known := w.mind.Now(w.elapsed())
	w.mu.Unlock()
	if !known {
		return nil // the next look reads everything
	}
	ahead := hintWindow
	if hint&store.HintPlaced != 0 {
		ahead = nearWindow
	}
	err := w.lookNear(ctx, now, ahead)
	if err != nil {
		w.mu.Lock()
		w.wakeLook(hint) // it is not repeated
		w.mu.Unlock()
	}
	return err
}

// lookNear reads what is due until some time ahead of now. With plenty to do, most of
// it is known: then it leaves out what was due long ago, but for once in a while.
func (w *Worker) lookNear(ctx context.Context, now time.Time, ahead time.Duration) error {
	w.mu.Lock()
	much := w.mind.Load().Pending >= plenty
	w.mu.Unlock()
	began := time.Now()
	if much && began.Before(w.backlogAt) {
		return w.lookAt(ctx, store.RunRef{Due: now.Add(-recent)}, now.Add(ahead))
	}
	if err := w.lookAt(ctx, store.RunRef{}, now.Add(ahead)); err != nil {
		return err
	}
	w.backlogAt = time.Now().Add(restUnasked(began))
	return nil
}

// restAsked returns how long to rest after a look that has begun at a moment.
func restAsked(began time.Time) time.Duration {
	return min(restMax, restFactor*time.Since(began))
}

// restUnasked returns how long to rest after what was done unasked since a moment.
func restUnasked(began time.Time) time.Duration {
	return min(restMax, unaskedFactor*time.Since(began))
}

// look reads what was assigned to this session: what has come into the window,
// and what was added at its near end since the last look.
func (w *Worker) look(ctx context.Context) error {
	if err := w.readClock(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	now, known := w.mind.Now(w.elapsed())
	forgotten := w.mind.Forgotten()
	w.mu.Unlock()
	if w.readUnder != forgotten {
		w.read, w.readUnder = store.RunRef{}, forgotten
	}
	from := w.read
	if !known {
		return nil // it was set just now
	}
	if err := w.lookNear(ctx, now, nearWindow); err != nil {
		return err
	}
	until := now.Add(window)
	if err := w.lookAt(ctx, from, until); err != nil {
		return err
	}
	w.read = store.RunRef{Due: until}
	return nil
}

// lookAt reads the ready runs of this session behind a place and due until a
// moment.
func (w *Worker) lookAt(ctx context.Context, after store.RunRef, until time.Time) error {
	for {
		began := w.elapsed()
		runs, err := w.Store.Ready(ctx, w.Self.ID, after, until, agenda.PageSize)
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
		w.mu.Lock()
		load, full := w.mind.Load(), w.full
		left := load.Busy
		if w.noRoom {
			left -= load.Asked
		}
		w.mu.Unlock()
		if left == 0 || full && left == w.results.len() {
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
	w.mu.Lock()
	defer w.mu.Unlock()
	load := w.mind.Load()
	return store.Load{Running: load.Busy - load.Asked, Ready: load.Pending + load.Asking}
}
