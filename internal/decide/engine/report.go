package engine

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// External work is planned like all work, so that each occurrence is accounted for. Its runs wait
// for a report instead of a slot, and nodes do not see them.

// reportEarly is how long before an occurrence is due its report may come: the clock of the
// reporting machine may be ahead.
const reportEarly = 10 * time.Second

// isReportedStart reports whether the start of a run was reported: its end is awaited then.
func isReportedStart(j *Job, m *member) bool { return j.Policy.Reported && !m.First.IsZero() }

// unreported reports whether it is too late for a report of a run.
func (b *Batch) unreported(r *store.Run) (outcome job.Outcome, why job.Reason, yes bool) {
	switch {
	case r.LateAfter.IsZero() || !b.now.After(r.LateAfter):
		return "", why, false
	case r.First.IsZero():
		return job.OutcomeMissed, reason.NoReportUntil.Of(r.LateAfter, r.LateAfter.Sub(r.Due)), true
	}
	return job.OutcomeTimedOut, reason.NoEndReported.Of(r.First, r.LateAfter), true
}

// Report records the start or the end of external work: see [store.Working].
type Report struct {
	store.Report
	Outcome store.ReportOutcome
}

func (o *Report) identity() Identity { return Identity{o.Job, job.RunByHand, o.Key, 0} }

// Need requests the job with its unfinished runs, and the key of the report.
func (o *Report) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	j, _ := b.lookJob(n, o.Job)
	if j == nil {
		return
	}
	b.lookFollowed(n, j)
	if b.lookWhole(n, o.Job) {
		for _, m := range b.byJob[o.Job] {
			b.lookAround(n, m, "")
		}
	}
	if id := o.identity(); o.Key != "" && !b.facts.keys[id] {
		ask(&n.asked.keys, &n.Keys, id, id)
	}
}

// Decide finds or creates the run of the report, and starts or ends it.
//
// Accounted: a report without a waiting occurrence creates a run.
func (o *Report) Decide(b *Batch) error {
	o.Outcome = store.ReportOutcome{}
	j := b.job(o.Job)
	if j == nil || j.Deleted {
		return fmt.Errorf("report on job %s: %w", o.Job, store.ErrNotFound)
	}
	if !j.Policy.Reported {
		return fmt.Errorf("report on job %s: it has no run.external: %w", j.FullName(), store.ErrConflict)
	}
	if o.Key != "" {
		if run := b.key(o.identity()); !run.IsZero() {
			o.Outcome.Run = run // it came before
			if m := b.reported(j, run); m != nil {
				o.Outcome.Until = m.LateAfter
			}
			return nil
		}
	}
	at := o.At
	if at.IsZero() || at.After(b.now) {
		at = b.now
	}
	switch {
	case o.Starts && !o.Run.IsZero():
		o.renew(b, j)
		return nil
	case o.Starts:
		return o.start(b, j, at)
	}
	var m *member
	if o.Result.Outcome != job.OutcomeSkipped { // a second start is skipped while the first one runs
		m = b.reported(j, o.Run)
	}
	if m == nil && o.Run.IsZero() {
		m = b.awaited(j, at)
	}
	if m == nil {
		m = o.own(b, j, at)
	}
	o.keep(b, m)
	res := o.Result
	res.Attempt = m.Present()
	if res.Started.IsZero() {
		res.Started = m.First
	}
	if res.Started.IsZero() || res.Started.After(at) {
		res.Started = at
	}
	res.Ended = at
	m.First = res.Started
	o.Outcome.Attempt = m.Attempt
	for _, chunk := range o.Result.Output {
		chunk.Run, chunk.Attempt = m.ID, m.Attempt
		b.done.Output = append(b.done.Output, chunk)
	}
	b.finish(m, res)
	return nil
}

// start records the start of work.
func (o *Report) start(b *Batch, j *Job, at time.Time) error {
	if running := b.reported(j, job.ID{}); running != nil && o.Lock {
		return fmt.Errorf("start of job %s: run %s has not ended: %w", j.FullName(), running.ID, store.ErrExists)
	}
	m := b.awaited(j, at)
	if m == nil {
		m = o.own(b, j, at)
	}
	o.keep(b, m)
	m.First, m.Claimed = at, at
	m.Reason = reason.StartReported.Of(at)
	b.raiseFloor(j, &m.Run)
	o.await(b, j, m)
	return nil
}

// renew postpones the expected end of a run whose work is still running. A finished run
// stays finished.
func (o *Report) renew(b *Batch, j *Job) {
	o.Outcome.Run = o.Run
	if m := b.reported(j, o.Run); m != nil {
		o.await(b, j, m)
	}
}

// await expects the end of a run within the grace from now on. The report of its start may
// have been delayed, so the grace does not begin at the start.
func (o *Report) await(b *Batch, j *Job, m *member) {
	m.LateAfter = b.now.Add(max(j.Policy.Grace, lateGrace))
	o.Outcome.Until = m.LateAfter
	b.save(m)
}

// keep records the run of a report, so that a repeated report is recognized.
func (o *Report) keep(b *Batch, m *member) {
	o.Outcome.Run = m.ID
	if o.Key != "" {
		b.done.Keys = append(b.done.Keys, Key{o.identity(), m.ID, b.now.Add(store.KeyLife)})
	}
}

// reported returns a run whose start was reported: the named one, or the latest of the job.
func (b *Batch) reported(j *Job, run job.ID) (latest *member) {
	for _, m := range b.unfinished(j.UID) {
		if m.removed || m.First.IsZero() || m.State != job.StateWaiting {
			continue
		}
		if m.ID == run {
			return m
		}
		if !run.IsZero() {
			continue
		}
		if latest == nil || m.First.After(latest.First) {
			latest = m
		}
	}
	return latest
}

// awaited returns the run for a report at a moment: the latest due one, so that a missing report
// misses its own occurrence, or one that is due in a moment.
func (b *Batch) awaited(j *Job, at time.Time) (latest *member) {
	var early *member
	for _, m := range b.unfinished(j.UID) {
		if m.removed || m.State != job.StateWaiting || !m.First.IsZero() || m.Due.After(at.Add(reportEarly)) || isTooLate(m, at) {
			continue
		}
		if _, yes := withdrawn(j, &m.Run); yes {
			continue
		}
		switch {
		case m.Due.After(at):
			if early == nil || before(&m.Run, &early.Run) {
				early = m
			}
		case latest == nil || before(&latest.Run, &m.Run):
			latest = m
		}
	}
	if latest == nil {
		return early
	}
	return latest
}

// isTooLate reports whether work was later than its run waits. A report that was delayed on
// its way is not.
func isTooLate(m *member, at time.Time) bool {
	return !m.LateAfter.IsZero() && at.After(m.LateAfter)
}

// own creates a run for a report without a waiting occurrence.
func (o *Report) own(b *Batch, j *Job, at time.Time) *member {
	key := o.Key
	if key == "" {
		key = o.ID.String()
	}
	r := b.newRun(j, o.ID, job.RunByHand, key)
	r.State, r.Due, r.Scheduled = job.StateWaiting, at, at
	r.Slot = j.Policy.SlotKey(&r.Run, "")
	b.makeRun(r)
	return b.runs[r.ID]
}
