package storetest

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// window puts a window of an hour that opens now.
func (e *env) window(action job.WindowAction, change ...func(*job.Window)) job.Document {
	e.Helper()
	w := &job.Window{
		Name: "w", Description: "upgrade", Match: job.WindowMatch{Labels: map[string]string{"team": "db"}},
		Schedule: job.Schedule{At: []time.Time{e.now()}}, For: job.Duration(time.Hour), Action: action,
	}
	for _, c := range change {
		c(w)
	}
	d, err := e.PutDocument(e.ctx, job.Document{Window: w}, store.AnyVersion, "ann")
	e.must(err)
	return d
}

const matched = "\nlabels: {team: db}"

// passAlive advances the clock with the node alive.
func (e *env) passAlive(d time.Duration) { e.pass(d, e.a) }

var windowTests = []test{
	{"a window that skips ends the occurrences of its jobs alone, and names itself and its end", func(e *env) {
		in := e.plan(e.put(everyMinute+matched), time.Second)[0]
		out := e.plan(e.put("name: b\nschedule: {cron: '* * * * *'}\nlabels: {team: web}"), time.Second)[0]
		e.window(job.WindowSkip)
		until := e.now().Add(time.Hour)
		e.clock.Advance(time.Second)
		why := e.claim(e.a, in, store.Skipped).Reason
		equal(e, "reason", why, reason.InWindow.Of("default/w", until, job.Text("upgrade")))
		e.gone(in.Run, job.OutcomeSkipped)
		e.claim(e.a, out, store.Started)
	}},
	{"a window reaches the namespaces that it names", func(e *env) {
		j := e.put("namespace: shop\n" + everyMinute + matched)
		runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
		e.clock.Advance(3 * time.Second)
		e.window(job.WindowSkip, func(w *job.Window) { w.Match.Namespaces = []string{"shop"} })
		e.claim(e.a, runs[0], store.Skipped)
		e.window(job.WindowSkip, func(w *job.Window) { w.Match.Namespaces = []string{job.AllNamespaces} })
		e.claim(e.a, runs[1], store.Skipped)
		e.window(job.WindowSkip)
		e.claim(e.a, runs[2], store.Started)
	}},
	{"a window holds the latest occurrence until its end, though late_by is shorter", func(e *env) {
		j := e.put(everyMinute + matched + "\npolicy: {late_by: 1m}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.window("")
		until := e.now().Add(time.Hour)
		due := e.now().Add(2 * time.Second)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[0], store.Waiting)
		e.claim(e.a, runs[1], store.Waiting)
		e.gone(runs[0].Run, job.OutcomeSkipped)
		r := e.run(runs[1].Run)
		if r.State != job.StateReady || !r.Due.Equal(until) || !r.FirstDue.Equal(due) || !r.IsPostponed() || !reason.InWindow.Is(r.Reason) {
			e.Errorf("the held run is %+v", r)
		}
		e.passAlive(time.Hour)
		e.tidy()
		runs[1].Token = e.id()
		e.claim(e.a, runs[1], store.Started)
		e.finish(runs[1], job.OutcomeSucceeded)
	}},
	{"occurrences held by a window follow the policy for missed ones", func(e *env) {
		for policy, want := range map[string][]store.Verdict{
			"missed: none":                 {store.Skipped, store.Skipped, store.Skipped},
			"missed: all":                  {store.Waiting, store.Waiting, store.Waiting},
			"missed: all, missed_limit: 2": {store.Waiting, store.Waiting, store.Skipped},
		} {
			j := e.put("name: " + fmt.Sprintf("j%d", len(policy)) + "\nschedule: {cron: '* * * * *'}\npolicy: {" + policy + "}" + matched)
			runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
			e.window(job.WindowHold)
			e.clock.Advance(3 * time.Second)
			for i, a := range runs {
				e.claim(e.a, a, want[i])
				if want[i] == store.Skipped {
					e.gone(a.Run, job.OutcomeSkipped)
				}
			}
			e.must(e.DeleteDocument(e.ctx, job.KindWindow, "default/w", store.AnyVersion, "ann"))
			started := 0
			for i, a := range runs {
				if a.Token = e.id(); want[i] == store.Waiting {
					if started++; started == 1 {
						e.claim(e.a, a, store.Started)
					} else {
						e.claim(e.a, a, store.Waiting) // for the slot: none of them is skipped
					}
				}
			}
		}
	}},
	{"a changed, closed or deleted window frees the runs that it holds at once", func(e *env) {
		for name, change := range map[string]func(){
			"shorter": func() {
				e.window("", func(w *job.Window) { w.Schedule.At[0] = e.now().Add(-time.Minute); w.For = job.Duration(time.Second) })
			},
			"closed": func() {
				e.window("", func(w *job.Window) { w.Schedule.At[0] = e.now().Add(-time.Minute); w.Closed = e.now() })
			},
			"others":  func() { e.window("", func(w *job.Window) { w.Match.Labels = map[string]string{"team": "web"} }) },
			"deleted": func() { e.must(e.DeleteDocument(e.ctx, job.KindWindow, "default/w", store.AnyVersion, "ann")) },
		} {
			a := e.plan(e.put("name: "+name+"\nschedule: {cron: '* * * * *'}"+matched), time.Second)[0]
			e.window("")
			e.clock.Advance(time.Second)
			e.claim(e.a, a, store.Waiting)
			e.passAlive(time.Minute)
			change()
			if r := e.run(a.Run); r.Due.After(e.now()) {
				e.Errorf("%s: the run is due at %s, not now", name, r.Due)
			}
			a.Token = e.id()
			e.claim(e.a, a, store.Started)
		}
	}},
	{"a window that was changed and is still open holds on", func(e *env) {
		a := e.plan(e.put(everyMinute+matched), time.Second)[0]
		e.window("")
		e.clock.Advance(time.Second)
		e.claim(e.a, a, store.Waiting)
		e.window("", func(w *job.Window) { w.For = job.Duration(2 * time.Hour) })
		until := e.now().Add(2 * time.Hour)
		e.claim(e.a, a, store.Waiting)
		equal(e, "due", e.run(a.Run).Due.Equal(until), true)
	}},
	{"a window lets runs by hand and begun runs pass, and holds requested runs and retries", func(e *env) {
		j := e.put(everyMinute + matched + "\npolicy: {retry: {attempts: 1, backoff: 1s}}")
		begun := e.plan(j, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, begun, store.Started)
		e.window(job.WindowSkip)
		e.finish(begun, job.OutcomeFailed)
		e.clock.Advance(2 * time.Second)
		retry := store.Attempt{Job: begun.Job, Run: begun.Run, Number: 2, Token: e.id()}
		e.claim(e.a, retry, store.Waiting)
		back := e.triggered(store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunBackfill, Key: "k", Scheduled: e.now().Add(-time.Hour), Session: e.a.ID, Actor: "ann", Overlap: job.OverlapAllow})
		e.claim(e.a, back, store.Waiting)
		hand := e.trigger(j)
		e.claim(e.a, hand, store.Started)
		e.finish(hand, job.OutcomeSucceeded)
		e.passAlive(time.Hour)
		retry.Token, back.Token = e.id(), e.id()
		e.claim(e.a, retry, store.Started)
		e.finish(retry, job.OutcomeSucceeded)
		e.claim(e.a, back, store.Started)
	}},
	{"a window reaches followers, and not what others start and report", func(e *env) {
		up := e.put("name: up\nrun: {shell: ls}")
		down := e.put("name: down\nschedule: {on: up}\nrun: {shell: ls}" + matched)
		seen := e.plan(e.put("name: seen\nschedule: {cron: '* * * * *'}\nrun: {external: {}}"+matched), time.Second)[0]
		e.window(job.WindowSkip)
		e.clock.Advance(time.Second)
		first := e.trigger(up)
		e.claim(e.a, first, store.Started)
		e.finish(first, job.OutcomeSucceeded)
		list, err := e.ListActive(e.ctx, store.ActiveQuery{Job: down.Definition.UID, Limit: 2})
		e.must(err)
		equal(e, "followers", len(list), 1)
		follower := list[0].Present()
		follower.Token = e.id()
		e.claim(e.a, follower, store.Skipped)
		if r := e.run(seen.Run); r.State != job.StateWaiting || !reason.NoReport.Is(r.Reason) {
			e.Errorf("what others start is %s: %s", r.State, r.Reason)
		}
	}},
	{"a window opens by its calendar, which it keeps from deletion", func(e *env) {
		_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{start.Format(time.DateOnly)}}}}, store.AnyVersion, "ann")
		e.must(err)
		runs := e.plan(e.put(everyMinute+matched), time.Second, 2*time.Second)
		e.window(job.WindowSkip, func(w *job.Window) {
			w.Schedule = job.Schedule{Cron: []string{"0 0 * * *"}, Only: []string{"off"}}
			w.For = job.Duration(24 * time.Hour)
		})
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[0], store.Skipped)
		err = e.DeleteDocument(e.ctx, job.KindCalendar, "default/off", store.AnyVersion, "ann")
		if err == nil {
			e.Error("the calendar of a window was deleted")
		}
		_, err = e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{"2020-01-01"}}}}, store.AnyVersion, "ann")
		e.must(err)
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[1], store.Started)
	}},
	{"a window frees more runs than one step changes", func(e *env) {
		const n = store.MaxBatch + 20
		var list []store.PutJob
		for i := range n {
			list = append(list, store.PutJob{Definition: e.document(fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}%s", i, matched)), IfVersion: store.AnyVersion, Actor: "ann"})
		}
		var runs []store.Attempt
		for len(list) > 0 {
			some := list[:min(len(list), store.PutMax)]
			list = list[len(some):]
			jobs, err := e.PutJobs(e.ctx, some)
			e.must(err)
			for _, j := range jobs {
				runs = append(runs, e.plan(j, time.Second)[0])
			}
		}
		e.window("")
		e.clock.Advance(time.Second)
		for left := runs; len(left) > 0; {
			some := left[:min(len(left), store.MaxBatch)]
			left = left[len(some):]
			_, err := e.Claim(e.ctx, e.a.ID, some)
			e.must(err)
		}
		e.window("", func(w *job.Window) { w.Closed = e.now() })
		for _, a := range runs {
			if r := e.run(a.Run); r.Due.After(e.now()) {
				e.Fatalf("a run of %s is held until %s", r.Name, r.Due)
			}
		}
	}},
}
