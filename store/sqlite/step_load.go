package sqlite

import (
	"strings"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// job loads a job into the batch. It is nil if there is none.
func (st *step) job(uid job.ID) (*loadedJob, error) {
	if l, ok := st.jobs[uid]; ok {
		return l, nil
	}
	if r := st.memory.rowOf(uid); r != nil {
		return st.addJob(r), nil
	}
	rows, err := st.s.jobRows(st.conn, st.stmt(stateByUID).bindID(uid))
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		st.jobs[uid] = nil
		return nil, nil
	}
	st.memory.keepJob(rows[0])
	return st.addJob(rows[0]), nil
}

// addJob adds a job that was read.
func (st *step) addJob(r *jobRow) *loadedJob {
	if l := st.jobs[r.UID]; l != nil {
		return l
	}
	l := &loadedJob{jobRow: r, was: *r.Job}
	st.jobs[r.UID] = l
	st.b.AddJob(r.Job)
	return l
}

const runByID = "select " + activeColumns + " from active a where a.id = ?"

// run loads a run with all that a decision about it may need to know, and
// returns it as it is in the database: the zero Run if it is not there. node is
// where it may be claimed, "" for where it is.
func (st *step) run(id job.ID, node string) (store.Run, error) {
	r, known := st.memory.run(id)
	if !known {
		q := st.stmt(runByID).bindID(id)
		for q.next() {
			scanRun(q, &r)
		}
		if err := q.err(); err != nil || r.ID.IsZero() {
			return store.Run{}, err
		}
	}
	l, err := st.addRun(&r)
	if err != nil {
		return store.Run{}, err
	}
	if l == nil {
		return r, st.slot(r.Slot, &r)
	}
	if node == "" {
		node = r.Node
	}
	return r, st.around(&r, l, node)
}

// addRun adds a run and its job to the batch.
func (st *step) addRun(r *store.Run) (*loadedJob, error) {
	l, err := st.job(r.JobUID)
	if err != nil {
		return nil, err
	}
	if l != nil {
		r.Namespace, r.Name = l.Namespace, l.Name
	} else if err := st.nameOf(&r.Run); err != nil {
		return nil, err
	}
	if st.b.HasRun(r.ID) {
		return l, nil
	}
	st.was[r.ID] = steady{placeOf(r), r.Slot, r.AlertAt, r.Others}
	if r.State == job.StateWaiting && r.Overlap == "" && !r.AwaitsPrevious && !r.HoldsSlot {
		st.waiting[r.Slot]++
	}
	st.b.AddRun(r)
	if l == nil || r.Shards == 0 {
		return l, nil
	}
	// What follows from its end depends on the other shards.
	followed, err := st.followers(l.Job)
	if err == nil && l.Policy.WantsShards(followed) {
		err = st.runsOf(r.JobUID)
	}
	return l, err
}

// around adds what a decision that may end a run needs to know besides.
func (st *step) around(r *store.Run, l *loadedJob, node string) error {
	if l.Policy.Contends(r) {
		if err := st.slot(r.Slot, r); err != nil {
			return err
		}
		if key := l.Policy.SlotKey(&r.Run, node); key != r.Slot {
			if err := st.slot(key, r); err != nil {
				return err
			}
		}
	}
	if p := l.Policy; p.NeedsPrevious || p.DeleteAfter >= 0 || p.MaxRuns > 0 && p.PauseOnFailure > 0 {
		if err := st.runsOf(r.JobUID); err != nil {
			return err
		}
	}
	_, err := st.followers(l.Job)
	return err
}

const (
	slotOfJob = " from active a where a.job = ? and a.slot is null"
	slotOfKey = " from active a where a.slot = ?"
)

// slotMax is how many runs of a slot are read at once: more than a job that is due
// every 10 ms has planned. Of a slot with more only those are read that decisions
// look at.
const slotMax = 4 * store.MaxBatch

// slot adds the runs that hold a slot, wait for it, or are ready for it before a
// run whose attempt is decided about.
func (st *step) slot(key string, of *store.Run) error {
	until, uid := store.RunRef{Due: of.Due, ID: of.ID}, of.JobUID
	covered, known := st.slots[key]
	if known && columns.CompareRefs(until, covered) <= 0 {
		return nil
	}
	if pool, ok := strings.CutPrefix(key, engine.PoolSlot("")); ok {
		size, err := st.poolSize(pool)
		if err != nil {
			return err
		}
		st.b.AddPool(pool, size)
	}
	from, own := slotOfKey, columns.IsOwnSlot(key, uid)
	if own {
		if st.memory.hasSlot(uid) {
			st.slots[key] = until
			for r := range st.memory.ownSlot(uid, until, st.b.HasRun) {
				if _, err := st.addRun(r); err != nil {
					return err
				}
			}
			return nil
		}
		from = slotOfJob
	}
	st.slots[key] = store.RunRef{Due: columns.Latest} // all of them
	bind := func(text string) *stmt {
		if own {
			return st.stmt(text).bindID(uid)
		}
		return st.stmt(text).bindText(key)
	}
	list, err := scanRuns(bind("select " + activeColumns + from + " order by a.due, a.id limit ?").bindInt(slotMax))
	if err != nil {
		return err
	}
	if err := st.addRuns(list); err != nil {
		return err
	}
	if len(list) < slotMax {
		if own {
			st.memory.keepSlot(uid, list)
		}
		return nil
	}
	if list, err = scanRuns(bind("select " + activeColumns + from + " and a.holds = 1")); err != nil {
		return err
	}
	if err := st.addRuns(list); err != nil {
		return err
	}
	for _, state := range []job.RunState{job.StateWaiting, job.StateReady} {
		q := bind("select " + activeColumns + from + " and a.state = ? and a.holds = 0 order by a.due, a.id limit ?")
		if list, err = scanRuns(q.bindInt(columns.States.Of(state)).bindInt(store.MaxBatch)); err != nil {
			return err
		}
		if err := st.addRuns(list); err != nil {
			return err
		}
	}
	q := bind("select count(*)" + from + " and a.state = ? and a.holds = 0 and a.awaits = 0 and a.overlap = 0")
	q.bindInt(columns.States.Of(job.StateWaiting))
	waiting := 0
	for q.next() {
		waiting = int(q.int())
	}
	if err := q.err(); err != nil {
		return err
	}
	st.b.MoreWaiting(key, waiting-st.waiting[key])
	return nil
}

// addRuns adds runs and their jobs.
func (st *step) addRuns(list []store.Run) error {
	for i := range list {
		if _, err := st.addRun(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

// runsOf adds all unfinished runs of a job.
func (st *step) runsOf(uid job.ID) error {
	if st.wholeJobs[uid] {
		return nil
	}
	st.wholeJobs[uid] = true
	list, err := scanRuns(st.stmt("select " + activeColumns + " from active a where a.job = ? order by a.due, a.id").bindID(uid))
	if err != nil {
		return err
	}
	return st.addRuns(list)
}

// followers adds the jobs that follow one, and tells whether there are any.
func (st *step) followers(j *engine.Job) (yes bool, err error) {
	followed, err := st.followed()
	if err != nil || len(followed) == 0 { // mostly no job is, and its name need not be made
		return false, err
	}
	upstream := j.FullName()
	if !followed[upstream] {
		return false, nil
	}
	var uids []job.ID
	q := st.stmt("select job from followers where upstream = ?").bindText(upstream)
	for q.next() {
		uids = append(uids, q.id())
	}
	if err := q.err(); err != nil {
		return false, err
	}
	for _, uid := range uids {
		l, err := st.job(uid)
		if err != nil {
			return false, err
		}
		if l != nil {
			st.b.AddFollower(upstream, l.Job)
		}
	}
	return true, nil
}

// nameOf gives a run the name of its job from the list of names.
func (st *step) nameOf(r *job.Run) error {
	q := st.stmt("select namespace, name from names where uid = ?").bindID(r.JobUID)
	for q.next() {
		r.Namespace, r.Name = q.text(), q.text()
	}
	return q.err()
}

// addKey adds an identity to the batch if it is taken.
func (st *step) addKey(id engine.Identity) error {
	q := st.stmt("select run from keys where job = ? and kind = ? and key = ? and shard = ? and expires > ?")
	q.bindID(id.Job).bindInt(columns.Kinds.Of(id.Kind)).bindText(id.Key).bindInt(int64(id.Shard)).bindTime(st.now)
	for q.next() {
		st.b.AddKey(id, q.id())
	}
	return q.err()
}

// addRecord adds the record of an attempt to the batch, if there is one.
func (st *step) addRecord(run job.ID, attempt int) error {
	return st.addRecords(st.stmt(selectRecords + " where h.run = ? and h.attempt = ?").bindID(run).bindInt(int64(attempt)))
}

// addRecords adds the records of a query, with the jobs that they are of.
func (st *step) addRecords(q *stmt) error {
	records, err := scanRecords(q)
	if err != nil {
		return err
	}
	for i := range records {
		r := &records[i]
		st.b.AddRecord(r)
		l, err := st.job(r.Run.JobUID)
		if err != nil {
			return err
		}
		if l != nil && l.Policy.NeedsPrevious {
			if err := st.runsOf(l.UID); err != nil {
				return err
			}
		}
	}
	return nil
}
