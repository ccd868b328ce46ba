package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// Members implements ledger.Backend.
func (s *backend) Members(ctx context.Context) ([]ledger.Member, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.members == nil {
		s.members = []ledger.Member{}
		for id, session := range s.sessions {
			s.members = append(s.members, ledger.Member{Session: *session, Over: s.over[id]})
		}
		slices.SortFunc(s.members, func(a, b ledger.Member) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	}
	return s.members, nil
}

// Ready implements ledger.Backend.
func (s *backend) Ready(ctx context.Context, q ledger.ReadyQuery) ([]store.ReadyRun, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var ready []store.ReadyRun
	s.runs.behind(q.After, func(r *store.Run) bool {
		if r.Due.After(q.Until) || len(ready) >= q.Limit {
			return false
		}
		if r.State == job.StateReady && (q.Any || r.Session == q.Session) {
			ready = append(ready, store.ReadyRun{
				RunRef: store.RunRef{Due: r.Due, ID: r.ID}, Job: r.JobUID, Session: r.Session, Attempt: r.Attempt, Priority: r.Priority,
			})
		}
		return true
	})
	return ready, nil
}

// Runs implements ledger.Backend.
func (s *backend) Runs(ctx context.Context, q ledger.RunQuery) ([]store.Run, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := s.runs.page(q.After, q.Limit, func(r *store.Run) bool {
		return (q.Run.IsZero() || r.ID == q.Run) &&
			(q.Job.IsZero() || r.JobUID == q.Job) &&
			(q.Namespace == "" || r.Namespace == q.Namespace) &&
			(q.State == "" || r.State == q.State) &&
			(len(q.Sessions) == 0 || slices.Contains(q.Sessions, r.Session) != q.Except)
	})
	return copies(list), nil
}

// Backlog implements ledger.Backend.
func (s *backend) Backlog(ctx context.Context, now time.Time, limit int) (map[job.ID]int, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	backlog := map[job.ID]int{}
	s.runs.due(now, func(r *store.Run) {
		if r.State == job.StateReady {
			backlog[r.Session] = min(limit, backlog[r.Session]+1)
		}
	})
	return backlog, nil
}

// Alarms implements ledger.Backend.
func (s *backend) Alarms(ctx context.Context, now time.Time, limit int) ([]engine.RunRef, error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var late []*store.Run
	for _, r := range s.runs.alarms {
		if !r.AlertAt.After(now) {
			late = append(late, r)
		}
	}
	late = inOrder(late)
	return runRefs(late[:min(limit, len(late))]), nil
}

// Ending implements ledger.Backend: everything at once.
func (s *backend) Ending(ctx context.Context, now time.Time) (e ledger.Ending, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return e, err
	}
	defer unlock()
	e.Runs = runRefs(s.mayEnd(now))
	for _, name := range sortedKeys(s.names) {
		row := s.names[name]
		if at := row.RemoveAt(); !row.PausedUntil.IsZero() && !row.PausedUntil.After(now) || !at.IsZero() && !at.After(now) {
			e.Jobs = append(e.Jobs, row.UID)
		}
	}
	return e, nil
}

func runRefs(list []*store.Run) (refs []engine.RunRef) {
	for _, r := range list {
		refs = append(refs, engine.RunRef{Run: r.ID, Job: r.JobUID})
	}
	return refs
}

// mayEnd returns runs that are not running and may have to be settled: those that their
// jobs no longer want, late ones, which are due, and those with earlier attempts.
func (s *backend) mayEnd(now time.Time) (list []*store.Run) {
	add := func(r *store.Run) {
		if r.State != job.StateRunning && r.Kind != job.RunStep {
			list = append(list, r)
		}
	}
	for uid := range s.suspects {
		row, ok := s.jobs[uid]
		stays := ok && (row.Deleted || row.State == job.JobPaused)
		for _, r := range s.runs.byJob[uid] {
			if !ok || row.Deleted || row.State == job.JobPaused || row.Epoch != r.Epoch {
				stays = true
				add(r)
			}
		}
		if !stays {
			delete(s.suspects, uid)
		}
	}
	s.runs.due(now, func(r *store.Run) {
		row, ok := s.jobs[r.JobUID]
		gone := ok && row.Policy.Broadcast && now.Sub(r.Due) > row.Policy.LostAfter // its node may be
		if gone || !r.LateAfter.IsZero() && now.After(r.LateAfter) {
			add(r)
		}
	})
	for _, r := range s.runs.retried {
		add(r)
	}
	return inOrder(list)
}

// Sweep implements ledger.Backend.
func (s *backend) Sweep(ctx context.Context, now time.Time, forgotten []job.ID) (more bool, err error) {
	unlock, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	s.feed.drop()
	if s.outbox != nil {
		s.outbox.forget(now)
	}
	for id, key := range s.keys {
		if !now.Before(key.Expires) {
			delete(s.keys, id)
		}
	}
	maps.DeleteFunc(s.registrations, func(_, r store.Registration) bool { return !r.Live(now) })
	maps.DeleteFunc(s.handovers, func(_ int64, h *store.Handover) bool {
		return h.IsOver() && now.Sub(h.Ended) > store.HandoverLife
	})
	for uid, row := range s.jobs {
		if row.Deleted && now.Sub(row.Changed) > store.TombstoneLife && s.runs.first(func(r *store.Run) bool { return r.JobUID == uid }) == nil {
			delete(s.jobs, uid)
		}
	}
	for _, id := range forgotten {
		if s.runs.first(func(r *store.Run) bool { return r.State == job.StateRunning && r.Session == id }) == nil {
			s.removeSession(id)
		}
	}
	return false, nil
}

func (s *backend) removeSession(id job.ID) {
	delete(s.sessions, id)
	delete(s.over, id)
	s.members = nil
}
