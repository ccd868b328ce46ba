// Package scan compares, all the time and with little effort, the schedules of jobs with what became of
// their occurrences, and records what is not as it must be.
package scan

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/account"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// portion is how many jobs are compared at once: some milliseconds of work.
	portion = 20
	// share bounds the processor time of comparing, as a part of one processor.
	share = 0.01
	// portionEvery and roundEvery are the least time between two portions, and between two rounds over
	// all jobs. waitMax bounds the wait after a portion on a slow store.
	portionEvery = 200 * time.Millisecond
	roundEvery   = time.Minute
	waitMax      = 10 * time.Minute
	// portionTimeout bounds a portion.
	portionTimeout = time.Minute
	// pagesMax bounds the pages of records that are read of a job: its later occurrences are compared.
	pagesMax = 3
	// knownMax bounds the jobs whose epoch is remembered: for other jobs, only occurrences after the
	// first with a run or record are compared.
	knownMax = 100_000
	// triesMax bounds how often findings are written while other nodes write, too.
	triesMax = 5
	// actor is who records findings in the audit.
	actor = engine.System
)

// Store is the part of a store that is compared.
type Store interface {
	Now(ctx context.Context) (time.Time, error)
	JobsChanged(ctx context.Context, partitions store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutAudited(ctx context.Context, n store.AuditedNote) error
}

// Scanner compares the jobs of its partitions, which nodes share by turns.
type Scanner struct {
	Store Store
	// Turn reports whether a number is the turn of this node among the live ones.
	Turn func(number int64) bool
	Log  *slog.Logger

	after int64 // the change of a job before the next portion
	known map[job.ID]epoch
}

// epoch is an epoch of a job, and when the scanner first saw it.
type epoch struct {
	number int64
	since  time.Time
}

// Run compares until the context ends.
func (s *Scanner) Run(ctx context.Context) {
	fails := failurelog.New(s.Log, "cannot compare schedules with history", "schedules are compared with history again")
	timer := time.NewTimer(roundEvery)
	defer timer.Stop()
	round := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		if s.after == 0 {
			round = began
		}
		over, err := s.Portion(ctx)
		if ctx.Err() != nil {
			return
		}
		fails.Saw(err)
		wait := max(portionEvery, time.Duration(float64(time.Since(began))*(1/share-1)))
		if took := time.Since(round); over && took > account.Look {
			s.Log.Info("a comparison of all jobs takes longer than it looks back, and some occurrences are not compared; more servers share it", "took", took.Round(time.Second), "looks_back", account.Look)
		}
		if over || err != nil {
			wait = max(wait, roundEvery)
		}
		timer.Reset(min(wait, waitMax))
	}
}

// Portion compares some jobs, and reports whether a round over all is over.
func (s *Scanner) Portion(ctx context.Context) (over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, portionTimeout)
	defer cancel()
	var mine store.Partitions
	for n := range job.Partitions {
		if s.Turn(int64(n)) {
			mine.Add(uint8(n))
		}
	}
	if mine.Len() == 0 {
		s.after = 0
		return true, nil
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	jobs, next, err := s.Store.JobsChanged(ctx, mine, s.after, portion)
	if err != nil {
		return false, err
	}
	found, err := s.compare(ctx, jobs, now)
	if err != nil {
		return false, err
	}
	if over = len(jobs) < portion; over {
		next = 0
	}
	s.after = next
	return over, s.record(ctx, found, now)
}

// compare compares some jobs.
func (s *Scanner) compare(ctx context.Context, jobs []store.PlannedJob, now time.Time) (found []account.Finding, err error) {
	var calendars job.Calendars
	for i := range jobs {
		j := &jobs[i]
		since := s.since(j)
		if !j.Active || j.Deleted {
			continue
		}
		if calendars == nil && engine.NamesCalendars(j.Timing) {
			if calendars, err = store.LookUpCalendars(ctx, s.Store); err != nil {
				return nil, err
			}
		}
		timing, _, err := engine.CompileTiming(j.Timing, calendars)
		if err != nil || !timing.Planned {
			continue // no planner plans it
		}
		b := account.Book{Job: *j, Schedule: timing.Schedule, Since: since}
		if err := s.read(ctx, &b, now); err != nil {
			return nil, err
		}
		some := b.Compare(now)
		if len(some) == 0 {
			continue
		}
		if some, err = s.confirm(ctx, &b, now); err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// since returns since when a job has certainly been planned by its epoch.
func (s *Scanner) since(j *store.PlannedJob) time.Time {
	known, ok := s.known[j.UID]
	switch {
	case !j.Active || j.Deleted:
		delete(s.known, j.UID)
		return time.Time{}
	case ok && known.number == j.Epoch:
		return known.since
	case !ok && len(s.known) >= knownMax:
		return time.Time{}
	case s.known == nil:
		s.known = map[job.ID]epoch{}
	}
	s.known[j.UID] = epoch{j.Epoch, j.Cursor}
	return j.Cursor
}

// read reads the runs of a job, then its records: a run that ends in between is in one of them.
func (s *Scanner) read(ctx context.Context, b *account.Book, now time.Time) error {
	after := store.RunRef{}
	for {
		page, err := s.Store.ListActive(ctx, store.ActiveQuery{Job: b.Job.UID, After: after, Limit: store.MaxBatch})
		if err != nil {
			return err
		}
		b.Runs = append(b.Runs, page...)
		if len(page) < store.MaxBatch || len(b.Runs) > account.OccurrencesMax {
			break
		}
		after = page[len(page)-1].Ref()
	}
	b.Whole = now.Add(-account.Look)
	q := store.HistoryQuery{Job: b.Job.UID, From: b.Whole, Kinds: []job.RunKind{job.RunScheduled}, Limit: store.LookMax}
	for range pagesMax {
		page, next, err := s.Store.Attempts(ctx, q)
		if err != nil {
			return err
		}
		b.Records = append(b.Records, page...)
		if next == (store.RecordRef{}) {
			return nil
		}
		q.Before = next
	}
	b.Whole = q.Before.Ended
	return nil
}

// confirm compares a job again with all its data, and returns the remaining findings: the job may have
// changed during the read, and expired records are not missing.
func (s *Scanner) confirm(ctx context.Context, b *account.Book, now time.Time) ([]account.Finding, error) {
	list, err := s.Store.JobsByUID(ctx, []job.ID{b.Job.UID})
	if err != nil || list[0] == nil || list[0].Deleted || list[0].Definition.Epoch != b.Job.Epoch {
		return nil, err
	}
	again := account.Book{Job: b.Job, Schedule: b.Schedule, Since: b.Since, Name: list[0].Definition.FullName()}
	if err := s.read(ctx, &again, now); err != nil {
		return nil, err
	}
	if keep := list[0].Filled.Policy.Keep; keep != nil && (keep.Runs > 0 || keep.For > 0 && time.Duration(keep.For) < account.Look) {
		again.Whole = now // unless some are kept
		for i := range again.Records {
			if ended := again.Records[i].Attempt.Ended; ended.Before(again.Whole) {
				again.Whole = ended
			}
		}
	}
	return again.Compare(now), nil
}

// record stores new findings, with a line in the log and a record in the audit each.
func (s *Scanner) record(ctx context.Context, found []account.Finding, now time.Time) error {
	for i := range found {
		for try := range triesMax {
			err := s.recordOne(ctx, &found[i], now)
			if err == nil {
				break
			}
			if !errors.Is(err, store.ErrConflict) || try == triesMax-1 {
				return err
			}
		}
	}
	return nil
}

func (s *Scanner) recordOne(ctx context.Context, f *account.Finding, now time.Time) error {
	note, err := account.NoteOf(ctx, s.Store)
	if err != nil {
		return err
	}
	known, err := account.Read(note.Text, now)
	if err != nil {
		s.Log.Warn("begins the list of findings anew", "error", err)
	}
	text, fresh, err := account.Add(known, []account.Finding{*f})
	if err != nil || len(fresh) == 0 {
		return err
	}
	note.Text = text
	err = s.Store.PutAudited(ctx, store.AuditedNote{Note: note, Audit: store.AuditRecord{Actor: actor, Action: "occurrence." + string(f.Kind), Object: f.Job, Detail: f.Reason()}})
	if err == nil {
		s.Log.Error("an occurrence is not as it must be", "kind", f.Kind, "job", f.Job, "epoch", f.Epoch, "scheduled", f.Scheduled, "evidence", f.Reason().String())
	}
	return err
}
