package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// puts are changes of jobs with n definitions.
func (e *env) puts(texts ...string) (list []store.PutJob) {
	for _, text := range texts {
		list = append(list, store.PutJob{Definition: e.document(text), IfVersion: store.AnyVersion, Actor: "ann"})
	}
	return list
}

// refusedItem requires that a batch is refused because of one item.
func (e *env) refusedItem(list []store.PutJob, item int, want error) {
	e.Helper()
	_, err := e.PutJobs(e.ctx, list)
	e.want(err, want)
	of := (*store.ItemError)(nil)
	if !errors.As(err, &of) || of.Item != item {
		e.Errorf("the error %v is not about item %d", err, item)
	} else if name := list[item].Definition.Name; !strings.Contains(err.Error(), name) {
		e.Errorf("the error %v does not name %s", err, name)
	}
}

// changedAfter returns the jobs that changed after a number, and the next number.
func (e *env) changedAfter(since int64) (uids []job.ID, next int64) {
	e.Helper()
	changed, next, err := e.JobsChanged(e.ctx, store.AllPartitions, since, 1000)
	e.must(err)
	for _, c := range changed {
		uids = append(uids, c.UID)
	}
	return uids, next
}

var batchTests = []test{
	{"jobs are created, changed and left alone in one step", func(e *env) {
		a, b := e.put(everyMinute), e.put("name: b\nlabels: {x: y}")
		run := e.plan(a, 10*time.Second)[0]
		_, before := e.changedAfter(0)
		events := e.follow()
		list := e.puts("name: c\nschedule: {cron: '* * * * *'}", "name: a\nschedule: {cron: '*/2 * * * *'}", "name: b\nlabels: {x: y}", "name: d\npaused: true")
		list[3].Pause = store.Pause{By: "ann", Reason: job.Text("a bug")}
		got, err := e.PutJobs(e.ctx, list)
		e.must(err)
		var words []string
		for _, j := range got {
			words = append(words, fmt.Sprintf("%s %d.%d %s", j.Definition.Name, j.Definition.Version, j.Definition.Epoch, j.Definition.Status.State))
		}
		equal(e, "jobs", strings.Join(words, ", "), "c 1.1 active, a 2.2 active, b 1.1 active, d 1.1 paused")
		equal(e, "reason", got[3].Definition.Status.PauseReason, "a bug")
		sameTime(e, "cursor of what is new", got[0].Cursor, e.now())
		e.wantEvents(events(), "job.create default/c ann", "job.change default/a ann", "job.create default/d ann")
		equal(e, "audit", strings.Join(e.actions()[:3], ", "), "ann job.create default/d, ann job.change default/a, ann job.create default/c")
		changed, _ := e.changedAfter(before)
		equal(e, "number of changes that planners receive", len(changed), 3)
		equal(e, "b is among the changes", slices.Contains(changed, b.Definition.UID), false)
		list2, err := e.Revisions(e.ctx, a.Definition.UID, 0, 10)
		e.must(err)
		equal(e, "revisions", len(list2), 2)
		e.clock.Advance(10 * time.Second)
		e.claim(e.a, run, store.Gone) // the change has withdrawn it
		for i, j := range got {
			compareJobs(e, fmt.Sprintf("job %d read again", i), e.reload(j), j)
		}
	}},
	{"a batch with a refused job changes no job", func(e *env) {
		a := e.put(everyMinute)
		runs := e.plan(a, 10*time.Second)
		changeOf := func(text string) store.PutJob { return e.puts(text)[0] }
		_, before := e.changedAfter(0)
		events := e.follow()
		for what, c := range map[string]struct {
			bad  store.PutJob
			want error
		}{
			"another version":        {store.PutJob{Definition: e.document("name: b"), IfVersion: 7, Actor: "ann"}, store.ErrNotFound},
			"exists":                 {store.PutJob{Definition: e.document("name: z"), IfVersion: 0, Actor: "ann"}, store.ErrExists},
			"a circle":               {changeOf("name: b\nschedule: {on: c}"), store.ErrCycle},
			"a job for the 2nd time": {changeOf("name: a\ndescription: again"), store.ErrConflict},
		} {
			if what == "exists" {
				e.put("name: z\ndescription: other")
				_, before = e.changedAfter(0)
				events()
				events = e.follow()
			}
			list := []store.PutJob{
				changeOf("name: new"), changeOf("name: a\nschedule: {cron: '*/2 * * * *'}"), changeOf("name: c\nschedule: {on: b}"), c.bad, changeOf("name: last"),
			}
			if what == "a circle" {
				// It is the first impossible one of the circle.
				e.refusedItem(list, 2, c.want)
			} else {
				e.refusedItem(list, 3, c.want)
			}
			for _, name := range []string{"new", "b", "c", "last"} {
				if _, err := store.JobNamed(e.ctx, e, "default", name); !errors.Is(err, store.ErrNotFound) {
					e.Errorf("%s: job %s is there: %v", what, name, err)
				}
			}
			compareJobs(e, what+": the job that was there", e.reload(a), func() *store.Job { j := *a; j.Cursor, j.Planned = start.Add(10*time.Second), 1; return &j }())
			changed, _ := e.changedAfter(before)
			equal(e, what+": changes that planners receive", len(changed), 0)
			e.wantEvents(events())
			events = e.follow()
		}
		events()
		// Decisions about the jobs before the refused one are discarded.
		e.clock.Advance(10 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		again, err := e.PutJobs(e.ctx, e.puts("name: new", "name: a\nschedule: {cron: '*/2 * * * *'}"))
		e.must(err)
		equal(e, "version", again[1].Definition.Version, 2)
		equal(e, "epoch", again[1].Definition.Epoch, 2)
	}},
	{"a repeated batch of jobs is one change", func(e *env) {
		list := e.puts(everyMinute, "name: b", "name: c\nschedule: {on: b}")
		for i := range list {
			list[i].IfVersion = 0
		}
		first, err := e.PutJobs(e.ctx, list)
		e.must(err)
		again, err := e.PutJobs(e.ctx, list)
		e.must(err)
		for i := range first {
			compareJobs(e, "a job that is created again", again[i], first[i])
		}
		for i, text := range []string{everyMinute + "\ndescription: x", "name: b\ndescription: x", "name: c\nschedule: {on: [b, a]}"} {
			list[i] = store.PutJob{Definition: e.document(text), IfVersion: 1, Actor: "bob"}
		}
		for range 2 {
			changed, err := e.PutJobs(e.ctx, list)
			e.must(err)
			for _, j := range changed {
				equal(e, "version", j.Definition.Version, 2)
			}
		}
		equal(e, "records of the audit", len(e.actions()), 6)
	}},
	{"a batch of jobs with a lost answer is done completely or not at all", func(e *env) {
		for i := range 20 {
			var list []store.PutJob
			for k := range 5 {
				list = append(list, store.PutJob{Definition: e.document(fmt.Sprintf("name: j%d\nnamespace: n%d", k, i)), Actor: "ann"})
			}
			e.interrupted(time.Duration(i)*20*time.Microsecond, func(ctx context.Context) error {
				_, err := e.PutJobs(ctx, list)
				if err == nil {
					return nil
				}
				found, _, failed := e.ListJobs(e.ctx, store.JobQuery{Namespace: fmt.Sprintf("n%d", i), Limit: 10})
				e.must(failed)
				if len(found) != 0 && len(found) != len(list) {
					e.Errorf("%d of %d jobs are there", len(found), len(list))
				}
				return err
			})
		}
		list, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 500})
		e.must(err)
		equal(e, "records of the audit", len(list), 20*5)
	}},
	{"jobs of a batch may follow each other and begin chains", func(e *env) {
		got, err := e.PutJobs(e.ctx, e.puts("name: z\nschedule: {on: a}", "name: a", "name: chain\nschedule: {after_end: 1m}"))
		e.must(err)
		equal(e, "runs of the chain", len(e.active(got[2])), 1)
		// Two jobs change places: neither order would do one by one.
		_, err = e.PutJobs(e.ctx, e.puts("name: z", "name: a\nschedule: {on: z}"))
		e.must(err)
		e.refusedItem(e.puts("name: y", "name: z\nschedule: {on: a}"), 1, store.ErrCycle)
	}},
	{"a batch of jobs is bounded", func(e *env) {
		var texts []string
		for i := range store.PutMax + 1 {
			texts = append(texts, fmt.Sprintf("name: j%03d\nschedule: {cron: '%d * * * *'}", i, i%60))
		}
		list := e.puts(texts...)
		_, err := e.PutJobs(e.ctx, list)
		e.want(err, store.ErrTooMany)
		got, err := e.PutJobs(e.ctx, list[:store.PutMax])
		e.must(err)
		sum, err := e.Summary(e.ctx)
		e.must(err)
		n := 0
		for _, p := range sum {
			n += p.Jobs
		}
		equal(e, "jobs", n, store.PutMax)
		names := []string{"default/none"}
		for _, j := range slices.Backward(got) {
			names = append(names, j.Definition.FullName())
		}
		found, err := e.JobsNamed(e.ctx, names)
		e.must(err)
		equal(e, "found", len(found), len(names))
		if found[0] != nil {
			e.Errorf("a job that does not exist was found: %+v", found[0].Definition)
		}
		for i, name := range names[1:] {
			equal(e, "name", found[i+1].Definition.FullName(), name)
		}
		compareJobs(e, "a job by its name", found[1], got[len(got)-1])
		uids := make([]job.ID, len(names)) // the first uid is unknown
		for i, j := range slices.Backward(got) {
			uids[len(got)-i] = j.Definition.UID
		}
		_, err = e.JobsByUID(e.ctx, make([]job.ID, store.MaxBatch+1))
		e.want(err, store.ErrTooMany)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: got[0].Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		found, err = e.JobsByUID(e.ctx, uids)
		e.must(err)
		if found[0] != nil {
			e.Errorf("a job that does not exist was found: %+v", found[0].Definition)
		}
		for i, uid := range uids[1:] {
			equal(e, "uid", found[i+1].Definition.UID, uid)
			equal(e, "deleted", found[i+1].Deleted, uid == got[0].Definition.UID)
		}
		compareJobs(e, "a job by its uid", found[1], got[len(got)-1])
		_, err = e.JobsNamed(e.ctx, make([]string, store.MaxBatch+1))
		e.want(err, store.ErrTooMany)
		empty, err := e.PutJobs(e.ctx, nil)
		e.must(err)
		equal(e, "jobs of an empty batch", len(empty), 0)
	}},
	{"concurrent batches and single changes lose no version", func(e *env) {
		names := []string{"a", "b", "c", "d", "e"}
		const rounds = 8
		var group sync.WaitGroup
		for w := range 4 {
			group.Go(func() {
				for r := range rounds {
					var texts []string
					for i := range names {
						// Each writer uses another order.
						texts = append(texts, fmt.Sprintf("name: %s\ndescription: by %d in round %d", names[(i*(w+1)+w)%len(names)], w, r))
					}
					if w%2 == 0 {
						if _, err := e.PutJobs(e.ctx, e.puts(texts...)); err != nil {
							e.Error(err)
						}
						continue
					}
					for _, p := range e.puts(texts...) {
						if _, err := store.PutOne(e.ctx, e, p); err != nil {
							e.Error(err)
						}
					}
				}
			})
		}
		group.Wait()
		for _, name := range names {
			j, err := store.JobNamed(e.ctx, e, "default", name)
			e.must(err)
			equal(e, "version of "+name, j.Definition.Version, 4*rounds)
		}
		equal(e, "records of the audit", len(e.actions()), min(100, 4*rounds*len(names)))
	}},
}

// compareJobs reports a difference between two answers about a job.
func compareJobs(e *env, what string, got, want *store.Job) {
	e.Helper()
	equal(e, what+": uid", got.Definition.UID, want.Definition.UID)
	equal(e, what+": version", got.Definition.Version, want.Definition.Version)
	equal(e, what+": epoch", got.Definition.Epoch, want.Definition.Epoch)
	equal(e, what+": state", got.Definition.Status.State, want.Definition.Status.State)
	sameTime(e, what+": cursor", got.Cursor, want.Cursor)
	equal(e, what+": planned", got.Planned, want.Planned)
	if !job.Same(job.Document{Job: got.Definition}, job.Document{Job: want.Definition}) {
		e.Errorf("%s: got %+v, want %+v", what, got.Definition, want.Definition)
	}
}
