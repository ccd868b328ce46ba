package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// PutJob implements store.Jobs.
func (s *Store) PutJob(ctx context.Context, p store.PutJob) (*store.Job, error) {
	list, err := s.PutJobs(ctx, []store.PutJob{p})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// PutJobs implements store.Jobs.
func (s *Store) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	if len(list) > store.PutMax {
		return nil, store.ErrTooMany
	}
	unlock, err := s.begin(ctx, len(list))
	if err != nil {
		return nil, err
	}
	defer unlock()
	b := s.batch()
	items := make([]engine.PutItem, len(list))
	definitions, timings := make([]job.Job, len(list)), make([]string, len(list))
	for i := range list {
		definition := &definitions[i]
		*definition = *list[i].Definition
		definition.Namespace = cmp.Or(definition.Namespace, job.DefaultNamespace)
		definition.UID, definition.Version, definition.Epoch, definition.Status = job.ID{}, 0, 0, nil
		filled := definition.WithDefaults(s.opt.Defaults)
		if timings[i], err = engine.TimingText(filled, s.calendar); err != nil {
			return nil, &store.ItemError{Item: i, Err: err}
		}
		items[i] = engine.PutItem{Put: &list[i], Filled: filled, Policy: engine.CompilePolicy(filled)}
		row := s.names[definition.FullName()]
		if row == nil {
			items[i].UID = s.opt.NewID()
			continue
		}
		items[i].Old = engine.Stored{Job: b.AddJob(b.copy(&row.Job)), Definition: row.definition, Filled: row.filled}
		s.addSiblings(b, row.UID)
		for _, r := range s.runs.order {
			if r.JobUID == row.UID {
				s.addSlot(b, r.Slot)
				s.addSlot(b, items[i].Policy.SlotKey(&r.Run, r.Node))
			}
		}
	}
	if err := b.Put(items, engine.Names{Calendars: s.calendar, Upstreams: s.upstreams}); err != nil {
		return nil, err
	}
	for i, item := range items {
		if !item.Changed {
			continue
		}
		full := definitions[i].FullName()
		row := s.names[full]
		if row == nil {
			row = &jobRow{created: s.now(), partition: job.Partition(item.UID)}
			s.jobs[item.UID], s.names[full] = row, row
		}
		row.definition, row.filled, row.timing = &definitions[i], item.Filled, timings[i]
		row.calendars = engine.Calendars(item.Filled)
	}
	s.write(b)
	out := make([]*store.Job, len(items))
	for i, item := range items {
		row := s.names[item.Filled.FullName()]
		if item.Changed {
			row.Job = *item.Job
			s.following = nil
			s.revise(row, list[i].Actor)
		}
		out[i] = s.view(row)
	}
	return out, nil
}

// upstreams returns the jobs that one follows.
func (s *Store) upstreams(full string) ([]string, error) {
	if row, ok := s.names[full]; ok {
		return engine.Follows(row.filled), nil
	}
	return nil, nil
}

// calendar is a job.Calendars.
func (s *Store) calendar(namespace, name string) *job.Calendar {
	return s.calendars[namespace+"/"+name]
}

// view returns a job as others see it.
func (s *Store) view(row *jobRow) *store.Job {
	status := row.Status(row.created, row.updated)
	if last := row.shown[0]; last == nil || last.Version != row.Version || last.Epoch != row.Epoch || *last.Status != *status {
		definition, filled := *row.definition, *row.filled
		for i, j := range [...]*job.Job{&definition, &filled} {
			j.UID, j.Version, j.Epoch, j.Status = row.UID, row.Version, row.Epoch, status
			row.shown[i] = j
		}
	}
	return &store.Job{
		Definition: row.shown[0], Filled: row.shown[1],
		Cursor: row.Cursor, Planned: row.Planned, Deleted: row.Deleted,
	}
}

// Job implements store.Jobs.
func (s *Store) Job(ctx context.Context, namespace, name string) (*store.Job, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	row, ok := s.names[namespace+"/"+name]
	if !ok {
		return nil, fmt.Errorf("job %s/%s: %w", namespace, name, store.ErrNotFound)
	}
	return s.view(row), nil
}

// JobsNamed implements store.Jobs.
func (s *Store) JobsNamed(ctx context.Context, names []string) ([]*store.Job, error) {
	return jobsBy(ctx, s, s.names, names)
}

// JobByUID implements store.Jobs.
func (s *Store) JobByUID(ctx context.Context, uid job.ID) (*store.Job, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	row, ok := s.jobs[uid]
	if !ok {
		return nil, fmt.Errorf("job %s: %w", uid, store.ErrNotFound)
	}
	return s.view(row), nil
}

// JobsByUID implements store.Jobs.
func (s *Store) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	return jobsBy(ctx, s, s.jobs, uids)
}

// jobsBy returns the jobs of some keys.
func jobsBy[K comparable](ctx context.Context, s *Store, rows map[K]*jobRow, keys []K) ([]*store.Job, error) {
	unlock, err := s.begin(ctx, len(keys))
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := make([]*store.Job, len(keys))
	for i, key := range keys {
		if row, ok := rows[key]; ok {
			list[i] = s.view(row)
		}
	}
	return list, nil
}

// ListJobs implements store.Jobs.
func (s *Store) ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	looked, last := 0, ""
	for _, name := range sortedKeys(s.names) {
		row := s.names[name]
		if name <= q.After || q.Namespace != "" && row.Namespace != q.Namespace || q.Boot && !row.definition.Schedule.Boot {
			continue
		}
		if len(list) == q.Limit || looked == store.JobLookMax {
			return list, last, nil
		}
		looked, last = looked+1, name
		if (q.State == "" || row.State == q.State) && q.Matches(row.definition) {
			list = append(list, s.view(row))
		}
	}
	return list, "", nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// DeleteJob implements store.Jobs.
func (s *Store) DeleteJob(ctx context.Context, d store.DeleteJob) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	b := s.batch()
	j := s.addJob(b, d.UID)
	if j == nil {
		return fmt.Errorf("delete job %s: %w", d.UID, store.ErrNotFound)
	}
	if err := b.Delete(j, d.IfVersion, d.Actor); err != nil {
		return fmt.Errorf("delete job %s: %w", j.FullName(), err)
	}
	if s.names[j.FullName()] == s.jobs[d.UID] {
		delete(s.names, j.FullName())
	}
	s.write(b)
	return nil
}

// Revisions implements store.Jobs.
func (s *Store) Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]store.Revision, error) {
	unlock, err := s.begin(ctx, 1)
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

// JobsChanged implements store.Jobs.
func (s *Store) JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error) {
	unlock, err := s.begin(ctx, 1)
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
			Active: row.State == job.JobActive && !row.Deleted, Deleted: row.Deleted, Timing: row.timing,
		})
	}
	return changed, next, nil
}

// Cursors implements store.Jobs.
func (s *Store) Cursors(ctx context.Context, uids []job.ID) (list []store.JobCursor, err error) {
	unlock, err := s.begin(ctx, len(uids))
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, uid := range uids {
		if row, ok := s.jobs[uid]; ok {
			list = append(list, store.JobCursor{UID: uid, Epoch: row.Epoch, Cursor: row.Cursor, Planned: row.Planned})
		}
	}
	return list, nil
}

// Summary implements store.Jobs.
func (s *Store) Summary(ctx context.Context) (sum [job.Partitions]store.PartitionSummary, err error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return sum, err
	}
	defer unlock()
	for _, row := range s.names {
		if row.State != job.JobActive {
			continue
		}
		p := &sum[row.partition]
		p.Jobs++
		p.Versions += row.Version
	}
	return sum, nil
}

// PutCalendar implements store.Jobs.
func (s *Store) PutCalendar(ctx context.Context, c *job.Calendar, ifVersion int64, actor string) (*job.Calendar, error) {
	return put(ctx, s, s.calendars, c, engine.CalendarHead, ifVersion, actor, func(b *step, name string) error {
		timings := map[*jobRow]string{}
		for _, full := range sortedKeys(s.names) {
			row := s.names[full]
			if !slices.Contains(row.calendars, name) {
				continue
			}
			timing, err := engine.TimingText(row.filled, s.calendar)
			if err != nil {
				return err
			}
			timings[row] = timing
			s.addSiblings(b, row.UID)
			b.Reschedule(b.copy(&row.Job), row.filled, s.calendar)
		}
		for row, timing := range timings {
			row.timing = timing
		}
		return nil
	})
}

// PutPool implements store.Jobs.
func (s *Store) PutPool(ctx context.Context, p *job.Pool, ifVersion int64, actor string) (*job.Pool, error) {
	return put(ctx, s, s.pools, p, engine.PoolHead, ifVersion, actor, func(b *step, name string) error {
		s.addSlot(b, engine.PoolSlot(name))
		b.Refill(name)
		return nil
	})
}

// put creates or changes a calendar or pool. What follows from a change is decided
// by follow, which is given the full name.
func put[T any](ctx context.Context, s *Store, all map[string]*T, given *T, head func(*T) engine.Head, ifVersion int64, actor string, follow func(*step, string) error) (*T, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	kind, full := head(given).Kind, head(given).FullName()
	old := all[full]
	out, changed, err := engine.PutDocument(old, *given, head, ifVersion, s.opt.NewID)
	if err != nil {
		return nil, fmt.Errorf("put %s %s: %w", kind, full, err)
	}
	if !changed {
		return out, nil
	}
	all[full] = out
	b := s.batch() // which knows the pools
	if err := follow(b, full); err != nil {
		if all[full] = old; old == nil {
			delete(all, full)
		}
		return nil, fmt.Errorf("put %s %s: %w", kind, full, err)
	}
	b.Audit(actor, string(kind)+"."+created(old == nil), full, *head(out).Version, engine.Differences(old, out)...)
	s.write(b)
	s.hints.Send(store.HintJobs)
	return out, nil
}

func created(is bool) string {
	if is {
		return "create"
	}
	return "change"
}

// DeleteCalendar implements store.Jobs.
func (s *Store) DeleteCalendar(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	full := namespace + "/" + name
	calendar, ok := s.calendars[full]
	if !ok {
		return fmt.Errorf("delete calendar %s: %w", full, store.ErrNotFound)
	}
	for _, row := range s.names {
		if slices.Contains(row.calendars, full) {
			return fmt.Errorf("delete calendar %s: %w", full, store.NamedError{Job: row.FullName()})
		}
	}
	if ifVersion != store.AnyVersion && ifVersion != calendar.Version {
		return fmt.Errorf("delete calendar %s: %w", full, store.ErrConflict)
	}
	b := s.batch()
	b.Audit(actor, "calendar.delete", full, calendar.Version)
	delete(s.calendars, full)
	s.write(b)
	return nil
}

// DeletePool implements store.Jobs.
func (s *Store) DeletePool(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	full := namespace + "/" + name
	pool, ok := s.pools[full]
	if !ok {
		return fmt.Errorf("delete pool %s: %w", full, store.ErrNotFound)
	}
	if ifVersion != store.AnyVersion && ifVersion != pool.Version {
		return fmt.Errorf("delete pool %s: %w", full, store.ErrConflict)
	}
	delete(s.pools, full)
	b := s.batch()
	b.Audit(actor, "pool.delete", full, pool.Version)
	s.write(b)
	return nil
}

// Calendars implements store.Jobs.
func (s *Store) Calendars(ctx context.Context) ([]*job.Calendar, error) {
	return byName(ctx, s, s.calendars)
}

// Pools implements store.Jobs.
func (s *Store) Pools(ctx context.Context) ([]*job.Pool, error) { return byName(ctx, s, s.pools) }

func byName[T any](ctx context.Context, s *Store, all map[string]*T) ([]*T, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []*T
	for _, name := range sortedKeys(all) {
		list = append(list, all[name])
	}
	return list, nil
}

// Audit implements store.Jobs.
func (s *Store) Audit(ctx context.Context, q store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	unlock, err := s.begin(ctx, 1)
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
