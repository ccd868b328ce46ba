package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// clocksApart is how far the clocks of nodes may differ where they keep the store's time, as on etcd.
const clocksApart = time.Second

// neverStarted reports whether an attempt whose process is dead certainly did not start: no attempt starts
// before it is due by the clock of its node. Of an attempt that was due before, only the node could know.
func (b *Batch) neverStarted(m *member) bool {
	return b.now.Add(clocksApart).Before(m.Due) && !isHandedOver(&m.Run)
}

// Release decides about attempts that were claimed and certainly not started: they become ready
// again, or end if they were cancelled or withdrawn meanwhile. It begins with the last scheduled
// one, which was the last to raise the floor. Without a session they were handed over: a node that
// releases unknown claims must not release an attempt just handed over. A flow in progress has no claim
// to release.
func (b *Batch) Release(session job.ID, attempts []store.Attempt) {
	scheduled := func(a store.Attempt) (at time.Time) {
		if m := b.run(a.Run); m != nil {
			at = m.Scheduled
		}
		return at
	}
	for _, a := range slices.SortedStableFunc(slices.Values(attempts), func(a, c store.Attempt) int { return scheduled(c).Compare(scheduled(a)) }) {
		if m := b.run(a.Run); m != nil && isHandedOver(&m.Run) == session.IsZero() && !isFlow(&m.Run) {
			b.release(a)
		}
	}
}

func (b *Batch) release(a store.Attempt) {
	m := b.run(a.Run)
	if m == nil || m.removed || !runs(m, a) {
		return
	}
	j := b.jobOf(&m.Run)
	b.restoreFloor(j, m)
	if m.Attempt == 1 {
		m.First = time.Time{}
	}
	if why, yes := withdrawn(j, &m.Run); yes {
		b.conclude(m, job.OutcomeWithdrawn, why)
		b.uncountReleased(j, &m.Run)
		return
	}
	if m.CancelBy != "" {
		b.conclude(m, job.OutcomeCancelled, reason.Cancelled.Of(m.CancelBy, m.CancelReason))
		return
	}
	m.State, m.Token, m.Claimed, m.LostAfter, m.Unfenced = job.StateReady, job.ID{}, time.Time{}, 0, false
	if s := b.session(m.Session); s == nil || !s.Takes() {
		b.unassign(m, j)
	}
	b.save(m)
	b.done.Hints |= store.HintRuns
}

// Cancel decides about the cancel of a run: it ends at once unless it is running: then its node
// must end it. It returns the resulting run, and false if it is unknown. For a finished run the
// store adds its records.
func (b *Batch) Cancel(id job.ID, by string, why job.Reason) (store.Run, bool) {
	m := b.run(id)
	if m == nil || m.removed {
		for key, record := range b.recordsOf(id) {
			if key.run == id && (record.Final || isStep(&record.Run)) {
				return store.Run{Run: record.Run}, true
			}
		}
		return store.Run{}, false
	}
	if m.State != job.StateRunning {
		b.conclude(m, job.OutcomeCancelled, reason.Cancelled.Of(by, why))
	} else if m.CancelBy == "" {
		b.endRunning(m, by, why)
	} else if isFlow(&m.Run) && !b.flowOf(m).Abandoned {
		b.stopFlow(m, job.OutcomeCancelled, reason.Cancelled.Of(by, why), true)
	} else {
		return m.Run, true // it was cancelled before
	}
	b.audit(by, "run.cancel", m.Namespace+"/"+m.Name, 0, reason.RunCancelled.Of(id, why))
	return m.Run, true
}

// endRunning asks the node of a run to end it. A flow ends its running steps.
func (b *Batch) endRunning(m *member, by string, why job.Reason) {
	m.CancelBy, m.CancelReason = by, why
	b.save(m)
	if isFlow(&m.Run) {
		b.stopFlow(m, job.OutcomeCancelled, reason.Cancelled.Of(by, why), false)
		return
	}
	b.askNow(m)
	b.done.Hints |= store.HintCancels | store.HintAbout(m.ID)
}

// Settle ends a ready or waiting run that will never start, and reports whether it did: it is
// withdrawn or too late, or its node is gone.
func (b *Batch) Settle(id job.ID) bool {
	m := b.run(id)
	if m == nil || m.removed || m.State == job.StateRunning {
		return false
	}
	j := b.jobOf(&m.Run)
	if why, yes := withdrawn(j, &m.Run); yes {
		b.conclude(m, job.OutcomeWithdrawn, why)
		return true
	}
	if outcome, why, yes := b.expired(j, &m.Run, nil); yes {
		if outcome == job.OutcomeTimedOut {
			b.finish(m, store.Result{Attempt: m.Present(), Started: m.First, Outcome: outcome, Reason: why})
		} else {
			b.conclude(m, outcome, why)
		}
		return true
	}
	if j.Policy.Broadcast && m.Node != "" && b.silence(m.Node, m.Due) > j.Policy.LostAfter {
		b.conclude(m, cmp.Or(m.Last, job.OutcomeMissed), reason.NodeGone.Of(m.Node))
		return true
	}
	return false
}

// silence returns for how long a node has been silent, at most since a moment before
// which it was not needed.
func (b *Batch) silence(node string, since time.Time) time.Duration {
	for _, s := range b.allSessions() {
		if s.Node == node && s.Renewed.After(since) {
			since = s.Renewed
		}
	}
	return Silence(b.now, since, maps.Values(b.sessions))
}

// Reap ends a running attempt that is lost, or that belongs to a predecessor of the
// reaper, and reports whether it did. The attempt's session is then over. What a predecessor never
// started is released.
func (b *Batch) Reap(reaper *store.Session, a store.Attempt) bool {
	m := b.run(a.Run)
	if m == nil || m.removed || !runs(m, a) || isHandedOver(&m.Run) || isFlow(&m.Run) {
		return false
	}
	session := b.session(m.Session)
	why, restarted := reason.NodeRestarted.Of(m.Node), slices.Contains(reaper.Predecessors, m.Session)
	if !restarted {
		if !IsLost(b.now, LostAfter(&m.Run, b.jobOf(&m.Run).Policy.LostAfter), session, maps.Values(b.sessions)) {
			return false
		}
		why = reason.NodeLeft.Of(m.Node)
		if session != nil {
			why = reason.NodeSilent.Of(m.Node, Silence(b.now, session.Renewed, maps.Values(b.sessions)).Truncate(time.Second))
			if m.Due.After(session.Renewed) {
				why = reason.StartUnknown.Of(why)
			}
		}
	}
	if !slices.Contains(b.done.Reaped, m.Session) {
		b.done.Reaped = append(b.done.Reaped, m.Session)
	}
	if restarted && b.neverStarted(m) {
		b.release(a)
		return true
	}
	m.Unfenced = m.Unfenced && !restarted // a restarted node has ended it
	b.finish(m, store.Result{Attempt: a, Outcome: job.OutcomeLost, Reason: why})
	return true
}
