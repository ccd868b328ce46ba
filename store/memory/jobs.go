package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// JobsNamed implements ledger.Backend.
func (s *backend) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	return jobsBy(ctx, s, s.names, names)
}

// JobsByUID implements ledger.Backend.
func (s *backend) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	return jobsBy(ctx, s, s.jobs, uids)
}

// jobsBy returns the jobs of some keys.
func jobsBy[K comparable](ctx context.Context, s *backend, rows map[K]*jobRow, keys []K) ([]*store.Job, error) {
	return locked(ctx, s, func() []*store.Job {
		list := make([]*store.Job, len(keys))
		for i, key := range keys {
			if row, ok := rows[key]; ok {
				list[i] = row.View()
			}
		}
		return list
	})
}

// ListJobs implements ledger.Backend.
func (s *backend) ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	looked, last := 0, ""
	for _, name := range sortedKeys(s.names) {
		row := s.names[name]
		definition := row.Document.Definition
		if name <= q.After || q.Namespace != "" && row.Namespace != q.Namespace || q.Boot && !definition.Schedule.Boot || q.State == job.JobPaused && row.State != q.State {
			continue
		}
		if len(list) == q.Limit || looked == store.JobLookMax {
			return list, last, nil
		}
		looked, last = looked+1, name
		if (q.State == "" || row.State == q.State) && q.Matches(definition) {
			list = append(list, row.View())
		}
	}
	return list, "", nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Followers implements ledger.Backend.
func (s *backend) Followers(ctx context.Context, upstream string, after job.ID, limit int) (list []*store.Job, more bool, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	var rows []*jobRow
	for _, row := range s.names {
		if row.follows(upstream) && bytes.Compare(row.UID[:], after[:]) > 0 {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *jobRow) int { return bytes.Compare(a.UID[:], b.UID[:]) })
	for _, row := range rows[:min(len(rows), limit)] {
		list = append(list, row.View())
	}
	return list, len(rows) > limit, nil
}

// follows reports whether the job follows another one.
func (r *jobRow) follows(upstream string) bool {
	return slices.ContainsFunc(r.Policy.On, func(up engine.Upstream) bool { return up.Job == upstream })
}

// Revisions implements ledger.Backend.
func (s *backend) Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]store.Revision, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	row, ok := s.jobs[uid]
	if !ok {
		return nil, fmt.Errorf("job %s: %w", uid, store.ErrNotFound)
	}
	var list []store.Revision
	for _, r := range slices.Backward(row.revisions) {
		if (beforeVersion == 0 || r.Version < beforeVersion) && len(list) < limit {
			list = append(list, r)
		}
	}
	return list, nil
}

// JobsChanged implements ledger.Backend.
func (s *backend) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	if since >= s.seq {
		return nil, since, nil
	}
	var rows []*jobRow
	for _, row := range s.jobs {
		if row.seq > since && partitions.Has(row.partition) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *jobRow) int { return cmp.Compare(a.seq, b.seq) })
	next := max(since, s.seq)
	if len(rows) > limit {
		rows = rows[:limit]
		next = rows[limit-1].seq
	}
	var changed []store.PlannedJob
	for _, row := range rows {
		changed = append(changed, store.PlannedJob{
			UID: row.UID, Epoch: row.Epoch, Version: row.Version, Cursor: row.Cursor, Planned: row.Planned,
			Active: row.State == job.JobActive && !row.Deleted, Deleted: row.Deleted, Timing: row.Document.Timing,
		})
	}
	return changed, next, nil
}

// Cursors implements ledger.Backend.
func (s *backend) Cursors(ctx context.Context, uids []job.ID) ([]store.JobCursor, error) {
	return locked(ctx, s, func() (list []store.JobCursor) {
		for _, uid := range uids {
			if row, ok := s.jobs[uid]; ok {
				list = append(list, store.JobCursor{UID: uid, Epoch: row.Epoch, Cursor: row.Cursor, Planned: row.Planned})
			}
		}
		return list
	})
}

// Summary implements ledger.Backend.
func (s *backend) Summary(ctx context.Context) ([job.Partitions]store.PartitionSummary, error) {
	return locked(ctx, s, func() (sum [job.Partitions]store.PartitionSummary) {
		for _, row := range s.names {
			if row.State != job.JobActive {
				continue
			}
			p := &sum[row.partition]
			p.Jobs++
			p.Versions += row.Version
		}
		return sum
	})
}

// Documents implements ledger.Backend.
func (s *backend) Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error) {
	return locked(ctx, s, func() []job.Document { return s.documents.List(kinds...) })
}

// Audit implements ledger.Backend.
func (s *backend) Audit(ctx context.Context, q store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	looked, last := 0, int64(0)
	for _, record := range slices.Backward(s.audit) {
		if q.Before > 0 && record.Seq >= q.Before {
			continue
		}
		if len(list) == q.Limit || looked == store.LookMax {
			return list, last, nil
		}
		looked++
		last = record.Seq
		if q.Matches(&record) {
			list = append(list, record)
		}
	}
	return list, 0, nil
}
