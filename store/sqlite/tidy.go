package sqlite

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// tidyMax is how many rows of each kind one call of Tidy removes: some
// milliseconds of the writer.
const tidyMax = 500

// Tidy implements store.Store.
func (s *Store) Tidy(ctx context.Context) (more bool, err error) {
	err = s.sweep(ctx, func(t *tx) error {
		st, err := t.step(1)
		if err != nil {
			return err
		}
		for _, part := range []func() (bool, error){st.settleOver, st.endTerms} {
			left, err := part()
			if err != nil {
				return err
			}
			more = more || left
		}
		if err := st.write(); err != nil {
			return err
		}
		for _, part := range []func() (bool, error){t.removeKeys, t.removeTombstones, t.removeSessions} {
			left, err := part()
			if err != nil {
				return err
			}
			more = more || left
		}
		return nil
	})
	return more, wrapped(err, "tidy")
}

// settleOver settles runs that will never start, those that were due first.
func (st *step) settleOver() (more bool, err error) {
	withdrawn, more, err := st.withdrawn()
	if err != nil {
		return false, err
	}
	late, moreLate, err := st.late()
	if err != nil {
		return false, err
	}
	all := append(withdrawn, late...)
	slices.SortFunc(all, func(a, b store.RunRef) int { return cmp.Or(a.Due.Compare(b.Due), slices.Compare(a.ID[:], b.ID[:])) })
	for _, r := range slices.Compact(all) {
		if _, err := st.run(r.ID, ""); err != nil {
			return false, err
		}
		st.b.Settle(r.ID)
	}
	return more || moreLate, nil
}

// runRefs returns the runs of a query for due time and id.
func runRefs(q *stmt) (list []store.RunRef, err error) {
	for q.next() {
		list = append(list, store.RunRef{Due: q.time(), ID: q.id()})
	}
	return list, q.err()
}

// ids returns the ids of a query.
func ids(q *stmt) (list []job.ID, err error) {
	for q.next() {
		list = append(list, q.id())
	}
	return list, q.err()
}

// withdrawnRuns are those that were withdrawn, by the rules of package engine,
// which decides about each. What stays (a run by hand of a paused job) is not
// among them, so that it cannot hide the others.
const withdrawnRuns = `select a.due, a.id from active a left join job_state s on s.uid = a.job
	where a.state <> ? and (s.uid is null or s.deleted <> 0
		or a.kind <> ? and (s.state = ? or s.epoch <> a.epoch and a.kind not in (?, ?)))`

func bindWithdrawn(q *stmt) *stmt {
	q.bindInt(columns.States.Of(job.StateRunning)).bindInt(columns.Kinds.Of(job.RunByHand)).bindInt(columns.JobStates.Of(job.JobPaused))
	return q.bindInt(columns.Kinds.Of(job.RunOn)).bindInt(columns.Kinds.Of(job.RunBackfill))
}

// withdrawn returns runs that were withdrawn: after a start it looks at all runs,
// then at those of the jobs that were changed.
func (st *step) withdrawn() (all []store.RunRef, more bool, err error) {
	m := st.memory
	if !m.settled {
		all, err = runRefs(bindWithdrawn(st.stmt(withdrawnRuns + " limit ?")).bindInt(tidyMax))
		if err == nil && len(all) < tidyMax {
			m.settled, m.unsettled = true, nil
		}
		return all, !m.settled, err
	}
	for uid := range maps.Clone(m.unsettled) {
		left := tidyMax - len(all)
		list, err := runRefs(bindWithdrawn(st.stmt(withdrawnRuns + " and a.job = ? limit ?")).bindID(uid).bindInt(int64(left)))
		if err != nil {
			return nil, false, err
		}
		all = append(all, list...)
		if len(list) == left {
			return all, true, nil
		}
		delete(m.unsettled, uid)
	}
	return all, false, nil
}

// lookMax is how many runs one call of Tidy looks at to find those that are too
// late. A backlog of more is looked at in turns.
const lookMax = 2000

// late returns runs whose due time is past and that may be too late: those that
// are, and those that wait for a node or their next attempt, about which package
// engine knows more.
func (st *step) late() (all []store.RunRef, more bool, err error) {
	for _, state := range []job.RunState{job.StateReady, job.StateWaiting} {
		for _, session := range st.s.lines.sessions(state) {
			list, left, err := st.lateOf(line{state, session})
			if err != nil {
				return nil, false, err
			}
			all = append(all, list...)
			more = more || left && len(list) > 0
		}
	}
	return all, more, nil
}

// lateOf looks at the next runs of a line, and tells whether there are more.
func (st *step) lateOf(of line) (late []store.RunRef, left bool, err error) {
	var ref store.RunRef
	looked := 0
	for _, r := range st.s.lines.runs(of, st.memory.turns[of], columns.Nanos(st.now)-1, lookMax) {
		ref = r.ref()
		q := st.stmt("select late_after, last <> 0 or broadcast = 1 from active where id = ?").bindID(r.id)
		for q.next() {
			after := q.time()
			if unclear := q.bool(); unclear || !after.IsZero() && after.Before(st.now) {
				late = append(late, ref)
			}
		}
		if err := q.err(); err != nil {
			return nil, false, err
		}
		if looked++; len(late) == tidyMax {
			break
		}
	}
	if left = looked == lookMax || len(late) == tidyMax; !left {
		delete(st.memory.turns, of)
		return late, false, nil
	}
	if st.memory.turns == nil {
		st.memory.turns = map[line]store.RunRef{}
	}
	st.memory.turns[of] = ref
	return late, true, nil
}

// endTerms ends pauses that have run out and removes completed jobs whose time
// has come, in the order of their names.
func (st *step) endTerms() (more bool, err error) {
	var due []*loadedJob
	for _, text := range []string{
		"select uid from job_state where paused_until <> 0 and paused_until <= ? order by paused_until limit ?",
		"select uid from job_state where remove_at <> 0 and remove_at <= ? order by remove_at limit ?",
	} {
		list, err := ids(st.stmt(text).bindTime(st.now).bindInt(tidyMax))
		if err != nil {
			return false, err
		}
		more = more || len(list) == tidyMax
		for _, uid := range list {
			l, err := st.job(uid)
			if err != nil {
				return false, err
			}
			if err := st.waitingRuns(l, l.Policy); err != nil {
				return false, err
			}
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *loadedJob) int { return cmp.Compare(a.FullName(), b.FullName()) })
	calendars, err := st.calendars()
	if err != nil {
		return false, err
	}
	for _, l := range due {
		switch {
		case st.b.Expired(l.Job):
			if err := st.unlink(l); err != nil {
				return false, err
			}
			if err := st.b.Delete(l.Job, store.AnyVersion, engine.System); err != nil {
				return false, err
			}
		case !st.b.Unpause(l.Job, l.doc.filled, columns.Finder(calendars)) && l.Deleted:
			// It keeps the time of its pause: nobody asks again.
			st.memory.dropJob(l.UID)
			if err := st.stmt("update job_state set paused_until = 0 where uid = ?").bindID(l.UID).exec(); err != nil {
				return false, err
			}
		}
	}
	return more, nil
}

// removeKeys removes keys of requests that are old enough.
func (t *tx) removeKeys() (more bool, err error) {
	q := t.stmt("delete from keys where (job, kind, key, shard) in (select job, kind, key, shard from keys where expires <= ? limit ?)")
	err = q.bindTime(t.now).bindInt(tidyMax).exec()
	return t.changes() == tidyMax, err
}

// removeTombstones removes deleted jobs that planners have heard of and that have
// no runs any more.
func (t *tx) removeTombstones() (more bool, err error) {
	type tombstone struct {
		uid    job.ID
		timing int64
	}
	var list []tombstone
	q := t.stmt(`select uid, timing from job_state s where deleted <> 0 and deleted < ?
		and not exists (select 1 from active a where a.job = s.uid) limit ?`)
	q.bindTime(t.now.Add(-store.TombstoneLife)).bindInt(tidyMax)
	for q.next() {
		list = append(list, tombstone{q.id(), q.int()})
	}
	if err := q.err(); err != nil {
		return false, err
	}
	for _, gone := range list {
		t.memory.dropJob(gone.uid)
		for _, text := range []string{
			"delete from job_state where uid = ?", "delete from jobs where uid = ?", "delete from revisions where job = ?",
		} {
			if err := t.stmt(text).bindID(gone.uid).exec(); err != nil {
				return false, err
			}
		}
		if err := t.dropTiming(gone.timing); err != nil {
			return false, err
		}
		if err := t.dropName(gone.uid); err != nil {
			return false, err
		}
	}
	return len(list) == tidyMax, nil
}

// dropName removes the name of a job that is gone, or notes that history still
// speaks of it.
func (t *tx) dropName(uid job.ID) error {
	if err := t.stmt("delete from names where uid = ? and not exists (select 1 from history h where h.job = names.n)").bindID(uid).exec(); err != nil {
		return err
	}
	return t.stmt("insert or ignore into orphans (n) select n from names where uid = ?").bindID(uid).exec()
}

// removeSessions removes sessions that were silent for long and run nothing.
func (t *tx) removeSessions() (more bool, err error) {
	silent, err := ids(t.stmt("select id from sessions where renewed < ?").bindTime(t.now.Add(-store.SilenceMax)))
	if err != nil {
		return false, err
	}
	for _, id := range silent {
		if t.s.lines.has(line{job.StateRunning, id}) {
			continue
		}
		t.memory.sessions = nil
		if err := t.stmt("delete from sessions where id = ?").bindID(id).exec(); err != nil {
			return false, err
		}
	}
	return false, nil
}
