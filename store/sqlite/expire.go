package sqlite

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

const (
	// expireScan is how many jobs one call of Expire looks at.
	expireScan = 2000
	// touchedMax is how many jobs with new history are remembered, and of how
	// many others where their output begins. Beyond it all are looked at.
	touchedMax = 100_000
	// lookAgain is when records are looked at again that were old and stayed,
	// because their job wants it so or because their run was going on. To do
	// so in each round would mean to read most of the history every minute,
	// where a job keeps it for ever.
	lookAgain = 24 * time.Hour
)

// expiry is how far the removal of old history has come. It is kept in memory
// only: after a start everything is looked at once.
type expiry struct {
	keep store.Retention // of the present round
	// touched are the jobs, by number, that have got history since the round
	// began; nil is all. round are those that the present round looks at, in
	// order, unless it looks at all.
	touched map[int64]bool
	round   []int64
	all     bool
	running bool
	stage   int
	// left is how many rows the present call may still remove or look at.
	left int
	// job is the latest that was looked at.
	job int64
	// Up to these records everything that need not be kept is gone, since a
	// time: records and output by what the server keeps, and output of the
	// jobs, by number, that say themselves how long it is kept.
	since       time.Time
	age, output oldRecord
	outputOf    map[int64]oldRecord
}

func (e *expiry) touch(n int64) {
	if e.touched != nil {
		if e.touched[n] = true; len(e.touched) > touchedMax {
			e.touched = nil
		}
	}
}

// Expire implements store.History. Calls until one says that there is no more
// are a round, which looks at all history that is old by age, and by number at
// the jobs that have got any since the last round.
func (s *Store) Expire(ctx context.Context, keep store.Retention) (more bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		e := t.memory.expiry
		if !e.running || e.keep != keep {
			if again := t.now.Add(-lookAgain); e.keep != keep || e.since.Before(again) {
				e.since, e.age, e.output, e.outputOf = t.now, firstRecord, firstRecord, nil
			}
			e.all = e.touched == nil || e.keep != keep
			e.round = slices.Sorted(maps.Keys(e.touched))
			e.running, e.keep, e.touched, e.stage, e.job = true, keep, map[int64]bool{}, 0, math.MinInt64
		}
		if err := t.expire(&e); err != nil {
			return err
		}
		more = e.running
		t.memory.expiry = e
		return nil
	})
	return more, wrapped(err, "expire history")
}

// lastStage is where a round ends.
const lastStage = 5

// removeOrphans removes the names of jobs that are gone and have no history any
// more.
func (t *tx) removeOrphans() error {
	var gone []int64
	q := t.stmt("select n from orphans o where not exists (select 1 from history h where h.job = o.n) limit ?").bindInt(tidyMax)
	for q.next() {
		gone = append(gone, q.int())
	}
	if err := q.err(); err != nil {
		return err
	}
	for _, n := range gone {
		for _, text := range []string{"delete from names where n = ?", "delete from orphans where n = ?"} {
			if err := t.stmt(text).bindInt(n).exec(); err != nil {
				return err
			}
		}
	}
	return nil
}

// expire does a part of a round.
func (t *tx) expire(e *expiry) error {
	e.left = store.ExpireMax
	for e.left > 0 && e.running {
		var done bool
		var err error
		switch e.stage {
		case 0:
			done, err = t.expireAge(e)
		case 1:
			done, err = t.expireOutput(e)
		case byNumber, byJob:
			done, err = t.expireJobs(e)
		case 4:
			done, err = t.expireAudit(e)
		case lastStage:
			e.running = false
			return t.removeOrphans()
		}
		if err != nil || !done {
			return err
		}
		e.stage++
		e.job = math.MinInt64
	}
	return nil
}

// cutoff returns the moment before which something is too old, and whether
// there is one.
func (t *tx) cutoff(keep time.Duration) (int64, bool) {
	if keep <= 0 || keep == time.Duration(job.Forever) {
		return 0, false
	}
	return columns.Nanos(t.now.Add(-keep)), true
}

// oldRecord is what Expire needs to know of a record.
type oldRecord struct {
	ended   int64
	run     job.ID
	attempt int64
}

// firstRecord is in front of all records.
var firstRecord = oldRecord{ended: math.MinInt64}

const (
	selectOld = "select h.ended, h.run, h.attempt, "
	// isActive tells whether a record is that of a run which is going on.
	isActive = "exists (select 1 from active a where a.id = h.run)"
	// between are the records behind one and before a moment.
	between = "(h.ended, h.run, h.attempt) > (?, ?, ?) and h.ended < ? order by h.ended, h.run, h.attempt limit ?"

	oldRecords  = selectOld + "h.job in (select n from job_state where keep_for <> 0) or " + isActive + " from history h where " + between
	oldOutput   = selectOld + "h.job in (select n from job_state where keep_output <> 0) or " + isActive + " from history h where " + between
	oldOfJob    = selectOld + isActive + " from history h where h.job = ? and (h.ended, h.run, h.attempt) < (?, ?, ?) order by h.ended, h.run, h.attempt limit ?"
	finalOfJob  = "select ended, run, attempt from history where job = ? and final = 1 order by ended desc, run desc, attempt desc limit 1 offset ?"
	outputOfJob = selectOld + isActive + " from history h where h.job = ? and " + between
)

// removeOld removes those records of a query that it does not say are to stay,
// or only their output. from moves up to where it has come; done tells whether
// it has come to the end.
func (t *tx) removeOld(e *expiry, q *stmt, from *oldRecord, outputOnly bool) (done bool, err error) {
	type row struct {
		oldRecord
		stays bool
	}
	var list []row
	for q.next() {
		list = append(list, row{oldRecord{q.int(), q.id(), q.int()}, q.bool()})
	}
	if err := q.err(); err != nil {
		return false, err
	}
	limit := e.left
	for _, r := range list {
		if !r.stays {
			if finished, err := t.remove(e, r.oldRecord, outputOnly); err != nil || !finished {
				return false, err
			}
		}
		e.left--
		*from = r.oldRecord
	}
	return len(list) < limit, nil
}

// remove removes a record and its output, or as much of the output as the call
// may still remove.
func (t *tx) remove(e *expiry, r oldRecord, outputOnly bool) (finished bool, err error) {
	if e.left <= 0 {
		return false, nil
	}
	q := t.stmt(`delete from output where run = ? and attempt = ? and seq <= coalesce(
		(select seq from output where run = ? and attempt = ? order by seq limit 1 offset ?), 9223372036854775807)`)
	if err := q.bindID(r.run).bindInt(r.attempt).bindID(r.run).bindInt(r.attempt).bindInt(int64(e.left - 1)).exec(); err != nil {
		return false, err
	}
	if e.left -= t.changes(); e.left <= 0 || outputOnly {
		return e.left > 0, nil
	}
	q = t.stmt("delete from history where ended = ? and run = ? and attempt = ?").bindInt(r.ended).bindID(r.run).bindInt(r.attempt)
	return true, q.exec()
}

func (s *stmt) bindBetween(from oldRecord, before int64, limit int) *stmt {
	return s.bindInt(from.ended).bindID(from.run).bindInt(from.attempt).bindInt(before).bindInt(int64(limit))
}

// expireAge removes records that are older than what the server keeps, of jobs
// that say nothing.
func (t *tx) expireAge(e *expiry) (done bool, err error) {
	before, ok := t.cutoff(e.keep.For)
	if !ok {
		return true, nil
	}
	return t.removeOld(e, t.stmt(oldRecords).bindBetween(e.age, before, e.left), &e.age, false)
}

// expireOutput removes output that is older than what the server keeps, of jobs
// that say nothing.
func (t *tx) expireOutput(e *expiry) (done bool, err error) {
	before, ok := t.cutoff(e.keep.OutputFor)
	if !ok {
		return true, nil
	}
	return t.removeOld(e, t.stmt(oldOutput).bindBetween(e.output, before, e.left), &e.output, true)
}

// expireAudit removes what was changed too long ago, and what is beyond the
// number. The latest change stays: the next one gets the number behind it.
func (t *tx) expireAudit(e *expiry) (done bool, err error) {
	before, ok := t.cutoff(e.keep.AuditFor)
	if !ok {
		before = math.MinInt64
	}
	last, err := number(t.conn, "select coalesce(max(seq), 0) from audit")
	if err != nil {
		return false, err
	}
	beyond := int64(0)
	if e.keep.Audit > 0 {
		beyond = last - int64(e.keep.Audit)
	}
	remove, count := int64(0), 0
	q := t.stmt("select seq, time from audit order by seq limit ?").bindInt(int64(e.left))
	for q.next() {
		if seq, at := q.int(), q.int(); seq < last && (seq <= beyond || at < before) {
			remove = seq
			count++
		}
	}
	if err := q.err(); err != nil {
		return false, err
	}
	limit := e.left
	e.left -= count
	return count < limit, t.stmt("delete from audit where seq <= ?").bindInt(remove).exec()
}

// The stages that go by jobs: what is beyond the number that is kept, and what
// jobs say themselves.
const (
	byNumber = 2
	byJob    = 3
)

// expireJobs removes records and output by what each job says, and the records
// beyond the number that it keeps.
func (t *tx) expireJobs(e *expiry) (done bool, err error) {
	for range expireScan {
		n, keep, ok, err := t.nextToExpire(e)
		if err != nil || !ok {
			return !ok, err
		}
		if finished, err := t.expireJob(e, n, keep); err != nil || !finished {
			return false, err
		}
		e.job = n
		if e.stage == byNumber && !e.all {
			e.round = e.round[1:]
		}
	}
	return false, nil
}

// nextToExpire returns the next job that may have too much, with what it keeps:
// only what it says by itself, and the number. First those come that have got
// history, then those that say something, whose history ages.
func (t *tx) nextToExpire(e *expiry) (n int64, keep store.Retention, ok bool, err error) {
	query := "select s.n from job_state s where s.n > ? and (s.keep_runs <> 0 or s.keep_for <> 0 or s.keep_output <> 0) order by s.n limit 1"
	if e.stage == byNumber {
		if e.keep.Runs == 0 {
			return 0, keep, false, nil
		}
		query = "select h.job from history h where h.job > ? order by h.job limit 1"
	}
	if e.stage == byNumber && !e.all {
		if ok = len(e.round) > 0; !ok {
			return 0, keep, false, nil
		}
		n = e.round[0]
	} else {
		q := t.stmt(query).bindInt(e.job)
		for q.next() {
			n, ok = q.int(), true
		}
		if err := q.err(); err != nil || !ok {
			return 0, keep, false, err
		}
	}
	keep.Runs = e.keep.Runs
	q := t.stmt("select s.keep_runs, s.keep_for, s.keep_output from names n join job_state s on s.uid = n.uid where n.n = ?").bindInt(n)
	for q.next() {
		if runs := int(q.int()); runs > 0 {
			keep.Runs = runs
		}
		keep.For, keep.OutputFor = time.Duration(q.int()), time.Duration(q.int())
	}
	return n, keep, true, q.err()
}

// expireJob removes what a job does not keep, and tells whether that was all.
func (t *tx) expireJob(e *expiry, n int64, keep store.Retention) (finished bool, err error) {
	end := firstRecord // what is in front of it goes
	if before, ok := t.cutoff(keep.For); ok {
		end.ended = before
	}
	if keep.Runs > 0 {
		// The first final record that is too many, and what is in front of it.
		q := t.stmt(finalOfJob).bindInt(n).bindInt(int64(keep.Runs))
		for q.next() {
			if r := (oldRecord{q.int(), q.id(), q.int() + 1}); r.ended >= end.ended {
				end = r
			}
		}
		if err := q.err(); err != nil {
			return false, err
		}
	}
	if end != firstRecord {
		var last oldRecord
		q := t.stmt(oldOfJob).bindInt(n).bindInt(end.ended).bindID(end.run).bindInt(end.attempt).bindInt(int64(e.left))
		if done, err := t.removeOld(e, q, &last, false); err != nil || !done {
			return false, err
		}
	}
	before, ok := t.cutoff(keep.OutputFor)
	if !ok || e.left <= 0 {
		return !ok, nil
	}
	from, ok := e.outputOf[n]
	if !ok {
		from = firstRecord
	}
	finished, err = t.removeOld(e, t.stmt(outputOfJob).bindInt(n).bindBetween(from, before, e.left), &from, true)
	if e.outputOf == nil || len(e.outputOf) > touchedMax {
		e.outputOf = map[int64]oldRecord{}
	}
	e.outputOf[n] = from // if the step fails, the rest is found when it is looked at again
	return finished, err
}
