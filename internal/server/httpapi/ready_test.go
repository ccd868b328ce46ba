package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// unreadableStore has a clock and cannot read.
type unreadableStore struct{ *memory.Store }

func (unreadableStore) Sessions(context.Context) ([]store.Session, error) {
	return nil, errors.New("the disk is gone, with its secrets")
}

// silentStore does not say whose a token is: it fails, or hangs.
type silentStore struct {
	*memory.Store
	fails, hangs bool
}

func (s *silentStore) Tokens(ctx context.Context) ([]store.Token, error) {
	switch {
	case s.fails:
		return nil, errors.New("the database is away")
	case s.hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Tokens(ctx)
}

func TestMetricsAreReadWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		on := &silentStore{Store: s.store}
		s.now = time.Now()
		s.tokens = auth.New(on, time.Now)
		s.handle(on)
		s.grant("prometheus", "viewer", store.RoleViewer, "")
		s.grant("web", "web", store.RoleViewer, "web")
		answers := func(when string, want map[string]int) {
			t.Helper()
			for request, status := range want {
				secret, path, _ := strings.Cut(request, " ")
				begun := time.Now()
				if w := s.as(secret, "GET", path, ""); w.Code != status {
					t.Errorf("%s, %s is answered with %d, want %d: %s", when, request, w.Code, status, w.Body)
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("%s, %s takes %s", when, request, took)
				}
			}
		}
		on.fails = true
		answers("when nothing was read yet", map[string]int{"viewer /metrics": 503})
		on.fails = false
		answers("with the store", map[string]int{"viewer /metrics": 200, "viewer /api/v1/jobs": 200, "web /metrics": 403, "guess /metrics": 401})
		time.Sleep(time.Minute)
		on.fails = true
		answers("without", map[string]int{"viewer /metrics": 200, "viewer /api/v1/jobs": 503, "web /metrics": 403, "guess /metrics": 503})
		on.fails, on.hangs = false, true
		answers("while it hangs", map[string]int{"viewer /metrics": 200})
	})
}

func TestAnOutageOfTokensIsLoggedOnce(t *testing.T) {
	s := newServer(t)
	on := &silentStore{Store: s.store}
	tokens := auth.New(on, s.clock)
	var log strings.Builder
	s.handler = newHandler(t, service.Config{Store: on, Tokens: tokens, Now: s.clock}, httpapi.Config{Tokens: tokens, Now: s.clock, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, on.fails = range []bool{false, true, true, true, false, false, true} {
		tokens.Forget()
		s.as(token, "GET", "/api/v1/jobs", "")
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	on.fails = false
	s.as(token, "GET", "/api/v1/jobs", "")
	tokens.Forget()
	on.hangs = true
	r := httptest.NewRequestWithContext(gone, "GET", "/api/v1/jobs", nil)
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+token)
	s.handler.ServeHTTP(httptest.NewRecorder(), r)
	for text, want := range map[string]int{"cannot look up tokens": 2, "looking up tokens works again": 2} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, log.String())
		}
	}
}

func TestReadyzHasRemarks(t *testing.T) {
	s := memory.New(memory.Options{})
	tokens := auth.New(s, nil)
	for _, c := range []struct {
		warning phrase.Text
		err     error
		status  int
		text    string
	}{
		{phrase.Text{}, nil, 200, "ok\n"},
		{phrase.NoSpaceLeft, nil, 200, "ok; the store has no space left: nothing starts\n"},
		{phrase.Text{}, errors.New("the outbox is full"), 503, "the outbox is full\n"},
	} {
		remark := func() (phrase.Text, error) { return c.warning, c.err }
		handler := newHandler(t, service.Config{Store: s, Tokens: tokens, Remark: remark}, httpapi.Config{Tokens: tokens})
		r := httptest.NewRequest("GET", "/readyz", nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.status || w.Body.String() != c.text {
			t.Errorf("%q, %v: the status is %d: %q", c.warning, c.err, w.Code, w.Body)
		}
	}
}

func TestUnreadableStoreMakesANodeLiveButNotReady(t *testing.T) {
	s := unreadableStore{memory.New(memory.Options{})}
	tokens := auth.New(s, nil)
	handler := newHandler(t, service.Config{Store: s, Tokens: tokens}, httpapi.Config{Tokens: tokens})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/livez":  {200, "ok\n"},
		"/readyz": {503, "the store does not answer\n"},
	} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want.status || w.Body.String() != want.text || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s has the status %d: %q", path, w.Code, w.Body)
		}
	}
}
