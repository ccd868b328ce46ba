package engine

import (
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// Past returns the scheduled times for a backfill from one moment on and before another,
// and their number. Both are bounded by the given limits.
func (t *Timing) Past(from, to time.Time, listed, counted int) (list []time.Time, count int) {
	for scheduled := range cron.Between(t.Schedule, from.Add(-1), to.Add(-1)) {
		if count++; count <= listed {
			list = append(list, scheduled)
		}
		if count >= counted {
			break
		}
	}
	return list, count
}

// backfillAudit counts a step's backfill of one job.
type backfillAudit struct {
	audit       int // index of its record in the step
	runs        int
	first, last time.Time
}

// auditBackfill writes one record for all backfill runs of a job in a step: a record for
// each would flood the audit.
func (b *Batch) auditBackfill(actor string, j *Job, scheduled time.Time) {
	of := b.backfilled[j.UID]
	if of == nil || b.done.Audit[of.audit].Actor != actor {
		if b.backfilled == nil {
			b.backfilled = map[job.ID]*backfillAudit{}
		}
		of = &backfillAudit{audit: len(b.done.Audit), first: scheduled, last: scheduled}
		b.backfilled[j.UID] = of
		b.audit(actor, "run.backfill", j.FullName(), j.Version, job.Reason{})
	}
	of.runs++
	if scheduled.Before(of.first) {
		of.first = scheduled
	}
	if scheduled.After(of.last) {
		of.last = scheduled
	}
	b.done.Audit[of.audit].Detail = reason.RunsBackfill.Of(of.runs, of.first, of.last)
}
