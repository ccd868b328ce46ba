package engine_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// sessions returns sessions with a role, whose ids begin with numbers from first.
func sessions(n int, first byte, role string) []store.Session {
	list := make([]store.Session, n)
	for i := range list {
		list[i] = store.Session{ID: job.ID{first + byte(i)}, Roles: []string{role}}
	}
	return list
}

func TestHousekeepingTurnBelongsToOneReachableSession(t *testing.T) {
	workers := sessions(3, 2, store.RoleWorker)
	for name, c := range map[string]struct {
		live []store.Session
		take []store.Session // the expected order of turns
	}{
		"four planners":               {sessions(4, 1, store.RolePlanner), sessions(4, 1, store.RolePlanner)},
		"two planners, three workers": {append(sessions(2, 5, store.RolePlanner), workers...), sessions(2, 5, store.RolePlanner)},
		"nodes with the API alone":    {append(sessions(2, 5, store.RoleAPI), workers...), sessions(2, 5, store.RoleAPI)},
		"workers alone":               {workers, workers},
	} {
		for number := range int64(20) {
			turns := 0
			for _, s := range c.live {
				if engine.Turn(s.ID, c.live, number) {
					turns++
				}
			}
			taken := 0
			for i, s := range c.take {
				if engine.Turn(s.ID, c.live, number) {
					taken++
					if n := int64(len(c.take)); engine.Turn(s.ID, c.live, number+1) && n > 1 || !engine.Turn(s.ID, c.live, number+n) {
						t.Errorf("%s: session %d has turn %d, and others than each %dth", name, i, number, n)
					}
				}
			}
			if turns != 1 || taken != 1 {
				t.Errorf("%s: turn %d is that of %d sessions, %d of them take turns", name, number, turns, taken)
			}
		}
	}
	for number := range int64(20) {
		if !engine.Turn(job.ID{9}, nil, number) {
			t.Errorf("alone a session does not have turn %d", number)
		}
	}
}

func TestBoundRunStaysWithItsNode(t *testing.T) {
	for _, c := range []struct {
		place  job.Place
		placed string
		want   bool
	}{
		{job.Place{}, "b", true},
		{job.Place{Sticky: true}, "b", false},
		{job.Place{Strategy: job.StrategyBroadcast}, "b", false},
		{job.Place{Sticky: true}, "a", true},
		{job.Place{Sticky: true}, "", true},
	} {
		if got := engine.MayGoTo(c.place.Binds(), c.placed, "a"); got != c.want {
			t.Errorf("%+v, placed on %q: may go to a is %v", c.place, c.placed, got)
		}
	}
}

func TestChangeRecallsClaimsThatAreNotDue(t *testing.T) {
	changed := time.Unix(100, 0)
	now := &store.Job{Definition: &job.Job{Version: 2, Status: &job.Status{Changed: changed}}}
	deleted := &store.Job{Definition: now.Definition, Deleted: true}
	for name, c := range map[string]struct {
		job   *store.Job
		under int64
		due   time.Time
		want  bool
	}{
		"the same version":                 {now, 2, changed.Add(1), false},
		"an older one, due later":          {now, 1, changed.Add(1), true},
		"an older one, due at that moment": {now, 1, changed, false},
		"a deleted job":                    {deleted, 2, changed.Add(1), true},
		"a job that is gone":               {nil, 2, changed, true},
	} {
		version := engine.VersionOf(c.job)
		if got := version.Recalls(&job.Run{Due: c.due, Kind: job.RunScheduled}, c.under); got != c.want {
			t.Errorf("%s: recalled is %v", name, got)
		}
		if version.Recalls(&job.Run{Due: c.due, Kind: job.RunStep}, c.under) {
			t.Errorf("%s: the step of a flow that has begun is recalled", name)
		}
	}
}
