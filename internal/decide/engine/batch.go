package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Batch is one atomic step of a store. The store adds the inputs of the decisions, calls them, and
// writes [Changes]: all of it or nothing.
//
// The batch owns and changes the added data, so that a decision sees the effects of earlier ones in
// the batch. Data that was not added does not exist for it. Each decision documents its needs; all
// that may end a run ([Claim], [Release], [Finish], [Cancel], Settle and [Reap]) need:
//
//   - the run, its job, and all sessions;
//   - where Policy.Contends says so, the members of the run's slot and of the slot in its present
//     policy (Policy.SlotKey): all that hold it, the first MaxBatch that wait for it, by due time
//     and id, and the first MaxBatch that are ready for it; MoreWaiting is the number of further
//     waiting ones;
//   - the unfinished runs of the job, where its policy has NeedsPrevious, a
//     DeleteAfter that is not negative, or MaxRuns and PauseOnFailure;
//   - the other shards of a run, where Policy.WantsShards says so.
//
// A Batch is used by one goroutine.
type Batch struct {
	now       time.Time
	lookAhead time.Duration

	jobs      map[job.ID]*Job
	runs      map[job.ID]*member
	bySlot    map[string][]*member
	byJob     map[job.ID][]*member
	more      map[string]int
	pools     map[string]pool
	sessions  map[job.ID]*store.Session
	followers map[string][]*Job
	keys      map[Identity]job.ID
	records   map[recordKey]*store.Record

	order    []*member // created, changed or removed runs
	added    []*member // all runs, in the order of adding
	spare    []*member // members of earlier steps, for reuse
	lists    []*member // room for the first member of each list in bySlot and byJob
	done     Changes
	unplaced int // number of runs left unplaced
	// reporter is the session that reports the results, zero for none, and handed are the
	// runs that became ready for it by the latest result.
	reporter job.ID
	handed   []store.ReadyRun
	// onlyUnitsEnd is set for operations that end flows only by the ends of their units, and
	// startsSteps for claims of steps only.
	onlyUnitsEnd, startsSteps bool
	// absent are the absences known from the sessions, computed on demand.
	absent      []store.Absence
	absentKnown bool

	handovers  handovers
	backfilled map[job.ID]*backfillAudit // nil until a backfill
	// handRequests has the requests by hand for several shares that have a record.
	handRequests map[Identity]bool

	// origin is the origin of the batch's changes.
	origin store.Origin

	// facts is the data requested by needs.
	facts facts
	// reuseMemory is set if Reset may change the result of [Changes].
	reuseMemory bool
	// poolStep is how many runs of a pool one step starts or ends that are not its own: 0 is
	// [store.MaxBatch].
	poolStep int
	// ownFlows are compiled flows by their definitions in JSON, cached between steps.
	ownFlows map[string]*Flow
}

// Changes is the data that a store writes after the decisions of a batch.
type Changes struct {
	Made    []*store.Run // new
	Saved   []*store.Run // changed
	Removed []*store.Run // ended; Records has their outcomes
	Given   []*store.Run // those among the saved ones that have other parameters
	// Records are new in history; Replaced replace records of the same run and attempt.
	Records  []*store.Record
	Replaced []*store.Record
	// Jobs have a changed state. If Version changed, the store writes the definition, its
	// revision and its place in the feed of changes; if only State or Epoch did, its place
	// in the feed.
	Jobs  []*Job
	Keys  []Key
	Audit []store.AuditRecord // without Seq
	// Reaped are sessions that are over because a run was reaped.
	Reaped []job.ID
	Hints  store.Hint

	// Output is the output of accepted results.
	Output []store.OutputChunk
	// Documents and Tokens are created, or replace others of the same name. Dropped ones are
	// deleted.
	Documents []job.Document
	Tokens    []store.Token
	Dropped   []Dropped
	// Notes replace notes of their Version, 0 for a new one. An empty Text removes the note.
	Notes []store.Note
	// Sessions begin, or replace others of the same id. Ended ones are removed.
	Sessions []*store.Session
	Ended    []job.ID
	// Fill are slots that may be free for runs that the step has not read: [FillSlots] follows.
	Fill []SlotNeed
	// Turns are the moved turns of lines.
	Turns []LineTurn
	// HandOn are sessions all of whose ready runs become unassigned.
	HandOn []job.ID
	// Drains are set, or removed where the Drain is nil.
	Drains []NodeDrain
	// Handovers are new, or replace others of the same number. [AskNow] are runs whose open
	// handovers must be polled now. Number is the last reserved number, if it is not 0.
	Handovers []*store.Handover
	AskNow    []AskNow
	Number    int64
}

// AskNow sets Handover.Ask of the handovers of a run that have not ended.
type AskNow struct {
	Run, Job job.ID
	At       time.Time
}

// Dropped names a deleted document by its full name, or a token.
type Dropped struct {
	Kind job.Kind // "" means a token
	Name string
}

// NodeDrain is the stored drain of a node.
type NodeDrain struct {
	Node  string
	Drain *store.Drain
}

// Job is the state of a job for decisions.
type Job struct {
	UID             job.ID
	Namespace, Name string
	Version, Epoch  int64
	EpochWhy        job.Reason // why the present epoch began
	State           job.JobState
	Deleted         bool
	Policy          *Policy

	Cursor time.Time
	// Floor is the latest scheduled time ever claimed or settled. A new epoch does not go
	// back before it.
	Floor time.Time
	// Planner is the session that last moved the cursor, so that a repeated call gets the
	// same result.
	Planner job.ID
	Planned int

	PausedAt, PausedUntil time.Time
	PausedBy              string
	PauseReason           job.Reason
	Completed             time.Time
	// Failures counts the failed runs since the last success, for
	// pause_on_failure.
	Failures int
	// Previous is the latest scheduled time of an occurrence that ended by running, and whether it
	// succeeded, for needs_previous. PreviousFailed are its failed shards.
	Previous       time.Time
	PreviousOK     bool
	PreviousFailed Shards

	// Created and Changed are when the job was created, and when planners and users last
	// had to be notified.
	Created, Changed time.Time
	// Document is the document of the present version.
	Document *Document

	changed bool
	adopted bool // copied from another store, with Changed from there
	was     was
}

// was is the original value of the state that determines notifications.
type was struct {
	version, epoch int64
	state          job.JobState
	deleted        bool
	document       *Document
}

// FullName returns "namespace/name".
func (j *Job) FullName() string { return j.Namespace + "/" + j.Name }

// Identity identifies a run among all runs: creating it twice yields one run.
type Identity struct {
	Job   job.ID
	Kind  job.RunKind
	Key   string
	Shard int
}

// Key keeps the identity of a requested run for some time after its end.
type Key struct {
	Identity
	Run     job.ID
	Expires time.Time
}

type recordKey struct {
	run    job.ID
	number int
}

// member is a run in a batch.
type member struct {
	store.Run
	isNew, saved, removed bool
	flow                  *flowRun     // of a begun flow, once it is decoded
	value                 []byte       // the result of an ending step
	quiet                 bool         // the caller decides about the consequences of its end
	around                bool         // the inputs of decisions about it are loaded
	mayEnd, mayStop       bool         // for a flow: one of its units, or all, may end in this step
	redated               bool         // a turn was given to it in this step: the runs before it may not be loaded
	was                   job.RunState // its state when it was added; "" for a new run
}

// NewBatch begins a step at a moment of the store's clock, with room for a number of
// decisions.
func NewBatch(now time.Time, lookAhead time.Duration, room int) *Batch {
	return &Batch{
		now:       now,
		lookAhead: lookAhead,
		jobs:      make(map[job.ID]*Job, room),
		runs:      make(map[job.ID]*member, room),
		bySlot:    make(map[string][]*member, room),
		byJob:     make(map[job.ID][]*member, room),
		records:   make(map[recordKey]*store.Record, room),
	}
}

// resetMax is the most runs of a batch whose maps are reused: larger maps would be slow
// to clear for each small step.
const resetMax = 1024

// ReuseMemory declares that no data of a step is used after it, not even the result of [Changes].
func (b *Batch) ReuseMemory() { b.reuseMemory = true }

// PoolStep bounds how many runs of a pool a step starts or ends besides its own: each may belong to
// another job, and a store may compare all these jobs at once.
func (b *Batch) PoolStep(most int) { b.poolStep = most }

// Reset begins another step, in place of [NewBatch]. Unless the batch is Fleeting, the result
// of [Changes] of the previous step may still be in use.
func (b *Batch) Reset(now time.Time) {
	if len(b.runs) > resetMax {
		guarded, fleeting, poolStep, ownFlows := b.facts.guarded, b.reuseMemory, b.poolStep, b.ownFlows
		*b = *NewBatch(now, b.lookAhead, 0)
		b.facts.guarded, b.reuseMemory, b.poolStep, b.ownFlows = guarded, fleeting, poolStep, ownFlows
		return
	}
	for _, m := range b.added {
		if !m.saved || b.reuseMemory {
			b.spare = append(b.spare, m)
		}
	}
	clear(b.jobs)
	clear(b.runs)
	clear(b.bySlot)
	clear(b.byJob)
	clear(b.more)
	clear(b.pools)
	clear(b.followers)
	clear(b.keys)
	clear(b.records)
	clear(b.order)
	clear(b.added)
	clear(b.lists)
	b.facts.reset()
	*b = Batch{
		facts: b.facts, reuseMemory: b.reuseMemory, poolStep: b.poolStep, ownFlows: b.ownFlows,
		now: now, lookAhead: b.lookAhead, jobs: b.jobs, runs: b.runs, bySlot: b.bySlot, byJob: b.byJob,
		more: b.more, pools: b.pools, followers: b.followers, keys: b.keys, records: b.records,
		order: b.order[:0], added: b.added[:0], spare: b.spare, lists: b.lists[:0],
	}
}

// Now returns the moment of the step.
func (b *Batch) Now() time.Time { return b.now }

// At sets the moment of the step, before any decision.
func (b *Batch) At(now time.Time) { b.now = now }

// AddJob adds a job and returns the batch's copy, which differs if the job was added before.
func (b *Batch) AddJob(j *Job) *Job {
	if known := b.jobs[j.UID]; known != nil {
		return known
	}
	j.changed, j.adopted = false, false // set by its previous batch
	j.was = was{j.Version, j.Epoch, j.State, j.Deleted, j.Document}
	b.jobs[j.UID] = j
	b.facts.splits = b.facts.splits || j.Document != nil && j.Policy != nil && j.Policy.Split != ""
	return j
}

// Job returns a job that was added, nil if it was not.
func (b *Batch) Job(uid job.ID) *Job { return b.jobs[uid] }

// AddFollower adds a job whose schedule.on names the upstream.
func (b *Batch) AddFollower(upstream string, j *Job) {
	j = b.AddJob(j)
	if !slices.Contains(b.followers[upstream], j) {
		put(&b.followers, upstream, append(b.followers[upstream], j))
	}
}

// AddRun adds a copy of an unfinished run. An existing one stays unchanged.
func (b *Batch) AddRun(r *store.Run) {
	if b.runs[r.ID] == nil {
		b.add(r).was = r.State
	}
}

// HasRun reports whether a run was added.
func (b *Batch) HasRun(id job.ID) bool { return b.runs[id] != nil }

// add adds a copy of a run.
func (b *Batch) add(r *store.Run) *member {
	var m *member
	if last := len(b.spare) - 1; last >= 0 {
		m, b.spare = b.spare[last], b.spare[:last]
	} else {
		m = &member{}
	}
	*m = member{Run: *r}
	b.runs[m.ID] = m
	b.bySlot[m.Slot] = b.list(b.bySlot[m.Slot], m)
	b.byJob[m.JobUID] = b.list(b.byJob[m.JobUID], m)
	b.added = append(b.added, m)
	return m
}

// listRoom is the number of members that a list holds without an allocation: enough for most slots
// and jobs.
const listRoom = 4

// list adds a member to one of the lists of the step.
func (b *Batch) list(list []*member, m *member) []*member {
	if list == nil {
		n := len(b.lists)
		if n+listRoom > cap(b.lists) {
			b.lists, n = make([]*member, 0, max(16*listRoom, 2*cap(b.lists))), 0
		}
		b.lists = b.lists[:n+listRoom]
		list = b.lists[n:n:len(b.lists)]
	}
	return append(list, m)
}

// MoreWaiting sets how many further runs wait for a slot, without those with an overlap
// policy of their own.
func (b *Batch) MoreWaiting(slot string, n int) { put(&b.more, slot, n) }

// AddPool adds a pool or a line by its name in a slot, with its limits as declared and the next turn of
// a line. What is known already stays: the step may have moved the turn.
func (b *Batch) AddPool(name string, slots *job.Slots, turn time.Time) {
	was := b.pools[name]
	if len(was.by) > 0 {
		turn = was.turn
	}
	put(&b.pools, name, pool{slots, turn, was.by})
}

// AddSession adds a session, which the batch does not change.
func (b *Batch) AddSession(s *store.Session) { put(&b.sessions, s.ID, s) }

// UseSessions adds all sessions as a map, which the batch neither changes nor extends.
func (b *Batch) UseSessions(all map[job.ID]*store.Session) { b.sessions = all }

// AddKey adds a taken identity with its run, which may have ended.
func (b *Batch) AddKey(id Identity, run job.ID) { put(&b.keys, id, run) }

// put adds to a map that most batches do not need, and creates it at the first use.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// AddRecord adds a copy of a finished attempt. An existing one stays unchanged.
func (b *Batch) AddRecord(r *store.Record) {
	if key := (recordKey{r.Run.ID, r.Attempt.Number}); b.records[key] == nil {
		rec := *r
		b.records[key] = &rec
	}
}

// Changes returns the changes of all decisions.
func (b *Batch) Changes() Changes {
	for _, j := range b.done.Jobs {
		b.settleDocument(j)
	}
	c := b.done
	c.Turns = b.turns()
	for _, m := range b.order {
		m.settleFlow()
		b.setAlert(m)
		switch {
		case m.isNew && m.removed: // created and ended in this step: only its record remains
		case m.isNew:
			c.Made = append(c.Made, &m.Run)
		case m.removed:
			c.Removed = append(c.Removed, &m.Run)
		default:
			c.Saved = append(c.Saved, &m.Run)
		}
	}
	return c
}

// jobOf returns the job of a run. An unknown job is a deleted one.
//
// The job of a step's run has the policy of the step.
func (b *Batch) jobOf(r *store.Run) *Job {
	j := b.job(r.JobUID)
	switch {
	case j != nil && isStep(&r.Run):
		own := *j
		own.Policy = b.policyOfStep(r)
		return &own
	case j != nil:
		return j
	}
	return &Job{UID: r.JobUID, Namespace: r.Namespace, Name: r.Name, Deleted: true, Policy: &Policy{}}
}

func (b *Batch) saveJob(j *Job) {
	if !j.changed {
		j.changed = true
		b.done.Jobs = append(b.done.Jobs, j)
	}
}

func (b *Batch) save(m *member) {
	if !m.saved {
		m.saved = true
		b.order = append(b.order, m)
	}
}

func (b *Batch) makeRun(r store.Run) {
	m := b.add(&r)
	m.isNew = true
	b.save(m)
}

func (b *Batch) remove(m *member) {
	m.removed = true
	b.save(m)
}

// moveSlot gives another slot to a run that holds none.
func (b *Batch) moveSlot(m *member, key string) {
	if m.Slot == key || m.HoldsSlot {
		return
	}
	b.bySlot[m.Slot] = slices.DeleteFunc(b.bySlot[m.Slot], func(o *member) bool { return o == m })
	m.Slot = key
	b.bySlot[key] = append(b.bySlot[key], m)
	b.save(m)
}

// Audit adds an audit record of a change by the store.
func (b *Batch) Audit(actor, action, object string, version int64, changes ...store.Change) {
	b.audit(actor, action, object, version, job.Reason{}, changes...)
}

func (b *Batch) audit(actor, action, object string, version int64, detail job.Reason, changes ...store.Change) {
	r := store.AuditRecord{Time: b.now, Actor: actor, Action: action, Object: object, Version: version, Detail: detail, Changes: changes}
	if actor != System {
		r.Origin = b.origin
	}
	b.done.Audit = append(b.done.Audit, r)
}

// From sets the origin of the batch's changes for the audit. Reset clears it.
func (b *Batch) From(o store.Origin) { b.origin = o }

// newID returns the id of a derived object. It is a hash, so that a repeated step creates
// the same objects.
func (b *Batch) newID(purpose string, from job.ID, with job.ID, n int) job.ID {
	return idAt(b.now, purpose, from, with, n)
}

func idAt(at time.Time, purpose string, from job.ID, with job.ID, n int) job.ID {
	text := append(append(append(make([]byte, 0, 64), purpose...), from[:]...), with[:]...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(n)))
	var id job.ID
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	copy(id[6:], sum[:])
	return id
}

// before reports whether a run is due before another; ids decide between equals.
func before(a, b *store.Run) bool {
	return a.Ref().Compare(b.Ref()) < 0
}

// System is the actor of Belfry's own changes.
const System = "belfry"

// poolSlot begins the slot keys of pools.
const poolSlot = "pool "

// free returns how many more runs may take a run's slot: the rest of the pool or of max_parallel.
// Runs of a job whose overlap is allow are not bounded, except backfills with a policy of their
// own, which are counted separately.
func (b *Batch) free(r *store.Run) int {
	if name, ok := strings.CutPrefix(r.Slot, poolSlot); ok {
		if IsLine(name) {
			return b.freeTurns(r.Slot)
		}
		return b.poolSize(name) - b.holders(r.Slot)
	}
	p := b.jobOf(r).Policy
	switch {
	case p.Overlap != job.OverlapAllow:
		return max(1, p.MaxParallel) - b.holders(r.Slot)
	case p.overlap(r) == job.OverlapAllow:
		return math.MaxInt
	}
	n := 1
	for _, m := range b.slot(r.Slot) {
		if !m.removed && m.HoldsSlot && m.Overlap != "" && m.Overlap != job.OverlapAllow {
			n--
		}
	}
	return n
}

// holders returns how many runs hold a slot.
func (b *Batch) holders(key string) (n int) {
	for _, m := range b.slot(key) {
		if !m.removed && m.HoldsSlot {
			n++
		}
	}
	return n
}

// fill gives a slot to the runs waiting for it, earliest due first, until it is full.
//
// The batch has only the first waiting runs. If none of these can start, or the step would start
// more than a store writes at once, another step follows: see [FillSlots]. A run gets its slot here
// or in take, and both check free.
func (b *Batch) fill(key string) {
	var last *member // the last run that got the slot
	for given := 0; ; given++ {
		var next, over *member
		for _, m := range b.slot(key) {
			switch {
			case !b.waits(m):
				if !m.removed && m.State == job.StateWaiting && !m.AwaitsPrevious && !isStep(&m.Run.Run) {
					over = m
				}
			case next == nil || before(&m.Run, &next.Run):
				next = m
			}
		}
		switch {
		case given == b.fillMax(key):
			b.fillLater(last)
			return
		case next == nil && over != nil && !b.jobOf(&over.Run).Policy.Reported && b.free(&over.Run) > 0:
			b.fillLater(over)
			return
		case next == nil || b.free(&next.Run) <= 0:
			return
		}
		last = next
		if name, pooled := PoolOfSlot(key); pooled && IsLine(name) {
			b.giveTurn(next)
			continue
		}
		next.State, next.HoldsSlot, next.Reason = job.StateReady, true, job.Reason{}
		b.save(next)
		if !b.handTo(&next.Run) {
			b.done.Hints |= store.HintRuns
		}
	}
}

// fillMax is how many runs of a slot one step starts or ends that are not its own.
func (b *Batch) fillMax(key string) int {
	if b.poolStep > 0 && IsShared(key) {
		return b.poolStep
	}
	return store.MaxBatch
}

// fillLater requests another step about the slot that a run waits for.
func (b *Batch) fillLater(m *member) {
	if !slices.ContainsFunc(b.done.Fill, func(s SlotNeed) bool { return s.Key == m.Slot }) {
		b.done.Fill = append(b.done.Fill, SlotNeed{Key: m.Slot, Job: m.JobUID})
	}
}

// handTo hands a run that has become ready to the reporting session, if it is assigned there, which
// saves that session a poll and the other nodes a hint.
func (b *Batch) handTo(r *store.Run) bool {
	if r.Session.IsZero() || r.Session != b.reporter {
		return false
	}
	b.handed = append(b.handed, r.Ready())
	return true
}

// hint notifies nodes of a run that may be due before their next poll: at once or within a moment.
func (b *Batch) hint(due time.Time) {
	switch {
	case !due.After(b.now):
		b.done.Hints |= store.HintRuns
	case !due.After(b.now.Add(store.ClaimAhead)):
		b.done.Hints |= store.HintRuns | store.HintPlaced
	}
}

// waits reports whether a run waits for its slot and may still get it.
func (b *Batch) waits(m *member) bool {
	if m.removed || m.State != job.StateWaiting || m.AwaitsPrevious || isStep(&m.Run.Run) || b.tooLate(&m.Run) || b.jobOf(&m.Run).Policy.Reported {
		return false
	}
	_, yes := withdrawn(b.jobOf(&m.Run), &m.Run)
	return !yes || b.job(m.JobUID) == nil
}

// tooLate reports whether it is too late for the first attempt of a run.
func (b *Batch) tooLate(r *store.Run) bool {
	return r.First.IsZero() && !r.LateAfter.IsZero() && b.now.After(r.LateAfter)
}

// withdrawn reports whether a run is withdrawn, and why.
//
// Every claim checks this, in the step that starts the attempt. A manual run is withdrawn only by
// the deletion of its job, a follower or a backfill also by a pause, any other run by a new epoch.
func withdrawn(j *Job, r *store.Run) (why job.Reason, yes bool) {
	paused := j.State == job.JobPaused
	switch {
	case isStep(&r.Run), isFlow(r):
		return why, false // a step ends with its flow
	case j.Deleted:
		return reason.JobDeleted.Of(""), true
	case r.Kind == job.RunByHand:
		return why, false
	case paused:
		return reason.JobPaused.Of(j.PausedBy, j.PauseReason), true
	case r.Kind == job.RunOn || r.Kind == job.RunByFlow || r.Kind == job.RunBackfill || r.Epoch == j.Epoch:
		return why, false
	}
	return j.whyWithdrawn(r.Epoch), true
}

// whyWithdrawn explains why runs of an epoch are withdrawn. Only the latest change is
// known: a resume comes after a pause, and other changes are counted.
func (j *Job) whyWithdrawn(epoch int64) job.Reason {
	n := j.Epoch - epoch
	switch {
	case j.EpochWhy.IsZero():
		return reason.Rescheduled.Of()
	case n == 1 || n == 2 && reason.JobResumed.Is(j.EpochWhy):
		return j.EpochWhy
	}
	return reason.RescheduledOft.Of(int(n), j.EpochWhy)
}

// KeyOf returns the key of a scheduled time.
func KeyOf(scheduled time.Time) string { return scheduled.UTC().Format(time.RFC3339Nano) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
