package httpapi_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

func TestRunWithoutANodeSaysWhy(t *testing.T) {
	s := newServer(t)
	n := s.node()
	for _, c := range []struct{ document, want string }{
		{`{"name": "a", "run": {"shell": "true"}}`, ""},
		{`{"name": "b", "run": {"shell": "true"}, "place": {"labels": {"gpu": "yes"}}}`, "no live node has the label gpu=yes"},
		{`{"name": "c", "run": {"handler": "bake"}, "place": {"labels": {"gpu": "yes", "disk": "ssd"}}}`, "no live node has the labels disk=ssd, gpu=yes and the handler bake"},
	} {
		ok[client.Change](s, "POST", "/api/v1/jobs", c.document)
		name := c.document[10:11]
		run := ok[client.Run](s, "POST", "/api/v1/jobs/default/"+name+"/run", "")
		got := ok[client.Run](s, "GET", "/api/v1/runs/"+run.ID.String(), "")
		listed := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?job=default/"+name, "").Items[0]
		if run.Reason != c.want || got.Reason != c.want || listed.Reason != c.want {
			t.Errorf("%s: the reasons are %q, %q and %q, want %q", name, run.Reason, got.Reason, listed.Reason, c.want)
		}
	}
	reason := func(name string) string {
		return ok[client.Page[client.Run]](s, "GET", "/api/v1/runs?job=default/"+name, "").Items[0].Reason
	}

	// A full node, and no node at all.
	s.pass(time.Second)
	if err := s.store.Renew(t.Context(), n.session, store.Load{Running: 10}); err != nil {
		t.Fatal(err)
	}
	if got := reason("a"); got != "node one runs as many attempts as it may: 10" {
		t.Errorf("on a full node the reason is %q", got)
	}
	s.pass(time.Second)
	later := ok[client.Run](s, "POST", "/api/v1/jobs/default/a/run", "")
	s.pass(time.Second)
	if got := ok[client.Run](s, "GET", "/api/v1/runs/"+later.ID.String(), "").Reason; got != "" {
		t.Errorf("a run that is due since the node has said that it is full is explained by %q", got)
	}
	handler := s.handler
	s.handleAt(func() time.Time { return s.clock().Add(-time.Hour) })
	if got := reason("a"); got != "node one runs as many attempts as it may: 10" {
		t.Errorf("by a clock that is behind that of the store the reason is %q", got)
	}
	s.handler = handler
	s.pass(time.Minute)
	if got := reason("b"); got != "no live node runs jobs" {
		t.Errorf("without nodes the reason is %q", got)
	}
	if _, err := s.store.Join(t.Context(), store.Session{
		ID: s.id(), Node: "two", Machine: "two", Roles: []string{store.RoleWorker}, Labels: map[string]string{"gpu": "yes"},
	}); err != nil {
		t.Fatal(err)
	}
	if got := reason("b"); got != "" {
		t.Errorf("with a node that fits the reason is %q", got)
	}
}
