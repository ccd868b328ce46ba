package storetest

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var appendTests = []test{
	{"a record that is appended is kept once, and only takes the place of a lost one", func(e *env) {
		r := e.foreign(job.OutcomeLost, "not heard of")
		other := e.foreign(job.OutcomeFailed, "exit status 1")
		for range 2 {
			e.must(e.Append(e.ctx, []store.Record{r, other}))
		}
		late := r
		late.Attempt.Outcome, late.Attempt.Reason, late.Replaces = job.OutcomeSucceeded, "it ended after all", true
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
	{"two who append the same records at once append them once", func(e *env) {
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
	{"a history has an id that stays", func(e *env) {
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
			State: job.StateDone, Attempt: 1, Scheduled: e.now(), Due: e.now(), Outcome: o, Reason: reason,
		},
		Attempt: job.Attempt{
			Run: run, Number: 1, Token: e.id(), Node: "n", Started: e.now(), Ended: e.now().Add(time.Second), Outcome: o, Reason: reason,
		},
		Final: true, Count: 1,
	}
}
