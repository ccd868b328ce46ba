package engine

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var slotDecisions = []decided{
	{"each policy for overlaps answers a second run in its way", func(k *book) {
		n := k.join("n")
		for policy, c := range map[string]struct {
			want  store.Verdict
			after string // the runs of the job afterwards
		}{
			"overlap: allow":                        {store.Started, "running, running"},
			"overlap: skip":                         {store.Skipped, "running"},
			"overlap: queue":                        {store.Waiting, "running, waiting"},
			"overlap: replace":                      {store.Waiting, "running ending, waiting"},
			"overlap: skip, max_parallel: 2":        {store.Started, "running, running"},
			"overlap: queue, concurrency_key: none": {store.Waiting, "running, waiting"},
		} {
			a := k.put("name: j" + fmt.Sprint(k.ids) + minutely + "\npolicy: {" + policy + "}")
			k.claim(n, k.plan(a, n), store.Started)
			k.claim(n, k.plan(a, n), c.want)
			k.see(a, c.after)
		}
	}},
	{"a queue is bounded, and a slot goes to the run that was due first", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: queue, queue_limit: 2}")
		runs := []store.Attempt{k.plan(a, n), k.plan(a, n), k.plan(a, n), k.plan(a, n)}
		for i, want := range []store.Verdict{store.Started, store.Waiting, store.Waiting, store.Skipped} {
			k.claim(n, runs[i], want)
		}
		k.finish(runs[0], job.OutcomeSucceeded, true)
		k.see(a, "ready, waiting")
		k.claim(n, runs[1], store.Started)
		k.must(&Tidy{Runs: []RunRef{{Run: runs[2].Run, Job: a}}})
		k.see(a, "running, waiting")
	}},
	{"an occurrence that needs the one before waits for its success", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: allow, needs_previous: true}")
		first, second := k.plan(a, n), k.plan(a, n)
		k.claim(n, first, store.Started)
		k.claim(n, second, store.Waiting)
		k.finish(first, job.OutcomeFailed, true)
		k.see(a, "waiting")
		redo := &Trigger{Items: []store.TriggerItem{{ID: k.id(), Job: a, Kind: job.RunBackfill, Key: "again", Scheduled: k.records[0].Run.Scheduled, Session: n, Node: "n", Actor: "ann"}}}
		k.must(redo)
		again := store.Attempt{Job: a, Run: redo.Outcomes[0].Run, Number: 1, Token: k.id()}
		k.claim(n, again, store.Started)
		k.finish(again, job.OutcomeSucceeded, true)
		k.see(a, "ready")
	}},
	{"a job that moves to another pool leaves the slot of the one before", func(k *book) {
		for _, name := range []string{"x", "y"} {
			k.must(&PutDocument{Given: document(job.Document{Pool: &job.Pool{Name: name, Namespace: "default", Slots: job.Slots{Size: 1}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		}
		n := k.join("n")
		a, b := k.put("name: a\npolicy: {overlap: queue, concurrency_key: x}"), k.put("name: b\npolicy: {overlap: queue, concurrency_key: x}")
		held, waits := k.trigger(a, n), k.trigger(b, n)
		k.claim(n, held, store.Started)
		k.claim(n, waits, store.Waiting)
		k.put("name: b\npolicy: {overlap: queue, concurrency_key: y}")
		k.must(&Tidy{Runs: []RunRef{{Run: waits.Run, Job: b}}})
		k.claim(n, waits, store.Started)
	}},
}

// ahead plans a run of a job a second ahead and claims it.
func (k *book) ahead(uid, n job.ID) store.Attempt {
	k.Helper()
	j, due := k.jobs[uid], k.now.Add(time.Second)
	run := store.NewRun{ID: k.id(), Session: n, Node: k.sessions[n].Node, Scheduled: due, Due: due}
	k.must(&Plan{Session: n, Items: []store.PlanItem{{Job: uid, Epoch: j.Epoch, From: j.Cursor, To: due, Planned: j.Planned, Runs: []store.NewRun{run}}}})
	a := store.Attempt{Job: uid, Run: run.ID, Number: 1, Token: k.id()}
	k.claim(n, a, store.Started)
	return a
}

// queued returns, of one job on a node, a run in its slot and a run that waits for it. A job that
// runs everywhere follows that job.
func (k *book) queued(n job.ID, policy string) (held, waits store.Attempt, follower job.ID) {
	k.Helper()
	name := "q" + fmt.Sprint(k.ids)
	a := k.put("name: " + name + minutely + "\npolicy: {overlap: queue, " + policy + "}")
	follower = k.put("name: follows-" + name + "\nschedule: {on: [{job: " + name + ", outcome: finished}]}\nplace: {strategy: broadcast}")
	held, waits = k.plan(a, n), k.plan(a, n)
	k.claim(n, held, store.Started)
	k.claim(n, waits, store.Waiting)
	return held, waits, follower
}
