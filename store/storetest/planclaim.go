package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func verdictsOf(claims []store.ClaimOutcome) string {
	var list []string
	for _, c := range claims {
		list = append(list, verdicts[c.Verdict])
	}
	return strings.Join(list, " ")
}

// planClaimTests are about runs that are claimed by the step that plans them.
var planClaimTests = []test{
	{"started once: a run due when it is planned is claimed in the same step", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * * *'}\npolicy: {overlap: allow}")
		e.clock.Advance(2 * time.Second)
		item := e.planItem(j, start.Add(time.Second), start.Add(2*time.Second), start.Add(5*time.Second))
		for i := range item.Runs {
			item.Runs[i].Token = e.id()
		}
		own := func(i int) store.Attempt {
			return store.Attempt{Job: item.Job, Run: item.Runs[i].ID, Number: 1, Token: item.Runs[i].Token}
		}
		for _, again := range []string{"at first", "again"} { // an answer may be lost
			outcomes, claims, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{item})
			e.must(err)
			equal(e, again, planOutcomes[outcomes[0]], "planned")
			equal(e, again, verdictsOf(claims), "started started early")
			equal(e, "the job to run", claims[1].Job.Definition.Name, "a")
			equal(e, "the run", claims[1].Run.ID, item.Runs[1].ID)
			equal(e, "state", claims[1].Run.State, job.StateRunning)
			equal(e, "node", e.run(item.Runs[1].ID).Node, e.a.Node)
		}
		other := own(0)
		other.Token = e.id()
		e.claim(e.a, other, store.Taken)
		e.claim(e.join("b"), own(1), store.Taken)
		e.claim(e.a, own(1), store.Started)
		e.finish(own(0), job.OutcomeSucceeded)
		e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{own(1)}))
		equal(e, "given back", e.run(own(1).Run).State, job.StateReady)
		e.claim(e.a, other, store.Taken)
		_, claims, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{item})
		e.must(err)
		equal(e, "after an end and a release", verdictsOf(claims), "taken started early")
	}},
	{"a plan claims by the slot, in the order of due times", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * * *'}\npolicy: {overlap: queue}")
		e.clock.Advance(10 * time.Second)
		claims := func(tokens int, seconds ...int) (string, store.PlanItem) {
			var times []time.Time
			for _, s := range seconds {
				times = append(times, start.Add(time.Duration(s)*time.Second))
			}
			item := e.planItem(e.reload(j), times...)
			for i := range tokens {
				item.Runs[i].Token = e.id()
			}
			_, claimed, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{item})
			e.must(err)
			return verdictsOf(claimed), item
		}
		first, item := claims(2, 1, 2, 3)
		equal(e, "the first two of three", first, "started waiting")
		behind, _ := claims(1, 4)
		equal(e, "behind one that is ready", behind, "taken")
		e.finish(store.Attempt{Job: item.Job, Run: item.Runs[0].ID, Number: 1, Token: item.Runs[0].Token}, job.OutcomeSucceeded)
		equal(e, "the next", e.run(item.Runs[1].ID).HoldsSlot, true)
		ready, err := e.Ready(e.ctx, store.ReadyQuery{Session: e.a.ID, Until: e.now(), Limit: 10})
		e.must(err)
		equal(e, "ready", len(ready), 3)
	}},
	{"runs claimed by a plan are lost with their node", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * * *'}\npolicy: {lost_after: 20s}")
		b := e.join("b")
		e.clock.Advance(time.Second)
		item := e.planItem(j, start.Add(time.Second))
		item.Runs[0].Session, item.Runs[0].Token = b.ID, e.id()
		_, claims, err := e.Plan(e.ctx, b.ID, []store.PlanItem{item})
		e.must(err)
		equal(e, "claimed", verdicts[claims[0].Verdict], "started")
		e.pass(21*time.Second, e.a)
		lost, err := e.Lost(e.ctx, 10)
		e.must(err)
		equal(e, "lost", fmt.Sprint(lost), fmt.Sprint([]store.Attempt{{Job: item.Job, Run: item.Runs[0].ID, Number: 1, Token: item.Runs[0].Token}}))
		e.must(e.Reap(e.ctx, e.a.ID, lost))
		e.gone(item.Runs[0].ID, job.OutcomeLost)
	}},
	{"a plan claims only its own runs, without flows and shards", func(e *env) {
		split := e.put("name: a\nschedule: {cron: '* * * * * *'}\nplace: {shards: 2}")
		moved := e.put("name: b\nschedule: {cron: '* * * * * *'}")
		e.clock.Advance(time.Second)
		items := []store.PlanItem{e.planItem(split, start.Add(time.Second)), e.planItem(moved, start.Add(time.Second))}
		items[0].Runs = append(items[0].Runs, items[0].Runs[0])
		items[1].From = items[1].From.Add(-time.Second)
		for k := range items {
			for i := range items[k].Runs {
				r := &items[k].Runs[i]
				r.Token = e.id()
				if k == 0 {
					r.ID, r.Shard, r.Shards = e.id(), i, 2
				}
			}
		}
		outcomes, claims, err := e.Plan(e.ctx, e.a.ID, items)
		e.must(err)
		equal(e, "planned", fmt.Sprint(outcomes), fmt.Sprint([]store.PlanOutcome{store.Planned, store.Moved}))
		equal(e, "claims", verdictsOf(claims), "taken taken taken")
		equal(e, "a share", e.run(items[0].Runs[1].ID).State, job.StateReady)
	}},
}
