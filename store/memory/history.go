package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Attempts implements ledger.Backend.
func (s *backend) Attempts(ctx context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, next, err
	}
	defer unlock()
	list, next = s.latest.Attempts(&q)
	return list, next, nil
}

// keep puts a record into s.latest.
func (s *backend) keep(r *store.Record) {
	s.latest.Put(r)
	if n := s.latest.Len(); s.recordsMax > 0 && n >= 2*s.recordsMax {
		s.dropOldest(n - s.recordsMax)
	}
}

// dropOldest removes the oldest records, except records of unfinished runs.
func (s *backend) dropOldest(n int) {
	var old []*store.Record
	s.latest.Oldest(func(r *store.Record) bool {
		if s.runs.byID[r.Run.ID] == nil {
			old = append(old, r)
		}
		n--
		return n > 0
	})
	for _, r := range old {
		delete(s.output, attemptKey{r.Run.ID, r.Attempt.Number})
		s.forget(r)
	}
}

// AttemptsOf implements ledger.Backend.
func (s *backend) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	return locked(ctx, s, func() []store.Record {
		var list []store.Record
		for _, r := range s.records[run] {
			list = append(list, *r)
		}
		slices.SortFunc(list, func(a, b store.Record) int { return cmp.Compare(a.Attempt.Number, b.Attempt.Number) })
		return list
	})
}

// Recent implements ledger.Backend.
func (s *backend) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	if len(jobs) > store.MaxBatch {
		return nil, fmt.Errorf("recent runs: %w", store.ErrTooMany)
	}
	return locked(ctx, s, func() [][]store.Record {
		c := store.Collect(jobs, n)
		s.latest.Latest(c.Add)
		return c.Lists()
	})
}

// Aggregate implements ledger.Backend.
func (s *backend) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	return locked(ctx, s, func() []store.Aggregate { return s.latest.Aggregate(&q) })
}

// AppendOutput implements ledger.Backend.
func (s *backend) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	unlock, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.appendOutput(chunks)
	return nil
}

func (s *backend) appendOutput(chunks []store.OutputChunk) {
	for _, c := range chunks {
		key := attemptKey{c.Run, c.Attempt}
		kept := s.output[key]
		if kept == nil {
			kept = map[int]store.OutputChunk{}
			s.output[key] = kept
		}
		if _, ok := kept[c.Seq]; !ok {
			c.Data = slices.Clone(c.Data)
			kept[c.Seq] = c
		}
		// Also for a chunk that was there: those that it pushes out may have
		// been sent again before it.
		for seq := c.DropFrom; seq < c.DropTo; seq++ {
			delete(kept, seq)
		}
	}
}

// Output implements ledger.Backend.
func (s *backend) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error) {
	return locked(ctx, s, func() []store.OutputChunk {
		var list []store.OutputChunk
		for _, c := range s.output[attemptKey{run, attempt}] {
			if c.Seq >= fromSeq {
				list = append(list, c)
			}
		}
		slices.SortFunc(list, func(a, b store.OutputChunk) int { return cmp.Compare(a.Seq, b.Seq) })
		return list[:min(limit, len(list))]
	})
}

// Expire implements ledger.Backend.
func (s *backend) Expire(ctx context.Context, server store.Retention) (more bool, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	now := s.now()
	left := store.ExpireMax
	runs := map[job.ID]int{} // by job, how many later ones there are
	var old []*store.Record
	s.latest.Latest(func(r *store.Record) bool {
		if s.runs.byID[r.Run.ID] != nil {
			return true
		}
		keep := s.retention(r, server)
		age := now.Sub(r.Attempt.Ended)
		if r.Final {
			runs[r.Run.JobUID]++
		}
		isOld := over(age, keep.For) || keep.Runs > 0 && runs[r.Run.JobUID] > keep.Runs
		if isOld || over(age, keep.OutputFor) {
			left = s.removeOutput(attemptKey{r.Run.ID, r.Attempt.Number}, left)
		}
		if isOld && left > 0 {
			old = append(old, r)
			left--
		}
		return left > 0
	})
	for _, r := range old {
		s.forget(r)
	}
	return left == 0, nil
}

// ExpireAudit implements ledger.Backend.
func (s *backend) ExpireAudit(ctx context.Context, server store.Retention) (more bool, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	now, left := s.now(), store.ExpireMax
	for left > 0 && len(s.audit) > 1 && (over(now.Sub(s.audit[0].Time), server.AuditFor) || server.Audit > 0 && len(s.audit) > server.Audit) {
		s.audit = s.audit[1:]
		left--
	}
	return left == 0, nil
}

// removeOutput removes at most n chunks of an attempt and returns how many
// more could be.
func (s *backend) removeOutput(key attemptKey, left int) int {
	kept := s.output[key]
	for seq := range kept {
		if left == 0 {
			return 0
		}
		delete(kept, seq)
		left--
	}
	delete(s.output, key)
	return left
}

// over reports whether an age is beyond a duration; zero and job.Forever are
// without end.
func over(age, most time.Duration) bool {
	return most > 0 && most != time.Duration(job.Forever) && age > most
}

// retention returns the retention of a job's history, its own or the server's.
func (s *backend) retention(r *store.Record, server store.Retention) store.Retention {
	said, ok := server.Of(r.Run.JobUID)
	if row := s.jobs[r.Run.JobUID]; row != nil && row.Document.Filled.Policy.Keep != nil {
		said, ok = *row.Document.Filled.Policy.Keep, true
	}
	if !ok {
		return server
	}
	return server.With(said)
}

// forget removes a record.
func (s *backend) forget(r *store.Record) {
	s.latest.Remove(r)
	list := slices.DeleteFunc(s.records[r.Run.ID], func(o *store.Record) bool { return o.Attempt.Number == r.Attempt.Number })
	if len(list) == 0 {
		delete(s.records, r.Run.ID)
		return
	}
	s.records[r.Run.ID] = list
}

// Append implements ledger.Backend.
func (s *backend) Append(ctx context.Context, records []store.Record) error {
	unlock, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for i := range records {
		r := records[i]
		list := s.records[r.Run.ID]
		switch at := slices.IndexFunc(list, func(o *store.Record) bool { return o.Attempt.Number == r.Attempt.Number }); {
		case at < 0:
			s.records[r.Run.ID] = append(list, &r)
			s.keep(&r)
		case list[at].Attempt.Outcome == job.OutcomeLost:
			s.latest.Remove(list[at])
			list[at] = &r
			s.keep(&r)
		}
	}
	return nil
}

// HistoryID implements ledger.Backend.
func (s *backend) HistoryID(ctx context.Context) (store.HistoryID, error) {
	return locked(ctx, s, func() store.HistoryID { return s.id })
}
