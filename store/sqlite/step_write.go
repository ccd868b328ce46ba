package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// write writes what the decisions have changed.
func (st *step) write() error {
	c := st.b.Changes()
	if err := st.writeRuns(&c); err != nil {
		return err
	}
	if err := st.writeRecords(&c); err != nil {
		return err
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

// writeRuns writes what has become of runs, and remembers where they stand.
func (st *step) writeRuns(c *engine.Changes) error {
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
	return nil
}

// writeRecords writes the records of attempts that are over.
func (st *step) writeRecords(c *engine.Changes) error {
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
	return nil
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
		return s.bindTime(l.Completed).bindTime(l.RemoveAt()).bindID(l.UID).exec()
	}
	return st.announce(l.jobRow)
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
	return s.bindTime(r.RemoveAt()).bindInt(int64(keep.Runs)).bindInt(int64(keep.For)).bindInt(int64(keep.OutputFor)).exec()
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
	s.bindTime(r.RemoveAt()).bindInt(int64(keep.Runs)).bindInt(int64(keep.For)).bindInt(int64(keep.OutputFor))
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
