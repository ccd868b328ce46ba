package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

const insertHistory = `insert into history (ended, run, attempt, job, final, outcome, kind, key, shard, shards, epoch, version, scheduled, due,
	next_attempt, held_slot, started, node, token, reason, exit_code, signal, http_status, params, parent, count, until, replaces, output, unmet)
	values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) on conflict do nothing`

// insertRecord writes a record of the job with a number. The first record of an
// attempt is the one that counts.
func (t *tx) insertRecord(r *store.Record, n int64) error {
	t.memory.expiry.touch(n)
	a := &r.Attempt
	s := t.stmt(insertHistory).bindTime(a.Ended).bindID(r.Run.ID).bindInt(int64(a.Number)).bindInt(n).bindBool(r.Final)
	s.bindInt(columns.Outcomes.Of(a.Outcome)).bindInt(columns.Kinds.Of(r.Run.Kind)).bindKey(&r.Run).bindInt(int64(r.Run.Shard)).bindInt(int64(r.Run.Shards))
	s.bindInt(r.Run.Epoch).bindInt(r.Run.Version).bindTime(r.Run.Scheduled).bindTime(r.Run.Due)
	s.bindInt(int64(r.Run.Attempt)).bindBool(r.Run.HoldsSlot).bindTime(a.Started).bindText(a.Node).bindID(a.Token).bindText(a.Reason)
	if a.ExitCode != nil {
		s.bindInt(int64(*a.ExitCode))
	} else {
		s.bindNull()
	}
	s.bindText(a.Signal).bindInt(int64(a.HTTPStatus)).bindParams(r.Run.Params).bindID(r.Run.Parent)
	return s.bindInt(int64(r.Count)).bindTime(r.Until).bindBool(r.Replaces).bindInt(r.OutputBytes).bindText(r.Unmet).exec()
}

// selectRecords reads records with the names of their jobs, for scanRecords.
// What Attempts looks at stands in front.
const selectRecords = `select h.ended, h.run, h.attempt, h.final, h.outcome, n.namespace, n.name, h.reason, h.unmet, n.uid, h.kind, h.key, h.shard, h.shards,
	h.epoch, h.version, h.scheduled, h.due, h.next_attempt, h.held_slot, h.started, h.node, h.token, h.exit_code, h.signal,
	h.http_status, h.params, h.parent, h.count, h.until, h.replaces, h.output
	from history h cross join names n on n.n = h.job`

func scanRecords(q *stmt) (list []store.Record, err error) {
	for q.next() {
		list = append(list, store.Record{})
		scanRecord(q, &list[len(list)-1])
	}
	return list, q.err()
}

func scanRecord(q *stmt, r *store.Record) {
	scanFront(q, r)
	a := &r.Attempt
	r.Run.JobUID = q.id()
	r.Run.Kind, r.Run.Key = columns.Kinds.Value(q.int()), q.text()
	r.Run.Shard, r.Run.Shards = int(q.int()), int(q.int())
	r.Run.Epoch, r.Run.Version = q.int(), q.int()
	r.Run.Scheduled, r.Run.Due = q.time(), q.time()
	r.Run.Attempt, r.Run.HoldsSlot = int(q.int()), q.bool()
	a.Started, a.Node, a.Token = q.time(), q.text(), q.id()
	if q.null() {
		q.skip()
	} else {
		code := int(q.int())
		a.ExitCode = &code
	}
	a.Signal, a.HTTPStatus = q.text(), int(q.int())
	r.Run.Params, r.Run.Parent = columns.Params(q.view()), q.id()
	r.Count, r.Until = int(q.int()), q.time()
	r.Replaces, r.OutputBytes = q.bool(), q.int()

	r.Run.State = job.StateRunning
	if r.Final {
		r.Run.State = job.StateDone
	}
	r.Run.Node, r.Run.Outcome, r.Run.Reason = a.Node, a.Outcome, a.Reason
	r.Run.Key = columns.Key(&r.Run)
}

// scanFront reads where a record stands and what it is selected by.
func scanFront(q *stmt, r *store.Record) {
	a := &r.Attempt
	a.Ended, a.Run = q.time(), q.id()
	r.Run.ID, a.Number = a.Run, int(q.int())
	r.Final = q.bool()
	a.Outcome = columns.Outcomes.Value(q.int())
	r.Run.Namespace, r.Run.Name, a.Reason, r.Unmet = q.text(), q.text(), q.text(), q.text()
}

// Attempts implements store.History.
func (s *Store) Attempts(ctx context.Context, query store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	end := endOf(query.To)
	if b := query.Before; b != (store.RecordRef{}) && b.Ended.Before(end.Ended) {
		end = b
	}
	where, bind := historyWhere(query.Job, "", query.From, end)
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt(selectRecords + where + " order by h.ended desc, h.run desc, h.attempt desc")
		bind(q)
		var last store.Record
		for looked := 0; q.next(); looked++ {
			if len(list) == query.Limit || looked == store.LookMax {
				next = last.Ref()
				break
			}
			last = store.Record{}
			if scanFront(q, &last); query.Matches(&last) {
				q.column = 0
				scanRecord(q, &last)
				list = append(list, last)
			}
		}
		return q.err()
	})
	return list, next, wrapped(err, "history")
}

// endOf is the place in front of what ended at a moment.
func endOf(to time.Time) store.RecordRef {
	if to.IsZero() {
		to = columns.FromNanos(math.MaxInt64)
	}
	return store.RecordRef{Ended: to}
}

// historyWhere is the condition that queries and aggregates share: the job, the
// namespace and the time. Its texts are few, so that the prepared ones are. There
// is one condition for the end, of time as of pages, because SQLite takes one and
// would step through all that the other one excludes.
func historyWhere(uid job.ID, namespace string, from time.Time, end store.RecordRef) (where string, bind func(*stmt)) {
	first := int64(math.MinInt64)
	if !from.IsZero() {
		first = columns.Nanos(from)
	}
	where = " where h.ended >= ? and (h.ended, h.run, h.attempt) < (?, ?, ?)"
	if !uid.IsZero() {
		where += " and h.job = (select n from names where uid = ?)"
	}
	if namespace != "" {
		where += " and n.namespace = ?"
	}
	return where, func(q *stmt) {
		q.bindInt(first).bindTime(end.Ended).bindID(end.Run).bindInt(int64(end.Attempt))
		if !uid.IsZero() {
			q.bindID(uid)
		}
		if namespace != "" {
			q.bindText(namespace)
		}
	}
}

// AttemptsOf implements store.History.
func (s *Store) AttemptsOf(ctx context.Context, run job.ID) (list []store.Record, err error) {
	err = s.read(ctx, func(c *conn) error {
		list, err = scanRecords(c.stmt(selectRecords + " where h.run = ? order by h.attempt").bindID(run))
		return err
	})
	return list, wrapped(err, "attempts of run %s", run)
}

// Aggregate implements store.History.
func (s *Store) Aggregate(ctx context.Context, query store.AggregateQuery) (list []store.Aggregate, err error) {
	where, bind := historyWhere(query.Job, query.Namespace, query.From, endOf(query.To))
	width := max(1, int64(query.Bucket))
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt(`select (h.ended - ?) / ?, h.outcome, sum(h.count),
			sum(case when h.attempt > 0 then h.ended - h.started else 0 end),
			max(case when h.attempt > 0 then h.ended - h.started else 0 end)
			from history h cross join names n on n.n = h.job` + where + " and h.final = 1 group by 1, 2 order by 1, 2")
		q.bindTime(query.From).bindInt(width)
		bind(q)
		for q.next() {
			start := query.From.Add(time.Duration(q.int() * width)).UTC()
			if len(list) == 0 || !list[len(list)-1].Start.Equal(start) {
				list = append(list, store.Aggregate{Start: start, Outcomes: map[job.Outcome]int{}})
			}
			bucket := &list[len(list)-1]
			bucket.Outcomes[columns.Outcomes.Value(q.int())] += int(q.int())
			bucket.Duration += time.Duration(q.int())
			bucket.Longest = max(bucket.Longest, time.Duration(q.int()))
		}
		return q.err()
	})
	return list, wrapped(err, "aggregate of history")
}

// AppendOutput implements store.History.
func (s *Store) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	err := s.grow(ctx, func(t *tx) error {
		if len(chunks) > store.MaxBatch {
			return store.ErrTooMany
		}
		return t.appendOutput(chunks)
	})
	return wrapped(err, "append output")
}

func (t *tx) appendOutput(chunks []store.OutputChunk) error {
	for i := range chunks {
		c := &chunks[i]
		q := t.stmt("insert into output (run, attempt, seq, start, bytes, time, data) values (?, ?, ?, ?, ?, ?, ?) on conflict do nothing")
		q.bindID(c.Run).bindInt(int64(c.Attempt)).bindInt(int64(c.Seq)).bindInt(c.Offset).bindInt(int64(c.Bytes)).bindTime(c.Time)
		if err := q.bindBlob(c.Data).exec(); err != nil {
			return err
		}
		if c.DropFrom >= c.DropTo {
			continue
		}
		// Also for a chunk that was there: those that it pushes out may have
		// been sent again before it.
		q = t.stmt("delete from output where run = ? and attempt = ? and seq >= ? and seq < ?")
		q.bindID(c.Run).bindInt(int64(c.Attempt)).bindInt(int64(c.DropFrom)).bindInt(int64(c.DropTo))
		if err := q.exec(); err != nil {
			return err
		}
	}
	return nil
}

// Output implements store.History.
func (s *Store) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) (list []store.OutputChunk, err error) {
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt("select seq, start, bytes, time, data from output where run = ? and attempt = ? and seq >= ? order by seq limit ?")
		q.bindID(run).bindInt(int64(attempt)).bindInt(int64(fromSeq)).bindInt(int64(limit))
		for q.next() {
			list = append(list, store.OutputChunk{
				Run: run, Attempt: attempt, Seq: int(q.int()), Offset: q.int(), Bytes: int(q.int()), Time: q.time(), Data: q.blob(),
			})
		}
		return q.err()
	})
	return list, wrapped(err, "output of run %s", run)
}
