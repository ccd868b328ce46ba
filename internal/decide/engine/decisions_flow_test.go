package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// steps returns the steps of a flow that are open, by name.
func (k *book) steps(flow job.ID) map[string]store.Attempt {
	found := map[string]store.Attempt{}
	for _, r := range k.runs {
		if _, name, _ := strings.Cut(r.Key, "/"); r.Parent == flow && name != "" {
			found[name] = store.Attempt{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: job.ID{0x55, r.ID[0], byte(r.Attempt)}}
		}
	}
	return found
}

func (k *book) open(flow job.ID, want string) {
	k.Helper()
	if got := strings.Join(slices.Sorted(maps.Keys(k.steps(flow))), " "); got != want {
		k.Errorf("open are the steps %q, want %q", got, want)
	}
}

// step claims and ends a step.
func (k *book) step(n, flow job.ID, name string, outcome job.Outcome, value string) store.ClaimOutcome {
	k.Helper()
	a := k.steps(flow)[name]
	out := k.claim(n, a, store.Started)
	k.report(store.Result{Attempt: a, Started: k.now, Ended: k.now, Outcome: outcome, Value: []byte(value)}, true)
	return out
}

// flow begins a flow of steps.
func (k *book) flow(n job.ID, steps string) (uid, run job.ID) {
	k.Helper()
	uid = k.put("name: flow" + fmt.Sprint(k.ids) + minutely + "\nrun: {flow: {" + steps + "}}")
	a := k.trigger(uid, n)
	k.claim(n, a, store.Taken)
	return uid, a.Run
}

var flowDecisions = []decided{
	{"steps run in their order, with results and items", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true'}, {name: b, needs: a, for_each: '{{ .Steps.a.Result.list }}', max_parallel: 2, run: 'true'}, {name: c, needs: b, if: '{{ .Steps.a.Result.no }}', run: 'true'}, {name: d, needs: c, run: 'true'}]")
		k.open(f, "a")
		k.step(n, f, "a", job.OutcomeSucceeded, `{"list": [1, 2, 3], "no": false}`)
		k.open(f, "b/0 b/1")
		equal(k, "item", string(k.step(n, f, "b/1", job.OutcomeSucceeded, "").Item), "2")
		k.open(f, "b/0 b/2")
		k.step(n, f, "b/0", job.OutcomeSucceeded, "")
		k.step(n, f, "b/2", job.OutcomeSucceeded, "")
		k.open(f, "d")
		k.step(n, f, "d", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
	}},
	{"a failed step blocks what needs it, and finally runs all the same", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true', retry: {attempts: 1, backoff: 0s}}, {name: b, needs: a, run: 'true'}, {name: c, needs: a, when: failed, run: 'true'}], finally: [{name: z, run: 'true'}]")
		a := k.steps(f)["a"]
		k.claim(n, a, store.Started)
		k.report(store.Result{Attempt: a, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, Retryable: true}, true)
		k.open(f, "a") // its retry
		k.step(n, f, "a", job.OutcomeFailed, "")
		k.open(f, "c")
		k.step(n, f, "c", job.OutcomeSucceeded, "")
		k.open(f, "z")
		k.step(n, f, "z", job.OutcomeSucceeded, "")
		k.ended(f, "failed", "step a has failed")
	}},
	{"a flow that failed has the cause of the first step that failed and must not", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: may, run: 'true', allow_failure: true}, {name: a, needs: may, when: finished, run: 'true'}, {name: b, needs: a, when: failed, run: 'true'}]")
		for _, name := range []string{"may", "a", "b"} {
			a := k.steps(f)[name]
			k.claim(n, a, store.Started)
			k.report(store.Result{Attempt: a, Started: k.now, Ended: k.now, Outcome: job.OutcomeFailed, Cause: name + ": disk is full"}, true)
		}
		k.ended(f, "failed", "steps a, b have failed")
		for _, r := range k.records {
			if r.Run.ID == f && (r.Attempt.Cause != "a: disk is full" || r.Attempt.Fingerprint == 0) {
				k.Errorf("the cause of the flow is %q with the fingerprint %s", r.Attempt.Cause, r.Attempt.Fingerprint)
			}
		}
	}},
	{"approvals, signals and times are waited for, and answered once", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: ok, wait: {approval: 'go?'}}, {name: go, needs: ok, wait: {signal: start}}, {name: later, needs: go, wait: {for: 10s}}]")
		answer := func(a store.FlowAnswer) *AnswerFlow {
			a.Run, a.By = f, "ann"
			return &AnswerFlow{a}
		}
		k.refuses(answer(store.FlowAnswer{Signal: "other"}), store.ErrConflict)
		k.refuses(answer(store.FlowAnswer{Step: "none"}), store.ErrConflict)
		k.refuses(answer(store.FlowAnswer{Step: "go"}), store.ErrConflict)
		k.refuses(&AnswerFlow{store.FlowAnswer{Run: job.ID{99}, Step: "ok"}}, store.ErrNotFound)
		k.must(answer(store.FlowAnswer{Step: "ok", Note: "fine"}))
		k.refuses(answer(store.FlowAnswer{Step: "ok"}), store.ErrConflict)
		k.must(answer(store.FlowAnswer{Signal: "start", Data: []byte(`{"x": 1}`)}))
		var timer store.Run
		for _, r := range k.runs {
			if r.ID != f {
				timer = r
			}
		}
		equal(k, "timer", timer.Due.Sub(k.now), 10*time.Second)
		k.pass(10 * time.Second)
		for _, r := range k.inOrder(func(*store.Run) bool { return true }) {
			k.must(&Tidy{Runs: []RunRef{{Run: r.ID, Job: r.JobUID}}})
			if r.ID != f {
				op := &Claim{Session: n, Attempts: []store.Attempt{{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: k.id()}}}
				k.must(op)
			}
		}
		k.ended(f, "succeeded", "")
		equal(k, "audit", strings.Count(strings.Join(k.audit, " "), "run.approve")+strings.Count(strings.Join(k.audit, " "), "run.signal"), 2)
	}},
	{"a rejected approval fails the flow", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: ok, wait: {approval: 'go?'}}]")
		k.must(&AnswerFlow{store.FlowAnswer{Run: f, Step: "ok", Reject: true, By: "ann", Note: "no"}})
		k.ended(f, "failed", "ok")
	}},
	{"a flow that is cancelled ends its steps", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true'}, {name: b, run: 'true'}]")
		a := k.steps(f)["a"]
		k.claim(n, a, store.Started)
		k.must(&Cancel{Runs: []RunRef{{Run: f}}, By: "ann", Reason: "enough", Over: true})
		k.open(f, "a")
		k.finish(a, job.OutcomeCancelled, true)
		k.ended(f, "cancelled", "by ann: enough")
	}},
	{"a cancel that is made again, since it was committed in part, is one request, and finally runs", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true'}], finally: [{name: z, run: 'true'}]")
		a := k.steps(f)["a"]
		k.claim(n, a, store.Started)
		cancel := &Cancel{Runs: []RunRef{{Run: f}}, By: "ann"}
		k.must(cancel)
		k.must(cancel)
		k.finish(a, job.OutcomeCancelled, true)
		k.open(f, "z")
		k.must(&Cancel{Runs: []RunRef{{Run: f}}, By: "ann"})
		k.ended(f, "cancelled", "by ann")
	}},
	{"a step that starts another job ends with its run", func(k *book) {
		n := k.join("n")
		other := k.put("name: other")
		_, f := k.flow(n, "steps: [{name: before, run: 'true'}, {name: sub, needs: before, run: {job: other}}, {name: after, needs: sub, run: 'true'}]")
		k.step(n, f, "before", job.OutcomeSucceeded, "")
		k.see(other, "ready")
		r := k.inOrder(func(r *store.Run) bool { return r.JobUID == other })[0]
		a := store.Attempt{Job: other, Run: r.ID, Number: 1, Token: k.id()}
		k.claim(n, a, store.Started)
		k.finish(a, job.OutcomeSucceeded, true)
		k.open(f, "after")
		k.step(n, f, "after", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
		k.flow(n, "steps: [{name: sub, run: {job: other}}]")
		k.see(other, "ready")
		_, gone := k.flow(n, "steps: [{name: sub, run: {job: nobody}}]")
		k.ended(gone, "failed", "sub")
	}},
	{"a step is lost with its node and follows its own retry", func(k *book) {
		n := k.join("n")
		_, f := k.flow(n, "steps: [{name: a, run: 'true', retry: {attempts: 1, backoff: 0s}}]")
		a := k.steps(f)["a"]
		k.claim(n, a, store.Started)
		next := k.join("n")
		k.must(&Reap{Session: next, Attempts: []store.Attempt{a}})
		k.open(f, "a")
		k.step(next, f, "a", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
	}},
	{"a flow that is kept together stays on the node of its first step", func(k *book) {
		n, m := k.join("n"), k.join("m")
		_, f := k.flow(n, "keep_together: true, steps: [{name: a, run: 'true'}, {name: b, needs: a, run: 'true'}]")
		k.step(n, f, "a", job.OutcomeSucceeded, "")
		k.claim(m, k.steps(f)["b"], store.Taken)
		k.step(n, f, "b", job.OutcomeSucceeded, "")
		k.ended(f, "succeeded", "")
	}},
}
