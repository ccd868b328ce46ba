// Package memory is a store in maps under one mutex: the reference model that the other
// stores are compared with, and what simulations and tests run on. Its content ends with
// the process.
//
// It is written to be read, and loads exactly the needs of a decision: reading more panics.
// It uses only the given clock, and starts only the goroutine that ends a subscription to
// hints.
package memory

import (
	"context"
	"crypto/rand"
	rand64 "math/rand/v2"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// Options are what a store is made with.
type Options struct {
	// Now is the store's clock. Default: the clock of the machine.
	Now func() time.Time
	// LookAhead is how far ahead runs may be planned. Default: store.LookAheadDefault.
	LookAhead time.Duration
	// Defaults are filled in where jobs say nothing.
	Defaults job.Defaults
	// NewID makes the uids of jobs, calendars and pools. It is called with the
	// store locked. Default: by the clock and at random.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept. Default:
	// store.RevisionsDefault.
	Revisions int
	// Records is how many finished attempts are kept at least; when there are twice as many,
	// the oldest go. Default: no bound but Expire.
	Records int
	// Fate, if set, makes steps lock nothing: they compare at the commit what they have
	// read, and commit in parts if they may, as on etcd and Redis. It decides the fate of
	// each part.
	Fate func(part, parts int) Fate
}

// Store is a store in memory. It is safe for concurrent use.
type Store struct{ *ledger.Store }

// New returns an empty store.
func New(opt Options) *Store {
	b := newBackend(&opt)
	return &Store{ledger.New(b, optionsOf(opt))}
}

func optionsOf(opt Options) ledger.Options {
	return ledger.Options{LookAhead: opt.LookAhead, Defaults: opt.Defaults, NewID: opt.NewID, Guard: true}
}

// newBackend returns an empty backend, and fills in what the options leave out.
func newBackend(opt *Options) *backend {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Revisions == 0 {
		opt.Revisions = store.RevisionsDefault
	}
	if opt.LookAhead == 0 {
		opt.LookAhead = store.LookAheadDefault
	}
	if opt.NewID == nil {
		now := opt.Now
		opt.NewID = func() job.ID {
			id, _ := job.NewID(now(), rand.Reader) // crypto/rand does not fail
			return id
		}
	}
	var c *commits
	if opt.Fate != nil {
		c = &commits{fate: opt.Fate, versions: map[string]int64{}}
	}
	return &backend{
		commits: c,
		id:      store.HistoryID(rand64.Int64()),
		clock:   opt.Now, revisions: opt.Revisions, recordsMax: opt.Records,
		jobs: map[job.ID]*jobRow{}, names: map[string]*jobRow{},
		documents: engine.Documents{}, notes: map[string]store.Note{}, tokens: map[string]store.Token{},
		registrations: map[store.Registration]store.Registration{},
		runs:          newRunSet(), suspects: map[job.ID]bool{}, keys: map[engine.Identity]engine.Key{},
		sessions: map[job.ID]*store.Session{}, over: map[job.ID]bool{}, drains: map[string]*store.Drain{},
		handovers: map[int64]*store.Handover{},
		feed:      feed{consumers: map[string]*consumer{}},
		records:   map[job.ID][]*store.Record{}, latest: ledger.NewRecordIndex(), output: map[attemptKey]map[int]store.OutputChunk{},
	}
}

// backend keeps everything. Nothing that it gives away is changed in place.
type backend struct {
	clock     func() time.Time
	revisions int
	// recordsMax is Options.Records.
	recordsMax int
	hints      events.Hints

	mu   sync.Mutex
	seq  int64 // of the latest change of a job
	jobs map[job.ID]*jobRow
	// names are the existing jobs, by full name. following are those with upstreams, by
	// upstream; nil when that may have changed.
	names     map[string]*jobRow
	following map[string][]*jobRow
	documents engine.Documents
	notes     map[string]store.Note  // by name
	tokens    map[string]store.Token // by name
	// registrations have no address twice in a group of a kind. Their key has no time.
	registrations map[store.Registration]store.Registration
	audit         []store.AuditRecord

	runs runSet // that are planned or running
	// suspects are jobs that may have runs which they want no more: see mayEnd.
	suspects map[job.ID]bool
	keys     map[engine.Identity]engine.Key
	sessions map[job.ID]*store.Session
	members  []ledger.Member         // by id; nil when others may be there
	over     map[job.ID]bool         // sessions of which something was reaped
	drains   map[string]*store.Drain // by node

	id     store.HistoryID
	feed   feed
	outbox *outbox // nil if history is kept here
	// handovers are by number, and number is the last that was reserved.
	handovers map[int64]*store.Handover
	number    int64
	records   map[job.ID][]*store.Record // by run
	latest    *ledger.RecordIndex
	output    map[attemptKey]map[int]store.OutputChunk

	commits *commits // of steps that lock nothing; nil if they lock all

	copies []*engine.Job // of the present step, and of earlier steps for later ones to use
	copied int
}

// jobRow is a job with all that belongs to it.
type jobRow struct {
	engine.Job
	partition uint8
	seq       int64
	revisions []store.Revision // the first is the oldest
}

type attemptKey struct {
	run    job.ID
	number int
}

// begin locks the store. A call whose context has ended does nothing; any other runs to its
// end.
func (s *backend) begin(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	return s.mu.Unlock, nil
}

// locked returns what a function returns, with the store locked.
func locked[T any](ctx context.Context, s *backend, read func() T) (T, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer unlock()
	return read(), nil
}

// Step implements ledger.Backend: one step at a time.
func (s *backend) Step(ctx context.Context, o *ledger.Order, decide func(ledger.Tx) error) error {
	if s.commits != nil {
		return s.stepCompared(ctx, o, decide)
	}
	unlock, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.copied = 0
	if err := decide((*tx)(s)); err != nil {
		return err
	}
	o.Committed()
	return nil
}

// now is the clock as stores keep times: in UTC, to the microsecond.
func (s *backend) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// Now implements ledger.Backend.
func (s *backend) Now(ctx context.Context) (time.Time, error) { return s.now(), ctx.Err() }

// Hints implements ledger.Backend.
func (s *backend) Hints(ctx context.Context) <-chan store.Hint { return s.hints.Listen(ctx) }

// EventsElsewhere implements ledger.Backend: there is one process.
func (s *backend) EventsElsewhere(context.Context) <-chan []store.Event { return nil }

// Close does nothing.
func (s *backend) Close() error { return nil }
