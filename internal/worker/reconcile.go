package worker

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// busyFrom is how many claims within lookEvery make a worker busy: more than a small
	// machine can make processes, also after a pause, so that the garbage counts. busyFor
	// is how long it is taken for busy then.
	busyFrom = 10 * store.MaxBatch
	busyFor  = 15 * time.Second
)

// fenceLoop looks at the fences every second. It waits for nothing: they matter most while
// the store does not answer.
func (w *Worker) fenceLoop(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
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

// reconcileLoop compares with the store every second, less often one that takes long
// to answer.
func (w *Worker) reconcileLoop(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	compares := trouble.With(w.Log, "this node cannot compare its runs with the store", "this node compares its runs with the store again")
	var next time.Time
	var room room
	defer room.leave()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.makeRoom(&room)
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

// room is what a busy worker has for garbage.
type room struct {
	done  func() // nil when it has none
	until time.Time
}

func (r *room) leave() {
	if r.done != nil {
		r.done()
		r.done = nil
	}
}

// makeRoom sees to it that there is room for garbage while there is much to do, and for
// some time after that: herds come again.
func (w *Worker) makeRoom(r *room) {
	w.mu.Lock()
	busy := w.claimed >= busyFrom
	w.claimed = 0
	w.mu.Unlock()
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

// enforceFences ends the attempts that another node may soon take for lost.
func (w *Worker) enforceFences() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.items {
		if it.state == running && w.fenced(it) {
			it.prepared.cancel(executor.ErrFenced)
		}
	}
}

// cancelled is the cause with which an attempt ends that somebody wants ended.
func cancelled(r *store.Run) error {
	if r.CancelReason == "" {
		return fmt.Errorf("%w by %s", executor.ErrCancelled, r.CancelBy)
	}
	return fmt.Errorf("%w by %s: %s", executor.ErrCancelled, r.CancelBy, r.CancelReason)
}

// reconcile compares what the store believes this node to run with what it runs.
func (w *Worker) reconcile(ctx context.Context) error {
	// What begins or ends meanwhile is not to be judged by an old answer.
	before := w.tokens()
	mine, err := w.Store.Mine(ctx, w.Self.ID)
	if err != nil {
		return err
	}
	var unknown []store.Attempt
	believed := make(map[job.ID]bool, len(mine))
	w.mu.Lock()
	for i := range mine {
		r := &mine[i]
		believed[r.Token] = true
		it := w.items[r.ID]
		switch {
		case it == nil || it.state == ready:
			// It is nowhere in this process, so it was never started here:
			// the answer to its claim was lost together with its memory.
			unknown = append(unknown, store.Attempt{Run: r.ID, Number: r.Attempt, Token: r.Token})
		case r.CancelBy != "" && it.attempt.Token == r.Token:
			if it.state == claimed || it.state == running {
				it.prepared.cancel(cancelled(r))
			}
		}
	}
	for token, it := range before {
		if !believed[token] && it.state == running && w.items[it.ready.ID] == it {
			// It was taken away: whatever it does now cannot count.
			it.prepared.cancel(executor.ErrFenced)
		}
	}
	w.mu.Unlock()
	return w.releaseAll(ctx, unknown)
}

// tokens returns the attempts that run, by token.
func (w *Worker) tokens() map[job.ID]*item {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := map[job.ID]*item{}
	for _, it := range w.items {
		if it.state == running {
			list[it.attempt.Token] = it
		}
	}
	return list
}

// recall gives back what was claimed ahead and has not started, and whose job was
// paused, deleted or given another schedule since: the store then settles it as
// withdrawn. An edit that leaves the schedule alone recalls too, so that the run
// is claimed again under the definition that is current then.
func (w *Worker) recall(ctx context.Context) error {
	w.mu.Lock()
	w.edits++ // for the claims that are under way
	held := map[job.ID][]*item{}
	for _, it := range w.items {
		if it.state == claimed {
			held[it.run.JobUID] = append(held[it.run.JobUID], it)
		}
	}
	w.mu.Unlock()
	// What starts first before the rest: of a herd there are thousands.
	soonest := make(map[job.ID]time.Time, len(held))
	for uid, list := range held {
		soonest[uid] = slices.MinFunc(list, func(a, b *item) int { return a.run.Due.Compare(b.run.Due) }).run.Due
	}
	jobs := slices.SortedFunc(maps.Keys(held), func(a, b job.ID) int { return soonest[a].Compare(soonest[b]) })
	for batch := range slices.Chunk(jobs, store.MaxBatch) {
		list, err := w.Store.JobsByUID(ctx, batch)
		if err != nil {
			return err
		}
		now := make(map[job.ID]*store.Job, len(batch))
		var items []*item
		for i, uid := range batch {
			now[uid] = list[i]
			items = append(items, held[uid]...)
		}
		err = w.release(ctx, slices.Values(items), func(it *item) bool {
			j := now[it.run.JobUID]
			return j == nil || j.Deleted || j.Definition.Version != it.job.Definition.Version
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// giveBack releases what is claimed and has not started.
func (w *Worker) giveBack(ctx context.Context) {
	if err := w.release(ctx, maps.Values(w.items), func(*item) bool { return true }); err != nil {
		w.Log.Warn("claimed runs could not be given back: they will count as lost", "error", err)
	}
}

// release gives back those of some items that are claimed and chosen.
func (w *Worker) release(ctx context.Context, items iter.Seq[*item], choose func(*item) bool) error {
	w.mu.Lock()
	var attempts []store.Attempt
	for it := range items {
		if it.state == claimed && w.items[it.ready.ID] == it && choose(it) {
			attempts = append(attempts, it.attempt)
			it.prepared.discard()
			w.forget(it)
			w.busy--
			signal(w.claimWake)
		}
	}
	w.mu.Unlock()
	return w.releaseAll(ctx, attempts)
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
