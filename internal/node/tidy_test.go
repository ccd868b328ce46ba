package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// full is a store with much expired data.
type full struct {
	store.Store
	left atomic.Int64
}

func (f *full) Expire(context.Context, store.Retention) (bool, error) {
	return f.left.Add(-1) > 0, nil
}

func TestExpiryKeepsUpWithNewRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := &full{Store: w.store}
		// Ten minutes of 1,000 runs a second, with a row of output each.
		f.left.Store(10 * 60 * 1000 * 2 / store.ExpireMax)
		w.store = f
		stop := w.start("a")
		time.Sleep(2 * time.Minute)
		stop()
		if left := f.left.Load(); left > 0 {
			t.Errorf("after a round there are %d steps left", left)
		}
	})
}

// tended is a store that counts the work for which nodes take turns.
type tended struct {
	store.Store
	tidied, looked, alerted, expired atomic.Int64
}

func (s *tended) Tidy(ctx context.Context) (bool, error) {
	s.tidied.Add(1)
	return s.Store.Tidy(ctx)
}

func (s *tended) Lost(ctx context.Context, limit int) ([]store.Attempt, error) {
	s.looked.Add(1)
	return s.Store.Lost(ctx, limit)
}

func (s *tended) Alerts(ctx context.Context, limit int) ([]store.Alert, error) {
	s.alerted.Add(1)
	return s.Store.Alerts(ctx, limit)
}

func (s *tended) Expire(ctx context.Context, r store.Retention) (bool, error) {
	s.expired.Add(1)
	return s.Store.Expire(ctx, r)
}

// counts returns how often each was done, and forgets it.
func (s *tended) counts() map[string]int64 {
	return map[string]int64{"Tidy": s.tidied.Swap(0), "Lost": s.looked.Swap(0), "Alerts": s.alerted.Swap(0), "Expire": s.expired.Swap(0)}
}

func TestHousekeepingDoesNotGrowWithTheNodes(t *testing.T) {
	for _, nodes := range []int{1, 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := &tended{Store: w.store}
				w.store = s
				for i := range nodes {
					defer w.start(fmt.Sprint("n", i))()
				}
				time.Sleep(2*time.Minute + 123*time.Millisecond) // all have been steady for a minute
				s.counts()
				time.Sleep(10 * time.Minute)
				for what, n := range s.counts() {
					want := int64(10 * time.Minute / tendEvery)
					if what == "Expire" {
						want = 10
					}
					if n < want-1 || n > want+1 {
						t.Errorf("%s was called %d times in ten minutes, want %d", what, n, want)
					}
				}
			})
		})
	}
}

// A stuck node misses its turns.
func TestHousekeepingSurvivesAStuckNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &tended{Store: w.store}
		w.store = s
		defer w.start("a")()
		defer w.start("b")()
		still, err := s.Join(t.Context(), store.Session{ID: job.ID{1}, Node: "still", Machine: "m2", DataDir: "/still", Roles: []string{store.RolePlanner}})
		if err != nil {
			t.Fatal(err)
		}
		for range 120 {
			time.Sleep(time.Second)
			if err := s.Renew(t.Context(), still.ID, store.Load{}); err != nil {
				t.Fatal(err)
			}
		}
		s.counts()
		for range 60 {
			time.Sleep(time.Second)
			if err := s.Renew(t.Context(), still.ID, store.Load{}); err != nil {
				t.Fatal(err)
			}
		}
		for what, n := range s.counts() {
			// Two of three turns are used.
			if want := int64(80); what != "Expire" && (n < want-1 || n > want+1) {
				t.Errorf("%s was called %d times in a minute, want %d", what, n, want)
			}
		}
	})
}
