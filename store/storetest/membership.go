package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// startsEach is how many attempts each of some writers starts while their session is renewed.
const startsEach = 50

var membershipTests = []test{
	{"a session keeps its description", func(e *env) {
		s, err := e.Join(e.ctx, store.Session{
			ID: e.id(), Node: "b", Machine: "m/boot", DataDir: "/d", Roles: []string{store.RoleWorker, store.RoleAPI}, Labels: map[string]string{"zone": "a"},
			Handlers: []string{"h"}, Capacity: 4, Version: "1.0", Zones: "2026a", Address: "http://b",
		})
		e.must(err)
		sameTime(e, "joined", s.Joined, start)
		again, err := e.Join(e.ctx, s) // its answer was lost
		e.must(err)
		equal(e, "predecessors of a repeated join", len(again.Predecessors), 0)
		e.clock.Advance(time.Second)
		e.must(e.Renew(e.ctx, s.ID, store.Load{Running: 3, Ready: 2, Unreported: 1, ClockAhead: -1500 * time.Millisecond}))
		list, err := e.Sessions(e.ctx)
		e.must(err)
		equal(e, "sessions", len(list), 2)
		for _, got := range list {
			if got.ID != s.ID {
				continue
			}
			equal(e, "node", got.Node, "b")
			equal(e, "machine", got.Machine+got.DataDir, "m/boot/d")
			equal(e, "role", got.Roles[1], "api")
			equal(e, "label", got.Labels["zone"], "a")
			equal(e, "handler", got.Handlers[0], "h")
			equal(e, "capacity", got.Capacity, 4)
			equal(e, "rest", got.Version+got.Zones+got.Address, "1.02026ahttp://b")
			equal(e, "load", got.Load, store.Load{Running: 3, Ready: 2, Unreported: 1, ClockAhead: -1500 * time.Millisecond})
			sameTime(e, "joined", got.Joined, start)
			sameTime(e, "renewed", got.Renewed, start.Add(time.Second))
		}
	}},
	{"attempts that start while their session is renewed are on its node", func(e *env) {
		j := e.put("name: x\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}\npolicy: {overlap: allow}")
		var starting sync.WaitGroup
		for range 4 {
			starting.Go(func() {
				for range startsEach {
					item := store.TriggerItem{ID: e.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: e.id().String(), Session: e.a.ID, Actor: "ann"}
					if _, err := e.Trigger(e.ctx, []store.TriggerItem{item}); err != nil {
						e.Errorf("trigger: %v", err)
						return
					}
					if _, err := e.Claim(e.ctx, e.a.ID, []store.Attempt{{Job: item.Job, Run: item.ID, Number: 1, Token: e.id()}}); err != nil {
						e.Errorf("claim: %v", err)
						return
					}
					if r, err := store.ActiveRun(e.ctx, e, item.ID); err != nil || r.State != job.StateRunning || r.Node != "a" {
						e.Errorf("run %+v, error %v", r.Run, err)
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { starting.Wait(); close(done) }()
		for !e.Failed() {
			select {
			case <-done:
				return
			default:
				e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
			}
		}
		<-done
	}},
	{"a process that executes another version describes its session anew and keeps its attempts", func(e *env) {
		a := e.plan(e.put(everyMinute), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.clock.Advance(time.Second)
		_, err := e.Sessions(e.ctx) // fills a cache, if there is one
		e.must(err)
		next := e.a
		next.Version, next.Labels, next.Roles, next.Capacity, next.Address = "2.0", map[string]string{"zone": "b"}, []string{store.RoleWorker}, 3, "http://new"
		joined, err := e.Join(e.ctx, next)
		e.must(err)
		if since := joined.Joined.Sub(e.a.Joined); since <= 0 || since > time.Millisecond {
			e.Errorf("the session began %s later, want a trace later so that caches notice", since)
		}
		list, err := e.Sessions(e.ctx)
		e.must(err)
		equal(e, "sessions", len(list), 1)
		got := list[0]
		equal(e, "description", fmt.Sprint(got.Version, got.Labels["zone"], got.Roles, got.Capacity, got.Address), "2.0b[worker] 3http://new")
		sameTime(e, "renewed", got.Renewed, e.clock.Now())
		mine, err := store.RunsOn(e.ctx, e, e.a.ID)
		e.must(err)
		if len(mine) != 1 || mine[0].Present() != a {
			e.Errorf("the session runs %+v, want %+v", mine, a)
		}
		e.finish(a, job.OutcomeSucceeded)
	}},
	{"a process cannot continue an ended, leaving or succeeded session", func(e *env) {
		b, c := e.join("b"), e.join("c")
		e.must(e.Leave(e.ctx, b.ID))
		_, err := e.Join(e.ctx, b)
		e.want(err, store.ErrSessionOver)
		later := c
		later.ID = e.id()
		_, err = e.Join(e.ctx, later)
		e.must(err)
		_, err = e.Join(e.ctx, c)
		e.want(err, store.ErrSessionOver)
		a := e.plan(e.put(everyMinute+"\npolicy: {lost_after: 10s}"), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.pass(time.Minute, later)
		e.must(e.Reap(e.ctx, later.ID, []store.Attempt{a}))
		_, err = e.Join(e.ctx, e.a)
		e.want(err, store.ErrSessionOver)
	}},
	{"a silent session may continue until something of it is reaped", func(e *env) {
		e.clock.Advance(time.Minute)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.want(e.Renew(e.ctx, e.id(), store.Load{}), store.ErrSessionOver)
	}},
	{"a leaving session hands on its ready runs and continues until its end", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow}")
		runs := e.plan(j, time.Second, 2*time.Second)
		e.claim(e.a, runs[0], store.Started)
		for range 2 {
			e.must(e.Leave(e.ctx, e.a.ID))
		}
		list, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
		e.must(err)
		if len(list) != 1 || list[0].ID != runs[1].Run {
			e.Errorf("unplaced: %+v", list)
		}
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{Running: 1}))
		e.want(e.End(e.ctx, e.a.ID), store.ErrConflict)
		e.finish(runs[0], job.OutcomeSucceeded)
		count := func(want int) {
			e.Helper()
			sessions, err := e.Sessions(e.ctx)
			e.must(err)
			equal(e, "sessions", len(sessions), want)
		}
		count(1)
		for range 2 {
			e.must(e.End(e.ctx, e.a.ID))
		}
		count(0)
		e.want(e.Renew(e.ctx, e.a.ID, store.Load{}), store.ErrSessionOver)
	}},
	{"a run planned for a leaving node has no node", func(e *env) {
		b := e.join("b")
		e.must(e.Leave(e.ctx, b.ID))
		j := e.put(everyMinute)
		at := e.clock.Now().Add(time.Second).Truncate(time.Second)
		run := store.NewRun{ID: e.id(), Session: b.ID, Scheduled: at, Due: at}
		out, _, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{{Job: j.Definition.UID, Epoch: 1, From: j.Cursor, To: at, Runs: []store.NewRun{run}}})
		e.must(err)
		equal(e, "outcome", out[0], store.Planned)
		equal(e, "session", e.run(run.ID).Session, job.ID{})
	}},
	{"runs released by a leaving node are placed again", func(e *env) {
		a := e.plan(e.put(everyMinute), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.must(e.Leave(e.ctx, e.a.ID))
		e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a}))
		equal(e, "session", e.run(a.Run).Session, job.ID{})
	}},
	{"a session silent for long is evicted unless it runs something", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {lost_after: 7d}"), time.Second)[0]
		b := e.join("b")
		e.claim(e.a, a, store.Started)
		c := e.join("c")
		e.pass(store.SilenceMax+time.Second, c)
		e.tidy()
		list, err := e.Sessions(e.ctx)
		e.must(err)
		if len(list) != 2 || slices.ContainsFunc(list, func(s store.Session) bool { return s.ID == b.ID }) {
			e.Errorf("sessions: %+v", list)
		}
		e.want(e.Renew(e.ctx, b.ID, store.Load{}), store.ErrSessionOver)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
	}},
	{"a node knows its predecessor by the form that machines had before", func(e *env) {
		join := func(node, machine, dir string) store.Session {
			s, err := e.Join(e.ctx, store.Session{ID: e.id(), Node: node, Machine: machine, DataDir: dir, Roles: []string{store.RoleWorker}})
			e.must(err)
			return s
		}
		old := join("n", "boot-1", "/data")
		join("other", "boot-1", "/data")
		join("n", "boot-2", "/data")
		join("n", "boot-1", "/elsewhere")
		next := join("n", "boot-1/2049/17", "/data")
		if len(next.Predecessors) != 1 || next.Predecessors[0] != old.ID {
			e.Errorf("predecessors: %v, want %s", next.Predecessors, old.ID)
		}
		list, err := e.Sessions(e.ctx)
		e.must(err)
		for _, s := range list {
			if s.Leaving != (s.ID == old.ID) {
				e.Errorf("the session of %s on %s leaves: %t", s.Node, s.Machine, s.Leaving)
			}
		}
	}},
	{"an outage of the store does not count as silence", func(e *env) {
		b := e.join("b")
		job1 := e.put(everyMinute + "\npolicy: {lost_after: 30s}")
		all := e.put("name: all\nschedule: {cron: '* * * * *'}\nplace: {strategy: broadcast}\npolicy: {lost_after: 30s, late_by: forever}")
		item := e.planItem(all, start.Add(time.Second))
		e.planned(item, store.Planned)
		running := e.plan(job1, time.Second)[0]
		e.clock.Advance(time.Second)
		e.claim(e.a, running, store.Started)
		seen := func(lost, unplaced int) {
			e.Helper()
			list, err := e.Lost(e.ctx, 10)
			e.must(err)
			equal(e, "lost", len(list), lost)
			runs, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
			e.must(err)
			equal(e, "unplaced", len(runs), unplaced)
		}
		e.clock.Advance(75 * time.Second)
		seen(0, 1) // no session proves that the store was reachable
		e.tidy()
		e.must(e.Renew(e.ctx, b.ID, store.Load{}))
		seen(0, 0)
		e.tidy()
		e.must(e.Reap(e.ctx, b.ID, []store.Attempt{running}))
		equal(e, "broadcast", e.run(item.Runs[0].ID).State, job.StateReady)
		equal(e, "running", e.run(running.Run).State, job.StateRunning)
		e.pass(store.SessionLife, b) // a renewed a second before the store went away
		seen(0, 1)
		e.tidy()
		e.run(item.Runs[0].ID)
		e.pass(25*time.Second, b)
		e.tidy()
		e.gone(item.Runs[0].ID, job.OutcomeMissed)
		seen(1, 0)
	}},
	{"a drained node receives no runs and finishes its own", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {overlap: allow, retry: {attempts: 2, backoff: 1s}}")
		runs := e.plan(j, time.Second, 2*time.Second, 3*time.Second)
		e.clock.Advance(time.Second)
		e.claim(e.a, runs[0], store.Started)
		e.claim(e.a, runs[1], store.Started)
		for range 2 {
			e.must(e.Drain(e.ctx, store.DrainNode{Node: "a", Actor: "ann", Reason: "a new disk"}))
		}
		equal(e, "audit", e.actions()[0], "ann node.drain a")
		equal(e, "audited once", strings.Count(strings.Join(e.actions(), " "), "node.drain"), 1)
		audit, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 1})
		e.must(err)
		contains(e, "the reason in the audit", audit[0].Detail.String(), "a new disk")
		list, err := e.Unplaced(e.ctx, store.RunRef{}, 10)
		e.must(err)
		if len(list) != 1 || list[0].ID != runs[2].Run {
			e.Errorf("unplaced: %+v", list)
		}
		e.must(e.Place(e.ctx, []store.Placement{{Job: runs[2].Job, Run: runs[2].Run, Attempt: 1, Session: e.a.ID}}))
		equal(e, "session of a run that was placed on it", e.run(runs[2].Run).Session, job.ID{})
		e.clock.Advance(2 * time.Second)
		e.claim(e.a, runs[2], store.Taken)
		hand := e.trigger(j) // placed on it by a planner with older data
		equal(e, "session of a run by hand", e.run(hand.Run).Session, job.ID{})
		e.claim(e.a, hand, store.Taken)
		e.must(e.Release(e.ctx, e.a.ID, runs[1:2]))
		equal(e, "session of what was given back", e.run(runs[1].Run).Session, job.ID{})
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{Running: 1}))
		e.finish(runs[0], job.OutcomeFailed)
		equal(e, "session of the next attempt", e.run(runs[0].Run).Session, job.ID{})

		b := e.join("b")
		e.claim(b, hand, store.Started)
		for range 2 {
			e.must(e.Drain(e.ctx, store.DrainNode{Node: "a", Undo: true, Actor: "bob"}))
		}
		equal(e, "audit", e.actions()[0], "bob node.undrain a")
		e.claim(e.a, runs[2], store.Started)
	}},
	{"a node is drained by its name until that is undone", func(e *env) {
		e.want(e.Drain(e.ctx, store.DrainNode{Node: "b", Actor: "ann"}), store.ErrNotFound)
		e.want(e.Drain(e.ctx, store.DrainNode{Node: "b", Undo: true, Actor: "ann"}), store.ErrNotFound)
		e.must(e.Drain(e.ctx, store.DrainNode{Node: "a", Actor: "ann", Reason: "a new disk"}))
		again := e.join("a")
		list, err := e.Sessions(e.ctx)
		e.must(err)
		equal(e, "sessions", len(list), 2)
		for _, s := range append(list, again) {
			if d := s.Drain; d == nil || d.By != "ann" || d.Reason != "a new disk" || !d.Since.Equal(start) || s.Takes() {
				e.Errorf("session %s: %+v", s.ID, d)
			}
		}
		b := e.join("b")
		equal(e, "the other takes runs", b.Takes(), true)
		e.must(e.End(e.ctx, e.a.ID))
		e.must(e.End(e.ctx, again.ID))
		// No session has the name, and it is still drained.
		e.must(e.Drain(e.ctx, store.DrainNode{Node: "a", Undo: true, Actor: "ann"}))
		equal(e, "takes runs", func() bool { s := e.join("a"); return s.Takes() }(), true)
	}},
	{"a run missed while its node was drained names the drain", func(e *env) {
		j := e.put(everyMinute + "\npolicy: {late_by: 10s}")
		a := e.plan(j, time.Second)[0]
		e.must(e.Drain(e.ctx, store.DrainNode{Node: "a", Actor: "ann", Reason: "a new disk"}))
		e.clock.Advance(12 * time.Second)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.tidy()
		contains(e, "reason", e.gone(a.Run, job.OutcomeMissed).Attempt.Reason.String(), "node a was drained by ann: a new disk")
	}},
	{"the store has a clock", func(e *env) {
		e.clock.Advance(time.Minute)
		now, err := e.Now(e.ctx)
		e.must(err)
		sameTime(e, "now", now, start.Add(time.Minute))
	}},
}
