package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/store"
)

const (
	// groupMax is the most calls in one commit, and groupTime how long they may take before it: a
	// call waits for its predecessors, and beyond some milliseconds larger groups gain nothing.
	groupMax  = 64
	groupTime = 5 * time.Millisecond
	// checkpointPages is the length of the log at which it is written back: 16 MB, so that a page
	// with many writes is written back once.
	checkpointPages = 4000
	// checkpointEvery is the number of commits between checks of the length.
	checkpointEvery = 16
)

// writer owns the only writing connection. Calls use it in the order of their arrival. A call that
// has made its changes passes its turn to the next call, which makes more in the same transaction;
// the last call of the group commits for all.
type writer struct {
	path    string
	c       *conn
	ballast *ballast

	mu    sync.Mutex
	taken bool            // a call has the turn
	queue []chan struct{} // waiting calls

	// The following fields belong to the call that has the turn.
	closed atomic.Bool
	group  *group // that is open
	// groupTime is how long a group may take; tests that need one group set it.
	groupTime time.Duration
	commits   int // since the last check of the log's length

	// era counts rollbacks: a step caches the writes of earlier steps, which a rollback may undo.
	era atomic.Int64

	// The log is written back in two steps, so that calls wait only for the second, short
	// one: its present content is written back beside them, and the content added in the
	// meantime in a turn.
	checkpoints   *conn // the connection of that goroutine
	checkpointing atomic.Bool
	background    sync.WaitGroup
}

// group is the calls whose changes are in the open transaction.
type group struct {
	calls int
	begun time.Time
	done  chan struct{} // closed once it has ended
	err   error         // why it was rolled back
}

// take waits for the turn until ctx ends.
func (w *writer) take(ctx context.Context) error {
	w.mu.Lock()
	if w.closed.Load() {
		w.mu.Unlock()
		return errClosed
	}
	if !w.taken {
		w.taken = true
		w.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	w.queue = append(w.queue, turn)
	w.mu.Unlock()
	err := errClosed
	select {
	case <-turn:
		if !w.closed.Load() {
			return nil
		}
	case <-ctx.Done():
		err = ctx.Err()
		w.mu.Lock()
		i := slices.Index(w.queue, turn)
		if i >= 0 {
			w.queue = slices.Delete(w.queue, i, i+1)
		}
		w.mu.Unlock()
		if i >= 0 {
			return err
		} // the turn came at the same moment
	}
	w.leave()
	return err
}

// next passes the turn to the longest waiting call, if there is one.
func (w *writer) next() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return false
	}
	close(w.queue[0])
	w.queue = w.queue[1:]
	return true
}

// begin begins the part of a call in the transaction. It refuses a call that only adds while there
// is no space.
func (w *writer) begin(adds bool) error {
	if adds && !w.ballast.restore(time.Now()) {
		return fmt.Errorf("%w on the disk of %s: %s", store.ErrNoSpace, w.path, needed(w.path, workRoom, "for new runs"))
	}
	if w.group == nil {
		return w.c.stmt("begin immediate").exec()
	}
	return w.c.stmt("savepoint call").exec()
}

// join ends the part of a call and returns when it is on disk.
func (w *writer) join(t *tx) error {
	if !w.c.inTransaction() {
		err := errors.Join(t.failed, errUndone)
		w.lose(err)
		w.leave()
		return err
	}
	if t.first {
		w.group = &group{begun: time.Now(), done: make(chan struct{})}
	}
	g := w.group
	g.calls++
	if !t.first {
		if err := w.c.stmt("release call").exec(); err != nil {
			w.lose(err)
		}
	}
	w.leave()
	<-g.done
	return g.err
}

// undo undoes the part of a call.
func (w *writer) undo(t *tx) {
	if t.failed != nil || w.c.totalChanges() != t.before {
		w.era.Add(1)
	}
	if errors.Is(t.failed, store.ErrNoSpace) {
		w.free()
	}
	var err error
	switch {
	case !w.c.inTransaction():
		// A full disk undoes the whole transaction, not only what failed.
		err = errors.Join(t.failed, errUndone)
	case t.first:
		err = w.c.stmt("rollback").exec()
	default:
		err = errors.Join(w.c.stmt("rollback to call").exec(), w.c.stmt("release call").exec())
	}
	if err != nil {
		w.lose(err)
	}
	w.leave()
}

// lose ends the open transaction, whose changes are undone.
func (w *writer) lose(err error) {
	w.era.Add(1)
	if w.c.inTransaction() {
		err = errors.Join(err, w.c.stmt("rollback").exec())
	}
	if g := w.group; g != nil {
		g.err, w.group = err, nil
		close(g.done)
	}
}

// leave ends the turn of a call: the next call continues in the same transaction, unless it is
// committed first.
func (w *writer) leave() {
	if g := w.group; g != nil {
		if g.calls < groupMax && time.Since(g.begun) < w.groupTime && w.next() {
			return
		}
		w.commit(g)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.taken = false
		return
	}
	close(w.queue[0])
	w.queue = w.queue[1:]
}

// commit ends the transaction of a group and answers its calls.
func (w *writer) commit(g *group) {
	if err := w.c.stmt("commit").exec(); err != nil {
		if errors.Is(err, store.ErrNoSpace) {
			w.free()
		}
		w.lose(err)
		return
	}
	w.group = nil
	close(g.done)
	w.watchLog()
}

// free releases the ballast. While the log is written back, that would take its space:
// finishCheckpoint releases it then.
func (w *writer) free() {
	if w.ballast.there && !w.checkpointing.Load() {
		w.ballast.free()
	}
}

// watchLog starts writing the log back when it is long and there is room for that.
func (w *writer) watchLog() {
	if w.commits++; w.checkpointing.Load() || w.commits < checkpointEvery {
		return
	}
	w.commits = 0
	pages, done, err := w.c.checkpoint(lib.SQLITE_CHECKPOINT_NOOP)
	if err == nil && pages-done >= checkpointPages && (w.ballast.there || w.fits()) {
		w.checkpointing.Store(true)
		w.background.Go(w.writeBack)
	}
}

// fits reports whether half of the ballast covers what the log adds to the database. A
// larger log would use up the freed ballast without being completely written back, and
// leave no room in either file.
func (w *writer) fits() bool {
	info, err := os.Stat(w.path)
	if err != nil {
		return false
	}
	size, err := number(w.c, "select page_count * page_size from pragma_page_count, pragma_page_size")
	return err == nil && size-info.Size() <= ballastSize/2
}

// writeBack writes the log back beside the calls, twice, because calls add much during the first,
// long pass. It writes the rest in a turn, so that the next transaction restarts the log.
func (w *writer) writeBack() {
	for range 2 {
		// A failure does no harm: the log grows until a later call succeeds.
		_, _, _ = w.checkpoints.checkpoint(passive)
	}
	defer w.checkpointing.Store(false)
	if w.take(context.Background()) != nil {
		return // the store is closed, which writes the log back
	}
	if g := w.group; g != nil {
		w.commit(g)
	}
	if _, _, err := w.c.checkpoint(passive); errors.Is(err, store.ErrNoSpace) {
		w.ballast.free()
	}
	w.leave()
}

// close waits for calls that have arrived, and closes the connections. The log is written back and
// removed.
func (w *writer) close() error {
	if err := w.take(context.Background()); err != nil {
		return err
	}
	if g := w.group; g != nil {
		w.commit(g)
	}
	w.closed.Store(true)
	w.leave()
	w.background.Wait()
	err := w.checkpoints.close()
	_, _, truncated := w.c.checkpoint(lib.SQLITE_CHECKPOINT_TRUNCATE)
	if errors.Is(truncated, store.ErrNoSpace) {
		truncated = nil // the next opening writes it back
	}
	return errors.Join(err, truncated, w.c.close())
}
