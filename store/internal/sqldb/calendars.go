package sqldb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// PutCalendar implements store.Jobs.
func (s *Store) PutCalendar(ctx context.Context, c *job.Calendar, ifVersion int64, actor string) (*job.Calendar, error) {
	return put(ctx, s, c, engine.CalendarHead, ifVersion, actor, func(t *tx, full string) (about, error) {
		users, err := t.ids("select job from calendar_users where calendar = ? order by job", full)
		return about{jobs: users, whole: users}, err
	}, func(st *step, users about) error {
		calendars, err := st.calendars()
		if err != nil {
			return err
		}
		for _, uid := range users.jobs {
			l := st.jobs[uid]
			if l == nil || l.Deleted {
				continue
			}
			if err := l.time(calendars); err != nil {
				return err
			}
			st.b.Reschedule(l.Job, l.doc.filled, columns.Finder(calendars))
		}
		return nil
	})
}

// PutPool implements store.Jobs.
func (s *Store) PutPool(ctx context.Context, p *job.Pool, ifVersion int64, actor string) (*job.Pool, error) {
	return put(ctx, s, p, engine.PoolHead, ifVersion, actor, func(t *tx, full string) (about, error) {
		return about{pools: []string{full}}, t.writeRows(InsertNew, poolNames.rows(1).text(full))
	}, func(st *step, a about) error {
		st.b.Refill(a.pools[0])
		return nil
	})
}

var documentRows = &Table{Name: "documents", Key: 2, Columns: []Column{
	{"kind", Text}, {"full_name", Text}, {"uid", Blob}, {"version", Int}, {"definition", Text},
}}

// documentLock is the lock of whoever changes a calendar or pool. Whoever names
// a calendar has it, too.
const documentLock = calendarsLock

// put creates or changes a calendar or pool. What the change is about is said by
// find, once it is written, and what follows from it decided by follow.
func put[T any](ctx context.Context, s *Store, given *T, head func(*T) engine.Head, ifVersion int64, actor string,
	find func(t *tx, full string) (about, error), follow func(st *step, a about) error) (out *T, err error) {
	kind, full := head(given).Kind, head(given).FullName()
	err = s.write(ctx, func(t *tx) error {
		if err := t.lock(documentLock); err != nil {
			return err
		}
		as, err := columns.Copied(*given)
		if err != nil {
			return err
		}
		old, err := oneDocument[T](t, kind, full)
		if err != nil {
			return err
		}
		var changed bool
		if out, changed, err = engine.PutDocument(old, as, head, ifVersion, s.newID); err != nil || !changed {
			return err
		}
		version := *head(out).Version
		text, err := json.Marshal(out)
		if err != nil {
			return err
		}
		b := documentRows.rows(1).text(string(kind)).text(full).id(head(out).UID).int(version).text(string(text))
		if err := t.writeRows(Upsert, b); err != nil {
			return err
		}
		a, err := find(t, full)
		if err != nil {
			return err
		}
		st, err := t.step(a)
		if err != nil {
			return err
		}
		if err := follow(st, a); err != nil {
			return err
		}
		st.b.Audit(actor, string(kind)+"."+created(old == nil), full, version, engine.Differences(old, out)...)
		t.hint |= store.HintJobs
		return st.write()
	})
	if err != nil {
		return nil, fmt.Errorf("put %s %s: %w", kind, full, err)
	}
	return out, nil
}

func created(is bool) string {
	if is {
		return "create"
	}
	return "change"
}

func oneDocument[T any](t *tx, kind job.Kind, full string) (*T, error) {
	list, err := scanDocuments[T](t.query("select definition from documents where kind = ? and full_name = ?", string(kind), full))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// documentsOf returns the calendars or pools by full name.
func documentsOf[T any](t *tx, kind job.Kind) ([]*T, error) {
	return scanDocuments[T](t.query("select definition from documents where kind = ? order by full_name", string(kind)))
}

func scanDocuments[T any](q reader) (list []*T, err error) {
	for q.Next() {
		d := new(T)
		if err := json.Unmarshal(q.View(), d); err != nil {
			q.Close()
			return nil, err
		}
		list = append(list, d)
	}
	return list, q.Err()
}

// calendars returns all calendars by full name.
func (t *tx) calendars() (map[string]*job.Calendar, error) {
	list, err := documentsOf[job.Calendar](t, job.KindCalendar)
	byName := make(map[string]*job.Calendar, len(list))
	for _, c := range list {
		byName[c.FullName()] = c
	}
	return byName, err
}

// DeleteCalendar implements store.Jobs.
func (s *Store) DeleteCalendar(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	full := namespace + "/" + name
	err := s.write(ctx, func(t *tx) error {
		if err := t.lock(documentLock); err != nil {
			return err
		}
		users, err := t.texts("select j.live from calendar_users c join jobs j on j.uid = c.job where c.calendar = ? limit 1", full)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return store.NamedError{Job: users[0]}
		}
		return t.deleteDocument(job.KindCalendar, full, ifVersion, actor)
	})
	return wrapped(err, "delete calendar %s", full)
}

// DeletePool implements store.Jobs.
func (s *Store) DeletePool(ctx context.Context, namespace, name string, ifVersion int64, actor string) error {
	full := namespace + "/" + name
	err := s.write(ctx, func(t *tx) error {
		if err := t.lock(documentLock); err != nil {
			return err
		}
		return t.deleteDocument(job.KindPool, full, ifVersion, actor)
	})
	return wrapped(err, "delete pool %s", full)
}

func (t *tx) deleteDocument(kind job.Kind, full string, ifVersion int64, actor string) error {
	version, err := t.number("select version from documents where kind = ? and full_name = ?", string(kind), full)
	if err != nil {
		return err
	}
	if version == 0 {
		return t.gone(store.ErrNotFound)
	}
	if ifVersion != store.AnyVersion && ifVersion != version {
		return store.ErrConflict
	}
	if err := t.exec("delete from documents where kind = ? and full_name = ?", string(kind), full); err != nil {
		return err
	}
	st, err := t.step(about{})
	if err != nil {
		return err
	}
	st.b.Audit(actor, string(kind)+".delete", full, version)
	t.hint |= store.HintJobs
	return st.write()
}

// Calendars implements store.Jobs.
func (s *Store) Calendars(ctx context.Context) (list []*job.Calendar, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = documentsOf[job.Calendar](t, job.KindCalendar)
		return err
	})
	return list, wrapped(err, "calendars")
}

// Pools implements store.Jobs.
func (s *Store) Pools(ctx context.Context) (list []*job.Pool, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = documentsOf[job.Pool](t, job.KindPool)
		return err
	})
	return list, wrapped(err, "pools")
}
