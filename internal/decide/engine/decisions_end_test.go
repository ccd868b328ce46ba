package engine

import (
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var endDecisions = func() (table []decided) {
	for what, end := range map[string]func(k *book, n job.ID, held store.Attempt){
		"a result": func(k *book, _ job.ID, held store.Attempt) { k.finish(held, job.OutcomeSucceeded, true) },
		"a cancel that its node has answered": func(k *book, _ job.ID, held store.Attempt) {
			k.must(&Cancel{Runs: []RunRef{{Run: held.Run, Job: held.Job}}, By: "ann", Over: true})
			k.finish(held, job.OutcomeCancelled, true)
		},
		"a release behind its cancel": func(k *book, n job.ID, held store.Attempt) {
			k.must(&Cancel{Runs: []RunRef{{Run: held.Run, Job: held.Job}}, By: "ann", Over: true})
			k.must(&Release{Session: n, Attempts: []store.Attempt{held}})
		},
		"the loss of its node": func(k *book, n job.ID, held store.Attempt) {
			k.must(&Reap{Session: k.join("n"), Attempts: []store.Attempt{held}})
		},
	} {
		table = append(table, decided{"a slot is handed on by " + what + ", and what follows starts on each node", func(k *book) {
			n := k.join("n")
			k.join("m")
			held, _, follower := k.queued(n, "queue_limit: 5")
			end(k, n, held)
			k.see(held.Job, "ready")
			k.see(follower, map[bool]string{true: "", false: "ready, ready"}[strings.Contains(what, "cancel")])
		}})
	}
	return append(table,
		decided{"a cancel hands on the slot that was given to a run", func(k *book) {
			n := k.join("n")
			held, waits, _ := k.queued(n, "queue_limit: 5")
			third := k.plan(held.Job, n)
			k.claim(n, third, store.Waiting)
			k.finish(held, job.OutcomeSucceeded, true)
			k.see(held.Job, "ready, waiting")
			k.must(&Cancel{Runs: []RunRef{{Run: waits.Run, Job: waits.Job}}, By: "ann", Over: true})
			k.see(held.Job, "ready")
		}},
		decided{"a slot is filled after those who can never have it have ended", func(k *book) {
			n := k.join("n")
			held, waits, _ := k.queued(n, "queue_limit: 5")
			hand := k.trigger(held.Job, n)
			k.claim(n, hand, store.Waiting)
			k.put("name: " + k.jobs[held.Job].Name + "\nschedule: {every: 7m}\npolicy: {overlap: queue, queue_limit: 5}")
			fill := &FillSlots{Slots: []SlotNeed{{Key: held.Job.String(), Job: held.Job}}}
			k.must(fill)
			k.ended(waits.Run, "withdrawn", "")
			k.see(held.Job, "running, waiting")
			k.put("name: " + k.jobs[held.Job].Name + "\nschedule: {every: 7m}\npolicy: {overlap: queue, queue_limit: 5, max_parallel: 2}")
			k.must(fill)
			k.see(held.Job, "running, ready")
		}},
		decided{"a slot that was given to a run which is too late is handed on", func(k *book) {
			n := k.join("n")
			held, waits, _ := k.queued(n, "late_by: 10s, queue_limit: 5")
			k.finish(held, job.OutcomeSucceeded, true)
			k.pass(9 * time.Second)
			next := k.plan(held.Job, n)
			k.claim(n, next, store.Waiting)
			k.pass(2 * time.Second)
			k.must(&Tidy{Runs: []RunRef{{Run: waits.Run, Job: held.Job}}})
			k.ended(waits.Run, "missed", "")
			k.see(held.Job, "ready")
		}},
		decided{"a plan that misses an occurrence starts what follows it", func(k *book) {
			n := k.join("n")
			a := k.put("name: a\nschedule: {every: 1s}")
			f := k.put("name: f\nschedule: {on: [{job: a, outcome: finished}]}")
			from := k.jobs[a].Cursor
			k.pass(time.Second)
			item := store.PlanItem{Job: a, Epoch: 1, From: from, To: k.now, Runs: []store.NewRun{{ID: k.id(), Session: n, Node: "n", Scheduled: k.now, Due: k.now, Token: k.id()}}}
			busy := k.trigger(a, n)
			k.claim(n, busy, store.Started)
			op := &Plan{Session: n, Items: []store.PlanItem{item}}
			k.must(op)
			equal(k, "verdict", op.Claims[0].Verdict, store.Skipped)
			k.see(f, "")
		}},
	)
}()

var lossDecisions = []decided{
	{"an attempt is lost with its silent node, and a late result replaces that", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a\npolicy: {overlap: allow, lost_after: 20s}")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		reap := &Reap{Session: m, Attempts: []store.Attempt{run}}
		k.pass(5 * time.Second)
		k.must(&Renewal{Session: m})
		k.must(reap)
		k.see(a, "running")
		for range 6 {
			k.pass(5 * time.Second)
			k.must(&Renewal{Session: m})
		}
		k.must(reap)
		k.must(reap)
		k.see(a, "")
		k.ended(run.Run, "lost", "")
		k.finish(run, job.OutcomeSucceeded, true)
		k.ended(run.Run, "succeeded", "")
		equal(k, "replaces", k.records[0].Replaces, true)
	}},
	{"an attempt that was due after its node was last heard may not have started", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a\npolicy: {overlap: allow, lost_after: 20s}")
		before := k.trigger(a, n)
		k.claim(n, before, store.Started)
		k.pass(time.Second)
		k.must(&Renewal{Session: n})
		k.must(&Renewal{Session: m})
		k.pass(time.Second)
		after := k.trigger(a, n)
		k.claim(n, after, store.Started)
		for range 6 {
			k.pass(5 * time.Second)
			k.must(&Renewal{Session: m})
		}
		k.must(&Reap{Session: m, Attempts: []store.Attempt{before, after}})
		k.ended(before.Run, "lost", "node n was silent for 31 s")
		k.ended(after.Run, "lost", "so it may not have started")
		for _, r := range k.records {
			equal(k, "unknown start", r.Attempt.Reason.Has(reason.StartUnknown.Name), r.Run.ID == after.Run)
		}
	}},
	{"what a dead process had claimed is given back until it is due", func(k *book) {
		lost := func(a store.Attempt) store.Result { return store.Result{Attempt: a, Outcome: job.OutcomeLost} }
		n := k.join("n")
		a := k.put("name: a\nschedule: {every: 1h}\npolicy: {overlap: allow}")
		ahead := func(session job.ID) store.Attempt {
			k.pass(store.ClaimAhead)
			run := k.plan(a, session)
			k.pass(-store.ClaimAhead)
			k.claim(session, run, store.Started)
			return run
		}
		run := ahead(n)
		k.report(lost(run), false)
		k.see(a, "ready")
		k.claim(n, run, store.Started)
		next := k.join("n")
		k.must(&Reap{Session: next, Attempts: []store.Attempt{run}})
		k.see(a, "ready")
		k.claim(next, run, store.Started)
		k.pass(store.ClaimAhead)
		k.report(lost(run), true)
		k.ended(run.Run, "lost", "")
	}},
	{"a late result of a lost attempt that was retried is kept in words", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {retry: {attempts: 1, backoff: 0s, on: [lost]}}")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		next := k.join("n")
		k.must(&Reap{Session: next, Attempts: []store.Attempt{run}})
		k.finish(run, job.OutcomeSucceeded, false)
		k.ended(run.Run, "lost", "succeeded")
		again := store.Attempt{Job: a, Run: run.Run, Number: 2, Token: k.id()}
		k.claim(next, again, store.Started)
		k.finish(again, job.OutcomeSucceeded, true)
	}},
	{"a result whose record history has is decided by that", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {overlap: allow}")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		k.must(&Reap{Session: k.join("n"), Attempts: []store.Attempt{run}})
		past := k.records
		k.records = nil // they were shipped
		op := &Finish{Results: []store.Result{{Attempt: run, Started: k.now, Ended: k.now, Outcome: job.OutcomeSucceeded}}, Past: past}
		k.must(op)
		equal(k, "accepted", op.Outcomes[0].Accepted, true)
		equal(k, "replaces", len(k.records) == 1 && k.records[0].Replaces, true)
	}},
	{"unmet expectations are reported once, and marked", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {expect: {start_within: 5s, finish_within: 20s, duration_below: 10s}}")
		run := k.trigger(a, n)
		alert := func(want ...string) {
			k.Helper()
			op := &Alert{Runs: []RunRef{{Run: run.Run, Job: a}, {Run: job.ID{99}, Job: a}}}
			k.must(op)
			var got []string
			for _, x := range op.Alerts {
				for _, why := range x.Unmet {
					got = append(got, why.String())
				}
			}
			if len(got) != len(want) {
				k.Fatalf("told are %q, want %q", got, want)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) {
					k.Errorf("told is %q, want %q", got[i], want[i])
				}
			}
		}
		alert()
		k.pass(6 * time.Second)
		alert("it has not started 5 s after it was due")
		alert()
		k.claim(n, run, store.Started)
		k.pass(11 * time.Second)
		alert("attempt 1 has not ended 10 s after it started")
		k.pass(4 * time.Second)
		alert("it has not ended 20 s after it was due")
		k.finish(run, job.OutcomeSucceeded, true)
		if unmet := k.records[0].Unmet; !strings.Contains(unmet.String(), "5 s") || !strings.Contains(unmet.String(), "20 s") {
			k.Errorf("marked is %q", unmet)
		}
	}},
}
