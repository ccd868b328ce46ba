package replica_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
	"github.com/belfry-cron/belfry/store/storetest/shelf"
)

// ahead returns by how much the clock of a store is ahead.
func ahead(t *testing.T, s store.Store) time.Duration {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(now).Round(time.Second)
}

// joins begins a session of a node.
func joins(t *testing.T, s store.Store, id byte) store.Session {
	t.Helper()
	name := string('a' + id)
	session, err := s.Join(t.Context(), store.Session{ID: job.ID{id}, Node: name, Machine: name, DataDir: "/" + name, Roles: []string{store.RolePlanner}})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func TestRenewalsOfEarlierNodesDoNotHoldTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newShelf()
		begun := time.Now()
		joins(t, open(t, kept, storetest.Options{}), 1)
		time.Sleep(time.Minute) // the node vanishes without leaving
		s := open(t, kept, storetest.Options{})
		if got := ahead(t, s); got != 0 {
			t.Errorf("the clock is %s ahead", got)
		}
		if session := joins(t, s, 2); len(session.Absences) != 1 || session.Absences[0].From.Sub(begun) > time.Second {
			t.Errorf("the absences are %v, want one since %s", session.Absences, begun)
		}
	})
}

func TestAWrongClockWaitsForTheNodesThatAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newShelf()
		const off = 5 * time.Minute
		right := open(t, kept, storetest.Options{Now: func() time.Time { return time.Now().Add(off) }})
		session := joins(t, right, 1)
		renews(t, right, session)
		time.Sleep(time.Minute)
		s := open(t, kept, storetest.Options{})
		if got := ahead(t, s); got != off {
			t.Errorf("the clock is %s ahead, want %s", got, off)
		}
		if joined := joins(t, s, 2); len(joined.Absences) > 0 {
			t.Errorf("a node was live, and the absences are %v", joined.Absences)
		}
	})
}

func TestAServerDoesNotWaitForNodesThatHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newShelf()
		first := open(t, kept, storetest.Options{})
		if err := first.Leave(t.Context(), joins(t, first, 1).ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		open(t, kept, storetest.Options{})
		if took := time.Since(began); took > 0 {
			t.Errorf("to open took %s", took)
		}
	})
}

// renews renews a session until the test ends.
func renews(t *testing.T, s store.Store, session store.Session) {
	go func() {
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_ = s.Renew(t.Context(), session.ID, store.Load{})
			case <-t.Context().Done():
				return
			}
		}
	}()
}

func TestANodeWithAWrongClockPlansAndClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, off := newShelf(), time.Duration(0)
		right := open(t, kept, storetest.Options{})
		renews(t, right, joins(t, right, 1))
		time.Sleep(10 * time.Second)
		s, err := kept.Open(t.Context(), shelf.Machine{
			Wall: func() time.Time { return time.Now().Add(off) },
			Boot: func() time.Duration { return time.Since(time.Unix(0, 0)) },
		}, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		session := joins(t, s, 2)
		renews(t, s, session)
		time.Sleep(10 * time.Second)
		claims := func(want error) {
			t.Helper()
			if _, _, err := s.Plan(t.Context(), session.ID, []store.PlanItem{{Job: job.ID{9}}}); !errors.Is(err, want) {
				t.Errorf("to plan: %v, want %v", err, want)
			}
			if _, err := s.Claim(t.Context(), session.ID, []store.Attempt{{Job: job.ID{9}, Run: job.ID{9}}}); !errors.Is(err, want) {
				t.Errorf("to claim: %v, want %v", err, want)
			}
			time.Sleep(3 * time.Second)
			sessions, err := right.Sessions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range sessions {
				if is := one.ID == session.ID && want != nil; one.ClockOff != is || one.Takes() == is {
					t.Errorf("the session of %s: off %t, takes runs %t", one.Node, one.ClockOff, one.Takes())
				}
				if age := time.Since(one.Renewed); age < 0 || age > 3*time.Second {
					t.Errorf("%s has renewed its session %s ago", one.Node, age)
				}
			}
			if got := ahead(t, s); got != 0 {
				t.Errorf("its store is %s ahead", got)
			}
		}
		claims(nil)
		off = 10 * time.Minute
		claims(store.ErrClockOff)
		off = 0
		claims(nil)
	})
}
