package engine

import (
	"fmt"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Refit updates the data of jobs derived from the server's defaults after these changed. A
// job whose schedule changes its meaning begins a new epoch.
type Refit struct{ Jobs []job.ID }

// Need requests the jobs with their unfinished runs.
func (o *Refit) Need(b *Batch, n *Need) { b.lookRefitted(n, o.Jobs) }

// lookRefitted requests jobs with the inputs of a new policy or epoch.
func (b *Batch) lookRefitted(n *Need, jobs []job.ID) {
	b.lookSessions(n)
	for _, uid := range jobs {
		if j, _ := b.lookJob(n, uid); j != nil && !j.Deleted {
			b.lookCalendars(n, j.Document)
			b.lookWhole(n, uid)
			b.lookEdit(n, j, j.Policy)
		}
	}
}

// Decide decides about each job.
func (o *Refit) Decide(b *Batch) error {
	for _, uid := range o.Jobs {
		j := b.job(uid)
		if j == nil || j.Deleted {
			continue
		}
		was := j.Document.Timing
		if err := b.retime(j); err != nil {
			return err
		}
		b.Refit(j)
		if b.saveJob(j); !SameOccurrences(was, j.Document.Timing) {
			why := WhyDefaults(was, j.Document.Timing)
			if timing, _, err := CompileTiming(was, b.calendarsOf(j.Document)); err == nil {
				timing.UID = j.UID
				b.missUnplanned(j, &timing, why)
			}
			b.Reschedule(j, j.Document.Filled, b.calendarsOf(j.Document), why)
		}
	}
	return nil
}

// retime writes the timing text of a job.
func (b *Batch) retime(j *Job) error {
	timing, err := TimingText(j.Document.Filled, b.calendarsOf(j.Document))
	if err != nil {
		return fmt.Errorf("job %s: %w", j.FullName(), err)
	}
	j.Document = j.Document.with(func(d *Document) { d.Timing = timing })
	return nil
}

// Restart begins a new epoch for jobs of a store that was restored, and then ends runs, which
// may have run elsewhere.
type Restart struct {
	Jobs   []job.ID
	Runs   []store.Run
	By     string
	Reason job.Reason
}

// Need requests the jobs, and the runs with their surroundings.
func (o *Restart) Need(b *Batch, n *Need) {
	b.lookRefitted(n, o.Jobs)
	for i := range o.Runs {
		b.lookWithAround(n, RunRef{Run: o.Runs[i].ID, Job: o.Runs[i].JobUID})
	}
}

// Decide decides about each job and run.
func (o *Restart) Decide(b *Batch) error {
	for _, uid := range o.Jobs {
		j := b.job(uid)
		if j == nil || j.Deleted {
			continue
		}
		if err := b.retime(j); err != nil {
			return err
		}
		b.Reschedule(j, j.Document.Filled, b.calendarsOf(j.Document), reason.StoreRestored.Of())
	}
	for i := range o.Runs {
		r := &o.Runs[i]
		if r.State == job.StateRunning {
			b.Finish(store.Result{
				Attempt: r.Present(), Started: r.Claimed, Ended: b.now,
				Outcome: job.OutcomeCancelled, Reason: reason.Cancelled.Of(o.By, o.Reason),
			})
		} else if !b.Settle(r.ID) {
			b.Cancel(r.ID, o.By, o.Reason)
		}
	}
	return nil
}

// Note is an audit record about the store itself.
type Note struct {
	Actor, Action, Object string
	Detail                job.Reason
}

// Need requests nothing.
func (o *Note) Need(*Batch, *Need) {}

// Decide writes it.
func (o *Note) Decide(b *Batch) error {
	b.audit(o.Actor, o.Action, o.Object, 0, o.Detail)
	return nil
}
