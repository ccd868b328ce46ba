package sqldb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// aboutsMax is how many sessions are remembered: more than there are at a time.
const aboutsMax = 10_000

// aboutCache keeps what does not change about sessions, by id. The zero value is
// ready for use.
type aboutCache struct {
	mu       sync.Mutex
	sessions map[job.ID]store.Session
}

func (c *aboutCache) get(id job.ID) (store.Session, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sessions[id]
	return s, ok
}

func (c *aboutCache) put(s store.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions == nil || len(c.sessions) >= aboutsMax {
		c.sessions = map[job.ID]store.Session{}
	}
	c.sessions[s.ID] = s
}

// sessionRow is a session with what only the store knows about it.
type sessionRow struct {
	store.Session
	over bool // something of it was reaped
}

// sessions returns all sessions by id.
func (t *tx) sessions() ([]sessionRow, error) {
	q := t.query(selectSessions)
	list := t.scanSessions(q)
	if err := q.Err(); err != nil {
		return nil, err
	}
	return list, t.tellAbout(list)
}

// selectSessions reads what changes about sessions, for scanSessions.
const selectSessions = `select s.id, s.joined, s.renewed, s.leaving, s.reaped, s.running, s.ready, s.clock_ahead,
	coalesce(d.since, 0), coalesce(d.made_by, ''), coalesce(d.reason, '')
	from sessions s left join drains d on d.node = s.node order by s.id`

func (t *tx) scanSessions(q reader) (list []sessionRow) {
	for q.Next() {
		id := q.id()
		about, _ := t.s.abouts.get(id)
		about.ID = id
		row := sessionRow{Session: about}
		row.Joined, row.Renewed, row.Leaving, row.over = q.time(), q.time(), q.bool(), q.bool()
		row.Load = store.Load{Running: int(q.Int()), Ready: int(q.Int()), ClockAhead: time.Duration(q.Int())}
		if d := (store.Drain{Since: q.time(), By: q.Text(), Reason: q.Text()}); !d.Since.IsZero() {
			row.Drain = &d
		}
		list = append(list, row)
	}
	return list
}

// tellAbout adds what does not change about sessions, where it was not known.
func (t *tx) tellAbout(list []sessionRow) error {
	var unknown []job.ID
	for i := range list {
		if _, ok := t.s.abouts.get(list[i].ID); !ok {
			unknown = append(unknown, list[i].ID)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	q := t.query("select about from sessions where id in (?*)", set(unknown))
	for q.Next() {
		var about store.Session
		if err := json.Unmarshal(q.View(), &about); err != nil {
			q.Close()
			return err
		}
		t.s.abouts.put(about)
	}
	if err := q.Err(); err != nil {
		return err
	}
	for i := range list {
		row := &list[i]
		about, _ := t.s.abouts.get(row.ID)
		about.ID, about.Joined, about.Renewed, about.Leaving, about.Load, about.Drain = row.ID, row.Joined, row.Renewed, row.Leaving, row.Load, row.Drain
		row.Session = about
	}
	return nil
}

func errOver(id job.ID) error { return fmt.Errorf("session %s: %w", id, store.ErrSessionOver) }

// session returns a session that is not over.
func (t *tx) session(id job.ID) (*store.Session, error) {
	list, err := t.sessions()
	if err != nil {
		return nil, err
	}
	return notOver(list, id)
}

func notOver(list []sessionRow, id job.ID) (*store.Session, error) {
	for i := range list {
		if list[i].ID == id && !list[i].over {
			return &list[i].Session, nil
		}
	}
	return nil, errOver(id)
}

// notOver locks a session that is not over.
func (t *tx) notOver(id job.ID) error {
	found, err := t.ids("select id from sessions where id = ? and reaped = 0 for update", idOf(id))
	if err == nil && len(found) == 0 {
		return errOver(id)
	}
	return err
}

var sessionRows = &Table{Name: "sessions", Key: 1, Columns: []Column{
	{"id", Blob}, {"node", Text}, {"machine", Text}, {"datadir", Text}, {"joined", Int}, {"renewed", Int}, {"leaving", Int}, {"reaped", Int},
	{"running", Int}, {"ready", Int}, {"clock_ahead", Int}, {"about", Text},
}}

// Join implements store.Membership.
func (s *Store) Join(ctx context.Context, session store.Session) (out store.Session, err error) {
	if session.ID.IsZero() {
		return store.Session{}, errors.New("join: a session needs an id")
	}
	err = s.write(ctx, func(t *tx) error {
		now, err := t.now()
		if err != nil {
			return err
		}
		list, err := t.sessions()
		if err != nil {
			return err
		}
		out = session
		out.Joined, out.Renewed, out.Leaving, out.Predecessors = now, now, false, nil
		for _, other := range list {
			if other.ID == session.ID {
				out = other.Session // the answer was lost
				return nil
			}
			if other.Machine == session.Machine && other.DataDir == session.DataDir {
				out.Predecessors = append(out.Predecessors, other.ID)
			}
		}
		// The processes of the predecessors are gone.
		if err := t.exec("update sessions set leaving = 1 where machine = ? and datadir = ?", out.Machine, out.DataDir); err != nil {
			return err
		}
		about := out
		if out.Drain, err = t.drainOf(out.Node); err != nil {
			return err
		}
		about.Joined, about.Renewed, about.Load, about.Drain = time.Time{}, time.Time{}, store.Load{}, nil
		text, err := json.Marshal(about)
		if err != nil {
			return err
		}
		t.hint |= store.HintRuns
		b := sessionRows.rows(1).id(&out.ID).text(out.Node).text(out.Machine).text(out.DataDir).time(now).time(now).int(0).int(0)
		return t.writeRows(Insert, b.int(int64(out.Load.Running)).int(int64(out.Load.Ready)).int(int64(out.Load.ClockAhead)).text(string(text)))
	})
	if err != nil {
		return store.Session{}, fmt.Errorf("join as %s: %w", session.ID, err)
	}
	return out, nil
}

// Renew implements store.Membership.
func (s *Store) Renew(ctx context.Context, session job.ID, load store.Load) error {
	err := s.write(ctx, func(t *tx) error {
		if err := t.notOver(session); err != nil {
			return err
		}
		now, err := t.now()
		if err != nil {
			return err
		}
		return t.exec("update sessions set renewed = ?, running = ?, ready = ?, clock_ahead = ? where id = ?",
			columns.Nanos(now), int64(load.Running), int64(load.Ready), int64(load.ClockAhead), idOf(session))
	})
	return wrapped(err, "renew")
}

// Leave implements store.Membership. Its ready runs are given up in batches. One that is
// planned for it meanwhile has a session that is not live, as those of a node that is
// gone.
func (s *Store) Leave(ctx context.Context, session job.ID) error {
	err := s.write(ctx, func(t *tx) error {
		t.hint |= store.HintRuns | store.HintNodes
		if err := t.notOver(session); err != nil {
			return err
		}
		return t.exec("update sessions set leaving = 1 where id = ?", idOf(session))
	})
	if err == nil {
		err = s.handOn(ctx, session)
	}
	return wrapped(err, "leave")
}

// handOn leaves what a session has not claimed to be placed again. It waits for no step:
// with a backlog it would stand in the queue for the locks of all jobs. A run that
// a step is about meanwhile, or writes after it, keeps a session that takes nothing, and
// is placed or claimed by others as well.
func (s *Store) handOn(ctx context.Context, session job.ID) (err error) {
	for more := true; err == nil && more; {
		err = s.write(ctx, func(t *tx) error {
			runs, err := t.ids("select id from active where session = ? and state = ? order by due, id limit ? for update skip locked",
				idOf(session), columns.States.Of(job.StateReady), int64(store.MaxBatch))
			if err != nil {
				return err
			}
			more = len(runs) == store.MaxBatch
			t.hint |= store.HintRuns
			return t.exec("update active set session = ? where id in (?*)", none, set(runs))
		})
	}
	return err
}

var drainRows = &Table{Name: "drains", Key: 1, Columns: []Column{{"node", Text}, {"since", Int}, {"made_by", Text}, {"reason", Text}}}

// drainOf returns why a node takes no runs, nil if it does.
func (t *tx) drainOf(node string) (*store.Drain, error) {
	var drain *store.Drain
	q := t.query("select since, made_by, reason from drains where node = ?", node)
	for q.Next() {
		drain = &store.Drain{Since: q.time(), By: q.Text(), Reason: q.Text()}
	}
	return drain, q.Err()
}

// Drain implements store.Membership. From its first step on no run is claimed; then
// those that are ready are given up, as Leave does. One that is planned for the node
// meanwhile is given up by its own claim.
func (s *Store) Drain(ctx context.Context, d store.DrainNode) error {
	var of []job.ID
	err := s.write(ctx, func(t *tx) (err error) {
		// Locked, so that there is one drain of a node at a time.
		if of, err = t.ids("select id from sessions where node = ? order by id for update", d.Node); err != nil {
			return err
		}
		before, err := t.drainOf(d.Node)
		switch {
		case err != nil:
			return err
		case len(of) == 0 && before == nil:
			return t.gone(store.ErrNotFound)
		case d.Undo == (before == nil):
			return nil
		}
		st, err := t.step(about{})
		if err != nil {
			return err
		}
		if drain := st.b.Drain(&d); drain != nil {
			err = t.writeRows(Insert, drainRows.rows(1).text(d.Node).time(drain.Since).text(drain.By).text(drain.Reason))
		} else {
			err = t.exec("delete from drains where node = ?", d.Node)
		}
		if err != nil {
			return err
		}
		return st.write()
	})
	for i := 0; err == nil && !d.Undo && i < len(of); i++ {
		err = s.handOn(ctx, of[i])
	}
	return wrapped(err, "drain node %s", d.Node)
}

// End implements store.Membership.
func (s *Store) End(ctx context.Context, session job.ID) error {
	err := s.write(ctx, func(t *tx) error {
		running, err := t.ids("select id from active where session = ? and state = ? limit 1", idOf(session), columns.States.Of(job.StateRunning))
		if err != nil {
			return err
		}
		if len(running) > 0 {
			return fmt.Errorf("run %s is running: %w", running[0], store.ErrConflict)
		}
		return t.exec("delete from sessions where id = ?", idOf(session))
	})
	return wrapped(err, "end session %s", session)
}

// Sessions implements store.Membership.
func (s *Store) Sessions(ctx context.Context) (list []store.Session, err error) {
	err = s.read(ctx, func(t *tx) error {
		rows, err := t.sessions()
		list = nil
		for i := range rows {
			list = append(list, rows[i].Session)
		}
		return err
	})
	return list, wrapped(err, "sessions")
}
