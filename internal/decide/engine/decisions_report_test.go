package engine

import (
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const reportedJob = "\nrun: {external: {grace: 5m}}"

func (k *book) says(r store.Report) store.ReportOutcome {
	k.Helper()
	if r.ID.IsZero() {
		r.ID = k.id()
	}
	op := &Report{Report: r}
	k.must(op)
	return op.Outcome
}

var reportDecisions = []decided{
	{"a report is about the run that waits for it, else about one of its own", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + reportedJob)
		f := k.put("name: f\nschedule: {on: [a]}\nplace: {strategy: broadcast}")
		run := k.plan(a, n)
		k.see(a, "waiting")
		got := k.says(store.Report{Job: a, Key: "k", Result: store.Result{Outcome: job.OutcomeSucceeded, Output: []store.OutputChunk{{Data: []byte("x")}}}})
		equal(k, "run", got.Run, run.Run)
		k.ended(run.Run, "succeeded", "")
		k.see(f, "ready")
		equal(k, "the same report", k.says(store.Report{Job: a, Key: "k", Result: store.Result{Outcome: job.OutcomeFailed}}).Run, run.Run)
		own := k.says(store.Report{Job: a, Result: store.Result{Outcome: job.OutcomeFailed, Reason: job.Text("x")}})
		k.ended(own.Run, "failed", "x")
	}},
	{"a reported start awaits its end, with a lock alone", func(k *book) {
		a := k.put("name: a" + minutely + reportedJob)
		first := k.says(store.Report{Job: a, Starts: true, Lock: true, Key: "s"})
		equal(k, "until", first.Until.Sub(k.now), 5*time.Minute)
		k.refuses(&Report{Report: store.Report{Job: a, ID: k.id(), Starts: true, Lock: true}}, store.ErrExists)
		k.pass(time.Minute)
		equal(k, "renewed", k.says(store.Report{Job: a, Starts: true, Run: first.Run}).Until.Sub(k.now), 5*time.Minute)
		equal(k, "known by its key", k.says(store.Report{Job: a, Starts: true, Key: "s"}).Until.Sub(k.now), 5*time.Minute)
		got := k.says(store.Report{Job: a, Run: first.Run, Result: store.Result{Outcome: job.OutcomeSucceeded}})
		equal(k, "attempt", got.Attempt, 1)
		equal(k, "renewed after its end", k.says(store.Report{Job: a, Starts: true, Run: first.Run}).Until.IsZero(), true)
	}},
	{"a report that does not come leaves the occurrence missed, an end that does not come timed out", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + reportedJob)
		missed := k.plan(a, n)
		k.pass(5*time.Minute + time.Second)
		k.must(&Tidy{Runs: []RunRef{{Run: missed.Run, Job: a}}})
		k.ended(missed.Run, "missed", "no report came")
		started := k.says(store.Report{Job: a, Starts: true})
		k.pass(5*time.Minute + time.Second)
		k.must(&Tidy{Runs: []RunRef{{Run: started.Run, Job: a}}})
		k.ended(started.Run, "timed_out", "its start was reported")
	}},
	{"a report on what Belfry starts, or what is gone, is refused", func(k *book) {
		a := k.put("name: a")
		k.refuses(&Report{Report: store.Report{Job: a, ID: k.id()}}, store.ErrConflict)
		k.refuses(&Report{Report: store.Report{Job: job.ID{99}, ID: k.id()}}, store.ErrNotFound)
	}},
}
