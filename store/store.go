// Package store is the contract between Belfry and the stores of its state: jobs, planned
// and running runs, sessions of nodes, and the history. It stores nothing itself: each
// store has a package beside it, and must pass package storetest.
//
// # How safety comes about
//
// Every method is one atomic step of the product, and decides inside that step what must
// happen once, by comparing the caller's belief with the stored state: the cursor and epoch
// of a job, the state and number of an attempt. Leases and clocks only decide which node
// tries. A step carries the identity of its writer, so that repeating it after a lost
// answer gives the same answer and changes nothing.
//
// The decisions of a step (whether a run may start, what follows from its end) are written
// once, in the pure package internal/decide/engine; a store loads the inputs of the decision,
// calls it, and writes the result.
//
// # Time
//
// Times are kept to the microsecond and returned in UTC. A store decides by its own clock
// alone; it only records times from others.
//
// # Errors
//
// Methods return [ErrNotFound], [ErrConflict], [ErrExists], [ErrCycle], [ErrLimit], [ErrLastAdmin] and
// [ErrSessionOver] as documented, and [ErrTooMany] for more than [MaxBatch] items. Any of them
// may return an error that wraps [ErrNoSpace] or [ErrReadOnly] when the store cannot write for
// now, [ErrDamaged] when it cannot be read, or [ErrAway] when it cannot be reached: then the
// outcome of the call is unknown. Results returned with an error mean nothing. Lists are
// cut at the given limit, which is positive.
package store

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// The errors that callers act on.
var (
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("exists already")
	ErrConflict    = errors.New("changed by another writer")
	ErrCycle       = errors.New("a job would follow itself")
	ErrSessionOver = errors.New("the session is over")      // the node must join with a new one
	ErrTooMany     = errors.New("more than one call takes") // see MaxBatch
	ErrLimit       = errors.New("there are as many as there may be")
	ErrLastAdmin   = errors.New("it is the last token that can create tokens")
	ErrNoSpace     = errors.New("the store has no space left")
	ErrReadOnly    = errors.New("the store is read-only")
	ErrDamaged     = errors.New("the store is damaged")
	ErrAway        = errors.New("the store cannot be reached")
	ErrClockOff    = errors.New("the clock of this machine is off")
)

// ErrHistoryAway is the [ErrAway] of a history in another store.
var ErrHistoryAway = fmt.Errorf("history: %w", ErrAway)

// ItemError is the error of an all-or-nothing call for one of its items.
type ItemError struct {
	Item int // its index
	Err  error
}

func (e *ItemError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *ItemError) Unwrap() error { return e.Err }

// NamedError means that a calendar cannot be deleted because a job or window uses it. It is an
// [ErrConflict].
type NamedError struct {
	Kind job.Kind
	Name string // in full
}

func (e NamedError) Error() string { return string(e.Kind) + " " + e.Name + " names it" }

// Unwrap returns the kind of the error.
func (e NamedError) Unwrap() error { return ErrConflict }

// The bounds of all stores.
const (
	// MaxBatch is the most items of one call. Larger batches are no faster and delay other calls.
	MaxBatch = 500
	// PutMax is the most jobs of one call of PutJobs. A job is a dozen rows: with more jobs, a
	// store with one writer would delay claims for longer than a run may be late.
	PutMax = 100
	// LookAheadDefault is the default distance for planning ahead: longer than other nodes
	// need to notice the loss of a planner.
	LookAheadDefault = 15 * time.Second
	// ClaimAgain is the pause before a claim of a due run is repeated after [Early]: the node that
	// holds its slot must report first.
	ClaimAgain = 500 * time.Millisecond
	// ClaimAhead is how long before its due time a run can be claimed.
	ClaimAhead = 2 * time.Second
	// PlanSlack is how far beyond the look-ahead a run may be planned: room for the
	// difference between the clocks of planner and store.
	PlanSlack = time.Second
	// KeyLife is how long an idempotency key is kept.
	KeyLife = 24 * time.Hour
	// TombstoneLife is how long planners can read that a job was deleted, and how long it can be
	// restored.
	TombstoneLife = time.Hour
	// SessionLife is how long after its last renewal a session is a member.
	SessionLife = 6 * time.Second
	// RevisionsDefault is how many definitions of a job are kept.
	RevisionsDefault = 100
	// SilenceMax is the time after its last renewal after which a session without runs is
	// removed.
	SilenceMax = 10 * time.Minute
)

// Store is the whole contract: control state and history in one.
type Store interface {
	Control
	History
}

// Opener opens a store. Each store's package has a function that returns one, for belfry.New.
type Opener func(ctx context.Context) (Store, error)

// Opening converts a function that opens a certain store to an [Opener].
func Opening[S Store](open func(ctx context.Context) (S, error)) Opener {
	return func(ctx context.Context) (Store, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, err // s would be a non-nil interface
		}
		return s, nil
	}
}

// Control is the state for decisions. A store of control state alone also has an [Outbox].
type Control interface {
	Jobs
	Documents
	Planning
	Working
	Handovers
	Membership
	Tokens
	Feed
	Registry
	Notes

	// Now returns the time of the store's clock, by which it decides.
	Now(ctx context.Context) (time.Time, error)
	// Hints returns a channel of hints, which is closed when ctx ends. A slow receiver
	// loses hints.
	Hints(ctx context.Context) <-chan Hint
	// Events returns a channel of the changes of this process after the call, in the order
	// in which they become visible. It is closed when ctx ends. The events of one step
	// arrive together. A slow receiver loses events, and gets one of the kind [EventLost]
	// instead. Without a receiver, events cost nothing.
	Events(ctx context.Context) <-chan []Event
	// EventsElsewhere is Events for the changes of other processes in a shared store. It
	// takes a second to begin, and its events are some tenths of a second late. Events of one
	// process come in their order; events of several have times. A single-process
	// store returns nil.
	EventsElsewhere(ctx context.Context) <-chan []Event
	// Tidy does a bounded part of the housekeeping; any node may call it at any time. It
	// settles runs that were withdrawn or are too late, ends expired pauses, removes
	// completed jobs and old keys, and drops entries of the feed beyond [FeedMax]. It
	// reports whether more work may remain.
	Tidy(ctx context.Context) (more bool, err error)
	// ExpireAudit removes expired changes from the audit, at most [ExpireMax], and reports whether
	// there may be more. The latest change stays: its number determines the next one.
	ExpireAudit(ctx context.Context, keep Retention) (more bool, err error)
	Close() error
}

// Hint is a notice of a change that nodes should act on at once. It may be lost, duplicated or
// late: only latency depends on it, and the time to notice a database's losses after an outage.
// With combines hints.
type Hint uint64

// The subjects of a hint, as bits that can be combined.
const (
	HintJobs    Hint = 1 << iota // a job or another document was changed
	HintRuns                     // a run is ready, or must be placed, before the next poll
	HintCancels                  // a running attempt must end
	HintPlaced                   // runs of nodes may be due before their next poll
	HintNodes                    // a node accepts no more runs, or accepts them again
	HintLost                     // the database was away: earlier acknowledged changes may be lost
)

// HintAny is set with [HintJobs] and [HintCancels] that may concern any job and run. So may a hint
// without HintAny and [HintAbout].
const HintAny Hint = math.MaxUint64 &^ (1<<hintKinds - 1)

const (
	// hintKinds is the number of bits for the subjects of a hint; the other bits are a Bloom filter
	// of the jobs and runs, each of which sets hintHashes bits. The rate of false positives is 1 in
	// 40,000 for a single job or run, and 1 in 200 for four at once.
	hintKinds  = 8
	hintBits   = 64 - hintKinds
	hintHashes = 4
)

// HintAbout is added to [HintJobs] for the changed jobs, and to [HintCancels] for the cancelled
// runs, so that only nodes that have them poll.
func HintAbout(id job.ID) (h Hint) {
	f := fnv.New64a()
	_, _ = f.Write(id[:]) // a hash never fails
	for sum, n := f.Sum64(), 0; n < hintHashes; n++ {
		h |= 1 << (hintKinds + sum%hintBits)
		sum /= hintBits
	}
	return h
}

// MayConcern reports whether a hint may concern a job or a run.
func (h Hint) MayConcern(id job.ID) bool {
	about := HintAbout(id)
	return h&HintAny == 0 || h&about == about
}

// With returns the union of two hints.
func (h Hint) With(other Hint) Hint {
	both := h | other
	if both&HintAny != 0 && (h.isAboutAny() || other.isAboutAny()) {
		both |= HintAny
	}
	return both
}

// isAboutAny reports whether a hint without [HintAny] concerns any job or run.
func (h Hint) isAboutAny() bool { return h&(HintJobs|HintCancels) != 0 && h&HintAny == 0 }

// Event is a change, for followers. A reader that reads the state after Events has
// returned, and then applies the events, misses no change.
type Event struct {
	// Kind is the kind of event: the action of an audit record; for a run "run." and its
	// new state, as [RunEvent] writes it; for a node "node." and its state, which stores do
	// not report: it depends on the time.
	Kind string
	Time time.Time // by the store's clock
	// One of these is the subject. A [Record] comes with the end of a run.
	Audit   *AuditRecord // without Seq
	Run     *Run
	Record  *Record
	Session *Session
}

// EventLost is the kind of the event in place of events that a slow receiver has lost.
const EventLost = "lost"

// RunEvent returns the kind of event for a run that enters a state.
func RunEvent(s job.RunState) string { return "run." + string(s) }

// Job is a job in a store. The values behind its pointers are shared and never changed.
type Job struct {
	// Definition is the user's definition, with uid, version, epoch and status.
	Definition *job.Job
	// Filled is the definition with all defaults filled in.
	Filled *job.Job
	// Cursor is the latest planned scheduled time, or the moment of creation if nothing is
	// planned. A job whose runs follow from other runs or from requests does not use it:
	// PutJobs creates the first run of a chain with after_end.
	Cursor time.Time
	// Planned counts the scheduled occurrences that have become runs, for
	// max_runs.
	Planned int
	Deleted bool
}

// PlannedJob is the planner's copy of a job.
type PlannedJob struct {
	UID            job.ID
	Epoch, Version int64
	Cursor         time.Time
	Planned        int
	// Active is set for a job that can fall due, not for a paused, completed or deleted one.
	Active, Deleted bool
	// Timing determines when the job is due and where it is placed, as engine.TimingText
	// writes it when the job is stored. Jobs with the same text share their compiled
	// schedule.
	Timing string
}

// JobCursor is the part of a [PlannedJob] that a plan moves. An epoch begins with the values
// in the feed of changes, and both only grow until the next epoch.
type JobCursor struct {
	UID     job.ID
	Epoch   int64
	Cursor  time.Time
	Planned int
}

// Refill is the progress of a store that was opened with other defaults than before, and
// rewrites the values that depend on them.
type Refill struct {
	Jobs            int // number at the beginning; 0 if counting took too long
	Looked, Changed int // of them
	Took            time.Duration
	// Over is set when all values are rewritten, Superseded when the refill stopped because another
	// server has started with newer defaults.
	Over, Superseded bool
	// Err is why the refill is stalled. It is retried.
	Err error
}

// Ends are the attempts ended by one commit of this process, for its log and its metrics. If
// several processes share a store, only one of them reports each end.
type Ends struct {
	// Records are the records of these attempts. They must not be changed.
	Records []*Record
	// Paused are the pauses by pause_on_failure.
	Paused []AuditRecord
}

// Jobs keeps the definitions of jobs.
type Jobs interface {
	// PutJobs creates and changes jobs and writes their revisions and audit records, all or
	// none in one step. A change of the schedule, a pause and a resume begin a new epoch:
	// runs planned in older ones never start, and the cursor becomes the later of the
	// store's now and the latest scheduled time that was ever claimed or settled. A
	// definition with the same content changes nothing. If one is refused, the error is an
	// [ItemError]: [ErrExists], [ErrNotFound] and [ErrConflict] concern IfVersion; [ErrCycle] refuses
	// a job that would follow itself through others. Jobs may follow others in the list; a
	// duplicate is an [ErrConflict]. More than [PutMax] are [ErrTooMany].
	PutJobs(ctx context.Context, list []PutJob) ([]*Job, error)
	// JobsNamed returns at most [MaxBatch] jobs by full name, in the same order, with nil
	// for unknown names.
	JobsNamed(ctx context.Context, names []string) ([]*Job, error)
	// JobsByUID returns at most [MaxBatch] jobs, in the same order, with nil for unknown ones.
	// Deleted jobs are known as long as their tombstone is kept.
	JobsByUID(ctx context.Context, uids []job.ID) ([]*Job, error)
	// ListJobs returns jobs in the order of their full names, and the name to continue
	// after, which is empty at the end. A call examines [JobLookMax] jobs: a selective query
	// may return fewer than its limit, even none, before the end.
	ListJobs(ctx context.Context, q JobQuery) (list []*Job, next string, err error)
	// Followers returns jobs that follow a job by its full name, whether it exists or not, and
	// whether there are more. They are ordered by uid, beginning behind after: the index of SQL
	// stores has that order, not the order of names. Deleted jobs follow no job.
	Followers(ctx context.Context, upstream string, after job.ID, limit int) (list []*Job, more bool, err error)
	// DeleteJob removes a job. Its planned runs never start; running ones continue to their
	// end. Deleting a deleted job again changes nothing.
	DeleteJob(ctx context.Context, d DeleteJob) error
	// RestoreJob brings back a job that was deleted in the last [TombstoneLife], under its uid, as it
	// was when it was deleted. Nothing that fell due meanwhile is made up for. The error is
	// [ErrNotFound] if the job is forgotten, [ErrExists] if its name was taken, and [ErrCycle] if jobs
	// that it follows now follow it. Restoring a job that is there changes nothing.
	RestoreJob(ctx context.Context, r RestoreJob) (*Job, error)
	// Revisions returns the definitions that a job has had, the latest first: as many as
	// the store is configured to keep, by default [RevisionsDefault]. New ones replace older
	// ones.
	Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]Revision, error)
	// JobsChanged returns the planner's copies of the jobs in the given partitions that
	// changed after a sequence number, in the order of change, deleted ones included, and
	// the number to continue from. It misses no change: numbers follow the order in which
	// changes become visible. A planner with a million jobs starts with it, so it decodes
	// no definitions.
	JobsChanged(ctx context.Context, partitions Partitions, since int64, limit int) (changed []PlannedJob, next int64, err error)
	// Cursors returns the cursors of at most [MaxBatch] jobs, without unknown ones, in any order. It
	// is for a planner that has the other data of these jobs.
	Cursors(ctx context.Context, uids []job.ID) ([]JobCursor, error)
	// Summary returns the number of jobs that can fall due, and the sum of their versions,
	// in each partition, for comparison with a planner's copy.
	Summary(ctx context.Context) ([job.Partitions]PartitionSummary, error)

	// Audit returns records of changes, the latest first, and the sequence number to
	// continue before, which is 0 at the end. A call examines [LookMax] records: a selective
	// query may return fewer than its limit, even none, before the end.
	Audit(ctx context.Context, q AuditQuery) (list []AuditRecord, next int64, err error)
}

// AnyVersion as IfVersion creates or replaces, whatever the current version.
const AnyVersion = -1

// PutJob is a definition to create or change.
type PutJob struct {
	// Definition may be kept by the store, except its own fields: the caller never changes the
	// values behind its pointers after the call.
	Definition *job.Job
	// IfVersion is the version to replace: 0 for a new job, or [AnyVersion].
	IfVersion int64
	// New refuses a job that exists with [ErrExists], even one with the same definition, which
	// without New counts as a repeated request.
	New bool
	// Pause is set for a paused definition: author, reason and end.
	Pause Pause
	// CatchUp is a resume's treatment of the pause: "" or none continues from now; latest
	// and all catch up on the missed occurrences, like the job's policy of that name, in
	// the same step.
	CatchUp job.Missed
	Actor   string
	// Origin is where the change comes from, for the audit; zero for the origin in the context.
	Origin Origin
}

// Pause says why a job is paused.
type Pause struct {
	By     string
	Reason job.Reason
	Until  time.Time // zero: until resumed
}

// DeleteJob names a job to remove.
type DeleteJob struct {
	UID       job.ID
	IfVersion int64 // or AnyVersion
	Actor     string
	Reason    job.Reason // for the audit
}

// DeletedUID is the path of the change in the audit record of a deletion that has the uid of the job.
const DeletedUID = "uid"

// RestoreJob names a deleted job to bring back.
type RestoreJob struct {
	UID   job.ID
	Actor string
}

// JobLookMax is the number of jobs that one call of ListJobs examines within the namespace of the
// query, or within the jobs due at boot or the paused jobs if it asks for these. All stores index
// these. It bounds the time of a query without results: less than five milliseconds, for any number of
// jobs.
const JobLookMax = 1000

// JobQuery selects jobs.
type JobQuery struct {
	Namespace string            // "" for all
	Labels    map[string]string // all must match
	Text      string            // in the name, title or description
	State     job.JobState      // "" for all
	Work      job.Work          // "" for all
	Boot      bool              // only jobs due at the start of a node
	After     string            // the full name before the list
	Limit     int
}

// Revision is a definition that a job has had.
type Revision struct {
	Version    int64
	Changed    time.Time
	Actor      string
	Definition *job.Job
}

// PartitionSummary is compared with a planner's copy.
type PartitionSummary struct {
	Jobs     int
	Versions int64
}

// Partitions is a set of partitions.
type Partitions [job.Partitions / 64]uint64

// AllPartitions is the set of all partitions.
var AllPartitions = Partitions{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

// Add puts a partition into the set.
func (p *Partitions) Add(n uint8) { p[n>>6] |= 1 << (n & 63) }

// Has reports whether a partition is in the set.
func (p *Partitions) Has(n uint8) bool { return p[n>>6]>>(n&63)&1 != 0 }

// Len returns how many partitions are in the set.
func (p *Partitions) Len() (n int) {
	for _, some := range p {
		n += bits.OnesCount64(some)
	}
	return n
}

// Without returns the partitions of the set that are not in another.
func (p *Partitions) Without(other Partitions) (left Partitions) {
	for i := range p {
		left[i] = p[i] &^ other[i]
	}
	return left
}

// AuditRecord is one change and its author.
type AuditRecord struct {
	Seq     int64
	Time    time.Time
	Actor   string
	Action  string // such as "job.change"
	Object  string // such as "default/nightly-report"
	Version int64
	Detail  job.Reason // never a secret
	// Changes are the differences of a changed definition.
	Changes []Change
	// Origin is the origin of the change; empty for Belfry's own changes.
	Origin Origin
}

// Origin is where a change came from.
type Origin struct {
	Client  string // the kind of client: cli, ui, api or mcp; "" for a Go program
	Address string // address of the calling machine
	Group   string // common to several changes of one request
}

type originKey struct{}

// WithOrigin returns a context that gives changes an origin in the audit.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns the origin of a context.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}

// Change is the difference in one field of a definition. Texts are verbatim, other values
// in JSON; a missing value is empty. Long values are cut, and likely secrets hidden.
type Change struct {
	Path   string `json:"path"` // such as "schedule.cron"
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// AuditQuery selects records of changes. All set fields must match.
type AuditQuery struct {
	Namespace string    // of the object
	Object    string    // the full name, or the name of a token
	Actor     string    // name of a token
	Action    string    // such as "job.change", or its first part: all changes of jobs
	Group     string    // changes of one request
	From, To  time.Time // To is excluded
	Before    int64     // the list has smaller sequence numbers; 0 begins with the latest
	Limit     int
}
