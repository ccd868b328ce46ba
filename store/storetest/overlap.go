package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// overlapping plans three runs in consecutive seconds for a job with a policy,
// starts the first, and moves the clock to the third.
func overlapping(e *env, policy string) (*store.Job, []store.Attempt) {
	e.Helper()
	j := e.put(everyMinute + "\npolicy: {" + policy + "}")
	runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
	e.clock.Advance(time.Second)
	e.claim(e.a, runs[0], store.Started)
	e.clock.Advance(2 * time.Second)
	e.must(e.Renew(e.ctx, e.a.ID, store.Load{Running: 1}))
	return j, runs
}

var overlapTests = []test{
	{"overlap: a run of skip is recorded when the slot is taken", func(e *env) {
		_, runs := overlapping(e, "overlap: skip")
		got := e.claim(e.a, runs[1], store.Skipped)
		r := e.gone(runs[1].Run, job.OutcomeSkipped)
		equal(e, "reason in the record", r.Attempt.Reason, got.Reason)
		equal(e, "reason", got.Reason.String(), fmt.Sprintf("run %s of 2026-11-20T12:00:01Z was still running on node a", runs[0].Run))
		e.claim(e.a, runs[1], store.Skipped) // its answer was lost
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(e.a, runs[2], store.Started)
	}},
	{"overlap: after an outage a node reports before others skip what its runs hold up", func(e *env) {
		b := e.join("b")
		hear := func(sessions ...store.Session) {
			for _, s := range sessions {
				e.must(e.Renew(e.ctx, s.ID, store.Load{}))
			}
		}
		var from time.Time
		outage := func(name string) (runs []store.Attempt) {
			j := e.put("name: " + name + "\nschedule: {cron: '* * * * *'}\npolicy: {overlap: skip, late_by: forever}")
			runs = e.plan(j, time.Second, 2*time.Second)
			e.clock.Advance(time.Second)
			hear(e.a, b)
			from = e.now()
			e.claim(e.a, runs[0], store.Started)
			e.clock.Advance(15 * time.Second) // the store is away
			hear(b)
			e.claim(b, runs[1], store.Early)
			return runs
		}
		runs := outage("ended")
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(b, runs[1], store.Started)
		e.finish(runs[1], job.OutcomeSucceeded)

		runs = outage("silent")
		for range 2 {
			e.clock.Advance(2 * time.Second)
			hear(b)
			e.claim(b, runs[1], store.Early)
		}
		e.clock.Advance(2 * time.Second)
		hear(b)
		got := e.claim(b, runs[1], store.Skipped)
		equal(e, "reason", got.Reason.String(), fmt.Sprintf("run %s of %s had not reported its end: node a was last heard 21 s ago; node b did not reach the store from %s to %s",
			runs[0].Run, e.run(runs[0].Run).Scheduled.Format(time.RFC3339), from.UTC().Format(time.RFC3339), from.Add(15*time.Second).UTC().Format(time.RFC3339)))
		hear(e.a)
		e.clock.Advance(10 * time.Second)
		hear(e.a, b)
		e.finish(runs[0], job.OutcomeSucceeded)

		runs = outage("running")
		hear(e.a)
		e.claim(b, runs[1], store.Early)
		for range 3 {
			e.clock.Advance(2 * time.Second)
			hear(e.a, b)
		}
		contains(e, "reason", e.claim(b, runs[1], store.Skipped).Reason.String(), "was still running on node a")
	}},
	{"overlap: after an outage a node reports before others skip for a full queue or replace", func(e *env) {
		b := e.join("b")
		hear := func(sessions ...store.Session) {
			for _, s := range sessions {
				e.must(e.Renew(e.ctx, s.ID, store.Load{}))
			}
		}
		renewed := func(sessions ...store.Session) {
			for range 3 {
				e.clock.Advance(2 * time.Second)
				hear(sessions...)
			}
		}
		// The first two of three runs start or wait, then the store is away, and only node b is back.
		outage := func(name, policy string, first, second store.Session, want store.Verdict) (runs []store.Attempt) {
			hear(e.a, b)
			renewed(e.a, b)
			j := e.put("name: " + name + "\nschedule: {cron: '* * * * *'}\npolicy: {late_by: forever, " + policy + "}")
			runs = e.plan(j, time.Second, 2*time.Second, 3*time.Second)
			e.clock.Advance(2 * time.Second)
			hear(e.a, b)
			e.claim(first, runs[0], store.Started)
			e.claim(second, runs[1], want)
			e.clock.Advance(15 * time.Second)
			hear(b)
			e.claim(b, runs[2], store.Early)
			return runs
		}

		runs := outage("queue", "overlap: queue", e.a, b, store.Waiting)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(b, runs[2], store.Waiting) // the run before it has the slot now

		runs = outage("full", "overlap: queue", e.a, b, store.Waiting)
		renewed(b)
		contains(e, "reason", e.claim(b, runs[2], store.Skipped).Reason.String(), "1 run waits already")

		runs = outage("replace", "overlap: replace, max_parallel: 2", b, e.a, store.Started)
		e.finish(runs[1], job.OutcomeSucceeded)
		e.claim(b, runs[2], store.Started)
		equal(e, "the first run is cancelled by", e.run(runs[0].Run).CancelBy, "")

		runs = outage("replaced", "overlap: replace", e.a, b, store.Waiting)
		equal(e, "the run that waits", e.run(runs[1].Run).State, job.StateWaiting)
		renewed(b)
		e.claim(b, runs[2], store.Waiting)
		e.gone(runs[1].Run, job.OutcomeSkipped)
	}},
	{"overlap: a run of queue waits and one beyond the limit is skipped", func(e *env) {
		_, runs := overlapping(e, "overlap: queue")
		got := e.claim(e.a, runs[1], store.Waiting)
		contains(e, "reason", got.Reason.String(), runs[0].Run.String())
		e.claim(e.a, runs[1], store.Waiting)
		e.claim(e.a, runs[2], store.Skipped)
		contains(e, "reason", e.gone(runs[2].Run, job.OutcomeSkipped).Attempt.Reason.String(), "1 run waits already")
		r := e.run(runs[1].Run)
		equal(e, "state", r.State, job.StateWaiting)
		e.finish(runs[0], job.OutcomeFailed)
		r = e.run(runs[1].Run)
		equal(e, "state", r.State, job.StateReady)
		equal(e, "holds the slot", r.HoldsSlot, true)
		e.claim(e.a, runs[1], store.Started)
	}},
	{"overlap: an edit moves all waiting runs to their new slot and their new end", func(e *env) {
		const many = 60 // more than a store keeps in the cell of their job
		job0 := everyMinute + "\npolicy: {overlap: queue, queue_limit: 100, late_by: "
		j := e.put(job0 + "1h}")
		var after []time.Duration
		for i := range many {
			after = append(after, time.Second+time.Duration(i)*time.Millisecond)
		}
		runs := e.plan(j, after...)
		e.clock.Advance(2 * time.Second)
		claimed, err := e.Claim(e.ctx, e.a.ID, runs)
		e.must(err)
		equal(e, "the first", claimed[0].Verdict, store.Started)
		equal(e, "the last", claimed[many-1].Verdict, store.Waiting)
		waiting := func(what, slot string, late time.Duration, want int) {
			e.Helper()
			n := 0
			for _, r := range e.active(j) {
				if r.State == job.StateRunning || r.HoldsSlot {
					continue
				}
				n++
				if r.Slot != slot || !r.LateAfter.Equal(r.Due.Add(late)) {
					e.Errorf("%s: the run due %s needs slot %q until %s", what, r.Due, r.Slot, r.LateAfter)
				}
			}
			equal(e, what, n, want)
		}
		own := j.Definition.UID.String()
		waiting("waiting at first", own, time.Hour, many-1)
		e.put(job0 + "2h}")
		waiting("waiting with another late_by", own, 2*time.Hour, many-1)
		e.put(job0 + "3h, concurrency_key: p}")
		waiting("waiting for a pool", "pool default/p", 3*time.Hour, many-2) // one run has its slot
		e.claim(e.a, runs[1], store.Started)
		e.put(job0 + "3h, max_parallel: 2}")
		waiting("waiting for the job again", own, 3*time.Hour, many-3)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.finish(runs[1], job.OutcomeSucceeded)
		e.claim(e.a, runs[2], store.Started)
		waiting("waiting when one has ended", own, 3*time.Hour, many-4)
		e.claim(e.a, runs[3], store.Started)
	}},
	{"overlap: a slot goes past more withdrawn runs than one step reads", func(e *env) {
		const many = store.MaxBatch + 100
		policy := "\npolicy: {overlap: queue, queue_limit: 1000}"
		j := e.put(everyMinute + policy)
		var after []time.Duration
		for i := range many {
			after = append(after, time.Second+time.Duration(i)*time.Millisecond)
		}
		runs := e.plan(j, after...)
		e.clock.Advance(2 * time.Second)
		for some := range slices.Chunk(runs, store.MaxBatch) {
			_, err := e.Claim(e.ctx, e.a.ID, some)
			e.must(err)
		}
		last := e.triggered(store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start, Due: e.now(), Session: e.a.ID, Node: "a", Actor: "ann"})
		e.claim(e.a, last, store.Waiting)
		e.put("name: a\nschedule: {cron: '0 * * * *'}" + policy) // withdraws the planned runs
		e.finish(runs[0], job.OutcomeSucceeded)
		equal(e, "the run behind those that were withdrawn", e.run(last.Run).State, job.StateReady)
		e.claim(e.a, last, store.Started)
		e.gone(runs[1].Run, job.OutcomeWithdrawn)
		e.gone(runs[many-1].Run, job.OutcomeWithdrawn)
	}},
	{"overlap: an edit fills more slots than one step writes", func(e *env) {
		b := &Backlog{env: e}
		b.job = e.put(everyMinute + "\npolicy: {overlap: queue}")
		b.holder = b.requested(1)[0]
		b.claim(b.a, b.holder, store.Started)
		b.Grow(store.MaxBatch + 120)
		e.put(everyMinute + fmt.Sprintf("\npolicy: {overlap: queue, max_parallel: %d}", store.MaxBatch+101))
		n := 0
		b.each(job.StateReady, func(r *store.Run) {
			if n++; !r.HoldsSlot {
				e.Errorf("run %s is ready without a slot", r.ID)
			}
		})
		equal(e, "ready runs", n, store.MaxBatch+100)
	}},
	{"overlap: the answer to a result names the runs that it made ready", func(e *env) {
		j, runs := overlapping(e, "overlap: queue, queue_limit: 5, retry: {attempts: 1, backoff: 10s}")
		e.claim(e.a, runs[1], store.Waiting)
		retry := e.finish(runs[0], job.OutcomeFailed).Ready
		equal(e, "runs that are ready after a failure", len(retry), 1)
		equal(e, "ready after a failure", retry[0], store.ReadyRun{
			RunRef: store.RunRef{Due: e.run(runs[0].Run).Due, ID: runs[0].Run}, Job: j.Definition.UID, Session: e.a.ID, Attempt: 2,
		})
		e.clock.Advance(10 * time.Second)
		runs[0].Number = 2
		e.claim(e.a, runs[0], store.Started)
		waiting := e.run(runs[1].Run)
		next := e.finish(runs[0], job.OutcomeFailed).Ready
		equal(e, "runs that are ready after the end", len(next), 1)
		equal(e, "ready after the end", next[0], store.ReadyRun{
			RunRef: store.RunRef{Due: waiting.Due, ID: waiting.ID}, Job: j.Definition.UID, Session: e.a.ID, Attempt: 1,
		})
		e.claim(e.a, runs[1], store.Started)

		// Runs assigned to another session are not for this one.
		e.claim(e.a, runs[2], store.Waiting)
		ended, err := e.Finish(e.ctx, e.join("b").ID, []store.Result{{Attempt: runs[1], Outcome: job.OutcomeSucceeded, Started: e.now(), Ended: e.now()}})
		e.must(err)
		equal(e, "runs that are ready for another session", len(ended[0].Ready), 0)
		e.claim(e.a, runs[2], store.Started)
	}},
	{"overlap: the slot goes to the run that is due first", func(e *env) {
		j, runs := overlapping(e, "overlap: queue, queue_limit: 5")
		late := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, late, store.Waiting)
		e.claim(e.a, runs[2], store.Waiting)
		e.claim(e.a, runs[1], store.Waiting)
		for i, next := range []store.Attempt{runs[1], runs[2], late} {
			e.finish([]store.Attempt{runs[0], runs[1], runs[2]}[i], job.OutcomeSucceeded)
			holds := 0
			for _, r := range e.active(j) {
				if r.HoldsSlot {
					holds++
					equal(e, "holds the slot", r.ID, next.Run)
				}
			}
			equal(e, "runs that hold it", holds, 1)
			e.claim(e.a, next, store.Started)
		}
	}},
	{"overlap: a new run does not take a slot that was handed on", func(e *env) {
		_, runs := overlapping(e, "overlap: queue, queue_limit: 5")
		e.claim(e.a, runs[1], store.Waiting)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(e.a, runs[2], store.Waiting)
		e.claim(e.a, runs[1], store.Started)
	}},
	{"overlap: replace cancels the running run and the newest waits", func(e *env) {
		_, runs := overlapping(e, "overlap: replace, retry: {attempts: 2}")
		e.claim(e.a, runs[1], store.Waiting)
		r := e.run(runs[0].Run)
		equal(e, "cancelled by", r.CancelBy, "belfry")
		contains(e, "cancelled because", r.CancelReason.String(), runs[1].Run.String())
		e.claim(e.a, runs[2], store.Waiting)
		contains(e, "reason", e.gone(runs[1].Run, job.OutcomeSkipped).Attempt.Reason.String(), runs[2].Run.String())
		e.finish(runs[0], job.OutcomeCancelled)
		e.gone(runs[0].Run, job.OutcomeCancelled)
		e.claim(e.a, runs[2], store.Started)
	}},
	{"overlap: replace never replaces a later run by an earlier one", func(e *env) {
		// As when the node of the first run is late, and another node claims that run.
		claimed := func(runs []store.Attempt, want ...store.Verdict) {
			e.Helper()
			for i, a := range runs {
				e.claim(e.a, a, want[i])
			}
		}
		one := e.plan(e.put("name: one\nschedule: {cron: '* * * * *'}\npolicy: {overlap: replace}"), time.Second, 2*time.Second, 3*time.Second)
		two := e.plan(e.put("name: two\nschedule: {cron: '* * * * *'}\npolicy: {overlap: replace, max_parallel: 2}"), time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
		e.clock.Advance(4 * time.Second)
		claimed([]store.Attempt{one[1], one[0]}, store.Started, store.Skipped)
		contains(e, "reason", e.gone(one[0].Run, job.OutcomeSkipped).Attempt.Reason.String(), one[1].Run.String()+" of")
		claimed([]store.Attempt{one[2]}, store.Waiting)
		claimed([]store.Attempt{two[0], two[3], two[2], two[1]}, store.Started, store.Started, store.Waiting, store.Skipped)
		equal(e, "the latest is cancelled", e.run(two[3].Run).CancelBy, "")
	}},
	{"overlap: replace ends a run between two attempts at once", func(e *env) {
		_, runs := overlapping(e, "overlap: replace, retry: {attempts: 2, backoff: 1h}")
		e.finish(runs[0], job.OutcomeFailed)
		e.claim(e.a, runs[1], store.Started)
		contains(e, "reason", e.gone(runs[0].Run, job.OutcomeCancelled).Attempt.Reason.String(), runs[1].Run.String())
	}},
	{"overlap: allow runs beside the others", func(e *env) {
		_, runs := overlapping(e, "overlap: allow")
		e.claim(e.a, runs[1], store.Started)
		e.claim(e.a, runs[2], store.Started)
	}},
	{"overlap: an edit from allow to skip sees what runs", func(e *env) {
		_, runs := overlapping(e, "overlap: allow")
		e.put(everyMinute + "\npolicy: {overlap: skip}")
		e.claim(e.a, runs[1], store.Skipped)
	}},
	{"overlap: an edit to allow starts the waiting runs", func(e *env) {
		_, runs := overlapping(e, "overlap: queue")
		e.claim(e.a, runs[1], store.Waiting)
		e.put(everyMinute + "\npolicy: {overlap: allow}")
		e.claim(e.a, runs[1], store.Started)
	}},
	{"overlap: max_parallel is the number of slots", func(e *env) {
		j, runs := overlapping(e, "overlap: queue, max_parallel: 2")
		e.claim(e.a, runs[1], store.Started)
		e.claim(e.a, runs[2], store.Waiting)
		e.put(everyMinute + "\npolicy: {overlap: queue, max_parallel: 3}")
		e.claim(e.a, runs[2], store.Started)
		more := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, more, store.Waiting)
	}},
	{"overlap: several claims of one batch share the slots", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {max_parallel: 2}")
		runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
		e.clock.Advance(4 * time.Second)
		got, err := e.Claim(e.ctx, e.a.ID, runs)
		e.must(err)
		for i, want := range []store.Verdict{store.Started, store.Started, store.Skipped, store.Skipped} {
			equal(e, "verdict", verdicts[got[i].Verdict], verdicts[want])
		}
	}},
	{"overlap: an early claim takes only a slot that no earlier run can need", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: skip}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.claim(e.a, runs[1], store.Early) // the previous run has not started
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Early) // it is not skipped before its instant
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(e.a, runs[1], store.Started)
	}},
	{"overlap: an early claim counts earlier runs regardless of its batch", func(e *env) {
		runs := e.plan(e.put(everyMinute+"\npolicy: {overlap: skip}"), 1500*time.Millisecond, 1900*time.Millisecond)
		other := e.plan(e.put("name: b\nschedule: {cron: '* * * * *'}"), time.Second)
		got, err := e.Claim(e.ctx, e.a.ID, []store.Attempt{runs[1], other[0]})
		e.must(err)
		for i, want := range []store.Verdict{store.Early, store.Started} {
			equal(e, "verdict", verdicts[got[i].Verdict], verdicts[want])
		}
	}},
	{"overlap: a run behind many others in its slot is claimed", func(e *env) {
		const many = store.MaxBatch + 2
		var after []time.Duration
		for i := range many {
			after = append(after, time.Duration(i+1)*time.Millisecond)
		}
		j := e.put(everyMinute + "\npolicy: {overlap: queue, queue_limit: 1000}")
		runs := e.plan(j, after[:many/2]...)
		runs = append(runs, e.plan(j, after[many/2:]...)...)
		e.clock.Advance(time.Second)
		ready, err := e.Ready(e.ctx, store.ReadyQuery{Session: e.a.ID, Until: e.now(), Limit: many})
		e.must(err)
		equal(e, "ready runs", len(ready), many)
		for _, place := range []int{0, many - 1} { // the read part of the slot lacks the second
			want := store.Started
			if place > 0 {
				want = store.Waiting
			}
			e.claim(e.a, runs[place], want)
		}
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(e.a, runs[many-1], store.Started)
	}},
	{"overlap: a slot of a pool is handed on after its job left the pool or may overlap", func(e *env) {
		for i, policy := range []string{"overlap: allow", "overlap: allow, concurrency_key: db"} {
			e.put("name: a\npolicy: {overlap: queue, concurrency_key: db}")
			left, err := store.JobNamed(e.ctx, e, "default", "a")
			e.must(err)
			holder := e.trigger(left)
			e.claim(e.a, holder, store.Started)
			waits := e.trigger(e.put(fmt.Sprintf("name: w%d\npolicy: {overlap: queue, concurrency_key: db}", i)))
			e.claim(e.a, waits, store.Waiting)
			e.put("name: a\npolicy: {" + policy + "}")
			e.finish(holder, job.OutcomeSucceeded)
			e.claim(e.a, waits, store.Started)
			e.finish(waits, job.OutcomeSucceeded)
		}
	}},
	{"overlap: an unstarted run with a slot needs the new slot after an edit", func(e *env) {
		edits := []struct{ from, to string }{
			{"policy: {concurrency_key: a, overlap: queue}", "policy: {concurrency_key: b, overlap: queue}"},
			{"policy: {overlap: queue}", "policy: {concurrency_key: b, overlap: queue}"},
			{"policy: {concurrency_key: a, overlap: queue}", "policy: {overlap: queue}"},
			{"policy: {overlap: queue}", "place: {strategy: broadcast}\npolicy: {overlap: queue}"},
		}
		for i, edit := range edits {
			text := fmt.Sprintf("name: j%d\n", i)
			// takesTurns makes a run of the edited job wait for a slot that another run holds.
			takesTurns := func(j *store.Job, a store.Attempt) {
				other := e.trigger(j)
				if strings.Contains(edit.to, "concurrency_key") {
					other = e.trigger(e.put("name: other\npolicy: {concurrency_key: b}"))
				}
				e.claim(e.a, other, store.Started)
				e.claim(e.a, a, store.Waiting)
				e.finish(other, job.OutcomeSucceeded)
				e.claim(e.a, a, store.Started)
			}
			e.put(text + edit.from)
			left, err := store.JobNamed(e.ctx, e, "default", fmt.Sprintf("j%d", i))
			e.must(err)
			first, handed, claimed := e.trigger(left), e.trigger(left), e.trigger(left)
			e.claim(e.a, first, store.Started)
			e.claim(e.a, handed, store.Waiting)
			e.finish(first, job.OutcomeSucceeded)
			equal(e, "it was given the slot", e.run(handed.Run).HoldsSlot, true)
			takesTurns(e.put(text+edit.to), handed)

			// Runs claimed under the old definition, and returned for that.
			e.finish(handed, job.OutcomeSucceeded)
			e.put(text + edit.from)
			e.claim(e.a, claimed, store.Started)
			j := e.put(text + edit.to)
			e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{claimed}))
			takesTurns(j, claimed)
			e.finish(claimed, job.OutcomeSucceeded)
		}
	}},
	{"overlap: a slot that is no longer needed goes to a waiting run", func(e *env) {
		j := e.put("name: a\npolicy: {concurrency_key: a, overlap: queue}")
		first, handed := e.trigger(j), e.trigger(j)
		e.claim(e.a, first, store.Started)
		e.claim(e.a, handed, store.Waiting)
		e.clock.Advance(time.Second)
		waits := e.trigger(e.put("name: other\npolicy: {concurrency_key: a, overlap: queue, queue_limit: 2}"))
		e.claim(e.a, waits, store.Waiting)
		e.finish(first, job.OutcomeSucceeded)
		equal(e, "it was given the slot", e.run(handed.Run).HoldsSlot, true)
		e.put("name: a\npolicy: {overlap: queue}")
		e.claim(e.a, handed, store.Started)
		e.claim(e.a, waits, store.Started)
	}},
	{"overlap: a started run keeps its slot between attempts after an edit", func(e *env) {
		retry := ", retry: {attempts: 1, backoff: 1m}}"
		r := e.trigger(e.put("name: a\npolicy: {concurrency_key: a, overlap: queue" + retry))
		e.claim(e.a, r, store.Started)
		e.finish(r, job.OutcomeFailed)
		e.claim(e.a, e.trigger(e.put("name: other\npolicy: {concurrency_key: b}")), store.Started)
		e.put("name: a\npolicy: {concurrency_key: b, overlap: queue" + retry)
		e.clock.Advance(time.Minute)
		e.claim(e.a, store.Attempt{Job: r.Job, Run: r.Run, Number: 2, Token: e.id()}, store.Started)
	}},
	{"overlap: a run that is too late blocks no other", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: skip, late_by: 5s}")
		runs := e.plan(j, time.Second, 9*time.Second)
		e.clock.Advance(8 * time.Second)
		e.claim(e.a, runs[1], store.Started) // ahead of its time
	}},
	{"overlap: a slot is not handed to a run withdrawn while it waited", func(e *env) {
		j, runs := overlapping(e, "overlap: queue, queue_limit: 2")
		e.claim(e.a, runs[1], store.Waiting)
		hand := e.trigger(j)
		e.claim(e.a, hand, store.Waiting)
		e.put("name: a\nschedule: {cron: '7 7 7 7 *'}\npolicy: {overlap: queue, queue_limit: 2}")
		e.finish(runs[0], job.OutcomeSucceeded)
		equal(e, "the one that was withdrawn has the slot", e.run(runs[1].Run).HoldsSlot, false)
		e.claim(e.a, hand, store.Started)
	}},
	{"overlap: a run holds its slot between its attempts", func(e *env) {
		_, runs := overlapping(e, "overlap: skip, retry: {attempts: 2, backoff: 1m}")
		e.finish(runs[0], job.OutcomeFailed)
		got := e.claim(e.a, runs[1], store.Skipped)
		contains(e, "reason", got.Reason.String(), "until its next attempt")
		e.clock.Advance(time.Minute)
		retry := store.Attempt{Job: runs[0].Job, Run: runs[0].Run, Number: 2, Token: e.id()}
		e.claim(e.a, retry, store.Started)
		e.finish(retry, job.OutcomeSucceeded)
		e.claim(e.a, runs[2], store.Started)
	}},
	{"overlap: a cancelled, withdrawn or lost run gives its slot back", func(e *env) {
		_, runs := overlapping(e, "overlap: queue, queue_limit: 9, retry: {attempts: 2, backoff: 1m, on: [failed]}")
		e.claim(e.a, runs[1], store.Waiting)
		e.claim(e.a, runs[2], store.Waiting)
		e.finish(runs[0], job.OutcomeFailed)
		_, err := e.Cancel(e.ctx, runs[0].Run, "ann", "") // between two attempts
		e.must(err)
		e.claim(e.a, runs[1], store.Started)
		b := e.join("b")
		e.pass(61*time.Second, b)
		lost, err := e.Lost(e.ctx, 10)
		e.must(err)
		e.must(e.Reap(e.ctx, b.ID, lost))
		e.gone(runs[1].Run, job.OutcomeLost)
		e.claim(b, runs[2], store.Started)
	}},
	{"overlap: a run withdrawn between two attempts blocks no other", func(e *env) {
		j, runs := overlapping(e, "overlap: skip, retry: {attempts: 2, backoff: 1m}")
		e.finish(runs[0], job.OutcomeFailed)
		e.put(everyMinute + "\npaused: true\npolicy: {overlap: skip, retry: {attempts: 2, backoff: 1m}}")
		e.claim(e.a, e.trigger(j), store.Started)
		e.gone(runs[0].Run, job.OutcomeWithdrawn)
	}},
	{"overlap: a pool is shared between jobs", func(e *env) {
		_, err := e.PutDocument(e.ctx, job.Document{Pool: &job.Pool{Name: "db", Slots: job.Slots{Size: 2}}}, 0, "ann")
		e.must(err)
		var runs []store.Attempt
		for i := range 4 {
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {overlap: queue, concurrency_key: db}", i))
			runs = append(runs, e.plan(j, time.Second)[0])
		}
		other := e.plan(e.put("name: other\nnamespace: n\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: db}"), time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, other, store.Started) // the pool of another namespace
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Started)
		e.claim(e.a, runs[2], store.Waiting)
		e.finish(runs[1], job.OutcomeSucceeded)
		e.claim(e.a, runs[3], store.Waiting) // the slot was already handed on
		e.claim(e.a, runs[2], store.Started)
		_, err = e.PutDocument(e.ctx, job.Document{Pool: &job.Pool{Name: "db", Slots: job.Slots{Size: 3}}}, 1, "ann")
		e.must(err)
		e.claim(e.a, runs[3], store.Started)
	}},
	{"overlap: each value of a key has slots of its own", func(e *env) {
		_, err := e.PutDocument(e.ctx, job.Document{Pool: &job.Pool{Name: "customer", Slots: job.Slots{Size: 2, PerKey: true}}}, 0, "ann")
		e.must(err)
		const params = "\nparams: {customer: {default: none}}\n"
		const keyed = params + "policy: {overlap: queue, queue_limit: 9, concurrency_key: 'customer-{{ .Param.customer }}'}"
		j, other := e.put("name: j"+keyed), e.put("name: other"+keyed)
		of := func(j *store.Job, customer string) store.Attempt {
			item := store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: e.id().String(), Session: e.a.ID, Actor: "ann"}
			if customer != "" {
				item.Params = map[string]string{"customer": customer}
			}
			return e.triggered(item)
		}
		a1, a2, a3 := of(j, "42"), of(other, "42"), of(j, "42")
		e.claim(e.a, a1, store.Started)
		e.claim(e.a, a2, store.Started)
		contains(e, "reason", e.claim(e.a, a3, store.Waiting).Reason.String(), "was still running")
		equal(e, "slot", e.run(a3.Run).Slot, "pool default/customer-42")
		for _, customer := range []string{"43", "", "Acme", "acme", "M\u00fcller & S\u00f6hne", "M\u00fcller & S\u00f6hn", "a/b"} {
			e.claim(e.a, of(j, customer), store.Started)
			e.claim(e.a, of(other, customer), store.Started)
			last := of(j, customer)
			e.claim(e.a, last, store.Waiting)
		}
		e.finish(a2, job.OutcomeSucceeded)
		e.claim(e.a, a3, store.Started)
		waits := of(j, "42")
		e.claim(e.a, waits, store.Waiting)
		own := e.put("name: own\npolicy: {concurrency_key: customer-42, overlap: queue, queue_limit: 9}")
		same := e.trigger(own)
		e.claim(e.a, same, store.Waiting)
		e.put("name: j" + params + "policy: {overlap: queue, queue_limit: 9}")
		equal(e, "slot after an edit", e.run(waits.Run).Slot, j.Definition.UID.String())
		e.put("name: j" + keyed)
		equal(e, "slot after another", e.run(waits.Run).Slot, "pool default/customer-42")
		_, err = e.Cancel(e.ctx, waits.Run, "ann", "")
		e.must(err)
		e.finish(a1, job.OutcomeSucceeded)
		e.claim(e.a, same, store.Started)
	}},
	{"overlap: an undeclared pool has one slot", func(e *env) {
		a := e.plan(e.put("name: a\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: db}"), time.Second)[0]
		b := e.plan(e.put("name: b\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: db}"), time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Started)
		e.claim(e.a, b, store.Skipped)
	}},
	{"overlap: in a pool, replace does not end the runs of other jobs", func(e *env) {
		a := e.plan(e.put("name: a\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: db}"), time.Second)[0]
		b := e.plan(e.put("name: b\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: db, overlap: replace}"), time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, a, store.Started)
		e.claim(e.a, b[0], store.Waiting)
		contains(e, "reason", e.claim(e.a, b[1], store.Waiting).Reason.String(), "was still running")
		equal(e, "cancelled by", e.run(a.Run).CancelBy, "")
		e.gone(b[0].Run, job.OutcomeSkipped)
		e.finish(a, job.OutcomeSucceeded)
		e.claim(e.a, b[1], store.Started)
	}},
	{"overlap: shards that share a pool wait for each other", func(e *env) {
		for i, overlap := range []string{"skip", "queue", "replace"} {
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\nplace: {shards: 3}\npolicy: {concurrency_key: p%d, overlap: %s}", i, i, overlap))
			both := e.planSplit(j, 3, time.Second, 2*time.Second)
			first, second := both[0], both[1]
			e.clock.Advance(time.Second)
			e.claim(e.a, first[1], store.Started)
			e.claim(e.a, first[0], store.Waiting)
			e.claim(e.a, first[2], store.Waiting)
			equal(e, overlap+": cancelled by", e.run(first[1].Run).CancelBy, "")
			e.clock.Advance(time.Second)
			switch overlap {
			case "replace":
				// A later occurrence replaces all of them.
				e.claim(e.a, second[0], store.Waiting)
				equal(e, "cancelled by", e.run(first[1].Run).CancelBy, "belfry")
				e.gone(first[0].Run, job.OutcomeSkipped)
				e.gone(first[2].Run, job.OutcomeSkipped)
				e.claim(e.a, second[1], store.Waiting)
				e.finish(first[1], job.OutcomeCancelled)
			default:
				e.claim(e.a, second[2], store.Skipped)
				e.finish(first[1], job.OutcomeSucceeded)
			}
			holds := 0
			for _, r := range e.active(j) {
				if r.HoldsSlot {
					holds++
				}
			}
			equal(e, overlap+": runs that hold the slot", holds, 1)
		}
	}},
	{"overlap: replace ends as many runs in a pool as shards come", func(e *env) {
		_, err := e.PutDocument(e.ctx, job.Document{Pool: &job.Pool{Name: "db", Slots: job.Slots{Size: 3}}}, 0, "ann")
		e.must(err)
		j := e.put("name: a\nschedule: {cron: '* * * * *'}\nplace: {shards: 3}\npolicy: {concurrency_key: db, overlap: replace}")
		both := e.planSplit(j, 3, time.Second, 2*time.Second)
		first, second := both[0], both[1]
		e.clock.Advance(2 * time.Second)
		for _, a := range first {
			e.claim(e.a, a, store.Started)
		}
		ending := func() (n int) {
			for _, a := range first {
				if e.run(a.Run).CancelBy != "" {
					n++
				}
			}
			return n
		}
		for i, a := range second {
			e.claim(e.a, a, store.Waiting)
			equal(e, "runs that end", ending(), i+1)
		}
	}},
	{"overlap: a queue may be longer than several batches", func(e *env) {
		const waiting = 5*store.MaxBatch + 100
		j := e.put(fmt.Sprintf("name: a\npolicy: {overlap: queue, queue_limit: %d}", waiting))
		var items []store.TriggerItem
		var attempts []store.Attempt
		for i := range waiting + 2 {
			items = append(items, store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: fmt.Sprint(i), Due: start.Add(time.Duration(i) * time.Millisecond)})
			attempts = append(attempts, store.Attempt{Job: items[i].Job, Run: items[i].ID, Number: 1, Token: e.id()})
		}
		e.clock.Advance(time.Minute)
		counts := map[store.Verdict]int{}
		for from := 0; from < len(items); from += store.MaxBatch {
			to := min(from+store.MaxBatch, len(items))
			_, err := e.Trigger(e.ctx, items[from:to])
			e.must(err)
			got, err := e.Claim(e.ctx, e.a.ID, attempts[from:to])
			e.must(err)
			for _, c := range got {
				counts[c.Verdict]++
			}
		}
		equal(e, "verdicts", fmt.Sprint(counts), fmt.Sprint(map[store.Verdict]int{store.Started: 1, store.Waiting: waiting, store.Skipped: 1}))
		for i := range 3 {
			e.finish(attempts[i], job.OutcomeSucceeded)
			e.claim(e.a, attempts[i+1], store.Started)
		}
		more := e.trigger(j) // three free places
		e.claim(e.a, more, store.Waiting)
	}},
	{"overlap: broadcasts have a slot on each node", func(e *env) {
		b := e.join("b")
		j := e.put(everyMinute + "\nplace: {strategy: broadcast}")
		var items [2]store.PlanItem
		for i := range items {
			items[i] = e.planItem(e.reload(j))
			items[i].To = start.Add(time.Duration(i+1) * time.Second)
			for n, s := range []store.Session{e.a, b} {
				items[i].Runs = append(items[i].Runs, store.NewRun{ID: e.id(), Session: s.ID, Scheduled: items[i].To, Due: items[i].To, Shard: n, Shards: 2})
			}
			e.planned(items[i], store.Planned)
		}
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, store.Attempt{Job: items[0].Job, Run: items[0].Runs[0].ID, Number: 1, Token: e.id()}, store.Started)
		e.claim(b, store.Attempt{Job: items[0].Job, Run: items[0].Runs[1].ID, Number: 1, Token: e.id()}, store.Started)
		e.claim(e.a, store.Attempt{Job: items[1].Job, Run: items[1].Runs[0].ID, Number: 1, Token: e.id()}, store.Skipped)
	}},
	{"a run bound to a node is placed only on its new session", func(e *env) {
		for i, place := range []string{"strategy: broadcast", "sticky: true"} {
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\nplace: {%s}", i, place))
			a := e.plan(j, 5*time.Second)[0]
			e.must(e.Leave(e.ctx, e.a.ID))
			b := e.join("b")
			e.must(e.Place(e.ctx, []store.Placement{{Job: a.Job, Run: a.Run, Attempt: 1, Session: b.ID}}))
			equal(e, place+": placed on another node", e.run(a.Run).Session.IsZero(), true)
			e.a = e.join("a")
			e.must(e.Place(e.ctx, []store.Placement{{Job: a.Job, Run: a.Run, Attempt: 1, Session: e.a.ID}}))
			equal(e, place+": placed on its node", e.run(a.Run).Session, e.a.ID)
		}
	}},
	{"overlap: a backfill has its own policy", func(e *env) {
		j, runs := overlapping(e, "overlap: skip")
		backfill := func(hours int, o job.Overlap) store.Attempt {
			return e.triggered(store.TriggerItem{
				ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start.Add(time.Duration(-hours) * time.Hour), Overlap: o, Actor: "ann",
			})
		}
		queued := []store.Attempt{backfill(3, job.OverlapQueue), backfill(2, job.OverlapQueue)}
		for _, a := range queued {
			e.claim(e.a, a, store.Waiting) // the job's own limit does not apply
		}
		e.claim(e.a, backfill(1, job.OverlapAllow), store.Started)
		e.claim(e.a, backfill(4, ""), store.Skipped)
		e.finish(runs[0], job.OutcomeSucceeded)
	}},
	{"overlap: a backfill with its own policy waits even if the job's queue is full", func(e *env) {
		j, runs := overlapping(e, "overlap: queue")
		e.claim(e.a, runs[1], store.Waiting)
		e.claim(e.a, runs[2], store.Skipped)
		backfill := e.triggered(store.TriggerItem{
			ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start.Add(-time.Hour), Overlap: job.OverlapQueue, Actor: "ann",
		})
		e.claim(e.a, backfill, store.Waiting)
	}},
	{"overlap: a concurrent backfill waits for a slot of its pool", func(e *env) {
		j, runs := overlapping(e, "concurrency_key: db")
		backfill := e.triggered(store.TriggerItem{
			ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start.Add(-time.Hour), Overlap: job.OverlapAllow, Actor: "ann",
		})
		e.claim(e.a, backfill, store.Waiting)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(e.a, backfill, store.Started)
	}},
	{"overlap: a run withdrawn while it waited takes no place in the queue", func(e *env) {
		text := everyMinute + "\npolicy: {overlap: queue, late_by: 5s}"
		j, runs := overlapping(e, "overlap: queue, late_by: 5s")
		e.claim(e.a, runs[1], store.Waiting)
		e.claim(e.a, runs[2], store.Skipped)
		e.put(text + "\npaused: true")
		byHand := e.trigger(j)
		e.claim(e.a, byHand, store.Waiting)
		e.claim(e.a, e.trigger(j), store.Skipped)
		_, err := e.Cancel(e.ctx, byHand.Run, "ann", "")
		e.must(err)
		// Nor do runs that are too late.
		waiting := e.plan(e.put(text), time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, waiting, store.Waiting)
		e.clock.Advance(6 * time.Second)
		e.claim(e.a, e.trigger(j), store.Waiting)
	}},
	{"overlap: queued backfills of a job that allows overlap wait for each other alone", func(e *env) {
		j, _ := overlapping(e, "overlap: allow")
		var queued []store.Attempt
		for i := range 3 {
			queued = append(queued, e.triggered(store.TriggerItem{
				ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Scheduled: start.Add(time.Duration(i-9) * time.Hour), Due: start.Add(time.Duration(i) * time.Millisecond), Overlap: job.OverlapQueue, Actor: "ann",
			}))
		}
		e.claim(e.a, queued[0], store.Started)
		e.claim(e.a, queued[1], store.Waiting)
		e.claim(e.a, queued[2], store.Waiting)
		e.claim(e.a, e.trigger(j), store.Started)
		e.finish(queued[0], job.OutcomeSucceeded)
		equal(e, "the third", e.run(queued[2].Run).State, job.StateWaiting)
		e.claim(e.a, queued[1], store.Started)
	}},
	{"missed occurrences are caught up in order and not skipped", func(e *env) {
		for i, overlap := range []string{"skip", "queue"} { // whatever queue_limit is
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {missed: all, overlap: %s}", i, overlap))
			began := e.now()
			e.clock.Advance(5 * time.Minute)
			item := e.planItem(j, began.Add(time.Minute), began.Add(2*time.Minute), began.Add(3*time.Minute))
			e.planned(item, store.Planned)
			var runs []store.Attempt
			for _, r := range item.Runs {
				runs = append(runs, store.Attempt{Job: item.Job, Run: r.ID, Number: 1, Token: e.id()})
			}
			e.claim(e.a, runs[0], store.Started)
			e.claim(e.a, runs[2], store.Waiting)
			e.claim(e.a, runs[1], store.Waiting)
			e.finish(runs[0], job.OutcomeSucceeded)
			e.claim(e.a, runs[2], store.Waiting)
			e.claim(e.a, runs[1], store.Started)
		}
	}},
	{"occurrences of a short absence are caught up", func(e *env) {
		for i, overlap := range []string{"skip", "queue"} {
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {missed: all, overlap: %s}", i, overlap))
			runs := e.plan(j, time.Second, 2*time.Second)
			e.clock.Advance(10 * time.Second)
			e.a = e.join("a") // a session ends after 6 s
			item := e.planItem(e.reload(j), e.now().Add(-2*time.Second), e.now().Add(-time.Second))
			e.planned(item, store.Planned)
			for _, r := range item.Runs {
				runs = append(runs, store.Attempt{Job: item.Job, Run: r.ID, Number: 1, Token: e.id()})
			}
			e.claim(e.a, runs[0], store.Started)
			for _, a := range runs[1:] {
				e.claim(e.a, a, store.Waiting)
			}
			e.finish(runs[0], job.OutcomeSucceeded)
			e.claim(e.a, runs[1], store.Started)
			if overlap == "skip" { // runs due now that are only late follow the policy
				late := e.plan(j, time.Second)[0]
				e.clock.Advance(5 * time.Second)
				e.claim(e.a, late, store.Skipped)
			}
		}
	}},
	{"unstarted runs planned ahead are caught up like missed ones", func(e *env) {
		for i, overlap := range []string{"skip", "queue"} { // whatever queue_limit is
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {missed: all, overlap: %s}", i, overlap))
			runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
			e.clock.Advance(5 * time.Minute)
			e.claim(e.a, runs[1], store.Started)
			e.claim(e.a, runs[2], store.Waiting)
			e.claim(e.a, runs[0], store.Waiting)
			e.finish(runs[1], job.OutcomeSucceeded)
			e.claim(e.a, runs[0], store.Started)
		}
	}},
	{"unstarted runs planned ahead run late within late_by and overlap, with missed none and latest", func(e *env) {
		for i, missed := range []string{"none", "latest"} {
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {missed: %s, late_by: 6m}", i, missed))
			runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
			e.clock.Advance(5 * time.Minute)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			e.claim(e.a, runs[1], store.Started)
			e.claim(e.a, runs[2], store.Skipped)
			e.finish(runs[1], job.OutcomeSucceeded)
			e.claim(e.a, runs[0], store.Started)
			e.finish(runs[0], job.OutcomeSucceeded)
			e.clock.Advance(2 * time.Minute)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			e.claim(e.a, runs[3], store.Late)
		}
	}},
	{"a run without an eligible node is missed and names the missing labels", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * *'}\nplace: {labels: {gpu: 'yes', name: a}}\npolicy: {late_by: 5s}")
		item := e.planItem(j, start.Add(time.Second))
		item.Runs[0].Session = job.ID{}
		e.planned(item, store.Planned)
		e.clock.Advance(7 * time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		contains(e, "reason", e.gone(item.Runs[0].ID, job.OutcomeMissed).Run.Reason.String(), "no live node has the labels gpu=yes, name=a")
	}},
	{"a run that waits too long is missed and frees its slot", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: queue, queue_limit: 5, late_by: 1m}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Waiting)
		e.clock.Advance(61 * time.Second)
		fresh := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, fresh, store.Waiting)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(e.a, fresh, store.Started)
		e.tidy()
		contains(e, "reason", e.gone(runs[1].Run, job.OutcomeMissed).Attempt.Reason.String(), "was still running")
	}},
	{"a run whose node has results to report is not said to run", func(e *env) {
		skip := e.put("name: a\nschedule: {cron: '* * * * *'}\npolicy: {overlap: skip}")
		previous := e.put("name: b\nschedule: {cron: '* * * * *'}\npolicy: {overlap: allow, needs_previous: true, late_by: 2s}")
		b := e.join("b")
		runs, awaiting := e.plan(skip, time.Second, 2*time.Second, 3*time.Second), e.plan(previous, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, awaiting[0], store.Started)
		e.claim(b, awaiting[1], store.Waiting)
		contains(e, "reason", e.claim(b, runs[1], store.Skipped).Reason.String(), "was still running on node a")
		e.clock.Advance(time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{Running: 2, Unreported: 2}))
		contains(e, "reason", e.claim(b, runs[2], store.Skipped).Reason.String(), "had not reported its end: node a has results that the store has not accepted yet")
		e.clock.Advance(1500 * time.Millisecond)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{Running: 2, Unreported: 2}))
		e.tidy()
		contains(e, "reason", e.gone(awaiting[1].Run, job.OutcomeMissed).Attempt.Reason.String(), "had not reported its end: node a has results that the store has not accepted yet")
	}},

	{"needs_previous waits until the occurrence before has succeeded", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {needs_previous: true, overlap: allow, retry: {attempts: 1, backoff: 1s}}")
		runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
		e.clock.Advance(3 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		contains(e, "reason", e.claim(e.a, runs[1], store.Waiting).Reason.String(), runs[0].Run.String())
		e.claim(e.a, runs[2], store.Waiting)
		equal(e, "holds a slot", e.run(runs[1].Run).HoldsSlot, false)
		e.finish(runs[0], job.OutcomeFailed)
		e.claim(e.a, runs[1], store.Waiting)
		e.clock.Advance(time.Second)
		retry := store.Attempt{Job: runs[0].Job, Run: runs[0].Run, Number: 2, Token: e.id()}
		e.claim(e.a, retry, store.Started)
		e.finish(retry, job.OutcomeSucceeded)
		e.claim(e.a, runs[1], store.Started)
		e.claim(e.a, runs[2], store.Waiting)
		e.finish(runs[1], job.OutcomeSucceeded)
		e.claim(e.a, runs[2], store.Started)
	}},
	{"needs_previous: a failed one blocks until it is run again by hand", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {needs_previous: true, overlap: skip}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.finish(runs[0], job.OutcomeFailed)
		contains(e, "reason", e.claim(e.a, runs[1], store.Waiting).Reason.String(), "has not succeeded")
		hand := e.triggered(store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: "again", Scheduled: start.Add(time.Second), Actor: "ann"})
		e.claim(e.a, hand, store.Started)
		e.finish(hand, job.OutcomeSucceeded)
		e.claim(e.a, runs[1], store.Started)
	}},
	{"needs_previous: all shards must succeed", func(e *env) {
		j := e.put(everyMinute + "\nplace: {shards: 2}\npolicy: {needs_previous: true, overlap: allow}")
		runs := e.planSplit(j, 2, time.Second, 2*time.Second, 3*time.Second)
		e.clock.Advance(3 * time.Second)
		e.claim(e.a, runs[0][0], store.Started)
		e.claim(e.a, runs[0][1], store.Started) // it does not wait for the other shard
		e.finish(runs[0][0], job.OutcomeSucceeded)
		e.claim(e.a, runs[1][0], store.Waiting)
		e.finish(runs[0][1], job.OutcomeSucceeded)
		for shard, o := range []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed} {
			e.claim(e.a, runs[1][shard], store.Started)
			e.finish(runs[1][shard], o)
		}
		contains(e, "reason", e.claim(e.a, runs[2][0], store.Waiting).Reason.String(), "has not succeeded")
	}},
	{"needs_previous: each failed shard must be run again", func(e *env) {
		split := everyMinute + "\nplace: {shards: 3}\npolicy: {overlap: allow, needs_previous: "
		j := e.put(split + "true}")
		runs := e.planSplit(j, 3, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		fail := func(shards ...store.Attempt) {
			e.Helper()
			for _, a := range shards {
				e.claim(e.a, a, store.Started)
				e.finish(a, job.OutcomeFailed)
			}
		}
		fail(runs[0]...)
		scheduled := start.Add(time.Second)
		e.again(j, scheduled, 0, 3)
		e.again(j, scheduled, 2, 3)
		e.again(j, scheduled, 2, 3)
		contains(e, "reason", e.claim(e.a, runs[1][0], store.Waiting).Reason.String(), "has not succeeded")
		e.again(j, scheduled, 1, 3)

		// Earlier failures without a follower do not count.
		fail(runs[1]...)
		e.put(split + "false}")
		runs = e.planSplit(e.put(split+"true}"), 3, time.Second, 2*time.Second)
		scheduled = e.now().Add(time.Second)
		e.clock.Advance(2 * time.Second)
		fail(runs[0][1])
		for _, a := range []store.Attempt{runs[0][0], runs[0][2]} {
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
		}
		e.claim(e.a, runs[1][0], store.Waiting)
		e.again(j, scheduled, 1, 3)
		e.claim(e.a, runs[1][0], store.Started)
	}},
	{"needs_previous: a run without shards does the work of all shards", func(e *env) {
		j := e.put(everyMinute + "\nplace: {shards: 2}\npolicy: {needs_previous: true, overlap: allow}")
		runs := e.planSplit(j, 2, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		for _, a := range runs[0] {
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeFailed)
		}
		e.claim(e.a, runs[1][0], store.Waiting)
		e.again(j, start.Add(time.Second), 0, 0)
		e.claim(e.a, runs[1][0], store.Started)
	}},
	{"needs_previous: a cancelled one blocks as a failed one does", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {needs_previous: true, overlap: allow}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		_, err := e.Cancel(e.ctx, runs[0].Run, "ann", "")
		e.must(err)
		e.finish(runs[0], job.OutcomeCancelled)
		contains(e, "reason", e.claim(e.a, runs[1], store.Waiting).Reason.String(), "has not succeeded")
	}},
	{"needs_previous: skipped, missed and withdrawn ones do not count, a late result does", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {needs_previous: true, late_by: 2m}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Waiting)
		e.clock.Advance(61 * time.Second)
		b := e.join("b")
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{runs[0]}))
		equal(e, "state", e.run(runs[1].Run).State, job.StateWaiting)
		e.finish(runs[0], job.OutcomeSucceeded) // replaces lost
		equal(e, "state", e.run(runs[1].Run).State, job.StateReady)
		e.clock.Advance(2 * time.Minute)
		e.claim(b, runs[1], store.Late)
		e.a = b
		next := e.planItem(e.reload(j), e.now().Add(time.Second))
		e.planned(next, store.Planned)
		e.clock.Advance(time.Second)
		e.claim(b, store.Attempt{Job: next.Job, Run: next.Runs[0].ID, Number: 1, Token: e.id()}, store.Started)
	}},
	{"needs_previous: a running run counts after a pause and a resume", func(e *env) {
		text := everyMinute + "\npolicy: {needs_previous: true, overlap: queue}"
		j := e.put(text)
		first := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, first, store.Started)
		e.put(text + "\npaused: true")
		second := e.plan(e.put(text), time.Second)[0]
		e.clock.Advance(time.Second)
		contains(e, "reason", e.claim(e.a, second, store.Waiting).Reason.String(), first.Run.String())
		e.finish(first, job.OutcomeFailed)
		contains(e, "reason", e.claim(e.a, second, store.Waiting).Reason.String(), "has not succeeded")
	}},
	{"needs_previous: a run that ended before it was requested again does not count", func(e *env) {
		text := everyMinute + "\npolicy: {overlap: skip, needs_previous: "
		for i, o := range []job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeSucceeded} {
			a := e.plan(e.put(text+[]string{"true", "false", "true"}[i]+"}"), time.Second)[0]
			e.clock.Advance(time.Second)
			e.claim(e.a, a, store.Started)
			e.finish(a, o)
		}
	}},
	{"needs_previous: many that wait learn why, and are ready once their job does not need it", func(e *env) {
		const many = 60 // more than a store keeps in the cell of their job
		needs := everyMinute + "\npolicy: {overlap: allow, needs_previous: "
		j := e.put(needs + "true}")
		var after []time.Duration
		for i := range many {
			after = append(after, time.Second+time.Duration(i)*time.Millisecond)
		}
		runs := e.plan(j, after...)
		e.clock.Advance(2 * time.Second)
		_, err := e.Claim(e.ctx, e.a.ID, runs)
		e.must(err)
		e.finish(runs[0], job.OutcomeFailed)
		all := func(what string, state job.RunState, awaits bool, reason string) {
			e.Helper()
			n := 0
			for _, r := range e.active(j) {
				if r.State == state && r.AwaitsPrevious == awaits && strings.Contains(r.Reason.String(), reason) && (reason != "" || r.Reason.IsZero()) {
					n++
				}
			}
			equal(e, what, n, many-1)
		}
		all("runs that know what they wait for", job.StateWaiting, true, "has not succeeded")
		e.put(needs + "false}")
		all("ready runs", job.StateReady, false, "")
		e.put(needs + "true}")
		all("ready runs of a job that needs it again", job.StateReady, false, "")
		e.claim(e.a, runs[1], store.Started)
		e.claim(e.a, runs[2], store.Waiting)
		e.put(needs + "false}")
		e.claim(e.a, runs[2], store.Started)
		e.claim(e.a, runs[3], store.Started)
	}},
	{"needs_previous: waiting runs do not count for queue_limit", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {needs_previous: true, overlap: queue}")
		runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
		e.clock.Advance(3 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Waiting)
		e.claim(e.a, runs[2], store.Waiting)
		e.put(everyMinute + "\npolicy: {overlap: queue}") // the previous success is no longer needed
		equal(e, "state", e.run(runs[1].Run).State, job.StateReady)
	}},
}
