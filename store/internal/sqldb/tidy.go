package sqldb

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// tidyMax is how many rows of each kind one call of Tidy removes: some tens of
// milliseconds, in which it holds locks.
const tidyMax = 200

// tidying is the progress of this process. After a start it examines everything once.
type tidying struct {
	mu sync.Mutex
	// settled is the number in the feed of changes up to which no run is withdrawn; 0
	// before the first check.
	settled int64
	// turns are the positions among the runs of sessions, for runs that may stay.
	turns map[job.ID]store.RunRef
	pools string // the last pool that was examined
}

// Ending implements [ledger.Backend].
func (s *backend) Ending(ctx context.Context, now time.Time) (e ledger.Ending, err error) {
	s.tidying.mu.Lock()
	defer s.tidying.mu.Unlock()
	err = s.read(ctx, func(t *tx) error {
		e = ledger.Ending{}
		runs, more, err := t.withdrawn()
		if err != nil {
			return err
		}
		late, moreLate, err := t.late(now)
		if err != nil {
			return err
		}
		runs = append(runs, late...)
		slices.SortFunc(runs, func(a, b endingRun) int { return a.place.Compare(b.place) })
		runs = slices.Compact(runs)
		for i := range runs[:min(len(runs), store.MaxBatch)] {
			e.Runs = append(e.Runs, runs[i].RunRef)
		}
		var moreTerms bool
		e.Jobs, moreTerms, err = t.overTerms(now)
		e.More = more || moreLate || moreTerms || len(runs) > store.MaxBatch
		return err
	})
	return e, err
}

// endingRun is a run that may never start, with its place.
type endingRun struct {
	engine.RunRef
	place store.RunRef
}

func (t *tx) endingRuns(text string, args ...any) (list []endingRun, err error) {
	q := t.query(text, args...)
	for q.Next() {
		r := endingRun{place: store.RunRef{Due: q.time(), ID: q.id()}}
		r.RunRef = engine.RunRef{Run: r.place.ID, Job: q.id()}
		list = append(list, r)
	}
	return list, q.Err()
}

// withdrawnRuns selects withdrawn runs, by the rules of package engine, which decides about each.
// It excludes runs that stay (a manual run of a paused job), so that they cannot hide withdrawn
// ones.
const withdrawnRuns = ` where a.state <> ? and a.kind <> ? and (s.deleted <> 0
	or a.kind <> ? and (s.state = ? or s.epoch <> a.epoch and a.kind not in (?, ?, ?)))`

func withdrawnArgs() []any {
	return []any{
		columns.States.Of(job.StateRunning), columns.Kinds.Of(job.RunStep), columns.Kinds.Of(job.RunByHand), columns.JobStates.Of(job.JobPaused),
		columns.Kinds.Of(job.RunOn), columns.Kinds.Of(job.RunByFlow), columns.Kinds.Of(job.RunBackfill),
	}
}

// withdrawn returns withdrawn runs: after a start it examines all runs, then the runs
// of changed jobs. It returns a run again until it is settled.
func (t *tx) withdrawn() (all []endingRun, more bool, err error) {
	seen := &t.s.tidying
	last, err := t.number("select value from counters where name = 'change'")
	if err != nil || last == seen.settled {
		return nil, false, err
	}
	if seen.settled == 0 {
		all, err = t.endingRuns("select a.due, a.id, a.job from active a join job_state s on s.uid = a.job"+withdrawnRuns+" limit ?", append(withdrawnArgs(), int64(tidyMax))...)
	} else {
		all, err = t.endingRuns("select a.due, a.id, a.job from jobs j join job_state s on s.uid = j.uid join active a on a.job = j.uid"+withdrawnRuns+" and j.seq > ? limit ?",
			append(withdrawnArgs(), seen.settled, int64(tidyMax))...)
	}
	if err == nil && len(all) == 0 {
		seen.settled = last
	}
	return all, len(all) == tidyMax, err
}

// lookMax is the number of runs that one call of Tidy examines for late ones. A larger
// backlog is examined in turns.
const lookMax = 2000

// late returns due runs that are too late, or may be: package engine decides about runs that wait
// for a node or their next attempt.
func (t *tx) late(now time.Time) (all []endingRun, more bool, err error) {
	sessions, err := t.sessionsWith()
	if err != nil {
		return nil, false, err
	}
	for _, session := range sessions {
		list, left, err := t.lateOf(session, now, max(1, lookMax/len(sessions)))
		if err != nil {
			return nil, false, err
		}
		all = append(all, list...)
		more = more || left && len(list) > 0
	}
	return all, more, nil
}

// lateOf examines the next runs of a session, and reports whether more remain. It examines
// all states together: a scan for a rare state would pass over the whole backlog.
func (t *tx) lateOf(session job.ID, now time.Time, most int) (late []endingRun, left bool, err error) {
	seen := &t.s.tidying
	due, id := behind(seen.turns[session])
	q := t.query(`select a.due, a.id, a.job, a.late_after, a.last_outcome, a.broadcast from active a
		where a.session = ? and a.due >= ? and (a.due, a.id) > (?, ?) and a.due < ? and a.state in (?, ?) order by a.due, a.id limit ?`,
		idOf(session), due, due, id, columns.Nanos(now), columns.States.Of(job.StateReady), columns.States.Of(job.StateWaiting), int64(most))
	var r endingRun
	looked := 0
	for q.Next() {
		r.place = store.RunRef{Due: q.time(), ID: q.id()}
		r.RunRef = engine.RunRef{Run: r.place.ID, Job: q.id()}
		after, retried, broadcast := q.time(), q.bool(), q.bool()
		if retried || broadcast || !after.IsZero() && after.Before(now) {
			late = append(late, r)
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
	seen.turns[session] = r.place
	return late, true, nil
}

// overTerms returns jobs whose pause has expired, and completed ones due for removal. The end of the
// pause of a deleted job is negative: a condition for deleted jobs would let PostgreSQL read all jobs
// through the index of undeleted jobs. SQLite uses its index for the condition of that index only.
func (t *tx) overTerms(now time.Time) (all []job.ID, more bool, err error) {
	for _, text := range []string{
		"select uid from jobs where paused_until <> 0 and paused_until > 0 and paused_until <= ? order by paused_until limit ?",
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

// Sweep implements [ledger.Backend].
func (s *backend) Sweep(ctx context.Context, now time.Time, forgotten []job.ID) (more bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		more = false
		for _, part := range []func(time.Time) (bool, error){t.removeKeys, t.removePools, t.removeHandovers, t.removeTombstones, t.removeRegistrations} {
			left, err := part(now)
			if err != nil {
				return err
			}
			more = more || left
		}
		if len(forgotten) == 0 {
			return nil
		}
		return t.exec("delete from sessions where id in (?*) and not exists (select 1 from active a where a.session = sessions.id and a.state = ?)",
			set(forgotten), columns.States.Of(job.StateRunning))
	})
	if err != nil {
		return false, err
	}
	left, err := s.sweepFeed(ctx, now)
	return more || left, err
}

// poolsKept is how many pools keep their rows while no run needs them: more come from parameters.
const poolsKept = 1000

// removePools removes the rows of pools that no run needs, and of lines whose turn is past. A step that locks such a pool makes its row
// again.
func (t *tx) removePools(now time.Time) (more bool, err error) {
	if n, err := t.number("select count(*) from pools"); err != nil || n <= poolsKept {
		return false, err
	}
	seen := &t.s.tidying
	seen.mu.Lock()
	defer seen.mu.Unlock()
	names, err := t.texts("select name from pools where name > ? and turn < ? order by name limit ?", seen.pools, columns.Nanos(now), int64(tidyMax))
	if err != nil {
		return false, err
	}
	unused := make(map[string]bool, len(names))
	slots := make([]string, len(names))
	for i, name := range names {
		unused[name], slots[i] = true, engine.PoolSlot(name)
	}
	if seen.pools = ""; len(names) == tidyMax {
		seen.pools = names[len(names)-1]
	}
	if len(names) == 0 {
		return false, nil
	}
	used, err := t.texts("select distinct a.slot from active a where a.slot in (?*) and a.slot <> ''", slots)
	if err != nil {
		return false, err
	}
	for _, slot := range used {
		pool, _ := engine.PoolOfSlot(slot)
		delete(unused, pool)
	}
	rows := t.rows(poolNames, len(unused))
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		rows.text(name)
	}
	return len(names) == tidyMax, t.writeRows(Delete, rows)
}

// removeRegistrations removes expired registrations. They are few: all at once.
func (t *tx) removeRegistrations(now time.Time) (more bool, err error) {
	return false, t.exec("delete from registrations where seen <= ?", columns.Nanos(now.Add(-store.RegistrationLife)))
}

// removeKeys removes keys of requests that are old enough.
func (t *tx) removeKeys(now time.Time) (more bool, err error) {
	b := t.rows(expiredKeys, tidyMax)
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
	t.s.hot.forget(list)
	return len(list) == tidyMax, t.dropNames(list)
}

// dropNames removes the names and counts of deleted jobs without history; it remembers the rest.
func (t *tx) dropNames(uids []job.ID) error {
	spoken, err := t.ids("select n.uid from names n where n.uid in (?*) and exists (select 1 from history h where h.job = n.uid/*n*/)", set(uids))
	if err != nil {
		return err
	}
	keep := map[job.ID]bool{}
	b := t.rows(orphans, len(spoken))
	for i := range spoken {
		keep[spoken[i]] = true
		b.id(&spoken[i])
	}
	unspoken := slices.DeleteFunc(slices.Clone(uids), func(uid job.ID) bool { return keep[uid] })
	if err := t.exec("delete from slices where job in (select n.uid/*n*/ from names n where n.uid in (?*))", set(unspoken)); err != nil {
		return err
	}
	if err := t.exec("delete from names where uid in (?*)", set(unspoken)); err != nil {
		return err
	}
	if err := t.exec("delete from orphans where uid in (?*)", set(unspoken)); err != nil {
		return err
	}
	return t.writeRows(InsertNew, b)
}

var orphans = &Table{Name: "orphans", Key: 1, Columns: []Column{{"uid", Blob}}}
