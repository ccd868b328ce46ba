// Package sqldb is the store on a database that many nodes share: what the
// stores for PostgreSQL and MySQL have alike, over a DB that has what differs.
// It implements the contract of package store and decides nothing: what a step
// does is decided by package internal/engine.
//
// # Locks
//
// A step is a transaction. It first finds out, without locks, which jobs it is
// about; locks their rows of job_state; reads all that the decision needs; asks;
// and writes. What is read before the locks only says what to lock, and is not
// decided by.
//
//   - Whoever writes rows of active, or the state of a job, holds the lock of the
//     job. So what a step has read of a job stays as it is until it commits.
//   - Whoever changes a run that is in the slot of a pool holds the lock of the
//     pool as well. Runs are made in a pool without it: a step that does not see
//     a new one, which can only be ready, comes before it.
//   - Locks are taken in one order, so that two steps never wait for each other:
//     those of definitions (graph, calendars), pools by name, jobs by uid, the
//     counters of the feeds of changes and of the audit. If a database finds that
//     they do all the same, it undoes one, which is made again.
//   - The clock and the sessions are read behind the locks, so that a step which
//     comes after another one knows what that one knew.
//
// The counters are locked last and until the commit: numbers in the feed of
// changes become visible in their order.
//
// Most steps are about runs of which this process knows the jobs, because it has
// planned or read them. They are in one message: who follows, the locks, and what is
// read behind them. Where that turns out to be too little, the step is made again and
// finds out first.
//
// A run that this process has written last is not even read, where the database shows by
// which transaction a row was written: the step decides by what it remembers, and writes
// only if that is still the one. If it is not, nothing is done, and the step is made again
// and reads. Of slots it reads by which transactions the runs were written, and only those
// as a whole that it does not remember so.
//
// # Repeating
//
// A transaction that met others, or whose connection broke, is made again. When
// the answer to a commit is lost that is safe because every call of the contract
// can be repeated.
package sqldb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/refill"
)

// errClosed is returned by calls after Close.
var errClosed = errors.New("the store is closed")

// errAgain says that a step has not locked all that it is about, because
// something changed before it had the locks.
var errAgain = errors.New("changed before it was locked")

// Options are what Open needs to know. The zero value will do.
type Options struct {
	// Now is the clock that decides. Default: that of the database.
	Now func() time.Time
	// LookAhead is how far ahead runs are planned, the same as the planner's. Default:
	// store.LookAheadDefault.
	LookAhead time.Duration
	// Defaults are filled in where jobs say nothing. They should be the same on
	// all nodes. Default: what is built in.
	Defaults job.Defaults
	// Refill is told, if the defaults are others than before, how far they are filled
	// in: at once, now and then, and at the end. It is called by Open, and later by one
	// goroutine. May be nil.
	Refill func(store.Refill)
	// RefillMax is how long that may hold Open up; the rest is done beside. Default:
	// 3 s.
	RefillMax time.Duration
	// NewID makes the uids of jobs, calendars and pools. Default: by the clock
	// and at random.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept. Default:
	// store.RevisionsDefault.
	Revisions int
}

const (
	// conflictsMax is how often a transaction is made that others are in the
	// way of. Each time somebody else has got on.
	conflictsMax = 20
	// breaksMax is how often one is made whose connection breaks: it bounds how
	// long a call takes whose database is gone. Callers try again by themselves.
	breaksMax = 3
	// pauseMax is the longest pause before a transaction is made again.
	pauseMax = 100 * time.Millisecond
	// callMax bounds a transaction: a database that does not answer must not hold
	// a call for ever.
	callMax = 30 * time.Second
	// commitMax bounds a commit, which does not end with the context of its call.
	commitMax = 10 * time.Second
)

// Store is a database. Its methods may be called by any goroutine.
type Store struct {
	db        DB
	lookAhead time.Duration
	defaults  job.Defaults
	revisions int // of each job that are kept
	newID     func() job.ID

	clock    clock
	jobs     jobCache
	known    knownRuns
	abouts   aboutCache
	tidying  tidying
	expiring expiring
	hints    events.Hints
	notices  notices
	followed followed
	feed     events.Feed
	// writing is held by each transaction that writes, and taken by whoever has to
	// know that those before it have ended.
	writing sync.RWMutex
	ended   columns.Ends

	closing sync.Once
	closed  chan struct{} // closed by Close
	stop    context.CancelFunc
	work    sync.WaitGroup // of what goes on beside the calls
	failure error          // of Close
}

var _ store.Store = (*Store)(nil)

// Open begins to use a database that has the schema. Close closes it.
func Open(ctx context.Context, db DB, o Options) (*Store, error) {
	s := &Store{
		db:        db,
		lookAhead: cmp.Or(o.LookAhead, store.LookAheadDefault),
		defaults:  o.Defaults,
		revisions: cmp.Or(o.Revisions, store.RevisionsDefault),
		newID:     o.NewID,
		clock:     newClock(o.Now),
		closed:    make(chan struct{}),
	}
	if err := s.measure(ctx); err != nil {
		return nil, err
	}
	if s.newID == nil {
		s.newID = func() job.ID {
			id, _ := job.NewID(s.clock.now(), rand.Reader) // crypto/rand does not fail
			return id
		}
	}
	if err := s.partition(ctx, time.Time{}); err != nil {
		return nil, err
	}
	s.notices.init()
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	if err := s.applyDefaults(ctx, background, cmp.Or(o.RefillMax, refill.StartMax), o.Refill); err != nil {
		stop()
		return nil, err
	}
	s.work.Go(func() { s.keepTime(background) })
	s.work.Go(func() { s.notify(background) })
	s.followed.wake = make(chan struct{}, 1)
	s.work.Go(func() { s.tell(background) })
	s.work.Go(func() { s.listen(background) })
	return s, nil
}

// Close waits for the calls that have begun and closes the database. It may be
// called again.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.stop()
		s.work.Wait()
		s.failure = s.db.Close()
	})
	return s.failure
}

// Ended returns how many runs have ended so, by this process, since the store
// was opened, those too that have never started.
func (s *Store) Ended(outcome job.Outcome) int64 { return s.ended.Of(outcome) }

// tx is a transaction of a call.
type tx struct {
	Tx
	ctx context.Context
	s   *Store
	// moment is that of the step, behind its locks. See now.
	moment time.Time
	hint   store.Hint        // sent after the commit
	ended  columns.EndCounts // added after it
	events []store.Event     // sent after it
	// again is set when an earlier try may have been committed.
	again bool
	// looks is set when an earlier try has foreseen something wrong.
	looks bool
}

func (s *Store) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.closed:
		return errClosed
	default:
		return nil
	}
}

// write runs do in a transaction, as often as it takes to commit it. What do
// gives to its caller is what it has set last.
func (s *Store) write(ctx context.Context, do func(t *tx) error) error {
	again, looks := false, false
	for conflicts, breaks := 0, 0; ; {
		if err := s.check(ctx); err != nil {
			return err
		}
		unknown, err := s.try(ctx, &tx{again: again, looks: looks}, do)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		fault := s.db.Fault(err)
		wrong := errors.Is(err, errAgain) || fault == Stale
		again, looks = again || unknown, looks || wrong
		if fault == Stale {
			s.known.rest()
		}
		switch {
		case wrong && conflicts < conflictsMax:
			conflicts++
			continue
		case fault == Conflict && conflicts < conflictsMax:
			conflicts++
		case fault == Broken && breaks < breaksMax:
			breaks++
		default:
			return reached(fault, err)
		}
		pause(ctx, min(pauseMax, time.Millisecond<<(conflicts+3*breaks)))
	}
}

// reached gives an error of a database that could not be reached its sentinel, and the
// words of the database alone.
func reached(f Fault, err error) error {
	if f != Broken {
		return err
	}
	return &away{err}
}

type away struct{ error }

func (a *away) Unwrap() []error { return []error{a.error, store.ErrAway} }

// pause waits for some time up to a bound, or until ctx ends: at random, so that
// two that were in each other's way are not again.
func pause(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(mathrand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// try runs do in a transaction, once. unknown tells that it failed, but may have
// been committed.
func (s *Store) try(ctx context.Context, t *tx, do func(t *tx) error) (unknown bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	s.writing.RLock()
	defer s.writing.RUnlock()
	begun, err := s.db.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer begun.Rollback()
	t.Tx, t.ctx, t.s = begun, ctx, s
	if err := do(t); err != nil {
		return false, err
	}
	commit, release := context.WithTimeout(context.WithoutCancel(ctx), commitMax)
	defer release()
	if unknown, err = t.Commit(commit); err != nil {
		return unknown, err
	}
	s.ended.Add(&t.ended)
	s.feed.Send(t.events)
	s.send(t.hint)
	return false, nil
}

// read runs do in a transaction that sees one state of the database.
func (s *Store) read(ctx context.Context, do func(t *tx) error) error {
	for breaks := 0; ; breaks++ {
		if err := s.check(ctx); err != nil {
			return err
		}
		err := s.look(ctx, do)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if fault := s.db.Fault(err); fault == Final || breaks == breaksMax {
			return reached(fault, err)
		}
		pause(ctx, min(pauseMax, 8*time.Millisecond<<(3*breaks)))
	}
}

func (s *Store) look(ctx context.Context, do func(t *tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	begun, err := s.db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer begun.Rollback()
	return do(&tx{Tx: begun, ctx: ctx, s: s})
}

// reader reads the rows of a query.
type reader struct{ Rows }

func (r reader) bool() bool      { return r.Int() != 0 }
func (r reader) time() time.Time { return columns.FromNanos(r.Int()) }
func (r reader) id() (id job.ID) {
	copy(id[:], r.View())
	return id
}

func (t *tx) query(text string, args ...any) reader {
	return reader{t.Ask(t.ctx, Question{text, args})}
}

func (t *tx) exec(text string, args ...any) error { return t.Exec(t.ctx, text, args...) }

// writeRows writes a batch, if there is anything in it.
func (t *tx) writeRows(op Op, b *Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return t.Write(t.ctx, op, b)
}

// ids returns the ids of a query.
func (t *tx) ids(text string, args ...any) (list []job.ID, err error) {
	q := t.query(text, args...)
	for q.Next() {
		list = append(list, q.id())
	}
	return list, q.Err()
}

// texts returns the texts of a query.
func (t *tx) texts(text string, args ...any) (list []string, err error) {
	q := t.query(text, args...)
	for q.Next() {
		list = append(list, q.Text())
	}
	return list, q.Err()
}

// number returns the only value of a query.
func (t *tx) number(text string, args ...any) (n int64, err error) {
	q := t.query(text, args...)
	for q.Next() {
		n = q.Int()
	}
	return n, q.Err()
}

// set returns ids as the argument of a set.
func set(ids []job.ID) [][]byte {
	list := make([][]byte, len(ids))
	for i := range ids {
		list[i] = idBytes(&ids[i])
	}
	return list
}

// lock takes one of the locks that are rows of the table counters.
func (t *tx) lock(name string) error {
	_, err := t.number("select value from counters where name = ? for update", name)
	return err
}

// The locks of definitions, in the order in which they are taken, and of what is
// done by one node at a time.
const (
	calendarsLock = "calendars" // who names a calendar, or changes one
	graphLock     = "graph"     // who makes a job follow others
	tokensLock    = "tokens"
	defaultsLock  = "defaults"
	expiryLock    = "expiry"
)

// wrapped says what a call was about in its error.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
