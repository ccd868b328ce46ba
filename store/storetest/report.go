package storetest

import (
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// reported is a job that is run each minute from outside.
const reported = "name: r\nschedule: {cron: '* * * * *'}\nrun: {external: {grace: 5m}}"

var reportTests = []test{
	{"an external job is offered to no node and missed without a report", func(e *env) {
		j := e.put(reported)
		a := e.plan(j, 10*time.Second)[0]
		e.clock.Advance(10 * time.Second)
		e.isWaiting(a.Run)
		ready, err := e.Ready(e.ctx, store.ReadyQuery{Session: e.a.ID, Until: e.now(), Limit: 10})
		e.must(err)
		overdue, err := e.Ready(e.ctx, store.ReadyQuery{Any: true, Until: e.now().Add(time.Hour).Add(-1), Limit: 10})
		e.must(err)
		unplaced, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
		e.must(err)
		if len(ready)+len(overdue)+len(unplaced) > 0 {
			e.Errorf("nodes are offered it: %v, %v, %v", ready, overdue, unplaced)
		}
		e.claim(e.a, a, store.Waiting)
		e.pass(5*time.Minute, e.a)
		e.tidy()
		e.isWaiting(a.Run)
		e.pass(time.Second, e.a)
		e.tidy()
		if r := e.record(a.Run); r.Attempt.Outcome != job.OutcomeMissed || r.Attempt.Reason.String() != "no report came until 2026-11-20T12:05:10Z, 5 min after it was due" {
			e.Errorf("recorded is %s: %s", r.Attempt.Outcome, r.Attempt.Reason)
		}
	}},
	{"a report ends the latest occurrence that is due", func(e *env) {
		j := e.put(reported)
		runs := e.plan(j, time.Second, 2*time.Second, 13*time.Second)
		e.clock.Advance(3 * time.Second)
		got := e.says(store.Report{Job: j.Definition.UID, Result: store.Result{Outcome: job.OutcomeSucceeded, Output: []store.OutputChunk{{Bytes: 2, Data: []byte("ok")}}, OutputBytes: 2}})
		if got != runs[1].Run {
			e.Errorf("the report is about %s, want %s", got, runs[1].Run)
		}
		if r := e.record(got); r.Attempt.Outcome != job.OutcomeSucceeded || r.OutputBytes != 2 {
			e.Errorf("recorded is %+v", r)
		}
		chunks, err := e.Output(e.ctx, got, 1, 0, 10)
		e.must(err)
		if len(chunks) != 1 || string(chunks[0].Data) != "ok" {
			e.Errorf("its output is %v", chunks)
		}
		e.isWaiting(runs[0].Run)
		// The next one is late, and a node with a fast clock reports some seconds early.
		for _, want := range []store.Attempt{runs[0], runs[2]} {
			if got := e.says(store.Report{Job: j.Definition.UID, Result: store.Result{Outcome: job.OutcomeSucceeded}}); got != want.Run {
				e.Errorf("the report is about %s, want %s", got, want.Run)
			}
		}
	}},
	{"a reported start sets the duration and awaits its end", func(e *env) {
		j := e.put(reported)
		runs := e.plan(j, time.Second, 12*time.Second)
		e.clock.Advance(time.Second)
		started := e.now()
		if got := e.says(store.Report{Job: j.Definition.UID, Starts: true}); got != runs[0].Run {
			e.Errorf("the start is of %s, want %s", got, runs[0].Run)
		}
		e.clock.Advance(10 * time.Second)
		code := 3
		got := e.says(store.Report{Job: j.Definition.UID, Result: store.Result{Outcome: job.OutcomeFailed, Reason: job.Text("exit status 3"), ExitCode: &code}})
		if r := e.record(got); got != runs[0].Run || !r.Attempt.Started.Equal(started) || !r.Attempt.Ended.Equal(e.now()) || r.Attempt.Outcome != job.OutcomeFailed || *r.Attempt.ExitCode != 3 {
			e.Errorf("recorded is %+v", r)
		}
		// A run that never ends.
		e.clock.Advance(time.Second)
		if got := e.says(store.Report{Job: j.Definition.UID, Starts: true}); got != runs[1].Run {
			e.Errorf("the start is of %s, want %s", got, runs[1].Run)
		}
		e.pass(5*time.Minute+time.Second, e.a)
		e.tidy()
		if r := e.record(runs[1].Run); r.Attempt.Outcome != job.OutcomeTimedOut || r.Attempt.Number != 1 {
			e.Errorf("recorded is %+v", r)
		}
	}},
	{"a report without a waiting occurrence is a run of its own, once for each key", func(e *env) {
		j := e.put(reported)
		id := e.id()
		at := e.now().Add(-time.Minute)
		report := store.Report{Job: j.Definition.UID, ID: id, Key: "k", At: at, Result: store.Result{Outcome: job.OutcomeSucceeded, Started: at.Add(-time.Second)}}
		if got := e.says(report); got != id {
			e.Errorf("the report is about %s, want %s", got, id)
		}
		if r := e.record(id); r.Run.Kind != job.RunByHand || !r.Attempt.Ended.Equal(at) || r.Attempt.Ended.Sub(r.Attempt.Started) != time.Second {
			e.Errorf("recorded is %+v", r)
		}
		report.ID = e.id()
		if got := e.says(report); got != id {
			e.Errorf("the report that came again is about %s, want %s", got, id)
		}
	}},
	{"a start with a lock is refused while another one has not ended", func(e *env) {
		j := e.put(reported)
		first := e.says(store.Report{Job: j.Definition.UID, ID: e.id(), Starts: true, Lock: true})
		_, err := e.Report(e.ctx, store.Report{Job: j.Definition.UID, ID: e.id(), Starts: true, Lock: true})
		e.want(err, store.ErrExists)
		e.says(store.Report{Job: j.Definition.UID, Run: first, Result: store.Result{Outcome: job.OutcomeSucceeded}})
		e.says(store.Report{Job: j.Definition.UID, ID: e.id(), Starts: true, Lock: true})
	}},
	{"a repeated start report delays the deadline of its end", func(e *env) {
		j := e.put(reported)
		run := e.says(store.Report{Job: j.Definition.UID, Starts: true, Key: "start"})
		for range 3 {
			e.pass(4*time.Minute, e.a)
			e.tidy()
			got, err := e.Report(e.ctx, store.Report{Job: j.Definition.UID, ID: e.id(), Starts: true, Run: run})
			e.must(err)
			if want := e.now().Add(5 * time.Minute); got.Run != run || !got.Until.Equal(want) {
				e.Errorf("run %s is due at %s, want %s at %s", got.Run, got.Until, run, want)
			}
		}
		e.isWaiting(run)
		e.says(store.Report{Job: j.Definition.UID, Run: run, Result: store.Result{Outcome: job.OutcomeSucceeded}})
		got, err := e.Report(e.ctx, store.Report{Job: j.Definition.UID, ID: e.id(), Starts: true, Run: run})
		e.must(err)
		if got.Run != run || !got.Until.IsZero() {
			e.Errorf("a run that is over is awaited: %+v", got)
		}
	}},
	{"an end report for a finished run takes no other occurrence", func(e *env) {
		j := e.put(reported)
		a := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		own := e.id()
		if got := e.says(store.Report{Job: j.Definition.UID, ID: own, Run: e.id(), Result: store.Result{Outcome: job.OutcomeSucceeded}}); got != own {
			e.Errorf("the report is about %s, want a run of its own", got)
		}
		e.isWaiting(a.Run)
	}},
	{"reported skipped work leaves the running run alone", func(e *env) {
		j := e.put(reported)
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(time.Second)
		e.says(store.Report{Job: j.Definition.UID, Starts: true})
		e.clock.Advance(time.Second)
		got := e.says(store.Report{Job: j.Definition.UID, Result: store.Result{Outcome: job.OutcomeSkipped, Reason: job.Text("it is running")}})
		if r := e.record(got); got != runs[1].Run || r.Attempt.Outcome != job.OutcomeSkipped || r.Attempt.Reason.String() != "it is running" {
			e.Errorf("recorded is %+v", r)
		}
		e.isWaiting(runs[0].Run)
	}},
	{"reports on Belfry's own runs and starts of external jobs are refused", func(e *env) {
		j := e.put(everyMinute)
		_, err := e.Report(e.ctx, store.Report{Job: j.Definition.UID, ID: e.id()})
		e.want(err, store.ErrConflict)
		_, err = e.Report(e.ctx, store.Report{Job: e.id(), ID: e.id()})
		e.want(err, store.ErrNotFound)
		r := e.put(reported)
		got, err := e.Trigger(e.ctx, []store.TriggerItem{{ID: e.id(), Job: r.Definition.UID, Kind: job.RunByHand, Actor: "ann"}})
		e.must(err)
		e.want(got[0].Err, store.ErrNotFound)
	}},
	{"a report starts following jobs", func(e *env) {
		j := e.put(reported)
		f := e.put("name: f\nschedule: {on: [{job: r}]}")
		e.says(store.Report{Job: j.Definition.UID, ID: e.id(), Result: store.Result{Outcome: job.OutcomeSucceeded}})
		list, err := e.ListActive(e.ctx, store.ActiveQuery{Job: f.Definition.UID, Limit: 10})
		e.must(err)
		if len(list) != 1 {
			e.Errorf("it has %d runs", len(list))
		}
	}},
	{"an edit leaves a run waiting for its report, and one whose start was reported is not planned again", func(e *env) {
		j := e.put(reported)
		a := e.plan(j, 8*time.Second)[0]
		e.put(reported + "\ndescription: edited")
		e.isWaiting(a.Run)
		if got := e.says(store.Report{Job: j.Definition.UID, Starts: true}); got != a.Run {
			e.Errorf("the start is of %s, want %s", got, a.Run)
		}
		scheduled := e.now().Add(8 * time.Second)
		j = e.put("name: r\nschedule: {cron: '*/2 * * * *'}\nrun: {external: {grace: 5m}}")
		if j.Cursor.Before(scheduled) {
			e.Errorf("the cursor is at %s, before what has started", j.Cursor)
		}
	}},
	{"a run planned before an edit to external waits for a report and starts after an edit back", func(e *env) {
		j := e.put("name: r\nschedule: {cron: '* * * * *'}")
		a := e.plan(j, time.Second)[0]
		e.put(reported)
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Waiting)
		e.isWaiting(a.Run)
		e.put("name: r\nschedule: {cron: '* * * * *'}")
		e.claim(e.a, a, store.Started)
	}},
}

// says makes a report, and returns its run.
func (e *env) says(r store.Report) job.ID {
	e.Helper()
	if r.ID.IsZero() {
		r.ID = e.id()
	}
	got, err := e.Report(e.ctx, r)
	e.must(err)
	return got.Run
}

func (e *env) isWaiting(run job.ID) {
	e.Helper()
	r, err := store.ActiveRun(e.ctx, e, run)
	e.must(err)
	if r.State != job.StateWaiting {
		e.Errorf("run %s is %s", run, r.State)
	}
}

// record returns the record of a run that is over, which has one.
func (e *env) record(run job.ID) store.Record {
	e.Helper()
	if _, err := store.ActiveRun(e.ctx, e, run); err == nil {
		e.Fatalf("run %s has not ended", run)
	}
	list := e.attempts(run)
	if len(list) != 1 {
		e.Fatalf("run %s has %d records", run, len(list))
	}
	return list[0]
}
