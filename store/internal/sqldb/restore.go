package sqldb

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// Restored is the result of GoOnFromNow.
type Restored struct {
	Jobs int
	// Ended counts the runs that were planned or running in the backup, and will not run here.
	Ended int
	// Changed is the time of the latest change in the backup, as far as runs and jobs record it.
	Changed time.Time
}

const (
	restoreActor = "restore"
	// restoreNumbers is how many numbers of handovers are skipped: more than were reserved since
	// the backup, so that no late result is taken for another attempt.
	restoreNumbers = 10_000_000
)

// GoOnFromNow ends what was planned or running in a store that was restored from a backup,
// and lets all jobs continue from now.
func (s *Store) GoOnFromNow(ctx context.Context) (r Restored, err error) {
	var runs []store.Run
	var jobs []job.ID
	err = s.b.read(ctx, func(t *tx) (err error) {
		t.Whole()
		if runs, err = t.runs("select " + activeColumns + " from active a order by a.due, a.id"); err != nil {
			return err
		}
		if jobs, err = t.ids("select uid from job_state where deleted = 0 and state <> ? order by uid", columns.JobStates.Of(job.JobCompleted)); err != nil {
			return err
		}
		all, err := t.number("select count(*) from job_state where deleted = 0")
		if err != nil {
			return err
		}
		ended, err := t.number("select coalesce(max(ended), 0) from history")
		if err != nil {
			return err
		}
		written, err := t.number("select coalesce(max(written), 0) from audit")
		r = Restored{Jobs: int(all), Ended: len(runs), Changed: columns.FromNanos(max(ended, written))}
		return err
	})
	if err != nil {
		return r, err
	}
	// The new epochs come first: runs that end then start nothing after them, and future
	// occurrences are planned again.
	for batch := range slices.Chunk(jobs, store.MaxBatch) {
		if err := s.restart(ctx, len(batch), engine.Restart{Jobs: batch}); err != nil {
			return r, err
		}
	}
	for batch := range slices.Chunk(runs, store.MaxBatch) {
		if err := s.restart(ctx, len(batch), engine.Restart{Runs: batch, By: restoreActor, Reason: reason.RestoredRun.Of()}); err != nil {
			return r, err
		}
	}
	err = s.b.write(ctx, func(t *tx) error {
		if err := t.exec("update counters set value = value + ? where name = ?", int64(restoreNumbers), handoversCounter); err != nil {
			return err
		}
		return t.exec("delete from sessions")
	})
	if err != nil {
		return r, err
	}
	note := engine.Note{Actor: restoreActor, Action: "store.restore", Object: "store", Detail: reason.RunsEnded.Of(r.Ended)}
	return r, s.Do(ctx, ledger.Order{Items: 1}, &note)
}

func (s *Store) restart(ctx context.Context, items int, op engine.Restart) error {
	return s.Do(ctx, ledger.Order{Items: items}, &op)
}
