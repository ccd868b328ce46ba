package sqldb

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

// decide makes a step of decisions about something and writes what they have
// changed.
func (s *Store) decide(ctx context.Context, items int, a about, do func(st *step) error) error {
	if items > store.MaxBatch {
		return store.ErrTooMany
	}
	return s.write(ctx, func(t *tx) error {
		st, err := t.step(a)
		if err != nil {
			return err
		}
		if err := do(st); err != nil {
			return err
		}
		return st.write()
	})
}

// idsOf returns the ids that things name.
func idsOf[T any](list []T, id func(*T) job.ID) []job.ID {
	ids := make([]job.ID, len(list))
	for i := range list {
		ids[i] = id(&list[i])
	}
	return ids
}

func attemptRun(a *store.Attempt) job.ID { return a.Run }

// Plan implements store.Planning.
func (s *Store) Plan(ctx context.Context, session job.ID, items []store.PlanItem) (outcomes []store.PlanOutcome, err error) {
	jobs := idsOf(items, func(i *store.PlanItem) job.ID { return i.Job })
	var completed []job.ID
	for i := range items {
		if items[i].Complete {
			completed = append(completed, items[i].Job)
		}
	}
	err = s.decide(ctx, len(items), about{jobs: jobs, whole: completed}, func(st *step) error {
		if _, err := st.session(session); err != nil {
			return err
		}
		outcomes = make([]store.PlanOutcome, len(items))
		for i := range items {
			outcomes[i] = st.b.Plan(session, &items[i])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return outcomes, nil
}

// Trigger implements store.Planning.
func (s *Store) Trigger(ctx context.Context, items []store.TriggerItem) (outcomes []store.TriggerOutcome, err error) {
	jobs := idsOf(items, func(i *store.TriggerItem) job.ID { return i.Job })
	err = s.decide(ctx, len(items), about{jobs: jobs}, func(st *step) error {
		identities := make([]engine.Identity, len(items))
		for i := range items {
			identities[i] = columns.IdentityOf(&items[i])
		}
		if err := st.addKeys(identities); err != nil {
			return err
		}
		outcomes = make([]store.TriggerOutcome, len(items))
		for i := range items {
			outcomes[i] = st.b.Trigger(&items[i])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("trigger: %w", err)
	}
	return outcomes, nil
}

// Place implements store.Planning.
func (s *Store) Place(ctx context.Context, placements []store.Placement) error {
	runs := idsOf(placements, func(p *store.Placement) job.ID { return p.Run })
	err := s.decide(ctx, len(placements), about{runs: runs}, func(st *step) error {
		for _, p := range placements {
			st.b.Place(p)
		}
		return nil
	})
	return wrapped(err, "place")
}

// Claim implements store.Working.
func (s *Store) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) (outcomes []store.ClaimOutcome, err error) {
	runs := idsOf(attempts, attemptRun)
	node := ""
	if about, known := s.abouts.get(session); known {
		node = about.Node
	} else if node, err = s.nodeOf(ctx, session); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	err = s.decide(ctx, len(attempts), about{runs: runs, node: node, over: true}, func(st *step) error {
		claimer, err := st.session(session)
		if err != nil {
			return err
		}
		if err := st.addRecords(st.missing(runs)); err != nil {
			return err
		}
		outcomes = make([]store.ClaimOutcome, len(attempts))
		for i, a := range attempts {
			outcomes[i] = st.b.Claim(claimer, a)
			if outcomes[i].Verdict == store.Started {
				outcomes[i].Job = st.jobs[outcomes[i].Run.JobUID].before()
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return outcomes, nil
}

// nodeOf returns the node of a session that is not over.
func (s *Store) nodeOf(ctx context.Context, session job.ID) (node string, err error) {
	err = s.read(ctx, func(t *tx) error {
		found, err := t.session(session)
		if err == nil {
			node = found.Node
		}
		return err
	})
	return node, err
}

// Release implements store.Working.
func (s *Store) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := s.decide(ctx, len(attempts), about{runs: idsOf(attempts, attemptRun)}, func(st *step) error {
		for _, a := range attempts {
			st.b.Release(a)
		}
		return nil
	})
	return wrapped(err, "release")
}

// Finish implements store.Working.
func (s *Store) Finish(ctx context.Context, session job.ID, results []store.Result) (outcomes []store.FinishOutcome, err error) {
	runs := idsOf(results, func(r *store.Result) job.ID { return r.Run })
	err = s.decide(ctx, len(results), about{runs: runs, over: true}, func(st *step) error {
		var late []job.ID
		for i := range results {
			res := &results[i]
			if r, ok := st.runs[res.Run]; !ok || r.Token != res.Token || r.Attempt != res.Number || r.State != job.StateRunning {
				late = append(late, res.Run)
			}
		}
		if err := st.addRecords(late); err != nil {
			return err
		}
		outcomes = make([]store.FinishOutcome, len(results))
		var output []store.OutputChunk
		for i := range results {
			if outcomes[i] = st.b.Finish(results[i]); outcomes[i].Accepted {
				output = append(output, results[i].Output...)
			}
		}
		return st.appendOutput(output)
	})
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	return outcomes, nil
}

// Cancel implements store.Working.
func (s *Store) Cancel(ctx context.Context, run job.ID, by, reason string) (out store.Run, err error) {
	runs := []job.ID{run}
	err = s.decide(ctx, 1, about{runs: runs, over: true}, func(st *step) error {
		if err := st.addRecords(st.missing(runs)); err != nil {
			return err
		}
		var ok bool
		if out, ok = st.b.Cancel(run, by, reason); !ok {
			return store.ErrNotFound
		}
		return nil
	})
	if err != nil {
		return store.Run{}, fmt.Errorf("cancel run %s: %w", run, err)
	}
	return out, nil
}

// CancelRuns implements store.Working.
func (s *Store) CancelRuns(ctx context.Context, runs []job.ID, by, reason string) (cancelled []store.Run, err error) {
	err = s.decide(ctx, len(runs), about{runs: runs}, func(st *step) error {
		cancelled = st.b.CancelRuns(runs, by, reason)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cancel runs: %w", err)
	}
	return cancelled, nil
}

// Reap implements store.Working.
func (s *Store) Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	err := s.decide(ctx, len(attempts), about{runs: idsOf(attempts, attemptRun), reaps: true}, func(st *step) error {
		reaper, err := st.session(session)
		if err != nil {
			return err
		}
		for _, a := range attempts {
			st.b.Reap(reaper, a)
		}
		return nil
	})
	return wrapped(err, "reap")
}

// Alerts implements store.Working. Most calls find nothing and write nothing.
func (s *Store) Alerts(ctx context.Context, limit int) (alerts []store.Alert, err error) {
	var late []job.ID
	now := s.clock.now()
	err = s.read(ctx, func(t *tx) error {
		late, err = t.ids("select id from active where alert_at <> 0 and alert_at <= ? order by due, id limit ?", columns.Nanos(now), int64(min(limit, store.MaxBatch)))
		return err
	})
	if err == nil && len(late) > 0 {
		err = s.decide(ctx, len(late), about{runs: late}, func(st *step) error {
			alerts = nil
			for _, id := range late {
				r, ok := st.runs[id]
				if unmet := st.b.Alert(id); ok && len(unmet) > 0 {
					alerts = append(alerts, store.Alert{Run: *r, Unmet: unmet})
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	return alerts, nil
}

// behind returns a place in the order of due time and id as arguments.
func behind(ref store.RunRef) (due int64, id []byte) {
	if ref.Due.IsZero() {
		return math.MinInt64, idOf(ref.ID)
	}
	return columns.Nanos(ref.Due), idOf(ref.ID)
}

// Ready implements store.Working.
func (s *Store) Ready(ctx context.Context, session job.ID, after store.RunRef, until time.Time, limit int) (list []store.ReadyRun, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = t.readyRuns(session, after, columns.Nanos(until), limit)
		return err
	})
	return list, wrapped(err, "ready runs")
}

// readyRuns returns ready runs of a session behind a place and due until a
// moment.
func (t *tx) readyRuns(session job.ID, after store.RunRef, until int64, limit int) (list []store.ReadyRun, err error) {
	due, id := behind(after)
	q := t.query(`select a.due, a.id, a.job, a.attempt, a.priority from active a
		where a.session = ? and a.due >= ? and (a.due, a.id) > (?, ?) and a.due <= ? and a.state = ? order by a.due, a.id limit ?`,
		idOf(session), due, due, id, until, columns.States.Of(job.StateReady), int64(limit))
	for q.Next() {
		list = append(list, store.ReadyRun{
			RunRef: store.RunRef{Due: q.time(), ID: q.id()}, Job: q.id(), Session: session, Attempt: int(q.Int()), Priority: int(q.Int()),
		})
	}
	t.s.known.learnReady(list)
	return list, q.Err()
}

// Overdue implements store.Working.
func (s *Store) Overdue(ctx context.Context, before time.Time, after store.RunRef, limit int) (list []store.ReadyRun, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = ofSessions(t, limit, columns.CompareReady, func(session job.ID) ([]store.ReadyRun, error) {
			return t.readyRuns(session, after, columns.Nanos(before)-1, limit)
		})
		return err
	})
	return list, wrapped(err, "overdue runs")
}

// Backlog implements store.Planning.
func (s *Store) Backlog(ctx context.Context, limit int) (backlog map[job.ID]int, err error) {
	now := s.clock.now()
	err = s.read(ctx, func(t *tx) error {
		sessions, err := t.sessionsWith()
		if err != nil {
			return err
		}
		backlog = map[job.ID]int{}
		for _, session := range sessions {
			q := t.query("select count(*) from (select a.due from active a where a.session = ? and a.due <= ? and a.state = ? limit ?) b",
				idOf(session), columns.Nanos(now), columns.States.Of(job.StateReady), int64(limit))
			for q.Next() {
				if n := q.Int(); n > 0 {
					backlog[session] = int(n)
				}
			}
			if err := q.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	return backlog, wrapped(err, "backlog")
}

// Unplaced implements store.Planning.
func (s *Store) Unplaced(ctx context.Context, after store.RunRef, limit int) (list []store.Run, err error) {
	err = s.read(ctx, func(t *tx) error {
		now, err := t.now()
		if err != nil {
			return err
		}
		sessions, err := t.sessions()
		if err != nil {
			return err
		}
		live := map[job.ID]bool{}
		for i := range sessions {
			live[sessions[i].ID] = !sessions[i].over && sessions[i].Live(now)
		}
		list, err = ofSessions(t, limit, columns.CompareRuns, func(session job.ID) ([]store.Run, error) {
			if live[session] {
				return nil, nil
			}
			return t.runsOf(session, job.StateReady, "", after, limit)
		})
		return err
	})
	return list, wrapped(err, "runs without a node")
}

// runsOf returns the runs of a session in a state, behind a place. namespace is
// that of their jobs, "" for any.
func (t *tx) runsOf(session job.ID, state job.RunState, namespace string, after store.RunRef, limit int) ([]store.Run, error) {
	due, id := behind(after)
	return t.namedRuns(selectRuns+`where a.session = ? and a.due >= ? and (a.due, a.id) > (?, ?) and a.state = ? and (? = '' or n.namespace = ?)
		order by a.due, a.id limit ?`, idOf(session), due, due, id, columns.States.Of(state), namespace, namespace, int64(limit))
}

// ofSessions joins what there is for each session that has runs, by due time and
// id. There are few sessions, and the index is by session.
func ofSessions[R any](t *tx, limit int, compare func(a, b R) int, runs func(session job.ID) ([]R, error)) ([]R, error) {
	ids, err := t.sessionsWith()
	if err != nil {
		return nil, err
	}
	var all []R
	for _, id := range ids {
		list, err := runs(id)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, compare)
	return all[:min(limit, len(all))], nil
}

// Mine implements store.Working.
func (s *Store) Mine(ctx context.Context, session job.ID) (list []store.Run, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = t.namedRuns(selectRuns+"where a.session = ? and a.state = ? order by a.due, a.id", idOf(session), columns.States.Of(job.StateRunning))
		return err
	})
	return list, wrapped(err, "running runs")
}

// Active implements store.Working.
func (s *Store) Active(ctx context.Context, run job.ID) (out store.Run, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err := t.namedRuns(selectRuns+"where a.id = ?", idOf(run))
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
	err = s.read(ctx, func(t *tx) error {
		if !query.Job.IsZero() {
			list, err = t.listOfJob(&query)
			return err
		}
		list = nil
		for _, state := range []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning} {
			if query.State != "" && query.State != state {
				continue
			}
			part, err := ofSessions(t, query.Limit, columns.CompareRuns, func(session job.ID) ([]store.Run, error) {
				return t.runsOf(session, state, query.Namespace, query.After, query.Limit)
			})
			if err != nil {
				return err
			}
			list = append(list, part...)
		}
		slices.SortFunc(list, columns.CompareRuns)
		list = list[:min(query.Limit, len(list))]
		return nil
	})
	return list, wrapped(err, "list runs")
}

func (t *tx) listOfJob(query *store.ActiveQuery) ([]store.Run, error) {
	state := int64(-1)
	if query.State != "" {
		state = columns.States.Of(query.State)
	}
	due, id := behind(query.After)
	return t.namedRuns(selectRuns+`where a.job = ? and (? < 0 or a.state = ?) and (? = '' or n.namespace = ?) and (a.due, a.id) > (?, ?)
		order by a.due, a.id limit ?`, idOf(query.Job), state, state, query.Namespace, query.Namespace, due, id, int64(query.Limit))
}

// Lost implements store.Working.
func (s *Store) Lost(ctx context.Context, limit int) (lost []store.Attempt, err error) {
	err = s.read(ctx, func(t *tx) error {
		lost, err = t.lost(limit)
		return err
	})
	return lost, wrapped(err, "lost runs")
}

// lostRun is a running attempt that may be lost.
type lostRun struct {
	store.Attempt
	due int64
	job job.ID
}

func (t *tx) lost(limit int) (lost []store.Attempt, err error) {
	now, err := t.now()
	if err != nil {
		return nil, err
	}
	rows, err := t.sessions()
	if err != nil {
		return nil, err
	}
	sessions := map[job.ID]*store.Session{}
	for i := range rows {
		sessions[rows[i].ID] = &rows[i].Session
	}
	ids, err := t.sessionsWith()
	if err != nil {
		return nil, err
	}
	var all []lostRun
	for _, id := range ids {
		session := sessions[id]
		if session != nil && now.Sub(session.Renewed) < time.Duration(job.LostAfterMin) {
			continue // no job's lost_after is shorter
		}
		part, err := t.lostOf(now, id, session, limit)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	slices.SortFunc(all, func(a, b lostRun) int { return cmp.Or(cmp.Compare(a.due, b.due), slices.Compare(a.Run[:], b.Run[:])) })
	for _, r := range all[:min(limit, len(all))] {
		lost = append(lost, r.Attempt)
	}
	return lost, nil
}

// lostOf returns running attempts of a session that are lost, those that were
// due first.
func (t *tx) lostOf(now time.Time, id job.ID, session *store.Session, limit int) (lost []lostRun, err error) {
	var list []lostRun
	seqs := map[job.ID]int64{}
	q := t.query(`select a.id, a.attempt, a.token, a.due, a.job, s.seq from active a join job_state s on s.uid = a.job
		where a.session = ? and a.state = ? order by a.due, a.id`, idOf(id), columns.States.Of(job.StateRunning))
	for q.Next() {
		r := lostRun{store.Attempt{Run: q.id(), Number: int(q.Int()), Token: q.id()}, q.Int(), q.id()}
		list, seqs[r.job] = append(list, r), q.Int()
	}
	if err := q.Err(); err != nil {
		return nil, err
	}
	docs, err := t.documents(seqs)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if len(lost) == limit {
			break
		}
		if engine.IsLost(now, docs[r.job].policy, session) {
			lost = append(lost, r)
		}
	}
	return lost, nil
}
