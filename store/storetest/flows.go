package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// flowJob is a job with a flow of some steps.
func flowJob(name, policy, flow string) string {
	return "name: " + name + "\nschedule: {cron: '* * * * *'}\npolicy: {" + policy + "}\nrun: {flow: {" + flow + "}}"
}

// diamond is a flow of four steps, the last of which needs two.
const diamond = `steps: [{name: a, run: 'true'}, {name: b, needs: a, run: 'true'}, {name: c, needs: a, run: 'true'}, {name: d, needs: [b, c], run: 'true'}]`

// begin claims a run of a flow, which starts its first steps.
func (e *env) begin(a store.Attempt) {
	e.Helper()
	e.claim(e.a, a, store.Taken)
	equal(e, "state of the flow run", e.run(a.Run).State, job.StateRunning)
}

// steps returns the unfinished runs of the steps of a flow run, by step and item.
func (e *env) steps(flow store.Attempt) map[string]store.Attempt {
	e.Helper()
	list, err := e.ListActive(e.ctx, store.ActiveQuery{Job: flow.Job, Limit: 1000})
	e.must(err)
	found := map[string]store.Attempt{}
	for i := range list {
		r := &list[i]
		if r.Parent != flow.Run {
			continue
		}
		_, name, _ := strings.Cut(r.Key, "/")
		found[name] = store.Attempt{Job: r.JobUID, Run: r.ID, Number: r.Attempt, Token: r.Token}
	}
	return found
}

// step claims a step and ends it, with a result.
func (e *env) step(flow store.Attempt, name string, o job.Outcome, value string) store.ClaimOutcome {
	e.Helper()
	a, ok := e.steps(flow)[name]
	if !ok {
		e.Fatalf("step %s is not open; there are %v", name, e.open(flow))
	}
	a.Token = e.id()
	got := e.claim(e.a, a, store.Started)
	if !e.report(store.Result{Attempt: a, Outcome: o, Reason: job.Text("by the test"), Value: []byte(value)}).Accepted {
		e.Fatalf("the end of step %s is not accepted", name)
	}
	return got
}

// open returns the names of the steps that are open.
func (e *env) open(flow store.Attempt) string {
	e.Helper()
	var names []string
	for name := range e.steps(flow) {
		if name != "" { // the timer
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// stepGone expects that a step's run has ended, and returns the record of its last attempt.
func (e *env) stepGone(id job.ID, want job.Outcome) store.Record {
	e.Helper()
	if r, err := store.ActiveRun(e.ctx, e, id); err == nil {
		e.Fatalf("step %s is still %s, want it %s", id, r.State, want)
	}
	list := e.attempts(id)
	if len(list) == 0 {
		e.Fatalf("step %s has no record", id)
	}
	last := list[len(list)-1]
	if last.Attempt.Outcome != want || last.Final {
		e.Fatalf("step %s ended as %s (final: %v), want %s", id, last.Attempt.Outcome, last.Final, want)
	}
	return last
}

var flowTests = []test{
	{"a flow runs its steps in their order and ends with the last", func(e *env) {
		j := e.put(flowJob("f", "", diamond))
		f := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.begin(f)
		e.begin(f) // its answer was lost
		equal(e, "open", e.open(f), "a")
		e.step(f, "a", job.OutcomeSucceeded, "")
		equal(e, "open", e.open(f), "b c")
		e.step(f, "c", job.OutcomeSucceeded, "")
		equal(e, "open", e.open(f), "b")
		e.step(f, "b", job.OutcomeSucceeded, "")
		equal(e, "open", e.open(f), "d")
		e.step(f, "d", job.OutcomeSucceeded, "")
		e.gone(f.Run, job.OutcomeSucceeded)
		equal(e, "unfinished runs", len(e.active(j)), 0)
		equal(e, "records", len(e.records(j)), 5)
		final, _, err := e.Attempts(e.ctx, store.HistoryQuery{Job: j.Definition.UID, FinalOnly: true, Limit: 10})
		e.must(err)
		equal(e, "final records", len(final), 1)
	}},
	{"two steps ending concurrently start their common successor once", func(e *env) {
		j := e.put(flowJob("f", "", diamond))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeSucceeded, "")
		var both []store.Attempt
		for _, name := range []string{"b", "c"} {
			a := e.steps(f)[name]
			a.Token = e.id()
			e.claim(e.a, a, store.Started)
			both = append(both, a)
		}
		var wait sync.WaitGroup
		for _, a := range both {
			wait.Go(func() {
				if _, err := e.Finish(e.ctx, e.a.ID, []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded, Started: e.now(), Ended: e.now()}}); err != nil {
					e.Error(err)
				}
			})
		}
		wait.Wait()
		equal(e, "open", e.open(f), "d")
		e.step(f, "d", job.OutcomeSucceeded, "")
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
	{"a repeated result of a step starts nothing twice", func(e *env) {
		j := e.put(flowJob("f", "", diamond))
		f := e.trigger(j)
		e.begin(f)
		a := e.steps(f)["a"]
		a.Token = e.id()
		e.claim(e.a, a, store.Started)
		for range 2 {
			e.finish(a, job.OutcomeSucceeded)
			equal(e, "open", e.open(f), "b c")
		}
	}},
	{"a failed step blocks its successors and starts those that wait for a failure", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, run: 'true'}, {name: b, needs: a, run: 'true'}, {name: c, needs: b, when: failed, run: 'true'},
  {name: d, needs: b, when: finished, run: 'true'}, {name: e, run: 'true', allow_failure: true}, {name: g, needs: e, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeFailed, "")
		equal(e, "open", e.open(f), "c d e")
		e.step(f, "e", job.OutcomeFailed, "")
		equal(e, "open", e.open(f), "c d g")
		for _, name := range []string{"c", "d", "g"} {
			e.step(f, name, job.OutcomeSucceeded, "")
		}
		contains(e, "reason", e.gone(f.Run, job.OutcomeFailed).Attempt.Reason.String(), "step a has failed")
	}},
	{"results reach later steps, conditions and items", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, run: 'true'},
  {name: skipped, needs: a, if: '{{ gt .Steps.a.Result.rows 10 }}', run: 'true'},
  {name: each, needs: a, for_each: '{{ .Steps.a.Result.files }}', max_parallel: 2, run: 'echo {{ .Item }}'},
  {name: b, needs: [skipped, each], run: 'echo {{ .Steps.a.Result.rows }} {{ .Steps.each.Result }}'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeSucceeded, `{"rows": 7, "files": ["x", "y", "z"]}`)
		equal(e, "open", e.open(f), "each/0 each/1")
		got := e.step(f, "each/0", job.OutcomeSucceeded, `{"n": 1}`)
		equal(e, "item", string(got.Item), `"x"`)
		equal(e, "command", got.Job.Filled.Run.Shell.Command, "echo {{ .Item }}")
		equal(e, "open", e.open(f), "each/1 each/2")
		e.step(f, "each/2", job.OutcomeSucceeded, `{"n": 3}`)
		e.step(f, "each/1", job.OutcomeSucceeded, `{"n": 2}`)
		got = e.step(f, "b", job.OutcomeSucceeded, "")
		equal(e, "result", string(got.Steps["each"].Result), `[{"n":1},{"n":2},{"n":3}]`)
		var a struct{ Rows int }
		e.must(json.Unmarshal(got.Steps["a"].Result, &a))
		equal(e, "rows", a.Rows, 7)
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
	{"a too large result fails its step and a missing key fails the reading step", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, run: 'true'}, {name: b, run: 'true'}, {name: c, needs: b, if: '{{ .Steps.b.Result.yes }}', run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeSucceeded, `"`+strings.Repeat("x", job.ResultMax)+`"`)
		e.step(f, "b", job.OutcomeSucceeded, `{"no": true}`)
		contains(e, "reason", e.gone(f.Run, job.OutcomeFailed).Attempt.Reason.String(), "steps a, c have failed")
	}},
	{"too many items fail the step with their number", func(e *env) {
		items := strings.TrimSuffix(strings.Repeat("1,", job.ItemsMax+1), ",")
		j := e.put(flowJob("f", "", `steps: [{name: a, run: 'true'}, {name: b, needs: a, for_each: '{{ .Steps.a.Result.list }}', run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeSucceeded, `{"list": [`+items+`]}`)
		contains(e, "reason", e.gone(f.Run, job.OutcomeFailed).Attempt.Reason.String(), "step b has failed: for_each: it has 1001 items, at most 1000 are allowed")
	}},
	{"too large results of a flow fail the step of the last one", func(e *env) {
		fit := job.ResultsMax / job.ResultMax
		j := e.put(flowJob("f", "", fmt.Sprintf(`max_parallel: 20, steps: [{name: a, for_each: [%s], run: 'true'}]`, strings.TrimSuffix(strings.Repeat("x,", fit+1), ","))))
		f := e.trigger(j)
		e.begin(f)
		for i := range fit {
			e.step(f, fmt.Sprint("a/", i), job.OutcomeSucceeded, `"`+strings.Repeat("x", job.ResultMax-2)+`"`)
		}
		a := e.steps(f)[fmt.Sprint("a/", fit)]
		e.step(f, fmt.Sprint("a/", fit), job.OutcomeSucceeded, `"x"`)
		contains(e, "reason", e.stepGone(a.Run, job.OutcomeFailed).Attempt.Reason.String(), "with its result those of the flow have more than 1048576 bytes")
		e.gone(f.Run, job.OutcomeFailed)
	}},
	{"a handed-over step ends with its reported result", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, run: {xxl: {group: g, handler: h}}, retry: {attempts: 1, backoff: 0s}}, {name: b, needs: a, run: 'true'}]`))
		x, err := e.Join(e.ctx, store.Session{ID: e.id(), Node: "x", Machine: "x", DataDir: "/data", Roles: []string{store.RoleWorker}, Handlers: []string{job.XXLHandler}, Capacity: 10})
		e.must(err)
		f := e.trigger(j)
		e.begin(f)
		for _, outcome := range []job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded} {
			a := e.steps(f)["a"]
			a.Token = e.id()
			e.claim(e.a, a, store.Taken) // the node has no executor for it
			got := e.claim(x, a, store.Started)
			equal(e, "kind of work", got.Job.Filled.Run.Work(), job.WorkXXL)
			e.handOver(x, e.handing(a), store.Handed)
			equal(e, "node of the step", e.run(a.Run).Session, job.ID{})
			out, err := e.Finish(e.ctx, job.ID{}, []store.Result{{Attempt: a, Outcome: outcome, Started: e.now(), Ended: e.now()}})
			e.must(err)
			equal(e, "accepted", out[0].Accepted, true)
		}
		e.step(f, "b", job.OutcomeSucceeded, "")
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
	{"a lost step follows its own retry", func(e *env) {
		j := e.put(flowJob("f", "lost_after: 30s", `steps: [{name: a, run: 'true', retry: {attempts: 1, backoff: 0s}}, {name: b, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		lost := map[string]store.Attempt{}
		for name, a := range e.steps(f) {
			a.Token = e.id()
			e.claim(e.a, a, store.Started)
			lost[name] = a
		}
		b := e.join("b")
		e.pass(70*time.Second, b)
		found, err := e.Lost(e.ctx, 10)
		e.must(err)
		equal(e, "lost", len(found), 2)
		e.must(e.Reap(e.ctx, b.ID, found))
		equal(e, "open", e.open(f), "a")
		equal(e, "attempt", e.run(lost["a"].Run).Attempt, 2)
		e.stepGone(lost["b"].Run, job.OutcomeLost)
		again := e.steps(f)["a"]
		again.Token = e.id()
		e.claim(b, again, store.Started)
		e.finish(again, job.OutcomeSucceeded)
		contains(e, "reason", e.gone(f.Run, job.OutcomeFailed).Attempt.Reason.String(), "step b has failed")
	}},
	{"a cancel ends running steps and finally runs afterwards", func(e *env) {
		j := e.put(flowJob("f", "", diamond+`, finally: [{name: clean, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.step(f, "a", job.OutcomeSucceeded, "")
		b := e.steps(f)["b"]
		b.Token = e.id()
		e.claim(e.a, b, store.Started)
		_, err := e.Cancel(e.ctx, f.Run, "ann", "enough")
		e.must(err)
		equal(e, "open", e.open(f), "b")
		equal(e, "cancelled by", e.run(b.Run).CancelBy, "belfry")
		e.finish(b, job.OutcomeCancelled)
		equal(e, "open", e.open(f), "clean")
		e.step(f, "clean", job.OutcomeSucceeded, "")
		contains(e, "reason", e.gone(f.Run, job.OutcomeCancelled).Attempt.Reason.String(), "cancelled by ann: enough")
	}},
	{"a concurrent cancel and last step end the flow once", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, run: 'true'}]`))
		for range 5 {
			f := e.trigger(j)
			e.begin(f)
			a := e.steps(f)["a"]
			a.Token = e.id()
			e.claim(e.a, a, store.Started)
			var wait sync.WaitGroup
			wait.Go(func() {
				if _, err := e.Cancel(e.ctx, f.Run, "ann", ""); err != nil {
					e.Error(err)
				}
			})
			wait.Go(func() {
				if _, err := e.Finish(e.ctx, e.a.ID, []store.Result{{Attempt: a, Outcome: job.OutcomeSucceeded, Started: e.now(), Ended: e.now()}}); err != nil {
					e.Error(err)
				}
			})
			wait.Wait()
			list := e.attempts(f.Run)
			if len(list) != 1 || list[0].Attempt.Outcome != job.OutcomeCancelled && list[0].Attempt.Outcome != job.OutcomeSucceeded {
				e.Fatalf("the flow run has %d records", len(list))
			}
		}
	}},
	{"the timeout of a flow ends it", func(e *env) {
		j := e.put(flowJob("f", "timeout: 10m", `steps: [{name: a, run: 'true'}, {name: b, needs: a, run: 'true'}], finally: [{name: clean, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		timer := e.steps(f)[""]
		timer.Token = e.id()
		e.claim(e.a, timer, store.Early)
		e.pass(10*time.Minute, e.a)
		e.claim(e.a, timer, store.Taken)
		equal(e, "open", e.open(f), "clean")
		e.step(f, "clean", job.OutcomeSucceeded, "")
		contains(e, "reason", e.gone(f.Run, job.OutcomeTimedOut).Attempt.Reason.String(), "10 min")
		equal(e, "unfinished runs", len(e.active(j)), 0)
	}},
	{"a flow keeps its definition when its job is changed, paused and deleted", func(e *env) {
		j := e.put(flowJob("f", "", diamond))
		f := e.trigger(j)
		e.begin(f)
		e.put(flowJob("f", "", `steps: [{name: other, run: 'false'}]`))
		e.step(f, "a", job.OutcomeSucceeded, "")
		paused := *e.reload(j).Definition
		paused.Paused = true
		e.putJob(store.PutJob{Definition: &paused, IfVersion: store.AnyVersion, Actor: "ann"})
		e.tidy()
		e.step(f, "b", job.OutcomeSucceeded, "")
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		e.tidy()
		e.step(f, "c", job.OutcomeSucceeded, "")
		e.step(f, "d", job.OutcomeSucceeded, "")
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
	{"overlap counts runs of a flow rather than its steps", func(e *env) {
		j := e.put(flowJob("f", "overlap: skip", diamond))
		list := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.begin(list[0])
		e.claim(e.a, list[1], store.Skipped)
		e.step(list[0], "a", job.OutcomeSucceeded, "")
		equal(e, "open", e.open(list[0]), "b c")
	}},
	{"a run that replaces a flow ends it", func(e *env) {
		j := e.put(flowJob("f", "overlap: replace", diamond))
		list := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.begin(list[0])
		a := e.steps(list[0])["a"]
		a.Token = e.id()
		e.claim(e.a, a, store.Started)
		e.claim(e.a, list[1], store.Waiting)
		e.finish(a, job.OutcomeCancelled)
		e.gone(list[0].Run, job.OutcomeCancelled)
		e.begin(list[1])
		equal(e, "open", e.open(list[1]), "a")
	}},
	{"the first failure ends a flow that fails fast", func(e *env) {
		j := e.put(flowJob("f", "", `fail_fast: true, steps: [{name: a, run: 'true'}, {name: b, run: 'true'}, {name: c, needs: b, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		b := e.steps(f)["b"]
		b.Token = e.id()
		e.claim(e.a, b, store.Started)
		e.step(f, "a", job.OutcomeFailed, "")
		equal(e, "cancelled by", e.run(b.Run).CancelBy, "belfry")
		e.finish(b, job.OutcomeCancelled)
		e.gone(f.Run, job.OutcomeFailed)
	}},
	{"another job runs as a step and its end ends the step", func(e *env) {
		other := e.put("name: other\nparams: {who: x}")
		j := e.put(flowJob("f", "", `steps: [{name: a, run: {job: other, params: {who: '{{ .Name }}'}}}, {name: b, needs: a, run: {job: none}}, {name: c, needs: b, when: failed, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		child := e.active(other)
		equal(e, "runs of the other job", len(child), 1)
		equal(e, "parameter", child[0].Params["who"], "f")
		a := store.Attempt{Job: child[0].JobUID, Run: child[0].ID, Number: 1, Token: e.id()}
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeSucceeded)
		e.step(f, "c", job.OutcomeSucceeded, "")
		contains(e, "reason", e.gone(f.Run, job.OutcomeFailed).Attempt.Reason.String(), "there is no job default/none")
	}},
	{"a cancel of a flow ends the run of another job that is its step", func(e *env) {
		other := e.put(flowJob("other", "", `steps: [{name: x, run: 'true'}]`))
		j := e.put(flowJob("f", "", `steps: [{name: a, run: {job: other}}]`))
		f := e.trigger(j)
		e.begin(f)
		child := e.active(other)[0]
		a := store.Attempt{Job: child.JobUID, Run: child.ID, Number: 1, Token: e.id()}
		e.begin(a)
		_, err := e.Cancel(e.ctx, f.Run, "ann", "")
		e.must(err)
		e.gone(child.ID, job.OutcomeCancelled)
		e.gone(f.Run, job.OutcomeCancelled)
	}},
	{"a flow that runs more jobs than one commit can write runs them in turn, and its cancel ends them", func(e *env) {
		const jobs = 150
		steps := make([]string, jobs)
		for i := range steps {
			e.put(fmt.Sprintf("name: other%d\npolicy: {overlap: queue, concurrency_key: pool%d}", i, i))
			steps[i] = fmt.Sprintf("{name: s%d, run: {job: other%d}}", i, i)
		}
		j := e.put(flowJob("f", "", "max_parallel: 1000, steps: ["+strings.Join(steps, ", ")+"]"))
		f := e.trigger(j)
		e.begin(f)
		children := func() (found []store.Attempt) {
			list, err := e.ListActive(e.ctx, store.ActiveQuery{Limit: 1000})
			e.must(err)
			for i := range list {
				if r := &list[i]; r.Parent == f.Run {
					found = append(found, store.Attempt{Job: r.JobUID, Run: r.ID, Number: 1, Token: e.id()})
				}
			}
			return found
		}
		first := children()
		equal(e, "jobs that run", len(first), flow.JobsMax)
		e.claim(e.a, first[0], store.Started)
		e.finish(first[0], job.OutcomeSucceeded)
		equal(e, "jobs that run after the end of one", len(children()), flow.JobsMax)
		_, err := e.Cancel(e.ctx, f.Run, "ann", "")
		e.must(err)
		e.gone(f.Run, job.OutcomeCancelled)
		equal(e, "jobs that run after the cancel", len(children()), 0)
	}},
	{"the first failure ends the flow of another job that is a step, with its steps", func(e *env) {
		deep := e.put(flowJob("deep", "", `steps: [{name: z, run: 'true'}]`))
		other := e.put(flowJob("other", "", `steps: [{name: x, run: 'true'}, {name: y, run: {job: deep}}, {name: w, wait: {for: 1h}}]`))
		j := e.put(flowJob("f", "", `fail_fast: true, steps: [{name: a, run: {job: other}}, {name: b, run: 'true'}], finally: [{name: c, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		child := e.active(other)[0]
		e.begin(store.Attempt{Job: child.JobUID, Run: child.ID, Number: 1, Token: e.id()})
		below := e.active(deep)[0]
		e.begin(store.Attempt{Job: below.JobUID, Run: below.ID, Number: 1, Token: e.id()})
		e.step(f, "b", job.OutcomeFailed, "")
		e.gone(below.ID, job.OutcomeCancelled)
		e.gone(child.ID, job.OutcomeCancelled)
		e.step(f, "c", job.OutcomeSucceeded, "")
		contains(e, "reason", e.gone(f.Run, job.OutcomeFailed).Attempt.Reason.String(), "steps a, b have failed")
		equal(e, "unfinished runs", len(e.active(other))+len(e.active(deep)), 0)
	}},
	{"the first item that fails ends the others, and only their step", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, for_each: [1, 2, 3], fail_fast: true, run: 'true'}, {name: b, run: 'true'}, {name: c, needs: a, when: failed, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		running := e.steps(f)["a/0"]
		running.Token = e.id()
		e.claim(e.a, running, store.Started)
		e.step(f, "a/1", job.OutcomeFailed, "")
		equal(e, "open", e.open(f), "a/0 b")
		equal(e, "asked to end", e.run(running.Run).CancelBy, "belfry")
		e.finish(running, job.OutcomeCancelled)
		equal(e, "open", e.open(f), "b c")
	}},
	{"steps are claimed in a batch with others, timers and runs that replace their flow", func(e *env) {
		plain := e.trigger(e.put("name: plain"))
		replaced := e.put(flowJob("r", "overlap: replace", `steps: [{name: a, run: 'true'}, {name: b, run: 'true'}]`))
		r := e.trigger(replaced)
		e.begin(r)
		timed := e.put(flowJob("t", "timeout: 1m", `steps: [{name: a, run: 'true'}, {name: w, wait: {for: 1m}}, {name: b, needs: w, when: finished, run: 'true'}]`))
		f := e.trigger(timed)
		e.begin(f)
		next := e.triggered(store.TriggerItem{ID: e.id(), Job: replaced.Definition.UID, Kind: job.RunByHand, Key: "next"})
		e.pass(time.Minute, e.a)
		steps := e.steps(f)
		batch := []store.Attempt{e.steps(r)["a"], steps["a"], steps["w"], plain, next, steps[""], e.steps(r)["b"]}
		for i := range batch {
			batch[i].Token = e.id()
		}
		out, err := e.Claim(e.ctx, e.a.ID, batch)
		e.must(err)
		var verdicts []store.Verdict
		for i := range out {
			verdicts = append(verdicts, out[i].Verdict)
		}
		equal(e, "verdicts", fmt.Sprint(verdicts[:4]), fmt.Sprint([]store.Verdict{store.Started, store.Started, store.Taken, store.Started}))
		equal(e, "asked to end", e.run(batch[1].Run).CancelBy, "belfry")
		equal(e, "asked to end, of what was replaced", e.run(batch[0].Run).CancelBy, "belfry")
		e.finish(batch[1], job.OutcomeCancelled)
		e.gone(f.Run, job.OutcomeTimedOut)
		e.finish(batch[0], job.OutcomeCancelled)
		e.gone(r.Run, job.OutcomeCancelled)
	}},
	{"a step that waits for a time takes no node", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, wait: {for: 5m}}, {name: b, needs: a, wait: {until: '{{ (.Scheduled.Add "10m").UTC }}'}}, {name: c, needs: b, run: 'true'}]`))
		f := e.trigger(j)
		e.begin(f)
		for _, name := range []string{"a", "b"} {
			timer := e.steps(f)[name]
			timer.Token = e.id()
			e.claim(e.a, timer, store.Early)
			e.pass(5*time.Minute, e.a)
			e.claim(e.a, timer, store.Taken)
			e.stepGone(timer.Run, job.OutcomeSucceeded)
		}
		e.step(f, "c", job.OutcomeSucceeded, "")
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
	{"an approval counts once, and is audited", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, wait: {approval: 'publish {{ .Name }}?', for: 12h}}, {name: b, needs: a, run: 'echo {{ .Steps.a.Result.by }}'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.want(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Step: "b", By: "ann"}), store.ErrConflict)
		e.want(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Signal: "x", By: "ann"}), store.ErrConflict)
		var wait sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wait.Go(func() {
				errs[i] = e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Step: "a", Reject: i == 1, By: "ann", Note: "it is right"})
			})
		}
		wait.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			e.Fatalf("two answers gave %v and %v", errs[0], errs[1])
		}
		if errs[0] != nil {
			contains(e, "reason", e.gone(f.Run, job.OutcomeFailed).Attempt.Reason.String(), "rejected by ann: it is right")
			equal(e, "audit", e.actions()[0], "ann run.reject default/f")
			return
		}
		equal(e, "audit", e.actions()[0], "ann run.approve default/f")
		got := e.step(f, "b", job.OutcomeSucceeded, "")
		contains(e, "result", string(got.Steps["a"].Result), `"by":"ann"`)
		e.gone(f.Run, job.OutcomeSucceeded)
		e.want(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Step: "a", By: "ann"}), store.ErrNotFound)
	}},
	{"an approval that comes too late fails the step", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, wait: {approval: 'ok?', for: 1h}}]`))
		f := e.trigger(j)
		e.begin(f)
		timer := e.steps(f)["a"]
		timer.Token = e.id()
		e.pass(time.Hour, e.a)
		e.claim(e.a, timer, store.Taken)
		e.gone(f.Run, job.OutcomeFailed)
	}},
	{"a signal ends all steps that wait for it, with its data", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, wait: {signal: go}}, {name: b, wait: {signal: go}}, {name: c, needs: [a, b], run: 'echo {{ .Steps.a.Result.n }}'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.must(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Signal: "go", Data: []byte(`{"n": 1}`), By: "ann"}))
		got := e.step(f, "c", job.OutcomeSucceeded, "")
		equal(e, "result", string(got.Steps["a"].Result), `{"n":1}`)
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
	{"a signal that comes before a step waits for it is kept for that step", func(e *env) {
		j := e.put(flowJob("f", "", `steps: [{name: a, run: 'true'}, {name: b, needs: a, wait: {signal: go}}, {name: c, needs: b, wait: {signal: go}}, {name: d, needs: c, run: 'echo {{ .Steps.b.Result.n }}'}]`))
		f := e.trigger(j)
		e.begin(f)
		e.want(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Signal: "stop", By: "ann"}), store.ErrConflict)
		e.want(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Signal: "go", Data: []byte(`"` + strings.Repeat("x", job.ResultMax) + `"`), By: "ann"}), store.ErrConflict)
		e.must(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Signal: "go", Data: []byte(`{"n": 1}`), By: "ann"}))
		equal(e, "audit", e.actions()[0], "ann run.signal default/f")
		equal(e, "open", e.open(f), "a")
		e.step(f, "a", job.OutcomeSucceeded, "")
		equal(e, "open", e.open(f), "c") // one signal ends one step
		e.must(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Signal: "go", Data: []byte(`{"n": 2}`), By: "ann"}))
		got := e.step(f, "d", job.OutcomeSucceeded, "")
		equal(e, "result", string(got.Steps["b"].Result), `{"n":1}`)
		e.gone(f.Run, job.OutcomeSucceeded)
		e.want(e.AnswerFlow(e.ctx, store.FlowAnswer{Run: f.Run, Signal: "go", By: "ann"}), store.ErrNotFound)
	}},
	{"the steps of a deleted job are claimed as others are", func(e *env) {
		j := e.put(flowJob("f", "", diamond))
		f := e.trigger(j)
		e.begin(f)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		e.pass(time.Second, e.a)
		e.step(f, "a", job.OutcomeSucceeded, "")
		a := e.steps(f)["b"]
		a.Token = e.id()
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeSucceeded)
		e.step(f, "c", job.OutcomeSucceeded, "")
		e.step(f, "d", job.OutcomeSucceeded, "")
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
	{"the steps of a flow that is kept together run on the node of the first", func(e *env) {
		b := e.join("b")
		j := e.put(flowJob("f", "", `keep_together: true, `+diamond))
		f := e.trigger(j)
		e.begin(f)
		node, other := e.a, b
		if e.run(e.steps(f)["a"].Run).Node == "b" {
			node, other = b, e.a
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			a := e.steps(f)[name]
			a.Token = e.id()
			e.claim(other, a, store.Taken)
			e.claim(node, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
		}
		e.gone(f.Run, job.OutcomeSucceeded)
	}},
}
