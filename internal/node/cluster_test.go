package node

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// startAs runs a node with roles and a wall clock, until stop is called.
func (w *world) startAs(name string, now func() time.Time, exec executor.Executor, roles ...string) (stop func()) {
	w.t.Helper()
	_, stop = w.nodeAs(name, now, exec, roles...)
	return stop
}

// nodeAs is startAs, and returns the node.
func (w *world) nodeAs(name string, now func() time.Time, exec executor.Executor, roles ...string) (n *Node, stop func()) {
	w.t.Helper()
	n, err := New(Config{
		Session:   store.Session{Node: name, Machine: "m", DataDir: "/" + name, Roles: roles, Capacity: 100},
		Executors: func(*job.Job) executor.Executor { return exec },
		Now:       now, Boot: func() time.Duration { return time.Since(w.boot) }, Log: slog.New(slog.DiscardHandler),
	}.On(w.store))
	if err != nil {
		w.t.Fatal(err)
	}
	return n, w.run(n)
}

func TestNodesFollowTheirRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plans, works := &fake{}, &fake{}
		stop := w.startAs("works", time.Now, works, store.RoleWorker)
		j := w.apply(`{name: j, schedule: {every: 1s}, run: {shell: "true"}, place: {strategy: first}}`)
		time.Sleep(5 * time.Second)
		if len(w.outcomes(j)) > 0 {
			t.Error("a node that is no planner has planned")
		}
		defer w.startAs("plans", time.Now, plans, store.RolePlanner)()
		time.Sleep(10 * time.Second)
		if n := len(w.outcomes(j)); n < 8 {
			t.Errorf("with a planner and a worker %d runs have ended in 10 s", n)
		}
		stop()
		before := len(w.outcomes(j))
		time.Sleep(10 * time.Second)
		if n := len(w.outcomes(j)) - before; n > 0 {
			t.Errorf("a node that is no worker has run %d", n)
		}
	})
}

func TestNodePlansByTheStoreClock(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(wrong.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				exec := &fake{}
				j := w.apply(`{name: j, schedule: {every: 1s}, run: {shell: "true"}}`)
				a, stop := w.nodeAs("a", func() time.Time { return time.Now().Add(wrong) }, exec, store.RolePlanner, store.RoleWorker)
				time.Sleep(20*time.Second + time.Millisecond)
				if n := len(w.outcomes(j)); n < 18 {
					t.Errorf("%d runs have ended in 20 s", n)
				}
				if ahead := a.Stats().ClockAhead; ahead != wrong {
					t.Errorf("the node says that its clock is %s ahead", ahead)
				}
				stop()
			})
		})
	}
}

// A node with a wrong clock tells all nodes, and neither it nor another node starts anything at a
// wrong time.
func TestNodeWithAWrongClockSaysSoAndStartsNothingEarly(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, -1500 * time.Millisecond, 1500 * time.Millisecond, time.Hour} {
		t.Run(wrong.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i := range 6 {
					w.apply(fmt.Sprintf(`{name: j%d, schedule: {every: 1s}, run: {shell: "true"}, policy: {overlap: allow}, place: {strategy: round_robin}}`, i))
				}
				both := []string{store.RolePlanner, store.RoleWorker}
				right, skewed := &fake{}, &fake{}
				stop := w.startAs("right", time.Now, right, both...)
				stopSkewed := w.startAs("wrong", func() time.Time { return time.Now().Add(wrong) }, skewed, both...)
				time.Sleep(30*time.Second + 123*time.Millisecond)
				sessions, err := w.store.Sessions(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range sessions {
					want := map[string]time.Duration{"right": 0, "wrong": wrong}[s.Node]
					if s.Load.ClockAhead != want {
						t.Errorf("the clock of node %s is said to be %s ahead, want %s", s.Node, s.Load.ClockAhead, want)
					}
				}
				stop()
				stopSkewed()
				seen := map[string]bool{}
				for _, s := range append(right.started(), skewed.started()...) {
					occurrence := s.name + s.scheduled.String()
					if late := s.at.Sub(s.scheduled); late < 0 || late > 100*time.Millisecond || seen[occurrence] {
						t.Errorf("%s of %s started %s late, before: %t", s.name, s.scheduled.Format(time.TimeOnly), late, seen[occurrence])
					}
					seen[occurrence] = true
				}
				if len(skewed.started()) < 10 || len(seen) < 6*28 {
					t.Errorf("%d occurrences of 30 s have started, %d of them on the node whose clock is wrong", len(seen), len(skewed.started()))
				}
			})
		})
	}
}

// The other nodes plan the partitions of a leaving node at once, before its runs have ended, and
// before their next regular look at the sessions.
func TestPartitionsOfALeavingNodeArePlannedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const jobs = 50
		for i := range jobs {
			w.apply(fmt.Sprintf(`{name: j%d, schedule: {cron: "0 0 1 7 *"}, run: {shell: "true"}}`, i))
		}
		both := []string{store.RolePlanner, store.RoleWorker}
		stays, stop := w.nodeAs("stays", time.Now, w.exec, both...)
		defer stop()
		leaves, stop := w.nodeAs("leaves", time.Now, w.exec, both...)
		time.Sleep(20*time.Second + 100*time.Millisecond) // just after a renewal
		if own, all := stays.Stats().Planner.Jobs, stays.Stats().Planner.Jobs+leaves.Stats().Planner.Jobs; own == jobs || all != jobs {
			t.Fatalf("one of two nodes plans %d of %d jobs, both %d", own, jobs, all)
		}
		stop()
		time.Sleep(100 * time.Millisecond)
		if own := stays.Stats().Planner.Jobs; own != jobs {
			t.Errorf("the one that stays plans %d of %d jobs", own, jobs)
		}
	})
}

// A rolling restart loses and delays nothing.
func TestRollingRestartDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 10 {
			w.apply(fmt.Sprintf(`{name: j%d, schedule: {every: 1s}, run: {shell: "true"}, policy: {overlap: allow}}`, i))
		}
		var stops [3]func()
		both := []string{store.RolePlanner, store.RoleWorker}
		for i := range stops {
			stops[i] = w.startAs(fmt.Sprint("n", i), time.Now, w.exec, both...)
		}
		time.Sleep(30*time.Second + 123*time.Millisecond)
		settled := time.Now()
		for i := range stops {
			stops[i]()
			time.Sleep(7*time.Second + time.Duration(i)*311*time.Millisecond)
			stops[i] = w.startAs(fmt.Sprint("n", i), time.Now, w.exec, both...)
			time.Sleep(7 * time.Second)
		}
		for i := range stops {
			stops[i]()
		}
		records, _, err := w.store.Attempts(t.Context(), store.HistoryQuery{Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if late := r.Attempt.Started.Sub(r.Run.Due); r.Attempt.Started.After(settled) && late > 50*time.Millisecond {
				t.Errorf("a run of %s started %s late on %s", r.Run.Due.Format(time.TimeOnly), late, r.Attempt.Node)
			}
		}
	})
}
