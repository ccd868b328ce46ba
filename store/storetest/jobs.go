package storetest

import (
	"bytes"
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

var jobTests = []test{
	{"a job is created once and returned", func(e *env) {
		definition := e.document("name: a\nschedule: {cron: '* * * * *'}\nlabels: {team: x}")
		j := e.putJob(store.PutJob{Definition: definition, Actor: "ann"})
		d := j.Definition
		if d.UID.IsZero() || d.Version != 1 || d.Epoch != 1 || d.Namespace != "default" || d.Status == nil {
			e.Fatalf("created as %+v", d)
		}
		equal(e, "state", d.Status.State, job.JobActive)
		sameTime(e, "created", d.Status.Created, start)
		sameTime(e, "cursor", j.Cursor, start)
		equal(e, "the default overlap, filled in", j.Filled.Policy.Overlap, job.OverlapSkip)
		equal(e, "the overlap that was written", d.Policy.Overlap, "")
		again, err := store.JobNamed(e.ctx, e, "default", "a")
		e.must(err)
		equal(e, "uid", again.Definition.UID, d.UID)
		equal(e, "label", again.Definition.Labels["team"], "x")

		changed := *definition
		changed.Description = "another"
		_, err = store.PutOne(e.ctx, e, store.PutJob{Definition: &changed, Actor: "ann"})
		e.want(err, store.ErrExists)
	}},
	{"a job that is only to be created is refused where it exists", func(e *env) {
		p := store.PutJob{Definition: e.document(everyMinute), New: true, Actor: "ann"}
		equal(e, "version", e.putJob(p).Definition.Version, 1)
		_, err := store.PutOne(e.ctx, e, p)
		e.want(err, store.ErrExists)
		equal(e, "audit", strings.Join(e.actions(), ", "), "ann job.create default/a")
	}},
	{"a repeated change is one change", func(e *env) {
		first := e.putJob(store.PutJob{Definition: e.document(everyMinute), Actor: "ann"})
		again := e.putJob(store.PutJob{Definition: e.document(everyMinute), Actor: "ann"})
		equal(e, "uid", again.Definition.UID, first.Definition.UID)
		equal(e, "version", again.Definition.Version, 1)

		change := store.PutJob{Definition: e.document(everyMinute + "\ndescription: b"), IfVersion: 1, Actor: "ann"}
		equal(e, "version", e.putJob(change).Definition.Version, 2)
		equal(e, "version", e.putJob(change).Definition.Version, 2)
		equal(e, "audit", strings.Join(e.actions(), ", "), "ann job.change default/a, ann job.create default/a")
	}},
	{"an identical definition changes nothing", func(e *env) {
		text := "name: a\nschedule: {at: ['2026-12-24T18:00:00+01:00', '2026-12-25T00:00:00Z'], except: [sat]}\npolicy: {retry: {attempts: 2}}"
		e.put(text + "\nlabels: {x: y}\nrun: {shell: 'true', env: {A: b}}")
		again := e.document(text + "\nlabels: {x: y}\nnamespace: default\nrun: {shell: {command: 'true'}, env: {A: b}}")
		again.Params = map[string]job.Param{} // empty, not absent
		j := e.putJob(store.PutJob{Definition: again, IfVersion: store.AnyVersion, Actor: "bob"})
		equal(e, "version", j.Definition.Version, 1)
		j = e.put(text + "\nlabels: {x: z}\nrun: {shell: 'true', env: {A: b}}")
		equal(e, "version", j.Definition.Version, 2)
		equal(e, "epoch", j.Definition.Epoch, 1)
	}},
	{"a change of another version is refused", func(e *env) {
		e.put(everyMinute)
		e.put(everyMinute + "\ndescription: b")
		_, err := store.PutOne(e.ctx, e, store.PutJob{Definition: e.document(everyMinute + "\ndescription: c"), IfVersion: 1, Actor: "ann"})
		e.want(err, store.ErrConflict)
		_, err = store.PutOne(e.ctx, e, store.PutJob{Definition: e.document("name: none"), IfVersion: 3, Actor: "ann"})
		e.want(err, store.ErrNotFound)
	}},
	{"an edit beside the schedule keeps epoch and cursor", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, 10*time.Second)[0]
		changed := e.put(everyMinute + "\npolicy: {timeout: 5m}")
		equal(e, "version", changed.Definition.Version, 2)
		equal(e, "epoch", changed.Definition.Epoch, 1)
		sameTime(e, "cursor", changed.Cursor, start.Add(10*time.Second))
		e.clock.Advance(10 * time.Second)
		got := e.claim(e.a, a, store.Started)
		equal(e, "version that the attempt runs under", got.Run.Version, 2)
		equal(e, "version of the job", got.Job.Definition.Version, 2)
		if got.Job.Filled.Policy.Timeout == nil {
			e.Error("the attempt runs under the old definition")
		}
	}},
	{"withdrawn: a change of the schedule begins a new epoch", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, 10*time.Second)[0]
		changed := e.put("name: a\nschedule: {cron: '*/2 * * * *'}")
		equal(e, "epoch", changed.Definition.Epoch, 2)
		sameTime(e, "cursor", changed.Cursor, start)
		e.clock.Advance(10 * time.Second)
		e.claim(e.a, a, store.Gone)
		e.gone(a.Run, job.OutcomeWithdrawn)
		e.claim(e.a, a, store.Gone)
	}},
	{"withdrawn: nothing starts after a pause, and nothing planned before it after a resume", func(e *env) {
		j := e.put(everyMinute)
		runs := e.plan(j, 10*time.Second, 11*time.Second)
		paused := e.putJob(store.PutJob{
			Definition: e.document(everyMinute + "\npaused: true"), IfVersion: store.AnyVersion, Actor: "ann",
			Pause: store.Pause{By: "ann", Reason: job.Text("a bug"), Until: start.Add(time.Hour)},
		})
		status := paused.Definition.Status
		equal(e, "state", status.State, job.JobPaused)
		equal(e, "paused by", status.PausedBy, "ann")
		equal(e, "reason", status.PauseReason, "a bug")
		sameTime(e, "until", status.PausedUntil, start.Add(time.Hour))
		e.clock.Advance(10 * time.Second)
		e.claim(e.a, runs[0], store.Gone)
		contains(e, "reason", e.gone(runs[0].Run, job.OutcomeWithdrawn).Attempt.Reason.String(), "a bug")
		e.planned(e.planItem(paused, e.now().Add(time.Second)), store.Withdrawn)

		resumed := e.put(everyMinute)
		equal(e, "state", resumed.Definition.Status.State, job.JobActive)
		equal(e, "epoch", resumed.Definition.Epoch, 3)
		sameTime(e, "cursor", resumed.Cursor, e.now())
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[1], store.Gone)
		equal(e, "audit", strings.Join(e.actions(), ", "), "ann job.resume default/a, ann job.pause default/a, ann job.create default/a")
	}},
	{"a resume catches up by the request rather than the policy of the job", func(e *env) {
		for i, c := range []struct {
			policy   string
			catchUp  job.Missed
			caught   string // scheduled
			missed   int    // occurrences
			overlaps job.Overlap
		}{
			{"missed: none, late_by: forever", job.MissedAll, "12:02 12:03 12:04 12:05", 0, job.OverlapQueue},
			{"missed: all, late_by: forever", job.MissedLatest, "12:05", 3, ""},
			{"missed: all, missed_limit: 2, late_by: forever, overlap: allow", job.MissedAll, "12:04 12:05", 2, ""},
			{"late_by: 2m", job.MissedAll, "12:04 12:05", 2, job.OverlapQueue},
			{"missed: all", job.MissedNone, "", 0, ""},
			{"missed: all", "", "", 0, ""},
		} {
			text := fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {%s}", i, c.policy)
			e.clock.Advance(start.Add(90 * time.Second).Sub(e.now()))
			e.put(text + "\npaused: true")
			e.clock.Advance(4 * time.Minute)
			resume := store.PutJob{Definition: e.document(text), IfVersion: store.AnyVersion, Actor: "ann", CatchUp: c.catchUp}
			j := e.putJob(resume)
			e.putJob(resume) // its answer was lost
			sameTime(e, c.policy+": cursor", j.Cursor, e.now())
			var caught []string
			for _, r := range e.active(j) {
				caught = append(caught, r.Scheduled.Format("15:04"))
				equal(e, c.policy+": kind", r.Kind, job.RunScheduled)
				equal(e, c.policy+": overlap", r.Overlap, c.overlaps)
			}
			equal(e, fmt.Sprintf("%s, resumed with %q", c.policy, c.catchUp), strings.Join(caught, " "), c.caught)
			missed := 0
			for _, r := range e.records(j) {
				equal(e, c.policy+": outcome", r.Attempt.Outcome, job.OutcomeMissed)
				contains(e, "reason", r.Attempt.Reason.String(), "the job was paused, and ")
				missed += r.Count
			}
			equal(e, c.policy+": missed", missed, c.missed)
			equal(e, c.policy+": planned", j.Planned, len(caught))
		}
	}},
	{"a resume that catches up omits occurrences claimed before the pause", func(e *env) {
		j := e.put(everyMinute)
		e.clock.Advance(59 * time.Second)
		a := e.plan(j, time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.put(everyMinute + "\npaused: true")
		e.clock.Advance(time.Minute + time.Second)
		j = e.putJob(store.PutJob{Definition: e.document(everyMinute), IfVersion: store.AnyVersion, Actor: "ann", CatchUp: job.MissedAll})
		var times []string
		for _, r := range e.active(j) {
			times = append(times, string(r.State)+" "+r.Scheduled.Format("15:04"))
		}
		equal(e, "runs", strings.Join(times, ", "), "running 12:01, ready 12:02")
	}},
	{"once: a new epoch begins after the latest claim", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, 12*time.Second)[0]
		e.clock.Advance(11 * time.Second)
		e.claim(e.a, a, store.Started)
		e.clock.Advance(-11 * time.Second) // a clock was set back
		changed := e.put("name: a\nschedule: {cron: '*/2 * * * *'}")
		sameTime(e, "cursor", changed.Cursor, start.Add(12*time.Second))
		changed = e.put("name: a\nschedule: {cron: '*/2 * * * *', spread: 1d}") // past runs do not shift
		sameTime(e, "cursor of what is spread", changed.Cursor, start.Add(12*time.Second))
	}},
	{"accounted: a new epoch plans occurrences again that spread had delayed", func(e *env) {
		_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{"2020-12-25"}}}}, 0, "ann")
		e.must(err)
		daily := "name: a\nschedule: {cron: '0 * * * *', spread: 1d, except: [off]"
		j := e.put(daily + "}")
		shift := e.now().Sub(j.Cursor) // the offset of its uid
		if shift <= 0 || shift > 24*time.Hour {
			e.Fatalf("a job that is spread over a day is planned from %s before its creation", shift)
		}
		begun := func(how string, from time.Duration) {
			e.Helper()
			e.clock.Advance(time.Second)
			sameTime(e, "cursor after "+how, e.reload(j).Cursor, e.now().Add(-from-time.Second-shift))
		}
		e.clock.Advance(time.Minute)
		e.put(daily + ", end: 2100-01-01T00:00:00Z}")
		begun("an edit", 0)
		e.put(daily + "}\npaused: true")
		e.clock.Advance(time.Minute)
		e.put(daily + "}")
		begun("a resume", 0)
		_, err = e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{"2020-12-26"}}}}, 1, "ann")
		e.must(err)
		begun("a change of a calendar", 0)
		until := e.now().Add(time.Minute)
		e.putJob(store.PutJob{Definition: e.document(daily + "}\npaused: true"), IfVersion: store.AnyVersion, Actor: "ann", Pause: store.Pause{By: "ann", Until: until}})
		e.clock.Advance(2 * time.Minute)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		begun("the end of a pause", time.Minute+time.Nanosecond)
	}},
	{"accounted: a pause ends behind many deleted jobs whose pauses would have ended", func(e *env) {
		const many = 250 // more than one read examines
		until := e.now().Add(time.Minute)
		for i := range many {
			d := e.document(fmt.Sprintf("name: a%d\npaused: true\nschedule: {cron: '* * * * *'}", i))
			j := e.putJob(store.PutJob{Definition: d, IfVersion: store.AnyVersion, Actor: "ann", Pause: store.Pause{By: "ann", Until: until}})
			e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		}
		j := e.putJob(store.PutJob{
			Definition: e.document("name: b\npaused: true\nschedule: {cron: '* * * * *'}"), IfVersion: store.AnyVersion, Actor: "ann",
			Pause: store.Pause{By: "ann", Until: until.Add(time.Second)},
		})
		e.clock.Advance(2 * time.Minute)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		equal(e, "the state of the job that is left", e.reload(j).Definition.Status.State, job.JobActive)
	}},
	{"once: a new epoch begins after the latest missed occurrence", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * *', jitter: 1m}")
		e.clock.Advance(5 * time.Second)
		item := e.planItem(j)
		item.To = e.now()
		item.Missed = []store.MissedSpan{{ID: e.id(), First: e.now(), Last: e.now(), Count: 1}}
		e.planned(item, store.Planned)
		e.clock.Advance(-time.Second) // a clock was set back
		sameTime(e, "cursor", e.put(everyMinute).Cursor, item.To)
	}},
	{"accounted: withdrawn runs do not keep a new epoch from planning", func(e *env) {
		j := e.put(everyMinute)
		a := e.plan(j, 12*time.Second)[0]
		e.put("name: a\nschedule: {cron: '*/2 * * * *'}")
		e.tidy()
		e.gone(a.Run, job.OutcomeWithdrawn)
		j = e.put(everyMinute)
		sameTime(e, "cursor", j.Cursor, start)

		a = e.plan(j, 12*time.Second)[0]
		e.put("name: a\nschedule: {cron: '*/2 * * * *'}")
		_, err := e.Cancel(e.ctx, a.Run, "ann", "")
		e.must(err)
		e.gone(a.Run, job.OutcomeWithdrawn)
		sameTime(e, "cursor", e.put(everyMinute).Cursor, start)
	}},
	{"a pause ends at its time", func(e *env) {
		j := e.putJob(store.PutJob{
			Definition: e.document(everyMinute + "\npaused: true"), Actor: "ann",
			Pause: store.Pause{By: "ann", Until: start.Add(time.Minute)},
		})
		e.tidy()
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobPaused)
		e.clock.Advance(5 * time.Minute) // no node reads it earlier
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		j = e.reload(j)
		equal(e, "state", j.Definition.Status.State, job.JobActive)
		equal(e, "paused in the document", j.Definition.Paused, false)
		equal(e, "version", j.Definition.Version, 2)
		equal(e, "audit", e.actions()[0], "belfry job.resume default/a")
		// Occurrences that fall due at its end and later are accounted for.
		e.planned(e.planItem(j, start.Add(time.Minute), start.Add(2*time.Minute)), store.Planned)
	}},
	{"withdrawn: a deleted job starts nothing and its running runs continue", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		runs := e.plan(j, time.Second, 2*time.Second)
		hand := e.trigger(j)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.want(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: 7, Actor: "bob"}), store.ErrConflict)
		d := store.DeleteJob{UID: j.Definition.UID, IfVersion: 1, Actor: "bob"}
		e.must(e.DeleteJob(e.ctx, d))
		e.must(e.DeleteJob(e.ctx, d)) // its answer was lost
		_, err := store.JobNamed(e.ctx, e, "default", "a")
		e.want(err, store.ErrNotFound)
		equal(e, "deleted", e.reload(j).Deleted, true)
		e.claim(e.a, runs[1], store.Gone)
		e.claim(e.a, hand, store.Gone)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.gone(runs[0].Run, job.OutcomeSucceeded)
		e.want(e.DeleteJob(e.ctx, store.DeleteJob{UID: e.id(), Actor: "bob"}), store.ErrNotFound)
		equal(e, "audit", e.actions()[0], "bob job.delete default/a")

		again := e.put(everyMinute)
		if again.Definition.UID == j.Definition.UID {
			e.Error("a new job of the same name has the old uid")
		}
	}},
	{"accounted: occurrences that fell due unplanned before their schedule ended have a record", func(e *env) {
		calendar := func(days string) {
			_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "holidays", Days: job.Days{Include: []string{days}}}}, store.AnyVersion, "bob")
			e.must(err)
		}
		_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "holidays", Days: job.Days{Include: []string{"2026-12-25"}}}}, 0, "ann")
		e.must(err)
		const secondly = "schedule: {cron: '* * * * * *'}"
		remove := func(j *store.Job) {
			e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "bob"}))
		}
		edit := func(text string) func(j *store.Job) {
			return func(j *store.Job) {
				d := document(e.T, "name: "+j.Definition.Name+"\n"+text)
				_, err := store.PutOne(e.ctx, e, store.PutJob{Definition: d, IfVersion: store.AnyVersion, Actor: "bob"})
				e.must(err)
			}
		}
		for _, c := range []struct {
			name, text string
			end        func(*store.Job)
			want       int
			why        string
		}{
			{"due", secondly, remove, 3, "the job was deleted by bob"},
			{"excluded", "schedule: {cron: '* * * * * *', except: [holidays]}", remove, 3, "the job was deleted by bob"},
			{"later", "schedule: {cron: '0 0 1 1 *'}", remove, 0, ""},
			{"hand", "run: {shell: 'true'}", remove, 0, ""},
			{"resting", secondly + "\npaused: true", remove, 0, ""},
			{"spent", "schedule: {cron: '* * * * * *', max_runs: 1}", remove, 0, ""},
			{"paused", secondly, edit(secondly + "\npaused: true"), 3, "the job was paused"},
			{"moved", secondly, edit("schedule: {cron: '0 0 1 1 *'}"), 3, "the schedule of the job was changed by bob"},
			{"same", secondly, edit(secondly + "\ndescription: another"), 0, ""},
			{"freed", "schedule: {cron: '* * * * * *', except: [holidays]}", func(*store.Job) { calendar("2026-12-26") }, 3, "calendar default/holidays was changed by bob"},
		} {
			j := e.put("name: " + c.name + "\n" + c.text)
			if j.Filled.Schedule.Cron != nil && !j.Definition.Paused {
				e.planned(e.planItem(j, e.now().Add(time.Second)), store.Planned)
			}
			e.clock.Advance(4 * time.Second)
			c.end(j)
			n := 0
			for _, r := range e.records(j) {
				if r.Attempt.Outcome == job.OutcomeMissed {
					n += r.Count
					contains(e, c.name, r.Attempt.Reason.String(), "no node planned it in time, and "+c.why)
				}
			}
			equal(e, c.name, n, c.want)
		}
	}},
	{"accounted: a pause after failures records what fell due unplanned", func(e *env) {
		j := e.put("name: a\nschedule: {cron: '* * * * * *'}\npolicy: {pause_on_failure: 1}")
		runs := e.plan(j, time.Second)
		e.clock.Advance(4 * time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.finish(runs[0], job.OutcomeFailed)
		records := e.records(j)
		n := 0
		for _, r := range records {
			if r.Attempt.Outcome == job.OutcomeMissed {
				n += r.Count
				contains(e, "reason", r.Attempt.Reason.String(), "no node planned it in time, and the job was paused")
			}
		}
		equal(e, "missed", n, 3)
	}},
	{"a tombstone is kept for an hour", func(e *env) {
		j := e.put(everyMinute)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		e.clock.Advance(59 * time.Minute)
		e.tidy()
		e.reload(j)
		e.clock.Advance(2 * time.Minute)
		e.tidy()
		_, err := store.JobByUID(e.ctx, e, j.Definition.UID)
		e.want(err, store.ErrNotFound)
	}},
	{"a job that was deleted in the last hour is restored as it was", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[0], store.Started)
		remove := store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann", Reason: job.Text("a slip")}
		back := store.RestoreJob{UID: j.Definition.UID, Actor: "bob"}
		e.must(e.DeleteJob(e.ctx, remove))
		_, since, err := e.JobsChanged(e.ctx, store.AllPartitions, 0, 100)
		e.must(err)
		e.clock.Advance(10 * time.Minute)
		_, err = e.RestoreJob(e.ctx, back)
		e.must(err)
		again, err := e.RestoreJob(e.ctx, back) // its answer was lost
		e.must(err)
		named, err := store.JobNamed(e.ctx, e, "default", "a")
		e.must(err)
		equal(e, "uid", named.Definition.UID, j.Definition.UID)
		equal(e, "version", named.Definition.Version, 3)
		equal(e, "version of the answer", again.Definition.Version, 3)
		equal(e, "created", named.Definition.Status.Created, j.Definition.Status.Created)
		equal(e, "audit", strings.Join(e.actions()[:2], ", "), "bob job.restore default/a, ann job.delete default/a")
		audit, _, err := e.Audit(e.ctx, store.AuditQuery{Action: "job.delete", Limit: 1})
		e.must(err)
		equal(e, "reason", audit[0].Detail.String(), "a slip")
		equal(e, "uid in the audit", audit[0].Changes[0].Before, j.Definition.UID.String())
		changed, _, err := e.JobsChanged(e.ctx, store.AllPartitions, since, 100)
		e.must(err)
		if len(changed) != 1 || !changed[0].Active || changed[0].Cursor.Before(e.now()) {
			e.Errorf("planners read %+v", changed)
		}
		e.finish(runs[0], job.OutcomeSucceeded) // it ran all the time
		e.claim(e.a, runs[1], store.Gone)
		next := e.plan(named, time.Second)
		e.clock.Advance(time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.claim(e.a, next[0], store.Started)
		e.finish(next[0], job.OutcomeSucceeded)
		revisions, err := e.Revisions(e.ctx, j.Definition.UID, 0, 10)
		e.must(err)
		equal(e, "revisions", len(revisions), 2)

		// Another job has the name.
		e.must(e.DeleteJob(e.ctx, remove))
		other := e.put(everyMinute)
		_, err = e.RestoreJob(e.ctx, back)
		e.want(err, store.ErrExists)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: other.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		_, err = e.RestoreJob(e.ctx, back)
		e.must(err)

		// It is forgotten after an hour.
		e.must(e.DeleteJob(e.ctx, remove))
		e.clock.Advance(61 * time.Minute)
		e.tidy()
		e.tidy()
		_, err = e.RestoreJob(e.ctx, back)
		e.want(err, store.ErrNotFound)
	}},
	{"a restored job is paused, follows others, counts and names calendars as before", func(e *env) {
		remove := func(j *store.Job) {
			e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		}
		restored := func(j *store.Job) *store.Job {
			j, err := e.RestoreJob(e.ctx, store.RestoreJob{UID: j.Definition.UID, Actor: "bob"})
			e.must(err)
			return j
		}
		paused := e.putJob(store.PutJob{
			Definition: e.document("name: p\nschedule: {cron: '* * * * *'}\npaused: true"), Actor: "ann",
			Pause: store.Pause{By: "ann", Reason: job.Text("holidays"), Until: e.now().Add(20 * time.Minute)},
		})
		remove(paused)
		e.clock.Advance(time.Minute)
		e.tidy()
		j := restored(paused)
		equal(e, "state", j.Definition.Status.State, job.JobPaused)
		equal(e, "end of the pause", j.Definition.Status.PausedUntil, paused.Definition.Status.PausedUntil)
		remove(paused)
		e.clock.Advance(30 * time.Minute)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		restored(paused)
		e.tidy()
		equal(e, "state after its end", e.reload(paused).Definition.Status.State, job.JobActive)

		up, down := e.put("name: up"), e.put("name: down\nschedule: {on: [up]}")
		remove(down)
		restored(down)
		a := e.trigger(up)
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeSucceeded)
		equal(e, "runs of the follower", len(e.active(down)), 1)
		remove(down)
		e.must(func() error {
			_, err := store.PutOne(e.ctx, e, store.PutJob{Definition: e.document("name: up\nschedule: {on: [down]}"), IfVersion: store.AnyVersion, Actor: "ann"})
			return err
		}())
		_, err := e.RestoreJob(e.ctx, store.RestoreJob{UID: down.Definition.UID, Actor: "bob"})
		e.want(err, store.ErrCycle)

		few := e.put("name: few\nschedule: {cron: '* * * * *', max_runs: 2}")
		e.plan(few, time.Second)
		remove(few)
		equal(e, "counted", restored(few).Planned, 0)

		days := func(dates ...string) {
			_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "holidays", Days: job.Days{Include: dates}}}, store.AnyVersion, "bob")
			e.must(err)
		}
		days("2026-12-25")
		open := e.put("name: open\nschedule: {cron: '* * * * *', except: [holidays]}")
		remove(open)
		days("2026-12-26")
		restored(open)
		changed, _, err := e.JobsChanged(e.ctx, store.AllPartitions, 0, 100)
		e.must(err)
		for _, c := range changed {
			if c.UID == open.Definition.UID && !strings.Contains(c.Timing, `"holidays":2`) {
				e.Errorf("its timing is %q", c.Timing)
			}
		}
		remove(open)
		e.must(e.DeleteDocument(e.ctx, job.KindCalendar, "default/holidays", store.AnyVersion, "bob"))
		if _, err := e.RestoreJob(e.ctx, store.RestoreJob{UID: open.Definition.UID, Actor: "bob"}); err == nil || !strings.Contains(err.Error(), "holidays") {
			e.Errorf("without its calendar: %v", err)
		}
	}},
	{"a deleted job is kept as long as it has a run", func(e *env) {
		j := e.put(everyMinute)
		a := e.trigger(j)
		e.claim(e.a, a, store.Started)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		e.clock.Advance(2 * time.Hour)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		e.claim(e.a, a, store.Started) // with its definition
		e.finish(a, job.OutcomeSucceeded)
		e.tidy()
		_, err := store.JobByUID(e.ctx, e, j.Definition.UID)
		e.want(err, store.ErrNotFound)
	}},
	{"a completed one-off is removed if its job says so", func(e *env) {
		text := "name: a\nschedule: {at: ['2026-11-20T12:00:05Z'], delete_after: 1m}"
		j := e.put(text)
		item := e.planItem(j, start.Add(5*time.Second))
		item.Complete = true
		e.planned(item, store.Planned)
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobCompleted)
		e.clock.Advance(5 * time.Second)
		a := store.Attempt{Job: item.Job, Run: item.Runs[0].ID, Number: 1, Token: e.id()}
		e.claim(e.a, a, store.Started) // planned runs of a completed job still run
		e.finish(a, job.OutcomeSucceeded)
		e.tidy()
		equal(e, "deleted", e.reload(j).Deleted, false)
		e.clock.Advance(time.Minute)
		e.tidy()
		equal(e, "deleted", e.reload(j).Deleted, true)
	}},
	{"a one-off to be removed at once runs first", func(e *env) {
		j := e.put("name: a\nschedule: {at: ['2026-11-20T12:00:05Z'], delete_after: 0s}")
		item := e.planItem(j, start.Add(5*time.Second))
		item.Complete = true
		e.planned(item, store.Planned)
		e.tidy()
		equal(e, "deleted before it was due", e.reload(j).Deleted, false)
		e.clock.Advance(5 * time.Second)
		e.tidy()
		a := store.Attempt{Job: item.Job, Run: item.Runs[0].ID, Number: 1, Token: e.id()}
		e.claim(e.a, a, store.Started)
		e.tidy()
		equal(e, "deleted while it ran", e.reload(j).Deleted, false)
		e.finish(a, job.OutcomeSucceeded)
		e.tidy()
		_, err := store.JobNamed(e.ctx, e, "default", "a")
		e.want(err, store.ErrNotFound)
	}},
	{"a one-off to be removed at once stays until all its runs have ended", func(e *env) {
		j := e.put("name: a\nschedule: {at: ['2026-11-20T12:00:05Z'], delete_after: 0s}\nplace: {shards: 2}\npolicy: {retry: {attempts: 1, backoff: 1s}}")
		item := e.planItem(j, start.Add(5*time.Second))
		item.Complete = true
		item.Runs[0].Shards = 2
		second := item.Runs[0]
		second.ID, second.Shard = e.id(), 1
		item.Runs = append(item.Runs, second)
		e.planned(item, store.Planned)
		e.clock.Advance(5 * time.Second)
		runs := []store.Attempt{{Job: item.Job, Run: item.Runs[0].ID, Number: 1, Token: e.id()}, {Job: item.Job, Run: second.ID, Number: 1, Token: e.id()}}
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Started)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.clock.Advance(2 * time.Hour) // longer than its start may be delayed
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		equal(e, "deleted while a shard ran", e.reload(j).Deleted, false)
		e.finish(runs[1], job.OutcomeFailed)
		e.tidy()
		e.clock.Advance(time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		retry := store.Attempt{Job: item.Job, Run: second.ID, Number: 2, Token: e.id()}
		e.claim(e.a, retry, store.Started)
		e.finish(retry, job.OutcomeSucceeded)
		e.tidy()
		equal(e, "deleted", e.reload(j).Deleted, true)
	}},
	{"a one-off whose time has passed is completed and removed, after what it catches up", func(e *env) {
		text := "name: a\nschedule: {at: ['2026-11-20T12:00:05Z'], delete_after: 0s}"
		e.put(text + "\npaused: true")
		e.clock.Advance(time.Minute)
		j := e.putJob(store.PutJob{Definition: e.document(text), IfVersion: store.AnyVersion, Actor: "ann", CatchUp: job.MissedLatest})
		item := e.planItem(j)
		item.To, item.Complete = item.From, true
		e.planned(item, store.Planned)
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobCompleted)
		e.tidy()
		equal(e, "deleted before what it catches up", e.reload(j).Deleted, false)
		a := store.Attempt{Job: j.Definition.UID, Run: e.active(j)[0].ID, Number: 1, Token: e.id()}
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.claim(e.a, a, store.Started)
		e.finish(a, job.OutcomeSucceeded)
		e.tidy()
		equal(e, "deleted", e.reload(j).Deleted, true)
	}},
	{"jobs are listed in pages by full name and selected", func(e *env) {
		for i := range 7 {
			e.put(fmt.Sprintf("name: j%d\nnamespace: n%d\nlabels: {odd: '%d'}\ndescription: Number %d", i, i%2, i%2, i))
		}
		e.put("name: j0\nnamespace: n0\npaused: true\nlabels: {odd: '0'}")
		names := func(q store.JobQuery) string {
			var names []string
			for {
				page, next, err := e.ListJobs(e.ctx, q)
				e.must(err)
				if len(page) > q.Limit {
					e.Fatalf("a page has %d jobs, the limit is %d", len(page), q.Limit)
				}
				for _, j := range page {
					names = append(names, j.Definition.FullName())
				}
				if q.After = next; next == "" {
					return strings.Join(names, " ")
				}
			}
		}
		equal(e, "all", names(store.JobQuery{Limit: 2}), "n0/j0 n0/j2 n0/j4 n0/j6 n1/j1 n1/j3 n1/j5")
		for _, like := range []string{"n", "n1-", "n1.a", "n10"} { // names that sort around it
			e.put("name: other\nnamespace: " + like)
		}
		equal(e, "namespace", names(store.JobQuery{Limit: 2, Namespace: "n1"}), "n1/j1 n1/j3 n1/j5")
		equal(e, "label", names(store.JobQuery{Limit: 3, Labels: map[string]string{"odd": "1"}}), "n1/j1 n1/j3 n1/j5")
		equal(e, "text in a description", names(store.JobQuery{Limit: 3, Text: "number 5"}), "n1/j5")
		e.put("name: boot\nnamespace: n2\nschedule: {boot: true}")
		equal(e, "boot", names(store.JobQuery{Limit: 3, Boot: true}), "n2/boot")
		e.put("name: j3\nnamespace: n1\nlabels: {odd: '1'}\nschedule: {boot: true}")
		equal(e, "boot, with one that has become one", names(store.JobQuery{Limit: 3, Boot: true}), "n1/j3 n2/boot")
		e.put("name: j3\nnamespace: n1\nlabels: {odd: '1'}")
		equal(e, "boot, without one that is none any more", names(store.JobQuery{Limit: 3, Boot: true}), "n2/boot")
		equal(e, "text in a name", names(store.JobQuery{Limit: 3, Text: "j3"}), "n1/j3")
		e.put("name: j5\nnamespace: n1\ntitle: 价格导入 Prices\ndescription: number 5\nlabels: {odd: '1'}")
		equal(e, "text in a title", names(store.JobQuery{Limit: 3, Text: "导入 PRICES"}), "n1/j5")
		equal(e, "text with signs", names(store.JobQuery{Limit: 3, Text: "%"}), "")
		equal(e, "state", names(store.JobQuery{Limit: 3, State: job.JobPaused}), "n0/j0")
		e.put("name: graph\nnamespace: n2\nlabels: {shell: flow}\nrun: {flow: {steps: [{name: a, run: {shell: 'true'}}]}}")
		equal(e, "work", names(store.JobQuery{Limit: 3, Work: job.WorkFlow}), "n2/graph")
	}},
	{"a selective query of jobs reads a bounded part and continues", func(e *env) {
		// Concurrently, since stores commit concurrent calls together.
		const writers = 100
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := w; i < store.JobLookMax*3/2; i += writers {
					j := &job.Job{Namespace: "many", Name: fmt.Sprintf("j%05d", i), Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
					if _, err := store.PutOne(e.ctx, e, store.PutJob{Definition: j, Actor: "ann"}); err != nil {
						e.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		for _, name := range []string{"few/rare", "many/j00000-rare", "many/z-rare"} {
			namespace, name, _ := strings.Cut(name, "/")
			e.put("name: " + name + "\nnamespace: " + namespace + "\nlabels: {kind: rare}\npaused: true\nschedule: {boot: true}")
		}
		for what, q := range map[string]store.JobQuery{
			"text":  {Text: "rare"},
			"label": {Labels: map[string]string{"kind": "rare"}},
		} {
			q.Limit = 3
			list, next, err := e.ListJobs(e.ctx, q)
			e.must(err)
			equal(e, "found in the first part by "+what, len(list), 2)
			q.After = next
			list, next, err = e.ListJobs(e.ctx, q)
			e.must(err)
			equal(e, "found in the second part by "+what, len(list), 1)
			equal(e, "the place behind the end", next, "")
		}
		for what, q := range map[string]store.JobQuery{
			"of a namespace that has few":   {Namespace: "few", Text: "nothing"},
			"of those that are due at boot": {Boot: true, Text: "nothing"},
		} {
			q.Limit = 1
			list, next, err := e.ListJobs(e.ctx, q)
			e.must(err)
			equal(e, what, len(list), 0)
			equal(e, "the place behind the end "+what, next, "")
		}
		paused, next, err := e.ListJobs(e.ctx, store.JobQuery{State: job.JobPaused, Limit: 4})
		e.must(err)
		equal(e, "paused jobs, which are in an index", len(paused), 3)
		equal(e, "the place behind the last of them", next, "")
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		_, _, err = e.ListJobs(ctx, store.JobQuery{Text: "nothing", Limit: 1})
		e.want(err, context.Canceled)
	}},
	{"an indirect circle of followers is refused", func(e *env) {
		put := func(name, on string) error {
			_, err := store.PutOne(e.ctx, e, store.PutJob{Definition: e.document("name: " + name + "\nschedule: {on: " + on + "}"), IfVersion: store.AnyVersion, Actor: "ann"})
			return err
		}
		e.must(put("a", "[d, {job: c, outcome: failed}]"))
		e.must(put("b", "a"))
		err := put("c", "[x, default/b]")
		e.want(err, store.ErrCycle)
		contains(e, "the error", err.Error(), "job default/c follows default/b follows default/a follows default/c")
		if _, err := store.JobNamed(e.ctx, e, "default", "c"); !errors.Is(err, store.ErrNotFound) {
			e.Errorf("what was refused is there: %v", err)
		}
		e.must(put("c", "x"))
		e.must(put("d", "[c, x]")) // two paths to one job are no cycle
		e.want(put("x", "b"), store.ErrCycle)
		e.must(put("a", "c"))
		e.want(put("c", "a"), store.ErrCycle)
		j, err := store.JobNamed(e.ctx, e, "default", "a")
		e.must(err)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		e.must(put("c", "b"))
		e.want(put("a", "c"), store.ErrCycle)
	}},
	{"the followers of a job are found", func(e *env) {
		// Pages of n, put together and by name.
		follows := func(what, upstream string, n int, want string) {
			e.Helper()
			var found []string
			for after, more := (job.ID{}), true; more; {
				var list []*store.Job
				var err error
				list, more, err = e.Followers(e.ctx, upstream, after, n)
				e.must(err)
				if len(list) > n || more && len(list) < n {
					e.Fatalf("%s: a page of %d has %d, and there are more: %v", what, n, len(list), more)
				}
				for _, j := range list {
					if bytes.Compare(j.Definition.UID[:], after[:]) <= 0 {
						e.Errorf("%s: %s comes after %s", what, j.Definition.UID, after)
					}
					if is := e.reload(j); j.Definition.Version != is.Definition.Version || len(j.Filled.Schedule.On) != len(is.Filled.Schedule.On) {
						e.Errorf("%s: %s is version %d, want %d", what, j.Definition.FullName(), j.Definition.Version, is.Definition.Version)
					}
					found, after = append(found, j.Definition.FullName()), j.Definition.UID
				}
			}
			slices.Sort(found)
			equal(e, what, strings.Join(found, " "), want)
		}
		follows("of a job that does not exist", "default/up", 100, "")
		e.put("name: up")
		e.put("name: up\nnamespace: other")
		e.put("name: other")
		follows("of a job without followers", "default/up", 100, "")
		e.put("name: z\nschedule: {on: up}")
		failed := e.put("name: failed\nschedule: {on: [{job: up, outcome: failed}]}")
		e.put("name: either\nnamespace: far\nschedule: {on: [{job: default/up, outcome: succeeded}, {job: default/up, outcome: failed}]}")
		e.put("name: two\npaused: true\nschedule: {on: [up, {job: other, outcome: finished}]}")
		e.put("name: a\nnamespace: other\nschedule: {on: up}")
		e.put("name: missing\nschedule: {on: absent}")
		for n := 1; n <= 5; n++ {
			follows(fmt.Sprintf("of a success, of a failure, of both, of another namespace, of two jobs, in pages of %d", n), "default/up", n,
				"default/failed default/two default/z far/either")
		}
		follows("of the second of two", "default/other", 1, "default/two")
		follows("of the job with this name in another namespace", "other/up", 1, "other/a")
		follows("of a missing job", "default/absent", 1, "default/missing")
		follows("of the beginning of a name", "default/u", 1, "")

		e.put("name: z\nschedule: {on: other}")
		e.put("name: two\nschedule: {on: [other, up]}")
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: failed.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		follows("after one was changed and another one deleted", "default/up", 1, "default/two far/either")
		follows("of what the changed one follows now", "default/other", 1, "default/two default/z")
		up, err := store.JobNamed(e.ctx, e, "default", "up")
		e.must(err)
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: up.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		follows("of a deleted job", "default/up", 1, "default/two far/either")
		e.put("name: failed\nschedule: {on: up}")
		follows("with a new job of a deleted name", "default/up", 1, "default/failed default/two far/either")

		var many []string
		for i := range 70 { // more than the followers that a step reads at once
			many = append(many, e.put(fmt.Sprintf("name: m%02d\nschedule: {on: many}", i)).Definition.FullName())
		}
		follows("of many", "default/many", 35, strings.Join(many, " "))
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		_, _, err = e.Followers(ctx, "default/up", job.ID{}, 1)
		e.want(err, context.Canceled)
	}},
	{"revisions are kept, the latest first", func(e *env) {
		for i := range 5 {
			e.put(fmt.Sprintf("name: a\ndescription: d%d", i))
		}
		j, err := store.JobNamed(e.ctx, e, "default", "a")
		e.must(err)
		var got []string
		for before := int64(0); ; {
			page, err := e.Revisions(e.ctx, j.Definition.UID, before, 2)
			e.must(err)
			for _, r := range page {
				got = append(got, fmt.Sprintf("%d %s %s", r.Version, r.Definition.Description, r.Actor))
				before = r.Version
			}
			if len(page) < 2 {
				break
			}
		}
		equal(e, "revisions", strings.Join(got, " "), "5 d4 ann 4 d3 ann 3 d2 ann 2 d1 ann 1 d0 ann")
	}},
	{"the feed of changes has each job's latest state, in order, by partition", func(e *env) {
		var all []*store.Job
		for i := range 9 {
			all = append(all, e.put(fmt.Sprintf("name: j%d\nschedule: {cron: '*/%d * * * *'}", i, i+1)))
		}
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: all[4].Definition.UID, IfVersion: 1, Actor: "ann"}))
		e.put("name: j2\npaused: true\nschedule: {cron: '*/3 * * * *'}")
		seen := map[job.ID]store.PlannedJob{}
		var order []job.ID
		since := int64(0)
		for {
			page, next, err := e.JobsChanged(e.ctx, store.AllPartitions, since, 2)
			e.must(err)
			for _, p := range page {
				seen[p.UID] = p
				order = append(order, p.UID)
			}
			if next < since || len(page) > 0 && next == since {
				e.Fatalf("the feed goes from %d to %d", since, next)
			}
			since = next
			if len(page) == 0 {
				break
			}
		}
		equal(e, "jobs", len(seen), 9)
		equal(e, "told", len(order), 9)
		equal(e, "the last one told", order[len(order)-1], all[2].Definition.UID)
		for i, j := range all {
			p := seen[j.Definition.UID]
			equal(e, "active", p.Active, i != 4 && i != 2)
			equal(e, "deleted", p.Deleted, i == 4)
			now := e.reload(j)
			equal(e, "epoch", p.Epoch, now.Definition.Epoch)
			equal(e, "version", p.Version, now.Definition.Version)
			sameTime(e, "cursor", p.Cursor, now.Cursor)
			if p.Timing == "" || i > 0 && p.Timing == seen[all[0].Definition.UID].Timing {
				e.Errorf("job %d has the timing %q", i, p.Timing)
			}
		}
		page, _, err := e.JobsChanged(e.ctx, store.AllPartitions, since, 10)
		e.must(err)
		equal(e, "told after the end", len(page), 0)

		var one store.Partitions
		one.Add(job.Partition(all[0].Definition.UID))
		page, _, err = e.JobsChanged(e.ctx, one, 0, 100)
		e.must(err)
		for _, p := range page {
			equal(e, "partition", job.Partition(p.UID), job.Partition(all[0].Definition.UID))
		}
		if len(page) == 0 {
			e.Error("the partition of the first job is empty")
		}
	}},
	{"planners receive how far jobs are planned", func(e *env) {
		a := e.put("name: a\nschedule: {cron: '* * * * * *'}")
		b := e.put("name: b\nschedule: {cron: '* * * * * *'}")
		e.plan(a, 3*time.Second)
		e.put("name: b\nschedule: {cron: '*/2 * * * * *'}")
		list, err := e.Cursors(e.ctx, []job.ID{a.Definition.UID, {1, 2, 3}, b.Definition.UID})
		e.must(err)
		equal(e, "jobs that there are", len(list), 2)
		for _, c := range list {
			want := e.reload(a)
			if c.UID != a.Definition.UID {
				want = e.reload(b)
			}
			equal(e, "job", c.UID, want.Definition.UID)
			equal(e, "epoch", c.Epoch, want.Definition.Epoch)
			equal(e, "planned", c.Planned, want.Planned)
			sameTime(e, "cursor", c.Cursor, want.Cursor)
		}
		if e.reload(a).Planned == 0 || e.reload(b).Definition.Epoch != 2 {
			e.Error("nothing was planned, or no epoch begun: this shows nothing")
		}
		list, err = e.Cursors(e.ctx, nil)
		e.must(err)
		equal(e, "jobs of none", len(list), 0)
		_, err = e.Cursors(e.ctx, make([]job.ID, store.MaxBatch+1))
		e.want(err, store.ErrTooMany)
	}},
	{"a page of one partition does not skip changes of others", func(e *env) {
		// The number to continue from must not skip the rest of a full page.
		for i := range 20 {
			e.put(fmt.Sprintf("name: j%d", i))
		}
		var half store.Partitions
		for p := range 128 {
			half.Add(uint8(p))
		}
		want := 0
		jobs, _, err := e.ListJobs(e.ctx, store.JobQuery{Limit: 100})
		e.must(err)
		for _, j := range jobs {
			if half.Has(job.Partition(j.Definition.UID)) {
				want++
			}
		}
		got := map[job.ID]bool{}
		for since := int64(0); ; {
			page, next, err := e.JobsChanged(e.ctx, half, since, 1)
			e.must(err)
			for _, p := range page {
				got[p.UID] = true
			}
			if len(page) == 0 {
				break
			}
			since = next
		}
		equal(e, "jobs in half of the partitions", len(got), want)
	}},
	{"the summary counts the jobs that can fall due, and their versions, by partition", func(e *env) {
		a, b := e.put("name: a"), e.put("name: b")
		e.putJob(store.PutJob{Definition: e.document("name: c\npaused: true"), Actor: "ann", Pause: store.Pause{By: "ann"}})
		e.put("name: a\ndescription: x")
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: b.Definition.UID, IfVersion: 1, Actor: "ann"}))
		sum, err := e.Summary(e.ctx)
		e.must(err)
		for p, s := range sum {
			want := store.PartitionSummary{}
			if job.Partition(a.Definition.UID) == uint8(p) {
				want = store.PartitionSummary{Jobs: 1, Versions: 2}
			}
			if s != want {
				e.Errorf("partition %d: got %+v, want %+v", p, s, want)
			}
		}
	}},
	{"a changed calendar begins a new epoch of the jobs that name it", func(e *env) {
		days := func(date string) *job.Calendar {
			return &job.Calendar{Name: "off", Days: job.Days{Include: []string{date}}}
		}
		c, err := e.PutDocument(e.ctx, job.Document{Calendar: days("2026-12-25")}, 0, "ann")
		e.must(err)
		equal(e, "version", c.Version(), 1)
		named := e.put("name: a\nschedule: {cron: '* * * * *', except: [off]}")
		other := e.put("name: b\nschedule: {cron: '* * * * *', except: [sat]}")
		a := e.plan(named, 10*time.Second)[0]
		before, _, err := e.JobsChanged(e.ctx, store.AllPartitions, 0, 10)
		e.must(err)

		c, err = e.PutDocument(e.ctx, job.Document{Calendar: days("2026-12-26")}, 1, "ann")
		e.must(err)
		equal(e, "version", c.Version(), 2)
		c, err = e.PutDocument(e.ctx, job.Document{Calendar: days("2026-12-26")}, 1, "ann") // its answer was lost
		e.must(err)
		equal(e, "version", c.Version(), 2)
		equal(e, "epoch of the one that names it", e.reload(named).Definition.Epoch, 2)
		equal(e, "epoch of the other", e.reload(other).Definition.Epoch, 1)
		after, _, err := e.JobsChanged(e.ctx, store.AllPartitions, 0, 10)
		e.must(err)
		if after[len(after)-1].UID != named.Definition.UID || after[len(after)-1].Timing == before[0].Timing {
			e.Error("planners are not told that the schedule means something else")
		}
		e.clock.Advance(10 * time.Second)
		e.claim(e.a, a, store.Gone)

		_, err = e.PutDocument(e.ctx, job.Document{Calendar: days("2026-12-27")}, 1, "ann")
		e.want(err, store.ErrConflict)
		_, err = e.PutDocument(e.ctx, job.Document{Calendar: days("2026-12-27")}, 0, "ann")
		e.want(err, store.ErrExists)
		err = e.DeleteDocument(e.ctx, job.KindCalendar, "default/off", store.AnyVersion, "ann")
		e.want(err, store.ErrConflict)
		var by store.NamedError
		errors.As(err, &by)
		equal(e, "who names it", by.Name, named.Definition.FullName())
		e.must(e.DeleteJob(e.ctx, store.DeleteJob{UID: named.Definition.UID, IfVersion: store.AnyVersion, Actor: "ann"}))
		e.want(e.DeleteDocument(e.ctx, job.KindCalendar, "default/off", 1, "bob"), store.ErrConflict)
		e.must(e.DeleteDocument(e.ctx, job.KindCalendar, "default/off", 2, "bob"))
		e.want(e.DeleteDocument(e.ctx, job.KindCalendar, "default/off", 2, "bob"), store.ErrNotFound)
		list, err := e.Documents(e.ctx, job.KindCalendar)
		e.must(err)
		equal(e, "calendars", len(list), 0)
		equal(e, "audit", strings.Join(e.actions(), ", "), "bob calendar.delete default/off, ann job.delete default/a, "+
			"ann calendar.change default/off, ann job.create default/b, ann job.create default/a, ann calendar.create default/off")
	}},
	{"a recreated calendar is a new one to planners", func(e *env) {
		timing := func(date string) string {
			_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{date}}}}, 0, "ann")
			e.must(err)
			e.put("name: a\nschedule: {cron: '* * * * *', except: [off]}")
			changed, _, err := e.JobsChanged(e.ctx, store.AllPartitions, 0, 10)
			e.must(err)
			return changed[len(changed)-1].Timing
		}
		before := timing("2026-12-25")
		e.put("name: a\nschedule: {cron: '* * * * *'}")
		e.must(e.DeleteDocument(e.ctx, job.KindCalendar, "default/off", store.AnyVersion, "ann"))
		if timing("2026-12-26") == before {
			e.Error("planners are not told that the schedule means something else")
		}
	}},
	{"a completed job may fall due again after its calendar changes", func(e *env) {
		off := &job.Calendar{Name: "off", Days: job.Days{Include: []string{"2026-12-26"}}}
		_, err := e.PutDocument(e.ctx, job.Document{Calendar: off}, 0, "ann")
		e.must(err)
		j := e.put("name: a\nschedule: {at: ['2026-12-26T12:00:00Z'], except: [off]}") // an unknown calendar
		item := e.planItem(j)
		item.Complete = true
		e.planned(item, store.Planned)
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobCompleted)
		off.Days.Include = []string{"2026-12-25"}
		_, err = e.PutDocument(e.ctx, job.Document{Calendar: off}, 1, "ann")
		e.must(err)
		equal(e, "state", e.reload(j).Definition.Status.State, job.JobActive)
	}},
	{"pools are created, changed and deleted by version", func(e *env) {
		pool := func(size int) *job.Pool { return &job.Pool{Name: "db", Slots: job.Slots{Size: size}} }
		p, err := e.PutDocument(e.ctx, job.Document{Pool: pool(2)}, 0, "ann")
		e.must(err)
		equal(e, "version", p.Version(), 1)
		_, err = e.PutDocument(e.ctx, job.Document{Pool: pool(3)}, 0, "ann")
		e.want(err, store.ErrExists)
		p, err = e.PutDocument(e.ctx, job.Document{Pool: pool(3)}, 1, "ann")
		e.must(err)
		equal(e, "version", p.Version(), 2)
		list, err := e.Documents(e.ctx, job.KindPool)
		e.must(err)
		if len(list) != 1 || list[0].Pool.Slots.Size != 3 || list[0].FullName() != "default/db" {
			e.Errorf("pools: %+v", list)
		}
		e.want(e.DeleteDocument(e.ctx, job.KindPool, "default/db", 1, "bob"), store.ErrConflict)
		e.must(e.DeleteDocument(e.ctx, job.KindPool, "default/db", 2, "bob"))
		e.want(e.DeleteDocument(e.ctx, job.KindPool, "default/db", store.AnyVersion, "bob"), store.ErrNotFound)
		equal(e, "audit", strings.Join(e.actions(), ", "), "bob pool.delete default/db, ann pool.change default/db, ann pool.create default/db")
	}},
	{"the audit is read in pages, and a refused change is not in it", func(e *env) {
		for i := range 5 {
			e.put(fmt.Sprintf("name: j%d", i))
		}
		_, err := store.PutOne(e.ctx, e, store.PutJob{Definition: e.document("name: j0\ndescription: x"), IfVersion: 9, Actor: "eve"})
		e.want(err, store.ErrConflict)
		var objects []string
		for before := int64(0); ; {
			page, next, err := e.Audit(e.ctx, store.AuditQuery{Before: before, Limit: 2})
			e.must(err)
			for _, r := range page {
				objects = append(objects, r.Object)
				sameTime(e, "time", r.Time, start)
			}
			if before = next; next == 0 {
				break
			}
		}
		if want := []string{"default/j4", "default/j3", "default/j2", "default/j1", "default/j0"}; !slices.Equal(objects, want) {
			e.Errorf("got %v, want %v", objects, want)
		}
	}},
	{"hints come for changes and cancels, name their subject, and end with their context", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx)
		hints := e.Hints(ctx)
		comes := func(kind store.Hint, about job.ID) {
			e.Helper()
			for late := time.After(2 * time.Minute); ; {
				select {
				case h := <-hints:
					if h&kind != 0 && h.MayConcern(about) {
						return
					}
				case <-late:
					e.Errorf("no hint %b about %s came", kind, about)
					return
				}
			}
		}
		j := e.put("name: a")
		comes(store.HintJobs, j.Definition.UID)
		other := e.put("name: b")
		comes(store.HintJobs, other.Definition.UID)
		a := e.trigger(j)
		e.claim(e.a, a, store.Started)
		_, err := e.Cancel(e.ctx, a.Run, "ann", "")
		e.must(err)
		comes(store.HintCancels, a.Run)
		cancel()
		for range hints { // it must close for the test to end
		}
	}},
}
