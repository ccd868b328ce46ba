package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// busyFrom is the number of claims within [runqueue.LookEvery] that make a worker busy: more
	// than a small machine can start processes, so that the cost of garbage matters. busyFor is
	// how long it then counts as busy.
	busyFrom = 10 * store.MaxBatch
	busyFor  = 15 * time.Second
)

// fenceLoop checks the fences every second. It never waits for the store: fences matter most when
// the store is silent.
func (w *Worker) fenceLoop(ctx context.Context) {
	ticker := time.NewTicker(runqueue.LookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.enforceFences()
		}
	}
}

// reconcileLoop compares with the store every second, and less often with a slow store.
func (w *Worker) reconcileLoop(ctx context.Context) {
	ticker := time.NewTicker(runqueue.LookEvery)
	defer ticker.Stop()
	compares := failurelog.New(w.Log, "cannot reconcile the runs of this node with the store", "reconciling runs with the store works again")
	var next time.Time
	var room room
	defer room.leave()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var busy bool
		w.decide(func(queue *runqueue.Queue[claim]) { busy = queue.Made() >= busyFrom })
		w.makeRoom(&room, busy)
		began := time.Now()
		if began.Before(next) {
			continue
		}
		err := w.reconcile(ctx)
		next = time.Now().Add(restUnasked(began))
		if ctx.Err() == nil {
			compares.Saw(err)
		}
	}
}

// room is a busy worker's allowance for garbage.
type room struct {
	done  func() // nil if it has none
	until time.Time
}

func (r *room) leave() {
	if r.done != nil {
		r.done()
		r.done = nil
	}
}

// makeRoom raises the garbage collector's target while the worker is busy, and for some
// time after that, since bursts recur.
func (w *Worker) makeRoom(r *room, busy bool) {
	switch {
	case w.NeedRoom == nil:
	case busy:
		if r.until = time.Now().Add(busyFor); r.done == nil {
			r.done = w.NeedRoom()
		}
	case time.Now().After(r.until):
		r.leave()
	}
}

// enforceFences ends the attempts that another node may soon declare lost.
func (w *Worker) enforceFences() {
	w.endRunning(executor.ErrFenced, w.fenced)
}

// reconcile compares the store's list of this node's attempts with the running ones.
func (w *Worker) reconcile(ctx context.Context) error {
	// An older answer must not judge attempts that begin or end in the meantime.
	var before []*item
	w.decide(func(queue *runqueue.Queue[claim]) { before = queue.All(runqueue.Running) })
	mine, err := w.Store.Mine(ctx, w.Self.ID)
	if err != nil {
		return err
	}
	var unknown []store.Attempt
	w.decide(func(queue *runqueue.Queue[claim]) {
		unknown = queue.Compare(mine, before,
			func(it *item, r *store.Run) {
				it.With.prepared.cancel(&executor.Cancelled{By: r.CancelBy, Reason: r.CancelReason})
			},
			// Its result cannot count.
			func(it *item) { it.With.prepared.cancel(executor.ErrFenced) })
	})
	return w.releaseAll(ctx, unknown)
}

// recallAll recalls the claimed runs of the jobs in a hint.
func (w *Worker) recallAll(ctx context.Context, hint store.Hint) error {
	var items []*item
	w.decide(func(queue *runqueue.Queue[claim]) {
		queue.Items(runqueue.Claimed, func(it *item) {
			if hint.MayConcern(it.With.run.JobUID) {
				items = append(items, it)
			}
		})
	})
	return w.recall(ctx, items)
}

// recall releases early claims whose job was paused, deleted or rescheduled before they were due:
// the store then settles the runs as withdrawn, unless the new schedule has the occurrence too.
// After an edit that keeps the schedule the run is claimed again under the new definition.
func (w *Worker) recall(ctx context.Context, items []*item) error {
	byJob := map[job.ID][]*item{}
	for _, it := range items {
		byJob[it.With.run.JobUID] = append(byJob[it.With.run.JobUID], it)
	}
	// Earliest starts first: there may be thousands.
	soonest := make(map[job.ID]time.Time, len(byJob))
	for uid, list := range byJob {
		soonest[uid] = slices.MinFunc(list, func(a, b *item) int { return a.With.run.Due.Compare(b.With.run.Due) }).With.run.Due
	}
	jobs := slices.SortedFunc(maps.Keys(byJob), func(a, b job.ID) int { return soonest[a].Compare(soonest[b]) })
	for batch := range slices.Chunk(jobs, store.MaxBatch) {
		list, err := w.Store.Versions(ctx, batch)
		if err != nil {
			return err
		}
		now := make(map[job.ID]*engine.JobVersion, len(batch))
		var items []*item
		for i, uid := range batch {
			now[uid] = &list[i]
			items = append(items, byJob[uid]...)
		}
		err = w.release(ctx, items, func(it *item) bool {
			return now[it.With.run.JobUID].Recalls(&it.With.run.Run, it.With.job.Definition.Version)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// giveBack releases claimed runs that have not started.
func (w *Worker) giveBack(ctx context.Context) {
	if err := w.release(ctx, nil, func(*item) bool { return true }); err != nil {
		w.Log.Warn("cannot release claimed runs; "+w.afterwards(), "error", err)
	}
}

// afterwards describes the fate of claimed runs that have not started and were not released.
func (w *Worker) afterwards() string {
	if w.Journal == nil {
		return "they will count as lost"
	}
	return "the watchdog or the next process releases them, unless they count as lost before"
}

// release releases the chosen claimed runs among some items, nil for all.
func (w *Worker) release(ctx context.Context, items []*item, choose func(*item) bool) error {
	var released []*item
	w.decide(func(queue *runqueue.Queue[claim]) {
		if items == nil {
			items = queue.All(runqueue.Claimed)
		}
		released = queue.Release(items, choose)
	})
	for _, it := range released {
		it.With.prepared.discard()
	}
	return w.releaseAll(ctx, runqueue.Attempts(released))
}

func (w *Worker) releaseAll(ctx context.Context, attempts []store.Attempt) error {
	for len(attempts) > 0 {
		n := min(len(attempts), store.MaxBatch)
		if err := w.Store.Release(ctx, w.Self.ID, attempts[:n]); err != nil {
			return err
		}
		attempts = attempts[n:]
	}
	return nil
}
