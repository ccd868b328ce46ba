package storetest

import (
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var membershipTests = []test{
	{"a session is kept as it was told", func(e *env) {
		s, err := e.Join(e.ctx, store.Session{
			ID: e.id(), Node: "b", Machine: "m/boot", DataDir: "/d", Roles: []string{"worker", "api"}, Labels: map[string]string{"zone": "a"},
			Handlers: []string{"h"}, Capacity: 4, Version: "1.0", Zones: "2026a", Address: "http://b",
		})
		e.must(err)
		sameTime(e, "joined", s.Joined, start)
		again, err := e.Join(e.ctx, s) // the answer was lost
		e.must(err)
		equal(e, "predecessors of a repeated join", len(again.Predecessors), 0)
		e.clock.Advance(time.Second)
		e.must(e.Renew(e.ctx, s.ID, store.Load{Running: 3, Ready: 2}))
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
			equal(e, "load", got.Load, store.Load{Running: 3, Ready: 2})
			sameTime(e, "joined", got.Joined, start)
			sameTime(e, "renewed", got.Renewed, start.Add(time.Second))
		}
	}},
	{"a session that was silent may go on as long as nothing of it was reaped", func(e *env) {
		e.clock.Advance(time.Minute)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
		e.want(e.Renew(e.ctx, e.id(), store.Load{}), store.ErrSessionOver)
	}},
	{"a session that leaves hands on what is ready, and goes on until it ends", func(e *env) {
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
		for range 2 {
			e.must(e.End(e.ctx, e.a.ID))
		}
		sessions, err := e.Sessions(e.ctx)
		e.must(err)
		equal(e, "sessions", len(sessions), 0)
		e.want(e.Renew(e.ctx, e.a.ID, store.Load{}), store.ErrSessionOver)
	}},
	{"what is planned for a node that leaves has no node", func(e *env) {
		b := e.join("b")
		e.must(e.Leave(e.ctx, b.ID))
		j := e.put(everyMinute)
		at := e.clock.Now().Add(time.Second).Truncate(time.Second)
		run := store.NewRun{ID: e.id(), Session: b.ID, Scheduled: at, Due: at}
		out, err := e.Plan(e.ctx, e.a.ID, []store.PlanItem{{Job: j.Definition.UID, Epoch: 1, From: j.Cursor, To: at, Runs: []store.NewRun{run}}})
		e.must(err)
		equal(e, "outcome", out[0], store.Planned)
		equal(e, "session", e.run(run.ID).Session, job.ID{})
	}},
	{"what a node releases while it leaves is placed again", func(e *env) {
		a := e.plan(e.put(everyMinute), time.Second)[0]
		e.claim(e.a, a, store.Started)
		e.must(e.Leave(e.ctx, e.a.ID))
		e.must(e.Release(e.ctx, e.a.ID, []store.Attempt{a}))
		equal(e, "session", e.run(a.Run).Session, job.ID{})
	}},
	{"a session that is silent for long is forgotten, unless it runs something", func(e *env) {
		a := e.plan(e.put(everyMinute+"\npolicy: {lost_after: 7d}"), time.Second)[0]
		b := e.join("b")
		e.claim(e.a, a, store.Started)
		e.clock.Advance(store.SilenceMax + time.Second)
		e.tidy()
		list, err := e.Sessions(e.ctx)
		e.must(err)
		if len(list) != 1 || list[0].ID != e.a.ID {
			e.Errorf("sessions: %+v", list)
		}
		e.want(e.Renew(e.ctx, b.ID, store.Load{}), store.ErrSessionOver)
		e.must(e.Renew(e.ctx, e.a.ID, store.Load{}))
	}},
	{"the store tells its clock", func(e *env) {
		e.clock.Advance(time.Minute)
		now, err := e.Now(e.ctx)
		e.must(err)
		sameTime(e, "now", now, start.Add(time.Minute))
	}},
}
