package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// expecting creates a job with expectations, and a run of it that is due in a second.
func expecting(e *env, policy string) (*store.Job, store.Attempt) {
	e.Helper()
	j := e.put(everyMinute + "\npolicy: {overlap: allow, " + policy + "}")
	a := e.plan(j, time.Second)[0]
	e.clock.Advance(time.Second)
	return j, a
}

// alerts returns the alerts that are due now, by scheduled time.
func (e *env) alerts() string {
	e.Helper()
	list, err := e.Alerts(e.ctx, 10)
	e.must(err)
	var texts []string
	for _, a := range list {
		var unmet []string
		for _, why := range a.Unmet {
			unmet = append(unmet, why.String())
		}
		texts = append(texts, fmt.Sprintf("%s %s: %s", a.Run.Name, a.Run.Scheduled.Format("15:04:05"), strings.Join(unmet, "; ")))
	}
	return strings.Join(texts, ", ")
}

var expectTests = []test{
	{"an unmet expectation is marked on the record", func(e *env) {
		for i, c := range []struct {
			expect       string
			wait, work   time.Duration // before the claim, and after the start of the command
			want, retold string        // on the first record, and after an immediate retry
			spawn        time.Duration // from the claim to the start of the command
		}{
			{"start_within: 5s", 5 * time.Second, 0, "", "", 0},
			{"start_within: 5s", 6 * time.Second, 0, "it started 6 s after it was due, expected was 5 s at most", "it started 6 s after it was due, expected was 5 s at most", 0},
			{"finish_within: 5s", 2 * time.Second, 3 * time.Second, "", "it ended 15 s after it was due, expected was 5 s at most", 0},
			{"finish_within: 15s", 2 * time.Second, 3 * time.Second, "", "", 0},
			{"duration_below: 5s", time.Minute, 4999 * time.Millisecond, "", "", 0},
			{"duration_below: 5s", 0, 5 * time.Second, "attempt 1 took 5 s, expected was less than 5 s", "", 0},
			{"duration_below: 5s", 0, 4 * time.Second, "attempt 1 took 5 s, expected was less than 5 s", "", time.Second},
			{
				"start_within: 1s, finish_within: 2s, duration_below: 3s", 4 * time.Second, 5 * time.Second,
				"it started 4 s after it was due, expected was 1 s at most; attempt 1 took 5 s, expected was less than 3 s",
				"it started 4 s after it was due, expected was 1 s at most; it ended 19 s after it was due, expected was 2 s at most", 0,
			},
		} {
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {expect: {%s}, retry: {attempts: 1, backoff: 10s}}", i, c.expect))
			a := e.plan(j, time.Second)[0]
			e.clock.Advance(time.Second + c.wait)
			e.claim(e.a, a, store.Started)
			e.clock.Advance(c.spawn)
			began := e.now()
			e.clock.Advance(c.work)
			if alerts, marked := e.alerts(), strings.Contains(c.want, "took"); marked != strings.Contains(alerts, "after it started") {
				e.Errorf("%s: the alerts are %q, and the mark is %q", c.expect, alerts, c.want)
			}
			e.report(store.Result{Attempt: a, Started: began, Ended: e.now(), Outcome: job.OutcomeFailed})
			equal(e, c.expect+": the first attempt", e.attempts(a.Run)[0].Unmet.String(), c.want)
			e.clock.Advance(10 * time.Second)
			a.Number, a.Token = 2, e.id()
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
			equal(e, c.expect+": the end", e.gone(a.Run, job.OutcomeSucceeded).Unmet.String(), c.retold)
		}
	}},
	{"an unmet expectation of a run that never started is marked unless the run was withdrawn", func(e *env) {
		j, a := expecting(e, "late_by: 10s, expect: {start_within: 5s, finish_within: 8s}")
		e.clock.Advance(12 * time.Second)
		e.tidy()
		equal(e, "missed", e.gone(a.Run, job.OutcomeMissed).Unmet.String(), "it did not start within 5 s of its due time; it ended 12 s after it was due, expected was 8 s at most")
		_, b := expecting(e, "late_by: 10s, expect: {start_within: 5s, finish_within: 8s}")
		e.clock.Advance(9 * time.Second)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		equal(e, "alerts of what was withdrawn", e.alerts(), "")
		e.tidy()
		equal(e, "withdrawn", e.gone(b.Run, job.OutcomeWithdrawn).Unmet, job.Reason{})
	}},
	{"an exceeded usage is marked on the record of its attempt", func(e *env) {
		for i, c := range []struct {
			used job.Usage
			want string
		}{
			{job.Usage{}, ""}, // unknown
			{job.Usage{CPUSeconds: 29.999999, MemoryBytes: 200e6 - 1}, ""},
			{job.Usage{MemoryBytes: 300e6, MemoryAtMost: true}, ""},
			{job.Usage{CPUSeconds: 1, MemoryBytes: 200e6}, "attempt 1 used 200.0 MB of memory, expected was less than 200.0 MB"},
			{job.Usage{CPUSeconds: 30.0004}, "attempt 1 used 30.001 s of processor time, expected was less than 30 s"},
		} {
			j := e.put(fmt.Sprintf("name: u%d\nschedule: {cron: '* * * * *'}\npolicy: {expect: {memory_below: 200MB, cpu_below: 30s}, retry: {attempts: 1, backoff: 10s}}", i))
			a := e.plan(j, time.Second)[0]
			e.clock.Advance(time.Second)
			e.claim(e.a, a, store.Started)
			e.report(store.Result{Attempt: a, Started: e.now(), Ended: e.now(), Outcome: job.OutcomeFailed, Usage: c.used})
			equal(e, c.used.Stored(), e.attempts(a.Run)[0].Unmet.String(), c.want)
			equal(e, "alerts before the end", e.alerts(), "")
		}
	}},
	{"history is selected by unmet expectations", func(e *env) {
		j, a := expecting(e, "expect: {duration_below: 5s}")
		b := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Started)
		e.claim(e.a, b, store.Started)
		began := e.now()
		e.finish(b, job.OutcomeSucceeded)
		e.clock.Advance(time.Minute)
		e.report(store.Result{Attempt: a, Started: began, Ended: e.now(), Outcome: job.OutcomeSucceeded})
		list, _, err := e.Attempts(e.ctx, store.HistoryQuery{Unmet: true, Limit: 10})
		e.must(err)
		if len(list) != 1 || list[0].Run.ID != a.Run {
			e.Errorf("got %d records, want that of %s", len(list), a.Run)
		}
	}},
	{"an unmet expectation is reported once", func(e *env) {
		_, a := expecting(e, "retry: {attempts: 1, backoff: 0s}, expect: {start_within: 5s, finish_within: 20s, duration_below: 10s}")
		e.put("name: quiet\nschedule: {cron: '* * * * *'}")
		e.clock.Advance(5*time.Second - time.Millisecond)
		equal(e, "in time", e.alerts(), "")
		e.clock.Advance(time.Millisecond)
		equal(e, "not started", e.alerts(), "a 12:00:01: it has not started 5 s after it was due")
		equal(e, "again", e.alerts(), "")
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Started)
		e.clock.Advance(10 * time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		equal(e, "too long", e.alerts(), "a 12:00:01: attempt 1 has not ended 10 s after it started")
		equal(e, "again", e.alerts(), "")
		e.finish(a, job.OutcomeFailed)
		a.Number, a.Token = 2, e.id()
		e.claim(e.a, a, store.Started)
		e.clock.Advance(time.Hour)
		equal(e, "both", e.alerts(), "a 12:00:01: it has not ended 20 s after it was due; attempt 2 has not ended 10 s after it started")
		equal(e, "again", e.alerts(), "")
		e.finish(a, job.OutcomeSucceeded)
		equal(e, "after the end", e.alerts(), "")
	}},
	{"an unmet expectation is reported after a claim unless it no longer applies", func(e *env) {
		_, a := expecting(e, "expect: {start_within: 5s, finish_within: 6s}")
		e.clock.Advance(7 * time.Second)
		e.claim(e.a, a, store.Started)
		equal(e, "it has started", e.alerts(), "a 12:00:01: it has not ended 6 s after it was due")
		_, b := expecting(e, "expect: {start_within: 5s}")
		e.put(everyMinute + "\npolicy: {overlap: allow}")
		e.clock.Advance(time.Minute)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		equal(e, "nothing is expected any more", e.alerts(), "")
		e.claim(e.a, b, store.Started)
	}},
	{"a late catch-up run reports its unmet expectation", func(e *env) {
		text := everyMinute + "\npolicy: {late_by: forever, expect: {start_within: 5s}}"
		e.put(text + "\npaused: true")
		e.clock.Advance(90 * time.Second)
		e.putJob(store.PutJob{Definition: e.document(text), IfVersion: store.AnyVersion, Actor: "ann", CatchUp: job.MissedLatest})
		equal(e, "alerts", e.alerts(), "a 12:01:00: it has not started 5 s after it was due")
	}},
}
