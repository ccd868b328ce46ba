package storetest

import (
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// keepTests are about the retention settings of jobs.
var keepTests = []test{
	{"history expires by age and by count, output before it", func(e *env) {
		j := e.put("name: a")
		few := e.put("name: few\npolicy: {keep: {runs: 1}}")
		long := e.put("name: long\npolicy: {keep: {for: forever}}")
		outcomes := []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeSucceeded}
		runs := past(e, j, outcomes...)
		past(e, few, outcomes...)
		old := past(e, long, outcomes...)
		expire := func(keep store.Retention) { expireAll(e, keep) }
		expire(store.Retention{})
		equal(e, "without a bound", len(e.records(j)), 3)
		equal(e, "by the job's own count", len(e.records(few)), 1)
		expire(store.Retention{OutputFor: 7 * time.Minute}) // 9 minutes after the first
		chunks := func(a store.Attempt) int {
			list, err := e.Output(e.ctx, a.Run, 1, 0, 10)
			e.must(err)
			return len(list)
		}
		equal(e, "old output", chunks(runs[0]), 0)
		equal(e, "new output", chunks(runs[2]), 1)
		expire(store.Retention{Runs: 2})
		equal(e, "by count", len(e.records(j)), 2)
		equal(e, "the first", len(e.attempts(runs[0].Run)), 0)
		e.clock.Advance(time.Hour)
		expire(store.Retention{For: 30 * time.Minute})
		equal(e, "by age", len(e.records(j)), 0)
		equal(e, "what is kept for ever", len(e.records(long)), 2) // the limit of the server counts
		equal(e, "output of what is kept", chunks(old[2]), 1)
	}},
	{"a job whose keep.for is no longer forever loses its history within a day or so", func(e *env) {
		j := e.put("name: a\npolicy: {keep: {for: forever, output_for: forever}}")
		a := past(e, j, job.OutcomeSucceeded)[0]
		keep := store.Retention{For: time.Hour}
		e.clock.Advance(48 * time.Hour)
		expireAll(e, keep)
		equal(e, "records", len(e.attempts(a.Run)), 1)
		e.put("name: a")
		e.clock.Advance(25 * time.Hour)
		expireAll(e, keep)
		equal(e, "records when the job says nothing", len(e.attempts(a.Run)), 0)
	}},
	{"history to be kept longer is not removed with its day", func(e *env) {
		const day = 24 * time.Hour
		for _, c := range []struct {
			text            string
			output, forever bool
		}{
			{text: "name: a"},
			{text: "name: b\npolicy: {keep: {for: forever}}", forever: true},
			{text: "name: c", output: true},
		} {
			// One evening, on a day without other records.
			e.clock.Advance(e.now().Truncate(day).Add(day + 18*time.Hour).Sub(e.now()))
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			expireAll(e, store.Retention{}) // makes room for the day
			a := e.trigger(e.put(c.text))
			e.claim(e.a, a, store.Started)
			res := store.Result{Attempt: a, Started: e.now(), Ended: e.now(), Outcome: job.OutcomeSucceeded}
			if c.output {
				res.Output = []store.OutputChunk{{Run: a.Run, Attempt: 1, Seq: 1, Data: []byte("x")}}
			}
			equal(e, "accepted", e.report(res).Accepted, true)
			keep := store.Retention{For: 30 * time.Hour}
			e.clock.Advance(26 * time.Hour)
			expireAll(e, keep) // kept history begins within the day
			equal(e, "young records of "+c.text, len(e.attempts(a.Run)), 1)
			e.clock.Advance(2 * day)
			expireAll(e, keep)
			equal(e, "an old record is there of "+c.text, len(e.attempts(a.Run)) == 1, c.forever)
			list, err := e.Output(e.ctx, a.Run, 1, 0, 10)
			e.must(err)
			equal(e, "output of "+c.text, len(list), 0)
		}
	}},
}

// unfinishedTests are about history of unfinished runs. A separate history does not know which runs
// these are.
var unfinishedTests = []test{
	{"records of running runs do not expire", func(e *env) {
		j := e.put("name: a\npolicy: {retry: {attempts: 1, backoff: 7d}}")
		a := e.trigger(j)
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeFailed)
		e.clock.Advance(24 * time.Hour)
		_, err := e.Expire(e.ctx, store.Retention{For: time.Hour})
		e.must(err)
		equal(e, "records", len(e.attempts(a.Run)), 1)
	}},
}
