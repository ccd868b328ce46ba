package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// step is a batch of decisions inside a transaction: it loads what they need to
// know, and writes what they have changed.
type step struct {
	*tx
	b    *engine.Batch
	jobs map[job.ID]*loadedJob
	// slots says until which place in their order the runs of a slot are in the
	// batch. wholeJobs are those whose runs are.
	slots     map[string]store.RunRef
	wholeJobs map[job.ID]bool
	// waiting counts the added runs of each slot that wait for it by the policy
	// of their job.
	waiting map[string]int
	was     map[job.ID]steady // of the runs that were added
	// change is the last number that the step has given in the feed of changes, 0
	// for none. There is one writer, so that numbers become visible in their order.
	change int64
	// timed is how many jobs more have a text in timings than it says there: many
	// jobs of a batch may have the same.
	timed map[int64]int64
	// timings are the numbers of texts in timings that the step has found or made.
	timings map[string]int64
}

// loadedJob is a job in a step, with what it was before.
type loadedJob struct {
	*jobRow
	was  engine.Job
	made bool // by the step: it has no row in job_state yet
}

// reschedule begins a new epoch for a job.
func (st *step) reschedule(l *loadedJob) error {
	calendars, err := st.calendars()
	if err == nil {
		st.b.Reschedule(l.Job, l.doc.filled, columns.Finder(calendars))
	}
	return err
}

// before returns the job as callers get it, as it was before the step.
func (l *loadedJob) before() *store.Job {
	r := *l.jobRow
	r.Job = &l.was
	return r.storeJob()
}

// step begins a batch of decisions about so many things. All of them may need the
// sessions.
func (t *tx) step(items int) (*step, error) {
	st := t.memory.spare
	if st != nil && items >= spareMin {
		t.memory.spare, st.tx = nil, t
		st.b.Reset(t.now)
	} else {
		st = &step{
			tx: t, b: engine.NewBatch(t.now, t.s.lookAhead, items),
			jobs: make(map[job.ID]*loadedJob, items), slots: make(map[string]store.RunRef, items), wholeJobs: map[job.ID]bool{},
			waiting: map[string]int{}, was: make(map[job.ID]steady, items),
		}
	}
	list, err := t.sessions()
	if err != nil {
		return nil, err
	}
	for i := range list {
		st.b.AddSession(&list[i].Session)
	}
	return st, nil
}

// spareMin and spareMax are between how many items a step had whose space is used
// again: for few it costs more to empty than to make anew, and after many it is not kept.
const (
	spareMin = store.MaxBatch / 5
	spareMax = 2 * store.MaxBatch
)

// over gives the space of a step to the next one.
func (st *step) over(items int) {
	if items < spareMin || len(st.was) > spareMax {
		return
	}
	clear(st.jobs)
	clear(st.slots)
	clear(st.wholeJobs)
	clear(st.waiting)
	clear(st.was)
	st.b.Reset(time.Time{})
	memory := st.memory
	*st = step{b: st.b, jobs: st.jobs, slots: st.slots, wholeJobs: st.wholeJobs, waiting: st.waiting, was: st.was}
	memory.spare = st
}

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

// number returns the number that stands for a job in history.
func (st *step) number(r *job.Run) (n int64, err error) {
	if l := st.jobs[r.JobUID]; l != nil {
		return l.n, nil
	}
	return numberOf(st.conn, r.JobUID, r.Namespace, r.Name)
}

func numberOf(c *conn, uid job.ID, namespace, name string) (n int64, err error) {
	q := c.stmt("insert into names (uid, namespace, name) values (?, ?, ?) on conflict (uid) do update set n = n returning n")
	q.bindID(uid).bindText(namespace).bindText(name)
	for q.next() {
		n = q.int()
	}
	return n, q.err()
}

// write writes what the decisions have changed.
func (st *step) write() error {
	c := st.b.Changes()
	st.moves = slices.Grow(st.moves, len(c.Removed)+len(c.Saved)+len(c.Made))
	for _, r := range c.Removed {
		st.memory.dropRun(r)
		st.moves = append(st.moves, move{id: r.ID, job: r.JobUID, from: st.was[r.ID].place})
		if err := st.deleteRun(r.ID); err != nil {
			return err
		}
	}
	for _, r := range c.Saved {
		st.memory.keepRun(r)
		was := st.was[r.ID]
		if now := placeOf(r); now != was.place {
			st.moves = append(st.moves, move{r.ID, r.JobUID, was.place, now})
		}
		if err := st.updateRun(r, was); err != nil {
			return err
		}
	}
	for _, r := range c.Made {
		st.memory.keepRun(r)
		st.moves = append(st.moves, move{id: r.ID, job: r.JobUID, to: placeOf(r)})
		l := st.jobs[r.JobUID]
		if err := st.insertRun(r, l != nil && l.Policy.Broadcast); err != nil {
			return err
		}
	}
	st.ended.Count(c.Records)
	for _, r := range c.Replaced {
		q := st.stmt("delete from history where run = ? and attempt = ?").bindID(r.Run.ID).bindInt(int64(r.Attempt.Number))
		if err := q.exec(); err != nil {
			return err
		}
	}
	for _, list := range [][]*store.Record{c.Records, c.Replaced} {
		for _, r := range list {
			n, err := st.number(&r.Run)
			if err != nil {
				return err
			}
			if err := st.insertRecord(r, n); err != nil {
				return err
			}
		}
	}
	for _, j := range c.Jobs {
		if err := st.saveJob(j); err != nil {
			return err
		}
	}
	if st.change != 0 {
		if err := st.stmt("update counters set value = ? where name = 'change'").bindInt(st.change).exec(); err != nil {
			return err
		}
	}
	for id, more := range st.timed {
		if err := st.stmt("update timings set jobs = jobs + ? where id = ?").bindInt(more).bindInt(id).exec(); err != nil {
			return err
		}
	}
	for _, k := range c.Keys {
		q := st.stmt("insert or replace into keys (job, kind, key, shard, run, expires) values (?, ?, ?, ?, ?, ?)")
		q.bindID(k.Job).bindInt(columns.Kinds.Of(k.Kind)).bindText(k.Key).bindInt(int64(k.Shard)).bindID(k.Run).bindTime(k.Expires)
		if err := q.exec(); err != nil {
			return err
		}
	}
	for _, a := range c.Audit {
		if err := st.insertAudit(a); err != nil {
			return err
		}
	}
	for _, id := range c.Reaped {
		if err := st.stmt("update sessions set reaped = 1 where id = ?").bindID(id).exec(); err != nil {
			return err
		}
		st.memory.sessions = nil
	}
	st.hint |= c.Hints
	if st.s.feed.Wanted() {
		st.events = append(st.events, st.b.Events(&c)...)
	}
	return nil
}

// saveJob writes the state of a job. What planners or users must be told goes
// into the feed of changes. A version that a decision has made, a pause or the
// end of one, gets its definition and revision.
func (st *step) saveJob(j *engine.Job) error {
	l := st.jobs[j.UID]
	if l == nil || l.Job != j {
		return fmt.Errorf("job %s was changed and is not known", j.UID)
	}
	if l.made {
		return st.insertJob(l.jobRow)
	}
	if l.Version != l.was.Version && l.doc.version == l.was.Version && !l.Deleted {
		definition := *l.doc.definition
		definition.Paused = l.State == job.JobPaused
		w, err := st.s.prepareJob(&definition)
		if err != nil {
			return err
		}
		if err := st.redefine(l.jobRow, w, engine.System); err != nil {
			return err
		}
	}
	// Most that change what a job says leave how far it has come.
	if !l.Cursor.Equal(l.was.Cursor) || !l.Floor.Equal(l.was.Floor) || l.Planner != l.was.Planner || l.Planned != l.was.Planned ||
		l.Failures != l.was.Failures || !l.Previous.Equal(l.was.Previous) || l.PreviousOK != l.was.PreviousOK {
		s := st.stmt("update job_state set cursor = ?, floor = ?, planner = ?, planned = ?, failures = ?, previous = ?, previous_ok = ? where uid = ?")
		s.bindTime(l.Cursor).bindTime(l.Floor).bindID(l.Planner).bindInt(int64(l.Planned)).bindInt(int64(l.Failures))
		if err := s.bindTime(l.Previous).bindBool(l.PreviousOK).bindID(l.UID).exec(); err != nil {
			return err
		}
	}
	if l.PreviousFailed != l.was.PreviousFailed {
		s := st.stmt("update job_state set previous_failed = ? where uid = ?")
		if err := s.bindText(string(l.PreviousFailed)).bindID(l.UID).exec(); err != nil {
			return err
		}
	}
	if l.Version == l.was.Version && l.Epoch == l.was.Epoch && l.State == l.was.State && l.Deleted == l.was.Deleted {
		st.memory.keepJob(l.jobRow)
		if l.Completed.Equal(l.was.Completed) {
			return nil
		}
		s := st.stmt("update job_state set completed = ?, remove_at = ? where uid = ?")
		return s.bindTime(l.Completed).bindTime(l.removeAt()).bindID(l.UID).exec()
	}
	return st.announce(l.jobRow)
}

// removeAt returns when a completed job is removed, zero for never.
func (r *jobRow) removeAt() time.Time {
	if after := r.Policy.DeleteAfter; r.State == job.JobCompleted && after >= 0 && !r.Deleted {
		return r.Completed.Add(after)
	}
	return time.Time{}
}

// insertJob writes the state of a job that the step has made, and puts it into the
// feed of changes.
func (st *step) insertJob(r *jobRow) error {
	if err := st.feed(r); err != nil {
		return err
	}
	s := st.stmt(`insert into job_state (uid, n, part, seq, timing, created, changed, version, epoch, state, deleted, cursor, floor, planner,
		planned, failures, previous, previous_ok, paused_at, paused_until, paused_by, pause_reason, completed,
		remove_at, keep_runs, keep_for, keep_output)
		values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, x'', ?, 0, 0, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	s.bindID(r.UID).bindInt(r.n).bindInt(int64(job.Partition(r.UID))).bindInt(r.seq).bindInt(r.timing).bindTime(r.created).bindTime(r.changed)
	s.bindInt(r.Version).bindInt(r.Epoch).bindInt(columns.JobStates.Of(r.State)).bindTime(r.Cursor).bindInt(int64(r.Planned))
	s.bindTime(r.PausedAt).bindTime(r.PausedUntil).bindText(r.PausedBy).bindText(r.PauseReason).bindTime(r.Completed)
	keep := keepOf(r.doc.filled)
	return s.bindTime(r.removeAt()).bindInt(int64(keep.Runs)).bindInt(int64(keep.For)).bindInt(int64(keep.OutputFor)).exec()
}

// feed puts a job into the feed of changes, as it is.
func (st *step) feed(r *jobRow) error {
	r.changed = st.now
	st.hint |= store.HintJobs
	if st.change == 0 {
		q := st.stmt("select value from counters where name = 'change'")
		for q.next() {
			st.change = q.int()
		}
		if err := q.err(); err != nil {
			return err
		}
	}
	st.change++
	r.seq = st.change
	st.memory.keepJob(r)
	return nil
}

// announce writes what rarely changes about a job, and puts it into the feed of
// changes.
func (st *step) announce(r *jobRow) error {
	st.memory.changed(r.UID)
	if err := st.feed(r); err != nil {
		return err
	}
	var deleted int64
	if r.Deleted {
		deleted = columns.Nanos(st.now)
		// Its version has no definition of its own: it is read as the latest.
		st.memory.dropJob(r.UID)
	}
	keep := keepOf(r.doc.filled)
	s := st.stmt(`update job_state set seq = ?, timing = ?, changed = ?, version = ?, epoch = ?, state = ?, deleted = ?, paused_at = ?,
		paused_until = ?, paused_by = ?, pause_reason = ?, completed = ?, remove_at = ?, keep_runs = ?, keep_for = ?, keep_output = ? where uid = ?`)
	s.bindInt(r.seq).bindInt(r.timing).bindTime(r.changed).bindInt(r.Version).bindInt(r.Epoch).bindInt(columns.JobStates.Of(r.State)).bindInt(deleted)
	s.bindTime(r.PausedAt).bindTime(r.PausedUntil).bindText(r.PausedBy).bindText(r.PauseReason).bindTime(r.Completed)
	s.bindTime(r.removeAt()).bindInt(int64(keep.Runs)).bindInt(int64(keep.For)).bindInt(int64(keep.OutputFor))
	return s.bindID(r.UID).exec()
}

func (t *tx) insertAudit(a store.AuditRecord) error {
	changes := ""
	if len(a.Changes) > 0 {
		text, err := json.Marshal(a.Changes)
		if err != nil {
			return err
		}
		changes = string(text)
	}
	q := t.stmt("insert into audit (time, actor, action, object, version, detail, changes) values (?, ?, ?, ?, ?, ?, ?)")
	q.bindTime(a.Time).bindText(a.Actor).bindText(a.Action).bindText(a.Object).bindInt(a.Version)
	return q.bindText(a.Detail).bindText(changes).exec()
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
