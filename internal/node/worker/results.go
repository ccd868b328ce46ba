package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// reportAfterStop is how long a worker that stops tries to report.
	reportAfterStop = 5 * time.Second
	// reportEvery is the time between two partial reports, unless runs wait for room. The first
	// result after a pause is reported at once.
	reportEvery = 20 * time.Millisecond
	// stuckAfter is how long a report may take before it is repeated, if the store answers
	// renewals. A store that is slow with results gets twice as long each time, up to stuckMost;
	// stuckAgain is the time between checks of the renewals.
	stuckAfter = 5 * time.Second
	stuckMost  = time.Minute
	stuckAgain = 500 * time.Millisecond
	// laneResults is how many results are searched for a batch of one stripe.
	laneResults = 4 * store.MaxBatch
	// unreportedAfter is how long a result waits until the renewals of the session mention it: most
	// are reported sooner.
	unreportedAfter = time.Second
	// undecidedAgain is when a result is reported again that the store could not decide about.
	undecidedAgain = 5 * time.Second
)

// result is the unreported result of an attempt. Until the store has it, it occupies
// capacity like a running attempt: so during an outage the worker claims no more runs and
// drops no result.
type result struct {
	store.Result
	item *item
	// unstarted is set when the attempt had no effect: it is released, not finished.
	unstarted bool
	// handed is set if the store may have recorded an external receiver, and handedOver if a
	// receiver has the work: then there is nothing to report.
	handed, handedOver bool
	undecided          bool
	since              time.Duration // when it was queued, on the boot clock
}

// Spool keeps results until the store has them. Its methods may be called from many
// goroutines.
type Spool interface {
	// Keep stores a result, which no longer changes.
	Keep(r *store.Result)
	// Forget forgets the result of an attempt, by its token.
	Forget(token job.ID)
}

// finished queues the result of an attempt for its report.
func (w *Worker) finished(it *item) {
	r := w.resultOf(it)
	if w.Spool != nil && !r.unstarted && !r.handedOver {
		w.Spool.Keep(&r.Result)
	}
	if release := it.With.prepared.ended.Release; release != nil {
		release()
	}
	if w.Journal != nil && r.unstarted && !r.handed {
		w.Journal.Forget(r.Run, r.Number) // so that it is released even if this process dies
	}
	r.since = w.Boot()
	w.results.add(r)
}

// stripe is the stripe of the job.
func (r *result) stripe() int { return stripes.Of(r.item.Ready.Job) }

// results are the results waiting for a report, and those in flight.
type results struct {
	mu        sync.Mutex
	all       map[*result]bool // the waiting results, those in flight, and those due again after undecidedAgain
	waiting   []*result
	reporting int       // number of reports in flight
	at        time.Time // when the last report began
	wake      chan struct{}
}

// add queues a result for the store.
func (q *results) add(r *result) {
	q.mu.Lock()
	if q.all == nil {
		q.all = map[*result]bool{}
	}
	q.all[r] = true
	q.waiting = append(q.waiting, r)
	q.mu.Unlock()
	signal(q.wake)
}

// batch takes the first waiting results for a report, or returns the remaining time. While another
// report is in flight, and until reportEvery after the last one, it takes only full batches, unless
// in a hurry.
func (q *results) batch(hurry bool, in *stripes.Stripes) (batch []*result, within stripes.Set, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), store.MaxBatch)
	if 0 < n && n < store.MaxBatch {
		if !hurry {
			wait = max(0, reportEvery-time.Since(q.at))
		}
		if q.reporting > 0 || wait > 0 {
			n = 0
		}
	}
	if n > 0 {
		q.at = time.Now()
	}
	within = in.Enter(func(busy stripes.Set) (within stripes.Set) {
		batch, within = q.take(n, busy)
		return within
	})
	q.reporting += n
	return batch, within, wait
}

// take takes n results and returns the stripes of their jobs. With a choice it prefers results of
// one stripe without another call.
func (q *results) take(n int, busy stripes.Set) (batch []*result, within stripes.Set) {
	if some := q.waiting[:min(len(q.waiting), laneResults)]; 0 < n && n < len(some) {
		first := slices.IndexFunc(some, func(r *result) bool { return !busy.Has(r.stripe()) })
		stripe := some[max(0, first)].stripe()
		slices.SortStableFunc(some, func(a, b *result) int { return order(a.stripe() == stripe, b.stripe() == stripe) })
	}
	batch = q.waiting[:n:n]
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil // frees its memory
	}
	for _, r := range batch {
		within.Add(r.stripe())
	}
	return batch, within
}

// refused returns a batch to the front of the queue.
func (q *results) refused(batch []*result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(batch, q.waiting...)
	q.reporting -= len(batch)
}

// taken removes a stored batch.
func (q *results) taken(batch []*result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reporting -= len(batch)
	for _, r := range batch {
		delete(q.all, r)
	}
}

// again queues results again after a while, without delaying others.
func (q *results) again(batch []*result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reporting -= len(batch)
	time.AfterFunc(undecidedAgain, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.waiting = append(q.waiting, batch...)
		signal(q.wake)
	})
}

// len returns the number of unreported results.
func (q *results) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.all)
}

// since returns how many results have been unreported since a moment.
func (q *results) since(at time.Duration) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for r := range q.all {
		if r.since <= at && !r.handedOver {
			n++
		}
	}
	return n
}

// first returns at most the first n waiting results.
func (q *results) first(n int) []*result {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.waiting[:min(len(q.waiting), n)])
}

// order compares chosen results, which come first, with others.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// toReport takes results for a batch. It hurries when runs wait for capacity.
func (w *Worker) toReport() (batch []*result, within stripes.Set, wait time.Duration) {
	batch, within, wait = w.results.batch(w.load().Pending > 0, w.Stripes)
	w.decide(func(*runqueue.Queue[claim]) {
		for i := range batch {
			batch[i].item.State = runqueue.Ended
		}
	})
	return batch, within, wait
}

// reportLoop reports results, in batches, until the store has acknowledged each or ctx
// ends. While batches are in flight the next one gathers.
func (w *Worker) reportLoop(ctx context.Context, reports *failurelog.Log, again *backoff) {
	patience := stuckAfter
	for {
		w.starter.settle()
		batch, within, wait := w.toReport()
		if wait > 0 {
			if rest(ctx, wait); ctx.Err() != nil {
				return
			}
			continue
		}
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-w.results.wake:
			}
			continue
		}
		sent := w.elapsed()
		call, done := w.unlessStuck(ctx, patience)
		ready, err := w.finish(call, batch)
		if patience = min(2*patience, stuckMost); err == nil || call.Err() == nil {
			patience = stuckAfter
		}
		done()
		w.Stripes.Leave(within)
		if ctx.Err() != nil {
			return
		}
		reports.Saw(err)
		pause := again.after(err)
		w.decide(func(queue *runqueue.Queue[claim]) { queue.Reports(err) })
		if err != nil && !errors.Is(err, store.ErrSessionOver) {
			w.results.refused(batch)
			rest(ctx, pause)
			continue
		}
		if undecided := slices.DeleteFunc(slices.Clone(batch), func(r *result) bool { return !r.undecided }); len(undecided) > 0 {
			batch = slices.DeleteFunc(batch, func(r *result) bool { return r.undecided })
			w.results.again(undecided)
		}
		for _, r := range batch {
			if w.Journal != nil {
				w.Journal.Forget(r.Run, r.Number)
			}
			if w.Spool != nil {
				w.Spool.Forget(r.Token)
			}
		}
		w.reported(batch, ready, sent)
	}
}

// unlessStuck returns a context for a report that ends when the store is silent for that long but
// has answered a later renewal: after an outage a call may hang on a dead connection, while its
// attempts seem to run.
func (w *Worker) unlessStuck(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	began := w.Boot()
	ticks := time.NewTicker(patience)
	stop := make(chan struct{})
	go func() {
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
			if w.Renewed() > began {
				cancel()
				return
			}
			ticks.Reset(stuckAgain)
		}
	}()
	return ctx, func() { close(stop); cancel() }
}

// finish reports a batch, and returns the runs that are ready for this node since.
func (w *Worker) finish(ctx context.Context, batch []*result) (ready []store.ReadyRun, err error) {
	results, reported := make([]store.Result, 0, len(batch)), make([]*result, 0, len(batch))
	var released, takenBack []store.Attempt
	var output []store.OutputChunk
	for _, r := range batch {
		r.undecided = false
		switch {
		case r.handedOver:
			output = append(output, r.Output...)
		case !r.unstarted, r.Postponed:
			results, reported = append(results, r.Result), append(reported, r)
		default:
			released = append(released, r.Attempt)
			if r.handed {
				takenBack = append(takenBack, r.Attempt)
			}
		}
	}
	for some := range slices.Chunk(output, store.MaxBatch) {
		if err := w.Store.AppendOutput(ctx, some); err != nil {
			return nil, err
		}
	}
	if len(results) > 0 {
		outcomes, err := w.Store.Finish(ctx, w.Self.ID, results)
		if err != nil {
			return nil, err
		}
		for i := range outcomes {
			reported[i].undecided = outcomes[i].Undecided
			ready = append(ready, outcomes[i].Ready...)
		}
	}
	if len(released) > 0 {
		if err := w.Store.Release(ctx, w.Self.ID, released); err != nil {
			return ready, err
		}
	}
	if len(takenBack) > 0 {
		return ready, w.Store.Release(ctx, job.ID{}, takenBack)
	}
	return ready, nil
}

// reported removes acknowledged results, and holds runs that the report, sent at a moment, made
// ready.
func (w *Worker) reported(batch []*result, ready []store.ReadyRun, sent time.Duration) {
	w.decide(func(queue *runqueue.Queue[claim]) {
		for i := range batch {
			queue.Reported(batch[i].item)
		}
		queue.Hold(ready, sent)
	})
	w.results.taken(batch)
}

// awaitReports waits, for a limited time, until all results are reported.
func (w *Worker) awaitReports(ctx context.Context) {
	within := reportAfterStop
	if w.away.Load() {
		within = 0 // Leave has waited
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		left := w.results.len()
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			if w.Spool != nil {
				w.Log.Warn("the store did not accept all results; they wait in the spool for the next process", "results", left)
				return
			}
			w.Log.Warn("the store did not accept all results; those runs will count as lost", "results", left)
			w.nameUnreported()
			return
		case <-ticker.C:
		}
	}
}

// namedMax is the number of results named in the log, which also has the total.
const namedMax = 20

// nameUnreported names the unreported results.
func (w *Worker) nameUnreported() {
	for _, r := range w.results.first(namedMax) {
		if r.unstarted || r.handedOver {
			continue // nothing is lost
		}
		w.Log.Warn("a result was not accepted", "job", r.item.With.run.Namespace+"/"+r.item.With.run.Name, "run", r.Run, "attempt", r.Number, "outcome", r.Outcome)
	}
}
