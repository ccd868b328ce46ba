//go:build servers

package mysql

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A row that grew would be moved when its run is claimed, which takes longer than to
// make it.
func TestAClaimChangesNoLengths(t *testing.T) {
	s, j, session, pool := withAJob(t)
	lengths := func() (text string) {
		t.Helper()
		err := pool.QueryRowContext(t.Context(), `select concat_ws(' ', length(id), length(job), length(run_key), length(params), length(parent), length(session),
			length(slot), length(node), length(token), length(reason), length(cancel_by), length(cancel_reason)) from active`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	run := job.ID{2}
	to := j.Cursor.Add(1)
	planned, err := s.Plan(t.Context(), session.ID, []store.PlanItem{{
		Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: to,
		Runs: []store.NewRun{{ID: run, Session: session.ID, Scheduled: to, Due: to}},
	}})
	if err != nil || planned[0] != store.Planned {
		t.Fatal(err, planned)
	}
	before := lengths()
	ready, err := s.Active(t.Context(), run)
	if err != nil || !ready.Token.IsZero() {
		t.Errorf("a run that nobody has claimed has the token %s, error %v", ready.Token, err)
	}
	claimed, err := s.Claim(t.Context(), session.ID, []store.Attempt{{Run: run, Number: 1, Token: job.ID{3}}})
	if err != nil || claimed[0].Verdict != store.Started {
		t.Fatal(err, claimed)
	}
	if after := lengths(); after != before {
		t.Errorf("the columns of a row are %s bytes long, and after the claim %s", before, after)
	}
}
