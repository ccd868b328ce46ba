package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

const (
	// groupMax is the most calls that are committed together, and groupTime
	// how long they may take before the commit: a call waits for those before
	// it, and beyond some milliseconds a commit less gains nothing.
	groupMax  = 64
	groupTime = 5 * time.Millisecond
	// checkpointPages is how long the log may be before it is written back:
	// 16 MB, so that a page that is written often is written back once.
	checkpointPages = 4000
	// checkpointEvery is after how many commits the length is looked at.
	checkpointEvery = 16
)

// writer is the only one who writes. All its fields but the channels and checkpoints
// belong to the goroutine of run.
type writer struct {
	s       *Store
	c       *conn
	ballast *ballast
	memory  memory

	// calls takes what is to be written, one by one; nobody closes it.
	calls chan *call
	done  chan struct{} // closed when run has ended

	// The log is written back in two steps, so that the writer is held up only
	// for the second, short one: what is in it is written back beside the
	// writer, and what has come meanwhile by the writer. behind asks for the
	// first, ahead says that it is done; each holds one message.
	checkpoints    *conn // of the goroutine of writeBack
	behind, ahead  chan struct{}
	checkpointing  bool
	commits        int
	checkpointDone chan struct{} // closed when the goroutine has ended
}

// call is something to write. What it changes is undone if do fails.
type call struct {
	do func(t *tx) error
	// grows is set for what only adds, and waits for space when there is none.
	grows bool
	// alone is set for what asks for the runs of sessions, of which is known only
	// where they stand when nothing is to be committed.
	alone  bool
	err    error
	result chan error // of one
	hint   store.Hint
	ended  columns.EndCounts
	events []store.Event
	moves  []move
}

// tx is the part of a transaction that belongs to a call.
type tx struct {
	*conn
	s      *Store
	now    time.Time
	hint   store.Hint        // sent after the commit
	ended  columns.EndCounts // added after it
	events []store.Event     // sent after it
	moves  []move            // made after it
	memory *memory
}

func newWriter(s *Store, c, checkpoints *conn, b *ballast) *writer {
	return &writer{
		s: s, c: c, ballast: b, checkpoints: checkpoints,
		calls:          make(chan *call),
		done:           make(chan struct{}),
		behind:         make(chan struct{}, 1),
		ahead:          make(chan struct{}, 1),
		checkpointDone: make(chan struct{}),
	}
}

// write runs do in a transaction and returns when it is on disk. It waits for
// its turn as long as ctx allows; what has begun is waited for.
func (s *Store) write(ctx context.Context, do func(t *tx) error) error {
	return s.submit(ctx, &call{do: do})
}

// grow is write for what only adds to the database: it is refused while there is
// no space for it.
func (s *Store) grow(ctx context.Context, do func(t *tx) error) error {
	return s.submit(ctx, &call{do: do, grows: true})
}

// sweep is write for what asks for the runs of sessions.
func (s *Store) sweep(ctx context.Context, do func(t *tx) error) error {
	return s.submit(ctx, &call{do: do, alone: true})
}

func (s *Store) submit(ctx context.Context, c *call) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	c.result = make(chan error, 1)
	select {
	case s.writer.calls <- c:
		return <-c.result
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return errClosed
	}
}

// run writes until the store is closed.
func (w *writer) run() {
	defer close(w.done)
	go w.writeBack()
	defer func() {
		close(w.behind)
		<-w.checkpointDone
	}()
	w.ballast.restore(time.Now())
	for {
		select {
		case first := <-w.calls:
			for first != nil {
				var g *group
				g, first = w.group(first)
				w.commit(g)
			}
			w.watchLog()
		case <-w.ahead:
			w.checkpointing = false
			w.finishCheckpoint()
		case <-w.s.closed:
			return
		}
	}
}

// group is the calls of one transaction.
type group struct {
	all []*call
	// open are those whose changes are in the transaction that is open.
	open []*call
}

// group runs a call, and those that come meanwhile, in one transaction that is
// left open. next is one that has come and does not belong to it.
func (w *writer) group(first *call) (g *group, next *call) {
	g = &group{}
	w.try(g, first)
	begun := time.Now()
	for !first.alone && len(g.all) < groupMax && time.Since(begun) < groupTime {
		select {
		case next := <-w.calls:
			if next.alone {
				return g, next
			}
			w.try(g, next)
		default:
			return g, nil
		}
	}
	return g, nil
}

// try runs a call, and undoes it if it fails.
func (w *writer) try(g *group, c *call) {
	g.all = append(g.all, c)
	if c.grows && !w.ballast.restore(time.Now()) {
		c.err = fmt.Errorf("%w on the disk of %s", store.ErrNoSpace, w.s.path)
		return
	}
	begin, undo, end := "savepoint call", "rollback to call", "release call"
	if len(g.open) == 0 {
		begin, undo, end = "begin immediate", "rollback", ""
	}
	if c.err = w.c.stmt(begin).exec(); c.err != nil {
		return
	}
	before := w.c.totalChanges()
	t := &tx{conn: w.c, s: w.s, now: w.s.clock(), memory: &w.memory}
	if c.err = c.do(t); c.err == nil {
		c.hint, c.ended, c.events, c.moves = t.hint, t.ended, t.events, t.moves
		g.open = append(g.open, c)
	} else {
		// Most that fail are refused before they have changed anything.
		var of *failure
		if w.c.totalChanges() != before || errors.As(c.err, &of) {
			w.forget()
		}
		if w.c.inTransaction() {
			c.err = errors.Join(c.err, w.c.stmt(undo).exec())
		}
	}
	if end != "" && w.c.inTransaction() {
		c.err = errors.Join(c.err, w.c.stmt(end).exec())
	}
	if !w.c.inTransaction() {
		// A full disk undoes the whole transaction, not only what failed.
		g.lose(c.err)
	}
}

// lose notes that what is in the open transaction was undone.
func (g *group) lose(err error) {
	for _, c := range g.open {
		c.err, c.hint, c.ended, c.events, c.moves = errors.Join(c.err, err), 0, columns.EndCounts{}, nil, nil
	}
	g.open = nil
}

// commit ends the transaction of a group and answers its calls.
func (w *writer) commit(g *group) {
	if len(g.open) > 0 {
		if err := w.c.commit(); err != nil {
			w.forget()
			if w.c.inTransaction() {
				err = errors.Join(err, w.c.stmt("rollback").exec())
			}
			g.lose(err)
		}
	}
	var hint store.Hint
	for _, c := range g.all {
		hint |= c.hint
		w.s.lines.move(c.moves)
		w.s.feed.Send(c.events)
		w.s.ended.Add(&c.ended)
		// While the log is written back, that would take the space:
		// finishCheckpoint gives it back then.
		if errors.Is(c.err, store.ErrNoSpace) && w.ballast.there && !w.checkpointing {
			w.ballast.free()
		}
	}
	w.s.hints.Send(hint)
	for _, c := range g.all {
		c.result <- c.err
	}
}

// forget drops what is kept in memory after something was undone that may be in
// it.
func (w *writer) forget() {
	w.s.jobs.forget()
	w.memory.forget()
}

// watchLog has the log written back when it has become long, and there is room
// for it.
func (w *writer) watchLog() {
	if w.commits++; w.checkpointing || w.commits < checkpointEvery {
		return
	}
	w.commits = 0
	pages, done, err := w.c.checkpoint(lib.SQLITE_CHECKPOINT_NOOP)
	if err == nil && pages-done >= checkpointPages && (w.ballast.there || w.fits()) {
		w.checkpointing = true
		w.behind <- struct{}{} // there is room: only one is asked for at a time
	}
}

// fits tells whether half of the ballast is enough for what the log adds to the
// database. A log with more would take what the ballast has given back without
// being written back to the end, and then there is no room in either file.
func (w *writer) fits() bool {
	info, err := os.Stat(w.s.path)
	if err != nil {
		return false
	}
	q := w.c.stmt("select page_count * page_size from pragma_page_count, pragma_page_size")
	size := int64(0)
	for q.next() {
		size = q.int()
	}
	return q.err() == nil && size-info.Size() <= ballastSize/2
}

// writeBack writes the log back beside the writer, twice, because the first time
// takes long enough for much to come.
func (w *writer) writeBack() {
	defer close(w.checkpointDone)
	for range w.behind {
		for range 2 {
			// It does no harm if it fails: the log grows until one succeeds.
			_, _, _ = w.checkpoints.checkpoint(passive)
		}
		w.ahead <- struct{}{}
	}
}

// finishCheckpoint writes back the rest of the log, after which the next
// transaction begins at its start.
func (w *writer) finishCheckpoint() {
	if _, _, err := w.c.checkpoint(passive); errors.Is(err, store.ErrNoSpace) {
		w.ballast.free()
	}
}

// close closes the connections after run has ended. What is in the log is
// written back, and the log is removed.
func (w *writer) close() error {
	err := w.checkpoints.close()
	_, _, truncated := w.c.checkpoint(lib.SQLITE_CHECKPOINT_TRUNCATE)
	if errors.Is(truncated, store.ErrNoSpace) {
		truncated = nil // it is written back when it is opened again
	}
	return errors.Join(err, truncated, w.c.close())
}
