package sqldb

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// behind returns a place in the order of due time and id, as arguments.
func behind(ref store.RunRef) (due int64, id []byte) {
	if ref.Due.IsZero() {
		return math.MinInt64, idOf(ref.ID)
	}
	return columns.Nanos(ref.Due), idOf(ref.ID)
}

// Ready implements ledger.Backend.
func (s *backend) Ready(ctx context.Context, q store.ReadyQuery) (list []store.ReadyRun, err error) {
	err = s.read(ctx, func(t *tx) error {
		sessions := []job.ID{q.Session}
		if q.Any {
			var err error
			if sessions, err = t.sessionsWith(); err != nil {
				return err
			}
		}
		list, err = ofSessions(sessions, q.Limit, func(r *store.ReadyRun) store.RunRef { return r.RunRef }, func(session job.ID) ([]store.ReadyRun, error) { return t.readyRuns(session, &q) })
		return err
	})
	if err == nil && !s.caches() {
		s.dues.ready(list)
	}
	return list, wrapped(err, "ready runs")
}

func (t *tx) readyRuns(session job.ID, query *store.ReadyQuery) (list []store.ReadyRun, err error) {
	due, id := behind(query.After)
	q := t.query(`select a.due, a.id, a.job, a.attempt, a.priority from active a
		where a.session = ? and a.due >= ? and (a.due, a.id) > (?, ?) and a.due <= ? and a.state = ? order by a.due, a.id limit ?`,
		idOf(session), due, due, id, columns.Nanos(query.Until), columns.States.Of(job.StateReady), int64(query.Limit))
	for q.Next() {
		list = append(list, store.ReadyRun{
			RunRef: store.RunRef{Due: q.time(), ID: q.id()}, Job: q.id(), Session: session, Attempt: int(q.Int()), Priority: int(q.Int()),
		})
	}
	return list, q.Err()
}

// ofSessions merges the rows of each session by due time and id. There are few sessions, and the
// index is by session.
func ofSessions[R any](sessions []job.ID, limit int, ref func(*R) store.RunRef, runs func(session job.ID) ([]R, error)) ([]R, error) {
	var all []R
	for _, id := range sessions {
		list, err := runs(id)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	if len(sessions) > 1 {
		slices.SortFunc(all, func(a, b R) int { return ref(&a).Compare(ref(&b)) })
	}
	return all[:min(limit, len(all))], nil
}

// ListActive implements ledger.Backend.
func (s *backend) ListActive(ctx context.Context, q store.ActiveQuery) (list []store.Run, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = t.runsOf(&q)
		return err
	})
	return list, wrapped(err, "list runs")
}

func (t *tx) runsOf(query *store.ActiveQuery) ([]store.Run, error) {
	state := int64(-1)
	if query.State != "" {
		state = columns.States.Of(query.State)
	}
	due, id := behind(query.After)
	const rest = ` and a.due >= ? and (a.due, a.id) > (?, ?) and (? < 0 or a.state = ?) and (? = '' or n.namespace = ?)
		order by a.due, a.id limit ?`
	args := []any{due, due, id, state, state, query.Namespace, query.Namespace, int64(query.Limit)}
	switch {
	case !query.Run.IsZero():
		return t.namedRuns(selectRuns+"where a.id = ?"+rest, append([]any{idOf(query.Run)}, args...)...)
	case !query.Job.IsZero():
		return t.namedRuns(selectRuns+"where a.job = ?"+rest, append([]any{idOf(query.Job)}, args...)...)
	}
	sessions := query.Sessions
	if len(sessions) == 0 || query.Except {
		with, err := t.sessionsWith()
		if err != nil {
			return nil, err
		}
		sessions = slices.DeleteFunc(with, func(id job.ID) bool { return slices.Contains(query.Sessions, id) })
	}
	return ofSessions(sessions, query.Limit, (*store.Run).Ref, func(session job.ID) ([]store.Run, error) {
		return t.namedRuns(selectRuns+"where a.session = ?"+rest, append([]any{idOf(session)}, args...)...)
	})
}

// Backlog implements ledger.Backend.
func (s *backend) Backlog(ctx context.Context, now time.Time, limit int) (backlog map[job.ID]int, err error) {
	err = s.read(ctx, func(t *tx) error {
		sessions, err := t.sessionsWith()
		if err != nil {
			return err
		}
		backlog = map[job.ID]int{}
		for _, session := range sessions {
			n, err := t.number("select count(*) from (select a.due from active a where a.session = ? and a.due <= ? and a.state = ? limit ?) b",
				idOf(session), columns.Nanos(now), columns.States.Of(job.StateReady), int64(limit))
			if err != nil {
				return err
			}
			if n > 0 {
				backlog[session] = int(n)
			}
		}
		return nil
	})
	return backlog, err
}

// Alarms implements ledger.Backend.
func (s *backend) Alarms(ctx context.Context, now time.Time, limit int) (list []engine.RunRef, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = t.refs("select id, job from active where alert_at <> 0 and alert_at <= ? order by due, id limit ?", columns.Nanos(now), int64(limit))
		return err
	})
	return list, err
}

// refs returns the runs of a query for id and job.
func (t *tx) refs(text string, args ...any) (list []engine.RunRef, err error) {
	q := t.query(text, args...)
	for q.Next() {
		list = append(list, engine.RunRef{Run: q.id(), Job: q.id()})
	}
	return list, q.Err()
}
