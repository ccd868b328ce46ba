package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var runDecisions = []decided{
	{"an occurrence is planned once, and a repeated plan is the same", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a" + minutely)
		j := k.jobs[a]
		due := k.now.Add(time.Second)
		item := store.PlanItem{Job: a, Epoch: 1, From: j.Cursor, To: due, Runs: []store.NewRun{{ID: k.id(), Session: n, Node: "n", Scheduled: due, Due: due}}}
		plan := func(session job.ID, change func(*store.PlanItem), want store.PlanOutcome) {
			k.Helper()
			own := item
			if change != nil {
				change(&own)
			}
			op := &Plan{Session: session, Items: []store.PlanItem{own}}
			if k.must(op); op.Outcomes[0] != want {
				k.Errorf("the plan is answered %d, want %d", op.Outcomes[0], want)
			}
		}
		plan(n, func(i *store.PlanItem) { i.Epoch = 4 }, store.Withdrawn)
		plan(n, func(i *store.PlanItem) { i.Job = job.ID{99} }, store.Withdrawn)
		plan(n, func(i *store.PlanItem) { i.From = i.From.Add(-time.Second) }, store.Moved)
		plan(n, func(i *store.PlanItem) {
			i.To = i.To.Add(time.Hour)
			i.Runs = []store.NewRun{{ID: k.id(), Scheduled: i.To, Due: i.To}}
		}, store.TooFar)
		plan(n, func(i *store.PlanItem) {
			i.Runs = []store.NewRun{{ID: k.id(), Scheduled: due.Add(time.Second), Due: due}}
		}, store.Malformed)
		k.see(a, "")
		plan(n, nil, store.Planned)
		plan(n, nil, store.Planned)
		plan(m, nil, store.Moved)
		k.see(a, "ready")
	}},
	{"what is missed goes to history, and a job of which nothing follows is completed and removed", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {at: ['2026-11-20T12:00:30Z'], delete_after: 5s}")
		k.pass(time.Minute)
		first := at(k.T, "2026-11-20T12:00:30Z")
		span := store.MissedSpan{ID: k.id(), First: first, Last: first, Count: 1, Reason: job.Text("no node was there")}
		k.must(&Plan{Session: n, Items: []store.PlanItem{{Job: a, Epoch: 1, From: k.jobs[a].Cursor, To: first, Missed: []store.MissedSpan{span}, Complete: true}}})
		k.ended(span.ID, "missed", "no node was there")
		equal(k, "state", k.jobs[a].State, job.JobCompleted)
		k.must(&Tidy{Jobs: []job.ID{a}})
		equal(k, "deleted", k.jobs[a].Deleted, false)
		k.pass(5 * time.Second)
		k.must(&Tidy{Jobs: []job.ID{a}})
		equal(k, "deleted", k.jobs[a].Deleted, true)
	}},
	{"what is due when it is planned is claimed with it, and again by the same tokens", func(k *book) {
		n := k.join("n")
		for what, c := range map[string]struct {
			text string
			want []store.Verdict
		}{
			"allow": {"policy: {overlap: allow}", []store.Verdict{store.Started, store.Started}},
			"skip":  {"policy: {overlap: skip}", []store.Verdict{store.Started, store.Skipped}},
			"queue": {"policy: {overlap: queue}", []store.Verdict{store.Started, store.Waiting}},
			"flow":  {"run: {flow: {steps: [{name: x, run: 'true'}]}}", []store.Verdict{store.Taken, store.Taken}},
		} {
			a := k.put("name: " + what + "\nschedule: {every: 1s}\n" + c.text)
			from := k.jobs[a].Cursor
			k.pass(2 * time.Second)
			item := store.PlanItem{Job: a, Epoch: 1, From: from, To: k.now}
			for i := range c.want {
				due := k.now.Add(time.Duration(i-len(c.want)+1) * time.Second)
				item.Runs = append(item.Runs, store.NewRun{ID: k.id(), Session: n, Node: "n", Scheduled: due, Due: due, Token: k.id()})
			}
			for range 2 {
				op := &Plan{Session: n, Items: []store.PlanItem{item}}
				k.must(op)
				for i, want := range c.want {
					equal(k, fmt.Sprintf("%s: verdict of claim %d", what, i), op.Claims[i].Verdict, want)
				}
			}
		}
	}},
	{"a plan that claims runs of a broadcast knows the slot of each node", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a\nschedule: {every: 1s}\nplace: {strategy: broadcast}")
		from := k.jobs[a].Cursor
		k.pass(time.Second)
		item := store.PlanItem{Job: a, Epoch: 1, From: from, To: k.now}
		for i, session := range []job.ID{n, m} {
			due := k.now.Add(time.Duration(i-1) * time.Second / 2)
			item.Runs = append(item.Runs, store.NewRun{ID: k.id(), Session: session, Scheduled: due, Due: due, Token: k.id()})
		}
		op := &Plan{Session: n, Items: []store.PlanItem{item}}
		k.must(op)
		equal(k, "outcome", op.Outcomes[0], store.Planned)
		equal(k, "its own", op.Claims[0].Verdict, store.Started)
		equal(k, "that of another node", op.Claims[1].Verdict, store.Taken)
	}},
	{"a run that is made on request is known by its key", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npaused: true" + minutely)
		item := store.TriggerItem{ID: k.id(), Job: a, Kind: job.RunByHand, Key: "once", Session: n, Node: "n", Actor: "ann", Params: map[string]string{}}
		op := &Trigger{Items: []store.TriggerItem{item}}
		k.must(op)
		equal(k, "made", op.Outcomes[0].Made, true)
		item.ID = k.id()
		again := &Trigger{Items: []store.TriggerItem{item}}
		k.must(again)
		equal(k, "made again", again.Outcomes[0].Made, false)
		equal(k, "run", again.Outcomes[0].Run, op.Outcomes[0].Run)
		for what, o := range map[string]store.TriggerItem{
			"of no job":                    {ID: k.id(), Job: job.ID{99}, Kind: job.RunByHand, Key: "x"},
			"a backfill of a paused job":   {ID: k.id(), Job: a, Kind: job.RunBackfill, Key: "y", Scheduled: k.now},
			"at the boot of a paused node": {ID: k.id(), Job: a, Kind: job.RunBoot, Key: "z"},
		} {
			op := &Trigger{Items: []store.TriggerItem{o}}
			if k.must(op); !errors.Is(op.Outcomes[0].Err, store.ErrNotFound) {
				k.Errorf("%s: %v", what, op.Outcomes[0].Err)
			}
		}
		k.put("name: a" + minutely)
		backfill := &Trigger{Items: []store.TriggerItem{{ID: k.id(), Job: a, Kind: job.RunBackfill, Key: "b", Scheduled: k.now.Add(-time.Hour), Overlap: job.OverlapQueue, Actor: "ann"}}}
		k.must(backfill)
		equal(k, "overlap of the backfill", k.runs[backfill.Outcomes[0].Run].Overlap, job.OverlapQueue)
		equal(k, "audit", strings.Count(strings.Join(k.audit, " "), "run.backfill")+strings.Count(strings.Join(k.audit, " "), "job.backfill"), 1)
	}},
	{"a run is placed where it is ready, and not where its node leaves", func(k *book) {
		n, m, leaves := k.join("n"), k.join("m"), k.join("l")
		k.must(&Leave{leaves})
		a := k.put("name: a")
		run := k.trigger(a, job.ID{})
		place := func(session job.ID, attempt int, want job.ID) {
			k.Helper()
			k.must(&Place{[]store.Placement{{Job: a, Run: run.Run, Attempt: attempt, Session: session}, {Job: a, Run: job.ID{99}, Attempt: 1, Session: session}}})
			equal(k, "session", k.runs[run.Run].Session, want)
		}
		place(leaves, 1, job.ID{})
		place(job.ID{99}, 1, job.ID{})
		place(n, 2, job.ID{})
		place(n, 1, n)
		place(m, 1, m)
		k.claim(m, run, store.Started)
		place(n, 1, m)
	}},
	{"an attempt is claimed by one node, and ended by its token", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a")
		run := k.trigger(a, n)
		k.claim(n, run, store.Started)
		k.claim(n, run, store.Started) // its answer was lost
		other := run
		other.Token = k.id()
		k.claim(m, other, store.Taken)
		k.finish(other, job.OutcomeSucceeded, false)
		k.finish(run, job.OutcomeSucceeded, true)
		k.finish(run, job.OutcomeSucceeded, true)
		k.finish(run, job.OutcomeFailed, false) // the first result stays
		k.ended(run.Run, "succeeded", "")
		k.claim(m, other, store.Taken)
		k.refuses(&Claim{Session: job.ID{99}, Attempts: []store.Attempt{run}}, store.ErrSessionOver)
	}},
	{"a failure is retried, later each time, and then recorded", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {retry: {attempts: 2, backoff: 10s, factor: 2, jitter: 0s, exit_codes: [75]}, pause_on_failure: 2}")
		run := k.trigger(a, n)
		for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second} {
			k.claim(n, run, store.Started)
			code := 75
			k.report(store.Result{Attempt: run, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, ExitCode: &code}, true)
			r := k.runs[run.Run]
			equal(k, "attempt", r.Attempt, i+2)
			equal(k, "backoff", r.Due.Sub(k.now), wait)
			k.pass(wait)
			run.Number, run.Token = r.Attempt, k.id()
		}
		k.claim(n, run, store.Started)
		k.finish(run, job.OutcomeFailed, true)
		k.ended(run.Run, "failed, failed, failed", "")
		for what, res := range map[string]store.Result{
			"an exit code of which no retry is": {Outcome: job.OutcomeFailed, ExitCode: new(1)},
			"a permanent failure":               {Outcome: job.OutcomeFailed, Permanent: true},
		} {
			k.put("name: " + strings.ReplaceAll(what, " ", "-") + "\npolicy: {retry: {attempts: 2, exit_codes: [75]}}")
			var uid job.ID
			for id, j := range k.jobs {
				if j.Name == strings.ReplaceAll(what, " ", "-") {
					uid = id
				}
			}
			once := k.trigger(uid, n)
			k.claim(n, once, store.Started)
			res.Attempt, res.Started, res.Ended = once, k.now, k.now
			k.report(res, true)
			k.ended(once.Run, "failed", "")
		}
		second := k.trigger(a, n)
		k.claim(n, second, store.Started)
		k.report(store.Result{Attempt: second, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, Permanent: true}, true)
		equal(k, "state after two failed runs", k.jobs[a].State, job.JobPaused)
	}},
	{"the end of a run starts those that follow it and its successor", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {after_end: 5s}")
		onFail, onAny := k.put("name: f\nschedule: {on: [{job: a, outcome: failed}]}"), k.put("name: g\nschedule: {on: [{job: a, outcome: finished}]}")
		first := k.inOrder(func(r *store.Run) bool { return r.JobUID == a })[0]
		k.pass(5 * time.Second)
		run := store.Attempt{Job: a, Run: first.ID, Number: 1, Token: k.id()}
		k.claim(n, run, store.Started)
		equal(k, "unplaced", k.finish(run, job.OutcomeSucceeded, true).Unplaced, true)
		k.see(a, "ready")
		k.see(onFail, "")
		k.see(onAny, "ready")
		k.finish(run, job.OutcomeSucceeded, true)
		k.see(onAny, "ready")
		next := k.inOrder(func(r *store.Run) bool { return r.JobUID == a })[0]
		equal(k, "delay", next.Due.Sub(k.now), 5*time.Second)
	}},
	{"what is split is over with its last shard, by the worst of them", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {cron: '* * * * *'}\nplace: {shards: 3}\npolicy: {overlap: allow, pause_on_failure: 1}")
		f, g := k.put("name: f\nschedule: {on: [{job: a, outcome: failed}]}"), k.put("name: g\nschedule: {on: [a]}")
		due := k.now.Add(time.Second)
		var shards []store.Attempt
		item := store.PlanItem{Job: a, Epoch: 1, From: k.jobs[a].Cursor, To: due}
		for i := range 3 {
			id := k.id()
			item.Runs = append(item.Runs, store.NewRun{ID: id, Session: n, Node: "n", Scheduled: due, Due: due, Shard: i, Shards: 3})
			shards = append(shards, store.Attempt{Job: a, Run: id, Number: 1, Token: job.ID{5, byte(i)}})
		}
		k.must(&Plan{Session: n, Items: []store.PlanItem{item}})
		k.pass(time.Second)
		for i, outcome := range []job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeSucceeded} {
			k.claim(n, shards[i], store.Started)
			k.see(f, "")
			k.finish(shards[i], outcome, true)
		}
		k.see(f, "ready")
		k.see(g, "")
		equal(k, "state", k.jobs[a].State, job.JobPaused)
	}},
	{"an attempt that surely did not start is given back", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely)
		run := k.plan(a, n)
		k.claim(n, run, store.Started)
		floor := k.jobs[a].Floor
		other := run
		other.Token = k.id()
		k.must(&Release{Session: n, Attempts: []store.Attempt{other}})
		k.see(a, "running")
		k.must(&Release{Session: n, Attempts: []store.Attempt{run}})
		k.must(&Release{Session: n, Attempts: []store.Attempt{run}})
		k.see(a, "ready")
		if !k.jobs[a].Floor.Before(floor) {
			k.Errorf("the floor stays at %s", floor)
		}
		run.Token = k.id()
		k.claim(n, run, store.Started)
		k.must(&Cancel{Runs: []RunRef{{Run: run.Run, Job: a}}, By: "ann", Reason: "enough"})
		k.must(&Release{Session: n, Attempts: []store.Attempt{run}})
		k.ended(run.Run, "cancelled", "by ann: enough")
	}},
	{"a cancel ends what is ready at once, and asks the node of what is running", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\npolicy: {overlap: queue, retry: {attempts: 3}}")
		ready, running, waiting := k.trigger(a, n), k.trigger(a, n), k.trigger(a, n)
		k.claim(n, running, store.Started)
		k.claim(n, waiting, store.Waiting)
		cancel := func(run job.ID) *Cancel {
			return &Cancel{Runs: []RunRef{{Run: run}}, By: "ann", Reason: "enough", Over: true}
		}
		for range 2 {
			k.must(cancel(ready.Run))
			k.must(cancel(waiting.Run))
			k.must(cancel(running.Run))
		}
		k.ended(ready.Run, "cancelled", "by ann: enough")
		k.see(a, "running ending")
		k.finish(running, job.OutcomeCancelled, true)
		k.ended(running.Run, "cancelled", "")
		k.refuses(cancel(job.ID{99}), store.ErrNotFound)
		k.must(&Cancel{Runs: []RunRef{{Run: job.ID{99}, Job: a}}}) // an ended run among many
	}},
	{"what is too late is missed, and what comes early waits", func(k *book) {
		n := k.join("n")
		a := k.put("name: a\nschedule: {cron: '* * * * *'}\npolicy: {late_by: 10s}")
		late := k.plan(a, n)
		k.pass(11 * time.Second)
		k.claim(n, late, store.Late)
		k.ended(late.Run, "missed", "")
		due := k.now.Add(10 * time.Second)
		early := store.NewRun{ID: k.id(), Session: n, Node: "n", Scheduled: due, Due: due}
		k.must(&Plan{Session: n, Items: []store.PlanItem{{Job: a, Epoch: 1, From: k.jobs[a].Cursor, To: due, Planned: k.jobs[a].Planned, Runs: []store.NewRun{early}}}})
		k.claim(n, store.Attempt{Job: a, Run: early.ID, Number: 1, Token: k.id()}, store.Early)
	}},
}
