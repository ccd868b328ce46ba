package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var endTests = []test{
	{"a run is lost after the shortest lost_after, and not before", func(e *env) {
		a := e.plan(e.put("name: a\nschedule: {cron: '* * * * *'}\npolicy: {lost_after: 9s, kill_grace: 0s}"), time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Started)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		b := e.join("b")
		for _, c := range []struct {
			after time.Duration
			lost  int
		}{{8 * time.Second, 0}, {time.Second, 0}, {time.Millisecond, 1}} {
			e.pass(c.after, b)
			lost, err := e.Lost(e.ctx, 10)
			e.must(err)
			equal(e, "lost", len(lost), c.lost)
		}
	}},
	{"a finished run leaves a record and its repeated result is acknowledged again", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Started)
		res := store.Result{
			Attempt: a, Started: e.now(), Ended: e.now().Add(1500 * time.Millisecond), Outcome: job.OutcomeFailed, Reason: job.Text("exit status 3"),
			ExitCode: new(3), Signal: "SIGTERM", HTTPStatus: 502, OutputBytes: 5, Cause: "\x1b[31mfeed.csv\x1b[0m: 0 rows — 空",
			Usage:  job.Usage{CPUSeconds: 1.25, MemoryBytes: 300 << 20, MemoryAtMost: true, ReadBytes: new(int64(0)), WrittenBytes: new(int64(1 << 40))},
			Output: []store.OutputChunk{{Run: a.Run, Attempt: 1, Seq: 1, Bytes: 5, Time: e.now(), Data: []byte("hello")}},
		}
		for range 2 {
			if !e.report(res).Accepted {
				e.Fatal("the result is not accepted")
			}
		}
		list := e.attempts(a.Run)
		if len(list) != 1 {
			e.Fatalf("%d records, want 1", len(list))
		}
		r := list[0]
		got := r.Attempt
		equal(e, "outcome", got.Outcome, job.OutcomeFailed)
		equal(e, "reason", got.Reason, job.Text("exit status 3"))
		equal(e, "node", got.Node, "a")
		equal(e, "token", got.Token, a.Token)
		equal(e, "signal", got.Signal, "SIGTERM")
		equal(e, "status", got.HTTPStatus, 502)
		equal(e, "cause", got.Cause, "feed.csv: 0 rows — 空")
		equal(e, "fingerprint", got.Fingerprint, reason.FingerprintOf("feed.csv: 9 rows — 空", job.Reason{}))
		equal(e, "usage", got.Usage.Stored(), res.Usage.Stored())
		recent, err := e.Recent(e.ctx, []job.ID{a.Job}, 5)
		e.must(err)
		if len(recent[0]) != 1 || recent[0][0].Attempt.Usage.Stored() != got.Usage.Stored() || recent[0][0].Attempt.Cause != got.Cause || recent[0][0].Attempt.Fingerprint != got.Fingerprint {
			e.Errorf("the latest runs have the cause %+v", recent)
		}
		found, _, err := e.Attempts(e.ctx, store.HistoryQuery{Text: "0 ROWS", Limit: 10})
		e.must(err)
		equal(e, "records found by their cause", len(found), 1)
		if got.ExitCode == nil || *got.ExitCode != 3 {
			e.Errorf("exit code %v", got.ExitCode)
		}
		sameTime(e, "started", got.Started, res.Started)
		sameTime(e, "ended", got.Ended, res.Ended)
		equal(e, "final", r.Final, true)
		equal(e, "state", r.Run.State, job.StateDone)
		equal(e, "size of the output", r.OutputBytes, 5)
		equal(e, "name", r.Run.Namespace+"/"+r.Run.Name, "default/a")
		equal(e, "version", r.Run.Version, 1)
		sameTime(e, "scheduled", r.Run.Scheduled, start.Add(time.Second))
		chunks, err := e.Output(e.ctx, a.Run, 1, 0, 10)
		e.must(err)
		if len(chunks) != 1 || string(chunks[0].Data) != "hello" {
			e.Errorf("output: %+v", chunks)
		}
		e.gone(a.Run, job.OutcomeFailed)
	}},
	{"nothing acknowledged is lost: a result without the token of the claim changes nothing", func(e *env) {
		a := e.plan(e.put(everyMinute), time.Second)[0]
		res := store.Result{Attempt: a, Outcome: job.OutcomeSucceeded}
		if e.report(res).Accepted {
			e.Error("accepted before the claim")
		}
		e.claim(e.a, a, store.Started)
		for _, wrong := range []store.Attempt{{Job: a.Job, Run: a.Run, Number: 1, Token: e.id()}, {Job: a.Job, Run: a.Run, Number: 2, Token: a.Token}, {Job: a.Job, Run: e.id(), Number: 1, Token: a.Token}} {
			if e.report(store.Result{Attempt: wrong, Outcome: job.OutcomeSucceeded}).Accepted {
				e.Errorf("accepted %+v", wrong)
			}
		}
		equal(e, "state", e.run(a.Run).State, job.StateRunning)
		e.finish(a, job.OutcomeSucceeded)
		if e.report(store.Result{Attempt: a, Outcome: job.OutcomeFailed}).Accepted {
			e.Error("another result replaces what is final")
		}
		e.gone(a.Run, job.OutcomeSucceeded)
	}},
	{"a retry waits longer each time, up to its bounds", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {retry: {attempts: 4, backoff: 10s, factor: 3, max: 1m}}")
		a := e.plan(j, time.Second)[0]
		for n, delay := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, time.Minute} {
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeFailed)
			r := e.run(a.Run)
			equal(e, "state", r.State, job.StateReady)
			equal(e, "attempt", r.Attempt, n+2)
			equal(e, "delay", r.Due.Sub(e.now()), delay)
			equal(e, "last outcome", r.Last, job.OutcomeFailed)
			contains(e, "reason", r.Reason.String(), fmt.Sprintf("attempt %d failed", n+1))
			a.Number, a.Token = n+2, e.id()
			e.claim(e.a, a, store.Early)
			e.clock.Advance(delay)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		}
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeFailed)
		e.gone(a.Run, job.OutcomeFailed)
		list := e.attempts(a.Run)
		equal(e, "records", len(list), 5)
		for i, r := range list {
			equal(e, "number", r.Attempt.Number, i+1)
			equal(e, "final", r.Final, i == 4)
		}
	}},
	{"started once: an attempt is followed by one retry", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {retry: {attempts: 3, backoff: 1s}}"), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeFailed)
		e.finish(a, job.OutcomeFailed) // its answer was lost
		equal(e, "attempt", e.run(a.Run).Attempt, 2)
		e.clock.Advance(time.Second)
		next := store.Attempt{Job: a.Job, Run: a.Run, Number: 2, Token: e.id()}
		e.claim(e.a, next, store.Started)
		e.finish(a, job.OutcomeFailed)
		equal(e, "state", e.run(a.Run).State, job.StateRunning)
		equal(e, "records", len(e.attempts(a.Run)), 1)
	}},
	{"the jitter of a retry lengthens it, by at most so much", func(e *env) {
		different := map[time.Duration]bool{}
		for i := range 8 {
			a := e.plan(e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {retry: {attempts: 1, backoff: 10s, jitter: 5s}}", i)), time.Second)[0]
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeFailed)
			delay := e.run(a.Run).Due.Sub(e.now())
			different[delay] = true
			if delay < 10*time.Second || delay > 15*time.Second {
				e.Errorf("delay %s", delay)
			}
		}
		if len(different) < 4 {
			e.Errorf("only %d different delays of 8", len(different))
		}
	}},
	{"retries follow on, exit_codes and within", func(e *env) {
		for i, c := range []struct {
			retry   string
			result  store.Result
			retried bool
		}{
			{"attempts: 1", store.Result{Outcome: job.OutcomeFailed, ExitCode: new(1)}, true},
			{"attempts: 1", store.Result{Outcome: job.OutcomeTimedOut}, true},
			{"attempts: 1", store.Result{Outcome: job.OutcomeCancelled}, false},
			{"attempts: 1", store.Result{Outcome: job.OutcomeSucceeded}, false},
			{"attempts: 0", store.Result{Outcome: job.OutcomeFailed}, false},
			{"attempts: 1, on: [lost]", store.Result{Outcome: job.OutcomeFailed}, false},
			{"attempts: 1, on: [timed_out]", store.Result{Outcome: job.OutcomeTimedOut}, true},
			{"attempts: 1, exit_codes: [75]", store.Result{Outcome: job.OutcomeFailed, ExitCode: new(75)}, true},
			{"attempts: 1, exit_codes: [75]", store.Result{Outcome: job.OutcomeFailed, ExitCode: new(1)}, false},
			{"attempts: 1, exit_codes: [75]", store.Result{Outcome: job.OutcomeFailed, Signal: "SIGSEGV"}, false},
			{"attempts: 1, exit_codes: [75]", store.Result{Outcome: job.OutcomeFailed, Retryable: true}, true},
			{"attempts: 1", store.Result{Outcome: job.OutcomeFailed, Permanent: true}, false},
			{"attempts: 1", store.Result{Outcome: job.OutcomeTimedOut, Permanent: true}, true},
			{"attempts: 1, backoff: 10s, within: 10s", store.Result{Outcome: job.OutcomeFailed}, true},
			{"attempts: 3, backoff: 10s, within: 10s, jitter: 1d", store.Result{Outcome: job.OutcomeFailed}, false},
		} {
			a := e.plan(e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {retry: {%s}}", i, c.retry)), time.Second)[0]
			e.claim(e.a, a, store.Started)
			c.result.Attempt = a
			equal(e, "accepted", e.report(c.result).Accepted, true)
			_, err := store.ActiveRun(e.ctx, e, a.Run)
			equal(e, fmt.Sprintf("%s after %s is retried", c.retry, c.result.Outcome), err == nil, c.retried)
		}
	}},
	{"no attempt starts later than within, also when the node is busy", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {retry: {attempts: 3, backoff: 10s, within: 1m}}"), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeFailed)
		e.clock.Advance(61 * time.Second)
		e.claim(e.a, store.Attempt{Job: a.Job, Run: a.Run, Number: 2, Token: e.id()}, store.Late)
		r := e.gone(a.Run, job.OutcomeFailed)
		equal(e, "number", r.Attempt.Number, 0)
		contains(e, "reason", r.Attempt.Reason.String(), "within 1 min")
	}},
	{"withdrawn: there is no retry after a pause, delete or change", func(e *env) {
		for i, change := range []func(string){
			func(text string) { e.put(text + "\npaused: true") },
			func(text string) { e.put(strings.Replace(text, "* * * * *", "*/2 * * * *", 1)) },
		} {
			text := fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {retry: {attempts: 3, backoff: 1s}}", i)
			j := e.put(text)
			runs := e.plan(j, time.Second)
			e.claim(e.a, runs[0], store.Started)
			change(text)
			e.finish(runs[0], job.OutcomeFailed)
			contains(e, "reason", e.gone(runs[0].Run, job.OutcomeFailed).Attempt.Reason.String(), "not retried")
		}
		text := "name: c\nschedule: {cron: '* * * * *'}\npolicy: {retry: {attempts: 3, backoff: 1s}}"
		a := e.plan(e.put(text), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeFailed)
		e.put(text + "\npaused: true")
		e.clock.Advance(time.Second)
		e.claim(e.a, store.Attempt{Job: a.Job, Run: a.Run, Number: 2, Token: e.id()}, store.Gone)
		e.gone(a.Run, job.OutcomeWithdrawn)
	}},

	{"an attempt of a silent session is lost and retried by the policy", func(e *env) {
		plain := e.plan(e.put(everyMinute), time.Second)[0]
		retried := e.plan(e.put("name: b\nschedule: {cron: '* * * * *'}\npolicy: {lost_after: 30s, retry: {attempts: 1, on: [lost], backoff: 0s}}"), time.Second)[0]
		e.claim(e.a, plain, store.Started)
		e.claim(e.a, retried, store.Started)
		b := e.join("b")
		lost := func() []store.Attempt {
			list, err := e.Lost(e.ctx, 10)
			e.must(err)
			return list
		}
		e.pass(30*time.Second, b)
		equal(e, "lost after 30 s", len(lost()), 0)
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{plain, retried}))
		equal(e, "state", e.run(plain.Run).State, job.StateRunning)
		e.pass(time.Second, b)
		if list := lost(); len(list) != 1 || list[0] != retried {
			e.Fatalf("lost after 31 s: %+v", list)
		}
		e.must(e.Reap(e.ctx, b.ID, lost()))
		r := e.run(retried.Run)
		equal(e, "attempt", r.Attempt, 2)
		equal(e, "session", r.Session, job.ID{})
		e.want(e.Renew(e.ctx, e.a.ID, store.Load{}), store.ErrSessionOver) // one of its runs was reaped
		_, _, err := e.Plan(e.ctx, e.a.ID, nil)
		e.want(err, store.ErrSessionOver)
		e.pass(30*time.Second, b)
		e.must(e.Renew(e.ctx, b.ID, store.Load{}))
		list := lost()
		equal(e, "lost after 61 s", len(list), 1)
		for range 2 {
			e.must(e.Reap(e.ctx, b.ID, list))
		}
		contains(e, "reason", e.gone(plain.Run, job.OutcomeLost).Attempt.Reason.String(), "node a was silent")
		equal(e, "records", len(e.attempts(plain.Run)), 1)
		e.claim(b, store.Attempt{Job: retried.Job, Run: retried.Run, Number: 2, Token: e.id()}, store.Started)
	}},
	{"no edit makes a lost attempt retried that its node does not end when it is cut off", func(e *env) {
		document := func(policy string) string {
			return "name: a\nschedule: {on: [{job: b}]}\npolicy: {overlap: allow, lost_after: 30s" + policy + "}"
		}
		j := e.put(document(""))
		cutOff, reported, restarted := e.trigger(j), e.trigger(j), e.trigger(j)
		gone := e.join("b")
		e.claim(e.a, cutOff, store.Started)
		e.claim(e.a, reported, store.Started)
		e.claim(gone, restarted, store.Started)
		equal(e, "its node does not end it", e.run(cutOff.Run).Unfenced, true)
		e.put(document(", retry: {attempts: 3, backoff: 0s}"))
		ended := e.trigger(j)
		e.claim(e.a, ended, store.Started)
		equal(e, "the node of a later attempt does not end it", e.run(ended.Run).Unfenced, false)

		// Their nodes have ended these attempts.
		again, err := e.Join(e.ctx, store.Session{ID: e.id(), Node: "b", Machine: "b", DataDir: "/data", Roles: []string{store.RoleWorker}, Capacity: 10})
		e.must(err)
		e.must(e.Reap(e.ctx, again.ID, []store.Attempt{restarted}))
		equal(e, "attempt after a restart", e.run(restarted.Run).Attempt, 2)
		e.finish(reported, job.OutcomeLost)
		equal(e, "attempt after its node has reported it lost", e.run(reported.Run).Attempt, 2)

		e.pass(31*time.Second, again)
		e.must(e.Reap(e.ctx, again.ID, []store.Attempt{cutOff, ended}))
		r := e.run(ended.Run)
		equal(e, "attempt after its node has ended it", r.Attempt, 2)
		contains(e, "reason", e.gone(cutOff.Run, job.OutcomeLost).Attempt.Reason.String(), "not retried: it started before its job had retries of lost attempts, and its node may still run it")
	}},
	{"a lost run bound to a node is retried there or ends with the node", func(e *env) {
		text := everyMinute + "\nplace: {strategy: broadcast}\npolicy: {retry: {attempts: 1, backoff: 0s}}"
		b := e.join("b")
		a := e.plan(e.put(text), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.pass(61*time.Second, b)
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{a}))
		retry := store.Attempt{Job: a.Job, Run: a.Run, Number: 2, Token: e.id()}
		e.claim(b, retry, store.Taken)
		r := e.run(a.Run)
		equal(e, "node", r.Node, "a")
		equal(e, "session", r.Session, job.ID{})
		e.pass(61*time.Second, b)
		e.tidy()
		contains(e, "reason", e.gone(a.Run, job.OutcomeLost).Attempt.Reason.String(), "node a, which it belongs to, is gone")
	}},
	{"a late result replaces only the outcome lost", func(e *env) {
		j := e.put(everyMinute)
		e.put("name: follower\nschedule: {on: [{job: a, outcome: succeeded}]}")
		a := e.plan(j, time.Second)[0]
		e.claim(e.a, a, store.Started)
		b := e.join("b")
		e.pass(61*time.Second, b)
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{a}))
		e.gone(a.Run, job.OutcomeLost)
		for range 2 {
			e.finish(a, job.OutcomeSucceeded)
		}
		r := e.gone(a.Run, job.OutcomeSucceeded)
		equal(e, "replaces", r.Replaces, true)
		equal(e, "records", len(e.attempts(a.Run)), 1)
		list, err := e.ListActive(e.ctx, store.ActiveQuery{Limit: 10})
		e.must(err)
		equal(e, "runs", len(list), 0)
	}},
	{"a late result of a retried attempt is noted and replaces nothing", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {retry: {attempts: 1, backoff: 1s}}"), time.Second)[0]
		e.claim(e.a, a, store.Started)
		b := e.join("b")
		e.pass(61*time.Second, b)
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{a}))
		for range 2 {
			if e.report(store.Result{Attempt: a, Outcome: job.OutcomeSucceeded}).Accepted {
				e.Error("the late result is accepted although a retry has taken over")
			}
		}
		r := e.attempts(a.Run)[0]
		equal(e, "outcome", r.Attempt.Outcome, job.OutcomeLost)
		equal(e, "said once", strings.Count(r.Attempt.Reason.String(), "said later that it succeeded"), 1)
		equal(e, "attempt", e.run(a.Run).Attempt, 2)
	}},
	{"a node reaps the attempts of its predecessor at once", func(e *env) {
		runs := e.plan(e.put(everyMinute+"\npolicy: {overlap: allow}"), time.Millisecond, store.ClaimAhead)
		e.clock.Advance(time.Millisecond)
		a, ahead := runs[0], runs[1]
		e.claim(e.a, a, store.Started)
		e.claim(e.a, ahead, store.Started)
		next := e.join("a") // the same machine and data directory
		if len(next.Predecessors) != 1 || next.Predecessors[0] != e.a.ID {
			e.Fatalf("predecessors: %v", next.Predecessors)
		}
		mine, err := store.RunsOn(e.ctx, e, e.a.ID)
		e.must(err)
		e.must(e.Reap(e.ctx, e.join("b").ID, []store.Attempt{a, ahead})) // not its predecessor
		e.must(e.Reap(e.ctx, e.join("b").ID, []store.Attempt{a, ahead})) // this session has a predecessor, but another one
		equal(e, "state", e.run(a.Run).State, job.StateRunning)
		equal(e, "attempts of the predecessor", len(mine), 2)
		e.must(e.Reap(e.ctx, next.ID, []store.Attempt{mine[0].Present(), mine[1].Present()}))
		contains(e, "reason", e.gone(a.Run, job.OutcomeLost).Attempt.Reason.String(), "started again")
		equal(e, "state of what was not due", e.run(ahead.Run).State, job.StateReady) // it cannot have started
	}},
	{"started once: an ended session accepts no runs after its node returns", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		next := e.join("a") // the same machine and data directory
		e.claim(e.a, runs[0], store.Taken)
		list, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
		e.must(err)
		equal(e, "runs to be placed again", len(list), 2)
		e.must(e.Place(e.ctx, []store.Placement{{Job: runs[0].Job, Run: runs[0].Run, Attempt: 1, Session: next.ID}}))
		e.must(e.Place(e.ctx, []store.Placement{{Job: runs[0].Job, Run: runs[0].Run, Attempt: 1, Session: e.a.ID}})) // it leaves
		equal(e, "session", e.run(runs[0].Run).Session, next.ID)
		e.claim(next, runs[0], store.Started)
	}},

	{"once: a run is followed by one follower", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {retry: {attempts: 1, backoff: 0s}, overlap: allow}")
		good := e.put("name: good\nschedule: {on: [{job: a}]}")
		bad := e.put("name: bad\nschedule: {on: [{job: default/a, outcome: failed}]}")
		either := e.put("name: either\nnamespace: n\nschedule: {on: [{job: default/a, outcome: finished}, {job: other}]}")
		e.put("name: stranger\nnamespace: n\nschedule: {on: [{job: a, outcome: finished}]}")
		paused := e.put("name: paused\npaused: true\nschedule: {on: [{job: a, outcome: finished}]}")
		counts := func(want ...int) {
			e.Helper()
			for i, f := range []*store.Job{good, bad, either, paused} {
				equal(e, "runs of "+f.Definition.Name, len(e.active(f)), want[i])
			}
		}
		hand := e.triggered(store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "k", Scheduled: start.Add(-time.Hour), Params: map[string]string{"day": "monday"}, Actor: "ann"})
		e.claim(e.a, hand, store.Started)
		e.finish(hand, job.OutcomeFailed)
		counts(0, 0, 0, 0) // it is retried
		hand.Number, hand.Token = 2, e.id()
		e.claim(e.a, hand, store.Started)
		got := e.finish(hand, job.OutcomeFailed)
		equal(e, "unplaced", got.Unplaced, true)
		e.finish(hand, job.OutcomeFailed)
		counts(0, 1, 1, 0)
		r := e.active(bad)[0]
		equal(e, "kind", r.Kind, job.RunOn)
		equal(e, "key", r.Key, hand.Run.String())
		equal(e, "parent", r.Parent, hand.Run)
		equal(e, "param", r.Params["day"], "monday")
		sameTime(e, "scheduled", r.Scheduled, start.Add(-time.Hour))
		sameTime(e, "due", r.Due, e.now())

		runs := e.plan(j, time.Second, 2*time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.finish(runs[0], job.OutcomeSucceeded)
		counts(1, 1, 2, 0)
		_, err := e.Cancel(e.ctx, runs[1].Run, "ann", "")
		e.must(err)
		counts(1, 1, 2, 0) // a cancelled run neither succeeded nor failed

		// A job with a schedule may also follow another.
		both := e.put("name: both\nschedule: {cron: '* * * * *', on: [{job: a, outcome: finished}]}")
		upstream := e.trigger(j)
		e.claim(e.a, upstream, store.Started)
		e.finish(upstream, job.OutcomeSucceeded)
		counts(2, 1, 3, 0)
		e.plan(both, 2*time.Second)
		kinds := map[job.RunKind]int{}
		for _, r := range e.active(both) {
			kinds[r.Kind]++
		}
		equal(e, "runs that follow", kinds[job.RunOn], 1)
		equal(e, "runs by the clock", kinds[job.RunScheduled], 1)

		// A timeout is a failure, and so is a loss.
		e.put(everyMinute + "\npolicy: {overlap: allow}")
		late := e.trigger(j)
		e.claim(e.a, late, store.Started)
		e.finish(late, job.OutcomeTimedOut)
		counts(2, 2, 4, 0)
		lost := e.trigger(j)
		e.claim(e.a, lost, store.Started)
		e.must(e.Reap(e.ctx, e.join("a").ID, []store.Attempt{lost}))
		counts(2, 3, 5, 0)
	}},
	{"once: an occurrence with shards is followed after its last shard, by the worst outcome", func(e *env) {
		e.join("b")
		for i, c := range []struct {
			ends string // ends of the shards in order: success, failure, cancel
			want string // the expected followers: of a success, a failure, either
		}{{"sss", "g-e"}, {"ssf", "-be"}, {"fss", "-be"}, {"sfs", "-be"}, {"cfs", "-be"}, {"fsc", "-be"}, {"scs", "---"}, {"css", "---"}, {"ccc", "---"}} {
			name := fmt.Sprint("split", i)
			e.put("name: " + name + "\nplace: {shards: 3}\npolicy: {overlap: allow}")
			followers := []*store.Job{
				e.put(fmt.Sprintf("name: good%d\nschedule: {on: [{job: %s}]}", i, name)),
				e.put(fmt.Sprintf("name: bad%d\nschedule: {on: [{job: %s, outcome: failed}]}", i, name)),
				e.put(fmt.Sprintf("name: either%d\nschedule: {on: [{job: %s, outcome: finished}]}", i, name)),
			}
			up, err := store.JobNamed(e.ctx, e, "default", name)
			e.must(err)
			var shards []store.Attempt
			for shard := range 3 {
				shards = append(shards, e.triggered(store.TriggerItem{
					ID: e.id(), Job: up.Definition.UID, Kind: job.RunByHand, Key: "k", Shard: shard, Shards: 3, Session: e.a.ID, Actor: "ann",
				}))
			}
			for shard, how := range c.ends {
				for _, f := range followers {
					equal(e, c.ends+": runs of "+f.Definition.Name+" before the end", len(e.active(f)), 0)
				}
				a := shards[2-shard] // in this order another shard ends last
				if how == 'c' {
					_, err := e.Cancel(e.ctx, a.Run, "ann", "")
					e.must(err)
					continue
				}
				e.claim(e.a, a, store.Started)
				e.finish(a, map[rune]job.Outcome{'s': job.OutcomeSucceeded, 'f': job.OutcomeFailed}[how])
			}
			for f, want := range c.want {
				runs := e.active(followers[f])
				equal(e, c.ends+": runs of "+followers[f].Definition.Name, len(runs), map[bool]int{true: 1}[want != '-'])
				for _, r := range runs {
					equal(e, "parent", r.Parent, shards[0].Run)
				}
			}
		}
	}},
	{"an occurrence with shards that a new epoch plans again is followed", func(e *env) {
		const text = everyMinute + "\nplace: {shards: 2}\npolicy: {overlap: allow}"
		j := e.put(text)
		follower := e.put("name: b\nschedule: {on: [{job: a}]}")
		before := e.planSplit(j, 2, time.Second)[0]
		e.put(text + "\npaused: true")
		e.put(text)
		again := e.planSplit(j, 2, time.Second)[0]
		e.clock.Advance(time.Second)
		for i, a := range again {
			e.claim(e.a, before[i], store.Gone)
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
		}
		equal(e, "followers", len(e.active(follower)), 1)
	}},
	{"withdrawn: a follower ends with a pause, and outlives a change of the schedule", func(e *env) {
		j := e.put(everyMinute)
		e.put("name: b\nschedule: {on: [{job: a}]}")
		follower := e.put("name: c\nschedule: {on: [{job: a}]}")
		a := e.plan(j, time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeSucceeded)
		b, err := store.JobNamed(e.ctx, e, "default", "b")
		e.must(err)
		run := e.active(b)[0]
		e.put("name: b\npaused: true\nschedule: {on: [{job: a}]}")
		e.claim(e.a, store.Attempt{Job: run.JobUID, Run: run.ID, Number: 1, Token: e.id()}, store.Gone)
		run = e.active(follower)[0]
		e.put("name: c\nschedule: {on: [{job: a, outcome: finished}]}")
		e.claim(e.a, store.Attempt{Job: run.JobUID, Run: run.ID, Number: 1, Token: e.id()}, store.Started)
	}},
	{"a job is followed among many followed jobs", func(e *env) {
		j := e.put("name: z\nschedule: {cron: '* * * * *'}")
		others := make([]string, 100)
		for i := range others {
			others[i] = fmt.Sprintf("name: other-%d\nschedule: {on: [{job: a}]}", i)
		}
		_, err := e.PutJobs(e.ctx, e.puts(others...))
		e.must(err)
		follower := e.put("name: last\nschedule: {on: [{job: z}]}\npolicy: {overlap: allow}")
		for n := range 2 {
			a := e.plan(e.reload(j), time.Second)[0]
			e.clock.Advance(time.Second)
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
			equal(e, "runs of the follower", len(e.active(follower)), n+1)
		}
	}},
	{"a follower with shards or a broadcast has all its runs", func(e *env) {
		e.join("b")
		e.joinAs("c", store.RolePlanner, store.RoleAPI) // it runs nothing
		e.joinAs("d")
		j := e.put(everyMinute)
		split := e.put("name: split\nschedule: {on: [{job: a}]}\nplace: {shards: 3}")
		everywhere := e.put("name: everywhere\nschedule: {on: [{job: a}]}\nplace: {strategy: broadcast}")
		a := e.plan(j, time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeSucceeded)
		equal(e, "shards", len(e.active(split)), 3)
		nodes := ""
		for _, r := range e.active(everywhere) {
			nodes += r.Node
			equal(e, "shards", r.Shards, 2)
		}
		if nodes != "ab" && nodes != "ba" {
			e.Errorf("nodes %q", nodes)
		}
	}},

	{"a chain with a fixed delay continues after every outcome", func(e *env) {
		j := e.put("name: a\nschedule: {after_end: 10s}\npolicy: {late_by: 5s}")
		next := func() store.Run {
			e.Helper()
			list := e.active(j)
			if len(list) != 1 {
				e.Fatalf("%d runs, want 1", len(list))
			}
			equal(e, "kind", list[0].Kind, job.RunAfterEnd)
			sameTime(e, "due", list[0].Due, e.now().Add(10*time.Second))
			return list[0]
		}
		attempt := func(r store.Run) store.Attempt {
			return store.Attempt{Job: r.JobUID, Run: r.ID, Number: 1, Token: e.id()}
		}
		first := next()
		e.clock.Advance(10 * time.Second)
		a := attempt(first)
		e.claim(e.a, a, store.Started)
		hand := e.trigger(j)
		e.claim(e.a, hand, store.Skipped) // not part of the chain
		e.clock.Advance(3 * time.Second)
		e.finish(a, job.OutcomeSucceeded)
		e.finish(a, job.OutcomeSucceeded)
		second := next()
		equal(e, "parent", second.Parent, first.ID)
		e.clock.Advance(16 * time.Second)
		e.claim(e.a, attempt(second), store.Late)
		third := next()
		_, err := e.Cancel(e.ctx, third.ID, "ann", "")
		e.must(err)
		next()
		e.put("name: a\nschedule: {after_end: 10s}\npolicy: {late_by: 5s}\npaused: true")
		e.tidy()
		equal(e, "runs of a paused job", len(e.active(j)), 0)
		e.clock.Advance(time.Hour)
		e.put("name: a\nschedule: {after_end: 10s}\npolicy: {late_by: 5s}")
		next()
		e.put("name: a\nschedule: {after_end: 20s}")
		e.tidy()
		equal(e, "runs after a change", len(e.active(j)), 1)
		sameTime(e, "due after a change", e.active(j)[0].Due, e.now().Add(20*time.Second))
	}},
	{"a chain ends with max_runs or end, and begins with start", func(e *env) {
		j := e.put("name: a\nschedule: {after_end: 10s, max_runs: 2}")
		for range 2 {
			a := store.Attempt{Job: j.Definition.UID, Run: e.active(j)[0].ID, Number: 1, Token: e.id()}
			e.clock.Advance(10 * time.Second)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
		}
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobCompleted)
		late := e.put("name: b\nschedule: {after_end: 10s, start: 2026-11-21T00:00:00Z}")
		sameTime(e, "due", e.active(late)[0].Due, start.Add(12*time.Hour))
		over := e.put("name: c\nschedule: {after_end: 10s, end: 2026-11-20T12:00:01Z}")
		equal(e, "state", e.reload(over).Definition.Status.State, job.JobCompleted)
	}},
	{"a chain with shards continues after its last shard", func(e *env) {
		j := e.put("name: a\nschedule: {after_end: 10s}\nplace: {shards: 2}")
		e.clock.Advance(10 * time.Second)
		runs := e.active(j)
		equal(e, "runs", len(runs), 2)
		for i, r := range runs {
			a := store.Attempt{Job: r.JobUID, Run: r.ID, Number: 1, Token: e.id()}
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
			equal(e, "runs", len(e.active(j)), []int{1, 2}[i])
		}
	}},
	{"an occurrence with shards counts once for pause_on_failure and fails if one shard fails", func(e *env) {
		j := e.put(everyMinute + "\nplace: {shards: 3}\npolicy: {pause_on_failure: 2}")
		occurrence := func(seconds int, outcomes ...job.Outcome) job.JobState {
			e.Helper()
			shards := e.planSplit(j, 3, time.Duration(seconds)*time.Second)[0]
			e.clock.Advance(time.Duration(seconds) * time.Second)
			for _, a := range shards {
				e.claim(e.a, a, store.Started)
			}
			for i, o := range outcomes {
				equal(e, "state before the last", e.reload(j).Definition.Status.State, job.JobActive)
				e.finish(shards[i], o)
			}
			return e.reload(j).Definition.Status.State
		}
		const good, bad = job.OutcomeSucceeded, job.OutcomeFailed
		equal(e, "after three failed shards", occurrence(1, bad, bad, bad), job.JobActive)
		equal(e, "after a success", occurrence(1, good, good, good), job.JobActive)
		equal(e, "after one failed shard", occurrence(1, good, bad, good), job.JobActive)
		equal(e, "after another one", occurrence(1, bad, good, good), job.JobPaused)
	}},
	{"a job is paused after so many failed runs in a row", func(e *env) {
		text := everyMinute + "\npolicy: {pause_on_failure: 2, overlap: allow}"
		j := e.put(text)
		fail := func(o job.Outcome) {
			a := e.trigger(j)
			e.claim(e.a, a, store.Started)
			e.finish(a, o)
		}
		fail(job.OutcomeFailed)
		fail(job.OutcomeSucceeded)
		fail(job.OutcomeFailed)
		fail(job.OutcomeCancelled)
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobActive)
		planned := e.plan(j, time.Second)[0]
		fail(job.OutcomeTimedOut)
		now := e.reload(j)
		equal(e, "state", now.Definition.Status.State, job.JobPaused)
		equal(e, "paused in the document", now.Definition.Paused, true)
		equal(e, "version", now.Definition.Version, 2)
		equal(e, "by", now.Definition.Status.PausedBy, "belfry")
		contains(e, "reason", now.Definition.Status.PauseReason, "2 runs failed in a row")
		equal(e, "failures in a row", now.Definition.Status.Failures, 2)
		equal(e, "audit", e.actions()[0], "belfry job.pause default/a")
		e.claim(e.a, planned, store.Gone)
		revisions, err := e.Revisions(e.ctx, j.Definition.UID, 0, 10)
		e.must(err)
		equal(e, "revisions", len(revisions), 2)
		changed, _, err := e.JobsChanged(e.ctx, store.AllPartitions, 0, 10)
		e.must(err)
		equal(e, "active for planners", changed[0].Active, false)

		resumed := e.put(text)
		equal(e, "state", resumed.Definition.Status.State, job.JobActive)
		fail(job.OutcomeFailed)
		equal(e, "state after another failure", e.reload(j).Definition.Status.State, job.JobActive)
	}},
	{"the failed runs of a job in a row are counted without a limit too", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		for i, c := range []struct {
			outcome  job.Outcome
			failures int
		}{{job.OutcomeFailed, 1}, {job.OutcomeTimedOut, 2}, {job.OutcomeCancelled, 2}, {job.OutcomeLost, 3}, {job.OutcomeSucceeded, 0}, {job.OutcomeFailed, 1}} {
			a := e.trigger(j)
			e.claim(e.a, a, store.Started)
			e.finish(a, c.outcome)
			equal(e, fmt.Sprintf("failures after run %d, %s", i+1, c.outcome), e.reload(j).Definition.Status.Failures, c.failures)
		}
		equal(e, "version", e.reload(j).Definition.Version, 1)
	}},
}
