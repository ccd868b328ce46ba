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

// readMax is the number of records of the outbox that a read examines, the latest first: the ends
// of about a second. If more wait, older ones are missing, as [Status] shows.
const readMax = 2000

// Behind reports whether more records wait than a read examines, by the last check.
func (s *Store) Behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog.Entries > readMax
}

// waiting returns the records in the outbox that meet a condition: of one run, or of all runs if it
// is zero.
func (s *Store) waiting(ctx context.Context, run job.ID, wanted func(*store.Record) bool) ([]store.Record, error) {
	list, err := s.Waiting(ctx, run, readMax)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return slices.DeleteFunc(list, func(r store.Record) bool { return !wanted(&r) }), nil
}

// ask reads history. A server does not wait for a history known to be away.
func (s *Store) ask(read func() error) error {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if !s.partly || !errors.Is(away, store.ErrAway) {
		if away = read(); !errors.Is(away, store.ErrAway) {
			return away
		}
		if s.partly {
			_ = s.note(away) // it stays so until Run reaches it again
		}
	}
	return fmt.Errorf("%w: %w", store.ErrHistoryAway, away)
}

// isPartial reports whether a read is answered by the outbox alone.
func (s *Store) isPartial(err error) bool { return s.partly && errors.Is(err, store.ErrHistoryAway) }

// attemptOf identifies the attempt of a record.
type attemptOf struct {
	run    job.ID
	number int
}

func of(r *store.Record) attemptOf { return attemptOf{r.Run.ID, r.Attempt.Number} }

// with returns records of history and of the outbox. For an attempt in both, the outbox counts.
func with(list, fresh []store.Record) []store.Record {
	newer := make(map[attemptOf]bool, len(fresh))
	for i := range fresh {
		newer[of(&fresh[i])] = true
	}
	return append(slices.DeleteFunc(list, func(r store.Record) bool { return newer[of(&r)] }), fresh...)
}

// Attempts implements [store.History], over history and the outbox.
func (s *Store) Attempts(ctx context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	// The outbox first: so a record shipped between the two reads is found twice instead
	// of missed.
	replaced := map[attemptOf]bool{} // records in history that late results replace
	fresh, err := s.waiting(ctx, job.ID{}, func(r *store.Record) bool {
		if r.Replaces {
			replaced[of(r)] = true
		}
		return (q.Job.IsZero() || r.Run.JobUID == q.Job) && q.Within(r.Attempt.Ended) && q.Matches(r) &&
			(q.Before == store.RecordRef{} || r.Ref().Compare(q.Before) < 0)
	})
	if err != nil {
		return nil, store.RecordRef{}, err
	}
	if err = s.ask(func() error { list, next, err = s.History.Attempts(ctx, q); return err }); err != nil && !s.isPartial(err) {
		return nil, next, err
	}
	if next != (store.RecordRef{}) { // later records follow on the next page
		fresh = slices.DeleteFunc(fresh, func(r store.Record) bool { return r.Ref().Compare(next) < 0 })
	}
	list = with(slices.DeleteFunc(list, func(r store.Record) bool { return replaced[of(&r)] }), fresh)
	slices.SortFunc(list, func(a, b store.Record) int { return b.Ref().Compare(a.Ref()) })
	if len(list) > q.Limit {
		list = list[:q.Limit]
		next = list[q.Limit-1].Ref()
	}
	return list, next, nil
}

// AttemptsOf implements [store.History]. While history is away it finds a run whose end is in
// the outbox, without the attempts in history, and a run in its first attempt.
func (s *Store) AttemptsOf(ctx context.Context, run job.ID) (list []store.Record, err error) {
	fresh, err := s.waiting(ctx, run, func(*store.Record) bool { return true })
	if err != nil {
		return nil, err
	}
	if err = s.ask(func() error { list, err = s.History.AttemptsOf(ctx, run); return err }); err != nil {
		if !slices.ContainsFunc(fresh, func(r store.Record) bool { return r.Final }) && !s.isFirstAttempt(ctx, run) {
			return nil, err
		}
		list = nil
	}
	list = with(list, fresh)
	slices.SortFunc(list, func(a, b store.Record) int { return cmp.Compare(a.Attempt.Number, b.Attempt.Number) })
	return list, nil
}

// isFirstAttempt reports whether a run is unfinished and in its first attempt: then history has
// no record of it.
func (s *Store) isFirstAttempt(ctx context.Context, run job.ID) bool {
	r, err := store.ActiveRun(ctx, s, run)
	return err == nil && r.Attempt <= 1
}

// Recent implements [store.History].
func (s *Store) Recent(ctx context.Context, jobs []job.ID, n int) (lists [][]store.Record, err error) {
	wanted := map[job.ID]bool{}
	for _, uid := range jobs {
		wanted[uid] = true
	}
	fresh, err := s.waiting(ctx, job.ID{}, func(r *store.Record) bool { return wanted[r.Run.JobUID] })
	if err != nil {
		return nil, err
	}
	err = s.ask(func() error { lists, err = s.History.Recent(ctx, jobs, n); return err })
	if err != nil && !s.isPartial(err) || err == nil && len(fresh) == 0 {
		return lists, err
	}
	all := with(slices.Concat(lists...), fresh)
	slices.SortFunc(all, func(a, b store.Record) int { return b.Ref().Compare(a.Ref()) })
	c := store.Collect(jobs, n)
	for i := range all {
		c.Add(&all[i])
	}
	return c.Lists(), nil
}

// Aggregate implements [store.History].
func (s *Store) Aggregate(ctx context.Context, q store.AggregateQuery) (list []store.Aggregate, err error) {
	fresh, err := s.waiting(ctx, job.ID{}, func(r *store.Record) bool {
		return q.Matches(r) && q.Within(r.Attempt.Ended)
	})
	if err != nil {
		return nil, err
	}
	err = s.ask(func() error {
		missing, err := s.without(ctx, slices.Clone(fresh), q)
		for err == nil {
			if list, err = s.History.Aggregate(ctx, q); err != nil || len(missing) == 0 {
				break
			}
			// A record shipped since may be counted or not: then history counts again.
			before := len(missing)
			if missing, err = s.without(ctx, missing, q); len(missing) == before {
				break
			}
		}
		if err == nil {
			fresh = missing
		}
		return err
	})
	if err != nil && !s.isPartial(err) {
		return nil, err
	}
	c := q.Counter()
	c.Counts(list)
	for i := range fresh {
		c.Record(&fresh[i])
	}
	return c.List(), nil
}

// without leaves out records that history already has, because they are being shipped, and late
// results whose "lost" record it counts.
func (s *Store) without(ctx context.Context, fresh []store.Record, from store.AggregateQuery) ([]store.Record, error) {
	var late error
	fresh = slices.DeleteFunc(fresh, func(r store.Record) bool {
		if !r.Replaces || late != nil {
			return false
		}
		var list []store.Record
		list, late = s.History.AttemptsOf(ctx, r.Run.ID)
		return slices.ContainsFunc(list, func(o store.Record) bool { return of(&o) == of(&r) })
	})
	if late != nil {
		return fresh, late
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	q := store.HistoryQuery{Namespace: from.Namespace, Job: from.Job, Limit: store.MaxBatch, FinalOnly: true}
	q.From, q.To = fresh[0].Attempt.Ended, fresh[0].Attempt.Ended
	for i := range fresh {
		if ended := fresh[i].Attempt.Ended; ended.Before(q.From) {
			q.From = ended
		} else if ended.After(q.To) {
			q.To = ended
		}
	}
	q.To = q.To.Add(time.Microsecond)
	missing := make(map[attemptOf]bool, len(fresh))
	for i := range fresh {
		missing[of(&fresh[i])] = true
	}
	for {
		list, next, err := s.History.Attempts(ctx, q)
		if err != nil {
			return fresh, err
		}
		for i := range list {
			delete(missing, of(&list[i]))
		}
		if q.Before = next; next == (store.RecordRef{}) || len(missing) == 0 {
			return slices.DeleteFunc(fresh, func(r store.Record) bool { return !missing[of(&r)] }), nil
		}
	}
}

// Output implements [store.History]: from history and from the output that waits in this
// process.
func (s *Store) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) (list []store.OutputChunk, err error) {
	fresh := s.spool.of(run, attempt, fromSeq)
	err = s.ask(func() error { list, err = s.History.Output(ctx, run, attempt, fromSeq, limit); return err })
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

// Cancel implements [store.Working]. A finished run is returned from history.
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
