package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/lanes"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/internal/timer"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// herdSpan is the width of the steps in which due times are counted to know how
// many claims fall together.
const herdSpan = 100 * time.Millisecond

// claimSpan is how much later than the first of a batch the last of it is due: where
// runs fall due one after the other, one batch for some of them costs the store, and the
// processors that are to start them, a fraction of one for each.
const claimSpan = 25 * time.Millisecond

func herdOf(due time.Time) int64 { return due.UnixNano() / int64(herdSpan) }

// leadEstimate is how long claims take, as measured: one batch, and each claim
// in it. Claims go out that much ahead of their due time, so that runs start at
// their instant however slow the store is.
type leadEstimate struct {
	batch, each time.Duration
	fell        time.Duration // when batch became less, on the monotonic clock
}

const (
	// smoothing is the weight of what was measured before.
	smoothing = 16
	// leadMin covers the timers themselves.
	leadMin = 3 * time.Millisecond
	// leadFalls is how often the estimate falls at most, up to leadKept: a disk that
	// others use as well stands still every few seconds, for some tens of milliseconds,
	// and there are many batches in between. More would be too far ahead for what runs
	// each second.
	leadFalls = 500 * time.Millisecond
	leadKept  = 100 * time.Millisecond
)

// leadAtFirst is the estimate before anything was measured: that of a slow store,
// so that the first herd is not late.
var leadAtFirst = leadEstimate{batch: 10 * time.Millisecond, each: 75 * time.Microsecond}

// measured takes a batch of so many claims into account, which was answered at a moment
// of the monotonic clock. A store that is slow now and then is slow: the estimate rises
// at once and falls slowly.
func (l *leadEstimate) measured(took time.Duration, claims int, answered time.Duration) {
	if took >= l.batch {
		l.batch, l.fell = took, answered
	} else if l.batch > leadKept || answered-l.fell >= leadFalls {
		l.batch, l.fell = (l.batch*(smoothing-1)+took)/smoothing, answered
	}
	l.each = (l.each*(smoothing-1) + took/time.Duration(claims)) / smoothing
}

// of returns how far ahead the claims of a herd go out.
func (l *leadEstimate) of(herd int) time.Duration {
	return min(leadMin+2*l.batch+time.Duration(herd)*l.each, store.ClaimAhead-herdSpan)
}

// claimLoop claims what is due. While batches are under way the next gathers.
func (w *Worker) claimLoop(ctx context.Context, claims *trouble.Trouble, again *backoff) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		batch, within, next := w.gather()
		if len(batch) > 0 {
			err := w.claim(ctx, batch)
			w.Lanes.Leave(within)
			claims.Saw(err)
			if pause := again.after(err); err != nil {
				w.refuse(true)
				rest(ctx, pause) // nothing but time helps
			}
			w.refuse(false)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		wait.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		case <-w.claimWake:
		}
	}
}

// refuse notes that a claim is to be repeated after a rest, and that a loop goes on.
func (w *Worker) refuse(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused = yes; !yes {
		w.claims--
	}
}

// backoff is how long to wait after an error, for all loops that make the same calls: what
// one of them had to wait in an outage says nothing of the next, which the others may have
// seen the end of.
type backoff struct {
	mu   sync.Mutex
	next time.Duration
}

// after returns how long to wait after a call that went so.
func (b *backoff) after(err error) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.next = 0
		return 0
	}
	pause := max(b.next, backoffMin)
	b.next = min(2*pause, backoffMax)
	return pause
}

// rest waits for a while, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// gather returns the claims to make now, and enters their lanes, or how long there is
// nothing to claim.
func (w *Worker) gather() (batch []*item, within lanes.Set, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, known := w.storeNow()
	if !known {
		return nil, 0, lookEvery // a look will read it
	}
	lead := leadMin
	if first, ok := w.due.Next(); ok {
		if lead = w.leadFor(first); time.Unix(0, first).Sub(now) <= lead {
			lead += claimSpan
		}
	}
	w.collect(now, lead)

	room := w.Capacity - w.busy
	if w.leaving || w.stuck {
		room = 0
	}
	most := store.MaxBatch
	if w.claims > 0 && (w.refused || w.pending.len() < store.MaxBatch) {
		most = 0 // the loop whose call is under way goes on with them
	}
	within = w.Lanes.Enter(func(busy lanes.Set) (within lanes.Set) {
		batch, within = w.take(most, room, busy)
		return within
	})
	if len(batch) > 0 {
		w.claims++
		w.claimed += len(batch)
		w.asking += len(batch)
		w.claimedSince += len(batch)
		if w.claimedSince >= pageSize && w.pending.len() < store.MaxBatch {
			w.claimedSince = 0
			signal(w.restWake)
		}
	}
	if len(batch) > 0 && w.pending.len() >= store.MaxBatch {
		signal(w.claimWake) // another loop may go on; without room it would only ask again
	}

	next = lookEvery // a step of the clock is noticed
	if first, ok := w.due.Next(); ok {
		next = min(next, time.Unix(0, first).Sub(now)-w.leadFor(first))
	}
	if first, ok := w.instants.Next(); ok {
		next = min(next, time.Unix(0, first).Sub(now))
	}
	return batch, within, max(0, next)
}

// take takes the claims of a batch, and returns the lanes of their jobs. There is room for
// so many new ones.
func (w *Worker) take(most, room int, busy lanes.Set) (batch []*item, within lanes.Set) {
	choice := w.pending.len() >= choiceFrom
	for len(batch) < most {
		lane, ok := w.pending.first(choice, within, busy)
		if !ok {
			break
		}
		it := w.pending.lanes[lane][0]
		if w.items[it.ready.ID] != it {
			w.pending.pop(lane)
			w.drop(it)
			continue
		}
		if it.state == ready {
			// Without room the others may take it over: that is the
			// balancing of load. A result that is reported wakes this loop.
			if room <= 0 {
				break
			}
			// The token is made before the claim: repeated after a lost
			// answer, it is the same claim.
			token, err := w.NewID()
			if err != nil {
				break
			}
			it.attempt = store.Attempt{Run: it.ready.ID, Number: it.ready.Attempt, Token: token}
			it.state = claiming
			w.busy++
			w.asked++
			room--
		}
		batch = append(batch, w.pending.pop(lane))
		within.Add(lane)
	}
	return batch, within
}

// leadFor returns how far ahead the claims of the herd that is due first go out.
func (w *Worker) leadFor(first int64) time.Duration {
	herd := herdOf(time.Unix(0, first))
	return w.lead.of(w.herds[herd] + w.herds[herd+1])
}

// claim asks the store for a batch and acts on the answers.
func (w *Worker) claim(ctx context.Context, batch []*item) error {
	attempts := make([]store.Attempt, len(batch))
	for i, it := range batch {
		attempts[i] = it.attempt
	}
	w.mu.Lock()
	edits := w.edits
	w.mu.Unlock()
	sent := w.elapsed()
	outcomes, err := w.Store.Claim(ctx, w.Self.ID, attempts)
	w.mu.Lock()
	w.asking -= len(batch)
	w.noRoom = errors.Is(err, store.ErrNoSpace)
	if err != nil {
		// They may be ours: ask again, with the same tokens.
		for _, it := range batch {
			w.pending.push(it)
		}
		w.mu.Unlock()
		return err
	}
	answered := w.elapsed()
	took := answered - sent
	w.lead.measured(took, len(batch), answered)
	started := batch[:0]
	for i, it := range batch {
		if w.answered(it, &outcomes[i]) {
			started = append(started, it)
		}
	}
	w.mu.Unlock()

	// What takes time is done now and not at the instant, when a herd starts.
	for _, it := range started {
		w.prepare(it)
	}
	w.mu.Lock()
	for _, it := range started {
		it.state = claimed
	}
	edited, leaving := w.edits != edits, w.leaving
	w.mu.Unlock()
	// What was to be given back while the answer was on its way is given back
	// before it can start.
	if leaving {
		w.giveBack(ctx)
	} else {
		if slices.ContainsFunc(started, outdated) {
			err = w.release(ctx, slices.Values(started), outdated)
		}
		if edited && err == nil {
			err = w.recall(ctx)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	elapsed := w.elapsed()
	now := outcomes[0].Now.Add(elapsed - answered) // at least
	// What was read before is more exact, unless that clock was put back since: the claim
	// was decided when it was sent or later. Stores keep times to the microsecond.
	if better, known := w.storeNow(); known && better.After(now) && better.Before(now.Add(took+time.Microsecond)) {
		now = better
	}
	for _, it := range started {
		if w.items[it.ready.ID] != it {
			w.free = append(w.free, it.handle)
			continue
		}
		// Never before the due time by the store's clock, nor later than a
		// claim can be made ahead of it, if that clock is set just now.
		wait := min(max(0, it.run.Due.Sub(now)), store.ClaimAhead)
		w.starts.Push(int64(elapsed+wait), it.handle)
	}
	signal(w.startWake)
	return err
}

// outdated tells whether the job of a claim was changed between the claim and its
// answer, which came when it was repeated.
func outdated(it *item) bool {
	return it.job.Deleted || it.run.Version != it.job.Definition.Version
}

// answered acts on the answer to one claim and tells whether it is to be started.
func (w *Worker) answered(it *item, outcome *store.ClaimOutcome) bool {
	w.asked--
	switch outcome.Verdict {
	case store.Started:
		run := outcome.Run // apart from the answers to the whole batch
		it.run, it.job = &run, outcome.Job
		it.attempt.Number = outcome.Run.Attempt
		it.again, it.answered = false, w.elapsed()
		return true
	case store.Early:
		if now, known := w.storeNow(); !known || !now.Before(it.ready.Due) {
			// The store's clock was put back: what it shows now is true.
			w.forgetClock()
			w.clock.sample(outcome.Now, w.elapsed())
		}
		it.state, it.instant, it.again = ready, true, false
		w.enqueue(it)
	default:
		w.drop(it)
	}
	w.busy--
	return false
}

// stealLoop takes over what is overdue, whoever it is assigned to.
func (w *Worker) stealLoop(ctx context.Context) {
	overdue := trouble.With(w.Log, "overdue runs cannot be read", "overdue runs are read again")
	wait := time.NewTimer(stealEvery)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		began := time.Now()
		err := w.steal(ctx)
		if ctx.Err() == nil {
			overdue.Saw(err)
		}
		pause := stealEvery
		if err == nil { // nothing was read, so that there is nothing to rest from
			pause = max(stealEvery, restAsked(began))
		}
		wait.Reset(pause)
	}
}

// steal reads overdue runs as far as there is room to run them.
func (w *Worker) steal(ctx context.Context) error {
	if w.drained() {
		return nil
	}
	w.mu.Lock()
	room := w.Capacity - w.busy - w.pending.len()
	now, known := w.storeNow()
	// With a batch and more of its own to claim it has enough to do.
	idle := w.leaving || room <= 0 || w.pending.len() >= store.MaxBatch || !known
	w.mu.Unlock()
	if idle {
		return nil
	}
	var after store.RunRef
	for {
		began := w.elapsed()
		runs, err := w.Store.Overdue(ctx, now.Add(-w.StealAfter), after, pageSize)
		if err != nil || len(runs) == 0 {
			return err
		}
		after = runs[len(runs)-1].RunRef
		full := len(runs) == pageSize
		var mine []store.ReadyRun
		for batch := range slices.Chunk(runs, store.MaxBatch) {
			some, err := w.mayTake(ctx, batch, now)
			if err != nil {
				return err
			}
			mine = append(mine, some...)
		}
		if len(mine) == 0 && full {
			continue
		}
		if full {
			// There are more than others can have claimed by the next look. Each
			// takes some at random: all would only meet at the first.
			rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			mine = mine[:(len(mine)+1)/2]
		}
		w.hold(mine[:min(room, len(mine))], began)
		return nil
	}
}

// mayTake returns those of a batch of runs that this node may run although others have
// left them lying.
func (w *Worker) mayTake(ctx context.Context, runs []store.ReadyRun, now time.Time) ([]store.ReadyRun, error) {
	var uids []job.ID
	asked := map[job.ID]int{} // where among them
	runs = slices.DeleteFunc(runs, func(r store.ReadyRun) bool {
		if r.Session == w.Self.ID {
			return true // a look reads it
		}
		if age := now.Sub(r.ID.Time()); age >= 0 && age < w.StealAfter {
			return true // it was missed and is planned just now: its own node comes to it
		}
		if _, ok := asked[r.Job]; !ok {
			asked[r.Job] = len(uids)
			uids = append(uids, r.Job)
		}
		return false
	})
	if len(runs) == 0 {
		return nil, nil
	}
	jobs, err := w.Store.JobsByUID(ctx, uids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(runs, func(r store.ReadyRun) bool {
		j := jobs[asked[r.Job]]
		if j == nil {
			return true // it is gone, and the run with it
		}
		place := &j.Filled.Place
		bound := place.Sticky || place.Strategy == job.StrategyBroadcast
		return bound && !r.Session.IsZero() || !placement.Eligible(&w.Self, place, j.Filled.Run.Handler)
	}), nil
}

// storeClock is what the store's clock shows, at least, so that going by it nothing
// starts early. It goes by the monotonic clock of the node, so that a wall clock
// that is set, or wrong, makes nothing early or late.
type storeClock struct {
	samples [8]time.Time // what it showed at the least when the monotonic clock began
	n       int
}

// sample takes a reading into account that was received at a moment of the
// monotonic clock.
func (c *storeClock) sample(theirs time.Time, received time.Duration) {
	c.samples[c.n%len(c.samples)] = theirs.Add(-received)
	c.n++
}

// storeNow returns what the store's clock shows, at least, and whether that is
// known. The caller holds the mutex.
func (w *Worker) storeNow() (now time.Time, known bool) {
	c := &w.clock
	if c.n == 0 {
		return time.Time{}, false
	}
	return slices.MaxFunc(c.samples[:min(c.n, len(c.samples))], time.Time.Compare).Add(w.elapsed()), true
}

// readClock reads the store's clock.
func (w *Worker) readClock(ctx context.Context) error {
	w.mu.Lock()
	forgotten := w.forgotten
	w.mu.Unlock()
	theirs, err := w.Store.Now(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forgotten != forgotten {
		return nil // it may have been set meanwhile
	}
	if w.clock.n == 0 {
		signal(w.claimWake) // which waits for it
	}
	w.clock.sample(theirs, w.elapsed())
	return nil
}

// forgetClock forgets what the store's clock showed, which was set. The queues only
// move forward: a clock that was put back needs others.
func (w *Worker) forgetClock() {
	w.clock = storeClock{}
	w.forgotten++
	w.due, w.instants, w.collected = timer.Queue{}, timer.Queue{}, 0
	clear(w.herds)
	w.read = store.RunRef{}
	w.pending.deleteFunc(func(it *item) bool { return it.state == ready })
	for _, it := range w.slots {
		if it != nil && it.state == ready {
			w.enqueue(it)
		}
	}
}
