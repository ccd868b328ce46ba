package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// chunk is a stored part of an output.
type chunk struct {
	ID     string    `bson:"_id"` // attempt and number
	Of     string    `bson:"of"`  // the _id of the attempt
	Seq    int       `bson:"seq"`
	Offset int64     `bson:"offset"`
	Bytes  int       `bson:"bytes"`
	Time   int64     `bson:"time"` // microseconds since 1970; 0 for none
	At     time.Time `bson:"at"`   // when it was appended, for expiry
	Data   []byte    `bson:"data"`
}

// AppendOutput implements [store.History].
func (h *History) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	if len(chunks) > store.MaxBatch {
		return fmt.Errorf("append output: %w", store.ErrTooMany)
	}
	if len(chunks) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	list := make([]any, len(chunks))
	for i := range chunks {
		c := &chunks[i]
		of := attemptID(c.Run, c.Attempt)
		ch := chunk{ID: fmt.Sprintf("%s.%012d", of, c.Seq), Of: of, Seq: c.Seq, Offset: c.Offset, Bytes: c.Bytes, At: h.now(), Data: c.Data}
		if !c.Time.IsZero() {
			ch.Time = c.Time.UnixMicro()
		}
		if ch.Data == nil {
			ch.Data = []byte{}
		}
		list[i] = ch
	}
	_, err := h.output.InsertMany(ctx, list, options.InsertMany().SetOrdered(false))
	if _, err = onlyDuplicates(err); err != nil {
		return fmt.Errorf("append output: %w", fault(ctx, err))
	}
	for i := range chunks {
		c := &chunks[i]
		if c.DropFrom >= c.DropTo {
			continue
		}
		dropped := bson.D{{Key: "of", Value: attemptID(c.Run, c.Attempt)}, {Key: "seq", Value: bson.D{{Key: "$gte", Value: c.DropFrom}, {Key: "$lt", Value: c.DropTo}}}}
		if _, err := h.output.DeleteMany(ctx, dropped); err != nil {
			return fmt.Errorf("append output: %w", fault(ctx, err))
		}
	}
	return nil
}

// Output implements [store.History].
func (h *History) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) (list []store.OutputChunk, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	of := bson.D{{Key: "of", Value: attemptID(run, attempt)}, {Key: "seq", Value: bson.D{{Key: "$gte", Value: fromSeq}}}}
	found, err := h.output.Find(ctx, of, options.Find().SetSort(bson.D{{Key: "seq", Value: 1}}).SetLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("output of run %s: %w", run, fault(ctx, err))
	}
	var chunks []chunk
	if err := found.All(ctx, &chunks); err != nil {
		return nil, fmt.Errorf("output of run %s: %w", run, fault(ctx, err))
	}
	for i := range chunks {
		c := store.OutputChunk{Run: run, Attempt: attempt, Seq: chunks[i].Seq, Offset: chunks[i].Offset, Bytes: chunks[i].Bytes, Data: chunks[i].Data}
		if chunks[i].Time != 0 {
			c.Time = time.UnixMicro(chunks[i].Time).UTC()
		}
		list = append(list, c)
	}
	return list, nil
}

// Expire implements [store.History]. Where it supports expiring indexes, the server also removes old
// documents.
func (h *History) Expire(ctx context.Context, keep store.Retention) (more bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	h.expireInServer(ctx, h.attempts, longest(keep, func(k store.Retention) time.Duration { return k.For }))
	h.expireInServer(ctx, h.output, longest(keep, func(k store.Retention) time.Duration { return k.OutputFor }))
	left := store.ExpireMax
	for _, part := range []func(context.Context, store.Retention, *int) error{h.expireOutput, h.expireByAge, h.expireByCount, h.expireOfJobs} {
		if err := part(ctx, keep, &left); err != nil {
			return false, fmt.Errorf("expire history: %w", fault(ctx, err))
		}
		if left <= 0 {
			return true, nil
		}
	}
	return false, nil
}

// longest returns the longest retention among the server's and the jobs' settings; 0 if one has no
// bound.
func longest(keep store.Retention, of func(store.Retention) time.Duration) time.Duration {
	most := of(keep)
	if keep.Jobs != nil {
		for _, own := range *keep.Jobs {
			if one := of(keep.With(own)); most > 0 && (one <= 0 || one > most) {
				most = one
			}
		}
	}
	return max(most, 0)
}

// saying returns the jobs with a setting of their own, in order.
func saying(keep store.Retention, something func(job.Keep) bool) []string {
	if keep.Jobs == nil {
		return nil
	}
	var list []string
	for uid, own := range *keep.Jobs {
		if something(own) {
			list = append(list, uid.String())
		}
	}
	slices.Sort(list)
	return list
}

// lookedFrom returns the time from which output may have expired by the server's setting.
// Everything is examined again each day, and when the settings of jobs change.
func (h *History) lookedFrom(keep store.Retention) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); h.looked.keep != keep || now.Sub(h.looked.since) > silentLife {
		h.looked.keep, h.looked.since, h.looked.from = keep, now, time.Time{}
	}
	return h.looked.from
}

// ttlName is the index that expires.
const ttlName = "belfry_expiry"

// expireInServer makes the server remove documents a day after their expiry: by then Expire has
// removed them, unless no Belfry server runs.
func (h *History) expireInServer(ctx context.Context, of *mongo.Collection, keep time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, set := h.ttls[of.Name()]; set && before == keep {
		return
	}
	h.ttls[of.Name()] = keep
	if err := of.Indexes().DropOne(ctx, ttlName); err != nil {
		h.log.Debug("MongoDB has no index that expires yet", "collection", of.Name(), "error", err)
	}
	if keep <= 0 || keep == time.Duration(job.Forever) {
		return
	}
	seconds := min(int64((keep+24*time.Hour)/time.Second), 1<<31-1)
	model := mongo.IndexModel{Keys: bson.D{{Key: "at", Value: -1}}, Options: options.Index().SetName(ttlName).SetExpireAfterSeconds(int32(seconds))}
	if _, err := of.Indexes().CreateOne(ctx, model); err != nil {
		h.log.Info("the history server has no indexes that expire; belfry removes old history alone", "collection", of.Name(), "error", err)
	}
}

// cutoff returns the moment before which documents have expired.
func (h *History) cutoff(keep time.Duration) (at time.Time, bounded bool) {
	return h.now().Add(-keep), keep > 0 && keep != time.Duration(job.Forever)
}

// expireOutput removes output of attempts that ended long ago.
func (h *History) expireOutput(ctx context.Context, keep store.Retention, left *int) error {
	before, ok := h.cutoff(keep.OutputFor)
	if !ok {
		return nil
	}
	ended := map[string]bool{} // attempts, and whether they ended long ago
	own := saying(keep, func(k job.Keep) bool { return k.OutputFor != 0 })
	within := bson.D{{Key: "$lt", Value: before}}
	from := h.lookedFrom(keep)
	if !from.IsZero() {
		within = append(within, bson.E{Key: "$gte", Value: from})
	}
	old := bson.D{{Key: "at", Value: within}}
	found, err := h.output.Find(ctx, old, options.Find().SetSort(bson.D{{Key: "at", Value: 1}, {Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "of", Value: 1}, {Key: "at", Value: 1}}))
	if err != nil {
		return err
	}
	defer found.Close(ctx)
	ids := bson.A{}
	stays := map[string]bool{} // attempts whose jobs set how long their output is kept
	last, waits := from, false // the end of the range where all output is gone or stays
	for len(ids) < *left && found.Next(ctx) {
		var c chunk
		if err := found.Decode(&c); err != nil {
			return err
		}
		gone, known := ended[c.Of]
		if !known {
			var of document
			err := h.attempts.FindOne(ctx, bson.D{{Key: "_id", Value: c.Of}}, options.FindOne().SetProjection(bson.D{{Key: "job", Value: 1}, {Key: "ended", Value: 1}})).Decode(&of)
			if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
				return err
			}
			_, stays[c.Of] = slices.BinarySearch(own, of.Job)
			gone = err == nil && of.Ended < before.UnixMicro() && !stays[c.Of]
			ended[c.Of] = gone
		}
		if gone {
			ids = append(ids, c.ID)
		}
		if waits = waits || !gone && !stays[c.Of]; !waits {
			last = c.At
		}
	}
	if err := found.Err(); err != nil {
		return err
	}
	if len(ids) > 0 {
		*left -= len(ids)
		if _, err := h.output.DeleteMany(ctx, in(ids)); err != nil {
			return err
		}
	}
	h.mu.Lock()
	h.looked.from = last
	h.mu.Unlock()
	return nil
}

func in(ids bson.A) bson.D { return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}} }

// expireByAge removes old records with their output.
func (h *History) expireByAge(ctx context.Context, keep store.Retention, left *int) error {
	before, ok := h.cutoff(keep.For)
	if !ok {
		return nil
	}
	old := selected(job.ID{}, time.Time{}, before)
	if own := saying(keep, func(k job.Keep) bool { return k.For != 0 }); len(own) > 0 {
		old = append(old, bson.E{Key: "job", Value: bson.D{{Key: "$nin", Value: own}}})
	}
	return h.remove(ctx, old, left)
}

// expireOfJobs removes records and output by the age limits of jobs.
func (h *History) expireOfJobs(ctx context.Context, keep store.Retention, left *int) error {
	for _, text := range saying(keep, func(k job.Keep) bool { return k.For != 0 || k.OutputFor != 0 }) {
		uid, err := job.ParseID(text)
		if err != nil {
			return err
		}
		own, _ := keep.Of(uid)
		if before, ok := h.cutoff(time.Duration(own.For)); ok && *left > 0 {
			if err := h.remove(ctx, selected(uid, time.Time{}, before), left); err != nil {
				return err
			}
		}
		if before, ok := h.cutoff(time.Duration(own.OutputFor)); ok && *left > 0 {
			if err := h.removeOutputOf(ctx, uid, before, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeOutputOf removes the output of the attempts of a job that ended before a moment. It
// does not examine removed output again.
func (h *History) removeOutputOf(ctx context.Context, uid job.ID, before time.Time, left *int) error {
	h.mu.Lock()
	from := h.silent[uid]
	h.mu.Unlock()
	found, err := h.attempts.Find(ctx, selected(uid, from, before), options.Find().SetSort(bson.D{{Key: "ended", Value: 1}, {Key: "_id", Value: 1}}).
		SetLimit(int64(*left)).SetProjection(bson.D{{Key: "ended", Value: 1}}))
	if err != nil {
		return err
	}
	var list []document
	if err := found.All(ctx, &list); err != nil || len(list) == 0 {
		return err
	}
	of := bson.A{}
	for i := range list {
		of = append(of, list[i].ID)
	}
	output, err := h.output.Find(ctx, bson.D{{Key: "of", Value: bson.D{{Key: "$in", Value: of}}}}, options.Find().SetLimit(int64(*left)).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	var chunks []chunk
	if err := output.All(ctx, &chunks); err != nil {
		return err
	}
	if full := len(chunks) == *left; !full {
		h.mu.Lock()
		if now := h.now(); len(h.silent) >= silentMax || now.Sub(h.silentSince) > silentLife {
			clear(h.silent)
			h.silentSince = now
		}
		h.silent[uid] = time.UnixMicro(list[len(list)-1].Ended)
		h.mu.Unlock()
	}
	if len(chunks) == 0 {
		return nil
	}
	old := bson.A{}
	for i := range chunks {
		old = append(old, chunks[i].ID)
	}
	*left -= len(old)
	_, err = h.output.DeleteMany(ctx, in(old))
	return err
}

const (
	// silentMax bounds the jobs in History.silent.
	silentMax = 10_000
	// silentLife is how long these moments are kept: a late record may have an earlier end.
	silentLife = 24 * time.Hour
)

// expireByCount removes the oldest records of jobs with too many.
func (h *History) expireByCount(ctx context.Context, keep store.Retention, left *int) error {
	if keep.Runs <= 0 && len(saying(keep, func(k job.Keep) bool { return k.Runs != 0 })) == 0 {
		return nil
	}
	found, err := h.attempts.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "final", Value: true}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$job"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
	})
	if err != nil {
		return err
	}
	var counts []struct {
		Job string `bson:"_id"`
		N   int64  `bson:"n"`
	}
	if err := found.All(ctx, &counts); err != nil {
		return err
	}
	for _, c := range counts {
		uid, err := job.ParseID(c.Job)
		if err != nil {
			return fmt.Errorf("%w: %w", store.ErrDamaged, err)
		}
		own, _ := keep.Of(uid)
		most := keep.With(own).Runs
		if most <= 0 || c.N <= int64(most) || *left <= 0 {
			continue
		}
		// The latest final record beyond the number.
		var d document
		final := bson.D{{Key: "job", Value: c.Job}, {Key: "final", Value: true}}
		if err := h.attempts.FindOne(ctx, final, options.FindOne().SetSort(latestFirst).SetSkip(int64(most))).Decode(&d); err != nil {
			return err
		}
		older := bson.D{{Key: "job", Value: c.Job}, {Key: "$or", Value: bson.A{
			bson.D{{Key: "ended", Value: bson.D{{Key: "$lt", Value: d.Ended}}}},
			bson.D{{Key: "ended", Value: d.Ended}, {Key: "_id", Value: bson.D{{Key: "$lte", Value: d.ID}}}},
		}}}
		if err := h.remove(ctx, older, left); err != nil {
			return err
		}
	}
	return nil
}

// remove removes records that a filter selects, the oldest first, and their output before them.
func (h *History) remove(ctx context.Context, filter bson.D, left *int) error {
	found, err := h.attempts.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "ended", Value: 1}, {Key: "_id", Value: 1}}).
		SetLimit(int64(*left)).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	var list []document
	if err := found.All(ctx, &list); err != nil || len(list) == 0 {
		return err
	}
	ids := bson.A{}
	for i := range list {
		ids = append(ids, list[i].ID)
	}
	of := bson.D{{Key: "of", Value: bson.D{{Key: "$in", Value: ids}}}}
	output, err := h.output.Find(ctx, of, options.Find().SetLimit(int64(*left)).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	var chunks []chunk
	if err := output.All(ctx, &chunks); err != nil {
		return err
	}
	if len(chunks) > 0 {
		old := bson.A{}
		for i := range chunks {
			old = append(old, chunks[i].ID)
		}
		*left -= len(old)
		if _, err := h.output.DeleteMany(ctx, in(old)); err != nil || *left <= 0 {
			return err
		}
		if len(ids) > *left {
			ids = ids[:*left]
		}
	}
	*left -= len(ids)
	_, err = h.attempts.DeleteMany(ctx, in(ids))
	return err
}
