package storetest

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var appendTests = []test{
	{"an appended record is kept once and replaces only a lost one", func(e *env) {
		r := e.foreign(job.OutcomeLost, "not heard of")
		other := e.foreign(job.OutcomeFailed, "exit status 1")
		for range 2 {
			e.must(e.Append(e.ctx, []store.Record{r, other}))
		}
		late := r
		late.Attempt.Outcome, late.Attempt.Reason, late.Replaces = job.OutcomeSucceeded, job.Text("it ended after all"), true
		late.Run.Outcome, late.Run.Reason = late.Attempt.Outcome, late.Attempt.Reason
		for _, again := range []store.Record{late, r, late} {
			e.must(e.Append(e.ctx, []store.Record{again}))
		}
		got := e.gone(r.Run.ID, job.OutcomeSucceeded)
		equal(e, "replaces", got.Replaces, true)
		equal(e, "name", got.Run.Namespace+"/"+got.Run.Name, "elsewhere/j")
		both := e.foreign(job.OutcomeLost, "not heard of")
		after := both
		after.Attempt.Outcome, after.Run.Outcome, after.Replaces = job.OutcomeFailed, job.OutcomeFailed, true
		e.must(e.Append(e.ctx, []store.Record{both, after, both}))
		e.gone(both.Run.ID, job.OutcomeFailed)
		better := other
		better.Attempt.Outcome = job.OutcomeSucceeded
		e.must(e.Append(e.ctx, []store.Record{better}))
		e.gone(other.Run.ID, job.OutcomeFailed)
		list, _, err := e.Attempts(e.ctx, store.HistoryQuery{Namespace: "elsewhere", Limit: 10})
		e.must(err)
		equal(e, "records", len(list), 3)
		e.want(e.Append(e.ctx, make([]store.Record, store.MaxBatch+1)), store.ErrTooMany)
	}},
	{"counts of slices and of records agree by job, also of late, replaced and expired records", func(e *env) {
		first := e.now().Truncate(store.Slice)
		record := func(name string, outcome job.Outcome, at time.Duration) store.Record {
			r := e.foreign(outcome, "it ended")
			r.Run.Name, r.Run.JobUID[15] = name, byte(len(name))
			r.Attempt.Ended = first.Add(at)
			r.Attempt.Started = r.Attempt.Ended.Add(-time.Duration(len(name)) * time.Second)
			return r
		}
		read := func(exact bool, jobs ...job.ID) (all []string) {
			e.Helper()
			list, err := e.Aggregate(e.ctx, store.AggregateQuery{From: first, To: first.Add(24 * time.Hour), Bucket: 2 * store.Slice, ByJob: true, Exact: exact, Jobs: jobs})
			e.must(err)
			for _, b := range list {
				all = append(all, fmt.Sprintf("%s %d %v %s %s", b.Start.Sub(first), b.Job[15], b.Outcomes, b.Duration, b.Longest))
			}
			return all
		}
		lost := record("a", job.OutcomeLost, 7*time.Minute)
		e.must(e.Append(e.ctx, []store.Record{
			lost, record("a", job.OutcomeSucceeded, 4*time.Minute), record("a", job.OutcomeSucceeded, 12*time.Minute), record("bcd", job.OutcomeFailed, 8*time.Minute),
		}))
		check := func(what string, want ...string) {
			e.Helper()
			equal(e, what+", of the records", fmt.Sprint(read(true)), fmt.Sprint(want))
			equal(e, what+", of the slices", fmt.Sprint(read(false)), fmt.Sprint(want))
		}
		check("before they are counted", "0s 1 map[lost:1 succeeded:1] 2s 1s", "0s 3 map[failed:1] 3s 3s", "10m0s 1 map[succeeded:1] 1s 1s")
		e.clock.Advance(time.Hour)
		expireAll(e, store.Retention{})
		check("afterwards", "0s 1 map[lost:1 succeeded:1] 2s 1s", "0s 3 map[failed:1] 3s 3s", "10m0s 1 map[succeeded:1] 1s 1s")
		found := lost
		found.Attempt.Outcome, found.Run.Outcome, found.Replaces = job.OutcomeSucceeded, job.OutcomeSucceeded, true
		e.must(e.Append(e.ctx, []store.Record{found, record("bcd", job.OutcomeSucceeded, 13*time.Minute), record("bcd", job.OutcomeSucceeded, 58*time.Minute)}))
		want := []string{"0s 1 map[succeeded:2] 2s 1s", "0s 3 map[failed:1] 3s 3s", "10m0s 1 map[succeeded:1] 1s 1s", "10m0s 3 map[succeeded:1] 3s 3s", "50m0s 3 map[succeeded:1] 3s 3s"}
		check("with late results", want...)
		expireAll(e, store.Retention{})
		check("after another round", want...)
		equal(e, "of one job", fmt.Sprint(read(false, record("bcd", job.OutcomeFailed, 0).Run.JobUID)), fmt.Sprint([]string{want[1], want[3], want[4]}))
		equal(e, "of no job", len(read(false, []job.ID{}...)), 0)
		list, err := e.Aggregate(e.ctx, store.AggregateQuery{Namespace: "elsewhere", From: first, To: first.Add(9 * time.Minute), Bucket: 4 * store.Slice})
		e.must(err)
		equal(e, "until within a slice", fmt.Sprint(list[0].Outcomes), "map[failed:1 succeeded:2]")
		// Records that expire uncounted are counted, or are gone everywhere.
		expireAll(e, store.Retention{Runs: 1})
		left := read(false)
		e.clock.Advance(time.Hour)
		expireAll(e, store.Retention{Runs: 1})
		equal(e, "after expired records", fmt.Sprint(read(false)), fmt.Sprint(left))
	}},
	{"two concurrent appends of the same records append them once", func(e *env) {
		var records []store.Record
		for i := range 50 {
			records = append(records, e.foreign(job.OutcomeSucceeded, fmt.Sprint("the ", i, "th")))
		}
		for _, err := range atOnce(func() error { return e.Append(e.ctx, records) }, func() error { return e.Append(e.ctx, records) }) {
			e.must(err)
		}
		list, _, err := e.Attempts(e.ctx, store.HistoryQuery{Namespace: "elsewhere", Limit: 200})
		e.must(err)
		equal(e, "records", len(list), len(records))
	}},
	{"history of jobs that are not in its store expires by their retention", func(e *env) {
		// Each job has three records, ten minutes apart, the latest from now.
		keep := store.JobKeeps{}
		records := map[string][]store.Record{}
		for n := range 3 {
			if n > 0 {
				e.clock.Advance(10 * time.Minute)
			}
			for i, name := range []string{"silent", "few", "short", "long", "mute"} {
				r := e.foreign(job.OutcomeSucceeded, "ok")
				r.Run.Name, r.Run.JobUID[15] = name, byte(200+i)
				r.Attempt.Ended, r.OutputBytes = e.now(), 1
				records[name] = append(records[name], r)
				e.must(e.Append(e.ctx, []store.Record{r}))
				e.must(e.AppendOutput(e.ctx, []store.OutputChunk{{Run: r.Run.ID, Attempt: 1, Seq: 1, Time: e.now(), Data: []byte("x")}}))
			}
		}
		uid := func(name string) job.ID { return records[name][0].Run.JobUID }
		keep[uid("few")] = job.Keep{Runs: 2}
		keep[uid("short")] = job.Keep{For: job.Duration(5 * time.Minute)}
		keep[uid("long")] = job.Keep{For: job.Forever, OutputFor: job.Forever}
		keep[uid("mute")] = job.Keep{OutputFor: job.Duration(15 * time.Minute)}
		left := func(name string) (n, output int) {
			for _, r := range records[name] {
				n += len(e.attempts(r.Run.ID))
				chunks, err := e.Output(e.ctx, r.Run.ID, 1, 0, 10)
				e.must(err)
				output += len(chunks)
			}
			return n, output
		}
		want := func(name string, records, chunks int) {
			e.Helper()
			n, output := left(name)
			equal(e, "records of "+name, n, records)
			equal(e, "output of "+name, output, chunks)
		}
		expireAll(e, store.Retention{Jobs: &keep})
		want("silent", 3, 3)
		want("few", 2, 2)
		want("short", 1, 1)
		want("long", 3, 3)
		want("mute", 3, 2)
		expireAll(e, store.Retention{For: 15 * time.Minute, OutputFor: 5 * time.Minute, Jobs: &keep})
		want("silent", 2, 1)
		want("few", 2, 1)
		want("short", 1, 1)
		want("long", 3, 3)
		want("mute", 2, 2)
		e.clock.Advance(time.Hour)
		expireAll(e, store.Retention{For: time.Minute, Jobs: &keep})
		want("silent", 0, 0)
		want("few", 0, 0)
		want("long", 3, 3)
		changed := store.JobKeeps{} // no job has settings of its own
		expireAll(e, store.Retention{For: time.Minute, Jobs: &changed})
		want("long", 0, 0)
	}},
	{"a history keeps its id", func(e *env) {
		id, err := e.HistoryID(e.ctx)
		e.must(err)
		again, err := e.HistoryID(e.ctx)
		e.must(err)
		if id == 0 || id != again {
			e.Errorf("the id is %d, and then %d", id, again)
		}
	}},
}

// foreign returns the only record of a run of another store.
func (e *env) foreign(o job.Outcome, reason string) store.Record {
	run := e.id()
	return store.Record{
		Run: job.Run{
			ID: run, JobUID: job.ID{1, 2, 3}, Namespace: "elsewhere", Name: "j", Kind: job.RunScheduled, Key: "k", Epoch: 1, Version: 1,
			State: job.StateDone, Attempt: 1, Scheduled: e.now(), Due: e.now(), Outcome: o, Reason: job.Text(reason),
		},
		Attempt: job.Attempt{
			Run: run, Number: 1, Token: e.id(), Node: "n", Started: e.now(), Ended: e.now().Add(time.Second), Outcome: o, Reason: job.Text(reason),
		},
		Final: true, Count: 1,
	}
}
