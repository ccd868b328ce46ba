package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var upkeepDecisions = []decided{
	{"what one store has another one adopts, and then nothing is left to change", func(k *book) {
		n := k.join("n")
		k.must(&PutDocument{Given: document(job.Document{Pool: &job.Pool{Name: "db", Namespace: "default", Slots: job.Slots{Size: 1}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		k.must(&PutDocument{Given: document(job.Document{Calendar: &job.Calendar{Name: "off", Namespace: "default", Days: job.Days{Include: []string{"2026-12-25"}}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		k.must(&PutToken{PutToken: store.PutToken{Name: "t", Hash: store.TokenHash{1}, Role: store.RoleAdmin}})
		k.must(&DrainNode{store.DrainNode{Node: "n", Actor: "ann"}})
		k.must(&DrainNode{store.DrainNode{Node: "n", Actor: "ann", Undo: true}})
		a := k.put("name: a\nschedule: {cron: '* * * * *', except: [off]}")
		ready := k.plan(a, n)
		run, h := k.handed(n, "overlap: allow")
		survey := &Survey{Jobs: []job.ID{a, run.Job, {99}}, All: true}
		k.must(survey)
		equal(k, "cells", len(survey.Cells), 2)
		to := newBook(k.T, k.tried)
		to.now = k.now
		adopt := func(kept *Kept) *Adopt {
			op := &Adopt{Kept: kept, Audit: []store.AuditRecord{{Actor: "ann", Action: "store.copy", Object: "x"}}, Keys: []Key{{Identity: Identity{Job: a, Key: "k"}, Run: ready.Run}}}
			for _, c := range survey.Cells {
				op.Cells = append(op.Cells, Adopted{Cell: c, Document: c.Job.Document})
			}
			return op
		}
		to.must(adopt(&survey.Kept))
		for range 3 { // a calendar must exist before its job is read again
			to.must(adopt(&survey.Kept))
		}
		last := adopt(&survey.Kept)
		to.must(last)
		equal(to, "changes of the last", last.Changed, 0)
		to.see(a, "ready")
		to.see(run.Job, "running")
		equal(to, "handover", to.handovers[h.Number].Number, h.Number)
		equal(to, "documents", to.documents.Len(), 2)
		to.claim(n, ready, store.Started)
		to.finish(run, job.OutcomeSucceeded, true)
		changed := adopt(nil)
		to.must(changed) // back to the former definition
		to.see(a, "ready")
		ahead := to.jobs[a]
		ahead.Cursor = ahead.Cursor.Add(time.Hour)
		to.jobs[a] = ahead
		var further AheadError
		if err := to.do(adopt(nil)); !errors.As(err, &further) {
			to.Errorf("got %v", err)
		}
		to.must(&DeleteAdopted{Job: a})
		to.must(&DeleteAdopted{Job: a})
		to.see(a, "")
		equal(to, "deleted", to.jobs[a].Deleted, true)
	}},
	{"damage is found and mended in one step", func(k *book) {
		n := k.join("n")
		k.must(&PutDocument{Given: document(job.Document{Calendar: &job.Calendar{Name: "off", Namespace: "default", Days: job.Days{Include: []string{"2026-12-25"}}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		b := k.put("name: b")
		a := k.put("name: a\nschedule: {cron: '* * * * *', except: [off]}\npolicy: {overlap: queue}")
		c := k.put("name: c\nschedule: {on: [b]}")
		held, waits, twice := k.plan(a, n), k.plan(a, n), k.plan(a, n)
		k.claim(n, held, store.Started)
		k.claim(n, waits, store.Waiting)
		inspect := func(fix bool) *Inspect {
			return &Inspect{Jobs: []job.ID{a, b, c}, Runs: []RunRef{{Run: job.ID{0xdd}}}, Fix: fix}
		}
		found := func(want ...string) {
			k.Helper()
			for _, fix := range []bool{false, true} {
				op := inspect(fix)
				k.must(op)
				var got []string
				for _, d := range op.Found {
					got = append(got, d.Check)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					k.Errorf("found (mending: %t) is %v, want %v; %+v", fix, got, want, op.Found)
				}
			}
			again := inspect(false)
			if k.must(again); len(again.Found) > 0 {
				k.Errorf("found after mending is %+v", again.Found)
			}
		}
		found()
		// A run of a missing job, a free slot with a waiting run, and a duplicate occurrence.
		stray := k.runs[twice.Run]
		stray.ID, stray.JobUID, stray.Name = job.ID{0xdd}, job.ID{0xde}, "nobody"
		k.runs[stray.ID] = stray
		delete(k.runs, held.Run)
		double := k.runs[twice.Run]
		double.ID = job.ID{0xdf}
		k.runs[double.ID] = double
		found(CheckRuns, CheckRuns, CheckSlots)
		// A run that has ended by history, and a cursor that would plan an occurrence again.
		k.records = append(k.records, store.Record{Run: k.runs[twice.Run].Run, Final: true, Attempt: job.Attempt{Run: twice.Run, Number: 1, Outcome: job.OutcomeSucceeded, Reason: job.Text("x")}})
		behind := k.jobs[a]
		behind.Cursor = behind.Cursor.Add(-time.Minute)
		k.jobs[a] = behind
		k.claim(n, waits, store.Started)
		found(CheckCursors, CheckRuns)
		far := k.jobs[a]
		far.Cursor = k.now.Add(48 * time.Hour)
		k.jobs[a] = far
		found(CheckCursors)
		// Planners have another schedule.
		stale := k.jobs[a]
		stale.Document = stale.Document.with(func(d *Document) { d.Timing = "{}" })
		k.jobs[a] = stale
		version := stale.Version
		found(CheckFeed)
		equal(k, "version", k.jobs[a].Version, version+1)
		k.must(&Rewrite{Jobs: []job.ID{a, {99}}})
		equal(k, "version", k.jobs[a].Version, version+2)
	}},
	{"other defaults of the server reach what depends on them", func(k *book) {
		n := k.join("n")
		k.must(&PutDocument{Given: document(job.Document{Calendar: &job.Calendar{Name: "off", Namespace: "default", Days: job.Days{Include: []string{"2026-12-25"}}}}), IfVersion: store.AnyVersion, NewID: func(int) job.ID { return k.id() }})
		a := k.put("name: a\nschedule: {cron: '0 12 * * *', except: [off]}\npolicy: {overlap: queue}")
		limited := k.put("name: b\nschedule: {cron: '0 12 * * *', max_runs: 5}")
		k.ahead(limited, n)
		ahead := k.put("name: c\nschedule: {cron: '0 12 * * *'}")
		k.ahead(ahead, n)
		run := k.plan(a, n)
		j := k.jobs[a]
		filled := j.Document.Definition.WithDefaults(job.Defaults{Timezone: "Asia/Tokyo"})
		j.Document = NewDocument(j.Document.Definition, filled)
		j.Document.Timing = k.jobs[a].Document.Timing
		j.Policy = j.Document.Policy
		k.jobs[a] = j
		for _, uid := range []job.ID{limited, ahead} {
			j = k.jobs[uid]
			j.Document = NewDocument(j.Document.Definition, j.Document.Definition.WithDefaults(job.Defaults{Timezone: "Asia/Tokyo"}))
			j.Document.Timing, j.Policy = k.jobs[uid].Document.Timing, j.Document.Policy
			k.jobs[uid] = j
		}
		k.must(&Refit{Jobs: []job.ID{a, limited, ahead, {99}}})
		equal(k, "epoch", k.jobs[a].Epoch, 2)
		k.claim(n, run, store.Gone)
		k.must(&Refit{Jobs: []job.ID{a}})
		equal(k, "epoch after the same defaults", k.jobs[a].Epoch, 2)
	}},
	{"a store that was restored begins new epochs and ends what may have run elsewhere", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: queue, retry: {attempts: 3}}")
		running, waiting := k.plan(a, n), k.plan(a, n)
		k.claim(n, running, store.Started)
		k.claim(n, waiting, store.Waiting)
		b, c := k.put("name: b"+minutely), k.put("name: c\nschedule: {cron: '* * * * *', max_runs: 5}")
		k.ahead(b, n)
		k.ahead(c, n)
		k.must(&Restart{Jobs: []job.ID{a, b, c, {99}}, Runs: []store.Run{k.runs[running.Run], k.runs[waiting.Run]}, By: "ann", Reason: job.Text("restored")})
		equal(k, "epoch", k.jobs[a].Epoch, 2)
		k.see(a, "")
		k.ended(running.Run, "cancelled", "by ann: restored")
		k.ended(waiting.Run, "withdrawn", "")
	}},
	{"what belongs to a node that is gone is missed in time", func(k *book) {
		n, m := k.join("n"), k.join("m")
		a := k.put("name: a" + minutely + "\nplace: {strategy: broadcast}\npolicy: {late_by: 1h, lost_after: 20s}")
		run := k.plan(a, n)
		for range 10 {
			k.pass(5 * time.Second)
			k.must(&Renewal{Session: m})
		}
		k.must(&Tidy{Runs: []RunRef{{Run: run.Run, Job: a}}})
		k.ended(run.Run, "missed", "n")
	}},
	{"a pause that ends gives back what was claimed ahead, and counts max_runs anew", func(k *book) {
		for _, bounded := range []string{"", ", max_runs: 5"} {
			n := k.join("n")
			text := "name: a" + fmt.Sprint(k.ids) + "\nschedule: {every: 1m" + bounded + "}"
			a := k.put(text)
			k.ahead(a, n)
			op := k.puts(text + "\npaused: true")
			op.List[0].Pause = store.Pause{By: "ann", Until: k.now.Add(time.Second / 2)}
			k.must(op)
			k.pass(time.Second / 2)
			k.must(&Tidy{Jobs: []job.ID{a}})
			equal(k, "state", k.jobs[a].State, job.JobActive)
		}
	}},
	{"a step ends no more runs than others can wait for", func(k *book) {
		n := k.join("n")
		a := k.put("name: a" + minutely + "\npolicy: {overlap: allow}")
		run := k.plan(a, n)
		k.must(&DeleteJob{store.DeleteJob{UID: a, IfVersion: store.AnyVersion}})
		op := &Tidy{}
		for i := range store.MaxBatch + 1 {
			r := k.runs[run.Run]
			r.ID = job.ID{1, byte(i), byte(i >> 8)}
			k.runs[r.ID] = r
			op.Runs = append(op.Runs, RunRef{Run: r.ID, Job: a})
		}
		k.tried = &tried{map[string]bool{}, map[string]bool{}}
		k.must(op)
		equal(k, "more", op.More, true)
		equal(k, "left", len(k.runs), 2)
	}},
}
