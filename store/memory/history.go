package memory

import (
	"bytes"
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
	end := len(s.latest)
	if q.Before != (store.RecordRef{}) {
		end = s.find(q.Before)
	}
	var found []*store.Record
	looked, last := 0, store.RecordRef{}
	for _, r := range slices.Backward(s.latest[:end]) {
		if !q.Job.IsZero() && r.Run.JobUID != q.Job || !within(r.Attempt.Ended, q.From, q.To) {
			continue
		}
		if len(found) == q.Limit || looked == store.LookMax {
			next = last
			break
		}
		looked, last = looked+1, r.Ref()
		if q.Matches(r) {
			found = append(found, r)
		}
	}
	for _, r := range found {
		list = append(slices.Grow(list, len(found)-len(list)), *r)
	}
	return list, next, nil
}

// find returns where in s.latest something is or would be.
func (s *backend) find(ref store.RecordRef) int {
	i, _ := slices.BinarySearchFunc(s.latest, ref, func(r *store.Record, ref store.RecordRef) int { return compareRefs(r.Ref(), ref) })
	return i
}

// keep puts a record into s.latest, drop takes it out. Nearly all come in their order.
func (s *backend) keep(r *store.Record) {
	i, ref := len(s.latest), r.Ref()
	if i > 0 && compareRefs(s.latest[i-1].Ref(), ref) > 0 {
		i = s.find(ref)
	}
	s.latest = slices.Insert(s.latest, i, r)
	if s.recordsMax > 0 && len(s.latest) >= 2*s.recordsMax {
		s.dropOldest(len(s.latest) - s.recordsMax)
	}
}

// dropOldest removes the oldest records, except those of unfinished runs. All at once:
// moving the rest for each of them would take longer than the runs.
func (s *backend) dropOldest(n int) {
	left := make([]*store.Record, 0, 2*s.recordsMax)
	for i, r := range s.latest {
		if _, active := s.runs.byID[r.Run.ID]; i >= n || active {
			left = append(left, r)
			continue
		}
		delete(s.output, attemptKey{r.Run.ID, r.Attempt.Number})
		if s.records[r.Run.ID] = slices.DeleteFunc(s.records[r.Run.ID], func(of *store.Record) bool { return of == r }); len(s.records[r.Run.ID]) == 0 {
			delete(s.records, r.Run.ID)
		}
	}
	s.latest = left
}

func (s *backend) drop(r *store.Record) {
	i := s.find(r.Ref())
	s.latest = slices.Delete(s.latest, i, i+1)
}

// within reports whether a moment is in a span whose ends may be open. The second
// end is excluded.
func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}

func compareRefs(a, b store.RecordRef) int {
	if c := a.Ended.Compare(b.Ended); c != 0 {
		return c
	}
	return cmp.Or(bytes.Compare(a.Run[:], b.Run[:]), cmp.Compare(a.Attempt, b.Attempt))
}

// AttemptsOf implements ledger.Backend.
func (s *backend) AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []store.Record
	for _, r := range s.records[run] {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b store.Record) int { return cmp.Compare(a.Attempt.Number, b.Attempt.Number) })
	return list, nil
}

// Recent implements ledger.Backend.
func (s *backend) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	if len(jobs) > store.MaxBatch {
		return nil, fmt.Errorf("recent runs: %w", store.ErrTooMany)
	}
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := store.Collect(jobs, n)
	for _, r := range slices.Backward(s.latest) {
		if !c.Add(r) {
			break
		}
	}
	return c.Lists(), nil
}

// Aggregate implements ledger.Backend.
func (s *backend) Aggregate(ctx context.Context, q store.AggregateQuery) ([]store.Aggregate, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var buckets []store.Aggregate
	for _, r := range s.latest {
		if !r.Final || !within(r.Attempt.Ended, q.From, q.To) ||
			q.Namespace != "" && r.Run.Namespace != q.Namespace ||
			!q.Job.IsZero() && r.Run.JobUID != q.Job {
			continue
		}
		start := q.From.Add(r.Attempt.Ended.Sub(q.From).Truncate(q.Bucket))
		if len(buckets) == 0 || !buckets[len(buckets)-1].Start.Equal(start) {
			buckets = append(buckets, store.Aggregate{Start: start, Outcomes: map[job.Outcome]int{}})
		}
		bucket := &buckets[len(buckets)-1]
		bucket.Outcomes[r.Attempt.Outcome] += r.Count
		if r.Attempt.Number > 0 {
			took := r.Attempt.Ended.Sub(r.Attempt.Started)
			bucket.Duration += took
			bucket.Longest = max(bucket.Longest, took)
		}
	}
	return buckets, nil
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
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []store.OutputChunk
	for _, c := range s.output[attemptKey{run, attempt}] {
		if c.Seq >= fromSeq {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b store.OutputChunk) int { return cmp.Compare(a.Seq, b.Seq) })
	return list[:min(limit, len(list))], nil
}

// Expire implements ledger.Backend. It removes records from the list at once: moving the
// rest for each record would take longer than the runs.
func (s *backend) Expire(ctx context.Context, server store.Retention) (more bool, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	now := s.now()
	left := store.ExpireMax
	runs := map[job.ID]int{} // by job, how many later ones there are
	old := map[*store.Record]bool{}
	for _, r := range slices.Backward(s.latest) {
		if _, active := s.runs.byID[r.Run.ID]; active {
			continue
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
			old[r] = true
			s.forget(r)
			left--
		}
		if left == 0 {
			break
		}
	}
	if len(old) > 0 {
		s.latest = slices.DeleteFunc(s.latest, func(r *store.Record) bool { return old[r] })
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

// removeOutput removes at most so many chunks of an attempt and returns how many
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

// forget takes a record from those of its run.
func (s *backend) forget(r *store.Record) {
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
			s.drop(list[at])
			list[at] = &r
			s.keep(&r)
		}
	}
	return nil
}

// HistoryID implements ledger.Backend.
func (s *backend) HistoryID(ctx context.Context) (store.HistoryID, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return s.id, nil
}
