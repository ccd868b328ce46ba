package joined

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// readMax is the number of records of the outbox that a read examines: the ends of about a
// second. While more wait, the latest are missing, as Status shows.
const readMax = 2000

// waiting returns the records in the outbox that meet a condition. Of two records of an
// attempt the later one counts.
func (s *Store) waiting(ctx context.Context, wanted func(*store.Record) bool) ([]store.Record, error) {
	var list []store.Record
	at := map[attemptOf]int{} // in the list
	var after store.FeedRef
	for looked := 0; looked < readMax; {
		entries, err := s.Ended(ctx, store.ConsumerHistory, after, min(store.MaxBatch, readMax-looked))
		if err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		if len(entries) == 0 {
			break
		}
		for i := range entries {
			r := &entries[i].Record
			of := attemptOf{r.Run.ID, r.Attempt.Number}
			if i, known := at[of]; known {
				list[i] = store.Record{}
				delete(at, of)
			}
			if wanted(r) {
				at[of] = len(list)
				list = append(list, *r)
			}
		}
		looked += len(entries)
		after = entries[len(entries)-1].Ref
	}
	return slices.DeleteFunc(list, func(r store.Record) bool { return r.Run.ID.IsZero() }), nil
}

// attemptOf identifies the attempt of a record.
type attemptOf struct {
	run    job.ID
	number int
}

func isSame(a, b *store.Record) bool {
	return a.Run.ID == b.Run.ID && a.Attempt.Number == b.Attempt.Number
}

// Attempts implements store.History: of history and of what waits for it.
func (s *Store) Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	// The outbox first: so a record shipped between the two reads is found twice instead
	// of missed.
	fresh, err := s.waiting(ctx, func(r *store.Record) bool {
		return (q.Job.IsZero() || r.Run.JobUID == q.Job) && q.Within(r.Attempt.Ended) && q.Matches(r) &&
			(q.Before == store.RecordRef{} || r.Ref().Compare(q.Before) < 0)
	})
	if err != nil {
		return nil, store.RecordRef{}, err
	}
	list, next, err := s.History.Attempts(ctx, q)
	if err != nil {
		return nil, next, err
	}
	if next != (store.RecordRef{}) { // later records come with the next page
		fresh = slices.DeleteFunc(fresh, func(r store.Record) bool { return r.Ref().Compare(next) < 0 })
	}
	list = slices.DeleteFunc(list, func(r store.Record) bool {
		return slices.ContainsFunc(fresh, func(o store.Record) bool { return isSame(&o, &r) })
	})
	list = append(list, fresh...)
	slices.SortFunc(list, func(a, b store.Record) int { return b.Ref().Compare(a.Ref()) })
	if len(list) > q.Limit {
		list = list[:q.Limit]
		next = list[q.Limit-1].Ref()
	}
	return list, next, nil
}

// AttemptsOf implements store.History. While history is away it finds a run whose end is in
// the outbox, without the attempts in history, and a run in its first attempt.
func (s *Store) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	fresh, err := s.waiting(ctx, func(r *store.Record) bool { return r.Run.ID == run })
	if err != nil {
		return nil, err
	}
	list, err := s.History.AttemptsOf(ctx, run)
	if err != nil {
		if !slices.ContainsFunc(fresh, func(r store.Record) bool { return r.Final }) && !s.isFirstAttempt(ctx, run) {
			return nil, err
		}
		list = nil
	}
	list = slices.DeleteFunc(list, func(r store.Record) bool {
		return slices.ContainsFunc(fresh, func(o store.Record) bool { return isSame(&o, &r) })
	})
	list = append(list, fresh...)
	slices.SortFunc(list, func(a, b store.Record) int { return cmp.Compare(a.Attempt.Number, b.Attempt.Number) })
	return list, nil
}

// isFirstAttempt reports whether a run is unfinished and in its first attempt: then history has
// no record of it.
func (s *Store) isFirstAttempt(ctx context.Context, run job.ID) bool {
	r, err := store.ActiveRun(ctx, s, run)
	return err == nil && r.Attempt <= 1
}

// Recent implements store.History.
func (s *Store) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	wanted := map[job.ID]bool{}
	for _, uid := range jobs {
		wanted[uid] = true
	}
	fresh, err := s.waiting(ctx, func(r *store.Record) bool { return wanted[r.Run.JobUID] })
	if err != nil {
		return nil, err
	}
	lists, err := s.History.Recent(ctx, jobs, n)
	if err != nil || len(fresh) == 0 {
		return lists, err
	}
	all := fresh
	for _, list := range lists {
		for i := range list {
			if !slices.ContainsFunc(fresh, func(o store.Record) bool { return isSame(&o, &list[i]) }) {
				all = append(all, list[i])
			}
		}
	}
	slices.SortFunc(all, func(a, b store.Record) int { return b.Ref().Compare(a.Ref()) })
	c := store.Collect(jobs, n)
	for i := range all {
		c.Add(&all[i])
	}
	return c.Lists(), nil
}

// Aggregate implements store.History.
func (s *Store) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	fresh, err := s.waiting(ctx, func(r *store.Record) bool {
		return q.Matches(r) && q.Within(r.Attempt.Ended)
	})
	if err != nil {
		return nil, err
	}
	if fresh, err = s.without(ctx, fresh, q); err != nil {
		return nil, err
	}
	list, err := s.History.Aggregate(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range fresh {
		list = q.Count(list, &fresh[i])
	}
	slices.SortFunc(list, func(a, b store.Aggregate) int { return a.Start.Compare(b.Start) })
	return list, nil
}

// without leaves out records that history already has, because they are being shipped.
func (s *Store) without(ctx context.Context, fresh []store.Record, of store.AggregateQuery) ([]store.Record, error) {
	if len(fresh) == 0 {
		return nil, nil
	}
	q := store.HistoryQuery{Namespace: of.Namespace, Job: of.Job, Limit: store.MaxBatch, FinalOnly: true}
	q.From, q.To = fresh[0].Attempt.Ended, fresh[0].Attempt.Ended
	for i := range fresh {
		if ended := fresh[i].Attempt.Ended; ended.Before(q.From) {
			q.From = ended
		} else if ended.After(q.To) {
			q.To = ended
		}
	}
	q.To = q.To.Add(time.Microsecond)
	for {
		list, next, err := s.History.Attempts(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range list {
			fresh = slices.DeleteFunc(fresh, func(r store.Record) bool { return isSame(&r, &list[i]) })
		}
		if q.Before = next; next == (store.RecordRef{}) || len(fresh) == 0 {
			return fresh, nil
		}
	}
}

// Output implements store.History: from history and from the output that waits in this
// process.
func (s *Store) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error) {
	fresh := s.spool.of(run, attempt, fromSeq)
	list, err := s.History.Output(ctx, run, attempt, fromSeq, limit)
	if err != nil && len(fresh) == 0 {
		return nil, err
	}
	for _, c := range fresh {
		if !slices.ContainsFunc(list, func(o store.OutputChunk) bool { return same(&o, &c) }) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b store.OutputChunk) int { return cmp.Compare(a.Seq, b.Seq) })
	return list[:min(limit, len(list))], nil
}

// Cancel implements store.Working. A finished run is returned from history.
func (s *Store) Cancel(ctx context.Context, run job.ID, by, reason string) (store.Run, error) {
	out, err := s.Control.Cancel(ctx, run, by, reason)
	if !errors.Is(err, store.ErrNotFound) {
		return out, err
	}
	records, failed := s.AttemptsOf(ctx, run)
	if failed != nil {
		return store.Run{}, failed
	}
	for i := range records {
		if records[i].Final {
			return store.Run{Run: records[i].Run}, nil
		}
	}
	return out, err
}
