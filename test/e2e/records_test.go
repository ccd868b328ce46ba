//go:build servers

package e2e_test

import (
	"slices"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// sorted sorts runs by scheduled time.
func sorted(runs []client.Run) []client.Run {
	slices.SortStableFunc(runs, func(a, b client.Run) int { return a.Scheduled.Compare(b.Scheduled) })
	return runs
}

// outcomes returns how runs ended.
func outcomes(runs []client.Run) []job.Outcome {
	var list []job.Outcome
	for _, r := range runs {
		list = append(list, r.Outcome)
	}
	return list
}

// settled waits until nothing is planned or running.
func (s *server) settled() {
	s.t.Helper()
	eventually(s.t, "all runs end", func() bool { return len(s.runs("", job.StateReady, job.StateWaiting, job.StateRunning)) == 0 })
}

// records returns the runs of all jobs that are over, with their attempts.
func (s *server) records() []evidence.Record { return s.recordsOf("") }

// recordsOf returns the records of one job.
func (s *server) recordsOf(name string) []evidence.Record {
	s.t.Helper()
	var records []evidence.Record
	for _, r := range s.done(name) {
		record := evidence.Record{
			Job: r.Job, Run: r.ID.String(), Kind: string(r.Kind), Scheduled: r.Scheduled, Until: r.Until, Outcome: string(r.Outcome),
		}
		for _, a := range s.run(r.ID).Attempts {
			record.Attempts = append(record.Attempts, string(a.Outcome))
		}
		records = append(records, record)
	}
	return records
}

// check fails the test for all that does not hold.
func check(t testing.TB, h evidence.History) {
	t.Helper()
	const shown = 20
	found := evidence.Check(h)
	for i, v := range found {
		if i == shown {
			t.Errorf("and %d more", len(found)-shown)
			break
		}
		t.Errorf("%s: %s", v.Invariant, v.Text)
	}
}
