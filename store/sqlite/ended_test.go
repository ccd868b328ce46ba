package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

func TestEndedCountsRunsAndNotAttempts(t *testing.T) {
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Now: func() time.Time { return clock }})
	ctx, ids := t.Context(), &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	once := 1
	j, err := s.PutJob(ctx, store.PutJob{Definition: benchJob(1, job.Policy{Overlap: job.OverlapAllow, Retry: &job.Retry{Attempts: &once}})})
	if err != nil {
		t.Fatal(err)
	}
	end := func(run job.ID, number int, outcome job.Outcome) {
		t.Helper()
		a := store.Attempt{Run: run, Number: number, Token: ids.next()}
		if out, err := s.Claim(ctx, session.ID, []store.Attempt{a}); err != nil || out[0].Verdict != store.Started {
			t.Fatal(out, err)
		}
		if _, err := s.Finish(ctx, session.ID, []store.Result{{Attempt: a, Outcome: outcome}}); err != nil {
			t.Fatal(err)
		}
	}
	trigger := func() job.ID {
		t.Helper()
		id := ids.next()
		if _, err := s.Trigger(ctx, []store.TriggerItem{{ID: id, Job: j.Definition.UID, Kind: job.RunByHand, Session: session.ID}}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := trigger()
	end(first, 1, job.OutcomeFailed)
	if n := s.Ended(job.OutcomeFailed); n != 0 {
		t.Errorf("an attempt that is tried again has ended %d runs", n)
	}
	clock = clock.Add(time.Hour)
	end(first, 2, job.OutcomeFailed)
	end(trigger(), 1, job.OutcomeSucceeded)
	if _, err := s.Cancel(ctx, trigger(), "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	// A record that stands for several occurrences counts as so many.
	item := store.PlanItem{
		Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: j.Cursor.Add(10 * time.Minute),
		Missed: []store.MissedSpan{{ID: ids.next(), First: j.Cursor.Add(time.Minute), Last: j.Cursor.Add(10 * time.Minute), Count: 10}},
	}
	if out, err := s.Plan(ctx, session.ID, []store.PlanItem{item}); err != nil || out[0] != store.Planned {
		t.Fatal(out, err)
	}
	undone := errors.New("undone")
	err = s.write(context.WithoutCancel(ctx), func(t *tx) error {
		t.ended.Count([]*store.Record{{Final: true, Attempt: job.Attempt{Outcome: job.OutcomeLost}}})
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	for outcome, want := range map[job.Outcome]int64{
		job.OutcomeFailed: 1, job.OutcomeSucceeded: 1, job.OutcomeCancelled: 1, job.OutcomeMissed: 10, job.OutcomeLost: 0, job.OutcomeSkipped: 0, "unknown": 0,
	} {
		if n := s.Ended(outcome); n != want {
			t.Errorf("%d runs are %s, want %d", n, outcome, want)
		}
	}
}

// A commit that fails undoes the calls of its group, which had gone well.
func TestWhatACommitUndoesIsNotCounted(t *testing.T) {
	c := &call{ended: columns.EndCounts{1: 3}}
	g := &group{open: []*call{c}}
	g.lose(errors.New("the disk is full"))
	if c.ended != (columns.EndCounts{}) || c.err == nil {
		t.Errorf("after the commit has failed: %v, %v", c.ended, c.err)
	}
}
