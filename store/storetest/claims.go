package storetest

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var claimTests = []test{
	{"started once: one node claims an attempt and recognizes its repeated claim", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, 2*time.Second)[0]
		b := e.join("b")
		e.clock.Advance(2 * time.Second)
		got := e.claim(e.a, a, store.Started)
		equal(e, "state", got.Run.State, job.StateRunning)
		equal(e, "node", got.Run.Node, "a")
		sameTime(e, "now", got.Now, e.now())
		sameTime(e, "first", got.Run.First, e.now())
		if got.Job == nil || got.Job.Definition.UID != j.Definition.UID {
			e.Error("a started claim has no definition")
		}
		again := e.claim(e.a, a, store.Started)
		if again.Job == nil {
			e.Error("a repeated claim has no definition")
		}
		other := a
		other.Token = e.id()
		e.claim(b, other, store.Taken)
		e.claim(e.a, other, store.Taken)
		e.claim(b, a, store.Taken)
		mine, err := store.RunsOn(e.ctx, e, e.a.ID)
		e.must(err)
		if len(mine) != 1 || mine[0].ID != a.Run || mine[0].Token != a.Token {
			e.Errorf("mine: %+v", mine)
		}
		e.finish(a, job.OutcomeSucceeded)
		e.claim(e.a, a, store.Taken)
	}},
	{"started once: two claims in one batch", func(e *env) {
		a := e.plan(e.put(everyMinute), time.Second)[0]
		e.clock.Advance(time.Second)
		other := a
		other.Token = e.id()
		got, err := e.Claim(e.ctx, e.a.ID, []store.Attempt{a, other, a, {Run: e.id(), Number: 1, Token: e.id()}})
		e.must(err)
		for i, want := range []store.Verdict{store.Started, store.Taken, store.Started, store.Taken} {
			equal(e, "verdict", verdicts[got[i].Verdict], verdicts[want])
		}
	}},
	{"started once: another attempt number is not claimed", func(e *env) {
		a := e.plan(e.put(everyMinute), time.Second)[0]
		e.clock.Advance(time.Second)
		a.Number = 2
		e.claim(e.a, a, store.Taken)
		equal(e, "state", e.run(a.Run).State, job.StateReady)
	}},
	{"a run is claimed at most two seconds ahead", func(e *env) {
		a := e.plan(e.put(everyMinute), 5*time.Second)[0]
		e.clock.Advance(3*time.Second - time.Millisecond)
		e.claim(e.a, a, store.Early)
		e.clock.Advance(time.Millisecond)
		e.claim(e.a, a, store.Started)
	}},
	{"a run too late for its first attempt is missed", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {late_by: 1m, overlap: allow}")
		runs := e.plan(j, 2*time.Second, 3*time.Second)
		e.clock.Advance(62 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.clock.Advance(time.Second + time.Millisecond)
		got := e.claim(e.a, runs[1], store.Late)
		contains(e, "reason", got.Reason.String(), "2026-11-20T12:01:03Z")
		e.gone(runs[1].Run, job.OutcomeMissed)
		e.claim(e.a, runs[1], store.Late)
	}},
	{"late_by 0 leaves time for the claim itself, forever has no end", func(e *env) {
		strict := e.plan(e.put(everyMinute+"\npolicy: {late_by: 0}"), time.Second)[0]
		lax := e.plan(e.put("name: b\nschedule: {cron: '* * * * *'}\npolicy: {late_by: forever}"), time.Second)[0]
		e.clock.Advance(1900 * time.Millisecond)
		e.claim(e.a, strict, store.Started)
		e.clock.Advance(1000 * time.Hour)
		e.tidy()
		b := e.join("b")
		e.claim(b, lax, store.Started)
	}},
	{"an edit of late_by applies to planned runs", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {late_by: 1m}")
		a := e.plan(j, time.Second)[0]
		e.put(everyMinute + "\npolicy: {late_by: 2m}")
		e.clock.Advance(90 * time.Second)
		e.tidy()
		e.claim(e.a, a, store.Started)
	}},
	{"accounted: unclaimed runs are missed in time after an edit shortens late_by", func(e *env) {
		const lax, strict = "\npolicy: {late_by: forever, overlap: allow}", "\npolicy: {late_by: 10s, overlap: allow}"
		j := e.put(everyMinute + lax)
		runs := e.plan(j, time.Second, 2*time.Second)
		e.put("name: b\nschedule: {on: [up]}" + lax)
		up := e.trigger(e.put("name: up"))
		e.claim(e.a, up, store.Started)
		e.finish(up, job.OutcomeSucceeded)
		follower, err := e.ListActive(e.ctx, store.ActiveQuery{State: job.StateReady, Limit: 1})
		e.must(err)
		e.claim(e.a, runs[0], store.Started)
		e.put(everyMinute + strict)
		e.put("name: b\nschedule: {on: [down]}" + strict) // which withdraws nothing
		e.must(e.Release(e.ctx, e.a.ID, runs[:1]))
		e.clock.Advance(10 * time.Second)
		e.tidy()
		e.run(runs[1].Run)
		e.clock.Advance(2*time.Second + time.Millisecond)
		e.tidy()
		for _, id := range []job.ID{runs[0].Run, runs[1].Run, follower[0].ID} {
			contains(e, "reason", e.gone(id, job.OutcomeMissed).Run.Reason.String(), "it could start until 2026-11-20T12:00:1")
		}
	}},
	{"a requested run is never too late", func(e *env) {
		a := e.trigger(e.put("name: a\npolicy: {late_by: 1s}"))
		e.clock.Advance(24 * time.Hour)
		e.tidy()
		e.claim(e.join("b"), a, store.Started)
	}},
	{"a node without matching labels steals no run", func(e *env) {
		b := e.join("b")
		item := e.planItem(e.put(everyMinute+"\nplace: {labels: {name: b}}"), start.Add(time.Second))
		item.Runs[0].Session = b.ID
		e.planned(item, store.Planned)
		e.clock.Advance(time.Second)
		a := store.Attempt{Job: item.Job, Run: item.Runs[0].ID, Number: 1, Token: e.id()}
		e.claim(e.a, a, store.Taken)
		equal(e, "session", e.run(a.Run).Session, b.ID)
		e.claim(b, a, store.Started)
	}},
	{"a node whose labels no longer match leaves the run to others", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, time.Second)[0]
		b := e.join("b")
		e.put(everyMinute + "\nplace: {labels: {name: b}}")
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Taken)
		list, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
		e.must(err)
		equal(e, "unplaced", len(list), 1)
		contains(e, "reason", list[0].Reason.String(), "label")
		e.claim(b, a, store.Started)
	}},
	{"sticky and broadcast runs are not stolen", func(e *env) {
		b := e.join("b")
		for i, text := range []string{"\nplace: {sticky: true}", "\nplace: {strategy: broadcast}"} {
			j := e.put("name: j" + string(rune('0'+i)) + "\nschedule: {cron: '* * * * *'}" + text)
			a := e.plan(j, time.Second)[0]
			e.clock.Advance(time.Second)
			e.claim(b, a, store.Taken)
			e.claim(e.a, a, store.Started)
		}
	}},
	{"a leaving or ended node claims nothing", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		runs := e.plan(j, time.Second, 2*time.Second)
		b := e.join("b")
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.must(e.Leave(e.ctx, e.a.ID))
		e.claim(e.a, runs[0], store.Started) // its answer was lost
		e.claim(e.a, runs[1], store.Taken)
		e.claim(b, runs[1], store.Started)
		_, err := e.Claim(e.ctx, e.id(), runs)
		e.want(err, store.ErrSessionOver)
	}},
	{"a released attempt is ready again under its number", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {late_by: 1m}"), time.Second)[0]
		e.claim(e.a, a, store.Started)
		wrong := a
		wrong.Token = e.id()
		e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{wrong}))
		equal(e, "state after a wrong release", e.run(a.Run).State, job.StateRunning)
		for range 2 {
			e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a}))
			r := e.run(a.Run)
			equal(e, "state", r.State, job.StateReady)
			equal(e, "attempt", r.Attempt, 1)
		}
		equal(e, "records", len(e.attempts(a.Run)), 0)
		if e.report(store.Result{Attempt: a, Outcome: job.OutcomeSucceeded}).Accepted {
			e.Error("the result of a released attempt is accepted")
		}
		a.Token = e.id()
		e.claim(e.join("b"), a, store.Started)
	}},
	{"a postponed attempt is due again, names what it waits for, and holds its slot", func(e *env) {
		const why = "its secrets cannot be read: vault is away"
		runs := e.plan(e.put(everyMinute+"\npolicy: {overlap: skip}"), time.Second, 3*time.Second)
		e.claim(e.a, runs[0], store.Started)
		due := e.run(runs[0].Run).Due
		for range 2 { // a repeated report changes nothing
			e.report(store.Result{Attempt: runs[0], Postponed: true, Reason: job.Text(why)})
		}
		r := e.run(runs[0].Run)
		if !r.IsPostponed() || r.Reason.String() != why || r.Attempt != 1 || !r.FirstDue.Equal(due) || !r.Due.After(due) || !r.Session.IsZero() {
			e.Errorf("the postponed run is %+v", r)
		}
		e.must(e.Place(e.ctx, []store.Placement{{Job: runs[0].Job, Run: runs[0].Run, Attempt: 1, Session: e.a.ID}}))
		equal(e, "reason of the placed run", e.run(runs[0].Run).Reason, job.Text(why))
		e.clock.Advance(4 * time.Second)
		e.claim(e.a, runs[1], store.Skipped)
		equal(e, "reason", e.attempts(runs[1].Run)[0].Attempt.Reason.String(), "run "+runs[0].Run.String()+" of "+r.Scheduled.UTC().Format(time.RFC3339)+" is waiting: "+why)
		e.clock.Advance(time.Minute)
		runs[0].Token = e.id()
		e.claim(e.join("b"), runs[0], store.Started)
		if !e.report(store.Result{Attempt: runs[0], Outcome: job.OutcomeSucceeded}).Accepted {
			e.Error("the result of an attempt that was postponed before is not accepted")
		}
	}},
	{"a postponed attempt lets other jobs have the slot of its pool", func(e *env) {
		waits := e.plan(e.put("name: w\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: p}"), time.Second)[0]
		other := e.plan(e.put("name: o\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: p}"), time.Second)[0]
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, waits, store.Started)
		e.report(store.Result{Attempt: waits, Postponed: true, Reason: job.Text("its secrets cannot be read")})
		e.claim(e.a, other, store.Started)
	}},
	{"a released attempt can be too late", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {late_by: 1m}"), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a}))
		e.clock.Advance(2 * time.Minute)
		e.claim(e.a, a, store.Late)
	}},
	{"withdrawn: an attempt recalled before its start ends with its release", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Started)
		_, err := e.Cancel(e.ctx, runs[0].Run, "ann", "not now")
		e.must(err)
		e.must(e.Release(e.ctx, e.a.ID, runs[:1]))
		e.gone(runs[0].Run, job.OutcomeCancelled)
		e.put("name: a\nschedule: {cron: '*/2 * * * *'}\npolicy: {overlap: allow}")
		e.must(e.Release(e.ctx, e.a.ID, runs[1:]))
		e.gone(runs[1].Run, job.OutcomeWithdrawn)
	}},
	{"withdrawn: a claim before its due time is listed after an edit, a pause and a deletion until its release", func(e *env) {
		const allow = "\npolicy: {overlap: allow}"
		for _, change := range []func(*store.Job){
			func(*store.Job) { e.put("name: a\nschedule: {cron: '*/2 * * * *'}" + allow) },
			func(*store.Job) { e.put(everyMinute + allow + "\npaused: true") },
			func(j *store.Job) {
				e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
			},
		} {
			j := e.put(everyMinute + allow)
			runs := e.plan(j, time.Second, 1500*time.Millisecond, 2*time.Second)
			for _, a := range runs {
				e.claim(e.a, a, store.Started)
			}
			e.clock.Advance(time.Second)
			change(j)
			claimed := func() (list []job.ID) {
				for _, uid := range []job.ID{j.Definition.UID, {}} {
					runs, err := e.ListActive(e.ctx, store.ActiveQuery{Job: uid, State: job.StateRunning, After: store.RunRef{Due: e.now()}, Limit: 10})
					e.must(err)
					for i := range runs {
						if runs[i].Due.After(e.now()) {
							list = append(list, runs[i].ID)
						}
					}
				}
				return list
			}
			same := func(what string, want ...job.ID) {
				if got := claimed(); !slices.Equal(got, append(want, want...)) {
					e.Errorf("claims that are not due, after %s: got %v, want %v twice", what, got, want)
				}
			}
			same("the change", runs[1].Run, runs[2].Run)
			e.must(e.Release(e.ctx, e.a.ID, runs[1:2]))
			same("a release", runs[2].Run)
			e.must(e.Release(e.ctx, e.a.ID, runs[2:]))
			same("both releases")
			e.finish(runs[0], job.OutcomeSucceeded)
		}
	}},
	{"a lost attempt whose claim was early started when it was due", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {retry: {attempts: 1, on: [lost]}}"), 2*time.Second)[0]
		due := e.now().Add(2 * time.Second)
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Started)
		e.clock.Advance(5 * time.Second)
		e.must(e.Reap(e.ctx, e.join("a").ID, []store.Attempt{a}))
		sameTime(e, "start of the lost attempt", e.attempts(a.Run)[0].Attempt.Started, due)
	}},
	{"withdrawn: a cancelled run does not start", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, time.Second)[0]
		r, err := e.Cancel(e.ctx, a.Run, "ann", "not today")
		e.must(err)
		equal(e, "state", r.State, job.StateDone)
		equal(e, "outcome", r.Outcome, job.OutcomeCancelled)
		again, err := e.Cancel(e.ctx, a.Run, "ann", "not today")
		e.must(err)
		equal(e, "outcome when asked again", again.Outcome, job.OutcomeCancelled)
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Gone)
		contains(e, "reason", e.gone(a.Run, job.OutcomeCancelled).Attempt.Reason.String(), "ann: not today")
		_, err = e.Cancel(e.ctx, e.id(), "ann", "")
		e.want(err, store.ErrNotFound)
		equal(e, "audit", e.actions()[0], "ann run.cancel default/a")
		equal(e, "changes", len(e.actions()), 2)
	}},
	{"a cancelled running attempt is not retried", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {retry: {attempts: 3}}")
		a := e.plan(j, time.Second)[0]
		e.claim(e.a, a, store.Started)
		for range 2 {
			r, err := e.Cancel(e.ctx, a.Run, "ann", "stop")
			e.must(err)
			equal(e, "state", r.State, job.StateRunning)
			equal(e, "by", r.CancelBy, "ann")
		}
		mine, err := store.RunsOn(e.ctx, e, e.a.ID)
		e.must(err)
		equal(e, "reason that the node finds", mine[0].CancelReason, job.Text("stop"))
		equal(e, "changes", len(e.actions()), 2)
		e.finish(a, job.OutcomeFailed)
		contains(e, "reason", e.gone(a.Run, job.OutcomeFailed).Attempt.Reason.String(), "not retried")
	}},
	{"runs that can never start are settled", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {late_by: 1m, overlap: allow}")
		late := e.plan(j, time.Second)[0]
		e.clock.Advance(62 * time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		fresh := e.plan(j, time.Second)[0]
		e.tidy()
		e.gone(late.Run, job.OutcomeMissed)
		e.run(fresh.Run)
		e.put(everyMinute + "\npolicy: {late_by: 1m, overlap: allow}\npaused: true")
		e.tidy()
		e.gone(fresh.Run, job.OutcomeWithdrawn)
	}},
	{"a broadcast run planned for a leaving node waits for its next session", func(e *env) {
		b, c := e.join("b"), e.join("c")
		j := e.put(everyMinute + "\nplace: {strategy: broadcast}")
		item := e.planItem(j, start.Add(time.Second), start.Add(time.Second))
		for i, s := range []store.Session{b, c} { // as the planner saw them
			n := &item.Runs[i]
			n.Session, n.Node, n.Shard, n.Shards = s.ID, s.Node, i, 2
		}
		e.must(e.Leave(e.ctx, b.ID))
		e.must(e.Leave(e.ctx, c.ID))
		e.must(e.End(e.ctx, c.ID)) // it is forgotten
		e.planned(item, store.Planned)
		e.clock.Advance(time.Second)
		again := []store.Session{e.join("b"), e.join("c")}
		for i, n := range item.Runs {
			a := store.Attempt{Job: item.Job, Run: n.ID, Number: 1, Token: e.id()}
			e.must(e.Place(e.ctx, []store.Placement{{Job: item.Job, Run: n.ID, Attempt: 1, Session: e.a.ID}}))
			e.claim(e.a, a, store.Taken)
			e.must(e.Place(e.ctx, []store.Placement{{Job: item.Job, Run: n.ID, Attempt: 1, Session: again[i].ID}}))
			e.claim(again[i], a, store.Started)
		}
	}},
	{"a broadcast run ends when its node is gone", func(e *env) {
		b := e.join("b")
		j := e.put(everyMinute + "\nplace: {strategy: broadcast}\npolicy: {late_by: forever}")
		item := e.planItem(j, start.Add(time.Second))
		item.Runs[0].Session = b.ID
		e.planned(item, store.Planned)
		e.pass(30*time.Second, e.a)
		e.tidy()
		e.run(item.Runs[0].ID)
		e.pass(32*time.Second, e.a)
		e.tidy()
		contains(e, "reason", e.gone(item.Runs[0].ID, job.OutcomeMissed).Attempt.Reason.String(), "node b")
	}},
}
