package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// session returns a session that is not over.
func (t *tx) session(id job.ID) (*store.Session, error) {
	list, err := t.sessions()
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].ID == id && !list[i].over {
			return &list[i].Session, nil
		}
	}
	return nil, fmt.Errorf("session %s: %w", id, store.ErrSessionOver)
}

// Join implements store.Membership.
func (s *Store) Join(ctx context.Context, session store.Session) (out store.Session, err error) {
	if session.ID.IsZero() {
		return store.Session{}, errors.New("join: a session needs an id")
	}
	err = s.write(ctx, func(t *tx) error {
		list, err := t.sessions()
		if err != nil {
			return err
		}
		out = session
		out.Joined, out.Renewed, out.Leaving, out.Load, out.Predecessors = t.now, t.now, false, session.Load, nil
		drains, err := readDrains(t.conn)
		if err != nil {
			return err
		}
		out.Drain = drains[out.Node]
		for _, other := range list {
			if other.ID == session.ID {
				out = other.Session // the answer was lost
				return nil
			}
			if other.Machine == session.Machine && other.DataDir == session.DataDir {
				out.Predecessors = append(out.Predecessors, other.ID)
			}
		}
		t.memory.sessions = nil
		// The processes of the predecessors are gone.
		q := t.stmt("update sessions set leaving = 1 where machine = ? and datadir = ?").bindText(session.Machine).bindText(session.DataDir)
		if err := q.exec(); err != nil {
			return err
		}
		about := out
		about.Joined, about.Renewed, about.Load, about.Drain = time.Time{}, time.Time{}, store.Load{}, nil
		text, err := json.Marshal(about)
		if err != nil {
			return err
		}
		t.hint |= store.HintRuns
		q = t.stmt(`insert into sessions (id, machine, datadir, joined, renewed, leaving, reaped, running, ready, clock_ahead, about)
			values (?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?)`)
		q.bindID(out.ID).bindText(out.Machine).bindText(out.DataDir).bindTime(out.Joined).bindTime(out.Renewed)
		return q.bindInt(int64(out.Load.Running)).bindInt(int64(out.Load.Ready)).bindInt(int64(out.Load.ClockAhead)).bindBlob(text).exec()
	})
	return out, wrapped(err, "join as %s", session.ID)
}

// Renew implements store.Membership.
func (s *Store) Renew(ctx context.Context, session job.ID, load store.Load) error {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		t.memory.sessions = nil
		q := t.stmt("update sessions set renewed = ?, running = ?, ready = ?, clock_ahead = ? where id = ?")
		return q.bindTime(t.now).bindInt(int64(load.Running)).bindInt(int64(load.Ready)).bindInt(int64(load.ClockAhead)).bindID(session).exec()
	})
	return wrapped(err, "renew")
}

// Leave implements store.Membership.
func (s *Store) Leave(ctx context.Context, session job.ID) error {
	err := s.sweep(ctx, func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		t.memory.sessions = nil
		if err := t.stmt("update sessions set leaving = 1 where id = ?").bindID(session).exec(); err != nil {
			return err
		}
		t.hint |= store.HintRuns | store.HintNodes
		return t.handOn(session)
	})
	return wrapped(err, "leave")
}

// handOn leaves what a session has not claimed to be placed again.
func (t *tx) handOn(session job.ID) error {
	t.memory.hot = hot{} // runs are changed behind its back
	from := line{job.StateReady, session}
	for _, r := range t.s.lines.runs(from, store.RunRef{}, math.MaxInt64, math.MaxInt) {
		if err := t.stmt("update active set session = x'' where id = ?").bindID(r.id).exec(); err != nil {
			return err
		}
		was := place{from, r.due, int(r.attempt), int(r.priority)}
		to := was
		to.session = job.ID{}
		t.moves = append(t.moves, move{r.id, r.job, was, to})
	}
	return nil
}

// Drain implements store.Membership.
func (s *Store) Drain(ctx context.Context, d store.DrainNode) error {
	err := s.sweep(ctx, func(t *tx) error {
		drains, err := readDrains(t.conn)
		if err != nil {
			return err
		}
		sessions, err := t.sessions()
		if err != nil {
			return err
		}
		of := slices.DeleteFunc(slices.Clone(sessions), func(row sessionRow) bool { return row.Node != d.Node })
		switch drained := drains[d.Node] != nil; {
		case len(of) == 0 && !drained:
			return store.ErrNotFound
		case d.Undo != drained:
			return nil
		}
		st, err := t.step(1)
		if err != nil {
			return err
		}
		t.memory.sessions = nil
		drain := st.b.Drain(&d)
		if drain == nil {
			if err := t.stmt("delete from drains where node = ?").bindText(d.Node).exec(); err != nil {
				return err
			}
			return st.write()
		}
		q := t.stmt("insert into drains (node, since, by, reason) values (?, ?, ?, ?)").bindText(d.Node)
		if err := q.bindTime(drain.Since).bindText(drain.By).bindText(drain.Reason).exec(); err != nil {
			return err
		}
		for i := range of {
			if err := t.handOn(of[i].ID); err != nil {
				return err
			}
		}
		return st.write()
	})
	return wrapped(err, "drain node %s", d.Node)
}

// End implements store.Membership.
func (s *Store) End(ctx context.Context, session job.ID) error {
	err := s.sweep(ctx, func(t *tx) error {
		if running := t.s.lines.runs(line{job.StateRunning, session}, store.RunRef{}, math.MaxInt64, 1); len(running) > 0 {
			return fmt.Errorf("run %s is running: %w", running[0].id, store.ErrConflict)
		}
		t.memory.sessions = nil
		return t.stmt("delete from sessions where id = ?").bindID(session).exec()
	})
	return wrapped(err, "end session %s", session)
}

// Sessions implements store.Membership.
func (s *Store) Sessions(ctx context.Context) (list []store.Session, err error) {
	err = s.read(ctx, func(c *conn) error {
		rows, err := readSessions(c)
		for i := range rows {
			list = append(list, rows[i].Session)
		}
		return err
	})
	return list, wrapped(err, "sessions")
}
