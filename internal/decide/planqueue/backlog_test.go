package planqueue

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestBacklogIsDividedAmongPlannersAndNodes(t *testing.T) {
	half := store.AllPartitions
	half[0], half[1] = 0, 0
	worker := func(n byte) store.Session {
		return store.Session{ID: job.ID{n}, Node: string('a' + rune(n)), Roles: []string{store.RoleWorker}, Capacity: 1}
	}
	drained, leaving, planner := worker(4), worker(5), worker(6)
	drained.Drain, leaving.Leaving, planner.Roles = &store.Drain{}, true, []string{store.RolePlanner}
	for _, c := range []struct {
		name    string
		live    []store.Session
		mine    store.Partitions
		backlog map[job.ID]int
		room    int
	}{
		{"one node", []store.Session{worker(1)}, store.AllPartitions, nil, BacklogMin},
		{"some waits", []store.Session{worker(1)}, store.AllPartitions, map[job.ID]int{{1}: 50}, BacklogMin - 50},
		{"much waits for what is gone, or for a place", []store.Session{worker(1)}, store.AllPartitions, map[job.ID]int{{9}: BacklogMin, {}: BacklogMin}, BacklogMin},
		{"another plans the other half", []store.Session{worker(1), worker(2)}, half, map[job.ID]int{{1}: 50}, BacklogMin - 25},
		{"one is full", []store.Session{worker(1), worker(2)}, store.AllPartitions, map[job.ID]int{{1}: BacklogMin}, BacklogMin},
		{"one has too many", []store.Session{worker(1), worker(2)}, store.AllPartitions, map[job.ID]int{{1}: 3 * BacklogMin}, BacklogMin},
		{"some take nothing", []store.Session{worker(1), drained, leaving, planner}, store.AllPartitions, nil, BacklogMin},
		{"none takes anything", []store.Session{planner}, store.AllPartitions, map[job.ID]int{{}: 100}, BacklogMin - 100},
		{"one partition is planned here", []store.Session{worker(1)}, store.Partitions{1}, nil, 1},
		{"none plans anything here", []store.Session{worker(1)}, store.Partitions{}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			mind := New(15*time.Second, stripes.Of)
			mind.Take(c.mine, now)
			if mind.Room(c.backlog, c.live, now); mind.backlog.room != c.room {
				t.Errorf("room for %d, want %d", mind.backlog.room, c.room)
			}
		})
	}
}

// A planner that had nothing to plan for a moment begins anew.
func TestReturnedPartitionsFreeBacklogRoom(t *testing.T) {
	mind := New(15*time.Second, stripes.Of)
	for _, c := range []struct {
		mine store.Partitions
		room int
	}{{store.AllPartitions, BacklogMin}, {store.Partitions{}, 0}, {store.AllPartitions, BacklogMin}} {
		mind.Take(c.mine, now)
		if mind.Room(nil, nil, now); mind.backlog.room != c.room {
			t.Errorf("room for %d, want %d", mind.backlog.room, c.room)
		}
	}
}

// As many runs may wait as the nodes run in a while, by their recent rate.
func TestBacklogCoversABoundedTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		was   backlog // state half a second ago
		waits []int
		share float64
		limit int
	}{
		{"all were run", backlog{limit: 200, added: 200}, []int{0}, 1, 800},
		{"all were run at once", backlog{limit: 200, added: 1000}, []int{0}, 1, 800},
		{"many ended at once", backlog{limit: 1000, waits: 900, added: 900}, []int{400}, 1, 2000},
		{"as many as before, and 500 were run", backlog{limit: 2000, waits: 1000, added: 500}, []int{1000}, 1, 2000},
		{"fewer, and none was added", backlog{limit: 2000, waits: 1000}, []int{700}, 1, 1200},
		{"none was run", backlog{limit: 2000, waits: 1000, added: 300}, []int{1300}, 1, 1000},
		{"none was run for long", backlog{limit: 250, waits: 1000}, []int{1000}, 1, BacklogMin},
		{"more fell due than was run", backlog{limit: 2000, waits: 1000}, []int{3000}, 1, 1000},
		{"more were run than anybody counts", backlog{limit: 20_000, added: 20_000}, []int{0}, 1, BacklogMax},
		{"another has added as many", backlog{limit: 400, added: 100}, []int{0}, 0.5, 800},
		{"two nodes have run them", backlog{limit: 400, added: 200}, []int{0, 0}, 1, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.was
			b.seen = now.Add(-Every)
			if b.look(c.waits, c.share, now); b.limit != c.limit {
				t.Errorf("%d may wait, want %d", b.limit, c.limit)
			}
			b = c.was
			b.seen, b.waits, b.limit = now.Add(-6*time.Second), 0, 1000 // planning took that long
			b.added = int(3000*c.share) * len(c.waits)
			if b.look(make([]int, len(c.waits)), c.share, now); b.limit != 1000 {
				t.Errorf("%d may wait, 6 s after the last look", b.limit)
			}
			b = c.was
			b.seen = now.Add(-time.Hour)
			if b.look(c.waits, c.share, now); b.limit != BacklogMin {
				t.Errorf("%d may wait, long after the last look", b.limit)
			}
		})
	}
}
