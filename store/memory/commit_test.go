package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// TestCommitsThatGoWrongAreDoneOnce plans, claims and finishes on a store where one commit in five
// goes wrong: it is done in part, late or not at all, or its answer is lost. A caller that repeats
// each call until it succeeds finds each occurrence run once.
func TestCommitsThatGoWrongAreDoneOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { wrongCommits(t, seed) })
	}
}

func wrongCommits(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	fates := map[memory.Fate]int{}
	s := memory.New(memory.Options{
		Now: func() time.Time { return now },
		Fate: func(int, int) memory.Fate {
			if random.IntN(5) > 0 {
				return memory.Done
			}
			fate := memory.Again + memory.Fate(random.IntN(int(memory.Late)))
			fates[fate]++
			return fate
		},
	})
	ctx, last := t.Context(), byte(0)
	id := func() job.ID {
		last++
		return job.ID{7, byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), last}
	}
	again := func(call func() error) {
		t.Helper()
		for range 1000 {
			err := call()
			if err == nil {
				return
			}
			if !errors.Is(err, store.ErrAway) {
				t.Fatal(err)
			}
		}
		t.Fatal("a call is never answered")
	}
	session := store.Session{ID: id(), Node: "n", Machine: "m", Roles: []string{store.RoleWorker}}
	again(func() error { _, err := s.Join(ctx, session); return err })
	var jobs []*store.Job
	for i := range 3 {
		text := fmt.Sprintf("name: j%d\nschedule: {every: 1s}\npolicy: {overlap: queue, queue_limit: 1000, late_by: forever}\nrun: {shell: 'true'}", i)
		if i == 2 {
			text = "name: follower\nschedule: {on: [{job: j0}]}\npolicy: {overlap: allow}\nrun: {shell: 'true'}"
		}
		docs, err := job.Decode("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		put := store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion}
		var j *store.Job
		again(func() (err error) { j, err = store.PutOne(ctx, s, put); return err })
		jobs = append(jobs, j)
	}
	planned, cursors := 0, []time.Time{jobs[0].Cursor, jobs[1].Cursor}
	for range 30 {
		now = now.Add(time.Second)
		var items []store.PlanItem
		for i := range cursors {
			at := cursors[i].Add(time.Second)
			items = append(items, store.PlanItem{
				Job: jobs[i].Definition.UID, Epoch: 1, From: cursors[i], To: at,
				Runs: []store.NewRun{{ID: id(), Session: session.ID, Scheduled: at, Due: at}},
			})
			cursors[i] = at
			planned++
		}
		again(func() error {
			out, _, err := s.Plan(ctx, session.ID, items)
			for i := range out {
				if err == nil && out[i] != store.Planned {
					t.Fatalf("a plan that is repeated is answered %d", out[i])
				}
			}
			return err
		})
		work(t, s, session.ID, again, id, random)
		again(func() error { return s.Renew(ctx, session.ID, store.Load{}) })
	}
	for range 100 { // waiting and following runs
		work(t, s, session.ID, again, id, random)
	}
	records, _, err := s.Attempts(ctx, store.HistoryQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ended, followers := map[string]int{}, 0
	for i := range records {
		r := &records[i]
		if ended[r.Run.Name+r.Run.Key]++; ended[r.Run.Name+r.Run.Key] > 1 || r.Attempt.Outcome != job.OutcomeSucceeded {
			t.Errorf("%s of %s ended as %s, the %dth time", r.Run.Name, r.Run.Scheduled, r.Attempt.Outcome, ended[r.Run.Name+r.Run.Key])
		}
		if r.Run.Kind == job.RunOn {
			followers++
		}
	}
	if len(records)-followers != planned || followers != planned/2 {
		t.Errorf("%d occurrences have %d records and %d followers", planned, len(records)-followers, followers)
	}
	for fate := memory.Again; fate <= memory.Late; fate++ {
		if fates[fate] == 0 {
			t.Errorf("fate %d has not come up", fate)
		}
	}
}

// work claims and finishes what is ready.
func work(t *testing.T, s *memory.Store, session job.ID, again func(func() error), id func() job.ID, random *rand.Rand) {
	ctx := context.WithoutCancel(t.Context())
	now, _ := s.Now(ctx)
	ready, err := s.Ready(ctx, store.ReadyQuery{Any: true, Until: now, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var attempts []store.Attempt
	for i := range ready {
		attempts = append(attempts, store.Attempt{Job: ready[i].Job, Run: ready[i].ID, Number: ready[i].Attempt, Token: id()})
	}
	if len(attempts) > 0 {
		again(func() error { _, err := s.Claim(ctx, session, attempts); return err })
	}
	mine, err := store.RunsOn(ctx, s, session)
	if err != nil {
		t.Fatal(err)
	}
	running := map[job.ID]int{}
	var results []store.Result
	for i := range mine {
		if running[mine[i].JobUID]++; running[mine[i].JobUID] > 1 && mine[i].Name != "follower" {
			t.Errorf("%d runs of %s go on at once", running[mine[i].JobUID], mine[i].Name)
		}
		if random.IntN(2) == 0 {
			results = append(results, store.Result{Attempt: mine[i].Present(), Started: now, Ended: now, Outcome: job.OutcomeSucceeded})
		}
	}
	if len(results) > 0 {
		again(func() error {
			out, err := s.Finish(ctx, session, results)
			for i := range out {
				if err == nil && !out[i].Accepted {
					t.Fatal("a result that is repeated is not accepted")
				}
			}
			return err
		})
	}
}

// TestAlertsSurviveARepeatedCommit loses the last part of the first commit of a call in parts,
// which must not lose what the call returned about earlier parts.
func TestAlertsSurviveARepeatedCommit(t *testing.T) {
	now, again := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), 0
	s := memory.New(memory.Options{
		Now: func() time.Time { return now },
		Fate: func(part, parts int) memory.Fate {
			if again > 0 && part == parts-1 {
				again--
				return memory.Again
			}
			return memory.Done
		},
	})
	session, err := s.Join(t.Context(), store.Session{ID: job.ID{9}, Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(3) {
		docs, err := job.Decode("test.yaml", fmt.Appendf(nil, "name: j%d\nrun: {shell: 'true'}\npolicy: {expect: {start_within: 5s}}", i))
		if err != nil {
			t.Fatal(err)
		}
		j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Trigger(t.Context(), []store.TriggerItem{{ID: job.ID{7, i}, Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Session: session.ID, Node: "n", Actor: "ann"}}); err != nil {
			t.Fatal(err)
		}
	}
	now, again = now.Add(10*time.Second), 1
	alerts, err := s.Alerts(t.Context(), 10)
	if err != nil || len(alerts) != 3 || again != 0 {
		t.Errorf("three runs are late: %d alerts, %v", len(alerts), err)
	}
	if alerts, err := s.Alerts(t.Context(), 10); err != nil || len(alerts) != 0 {
		t.Errorf("another call returns %v, %v", alerts, err)
	}
}

// TestCancelledRunsAreReturnedAfterARepeatedCommit repeats a call whose runs have already ended, as
// after a commit in parts whose last part was refused.
func TestCancelledRunsAreReturnedAfterARepeatedCommit(t *testing.T) {
	now, again := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), false
	s := memory.New(memory.Options{
		Now: func() time.Time { return now },
		Fate: func(part, parts int) memory.Fate {
			if again && (part == parts || parts == 1) {
				again = false
				return memory.Again
			}
			return memory.Done
		},
	})
	docs, err := job.Decode("test.yaml", []byte("name: a\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: docs[0].Job, IfVersion: store.AnyVersion})
	if err != nil {
		t.Fatal(err)
	}
	var items []store.TriggerItem
	var ids []job.ID
	for i := range byte(5) {
		ids = append(ids, job.ID{7, i})
		items = append(items, store.TriggerItem{
			ID: ids[i], Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: now.Add(time.Duration(i) * time.Minute), Due: now, Overlap: job.OverlapQueue, Actor: "ann",
		})
	}
	if _, err := s.Trigger(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	again = true
	cancelled, err := s.CancelRuns(t.Context(), j.Definition.UID, ids, "ann", "enough")
	if err != nil || len(cancelled) != len(ids) || again {
		t.Errorf("of %d runs %d are returned as cancelled: %v", len(ids), len(cancelled), err)
	}
	for i := range cancelled {
		if r := &cancelled[i]; r.ID != ids[i] || r.State != job.StateDone || r.Outcome != job.OutcomeCancelled {
			t.Errorf("run %s is %s, %s", r.ID, r.State, r.Outcome)
		}
	}
}
