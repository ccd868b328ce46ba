package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// Members implements ledger.Backend.
func (s *backend) Members(ctx context.Context) ([]ledger.Member, error) {
	return locked(ctx, s, func() []ledger.Member {
		if s.members == nil {
			s.members = make([]ledger.Member, 0, len(s.sessions))
			for _, id := range slices.SortedFunc(maps.Keys(s.sessions), func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) }) {
				s.members = append(s.members, ledger.Member{Session: *s.sessions[id], Over: s.over[id]})
			}
		}
		return s.members
	})
}

// Ready implements ledger.Backend.
func (s *backend) Ready(ctx context.Context, q store.ReadyQuery) ([]store.ReadyRun, error) {
	return locked(ctx, s, func() []store.ReadyRun { return s.runs.index.Ready(&q) })
}

// ListActive implements ledger.Backend.
func (s *backend) ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error) {
	return locked(ctx, s, func() []store.Run {
		of := s.runs.byJob[q.Job]
		if r := s.runs.byID[q.Run]; r != nil {
			of = []*store.Run{r}
		}
		return s.runs.index.Active(&q, of)
	})
}

// Backlog implements ledger.Backend.
func (s *backend) Backlog(ctx context.Context, now time.Time, limit int) (map[job.ID]int, error) {
	return locked(ctx, s, func() map[job.ID]int { return s.runs.index.Backlog(now, limit) })
}

// Alarms implements ledger.Backend.
func (s *backend) Alarms(ctx context.Context, now time.Time, limit int) ([]engine.RunRef, error) {
	return locked(ctx, s, func() []engine.RunRef {
		var late []*store.Run
		for _, r := range s.runs.alarms {
			if !r.AlertAt.After(now) {
				late = append(late, r)
			}
		}
		late = inOrder(late)
		return runRefs(late[:min(limit, len(late))])
	})
}

// Ending implements ledger.Backend: everything at once.
func (s *backend) Ending(ctx context.Context, now time.Time) (ledger.Ending, error) {
	return locked(ctx, s, func() (e ledger.Ending) {
		e.Runs = runRefs(s.mayEnd(now))
		for _, name := range sortedKeys(s.names) {
			row := s.names[name]
			if at := row.RemoveAt(); !row.PausedUntil.IsZero() && !row.PausedUntil.After(now) || !at.IsZero() && !at.After(now) {
				e.Jobs = append(e.Jobs, row.UID)
			}
		}
		return e
	})
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
	for _, r := range s.runs.index.Due(now) {
		row, ok := s.jobs[r.JobUID]
		gone := ok && row.Policy.Broadcast && now.Sub(r.Due) > row.Policy.LostAfter // its node may be
		if gone || !r.LateAfter.IsZero() && now.After(r.LateAfter) {
			add(r)
		}
	}
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
		if row.Deleted && now.Sub(row.Changed) > store.TombstoneLife && len(s.runs.byJob[uid]) == 0 {
			delete(s.jobs, uid)
		}
	}
	for _, id := range forgotten {
		if s.runs.index.Running(id) == nil {
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
