package engine

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Need is the data that a decision reads, and that a store must therefore load. The zero
// value needs nothing. It has no duplicates.
//
// A store adds the existing data (Add...) and calls [Batch.Answered]: needed data that was
// not added does not exist. A store may add more than requested, and declares what that
// completes (HasSlot, HasWhole, HasFollowers).
type Need struct {
	// Jobs are jobs by uid, including deleted ones, and [Names] undeleted jobs by full name.
	Jobs  []job.ID
	Names []string
	// Runs are unfinished runs.
	Runs []RunRef
	// Whole are jobs with all their unfinished runs, and Waiting jobs with their waiting
	// and running ones.
	Whole, Waiting []job.ID
	Slots          []SlotNeed
	// Upstreams are full names of jobs whose followers are needed (AddFollower). Follows
	// are full names of jobs whose upstreams are needed (AddFollows).
	Upstreams, Follows []string
	// Keys are identities of requests, Records are finished runs.
	Keys    []Identity
	Records []RunRef
	// Sessions requests all sessions. Judges is set if some may end: no session is renewed until
	// the end of the step.
	Sessions, Judges bool
	// Handovers are handovers by number, and HandedOver runs whose open handovers are
	// needed (AddHandover). Number requests the last reserved number (UseNumber).
	Handovers  []int64
	HandedOver []RunRef
	Number     bool
	// Running are sessions to check for running attempts (AddRunning).
	Running []job.ID
	// Documents are kinds whose documents are all needed (UseDocuments), and Naming full names of
	// calendars whose jobs are needed (AddNaming).
	Documents []job.Kind
	Naming    []string
	// Tokens and Drains request all tokens and drains, and Windows the windows (UseWindows).
	Tokens, Drains, Windows bool
	// Notes are names of notes whose versions are needed (AddNote).
	Notes []string
	// Executors requests the executors of XXL-JOB that are registered or listed
	// (UseExecutors).
	Executors bool

	asked needIndex
}

// RunRef names a run. Job is the job of the run if the caller knows it, zero otherwise.
type RunRef struct{ Run, Job job.ID }

// SlotNeed requests the members of a slot: the runs that hold it, the first [store.MaxBatch]
// that wait for it, by due time and id, and the first [store.MaxBatch] that are ready for it
// and due no later than Until. [Batch.MoreWaiting] sets how many more wait. For the slot of a
// pool, its size is needed as well (AddPool).
type SlotNeed struct {
	Key string
	// Job is set if the slot belongs to one job, whose runs alone use it.
	Job   job.ID
	Until store.RunRef
}

// Empty reports whether no data is needed.
func (n *Need) Empty() bool {
	return len(n.Jobs)+len(n.Names)+len(n.Runs)+len(n.Whole)+len(n.Waiting)+len(n.Slots)+len(n.Upstreams)+len(n.Follows)+
		len(n.Keys)+len(n.Records)+len(n.Running)+len(n.Naming)+len(n.Handovers)+len(n.HandedOver)+len(n.Notes)+len(n.Documents) == 0 &&
		!n.Number && !n.Executors && !n.Sessions && !n.Judges && !n.Tokens && !n.Drains && !n.Windows
}

// Reset makes a need empty, to be filled again.
func (n *Need) Reset() {
	n.asked.clear()
	*n = Need{
		Jobs: n.Jobs[:0], Names: n.Names[:0], Runs: n.Runs[:0], Whole: n.Whole[:0], Waiting: n.Waiting[:0], Slots: n.Slots[:0],
		Upstreams: n.Upstreams[:0], Follows: n.Follows[:0], Keys: n.Keys[:0], Records: n.Records[:0], Running: n.Running[:0], Naming: n.Naming[:0],
		Handovers: n.Handovers[:0], HandedOver: n.HandedOver[:0], Notes: n.Notes[:0], Documents: n.Documents[:0],
		asked: n.asked,
	}
}

// String formats the needs, for messages.
func (n *Need) String() string {
	before := *n
	before.asked = needIndex{}
	return fmt.Sprintf("%+v", before)
}

// needIndex indexes the lists of a need.
type needIndex struct {
	jobs, runs, whole, waiting, records, running map[job.ID]int
	handedOver                                   map[job.ID]int
	handovers                                    map[int64]int
	names, slots, upstreams, follows, naming     map[string]int
	keys                                         map[Identity]int
}

func (a *needIndex) clear() {
	for _, m := range [...]map[job.ID]int{a.jobs, a.runs, a.whole, a.waiting, a.records, a.running, a.handedOver} {
		clear(m)
	}
	clear(a.handovers)
	for _, m := range [...]map[string]int{a.names, a.slots, a.upstreams, a.follows, a.naming} {
		clear(m)
	}
	clear(a.keys)
}

// ask adds an item to a list of a need, unless it is there already.
func ask[K comparable, T any](asked *map[K]int, list *[]T, key K, what T) {
	if _, ok := (*asked)[key]; !ok {
		put(asked, key, len(*list))
		*list = append(*list, what)
	}
}

func (n *Need) job(uid job.ID) { ask(&n.asked.jobs, &n.Jobs, uid, uid) }

func (n *Need) slot(key string, uid job.ID, until store.RunRef) {
	if key != uid.String() && !strings.HasPrefix(key, uid.String()) {
		uid = job.ID{}
	}
	ask(&n.asked.slots, &n.Slots, key, SlotNeed{key, uid, until})
	if s := &n.Slots[n.asked.slots[key]]; later(until, s.Until) {
		s.Until = until
	}
}

// later reports whether a place in the order of due time and id is after another.
func later(a, b store.RunRef) bool { return a.Compare(b) > 0 }

// facts records which data of a batch is loaded. A decision that reads anything else panics
// in a guarded batch.
type facts struct {
	guarded bool

	jobs, runs, whole, waiting, records, running map[job.ID]bool // asked for
	names                                        map[string]job.ID
	slots                                        map[string]store.RunRef // loaded slots, and how far
	upstreams, naming                            map[string]bool
	follows                                      map[string][]string
	keys                                         map[Identity]bool
	busy                                         map[job.ID]job.ID // a running run of each session that has one
	sessions, judges                             bool
	over                                         map[job.ID]bool
	notes                                        map[string]int64

	// splits is set when an added job splits its occurrences among executors.
	splits, hasExecutors bool
	executors            []store.Registration

	documents            Documents // documents by their loaded kinds
	hasTokens, hasDrains bool
	hasWindows           bool
	windows              *Windows
	tokens               []store.Token
	drains               map[string]*store.Drain
	namedBy              map[string][]*Job

	// looked is the number of added runs examined for their needs, and open are the runs with unmet
	// needs.
	looked int
	open   []*member
}

func (f *facts) reset() {
	for _, m := range [...]map[job.ID]bool{f.jobs, f.runs, f.whole, f.waiting, f.records, f.running, f.over} {
		clear(m)
	}
	clear(f.names)
	clear(f.slots)
	clear(f.upstreams)
	clear(f.naming)
	clear(f.follows)
	clear(f.keys)
	clear(f.notes)
	clear(f.busy)
	clear(f.documents)
	clear(f.namedBy)
	clear(f.open)
	*f = facts{
		guarded: f.guarded, jobs: f.jobs, runs: f.runs, whole: f.whole, waiting: f.waiting, records: f.records, running: f.running,
		names: f.names, slots: f.slots, upstreams: f.upstreams, naming: f.naming, follows: f.follows, keys: f.keys,
		notes: f.notes, busy: f.busy, over: f.over, documents: f.documents, namedBy: f.namedBy, open: f.open[:0],
	}
}

// Guard makes a decision panic if it reads data outside its needs: a bug of this package,
// which a store that loads more would hide.
func (b *Batch) Guard() { b.facts.guarded = true }

// Answered declares that a need is loaded completely: data that was not added does not exist.
func (b *Batch) Answered(n *Need) {
	f := &b.facts
	for _, uid := range n.Jobs {
		put(&f.jobs, uid, true)
	}
	for _, name := range n.Names {
		if _, ok := f.names[name]; !ok {
			put(&f.names, name, job.ID{})
		}
	}
	for _, r := range n.Runs {
		put(&f.runs, r.Run, true)
	}
	for _, uid := range n.Whole {
		b.HasWhole(uid)
	}
	for _, uid := range n.Waiting {
		put(&f.waiting, uid, true)
	}
	for i := range n.Slots {
		b.HasSlot(n.Slots[i].Key, n.Slots[i].Until)
	}
	for _, name := range n.Upstreams {
		b.HasFollowers(name)
	}
	for _, name := range n.Follows {
		if _, ok := f.follows[name]; !ok {
			put(&f.follows, name, nil)
		}
	}
	for _, id := range n.Keys {
		put(&f.keys, id, true)
	}
	for _, r := range n.Records {
		put(&f.records, r.Run, true)
	}
	for _, id := range n.Running {
		put(&f.running, id, true)
	}
	for _, name := range n.Naming {
		put(&f.naming, name, true)
	}
	for _, name := range n.Notes {
		if _, ok := f.notes[name]; !ok {
			put(&f.notes, name, 0)
		}
	}
	b.answeredHandovers(n)
	f.sessions = f.sessions || n.Sessions
	f.judges = f.judges || n.Judges
	f.hasExecutors = f.hasExecutors || n.Executors
	for _, kind := range n.Documents {
		if _, has := f.documents[kind]; !has {
			b.UseDocuments(kind, nil)
		}
	}
	f.hasTokens = f.hasTokens || n.Tokens
	f.hasDrains = f.hasDrains || n.Drains
	f.hasWindows = f.hasWindows || n.Windows
}

// HasWhole declares that all unfinished runs of a job are added.
func (b *Batch) HasWhole(uid job.ID) { put(&b.facts.whole, uid, true) }

// HasSlot declares that the members of a slot are added, as [SlotNeed] describes, up to a
// place in their order. [EndOfSlot] is after all of them.
func (b *Batch) HasSlot(key string, until store.RunRef) {
	if has, ok := b.facts.slots[key]; !ok || later(until, has) {
		put(&b.facts.slots, key, until)
	}
}

// EndOfSlot is after all members of a slot.
var EndOfSlot = store.RunRef{Due: time.Unix(0, math.MaxInt64).UTC()}

// HasFollowers declares that the followers of a job are added.
func (b *Batch) HasFollowers(upstream string) { put(&b.facts.upstreams, upstream, true) }

// AddNamed adds the job with a full name.
func (b *Batch) AddNamed(full string, j *Job) {
	put(&b.facts.names, full, b.AddJob(j).UID)
}

// AddFollows adds the full names of the jobs that one follows.
func (b *Batch) AddFollows(full string, upstreams []string) { put(&b.facts.follows, full, upstreams) }

// AddRunning adds a running run of a session.
func (b *Batch) AddRunning(session, run job.ID) { put(&b.facts.busy, session, run) }

// AddOver declares that a run of a session was reaped.
func (b *Batch) AddOver(session job.ID) { put(&b.facts.over, session, true) }

// AddNaming adds a job that names a calendar.
func (b *Batch) AddNaming(calendar string, j *Job) {
	put(&b.facts.namedBy, calendar, append(b.facts.namedBy[calendar], b.AddJob(j)))
}

// AddNote adds the version of a note.
func (b *Batch) AddNote(name string, version int64) { put(&b.facts.notes, name, version) }

// UseDocuments adds all documents of a kind, by full name. The batch changes none of them.
func (b *Batch) UseDocuments(kind job.Kind, all map[string]job.Document) {
	if b.facts.documents == nil {
		b.facts.documents = Documents{}
	}
	b.facts.documents[kind] = all
}

// UseTokens adds all tokens.
func (b *Batch) UseTokens(all []store.Token) { b.facts.tokens = all }

// UseExecutors adds all executors that are registered, and executors listed in documents.
func (b *Batch) UseExecutors(registered []store.Registration, listed []job.Document) {
	b.facts.executors = store.Candidates(registered, listed)
}

// UseDrains adds the drains of nodes.
func (b *Batch) UseDrains(all map[string]*store.Drain) { b.facts.drains = all }

// missing panics in a guarded batch: a decision reads data that it did not request.
func (b *Batch) missing(known bool, what string, name any) {
	if b.facts.guarded && !known {
		panic(fmt.Sprintf("a decision touches %s %v, which no need has named", what, name))
	}
}

// job returns a job, or nil.
func (b *Batch) job(uid job.ID) *Job {
	j := b.jobs[uid]
	if j == nil {
		b.missing(b.facts.jobs[uid], "job", uid)
	}
	return j
}

func (b *Batch) run(id job.ID) *member {
	m := b.runs[id]
	if m == nil {
		b.missing(b.facts.runs[id], "run", id)
	}
	return m
}

// slot returns the runs that hold a slot or want it.
func (b *Batch) slot(key string) []*member {
	if b.facts.guarded {
		_, ok := b.facts.slots[key]
		b.missing(ok, "slot", key)
	}
	return b.bySlot[key]
}

// slotUntil returns the runs in a run's slot, for a decision about those before it.
func (b *Batch) slotUntil(r *store.Run) []*member {
	if b.facts.guarded {
		until, ok := b.facts.slots[r.Slot]
		b.missing(ok && !later(r.Ref(), until), "the runs before "+r.ID.String()+" in slot", r.Slot)
	}
	return b.bySlot[r.Slot]
}

// unfinished returns all unfinished runs of a job.
func (b *Batch) unfinished(uid job.ID) []*member {
	b.missing(b.facts.whole[uid], "all runs of job", uid)
	return b.byJob[uid]
}

// knowsWaiting reports whether the waiting and running runs of a job are known.
func (b *Batch) knowsWaiting(uid job.ID) bool { return b.facts.whole[uid] || b.facts.waiting[uid] }

// waiting returns runs of a job that include its waiting and running ones.
func (b *Batch) waiting(uid job.ID) []*member {
	b.missing(b.knowsWaiting(uid), "the runs that wait or run of job", uid)
	return b.byJob[uid]
}

// followersOf returns the jobs that follow one.
func (b *Batch) followersOf(j *Job) []*Job {
	if len(b.followers) == 0 && !b.facts.guarded {
		return nil
	}
	name := j.FullName()
	b.missing(b.facts.upstreams[name] || b.jobs[j.UID] == nil, "the followers of job", name)
	return b.followers[name]
}

func (b *Batch) record(run job.ID, number int) *store.Record {
	r := b.records[recordKey{run, number}]
	if r == nil {
		b.missing(b.facts.records[run], "the records of run", run)
	}
	return r
}

// recordsOf returns records that include the records of a run.
func (b *Batch) recordsOf(run job.ID) map[recordKey]*store.Record {
	b.missing(b.facts.records[run] || b.runs[run] != nil, "the records of run", run)
	return b.records
}

// key returns the run of a request that already exists, zero for none.
func (b *Batch) key(id Identity) job.ID {
	run, ok := b.keys[id]
	b.missing(ok || b.facts.keys[id], "key", id)
	return run
}

func (b *Batch) session(id job.ID) *store.Session { return b.allSessions()[id] }

func (b *Batch) allSessions() map[job.ID]*store.Session {
	b.missing(b.facts.sessions, "the sessions", "")
	return b.sessions
}

func (b *Batch) poolOf(name string) pool {
	_, ok := b.facts.slots[PoolSlot(name)]
	b.missing(ok, "pool", name)
	return b.pools[name]
}

// poolSize returns the size of a pool: one if it is undeclared, and none with a rate alone.
func (b *Batch) poolSize(name string) int {
	switch slots := b.poolOf(name).slots; {
	case slots == nil:
		return 1
	case slots.Size == 0:
		return math.MaxInt
	default:
		return slots.Size
	}
}

// lookMembers requests the needs of the runs of a batch: their jobs; for a shard the followers of
// its job, and the other shards if the consequences of its end depend on them; and for a run that
// holds a slot between two attempts, which another run may end, the needs of that end.
func (b *Batch) lookMembers(n *Need) {
	f := &b.facts
	left := f.open[:0]
	for _, m := range f.open {
		if !b.isComplete(m, n) {
			left = append(left, m)
		}
	}
	for _, m := range b.added[f.looked:] {
		if !b.isComplete(m, n) {
			left = append(left, m)
		}
	}
	f.open, f.looked = left, len(b.added)
}

func (b *Batch) isComplete(m *member, n *Need) bool {
	if b.startsSteps && isFlow(&m.Run) && !m.mayEnd {
		_, known := b.lookJob(n, m.JobUID)
		return known
	}
	if (m.Kind == job.RunStep || m.Kind == job.RunByFlow) && !b.lookParent(n, m) {
		return false
	}
	if isFlow(&m.Run) && !b.lookFlow(n, m) {
		return false
	}
	j, known := b.lookJob(n, m.JobUID)
	switch {
	case !known:
		return false
	case j == nil:
		return true
	}
	if f := b.toBegin(j, m); f != nil && !b.lookNames(n, f.jobs) {
		return false
	}
	whole := m.HoldsSlot && m.State != job.StateRunning && j.Policy.endNeedsWhole()
	if m.Shards > 0 {
		followed, known := b.lookFollowed(n, j)
		if !known {
			return false
		}
		whole = whole || j.Policy.WantsShards(followed)
	}
	return !whole || b.lookWhole(n, j.UID)
}

// endNeedsWhole reports whether the end of a run needs the other unfinished runs of its
// job.
func (p *Policy) endNeedsWhole() bool {
	return p.NeedsPrevious || p.DeleteAfter >= 0 || p.MaxRuns > 0 && p.PauseOnFailure > 0
}

// lookJob returns a job, or requests it.
func (b *Batch) lookJob(n *Need, uid job.ID) (j *Job, known bool) {
	if j = b.jobs[uid]; j != nil || b.facts.jobs[uid] {
		return j, true
	}
	n.job(uid)
	return nil, false
}

// lookWhole reports whether all runs of a job are known, or requests them.
func (b *Batch) lookWhole(n *Need, uid job.ID) bool {
	if b.facts.whole[uid] {
		return true
	}
	ask(&n.asked.whole, &n.Whole, uid, uid)
	return false
}

// lookWaiting reports whether the waiting and running runs of a job are known, or requests
// them.
func (b *Batch) lookWaiting(n *Need, uid job.ID) bool {
	if b.knowsWaiting(uid) {
		return true
	}
	ask(&n.asked.waiting, &n.Waiting, uid, uid)
	return false
}

// lookFollowed reports whether other jobs follow a job, or requests them.
func (b *Batch) lookFollowed(n *Need, j *Job) (followed, known bool) {
	if b.facts.upstreams[j.FullName()] { // the text stays on the stack
		return len(b.followers) > 0 && len(b.followers[j.FullName()]) > 0, true
	}
	name := j.FullName()
	ask(&n.asked.upstreams, &n.Upstreams, name, name)
	return false, false
}

// lookSlot reports whether the members of a slot are known up to one of its runs, or requests them.
func (b *Batch) lookSlot(n *Need, key string, r *store.Run) bool {
	until := r.Ref()
	if has, ok := b.facts.slots[key]; ok && !later(until, has) {
		return true
	}
	n.slot(key, r.JobUID, until)
	return false
}

// lookRun returns a run, or requests it.
func (b *Batch) lookRun(n *Need, ref RunRef) (m *member, known bool) {
	if m = b.runs[ref.Run]; m != nil || b.facts.runs[ref.Run] {
		return m, true
	}
	ask(&n.asked.runs, &n.Runs, ref.Run, ref)
	return nil, false
}

// lookSessions requests the sessions.
func (b *Batch) lookSessions(n *Need) { n.Sessions = n.Sessions || !b.facts.sessions }

// lookExecutors requests the executors that occurrences of the jobs are split among.
func (b *Batch) lookExecutors(n *Need) {
	n.Executors = n.Executors || b.facts.splits && !b.facts.hasExecutors
}

// lookRecords reports whether the records of a run are known, or requests them, with the
// data that a late report may change.
func (b *Batch) lookRecords(n *Need, ref RunRef) {
	if !b.facts.records[ref.Run] {
		ask(&n.asked.records, &n.Records, ref.Run, ref)
		return
	}
	for key, r := range b.records {
		if key.run != ref.Run {
			continue
		}
		if j, _ := b.lookJob(n, r.Run.JobUID); j != nil && j.Policy.NeedsPrevious {
			b.lookWhole(n, j.UID)
		}
		return // all belong to one job
	}
}

// lookAround requests the inputs of decisions that may end a run. A claim passes its node;
// "" is the run's current node.
func (b *Batch) lookAround(n *Need, m *member, node string) {
	if m.around {
		return
	}
	if isStep(&m.Run.Run) {
		m.around = b.lookParent(n, m)
		return
	}
	j, known := b.lookJob(n, m.JobUID)
	if !known {
		return
	}
	if j == nil {
		m.around = b.lookSlot(n, m.Slot, &m.Run)
		return
	}
	if node == "" {
		node = m.Node
	}
	_, all := b.lookFollowed(n, j)
	if j.Policy.PauseOnFailure > 0 {
		b.lookCalendars(n, j.Document)
	}
	if p := j.Policy; p.Contends(&m.Run) {
		if !isHeld(&m.Run) {
			all = b.lookSlot(n, m.Slot, &m.Run) && all
		}
		if key := p.SlotKey(&m.Run.Run, node); key != m.Slot {
			all = b.lookSlot(n, key, &m.Run) && all
		}
	}
	if m.State == job.StateReady {
		all = b.lookRate(n, j.Policy, &m.Run) && all
	}
	switch {
	case j.Policy.endNeedsWhole():
		all = b.lookWhole(n, j.UID) && all
	case m.State != job.StateRunning && j.wantsClaims(&m.Run, b.now):
		all = b.lookWaiting(n, j.UID) && all
	}
	m.around = all
}

// lookEdit requests the inputs of a change of a job to a policy.
func (b *Batch) lookEdit(n *Need, j *Job, p *Policy) {
	whole := false
	for _, p := range [...]*Policy{j.Policy, p} {
		whole = whole || p.NeedsPrevious || p.MaxRuns > 0 || p.DeleteAfter >= 0
	}
	switch {
	case whole || j.Policy.LateBy != p.LateBy:
		if !b.lookWhole(n, j.UID) {
			return
		}
	case !b.lookWaiting(n, j.UID):
		return
	}
	for _, m := range b.byJob[j.UID] {
		if m.State == job.StateWaiting {
			b.lookSlot(n, m.Slot, &m.Run)
			b.lookSlot(n, p.SlotKey(&m.Run.Run, m.Node), &m.Run)
		}
	}
}
