package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store"
)

// A browser sends the cookie of its session with every request of a page, whatever the page's site.
func TestSessionServesOnlyPagesOfThisServer(t *testing.T) {
	s := newServer(t)
	sessions := auth.NewSessions(s.tokens, nil)
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, bounded := r.Context().Deadline(); bounded {
			t.Error("a page has the time of a request to the API: it has one of its own, longer for the change of many jobs")
		}
		w.WriteHeader(http.StatusTeapot)
	})
	handler := newHandler(t, service.Config{Store: s.store, Tokens: s.tokens, Now: s.clock}, httpapi.Config{Tokens: s.tokens, Sessions: sessions, Pages: pages, Now: s.clock})
	s.grant("vera", "a viewer's token", store.RoleViewer, "")
	secret, err := sessions.Begin(t.Context(), auth.HashOf("a viewer's token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, cookie, site, origin string
		want                               int
	}{
		{"GET", "/api/v1/jobs", secret, "same-origin", "", 200},
		{"GET", "/api/v1/jobs", secret, "cross-site", "", 403},
		{"GET", "/api/v1/jobs", secret, "none", "", 403},
		{"GET", "/api/v1/jobs", secret, "", "", 403},
		{"GET", "/api/v1/jobs", secret, "", "http://127.0.0.1:8420", 200},
		{"GET", "/api/v1/jobs", secret, "", "http://evil.example", 403},
		{"GET", "/api/v1/jobs", "guessed", "same-origin", "", 401},
		{"POST", "/api/v1/jobs/default/a/run", secret, "same-origin", "", 403}, // a viewer
		{"GET", "/jobs", "", "", "", 418},
		{"GET", "/livez", "", "", "", 200},
		{"GET", "/api/nothing", "", "", "", 401},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		r.Host = "127.0.0.1:8420"
		if c.cookie != "" {
			r.AddCookie(&http.Cookie{Name: "belfry-8420", Value: c.cookie})
		}
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s %s of site %q and origin %q with the cookie %.8q answers %d, want %d: %s", c.method, c.path, c.site, c.origin, c.cookie, w.Code, c.want, w.Body)
		}
	}
}
