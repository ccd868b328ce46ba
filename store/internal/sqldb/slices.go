package sqldb

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// The roll-up counts the final records of each job by slice and outcome, so that a page about a day
// reads no history. Expire counts a slice when it is over, and moves a cursor behind it: the steps
// that end runs pay nothing. Only a record with an old end, or a replaced one, may belong to a
// counted slice: its step locks the roll-up and corrects the counts.

const (
	// slicesLock is the lock of the roll-up; its counter is the cursor, the moment up to which slices
	// are counted.
	slicesLock = "slices"
	// slicesDelay is how long after its end a slice is counted. It is longer than lateRecord by the time
	// of the longest transaction and the difference of clocks.
	slicesDelay = 15 * time.Minute
	// lateRecord is the age from which the step of a record reads the cursor.
	lateRecord = 5 * time.Minute
	// slicesMax is how many slices one call of Expire counts: an upgrade leaves thousands, and a slice
	// of a busy store has ten thousand records.
	slicesMax = 12
)

// rollUp counts slices that are over and removes old counts. It reports whether there may be more.
func (s *backend) rollUp(ctx context.Context) (more bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		now := columns.Nanos(s.clock.now())
		if more, err = t.countSlices(now - int64(slicesDelay)); err != nil || more {
			return err
		}
		more, err = t.expireSlices(now - int64(store.SlicesFor))
		return err
	})
	return more, wrapped(err, "count history")
}

func (t *tx) countSlices(until int64) (more bool, err error) {
	until -= until % int64(store.Slice)
	cursor, err := t.cursor()
	if err != nil || cursor >= until {
		return false, err
	}
	for n := 0; cursor < until; n++ {
		if n == slicesMax {
			more = true
			break
		}
		first, err := t.number("select coalesce(min(h.ended), ?) from history h where h.ended >= ?", until, cursor)
		if err != nil {
			return false, err
		}
		if first >= until {
			cursor = until
			break
		}
		cursor = sliceOf(first)
		end := cursor + int64(store.Slice)
		expired, err := t.takeCounts(cursor)
		if err != nil {
			return false, err
		}
		err = t.exec(`insert into slices (slice, job, outcome, occurrences, took, longest)
			select ?, h.job, h.outcome, sum(h.occurrences), sum(case when h.attempt > 0 then h.ended - h.started else 0 end),
			max(case when h.attempt > 0 then h.ended - h.started else 0 end)
			from history h where h.ended >= ? and h.ended < ? and h.is_final = 1 group by h.job, h.outcome`, cursor, cursor, end)
		if err == nil {
			err = t.addCounts(expired)
		}
		if err != nil {
			return false, err
		}
		cursor = end
	}
	return more, t.exec("update counters set value = ? where name = ?", cursor, slicesLock)
}

// cursor returns the moment up to which slices are counted, under the lock of the roll-up.
func (t *tx) cursor() (int64, error) {
	return t.number("select value from counters where name = ? for update", slicesLock)
}

// expireSlices removes the counts of old slices, oldest first.
func (t *tx) expireSlices(before int64) (more bool, err error) {
	oldest, err := t.number("select coalesce(min(r.slice), ?) from slices r", before)
	if err != nil || oldest >= before {
		return false, err
	}
	return true, t.exec("delete from slices where slice < ?", min(before, oldest+slicesMax*int64(store.Slice)))
}

// sliceCounts are final records by slice, to add to the roll-up or to subtract.
type sliceCounts struct {
	slice                      int64
	job                        job.ID
	outcome                    int64
	occurrences, took, longest int64
}

func sliceOf(nanos int64) int64 { return nanos - nanos%int64(store.Slice) }

const selectCounted = "select h.run, h.attempt, h.ended, n.uid, h.outcome, h.occurrences, case when h.attempt > 0 then h.ended - h.started else 0 end from history h " +
	byRun + recordNames + " where h.run in (?*) and h.is_final = 1"

// countedOf returns the counts of the final records among attempts.
func (t *tx) countedOf(attempts map[attempt]bool) (list []sliceCounts, err error) {
	runs := make([]job.ID, 0, len(attempts))
	for a := range attempts {
		runs = append(runs, a.run)
	}
	q := t.query(selectCounted, set(runs))
	for q.Next() {
		a := attempt{q.id(), q.Int()}
		c := sliceCounts{slice: sliceOf(q.Int()), job: q.id(), outcome: q.Int(), occurrences: q.Int(), took: q.Int()}
		c.longest = c.took
		if attempts[a] {
			list = append(list, c)
		}
	}
	return list, q.Err()
}

// countLate adds records to slices that are counted already.
func (t *tx) countLate(list []*store.Record) error {
	before := t.s.clock.now().Add(-lateRecord)
	var late []sliceCounts
	for _, r := range list {
		if !r.Final || r.Attempt.Ended.After(before) {
			continue
		}
		took := int64(0)
		if r.Attempt.Number > 0 {
			took = int64(r.Attempt.Ended.Sub(r.Attempt.Started))
		}
		late = append(late, sliceCounts{sliceOf(columns.Nanos(r.Attempt.Ended)), r.Run.JobUID, columns.Outcomes.Of(r.Attempt.Outcome), int64(r.Count), took, took})
	}
	return t.correct(late)
}

// uncount subtracts the record of an attempt, which is replaced next, from its slice.
func (t *tx) uncount(run job.ID, number int) error {
	gone, err := t.countedOf(map[attempt]bool{{run, int64(number)}: true})
	if err != nil {
		return err
	}
	for i := range gone {
		c := &gone[i]
		c.occurrences, c.took, c.longest = -c.occurrences, -c.took, 0
	}
	return t.correct(gone)
}

// correct adds to the counts of slices before the cursor. Later slices are counted in their turn.
func (t *tx) correct(list []sliceCounts) error {
	if len(list) == 0 {
		return nil
	}
	cursor, err := t.cursor()
	if err != nil {
		return err
	}
	return t.addCounts(slices.DeleteFunc(list, func(c sliceCounts) bool { return c.slice >= cursor }))
}

// removeRecords removes expired records. Uncounted ones are counted first.
func (t *tx) removeRecords(records *Batch) error {
	if records.Len() == 0 {
		return nil
	}
	cursor, err := t.cursor()
	if err != nil {
		return err
	}
	fresh := map[attempt]bool{}
	for i, ended := range records.Ints[0] {
		if ended >= cursor {
			fresh[attempt{job.ID(records.Blobs[1][i]), records.Ints[2][i]}] = true
		}
	}
	if len(fresh) > 0 {
		list, err := t.countedOf(fresh)
		if err == nil {
			err = t.addCounts(list)
		}
		if err != nil {
			return err
		}
	}
	return t.writeRows(Delete, records)
}

// takeCounts removes the counts of a slice, which are of expired records, and returns them.
func (t *tx) takeCounts(slice int64) (list []sliceCounts, err error) {
	q := t.query("select n.uid, r.outcome, r.occurrences, r.took, r.longest from slices r join names n on n.uid/*n*/ = r.job where r.slice = ?", slice)
	for q.Next() {
		list = append(list, sliceCounts{slice, q.id(), q.Int(), q.Int(), q.Int(), q.Int()})
	}
	if err := q.Err(); err != nil || len(list) == 0 {
		return nil, err
	}
	return list, t.exec("delete from slices where slice = ?", slice)
}

// addCounts adds to the counts of slices.
func (t *tx) addCounts(list []sliceCounts) error {
	slices.SortFunc(list, func(a, b sliceCounts) int {
		return cmp.Or(cmp.Compare(a.slice, b.slice), compareIDs(a.job, b.job), cmp.Compare(a.outcome, b.outcome))
	})
	for i := range list {
		c := &list[i]
		if i+1 < len(list) && list[i+1].slice == c.slice && list[i+1].job == c.job && list[i+1].outcome == c.outcome {
			next := &list[i+1]
			next.occurrences, next.took, next.longest = next.occurrences+c.occurrences, next.took+c.took, max(next.longest, c.longest)
			continue
		}
		has, err := t.number("select count(*) from slices r where r.slice = ? and r.job = /*n*/? and r.outcome = ?", c.slice, idOf(c.job), c.outcome)
		if err != nil {
			return err
		}
		if has == 0 {
			err = t.exec("insert into slices (slice, job, outcome, occurrences, took, longest) select ?, n.uid/*n*/, ?, ?, ?, ? from names n where n.uid = ?",
				c.slice, c.outcome, c.occurrences, c.took, c.longest, idOf(c.job))
		} else {
			err = t.exec(`update slices set occurrences = occurrences + ?, took = took + ?, longest = case when longest > ? then longest else ? end
				where slice = ? and job = /*n*/? and outcome = ?`, c.occurrences, c.took, c.longest, c.longest, c.slice, idOf(c.job), c.outcome)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Aggregate implements [store.History].
func (s *backend) Aggregate(ctx context.Context, query store.AggregateQuery) (list []store.Aggregate, err error) {
	err = s.read(ctx, func(t *tx) error {
		c, split := query.Counter(), query.From
		if query.Sliced() {
			cursor, err := t.number("select value from counters where name = ?", slicesLock)
			if err != nil {
				return err
			}
			end := sliceOf(columns.Nanos(endOf(query.To).Ended))
			split = columns.FromNanos(max(min(cursor, end), columns.Nanos(query.From)))
			// Behind the cursor there are only expired records.
			if err := t.sumSlices(c, &query, columns.FromNanos(end)); err != nil {
				return err
			}
		}
		err := t.sumHistory(c, &query, split)
		list = c.List()
		return err
	})
	return list, wrapped(err, "aggregate of history")
}

// sumSlices adds the counts of slices before a moment.
func (t *tx) sumSlices(c *store.Counter, query *store.AggregateQuery, to time.Time) error {
	from := columns.Nanos(query.From)
	if columns.Nanos(to) <= from {
		return nil
	}
	args := []any{from, int64(query.Bucket), from, columns.Nanos(to)}
	where, more := ofJobs("r", query)
	return t.count(c, query, `select r.slice - (r.slice - ?) % ? as bucket, r.job, r.outcome, r.occurrences, r.took, r.longest
		from slices r`+where(" where r.slice >= ? and r.slice < ?"), append(args, more...))
}

// sumHistory adds records from a moment on.
func (t *tx) sumHistory(c *store.Counter, query *store.AggregateQuery, from time.Time) error {
	condition, args := historyWhere(query.Job, "", from, endOf(query.To))
	args = append([]any{columns.Nanos(query.From), max(1, int64(query.Bucket))}, args...)
	one := *query
	one.Job = job.ID{} // the condition names the job
	where, more := ofJobs("h", &one)
	return t.count(c, query, `select h.ended - (h.ended - ?) % ? as bucket, h.job, h.outcome, h.occurrences,
		case when h.attempt > 0 then h.ended - h.started else 0 end as took, case when h.attempt > 0 then h.ended - h.started else 0 end as longest
		from history h`+where(condition+" and h.is_final = 1"), append(args, more...))
}

// ofJobs returns the conditions of a query about jobs, in a table by its alias.
func ofJobs(alias string, query *store.AggregateQuery) (where func(string) string, args []any) {
	names, conditions := "", ""
	if query.Namespace != "" { // read only if needed: there may be a million rows
		names, conditions = " join names n on n.uid/*n*/ = "+alias+".job", " and n.namespace = ?"
		args = append(args, query.Namespace)
	}
	if !query.Job.IsZero() {
		conditions += " and " + alias + ".job = /*n*/?"
		args = append(args, idOf(query.Job))
	}
	if query.Jobs != nil {
		conditions += " and " + alias + ".job in (select x.uid/*n*/ from names x where x.uid in (?*))"
		args = append(args, set(query.Jobs))
	}
	return func(text string) string { return names + text + conditions }, args
}

// count adds up rows of buckets, by job where the query asks for it.
func (t *tx) count(c *store.Counter, query *store.AggregateQuery, rows string, args []any) error {
	text := "select b.bucket, b.outcome, sum(b.occurrences), sum(b.took), max(b.longest) from (" + rows + ") b group by b.bucket, b.outcome"
	if query.ByJob {
		text = "select b.bucket, b.outcome, b.occurrences, b.took, b.longest, n.uid from (select b.bucket, b.job, b.outcome, sum(b.occurrences) as occurrences, sum(b.took) as took, max(b.longest) as longest from (" +
			rows + ") b group by b.bucket, b.job, b.outcome) b join names n on n.uid/*n*/ = b.job"
	}
	q := t.query(text, args...)
	for q.Next() {
		start, outcome := q.time(), columns.Outcomes.Value(q.Int())
		count, took, longest := int(q.Int()), time.Duration(q.Int()), time.Duration(q.Int())
		var of job.ID
		if query.ByJob {
			of = q.id()
		}
		if count != 0 { // all its records may have been replaced
			c.Add(start, of, outcome, count, took, longest)
		}
	}
	return q.Err()
}
