package storetest

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// rate puts a pool with a rate.
func (e *env) rate(name string, slots job.Slots) {
	e.Helper()
	_, err := e.PutDocument(e.ctx, job.Document{Pool: &job.Pool{Name: name, Slots: slots}}, store.AnyVersion, "ann")
	e.must(err)
}

// requested requests a run with a parameter customer.
func (e *env) requested(j *store.Job, customer string) store.Attempt {
	item := store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: e.id().String(), Session: e.a.ID, Actor: "ann", Params: map[string]string{"customer": customer}}
	return e.triggered(item)
}

// dueIn checks when a run that waits for its turn is due.
func (e *env) dueIn(a store.Attempt, after time.Duration) {
	e.Helper()
	r := e.run(a.Run)
	equal(e, "state", r.State, job.StateReady)
	if off := r.Due.Sub(e.now()) - after; off < -time.Millisecond || off > time.Millisecond {
		e.Errorf("it is due in %s, want %s", r.Due.Sub(e.now()), after)
	}
}

var rateTests = []test{
	{"rates: starts are spread, and others wait in the order of their due times", func(e *env) {
		e.rate("api", job.Slots{Rate: &job.Rate{Limit: 6, Per: job.Duration(time.Minute)}})
		j, other := e.put("name: j\npolicy: {overlap: queue, queue_limit: 9, rate_key: api}"), e.put("name: other\npolicy: {overlap: allow, rate_key: api}")
		first, second, third, fourth := e.trigger(j), e.trigger(j), e.trigger(j), e.trigger(other)
		e.claim(e.a, first, store.Started)
		contains(e, "reason", e.claim(e.a, second, store.Waiting).Reason.String(), "pool default/api lets 6 runs start in 1 min")
		e.dueIn(second, 10*time.Second)
		e.claim(e.a, third, store.Waiting)
		equal(e, "state of the third", e.run(third.Run).State, job.StateWaiting)
		contains(e, "reason", e.run(third.Run).Reason.String(), "no turn is left before")
		e.finish(first, job.OutcomeSucceeded)
		e.pass(9*time.Second, e.a)
		e.claim(e.a, second, store.Started) // a claim ahead of its turn
		e.dueIn(third, 11*time.Second)
		_, err := e.Cancel(e.ctx, third.Run, "ann", "")
		e.must(err)
		e.gone(third.Run, job.OutcomeCancelled)
		e.finish(second, job.OutcomeSucceeded)
		e.claim(e.a, fourth, store.Waiting)
		e.dueIn(fourth, 11*time.Second) // the turn of the cancelled run
		e.pass(11*time.Second, e.a)
		e.claim(e.a, e.trigger(other), store.Waiting) // behind the fourth, whose turn it is
		e.claim(e.a, fourth, store.Started)
	}},
	{"rates: a run that gets its turn in the step of its claim is claimed again", func(e *env) {
		e.rate("api", job.Slots{Rate: &job.Rate{Limit: 6, Per: job.Duration(time.Minute), Burst: 2}})
		j := e.put("name: j\npolicy: {overlap: queue, max_parallel: 9, queue_limit: 9, rate_key: api}")
		var list []store.Attempt
		for i := range 4 {
			list = append(list, e.trigger(j))
			e.claim(e.a, list[i], [...]store.Verdict{store.Started, store.Started, store.Waiting, store.Waiting}[i])
		}
		e.dueIn(list[2], 10*time.Second)
		equal(e, "state of the last", e.run(list[3].Run).State, job.StateWaiting)
		e.pass(18500*time.Millisecond, e.a)
		out, err := e.Claim(e.ctx, e.a.ID, list[2:])
		e.must(err)
		equal(e, "the third", out[0].Verdict, store.Started)
		equal(e, "the last", out[1].Verdict, store.Early)
		e.dueIn(list[3], 1500*time.Millisecond)
		e.claim(e.a, list[3], store.Started)
	}},
	{"rates: a run waits for its slot too, and one that has left its line holds no slot of others", func(e *env) {
		e.rate("db", job.Slots{Size: 1, Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Minute), Burst: 3}})
		j := e.put("name: j\npolicy: {overlap: queue, queue_limit: 9, concurrency_key: db}")
		first, second, third, fourth := e.trigger(j), e.trigger(j), e.trigger(j), e.trigger(j)
		e.claim(e.a, first, store.Started)
		contains(e, "reason", e.claim(e.a, second, store.Waiting).Reason.String(), "was still running")
		equal(e, "slot", e.run(second.Run).Slot, "pool default/db")
		e.finish(first, job.OutcomeSucceeded)
		e.claim(e.a, second, store.Started)
		e.finish(second, job.OutcomeSucceeded)
		e.claim(e.a, third, store.Started)
		e.finish(third, job.OutcomeSucceeded)
		e.claim(e.a, fourth, store.Waiting)
		equal(e, "slot", e.run(fourth.Run).Slot, "pool rate default/db")
		own := e.put("name: own\npolicy: {overlap: queue, concurrency_key: db, rate_key: other}")
		e.claim(e.a, e.trigger(own), store.Started) // the slot is free
		e.pass(time.Minute, e.a)
		e.claim(e.a, fourth, store.Waiting)
		equal(e, "slot", e.run(fourth.Run).Slot, "pool default/db")
	}},
	{"rates: skip ends an occurrence without a turn, and replace keeps the latest", func(e *env) {
		e.rate("api", job.Slots{Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Minute)}})
		skips, replaces := e.put("name: skips\nschedule: {every: 1s}\npolicy: {rate_key: api}"), e.put("name: replaces\nschedule: {every: 1s}\npolicy: {rate_key: api, overlap: replace}")
		s, r := e.plan(skips, time.Second, 2*time.Second), e.plan(replaces, 3*time.Second, 4*time.Second, 5*time.Second)
		e.claim(e.a, s[0], store.Early) // not before it is due: an earlier one may need the turn
		e.pass(time.Second, e.a)
		e.claim(e.a, s[0], store.Started)
		e.finish(s[0], job.OutcomeSucceeded)
		e.pass(time.Second, e.a)
		e.claim(e.a, s[1], store.Skipped)
		contains(e, "reason", e.gone(s[1].Run, job.OutcomeSkipped).Attempt.Reason.String(), "no turn is left")
		for i, a := range r {
			e.pass(time.Second, e.a)
			e.claim(e.a, a, store.Waiting)
			if i > 0 {
				contains(e, "reason", e.gone(r[i-1].Run, job.OutcomeSkipped).Attempt.Reason.String(), "took its place")
			}
			e.dueIn(a, time.Duration(58-i)*time.Second)
		}
		e.pass(56*time.Second, e.a)
		e.claim(e.a, r[2], store.Started)
	}},
	{"rates: a retry takes a turn and keeps its slot meanwhile", func(e *env) {
		e.rate("api", job.Slots{Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Minute)}})
		j := e.put("name: j\npolicy: {overlap: queue, rate_key: api, retry: {attempts: 1, backoff: 1s, jitter: 0s}}")
		a := e.trigger(j)
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeFailed)
		e.pass(time.Second, e.a)
		a.Number, a.Token = 2, e.id()
		contains(e, "reason", e.claim(e.a, a, store.Waiting).Reason.String(), "no turn is left")
		e.dueIn(a, 59*time.Second)
		next := e.trigger(j)
		e.claim(e.a, next, store.Waiting)
		e.pass(59*time.Second, e.a)
		e.claim(e.a, a, store.Started)
		e.claim(e.a, next, store.Waiting)
		e.finish(a, job.OutcomeSucceeded)
		e.pass(time.Minute, e.a)
		e.claim(e.a, next, store.Started)
	}},
	{"rates: each value of a key has its own, and turns that are past are forgotten", func(e *env) {
		e.rate("customer", job.Slots{PerKey: true, Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Minute)}})
		j := e.put("name: j\nparams: {customer: {default: none}}\npolicy: {overlap: allow, rate_key: 'customer-{{ .Param.customer }}'}")
		for i := range 30 {
			e.claim(e.a, e.requested(j, fmt.Sprint(i%10)), map[bool]store.Verdict{true: store.Started, false: store.Waiting}[i < 10])
		}
		e.pass(2*time.Minute, e.a)
		e.tidy()
		for i := range 10 {
			e.claim(e.a, e.requested(j, fmt.Sprint("x", i)), store.Started)
		}
	}},
	{"rates: a key with many runs does not starve another one", func(e *env) {
		e.rate("customer", job.Slots{PerKey: true, Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Minute)}})
		for i, policy := range []string{
			"concurrency_key: 'own-{{ .Param.customer }}'",
			"concurrency_key: db, rate_key: 'customer-{{ .Param.customer }}'", // turns of its own, in a slot that all share
		} {
			j := e.put(fmt.Sprintf("name: j%d\nparams: {customer: {default: none}}\npolicy: {overlap: queue, queue_limit: 99, %s}", i, policy))
			for range 20 {
				e.requested(j, "busy")
			}
			quiet := e.requested(j, "quiet")
			var started []store.Attempt
			poll := func() { // as a node with room for two
				for range 30 {
					list, err := e.Ready(e.ctx, store.ReadyQuery{Session: e.a.ID, Until: e.now(), Limit: 2})
					e.must(err)
					for _, r := range list {
						a := store.Attempt{Job: r.Job, Run: r.ID, Number: r.Attempt, Token: e.id()}
						out, err := e.Claim(e.ctx, e.a.ID, []store.Attempt{a})
						if e.must(err); out[0].Verdict == store.Started {
							started = append(started, a)
						}
					}
				}
			}
			if poll(); len(started) == 1 {
				e.finish(started[0], job.OutcomeSucceeded)
				poll()
			}
			if len(started) != 2 || started[1].Run != quiet.Run {
				e.Errorf("with %s the runs %v have started, want one of many and then %s", policy, started, quiet.Run)
			}
		}
	}},
	{"a unique request is one run in its time, and another one afterwards", func(e *env) {
		j := e.put("name: j\nparams: {customer: {default: none}}")
		ask := func() store.TriggerOutcome {
			out, err := e.Trigger(e.ctx, []store.TriggerItem{{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "unique", KeyFor: time.Minute, Session: e.a.ID, Actor: "ann"}})
			e.must(err)
			return out[0]
		}
		first := ask()
		a := store.Attempt{Job: j.Definition.UID, Run: first.Run, Number: 1, Token: e.id()}
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeFailed)
		e.pass(59*time.Second, e.a)
		equal(e, "within its time", ask(), store.TriggerOutcome{Run: first.Run})
		e.pass(time.Second, e.a)
		second := ask()
		equal(e, "after its time", second.Made && second.Run != first.Run, true)
		equal(e, "again", ask(), store.TriggerOutcome{Run: second.Run})
	}},
	{"a request puts off the run of the one before, until it starts or was put off for long", func(e *env) {
		j := e.put("name: j\nparams: {n: {default: none}}\npolicy: {concurrency_key: 'k-{{ .Param.n }}', overlap: queue, queue_limit: 9}")
		n := 0
		ask := func() (store.Attempt, bool) {
			n++
			out, err := e.Trigger(e.ctx, []store.TriggerItem{{
				ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "debounce", PutOff: 10 * time.Second, Session: e.a.ID, Actor: "ann",
				Params: map[string]string{"n": fmt.Sprint(n)},
			}})
			e.must(err)
			return store.Attempt{Job: j.Definition.UID, Run: out[0].Run, Number: 1, Token: e.id()}, out[0].Made
		}
		first, made := ask()
		equal(e, "made", made, true)
		e.dueIn(first, 10*time.Second)
		e.claim(e.a, first, store.Early)
		for range 11 {
			e.pass(9*time.Second, e.a)
			again, made := ask()
			equal(e, "the run", again.Run, first.Run)
			equal(e, "made", made, false)
		}
		e.dueIn(first, time.Second) // of the 100 s
		equal(e, "parameter", e.run(first.Run).Params["n"], "12")
		equal(e, "slot", e.run(first.Run).Slot, "pool default/k-12")
		e.pass(time.Second, e.a)
		e.claim(e.a, first, store.Started)
		second, made := ask()
		equal(e, "made after the start", made, true)
		e.dueIn(second, 10*time.Second)
		contains(e, "audit", fmt.Sprint(e.actions()), "run.put_off")
	}},
	{"rates: a raised or removed rate reaches the runs that wait", func(e *env) {
		slow := job.Slots{Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Hour)}}
		e.rate("api", slow)
		j := e.put("name: j\npolicy: {overlap: queue, max_parallel: 9, queue_limit: 9, rate_key: api}")
		var list []store.Attempt
		for range 5 {
			list = append(list, e.trigger(j))
		}
		e.claim(e.a, list[0], store.Started)
		for _, a := range list[1:] {
			e.claim(e.a, a, store.Waiting)
		}
		e.dueIn(list[1], time.Hour)
		e.rate("api", job.Slots{Rate: &job.Rate{Limit: 1, Per: job.Duration(time.Hour), Burst: 2}})
		e.dueIn(list[1], 0)
		e.claim(e.a, list[1], store.Started)
		e.dueIn(list[2], time.Hour)
		e.rate("api", job.Slots{Size: 1})
		for _, a := range list[2:] {
			e.dueIn(a, 0)
			e.claim(e.a, a, store.Started)
		}
	}},
}
