package planner

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestDueRunsOfThisNodeAreClaimedWithTheirPlan(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	self, other, token := job.ID{1}, job.ID{2}, job.ID{9}
	run := func(n byte, session job.ID, due time.Duration) store.NewRun {
		return store.NewRun{ID: job.ID{10 + n}, Session: session, Scheduled: now.Add(due), Due: now.Add(due)}
	}
	items := func() []store.PlanItem {
		return []store.PlanItem{
			{Job: job.ID{3}, Runs: []store.NewRun{run(0, self, -time.Minute), run(1, other, -time.Minute), run(2, job.ID{}, 0), run(3, self, 0), run(4, self, time.Millisecond)}},
			{Job: job.ID{4}, Runs: []store.NewRun{run(5, self, time.Second)}},
		}
	}
	var offered []store.ReadyRun
	calls := 0
	f := &fake{}
	p := New(Config{Store: f, Session: func() job.ID { return self }, ClaimWith: func(_ context.Context, runs []store.ReadyRun, step func([]job.ID) ([]store.ClaimOutcome, error)) error {
		calls++
		offered = runs
		_, err := step([]job.ID{token}) // there is room for one
		return err
	}})
	if outcomes, err := p.plan(context.Background(), &planqueue.View{Now: now, Self: self}, &planqueue.Batch{Items: items()}); err != nil || len(outcomes) != 2 {
		t.Fatalf("planned: %v, %v", outcomes, err)
	}
	var ids []byte
	for _, r := range offered {
		if r.Job != (job.ID{3}) || r.Session != self || r.Attempt != 1 {
			t.Errorf("offered: %+v", r)
		}
		ids = append(ids, r.ID[0]-10)
	}
	if !slices.Equal(ids, []byte{0, 3}) {
		t.Errorf("the runs %d are offered, want what is due and its own", ids)
	}
	for _, r := range f.planned[0].Runs {
		if want := r.ID == (job.ID{10}); (r.Token == token) != want || !want && !r.Token.IsZero() {
			t.Errorf("run %d has the token %s", r.ID[0]-10, r.Token)
		}
	}
	if _, err := p.plan(context.Background(), &planqueue.View{Now: now, Self: self}, &planqueue.Batch{Items: items()[1:]}); err != nil || calls != 1 {
		t.Errorf("without a run to claim the worker is asked: %d, %v", calls, err)
	}
}

// rounds counts the rounds of a planner.
type rounds struct {
	fake
	n int
}

func (r *rounds) JobsChanged(ctx context.Context, parts store.Partitions, since int64, limit int) ([]store.PlannedJob, int64, error) {
	r.n++
	return r.fake.JobsChanged(ctx, parts, since, limit)
}

// After an end only due jobs are planned; a round also reads changes.
func TestEndOfASerialRunPlansTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &rounds{fake: fake{jobs: away(t, 1, job.MissedAll, time.Hour)}}
		p := newPlanner(&f.fake)
		p.Store = f
		p.ClaimWith = func(_ context.Context, _ []store.ReadyRun, step func([]job.ID) ([]store.ClaimOutcome, error)) error {
			_, err := step(nil)
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = p.Run(ctx); close(done) }()
		synctest.Wait()
		for n := 1; n <= 100; n++ {
			if len(f.planned) != n {
				t.Fatalf("%d occurrences are planned after %d ends", len(f.planned), n-1)
			}
			time.Sleep(time.Millisecond)
			p.Ended([]store.Result{{Attempt: store.Attempt{Job: f.jobs[0].UID}}})
			synctest.Wait()
		}
		if f.n > 5 {
			t.Errorf("the planner made %d rounds in 0.1 s", f.n)
		}
		cancel()
		<-done
	})
}
