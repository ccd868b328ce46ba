package sqldb

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// about says what the decisions of a step are about, so that it is locked and
// read in few statements, however many there are.
type about struct {
	jobs []job.ID
	// runs may start, end or move. node is where they may be claimed, "" for
	// where they are.
	runs []job.ID
	node string
	// over is set when runs that are over matter: their jobs are locked.
	over bool
	// reaps is set when sessions may end: none is renewed until then.
	reaps bool
	// edits are jobs whose waiting runs may move, with their new policies.
	edits map[job.ID]*engine.Policy
	// whole are jobs all of whose unfinished runs matter if they have max_runs.
	whole []job.ID
	// pools are full names of pools whose slots matter.
	pools []string
}

// step is a batch of decisions inside a transaction: what they are about is
// locked and added.
type step struct {
	*tx
	b        *engine.Batch
	sessions []sessionRow
	// jobs are those that are locked; nil for one that is not there.
	jobs map[job.ID]*loadedJob
	// pools are the full names of those that are locked.
	pools map[string]bool
	runs  map[job.ID]*store.Run // that it is about, as they are
	ahead ahead
	names map[job.ID][2]string // namespace and name of jobs that are not there
	// waiting counts the added runs of each slot that wait for it by the policy
	// of their job.
	waiting map[string]int
	// followed are the full names of jobs that others follow. split are jobs of
	// which a share was added, whose end depends on the other shares.
	followed map[string]bool
	split    map[job.ID]bool
	// touched are jobs that planners must be told of although no decision has
	// changed them.
	touched []*loadedJob
}

// loadedJob is a job in a step, with what it was before.
type loadedJob struct {
	*jobRow
	was  engine.Job
	made bool // in this step
	// said is the encoded definition of a version that the step makes.
	said []byte
	// timing is the text that decides when the job is due, if it is another
	// than before.
	timing string
}

// before returns the job as callers get it, as it was before the step.
func (l *loadedJob) before() *store.Job {
	r := *l.jobRow
	r.Job = &l.was
	return r.storeJob()
}

// step begins a step: it locks, and reads.
func (t *tx) step(a about) (*step, error) {
	st := &step{
		tx: t, jobs: map[job.ID]*loadedJob{}, pools: map[string]bool{}, runs: map[job.ID]*store.Run{}, names: map[job.ID][2]string{},
		waiting: map[string]int{}, followed: map[string]bool{}, split: map[job.ID]bool{},
	}
	var followers []follower
	var err error
	if f := t.s.foresee(&a); f != nil && !t.looks {
		err = st.lockForeseen(f)
	} else {
		followers, err = st.look(&a)
	}
	if err != nil {
		return nil, err
	}
	now, err := t.now()
	if err != nil {
		return nil, err
	}
	st.b = engine.NewBatch(now, t.s.lookAhead, len(a.runs)+len(a.jobs))
	for i := range st.sessions {
		st.b.AddSession(&st.sessions[i].Session)
	}
	for _, l := range st.jobs {
		if l != nil {
			st.b.AddJob(l.Job)
		}
	}
	for _, f := range followers {
		st.followed[f.upstream] = true
		if l := st.jobs[f.job]; l != nil && !l.Deleted {
			st.b.AddFollower(f.upstream, l.Job)
		}
	}
	return st, st.load(&a)
}

// look finds out what a step is about, and locks it.
func (st *step) look(a *about) ([]follower, error) {
	followers, err := st.lockAll(a)
	if err != nil {
		return nil, err
	}
	if a.reaps {
		if _, err := st.ids("select id from sessions order by id for update"); err != nil {
			return nil, err
		}
	}
	st.sessions, err = st.tx.sessions()
	return followers, err
}

// ahead is what was read with the locks: the runs in the own slots of some jobs that
// may matter, and others of those that the step is about.
type ahead struct {
	runs  []*store.Run
	slots map[job.ID]bool
	until time.Time
}

// lockForeseen locks what a step is about, and asks with it for what it will read.
func (st *step) lockForeseen(f *foreseen) error {
	limit := slotMax + slotShare*len(f.slots)
	questions := make([]Question, 0, 6)
	ask := func(text string, args ...any) { questions = append(questions, Question{text, args}) }
	if len(f.named) > 0 {
		ask(selectFollowers, slices.Collect(maps.Keys(f.named)))
	}
	ask(lockStates, set(f.jobs))
	ask(selectSessions)
	if st.s.clock.given == nil {
		ask(st.s.selectClock())
	}
	if len(f.slots) > 0 {
		ask("select "+activeColumns+ofOwnSlots+mayMatter+inOrder, set(f.slots), columns.States.Of(job.StateReady), f.until, int64(limit))
	}
	if len(f.runs) > 0 {
		ask(selectGiven, set(f.runs))
	}
	q := reader{st.Ask(st.ctx, questions...)}
	defer q.Close()
	if len(f.named) > 0 {
		if q.Next() {
			st.s.jobs.follow(f.named[q.Text()])
			return errAgain // what follows a job is locked with it
		}
		q.More()
	}
	rows := scanStates(q)
	q.More()
	st.sessions = st.scanSessions(q)
	if st.s.clock.given == nil {
		for q.More(); q.Next(); {
			st.moment = micro(columns.FromNanos(q.Int()))
		}
	}
	if len(f.slots) > 0 {
		q.More()
		if list := scanRuns(q, len(f.slots)); len(list) < limit {
			st.ahead = ahead{runs: pointers(list), slots: make(map[job.ID]bool, len(f.slots)), until: columns.FromNanos(f.until)}
			for _, uid := range f.slots {
				st.ahead.slots[uid] = true
			}
		}
	}
	if len(f.runs) > 0 {
		q.More()
		st.ahead.runs = append(st.ahead.runs, pointers(scanRuns(q, len(f.runs)))...)
	}
	if err := q.Err(); err != nil {
		return err
	}
	if err := st.defineAll(rows); err != nil {
		return err
	}
	st.locked(f.jobs, rows)
	return st.tellAbout(st.sessions)
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// session returns a session that is not over.
func (st *step) session(id job.ID) (*store.Session, error) { return notOver(st.sessions, id) }

// follower is a job that follows another one.
type follower struct {
	upstream string
	job      job.ID
}

// lockAll locks what a step is about. It reads without locks what that is; where
// that has changed by the time of the lock, it is found when the step reads it.
func (st *step) lockAll(a *about) ([]follower, error) {
	seqs := map[job.ID]int64{} // numbers in the feed; all jobs to lock
	for _, uid := range a.jobs {
		seqs[uid] = 0
	}
	slots := map[string]bool{}
	pool := func(slot string) {
		if name, ok := strings.CutPrefix(slot, engine.PoolSlot("")); ok {
			slots[name] = true
		}
	}
	for _, name := range a.pools {
		slots[name] = true
	}
	if err := st.findRuns(a, seqs, pool); err != nil {
		return nil, err
	}
	for uid, policy := range a.edits {
		seqs[uid] = 0
		if policy.Pool != "" {
			slots[policy.Pool] = true
		}
	}
	if len(a.edits) > 0 {
		list, err := st.texts("select slot from active where job in (?*) and state = ? and slot <> ''",
			set(slices.Collect(maps.Keys(a.edits))), columns.States.Of(job.StateWaiting))
		if err != nil {
			return nil, err
		}
		for _, slot := range list {
			pool(slot)
		}
	}
	var followers []follower
	if len(a.runs) > 0 || len(a.edits) > 0 || len(slots) > 0 {
		var err error
		if followers, err = st.findAround(seqs, slots); err != nil {
			return nil, err
		}
	}
	return followers, st.lockJobs(slices.Collect(maps.Keys(seqs)))
}

// findRuns finds the jobs of the runs that a step is about, and the pools that
// they are in.
func (st *step) findRuns(a *about, seqs map[job.ID]int64, pool func(slot string)) error {
	if len(a.runs) == 0 {
		return nil
	}
	missing := map[job.ID]bool{}
	for _, id := range a.runs {
		missing[id] = true
	}
	q := st.query("select a.id, a.job, a.slot, s.seq from active a left join job_state s on s.uid = a.job where a.id in (?*)", set(a.runs))
	for q.Next() {
		delete(missing, q.id())
		uid := q.id()
		pool(q.Text())
		seqs[uid] = q.Int()
	}
	if err := q.Err(); err != nil {
		return err
	}
	if !a.over || len(missing) == 0 {
		return nil
	}
	uids, err := st.ids("select h.job from history h where h.run in (?*)", set(slices.Collect(maps.Keys(missing))))
	for _, uid := range uids {
		seqs[uid] += 0
	}
	return err
}

// findAround locks the pools that the jobs are in, and finds the other jobs with
// runs in those, and the jobs that follow any of them.
func (st *step) findAround(seqs map[job.ID]int64, pools map[string]bool) ([]follower, error) {
	docs, err := st.lockPools(seqs, pools)
	if err != nil {
		return nil, err
	}
	if len(st.pools) > 0 {
		var slots []string
		for name := range st.pools {
			slots = append(slots, engine.PoolSlot(name))
		}
		more := map[job.ID]int64{}
		q := st.query("select distinct a.job, s.seq from active a left join job_state s on s.uid = a.job where a.slot in (?*)", slots)
		for q.Next() {
			more[q.id()] = q.Int()
		}
		if err := q.Err(); err != nil {
			return nil, err
		}
		members, err := st.documents(more)
		if err != nil {
			return nil, err
		}
		maps.Copy(seqs, more)
		maps.Copy(docs, members)
	}
	upstreams := make([]string, 0, len(docs))
	for _, d := range docs {
		upstreams = append(upstreams, d.filled.FullName())
	}
	var followers []follower
	q := st.query(selectFollowers, upstreams)
	for q.Next() {
		f := follower{q.Text(), q.id()}
		followers = append(followers, f)
		seqs[f.job] += 0
	}
	return followers, q.Err()
}

const selectFollowers = "select upstream, job from followers where upstream in (?*) order by upstream, job"

// lockPools locks the pools that are given, and those that the jobs are in by
// what is known of them.
func (st *step) lockPools(seqs map[job.ID]int64, pools map[string]bool) (map[job.ID]*document, error) {
	var unknown []job.ID
	for uid, seq := range seqs {
		if seq == 0 {
			unknown = append(unknown, uid)
		}
	}
	if len(unknown) > 0 {
		q := st.query("select s.uid, s.seq from job_state s where s.uid in (?*)", set(unknown))
		for q.Next() {
			seqs[q.id()] = q.Int()
		}
		if err := q.Err(); err != nil {
			return nil, err
		}
	}
	docs, err := st.documents(seqs)
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		if d.policy.Pool != "" {
			pools[d.policy.Pool] = true
		}
	}
	if len(pools) == 0 {
		return docs, nil
	}
	// One that is not there is locked by nobody: a job that names it makes it.
	names, err := st.texts("select name from pools where name in (?*) order by name for update", slices.Collect(maps.Keys(pools)))
	for _, name := range names {
		st.pools[name] = true
	}
	return docs, err
}

// lockJobs locks jobs in the order of their uids, and reads them.
func (st *step) lockJobs(uids []job.ID) error {
	if len(uids) == 0 {
		return nil
	}
	slices.SortFunc(uids, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	rows, err := st.jobRows(lockStates, set(uids))
	if err == nil {
		st.locked(uids, rows)
	}
	return err
}

// lockStates sorts what is found, by an expression that no index has: otherwise
// PostgreSQL may read all jobs in the order of the index and compare each with the set.
const lockStates = "select " + stateColumns + " from job_state s where s.uid in (?*) order by coalesce(s.uid, '') for update"

// locked says that jobs are locked, with those of them that are there.
func (st *step) locked(uids []job.ID, rows []*jobRow) {
	for _, uid := range uids {
		st.jobs[uid] = nil
	}
	loaded := make([]loadedJob, len(rows))
	for i, r := range rows {
		loaded[i] = loadedJob{jobRow: r, was: *r.Job}
		st.jobs[r.UID] = &loaded[i]
	}
}

// load reads the runs that a step is about, and those around them, and adds them.
func (st *step) load(a *about) error {
	if err := st.addPools(); err != nil {
		return err
	}
	w := &wanted{keys: map[string]bool{}, own: map[job.ID]bool{}, whole: map[job.ID]bool{}}
	for _, name := range a.pools {
		w.keys[engine.PoolSlot(name)] = true
	}
	for _, uid := range a.whole {
		if l := st.jobs[uid]; l != nil && l.Policy.MaxRuns > 0 {
			w.whole[uid] = true
		}
	}
	given, err := st.given(a.runs)
	if err != nil {
		return err
	}
	if len(a.edits) > 0 {
		list, err := st.tx.runs("select "+activeColumns+" from active a where a.job in (?*) and a.state = ? order by a.due, a.id",
			set(slices.Collect(maps.Keys(a.edits))), columns.States.Of(job.StateWaiting))
		if err != nil {
			return err
		}
		given = append(given, pointers(list)...)
	}
	for _, r := range given {
		l, locked := st.jobs[r.JobUID]
		if !locked {
			continue // made since: it was not there when the step began
		}
		if l == nil {
			if err := st.nameOf(r); err != nil {
				return err
			}
			w.slot(r.Slot, r)
		} else {
			w.around(r, l, cmp.Or(a.node, r.Node))
			if policy := a.edits[r.JobUID]; policy != nil {
				w.slot(r.Slot, r)
				w.slot(policy.SlotKey(&r.Run, r.Node), r)
			}
		}
		st.addRun(r)
		st.runs[r.ID] = r
	}
	for uid, policy := range a.edits {
		if l := st.jobs[uid]; l != nil && (l.Policy.NeedsPrevious || policy.NeedsPrevious || l.Policy.MaxRuns > 0 || policy.MaxRuns > 0 ||
			l.Policy.LateBy != policy.LateBy) {
			w.whole[uid] = true
		}
	}
	return st.loadWanted(w)
}

const selectGiven = "select " + activeColumns + " from active a where a.id in (?*) order by a.due, a.id"

// given returns the runs that a step is about, by due time and id. Those that were
// read with the locks are not read again.
func (st *step) given(ids []job.ID) ([]*store.Run, error) {
	missing := make(map[job.ID]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	list := make([]*store.Run, 0, len(ids))
	others := st.ahead.runs[:0]
	for _, r := range st.ahead.runs {
		if missing[r.ID] {
			list = append(list, r)
			delete(missing, r.ID)
		} else {
			others = append(others, r)
		}
	}
	st.ahead.runs = others
	if len(missing) > 0 {
		more, err := st.tx.runs(selectGiven, set(slices.Collect(maps.Keys(missing))))
		if err != nil {
			return nil, err
		}
		list = append(list, pointers(more)...)
	}
	slices.SortFunc(list, func(a, b *store.Run) int { return cmp.Or(a.Due.Compare(b.Due), bytes.Compare(a.ID[:], b.ID[:])) })
	return list, nil
}

// addPools adds the sizes of the pools that are locked.
func (st *step) addPools() error {
	if len(st.pools) == 0 {
		return nil
	}
	list, err := documentsOf[job.Pool](st.tx, job.KindPool)
	if err != nil {
		return err
	}
	for _, p := range list {
		st.b.AddPool(p.FullName(), p.Slots.Size)
	}
	return nil
}

// wanted is what must be read because of the runs that a step is about.
type wanted struct {
	keys  map[string]bool // slots that are not those of jobs themselves
	own   map[job.ID]bool // jobs whose own slots are wanted
	whole map[job.ID]bool // jobs all of whose runs are
	until time.Time       // the latest due time of the runs
}

func (w *wanted) slot(key string, r *store.Run) {
	if columns.IsOwnSlot(key, r.JobUID) {
		w.own[r.JobUID] = true
	} else {
		w.keys[key] = true
	}
	if r.Due.After(w.until) {
		w.until = r.Due
	}
}

// around adds what a decision that may end a run needs to know besides.
func (w *wanted) around(r *store.Run, l *loadedJob, node string) {
	p := l.Policy
	if p.Contends(r) {
		w.slot(r.Slot, r)
		w.slot(p.SlotKey(&r.Run, node), r)
	}
	if p.NeedsPrevious || p.MaxRuns > 0 && p.PauseOnFailure > 0 {
		w.whole[r.JobUID] = true
	}
}

const (
	// slotMax is how many runs of slots are read at once, and slotShare how many
	// more for each of several: more than a job that is due each second has
	// planned. Of slots with more only those runs are read that decisions look
	// at.
	slotMax   = 4 * store.MaxBatch
	slotShare = 40

	ofOwnSlots = " from active a where a.slot = '' and a.job in (?*)"
	ofSlots    = " from active a where a.slot in (?*)"
	inOrder    = " order by a.due, a.id limit ?"
	// mayMatter leaves out what is planned for later: a run that was not claimed
	// yet, and is due after those that the step is about.
	mayMatter = " and (a.holds = 1 or a.state <> ? or a.due <= ?)"
)

func (st *step) loadWanted(w *wanted) error {
	for key := range w.keys {
		if pool, ok := strings.CutPrefix(key, engine.PoolSlot("")); ok && !st.pools[pool] {
			return errAgain
		}
	}
	if err := st.loadWhole(w.whole); err != nil {
		return err
	}
	if err := st.addRuns(st.ahead.runs...); err != nil {
		return err
	}
	st.ahead.runs = nil
	if !w.until.After(st.ahead.until) {
		for uid := range st.ahead.slots {
			delete(w.own, uid)
		}
	}
	uids, keys := slices.Collect(maps.Keys(w.own)), slices.Collect(maps.Keys(w.keys))
	if len(uids) > 0 {
		whole, err := st.loadSlots(ofOwnSlots, set(uids), len(uids), w.until)
		if err != nil {
			return err
		}
		for i := 0; !whole && i < len(uids); i++ {
			if err := st.loadLongSlot(ofOwnSlots, set(uids[i:i+1]), uids[i].String()); err != nil {
				return err
			}
		}
	}
	if len(keys) > 0 {
		whole, err := st.loadSlots(ofSlots, keys, len(keys), w.until)
		if err != nil {
			return err
		}
		for i := 0; !whole && i < len(keys); i++ {
			if err := st.loadLongSlot(ofSlots, keys[i:i+1], keys[i]); err != nil {
				return err
			}
		}
	}
	for uid := range w.whole {
		delete(st.split, uid)
	}
	return st.loadWhole(st.split)
}

// loadWhole adds all unfinished runs of jobs.
func (st *step) loadWhole(jobs map[job.ID]bool) error {
	if len(jobs) == 0 {
		return nil
	}
	list, err := st.tx.runs("select "+activeColumns+" from active a where a.job in (?*) order by a.due, a.id", set(slices.Collect(maps.Keys(jobs))))
	if err != nil {
		return err
	}
	return st.addRuns(pointers(list)...)
}

// loadSlots adds the runs that hold slots, wait for them, or are ready for them
// before the runs that the step is about. It tells whether that were all.
func (st *step) loadSlots(from string, slots any, n int, until time.Time) (whole bool, err error) {
	limit := slotMax + slotShare*n
	list, err := st.tx.runs("select "+activeColumns+from+mayMatter+inOrder, slots, columns.States.Of(job.StateReady), columns.Nanos(until), int64(limit))
	if err != nil || len(list) == limit {
		return false, err
	}
	return true, st.addRuns(pointers(list)...)
}

// loadLongSlot adds of a slot all runs that hold it, and the first of those that
// wait for it or are ready.
func (st *step) loadLongSlot(from string, slot any, key string) error {
	list, err := st.tx.runs("select "+activeColumns+from+" and a.holds = 1", slot)
	if err != nil {
		return err
	}
	if err := st.addRuns(pointers(list)...); err != nil {
		return err
	}
	for _, state := range []job.RunState{job.StateWaiting, job.StateReady} {
		list, err := st.tx.runs("select "+activeColumns+from+" and a.state = ? and a.holds = 0"+inOrder, slot, columns.States.Of(state), int64(store.MaxBatch))
		if err != nil {
			return err
		}
		if err := st.addRuns(pointers(list)...); err != nil {
			return err
		}
	}
	waiting, err := st.number("select count(*)"+from+" and a.state = ? and a.holds = 0 and a.awaits = 0 and a.overlap = 0", slot, columns.States.Of(job.StateWaiting))
	if err != nil {
		return err
	}
	st.b.MoreWaiting(key, int(waiting)-st.waiting[key])
	return nil
}

// addRuns adds runs around those that the step is about. One of a job that is not
// locked was made in a pool since, and can only be ready; if it is more than that,
// the step has to be made again with its job.
func (st *step) addRuns(list ...*store.Run) error {
	for _, r := range list {
		l, locked := st.jobs[r.JobUID]
		switch {
		case !locked && (r.HoldsSlot || r.State != job.StateReady):
			return errAgain
		case !locked:
			continue
		case l == nil:
			if err := st.nameOf(r); err != nil {
				return err
			}
		}
		st.addRun(r)
	}
	return nil
}

func (st *step) addRun(r *store.Run) {
	l := st.jobs[r.JobUID]
	if l != nil {
		r.Namespace, r.Name = l.Namespace, l.Name
	}
	if st.b.HasRun(r.ID) {
		return
	}
	if l != nil && r.Shards > 0 && (l.Policy.AfterEnd > 0 || st.followed[l.FullName()]) {
		st.split[l.UID] = true
	}
	if r.State == job.StateWaiting && r.Overlap == "" && !r.AwaitsPrevious && !r.HoldsSlot {
		st.waiting[r.Slot]++
	}
	st.b.AddRun(r)
}

// nameOf gives a run the name of its job, which is not there, from the list of
// names.
func (st *step) nameOf(r *store.Run) error {
	name, known := st.names[r.JobUID]
	if !known {
		q := st.query("select namespace, name from names where uid = ?", idOf(r.JobUID))
		for q.Next() {
			name = [2]string{q.Text(), q.Text()}
		}
		if err := q.Err(); err != nil {
			return err
		}
		st.names[r.JobUID] = name
	}
	r.Namespace, r.Name = name[0], name[1]
	return nil
}

// addKeys adds those identities to the batch that are taken.
func (st *step) addKeys(list []engine.Identity) error {
	var jobs []job.ID
	var keys []string
	for _, id := range list {
		jobs = append(jobs, id.Job)
		keys = append(keys, clean(id.Key))
	}
	wanted := make(map[engine.Identity]engine.Identity, len(list))
	for _, id := range list {
		stored := id
		stored.Key = clean(id.Key)
		wanted[stored] = id
	}
	q := st.query("select job, kind, request, shard, run from request_keys where job in (?*) and request in (?*) and expires > ?",
		set(jobs), keys, columns.Nanos(st.b.Now()))
	for q.Next() {
		stored := engine.Identity{Job: q.id(), Kind: columns.Kinds.Value(q.Int()), Key: q.Text(), Shard: int(q.Int())}
		run := q.id()
		if id, ok := wanted[stored]; ok {
			st.b.AddKey(id, run)
		}
	}
	return q.Err()
}

// addRecords adds the records of runs, with what a late report may change.
func (st *step) addRecords(runs []job.ID) error {
	if len(runs) == 0 {
		return nil
	}
	list, err := st.records(selectRecords+" where h.run in (?*)", set(runs))
	if err != nil {
		return err
	}
	w := &wanted{whole: map[job.ID]bool{}}
	for i := range list {
		r := &list[i]
		st.b.AddRecord(r)
		switch l, locked := st.jobs[r.Run.JobUID]; {
		case !locked:
			return errAgain // it has ended since the step began
		case l != nil && l.Policy.NeedsPrevious:
			w.whole[l.UID] = true
		}
	}
	return st.loadWanted(w)
}

// missing returns those of some runs that are over, or never were.
func (st *step) missing(runs []job.ID) (list []job.ID) {
	for _, id := range runs {
		if _, ok := st.runs[id]; !ok {
			list = append(list, id)
		}
	}
	return list
}

// write writes what the decisions have changed.
func (st *step) write() error {
	c := st.b.Changes()
	if err := st.removeRuns(c.Removed); err != nil {
		return err
	}
	saved := savedRuns.rows(len(c.Saved))
	for _, r := range c.Saved {
		saved.saved(r)
	}
	if err := st.writeRows(Update, saved); err != nil {
		return err
	}
	made := newRuns.rows(len(c.Made))
	for _, r := range c.Made {
		l := st.jobs[r.JobUID]
		if err := made.made(r, l != nil && l.Policy.Broadcast); err != nil {
			return err
		}
	}
	if err := st.writeRows(Insert, made); err != nil {
		return err
	}
	st.ended.Count(c.Records)
	for _, r := range c.Replaced {
		if err := st.exec("delete from history where run = ? and attempt = ?", idOf(r.Run.ID), int64(r.Attempt.Number)); err != nil {
			return err
		}
	}
	if err := st.insertRecords(append(c.Records, c.Replaced...)); err != nil {
		return err
	}
	keys := requestKeys.rows(len(c.Keys))
	for i := range c.Keys {
		k := &c.Keys[i]
		keys.id(&k.Job).int(columns.Kinds.Of(k.Kind)).text(k.Key).int(int64(k.Shard)).id(&k.Run).time(k.Expires)
	}
	if err := st.writeRows(Upsert, keys); err != nil {
		return err
	}
	st.s.known.learn(c.Made, c.Saved)
	st.s.known.forget(c.Removed)
	if len(c.Reaped) > 0 {
		if err := st.exec("update sessions set reaped = 1 where id in (?*)", set(c.Reaped)); err != nil {
			return err
		}
	}
	st.hint |= c.Hints
	if st.s.feed.Wanted() {
		st.events = append(st.events, st.b.Events(&c)...)
	}
	return st.writeFeeds(c.Jobs, c.Audit)
}

var requestKeys = &Table{Name: "request_keys", Key: 4, Columns: []Column{
	{"job", Blob}, {"kind", Int}, {"request", Text}, {"shard", Int}, {"run", Blob}, {"expires", Int},
}}

// writeFeeds writes the state of jobs and what was audited. What planners or users
// must be told goes into the feed of changes; a version that a decision has made,
// a pause or the end of one, gets its definition and revision.
func (st *step) writeFeeds(jobs []*engine.Job, audit []store.AuditRecord) error {
	announced := st.touched
	var changed []redefined // by the decisions
	for _, l := range st.touched {
		jobs = append(jobs, l.Job)
	}
	for _, j := range jobs {
		l := st.jobs[j.UID]
		if l == nil || l.Job != j {
			return fmt.Errorf("job %s was changed and is not locked", j.UID)
		}
		if l.Version != l.was.Version && l.said == nil && !l.Deleted {
			said := *l.doc.definition
			said.Paused = l.State == job.JobPaused
			given, err := st.s.prepareJob(&said)
			if err != nil {
				return err
			}
			l.said = given.text
			changed = append(changed, redefined{l, given, engine.System})
		}
		if l.isNews() && !slices.Contains(announced, l) {
			announced = append(announced, l)
		}
	}
	if len(changed) > 0 {
		calendars, err := st.calendars()
		if err != nil {
			return err
		}
		if err := st.redefine(changed, calendars); err != nil {
			return err
		}
	}
	change, entry, err := st.nextNumbers(len(announced), len(audit))
	if err != nil {
		return err
	}
	if err := st.announce(announced, change); err != nil {
		return err
	}
	saved := states.rows(len(jobs))
	for _, j := range jobs {
		l := st.jobs[j.UID]
		saved.state(l.jobRow)
		if l.Completed.Equal(l.was.Completed) || l.isNews() {
			continue
		}
		if err := st.exec("update jobs set remove_at = ? where uid = ?", columns.Nanos(l.removeAt()), idOf(l.UID)); err != nil {
			return err
		}
	}
	op := Update
	if slices.ContainsFunc(announced, func(l *loadedJob) bool { return l.made }) {
		op = Upsert
	}
	if err := st.writeRows(op, saved); err != nil {
		return err
	}
	return st.insertAudit(audit, entry)
}

// isNews tells whether a step has changed what planners or users must be told.
func (l *loadedJob) isNews() bool {
	return l.made || l.said != nil || l.timing != "" ||
		l.Version != l.was.Version || l.Epoch != l.was.Epoch || l.State != l.was.State || l.Deleted != l.was.Deleted
}

// removeAt returns when a completed job is removed, zero for never.
func (r *jobRow) removeAt() time.Time {
	if after := r.Policy.DeleteAfter; r.State == job.JobCompleted && after >= 0 && !r.Deleted {
		return r.Completed.Add(after)
	}
	return time.Time{}
}

// nextNumbers returns the first of so many numbers in the feed of changes and in
// the audit. The counters stay locked until the commit, so that numbers become
// visible in their order.
func (t *tx) nextNumbers(changes, entries int) (change, entry int64, err error) {
	if changes+entries == 0 {
		return 0, 0, nil
	}
	names := []string{"audit", "change"}
	if changes == 0 {
		names = names[:1]
	} else if entries == 0 {
		names = names[1:]
	}
	q := t.query("select name, value from counters where name in (?*) order by name for update", names)
	for q.Next() {
		if name, value := q.Text(), q.Int(); name == "audit" {
			entry = value + 1
		} else {
			change = value + 1
		}
	}
	if err := q.Err(); err != nil {
		return 0, 0, err
	}
	if entries > 0 {
		err = t.exec("update counters set value = ? where name = 'audit'", entry+int64(entries)-1)
	}
	if err == nil && changes > 0 {
		err = t.exec("update counters set value = ? where name = 'change'", change+int64(changes)-1)
	}
	return change, entry, err
}
