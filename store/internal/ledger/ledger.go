package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// Options configure a ledger.
type Options struct {
	// LookAhead is how far ahead runs may be planned.
	LookAhead time.Duration
	// Defaults are the values of settings that jobs omit.
	Defaults job.Defaults
	// NewID makes the uids of jobs, calendars and pools.
	NewID func() job.ID
	// Guard makes a decision panic that reads data outside its needs: see
	// [engine.Batch.Guard]. It is for tests.
	Guard bool
	// ReuseMemory is set for a backend that keeps no reference to the runs of [Tx.Write] after
	// Backend.Step: their memory is reused.
	ReuseMemory bool
	// PoolStep bounds what one step changes of the runs of a pool: see [engine.Batch.PoolStep].
	PoolStep int
	// Ended, if set, receives the ended runs of each commit.
	Ended func(store.Ends)
}

// Store is a store on a backend with state and history.
type Store struct {
	*Control
	store.History
}

// Control is a store on a backend with state only.
type Control struct {
	ControlBackend
	opt   Options
	feed  events.Feed
	steps sync.Pool // pool of *step
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Control = (*Control)(nil)
)

// New returns the store of a backend.
func New(b Backend, opt Options) *Store { return &Store{NewControl(b, opt), b} }

// NewControl returns a store on a backend without history.
func NewControl(b ControlBackend, opt Options) *Control {
	return &Control{ControlBackend: b, opt: opt}
}

// step is the memory that steps reuse.
type step struct {
	batch *engine.Batch
	need  engine.Need
}

// notifications are the messages of a step after its commit.
type notifications struct {
	events []store.Event
	ends   store.Ends
	fill   []engine.SlotNeed
}

const (
	// roundsMax is the most rounds of loads in a step: a run, its slot, the runs in that,
	// and their jobs.
	roundsMax = 12
	// triesMax is the most tries of a step, and restMax the longest backoff between
	// tries.
	triesMax = 100
	restMax  = 100 * time.Millisecond
)

// do executes an operation as one step.
func (s *Control) do(ctx context.Context, o Order, op engine.Operation) error {
	if o.Items > store.MaxBatch {
		return store.ErrTooMany
	}
	st, _ := s.steps.Get().(*step)
	if st == nil {
		st = &step{batch: engine.NewBatch(time.Time{}, s.opt.LookAhead, 0)}
		if s.opt.Guard {
			st.batch.Guard()
		}
		if s.opt.ReuseMemory {
			st.batch.ReuseMemory()
		}
		st.batch.PoolStep(s.opt.PoolStep)
	}
	var notes notifications
	origin := store.OriginOf(ctx)
	o.Committed = func() {
		s.feed.Send(notes.events)
		if len(notes.ends.Records) > 0 {
			s.opt.Ended(notes.ends)
		}
	}
	for {
		err := s.Step(ctx, &o, func(tx Tx) (err error) {
			notes, err = s.decide(tx, st, op, origin)
			return err
		})
		if !errors.Is(err, ErrAgain) || o.Try == triesMax {
			s.steps.Put(st)
			if err == nil && len(notes.fill) > 0 {
				s.fill(ctx, notes.fill)
			}
			return err
		}
		o.Try++
		if err := rest(ctx, o.Try); err != nil {
			return err
		}
	}
}

// fill makes the follow-up step for slots that have free places. If it fails, the next step about a
// slot, or Tidy, fills them.
func (s *Control) fill(ctx context.Context, slots []engine.SlotNeed) {
	for some := range slices.Chunk(slots, fillMax) {
		_ = s.do(ctx, Order{Parts: true}, &engine.FillSlots{Slots: some})
	}
}

// fillMax is how many slots one step fills: of each it reads and may change [store.MaxBatch] runs.
const fillMax = 4

// rest pauses before a repetition, so that contending steps do not collide again.
func rest(ctx context.Context, try int) error {
	if try < 3 {
		return ctx.Err()
	}
	most := min(restMax, time.Millisecond<<min(try-3, 10))
	timer := time.NewTimer(rand.N(most) + 1)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// decide loads the needs of an operation, decides, and passes the changes to the backend.
// It returns the notifications to send after the commit.
func (s *Control) decide(tx Tx, st *step, op engine.Operation, origin store.Origin) (notes notifications, err error) {
	b, need := st.batch, &st.need
	b.Reset(time.Time{})
	b.From(origin)
	for round := 0; ; round++ {
		need.Reset()
		b.Needs(op, need)
		if need.Empty() {
			break
		}
		if round == roundsMax {
			return notes, fmt.Errorf("a step (%T) still needs %s", op, need)
		}
		if err := tx.Load(need, b); err != nil {
			return notes, err
		}
		b.Answered(need)
	}
	now, err := tx.Now()
	if err != nil {
		return notes, err
	}
	b.At(now)
	if err := op.Decide(b); err != nil {
		return notes, err
	}
	c := b.Changes()
	for _, j := range c.Jobs {
		if d := j.Document; j.Revised() && d.Text == nil {
			if d.Text, _, err = columns.EncodeJob(d.Definition); err != nil {
				return notes, err
			}
		}
	}
	if s.feed.Wanted() {
		notes.events = b.Events(&c)
	}
	notes.fill = c.Fill
	if s.opt.Ended != nil {
		c.AddEnds(&notes.ends)
	}
	return notes, tx.Write(&c)
}

// Events implements [store.Store].
func (s *Control) Events(ctx context.Context) <-chan []store.Event { return s.feed.Follow(ctx) }

// wrapped adds the subject of a failed call to its error.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// AppendOutput implements [store.History].
func (s *Store) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	if len(chunks) > store.MaxBatch {
		return store.ErrTooMany
	}
	return s.History.AppendOutput(ctx, chunks)
}

// Append implements [store.History].
func (s *Store) Append(ctx context.Context, records []store.Record) error {
	if len(records) > store.MaxBatch {
		return store.ErrTooMany
	}
	return s.History.Append(ctx, records)
}
