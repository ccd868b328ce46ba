package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var faultTests = []test{
	{"a call with an ended context changes nothing or reports the change", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, time.Second)[0]
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		if _, err := store.PutOne(ctx, e.Store, store.PutJob{Definition: e.document("name: b"), Actor: "ann"}); !errors.Is(err, context.Canceled) {
			e.Errorf("put: %v", err)
		}
		if _, _, err := e.Store.Plan(ctx, e.a.ID, []store.PlanItem{e.planItem(e.reload(j), start.Add(5*time.Second))}); !errors.Is(err, context.Canceled) {
			e.Errorf("plan: %v", err)
		}
		if _, err := e.Store.Claim(ctx, e.a.ID, []store.Attempt{a}); !errors.Is(err, context.Canceled) {
			e.Errorf("claim: %v", err)
		}
		for range 50 { // a store that reads its clock too late answers sometimes
			_, err := store.JobNamed(ctx, e, "default", "a")
			e.want(err, context.Canceled)
		}
		_, err := store.JobNamed(e.ctx, e, "default", "b")
		e.want(err, store.ErrNotFound)
		sameTime(e, "cursor", e.reload(j).Cursor, start.Add(time.Second))
		equal(e, "state", e.run(a.Run).State, job.StateReady)
	}},
	{"nothing acknowledged is lost: a call with a lost answer is done completely or not at all and can be repeated", func(e *env) {
		// The context ends at some moment of each call. Whatever the answer, the repeated call
		// leaves the same state as a single one.
		const jobs = 40
		for i := range jobs {
			text := everyMinute + "\nnamespace: n" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + "\npolicy: {overlap: queue, retry: {attempts: 1, backoff: 0s}}"
			put := store.PutJob{Definition: e.document(text), Actor: "ann"}
			delay := time.Duration(i) * 20 * time.Microsecond
			var j *store.Job
			e.interrupted(delay, func(ctx context.Context) (err error) { j, err = store.PutOne(ctx, e, put); return err })
			item := e.planItem(j, start.Add(time.Second))
			var planned []store.PlanOutcome
			e.interrupted(delay, func(ctx context.Context) (err error) {
				planned, _, err = e.Plan(ctx, e.a.ID, []store.PlanItem{item})
				return err
			})
			equal(e, "planned", planOutcomes[planned[0]], "planned")
			a := store.Attempt{Job: item.Job, Run: item.Runs[0].ID, Number: 1, Token: e.id()}
			for _, o := range []job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded} {
				var claimed []store.ClaimOutcome
				e.interrupted(delay, func(ctx context.Context) (err error) {
					claimed, err = e.Claim(ctx, e.a.ID, []store.Attempt{a})
					return err
				})
				equal(e, "claimed", verdicts[claimed[0].Verdict], "started")
				var finished []store.FinishOutcome
				e.interrupted(delay, func(ctx context.Context) (err error) {
					finished, err = e.Finish(ctx, e.a.ID, []store.Result{{Attempt: a, Started: start, Ended: start, Outcome: o}})
					return err
				})
				equal(e, "accepted", finished[0].Accepted, true)
				a.Number, a.Token = 2, e.id()
			}
			e.interrupted(delay, func(ctx context.Context) error {
				return e.DeleteJob(ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: 1, Actor: "ann"})
			})
			equal(e, "records", len(e.records(j)), 2)
			e.gone(a.Run, job.OutcomeSucceeded)
		}
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 500})
		e.must(err)
		equal(e, "changes", len(list), 2*jobs)
	}},
}

// interrupted makes a call whose context ends after some time, and repeats it if it fails.
func (e *env) interrupted(after time.Duration, call func(context.Context) error) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		for begun := time.Now(); time.Since(begun) < after; {
		}
		cancel()
	})
	err := call(ctx)
	wait.Wait()
	if err == nil && after%(40*time.Microsecond) != 0 {
		return
	}
	e.must(call(e.ctx)) // also after a successful answer
}
