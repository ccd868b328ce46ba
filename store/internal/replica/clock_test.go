package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
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
		time.Sleep(time.Minute) // it is gone without a word
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
		go func() {
			ticker := time.NewTicker(2 * time.Second)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					_ = right.Renew(t.Context(), session.ID, store.Load{})
				case <-t.Context().Done():
					return
				}
			}
		}()
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
