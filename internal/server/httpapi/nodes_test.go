package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/nodeinfo"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestANodeIsDrainedAndTakesRunsAgain(t *testing.T) {
	s := newServer(t)
	n := s.node()
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "a", "run": {"shell": "true"}}`)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", "")
	n.start(run)
	name := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items[0].Name

	drained := ok[client.Node](s, "POST", "/api/v1/nodes/"+name+"/drain", `{"reason": "a new disk"}`)
	if drained.State != "drained" || drained.DrainedBy != "alice" || drained.DrainReason != "a new disk" || !drained.DrainedSince.Equal(s.clock()) || drained.Running != 1 {
		t.Errorf("the node is %+v", drained)
	}
	if again := ok[client.Node](s, "POST", "/api/v1/nodes/"+drained.Session.String()+"/drain", ""); again.DrainReason != "a new disk" {
		t.Errorf("drained again by its session, the node is %+v", again)
	}
	waiting := ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", "")
	s.pass(store.SessionLife + time.Second) // it has said last that it runs nothing
	if list := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items; list[0].State != "silent" || list[0].Running != 1 {
		t.Errorf("not heard of, the node is %+v", list[0])
	}
	if err := s.store.Renew(t.Context(), n.session, store.Load{}); err != nil {
		t.Fatal(err)
	}
	if waiting = ok[client.Run](s, "GET", "/api/v1/runs/"+waiting.ID.String(), ""); waiting.State != job.StateReady || waiting.Reason != "node "+name+" was drained by alice: a new disk" {
		t.Errorf("a run that waits is %s: %q", waiting.State, waiting.Reason)
	}
	n.finish(run, job.OutcomeSucceeded)
	if list := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items; list[0].Running != 0 {
		t.Errorf("the node still runs %d", list[0].Running)
	}

	if back := ok[client.Node](s, "POST", "/api/v1/nodes/"+name+"/undrain", ""); back.State != "live" || back.DrainedBy != "" {
		t.Errorf("the node is %+v", back)
	}
	if waiting = ok[client.Run](s, "GET", "/api/v1/runs/"+waiting.ID.String(), ""); waiting.Reason != "" {
		t.Errorf("a run that waits says %q", waiting.Reason)
	}
	for _, what := range []string{"drain", "undrain"} {
		s.refused(client.TypeNotFound, 404, "POST", "/api/v1/nodes/nobody/"+what, "")
	}
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/nodes/"+name+"/drain", `{"reason": "`+strings.Repeat("x", 2000)+`"}`)
}

// The process before may be known still, and have something to end.
func TestLatestSessionOfANodeIsShown(t *testing.T) {
	s := newServer(t)
	s.node()
	s.pass(time.Second)
	latest := store.Session{ID: job.ID{1}, Node: "one", Roles: []string{store.RoleWorker}, Capacity: 10} // the first by its id
	if _, err := s.store.Join(t.Context(), latest); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"drain", "undrain"} {
		if node := ok[client.Node](s, "POST", "/api/v1/nodes/one/"+what, ""); node.Session != latest.ID {
			t.Errorf("after the %s the node is %+v", what, node)
		}
	}
}

func TestDrainedNodeIsReadyWithANote(t *testing.T) {
	s := newServer(t)
	s.node()
	name := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items[0].Name
	s.name = name
	s.handle(s.store)
	if w := s.call("GET", "/readyz", ""); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	ok[client.Node](s, "POST", "/api/v1/nodes/"+name+"/drain", "")
	if w := s.call("GET", "/readyz", ""); w.Code != 200 || w.Body.String() != "ok; node is drained, not accepting runs\n" {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	s.pass(time.Hour) // it is silent, and drained all the same
	if node := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items[0]; node.State != "silent" || node.DrainedBy != "alice" {
		t.Errorf("the node is %+v", node)
	}
}

func TestANodeSaysByHowMuchItsClockIsAhead(t *testing.T) {
	s := newServer(t)
	s.node()
	before := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items[0]
	if err := s.store.Renew(t.Context(), before.Session, store.Load{ClockAhead: -1234567 * time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	if after := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items[0]; before.ClockAhead != 0 || after.ClockAhead != -1.235 {
		t.Errorf("the clock is %v s ahead, and then %v", before.ClockAhead, after.ClockAhead)
	}
}

func TestReplacedProcessIsNoLongerListed(t *testing.T) {
	s := newServer(t)
	for i, session := range []store.Session{
		{Node: "a", Machine: "m", DataDir: "/d"}, {Node: "b", Machine: "m", DataDir: "/e"}, {Node: "a", Machine: "m", DataDir: "/d"},
	} {
		session.ID, session.Roles, session.Capacity = job.ID{byte(i + 1)}, []string{store.RoleWorker}, 10
		if _, err := s.store.Join(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		s.pass(time.Second)
	}
	list := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items
	if len(list) != 2 || list[0].Session != (job.ID{3}) || list[0].State != "live" || list[1].Name != "b" {
		t.Errorf("the nodes are %+v", list)
	}
	s.pass(-time.Minute)
	latest := store.Session{ID: job.ID{4}, Node: "b", Machine: "m", DataDir: "/e", Roles: []string{store.RoleWorker}, Capacity: 10}
	if _, err := s.store.Join(t.Context(), latest); err != nil {
		t.Fatal(err)
	}
	list = ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items
	if len(list) != 2 || list[1].Session != latest.ID || list[1].State != "live" {
		t.Errorf("after the clock was put back the nodes are %+v", list)
	}
}

// The description of a node is shown with it, and for some days after its end.
func TestGoneNodeIsListed(t *testing.T) {
	s := newServer(t)
	n := s.node()
	said := nodeinfo.Info{Node: "one", Session: n.session, Partitions: 256, Version: "1", P50: 2 * time.Millisecond, P99: 9 * time.Millisecond}
	said.Starts[59] = 3
	gone := nodeinfo.Info{Node: "old", Session: job.ID{9}, Version: "0"}
	clock := func() time.Duration { return 0 }
	for p, leaves := range map[*nodeinfo.Info]bool{&said: false, &gone: true} {
		teller := nodeinfo.Reporter{Store: s.store, Clock: clock, About: func() nodeinfo.Info { return *p }}
		if err := teller.Tell(t.Context(), leaves); err != nil {
			t.Fatal(err)
		}
	}
	list := ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes", "").Items
	if len(list) != 1 || list[0].Partitions != 256 || list[0].StoreP50 != 0.002 || list[0].StoreP99 != 0.009 || len(list[0].Starts) != 60 || list[0].Starts[59] != 3 {
		t.Errorf("the nodes are %+v", list)
	}
	list = ok[client.Page[client.Node]](s, "GET", "/api/v1/nodes?gone=true", "").Items
	if len(list) != 2 || list[0].Name != "old" && list[1].Name != "old" || list[0].State != "left" && list[1].State != "left" {
		t.Errorf("with those that are gone the nodes are %+v", list)
	}
}

func TestServerReportsDifferencesBetweenNodes(t *testing.T) {
	s := newServer(t)
	for i, version := range []string{"1.1", "1.2"} {
		session := store.Session{ID: job.ID{byte(i + 1)}, Node: version, Machine: version, Version: version, Zones: "2026a", Roles: []string{store.RoleWorker}, Capacity: 1}
		if _, err := s.store.Join(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	about := ok[client.Server](s, "GET", "/api/v1/server", "")
	if about.Nodes != 2 || len(about.Hints) != 2 || about.Hints[1].Check != "channels" || about.Hints[0].Found != "nodes have the versions 1.1, 1.2" {
		t.Errorf("the server says %+v", about)
	}
	s.grant("web", "of web", store.RoleViewer, "web")
	if w := s.as("of web", "GET", "/api/v1/server", ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "1.1, 1.2") {
		t.Errorf("a token for a namespace sees %d %s", w.Code, w.Body)
	}
}
