package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// decide runs a step with decisions and writes what they have changed.
func (t *tx) decide(items int, do func(st *step) error) error {
	if items > store.MaxBatch {
		return store.ErrTooMany
	}
	st, err := t.step(items)
	if err != nil {
		return err
	}
	if err := do(st); err != nil {
		return err
	}
	if err := st.write(); err != nil {
		return err
	}
	st.over(items)
	return nil
}

// Plan implements store.Planning.
func (s *Store) Plan(ctx context.Context, session job.ID, items []store.PlanItem) (outcomes []store.PlanOutcome, err error) {
	err = s.grow(ctx, func(t *tx) error {
		if _, err := t.session(session); err != nil {
			return err
		}
		outcomes = make([]store.PlanOutcome, len(items))
		return t.decide(len(items), func(st *step) error {
			for i := range items {
				l, err := st.job(items[i].Job)
				if err == nil && l != nil && items[i].Complete && l.Policy.DeleteAfter >= 0 {
					err = st.runsOf(l.UID)
				}
				if err != nil {
					return err
				}
				outcomes[i] = st.b.Plan(session, &items[i])
			}
			return nil
		})
	})
	return outcomes, wrapped(err, "plan")
}

// Trigger implements store.Planning.
func (s *Store) Trigger(ctx context.Context, items []store.TriggerItem) (outcomes []store.TriggerOutcome, err error) {
	err = s.grow(ctx, func(t *tx) error {
		outcomes = make([]store.TriggerOutcome, len(items))
		return t.decide(len(items), func(st *step) error {
			for i := range items {
				item := &items[i]
				if _, err := st.job(item.Job); err != nil {
					return err
				}
				if err := st.addKey(columns.IdentityOf(item)); err != nil {
					return err
				}
				outcomes[i] = st.b.Trigger(item)
			}
			return nil
		})
	})
	return outcomes, wrapped(err, "trigger")
}

// Place implements store.Planning.
func (s *Store) Place(ctx context.Context, placements []store.Placement) error {
	err := s.write(ctx, func(t *tx) error {
		return t.decide(len(placements), func(st *step) error {
			for _, p := range placements {
				if _, err := st.run(p.Run, ""); err != nil {
					return err
				}
				st.b.Place(p)
			}
			return nil
		})
	})
	return wrapped(err, "place")
}

// Claim implements store.Working.
func (s *Store) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) (outcomes []store.ClaimOutcome, err error) {
	err = s.grow(ctx, func(t *tx) error {
		claimer, err := t.session(session)
		if err != nil {
			return err
		}
		outcomes = make([]store.ClaimOutcome, len(attempts))
		return t.decide(len(attempts), func(st *step) error {
			for _, a := range attempts {
				r, err := st.run(a.Run, claimer.Node)
				if err == nil && r.ID.IsZero() {
					err = st.addRecord(a.Run, 0)
				}
				if err != nil {
					return err
				}
			}
			for i, a := range attempts {
				outcomes[i] = st.b.Claim(claimer, a)
				if outcomes[i].Verdict == store.Started {
					outcomes[i].Job = st.jobs[outcomes[i].Run.JobUID].before()
				}
			}
			return nil
		})
	})
	return outcomes, wrapped(err, "claim")
}

// Release implements store.Working.
func (s *Store) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := s.write(ctx, func(t *tx) error {
		return t.decide(len(attempts), func(st *step) error {
			for _, a := range attempts {
				if _, err := st.run(a.Run, ""); err != nil {
					return err
				}
				st.b.Release(a)
			}
			return nil
		})
	})
	return wrapped(err, "release")
}

// Finish implements store.Working.
func (s *Store) Finish(ctx context.Context, session job.ID, results []store.Result) (outcomes []store.FinishOutcome, err error) {
	err = s.write(ctx, func(t *tx) error {
		outcomes = make([]store.FinishOutcome, len(results))
		return t.decide(len(results), func(st *step) error {
			for i := range results {
				res := &results[i]
				r, err := st.run(res.Run, "")
				if err == nil && (r.Token != res.Token || r.Attempt != res.Number || r.State != job.StateRunning) {
					err = st.addRecord(res.Run, res.Number)
				}
				if err != nil {
					return err
				}
			}
			for i := range results {
				if outcomes[i] = st.b.Finish(results[i]); !outcomes[i].Accepted {
					continue
				}
				if err := st.appendOutput(results[i].Output); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return outcomes, wrapped(err, "finish")
}

// Cancel implements store.Working.
func (s *Store) Cancel(ctx context.Context, run job.ID, by, reason string) (out store.Run, err error) {
	err = s.write(ctx, func(t *tx) error {
		return t.decide(1, func(st *step) error {
			r, err := st.run(run, "")
			if err == nil && r.ID.IsZero() {
				err = st.addRecords(st.stmt(selectRecords + " where h.run = ?").bindID(run))
			}
			if err != nil {
				return err
			}
			var ok bool
			if out, ok = st.b.Cancel(run, by, reason); !ok {
				return store.ErrNotFound
			}
			return nil
		})
	})
	return out, wrapped(err, "cancel run %s", run)
}

// CancelRuns implements store.Working.
func (s *Store) CancelRuns(ctx context.Context, runs []job.ID, by, reason string) (cancelled []store.Run, err error) {
	err = s.write(ctx, func(t *tx) error {
		return t.decide(len(runs), func(st *step) error {
			for _, id := range runs {
				if _, err := st.run(id, ""); err != nil {
					return err
				}
			}
			cancelled = st.b.CancelRuns(runs, by, reason)
			return nil
		})
	})
	return cancelled, wrapped(err, "cancel runs")
}

// Reap implements store.Working.
func (s *Store) Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := s.write(ctx, func(t *tx) error {
		reaper, err := t.session(session)
		if err != nil {
			return err
		}
		return t.decide(len(attempts), func(st *step) error {
			for _, a := range attempts {
				if _, err := st.run(a.Run, ""); err != nil {
					return err
				}
				st.b.Reap(reaper, a)
			}
			return nil
		})
	})
	return wrapped(err, "reap")
}

// Alerts implements store.Working. Most calls find nothing and write nothing.
func (s *Store) Alerts(ctx context.Context, limit int) (alerts []store.Alert, err error) {
	var late []job.ID
	now := s.clock()
	err = s.read(ctx, func(c *conn) error {
		late, err = ids(c.stmt("select id from active where alert_at <> 0 and alert_at <= ? order by due, id limit ?").bindTime(now).bindInt(int64(limit)))
		return err
	})
	if err == nil && len(late) > 0 {
		err = s.write(ctx, func(t *tx) error {
			return t.decide(len(late), func(st *step) error {
				for _, id := range late {
					r, err := st.run(id, "")
					if err != nil {
						return err
					}
					if unmet := st.b.Alert(id); len(unmet) > 0 {
						alerts = append(alerts, store.Alert{Run: r, Unmet: unmet})
					}
				}
				return nil
			})
		})
	}
	return alerts, wrapped(err, "alerts")
}

// selectRuns reads runs with the names of their jobs, for namedRuns.
const selectRuns = "select " + activeColumns + ", n.namespace, n.name from active a join names n on n.uid = a.job "

func namedRuns(q *stmt) (list []store.Run, err error) {
	for q.next() {
		list = append(list, store.Run{})
		r := &list[len(list)-1]
		scanRun(q, r)
		r.Namespace, r.Name = q.text(), q.text()
	}
	return list, q.err()
}

// behind binds a place in the order of due time and id.
func (s *stmt) behind(ref store.RunRef) *stmt {
	if ref.Due.IsZero() {
		return s.bindInt(math.MinInt64).bindID(ref.ID)
	}
	return s.bindTime(ref.Due).bindID(ref.ID)
}

// Ready implements store.Working.
func (s *Store) Ready(ctx context.Context, session job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("ready runs: %w", err)
	}
	return s.lines.ready(session, after, columns.Nanos(until), limit), nil
}

// Overdue implements store.Working.
func (s *Store) Overdue(ctx context.Context, before time.Time, after store.RunRef, limit int) (list []store.ReadyRun, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("overdue runs: %w", err)
	}
	for _, session := range s.lines.sessions(job.StateReady) {
		list = append(list, s.lines.ready(session, after, columns.Nanos(before)-1, limit)...)
	}
	slices.SortFunc(list, columns.CompareReady)
	return list[:min(limit, len(list))], nil
}

// Backlog implements store.Planning.
func (s *Store) Backlog(ctx context.Context, limit int) (map[job.ID]int, error) {
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("backlog: %w", err)
	}
	return s.lines.due(job.StateReady, columns.Nanos(s.clock()), limit), nil
}

// Unplaced implements store.Planning.
func (s *Store) Unplaced(ctx context.Context, after store.RunRef, limit int) (list []store.Run, err error) {
	now := s.clock()
	err = s.read(ctx, func(c *conn) error {
		sessions, err := readSessions(c)
		if err != nil {
			return err
		}
		live := map[job.ID]bool{}
		for i := range sessions {
			live[sessions[i].ID] = !sessions[i].over && sessions[i].Live(now)
		}
		var of []line
		for _, session := range s.lines.sessions(job.StateReady) {
			if !live[session] {
				of = append(of, line{job.StateReady, session})
			}
		}
		list, err = s.runsIn(c, of, after, limit, func(r *store.Run) bool { return r.State == job.StateReady && !live[r.Session] })
		return err
	})
	return list, wrapped(err, "runs without a node")
}

// runsIn reads the first runs of lines that are behind a place, with the names of
// their jobs, and chooses among them by what they are now.
func (s *Store) runsIn(c *conn, of []line, after store.RunRef, limit int, choose func(*store.Run) bool) (list []store.Run, err error) {
	for len(list) < limit {
		page := s.lines.all(of, after, min(limit, linePage))
		for i := range page {
			rows, err := namedRuns(c.stmt(selectRuns + "where a.id = ?").bindID(page[i].id))
			if err != nil {
				return nil, err
			}
			if len(rows) == 1 && len(list) < limit && choose(&rows[0]) {
				list = append(list, rows[0])
			}
		}
		if len(page) < min(limit, linePage) {
			break
		}
		after = page[len(page)-1].ref()
	}
	slices.SortFunc(list, columns.CompareRuns)
	return list, nil
}

// linePage is how many runs of lines are looked at together.
const linePage = 1000

// Mine implements store.Working.
func (s *Store) Mine(ctx context.Context, session job.ID) (list []store.Run, err error) {
	err = s.read(ctx, func(c *conn) error {
		list, err = s.runsIn(c, []line{{job.StateRunning, session}}, store.RunRef{}, math.MaxInt, func(r *store.Run) bool {
			return r.State == job.StateRunning && r.Session == session
		})
		return err
	})
	return list, wrapped(err, "running runs")
}

// Active implements store.Working.
func (s *Store) Active(ctx context.Context, run job.ID) (out store.Run, err error) {
	err = s.read(ctx, func(c *conn) error {
		list, err := namedRuns(c.stmt(selectRuns + "where a.id = ?").bindID(run))
		if err == nil && len(list) == 0 {
			return store.ErrNotFound
		}
		if err == nil {
			out = list[0]
		}
		return err
	})
	return out, wrapped(err, "run %s", run)
}

// ListActive implements store.Working.
func (s *Store) ListActive(ctx context.Context, query store.ActiveQuery) (list []store.Run, err error) {
	const rest = " and (? = '' or n.namespace = ?) and (a.due, a.id) > (?, ?) order by a.due, a.id limit ?"
	bind := func(q *stmt) *stmt {
		return q.bindText(query.Namespace).bindText(query.Namespace).behind(query.After).bindInt(int64(query.Limit))
	}
	err = s.read(ctx, func(c *conn) error {
		if !query.Job.IsZero() {
			state := int64(-1)
			if query.State != "" {
				state = columns.States.Of(query.State)
			}
			q := c.stmt(selectRuns + "where a.job = ? and (? < 0 or a.state = ?)" + rest)
			list, err = namedRuns(bind(q.bindID(query.Job).bindInt(state).bindInt(state)))
			return err
		}
		var of []line
		for _, state := range []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning} {
			if query.State == "" || query.State == state {
				for _, session := range s.lines.sessions(state) {
					of = append(of, line{state, session})
				}
			}
		}
		list, err = s.runsIn(c, of, query.After, query.Limit, func(r *store.Run) bool {
			return (query.State == "" || r.State == query.State) && (query.Namespace == "" || r.Namespace == query.Namespace)
		})
		return err
	})
	return list, wrapped(err, "list runs")
}

// Lost implements store.Working.
func (s *Store) Lost(ctx context.Context, limit int) (lost []store.Attempt, err error) {
	now := s.clock()
	err = s.read(ctx, func(c *conn) error {
		rows, err := readSessions(c)
		if err != nil {
			return err
		}
		sessions := map[job.ID]*store.Session{}
		for i := range rows {
			sessions[rows[i].ID] = &rows[i].Session
		}
		var all []lostRun
		for _, id := range s.lines.sessions(job.StateRunning) {
			session := sessions[id]
			if session != nil && now.Sub(session.Renewed) < time.Duration(job.LostAfterMin) {
				continue // no job's lost_after is shorter
			}
			part, err := s.lostOf(c, now, id, session, limit)
			if err != nil {
				return err
			}
			all = append(all, part...)
		}
		slices.SortFunc(all, func(a, b lostRun) int { return cmp.Or(cmp.Compare(a.due, b.due), slices.Compare(a.Run[:], b.Run[:])) })
		for _, r := range all[:min(limit, len(all))] {
			lost = append(lost, r.Attempt)
		}
		return nil
	})
	return lost, wrapped(err, "lost runs")
}

// lostRun is a running attempt that may be lost.
type lostRun struct {
	store.Attempt
	due     int64
	job     job.ID
	version int64
}

// lostOf returns running attempts of a session that are lost, those that were
// due first.
func (s *Store) lostOf(c *conn, now time.Time, id job.ID, session *store.Session, limit int) (lost []lostRun, err error) {
	var list []lostRun
	for _, r := range s.lines.runs(line{job.StateRunning, id}, store.RunRef{}, math.MaxInt64, math.MaxInt) {
		q := c.stmt(`select a.id, a.attempt, a.token, a.due, a.job, s.version from active a join job_state s on s.uid = a.job
			where a.id = ? and a.state = ? and a.session = ?`)
		q.bindID(r.id).bindInt(columns.States.Of(job.StateRunning)).bindID(id)
		for q.next() {
			list = append(list, lostRun{store.Attempt{Run: q.id(), Number: int(q.int()), Token: q.id()}, q.int(), q.id(), q.int()})
		}
		if err := q.err(); err != nil {
			return nil, err
		}
	}
	for _, r := range list {
		if len(lost) == limit {
			break
		}
		d, err := s.document(c, r.job, r.version)
		if err != nil {
			return nil, err
		}
		if engine.IsLost(now, d.policy, session) {
			lost = append(lost, r)
		}
	}
	return lost, nil
}
