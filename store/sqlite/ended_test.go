package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestEachEndIsPublishedOnceAfterItsCommit(t *testing.T) {
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ended := map[job.Outcome]int{}
	attempts, pauses := 0, ""
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Now: func() time.Time { return clock }, Ended: func(e store.Ends) {
		for _, r := range e.Records {
			if attempts++; r.Final {
				ended[r.Attempt.Outcome] += r.Count
			}
		}
		for _, a := range e.Paused {
			pauses += a.Object + ": " + a.Detail.String()
		}
	}})
	ctx, ids := t.Context(), &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	once, twice := 1, 2
	j, err := store.PutOne(ctx, s, store.PutJob{Definition: benchJob(1, job.Policy{Overlap: job.OverlapAllow, Retry: &job.Retry{Attempts: &once}, PauseOnFailure: &twice})})
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
	if n := ended[job.OutcomeFailed]; n != 0 || attempts != 1 {
		t.Errorf("an attempt that is tried again has ended %d runs and %d attempts", n, attempts)
	}
	clock = clock.Add(time.Hour)
	end(first, 2, job.OutcomeFailed)
	end(trigger(), 1, job.OutcomeSucceeded)
	if _, err := s.Cancel(ctx, trigger(), "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	// A record for several occurrences counts once for each.
	item := store.PlanItem{
		Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: j.Cursor.Add(10 * time.Minute),
		Missed: []store.MissedSpan{{ID: ids.next(), First: j.Cursor.Add(time.Minute), Last: j.Cursor.Add(10 * time.Minute), Count: 10}},
	}
	if out, _, err := s.Plan(ctx, session.ID, []store.PlanItem{item}); err != nil || out[0] != store.Planned {
		t.Fatal(out, err)
	}
	if pauses != "" {
		t.Errorf("paused after one failed run: %s", pauses)
	}
	for range 2 {
		last := trigger()
		end(last, 1, job.OutcomeFailed)
		clock = clock.Add(time.Hour)
		end(last, 2, job.OutcomeFailed)
	}
	if !strings.HasPrefix(pauses, "default/") || strings.Count(pauses, "failed in a row") != 1 {
		t.Errorf("after two failed runs in a row paused is %q", pauses)
	}
	for outcome, want := range map[job.Outcome]int{
		job.OutcomeFailed: 3, job.OutcomeSucceeded: 1, job.OutcomeCancelled: 1, job.OutcomeMissed: 10, job.OutcomeLost: 0, job.OutcomeSkipped: 0,
	} {
		if n := ended[outcome]; n != want {
			t.Errorf("%d runs are %s, want %d", n, outcome, want)
		}
	}
}

// A rolled back transaction also undoes the successful calls of its group.
func TestRolledBackEndsAreNotPublished(t *testing.T) {
	count := 0
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Ended: func(store.Ends) { count++ }})
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: benchJob(1, job.Policy{})})
	if err != nil {
		t.Fatal(err)
	}
	run := job.ID{1}
	if out, err := s.Trigger(t.Context(), []store.TriggerItem{{ID: run, Job: j.Definition.UID, Kind: job.RunByHand}}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	undone(t, s, func() error {
		_, err := s.Cancel(t.Context(), run, "ann", "enough")
		return err
	})
	if count != 0 {
		t.Error("an undone end was published")
	}
	if _, err := s.Cancel(t.Context(), run, "ann", "enough"); err != nil || count != 1 {
		t.Errorf("the same call again: %v, told %d times", err, count)
	}
}
