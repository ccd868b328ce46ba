package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var planningTests = []test{
	{"once: the cursor moves and the run exists, or neither", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {priority: 7}")
		item := e.planItem(j, start.Add(5*time.Second))
		e.planned(item, store.Planned)
		sameTime(e, "cursor", e.reload(j).Cursor, start.Add(5*time.Second))
		r := e.run(item.Runs[0].ID)
		equal(e, "kind", r.Kind, job.RunScheduled)
		equal(e, "key", r.Key, "2026-11-20T12:00:05Z")
		equal(e, "state", r.State, job.StateReady)
		equal(e, "attempt", r.Attempt, 1)
		equal(e, "node", r.Node, "a")
		equal(e, "session", r.Session, e.a.ID)
		equal(e, "priority", r.Priority, 7)
		equal(e, "name", r.Namespace+"/"+r.Name, "default/a")
		sameTime(e, "late after", r.LateAfter, start.Add(time.Hour+5*time.Second))

		other := e.planItem(j, start.Add(5*time.Second))
		got, _, err := e.Plan(e.ctx, e.join("b").ID, []store.PlanItem{other})
		e.must(err)
		equal(e, "a second planner", planOutcomes[got[0]], "moved")
		equal(e, "runs", len(e.active(j)), 1)
	}},
	{"once: a repeated item is planned once", func(e *env) {
		j := e.put(everyMinute)
		item := e.planItem(j, start.Add(5*time.Second))
		e.planned(item, store.Planned)
		e.planned(item, store.Planned)
		equal(e, "runs", len(e.active(j)), 1)
		equal(e, "planned", e.reload(j).Planned, 1)

		done := store.PlanItem{Job: item.Job, Epoch: item.Epoch, From: item.To, To: item.To, Complete: true}
		e.planned(done, store.Planned)
		e.planned(done, store.Planned)
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobCompleted)
	}},
	{"an item is refused for another epoch, a paused, completed or unknown job", func(e *env) {
		j := e.put(everyMinute)
		item := e.planItem(j, start.Add(5*time.Second))
		item.Epoch = 2
		e.planned(item, store.Withdrawn)
		item.Epoch, item.Job = 1, e.id()
		e.planned(item, store.Withdrawn)
		item = e.planItem(e.put(everyMinute+"\npaused: true"), start.Add(5*time.Second))
		e.planned(item, store.Withdrawn)
		equal(e, "runs", len(e.active(j)), 0)

		one := e.put("name: b\nschedule: {at: ['2026-11-20T12:00:05Z']}")
		item = e.planItem(one, start.Add(5*time.Second))
		item.Complete = true
		e.planned(item, store.Planned)
		e.planned(e.planItem(e.reload(one), start.Add(6*time.Second)), store.Withdrawn)
	}},
	{"nothing is planned beyond the look-ahead, or missed in the future", func(e *env) {
		j := e.put(everyMinute)
		far := start.Add(lookAhead + store.PlanSlack)
		e.planned(e.planItem(j, far.Add(time.Millisecond)), store.TooFar)
		item := e.planItem(j)
		item.To = start.Add(time.Second)
		item.Missed = []store.MissedSpan{{ID: e.id(), First: item.To, Last: item.To, Count: 1}}
		e.planned(item, store.TooFar)
		sameTime(e, "cursor", e.reload(j).Cursor, start)
		e.planned(e.planItem(j, far), store.Planned)
	}},
	{"once: a run lies in the part that its cursor passes", func(e *env) {
		j := e.put(everyMinute)
		e.clock.Advance(10 * time.Second)
		second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
		for name, spoil := range map[string]func(*store.PlanItem){
			"backwards":            func(i *store.PlanItem) { i.To = second(-1) },
			"at the cursor":        func(i *store.PlanItem) { i.Runs[0].Scheduled = second(0) },
			"behind the new one":   func(i *store.PlanItem) { i.To = second(5) },
			"twice":                func(i *store.PlanItem) { i.Runs[1].Scheduled = i.Runs[0].Scheduled },
			"out of order":         func(i *store.PlanItem) { i.Runs[0], i.Runs[1] = i.Runs[1], i.Runs[0] },
			"due before scheduled": func(i *store.PlanItem) { i.Runs[0].Due = second(2) },
			"without an id":        func(i *store.PlanItem) { i.Runs[0].ID = job.ID{} },
			"missed at the cursor": func(i *store.PlanItem) {
				i.Missed = []store.MissedSpan{{ID: e.id(), First: start, Last: start, Count: 1}}
			},
		} {
			item := e.planItem(j, second(3), second(6))
			spoil(&item)
			got, _, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{item})
			e.must(err)
			equal(e, name, planOutcomes[got[0]], "malformed")
		}
		equal(e, "runs", len(e.active(j)), 0)
		sameTime(e, "cursor", e.reload(j).Cursor, start)
		hand := e.put("name: hand")
		item := e.planItem(hand)
		item.Complete = true
		e.planned(item, store.Malformed) // without a schedule it cannot end
	}},
	{"each item of a batch is planned independently", func(e *env) {
		a, b := e.put(everyMinute), e.put("name: b\nschedule: {cron: '* * * * *'}")
		items := []store.PlanItem{
			e.planItem(a, start.Add(time.Second)), e.planItem(b, start.Add(time.Hour)),
			e.planItem(b, start.Add(2*time.Second)), e.planItem(a, start.Add(3*time.Second)),
		}
		got, _, err := e.Plan(e.ctx, e.a.ID, items)
		e.must(err)
		equal(e, "outcomes", fmt.Sprint(got), fmt.Sprint([]store.PlanOutcome{store.Planned, store.TooFar, store.Planned, store.Moved}))
	}},
	{"batches are bounded", func(e *env) {
		_, _, err := e.Plan(e.ctx, e.a.ID, make([]store.PlanItem, store.MaxBatch+1))
		e.want(err, store.ErrTooMany)
		_, err = e.Trigger(e.ctx, make([]store.TriggerItem, store.MaxBatch+1))
		e.want(err, store.ErrTooMany)
		_, err = e.Claim(e.ctx, e.a.ID, make([]store.Attempt, store.MaxBatch+1))
		e.want(err, store.ErrTooMany)
		_, err = e.Finish(e.ctx, e.a.ID, make([]store.Result, store.MaxBatch+1))
		e.want(err, store.ErrTooMany)
		e.want(e.Place(e.ctx, make([]store.Placement, store.MaxBatch+1)), store.ErrTooMany)
		e.want(e.Release(e.ctx, e.a.ID, make([]store.Attempt, store.MaxBatch+1)), store.ErrTooMany)
		e.want(e.Reap(e.ctx, e.a.ID, make([]store.Attempt, store.MaxBatch+1)), store.ErrTooMany)
		e.want(e.AppendOutput(e.ctx, make([]store.OutputChunk, store.MaxBatch+1)), store.ErrTooMany)
	}},
	{"a whole batch of runs is planned, claimed and finished", func(e *env) {
		var items []store.PlanItem
		for i := range store.MaxBatch {
			items = append(items, e.planItem(e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}", i)), start.Add(time.Second)))
		}
		got, _, err := e.Plan(e.ctx, e.a.ID, items)
		e.must(err)
		var attempts []store.Attempt
		var results []store.Result
		for i, o := range got {
			equal(e, "planned", o, store.Planned)
			attempts = append(attempts, store.Attempt{Job: items[i].Job, Run: items[i].Runs[0].ID, Number: 1, Token: e.id()})
			results = append(results, store.Result{Attempt: attempts[i], Started: start, Ended: start, Outcome: job.OutcomeSucceeded})
		}
		claims, err := e.Claim(e.ctx, e.a.ID, attempts)
		e.must(err)
		for _, c := range claims {
			equal(e, "claimed", verdicts[c.Verdict], "started")
		}
		finished, err := e.Finish(e.ctx, e.a.ID, results)
		e.must(err)
		for _, f := range finished {
			equal(e, "accepted", f.Accepted, true)
		}
		left, err := e.ListActive(e.ctx, store.ActiveQuery{Limit: 10})
		e.must(err)
		equal(e, "left", len(left), 0)
	}},
	{"accounted: missed occurrences are one record", func(e *env) {
		j := e.put(everyMinute)
		e.clock.Advance(time.Hour)
		item := e.planItem(j, start.Add(time.Hour))
		item.Missed = []store.MissedSpan{{ID: e.id(), First: start.Add(time.Minute), Last: start.Add(59 * time.Minute), Count: 59, Reason: job.Text("no node was there")}}
		e.planned(item, store.Planned)
		r := e.gone(item.Missed[0].ID, job.OutcomeMissed)
		equal(e, "count", r.Count, 59)
		equal(e, "reason", r.Attempt.Reason, job.Text("no node was there"))
		sameTime(e, "first", r.Run.Scheduled, start.Add(time.Minute))
		sameTime(e, "until", r.Until, start.Add(59*time.Minute))
		equal(e, "final", r.Final, true)
		equal(e, "planned", e.reload(j).Planned, 1) // missed runs do not count for max_runs
	}},
	{"a job is completed after its max_runs, and not before they are planned", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * *', max_runs: 2}")
		e.planned(e.planItem(j, start.Add(time.Second), start.Add(2*time.Second), start.Add(3*time.Second)), store.Malformed)
		item := e.planItem(j, start.Add(time.Second), start.Add(2*time.Second))
		item.Complete = true
		e.planned(item, store.Planned)
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobCompleted)
		more := e.put("name: a\nschedule: {cron: '* * * * *', max_runs: 3}")
		equal(e, "state with more", more.Definition.Status.State, job.JobActive)
		equal(e, "planned", more.Planned, 0) // the change has withdrawn both
	}},
	{"another schedule counts max_runs anew, another number does not", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * *', max_runs: 2}")
		a := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeSucceeded)
		equal(e, "planned", e.put("name: a\nschedule: {cron: '* * * * *', max_runs: 3}").Planned, 1)
		equal(e, "planned by another schedule", e.put("name: a\nschedule: {cron: '*/2 * * * *', max_runs: 3}").Planned, 0)
	}},
	{"runs withdrawn before their start do not count for max_runs", func(e *env) {
		const text = "name: a\nschedule: {cron: '* * * * *', max_runs: 4}\npolicy: {overlap: allow, retry: {attempts: 1, backoff: 1h}}"
		j := e.put(text)
		runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
		last := e.planItem(e.reload(j), start.Add(4*time.Second))
		last.Complete = true
		e.planned(last, store.Planned)
		e.clock.Advance(3 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.finish(runs[0], job.OutcomeFailed) // it waits for its next attempt
		e.claim(e.a, runs[1], store.Started) // the pause recalls it
		paused := e.put(text + "\npaused: true")
		equal(e, "planned after the pause", paused.Planned, 2)
		resumed := e.put(text)
		equal(e, "planned after the resume", resumed.Planned, 2)
		equal(e, "state", resumed.Definition.Status.State, job.JobActive)
		// When it is recalled, the other runs are already planned.
		item := e.planItem(resumed, start.Add(5*time.Second), start.Add(6*time.Second))
		item.Complete = true
		e.planned(item, store.Planned)
		e.must(e.Release(e.ctx, e.a.ID, runs[1:2]))
		e.gone(runs[1].Run, job.OutcomeWithdrawn)
		after := e.reload(j)
		equal(e, "planned after the release", after.Planned, 3)
		equal(e, "state after the release", after.Definition.Status.State, job.JobActive)
		e.tidy()
		equal(e, "planned in the end", e.reload(j).Planned, 3)
		stale := e.planItem(after, start.Add(7*time.Second))
		stale.Planned++
		e.planned(stale, store.Moved) // the planner must read again
		e.planned(e.planItem(after, start.Add(7*time.Second)), store.Planned)
	}},
	{"a chain that is paused and resumed counts its runs once", func(e *env) {
		const text = "name: a\nschedule: {after_end: 5s, max_runs: 2}"
		j := e.put(text)
		for range 3 {
			equal(e, "planned while paused", e.put(text+"\npaused: true").Planned, 0)
			equal(e, "planned", e.put(text).Planned, 1)
		}
		e.tidy()
		equal(e, "runs", len(e.active(j)), 1)
	}},
	{"an occurrence with shards counts once unless it is withdrawn", func(e *env) {
		const text = "name: a\nschedule: {cron: '* * * * *', max_runs: 3}\nplace: {shards: 2}"
		j := e.put(text)
		item := e.planItem(j)
		for _, second := range []int{1, 2} {
			for shard := range 2 {
				at := start.Add(time.Duration(second) * time.Second)
				item.Runs = append(item.Runs, store.NewRun{ID: e.id(), Session: e.a.ID, Scheduled: at, Due: at, Shard: shard, Shards: 2})
				item.To = at
			}
		}
		e.planned(item, store.Planned)
		e.clock.Advance(time.Second)
		a := store.Attempt{Job: item.Job, Run: item.Runs[1].ID, Number: 1, Token: e.id()}
		e.claim(e.a, a, store.Started)
		equal(e, "planned after the pause", e.put(text+"\npaused: true").Planned, 1)
	}},
	{"an occurrence with shards counts if any of them has started", func(e *env) {
		for i, c := range []struct {
			shards int
			// steps are a letter and shards: claim, release, finish, lose an attempt, kill
			// (cancel), pause, unpause, another schedule, plan, tidy.
			steps string
			want  int
		}{
			{3, "pause", 0},
			{3, "claim0 pause release0", 0},
			{3, "claim2 pause release2", 0},
			{3, "claim2 pause tidy unpause release2", 0},
			{3, "claim012 pause release012", 0},
			{3, "claim01 pause release1 release0", 0},
			{3, "claim01 pause release0 tidy release1", 0},
			{3, "claim01 pause release0", 1}, // the other attempt may have started
			{3, "claim01 pause release0 finish1", 1},
			{3, "claim01 pause finish1 release0", 1},
			{3, "claim02 pause finish2 tidy release0", 1},
			{3, "claim012 pause release2 finish1 release0", 1},
			{3, "claim1 finish1 claim0 pause release0", 1},
			{3, "claim0 kill1 pause tidy release0", 1},
			{3, "claim01 lose1 pause release0", 1},
			{3, "claim01 lose1 pause tidy release0", 1},
			{3, "claim0 release0 claim0 pause release0", 0},
			{3, "claim0 release0 pause", 0},
			{3, "claim01 release1 pause release0", 0},
			{3, "claim0 kill0 pause release0", 0},
			{3, "claim01 another plan release01", 1},
			{3, "claim0 another tidy plan release0", 1},
			{0, "claim0 pause release0", 0},
			{0, "claim0 kill0 pause release0", 0},
			{0, "claim0 another plan release0", 1},
			{0, "claim0 pause unpause plan release0", 1},
		} {
			name := fmt.Sprint("a", i)
			text := func(schedule string) string {
				text := "name: " + name + "\nschedule: {" + schedule + ", max_runs: 5}\npolicy: {overlap: allow, retry: {attempts: 1, backoff: 1h}}"
				if c.shards > 0 {
					text += fmt.Sprint("\nplace: {shards: ", c.shards, "}")
				}
				return text
			}
			minutely := text("cron: '* * * * *'")
			j := e.put(minutely)
			plan := func() (attempts []store.Attempt) {
				at := e.now().Add(time.Second)
				item := e.planItem(e.reload(j))
				item.To = at
				for shard := range max(1, c.shards) {
					n := store.NewRun{ID: e.id(), Session: e.a.ID, Scheduled: at, Due: at, Shard: shard, Shards: c.shards}
					item.Runs = append(item.Runs, n)
					attempts = append(attempts, store.Attempt{Job: item.Job, Run: n.ID, Number: 1, Token: e.id()})
				}
				e.planned(item, store.Planned)
				e.clock.Advance(time.Second)
				return attempts
			}
			shards := plan()
			for step := range strings.FieldsSeq(c.steps) {
				do := strings.TrimRight(step, "012")
				var of []store.Attempt
				for _, shard := range step[len(do):] {
					of = append(of, shards[shard-'0'])
				}
				switch do {
				case "release": // in one call
					e.must(e.Release(e.ctx, e.a.ID, of))
				case "pause":
					e.put(minutely + "\npaused: true")
				case "unpause":
					e.put(minutely)
				case "another":
					e.put(text("cron: '*/2 * * * *'"))
				case "plan":
					plan()
				case "tidy":
					e.tidy()
				}
				for _, a := range of {
					switch do {
					case "claim":
						e.claim(e.a, a, store.Started)
					case "finish":
						e.finish(a, job.OutcomeSucceeded)
					case "lose":
						e.finish(a, job.OutcomeLost) // it waits for its next attempt
					case "kill":
						_, err := e.Cancel(e.ctx, a.Run, "ann", "")
						e.must(err)
					}
				}
			}
			equal(e, fmt.Sprintf("%d shards: %s: planned", c.shards, c.steps), e.reload(j).Planned, c.want)
		}
	}},
	{"an occurrence has a run for each shard", func(e *env) {
		j := e.put(everyMinute + "\nplace: {shards: 3}")
		item := e.planItem(j)
		item.To = start.Add(time.Second)
		for i := range 3 {
			item.Runs = append(item.Runs, store.NewRun{ID: e.id(), Scheduled: item.To, Due: item.To, Shard: i, Shards: 3})
		}
		e.planned(item, store.Planned)
		equal(e, "runs", len(e.active(j)), 3)
		equal(e, "planned occurrences", e.reload(j).Planned, 1)
		e.clock.Advance(time.Second)
		for _, n := range item.Runs { // each shard has its own slot
			e.claim(e.a, store.Attempt{Job: item.Job, Run: n.ID, Number: 1, Token: e.id()}, store.Started)
		}
	}},

	{"once: a request with the same key is the same run for 24 hours", func(e *env) {
		j := e.put("name: a")
		item := store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Params: map[string]string{"p": "1"}, Actor: "ann"}
		first := e.triggered(item)
		r := e.run(first.Run)
		equal(e, "kind", r.Kind, job.RunByHand)
		equal(e, "key", r.Key, "k")
		equal(e, "param", r.Params["p"], "1")
		sameTime(e, "due", r.Due, start)
		item.ID = e.id()
		got, err := e.Trigger(e.ctx, []store.TriggerItem{item, item})
		e.must(err)
		for _, o := range got {
			if o.Run != first.Run || o.Made {
				e.Errorf("asked again: got %+v, want the run %s", o, first.Run)
			}
		}
		e.claim(e.a, first, store.Started)
		e.finish(first, job.OutcomeSucceeded)
		e.clock.Advance(23 * time.Hour)
		e.tidy()
		equal(e, "after its end", e.triggered(item).Run, first.Run)
		equal(e, "runs", len(e.active(j)), 0)
		equal(e, "audit", fmt.Sprint(e.actions()), "[ann run.hand default/a ann job.create default/a]")
		e.clock.Advance(2 * time.Hour)
		e.tidy()
		if e.triggered(item).Run == first.Run {
			e.Error("the key is kept for more than 24 hours")
		}
	}},
	{"a paused job runs only by hand", func(e *env) {
		j := e.put(everyMinute + "\npaused: true")
		e.claim(e.a, e.trigger(j), store.Started)
		uid := j.Definition.UID
		got, err := e.Trigger(e.ctx, []store.TriggerItem{
			{ID: e.id(), Job: uid, Kind: job.RunBackfill, Scheduled: start, Actor: "ann"},
			{ID: e.id(), Job: uid, Kind: job.RunBoot, Key: "process"},
			{ID: e.id(), Job: e.id(), Kind: job.RunByHand, Key: "x", Actor: "ann"},
		})
		e.must(err)
		for _, o := range got {
			e.want(o.Err, store.ErrNotFound)
		}
	}},
	{"once: a node's process starts a job of boot once", func(e *env) {
		j := e.put("name: a\nschedule: {boot: true}")
		item := store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunBoot, Key: "process 1", Session: e.a.ID}
		first := e.triggered(item)
		item.ID = e.id()
		equal(e, "the same process", e.triggered(item).Run, first.Run)
		item.Key = "process 2"
		if e.triggered(item).Run == first.Run {
			e.Error("another process is given the same run")
		}
		equal(e, "audit", fmt.Sprint(e.actions()), "[ann job.create default/a]")
	}},
	{"withdrawn: backfills and boots end with a pause, runs by hand do not", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		uid := j.Definition.UID
		backfill := e.triggered(store.TriggerItem{ID: e.id(), Job: uid, Kind: job.RunBackfill, Scheduled: start.Add(-time.Hour), Actor: "ann"})
		boot := e.triggered(store.TriggerItem{ID: e.id(), Job: uid, Kind: job.RunBoot, Key: "p"})
		hand := e.trigger(j)
		e.put(everyMinute + "\npolicy: {overlap: allow}\npaused: true")
		e.claim(e.a, backfill, store.Gone)
		e.claim(e.a, boot, store.Gone)
		e.claim(e.a, hand, store.Started)
	}},
	{"several runs are cancelled in one step and none of them gets the slot", func(e *env) {
		j := e.put(everyMinute)
		var runs []store.Attempt
		for i := range 4 {
			runs = append(runs, e.triggered(store.TriggerItem{
				ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start.Add(time.Duration(i-5) * time.Minute),
				Due: start.Add(time.Duration(i) * time.Millisecond), Overlap: job.OverlapQueue, Actor: "ann",
			}))
		}
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Waiting)
		e.claim(e.a, runs[2], store.Waiting)
		ids := []job.ID{runs[3].Run, runs[2].Run, runs[1].Run, e.id(), runs[0].Run}
		for i, want := range []int{4, 1} { // the second time only the running one has not ended
			got, err := e.CancelRuns(e.ctx, j.Definition.UID, ids, "bob", "enough")
			e.must(err)
			equal(e, fmt.Sprint("cancelled, time ", i), len(got), want)
			equal(e, "the running one", got[len(got)-1].ID, runs[0].Run)
			equal(e, "asked by", got[len(got)-1].CancelBy, "bob")
		}
		for _, a := range runs[1:] {
			e.gone(a.Run, job.OutcomeCancelled)
		}
		e.finish(runs[0], job.OutcomeCancelled)
		_, err := e.CancelRuns(e.ctx, j.Definition.UID, make([]job.ID, store.MaxBatch+1), "bob", "")
		e.want(err, store.ErrTooMany)
	}},
	{"the backfills of a step are audited together", func(e *env) {
		j := e.put(everyMinute)
		var items []store.TriggerItem
		for i := range 3 {
			items = append(items, store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start.Add(time.Duration(i-5) * time.Minute), Actor: "ann"})
		}
		for range 2 {
			_, err := e.Trigger(e.ctx, items)
			e.must(err)
		}
		equal(e, "audit", fmt.Sprint(e.actions()), "[ann run.backfill default/a ann job.create default/a]")
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 1})
		e.must(err)
		equal(e, "detail", list[0].Detail.String(), "3 runs, scheduled from 2026-11-20T11:55:00Z to 2026-11-20T11:57:00Z")
	}},
	{"backfills outlive a change of the schedule", func(e *env) {
		j := e.put(everyMinute)
		a := e.triggered(store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start.Add(-time.Hour), Actor: "ann"})
		equal(e, "key", e.run(a.Run).Key, "2026-11-20T11:00:00Z")
		e.put("name: a\nschedule: {cron: '*/2 * * * *'}")
		e.claim(e.a, a, store.Started)
	}},

	{"runs without a live session are placed", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		b := e.join("b")
		runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
		item := e.planItem(e.reload(j), start.Add(4*time.Second))
		item.Runs[0].Session = job.ID{}
		e.planned(item, store.Planned)
		unplaced := func() (n int) {
			list, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
			e.must(err)
			return len(list)
		}
		equal(e, "unplaced", unplaced(), 1)
		e.must(e.Place(e.ctx, []store.Placement{{Job: item.Job, Run: item.Runs[0].ID, Attempt: 1, Session: b.ID}}))
		equal(e, "unplaced", unplaced(), 0)
		r := e.run(item.Runs[0].ID)
		equal(e, "node", r.Node, "b")

		e.clock.Advance(3 * time.Second)
		e.must(e.Renew(e.ctx, b.ID, store.Load{}))
		e.claim(e.a, runs[0], store.Started)
		e.clock.Advance(3 * time.Second) // node a is silent for 6 s
		equal(e, "unplaced after silence", unplaced(), 2)
		page, err := e.Unplaced(e.ctx, store.RunRef{}, 1)
		e.must(err)
		equal(e, "a page of one", len(page), 1)
		next, err := e.Unplaced(e.ctx, store.RunRef{Due: page[0].Due, ID: page[0].ID}, 10)
		e.must(err)
		equal(e, "runs behind it", len(next), 1)
		equal(e, "the same run", page[0].ID == next[0].ID, false)
		e.must(e.Place(e.ctx, []store.Placement{
			{Job: runs[0].Job, Run: runs[0].Run, Attempt: 1, Session: b.ID}, // it runs
			{Job: runs[1].Job, Run: runs[1].Run, Attempt: 2, Session: b.ID}, // another attempt number
			{Job: runs[2].Job, Run: runs[2].Run, Attempt: 1, Session: b.ID},
			{Run: e.id(), Attempt: 1, Session: b.ID},
		}))
		equal(e, "node of what runs", e.run(runs[0].Run).Node, "a")
		equal(e, "node of another attempt", e.run(runs[1].Run).Node, "a")
		equal(e, "node of the placed one", e.run(runs[2].Run).Node, "b")
	}},
	{"ready and overdue runs come by due time, in pages", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow, priority: 7}")
		runs := e.plan(j, 1*time.Second, 2*time.Second, 3*time.Second, 4*time.Second, 5*time.Second)
		hand := e.trigger(j)
		check := func(what string, next func(store.RunRef) ([]store.RunRef, error), want ...job.ID) {
			e.Helper()
			var got []job.ID
			for after := (store.RunRef{}); ; {
				page, err := next(after)
				e.must(err)
				for _, r := range page {
					got = append(got, r.ID)
					after = r
				}
				if len(page) < 2 {
					break
				}
			}
			equal(e, what, fmt.Sprint(got), fmt.Sprint(want))
		}
		refs := func(list []store.ReadyRun, err error) (refs []store.RunRef, _ error) {
			for _, r := range list {
				equal(e, "what is ready", r, store.ReadyRun{RunRef: r.RunRef, Job: j.Definition.UID, Session: e.a.ID, Attempt: 1, Priority: 7})
				refs = append(refs, r.RunRef)
			}
			return refs, err
		}
		ready := func(until time.Duration) func(store.RunRef) ([]store.RunRef, error) {
			return func(after store.RunRef) ([]store.RunRef, error) {
				return refs(e.Ready(e.ctx, store.ReadyQuery{Session: e.a.ID, After: after, Until: start.Add(until), Limit: 2}))
			}
		}
		check("ready until 4 s", ready(4*time.Second), hand.Run, runs[0].Run, runs[1].Run, runs[2].Run, runs[3].Run)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		check("ready until 2 s", ready(2*time.Second), hand.Run, runs[1].Run)
		overdue := func(after store.RunRef) ([]store.RunRef, error) {
			return refs(e.Ready(e.ctx, store.ReadyQuery{Any: true, Until: start.Add(4 * time.Second).Add(-1), After: after, Limit: 2}))
		}
		check("overdue before 4 s", overdue, hand.Run, runs[1].Run, runs[2].Run)
		other, err := e.Ready(e.ctx, store.ReadyQuery{Session: e.join("b").ID, Until: start.Add(time.Hour), Limit: 10})
		e.must(err)
		equal(e, "ready for another node", len(other), 0)

		active := func(after store.RunRef) (refs []store.RunRef, err error) {
			list, err := e.ListActive(e.ctx, store.ActiveQuery{Namespace: "default", State: job.StateReady, After: after, Limit: 2})
			for _, r := range list {
				refs = append(refs, store.RunRef{Due: r.Due, ID: r.ID})
			}
			return refs, err
		}
		check("active and ready", active, hand.Run, runs[1].Run, runs[2].Run, runs[3].Run, runs[4].Run)
	}},
	{"the backlog counts ready and due runs by session", func(e *env) {
		backlog := func(what string, limit int, want map[job.ID]int) {
			got, err := e.Backlog(e.ctx, limit)
			e.must(err)
			equal(e, what, fmt.Sprint(got), fmt.Sprint(want))
		}
		backlog("nothing is planned", 10, nil)
		j := e.put("name: j\nschedule: {cron: '* * * * * *'}")
		item := e.planItem(j, start.Add(time.Second), start.Add(2*time.Second), start.Add(3*time.Second), start.Add(4*time.Second))
		item.Runs[3].Session = job.ID{}
		_, _, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{item})
		e.must(err)
		backlog("nothing is due", 10, nil)
		e.clock.Advance(2 * time.Second)
		backlog("two are due", 10, map[job.ID]int{e.a.ID: 2})
		e.clock.Advance(2 * time.Second)
		backlog("all are due", 10, map[job.ID]int{e.a.ID: 3, {}: 1})
		backlog("two are counted", 2, map[job.ID]int{e.a.ID: 2, {}: 1})
		e.claim(e.a, store.Attempt{Job: item.Job, Run: item.Runs[0].ID, Number: 1}, store.Started)
		backlog("one is claimed", 10, map[job.ID]int{e.a.ID: 2, {}: 1})
	}},
	{"runs due at the same instant come by id without a gap between pages", func(e *env) {
		var items []store.PlanItem
		for i := range 20 {
			items = append(items, e.planItem(e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}", i)), start.Add(time.Second)))
		}
		_, _, err := e.Plan(e.ctx, e.a.ID, items)
		e.must(err)
		seen := map[job.ID]bool{}
		for after := (store.RunRef{}); ; {
			page, err := e.Ready(e.ctx, store.ReadyQuery{Session: e.a.ID, After: after, Until: start.Add(time.Second), Limit: 3})
			e.must(err)
			for _, r := range page {
				if seen[r.ID] {
					e.Fatalf("run %s is on two pages", r.ID)
				}
				seen[r.ID] = true
				after = r.RunRef
			}
			if len(page) < 3 {
				break
			}
		}
		equal(e, "runs", len(seen), 20)
	}},
}
