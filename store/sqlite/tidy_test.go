package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A job that was deleted leaves nothing behind once planners have heard of it
// and its history has expired.
func TestADeletedJobLeavesNothingBehind(t *testing.T) {
	clock := time.Now()
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Now: func() time.Time { return clock }})
	ctx := t.Context()
	ids := &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	j, err := s.PutJob(ctx, store.PutJob{Definition: benchJob(1, job.Policy{})})
	if err != nil {
		t.Fatal(err)
	}
	uid := j.Definition.UID
	a := store.Attempt{Run: ids.next(), Number: 1, Token: ids.next()}
	if _, err := s.Trigger(ctx, []store.TriggerItem{{ID: a.Run, Job: uid, Kind: job.RunByHand, Session: session.ID}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(ctx, session.ID, []store.Attempt{a}); err != nil {
		t.Fatal(err)
	}
	result := store.Result{Attempt: a, Outcome: job.OutcomeSucceeded, Output: []store.OutputChunk{{Run: a.Run, Attempt: 1, Data: []byte("x")}}}
	if _, err := s.Finish(ctx, session.ID, []store.Result{result}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteJob(ctx, store.DeleteJob{UID: uid, IfVersion: store.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	count := func(table string) (n int64) {
		t.Helper()
		err := s.read(ctx, func(c *conn) (err error) {
			n, err = number(c, "select count(*) from "+table)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	rest := func(round func() (bool, error)) {
		t.Helper()
		for more := true; more; {
			if more, err = round(); err != nil {
				t.Fatal(err)
			}
		}
	}
	tidy := func() (bool, error) { return s.Tidy(ctx) }
	rest(tidy)
	if count("job_state") != 1 || count("names") != 1 {
		t.Fatal("the tombstone is gone too soon")
	}
	clock = clock.Add(25 * time.Hour)
	rest(tidy)
	if records, err := s.AttemptsOf(ctx, a.Run); err != nil || len(records) != 1 || records[0].Run.Name != j.Definition.Name {
		t.Fatalf("history without its job: %v, %v", records, err)
	}
	rest(func() (bool, error) { return s.Expire(ctx, store.Retention{For: time.Hour}) })
	for _, table := range []string{"job_state", "jobs", "names", "timings", "revisions", "keys", "history", "output", "active", "orphans", "sessions"} {
		if n := count(table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}
