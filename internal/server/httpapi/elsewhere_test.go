package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestNodeWithoutTheAPINamesOneWithIt(t *testing.T) {
	s := newServer(t)
	s.handler = newHandler(t, service.Config{Store: s.store, Tokens: s.tokens, Now: s.clock}, httpapi.Config{
		Tokens: s.tokens, Now: s.clock, Node: "w1", WithoutAPI: true, Metrics: http.HandlerFunc(writeMetrics),
	})
	for path, status := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200} {
		if w := s.call("GET", path, ""); w.Code != status {
			t.Errorf("%s has the status %d: %s", path, w.Code, w.Body)
		}
	}
	elsewhere := func(want string) {
		t.Helper()
		for path, method := range map[string]string{
			"/api/v1/jobs": "GET", "/api/v1/jobs:apply": "POST", "/api/v1/events": "GET", "/openapi.json": "GET", "/": "GET", "/livez": "POST",
		} {
			if p := s.refused(client.TypeElsewhere, http.StatusMisdirectedRequest, method, path, ""); p.Hint != want {
				t.Errorf("%s %s has the hint %q, want %q", method, path, p.Hint, want)
			}
		}
	}
	missing := "no live node has the role; start one with belfry serve --roles api and the same store"
	elsewhere(missing)
	join := func(id byte, node string, roles ...string) {
		session := store.Session{ID: job.ID{id}, Node: node, Machine: node, DataDir: "/d", Roles: roles, Address: "https://" + node + ":8420"}
		if _, err := s.store.Join(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	join(1, "w1", "worker")
	elsewhere(missing)
	join(3, "b", "planner", "api")
	join(2, "a", "api")
	elsewhere("these answer: node a at https://a:8420, node b at https://b:8420")
	s.pass(time.Minute) // all of them are silent
	elsewhere(missing)

	s.refused(client.TypeUnauthenticated, http.StatusUnauthorized, "GET", "/api/v1/jobs", "", "Authorization", "")
}
