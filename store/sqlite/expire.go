package sqlite

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// expireMax is how many records one call of Expire removes: the writer does
	// nothing else meanwhile, and this takes about ten milliseconds.
	expireMax = 1000
	// expireScan is how many jobs one call looks at.
	expireScan = 2000
	// touchedMax is how many jobs with new history are remembered. Beyond it
	// all are looked at.
	touchedMax = 100_000
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
	// job is the latest that was looked at, and ended the latest record.
	job, ended int64
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
			all := e.touched == nil || e.keep != keep
			round := slices.Sorted(maps.Keys(e.touched))
			e = expiry{running: true, keep: keep, all: all, round: round, touched: map[int64]bool{}, job: math.MinInt64, ended: math.MinInt64}
		}
		if err := t.expire(&e); err != nil {
			return err
		}
		more = e.running
		t.memory.expiry = e
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("expire history: %w", err)
	}
	return more, nil
}

// lastStage is where a round ends.
const lastStage = 4

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
	left := expireMax
	for left > 0 && e.running {
		if e.stage == lastStage {
			e.running = false
			return t.removeOrphans()
		}
		var removed int
		var done bool
		var err error
		switch e.stage {
		case 0:
			removed, done, err = t.expireAge(e, left)
		case 1:
			removed, done, err = t.expireOutput(e, left)
		default:
			removed, done, err = t.expireJobs(e, left)
		}
		if err != nil {
			return err
		}
		left -= max(1, removed)
		if done {
			e.stage++
			e.job, e.ended = math.MinInt64, math.MinInt64
			continue
		}
		return nil
	}
	return nil
}

// cutoff returns the moment before which something is too old, and whether
// there is one.
func (t *tx) cutoff(keep time.Duration) (int64, bool) {
	if keep <= 0 || keep == time.Duration(job.Forever) {
		return 0, false
	}
	return nanos(t.now.Add(-keep)), true
}

// oldRecord is what Expire needs to know of a record.
type oldRecord struct {
	ended   int64
	run     job.ID
	attempt int64
}

func oldRecords(q *stmt) (list []oldRecord, err error) {
	for q.next() {
		list = append(list, oldRecord{q.int(), q.id(), q.int()})
	}
	return list, q.err()
}

const (
	selectOld = "select h.ended, h.run, h.attempt from history h where "
	// notActive leaves out attempts of runs that are going on.
	notActive = " and not exists (select 1 from active a where a.id = h.run)"
)

func (t *tx) removeRecords(list []oldRecord) error {
	for _, r := range list {
		q := t.stmt("delete from history where ended = ? and run = ? and attempt = ?").bindInt(r.ended).bindID(r.run).bindInt(r.attempt)
		if err := q.exec(); err != nil {
			return err
		}
	}
	return t.removeOutput(list)
}

func (t *tx) removeOutput(list []oldRecord) error {
	for _, r := range list {
		if err := t.stmt("delete from output where run = ? and attempt = ?").bindID(r.run).bindInt(r.attempt).exec(); err != nil {
			return err
		}
	}
	return nil
}

// expireAge removes records that are older than what the server keeps, of jobs
// that say nothing.
func (t *tx) expireAge(e *expiry, left int) (removed int, done bool, err error) {
	before, ok := t.cutoff(e.keep.For)
	if !ok {
		return 0, true, nil
	}
	list, err := oldRecords(t.stmt(selectOld + "h.ended >= ? and h.ended < ? and h.job not in (select n from job_state where keep_for <> 0)" +
		notActive + " order by h.ended, h.run, h.attempt limit ?").bindInt(e.ended).bindInt(before).bindInt(int64(left)))
	if err != nil {
		return 0, false, err
	}
	if len(list) > 0 {
		e.ended = list[len(list)-1].ended
	}
	return len(list), len(list) < left, t.removeRecords(list)
}

// expireOutput removes output that is older than what the server keeps, of jobs
// that say nothing.
func (t *tx) expireOutput(e *expiry, left int) (removed int, done bool, err error) {
	before, ok := t.cutoff(e.keep.OutputFor)
	if !ok {
		return 0, true, nil
	}
	if e.ended == math.MinInt64 {
		// What was removed in earlier rounds is not looked at again.
		if e.ended, err = number(t.conn, "select coalesce((select value from counters where name = 'output expired'), -9223372036854775807)"); err != nil {
			return 0, false, err
		}
	}
	list, err := oldRecords(t.stmt(selectOld + "h.ended >= ? and h.ended < ? and h.job not in (select n from job_state where keep_output <> 0)" +
		notActive + " order by h.ended, h.run, h.attempt limit ?").bindInt(e.ended).bindInt(before).bindInt(int64(left)))
	if err != nil {
		return 0, false, err
	}
	if done = len(list) < left; done {
		e.ended = before
	} else {
		e.ended = list[len(list)-1].ended
	}
	if err := t.stmt("insert or replace into counters (name, value) values ('output expired', ?)").bindInt(e.ended).exec(); err != nil {
		return 0, false, err
	}
	return len(list), done, t.removeOutput(list)
}

// expireJobs removes records and output by what each job says, and the records
// beyond the number that it keeps.
func (t *tx) expireJobs(e *expiry, left int) (removed int, done bool, err error) {
	for range expireScan {
		n, keep, ok, err := t.nextToExpire(e)
		if err != nil || !ok {
			return removed, !ok, err
		}
		list, err := t.beyond(n, keep, left-removed)
		if err != nil {
			return removed, false, err
		}
		if removed += len(list); removed >= left {
			return removed, false, nil // there may be more of this one
		}
		e.job = n
		if e.stage == 2 && !e.all {
			e.round = e.round[1:]
		}
	}
	return removed, false, nil
}

// nextToExpire returns the next job that may have too much, with what it keeps:
// only what it says by itself, and the number. First those come that have got
// history, then those that say something, whose history ages.
func (t *tx) nextToExpire(e *expiry) (n int64, keep store.Retention, ok bool, err error) {
	query := "select s.n from job_state s where s.n > ? and (s.keep_runs <> 0 or s.keep_for <> 0 or s.keep_output <> 0) order by s.n limit 1"
	if e.stage == 2 {
		if e.keep.Runs == 0 {
			return 0, keep, false, nil
		}
		query = "select h.job from history h where h.job > ? order by h.job limit 1"
	}
	if e.stage == 2 && !e.all {
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

// beyond removes at most so many records of a job that it does not keep.
func (t *tx) beyond(n int64, keep store.Retention, left int) (list []oldRecord, err error) {
	before, ok := t.cutoff(keep.For)
	if !ok {
		before = math.MinInt64
	}
	if keep.Runs > 0 {
		// The first final record that is too many, and what ended before it.
		q := t.stmt("select ended from history where job = ? and final = 1 order by ended desc, run desc, attempt desc limit 1 offset ?")
		q.bindInt(n).bindInt(int64(keep.Runs))
		for q.next() {
			before = max(before, q.int()+1)
		}
		if err := q.err(); err != nil {
			return nil, err
		}
	}
	if before > math.MinInt64 {
		list, err = oldRecords(t.stmt(selectOld + "h.job = ? and h.ended < ?" + notActive + " order by h.ended, h.run, h.attempt limit ?").
			bindInt(n).bindInt(before).bindInt(int64(left)))
		if err != nil {
			return nil, err
		}
		if err := t.removeRecords(list); err != nil {
			return nil, err
		}
	}
	if before, ok = t.cutoff(keep.OutputFor); ok && len(list) < left {
		old, err := oldRecords(t.stmt(selectOld + "h.job = ? and h.ended < ? and exists (select 1 from output o where o.run = h.run and o.attempt = h.attempt) limit ?").
			bindInt(n).bindInt(before).bindInt(expireMax))
		if err != nil {
			return nil, err
		}
		return list, t.removeOutput(old)
	}
	return list, nil
}
