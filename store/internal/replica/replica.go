// Package replica is a backend of the ledger on a shared key-value store that compares and
// writes several keys atomically and streams its changes to followers: etcd, Redis.
//
// # The idea
//
// All control state lies in few kinds of keys; a job with its unfinished runs is one, its
// cell. Each process keeps a copy of that state in memory, updated by the feed of the
// key-value store. A step reads the copy, lets the engine decide, and commits the result in
// one message that compares the versions of all keys that the step has read. So indexes
// need no keys of their own, and reading costs nothing.
//
// The comparisons of a writing step prove that its inputs were current. A step without
// writes is only as good as the copy: it is accepted when the copy, after catching up with
// the latest commit, still has the same data.
//
// Documents, output and the audit can be large and are read seldom. They are not in the
// copy.
//
// # Cells
//
// A cell holds up to 32 runs, of 16 KiB together: each step about the job writes all of it. A
// run without room there gets a key of its own, behind the cell's key, and keeps it until it
// ends. A step writes the cell and, of these runs, only those that it changes; the comparison
// of the cell's version covers them all, so they are compared and written with their cell or not
// at all. So the cost of a step depends on the runs that it changes, not on how many others wait.
//
// Such a run, and the cell of its job, begin with format 2 or 3 instead of 1. The cell ends with the
// number of its job's runs with keys of their own: a missing one is damage, not an end. In format 3
// it also has what an edit changes of all waiting runs, which then do not say it themselves: see
// fitted. Cells
// without such runs are as before, so that versions that know only format 1 can read a store in
// which no job has a long backlog, and refuse others. A larger cell of theirs is read, and
// divided by the next steps about its job.
package replica

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/events"
	machine "github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Driver is a shared, ordered map of keys to values. Keys that begin with [Copied] are
// followed. Its errors are the errors of the contract of package store.
type Driver interface {
	// Now returns the clock that all processes share, or false if the store has none: then the
	// nodes agree on a clock by their renewals.
	Now(ctx context.Context) (time.Time, bool, error)
	// Get returns the values of keys in their order, nil for missing ones.
	Get(ctx context.Context, keys []string) ([][]byte, error)
	// Range returns the pairs from one key up to another, excluded, in order or
	// backwards, at most limit of them.
	Range(ctx context.Context, from, to string, limit int, backwards bool) ([]Pair, error)
	// Commit commits a transaction if all compared keys have their versions: all of it or
	// nothing. It returns the version of the writes. A writing transaction also writes
	// [Signal]. After an error that wraps [store.ErrAway] the result is unknown.
	Commit(ctx context.Context, t *Txn) (version int64, done bool, err error)
	// Tail returns the version of the latest commit.
	Tail(ctx context.Context) (int64, error)
	// Follow passes all copied keys to apply, and then each change, in the order of versions and
	// one commit at a time. After lost changes it starts over, with Update.Whole, and returns when
	// ctx ends.
	Follow(ctx context.Context, apply func(Update))
	// Bounds are how many keys one transaction compares, and how many bytes it has.
	Bounds() (compares, size int)
	Close() error
}

// Local is a [Driver] of one process without other followers: it keeps the decoded values of copied keys
// as they are, passes each commit to one function before Commit returns, and encodes nothing.
type Local interface {
	Driver
	// Attach sets the function that receives all commits. It is called once, before any other method.
	Attach(apply func(Update))
}

const (
	// Copied begins the keys that are in the copy of each process.
	Copied = "m/"
	// Signal is the key that each commit of copied keys writes.
	Signal = Copied + "v"
)

// Pair is a key with its value.
type Pair struct {
	Key     string
	Value   []byte
	Version int64 // version of the commit that wrote it
	// Is is the decoded value, or nil. It is immutable.
	Is any
}

// Txn is a transaction. A version of 0 says that the key does not exist.
type Txn struct {
	Compares map[string]int64
	Puts     []Pair // without versions
	Deletes  []string
	// Adds is set if the transaction creates more than it removes: a driver may refuse it when
	// space is short.
	Adds bool
	// Part is which of the Parts of a step it is, from 0 on. Parts is 0 outside of steps.
	Part, Parts int
}

// Update is a change of the copied keys.
type Update struct {
	// Whole is set if these are all existing keys: any other key is gone.
	Whole   bool
	Puts    []Pair
	Deletes []string
	// Version is the version of the copy after this update.
	Version int64
	// Lost is the number of steps that the store has acknowledged to this process and
	// lost.
	Lost int64
}

// Options configure a store.
type Options struct {
	// Now replaces the clock of the store, for tests.
	Now func() time.Time
	// Wall and Boot replace the clocks of this machine, by which the nodes of a store without a clock
	// agree on one.
	Wall func() time.Time
	Boot func() time.Duration
	// LookAhead is how far ahead runs may be planned. Default: [store.LookAheadDefault].
	LookAhead time.Duration
	// Defaults are the values of settings that jobs omit.
	Defaults job.Defaults
	// NewID makes the uids of jobs and documents. Default: by the clock and at random.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept. Default:
	// [store.RevisionsDefault].
	Revisions int
	// KeepDefaults leaves jobs with their present defaults, for a process that is not a server.
	KeepDefaults bool
	// Refill receives the progress of giving jobs the new defaults.
	Refill func(store.Refill)
	// Ended receives the ends of each commit.
	Ended func(store.Ends)
	// Lost receives how many acknowledged steps, at least, are gone after a failover, a
	// restart or the restoration of an older snapshot. It is called on the goroutine that
	// follows the store and must not wait.
	Lost func(steps int64)
	// Records bounds the history that is kept in the store. Default: [RecordsMax].
	Records int
	// KeepAtLeast, if set, bounds the history of a [Local] driver beside Records: the oldest records
	// beyond it are removed once there are twice as many.
	KeepAtLeast int
	// InCell is how many runs of a job are in its cell, for tests. Default: 32.
	InCell int
	// OneEach makes a commit of each part of a step that may be divided, for tests.
	OneEach bool
	// Compares makes the steps of a [Local] driver compare what they have read, as with other drivers, for
	// tests. Otherwise they run one after another.
	Compares bool
	// Guard makes decisions panic that read data outside their needs. It is for tests.
	Guard bool

	// apart says that history is elsewhere: the [Backend] is a ledger.ControlBackend with the methods
	// of [store.Outbox], and its History is not used.
	apart bool
}

// RecordsMax is how many records of history are kept in the store, whose database is small,
// and in the memory of each node.
const RecordsMax = 100_000

// Backend implements ledger.Backend.
type Backend struct {
	opt    Options
	driver Driver
	hints  events.Hints
	feed   events.Feed
	stop   context.CancelFunc
	over   sync.WaitGroup
	writer string // identifies the commits of this process
	docs   documents
	clock  *sharedClock
	agrees bool  // the driver has no clock: the nodes agree on one
	local  Local // the driver, if it is a Local
	own    ownValues
	// trimming is locked by the call that removes records beyond KeepAtLeast.
	trimming sync.Mutex
	// numbering is locked by the commit of this process that takes numbers.
	numbering sync.Mutex
	feedSwept struct { // last check of the feed's bounds
		sync.Mutex
		at time.Time
	}
	registrySwept struct { // last check for expired registrations
		sync.Mutex
		at time.Time
	}
	// turn is locked by each serial step, and by a step after several tries.
	turn   sync.Mutex
	copies []*engine.Job // jobs of earlier serial steps, for reuse

	mu      sync.RWMutex
	state   *state
	version int64
	ready   chan struct{} // closed once the copy is complete
	// moved is closed, and replaced, when the copy advances.
	moved chan struct{}
	// waiting are callbacks for when the copy reaches a version.
	waiting []waiter
}

type waiter struct {
	version int64
	call    func()
}

// start returns a backend with a complete copy.
func start(ctx context.Context, d Driver, opt Options) (*Backend, error) { //nolint:contextcheck // the copy is followed until Close
	opt.Revisions = cmp.Or(opt.Revisions, store.RevisionsDefault)
	opt.Records = cmp.Or(opt.Records, RecordsMax)
	opt.InCell = cmp.Or(opt.InCell, inCell)
	if opt.Wall == nil {
		opt.Wall = time.Now
	}
	if opt.Boot == nil {
		opt.Boot = machine.Boot
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // crypto/rand does not fail
	follow, stop := context.WithCancel(context.Background())
	b := &Backend{
		opt: opt, driver: d, stop: stop, writer: string(id[:]), clock: newSharedClock(opt.Wall, opt.Boot),
		state: newState(opt.apart), ready: make(chan struct{}), moved: make(chan struct{}),
	}
	b.docs.init(documentsMax)
	if b.local, _ = d.(Local); b.local != nil {
		b.local.Attach(b.apply)
	} else {
		b.over.Go(func() { d.Follow(follow, b.apply) })
	}
	select {
	case <-b.ready:
		if err := b.checkApart(ctx); err != nil {
			_ = b.Close()
			return nil, err
		}
		b.begin(ctx)
		return b, nil
	case <-ctx.Done():
		_ = b.Close()
		return nil, fmt.Errorf("read the store: %w", errors.Join(store.ErrAway, context.Cause(ctx)))
	}
}

// Close ends the copy.
func (b *Backend) Close() error {
	b.stop()
	err := b.driver.Close()
	b.over.Wait()
	return err
}

// apply updates the copy, and notifies the listeners of this process.
func (b *Backend) apply(u Update) {
	b.mu.Lock()
	if u.Whole {
		was := b.state
		b.state = newState(b.opt.apart)
		if b.opt.apart {
			b.state.outbox.recent = was.outbox.recent
		}
	}
	var hint store.Hint
	elsewhere, own := b.feed.Wanted() && !u.Whole, false
	for i := range u.Puts {
		if u.Puts[i].Key == signalKey {
			of, err := signalIn(&u.Puts[i])
			if err == nil {
				hint = hint.With(of.hint)
				own = of.writer == b.writer
				elsewhere = elsewhere && !own
			}
		}
	}
	if elsewhere {
		b.state.telling = &telling{before: map[job.ID]*store.Run{}}
	}
	for _, key := range u.Deletes {
		b.state.remove(key, b.localNow())
	}
	// Cells come before runs with keys of their own, which may have been in a cell.
	for _, apart := range [...]bool{false, true} {
		for _, p := range u.Puts {
			if isRunKey(p.Key) == apart {
				b.own.find(&p)
				b.state.put(p)
			}
		}
	}
	b.observe(&u, own)
	b.state.count()
	var list []store.Event
	if elsewhere {
		list, b.state.telling = b.state.telling.events, nil
	}
	if u.Whole {
		hint = hint.With(store.HintJobs | store.HintRuns)
		if b.version > 0 { // previously copied changes may be lost
			hint |= store.HintLost
		}
	}
	b.version = u.Version
	var due []func()
	b.waiting = slices.DeleteFunc(b.waiting, func(w waiter) bool {
		if w.version > b.version && !u.Whole {
			return false
		}
		due = append(due, w.call)
		return true
	})
	close(b.moved)
	b.moved = make(chan struct{})
	select {
	case <-b.ready:
	default:
		close(b.ready)
	}
	b.mu.Unlock()

	for _, call := range due {
		call()
	}
	if u.Lost > 0 && b.opt.Lost != nil {
		b.opt.Lost(u.Lost)
	}
	b.hints.Send(hint)
	b.feed.Send(list)
}

// observe takes the clocks that nodes publish with their renewals. Only nodes with the store itself
// count, so that each clock counts once.
func (b *Backend) observe(u *Update, own bool) {
	for _, key := range u.Deletes {
		if strings.HasPrefix(key, renewalKeys) {
			b.clock.forget(idIn(key, renewalKeys))
		}
	}
	if u.Whole {
		return // they were written at an unknown time
	}
	for _, p := range u.Puts {
		if !strings.HasPrefix(p.Key, renewalKeys) {
			continue
		}
		id := idIn(p.Key, renewalKeys)
		if r, s := b.state.renewals[id], b.state.sessions[id]; s != nil && s.HasStore() {
			b.clock.observe(id, &r, p.Version, own)
		}
	}
}

// await waits until the copy has reached a version.
func (b *Backend) await(ctx context.Context, version int64) error {
	for {
		b.mu.RLock()
		moved, here := b.moved, b.version >= version
		b.mu.RUnlock()
		if here {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("%w: the feed of changes is behind: %w", store.ErrAway, context.Cause(ctx))
		}
	}
}

// fresh brings the copy up to date with the commits before the call.
func (b *Backend) fresh(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	version, err := b.driver.Tail(ctx)
	if err != nil {
		return err
	}
	if err := b.await(ctx, version); err != nil {
		return err
	}
	return b.whole()
}

// whole returns why the copy is incomplete: a step that decides with a part of the state, such as
// half a pool's slot, would be wrong.
func (b *Backend) whole() error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for key, err := range b.state.unread {
		what := fmt.Sprintf("the key %q", key)
		if strings.HasPrefix(key, cellKeys) {
			what = "the state of job " + idIn(key, cellKeys).String()
		}
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

// read passes the up-to-date copy to a function.
func (b *Backend) read(ctx context.Context, f func(s *state)) error {
	if err := b.fresh(ctx); err != nil {
		return err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	f(b.state)
	return nil
}

// Hints implements ledger.Backend.
func (b *Backend) Hints(ctx context.Context) <-chan store.Hint { return b.hints.Listen(ctx) }

// EventsElsewhere implements ledger.Backend.
func (b *Backend) EventsElsewhere(ctx context.Context) <-chan []store.Event {
	return b.feed.Follow(ctx)
}
