// Package ledger is all of a store but where it keeps things. It does what the contract
// of package store calls a step: it asks package engine what a decision needs to know, has
// a Backend load it, lets the engine decide, and has the backend write the changes. So the
// rules of when and how often that happens stand once, and a store is a Backend.
//
// # What a backend sees
//
// The state is cells, one for each job: the job (engine.Job with its engine.Document) and
// its unfinished runs. Besides there are sessions, the keys of requests, calendars, pools,
// channels, tokens, the audit, and history. Runs of several jobs meet only in the slot of a pool.
//
// # What the ledger does for a backend
//
// It checks the sizes of calls, repeats steps that lost a race, encodes definitions, fills
// in defaults, makes events, and knows every rule about jobs, runs and sessions. A backend
// decides nothing: it loads, compares and writes.
package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ErrAgain is what a Backend wraps when a step has written nothing because something that
// it had read was changed meanwhile, or because it must lock more from its beginning. The
// ledger makes the step again.
var ErrAgain = errors.New("the step has to be made again")

// Backend keeps what a store keeps. Its methods may be called at any time by several
// goroutines. Their errors are those of the contract (ErrNoSpace, ErrReadOnly, ErrDamaged,
// ErrAway) or others; a call whose context has ended does nothing. Lists are cut at the
// given limit, which is positive, and times are kept to the microsecond.
type Backend interface {
	ControlBackend
	store.History
}

// ControlBackend is a Backend that keeps no history. What Tx.Write gets of records goes into
// its feed, for store.ConsumerHistory; of what is in there, and of what was taken in the last
// five minutes, Tx.Load answers Need.Records.
type ControlBackend interface {
	// What the contract reads or does is documented there. A backend does it as it is. Records
	// that Tx.Write gets, new ones and replacements, go into the feed as well.
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
	Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]store.Revision, error)
	JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error)
	Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error)
	Summary(ctx context.Context) ([job.Partitions]store.PartitionSummary, error)
	Calendars(ctx context.Context) ([]*job.Calendar, error)
	Pools(ctx context.Context) ([]*job.Pool, error)
	Channels(ctx context.Context) ([]*job.Channel, error)
	Executors(ctx context.Context) ([]*job.Executors, error)
	Tokens(ctx context.Context) ([]store.Token, error)
	Audit(ctx context.Context, q store.AuditQuery) (list []store.AuditRecord, next int64, err error)

	// Step makes one try of an atomic step: it calls decide once, and commits all that
	// decide has given to Tx.Write, or nothing. An error of decide is returned as it is,
	// and nothing is written.
	//
	// The step must be as if it happened in one moment: what Tx.Load has answered is
	// true when the changes are written. A backend that locks holds its locks until the
	// commit. One that compares does so with all that it has read, also with what no
	// change touches and when there is no change at all, if what it answered was
	// remembered and not read in this step: a refusal is only as good as what it was
	// decided by. It returns ErrAgain when something was changed, and reads afresh when
	// Order.Try says that this is a repetition.
	//
	// A commit of which it is not known whether it was done is ErrAway. The caller
	// repeats the call, and the engine recognizes by cursors and tokens what was done. So a
	// backend may also commit a step in parts, if each part holds all of its cells, and
	// return ErrAgain when some of them were done.
	Step(ctx context.Context, o *Order, decide func(Tx) error) error

	// Members returns all sessions that have not ended, by id, and which of them are
	// over because something of them was reaped.
	Members(ctx context.Context) ([]Member, error)
	// Ready returns ready runs by due time and id.
	Ready(ctx context.Context, q ReadyQuery) ([]store.ReadyRun, error)
	// Runs returns unfinished runs by due time and id.
	Runs(ctx context.Context, q RunQuery) ([]store.Run, error)
	// Backlog returns how many ready runs of each session are due at a moment, zero for
	// those without; of each at most limit are counted.
	Backlog(ctx context.Context, now time.Time, limit int) (map[job.ID]int, error)
	// Alarms returns runs whose AlertAt is at a moment or before, by due time and id.
	Alarms(ctx context.Context, now time.Time, limit int) ([]engine.RunRef, error)
	// Handovers returns handovers, those by number in the order of their numbers, those to
	// ask after in that of Ask.
	Handovers(ctx context.Context, q HandoverQuery) ([]store.Handover, error)
	// Ending returns what may have come to an end by a moment. It may return what has
	// not, but what has must come in one of the next calls, however much of the other
	// there is.
	Ending(ctx context.Context, now time.Time) (Ending, error)
	// Sweep removes a bounded part of what may be removed at a moment: keys that have
	// expired, handovers that have ended store.HandoverLife ago, entries of the feed beyond store.FeedMax, deleted jobs without runs whose tombstones are older than
	// store.TombstoneLife, and of the given sessions those that run nothing. It tells
	// whether there may be more.
	Sweep(ctx context.Context, now time.Time, forgotten []job.ID) (more bool, err error)
}

// Order is what a backend may know of a step before it begins.
type Order struct {
	// Items is how many things the step is about.
	Items int
	// Adds says that the step makes more than it removes. When space is short it is
	// refused with store.ErrNoSpace while the others, which make room, go on.
	Adds bool
	// Parts says that each item is a step by itself: a backend may commit in parts. What
	// is about no job (sessions, audit, output) is written with the first of them.
	Parts bool
	// Try is 0, and more when the step is made again. Kept is the backend's own: it
	// stays from one try to the next, such as what is to be locked.
	Try  int
	Kept any
	// Committed must be called once the changes can be seen, before Step returns, for
	// steps of one process in the order in which they become visible.
	Committed func()
}

// Tx is a step in the making. It is used by one goroutine.
type Tx interface {
	// Load adds to the batch what is needed, or more, and not less. The ledger calls it
	// again for what follows from that, some four times at most, and then
	// Batch.Answered. See engine.Need for what each part of it asks for.
	Load(need *engine.Need, b *engine.Batch) error
	// Now returns the moment of the step by the clock that all nodes share. It is called
	// after the last Load, and never is before what an earlier step was told.
	Now() (time.Time, error)
	// Write takes the changes, once, as the last thing of the step. See engine.Changes
	// for what each part of it means:
	//
	//   - Made, Saved and Removed are runs; none is in two of them.
	//   - Records are new, and left as they are if they are there. Replaced take the
	//     place of the record with the same run and attempt.
	//   - Jobs are written as they are. One that is News goes into the feed of changes
	//     (JobsChanged) with a number behind all that were ever given; the numbers become
	//     visible in their order. One that is Revised has a new definition: its revision
	//     is kept, by Document.Actor, the latest so many of them. A Made job has a name that
	//     is free; a Deleted one frees its name.
	//   - Audit records get numbers without gaps in the order in which they become visible.
	//   - Hints are sent after the commit to all processes; they may be lost.
	Write(c *engine.Changes) error
}

// Member is a session as a backend keeps it.
type Member struct {
	store.Session
	Over bool
}

// ReadyQuery selects ready runs. All that is given must match.
type ReadyQuery struct {
	// Session is that which the runs are assigned to, unless Any is set.
	Session job.ID
	Any     bool
	// Until is when they are due at the latest.
	Until time.Time
	After store.RunRef // the place that the list follows
	Limit int
}

// RunQuery selects unfinished runs. All that is given must match.
type RunQuery struct {
	Run       job.ID
	Job       job.ID
	Namespace string
	State     job.RunState
	// Sessions are those which the runs are assigned to or run on, if any are given. With
	// Except they are those which they are not.
	Sessions []job.ID
	Except   bool
	After    store.RunRef
	Limit    int
}

// HandoverQuery selects handovers: by their Numbers, those of a Run, or of a Kind those that
// have not ended and whose Ask is at AskBy or before, at most Limit.
type HandoverQuery struct {
	Numbers []int64
	Run     job.ID
	Kind    string
	AskBy   time.Time
	Limit   int
}

// Ending is what may have come to an end.
type Ending struct {
	// Runs are ready or waiting and were withdrawn (their job is deleted, paused or has
	// another epoch), are past their LateAfter, have a Last outcome, or are due and belong
	// to a node that may be gone (broadcast).
	Runs []engine.RunRef
	// Jobs are paused until a moment that has come, or to be removed (Job.RemoveAt).
	Jobs []job.ID
	More bool
}
