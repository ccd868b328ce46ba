package sqlite

import (
	"context"
	"encoding/json"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// PutCalendar implements store.Jobs.
func (s *Store) PutCalendar(ctx context.Context, c *job.Calendar, ifVersion int64, actor string) (*job.Calendar, error) {
	return put(ctx, s, c, engine.CalendarHead, ifVersion, actor, (*step).rescheduleUsers)
}

// PutPool implements store.Jobs.
func (s *Store) PutPool(ctx context.Context, p *job.Pool, ifVersion int64, actor string) (*job.Pool, error) {
	return put(ctx, s, p, engine.PoolHead, ifVersion, actor, func(st *step, full string) error {
		if err := st.slot(engine.PoolSlot(full), &store.Run{}); err != nil {
			return err
		}
		st.b.Refill(full)
		return nil
	})
}

// put creates or changes a calendar or pool. What follows from a change is decided
// by follow, which is given the full name.
func put[T any](ctx context.Context, s *Store, given *T, head func(*T) engine.Head, ifVersion int64, actor string, follow func(*step, string) error) (out *T, err error) {
	kind, full := head(given).Kind, head(given).FullName()
	err = s.grow(ctx, func(t *tx) error {
		as, err := columns.Copied(*given)
		if err != nil {
			return err
		}
		old, err := oneDocument[T](t.conn, kind, full)
		if err != nil {
			return err
		}
		var changed bool
		if out, changed, err = engine.PutDocument(old, as, head, ifVersion, s.newID); err != nil || !changed {
			return err
		}
		st, err := t.step(1)
		if err != nil {
			return err
		}
		version := *head(out).Version
		if err := st.putDocument(kind, full, *head(out).UID, version, out); err != nil {
			return err
		}
		if err := follow(st, full); err != nil {
			return err
		}
		st.b.Audit(actor, string(kind)+"."+created(old == nil), full, version, engine.Differences(old, out)...)
		t.hint |= store.HintJobs
		return st.write()
	})
	return out, wrapped(err, "put %s %s", kind, full)
}

func created(is bool) string {
	if is {
		return "create"
	}
	return "change"
}

// rescheduleUsers begins a new epoch for the jobs that name a calendar.
func (st *step) rescheduleUsers(calendar string) error {
	var uids []job.ID
	q := st.stmt("select job from calendar_users where calendar = ? order by job").bindText(calendar)
	for q.next() {
		uids = append(uids, q.id())
	}
	if err := q.err(); err != nil {
		return err
	}
	for _, uid := range uids {
		l, err := st.job(uid)
		if err != nil {
			return err
		}
		if l == nil || l.Deleted {
			continue
		}
		if err := st.time(l.jobRow, ""); err != nil {
			return err
		}
		if l.Policy.MaxRuns > 0 {
			if err := st.runsOf(uid); err != nil {
				return err
			}
		}
		if err := st.reschedule(l); err != nil {
			return err
		}
	}
	return nil
}

// putDocument writes a calendar or pool.
func (t *tx) putDocument(kind job.Kind, full string, uid job.ID, version int64, definition any) error {
	text, err := json.Marshal(definition)
	if err != nil {
		return err
	}
	t.memory.calendars, t.memory.pools = nil, nil
	q := t.stmt("insert or replace into documents (kind, full, uid, version, definition) values (?, ?, ?, ?, ?)")
	return q.bindText(string(kind)).bindText(full).bindID(uid).bindInt(version).bindBlob(text).exec()
}

func oneDocument[T any](c *conn, kind job.Kind, full string) (d *T, err error) {
	q := c.stmt("select definition from documents where kind = ? and full = ?").bindText(string(kind)).bindText(full)
	for q.next() {
		d = new(T)
		if err := json.Unmarshal(q.view(), d); err != nil {
			q.rewind()
			return nil, err
		}
	}
	return d, q.err()
}

// DeleteCalendar implements store.Jobs.
func (s *Store) DeleteCalendar(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	full := namespace + "/" + name
	err := s.write(ctx, func(t *tx) error {
		var user job.ID
		q := t.stmt("select job from calendar_users where calendar = ? limit 1").bindText(full)
		for q.next() {
			user = q.id()
		}
		if err := q.err(); err != nil {
			return err
		}
		if !user.IsZero() {
			st, err := t.step(1)
			if err != nil {
				return err
			}
			l, err := st.job(user)
			if err != nil {
				return err
			}
			return store.NamedError{Job: l.FullName()}
		}
		return t.deleteDocument(job.KindCalendar, full, ifVersion, actor)
	})
	return wrapped(err, "delete calendar %s", full)
}

// DeletePool implements store.Jobs.
func (s *Store) DeletePool(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	full := namespace + "/" + name
	err := s.write(ctx, func(t *tx) error { return t.deleteDocument(job.KindPool, full, ifVersion, actor) })
	return wrapped(err, "delete pool %s", full)
}

func (t *tx) deleteDocument(kind job.Kind, full string, ifVersion int64, actor string) error {
	var version int64
	q := t.stmt("delete from documents where kind = ? and full = ? returning version").bindText(string(kind)).bindText(full)
	for q.next() {
		version = q.int()
	}
	if err := q.err(); err != nil {
		return err
	}
	switch {
	case version == 0:
		return store.ErrNotFound
	case ifVersion != store.AnyVersion && ifVersion != version:
		return store.ErrConflict
	}
	t.memory.calendars, t.memory.pools = nil, nil
	st, err := t.step(1)
	if err != nil {
		return err
	}
	st.b.Audit(actor, string(kind)+".delete", full, version)
	t.hint |= store.HintJobs
	return st.write()
}

// Calendars implements store.Jobs.
func (s *Store) Calendars(ctx context.Context) (list []*job.Calendar, err error) {
	err = s.read(ctx, func(c *conn) error {
		list, err = documents[job.Calendar](c, job.KindCalendar)
		return err
	})
	return list, wrapped(err, "calendars")
}

// Pools implements store.Jobs.
func (s *Store) Pools(ctx context.Context) (list []*job.Pool, err error) {
	err = s.read(ctx, func(c *conn) error {
		list, err = documents[job.Pool](c, job.KindPool)
		return err
	})
	return list, wrapped(err, "pools")
}
