// Package ledger is the part of a store that is independent of its storage. It makes the
// steps of package store: it gets the needs of a decision from package engine, has a
// [Backend] load them, calls the decision, and has the backend write the changes. So all
// stores share these rules, and a store is only a [Backend].
//
// # What a backend sees
//
// The state consists of cells, one for each job: the job ([engine.Job] with its
// [engine.Document]) and its unfinished runs. The rest is sessions, the keys of requests,
// documents other than jobs, tokens, the audit, and history. Runs of several jobs meet only
// in the slot of a pool.
//
// # What the ledger does for a backend
//
// It checks the sizes of calls, repeats steps that lost a race, encodes definitions, fills
// in defaults, creates events, and applies every rule about jobs, runs and sessions. A
// backend makes no decision: it loads, compares and writes.
package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ErrAgain is wrapped by a [Backend] when a step has written nothing because its inputs
// changed meanwhile, or because it must lock more from its beginning. The ledger repeats
// the step.
var ErrAgain = errors.New("the step has to be made again")

// ErrTooLarge is wrapped by a [Backend] when a step about several items that are separate steps
// writes more about one job than it can commit at once. It has written nothing. The ledger divides
// the step in halves.
var ErrTooLarge = errors.New("the step writes too much at once")

// Backend keeps the state of a store. Its methods may be called at any time by several
// goroutines. Their errors are the errors of the contract (ErrNoSpace, ErrReadOnly, ErrDamaged,
// ErrAway) or others; a call whose context has ended does nothing. Lists are cut at the
// given limit, which is positive, and times are kept to the microsecond.
type Backend interface {
	ControlBackend
	store.History
}

// ControlBackend is a [Backend] without history. Records in [Tx.Write] go into its feed, for
// [store.ConsumerHistory]; [Tx.Load] answers Need.Records from the feed, and from records taken
// in the last five minutes.
type ControlBackend interface {
	// These methods are part of the contract, which documents them. Records in [Tx.Write],
	// new ones and replacements, go into the feed as well.
	store.Feed
	store.Registry
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutNote(ctx context.Context, n store.Note) (version int64, err error)
	ExpireAudit(ctx context.Context, keep store.Retention) (more bool, err error)
	Now(ctx context.Context) (time.Time, error)
	Hints(ctx context.Context) <-chan store.Hint
	EventsElsewhere(ctx context.Context) <-chan []store.Event
	Close() error
	JobsNamed(ctx context.Context, names []string) ([]*store.Job, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error)
	Followers(ctx context.Context, upstream string, after job.ID, limit int) (list []*store.Job, more bool, err error)
	Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]store.Revision, error)
	JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error)
	Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error)
	Summary(ctx context.Context) ([job.Partitions]store.PartitionSummary, error)
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
	Tokens(ctx context.Context) ([]store.Token, error)
	Audit(ctx context.Context, q store.AuditQuery) (list []store.AuditRecord, next int64, err error)
	Ready(ctx context.Context, q store.ReadyQuery) ([]store.ReadyRun, error)
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
	Handovers(ctx context.Context, q store.HandoverQuery) ([]store.Handover, error)

	// Step tries an atomic step once: it calls decide once, and commits everything that
	// decide passed to [Tx.Write], or nothing. It returns an error of decide unchanged, and
	// writes nothing.
	//
	// The step must appear to happen at one moment: the answers of [Tx.Load] still hold when
	// the changes are written. A locking backend holds its locks until the commit. A
	// comparing backend compares everything that it has read, including data without
	// changes, and even in a step without changes if it answered from a cache: a refusal is
	// only as good as its inputs. It returns [ErrAgain] after a change, and reads afresh if
	// Order.Try marks a repetition.
	//
	// A commit with an unknown result is ErrAway. The caller repeats the call, and the
	// engine recognizes completed parts by cursors and tokens. So a backend may also commit
	// a step in parts, if each part holds all of its cells, and return [ErrAgain] when only
	// some were committed.
	Step(ctx context.Context, o *Order, decide func(Tx) error) error

	// Members returns all sessions that have not ended, by id, and tells which of them ended
	// because one of their runs was reaped.
	Members(ctx context.Context) ([]Member, error)
	// Backlog returns how many ready runs of each session are due at a moment, the zero id for
	// unplaced ones, counting at most limit per session.
	Backlog(ctx context.Context, now time.Time, limit int) (map[job.ID]int, error)
	// Alarms returns runs whose AlertAt is at a moment or before, by due time and id.
	Alarms(ctx context.Context, now time.Time, limit int) ([]engine.RunRef, error)
	// Ending returns runs that may have ended by a moment. False positives are allowed, but
	// each true one must come in one of the next calls, however many others there are.
	Ending(ctx context.Context, now time.Time) (Ending, error)
	// Sweep removes a bounded part of the data that may be removed at a moment: expired
	// keys, handovers that ended [store.HandoverLife] ago, entries of the feed beyond
	// [store.FeedMax], deleted jobs without runs whose tombstones are older than
	// [store.TombstoneLife], and of the given sessions those without running attempts. It
	// reports whether more may remain.
	Sweep(ctx context.Context, now time.Time, forgotten []job.ID) (more bool, err error)
}

// Order describes a step in advance.
type Order struct {
	// Items is the number of items in the step.
	Items int
	// Adds is set if the step creates more than it removes. When space is short it is refused with
	// [store.ErrNoSpace] while steps that make room continue.
	Adds bool
	// Starts is set if it plans or claims: a backend whose clock may be wrong refuses that with
	// [store.ErrClockOff].
	Starts bool
	// Parts is set if each item is a separate step: a backend may commit in parts. Data of
	// no job (sessions, audit, output) is written with the first of them.
	Parts bool
	// Try is the number of earlier tries of the step. Kept is data of the backend that
	// stays from one try to the next, such as the rows to lock.
	Try  int
	Kept any
	// Committed must be called once the changes are visible, before Step returns, for steps
	// of one process in the order in which they become visible.
	Committed func()
}

// Tx is a step in progress. It is used by one goroutine.
type Tx interface {
	// Load adds at least the needed data to the batch. The ledger calls it again for
	// further needs, some four times at most, and then Batch.Answered. See [engine.Need]
	// for its parts.
	Load(need *engine.Need, b *engine.Batch) error
	// Now returns the moment of the step by the clock that all nodes share. It is called
	// after the last Load, and is never before the moment of an earlier step.
	Now() (time.Time, error)
	// Write receives the changes, once, at the end of the step. See [engine.Changes] for the meaning
	// of its fields:
	//
	//   - Made, Saved and Removed are disjoint lists of runs.
	//   - Records are new, and left as they are if they are there. Replaced take the
	//     place of the record with the same run and attempt.
	//   - Jobs are written as they are. One that is News goes into the feed of changes
	//     (JobsChanged) with a number behind all that were ever given; the numbers become
	//     visible in their order. One that is Revised has a new definition: its revision
	//     is kept, by Document.Actor, up to the number of Revisions. A Made or Restored job has
	//     a name that is free; a Deleted one frees its name.
	//   - Audit records get numbers without gaps in the order in which they become visible.
	//   - Hints are sent after the commit to all processes; they may be lost.
	Write(c *engine.Changes) error
}

// Member is a session in a backend.
type Member struct {
	store.Session
	Over bool
}

// Ending has the runs and jobs whose end may be due.
type Ending struct {
	// Runs are ready or waiting and were withdrawn (their job is deleted, paused or has
	// another epoch), are past their LateAfter, have a Last outcome, or are due and belong
	// to a node that may be gone (broadcast).
	Runs []engine.RunRef
	// Jobs are paused until a moment that has come, or to be removed (Job.RemoveAt).
	Jobs []job.ID
	More bool
}
