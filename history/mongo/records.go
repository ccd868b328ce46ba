package mongo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// document is a stored attempt.
type document struct {
	ID        string    `bson:"_id"` // run and number, in order
	Job       string    `bson:"job"`
	Run       string    `bson:"run"`
	Attempt   int       `bson:"attempt"`
	Namespace string    `bson:"namespace"`
	Name      string    `bson:"name"`
	Node      string    `bson:"node,omitempty"`
	Ended     int64     `bson:"ended"` // microseconds since 1970: dates have milliseconds
	At        time.Time `bson:"at"`    // the same, for people and for expiry
	Final     bool      `bson:"final"`
	Outcome   string    `bson:"outcome"`
	Reason    string    `bson:"reason"`
	Count     int       `bson:"count"`
	Took      int64     `bson:"took"`   // nanoseconds; 0 if it never started
	Record    string    `bson:"record"` // the whole record, as JSON
}

func attemptID(run job.ID, number int) string { return fmt.Sprintf("%s.%06d", run, number) }

func documentOf(r *store.Record) (document, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return document{}, fmt.Errorf("encode the record of run %s: %w", r.Run.ID, err)
	}
	a := &r.Attempt
	d := document{
		ID: attemptID(r.Run.ID, a.Number), Job: r.Run.JobUID.String(), Run: r.Run.ID.String(), Attempt: a.Number,
		Namespace: r.Run.Namespace, Name: r.Run.Name, Node: a.Node, Ended: a.Ended.UnixMicro(), At: a.Ended,
		Final: r.Final, Outcome: string(a.Outcome), Reason: a.Reason.String(), Count: r.Count, Record: string(text),
	}
	if a.Number > 0 {
		d.Took = int64(a.Ended.Sub(a.Started))
	}
	return d, nil
}

func (d *document) record() (r store.Record, err error) {
	if err = json.Unmarshal([]byte(d.Record), &r); err != nil {
		return r, fmt.Errorf("record %s: %w: %w", d.ID, store.ErrDamaged, err)
	}
	return r, nil
}

// appendTries bounds how often Append rereads concurrent appends.
const appendTries = 5

// Append implements [store.History].
func (h *History) Append(ctx context.Context, records []store.Record) error {
	if len(records) > store.MaxBatch {
		return store.ErrTooMany
	}
	if len(records) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		again, err := h.append(ctx, records)
		if err != nil {
			return fmt.Errorf("append records: %w", fault(ctx, err))
		}
		if !again || try == appendTries {
			return nil
		}
	}
}

// append appends new records, and replaces lost ones. It reports whether another process
// has appended some of them at the same time.
func (h *History) append(ctx context.Context, records []store.Record) (again bool, err error) {
	list, at := []document{}, map[string]int{}
	ids := bson.A{}
	for i := range records {
		d, err := documentOf(&records[i])
		if err != nil {
			return false, err
		}
		switch before, given := at[d.ID]; {
		case !given:
			at[d.ID] = len(list)
			list, ids = append(list, d), append(ids, d.ID)
		case list[before].Outcome == string(job.OutcomeLost):
			list[before] = d
		}
	}
	found, err := h.attempts.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(bson.D{{Key: "outcome", Value: 1}}))
	if err != nil {
		return false, err
	}
	var docs []document
	if err := found.All(ctx, &docs); err != nil {
		return false, err
	}
	there := map[string]string{}
	for i := range docs {
		there[docs[i].ID] = docs[i].Outcome
	}
	var fresh []any
	for i := range list {
		d := &list[i]
		switch outcome, known := there[d.ID]; {
		case !known:
			fresh = append(fresh, d)
		case outcome == string(job.OutcomeLost) && d.Outcome != outcome:
			lost := bson.D{{Key: "_id", Value: d.ID}, {Key: "outcome", Value: outcome}}
			if _, err := h.attempts.ReplaceOne(ctx, lost, d); err != nil {
				return false, err
			}
		}
	}
	if len(fresh) == 0 {
		return false, nil
	}
	_, err = h.attempts.InsertMany(ctx, fresh, options.InsertMany().SetOrdered(false))
	return onlyDuplicates(err)
}

// onlyDuplicates reports whether an insert failed only because documents exist, and returns
// any other error.
func onlyDuplicates(err error) (some bool, other error) {
	var bulk mongo.BulkWriteException
	if err == nil || !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return false, err
	}
	for _, one := range bulk.WriteErrors {
		if !mongo.IsDuplicateKeyError(one) {
			return false, err
		}
	}
	return len(bulk.WriteErrors) > 0, nil
}

var latestFirst = bson.D{{Key: "ended", Value: -1}, {Key: "_id", Value: -1}}

// failures are the outcomes that alarm.
var failures = bson.A{string(job.OutcomeFailed), string(job.OutcomeTimedOut), string(job.OutcomeLost), string(job.OutcomeMissed)}

// selected is the part of a query that indexes answer.
func selected(uid job.ID, from, to time.Time) bson.D {
	var filter bson.D
	if !uid.IsZero() {
		filter = append(filter, bson.E{Key: "job", Value: uid.String()})
	}
	var within bson.D
	if !from.IsZero() {
		within = append(within, bson.E{Key: "$gte", Value: from.UnixMicro()})
	}
	if !to.IsZero() {
		within = append(within, bson.E{Key: "$lt", Value: to.UnixMicro()})
	}
	if len(within) > 0 {
		filter = append(filter, bson.E{Key: "ended", Value: within})
	}
	return filter
}

// Attempts implements [store.History].
func (h *History) Attempts(ctx context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	filter := selected(q.Job, q.From, q.To)
	if q.Failed {
		filter = append(filter, bson.E{Key: "final", Value: true}, bson.E{Key: "outcome", Value: bson.D{{Key: "$in", Value: failures}}})
	}
	if b := q.Before; b != (store.RecordRef{}) {
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: "ended", Value: bson.D{{Key: "$lt", Value: b.Ended.UnixMicro()}}}},
			bson.D{{Key: "ended", Value: b.Ended.UnixMicro()}, {Key: "_id", Value: bson.D{{Key: "$lt", Value: attemptID(b.Run, b.Attempt)}}}},
		}})
	}
	found, err := h.attempts.Find(ctx, notNil(filter), options.Find().SetSort(latestFirst).SetLimit(store.LookMax+1).SetBatchSize(int32(min(q.Limit+1, store.LookMax))))
	if err != nil {
		return nil, next, fmt.Errorf("history: %w", fault(ctx, err))
	}
	defer found.Close(ctx)
	last := store.RecordRef{}
	for looked := 0; found.Next(ctx); looked++ {
		if len(list) == q.Limit || looked == store.LookMax {
			return list, last, nil
		}
		r, err := decode(found)
		if err != nil {
			return nil, next, err
		}
		if last = r.Ref(); q.Matches(&r) {
			list = append(list, r)
		}
	}
	if err := found.Err(); err != nil {
		return nil, next, fmt.Errorf("history: %w", fault(ctx, err))
	}
	return list, next, nil
}

// notNil makes a filter of none one that selects all.
func notNil(filter bson.D) bson.D {
	if filter == nil {
		return bson.D{}
	}
	return filter
}

func decode(c *mongo.Cursor) (store.Record, error) {
	var d document
	if err := c.Decode(&d); err != nil {
		return store.Record{}, fmt.Errorf("history: %w: %w", store.ErrDamaged, err)
	}
	return d.record()
}

// records returns all results of a query.
func (h *History) records(ctx context.Context, filter bson.D, opt *options.FindOptionsBuilder) (list []store.Record, err error) {
	found, err := h.attempts.Find(ctx, filter, opt)
	if err != nil {
		return nil, fault(ctx, err)
	}
	defer found.Close(ctx)
	for found.Next(ctx) {
		r, err := decode(found)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, fault(ctx, found.Err())
}

// AttemptsOf implements [store.History].
func (h *History) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	of := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: run.String() + "."}, {Key: "$lt", Value: run.String() + "/"}}}}
	list, err := h.records(ctx, of, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("attempts of run %s: %w", run, err)
	}
	return list, nil
}

// Recent implements [store.History].
func (h *History) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	if len(jobs) > store.MaxBatch {
		return nil, fmt.Errorf("recent runs: %w", store.ErrTooMany)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	lists := make([][]store.Record, len(jobs))
	for i, uid := range jobs {
		final := bson.D{
			{Key: "job", Value: uid.String()}, {Key: "final", Value: true},
			{Key: "outcome", Value: bson.D{{Key: "$ne", Value: string(job.OutcomeWithdrawn)}}},
		}
		var err error
		if lists[i], err = h.records(ctx, final, options.Find().SetSort(latestFirst).SetLimit(int64(n))); err != nil {
			return nil, fmt.Errorf("recent runs: %w", err)
		}
	}
	return lists, nil
}

// Aggregate implements [store.History]. It reads a few fields of each final record in the span and
// adds them up here: compatible servers differ in what they can add.
func (h *History) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	filter := append(selected(q.Job, q.From, q.To), bson.E{Key: "final", Value: true})
	if q.Namespace != "" {
		filter = append(filter, bson.E{Key: "namespace", Value: q.Namespace})
	}
	if q.Jobs != nil {
		names := bson.A{}
		for _, uid := range q.Jobs {
			names = append(names, uid.String())
		}
		filter = append(filter, bson.E{Key: "job", Value: bson.D{{Key: "$in", Value: names}}})
	}
	fields := bson.D{{Key: "job", Value: 1}, {Key: "ended", Value: 1}, {Key: "outcome", Value: 1}, {Key: "count", Value: 1}, {Key: "took", Value: 1}}
	found, err := h.attempts.Find(ctx, filter, options.Find().SetProjection(fields).SetSort(bson.D{{Key: "ended", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("aggregate of history: %w", fault(ctx, err))
	}
	defer found.Close(ctx)
	c := q.Counter()
	for found.Next(ctx) {
		var d document
		if err := found.Decode(&d); err != nil {
			return nil, fmt.Errorf("aggregate of history: %w: %w", store.ErrDamaged, err)
		}
		of, err := job.ParseID(d.Job)
		if err != nil {
			return nil, fmt.Errorf("aggregate of history: %w: %w", store.ErrDamaged, err)
		}
		c.Add(time.UnixMicro(d.Ended), of, job.Outcome(d.Outcome), d.Count, time.Duration(d.Took), time.Duration(d.Took))
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("aggregate of history: %w", fault(ctx, err))
	}
	return c.List(), nil
}
