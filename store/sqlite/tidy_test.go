package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A deleted job leaves no data once planners have seen the deletion and its history has expired.
func TestADeletedJobLeavesNothingBehind(t *testing.T) {
	clock := time.Now()
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Now: func() time.Time { return clock }})
	ctx := t.Context()
	ids := &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(ctx, s, store.PutJob{Definition: benchJob(1, job.Policy{})})
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
	if err := s.End(ctx, session.ID); err != nil {
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
	for _, table := range []string{"job_state", "jobs", "names", "revisions", "request_keys", "history", "output", "active", "orphans", "sessions"} {
		if n := count(table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}

// Runs that stay, even more than one call examines, do not hide ending runs after them.
func TestRetainedRowsHideNothingFromTidy(t *testing.T) {
	const many = 500 + 100
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	lateBy, forever := job.Duration(10*time.Second), job.Forever
	for name, c := range map[string]struct {
		stays func(j *job.Job)
		then  func(j *job.Job) // how the job changes once it has its runs
	}{
		"runs by hand of a paused job": {func(*job.Job) {}, func(j *job.Job) { j.Paused = true }},
		"runs of a broadcast whose node is there": {func(j *job.Job) {
			j.Place.Strategy, j.Policy.LateBy = job.StrategyBroadcast, &forever
		}, func(*job.Job) {}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, ids := t.Context(), &tally{}
			s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Now: func() time.Time { return now }})
			session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
			if err != nil {
				t.Fatal(err)
			}
			put := func(j *job.Job) *store.Job {
				t.Helper()
				made, err := store.PutOne(ctx, s, store.PutJob{Definition: j, IfVersion: store.AnyVersion})
				if err != nil {
					t.Fatal(err)
				}
				return made
			}
			stays := benchJob(1, job.Policy{})
			c.stays(stays)
			first := put(stays)
			var items []store.TriggerItem
			for i := range many {
				items = append(items, store.TriggerItem{ID: ids.next(), Job: first.Definition.UID, Kind: job.RunByHand, Key: fmt.Sprint(i), Session: session.ID})
			}
			for batch := range slices.Chunk(items, store.MaxBatch) {
				if _, err := s.Trigger(ctx, batch); err != nil {
					t.Fatal(err)
				}
			}
			c.then(stays)
			put(stays)

			late, withdrawn := put(benchJob(2, job.Policy{LateBy: &lateBy})), put(benchJob(3, job.Policy{LateBy: &forever}))
			var plan []store.PlanItem
			for i, j := range []*store.Job{late, withdrawn} {
				at := now.Add(time.Second)
				plan = append(plan, store.PlanItem{
					Job: j.Definition.UID, Epoch: 1, From: j.Cursor, To: at,
					Runs: []store.NewRun{{ID: job.ID{0xff, byte(i)}, Session: session.ID, Scheduled: at, Due: at}}, // behind all others
				})
			}
			if _, _, err := s.Plan(ctx, session.ID, plan); err != nil {
				t.Fatal(err)
			}
			other := benchJob(3, job.Policy{LateBy: &forever})
			other.Schedule.Cron[0] = "7 7 7 7 *"
			put(other)
			now = now.Add(time.Minute)
			if err := s.Renew(ctx, session.ID, store.Load{}); err != nil {
				t.Fatal(err)
			}
			for more, rounds := true, 0; more && rounds < 10; rounds++ {
				if more, err = s.Tidy(ctx); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range []job.Outcome{job.OutcomeMissed, job.OutcomeWithdrawn} {
				records, err := s.AttemptsOf(ctx, plan[i].Runs[0].ID)
				if err != nil || len(records) != 1 || records[0].Run.Outcome != want {
					t.Errorf("%+v, %v, want that it is %s", records, err, want)
				}
			}
			left, err := s.ListActive(ctx, store.ActiveQuery{Job: first.Definition.UID, Limit: 2 * many})
			if err != nil || len(left) != many {
				t.Errorf("%d of %d runs have stayed, %v", len(left), many, err)
			}
		})
	}
}

// A temporary pause whose job is deleted is not examined.
func TestPauseOfADeletedJobIsForgotten(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Now: func() time.Time { return now }})
	paused := benchJob(1, job.Policy{})
	paused.Paused = true
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: paused, Pause: store.Pause{By: "ann", Until: now.Add(time.Minute)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteJob(t.Context(), store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Minute)
	if _, err := s.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = s.read(t.Context(), func(c *conn) error {
		n, err := number(c, "select count(*) from jobs where paused_until > 0")
		if n != 0 {
			t.Error("it is looked at again and again")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
