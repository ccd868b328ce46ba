package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// past runs a job manually once a minute with the given outcomes.
func past(e *env, j *store.Job, outcomes ...job.Outcome) []store.Attempt {
	e.Helper()
	var list []store.Attempt
	for i, o := range outcomes {
		a := e.trigger(j)
		e.claim(e.a, a, store.Started)
		why := fmt.Sprintf(`Reason_%d 100%% "code":"silent"`, i)
		res := store.Result{Attempt: a, Started: e.now(), Ended: e.now().Add(time.Duration(i+1) * time.Second), Outcome: o, Reason: job.Text(why)}
		if o == job.OutcomeFailed {
			within := map[string]any{"code": "exit_status", "args": map[string]any{"said": why}}
			res.Reason = job.ReasonOf(why, "not_retried", map[string]any{"why": within})
		}
		res.Output = []store.OutputChunk{{Run: a.Run, Attempt: 1, Seq: 1, Data: []byte("x")}}
		equal(e, "accepted", e.report(res).Accepted, true)
		list = append(list, a)
		e.clock.Advance(time.Minute)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
	}
	return list
}

// expireAll removes all expired history.
func expireAll(e *env, keep store.Retention) {
	e.Helper()
	for {
		more, err := e.Expire(e.ctx, keep)
		e.must(err)
		if more {
			continue
		}
		if more, err = e.ExpireAudit(e.ctx, keep); !more {
			e.must(err)
			return
		}
	}
}

var historyTests = []test{
	{"history is read in pages, the latest first, and selected", func(e *env) {
		a, b := e.put("name: a"), e.put("name: b\nnamespace: n")
		past(e, a, job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeTimedOut)
		past(e, b, job.OutcomeFailed, job.OutcomeSucceeded)
		read := func(q store.HistoryQuery) string {
			var got []string
			for q.Limit = 2; ; {
				page, next, err := e.Attempts(e.ctx, q)
				e.must(err)
				for _, r := range page {
					got = append(got, fmt.Sprintf("%s:%d", r.Run.Name, r.Attempt.Ended.Sub(start)/time.Minute))
				}
				if q.Before = next; next == (store.RecordRef{}) {
					return strings.Join(got, " ")
				}
				if len(page) != q.Limit {
					e.Errorf("a page of %d has %d and is not the last", q.Limit, len(page))
				}
			}
		}
		failed, _, err := e.Attempts(e.ctx, store.HistoryQuery{Job: a.Definition.UID, Failed: true, Limit: 2})
		e.must(err)
		print := failed[1].Attempt.Fingerprint
		equal(e, "the failure has a fingerprint", print != 0, true)
		minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
		for what, c := range map[string]struct {
			q    store.HistoryQuery
			want string
		}{
			"all":                   {store.HistoryQuery{}, "b:5 b:4 a:3 a:2 a:1 a:0"},
			"job":                   {store.HistoryQuery{Job: a.Definition.UID}, "a:3 a:2 a:1 a:0"},
			"namespace":             {store.HistoryQuery{Namespace: "n"}, "b:5 b:4"},
			"outcomes":              {store.HistoryQuery{Outcomes: []job.Outcome{job.OutcomeFailed, job.OutcomeTimedOut}}, "b:4 a:3 a:1"},
			"outcomes of a job":     {store.HistoryQuery{Job: a.Definition.UID, Outcomes: []job.Outcome{job.OutcomeSucceeded}}, "a:2 a:0"},
			"time":                  {store.HistoryQuery{From: minute(1), To: minute(4)}, "a:3 a:2 a:1"},
			"the end is excluded":   {store.HistoryQuery{From: minute(1).Add(2 * time.Second), To: minute(3).Add(4 * time.Second)}, "a:2 a:1"},
			"text in a reason":      {store.HistoryQuery{From: start, Text: "reason_1"}, "b:5 a:1"},
			"text in a name":        {store.HistoryQuery{From: start, Text: "B"}, "b:5 b:4"},
			"text with signs":       {store.HistoryQuery{From: start, Text: "_0 100%"}, "b:4 a:0"},
			"text that is nowhere":  {store.HistoryQuery{From: start, Text: "0_"}, ""},
			"code of a reason":      {store.HistoryQuery{Reason: "exit_status"}, "b:4 a:1"},
			"code text":             {store.HistoryQuery{Reason: job.ReasonText}, "b:5 a:3 a:2 a:0"},
			"failures of a kind":    {store.HistoryQuery{Fingerprint: print}, "b:4 a:3 a:1"},
			"of a kind and a job":   {store.HistoryQuery{Fingerprint: print, Failed: true, Job: b.Definition.UID}, "b:4"},
			"of no kind":            {store.HistoryQuery{Fingerprint: print + 1}, ""},
			"outermost code":        {store.HistoryQuery{Reason: "not_retried", Job: a.Definition.UID}, "a:1"},
			"code of no reason":     {store.HistoryQuery{Reason: "exit!status"}, ""},
			"code as a text":        {store.HistoryQuery{Reason: "silent"}, ""},
			"final ones":            {store.HistoryQuery{FinalOnly: true, Job: b.Definition.UID}, "b:5 b:4"},
			"of an unknown job":     {store.HistoryQuery{Job: e.id()}, ""},
			"namespace and outcome": {store.HistoryQuery{Namespace: "default", Outcomes: []job.Outcome{job.OutcomeTimedOut}}, "a:3"},
		} {
			equal(e, what, read(c.q), c.want)
		}
	}},
	{"records with the same end are each on one page", func(e *env) {
		for i := range 7 {
			a := e.trigger(e.put(fmt.Sprintf("name: j%d", i)))
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeSucceeded)
		}
		seen := map[job.ID]bool{}
		q := store.HistoryQuery{Limit: 2}
		for {
			page, next, err := e.Attempts(e.ctx, q)
			e.must(err)
			for _, r := range page {
				equal(e, "shown before", seen[r.Run.ID], false)
				seen[r.Run.ID] = true
			}
			if q.Before = next; next == (store.RecordRef{}) {
				break
			}
		}
		equal(e, "records", len(seen), 7)
	}},
	{"a selective query of history reads a bounded part and continues", func(e *env) {
		other := e.put("name: b")
		past(e, other, job.OutcomeFailed)
		j := e.put("name: a\nschedule: {cron: '* * * * * *'}")
		item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, To: j.Cursor}
		for range store.LookMax * 3 / 2 / 1000 {
			e.clock.Advance(time.Second)
			item.From, item.To, item.Missed = item.To, e.now(), nil
			for i := range 1000 {
				at := item.From.Add(time.Duration(i+1) * time.Millisecond)
				item.Missed = append(item.Missed, store.MissedSpan{ID: e.id(), First: at, Last: at, Count: 1, Reason: job.Text("away")})
			}
			e.planned(item, store.Planned)
		}
		e.clock.Advance(time.Second)
		past(e, other, job.OutcomeSucceeded)
		for what, q := range map[string]store.HistoryQuery{
			"text":      {Text: "reason_0"},
			"outcome":   {Outcomes: []job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded}},
			"namespace": {Namespace: "elsewhere"},
		} {
			want := 2
			if what == "namespace" {
				want = 0
			}
			found, calls := 0, 0
			for q.Limit = 2; ; calls++ {
				list, next, err := e.Attempts(e.ctx, q)
				e.must(err)
				if calls == 0 {
					equal(e, "found in the first part by "+what, len(list), want/2)
					equal(e, "there is more to look at", next != store.RecordRef{}, true)
				}
				found += len(list)
				if q.Before = next; next == (store.RecordRef{}) {
					break
				}
			}
			equal(e, "found by "+what, found, want)
			equal(e, "calls but the last", calls, 1)
		}
		list, next, err := e.Attempts(e.ctx, store.HistoryQuery{Job: other.Definition.UID, Text: "reason_0", Limit: 3})
		e.must(err)
		equal(e, "of the job, which has few", len(list), 2)
		equal(e, "there is no more of it", next, store.RecordRef{})
	}},
	{"failures are read however many runs succeeded in between", func(e *env) {
		a, b := e.put("name: a"), e.put("name: b\nnamespace: n")
		past(e, a, job.OutcomeFailed, job.OutcomeTimedOut)
		past(e, b, job.OutcomeFailed, job.OutcomeSucceeded)
		lost := e.foreign(job.OutcomeLost, "not heard of")
		e.must(e.Append(e.ctx, []store.Record{lost}))
		e.clock.Advance(time.Minute)
		for range store.LookMax*3/2/store.MaxBatch + 1 {
			var well []store.Record
			for range store.MaxBatch {
				well = append(well, e.foreign(job.OutcomeSucceeded, "ok"))
			}
			e.must(e.Append(e.ctx, well))
		}
		e.clock.Advance(time.Minute)
		past(e, a, job.OutcomeCancelled, job.OutcomeFailed)
		retried := e.put("name: retried\npolicy: {retry: {attempts: 1, backoff: 0s}}")
		first := e.trigger(retried)
		e.claim(e.a, first, store.Started)
		e.finish(first, job.OutcomeFailed)
		read := func(q store.HistoryQuery, calls int) string {
			e.Helper()
			var got []string
			q.Failed = true
			for {
				page, next, err := e.Attempts(e.ctx, q)
				e.must(err)
				for _, r := range page {
					got = append(got, r.Run.Name+" "+string(r.Attempt.Outcome))
				}
				if calls--; next == (store.RecordRef{}) {
					equal(e, "calls that were left", calls, 0)
					return strings.Join(got, ", ")
				}
				q.Before = next
			}
		}
		all := "a failed, j lost, b failed, a timed_out, a failed"
		equal(e, "failures", read(store.HistoryQuery{Limit: 10}, 1), all)
		equal(e, "failures in pages", read(store.HistoryQuery{Limit: 2}, 3), all)
		equal(e, "failures but those of a job", read(store.HistoryQuery{Limit: 10, Except: []job.ID{a.Definition.UID, e.id(), e.id()}}, 1), "j lost, b failed")
		equal(e, "failures of a job", read(store.HistoryQuery{Limit: 10, Job: a.Definition.UID}, 1), "a failed, a timed_out, a failed")
		equal(e, "failures of a namespace", read(store.HistoryQuery{Limit: 10, Namespace: "n"}, 1), "b failed")
		equal(e, "failures of a time", read(store.HistoryQuery{Limit: 10, From: start.Add(30 * time.Second), To: start.Add(3 * time.Minute)}, 1), "b failed, a timed_out")
		late := lost
		late.Attempt.Outcome, late.Run.Outcome, late.Replaces = job.OutcomeSucceeded, job.OutcomeSucceeded, true
		e.must(e.Append(e.ctx, []store.Record{late}))
		equal(e, "failures but for one that succeeded after all", read(store.HistoryQuery{Limit: 10}, 1), "a failed, b failed, a timed_out, a failed")
		expireAll(e, store.Retention{For: time.Nanosecond})
		equal(e, "failures when all has expired", read(store.HistoryQuery{Limit: 10}, 1), "")
	}},
	{"the lists of jobs that never ran and that fall due find them", func(e *env) {
		var uids []job.ID
		for i := range 6 {
			j := e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '%d 3 * * *'}", i, i))
			if i%2 == 0 {
				past(e, j, job.OutcomeSucceeded)
			}
			uids = append(uids, j.Definition.UID)
		}
		var never []string
		for q := (store.JobQuery{Limit: 2}); ; {
			page, next, err := e.ListJobs(e.ctx, q)
			e.must(err)
			var some []job.ID
			for _, j := range page {
				some = append(some, j.Definition.UID)
			}
			lists, err := e.Recent(e.ctx, some, 1)
			e.must(err)
			for i := range page {
				if len(lists[i]) == 0 {
					never = append(never, page[i].Definition.Name)
				}
			}
			if q.After = next; next == "" {
				break
			}
		}
		equal(e, "jobs that never ran", strings.Join(never, " "), "j1 j3 j5")
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: uids[4], IfVersion: store.AnyVersion, Actor: "me"}))
		due, err := e.JobsByUID(e.ctx, []job.ID{uids[5], e.id(), uids[0], uids[4], uids[3]})
		e.must(err)
		var names []string
		for _, j := range due {
			if j == nil || j.Deleted {
				names = append(names, "none")
			} else {
				names = append(names, j.Definition.Name+" "+j.Definition.Schedule.Cron[0])
			}
		}
		equal(e, "jobs in the order of their due times", strings.Join(names, ", "), "j5 5 3 * * *, none, j0 0 3 * * *, none, j3 3 3 * * *")
	}},
	{"attempts that are retried are not final", func(e *env) {
		j := e.put("name: a\npolicy: {retry: {attempts: 1, backoff: 0s}}")
		a := e.trigger(j)
		for n := 1; n <= 2; n++ {
			a.Number, a.Token = n, e.id()
			e.claim(e.a, a, store.Started)
			e.finish(a, job.OutcomeFailed)
			e.clock.Advance(time.Second)
		}
		all, _, err := e.Attempts(e.ctx, store.HistoryQuery{Limit: 10})
		e.must(err)
		final, _, err := e.Attempts(e.ctx, store.HistoryQuery{Limit: 10, FinalOnly: true})
		e.must(err)
		equal(e, "attempts", len(all), 2)
		equal(e, "final", len(final), 1)
		equal(e, "number of the final one", final[0].Attempt.Number, 2)
	}},
	{"recent returns the latest final records of each job", func(e *env) {
		a, b, none := e.put("name: a"), e.put("name: b"), e.put("name: c")
		past(e, a, job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeSucceeded)
		past(e, b, job.OutcomeFailed)
		read := func(n int, list ...*store.Job) string {
			var uids []job.ID
			for _, j := range list {
				uids = append(uids, j.Definition.UID)
			}
			lists, err := e.Recent(e.ctx, uids, n)
			e.must(err)
			var got []string
			for _, records := range lists {
				text := ""
				for _, r := range records {
					text += fmt.Sprintf("%s %s,", r.Run.Name, r.Attempt.Outcome)
				}
				got = append(got, text)
			}
			return strings.Join(got, " | ")
		}
		equal(e, "two of each", read(2, b, none, a), "b failed, |  | a succeeded,a failed,")
		equal(e, "all", read(10, a), "a succeeded,a failed,a succeeded,")
		equal(e, "of no job", read(10), "")
		lists, err := e.Recent(e.ctx, []job.ID{a.Definition.UID}, 1)
		e.must(err)
		whole, _, err := e.Attempts(e.ctx, store.HistoryQuery{Job: a.Definition.UID, FinalOnly: true, Limit: 1})
		e.must(err)
		equal(e, "a record in brief", fmt.Sprintf("%+v", lists[0][0].Brief()), fmt.Sprintf("%+v", whole[0].Brief()))
		// An attempt that is retried is not final.
		j := e.put("name: d\npolicy: {retry: {attempts: 1, backoff: 0s}}")
		first := e.trigger(j)
		e.claim(e.a, first, store.Started)
		e.finish(first, job.OutcomeFailed)
		_, err = e.Cancel(e.ctx, first.Run, "me", "")
		e.must(err)
		equal(e, "of a run that was retried", read(10, j), "d cancelled,")
		if _, err := e.Recent(e.ctx, make([]job.ID, store.MaxBatch+1), 1); !errors.Is(err, store.ErrTooMany) {
			e.Errorf("for more than MaxBatch jobs it returned %v", err)
		}
	}},
	{"aggregates count final records by bucket and outcome", func(e *env) {
		a := e.put("name: a")
		past(e, a, job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeSucceeded)
		past(e, e.put("name: b\nnamespace: n"), job.OutcomeSucceeded)
		j := e.put("name: c\nschedule: {cron: '* * * * *'}")
		item := e.planItem(j, e.now())
		item.Runs = nil
		item.From, item.To = j.Cursor, e.now().Add(time.Second)
		e.clock.Advance(time.Second)
		item.Missed = []store.MissedSpan{{ID: e.id(), First: e.now(), Last: e.now(), Count: 5}}
		e.planned(item, store.Planned)
		list, err := e.Aggregate(e.ctx, store.AggregateQuery{From: start, To: start.Add(time.Hour), Bucket: 2 * time.Minute})
		e.must(err)
		var got []string
		for _, b := range list {
			got = append(got, fmt.Sprintf("%s %v %s %s", b.Start.Sub(start), b.Outcomes, b.Duration, b.Longest))
		}
		want := "0s map[failed:1 succeeded:1] 3s 2s; 2m0s map[succeeded:2] 7s 4s; 4m0s map[missed:5 succeeded:1] 1s 1s"
		equal(e, "buckets", strings.Join(got, "; "), want)
		list, err = e.Aggregate(e.ctx, store.AggregateQuery{Job: a.Definition.UID, From: start, To: start.Add(time.Minute), Bucket: time.Hour})
		e.must(err)
		equal(e, "of a job", fmt.Sprint(list[0].Outcomes), "map[succeeded:1]")
		list, err = e.Aggregate(e.ctx, store.AggregateQuery{Namespace: "n", From: start, To: start.Add(time.Hour), Bucket: time.Hour})
		e.must(err)
		equal(e, "of a namespace", fmt.Sprint(list[0].Outcomes), "map[succeeded:1]")
	}},
	{"output is read by number while it is written, and a repeated chunk is one", func(e *env) {
		run := e.id()
		chunk := func(seq int) store.OutputChunk {
			return store.OutputChunk{Run: run, Attempt: 1, Seq: seq, Offset: int64(seq * 10), Bytes: 10, Time: e.now(), Data: []byte{byte(seq), 0, 255}}
		}
		read := func(from, limit int) string {
			list, err := e.Output(e.ctx, run, 1, from, limit)
			e.must(err)
			var got []string
			for _, c := range list {
				got = append(got, fmt.Sprintf("%d@%d+%d:%x", c.Seq, c.Offset, c.Bytes, c.Data))
				sameTime(e, "time", c.Time, start)
			}
			return strings.Join(got, " ")
		}
		e.must(e.AppendOutput(e.ctx, []store.OutputChunk{chunk(1), chunk(2)}))
		e.must(e.AppendOutput(e.ctx, []store.OutputChunk{chunk(1), chunk(2), chunk(3)}))
		equal(e, "all", read(0, 10), "1@10+10:0100ff 2@20+10:0200ff 3@30+10:0300ff")
		equal(e, "from the second", read(2, 1), "2@20+10:0200ff")
		changed := chunk(1)
		changed.Data = []byte("other")
		e.must(e.AppendOutput(e.ctx, []store.OutputChunk{changed}))
		equal(e, "the first", read(0, 1), "1@10+10:0100ff")

		pushing := chunk(4)
		pushing.DropFrom, pushing.DropTo = 2, 4
		e.must(e.AppendOutput(e.ctx, []store.OutputChunk{pushing}))
		equal(e, "after two were pushed out", read(0, 10), "1@10+10:0100ff 4@40+10:0400ff")
		e.must(e.AppendOutput(e.ctx, []store.OutputChunk{chunk(3), pushing})) // its answer was lost
		equal(e, "when they come again", read(0, 10), "1@10+10:0100ff 4@40+10:0400ff")
		other, err := e.Output(e.ctx, run, 2, 0, 10)
		e.must(err)
		equal(e, "of another attempt", len(other), 0)
	}},
	{"output of a refused result is not kept", func(e *env) {
		a := e.trigger(e.put("name: a"))
		e.claim(e.a, a, store.Started)
		wrong := a
		wrong.Token = e.id()
		e.report(store.Result{Attempt: wrong, Outcome: job.OutcomeSucceeded, Output: []store.OutputChunk{{Run: a.Run, Attempt: 1, Seq: 1, Data: []byte("x")}}})
		list, err := e.Output(e.ctx, a.Run, 1, 0, 10)
		e.must(err)
		equal(e, "chunks", len(list), 0)
	}},
	{"history expires in steps of a bounded number of rows", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * * *'}")
		loud := e.put("name: b")
		noise := e.trigger(loud)
		e.claim(e.a, noise, store.Started)
		var chunks []store.OutputChunk
		for seq := range store.ExpireMax * 3 / 2 {
			chunks = append(chunks, store.OutputChunk{Run: noise.Run, Attempt: 1, Seq: seq, Data: []byte("x")})
		}
		for batch := range slices.Chunk(chunks, store.MaxBatch) {
			e.must(e.AppendOutput(e.ctx, batch))
		}
		e.finish(noise, job.OutcomeSucceeded)
		item := store.PlanItem{Job: j.Definition.UID, Epoch: j.Definition.Epoch, From: j.Cursor, To: e.now().Add(time.Hour)}
		e.clock.Advance(time.Hour)
		for i := range store.ExpireMax * 3 / 2 {
			at := item.From.Add(time.Duration(i+1) * time.Second)
			item.Missed = append(item.Missed, store.MissedSpan{ID: e.id(), First: at, Last: at, Count: 1})
		}
		e.planned(item, store.Planned)
		rows := func() int {
			n := 0
			for _, q := range []store.HistoryQuery{{Job: j.Definition.UID, Limit: store.LookMax}, {Job: loud.Definition.UID, Limit: store.LookMax}} {
				list, _, err := e.Attempts(e.ctx, q)
				e.must(err)
				n += len(list)
			}
			chunks, err := e.Output(e.ctx, noise.Run, 1, 0, store.LookMax)
			e.must(err)
			return n + len(chunks)
		}
		e.clock.Advance(time.Hour)
		all := rows()
		equal(e, "rows", all, store.ExpireMax*3+1)
		steps := func(keep store.Retention, want int) {
			e.Helper()
			before := rows()
			for calls := 1; ; calls++ {
				more, err := e.Expire(e.ctx, keep)
				e.must(err)
				now := rows()
				if before-now > store.ExpireMax {
					e.Errorf("one call has removed %d rows", before-now)
				}
				if before = now; !more {
					break
				}
				if calls > 100 {
					e.Fatal("there is more for ever")
				}
			}
			equal(e, "rows that are left", before, want)
		}
		steps(store.Retention{OutputFor: time.Minute}, store.ExpireMax*3/2+1)
		steps(store.Retention{Runs: 200}, 200+1)
		steps(store.Retention{For: time.Minute}, 0)
	}},
	{"new definitions evict the oldest ones", func(e *env) {
		var uid job.ID
		for i := range revisions + 3 {
			uid = e.put(fmt.Sprintf("name: a\ndescription: the one of version %d", i+1)).Definition.UID
		}
		list, err := e.Revisions(e.ctx, uid, 0, 100)
		e.must(err)
		equal(e, "revisions", len(list), revisions)
		for i, r := range list {
			version := int64(revisions + 3 - i)
			equal(e, "version", r.Version, version)
			equal(e, "description", r.Definition.Description, fmt.Sprintf("the one of version %d", version))
		}
	}},
	{"the audit expires by number and age and continues its numbers", func(e *env) {
		numbers := func() string {
			list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 100})
			e.must(err)
			var got []int64
			for _, r := range list {
				got = append(got, r.Seq)
			}
			return fmt.Sprint(got)
		}
		for i := range 5 {
			e.put(fmt.Sprintf("name: j%d", i))
			e.clock.Advance(time.Hour)
		}
		expireAll(e, store.Retention{})
		equal(e, "without a bound", numbers(), "[5 4 3 2 1]")
		expireAll(e, store.Retention{Audit: 3})
		equal(e, "by number", numbers(), "[5 4 3]")
		expireAll(e, store.Retention{AuditFor: 90 * time.Minute})
		equal(e, "by age", numbers(), "[5]")
		e.clock.Advance(24 * time.Hour)
		expireAll(e, store.Retention{AuditFor: time.Hour})
		equal(e, "the latest stays", numbers(), "[5]")
		e.put("name: last")
		equal(e, "behind it", numbers(), "[6 5]")
	}},
}
