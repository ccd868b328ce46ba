// Package sqldb is the backend of the ledger on an SQL database: the common part of the stores on
// SQLite, PostgreSQL and MySQL, over a DB with the differences.
//
// # Locks
//
// On a shared database a step is a transaction that locks its subjects before it reads them:
//
//   - A step that writes rows of active, or the state of a job, holds the lock of the
//     job. So what it has read of a job stays the same until it commits.
//   - A step that changes a run in the slot of a pool holds the lock of the pool as well.
//     Runs are made in a pool without it: a step that does not see a new one, which can
//     only be ready, comes before it.
//   - Locks are taken in one order, so that two steps never wait for each other: on
//     definitions (calendars, graph, tokens), pools by name, jobs by uid, sessions, and the
//     counters of the feeds of changes and of the audit. If a database finds that two do
//     wait for each other, it undoes one, which is made again.
//   - The clock and the sessions are read behind the locks, so that a step which
//     comes after another one knows what that one knew.
//
// A step discovers its subjects while it loads. If it needs another lock, it is repeated with all
// locks found, in the right order. To make that rare, and to take the locks and read under them in
// one message, it foresees the needs of most steps: the policies of the jobs tell whether their
// slots are read and which pools they are in, and follow relations are read with the locks.
//
// The counters are locked last and until the commit: numbers in the feed of changes become visible
// in their order.
//
// SQLite has one writer, so that its steps lock nothing.
//
// # Repeating
//
// A transaction that failed by a conflict or a broken connection is repeated. After a lost answer
// to a commit that is safe because every call of the contract can be repeated.
package sqldb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/sys/cache"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
	"github.com/belfry-cron/belfry/store/internal/refill"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("the store is closed")

// Options configure [Open]. The zero value is valid.
type Options struct {
	// Now is the clock that decides. Default: the clock of the database.
	Now func() time.Time
	// LookAhead is how far ahead the planner plans. Default: [store.LookAheadDefault].
	LookAhead time.Duration
	// Defaults are the defaults of jobs. They should be the same on all nodes. Default: the
	// built-in ones.
	Defaults job.Defaults
	// KeepDefaults is for a process that is no server: jobs keep the defaults that they have.
	KeepDefaults bool
	// InUse is for a process in a hurry, beside a server of this version that uses the
	// database: nothing about it is checked or created.
	InUse bool
	// Refill receives the progress of applying new defaults: at once, periodically, and at the end.
	// It is called by [Open], and later by one goroutine. May be nil.
	Refill func(store.Refill)
	// Ended is called after each commit that has ended attempts. It is called by the
	// goroutine of the call and must not wait. May be nil.
	Ended func(store.Ends)
	// RefillMax is how long applying new defaults may delay [Open]; the rest is done in the
	// background. Default: 3 s.
	RefillMax time.Duration
	// NewID makes the uids of jobs, calendars and pools. Default: by the clock
	// and at random.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept. Default:
	// [store.RevisionsDefault].
	Revisions int
	// Guard makes decisions panic that read data outside their needs. It is for tests.
	Guard bool
}

const (
	// conflictsMax is how often a transaction with conflicts is tried. Each time
	// another one has succeeded.
	conflictsMax = 20
	// breaksMax is the number of tries of a transaction whose connection breaks: it bounds
	// a call without a database. Callers retry.
	breaksMax = 3
	// pauseMax is the longest pause before a transaction is repeated.
	pauseMax = 100 * time.Millisecond
	// callMax bounds a transaction: a silent database must not block a call without end.
	callMax = 30 * time.Second
	// commitMax bounds a commit, which does not end with the context of its call.
	commitMax = 10 * time.Second
)

// Store is a database. Its methods may be called by any goroutine.
type Store struct {
	*ledger.Store
	b *backend
}

// backend is the ledger's.
type backend struct {
	db        DB
	ledger    *ledger.Store
	defaults  job.Defaults
	revisions int // how many are kept per job

	clock       clock
	definitions cache.Map[job.ID, *definition]   // committed definitions, by the uid of the job
	abouts      cache.Map[job.ID, store.Session] // the constant fields of sessions
	windows     atomic.Pointer[markedWindows]
	// pools are the pools that a step read last, to plan locks.
	pools     atomic.Pointer[engine.Documents]
	follows   following
	puts      puts
	hot       hot
	dues      dues
	process   int64 // names this process in job_state.cached_by
	guard     bool
	steps     sync.Pool // of *step
	tidying   tidying
	expiring  expiring
	consumers consumers
	feedSwept struct { // last check of the feed's bounds
		sync.Mutex
		at time.Time
	}
	hints    events.Hints
	notices  notices
	followed followerState
	noted    chan struct{} // of capacity one
	// writing is read-locked by each transaction that writes. Its write lock proves that
	// all transactions before have ended.
	writing sync.RWMutex

	closing sync.Once
	closed  chan struct{} // closed by Close
	stop    context.CancelFunc
	work    sync.WaitGroup // in the background
	failure error          // of Close
}

// Open begins to use a database that has the schema. Close closes it.
func Open(ctx context.Context, db DB, o Options) (*Store, error) { //nolint:contextcheck // its work in the background ends with Close
	s := &backend{
		db:        db,
		defaults:  o.Defaults,
		revisions: cmp.Or(o.Revisions, store.RevisionsDefault),
		clock:     newClock(o.Now),
		process:   1 + mathrand.Int64N(math.MaxInt64),
		guard:     o.Guard,
		closed:    make(chan struct{}),
	}
	if err := s.measure(ctx); err != nil {
		return nil, err
	}
	if o.NewID == nil {
		o.NewID = func() job.ID {
			id, _ := job.NewID(s.clock.now(), rand.Reader) // crypto/rand does not fail
			return id
		}
	}
	s.ledger = ledger.New(s, ledger.Options{
		LookAhead: cmp.Or(o.LookAhead, store.LookAheadDefault), Defaults: o.Defaults, NewID: o.NewID, Guard: o.Guard, ReuseMemory: true, Ended: o.Ended,
	})
	if !o.InUse {
		if err := s.partition(ctx, time.Time{}); err != nil {
			return nil, err
		}
	}
	s.notices.init()
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	if !o.KeepDefaults {
		if err := s.applyDefaults(ctx, background, cmp.Or(o.RefillMax, refill.StartMax), o.Refill); err != nil {
			stop()
			return nil, err
		}
	}
	opened := &Store{s.ledger, s}
	if db.Alone() {
		return opened, nil
	}
	s.work.Go(func() { s.keepTime(background) })
	s.work.Go(func() { s.notify(background) })
	s.followed.wake = make(chan struct{}, 1)
	s.noted = make(chan struct{}, 1)
	s.work.Go(func() { s.tell(background) })
	s.work.Go(func() { s.listen(background) })
	return opened, nil
}

// Close waits for the calls that have begun and closes the database. Repeating it is allowed.
func (s *backend) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.stop()
		s.work.Wait()
		s.failure = s.db.Close()
	})
	return s.failure
}

// Events implements [store.Store] for the changes of this process. When it returns, all calls that
// did not know of the new receiver have committed.
func (s *Store) Events(ctx context.Context) <-chan []store.Event { return s.b.events(ctx) }

func (s *backend) events(ctx context.Context) <-chan []store.Event {
	list := s.ledger.Events(ctx)
	s.writing.Lock()
	defer s.writing.Unlock()
	return list
}

// tx is a transaction of a call.
type tx struct {
	Tx
	ctx context.Context
	s   *backend
	// moment is the time of the step, read after its locks. See now.
	moment  time.Time
	hint    store.Hint             // sent after the commit
	fresh   map[job.ID]*definition // definitions that it read, cached after the commit
	batches []*Batch               // returned to the pool at its end
	done    func()                 // called at its end, unless nil
	// adds is set for a transaction that only adds, reads for one that sees one state and writes
	// nothing.
	adds, reads bool
	// again is set when an earlier try may have been committed.
	again bool
}

func (s *backend) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.closed:
		return ErrClosed
	default:
		return nil
	}
}

// write runs do in a transaction, as often as a commit needs. Results of do count from its last
// run.
func (s *backend) write(ctx context.Context, do func(t *tx) error) error {
	return s.transact(ctx, false, do)
}

// grow is write for calls that only add data.
func (s *backend) grow(ctx context.Context, do func(t *tx) error) error {
	return s.transact(ctx, true, do)
}

func (s *backend) transact(ctx context.Context, adds bool, do func(t *tx) error) error {
	again := false
	for conflicts, breaks := 0, 0; ; {
		if err := s.check(ctx); err != nil {
			return err
		}
		unknown, err := s.try(ctx, &tx{adds: adds, again: again}, do)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		again = again || unknown
		switch fault := s.db.Fault(err); {
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

// retryState is kept from one try of a step to the next.
type retryState struct {
	// Locks besides the expected ones.
	jobs  map[job.ID]bool
	pools map[string]bool
	locks map[string]bool
	// again is set when an earlier try may have been committed.
	again  bool
	breaks int // of the connection
	// refits is set for a step that writes everything derived from the definitions of its jobs.
	refits bool
	first  func(*tx) error // if set, the beginning of the step
}

func (k *retryState) job(uid job.ID)   { remember(&k.jobs, uid) }
func (k *retryState) pool(name string) { remember(&k.pools, name) }
func (k *retryState) lock(name string) { remember(&k.locks, name) }

func remember[K comparable](m *map[K]bool, key K) {
	if *m == nil {
		*m = map[K]bool{}
	}
	(*m)[key] = true
}

// Step implements [ledger.Backend].
func (s *backend) Step(ctx context.Context, o *ledger.Order, decide func(ledger.Tx) error) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	k, _ := o.Kept.(*retryState)
	if k == nil {
		k = &retryState{}
		o.Kept = k
	}
	st := s.newStep(&tx{adds: o.Adds, again: k.again}, k)
	defer s.reuse(st)
	st.done = func() {
		s.hot.settle(st, true)
		if o.Committed != nil {
			o.Committed()
		}
	}
	unknown, err := s.try(ctx, st.tx, func(*tx) error { return decide(st) })
	s.hot.settle(st, false)
	if err == nil {
		for _, session := range st.handsOn {
			if err := s.handOn(ctx, session); err != nil {
				return err
			}
		}
		return nil
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	if k.again && errors.Is(err, store.ErrNotFound) {
		return nil // an earlier try has removed it
	}
	k.again = k.again || unknown
	switch fault := s.db.Fault(err); {
	case fault == Conflict && o.Try < conflictsMax:
		return again(err)
	case fault == Broken && k.breaks < breaksMax:
		k.breaks++
		pause(ctx, min(pauseMax, time.Millisecond<<(3*k.breaks)))
		return again(err)
	default:
		return reached(fault, err)
	}
}

// stepKept is how large a step may have been for its room to be used again: maps that were
// larger would have to be emptied after each small step.
const stepKept = 2 * store.MaxBatch

func (s *backend) newStep(t *tx, k *retryState) *step {
	st, _ := s.steps.Get().(*step)
	if st == nil {
		st = &step{jobs: map[job.ID]jobRead{}, places: map[job.ID]indexKey{}}
	}
	st.tx, st.k = t, k
	return st
}

// reuse frees the memory of an ended step for another one. Its batch is no longer in use.
func (s *backend) reuse(st *step) {
	if max(len(st.jobs), len(st.places), len(st.known)) > stepKept {
		return
	}
	clear(st.jobs)
	clear(st.places)
	clear(st.known)
	*st = step{jobs: st.jobs, places: st.places, known: st.known, copies: st.copies[:0], spare: append(st.spare, st.copies...), uncertain: st.uncertain[:0]}
	s.steps.Put(st)
}

// again marks an error as a reason to repeat the step.
func again(err error) error { return fmt.Errorf("%w: %w", ledger.ErrAgain, err) }

// reached marks an error of an unreachable database, and keeps only the database's words.
func reached(f Fault, err error) error {
	if f != Broken {
		return err
	}
	return &away{err}
}

type away struct{ error }

func (a *away) Unwrap() []error { return []error{a.error, store.ErrAway} }

// pause waits for a random time up to a bound, or until ctx ends, so that two conflicting
// transactions do not meet again.
func pause(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(mathrand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// try runs do in a transaction, once. unknown reports that it failed but may have been committed.
func (s *backend) try(ctx context.Context, t *tx, do func(t *tx) error) (unknown bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	s.writing.RLock()
	defer s.writing.RUnlock()
	begun, err := s.db.Begin(ctx, t.adds)
	if err != nil {
		return false, err
	}
	defer t.release()
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
	for uid, d := range t.fresh {
		s.definitions.Put(uid, d, definitionsMax)
	}
	if t.done != nil {
		t.done()
	}
	s.send(t.hint)
	return false, nil
}

// read runs do in a transaction that sees one state of the database.
func (s *backend) read(ctx context.Context, do func(t *tx) error) error {
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

func (s *backend) look(ctx context.Context, do func(t *tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	begun, err := s.db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer begun.Rollback()
	return do(&tx{Tx: begun, ctx: ctx, s: s, reads: true})
}

// reader reads the rows of a query.
type reader struct{ Rows }

func (r reader) bool() bool      { return r.Int() != 0 }
func (r reader) time() time.Time { return columns.FromNanos(r.Int()) }

// reason reads a reason as Reason.Stored has written it.
func (r reader) reason() job.Reason { return job.StoredReason(r.Text()) }

func (r reader) id() (id job.ID) {
	copy(id[:], r.View())
	return id
}

func (t *tx) query(text string, args ...any) reader {
	return reader{t.Ask(t.ctx, Question{text, args})}
}

func (t *tx) exec(text string, args ...any) error { return t.Exec(t.ctx, text, args...) }

// writeRows writes a batch unless it is empty.
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

// set returns ids as a set argument.
func set(ids []job.ID) [][]byte {
	list := make([][]byte, len(ids))
	for i := range ids {
		list[i] = idBytes(&ids[i])
	}
	return list
}

// wrapped adds the subject of a call to its error.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
