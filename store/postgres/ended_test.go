//go:build servers

package postgres

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestEachEndIsPublishedOnceAfterItsCommit(t *testing.T) {
	t.Parallel()
	told := map[job.Outcome]int{}
	var paused []string
	s := open(t, emptySchema(t), Options{Ended: func(e store.Ends) {
		for _, r := range e.Records {
			told[r.Attempt.Outcome]++
		}
		for _, a := range e.Paused {
			paused = append(paused, a.Object)
		}
	}})
	ctx := t.Context()
	session, err := s.Join(ctx, store.Session{ID: job.ID{1}, Node: "a", Machine: "m", DataDir: "d", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	twice := 2
	j, err := store.PutOne(ctx, s, store.PutJob{Actor: "ann", Definition: &job.Job{
		Namespace: "default", Name: "j", Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}, Policy: job.Policy{PauseOnFailure: &twice},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		a := store.Attempt{Run: job.ID{2, byte(i)}, Number: 1, Token: job.ID{3, byte(i)}}
		outcomes, err := s.Trigger(ctx, []store.TriggerItem{{ID: a.Run, Job: j.Definition.UID, Kind: job.RunByHand, Session: session.ID}})
		if err != nil || outcomes[0].Err != nil {
			t.Fatal(err, outcomes)
		}
		if out, err := s.Claim(ctx, session.ID, []store.Attempt{a}); err != nil || out[0].Verdict != store.Started {
			t.Fatal(out, err)
		}
		outcome, now := job.OutcomeFailed, time.Now()
		if i == 2 {
			outcome = job.OutcomeSucceeded
		}
		for range 2 { // the second report repeats the first
			if _, err := s.Finish(ctx, session.ID, []store.Result{{Attempt: a, Started: now, Ended: now, Outcome: outcome}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if told[job.OutcomeFailed] != 2 || told[job.OutcomeSucceeded] != 1 || len(paused) != 1 || paused[0] != "default/j" {
		t.Errorf("the listener received %v, and pauses of %v; want 2 failed, 1 succeeded and one pause of default/j", told, paused)
	}
}
