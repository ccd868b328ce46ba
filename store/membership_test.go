package store_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestTheStateOfASessionSaysFirstThatItIsSilent(t *testing.T) {
	now := time.Unix(1000, 0)
	drain := &store.Drain{By: "ann"}
	for _, c := range []struct {
		session store.Session
		renewed time.Duration
		want    store.SessionState
	}{
		{store.Session{}, 0, store.SessionLive},
		{store.Session{Drain: drain}, time.Second, store.SessionDrained},
		{store.Session{Leaving: true, Drain: drain}, 5 * time.Second, store.SessionLeaving},
		{store.Session{Leaving: true}, 6 * time.Second, store.SessionSilent}, // its process died
		{store.Session{Drain: drain}, time.Minute, store.SessionSilent},
	} {
		c.session.Renewed = now.Add(-c.renewed)
		if got := c.session.State(now); got != c.want {
			t.Errorf("renewed %s ago, %+v: %s, want %s", c.renewed, c.session, got, c.want)
		}
	}
}

func TestProgramWithHandlersClaimsFlowsAndWaits(t *testing.T) {
	program := store.Session{Roles: []string{store.RoleHandlers}, Handlers: []string{"bake"}}
	worker := store.Session{Roles: []string{store.RoleWorker}}
	bound := store.Session{Roles: []string{store.RoleWorker, store.RoleBound}}
	for _, c := range []struct {
		name    string
		s       *store.Session
		handler string
		want    bool
	}{
		{"a program, a command", &program, "", false},
		{"a program, its handler", &program, "bake", true},
		{"a program, another handler", &program, "fry", false},
		{"a program, a flow", &program, job.AnyNode, true},
		{"a worker, a flow", &worker, job.AnyNode, true},
		{"a bound worker, a flow", &bound, job.AnyNode, false},
	} {
		if got := c.s.Suits(nil, c.handler); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if program.Suits(map[string]string{"disk": "ssd"}, job.AnyNode) {
		t.Error("a flow with a label goes to a node without it")
	}
}
