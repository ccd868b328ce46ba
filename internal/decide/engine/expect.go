package engine

import (
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// expects reports whether a job has expectations.
func (p *Policy) expects() bool {
	return p.StartWithin > 0 || p.FinishWithin > 0 || p.DurationBelow > 0 || p.CPUBelow > 0 || p.MemoryBelow > 0
}

// Begun returns when the first attempt of a run started, zero if none was claimed. An early claimed
// attempt starts when it is due.
func Begun(r *store.Run) time.Time {
	if r.First.IsZero() {
		return time.Time{}
	}
	return lastOf(r.First, firstDue(r))
}

// firstDue returns when the first attempt of a run was due.
func firstDue(r *store.Run) time.Time {
	if !r.FirstDue.IsZero() {
		return r.FirstDue
	}
	return r.Due
}

// startOf returns when a claimed attempt starts; the claim may be early.
func startOf(claimed, due time.Time) time.Time {
	if due.After(claimed) {
		return due
	}
	return claimed
}

// deadline is the time limit of an expectation of an unfinished run.
type deadline struct {
	at    time.Time
	unmet job.Reason // of the alert
}

// deadlines returns the deadlines of a run in its present state.
func (p *Policy) deadlines(r *store.Run) (list []deadline) {
	if p.StartWithin > 0 && r.First.IsZero() {
		list = append(list, deadline{firstDue(r).Add(p.StartWithin), reason.NotStartedDue.Of(p.StartWithin)})
	}
	if p.FinishWithin > 0 {
		list = append(list, deadline{firstDue(r).Add(p.FinishWithin), reason.NotEndedDue.Of(p.FinishWithin)})
	}
	if p.DurationBelow > 0 && r.State == job.StateRunning {
		list = append(list, deadline{attemptBegan(r, time.Time{}).Add(p.DurationBelow), reason.AttemptLong.Of(r.Attempt, p.DurationBelow)})
	}
	return list
}

// attemptBegan returns from when the duration of an attempt counts: from its claim, or its due time if it was
// claimed early. The start of its command, which is known only at its end, may be earlier if it is
// reported.
func attemptBegan(r *store.Run, started time.Time) time.Time {
	if began := startOf(r.Claimed, r.Due); !r.Claimed.IsZero() && (started.IsZero() || began.Before(started)) {
		return began
	}
	return started
}

// nextAlert returns the earliest moment after another at which an expectation of
// a run is not met; zero for none.
func (p *Policy) nextAlert(r *store.Run, after time.Time) (next time.Time) {
	for _, d := range p.deadlines(r) {
		if d.at.After(after) && (next.IsZero() || d.at.Before(next)) {
			next = d.at
		}
	}
	return next
}

// setAlert updates the next alert of a changed run. Expectations missed before AlertAt, or before
// now if it is zero, were reported.
func (b *Batch) setAlert(m *member) {
	p := b.jobOf(&m.Run).Policy
	if !p.expects() {
		m.AlertAt = time.Time{}
		return
	}
	after := b.now
	switch {
	case m.isNew:
		after = time.Time{}
	case !m.AlertAt.IsZero() && !m.AlertAt.After(b.now):
		after = m.AlertAt.Add(-1)
	}
	m.AlertAt = p.nextAlert(&m.Run, after)
}

// Alert describes the missed expectations of a run, and records that they were reported: each is
// returned once. It needs the run and its job.
func (b *Batch) Alert(id job.ID) (unmet []job.Reason) {
	m := b.run(id)
	if m == nil || m.removed || m.AlertAt.IsZero() || m.AlertAt.After(b.now) {
		return nil
	}
	j := b.jobOf(&m.Run)
	for _, d := range j.Policy.deadlines(&m.Run) {
		if !d.at.Before(m.AlertAt) && !d.at.After(b.now) {
			unmet = append(unmet, d.unmet)
		}
	}
	m.AlertAt = j.Policy.nextAlert(&m.Run, b.now)
	b.save(m)
	if _, yes := withdrawn(j, &m.Run); yes {
		return nil // Settle will end it
	}
	return unmet
}

// unmet describes the expectations that an attempt has missed, and its run too if final is set; the
// zero value for none. Withdrawn runs have no expectations.
func (p *Policy) unmet(r *store.Run, a *job.Attempt, final bool) (all job.Reason) {
	if !p.expects() || a.Outcome == job.OutcomeWithdrawn {
		return all
	}
	also := func(r job.Reason) {
		if all.IsZero() {
			all = r
		} else {
			all = reason.Both.Of(all, r)
		}
	}
	due := firstDue(r)
	if p.StartWithin > 0 && (final || a.Number == 1) {
		switch {
		case a.Number != 1 && r.First.IsZero():
			if a.Ended.Sub(due) > p.StartWithin {
				also(reason.NeverStarted.Of(p.StartWithin))
			}
		default:
			started := startOf(r.First, due)
			if a.Number == 1 {
				started = a.Started
			}
			if late := started.Sub(due); late > p.StartWithin {
				also(reason.StartedLate.Of(roundedUp(late), p.StartWithin))
			}
		}
	}
	if late := a.Ended.Sub(due); p.FinishWithin > 0 && final && late > p.FinishWithin {
		also(reason.EndedLate.Of(roundedUp(late), p.FinishWithin))
	}
	if took := a.Ended.Sub(attemptBegan(r, a.Started)); p.DurationBelow > 0 && a.Number > 0 && took >= p.DurationBelow {
		also(reason.TookLong.Of(a.Number, roundedUp(took), p.DurationBelow))
	}
	overMemory, overCPU := a.Usage.Over(p.MemoryBelow, p.CPUBelow)
	if overMemory {
		also(reason.UsedMemory.Of(a.Number, job.Size(a.Usage.MemoryBytes).RoundedAs(p.MemoryBelow), p.MemoryBelow.RoundedAs(p.MemoryBelow)))
	}
	if overCPU {
		also(reason.UsedCPU.Of(a.Number, roundedUp(a.Usage.CPU()), p.CPUBelow))
	}
	return all
}

// roundedUp rounds a duration up to milliseconds, so that a duration above a limit does not look
// equal to it.
func roundedUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
