package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// session returns a session that is not over.
func (s *Store) session(id job.ID) (*store.Session, error) {
	session, ok := s.sessions[id]
	if !ok || s.over[id] {
		return nil, fmt.Errorf("session %s: %w", id, store.ErrSessionOver)
	}
	return session, nil
}

// Plan implements store.Planning.
func (s *Store) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, error) {
	unlock, err := s.begin(ctx, len(items))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := s.session(session); err != nil {
		return nil, err
	}
	b := s.batch()
	outcomes := make([]store.PlanOutcome, len(items))
	for i := range items {
		s.addJob(b, items[i].Job)
		if items[i].Complete {
			s.addSiblings(b, items[i].Job)
		}
		outcomes[i] = b.Plan(session, &items[i])
	}
	s.write(b)
	return outcomes, nil
}

// Trigger implements store.Planning.
func (s *Store) Trigger(ctx context.Context, items []store.TriggerItem) ([]store.TriggerOutcome, error) {
	unlock, err := s.begin(ctx, len(items))
	if err != nil {
		return nil, err
	}
	defer unlock()
	b := s.batch()
	for i := range items {
		s.addJob(b, items[i].Job)
	}
	for id, key := range s.keys {
		if b.Job(id.Job) != nil && b.Now().Before(key.Expires) {
			b.AddKey(id, key.Run)
		}
	}
	outcomes := make([]store.TriggerOutcome, len(items))
	for i := range items {
		outcomes[i] = b.Trigger(&items[i])
	}
	s.write(b)
	return outcomes, nil
}

// Backlog implements store.Planning.
func (s *Store) Backlog(ctx context.Context, limit int) (map[job.ID]int, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := s.now()
	backlog := map[job.ID]int{}
	for _, r := range s.runs.where(func(r *store.Run) bool { return r.State == job.StateReady && !r.Due.After(now) }) {
		backlog[r.Session] = min(limit, backlog[r.Session]+1)
	}
	return backlog, nil
}

// Unplaced implements store.Planning.
func (s *Store) Unplaced(ctx context.Context, after store.RunRef, limit int) ([]store.Run, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := s.now()
	list := s.runs.where(func(r *store.Run) bool {
		if r.State != job.StateReady {
			return false
		}
		session, ok := s.sessions[r.Session]
		return !ok || s.over[r.Session] || !session.Live(now)
	})
	return copies(page(list, after, limit)), nil
}

// Place implements store.Planning.
func (s *Store) Place(ctx context.Context, placements []store.Placement) error {
	unlock, err := s.begin(ctx, len(placements))
	if err != nil {
		return err
	}
	defer unlock()
	b := s.batch()
	for _, p := range placements {
		s.addRun(b, p.Run, "")
		b.Place(p)
	}
	s.write(b)
	return nil
}

// Ready implements store.Working.
func (s *Store) Ready(ctx context.Context, session job.ID, after store.RunRef, until time.Time, limit int) ([]store.ReadyRun, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := s.runs.where(func(r *store.Run) bool {
		return r.State == job.StateReady && r.Session == session && !r.Due.After(until)
	})
	return readyRuns(page(list, after, limit)), nil
}

// Overdue implements store.Working.
func (s *Store) Overdue(ctx context.Context, before time.Time, after store.RunRef, limit int) ([]store.ReadyRun, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := s.runs.where(func(r *store.Run) bool { return r.State == job.StateReady && r.Due.Before(before) })
	return readyRuns(page(list, after, limit)), nil
}

func readyRuns(list []*store.Run) []store.ReadyRun {
	var ready []store.ReadyRun
	for _, r := range list {
		ready = append(ready, store.ReadyRun{
			RunRef: store.RunRef{Due: r.Due, ID: r.ID}, Job: r.JobUID, Session: r.Session, Attempt: r.Attempt, Priority: r.Priority,
		})
	}
	return ready
}

// Claim implements store.Working.
func (s *Store) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	unlock, err := s.begin(ctx, len(attempts))
	if err != nil {
		return nil, err
	}
	defer unlock()
	claimer, err := s.session(session)
	if err != nil {
		return nil, err
	}
	b := s.batch()
	for _, a := range attempts {
		s.addRun(b, a.Run, claimer.Node)
	}
	outcomes := make([]store.ClaimOutcome, len(attempts))
	for i, a := range attempts {
		outcomes[i] = b.Claim(claimer, a)
		if outcomes[i].Verdict == store.Started {
			outcomes[i].Job = s.view(s.jobs[outcomes[i].Run.JobUID])
		}
	}
	s.write(b)
	return outcomes, nil
}

// Release implements store.Working.
func (s *Store) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	unlock, err := s.begin(ctx, len(attempts))
	if err != nil {
		return err
	}
	defer unlock()
	b := s.batch()
	for _, a := range attempts {
		s.addRun(b, a.Run, "")
		b.Release(a)
	}
	s.write(b)
	return nil
}

// Finish implements store.Working.
func (s *Store) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	unlock, err := s.begin(ctx, len(results))
	if err != nil {
		return nil, err
	}
	defer unlock()
	b := s.batch()
	outcomes := make([]store.FinishOutcome, len(results))
	for i, result := range results {
		s.addRun(b, result.Run, "")
		outcomes[i] = b.Finish(result)
		if outcomes[i].Accepted {
			s.appendOutput(result.Output)
		}
	}
	s.write(b)
	return outcomes, nil
}

// Mine implements store.Working.
func (s *Store) Mine(ctx context.Context, session job.ID) ([]store.Run, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return copies(s.runs.where(func(r *store.Run) bool { return r.State == job.StateRunning && r.Session == session })), nil
}

// Cancel implements store.Working.
func (s *Store) Cancel(ctx context.Context, run job.ID, by, reason string) (store.Run, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return store.Run{}, err
	}
	defer unlock()
	b := s.batch()
	s.addRun(b, run, "")
	r, ok := b.Cancel(run, by, reason)
	if !ok {
		return store.Run{}, fmt.Errorf("cancel run %s: %w", run, store.ErrNotFound)
	}
	s.write(b)
	return r, nil
}

// CancelRuns implements store.Working.
func (s *Store) CancelRuns(ctx context.Context, runs []job.ID, by, reason string) ([]store.Run, error) {
	unlock, err := s.begin(ctx, len(runs))
	if err != nil {
		return nil, err
	}
	defer unlock()
	b := s.batch()
	for _, id := range runs {
		if _, ok := s.runs.byID[id]; ok {
			s.addRun(b, id, "")
		}
	}
	cancelled := b.CancelRuns(runs, by, reason)
	s.write(b)
	return cancelled, nil
}

// Active implements store.Working.
func (s *Store) Active(ctx context.Context, run job.ID) (store.Run, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return store.Run{}, err
	}
	defer unlock()
	r, ok := s.runs.byID[run]
	if !ok {
		return store.Run{}, fmt.Errorf("run %s: %w", run, store.ErrNotFound)
	}
	return *r, nil
}

// ListActive implements store.Working.
func (s *Store) ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := s.runs.where(func(r *store.Run) bool {
		return (q.Namespace == "" || r.Namespace == q.Namespace) &&
			(q.Job.IsZero() || r.JobUID == q.Job) &&
			(q.State == "" || r.State == q.State)
	})
	return copies(page(list, q.After, q.Limit)), nil
}

// Lost implements store.Working.
func (s *Store) Lost(ctx context.Context, limit int) ([]store.Attempt, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := s.now()
	var lost []store.Attempt
	for _, r := range s.runs.where(func(r *store.Run) bool { return r.State == job.StateRunning && s.isLost(r, now) }) {
		if len(lost) < limit {
			lost = append(lost, store.Attempt{Run: r.ID, Number: r.Attempt, Token: r.Token})
		}
	}
	return lost, nil
}

func (s *Store) isLost(r *store.Run, now time.Time) bool {
	policy := &engine.Policy{}
	if row, ok := s.jobs[r.JobUID]; ok {
		policy = row.Policy
	}
	return engine.IsLost(now, policy, s.sessions[r.Session])
}

// Alerts implements store.Working.
func (s *Store) Alerts(ctx context.Context, limit int) ([]store.Alert, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := s.now()
	late := s.runs.where(func(r *store.Run) bool { return !r.AlertAt.IsZero() && !r.AlertAt.After(now) })
	if len(late) == 0 {
		return nil, nil
	}
	late = late[:min(limit, len(late))]
	b := s.batch()
	var alerts []store.Alert
	for _, r := range late {
		b.AddRun(r)
		s.addJob(b, r.JobUID)
		if unmet := b.Alert(r.ID); len(unmet) > 0 {
			alerts = append(alerts, store.Alert{Run: *r, Unmet: unmet})
		}
	}
	s.write(b)
	return alerts, nil
}

// Reap implements store.Working.
func (s *Store) Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	unlock, err := s.begin(ctx, len(attempts))
	if err != nil {
		return err
	}
	defer unlock()
	reaper, err := s.session(session)
	if err != nil {
		return err
	}
	b := s.batch()
	for _, a := range attempts {
		s.addRun(b, a.Run, "")
		b.Reap(reaper, a)
	}
	s.write(b)
	return nil
}

// Tidy implements store.Store.
func (s *Store) Tidy(ctx context.Context) (more bool, err error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return false, err
	}
	defer unlock()
	now := s.now()
	ending := s.runs.where(func(r *store.Run) bool { return s.mayEnd(r, now) })
	var resting []string // jobs that are paused for a while, or completed and not kept
	for name, row := range s.names {
		if !row.PausedUntil.IsZero() || !row.RemoveAt().IsZero() {
			resting = append(resting, name)
		}
	}
	slices.Sort(resting)
	if len(ending)+len(resting) > 0 {
		if more, err = s.settle(ending, resting); err != nil {
			return false, err
		}
	}
	for id, key := range s.keys {
		if !now.Before(key.Expires) {
			delete(s.keys, id)
		}
	}
	s.forget(now)
	return more, nil
}

// settle ends runs that have come to an end, and pauses and jobs.
func (s *Store) settle(ending []*store.Run, resting []string) (more bool, err error) {
	b := s.batch()
	settled := 0
	for _, r := range ending {
		if settled == store.MaxBatch {
			more = true
			break
		}
		s.addRun(b, r.ID, "")
		if b.Settle(r.ID) {
			settled++
		}
	}
	for _, name := range resting {
		j := s.addJob(b, s.names[name].UID)
		s.addSiblings(b, j.UID)
		b.Unpause(j, s.names[name].filled, s.calendar)
		if b.Expired(j) {
			if err := b.Delete(j, store.AnyVersion, engine.System); err != nil {
				return false, err
			}
			delete(s.names, name)
		}
	}
	s.write(b)
	return more, nil
}

// mayEnd tells whether a run that is not running may have to be settled.
func (s *Store) mayEnd(r *store.Run, now time.Time) bool {
	row, ok := s.jobs[r.JobUID]
	switch {
	case r.State == job.StateRunning:
		return false
	case !ok || row.Deleted || row.State == job.JobPaused || row.Epoch != r.Epoch:
		return true
	}
	gone := row.Policy.Broadcast && now.Sub(r.Due) > row.Policy.LostAfter // its node may be
	return !r.LateAfter.IsZero() && now.After(r.LateAfter) || gone || r.Last != ""
}

// forget removes tombstones and sessions that nobody needs any more.
func (s *Store) forget(now time.Time) {
	for uid, row := range s.jobs {
		if row.Deleted && now.Sub(row.updated) > store.TombstoneLife && !s.runs.any(func(r *store.Run) bool { return r.JobUID == uid }) {
			delete(s.jobs, uid)
		}
	}
	for id, session := range s.sessions {
		if now.Sub(session.Renewed) > store.SilenceMax && !s.runs.any(func(r *store.Run) bool { return r.State == job.StateRunning && r.Session == id }) {
			s.removeSession(id)
		}
	}
}

func (s *Store) removeSession(id job.ID) {
	delete(s.sessions, id)
	delete(s.over, id)
	s.members = nil
}

// Join implements store.Membership.
func (s *Store) Join(ctx context.Context, session store.Session) (store.Session, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return store.Session{}, err
	}
	defer unlock()
	if session.ID.IsZero() {
		return store.Session{}, errNoSession
	}
	if known, ok := s.sessions[session.ID]; ok {
		return *known, nil // the answer was lost
	}
	now := s.now()
	session.Joined, session.Renewed, session.Leaving, session.Predecessors = now, now, false, nil
	session.Drain = s.drains[session.Node]
	for id, other := range s.sessions {
		if other.Machine == session.Machine && other.DataDir == session.DataDir {
			session.Predecessors = append(session.Predecessors, id)
			other.Leaving = true // its process is gone
		}
	}
	slices.SortFunc(session.Predecessors, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	s.sessions[session.ID], s.members = &session, nil
	s.hints.Send(store.HintRuns)
	return session, nil
}

// Renew implements store.Membership.
func (s *Store) Renew(ctx context.Context, session job.ID, load store.Load) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	row, err := s.session(session)
	if err != nil {
		return err
	}
	row.Renewed, row.Load = s.now(), load
	return nil
}

// Leave implements store.Membership.
func (s *Store) Leave(ctx context.Context, session job.ID) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	row, err := s.session(session)
	if err != nil {
		return err
	}
	row.Leaving = true
	s.handOn(session)
	s.hints.Send(store.HintRuns | store.HintNodes)
	return nil
}

// handOn leaves what a session has not claimed to be placed again.
func (s *Store) handOn(session job.ID) {
	for _, r := range s.runs.where(func(r *store.Run) bool { return r.State == job.StateReady && r.Session == session }) {
		unplaced := *r
		unplaced.Session = job.ID{}
		s.runs.put(&unplaced)
	}
}

// Drain implements store.Membership.
func (s *Store) Drain(ctx context.Context, d store.DrainNode) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	known := s.drains[d.Node] != nil
	for _, row := range s.sessions {
		known = known || row.Node == d.Node
	}
	if !known {
		return fmt.Errorf("drain node %s: %w", d.Node, store.ErrNotFound)
	}
	if d.Undo == (s.drains[d.Node] == nil) {
		return nil
	}
	b := s.batch()
	drain := b.Drain(&d)
	if delete(s.drains, d.Node); drain != nil {
		s.drains[d.Node] = drain
	}
	for id, row := range s.sessions {
		if row.Node == d.Node {
			row.Drain = drain
			if drain != nil {
				s.handOn(id)
			}
		}
	}
	s.write(b)
	return nil
}

// End implements store.Membership.
func (s *Store) End(ctx context.Context, session job.ID) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	for _, r := range s.runs.order {
		if r.State == job.StateRunning && r.Session == session {
			return fmt.Errorf("end session %s: run %s is running: %w", session, r.ID, store.ErrConflict)
		}
	}
	s.removeSession(session)
	return nil
}

// Sessions implements store.Membership.
func (s *Store) Sessions(ctx context.Context) ([]store.Session, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.members == nil {
		s.members = slices.SortedFunc(maps.Values(s.sessions), func(a, b *store.Session) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	}
	list := make([]store.Session, len(s.members))
	for i, session := range s.members {
		list[i] = *session
	}
	return list, nil
}
