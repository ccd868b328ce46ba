// Package memory is a store in maps under one mutex: the reference model that
// the other stores are compared with, and what simulations and tests run on. It
// keeps nothing when the process ends.
//
// It is written to be read. It reads no clock but the one that it is given, and
// starts no goroutine but the one that ends a subscription to hints.
package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
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
}

// Store is a store in memory. It is safe for concurrent use.
type Store struct {
	opt Options

	mu     sync.Mutex
	unlock func() // mu.Unlock, which would be made anew for each step
	step   step   // the present one
	seq    int64  // of the latest change of a job
	jobs   map[job.ID]*jobRow
	names  map[string]*jobRow // those that are not deleted, by full name
	// following are the jobs by what they follow, nil when somebody may follow another
	// one. Some may be deleted.
	following map[string][]*jobRow
	calendars map[string]*job.Calendar
	pools     map[string]*job.Pool
	audit     []store.AuditRecord
	tokens    map[string]store.Token // by name

	runs     runSet // that are planned or going on
	keys     map[engine.Identity]engine.Key
	sessions map[job.ID]*store.Session
	members  []*store.Session        // by id; nil when others may be there
	over     map[job.ID]bool         // sessions of which something was reaped
	drains   map[string]*store.Drain // by node

	records map[job.ID][]*store.Record // by run; not changed in place
	latest  []*store.Record            // all of them, the latest last
	output  map[attemptKey]map[int]store.OutputChunk

	hints events.Hints
	feed  events.Feed
}

// jobRow is a job with all that belongs to it.
type jobRow struct {
	engine.Job
	definition *job.Job
	filled     *job.Job
	timing     string
	calendars  []string // the full names of those that it names
	partition  uint8
	created    time.Time
	updated    time.Time
	seq        int64
	revisions  []store.Revision // the first is the oldest
	// shown is the job as others saw it last: definition and filled.
	shown [2]*job.Job
}

type attemptKey struct {
	run    job.ID
	number int
}

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New(opt Options) *Store {
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
	s := &Store{
		opt:       opt,
		jobs:      map[job.ID]*jobRow{},
		names:     map[string]*jobRow{},
		calendars: map[string]*job.Calendar{},
		pools:     map[string]*job.Pool{},
		tokens:    map[string]store.Token{},
		runs:      runSet{byID: map[job.ID]*store.Run{}},
		keys:      map[engine.Identity]engine.Key{},
		sessions:  map[job.ID]*store.Session{},
		over:      map[job.ID]bool{},
		drains:    map[string]*store.Drain{},
		records:   map[job.ID][]*store.Record{},
		output:    map[attemptKey]map[int]store.OutputChunk{},
	}
	s.unlock = s.mu.Unlock
	s.step = step{Batch: engine.NewBatch(time.Time{}, opt.LookAhead, 0), slots: map[string]bool{}, jobs: map[job.ID]bool{}}
	return s
}

// Close does nothing.
func (s *Store) Close() error { return nil }

// Now implements store.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.now(), ctx.Err() }

// now is the clock as stores keep times: in UTC, to the microsecond.
func (s *Store) now() time.Time { return s.opt.Now().UTC().Truncate(time.Microsecond) }

// begin locks the store for a step. A call whose context has ended does nothing;
// any other does all that it says.
func (s *Store) begin(ctx context.Context, items int) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if items > store.MaxBatch {
		return nil, store.ErrTooMany
	}
	s.mu.Lock()
	return s.unlock, nil
}

// step is a decision, with what was already added to it.
type step struct {
	*engine.Batch
	slots map[string]bool
	jobs  map[job.ID]bool // whose runs were added
	// copies are the jobs of the step, and of steps before for later ones to use.
	copies []*engine.Job
	copied int
}

// copy returns a copy of a job for the step.
func (b *step) copy(j *engine.Job) *engine.Job {
	if b.copied == len(b.copies) {
		b.copies = append(b.copies, &engine.Job{})
	}
	own := b.copies[b.copied]
	b.copied++
	*own = *j
	return own
}

// batch begins a decision, the only one until the store is unlocked. It knows the
// sessions and pools.
func (s *Store) batch() *step {
	b := &s.step
	b.Reset(s.now())
	clear(b.slots)
	clear(b.jobs)
	b.copied = 0
	b.UseSessions(s.sessions)
	for name, pool := range s.pools {
		b.AddPool(name, pool.Slots.Size)
	}
	return b
}

// addJob adds a job to a decision.
func (s *Store) addJob(b *step, uid job.ID) *engine.Job {
	if known := b.Job(uid); known != nil {
		return known
	}
	row, ok := s.jobs[uid]
	if !ok {
		return nil
	}
	return b.AddJob(b.copy(&row.Job))
}

// addRun adds a run to a decision, and what may follow from its start or end on
// a node.
func (s *Store) addRun(b *step, id job.ID, node string) {
	r, ok := s.runs.byID[id]
	if !ok {
		for _, record := range s.records[id] {
			b.AddRecord(record)
			s.addJob(b, record.Run.JobUID)
			s.addSiblings(b, record.Run.JobUID)
		}
		return
	}
	for _, record := range s.records[id] {
		b.AddRecord(record)
	}
	b.AddRun(r)
	s.addSlot(b, r.Slot)
	if j := s.addJob(b, r.JobUID); j != nil {
		s.addSlot(b, j.Policy.SlotKey(&r.Run, cmp.Or(node, r.Node)))
		s.addFollowers(b, j.FullName())
	}
	s.addSiblings(b, r.JobUID)
}

// addSiblings adds the runs of a job.
func (s *Store) addSiblings(b *step, uid job.ID) {
	if b.jobs[uid] {
		return
	}
	b.jobs[uid] = true
	for _, r := range s.runs.order {
		if r.JobUID == uid {
			b.AddRun(r)
		}
	}
}

// addSlot adds the runs that hold a slot or want it, and their jobs.
func (s *Store) addSlot(b *step, slot string) {
	if b.slots[slot] {
		return
	}
	b.slots[slot] = true
	for _, r := range s.runs.order {
		if r.Slot != slot {
			continue
		}
		b.AddRun(r)
		if j := s.addJob(b, r.JobUID); j != nil && r.Shards > 0 {
			s.addFollowers(b, j.FullName())
			s.addSiblings(b, r.JobUID)
		}
	}
}

func (s *Store) addFollowers(b *step, upstream string) {
	if s.following == nil {
		s.following = map[string][]*jobRow{}
		for _, name := range sortedKeys(s.names) {
			for _, up := range s.names[name].Policy.On {
				s.following[up.Job] = append(s.following[up.Job], s.names[name])
			}
		}
	}
	for _, row := range s.following[upstream] {
		if j := s.addJob(b, row.UID); j != nil && !j.Deleted {
			b.AddFollower(upstream, j)
		}
	}
}

// write applies what a decision has changed.
func (s *Store) write(b *step) {
	c := b.Changes()
	for _, list := range [...][]*store.Run{c.Made, c.Saved} {
		for _, r := range list {
			s.runs.put(r)
		}
	}
	for _, r := range c.Removed {
		s.runs.remove(r.ID)
	}
	for _, record := range c.Records {
		s.records[record.Run.ID] = append(s.records[record.Run.ID], record)
		s.keep(record)
	}
	for _, record := range c.Replaced {
		list := s.records[record.Run.ID]
		i := slices.IndexFunc(list, func(r *store.Record) bool { return r.Attempt.Number == record.Attempt.Number })
		s.drop(list[i])
		list[i] = record
		s.keep(record)
	}
	for _, j := range c.Jobs {
		if row, ok := s.jobs[j.UID]; ok { // else PutJob is creating it
			s.writeJob(row, j)
		}
	}
	for _, key := range c.Keys {
		s.keys[key.Identity] = key
	}
	for _, record := range c.Audit {
		record.Seq = 1
		if n := len(s.audit); n > 0 {
			record.Seq = s.audit[n-1].Seq + 1
		}
		s.audit = append(s.audit, record)
	}
	for _, id := range c.Reaped {
		if s.sessions[id] != nil {
			s.over[id] = true
		}
	}
	s.hints.Send(c.Hints)
	if s.feed.Wanted() {
		s.feed.Send(b.Events(&c))
	}
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context) <-chan []store.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.Follow(ctx)
}

// EventsElsewhere implements store.Store: there is one process.
func (s *Store) EventsElsewhere(context.Context) <-chan []store.Event { return nil }

// writeJob writes the state of a job. What planners or users must be told goes
// into the feed of changes; a new version has a revision.
func (s *Store) writeJob(row *jobRow, j *engine.Job) {
	was := row.Job
	row.Job = *j
	if j.Version != was.Version && row.definition.Paused != (j.State == job.JobPaused) {
		// Paused or resumed by Belfry itself.
		definition, filled := *row.definition, *row.filled
		definition.Paused = j.State == job.JobPaused
		filled.Paused = definition.Paused
		row.definition, row.filled = &definition, &filled
		s.revise(row, engine.System)
	}
	if j.Version != was.Version || j.Epoch != was.Epoch || j.State != was.State || j.Deleted != was.Deleted {
		s.seq++
		row.seq = s.seq
		row.updated = s.now()
		s.hints.Send(store.HintJobs)
	}
}

func (s *Store) revise(row *jobRow, actor string) {
	definition := *row.definition
	definition.UID, definition.Version, definition.Epoch = row.UID, row.Version, row.Epoch
	row.revisions = append(row.revisions, store.Revision{
		Version: row.Version, Changed: s.now(), Actor: actor, Definition: &definition,
	})
	row.revisions = row.revisions[max(0, len(row.revisions)-s.opt.Revisions):]
}

// Hints implements store.Store.
func (s *Store) Hints(ctx context.Context) <-chan store.Hint { return s.hints.Listen(ctx) }

var errNoSession = errors.New("a session needs an id")
