package placement

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func nodes(names ...string) []store.Session {
	var list []store.Session
	for i, name := range names {
		list = append(list, store.Session{ID: job.ID{byte(i + 1)}, Node: name, Roles: []string{store.RoleWorker}, Capacity: 10})
	}
	return list
}

// nameOf returns the node of a session.
func nameOf(live []store.Session, id job.ID) string {
	for _, s := range live {
		if s.ID == id {
			return s.Node
		}
	}
	return ""
}

func where(live []store.Session, r Request) string {
	runs, _ := Runs(r, live)
	var names []string
	for _, run := range runs {
		names = append(names, nameOf(live, run.Session))
	}
	return strings.Join(names, " ")
}

func TestStrategiesChooseTheirNodes(t *testing.T) {
	live := nodes("c", "a", "b")
	moment := time.Unix(1_000_000, 0)
	used := map[string]Use{"a": {Count: 5, Last: moment}, "b": {Count: 9, Last: moment.Add(-time.Hour)}, "c": {Count: 1, Last: moment.Add(time.Hour)}}
	for _, c := range []struct {
		name string
		r    Request
		want string
	}{
		{"first", Request{Place: job.Place{Strategy: job.StrategyFirst}}, "a"},
		{"last", Request{Place: job.Place{Strategy: job.StrategyLast}}, "c"},
		{"round robin", Request{Place: job.Place{Strategy: job.StrategyRoundRobin}, Sequence: 4}, "b"},
		{"shards in turn", Request{Place: job.Place{Strategy: job.StrategyRoundRobin, Shards: 4}}, "a b c a"},
		{"least recently used", Request{Place: job.Place{Strategy: job.StrategyLeastRecentlyUsed}, Used: used}, "b"},
		{"least frequently used", Request{Place: job.Place{Strategy: job.StrategyLeastFrequentlyUsed}, Used: used}, "c"},
		{"never used before used", Request{Place: job.Place{Strategy: job.StrategyLeastFrequentlyUsed}, Used: map[string]Use{"a": {Count: 1}}}, "b"},
		{"broadcast", Request{Place: job.Place{Strategy: job.StrategyBroadcast}}, "a b c"},
	} {
		if got := where(live, c.r); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestShardsKnowTheirIndexAndTotal(t *testing.T) {
	runs, _ := Runs(Request{Place: job.Place{Shards: 3}}, nodes("a"))
	for i, run := range runs {
		if run.Shard != i || run.Shards != 3 {
			t.Errorf("run %d is shard %d of %d", i, run.Shard, run.Shards)
		}
	}
	if runs, _ := Runs(Request{}, nodes("a")); runs[0].Shards != 0 {
		t.Errorf("a run that is not split has %d shards", runs[0].Shards)
	}
}

func TestRunIsPlannedWithoutAnEligibleNode(t *testing.T) {
	for _, strategy := range []job.Strategy{job.StrategyAny, job.StrategyBroadcast, job.StrategyHash} {
		runs, reason := Runs(Request{Place: job.Place{Strategy: strategy}}, nil)
		if len(runs) != 1 || !runs[0].Session.IsZero() || reason.IsZero() {
			t.Errorf("%s: %+v, %q; want one run that waits, and why", strategy, runs, reason)
		}
		if isBroadcast := strategy == job.StrategyBroadcast; (runs[0].Shards == 1) != isBroadcast {
			t.Errorf("%s: it is one of %d", strategy, runs[0].Shards)
		}
	}
}

func TestLabelsAndHandlersDecideEligibility(t *testing.T) {
	live := nodes("a", "b", "c")
	live[0].Labels = map[string]string{"zone": "x"}
	live[1].Labels = map[string]string{"zone": "x", "gpu": "yes"}
	live[1].Handlers = []string{"train"}
	live[2].Roles = []string{store.RolePlanner}
	for _, c := range []struct {
		name   string
		place  job.Place
		handle string
		want   string
		reason string
	}{
		{"all labels must match", job.Place{Labels: map[string]string{"zone": "x", "gpu": "yes"}}, "", "b", ""},
		{"an absent label never matches", job.Place{Labels: map[string]string{"disk": ""}}, "", "", "no live node has the label disk="},
		{"a handler", job.Place{}, "train", "b", ""},
		{"a handler that no node has", job.Place{}, "bake", "", "no live node has the handler bake"},
		{"labels and a handler that no node has", job.Place{Labels: map[string]string{"zone": "x", "disk": "ssd"}}, "bake", "", "no live node has the labels disk=ssd, zone=x and the handler bake"},
	} {
		runs, reason := Runs(Request{Place: c.place, Handler: c.handle}, live)
		if len(runs) != 1 || nameOf(live, runs[0].Session) != c.want || reason.String() != c.reason {
			t.Errorf("%s: got %v, %q, want %q, %q", c.name, runs, reason, c.want, c.reason)
		}
	}
	if runs, reason := Runs(Request{}, nil); len(runs) != 1 || reason.String() != "no live node runs jobs" {
		t.Errorf("without nodes: %v, %q", runs, reason)
	}
}

func TestWorkerBoundToANamespaceRefusesOtherJobs(t *testing.T) {
	live := nodes("far", "near")
	live[0].Labels = map[string]string{job.LabelWorker: "edge", job.LabelWorkerNamespace: "web"}
	live[0].Roles = append(live[0].Roles, store.RoleBound)
	live[1].Labels = map[string]string{job.LabelWorker: "any"}
	for _, c := range []struct{ namespace, worker, want, reason string }{
		{"web", "edge", "far", ""},
		{"pay", "edge", "", "the token of the worker edge is for the namespace web, and the job is in pay"},
		{"pay", "any", "near", ""},
		{"pay", "none", "", "no live node has the label worker=none"},
	} {
		j := job.Job{Namespace: c.namespace, Place: job.Place{Labels: map[string]string{job.LabelWorker: c.worker}}}
		runs, reason := Runs(Request{Place: j.Nodes()}, live)
		if nameOf(live, runs[0].Session) != c.want || reason.String() != c.reason {
			t.Errorf("%s for %s: got %v, %q, want %q, %q", c.worker, c.namespace, runs, reason, c.want, c.reason)
		}
		if len(j.Place.Labels) != 1 {
			t.Errorf("the job itself was changed: %v", j.Place.Labels)
		}
	}
}

func TestAnyPrefersTheLessLoadedOfTwoNodes(t *testing.T) {
	live := nodes("a", "b")
	live[0].Load.Running = 10
	count := map[string]int{}
	for i := range 1000 {
		count[where(live, Request{UID: job.ID{1}, Scheduled: time.Unix(int64(i), 0)})]++
	}
	// Both draws fall on the full one in a quarter of the cases.
	if count["b"] < 700 || count["a"] < 150 {
		t.Errorf("got %v, want about 250 and 750", count)
	}
}

func TestLoadIsRelativeToCapacity(t *testing.T) {
	live := nodes("a", "b")
	live[0].Load.Running, live[0].Capacity = 10, 100
	live[1].Load.Running, live[1].Capacity = 5, 10
	count := map[string]int{}
	for i := range 1000 {
		count[where(live, Request{UID: job.ID{1}, Scheduled: time.Unix(int64(i), 0)})]++
	}
	if count["a"] < 700 {
		t.Errorf("got %v, want about 750 on the one that is less full", count)
	}
}

func TestHashSpreadsShards(t *testing.T) {
	used := map[string]int{}
	for _, node := range strings.Fields(where(nodes("a", "b", "c"), Request{UID: job.ID{1}, Place: job.Place{Strategy: job.StrategyHash, Shards: 300}})) {
		used[node]++
	}
	for _, node := range []string{"a", "b", "c"} {
		if used[node] < 60 {
			t.Errorf("of 300 shards %v, want about 100 on each", used)
		}
	}
}

func TestHashMovesFewRunsWhenNodesChange(t *testing.T) {
	three, four := nodes("a", "b", "c"), nodes("a", "b", "c", "d")
	moved := 0
	for i := range 1000 {
		r := Request{UID: job.ID{byte(i), byte(i >> 8)}, Place: job.Place{Strategy: job.StrategyHash}}
		before, after := where(three, r), where(four, r)
		if before != after {
			moved++
			if after != "d" {
				t.Fatalf("a job moved from %s to %s", before, after)
			}
		}
	}
	if moved < 150 || moved > 350 {
		t.Errorf("%d of 1000 jobs moved to the new node, want about 250", moved)
	}
}

func planners(n int) []store.Session {
	var list []store.Session
	for i := range n {
		list = append(list, store.Session{ID: job.ID{byte(i + 1)}, Roles: []string{store.RolePlanner}})
	}
	return list
}

func TestEachPartitionHasOnePlanner(t *testing.T) {
	live := planners(5)
	live = append(live, store.Session{ID: job.ID{99}, Roles: []string{store.RoleWorker}})
	var counts [job.Partitions]int
	for _, s := range live[:5] {
		own := 0
		set := Partitions(s.ID, live)
		for p := range counts {
			if set.Has(uint8(p)) {
				counts[p]++
				own++
			}
		}
		if own < job.Partitions/10 {
			t.Errorf("planner %s has only %d partitions", s.ID, own)
		}
	}
	for p, n := range counts {
		if n != 1 {
			t.Errorf("partition %d has %d planners", p, n)
		}
	}
}

func TestOnlyPartitionsOfAGonePlannerMove(t *testing.T) {
	all := planners(4)
	gone := Partitions(all[0].ID, all)
	for _, s := range all[1:] {
		before, after := Partitions(s.ID, all), Partitions(s.ID, all[1:])
		for p := range job.Partitions {
			if n := uint8(p); before.Has(n) != after.Has(n) && !gone.Has(n) {
				t.Errorf("partition %d has moved, and was not of the one that went", p)
			}
		}
	}
}

func TestPlannerMissingFromItsListStillPlans(t *testing.T) {
	if got := Partitions(job.ID{1}, nil); got != store.AllPartitions {
		t.Error("alone it does not plan everything")
	}
}

func TestShareMatchesPartitions(t *testing.T) {
	all := nodes("a", "b", "c")
	for i := range all {
		all[i].Roles = []string{store.RolePlanner}
	}
	a, b, c := all[0], all[1], all[2]
	var one, both Share // of one session, and of two in turn
	for i, live := range [][]store.Session{nil, {a}, {a}, {a, b}, {a, c}, {a, b, c}, {b, c}, {a, b}, nil} {
		if one.Of(a.ID, live) != Partitions(a.ID, live) {
			t.Errorf("%d: the share of a among %d sessions is not what Partitions says", i, len(live))
		}
		for _, self := range []job.ID{a.ID, b.ID} {
			if both.Of(self, live) != Partitions(self, live) {
				t.Errorf("%d: the share of %s among %d sessions is not what Partitions says", i, self, len(live))
			}
		}
	}
}

// A node's planner and its statistics use its share concurrently.
func TestAShareMayBeAskedForByTwoAtOnce(t *testing.T) {
	live := nodes("a", "b")
	for i := range live {
		live[i].Roles = []string{store.RolePlanner}
	}
	var both Share
	var asking sync.WaitGroup
	for _, self := range live {
		asking.Go(func() {
			for range 1000 {
				if both.Of(self.ID, live) != Partitions(self.ID, live) {
					t.Errorf("the share of %s is that of another node", self.Node)
					return
				}
			}
		})
	}
	asking.Wait()
}

func TestAnyKeepsRelatedRunsTogether(t *testing.T) {
	live := nodes("a", "b", "c", "d")
	on := func(strategy job.Strategy, with time.Time) map[job.ID]int {
		used := map[job.ID]int{}
		for i := range 50 {
			runs, _ := Runs(Request{Place: job.Place{Strategy: strategy}, Scheduled: time.Unix(int64(i), 0), With: with}, live)
			used[runs[0].Session]++
		}
		return used
	}
	if used := on(job.StrategyAny, time.Unix(7, 0)); len(used) != 1 {
		t.Errorf("any, together: %v", used)
	}
	if used := on(job.StrategyAny, time.Time{}); len(used) != len(live) {
		t.Errorf("any, by itself: %v", used)
	}
	if used := on(job.StrategyRandom, time.Unix(7, 0)); len(used) != len(live) {
		t.Errorf("random: %v", used)
	}
}

func TestAnyStaysLocalUntilOthersAreMuchLessLoaded(t *testing.T) {
	on := func(r Request, ready ...int) map[string]int {
		live := nodes("a", "b", "c", "d")
		for i, n := range ready {
			live[i].Load.Ready = n
		}
		used := map[string]int{}
		for i := range 50 {
			r.Scheduled = time.Unix(int64(i), 0)
			runs, _ := Runs(r, live)
			for _, run := range runs {
				used[nameOf(live, run.Session)]++
			}
		}
		return used
	}
	some := job.Place{Strategy: job.StrategyAny}
	near := Request{Place: some, Near: job.ID{1}}
	for _, ready := range [][]int{nil, {10, 5, 5, 5}, {0, 5, 5, 5}} {
		if used := on(near, ready...); used["a"] != 50 {
			t.Errorf("with %v to do: %v", ready, used)
		}
	}
	if used := on(near, 11, 5, 5, 5); used["a"] > 10 || len(used) < 3 {
		t.Errorf("with much more to do than others: %v", used)
	}
	if used := on(Request{Place: some, Near: job.ID{9}}); len(used) != 4 {
		t.Errorf("far from all: %v", used)
	}
	split := near
	split.Place.Shards = 4
	if used := on(split); len(used) != 4 {
		t.Errorf("split: %v", used)
	}
	random := near
	random.Place.Strategy = job.StrategyRandom
	if used := on(random); len(used) != 4 {
		t.Errorf("random: %v", used)
	}
}

func TestRunsGoToNodesThatAllowTheirUser(t *testing.T) {
	live := nodes("a", "b", "c", "old")
	for i, users := range [][]string{{"", "ann"}, {"", "*"}, {""}} {
		live[i].Handlers = append(live[i].Handlers, Commands{Users: users}.Handler())
	}
	for _, c := range []struct{ user, want string }{
		{"", "a b c old"}, {"ann", "a b old"}, {"bob", "b old"}, {"root", "old"},
	} {
		if got := where(live, Request{User: c.user, Place: job.Place{Strategy: job.StrategyBroadcast}}); got != c.want {
			t.Errorf("runs of %q go to %q, want %q", c.user, got, c.want)
		}
	}
	// If all refuse it, a run fails with that reason, which a waiting run would not show.
	if got := where(live[2:3], Request{User: "bob"}); got != "c" {
		t.Errorf("it goes to %q", got)
	}
}
