package sqldb

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// The locks of definitions, in locking order, and of work for one node at a time.
const (
	calendarsLock = "calendars" // for steps that name a calendar, or change a document or drain
	graphLock     = "graph"     // for steps that make a job follow others
	tokensLock    = "tokens"
	defaultsLock  = "defaults"
	expiryLock    = "expiry"
	notesLock     = "notes"
)

// lock locks a row of the table counters.
func (t *tx) lock(name string) error {
	_, err := t.number("select value from counters where name = ? for update", name)
	return err
}

// locksOf returns the locks of definitions that a step needs, in their order.
func locksOf(n *engine.Need) (list []string) {
	if len(n.Documents)+len(n.Naming) > 0 || n.Drains {
		list = append(list, calendarsLock)
	}
	if len(n.Follows) > 0 {
		list = append(list, graphLock)
	}
	if n.Tokens {
		list = append(list, tokensLock)
	}
	if len(n.Notes) > 0 {
		list = append(list, notesLock)
	}
	return list
}

// mustHave notes the missing locks of definitions for the next try.
func (st *step) mustHave(n *engine.Need) {
	if st.s.db.Alone() {
		return
	}
	for _, name := range locksOf(n) {
		if !st.locks[name] {
			st.k.lock(name)
			st.unlocked = true
		}
	}
}

// byKey makes MySQL and MariaDB, for which it is no comment, look up each id of a set instead of
// reading and locking the whole table; byRun does so for the records of each run.
const (
	byKey = "/*! force index (primary) */ "
	byRun = "/*! force index (history_run) */ "
)

// lockStates sorts the found rows by an expression that no index has: otherwise PostgreSQL may read
// all jobs in the order of the index and compare each with the set.
const (
	lockStates = "select " + stateColumns + lockedStates
	lockCached = "select " + stateColumns + ", s.cached_by" + lockedStates

	lockedStates = " from job_state s " + byKey + "where s.uid in (?*) order by coalesce(s.uid, '') for update"
)

// begin locks the subjects of a step, as far as its first need and earlier tries name them,
// and reads with the locks what most steps need next.
func (st *step) begin(n *engine.Need, b *engine.Batch) error {
	st.locks, st.pools = map[string]bool{}, map[string]bool{}
	for _, name := range locksOf(n) {
		st.k.lock(name)
	}
	for _, name := range slices.Sorted(maps.Keys(st.k.locks)) { // sorted is the locking order
		if err := st.lock(name); err != nil {
			return err
		}
		st.locks[name] = true
	}
	f, err := st.planLocks(n)
	if err != nil {
		return err
	}
	if err := st.lockPools(f); err != nil {
		return err
	}
	return st.lockJobs(n, b, f)
}

// lockPlan lists what a step locks, and reads with the locks.
type lockPlan struct {
	jobs  map[job.ID]bool
	pools map[string]bool
	slots []job.ID // jobs whose own slots are read
	// cached are jobs whose own slots are cached, unless another process has written runs of theirs.
	cached map[job.ID]bool
}

// planLocks returns the likely subjects of a step: the names in its first need, and the
// definitions of the jobs as this process last saw them. Mistakes are noticed under the
// locks.
func (st *step) planLocks(n *engine.Need) (*lockPlan, error) {
	f := &lockPlan{jobs: maps.Clone(st.k.jobs), pools: maps.Clone(st.k.pools)}
	for _, uid := range n.Jobs {
		remember(&f.jobs, uid)
	}
	if len(n.Names) > 0 {
		found, err := st.named(n.Names)
		if err != nil {
			return nil, err
		}
		st.foundNames = found
		for _, uid := range found {
			remember(&f.jobs, uid)
		}
	}
	for _, calendar := range n.Naming {
		uids, err := st.ids(selectNaming, calendar)
		if err != nil {
			return nil, err
		}
		for _, uid := range uids {
			remember(&f.jobs, uid)
		}
	}
	for i := range n.Slots {
		if pool, ok := engine.PoolOfSlot(n.Slots[i].Key); ok {
			remember(&f.pools, pool)
		}
	}
	var unknown [][]byte
	contended := make(map[job.ID]bool, len(n.Runs))
	for i := range n.Runs {
		if ref := &n.Runs[i]; !ref.Job.IsZero() {
			remember(&f.jobs, ref.Job)
			contended[ref.Job] = true
		} else {
			unknown = append(unknown, idBytes(&ref.Run))
		}
	}
	if len(unknown) > 0 {
		q := st.query("select a.job from active a "+byKey+"where a.id in (?*)", unknown)
		for q.Next() {
			uid := q.id()
			remember(&f.jobs, uid)
			contended[uid] = true
		}
		if err := q.Err(); err != nil {
			return nil, err
		}
	}
	var names []string
	var keyed map[job.ID]bool // jobs whose runs choose their pools
	for uid := range f.jobs {
		d, _ := st.s.definitions.Get(uid)
		if d == nil {
			continue
		}
		p := d.document.Policy
		if len(n.Runs) > 0 && p.ByParams() {
			remember(&keyed, uid)
		} else if len(n.Runs) > 0 {
			st.planPools(f, p, &job.Run{})
		}
		if contended[uid] {
			names = append(names, d.document.Filled.FullName())
			if !p.Pooled() && p.Overlap != job.OverlapAllow && !p.Broadcast {
				switch {
				case st.s.caches() && st.s.hot.hasSlot(uid):
					remember(&f.cached, uid)
				case !st.s.caches() || !st.s.hot.isLarge(uid):
					f.slots = append(f.slots, uid)
				}
			}
		}
	}
	for _, follower := range st.s.follows.of(names) {
		remember(&f.jobs, follower.job)
	}
	return f, st.planKeys(n, f, keyed)
}

// planKeys adds the pools that runs of some jobs choose by their parameters.
func (st *step) planKeys(n *engine.Need, f *lockPlan, keyed map[job.ID]bool) error {
	var ids [][]byte
	for i := range n.Runs {
		if keyed[n.Runs[i].Job] {
			ids = append(ids, idBytes(&n.Runs[i].Run))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	q := st.query(selectGiven, ids)
	for _, r := range scanRuns(q, len(ids)) {
		if pool, ok := engine.PoolOfSlot(r.Slot); ok {
			remember(&f.pools, pool)
		}
		if d, _ := st.s.definitions.Get(r.JobUID); d != nil {
			st.planPools(f, d.document.Policy, &r.Run)
		}
	}
	return q.Err()
}

// planPools adds the pools and lines of a run, by the pools that this process last saw.
func (st *step) planPools(f *lockPlan, p *engine.Policy, r *job.Run) {
	var seen engine.Documents
	if all := st.s.pools.Load(); all != nil {
		seen = *all
	}
	for _, name := range p.PoolsOf(r, seen) {
		remember(&f.pools, name)
	}
}

// lockPools locks pools, creates missing ones, and finds the jobs with runs in them.
func (st *step) lockPools(f *lockPlan) error {
	if len(f.pools) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(f.pools))
	const lockNames = "select name from pools where name in (?*) order by name for update"
	there, err := st.texts(lockNames, names)
	if err != nil {
		return err
	}
	if len(there) < len(names) {
		rows := st.rows(poolNames, len(names))
		for _, name := range names {
			rows.text(name)
		}
		if err := st.writeRows(InsertNew, rows); err != nil {
			return err
		}
		if _, err := st.texts(lockNames, names); err != nil {
			return err
		}
	}
	slots := make([]string, len(names))
	for i, name := range names {
		st.pools[name] = true
		slots[i] = engine.PoolSlot(name)
	}
	members, err := st.ids("select distinct a.job from active a where a.slot in (?*) and a.slot <> ''", slots)
	for _, uid := range members {
		remember(&f.jobs, uid)
	}
	return err
}

var (
	poolNames = &Table{Name: "pools", Key: 1, Columns: []Column{{"name", Text}}}
	poolTurns = &Table{Name: "pools", Key: 1, Columns: []Column{{"name", Text}, {"turn", Int}}}
)

// lockJobs locks jobs, in the order of their uids, and reads in the same message the sessions, the
// clock, the runs of the step and the runs in the slots of their jobs.
func (st *step) lockJobs(n *engine.Need, b *engine.Batch, f *lockPlan) error {
	uids := slices.SortedFunc(maps.Keys(f.jobs), func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	ids, others := st.divide(n, f)
	last, known := int64(math.MaxInt64), true
	if !st.s.caches() {
		last, known = st.s.dues.latest(ids)
	}
	var asked conversation
	var rows []jobRow
	var runs, members []store.Run
	if text := lockStates; len(uids) > 0 {
		if st.s.caches() {
			text = lockCached
		}
		asked.ask(func(q reader) error { rows = scanLocked(q, st.s.caches()); return nil }, text, set(uids))
	}
	// A step about sessions alone changes them, and a step that judges them needs them up to date.
	if n.Judges || n.Sessions && len(uids)+len(n.Runs)+len(n.Names)+len(n.Slots)+len(n.Naming)+len(n.Keys)+len(n.Documents) == 0 {
		asked.ask(func(q reader) error {
			for q.Next() {
			}
			return nil
		}, "select id from sessions order by id for update")
	}
	if n.Sessions {
		asked.ask(func(q reader) error { st.sessions, st.windowsMark = scanMembers(q); return nil }, selectSessions)
	}
	if len(n.Runs) > 0 {
		asked.ask(st.readFollowers, selectFollowed, int64(followsMax))
	}
	if len(others) > 0 {
		asked.ask(func(q reader) error { runs = scanRuns(q, len(others)); return nil }, selectGiven, others)
	}
	if st.s.clock.given == nil {
		asked.ask(st.readClock, st.s.selectClock())
	}
	if len(f.slots) > 0 {
		take := func(q reader) error { members = scanRuns(q, len(f.slots)); return nil }
		if known {
			asked.ask(take, selectOwn, set(f.slots), columns.States.Of(job.StateReady), last, int64(store.MaxBatch))
		} else {
			asked.ask(take, selectOwnTo, set(f.slots), columns.States.Of(job.StateReady), ids, int64(store.MaxBatch))
		}
	}
	if err := asked.with(st.tx); err != nil {
		return err
	}
	for _, uid := range uids {
		st.jobs[uid] = jobRead{}
	}
	if err := st.defineAll(rows); err != nil {
		return err
	}
	st.took(rows)
	st.s.hot.admit(uids, func(uid job.ID) bool { return st.jobs[uid].cachedBy == st.s.process })
	if n.Sessions {
		var err error
		if st.sessions, err = st.described(st.sessions); err != nil {
			return err
		}
	}
	if err := st.addAll(b, runs); err != nil || len(f.slots) == 0 {
		return err
	}
	until := store.RunRef{Due: columns.FromNanos(last), ID: lastID}
	if !known {
		given := make(map[job.ID]bool, len(ids))
		for _, id := range ids {
			given[job.ID(id)] = true
		}
		for i := range members {
			if r := &members[i]; given[r.ID] {
				until.Due = latest(until.Due, r.Due)
			}
		}
	}
	for _, uid := range f.slots {
		b.HasSlot(uid.String(), until)
	}
	return st.addMembers(b, ownSlots, set(f.slots), f.slots, members)
}

// divide returns the ids of the step's runs to read with the slots of their jobs, and the rest. Reading
// them by id again would double the cost; a run that is not among the rows of its slot, since it has
// ended, waits behind many runs or is in another slot, is read by its id afterwards (loadRuns).
func (st *step) divide(n *engine.Need, f *lockPlan) (withSlots, others [][]byte) {
	read := make(map[job.ID]bool, len(f.slots))
	for _, uid := range f.slots {
		read[uid] = true
	}
	all := make([][]byte, 0, len(n.Runs))
	for i := range n.Runs {
		if read[n.Runs[i].Job] {
			all = append(all, idBytes(&n.Runs[i].Run))
		}
	}
	withSlots = all
	for i := range n.Runs {
		if uid := n.Runs[i].Job; !read[uid] && !f.cached[uid] {
			all = append(all, idBytes(&n.Runs[i].Run))
		}
	}
	return withSlots, all[len(withSlots):]
}

// mayMatterTo is mayMatter by the latest of some runs.
const mayMatterTo = " and (a.holds = 1 or a.state <> ? or a.due <= (select max(g.due) from active g where g.id in (?*)))"

var selectOwnTo = ownSlots.members(mayMatterTo)

// lastID sorts after all other ids.
var lastID = job.ID(bytes.Repeat([]byte{0xff}, len(job.ID{})))

// conversation is a list of queries sent together, each with the receiver of its answer.
type conversation struct {
	questions []Question
	takes     []func(q reader) error
}

func (c *conversation) ask(take func(q reader) error, text string, args ...any) {
	c.questions, c.takes = append(c.questions, Question{text, args}), append(c.takes, take)
}

// with sends the queries, and passes on the answers in order until one is wrong.
func (c *conversation) with(t *tx) error {
	if len(c.questions) == 0 {
		return nil
	}
	q := reader{t.Ask(t.ctx, c.questions...)}
	defer q.Close()
	for i, take := range c.takes {
		if i > 0 {
			q.More()
		}
		if err := take(q); err != nil {
			return err
		}
	}
	return q.Err()
}

// follower is a job that follows another one.
type follower struct {
	upstream string
	job      job.ID
}

// selectFollowed reads all follow relations if they are few. followsMax is the number from which
// the names of a batch are looked up: reading this many takes a tenth of the look-up.
const (
	selectFollowed = "select upstream, job from followers order by upstream, job limit ?"
	followsMax     = 64
)

// following is the last read follow relations, which foretell what to lock.
type following struct {
	mu  sync.Mutex
	all map[string][]job.ID
}

// of returns the followers of some jobs.
func (f *following) of(upstreams []string) (list []follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return followersOf(f.all, upstreams)
}

func followersOf(all map[string][]job.ID, upstreams []string) (list []follower) {
	if len(all) == 0 {
		return nil
	}
	for _, upstream := range upstreams {
		for _, uid := range all[upstream] {
			list = append(list, follower{upstream, uid})
		}
	}
	return list
}

// readFollowers reads who follows whom, if few do.
func (st *step) readFollowers(q reader) error {
	n := 0
	for st.followers = map[string][]job.ID{}; q.Next(); n++ {
		upstream := q.Text()
		st.followers[upstream] = append(st.followers[upstream], q.id())
	}
	st.many = n == followsMax
	f := &st.s.follows
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = st.followers
	return nil
}
