package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// from makes a request of an address with what it has for authorization.
func (s *server) from(address, authorization, method, path, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1:8420", address
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return s.answer(r)
}

// as makes a request with a token.
func (s *server) as(secret, method, path, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	return s.from("192.0.2.1:1", "Bearer "+secret, method, path, body)
}

const webJob = `{"name": "a", "namespace": "web", "schedule": {"cron": "0 * * * *"}, "run": {"shell": "true"}}`

func allRoutes(t *testing.T) []httpapi.Route {
	t.Helper()
	s := memory.New(memory.Options{})
	routes, err := httpapi.Routes(withService(t, service.Config{Store: s, Tokens: auth.New(s, nil)}, httpapi.Config{Tokens: auth.New(s, nil), Metrics: http.NotFoundHandler()}))
	if err != nil {
		t.Fatal(err)
	}
	return routes
}

func allPatterns(t *testing.T) (list []string) {
	t.Helper()
	for _, r := range allRoutes(t) {
		list = append(list, r.Pattern)
	}
	return list
}

func TestEachRouteDeclaresItsRight(t *testing.T) {
	for _, r := range allRoutes(t) {
		if !r.Declared {
			t.Errorf("%s does not declare which right it requires", r.Pattern)
		}
	}
}

// Every route with every kind of caller. Those who may not come first, so that
// those who may find what they are about.
func TestEachRouteAdmitsTheRightRoles(t *testing.T) {
	callers := []struct {
		name      string
		role      store.Role // "" for none
		namespace string
	}{
		{"none", "", ""}, {"wrong", "", ""}, {"expired", "", ""},
		{"viewer", store.RoleViewer, ""}, {"runner", store.RoleRunner, ""}, {"admin", store.RoleAdmin, ""},
		{"web-viewer", store.RoleViewer, "web"}, {"web-runner", store.RoleRunner, "web"}, {"web-admin", store.RoleAdmin, "web"},
		{"worker", store.RoleRemote, ""}, {"web-worker", store.RoleRemote, "web"}, {"joining", store.RoleJoin, ""},
		{"other-viewer", store.RoleViewer, "other"}, {"other-runner", store.RoleRunner, "other"}, {"other-admin", store.RoleAdmin, "other"},
	}
	for _, route := range allRoutes(t) {
		pattern, public, right := route.Pattern, route.Public, route.Right
		s := newServer(t)
		ok[client.Change](s, "POST", "/api/v1/jobs", webJob)
		run := ok[client.Run](s, "POST", "/api/v1/jobs/web/a/run", "")
		for _, c := range callers {
			if c.role != "" {
				s.grant(c.name, "secret of "+c.name, c.role, c.namespace)
			}
		}
		if _, err := s.store.PutToken(t.Context(), store.PutToken{Name: "expired", Hash: auth.HashOf("secret of expired"), Role: store.RoleAdmin, Lasts: time.Hour, Actor: "belfry"}); err != nil {
			t.Fatal(err)
		}
		s.pass(time.Hour)

		role, about := right.Role, subject(pattern, right)
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = "GET", pattern+"nothing"
		}
		path = strings.NewReplacer("{namespace}", "web", "{name}", "a", "{id}", run.ID.String(), "{session}", run.ID.String()).Replace(path)
		if about == "query" {
			path += "?namespace=web"
		}
		body := ""
		switch pattern {
		case "POST /api/v1/jobs":
			body = strings.Replace(webJob, `"a"`, `"b"`, 1)
		case "POST /api/v1/jobs:apply":
			body = `{"documents": [` + webJob + `], "dry_run": true}`
		}
		type attempt struct {
			name string
			want int // 0 for whatever is said to those who may
		}
		var refused, admitted []attempt
		for _, c := range callers {
			want := 0
			switch foreign := c.namespace == "other"; {
			case public:
			case c.role == "":
				want = http.StatusUnauthorized
			case !c.role.Allows(role), c.namespace != "" && about == "server", foreign && (about == "path" || about == "query"):
				want = http.StatusForbidden
			case foreign && about == "object" && body != "":
				want = http.StatusForbidden
			case foreign && about == "object":
				want = http.StatusNotFound
			}
			if want == 0 {
				admitted = append(admitted, attempt{c.name, 0})
			} else {
				refused = append(refused, attempt{c.name, want})
			}
		}
		if len(admitted) == 0 || !public && len(refused) < 3 {
			t.Fatalf("%s: %d callers may and %d may not", pattern, len(admitted), len(refused))
		}
		for _, a := range append(refused, admitted...) {
			header := "Bearer secret of " + a.name
			if a.name == "none" {
				header = ""
			}
			w := s.from("192.0.2.1:1", header, method, path, body)
			if a.want != 0 && w.Code != a.want {
				t.Errorf("%s as %s has the status %d, want %d: %s", pattern, a.name, w.Code, a.want, w.Body)
			}
			if a.want == 0 && (w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden) && !strings.Contains(pattern, " /hooks/") {
				t.Errorf("%s as %s is refused: %s", pattern, a.name, w.Body)
			}
			if strings.Contains(w.Body.String(), "secret of") {
				t.Errorf("%s as %s tells the token: %s", pattern, a.name, w.Body)
			}
		}
	}
}

// subject says what a route is about, for callers that are restricted to a namespace.
func subject(pattern string, right service.Right) string {
	switch {
	case right.Server:
		return "server"
	case strings.Contains(pattern, "{namespace}"):
		return "path"
	case strings.Contains(pattern, "/runs/{id}"), pattern == "POST /api/v1/jobs", pattern == "POST /api/v1/jobs:apply":
		return "object"
	case slices.Contains([]string{"jobs", "runs", "calendars", "pools", "windows", "hooks", "channels", "executors", "deliveries", "notifications", "secrets", "events", "audit", "attention", "stats", "load", "load/jobs"}, strings.TrimPrefix(pattern, "GET /api/v1/")):
		return "query"
	}
	return "nothing"
}

func TestNoSpellingOfARouteAvoidsTheToken(t *testing.T) {
	s := newServer(t)
	public := map[string]bool{"/livez": true, "/readyz": true}
	tried := 0
	for _, pattern := range allPatterns(t) {
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = "GET", pattern
		}
		for _, spelled := range []string{path, strings.Replace(path, "/api/", "/%61pi/", 1), "/" + path, path + "/", "/livez/.." + path, "/x/..//" + path} {
			for _, header := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + token, token} {
				tried++
				w := s.from(fmt.Sprintf("10.0.%d.%d:1", tried>>8, tried&255), header, method, spelled, "")
				want := http.StatusUnauthorized
				if public[spelled] {
					want = http.StatusOK
				}
				// There is nothing at an unclean path, for any caller.
				if w.Code == http.StatusNotFound && (strings.Contains(path, "/ping/") || strings.Contains(path, "/badge/") || strings.HasPrefix(path, "/hooks/")) {
					continue // its key stands in for a token, and this is none
				}
				if w.Code >= 400 && w.Code < 500 && strings.Contains(path, "/callbacks/") {
					continue // its secret does
				}
				if w.Code >= 400 && w.Code < 500 && strings.HasSuffix(path, "/sign-in") {
					continue // people have no token yet
				}
				if w.Code != want && (w.Code != http.StatusNotFound || !public[path]) {
					t.Errorf("%s %s with %q has the status %d, want %d", method, spelled, header, w.Code, want)
				}
			}
		}
	}
}

func TestInvalidTokensGetTheSameAnswer(t *testing.T) {
	s := newServer(t)
	var text string
	for _, header := range []string{"Bearer wrong", "Bearer " + token[:4], "Bearer " + strings.ToUpper(token), "Basic " + token, "Bearer belfry_" + strings.Repeat("x", 43)} {
		w := s.from("192.0.2.1:1", header, "GET", "/api/v1/jobs", "")
		if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%q has the status %d, %v", header, w.Code, w.Header())
		}
		if text == "" {
			text = w.Body.String()
		}
		if w.Body.String() != text {
			t.Errorf("the answer to %q is %s, and to another one %s", header, w.Body, text)
		}
	}
	if !strings.Contains(text, "belfry token reset") {
		t.Errorf("there is no way out in %s", text)
	}
}

func TestOnlyGuessingAddressesAreSlowed(t *testing.T) {
	s := newServer(t)
	const address = "198.51.100.7:4000"
	guess := func() *httptest.ResponseRecorder {
		return s.from(address, "Bearer guess", "GET", "/api/v1/jobs", "")
	}
	for n := range 20 {
		if w := guess(); w.Code != http.StatusUnauthorized {
			t.Fatalf("attempt %d has the status %d", n+1, w.Code)
		}
	}
	w := guess()
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("attempt 21 has the status %d, %v", w.Code, w.Header())
	}
	if w := s.from(address, "Bearer "+token, "GET", "/api/v1/jobs", ""); w.Code != http.StatusOK {
		t.Errorf("a valid token from the same address has the status %d", w.Code)
	}
	if w := s.from("198.51.100.8:4000", "Bearer guess", "GET", "/api/v1/jobs", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("another address has the status %d", w.Code)
	}
	s.pass(time.Minute)
	if w := guess(); w.Code != http.StatusUnauthorized {
		t.Errorf("a minute later the status is %d", w.Code)
	}
}

func TestListsShowOnlyTheNamespaceOfTheToken(t *testing.T) {
	s := newServer(t)
	s.grant("web", "of web", store.RoleAdmin, "web")
	for _, namespace := range []string{"web", "other"} {
		ok[client.Change](s, "POST", "/api/v1/jobs", strings.Replace(webJob, `"web"`, `"`+namespace+`"`, 1))
		ok[client.Run](s, "POST", "/api/v1/jobs/"+namespace+"/a/run", "")
		ok[client.Document](s, "PUT", "/api/v1/pools/"+namespace+"/p", `{"kind": "pool", "name": "p", "namespace": "`+namespace+`", "pool": {"size": 1}}`, "If-None-Match", "*")
		ok[client.Document](s, "PUT", "/api/v1/calendars/"+namespace+"/c", `{"kind": "calendar", "name": "c", "namespace": "`+namespace+`", "calendar": {"include": ["2026-12-25"]}}`, "If-None-Match", "*")
	}
	s.planner.table = map[job.ID]time.Time{}
	for _, namespace := range []string{"web", "other"} {
		j, err := store.JobNamed(t.Context(), s.store, namespace, "a")
		if err != nil {
			t.Fatal(err)
		}
		s.planner.table[j.Definition.UID] = s.clock().Add(time.Hour)
	}
	for _, path := range []string{"/jobs", "/jobs?sort=next", "/runs", "/pools", "/calendars"} {
		for secret, want := range map[string]int{"of web": 1, token: 2} {
			var page client.Page[json.RawMessage]
			w := s.as(secret, "GET", "/api/v1"+path, "")
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
			}
			if len(page.Items) != want {
				t.Errorf("%s with the token %q has %d items, want %d: %s", path, secret, len(page.Items), want, w.Body)
			}
			if secret != token && strings.Contains(w.Body.String(), "other") {
				t.Errorf("%s tells of another namespace: %s", path, w.Body)
			}
		}
	}
	// A job of another namespace is refused by its name, there or not, and has no runs by its
	// uid.
	j, err := store.JobNamed(t.Context(), s.store, "other", "a")
	if err != nil {
		t.Fatal(err)
	}
	if w := s.as("of web", "GET", "/api/v1/runs?job=other/a", ""); w.Code != http.StatusForbidden {
		t.Errorf("the runs of a job of another namespace: %d", w.Code)
	}
	s.tells()
	gone, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	r := httptest.NewRequestWithContext(gone, "GET", "/api/v1/events?job=other/a", nil)
	r.Host = "127.0.0.1:8420"
	r.Header.Set("Authorization", "Bearer of web")
	if w := s.answer(r); w.Code != http.StatusForbidden {
		t.Errorf("the events of a job of another namespace: %d", w.Code)
	}
	if w := s.as("of web", "GET", "/api/v1/runs?job="+j.Definition.UID.String(), ""); !strings.Contains(w.Body.String(), `"items":[]`) {
		t.Errorf("the runs of its uid: %s", w.Body)
	}
}

func TestJobReferencesStayInTheNamespaceOfTheToken(t *testing.T) {
	s := newServer(t)
	s.grant("web", "of web", store.RoleAdmin, "web")
	for _, tt := range []struct{ fields, path string }{
		{`"schedule": {"on": "other/a"}`, "schedule.on"},
		{`"schedule": {"cron": "0 * * * *", "except": ["other/holidays"]}`, "schedule"},
		{`"policy": {"concurrency_key": "other/db"}`, "policy.concurrency_key"},
		{`"namespace": "other"`, "namespace"},
	} {
		document := `{"name": "b", "namespace": "web", ` + tt.fields + `, "run": {"shell": "true"}}`
		if tt.path == "namespace" {
			document = `{"name": "b", ` + tt.fields + `, "run": {"shell": "true"}}`
		}
		for path, body := range map[string]string{"/jobs": document, "/jobs:apply": `{"documents": [` + document + `]}`} {
			w := s.as("of web", "POST", "/api/v1"+path, body)
			var p client.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Type != client.TypeForbidden || len(p.Errors) != 1 || p.Errors[0].Path != tt.path {
				t.Errorf("%s to %s: status %d: %s", tt.fields, path, w.Code, w.Body)
			}
		}
	}
	if w := s.as("of web", "POST", "/api/v1/jobs", `{"name": "b", "namespace": "web", "schedule": {"on": "c"}, "policy": {"concurrency_key": "db"}, "run": {"shell": "true"}}`); w.Code != http.StatusCreated {
		t.Errorf("what is in the namespace: status %d: %s", w.Code, w.Body)
	}
	// Pruning deletes nothing of another namespace.
	ok[client.Applied](s, "POST", "/api/v1/jobs:apply", `{"owner": "team", "documents": [`+strings.Replace(webJob, `"web"`, `"other"`, 1)+`]}`)
	if w := s.as("of web", "POST", "/api/v1/jobs:apply", `{"owner": "team", "prune": true, "documents": []}`); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"results":[]`) {
		t.Errorf("pruning: status %d: %s", w.Code, w.Body)
	}
}
