package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// claimLoop claims due runs. While batches are in flight the next one gathers.
func (w *Worker) claimLoop(ctx context.Context, claims *failurelog.Log, again *backoff) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		batch, within, next := w.gather()
		if len(batch) > 0 {
			err := w.claim(ctx, batch)
			w.Stripes.Leave(within)
			claims.Saw(err)
			if pause := again.after(err); err != nil {
				rest(ctx, pause) // only time helps
			}
			w.decide(func(queue *runqueue.Queue[claim]) { queue.Done() })
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

// backoff is the wait after an error. Loops with the same calls share it, since another one may
// notice the end of an outage.
type backoff struct {
	mu   sync.Mutex
	next time.Duration
}

// after returns how long to wait after the result of a call.
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

// rest waits for a duration, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// gather returns the claims to make now, and enters their stripes, or how long until the next
// one.
func (w *Worker) gather() (batch []*item, within stripes.Set, next time.Duration) {
	w.decide(func(queue *runqueue.Queue[claim]) {
		batch, within, next = queue.Claims(w.elapsed(), w.Stripes.Enter, w.NewID)
	})
	return batch, within, next
}

// claim claims a batch in the store and acts on the responses.
func (w *Worker) claim(ctx context.Context, batch []*item) error {
	return w.claimBy(ctx, batch, func(attempts []store.Attempt) ([]store.ClaimOutcome, error) {
		return w.Store.Claim(ctx, w.Self.ID, attempts)
	})
}

// ClaimWith lets a step that creates runs for this node claim them at once. The call receives
// tokens for the first runs, within the capacity, and returns the results of their claims.
func (w *Worker) ClaimWith(ctx context.Context, runs []store.ReadyRun, step func(tokens []job.ID) ([]store.ClaimOutcome, error)) error {
	var batch []*item
	if !w.drained() {
		w.decide(func(queue *runqueue.Queue[claim]) { batch = queue.Reserve(runs, w.NewID) })
	}
	if len(batch) == 0 {
		_, err := step(nil)
		return err
	}
	// The answer must be processed even if the planner is stopped in the meantime.
	return w.claimBy(context.WithoutCancel(ctx), batch, func(attempts []store.Attempt) ([]store.ClaimOutcome, error) {
		tokens := make([]job.ID, len(attempts))
		for i := range attempts {
			tokens[i] = attempts[i].Token
		}
		return step(tokens)
	})
}

// claimBy makes a call that claims a batch, and acts on the responses.
func (w *Worker) claimBy(ctx context.Context, batch []*item, call func([]store.Attempt) ([]store.ClaimOutcome, error)) (err error) {
	defer func() {
		if err != nil {
			w.decide(func(queue *runqueue.Queue[claim]) { queue.Stall() })
		}
	}()
	sent := w.elapsed()
	outcomes, err := call(runqueue.Attempts(batch))
	answered := w.elapsed()
	var started []*item
	w.decide(func(queue *runqueue.Queue[claim]) {
		if err != nil {
			queue.Refused(batch, err)
			return
		}
		for i, it := range batch {
			if o := &outcomes[i]; o.Verdict == store.Started {
				it.With.run, it.With.job = o.Run, o.Job
				it.With.steps, it.With.item, it.With.index, it.With.together = o.Steps, o.Item, o.Index, o.Together
			}
		}
		started = queue.Answered(batch, outcomes, sent, answered)
	})
	if err != nil {
		return err
	}

	// Slow preparations happen now rather than at the start of many simultaneous runs.
	for _, it := range started {
		w.prepare(ctx, it)
	}
	var edited, leaving bool
	w.decide(func(queue *runqueue.Queue[claim]) {
		queue.Prepared(started)
		edited, leaving = queue.Recalled(started), queue.IsLeaving()
	})
	// Runs to be released when their claim was in flight are released before they can
	// start. Released runs are in no list any more, so that a stop must not abandon the call.
	releasing, done := outliving(ctx)
	defer done()
	if leaving {
		w.giveBack(releasing)
	} else {
		if slices.ContainsFunc(started, outdated) {
			err = w.release(releasing, started, outdated)
		}
		if edited && err == nil {
			err = w.recall(releasing, started)
		}
	}
	w.decide(func(queue *runqueue.Queue[claim]) {
		queue.Enqueue(started, outcomes[0].Now, sent, answered, w.elapsed(), func(it *item) time.Time { return it.With.run.Due })
	})
	return err
}

// outliving returns a context that ends reportAfterStop after its parent.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	outer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		rest(outer, reportAfterStop)
		cancel()
	})
	return outer, func() { stop(); cancel() }
}

// outdated reports whether the job of a claim was changed between the claim and the answer to its
// repetition.
func outdated(it *item) bool {
	version := engine.VersionOf(it.With.job)
	return version.Recalls(&it.With.run.Run, it.With.run.Version)
}

// stealLoop steals overdue runs of any node.
func (w *Worker) stealLoop(ctx context.Context) {
	overdue := failurelog.New(w.Log, "cannot read overdue runs", "reading overdue runs works again")
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
		if err == nil { // no read, so no backoff
			pause = max(stealEvery, restAsked(began))
		}
		wait.Reset(pause)
	}
}

// steal reads overdue runs within the capacity of this node.
func (w *Worker) steal(ctx context.Context) error {
	if w.drained() {
		return nil
	}
	var now time.Time
	var room int
	w.decide(func(queue *runqueue.Queue[claim]) { now, room = queue.Overdue(w.elapsed()) })
	if room == 0 {
		return nil
	}
	var after store.RunRef
	for {
		began := w.elapsed()
		mine, next, err := w.Store.Stealable(ctx, w.Self, work.Overdue{Now: now, By: w.StealAfter, After: after, Limit: runqueue.PageSize})
		full := next != store.RunRef{}
		if err != nil || len(mine) == 0 && !full {
			return err
		}
		after = next
		if len(mine) == 0 {
			continue
		}
		if full {
			// More runs are overdue than the nodes can claim by the next poll. Each node takes
			// random ones, so that they do not collide.
			rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			mine = mine[:(len(mine)+1)/2]
		}
		w.hold(mine[:min(room, len(mine))], began)
		return nil
	}
}

// readClock reads the store's clock.
func (w *Worker) readClock(ctx context.Context) error {
	var asked int
	w.decide(func(queue *runqueue.Queue[claim]) { asked = queue.Forgotten() })
	theirs, err := w.Store.Now(ctx)
	if err != nil {
		return err
	}
	received := w.elapsed()
	w.decide(func(queue *runqueue.Queue[claim]) { queue.Sample(theirs, received, asked) })
	return nil
}
