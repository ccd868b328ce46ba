package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// stopped lets the only node stop, gently or without a word.
func (e *env) stopped(gently bool) {
	e.Helper()
	if gently {
		e.must(e.Leave(e.ctx, e.a.ID))
		e.must(e.End(e.ctx, e.a.ID))
	}
}

var absenceTests = []test{
	{"accounted: runs planned ahead that fell due in an absence follow missed", func(e *env) {
		for i, c := range []struct {
			missed, want string
			next         time.Duration // until the occurrence after the last planned one; 0 for none
		}{
			{"none", "late late late", 0},
			{"none", "late late late", 110 * time.Second}, // not due yet when the node returns
			{"latest", "late late started", 0},
			{"latest", "late late late", 8 * time.Second},
			{"latest", "late late late", 80 * time.Second}, // the next one had fallen due, and is on time
			{"latest", "late late started", 110 * time.Second},
			{"all", "started started started", 8 * time.Second},
		} {
			for _, gently := range []bool{true, false} {
				j := e.put(fmt.Sprintf("name: j%d-%t\nschedule: {cron: '* * * * *'}\npolicy: {missed: %s, overlap: allow}", i, gently, c.missed))
				at := func(d time.Duration) time.Time { return e.now().Add(d) }
				item := e.planItem(j, at(time.Second), at(2*time.Second), at(3*time.Second))
				item.Runs[0].NextDue, item.Runs[1].NextDue = at(2*time.Second), at(3*time.Second)
				if c.next > 0 {
					item.Runs[2].NextDue = at(c.next)
				}
				e.planned(item, store.Planned)
				e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
				from := e.now()
				e.stopped(gently)
				e.clock.Advance(100 * time.Second)
				e.a = e.join("a")
				words := fmt.Sprintf("no node was running from %s to %s, and the missed policy is %s", from.Format(time.RFC3339), e.now().Format(time.RFC3339), c.missed)
				var got []string
				for _, r := range item.Runs {
					out, err := e.Claim(e.ctx, e.a.ID, []store.Attempt{{Run: r.ID, Number: 1, Token: e.id()}})
					e.must(err)
					got = append(got, verdicts[out[0].Verdict])
					if out[0].Verdict == store.Started {
						e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{{Run: r.ID, Number: 1, Token: out[0].Run.Token}}))
					} else {
						contains(e, "reason", e.gone(r.ID, job.OutcomeMissed).Attempt.Reason.String(), words)
					}
				}
				equal(e, fmt.Sprintf("%s, gently: %t", c.missed, gently), strings.Join(got, " "), c.want)
			}
		}
	}},
	{"of the last 30 s of an absence only the latest occurrence is on time", func(e *env) {
		for _, missed := range []string{"none", "latest"} {
			j := e.put("name: " + missed + "\nschedule: {cron: '* * * * *'}\npolicy: {overlap: allow, missed: " + missed + "}")
			at := func(d time.Duration) time.Time { return e.now().Add(d) }
			item := e.planItem(j, at(5*time.Second), at(10*time.Second), at(15*time.Second))
			for i := range item.Runs {
				item.Runs[i].NextDue = item.Runs[i].Due.Add(5 * time.Second)
			}
			e.planned(item, store.Planned)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			e.stopped(true)
			e.clock.Advance(18 * time.Second)
			e.a = e.join("a")
			var last store.Attempt
			for i, want := range []store.Verdict{store.Late, store.Late, store.Started} {
				last = store.Attempt{Job: j.Definition.UID, Run: item.Runs[i].ID, Number: 1, Token: e.id()}
				e.claim(e.a, last, want)
			}
			e.finish(last, job.OutcomeSucceeded)
		}
	}},
	{"what follows from an outage of the store names it", func(e *env) {
		j := e.put("name: j\nschedule: {cron: '* * * * * *'}\npolicy: {overlap: skip, missed: latest}")
		runs := e.plan(j, 5*time.Second, 6*time.Second, 13*time.Second)
		from := e.now()
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.clock.Advance(12 * time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		to := e.now()
		e.claim(e.a, runs[0], store.Started)
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[1], store.Skipped) // due during the outage
		e.claim(e.a, runs[2], store.Skipped) // behind a skipped one
		e.clock.Advance(40 * time.Second)
		runs = append(runs, e.plan(j, 5*time.Second)...)
		e.clock.Advance(6 * time.Second)
		e.claim(e.a, runs[3], store.Skipped)
		outage := fmt.Sprintf("; node a did not reach the store from %s to %s", from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
		for i, want := range []bool{true, true, false} {
			r := e.record(runs[i+1].Run)
			if got := strings.Contains(r.Attempt.Reason.String(), outage); got != want {
				e.Errorf("run %d: %q names the outage %q: %t", i+1, r.Attempt.Reason, outage, got)
			}
		}
	}},
	{"occurrences of an absence wait for their turn", func(e *env) {
		j := e.put("name: j\nschedule: {cron: '* * * * *'}\npolicy: {missed: all}")
		runs := e.plan(j, 5*time.Second, 11*time.Second, 12*time.Second)
		e.stopped(true)
		e.clock.Advance(40 * time.Second)
		e.a = e.join("a")
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Waiting)
		e.claim(e.a, runs[2], store.Waiting)
		e.finish(runs[0], job.OutcomeSucceeded)
		e.claim(e.a, runs[1], store.Started)
	}},
	{"occurrences caught up by a resume run regardless of the policy for absences", func(e *env) {
		text := "name: j\nschedule: {cron: '* * * * *'}\npolicy: {missed: none}"
		e.put(text + "\npaused: true")
		e.stopped(true)
		e.clock.Advance(10 * time.Minute)
		e.a = e.join("a")
		j := e.putJob(store.PutJob{Definition: e.document(text), IfVersion: store.AnyVersion, Actor: "ann", CatchUp: job.MissedLatest})
		runs := e.active(j)
		equal(e, "runs", len(runs), 1)
		e.clock.Advance(time.Minute)
		e.claim(e.a, store.Attempt{Run: runs[0].ID, Number: 1, Token: e.id()}, store.Started)
	}},
	{"each session knows the absences of all nodes before it", func(e *env) {
		absences := func(s store.Session) string {
			var list []string
			for _, a := range s.Absences {
				list = append(list, fmt.Sprintf("%s to %s", a.From.Sub(start), a.To.Sub(start)))
			}
			return strings.Join(list, ", ")
		}
		equal(e, "of the first", absences(e.a), "")
		e.clock.Advance(time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		b := e.join("b")
		equal(e, "of one that is not alone", absences(b), "")
		e.must(e.End(e.ctx, b.ID))
		e.clock.Advance(time.Second)
		e.must(e.Leave(e.ctx, e.a.ID)) // start of the absence
		e.clock.Advance(3 * time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.must(e.End(e.ctx, e.a.ID))
		e.want(e.Renew(e.ctx, e.a.ID, store.Load{}), store.ErrSessionOver)
		list, err := e.Sessions(e.ctx)
		e.must(err)
		equal(e, "sessions of nodes that have stopped", len(list), 0)
		e.clock.Advance(time.Hour)
		api := e.joinAs("api", store.RoleAPI)
		equal(e, "of one that runs nothing", absences(api), "")
		c := e.join("c")
		equal(e, "of the one that is back", absences(c), "2s to 1h0m5s")
		equal(e, "predecessors", len(c.Predecessors), 0)
		equal(e, "of the next one", absences(e.join("d")), "2s to 1h0m5s")
		e.clock.Advance(time.Minute) // all are silent
		e.a = e.join("a")
		equal(e, "of the one after that", absences(e.a), "2s to 1h0m5s, 1h0m5s to 1h1m5s")
		list, err = e.Sessions(e.ctx)
		e.must(err)
		i := slices.IndexFunc(list, func(s store.Session) bool { return s.ID == e.a.ID })
		equal(e, "in the list", absences(list[i]), absences(e.a))
	}},

	{"accounted: an occurrence of the old and the new schedule runs once if it was claimed early", func(e *env) {
		for i, c := range []struct {
			changed string // schedule
			want    string // expected epochs of its runs after the edit, by due time
			cursor  time.Duration
		}{
			{"cron: '* * * * *', timezone: Asia/Kolkata", "running 1:00 2", 60 * time.Second},
			{"cron: '*/2 * * * *'", "running 1:00 1", 58500 * time.Millisecond},
			{"cron: '* * * * * *'", "ready 0:59 2, running 1:00 2", 60 * time.Second},
		} {
			e.clock.Advance(start.Add(58500 * time.Millisecond).Sub(e.now()))
			text := fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\npolicy: {overlap: allow}", i)
			j := e.put(text)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			a := e.plan(j, 1500*time.Millisecond)[0]
			e.claim(e.a, a, store.Started)
			j = e.put(strings.Replace(text, "cron: '* * * * *'", c.changed, 1))
			sameTime(e, c.changed+": cursor", j.Cursor, start.Add(c.cursor))
			runs := func() string {
				var list []string
				for _, r := range e.active(j) {
					list = append(list, fmt.Sprintf("%s %s %d", r.State, strings.TrimPrefix(r.Scheduled.Format("15:4:05"), "12:"), r.Epoch))
				}
				return strings.Join(list, ", ")
			}
			equal(e, c.changed, runs(), c.want)
			e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a}))
			if i == 1 {
				contains(e, "reason", e.gone(a.Run, job.OutcomeWithdrawn).Attempt.Reason.String(), "the schedule of the job was changed by ann")
				continue
			}
			equal(e, c.changed+", given back", runs(), strings.Replace(c.want, "running", "ready", 1))
			a.Token = e.id()
			again := e.claim(e.a, a, store.Started)
			equal(e, "version", again.Run.Version, 2)
		}
	}},
	{"accounted: a released early claim falls due again after a pause and a resume", func(e *env) {
		for _, c := range []struct{ released, caughtUp, due bool }{{released: true}, {}, {released: true, caughtUp: true}, {due: true}} {
			name := fmt.Sprintf("j%t%t%t", c.released, c.caughtUp, c.due)
			e.clock.Advance(e.now().Truncate(time.Minute).Add(time.Minute + 59*time.Second).Sub(e.now()))
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			text := "name: " + name + "\nschedule: {cron: '* * * * *'}\npolicy: {overlap: allow}"
			j := e.put(text)
			a := e.plan(j, time.Second)[0]
			at := e.now().Add(time.Second)
			e.claim(e.a, a, store.Started)
			if c.due {
				e.clock.Advance(time.Second)
			}
			paused := e.now()
			e.put(text + "\npaused: true")
			if c.released {
				e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a}))
				contains(e, "reason", e.gone(a.Run, job.OutcomeWithdrawn).Attempt.Reason.String(), "the job was paused")
			}
			resume := store.PutJob{Definition: e.document(text), IfVersion: store.AnyVersion, Actor: "ann"}
			if c.caughtUp {
				resume.CatchUp = job.MissedAll
				e.clock.Advance(5 * time.Second)
			}
			j = e.putJob(resume)
			runs := e.active(j)
			switch {
			case c.caughtUp:
				equal(e, "runs that are caught up", len(runs), 1)
				sameTime(e, "caught up", runs[0].Scheduled, at)
			case c.released:
				sameTime(e, "cursor", j.Cursor, paused)
				equal(e, "runs", len(runs), 0)
			case c.due: // it runs
				sameTime(e, "cursor behind what runs", j.Cursor, at)
				equal(e, "epoch of what runs", runs[0].Epoch, 1)
			default: // it is returned to the new epoch
				sameTime(e, "cursor behind what is claimed", j.Cursor, at)
				e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a}))
				equal(e, "state", e.run(a.Run).State, job.StateReady)
				equal(e, "epoch", e.run(a.Run).Epoch, 3)
			}
		}
	}},
	{"accounted: each of several released early claims returns its instant", func(e *env) {
		for i, order := range [][]int{{0, 1}, {1, 0}} {
			text := fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * * *'}\npolicy: {overlap: allow}", i)
			j := e.put(text)
			begun := j.Cursor
			runs := e.plan(j, time.Second, 2*time.Second)
			e.claim(e.a, runs[0], store.Started)
			e.claim(e.a, runs[1], store.Started)
			e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{runs[order[0]], runs[order[1]]}))
			sameTime(e, "cursor", e.put(text+"\npaused: true").Cursor, begun)
			sameTime(e, "cursor", e.put(text).Cursor, begun)
		}
	}},
	{"an epoch says why it began", func(e *env) {
		_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{"2020-12-25"}}}}, 0, "ann")
		e.must(err)
		text := "name: j\nschedule: {cron: '* * * * *', except: [off]"
		withdrawn := func(want string, change func()) {
			e.Helper()
			j := e.put(text + "}")
			a := e.plan(j, 5*time.Second)[0]
			change()
			e.tidy()
			equal(e, "reason", e.gone(a.Run, job.OutcomeWithdrawn).Attempt.Reason.String(), want)
			e.clock.Advance(time.Minute)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		}
		off := func(day string, version int64) {
			_, err := e.PutDocument(e.ctx, job.Document{Calendar: &job.Calendar{Name: "off", Days: job.Days{Include: []string{day}}}}, version, "bob")
			e.must(err)
		}
		withdrawn("the schedule of the job was changed by ann", func() { e.put(text + ", jitter: 1s}") })
		withdrawn("calendar default/off was changed by bob", func() { off("2020-12-26", 1) })
		withdrawn("the job was paused and resumed by ann", func() {
			e.put(text + "}\npaused: true")
			e.put(text + "}")
		})
		withdrawn("the job was rescheduled 2 times after the run was planned, the last time because calendar default/off was changed by bob", func() {
			e.put(text + ", jitter: 1s}")
			off("2020-12-27", 2)
		})
	}},
	{"records of further attempts say when the first one started", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {retry: {attempts: 2, backoff: 5s}}")
		a := e.plan(j, time.Second)[0]
		e.claim(e.a, a, store.Started) // ahead of time: it starts when due
		for range 3 {
			e.clock.Advance(10 * time.Second)
			e.finish(a, job.OutcomeFailed)
			a.Number, a.Token = a.Number+1, e.id()
			e.clock.Advance(time.Minute)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			if a.Number <= 3 {
				e.claim(e.a, a, store.Started)
			}
		}
		for i, r := range e.attempts(a.Run) {
			want := start.Add(time.Second)
			if i == 0 {
				want = time.Time{}
			}
			sameTime(e, fmt.Sprintf("attempt %d", i+1), r.Begun, want)
		}
	}},
	{"records say when the attempt was claimed, and which slot the run needed", func(e *env) {
		own := e.put(everyMinute)
		shared := e.put("name: pooled\nschedule: {cron: '* * * * *'}\npolicy: {concurrency_key: db}")
		for _, tt := range []struct {
			j    *store.Job
			slot string
		}{{own, own.Definition.UID.String()}, {shared, "pool default/db"}} {
			a := e.plan(tt.j, time.Second)[0]
			claimed := e.now()
			e.claim(e.a, a, store.Started)
			e.clock.Advance(5 * time.Second)
			e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			e.finish(a, job.OutcomeSucceeded)
			r := e.gone(a.Run, job.OutcomeSucceeded)
			sameTime(e, "claimed", r.Claimed, claimed)
			equal(e, "slot", r.Slot, tt.slot)
		}
		a := e.plan(own, 10*time.Second)[0]
		_, err := e.Cancel(e.ctx, a.Run, "ann", "")
		e.must(err)
		sameTime(e, "claimed, of one that never was", e.gone(a.Run, job.OutcomeCancelled).Claimed, time.Time{})
	}},
}
