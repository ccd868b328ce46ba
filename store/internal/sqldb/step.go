package sqldb

import (
	"bytes"
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
	// whole are jobs all of whose unfinished runs matter if they have max_runs or are
	// to be removed.
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
	// stamp is left on what the step writes, and guessed are runs that were not read.
	stamp   stamp
	guessed map[job.ID]writtenRun
	by      job.ID               // the session that the step is for, zero for none
	names   map[job.ID][2]string // namespace and name of jobs that are not there
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
	if t.looks {
		t.s.known.doubt(a.runs)
	}
	own, left, era := t.s.db.Stamps()
	f, err := t.foresee(&a, era)
	if err != nil {
		return nil, err
	}
	if f != nil {
		st.stamp.era = era
		err = st.lockForeseen(f, own, left)
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
func (st *step) lockForeseen(f *foreseen, own, left string) error {
	var asked conversation
	if len(f.named) > 0 {
		take := func(q reader) error { return st.noOtherFollows(f, q) }
		if f.few {
			asked.ask(take, selectUpstreams, int64(upstreamsMax))
		} else {
			asked.ask(take, selectFollowers, slices.Collect(maps.Keys(f.named)))
		}
	}
	var rows []*jobRow
	asked.ask(func(q reader) error { rows = scanStates(q); return nil }, lockStates, set(f.jobs))
	asked.ask(func(q reader) error { st.sessions = st.scanSessions(q); return nil }, selectSessions)
	if st.s.clock.given == nil {
		asked.ask(func(q reader) error {
			for q.Next() {
				st.moment = micro(columns.FromNanos(q.Int()))
			}
			return nil
		}, st.s.selectClock())
	}
	if own != "" {
		asked.ask(func(q reader) error {
			for q.Next() {
				st.stamp.number = uint32(q.Int())
			}
			return nil
		}, "select "+own)
	}
	var unread []job.ID // of the runs in slots
	if len(f.slots) > 0 {
		limit := slotMax + slotShare*len(f.slots)
		what := "select " + activeColumns + ofOwnSlots + mayMatter + inOrder
		if f.stamped {
			what = "select a.id, " + left + ofOwnSlots + mayMatter + " limit ?"
		}
		asked.ask(func(q reader) error { unread = st.takeSlots(f, q, limit); return nil },
			what, set(f.slots), columns.States.Of(job.StateReady), f.until, int64(limit))
	}
	if len(f.runs) > 0 {
		asked.ask(func(q reader) error {
			st.ahead.runs = append(st.ahead.runs, pointers(scanRuns(q, len(f.runs)))...)
			return nil
		}, selectGiven, set(f.runs))
	}
	if err := asked.with(st.tx); err != nil {
		return err
	}
	if len(unread) > 0 {
		if err := st.readStamped(unread, left); err != nil {
			return err
		}
	}
	st.guessed = f.guessed
	for _, w := range f.guessed {
		r := *w.run
		st.ahead.runs = append(st.ahead.runs, &r)
	}
	if err := st.defineAll(rows); err != nil {
		return err
	}
	st.locked(f.jobs, rows)
	return st.tellAbout(st.sessions)
}

// noOtherFollows reads who is followed: what follows a job is locked with it, so that a
// step which did not know of it begins again.
func (st *step) noOtherFollows(f *foreseen, q reader) error {
	for n := 1; q.Next(); n++ {
		if uid, named := f.named[q.Text()]; named {
			st.s.jobs.follow(uid)
			return errAgain
		}
		if f.few && n == upstreamsMax {
			st.s.jobs.lookUp()
			return errAgain // there may be more
		}
	}
	return nil
}

// takeSlots reads the runs in the own slots of jobs that may matter, unless there are
// more than so many. It returns those that must be read by their ids.
func (st *step) takeSlots(f *foreseen, q reader, limit int) (unread []job.ID) {
	var runs []*store.Run
	if f.stamped {
		runs, unread = st.s.known.asWritten(q, st.stamp.era)
	} else {
		runs = pointers(scanRuns(q, len(f.slots)))
	}
	if len(runs)+len(unread) >= limit {
		return nil
	}
	st.ahead = ahead{runs: runs, slots: make(map[job.ID]bool, len(f.slots)), until: columns.FromNanos(f.until)}
	for _, uid := range f.slots {
		st.ahead.slots[uid] = true
	}
	return unread
}

// conversation is what is asked at once, each question with what takes its answer.
type conversation struct {
	questions []Question
	takes     []func(q reader) error
}

func (c *conversation) ask(take func(q reader) error, text string, args ...any) {
	c.questions, c.takes = append(c.questions, Question{text, args}), append(c.takes, take)
}

// with asks, and takes the answers in the order of the questions until one of them is wrong.
func (c *conversation) with(t *tx) error {
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

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// session returns the session that the step is for, which is not over.
func (st *step) session(id job.ID) (*store.Session, error) {
	st.by = id
	return notOver(st.sessions, id)
}

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
	q := st.query("select a.id, a.job, a.slot, s.seq from active a "+byKey+"left join job_state s on s.uid = a.job where a.id in (?*)", set(a.runs))
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
	uids, err := st.ids("select h.job from history h "+byRun+"where h.run in (?*)", set(slices.Collect(maps.Keys(missing))))
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

const (
	selectFollowers = "select upstream, job from followers where upstream in (?*) order by upstream, job"
	// selectUpstreams finds all that is followed, where that is little: a server takes
	// longer to look up the names of a batch.
	selectUpstreams = "select upstream from followers limit ?"
	// upstreamsMax is from how many on names are looked up: to read this many takes less
	// than a tenth of that.
	upstreamsMax = 64
)

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

// byKey makes MySQL and MariaDB, for which alone it is no comment, look up each id of
// a set where they would rather read, and lock, the whole table, byRun the records of
// each run.
const (
	byKey = "/*! force index (primary) */ "
	byRun = "/*! force index (history_run) */ "
)

// lockStates sorts what is found, by an expression that no index has: otherwise
// PostgreSQL may read all jobs in the order of the index and compare each with the set.
const lockStates = "select " + stateColumns + " from job_state s " + byKey + "where s.uid in (?*) order by coalesce(s.uid, '') for update"

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
