package sqldb

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// tidyMax is how many rows of each kind one call of Tidy removes: some tens of
// milliseconds, in which it holds locks.
const tidyMax = 200

// tidying is how far this process has come. After a start it looks at everything
// once.
type tidying struct {
	mu   sync.Mutex
	seen tidied
}

type tidied struct {
	// settled is the number in the feed of changes up to which the runs of jobs
	// were looked at; 0 before all were.
	settled int64
	// turns are how far it has come among the runs of a session that may stay.
	turns map[job.ID]store.RunRef
}

// Tidy implements store.Store. One node does so at a time; for another one there
// is nothing to do meanwhile.
func (s *Store) Tidy(ctx context.Context) (more bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		more = false
		turn, err := t.texts("select name from counters where name = 'tidy' for update skip locked")
		if err != nil || len(turn) == 0 {
			return err
		}
		s.tidying.mu.Lock()
		seen := tidied{s.tidying.seen.settled, maps.Clone(s.tidying.seen.turns)}
		s.tidying.mu.Unlock()
		if more, err = t.tidy(&seen); err != nil {
			return err
		}
		// If the commit fails, what was not done is found when all is looked at.
		s.tidying.mu.Lock()
		s.tidying.seen = seen
		s.tidying.mu.Unlock()
		return nil
	})
	if err != nil {
		s.tidying.mu.Lock()
		s.tidying.seen = tidied{}
		s.tidying.mu.Unlock()
	}
	return more, wrapped(err, "tidy")
}

func (t *tx) tidy(seen *tidied) (more bool, err error) {
	now := t.s.clock.now() // says what to look at; decisions have their own
	refs, more, err := t.overRuns(seen, now)
	if err != nil {
		return false, err
	}
	terms, moreTerms, err := t.overTerms(now)
	if err != nil {
		return false, err
	}
	if len(refs)+len(terms) > 0 {
		if err := t.settle(refs, terms); err != nil {
			return false, err
		}
	}
	more = more || moreTerms
	for _, part := range []func(now time.Time) (bool, error){t.removeKeys, t.removeTombstones, t.removeSessions} {
		left, err := part(now)
		if err != nil {
			return false, err
		}
		more = more || left
	}
	return more, nil
}

// settle ends runs that will never start, those that were due first, pauses that
// have run out, and removes completed jobs whose time has come.
func (t *tx) settle(refs []store.RunRef, terms []job.ID) error {
	a := about{runs: idsOf(refs, func(r *store.RunRef) job.ID { return r.ID }), edits: map[job.ID]*engine.Policy{}, whole: terms}
	if len(terms) > 0 {
		policies, err := t.policies(terms)
		if err != nil {
			return err
		}
		a.edits = policies
	}
	st, err := t.step(a)
	if err != nil {
		return err
	}
	for _, id := range a.runs {
		st.b.Settle(id)
	}
	var due []*loadedJob
	for _, uid := range terms {
		if l := st.jobs[uid]; l != nil {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *loadedJob) int { return cmp.Compare(a.FullName(), b.FullName()) })
	var calendars map[string]*job.Calendar
	if len(due) > 0 {
		if calendars, err = t.calendars(); err != nil {
			return err
		}
	}
	for _, l := range due {
		switch {
		case st.b.Expired(l.Job):
			if err := st.unlink(l); err != nil {
				return err
			}
			if err := st.b.Delete(l.Job, store.AnyVersion, engine.System); err != nil {
				return err
			}
		case !st.b.Unpause(l.Job, l.doc.filled, columns.Finder(calendars)) && l.Deleted:
			// It keeps the time of its pause: nobody asks again.
			if err := st.exec("update jobs set paused_until = 0, remove_at = 0 where uid = ?", idOf(l.UID)); err != nil {
				return err
			}
		}
	}
	return st.write()
}

// policies returns the policies of jobs, as they are without a lock.
func (t *tx) policies(uids []job.ID) (map[job.ID]*engine.Policy, error) {
	rows, err := t.jobRows("select "+stateColumns+" from job_state s where s.uid in (?*)", set(uids))
	policies := map[job.ID]*engine.Policy{}
	for _, r := range rows {
		policies[r.UID] = r.Policy
	}
	return policies, err
}

// runRefs returns the runs of a query for due time and id.
func (t *tx) runRefs(text string, args ...any) (list []store.RunRef, err error) {
	q := t.query(text, args...)
	for q.Next() {
		list = append(list, store.RunRef{Due: q.time(), ID: q.id()})
	}
	return list, q.Err()
}

// overRuns returns runs that may never start: those that were withdrawn, and
// those that may be too late.
func (t *tx) overRuns(seen *tidied, now time.Time) ([]store.RunRef, bool, error) {
	all, more, err := t.withdrawn(seen)
	if err != nil {
		return nil, false, err
	}
	late, moreLate, err := t.late(seen, now)
	if err != nil {
		return nil, false, err
	}
	all = append(all, late...)
	slices.SortFunc(all, columns.CompareRefs)
	all = slices.Compact(all)
	if len(all) > store.MaxBatch {
		return all[:store.MaxBatch], true, nil
	}
	return all, more || moreLate, nil
}

// withdrawnRuns are those that were withdrawn, by the rules of package engine,
// which decides about each. What stays (a run by hand of a paused job) is not
// among them, so that it cannot hide the others.
const withdrawnRuns = ` where a.state <> ? and (s.deleted <> 0
	or a.kind <> ? and (s.state = ? or s.epoch <> a.epoch and a.kind not in (?, ?)))`

func withdrawnArgs() []any {
	return []any{
		columns.States.Of(job.StateRunning), columns.Kinds.Of(job.RunByHand), columns.JobStates.Of(job.JobPaused),
		columns.Kinds.Of(job.RunOn), columns.Kinds.Of(job.RunBackfill),
	}
}

// withdrawn returns runs that were withdrawn: after a start it looks at all runs,
// then at those of the jobs that were changed.
func (t *tx) withdrawn(seen *tidied) (all []store.RunRef, more bool, err error) {
	last, err := t.number("select value from counters where name = 'change'")
	if err != nil || last == seen.settled {
		return nil, false, err
	}
	if seen.settled == 0 {
		all, err = t.runRefs("select a.due, a.id from active a join job_state s on s.uid = a.job"+withdrawnRuns+" limit ?", append(withdrawnArgs(), int64(tidyMax))...)
	} else {
		all, err = t.runRefs("select a.due, a.id from jobs j join job_state s on s.uid = j.uid join active a on a.job = j.uid"+withdrawnRuns+" and j.seq > ? limit ?",
			append(withdrawnArgs(), seen.settled, int64(tidyMax))...)
	}
	if more = len(all) == tidyMax; !more {
		seen.settled = last
	}
	return all, more, err
}

// lookMax is how many runs one call of Tidy looks at to find those that are too
// late. A backlog of more is looked at in turns.
const lookMax = 2000

// late returns runs whose due time is past and that may be too late: those that
// are, and those that wait for a node or their next attempt, about which package
// engine knows more.
func (t *tx) late(seen *tidied, now time.Time) (all []store.RunRef, more bool, err error) {
	sessions, err := t.sessionsWith()
	if err != nil {
		return nil, false, err
	}
	for _, session := range sessions {
		list, left, err := t.lateOf(seen, session, now, max(1, lookMax/len(sessions)))
		if err != nil {
			return nil, false, err
		}
		all = append(all, list...)
		more = more || left && len(list) > 0
	}
	return all, more, nil
}

// lateOf looks at so many of the next runs of a session, and tells whether there are
// more. All states are looked at together: of one that few runs have, a look would pass
// over the whole backlog.
func (t *tx) lateOf(seen *tidied, session job.ID, now time.Time, most int) (late []store.RunRef, left bool, err error) {
	due, id := behind(seen.turns[session])
	q := t.query(`select a.due, a.id, a.late_after, a.last_outcome, a.broadcast from active a
		where a.session = ? and a.due >= ? and (a.due, a.id) > (?, ?) and a.due < ? and a.state in (?, ?) order by a.due, a.id limit ?`,
		idOf(session), due, due, id, columns.Nanos(now), columns.States.Of(job.StateReady), columns.States.Of(job.StateWaiting), int64(most))
	var ref store.RunRef
	looked := 0
	for q.Next() {
		ref = store.RunRef{Due: q.time(), ID: q.id()}
		after, retried, broadcast := q.time(), q.bool(), q.bool()
		if retried || broadcast || !after.IsZero() && after.Before(now) {
			late = append(late, ref)
		}
		if looked++; len(late) == tidyMax {
			break
		}
	}
	q.Close()
	if err := q.Err(); err != nil {
		return nil, false, err
	}
	if left = looked == most || len(late) == tidyMax; !left {
		delete(seen.turns, session)
		return late, false, nil
	}
	if seen.turns == nil {
		seen.turns = map[job.ID]store.RunRef{}
	}
	seen.turns[session] = ref
	return late, true, nil
}

// overTerms returns jobs whose pause has run out, and completed ones that are to
// be removed.
func (t *tx) overTerms(now time.Time) (all []job.ID, more bool, err error) {
	for _, text := range []string{
		"select uid from jobs where paused_until <> 0 and paused_until <= ? order by paused_until limit ?",
		"select uid from jobs where remove_at <> 0 and remove_at <= ? order by remove_at limit ?",
	} {
		list, err := t.ids(text, columns.Nanos(now), int64(tidyMax))
		if err != nil {
			return nil, false, err
		}
		more = more || len(list) == tidyMax
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(all), more, nil
}

// removeKeys removes keys of requests that are old enough.
func (t *tx) removeKeys(now time.Time) (more bool, err error) {
	b := expiredKeys.rows(tidyMax)
	q := t.query("select job, kind, request, shard from request_keys where expires <= ? limit ?", columns.Nanos(now), int64(tidyMax))
	for q.Next() {
		id := q.id()
		b.id(&id).int(q.Int()).text(q.Text()).int(q.Int())
	}
	if err := q.Err(); err != nil {
		return false, err
	}
	return b.Len() == tidyMax, t.writeRows(Delete, b)
}

var expiredKeys = &Table{Name: "request_keys", Key: 4, Columns: []Column{{"job", Blob}, {"kind", Int}, {"request", Text}, {"shard", Int}}}

// removeTombstones removes deleted jobs that planners have heard of and that have
// no runs any more.
func (t *tx) removeTombstones(now time.Time) (more bool, err error) {
	list, err := t.ids(`select j.uid from jobs j where j.deleted_at <> 0 and j.deleted_at < ?
		and not exists (select 1 from active a where a.job = j.uid) limit ?`, columns.Nanos(now.Add(-store.TombstoneLife)), int64(tidyMax))
	if err != nil || len(list) == 0 {
		return false, err
	}
	gone := set(list)
	if _, err := t.ids("select uid from job_state where uid in (?*) order by uid for update", gone); err != nil {
		return false, err
	}
	for _, text := range []string{
		"delete from job_state where uid in (?*)", "delete from jobs where uid in (?*)", "delete from revisions where job in (?*)",
	} {
		if err := t.exec(text, gone); err != nil {
			return false, err
		}
	}
	return len(list) == tidyMax, t.dropNames(list)
}

// dropNames removes the names of jobs that are gone and of which history does not
// speak any more; the others are noted.
func (t *tx) dropNames(uids []job.ID) error {
	spoken, err := t.ids("select n.uid from names n where n.uid in (?*) and exists (select 1 from history h where h.job = n.uid)", set(uids))
	if err != nil {
		return err
	}
	keep := map[job.ID]bool{}
	b := orphans.rows(len(spoken))
	for i := range spoken {
		keep[spoken[i]] = true
		b.id(&spoken[i])
	}
	unspoken := slices.DeleteFunc(slices.Clone(uids), func(uid job.ID) bool { return keep[uid] })
	if err := t.exec("delete from names where uid in (?*)", set(unspoken)); err != nil {
		return err
	}
	if err := t.exec("delete from orphans where uid in (?*)", set(unspoken)); err != nil {
		return err
	}
	return t.writeRows(InsertNew, b)
}

var orphans = &Table{Name: "orphans", Key: 1, Columns: []Column{{"uid", Blob}}}

// removeSessions removes sessions that were silent for long and run nothing.
func (t *tx) removeSessions(now time.Time) (more bool, err error) {
	return false, t.exec(`delete from sessions where renewed < ?
		and not exists (select 1 from active a where a.session = sessions.id and a.state = ?)`,
		columns.Nanos(now.Add(-store.SilenceMax)), columns.States.Of(job.StateRunning))
}
