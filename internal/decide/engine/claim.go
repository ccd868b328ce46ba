package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Claim decides whether a session may start an attempt. Besides the common needs, the store adds
// the last record of a run that has ended. The store adds the job to an outcome that is Started.
// Each attempt starts once: only a ready run with this number starts, which ends its being ready; a
// repeated claim with the same token gets the same result.
func (b *Batch) Claim(s *store.Session, a store.Attempt) store.ClaimOutcome {
	m := b.run(a.Run)
	if m == nil || m.removed {
		return b.ended(a)
	}
	r := &m.Run
	if r.State == job.StateRunning {
		if r.Token == a.Token && r.Attempt == a.Number && r.Session == s.ID {
			return b.answer(store.Started, m)
		}
		return b.answer(store.Taken, m)
	}
	if r.Attempt != a.Number {
		return b.answer(store.Taken, m)
	}
	j := b.jobOf(r)
	if why, yes := withdrawn(j, r); yes {
		b.conclude(m, job.OutcomeWithdrawn, why)
		return b.answer(store.Gone, m)
	}
	if j.Policy.Reported { // since an edit
		r.State, r.Session, r.Node, r.Reason = job.StateWaiting, job.ID{}, "", reason.NoReport.Of()
		r.LateAfter = j.Policy.LateAfter(r.Kind, r.Due)
		b.giveUp(m)
		b.save(m)
	}
	if r.State == job.StateWaiting {
		return b.answer(store.Waiting, m)
	}
	if !b.claimable(j, m, s) {
		return b.answer(store.Taken, m)
	}
	if r.Due.Sub(b.now) > store.ClaimAhead {
		return b.answer(store.Early, m)
	}
	if b.isTimer(r) {
		if b.now.Before(r.Due) {
			return b.answer(store.Early, m)
		}
		b.ring(m)
		return b.answer(store.Taken, m)
	}
	if outcome, why, yes := b.expired(j, r, s); yes {
		b.conclude(m, outcome, why)
		return b.answer(store.Late, m)
	}
	if open, yes := b.windowOver(j, r, b.now); yes {
		return b.inWindow(j, m, &open)
	}
	held := r.HoldsSlot && (!r.First.IsZero() || r.Slot == j.Policy.SlotKey(&r.Run, s.Node))
	line, rate := b.rateOf(j.Policy, r)
	if rate == nil {
		return b.contend(j, m, s, a, held)
	}
	if out, yes := b.limited(j, m, s, line, held); yes {
		return out
	}
	hadTurn := r.HoldsSlot && r.Slot == line
	r.HoldsSlot = held
	out := b.contend(j, m, s, a, held)
	if hadTurn && out.Verdict == store.Early {
		b.moveSlot(m, line)
		r.HoldsSlot = true
	}
	b.fill(line)
	return out
}

// contend decides whether a run gets its slot, or holds it.
func (b *Batch) contend(j *Job, m *member, s *store.Session, a store.Attempt, held bool) store.ClaimOutcome {
	r := &m.Run
	if held {
		return b.take(j, m, s, a)
	}
	b.giveUp(m) // the job has another slot now
	if j.Policy.NeedsPrevious && isOccurrence(r.Kind) {
		if why, ok := b.previous(j, r); !ok {
			if b.now.Before(r.Due) {
				return b.answer(store.Early, m)
			}
			r.State, r.AwaitsPrevious, r.Reason = job.StateWaiting, true, why
			b.save(m)
			return b.answer(store.Waiting, m)
		}
	}
	if r.Kind == job.RunScheduled && r.Overlap == "" && b.unattended(j.Policy, r.Due) {
		r.Overlap = j.Policy.caughtUp()
	}
	b.moveSlot(m, j.Policy.SlotKey(&r.Run, s.Node))
	if j.Policy.overlap(r) == job.OverlapAllow {
		return b.take(j, m, s, a)
	}
	b.sweep(r.Slot)
	b.fill(r.Slot)
	free := b.free(r)
	if b.now.Before(r.Due) {
		// An early claim only takes a slot that no earlier run may need.
		if !m.redated && free > b.earlier(r) {
			return b.take(j, m, s, a)
		}
		return b.answer(store.Early, m)
	}
	if free > 0 {
		return b.take(j, m, s, a)
	}
	return b.overlaps(j, m, s, a)
}

// giveUp frees the slot of a run that has not started.
func (b *Batch) giveUp(m *member) {
	if m.HoldsSlot {
		m.HoldsSlot = false
		b.save(m)
		if b.jobOf(&m.Run).Policy.Contends(&m.Run) {
			b.fill(m.Slot)
		}
	}
}

func (b *Batch) answer(v store.Verdict, m *member) store.ClaimOutcome {
	out := store.ClaimOutcome{Verdict: v, Now: b.now, Reason: m.Reason}
	if v == store.Started {
		run := m.Run // later decisions change it
		out.Run = &run
	}
	return out
}

// ended returns the result of the claim that ended a run.
func (b *Batch) ended(a store.Attempt) store.ClaimOutcome {
	out := store.ClaimOutcome{Verdict: store.Taken, Now: b.now}
	record := b.record(a.Run, 0)
	if record == nil {
		return out
	}
	out.Reason = record.Run.Reason
	switch record.Run.Outcome {
	case job.OutcomeWithdrawn, job.OutcomeCancelled:
		out.Verdict = store.Gone
	case job.OutcomeMissed:
		out.Verdict = store.Late
	case job.OutcomeSkipped:
		out.Verdict = store.Skipped
	}
	return out
}

// claimable reports whether the session may run the job: the claiming node may have an older
// definition. A run whose node no longer matches must be placed again.
func (b *Batch) claimable(j *Job, m *member, s *store.Session) bool {
	if s.Leaving {
		return false
	}
	if isStep(&m.Run.Run) && !b.mayRunOn(m, s.Node) {
		return false
	}
	if why, ok := j.Policy.fits(s); !ok {
		if m.Session == s.ID && !j.Policy.Broadcast {
			m.Session, m.Node, m.Reason = job.ID{}, "", why
			b.save(m)
			b.done.Hints |= store.HintRuns
		}
		return false
	}
	return MayGoTo(j.Policy.Bound, m.Node, s.Node)
}

// expired reports whether it is too late for the next attempt, and the resulting outcome.
func (b *Batch) expired(j *Job, r *store.Run, s *store.Session) (outcome job.Outcome, why job.Reason, yes bool) {
	if j.Policy.Reported {
		return b.unreported(r)
	}
	if b.tooLate(r) {
		why := reason.NoNodeRan.Of()
		drained := b.drained(j.Policy)
		awaited, free := job.Reason{}, true
		if r.AwaitsPrevious && j.Policy.NeedsPrevious {
			awaited, free = b.previous(j, r)
		}
		switch {
		case !free:
			why = awaited
		case !r.Reason.IsZero() && !reason.InWindow.Is(r.Reason): // a window has closed since
			why = r.Reason
		case drained != nil:
			why = reason.NodeDrained.Of(drained.Node, drained.Drain.By, reason.Words(drained.Drain.Reason))
		case r.Node != "":
			why = reason.NodeTooSlow.Of(r.Node)
		case len(b.eligible(j.Policy)) == 0:
			if wants := reason.Wants(&job.Place{Labels: j.Policy.Labels}, j.Policy.Handler); !wants.IsZero() {
				why = reason.NoNodeHas.Of(wants)
			}
		}
		return job.OutcomeMissed, reason.CouldStart.Of(r.LateAfter, b.afterOutage(s, r, r, why)), true
	}
	if r.Kind == job.RunScheduled && r.First.IsZero() && r.Overlap == "" && b.now.After(r.Due) {
		if why, yes := SettledByMissed(j.Policy.Missed, firstDue(r), r.NextDue, b.absences()); yes {
			return job.OutcomeMissed, why, true
		}
	}
	within := j.Policy.RetryWithin
	if r.Last != "" && within > 0 && b.now.After(r.First.Add(within)) {
		return r.Last, reason.RetryLate.Of(r.Attempt, within, r.Reason), true
	}
	return "", why, false
}

// take starts an attempt in its slot.
func (b *Batch) take(j *Job, m *member, s *store.Session, a store.Attempt) store.ClaimOutcome {
	r := &m.Run
	b.spend(j, r)
	if b.toBegin(j, m) != nil {
		b.beginFlow(j, m)
		return b.answer(store.Taken, m) // its steps run instead
	}
	if isStep(&r.Run) {
		b.settleOn(m, s.Node)
	}
	r.State, r.Token, r.Session, r.Node = job.StateRunning, a.Token, s.ID, s.Node
	r.HoldsSlot, r.Version, r.Claimed, r.Reason, r.Last = true, j.Version, b.now, job.Reason{}, ""
	r.LostAfter, r.Unfenced = j.Policy.LostAfter, !j.Policy.gains(r)
	if r.First.IsZero() {
		r.First = b.now
		b.rememberFloor(j, m)
	}
	b.save(m)
	b.raiseFloor(j, r)
	return b.answer(store.Started, m)
}

// earlier returns how many earlier runs may still need the slot of this one.
func (b *Batch) earlier(r *store.Run) (n int) {
	for _, m := range b.slotUntil(r) {
		if m.removed || m.HoldsSlot || m.ID == r.ID || !before(&m.Run, r) || b.tooLate(&m.Run) {
			continue
		}
		if _, yes := withdrawn(b.jobOf(&m.Run), &m.Run); !yes || b.job(m.JobUID) == nil {
			n++
		}
	}
	return n
}

// sweep ends withdrawn runs that hold a slot between two attempts, so that no run waits
// for them.
func (b *Batch) sweep(key string) {
	for _, m := range slices.Clone(b.slot(key)) {
		if m.removed || !m.HoldsSlot || m.State == job.StateRunning || b.job(m.JobUID) == nil {
			continue
		}
		if why, yes := withdrawn(b.jobOf(&m.Run), &m.Run); yes {
			b.conclude(m, job.OutcomeWithdrawn, why)
		}
	}
}

// overlaps applies the overlap policy to a due run whose slot is taken.
func (b *Batch) overlaps(j *Job, m *member, s *store.Session, a store.Attempt) store.ClaimOutcome {
	r := &m.Run
	overlap, shards := j.Policy.overlap(r), b.withShards(r)
	// A run with its own policy was bounded when it was created.
	queues := overlap == job.OverlapQueue && (r.Overlap != "" || b.queued(r.Slot) < j.Policy.QueueLimit)
	if !queues && !shards && b.awaitsReport(r, s) {
		return b.answer(store.Early, m)
	}
	holder := b.holder(r)
	busy := b.busyWith(holder, r)
	switch {
	case overlap != job.OverlapReplace && shards:
		// Shards of an occurrence do not overlap each other, but share the rest of the pool.
	case queues:
	case overlap == job.OverlapQueue:
		b.conclude(m, job.OutcomeSkipped, b.afterOutage(s, r, holder, reason.QueueFull.Of(busy, b.queued(r.Slot))))
		return b.answer(store.Skipped, m)
	case overlap == job.OverlapReplace:
		if later := b.replacedBy(m); later != nil {
			b.conclude(m, job.OutcomeSkipped, b.afterOutage(s, r, later, reason.TookPlace.Of(later.ID, later.Scheduled)))
			return b.answer(store.Skipped, m)
		}
		b.replace(m, s)
		b.fill(r.Slot) // in a pool a run of another job may have waited longer
		if b.free(r) > 0 {
			return b.take(j, m, s, a)
		}
		if holder.CancelBy != "" {
			busy = reason.BeingEnded.Of(holder.ID, holder.Scheduled, holder.Node)
		}
	default:
		b.conclude(m, job.OutcomeSkipped, b.afterOutage(s, r, holder, busy))
		return b.answer(store.Skipped, m)
	}
	r.State, r.Reason = job.StateWaiting, busy
	b.save(m)
	return b.answer(store.Waiting, m)
}

const (
	// HeardWithin is the age of the last renewal up to which the node of a running attempt proves
	// that it runs: renewals come every 2 s.
	HeardWithin = 2500 * time.Millisecond
	// reportWithin is how long other runs wait for the report of a silent or returning node: it may
	// report the end of the run in their slot. Only time in which the store was reachable counts; a
	// returning node reports within it.
	reportWithin = 5 * time.Second
	// backlogMax is how long after an outage runs that fall due are late because of it: runs
	// planned ahead, by 15 s, have started within that time.
	backlogMax = 30 * time.Second
)

// awaitsReport reports whether a run is neither skipped nor replaces another yet, since the node of a
// run in its slot may soon report the end: the node is silent or just back, as at the end of an outage
// of the store. A run that would be too late after that does not wait.
func (b *Batch) awaitsReport(r *store.Run, claimer *store.Session) bool {
	if !r.LateAfter.IsZero() && b.now.Add(store.ClaimAgain).After(r.LateAfter) {
		return false
	}
	return slices.ContainsFunc(b.slot(r.Slot), func(m *member) bool {
		if m.removed || !m.HoldsSlot || !isReported(&m.Run) || m.Session == claimer.ID {
			return false
		}
		s := b.session(m.Session)
		switch {
		case s == nil:
			return false
		case b.now.Sub(s.Renewed) > HeardWithin:
			return Silence(b.now, s.Renewed, maps.Values(b.sessions)) < reportWithin
		}
		return !s.BeforeGap.IsZero() && b.now.Sub(s.Steady) < reportWithin
	})
}

// isReported reports whether a run is running and its session reports the end.
func isReported(r *store.Run) bool {
	return r.State == job.StateRunning && !isHandedOver(r) && !isFlow(r)
}

// endUnsure returns why a run that is running may have ended without a report, none if its node was
// heard just now and has nothing to report.
func (b *Batch) endUnsure(r *store.Run) (none job.Reason) {
	if !isReported(r) {
		return none
	}
	switch s := b.session(r.Session); {
	case s == nil:
		return reason.NodeLeft.Of(r.Node)
	case b.now.Sub(s.Renewed) > HeardWithin:
		return reason.LastHeard.Of(r.Node, b.now.Sub(s.Renewed).Truncate(time.Second))
	case s.Load.Unreported > 0:
		return reason.Unaccepted.Of(r.Node)
	}
	return none
}

// busyWith explains why a run does not start while another one holds its slot. That one "was still
// running" only if its attempt began before this run was due, and its node was heard since and has
// no results to report.
func (b *Batch) busyWith(holder, r *store.Run) job.Reason {
	if why := b.endUnsure(holder); !why.IsZero() {
		return reason.EndUnreported.Of(holder.ID, holder.Scheduled, why)
	}
	switch began := lastOf(holder.Claimed, holder.Due); {
	case holder.IsPostponed() && !holder.Reason.IsZero():
		return reason.HolderWaits.Of(holder.ID, holder.Scheduled, holder.Reason)
	case holder.State != job.StateRunning && holder.First.IsZero():
		return reason.WaitedLonger.Of(holder.ID, holder.Scheduled)
	case holder.State != job.StateRunning:
		return reason.HoldsSlot.Of(holder.ID, holder.Scheduled)
	case began.After(b.now):
		return reason.AboutToStart.Of(holder.ID, holder.Scheduled, holder.Node)
	case began.After(r.Due):
		return reason.WasRunning.Of(holder.ID, holder.Scheduled, holder.Node, b.now.Sub(r.Due).Truncate(time.Millisecond))
	}
	return reason.StillRunning.Of(holder.ID, holder.Scheduled, holder.Node)
}

// afterOutage adds to the reason of a run that does not start the outage that caused it: the run fell
// due in it or, shortly after it, the run in its way did. s is the claiming node.
func (b *Batch) afterOutage(s *store.Session, r, other *store.Run, why job.Reason) job.Reason {
	for _, due := range [...]time.Time{r.Due, other.Due} {
		if a, ok := absenceAt(due, b.absences()); ok && r.Due.Before(a.To.Add(backlogMax)) {
			return reason.AfterOutage.Of(why, reasonOf(a))
		}
		if outage := unreached(s, due, due); !outage.IsZero() && r.Due.Before(s.Steady.Add(backlogMax)) {
			return reason.AfterOutage.Of(why, outage)
		}
	}
	return why
}

// holder returns the earliest due run that holds the slot of another.
func (b *Batch) holder(r *store.Run) *store.Run {
	var first *store.Run
	for _, m := range b.slot(r.Slot) {
		if !m.removed && m.HoldsSlot && (first == nil || before(&m.Run, first)) {
			first = &m.Run
		}
	}
	return first
}

// queued returns how many runs wait for a slot by their job's policy.
func (b *Batch) queued(key string) int {
	n := b.more[key]
	for _, m := range b.slot(key) {
		if b.waits(m) && m.Overlap == "" {
			n++
		}
	}
	return n
}

// replacedBy returns the run that has replaced an unclaimed run of its job: a later one that waits
// for the slot or, if runs of the job fill it, holds it.
func (b *Batch) replacedBy(m *member) *store.Run {
	var later *store.Run
	older := false // an earlier one holds the slot
	for _, o := range b.slot(m.Slot) {
		isLater := firstDue(&o.Run).After(firstDue(&m.Run))
		switch {
		case o.removed || o == m || o.JobUID != m.JobUID:
		case isLater && b.waits(o):
			return &o.Run // there is at most one
		case o.HoldsSlot && !isLater:
			older = true
		case o.HoldsSlot && (later == nil || before(&o.Run, later)):
			later = &o.Run
		}
	}
	if older {
		return nil
	}
	return later
}

// withShards reports whether another shard of the same occurrence holds the slot or waits for it:
// the shards of an occurrence share one slot of a pool.
func (b *Batch) withShards(r *store.Run) bool {
	return slices.ContainsFunc(b.slot(r.Slot), func(m *member) bool {
		return m.ID != r.ID && m.JobUID == r.JobUID && isOther(m, r) && (m.HoldsSlot || b.waits(m))
	})
}

// replace makes room for a run of a job. It skips the job's waiting run in the slot, and cancels
// the earliest due one that holds it, or ends it between two attempts, unless one is already
// ending. It spares other shards of its occurrence and other jobs in a pool.
func (b *Batch) replace(by *member, s *store.Session) {
	why := reason.TookPlace.Of(by.ID, by.Scheduled)
	var holder *member
	want, ending := 1, 0 // numbers of shards that wait for a slot, and of runs that free theirs
	for _, m := range slices.Clone(b.slot(by.Slot)) {
		switch {
		case m.removed || m == by || m.JobUID != by.JobUID:
		case isOther(m, &by.Run):
			if b.waits(m) {
				want++
			}
		case m.State == job.StateWaiting && !m.AwaitsPrevious, m.State == job.StateReady && m.HoldsSlot && m.First.IsZero():
			b.concludeKeeping(m, job.OutcomeSkipped, b.afterOutage(s, &m.Run, &by.Run, why))
		case !m.HoldsSlot:
		case m.CancelBy != "":
			ending++
		case holder == nil || before(&m.Run, &holder.Run):
			holder = m
		}
	}
	switch {
	case holder == nil || ending >= want:
	case holder.State == job.StateReady:
		b.concludeKeeping(holder, job.OutcomeCancelled, why)
	default:
		b.endRunning(holder, System, why)
	}
}

// isOccurrence reports whether runs of a kind are occurrences of their job.
func isOccurrence(k job.RunKind) bool {
	return k == job.RunScheduled || k == job.RunAfterEnd || k == job.RunOn
}

// previous reports whether the occurrence before a run has succeeded, or why the
// run must wait.
func (b *Batch) previous(j *Job, r *store.Run) (why job.Reason, ok bool) {
	var first *store.Run // the earliest one, whatever the order of adding
	for _, m := range b.unfinished(r.JobUID) {
		if m.Scheduled.Before(r.Scheduled) && precedes(j, m) && (first == nil || before(&m.Run, first)) {
			first = &m.Run
		}
	}
	if why, ok = j.awaits(r, first); !ok && first != nil {
		if unsure := b.endUnsure(first); !unsure.IsZero() {
			why = reason.EndUnreported.Of(first.ID, first.Scheduled, unsure)
		}
	}
	return why, ok
}

// precedes reports whether later occurrences wait for the end of a run. A running run counts even
// if its epoch is over.
func precedes(j *Job, m *member) bool {
	_, yes := withdrawn(j, &m.Run)
	return !m.removed && isOccurrence(m.Kind) && (!yes || m.State == job.StateRunning)
}

// awaits is previous by the first unfinished occurrence before a run, nil for none.
func (j *Job) awaits(r, first *store.Run) (why job.Reason, ok bool) {
	blocked := !j.PreviousOK && !j.Previous.IsZero() && j.Previous.Before(r.Scheduled)
	switch {
	case first != nil && !(blocked && first.AwaitsPrevious):
		return reason.NotEnded.Of(first.ID, first.Scheduled), false
	case !blocked:
		return why, true
	}
	return reason.PreviousNotOK.Of(j.Previous), false
}
