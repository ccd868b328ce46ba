package storetest

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// UpgradedAt is a moment at which the fixtures of stores of earlier versions continue.
var UpgradedAt = time.Date(2026, 11, 20, 12, 0, 5, 0, time.UTC)

// Upgraded checks that a store made from the fixture of an earlier version, at [UpgradedAt], has all
// its data and works. Each release line leaves a fixture in testdata of each store, with the same
// jobs and runs.
func Upgraded(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	daily, err := store.JobNamed(ctx, s, "default", "daily")
	must(err)
	if daily.Definition.Labels["team"] != "a" || daily.Cursor.Second() != 3 || daily.Definition.Version != 1 {
		t.Errorf("a job: %+v", daily)
	}
	paused, err := store.JobNamed(ctx, s, "default", "paused")
	must(err)
	if st := paused.Definition.Status; st.State != job.JobPaused || st.PausedBy != "ann" || st.PauseReason != "holiday" {
		t.Errorf("a paused job: %+v", st)
	}
	if changed, _, err := s.JobsChanged(ctx, store.AllPartitions, 0, 10); err != nil || len(changed) != 2 || changed[0].Timing == "" {
		t.Errorf("the feed of jobs: %+v, %v", changed, err)
	}
	records, _, err := s.Attempts(ctx, store.HistoryQuery{Limit: 10})
	must(err)
	if len(records) != 1 || records[0].Attempt.ExitCode == nil || *records[0].Attempt.ExitCode != 3 || records[0].Run.Name != "daily" || records[0].Attempt.Cause != "" || records[0].Attempt.Usage != (job.Usage{}) {
		t.Fatalf("history: %+v", records)
	}
	if failed, _, err := s.Attempts(ctx, store.HistoryQuery{Failed: true, Limit: 10}); err != nil || len(failed) != 1 || failed[0].Run.ID != records[0].Run.ID {
		t.Errorf("failures: %+v, %v", failed, err)
	}
	if output, err := s.Output(ctx, records[0].Run.ID, 1, 0, 10); err != nil || len(output) != 1 || string(output[0].Data) != "hello" {
		t.Errorf("output: %v, %v", output, err)
	}
	if audit, _, err := s.Audit(ctx, store.AuditQuery{Limit: 10}); err != nil || len(audit) != 2 {
		t.Errorf("audit: %+v, %v", audit, err)
	}

	// A node of this version joins on the machine of an earlier one.
	joined, err := s.Join(ctx, store.Session{ID: job.ID{9}, Node: "a", Machine: "boot-1/2049/17", DataDir: "/data", Roles: []string{store.RoleWorker}, Capacity: 1})
	must(err)
	if len(joined.Predecessors) != 1 {
		t.Fatalf("predecessors: %v", joined.Predecessors)
	}
	mine, err := store.RunsOn(ctx, s, joined.Predecessors[0])
	must(err)
	if len(mine) != 1 {
		t.Fatalf("what the node before it ran: %+v", mine)
	}
	must(s.Reap(ctx, joined.ID, []store.Attempt{mine[0].Present()}))
	if records, err := s.AttemptsOf(ctx, mine[0].ID); err != nil || len(records) != 1 || records[0].Attempt.Outcome != job.OutcomeLost {
		t.Errorf("what the node before it ran ended as %+v, %v", records, err)
	}
	left, err := s.ListActive(ctx, store.ActiveQuery{Limit: 10})
	must(err)
	if len(left) != 1 || left[0].State != job.StateReady {
		t.Fatalf("what is left: %+v", left)
	}
	a := left[0].Present()
	a.Token = job.ID{2}
	claimed, err := s.Claim(ctx, joined.ID, []store.Attempt{a})
	must(err)
	if claimed[0].Verdict != store.Started {
		t.Errorf("a claim of what was planned before: %+v", claimed[0])
	}
	number, err := s.Numbers(ctx, 1, 0)
	must(err)
	handed, err := s.HandOver(ctx, joined.ID, []store.Handover{{Number: number, Attempt: a, Kind: "stub"}})
	must(err)
	if handed[0] != store.Handed {
		t.Errorf("a handover of what was planned before: %d", handed[0])
	}
	_, err = store.PutOne(ctx, s, store.PutJob{Definition: &job.Job{
		Name: "new", Schedule: job.Schedule{Every: job.Duration(time.Minute)}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}, Actor: "ann"})
	must(err)
	if audit, _, err := s.Audit(ctx, store.AuditQuery{Limit: 10}); err != nil || len(audit) != 3 || audit[0].Seq != 3 {
		t.Errorf("the audit continues with %+v, %v", audit, err)
	}
}
