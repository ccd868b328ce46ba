package sqlite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// An upgraded store of version 7 keeps all its data.
func TestStoreOfVersion7IsUpgraded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	data, err := os.ReadFile("testdata/version7.sql")
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(path, true, "")
	if err != nil {
		t.Fatal(err)
	}
	list, err := scripts()
	if err == nil {
		err = migrate(c, path, list[:7], time.Now())
	}
	if err == nil {
		err = c.exec(string(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}

	now := time.Date(2026, 11, 20, 12, 0, 5, 0, time.UTC)
	s := openStore(t, path, Options{Now: func() time.Time { return now }})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Jobs, with their state and the planner's data.
	daily, err := store.JobNamed(ctx, s, "default", "daily")
	must(err)
	changed, _, err := s.JobsChanged(ctx, store.AllPartitions, 0, 10)
	must(err)
	if len(changed) != 4 || changed[0].UID != daily.Definition.UID || !changed[0].Active || changed[0].Cursor.Second() != 3 || changed[0].Timing == "" || !changed[3].Deleted {
		t.Errorf("changed jobs: %+v", changed)
	}
	paused, err := store.JobNamed(ctx, s, "default", "paused")
	must(err)
	if st := paused.Definition.Status; st.State != job.JobPaused || st.PausedBy != "ann" || st.PauseReason != "holiday" {
		t.Errorf("the paused job: %+v", st)
	}
	// Runs, and the history with exit codes or none.
	runs, err := s.ListActive(ctx, store.ActiveQuery{Limit: 10})
	must(err)
	if len(runs) != 3 || runs[0].Slot != runs[0].JobUID.String() {
		t.Errorf("unfinished runs: %+v", runs)
	}
	records, _, err := s.Attempts(ctx, store.HistoryQuery{Limit: 10})
	must(err)
	codes := 0
	for _, r := range records {
		if c := r.Attempt.ExitCode; c != nil {
			codes += *c
		}
	}
	if len(records) != 3 || codes != 3 {
		t.Errorf("history: %+v", records)
	}
	failures := 0
	for _, r := range records {
		if r.HasFailed() {
			failures++
		}
	}
	if failed, _, err := s.Attempts(ctx, store.HistoryQuery{Failed: true, Limit: 10}); err != nil || failures == 0 || len(failed) != failures {
		t.Errorf("failures: %+v, %v, want %d", failed, err, failures)
	}
	if output, err := s.Output(ctx, records[0].Run.ID, 1, 0, 10); err != nil || len(output) != 1 || string(output[0].Data) != "hello" {
		t.Errorf("output: %v, %v", output, err)
	}
	if list, err := s.Tokens(ctx); err != nil || len(list) != 1 || list[0].By != "ann" {
		t.Errorf("tokens: %v, %v", list, err)
	}
	if list, err := s.Documents(ctx, job.KindPool); err != nil || len(list) != 1 || list[0].Pool.Slots.Size != 2 {
		t.Errorf("pools: %v, %v", list, err)
	}
	if list, err := s.Documents(ctx, job.KindCalendar); err != nil || len(list) != 1 {
		t.Errorf("calendars: %v, %v", list, err)
	}
	sessions, err := s.Sessions(ctx)
	must(err)
	if len(sessions) != 1 || sessions[0].Node != "a" || sessions[0].Drain == nil {
		t.Errorf("sessions: %+v", sessions)
	}
	// New writes continue the old numbers: of changes, of the audit, of runs and keys.
	_, err = store.PutOne(ctx, s, store.PutJob{Definition: &job.Job{
		Name: "new", Schedule: job.Schedule{Every: job.Duration(time.Minute)}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}, Actor: "ann"})
	must(err)
	if audit, _, err := s.Audit(ctx, store.AuditQuery{Limit: 20}); err != nil || len(audit) != 10 || audit[0].Seq != 10 {
		t.Errorf("audit: %+v, %v", audit, err)
	}
	if later, _, err := s.JobsChanged(ctx, store.AllPartitions, 5, 10); err != nil || len(later) != 1 {
		t.Errorf("changed jobs behind the last of before: %+v, %v", later, err)
	}
	again, err := s.Trigger(ctx, []store.TriggerItem{{ID: job.ID{1}, Job: daily.Definition.UID, Kind: job.RunByHand, Key: "once", Due: now}})
	must(err)
	if again[0].Made {
		t.Errorf("the run by hand with the same key: %+v", again)
	}
	joined, err := s.Join(ctx, store.Session{ID: job.ID{9}, Node: "c", Machine: "m2", DataDir: "d", Capacity: 1})
	must(err)
	a := store.Attempt{Run: runs[2].ID, Number: 1, Token: job.ID{2}}
	claimed, err := s.Claim(ctx, joined.ID, []store.Attempt{a})
	must(err)
	if claimed[0].Verdict != store.Started {
		t.Errorf("a claim of what was planned before: %+v", claimed)
	}
	// The history of a deleted job keeps its name until it expires.
	for range 5 {
		_, err = s.Expire(ctx, store.Retention{For: time.Nanosecond})
		must(err)
	}
	if left, _, err := s.Attempts(ctx, store.HistoryQuery{Limit: 10}); err != nil || len(left) != 0 {
		t.Errorf("history that has expired: %+v, %v", left, err)
	}
}
