package sqldb

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

var historyRows = &Table{Name: "history", Key: 3, Columns: []Column{
	{"ended", Int}, {"run", Blob}, {"attempt", Int}, {"job", Blob}, {"is_final", Int}, {"outcome", Int}, {"kind", Int}, {"run_key", Text},
	{"shard", Int}, {"shards", Int}, {"epoch", Int}, {"version", Int}, {"scheduled", Int}, {"due", Int}, {"next_attempt", Int}, {"held_slot", Int},
	{"started", Int}, {"node", Text}, {"token", Blob}, {"reason", Text}, {"exited", Int}, {"exit_code", Int}, {"signal_name", Text},
	{"http_status", Int}, {"params", Text}, {"parent", Blob}, {"occurrences", Int}, {"last_scheduled", Int}, {"replaces", Int},
	{"output_bytes", Int}, {"unmet", Text}, {"begun", Int}, {"flow", Text},
	{"claimed", Int}, {"slot", Text}, {"cause", Text}, {"fingerprint", Int}, {"used", Text},
}}

// insertRecords writes records. They are new: the step that makes one removes the
// run, or its attempt, for which there was none.
func (t *tx) insertRecords(list []*store.Record) error {
	b := t.rows(historyRows, len(list))
	for _, r := range list {
		a := &r.Attempt
		params, err := columns.EncodeParams(r.Run.Params)
		if err != nil {
			return err
		}
		b.time(a.Ended).id(&r.Run.ID).int(int64(a.Number)).id(&r.Run.JobUID).bool(r.Final).int(columns.Outcomes.Of(a.Outcome))
		b.int(columns.Kinds.Of(r.Run.Kind)).text(columns.StoredKey(&r.Run)).int(int64(r.Run.Shard)).int(int64(r.Run.Shards))
		b.int(r.Run.Epoch).int(r.Run.Version).time(r.Run.Scheduled).time(r.Run.Due).int(int64(r.Run.Attempt)).bool(r.Run.HoldsSlot)
		b.time(a.Started).text(a.Node).id(&a.Token).text(a.Reason.Stored())
		code := 0
		if a.ExitCode != nil {
			code = *a.ExitCode
		}
		b.bool(a.ExitCode != nil).int(int64(code)).text(a.Signal).int(int64(a.HTTPStatus)).text(string(params)).id(&r.Run.Parent)
		b.int(int64(r.Count)).time(r.Until).bool(r.Replaces).int(r.OutputBytes).text(r.Unmet.Stored()).time(r.Begun).text(string(r.Run.Flow))
		b.time(r.Claimed).text(columns.StoredSlot(r.Slot, r.Run.JobUID)).text(a.Cause).int(int64(a.Fingerprint)).text(a.Usage.Stored()) // all bits of the fingerprint
		t.s.expiring.touch(r.Run.JobUID)
	}
	if err := t.writeRows(Insert, b); err != nil {
		return err
	}
	return t.countLate(list)
}

// selectRecords reads records with the names of their jobs, for records, and
// selectRecordsOf reads the records of some runs.
const (
	selectRecords   = recordColumns + " from history h " + recordNames
	selectRecordsOf = recordColumns + " from history h " + byRun + recordNames + " where h.run in (?*)"
	recordColumns   = `select h.ended, h.run, h.attempt, h.is_final, h.outcome, n.namespace, n.name, h.reason, h.unmet, n.uid, h.kind, h.run_key,
	h.shard, h.shards, h.epoch, h.version, h.scheduled, h.due, h.next_attempt, h.held_slot, h.started, h.node, h.token, h.exited, coalesce(h.exit_code, -9223372036854775808),
	h.signal_name, h.http_status, h.params, h.parent, h.occurrences, h.last_scheduled, h.replaces, h.output_bytes, h.begun, h.flow, h.claimed, h.slot, h.cause, h.fingerprint, h.used`
	recordNames = "join names n on n.uid/*n*/ = h.job"
)

func (t *tx) records(text string, args ...any) (list []store.Record, err error) {
	q := t.query(text, args...)
	for q.Next() {
		list = append(list, store.Record{})
		scanRecord(q, &list[len(list)-1])
	}
	return list, q.Err()
}

func scanRecord(q reader, r *store.Record) {
	a := &r.Attempt
	a.Ended, a.Run = q.time(), q.id()
	r.Run.ID, a.Number = a.Run, int(q.Int())
	r.Final = q.bool()
	a.Outcome = columns.Outcomes.Value(q.Int())
	r.Run.Namespace, r.Run.Name, a.Reason, r.Unmet = q.Text(), q.Text(), q.reason(), q.reason()
	r.Run.JobUID = q.id()
	r.Run.Kind, r.Run.Key = columns.Kinds.Value(q.Int()), q.Text()
	r.Run.Shard, r.Run.Shards = int(q.Int()), int(q.Int())
	r.Run.Epoch, r.Run.Version = q.Int(), q.Int()
	r.Run.Scheduled, r.Run.Due = q.time(), q.time()
	r.Run.Attempt, r.Run.HoldsSlot = int(q.Int()), q.bool()
	a.Started, a.Node, a.Token = q.time(), q.Text(), q.id()
	exited, code := q.Int(), q.Int()
	if exited == 1 || exited == ifCode && code != math.MinInt64 {
		code := int(code)
		a.ExitCode = &code
	}
	a.Signal, a.HTTPStatus = q.Text(), int(q.Int())
	r.Run.Params, r.Run.Parent = columns.Params(q.View()), q.id()
	r.Count, r.Until = int(q.Int()), q.time()
	r.Replaces, r.OutputBytes, r.Begun = q.bool(), q.Int(), q.time()
	r.Run.Flow = columns.Flow(q.View())
	r.Claimed, r.Slot = q.time(), columns.Slot(q.Text(), r.Run.JobUID)
	a.Cause, a.Fingerprint, a.Usage = q.Text(), job.Fingerprint(q.Int()), job.StoredUsage(q.Text())

	r.Run.State = job.StateRunning
	if r.EndsRun() {
		r.Run.State = job.StateDone
	}
	r.Run.Node, r.Run.Outcome, r.Run.Reason = a.Node, a.Outcome, a.Reason
	r.Run.Key = columns.Key(&r.Run)
}

// ifCode says that an attempt has exited if the row has an exit code: rows of SQLite from before
// version 9 of its schema have no other mark.
const ifCode = 2

// Attempts implements [store.History].
func (s *backend) Attempts(ctx context.Context, query store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, next, err = t.attempts(&query)
		return err
	})
	return list, next, wrapped(err, "history")
}

func (t *tx) attempts(query *store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	end := endOf(query.To)
	if b := query.Before; b != (store.RecordRef{}) && b.Ended.Before(end.Ended) {
		end = b
	}
	if query.Text == "" && (query.Failed || len(query.Except) > 0 || len(query.Outcomes) > 0 || len(query.Kinds) > 0 || query.Node != "" || query.Namespace != "" || query.Unmet || query.Reason != "" || query.Fingerprint != 0) {
		return t.selected(query, end)
	}
	looked := 0
	for chunk := query.Limit + 1; ; chunk *= 4 {
		limit := min(chunk, listChunk, store.LookMax+1-looked)
		where, args := historyWhere(query.Job, "", query.From, end)
		records, err := t.records(selectRecords+where+" order by h.ended desc, h.run desc, h.attempt desc limit ?", append(args, int64(limit))...)
		if err != nil {
			return nil, next, err
		}
		for i := range records {
			r := &records[i]
			if len(list) == query.Limit || looked == store.LookMax {
				return list, end, nil
			}
			looked, end = looked+1, r.Ref()
			if query.Matches(r) {
				list = append(list, *r)
			}
		}
		if len(records) < limit {
			return list, next, nil
		}
	}
}

// selected selects attempts by conditions that the database can check: of LookMax records it sends
// only the matching ones.
func (t *tx) selected(query *store.HistoryQuery, end store.RecordRef) (list []store.Record, next store.RecordRef, err error) {
	const order = " order by h.ended desc, h.run desc, h.attempt desc limit "
	where, args := historyWhere(query.Job, "", query.From, end)
	if query.Failed {
		from, condition := t.s.db.Failures()
		where = from + where + " and " + condition
	}
	text := recordColumns + " from (select * from history h" + where + order + "?) h " + recordNames + " where h.is_final >= ?"
	final := int64(0)
	if query.FinalOnly {
		final = 1
	}
	all := append(slices.Clone(args), int64(store.LookMax), final)
	if len(query.Outcomes) > 0 {
		var list []int64
		for _, o := range query.Outcomes {
			list = append(list, columns.Outcomes.Of(o))
		}
		text, all = text+" and h.outcome in (?*)", append(all, list)
	}
	if len(query.Kinds) > 0 {
		var list []int64
		for _, k := range query.Kinds {
			list = append(list, columns.Kinds.Of(k))
		}
		text, all = text+" and h.kind in (?*)", append(all, list)
	}
	if query.Node != "" {
		text, all = text+" and h.node = ?", append(all, query.Node)
	}
	if query.Namespace != "" {
		text, all = text+" and n.namespace = ?", append(all, query.Namespace)
	}
	if query.Unmet {
		text += " and h.unmet <> ''"
	}
	if query.Fingerprint != 0 {
		text, all = text+" and h.fingerprint = ?", append(all, int64(query.Fingerprint)) // all its bits
	}
	if query.Reason != "" {
		like := "h.reason like ? escape '!'"
		if query.Reason == job.ReasonText {
			like = "(" + like + " or h.reason <> '' and h.reason not like '%" + job.ReasonMark + "%')"
		}
		part := "%" + job.ReasonMark + "%" + likeEscapes.Replace(job.CodePart(query.Reason)) + "%"
		text, all = text+" and "+like, append(all, part)
	}
	if len(query.Except) > 0 {
		text, all = text+" and h.job not in (select x.uid/*n*/ from names x where x.uid in (?*))", append(all, set(query.Except))
	}
	if list, err = t.records(text+order+"?", append(all, int64(query.Limit)+1)...); err != nil {
		return nil, next, err
	}
	if len(list) > query.Limit {
		list = list[:query.Limit]
		return list, list[query.Limit-1].Ref(), nil
	}
	// The last examined record, if there is one after it.
	q := t.query("select h.ended, h.run, h.attempt from history h"+where+order+"2 offset ?", append(args, int64(store.LookMax)-1)...)
	for at := 0; q.Next(); at++ {
		ref := store.RecordRef{Ended: q.time(), Run: q.id(), Attempt: int(q.Int())}
		if at == 0 {
			end = ref
		} else {
			next = end
		}
	}
	return list, next, q.Err()
}

// likeEscapes escapes a text within a pattern of like.
var likeEscapes = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// Failed is the condition of the index of failures, which has the numbers of their outcomes.
const Failed = "h.is_final = 1 and h.outcome in (2, 3, 5, 7)"

// endOf returns the place before the records that ended at a moment.
func endOf(to time.Time) store.RecordRef {
	if to.IsZero() {
		to = columns.Latest
	}
	return store.RecordRef{Ended: to}
}

// historyWhere is the condition that queries and aggregates share: the job, the
// namespace and the time.
func historyWhere(uid job.ID, namespace string, from time.Time, end store.RecordRef) (where string, args []any) {
	first := int64(math.MinInt64)
	if !from.IsZero() {
		first = columns.Nanos(from)
	}
	last := columns.Nanos(end.Ended)
	where = " where h.ended >= ? and h.ended <= ? and (h.ended, h.run, h.attempt) < (?, ?, ?)"
	args = []any{first, last, last, idOf(end.Run), int64(end.Attempt)}
	if !uid.IsZero() {
		where += " and h.job = /*n*/?"
		args = append(args, idOf(uid))
	}
	if namespace != "" {
		where += " and n.namespace = ?"
		args = append(args, namespace)
	}
	return where, args
}

// AttemptsOf implements [store.History].
func (s *backend) AttemptsOf(ctx context.Context, run job.ID) (list []store.Record, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = t.records(selectRecords+" where h.run = ? order by h.attempt", idOf(run))
		return err
	})
	return list, wrapped(err, "attempts of run %s", run)
}

// recentOf selects the latest records of a job for Recent, and recentOfEach of several jobs, each
// in the order of an index.
const (
	recentOf = " from history h " + recordNames + ` where h.job = /*n*/? and h.is_final = 1 and h.outcome <> ?
	order by h.ended desc, h.run desc, h.attempt desc limit ?`
	recentOfEach = ` from names n cross join lateral (select r.* from history r
	where r.job = n.uid and r.is_final = 1 and r.outcome <> ? order by r.ended desc, r.run desc, r.attempt desc limit ?) h
	where n.uid in (?*)`
	briefColumns = `select h.ended, h.run, h.attempt, h.outcome, n.namespace, n.name, h.reason, n.uid, h.kind, h.due, h.next_attempt, h.started, h.node,
	h.occurrences, h.begun, h.cause, h.fingerprint, h.version, h.used`
)

// selectRecent reads the rows of recentOf or recentOfEach: states of flows only if one record of
// each job is wanted.
func selectRecent(from string, n int) string {
	if n == 1 {
		return briefColumns + ", h.flow" + from
	}
	return briefColumns + ", ''" + from
}

// scanBrief reads the fields of a final record that Brief keeps, and the state of a flow.
func scanBrief(q reader, r *store.Record) {
	a := &r.Attempt
	a.Ended, a.Run, a.Number = q.time(), q.id(), int(q.Int())
	a.Outcome = columns.Outcomes.Value(q.Int())
	r.Run.Namespace, r.Run.Name, a.Reason, r.Run.JobUID = q.Text(), q.Text(), q.reason(), q.id()
	r.Run.Kind, r.Run.Due, r.Run.Attempt = columns.Kinds.Value(q.Int()), q.time(), int(q.Int())
	a.Started, a.Node = q.time(), q.Text()
	r.Count, r.Begun = int(q.Int()), q.time()
	a.Cause, a.Fingerprint, r.Run.Version = q.Text(), job.Fingerprint(q.Int()), q.Int()
	a.Usage = job.StoredUsage(q.Text())
	r.Run.Flow = columns.Flow(q.View())
	r.Run.ID, r.Final, r.Run.State = a.Run, true, job.StateDone
	r.Run.Node, r.Run.Outcome, r.Run.Reason = a.Node, a.Outcome, a.Reason
}

// recentPart is how many jobs Recent asks about in one message: some hundred kilobytes of
// answers.
const recentPart = 50

// Recent implements [store.History].
func (s *backend) Recent(ctx context.Context, jobs []job.ID, n int) (lists [][]store.Record, err error) {
	if len(jobs) > store.MaxBatch {
		return nil, fmt.Errorf("recent runs: %w", store.ErrTooMany)
	}
	err = s.read(ctx, func(t *tx) error {
		if s.db.Lateral() {
			lists, err = t.recentOfAll(jobs, n)
			return err
		}
		lists = make([][]store.Record, 0, len(jobs))
		for part := range slices.Chunk(jobs, recentPart) {
			if lists, err = t.recent(lists, part, n); err != nil {
				return err
			}
		}
		return nil
	})
	return lists, wrapped(err, "recent runs")
}

func (t *tx) recentOfAll(jobs []job.ID, n int) ([][]store.Record, error) {
	byJob := make(map[job.ID][]store.Record, len(jobs))
	q := t.query(selectRecent(recentOfEach, n), columns.Outcomes.Of(job.OutcomeWithdrawn), int64(n), set(jobs))
	for q.Next() {
		var r store.Record
		scanBrief(q, &r)
		byJob[r.Run.JobUID] = append(byJob[r.Run.JobUID], r)
	}
	if err := q.Err(); err != nil {
		return nil, err
	}
	lists := make([][]store.Record, len(jobs))
	for i, uid := range jobs {
		lists[i] = byJob[uid]
		// The order of a subquery is not guaranteed.
		slices.SortFunc(lists[i], func(a, b store.Record) int {
			return cmp.Or(b.Attempt.Ended.Compare(a.Attempt.Ended), slices.Compare(b.Run.ID[:], a.Run.ID[:]), cmp.Compare(b.Attempt.Number, a.Attempt.Number))
		})
	}
	return lists, nil
}

func (t *tx) recent(lists [][]store.Record, jobs []job.ID, n int) ([][]store.Record, error) {
	questions := make([]Question, len(jobs))
	text := selectRecent(recentOf, n)
	for i, uid := range jobs {
		questions[i] = Question{text, []any{idOf(uid), columns.Outcomes.Of(job.OutcomeWithdrawn), int64(n)}}
	}
	q := reader{t.Ask(t.ctx, questions...)}
	defer q.Close()
	for i := range jobs {
		if i > 0 {
			q.More()
		}
		var list []store.Record
		for q.Next() {
			list = append(list, store.Record{})
			scanBrief(q, &list[len(list)-1])
		}
		lists = append(lists, list)
	}
	return lists, q.Err()
}

var outputRows = &Table{Name: "output", Key: 3, Columns: []Column{
	{"run", Blob}, {"attempt", Int}, {"seq", Int}, {"position", Int}, {"bytes", Int}, {"written", Int}, {"data", Blob},
}}

// AppendOutput implements [store.History].
func (s *backend) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	if len(chunks) > store.MaxBatch {
		return fmt.Errorf("append output: %w", store.ErrTooMany)
	}
	err := s.grow(ctx, func(t *tx) error { return t.appendOutput(chunks) })
	return wrapped(err, "append output")
}

func (t *tx) appendOutput(chunks []store.OutputChunk) error {
	type key struct {
		run          job.ID
		attempt, seq int
	}
	seen := make(map[key]bool, len(chunks))
	b := t.rows(outputRows, len(chunks))
	for i := range chunks {
		c := &chunks[i]
		if k := (key{c.Run, c.Attempt, c.Seq}); seen[k] {
			continue
		} else {
			seen[k] = true
		}
		b.id(&c.Run).int(int64(c.Attempt)).int(int64(c.Seq)).int(c.Offset).int(int64(c.Bytes)).time(c.Time).blob(c.Data)
	}
	if err := t.writeRows(InsertNew, b); err != nil {
		return err
	}
	for i := range chunks {
		c := &chunks[i]
		if c.DropFrom >= c.DropTo {
			continue
		}
		// Also for an existing chunk: the chunks that it displaces may have been sent again before
		// it.
		err := t.exec("delete from output where run = ? and attempt = ? and seq >= ? and seq < ?",
			idOf(c.Run), int64(c.Attempt), int64(c.DropFrom), int64(c.DropTo))
		if err != nil {
			return err
		}
	}
	return nil
}

// Output implements [store.History].
func (s *backend) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) (list []store.OutputChunk, err error) {
	err = s.read(ctx, func(t *tx) error {
		list = nil
		q := t.query("select seq, position, bytes, written, data from output where run = ? and attempt = ? and seq >= ? order by seq limit ?",
			idOf(run), int64(attempt), int64(fromSeq), int64(limit))
		for q.Next() {
			list = append(list, store.OutputChunk{
				Run: run, Attempt: attempt, Seq: int(q.Int()), Offset: q.Int(), Bytes: int(q.Int()), Time: q.time(), Data: append([]byte(nil), q.View()...),
			})
		}
		return q.Err()
	})
	return list, wrapped(err, "output of run %s", run)
}
