package sqldb

import (
	"bytes"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

const (
	// expireScan is how many jobs one call of Expire examines.
	expireScan = 200
	// orphansMax is how many jobs without history lose their names and counts at once: the counts of
	// one job may fill ten thousand rows.
	orphansMax = 20
	// touchedMax bounds the remembered jobs with new history, and the remembered starts of the
	// other jobs' output. Beyond it all jobs are examined.
	touchedMax = 100_000
	// lookAgain is when old records that stayed, because of their job's settings or a
	// running run, are examined again.
	lookAgain = 24 * time.Hour
)

// expiring is the progress of this process in removing old history. After a start it examines all
// history once. For limits by number each process examines the jobs whose history it has written.
type expiring struct {
	mu    sync.Mutex
	round expiry
	// touched are the jobs that have got history since the round began; nil is
	// all.
	touched map[job.ID]bool
}

func (e *expiring) touch(uid job.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.touched != nil {
		if e.touched[uid] = true; len(e.touched) > touchedMax {
			e.touched = nil
		}
	}
}

// expiry is the progress of a round.
type expiry struct {
	keep store.Retention
	// jobs are the jobs to examine by number, in order, unless all are.
	jobs    []job.ID
	all     bool
	running bool
	stage   int
	// says are the jobs in keep.Jobs, in order.
	says []job.ID
	// left is how many rows the present call may still remove or examine.
	left int
	// job is the last examined job.
	job job.ID
	// Up to these records, since a time, all expired data is gone: records and output by the limits
	// of the server, and output of jobs with their own limits.
	since       time.Time
	age, output oldRecord
	outputOf    map[job.ID]oldRecord
}

// oldRecord is a place in the order of records.
type oldRecord struct {
	ended   int64
	run     job.ID
	attempt int64
}

// firstRecord sorts before all records.
var firstRecord = oldRecord{ended: math.MinInt64}

// Expire implements [store.History]. Calls until one reports that nothing remains are a round, which
// examines all history by age, and by number the jobs with new history since the last round. One
// node at a time makes rounds.
func (s *backend) Expire(ctx context.Context, keep store.Retention) (more bool, err error) {
	if err := s.partition(ctx, s.allOld(keep)); err != nil {
		return false, wrapped(err, "expire history")
	}
	if more, err = s.expireRound(ctx, keep); err != nil || more {
		return more, wrapped(err, "expire history")
	}
	return s.rollUp(ctx)
}

// expireRound continues a round, and reports whether more may remain.
func (s *backend) expireRound(ctx context.Context, keep store.Retention) (more bool, err error) {
	begun := s.begin(keep)
	var e expiry
	known := true
	err = s.write(ctx, func(t *tx) error {
		if err := t.lock(expiryLock); err != nil { // earlier tries have ended as well
			return err
		}
		if known = !t.again; !known { // it may have removed as much as one call may
			more = true
			return nil
		}
		e = begun
		e.outputOf = maps.Clone(begun.outputOf)
		err := t.expire(&e)
		more = e.running
		return err
	})
	s.expiring.mu.Lock()
	defer s.expiring.mu.Unlock()
	if err != nil || !known {
		e, s.expiring.touched = expiry{}, nil
	}
	s.expiring.round = e
	return more, err
}

// allOld returns the moment before which the history of all jobs is old, including jobs in
// keep.Jobs; zero if there is none.
func (s *backend) allOld(keep store.Retention) time.Time {
	longest := keep.For
	if keep.Jobs != nil {
		for _, own := range *keep.Jobs {
			if of := keep.With(own).For; longest > 0 && (of <= 0 || of > longest) {
				longest = of
			}
		}
	}
	if longest <= 0 || longest == time.Duration(job.Forever) {
		return time.Time{}
	}
	return s.clock.now().Add(-longest)
}

// ExpireAudit implements ledger.Backend.
func (s *backend) ExpireAudit(ctx context.Context, keep store.Retention) (more bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		if err := t.lock(expiryLock); err != nil {
			return err
		}
		if more = t.again; more {
			return nil
		}
		more, err = t.expireAudit(keep)
		return err
	})
	return more, wrapped(err, "expire the audit")
}

// partition has the database prepare for coming history, and remove whole parts that lie before a
// moment, zero for none.
func (s *backend) partition(ctx context.Context, before time.Time) error {
	return s.db.Partition(ctx, columns.Nanos(s.clock.now()), columns.Nanos(before))
}

// begin returns the current round, or a new one.
func (s *backend) begin(keep store.Retention) expiry {
	s.expiring.mu.Lock()
	defer s.expiring.mu.Unlock()
	e := s.expiring.round
	if e.running && e.keep == keep {
		return e
	}
	now := s.clock.now()
	if e.keep != keep || e.since.Before(now.Add(-lookAgain)) {
		e.since, e.age, e.output, e.outputOf = now, firstRecord, firstRecord, nil
	}
	e.all = s.expiring.touched == nil || e.keep != keep
	e.jobs = slices.SortedFunc(maps.Keys(s.expiring.touched), compareIDs)
	s.expiring.touched = map[job.ID]bool{}
	e.running, e.keep, e.stage, e.job, e.says = true, keep, 0, job.ID{}, nil
	if keep.Jobs != nil {
		e.says = slices.SortedFunc(maps.Keys(*keep.Jobs), compareIDs)
	}
	return e
}

func compareIDs(a, b job.ID) int { return bytes.Compare(a[:], b[:]) }

// The stages of a round. By number covers all jobs; byJob covers jobs with settings of their own.
const (
	byAge = iota
	byOutput
	byNumber
	byJob
	lastStage
)

// expire continues a round.
func (t *tx) expire(e *expiry) error {
	e.left = store.ExpireMax
	for e.left > 0 && e.running {
		var done bool
		var err error
		switch e.stage {
		case byAge:
			done, err = t.expireAge(e)
		case byOutput:
			done, err = t.expireOutput(e)
		case byNumber, byJob:
			done, err = t.expireJobs(e)
		case lastStage:
			e.running = false
			return t.removeOrphans()
		}
		if err != nil || !done {
			return err
		}
		e.stage++
		e.job = job.ID{}
	}
	return nil
}

// removeOrphans removes the names of deleted jobs without history.
func (t *tx) removeOrphans() error {
	list, err := t.ids("select o.uid from orphans o where not exists (select 1 from history h where h.job = /*n*/o.uid) limit ?", int64(orphansMax))
	if err != nil || len(list) == 0 {
		return err
	}
	return t.dropNames(list)
}

// cutoff returns the moment before which data is too old, and whether there is one.
func (t *tx) cutoff(keep time.Duration) (int64, bool) {
	if keep <= 0 || keep == time.Duration(job.Forever) {
		return 0, false
	}
	return columns.Nanos(t.s.clock.now().Add(-keep)), true
}

const (
	// isActive reports whether a record belongs to a running run.
	isActive = "exists (select 1 from active a where a.id = h.run)"
	// staysFor and staysOutput report whether the job of a record sets how long its records or
	// output are kept.
	staysFor    = "(exists (select 1 from jobs j where j.uid = /*uid*/h.job and j.keep_for <> 0) or " + isActive + ")"
	staysOutput = "(exists (select 1 from jobs j where j.uid = /*uid*/h.job and j.keep_output <> 0) or " + isActive + ")"

	selectOld = "select h.ended, h.run, h.attempt, /*uid*/h.job, case when "
	fromOld   = " then 1 else 0 end from history h where "
	between   = "h.ended >= ? and (h.ended, h.run, h.attempt) > (?, ?, ?) and h.ended < ?"
	oldFirst  = " order by h.ended, h.run, h.attempt limit ?"
)

// between returns the arguments of that condition.
func (r oldRecord) between(before int64) []any {
	return []any{r.ended, r.ended, idOf(r.run), r.attempt, before}
}

// expireAge removes records older than the server's limit, of jobs without their own.
func (t *tx) expireAge(e *expiry) (done bool, err error) {
	before, ok := t.cutoff(e.keep.For)
	if !ok {
		return true, nil
	}
	return t.removeOld(e, &e.age, false, func(k job.Keep) bool { return k.For != 0 }, selectOld+staysFor+fromOld+between+oldFirst, e.age.between(before)...)
}

// expireOutput removes output older than the server's limit, of jobs without their own.
func (t *tx) expireOutput(e *expiry) (done bool, err error) {
	before, ok := t.cutoff(e.keep.OutputFor)
	if !ok {
		return true, nil
	}
	return t.removeOld(e, &e.output, true, func(k job.Keep) bool { return k.OutputFor != 0 }, selectOld+staysOutput+fromOld+between+oldFirst, e.output.between(before)...)
}

// expireAudit removes changes that are too old or too many. The latest change stays: its number
// determines the next one.
func (t *tx) expireAudit(keep store.Retention) (more bool, err error) {
	before, ok := t.cutoff(keep.AuditFor)
	if !ok {
		before = math.MinInt64
	}
	last, err := t.number("select coalesce(max(seq), 0) from audit")
	if err != nil {
		return false, err
	}
	beyond := int64(0)
	if keep.Audit > 0 {
		beyond = last - int64(keep.Audit)
	}
	remove, count := int64(0), 0
	q := t.query("select seq, written from audit order by seq limit ?", int64(store.ExpireMax))
	for q.Next() {
		if seq, at := q.Int(), q.Int(); seq < last && (seq <= beyond || at < before) {
			remove = seq
			count++
		}
	}
	if err := q.Err(); err != nil {
		return false, err
	}
	if count == 0 {
		return false, nil
	}
	return count == store.ExpireMax, t.exec("delete from audit where seq <= ?", remove)
}

// expireJobs removes records and output by the limits of each job, and records beyond its number.
func (t *tx) expireJobs(e *expiry) (done bool, err error) {
	for range expireScan {
		uid, keep, ok, err := t.nextToExpire(e)
		if err != nil || !ok {
			return !ok, err
		}
		if finished, err := t.expireJob(e, uid, keep); err != nil || !finished {
			return false, err
		}
		e.job = uid
		if e.stage == byNumber && !e.all {
			e.jobs = e.jobs[1:]
		}
	}
	return false, nil
}

// nextToExpire returns the next job that may have too much history, with its own limits and its
// number. Jobs with new history come first, then jobs with settings of their own, whose history
// ages.
func (t *tx) nextToExpire(e *expiry) (uid job.ID, keep store.Retention, ok bool, err error) {
	query := "select j.uid from jobs j where j.uid > ? and (j.keep_runs <> 0 or j.keep_for <> 0 or j.keep_output <> 0) order by j.uid limit 1"
	if e.stage == byNumber {
		if e.keep.Runs == 0 {
			return uid, keep, false, nil
		}
		query = "select n.uid from names n where n.uid > ? order by n.uid limit 1"
	}
	if e.stage == byNumber && !e.all {
		if len(e.jobs) == 0 {
			return uid, keep, false, nil
		}
		uid = e.jobs[0]
	} else if e.stage == byJob && len(e.says) > 0 {
		at, found := slices.BinarySearchFunc(e.says, e.job, compareIDs)
		if found {
			at++
		}
		if at == len(e.says) {
			return uid, keep, false, nil
		}
		uid = e.says[at]
	} else {
		list, err := t.ids(query, idOf(e.job))
		if err != nil || len(list) == 0 {
			return uid, keep, false, err
		}
		uid = list[0]
	}
	keep.Runs = e.keep.Runs
	if own, ok := e.keep.Of(uid); ok {
		keep = store.Retention{Runs: e.keep.Runs}.With(own)
	}
	q := t.query("select keep_runs, keep_for, keep_output from jobs where uid = ?", idOf(uid))
	for q.Next() {
		if runs := int(q.Int()); runs > 0 {
			keep.Runs = runs
		}
		keep.For, keep.OutputFor = time.Duration(q.Int()), time.Duration(q.Int())
	}
	return uid, keep, true, q.Err()
}

const (
	finalOfJob  = "select h.ended, h.run, h.attempt from history h where h.job = /*n*/? and h.is_final = 1 order by h.ended desc, h.run desc, h.attempt desc limit 1 offset ?"
	oldOfJob    = selectOld + isActive + fromOld + "h.job = /*n*/? and h.ended <= ? and (h.ended, h.run, h.attempt) < (?, ?, ?)" + oldFirst
	outputOfJob = selectOld + isActive + fromOld + "h.job = /*n*/? and " + between + oldFirst
)

// expireJob removes the expired history of a job, and reports whether it has removed all of it.
func (t *tx) expireJob(e *expiry, uid job.ID, keep store.Retention) (finished bool, err error) {
	end := firstRecord // all before it is removed
	if before, ok := t.cutoff(keep.For); ok {
		end.ended = before
	}
	if keep.Runs > 0 {
		// The first final record beyond the number; earlier ones go with it.
		q := t.query(finalOfJob, idOf(uid), int64(keep.Runs))
		for q.Next() {
			if r := (oldRecord{q.Int(), q.id(), q.Int() + 1}); r.ended >= end.ended {
				end = r
			}
		}
		if err := q.Err(); err != nil {
			return false, err
		}
	}
	if end != firstRecord {
		var last oldRecord
		if done, err := t.removeOld(e, &last, false, nil, oldOfJob, idOf(uid), end.ended, end.ended, idOf(end.run), end.attempt); err != nil || !done {
			return false, err
		}
	}
	before, ok := t.cutoff(keep.OutputFor)
	if !ok || e.left <= 0 {
		return !ok, nil
	}
	from, ok := e.outputOf[uid]
	if !ok {
		from = firstRecord
	}
	finished, err = t.removeOld(e, &from, true, nil, outputOfJob, append([]any{idOf(uid)}, from.between(before)...)...)
	if e.outputOf == nil || len(e.outputOf) > touchedMax {
		e.outputOf = map[job.ID]oldRecord{}
	}
	e.outputOf[uid] = from
	return finished, err
}

// historyKeys are the keys of records that go.
var historyKeys = &Table{Name: "history", Key: 3, Columns: []Column{{"ended", Int}, {"run", Blob}, {"attempt", Int}}}

// removeOld removes expired records of a query, or only their output. stays reports from
// Retention.Jobs whether a record stays; nil means never. from advances to the reached position;
// done reports the end.
func (t *tx) removeOld(e *expiry, from *oldRecord, outputOnly bool, stays func(job.Keep) bool, text string, args ...any) (done bool, err error) {
	type row struct {
		oldRecord
		stays bool
	}
	limit := e.left
	var list []row
	var runs []job.ID
	q := t.query(text, append(args, int64(limit))...)
	for q.Next() {
		r := row{oldRecord: oldRecord{q.Int(), q.id(), q.Int()}}
		own, ok := e.keep.Of(q.id())
		if r.stays = q.bool(); ok && stays != nil && stays(own) {
			r.stays = true
		}
		if list = append(list, r); !r.stays {
			runs = append(runs, r.run)
		}
	}
	if err := q.Err(); err != nil {
		return false, err
	}
	chunks, err := t.chunks(runs)
	if err != nil {
		return false, err
	}
	records := t.rows(historyKeys, len(list))
	for i := range list {
		r := &list[i]
		if !r.stays {
			if e.left <= 0 {
				return false, t.removeRecords(records)
			}
			n := chunks[attempt{r.run, r.attempt}]
			if n > 0 {
				if err := t.removeChunks(r.oldRecord, n, e.left); err != nil {
					return false, err
				}
			}
			if e.left -= n; e.left < 0 || e.left == 0 && !outputOnly {
				return false, t.removeRecords(records)
			}
			if !outputOnly {
				records.int(r.ended).id(&r.run).int(r.attempt)
			}
		}
		e.left--
		*from = r.oldRecord
	}
	return len(list) < limit, t.removeRecords(records)
}

type attempt struct {
	run    job.ID
	number int64
}

// chunks returns the number of output chunks of each attempt of some runs.
func (t *tx) chunks(runs []job.ID) (map[attempt]int, error) {
	n := map[attempt]int{}
	if len(runs) == 0 {
		return n, nil
	}
	q := t.query("select run, attempt, count(*) from output where run in (?*) group by run, attempt", set(runs))
	for q.Next() {
		n[attempt{q.id(), q.Int()}] = int(q.Int())
	}
	return n, q.Err()
}

// removeChunks removes the output of an attempt, of n chunks the first most.
func (t *tx) removeChunks(r oldRecord, n, most int) error {
	if n <= most {
		return t.exec("delete from output where run = ? and attempt = ?", idOf(r.run), r.attempt)
	}
	last, err := t.number("select seq from output where run = ? and attempt = ? order by seq limit 1 offset ?", idOf(r.run), r.attempt, int64(most-1))
	if err != nil {
		return err
	}
	return t.exec("delete from output where run = ? and attempt = ? and seq <= ?", idOf(r.run), r.attempt, last)
}
