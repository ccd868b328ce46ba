package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// planned is the call of a planner's step with a worker.
type planned struct {
	item   store.PlanItem
	runs   []store.ReadyRun
	tokens int // number of received tokens
}

// due prepares the plan of n runs that are due.
func (r *rig) due(j *store.Job, n int) *planned {
	p := &planned{item: store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor}}
	for i := range n {
		var id job.ID
		id[0], id[15] = 1, byte(i)
		at := in(time.Duration(i-n) * time.Millisecond)
		p.item.Runs = append(p.item.Runs, store.NewRun{ID: id, Session: r.self.ID, Scheduled: at, Due: at})
		p.runs = append(p.runs, store.ReadyRun{RunRef: store.RunRef{Due: at, ID: id}, Job: p.item.Job, Session: r.self.ID, Attempt: 1})
		p.item.To = at
	}
	return p
}

// with makes the step with a worker.
func (p *planned) with(r *rig, answer error) error {
	return r.worker.ClaimWith(context.Background(), p.runs, func(tokens []job.ID) ([]store.ClaimOutcome, error) {
		p.tokens = len(tokens)
		for i, token := range tokens {
			p.item.Runs[i].Token = token
		}
		_, claims, err := r.memory.Plan(context.Background(), r.self.ID, []store.PlanItem{p.item})
		if answer != nil {
			return nil, answer
		}
		return claims, err
	})
}

func TestRunClaimedByItsPlanStartsOnceWithoutAnotherClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.capacity = 6
		r.exec.do = lasts(time.Second)
		j := r.put("j", besides)
		r.start()
		time.Sleep(time.Second) // until the store's clock is known
		p := r.due(j, 10)
		if err := p.with(r, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if starts := len(r.exec.starts()); p.tokens != 6 || starts != 6 || len(r.store.allClaims()) != 0 {
			t.Errorf("with room for 6 of 10: %d tokens, %d have started, and %d claims", p.tokens, starts, len(r.store.allClaims()))
		}
		r.until("all have ended", 10*time.Second, func() bool { return r.outcome(p.runs[9].ID) != "" })
		for i := range p.runs {
			if n := r.startsOf(p.runs[i].ID); n != 1 {
				t.Errorf("run %d has started %d times", i, n)
			}
		}
	})
}

// Whether or not the step was committed, each run starts once.
func TestPlanWithALostAnswerIsClaimedUnderTheSameTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		time.Sleep(time.Second)
		p := r.due(j, 3)
		if err := p.with(r, errAway); !errors.Is(err, errAway) {
			t.Errorf("the planner receives %v", err)
		}
		r.until("the last has ended", 5*time.Second, func() bool { return r.outcome(p.runs[2].ID) != "" })
		for i := range p.runs {
			claims := r.store.claimsOf(p.runs[i].ID)
			if len(claims) != 1 || claims[0].Token != p.item.Runs[i].Token || claims[0].verdict != store.Started || r.startsOf(p.runs[i].ID) != 1 {
				t.Errorf("run %d was claimed by %+v, and has started %d times", i, claims, r.startsOf(p.runs[i].ID))
			}
		}
		if load := r.worker.Load(); load.Running != 0 || load.Ready != 0 {
			t.Errorf("room is taken: %+v", load)
		}
	})
}

func TestLeavingWorkerClaimsNothingWithAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.put("j", besides)
		r.start()
		time.Sleep(time.Second)
		if err := r.worker.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		p := r.due(j, 1)
		if err := p.with(r, nil); err != nil || p.tokens != 0 || len(r.exec.starts()) != 0 {
			t.Errorf("it gave %d tokens, %d have started, %v", p.tokens, len(r.exec.starts()), err)
		}
	})
}
