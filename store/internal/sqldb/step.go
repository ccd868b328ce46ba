package sqldb

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// errUnlocked says that a step lacks a lock.
var errUnlocked = fmt.Errorf("%w: not all was locked that it is about", ledger.ErrAgain)

// step implements [ledger.Tx].
type step struct {
	*tx
	k     *retryState
	begun bool
	// jobs are the read jobs, under their locks if any; Job is nil for an unknown one.
	jobs map[job.ID]jobRead
	// places are where the runs were in the index when they were read.
	places map[job.ID]indexKey
	// known and spare are room for cached runs and jobs, for reuse by other steps.
	known         []store.Run
	copies, spare []*engine.Job
	// locks and pools are the held locks.
	locks, pools map[string]bool
	sessions     []ledger.Member // nil until they are read
	// windowsMark is the mark of the windows that was read with the sessions.
	windowsMark string
	// followers are the jobs that follow a job, nil until they are read; many is set if some are
	// missing.
	followers map[string][]job.ID
	many      bool
	// foundNames are the jobs of the names in the first need, as read before the locks: the locked
	// rows show a deletion since then, and the index of names refuses a new job.
	foundNames map[string]job.ID
	// unlocked is set when the step needed something unlocked.
	unlocked bool
	handsOn  []job.ID // sessions whose runs are handed on after the commit
	// era is that of the database when the step began, and uncertain are the jobs whose cached runs
	// are right once the step has committed.
	era       int64
	uncertain []job.ID
}

// jobRead is a job with the parts of its row that changes do not contain.
type jobRead struct {
	jobRow
	was jobBefore
}

// jobBefore is the part of a job's row that a change may keep.
type jobBefore struct {
	document *engine.Document
	removeAt time.Time
}

// Now implements [ledger.Tx].
func (st *step) Now() (time.Time, error) { return st.now() }

// Load implements [ledger.Tx].
func (st *step) Load(n *engine.Need, b *engine.Batch) error {
	if !st.begun {
		st.begun = true
		if st.k.first != nil {
			if err := st.k.first(st.tx); err != nil {
				return err
			}
		}
		st.era = st.s.db.Era()
		st.s.hot.renew(st.era)
		if !st.s.db.Alone() {
			if err := st.begin(n, b); err != nil {
				return err
			}
		}
	}
	st.mustHave(n)
	for _, part := range [...]func(*engine.Need, *engine.Batch) error{
		st.loadMembers, st.loadDocuments, st.loadJobs, st.loadRuns, st.loadSlots, st.loadFollowers, st.loadKeys, st.loadRecords,
		st.loadHandovers,
	} {
		if err := part(n, b); err != nil {
			return err
		}
	}
	if st.unlocked {
		return errUnlocked
	}
	return nil
}

// add reads jobs and adds them to the batch, unless they were. On a shared database one that
// is not locked is noted for the next try.
func (st *step) add(b *engine.Batch, uids ...job.ID) error {
	var unread []job.ID
	for _, uid := range uids {
		r, ok := st.jobs[uid]
		switch {
		case ok && r.Job != nil:
			b.AddJob(r.Job)
		case ok:
		case st.s.db.Alone():
			if entry := st.s.hot.jobs[uid]; entry != nil && entry.job != nil {
				own := st.copyOf(entry.job)
				st.jobs[uid] = jobRead{jobRow{Job: own, seq: entry.seq}, entry.stored}
				b.AddJob(own)
			} else {
				unread = append(unread, uid)
			}
		default:
			st.k.job(uid)
			st.unlocked = true
		}
	}
	if len(unread) == 0 {
		return nil
	}
	rows, err := st.jobRows(lockStates, set(unread))
	if err != nil {
		return err
	}
	st.took(rows)
	for _, r := range rows {
		b.AddJob(r.Job)
	}
	return nil
}

// copyOf returns a copy of a job that lasts as long as the step.
func (st *step) copyOf(j *engine.Job) *engine.Job {
	var own *engine.Job
	if last := len(st.spare) - 1; last >= 0 {
		own, st.spare = st.spare[last], st.spare[:last]
	} else {
		own = &engine.Job{}
	}
	*own = *j
	st.copies = append(st.copies, own)
	return own
}

// took notes jobs that were read.
func (st *step) took(rows []jobRow) {
	for _, r := range rows {
		read := jobRead{r, jobBefore{r.Document, r.RemoveAt()}}
		st.jobs[r.UID] = read
		if st.s.db.Alone() {
			st.s.hot.keepJob(r, read.was)
		}
	}
}

func (st *step) loadJobs(n *engine.Need, b *engine.Batch) error {
	if err := st.add(b, n.Jobs...); err != nil {
		return err
	}
	if len(n.Names) > 0 {
		found := st.foundNames
		if st.foundNames = nil; found == nil {
			var err error
			if found, err = st.named(n.Names); err != nil {
				return err
			}
		}
		for name, uid := range found {
			if err := st.add(b, uid); err != nil {
				return err
			}
			switch r := st.jobs[uid]; {
			case r.Job == nil:
			case r.Deleted || r.FullName() != name:
				st.unlocked = true // the job was deleted before it was locked
			default:
				b.AddNamed(name, r.Job)
			}
		}
	}
	for _, calendar := range n.Naming {
		uids, err := st.ids(selectNaming, calendar)
		if err == nil {
			err = st.add(b, uids...)
		}
		if err != nil {
			return err
		}
		for _, uid := range uids {
			if r := st.jobs[uid]; r.Job != nil {
				b.AddNaming(calendar, r.Job)
			}
		}
	}
	if len(n.Follows) == 0 {
		return nil
	}
	upstreams := map[string][]string{}
	q := st.query("select j.live, f.upstream from jobs j join followers f on f.job = j.uid where j.live in (?*) order by j.live, f.upstream", n.Follows)
	for q.Next() {
		name := q.Text()
		upstreams[name] = append(upstreams[name], q.Text())
	}
	for name, list := range upstreams {
		b.AddFollows(name, list)
	}
	return q.Err()
}

const selectNaming = "select job from calendar_users where calendar = ? order by job"

// named returns the jobs that have full names.
func (st *step) named(names []string) (map[string]job.ID, error) {
	found := make(map[string]job.ID, len(names))
	q := st.query("select live, uid from jobs where live in (?*)", names)
	for q.Next() {
		name := q.Text()
		found[name] = q.id()
	}
	return found, q.Err()
}

const (
	selectGiven = "select " + activeColumns + " from active a " + byKey + "where a.id in (?*)"
	selectWhole = "select " + activeColumns + " from active a where a.job in (?*)"
)

func (st *step) loadRuns(n *engine.Need, b *engine.Batch) error {
	if len(n.Runs) > 0 {
		var ids [][]byte
		known := slices.Grow(st.known[:0], len(n.Runs))
		for i := range n.Runs {
			ref := &n.Runs[i]
			if b.HasRun(ref.Run) {
				continue
			}
			if r, ok := st.s.hot.run(ref); ok && st.mayUse(ref.Job) {
				known = append(known, r)
			} else {
				ids = append(ids, idBytes(&ref.Run))
			}
		}
		st.known = known
		if err := st.addAll(b, known); err != nil {
			return err
		}
		if len(ids) > 0 {
			if err := st.addRuns(b, selectGiven, ids); err != nil {
				return err
			}
		}
	}
	if len(n.Whole) > 0 {
		if err := st.addRuns(b, selectWhole, set(n.Whole)); err != nil {
			return err
		}
	}
	if len(n.Waiting) > 0 {
		return st.addRuns(b, selectWhole+" and a.state <> ?", set(n.Waiting), columns.States.Of(job.StateReady))
	}
	return nil
}

// addRuns adds the runs of a query with their jobs. On a shared database an unlocked job has made a
// run in a pool since the step began, which can only be ready; if the run is in another state, or
// was asked for, the next try locks the job.
func (st *step) addRuns(b *engine.Batch, text string, args ...any) error {
	q := st.query(text, args...)
	runs := scanRuns(q, 0)
	if err := q.Err(); err != nil {
		return err
	}
	return st.addAll(b, runs)
}

func (st *step) addAll(b *engine.Batch, runs []store.Run) error {
	uids := make([]job.ID, 0, len(runs))
	for i := range runs {
		if uid := runs[i].JobUID; (len(uids) == 0 || uids[len(uids)-1] != uid) && !st.isNew(&runs[i]) {
			uids = append(uids, uid)
		}
	}
	if err := st.add(b, uids...); err != nil {
		return err
	}
	if st.unlocked {
		return nil
	}
	var nameless []*store.Run
	for i := range runs {
		r := &runs[i]
		if st.isNew(r) {
			continue
		}
		if j := st.jobs[r.JobUID].Job; j != nil {
			r.Namespace, r.Name = j.Namespace, j.Name
			st.places[r.ID] = placeOf(r)
			b.AddRun(r)
		} else {
			nameless = append(nameless, r)
		}
	}
	for _, r := range nameless { // their jobs were deleted
		q := st.query("select namespace, name from names where uid = ?", idOf(r.JobUID))
		for q.Next() {
			r.Namespace, r.Name = q.Text(), q.Text()
		}
		if err := q.Err(); err != nil {
			return err
		}
		b.AddRun(r)
	}
	return nil
}

// isNew reports whether a run in a pool was made since the step began: then its job is unlocked,
// and the run can only be ready.
func (st *step) isNew(r *store.Run) bool {
	if _, locked := st.jobs[r.JobUID]; locked || st.s.db.Alone() || r.State != job.StateReady || r.HoldsSlot {
		return false
	}
	_, ofPool := engine.PoolOfSlot(r.Slot)
	return ofPool
}

// slots are slots of one kind, with the query for their runs.
type slots struct{ of, from string }

var (
	ownSlots    = slots{"a.job", " from active a where a.slot = '' and a.job in (?*)"}
	sharedSlots = slots{"a.slot", " from active a where a.slot in (?*) and a.slot <> ''"}
)

// members reads the runs that decisions need of some slots: all that hold one, and the first
// [store.MaxBatch] that wait or are ready.
func (s slots) members(which string) string {
	return "select " + activeColumns + " from (select a.*, row_number() over (partition by " + s.of +
		", a.state, a.holds order by a.due, a.id) as place" + s.from + which + ") a where a.holds = 1 or a.place <= ?"
}

// mayMatter excludes runs planned for later: unclaimed and due after the runs of the step.
const mayMatter = " and (a.holds = 1 or a.state <> ? or a.due <= ?)"

var (
	selectOwn    = ownSlots.members(mayMatter)
	selectShared = sharedSlots.members(mayMatter)
)

func (st *step) loadSlots(n *engine.Need, b *engine.Batch) error {
	var uids, large []job.ID
	var keys []string
	var until, untilKeys time.Time
	pools := false
	for i := range n.Slots {
		s := &n.Slots[i]
		pool, ofPool := engine.PoolOfSlot(s.Key)
		if pools = pools || ofPool; ofPool && !st.s.db.Alone() && !st.pools[pool] {
			st.k.pool(pool)
			st.unlocked = true
			continue
		}
		if columns.IsOwnSlot(s.Key, s.Job) && st.mayUse(s.Job) && st.s.hot.hasSlot(s.Job) {
			if err := st.addCached(b, s); err != nil {
				return err
			}
		} else if !s.Job.IsZero() && columns.IsOwnSlot(s.Key, s.Job) {
			if until = latest(until, s.Until.Due); st.s.hot.isLarge(s.Job) {
				large = append(large, s.Job)
			} else {
				uids = append(uids, s.Job)
			}
		} else {
			keys, untilKeys = append(keys, s.Key), latest(untilKeys, s.Until.Due)
		}
	}
	if pools {
		if err := st.loadPools(b, keys); err != nil {
			return err
		}
	}
	if len(uids) > 0 {
		if err := st.loadSlotsOf(b, selectOwn, ownSlots, until, set(uids), uids); err != nil {
			return err
		}
	}
	if len(large) > 0 {
		if err := st.loadSlotsOf(b, selectOwn, ownSlots, until, set(large), nil); err != nil {
			return err
		}
	}
	if len(keys) > 0 {
		return st.loadSlotsOf(b, selectShared, sharedSlots, untilKeys, keys, nil)
	}
	return nil
}

// loadPools adds the pools of some slots, and the lines with their turns.
func (st *step) loadPools(b *engine.Batch, slots []string) error {
	all, err := st.documents(job.KindPool)
	if err != nil {
		return err
	}
	st.s.pools.Store(&all)
	var lines []string
	for _, key := range slots {
		if name, ok := engine.PoolOfSlot(key); ok {
			if b.AddPool(name, all.Slots(name), time.Time{}); engine.IsLine(name) {
				lines = append(lines, name)
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	q := st.query("select name, turn from pools where name in (?*)", lines)
	for q.Next() {
		name := q.Text()
		b.AddPool(name, all.Slots(name), q.time())
	}
	return q.Err()
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// loadSlotsOf adds the members of slots, own are the jobs that these belong to.
func (st *step) loadSlotsOf(b *engine.Batch, text string, of slots, until time.Time, keys any, own []job.ID) error {
	if len(own) > 0 && st.s.caches() {
		until = columns.Latest // all of them, for the cache
	}
	q := st.query(text, keys, columns.States.Of(job.StateReady), columns.Nanos(until), int64(store.MaxBatch))
	runs := scanRuns(q, 0)
	if err := q.Err(); err != nil {
		return err
	}
	return st.addMembers(b, of, keys, own, runs)
}

// slotState is the state of a slot whose lists were cut at [store.MaxBatch].
type slotState struct {
	key   string
	state job.RunState
}

// addMembers adds the members of slots that were read.
func (st *step) addMembers(b *engine.Batch, of slots, keys any, own []job.ID, runs []store.Run) error {
	cut := map[slotState]bool{}
	if len(runs) >= store.MaxBatch {
		read := map[slotState]int{}
		for i := range runs {
			if r := &runs[i]; !r.HoldsSlot {
				k := slotState{r.Slot, r.State}
				if read[k]++; read[k] == store.MaxBatch {
					cut[k] = true
				}
			}
		}
		if len(cut) > 0 {
			if err := st.countWaiting(b, of, keys, runs); err != nil {
				return err
			}
		}
	}
	if len(own) > 0 && st.s.caches() {
		byKey := map[string][]store.Run{}
		for i := range runs {
			byKey[runs[i].Slot] = append(byKey[runs[i].Slot], runs[i])
		}
		for _, uid := range own {
			if key := uid.String(); st.mayUse(uid) {
				st.s.hot.keepSlot(uid, byKey[key], cut[slotState{key, job.StateReady}] || cut[slotState{key, job.StateWaiting}])
			}
		}
	}
	return st.addAll(b, runs)
}

// countWaiting counts the unread runs that wait for slots.
func (st *step) countWaiting(b *engine.Batch, of slots, keys any, runs []store.Run) error {
	more := map[string]int{}
	q := st.query("select "+of.of+", count(*)"+of.from+" and a.state = ? and a.holds = 0 and a.awaits = 0 and a.overlap = 0 group by "+of.of,
		keys, columns.States.Of(job.StateWaiting))
	for q.Next() {
		var key string
		if of == ownSlots {
			key = q.id().String()
		} else {
			key = q.Text()
		}
		more[key] = int(q.Int())
	}
	if err := q.Err(); err != nil {
		return err
	}
	for i := range runs {
		if r := &runs[i]; r.State == job.StateWaiting && !r.HoldsSlot && !r.AwaitsPrevious && r.Overlap == "" {
			more[r.Slot]--
		}
	}
	for key, n := range more {
		if n > 0 {
			b.MoreWaiting(key, n)
		}
	}
	return nil
}

func (st *step) loadFollowers(n *engine.Need, b *engine.Batch) error {
	if len(n.Upstreams) == 0 {
		return nil
	}
	if st.followers == nil {
		q := st.query(selectFollowed, int64(followsMax))
		if err := st.readFollowers(q); err != nil || q.Err() != nil {
			return cmp.Or(err, q.Err())
		}
	}
	found := followersOf(st.followers, n.Upstreams)
	if st.many {
		found = nil
		q := st.query("select upstream, job from followers where upstream in (?*) order by upstream, job", n.Upstreams)
		for q.Next() {
			found = append(found, follower{q.Text(), q.id()})
		}
		if err := q.Err(); err != nil {
			return err
		}
	}
	for _, f := range found {
		if err := st.add(b, f.job); err != nil {
			return err
		}
		if r := st.jobs[f.job]; r.Job != nil && !r.Deleted {
			b.AddFollower(f.upstream, r.Job)
		}
	}
	return nil
}

func (st *step) loadKeys(n *engine.Need, b *engine.Batch) error {
	if len(n.Keys) == 0 {
		return nil
	}
	now, err := st.now()
	if err != nil {
		return err
	}
	jobs, keys := make([]job.ID, 0, len(n.Keys)), make([]string, 0, len(n.Keys))
	wanted := make(map[engine.Identity]engine.Identity, len(n.Keys))
	for _, id := range n.Keys {
		as := id
		as.Key = clean(id.Key)
		wanted[as] = id
		jobs, keys = append(jobs, id.Job), append(keys, as.Key)
	}
	q := st.query("select job, kind, request, shard, run from request_keys where job in (?*) and request in (?*) and expires > ?",
		set(jobs), keys, columns.Nanos(now))
	for q.Next() {
		as := engine.Identity{Job: q.id(), Kind: columns.Kinds.Value(q.Int()), Key: q.Text(), Shard: int(q.Int())}
		run := q.id()
		if id, ok := wanted[as]; ok {
			b.AddKey(id, run)
		}
	}
	return q.Err()
}

func (st *step) loadRecords(n *engine.Need, b *engine.Batch) error {
	if len(n.Records) == 0 {
		return nil
	}
	ids := make([][]byte, len(n.Records))
	for i := range n.Records {
		ids[i] = idBytes(&n.Records[i].Run)
	}
	list, err := st.records(selectRecordsOf, ids)
	if err != nil {
		return err
	}
	for i := range list {
		if err := st.add(b, list[i].Run.JobUID); err != nil {
			return err
		}
		b.AddRecord(&list[i])
	}
	return nil
}

func (st *step) loadMembers(n *engine.Need, b *engine.Batch) error {
	if n.Executors {
		// By the clock of this process: the time of the step is read after its locks.
		list, err := st.registered(store.ExecutorsOfXXL, st.s.clock.now())
		if err != nil {
			return err
		}
		listed, err := st.documents(job.KindExecutors)
		if err != nil {
			return err
		}
		b.UseExecutors(list, listed.List(job.KindExecutors))
	}
	if n.Sessions && st.sessions == nil {
		var err error
		if st.sessions, st.windowsMark, err = st.members(); err != nil {
			return err
		}
	}
	if n.Sessions {
		for i := range st.sessions {
			m := &st.sessions[i]
			if b.AddSession(&m.Session); m.Over {
				b.AddOver(m.ID)
			}
		}
	}
	for _, session := range n.Running {
		runs, err := st.ids("select id from active where session = ? and state = ? limit 1", idOf(session), columns.States.Of(job.StateRunning))
		if err != nil {
			return err
		}
		if len(runs) > 0 {
			b.AddRunning(session, runs[0])
		}
	}
	if n.Drains {
		drains, err := st.drains()
		if err != nil {
			return err
		}
		b.UseDrains(drains)
	}
	return nil
}

func (st *step) loadDocuments(n *engine.Need, b *engine.Batch) error {
	if n.Windows {
		all, err := st.windows()
		if err != nil {
			return err
		}
		b.UseWindows(all)
	}
	if len(n.Documents) > 0 {
		all, err := st.documents(n.Documents...)
		if err != nil {
			return err
		}
		for _, kind := range n.Documents {
			b.UseDocuments(kind, all[kind])
		}
	}
	for _, name := range n.Notes {
		version, err := st.noteVersion(name)
		if err != nil {
			return err
		}
		b.AddNote(name, version)
	}
	if n.Tokens {
		all, err := st.tokens()
		if err != nil {
			return err
		}
		b.UseTokens(all)
	}
	return nil
}
