package auth_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// sessionWorld is a store with the token ann, and nodes that share its sessions.
type sessionWorld struct {
	*testing.T
	now   time.Time
	store *memory.Store
	token store.TokenHash
}

func newSessionWorld(t *testing.T) *sessionWorld {
	t.Helper()
	w := &sessionWorld{T: t, now: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC), token: auth.HashOf("a token")}
	w.store = memory.New(memory.Options{Now: func() time.Time { return w.now }})
	for _, name := range []string{"ann", "admin"} {
		hash := w.token
		if name == "admin" {
			hash = auth.HashOf("another")
		}
		_, err := w.store.PutToken(t.Context(), store.PutToken{Name: name, Hash: hash, Role: store.RoleAdmin, Actor: "belfry"})
		w.must(err)
	}
	return w
}

func (w *sessionWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// node returns the sessions as a node of its own sees them.
func (w *sessionWorld) node() (*auth.Sessions, *auth.Tokens) {
	tokens := auth.New(w.store, func() time.Time { return w.now })
	return auth.NewSessions(tokens, nil), tokens
}

func TestASessionStandsForItsTokenUntilItEnds(t *testing.T) {
	w := newSessionWorld(t)
	one, _ := w.node()
	other, _ := w.node()
	begin := func() string {
		secret, err := one.Begin(t.Context(), w.token)
		w.must(err)
		return secret
	}
	holds := func(s *auth.Sessions, secret string, want bool, when string) {
		t.Helper()
		token, err := s.Holder(t.Context(), secret)
		if got := err == nil; got != want || got && token.Name != "ann" || !got && !errors.Is(err, auth.ErrUnknown) {
			t.Errorf("%s the session holds for %q, %v, want %t", when, token.Name, err, want)
		}
	}
	idle, used, ended := begin(), begin(), begin()
	holds(one, idle, true, "at the beginning")
	holds(other, idle, true, "at the beginning, on another node,")
	holds(one, "another", false, "for a guess")
	w.must(other.End(t.Context(), ended))
	w.now = w.now.Add(time.Second)
	holds(one, ended, false, "after its end")
	for range 13 {
		w.now = w.now.Add(auth.SessionIdle - time.Minute)
		holds(other, used, true, "while it is used")
	}
	holds(one, idle, false, "after a time without use")
	w.now = w.now.Add(auth.SessionIdle + time.Hour)
	holds(one, used, false, "after its longest time")
}

func TestASessionIsNoTokenAndEndsWithItsOwn(t *testing.T) {
	w := newSessionWorld(t)
	s, tokens := w.node()
	secret, err := s.Begin(t.Context(), w.token)
	w.must(err)
	if _, err := tokens.Authenticate(t.Context(), secret); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("a session is taken for a token: %v", err)
	}
	if _, ok := tokens.LastKnown(secret); ok {
		t.Error("a session is taken for a token while the store is away")
	}
	list, err := w.store.Tokens(t.Context())
	w.must(err)
	for _, one := range list {
		if strings.Contains(one.Name, secret) {
			t.Errorf("the store has the secret of the session in %q", one.Name)
		}
	}
	// Another token of the same name does not bring the session back.
	w.must(w.store.DeleteToken(t.Context(), "ann", "admin"))
	_, err = w.store.PutToken(t.Context(), store.PutToken{Name: "ann", Hash: auth.HashOf("a newer token"), Role: store.RoleAdmin, Actor: "admin"})
	w.must(err)
	tokens.Forget()
	if _, err := s.Holder(t.Context(), secret); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("the session outlives its token: %v", err)
	}
}

func TestANewSessionTakesTheRoomOfTheOldest(t *testing.T) {
	w := newSessionWorld(t)
	s, tokens := w.node()
	oldest, err := s.Begin(t.Context(), w.token)
	w.must(err)
	w.now = w.now.Add(time.Second)
	for i := range store.SessionsMax - 1 {
		name := fmt.Sprintf("session/x/%d", i)
		_, err := w.store.PutToken(t.Context(), store.PutToken{Name: name, Hash: auth.HashOf(name), Role: store.RoleSession, Lasts: auth.SessionIdle, Actor: "belfry"})
		w.must(err)
	}
	secret, err := s.Begin(t.Context(), w.token)
	w.must(err)
	if _, err := s.Holder(t.Context(), secret); err != nil {
		t.Errorf("the new session does not hold: %v", err)
	}
	if _, err := s.Holder(t.Context(), oldest); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("the oldest session holds: %v", err)
	}
	w.now = w.now.Add(auth.SessionIdle + time.Second)
	for range 2 {
		_, err = s.Begin(t.Context(), w.token)
		w.must(err)
	}
	tokens.Forget()
	list, err := w.store.Tokens(t.Context())
	w.must(err)
	if len(list) > store.SessionsMax-30 {
		t.Errorf("%d tokens are left: log-ins do not remove what is over", len(list))
	}
}

func TestALoginCodeWorksOnceAndForAMinute(t *testing.T) {
	w := newSessionWorld(t)
	s, _ := w.node()
	other, _ := w.node()
	code := func() string {
		c, err := s.NewCode(t.Context(), w.token)
		w.must(err)
		return c
	}
	first, late := code(), code()
	if got, err := other.Redeem(t.Context(), first); err != nil || got.Name != "ann" {
		t.Errorf("a fresh code does not work on another node: %v", err)
	}
	if _, err := s.Redeem(t.Context(), first); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("a code works twice: %v", err)
	}
	if _, err := s.Holder(t.Context(), late); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("a code is taken for a session: %v", err)
	}
	w.now = w.now.Add(auth.CodeFor + time.Second)
	if _, err := s.Redeem(t.Context(), late); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("a code works after its minute: %v", err)
	}
}

func TestTheCookieIsForOneHostAndNotForScripts(t *testing.T) {
	for _, c := range []struct {
		host   string
		tls    bool
		name   string
		secure bool
	}{
		{"127.0.0.1:8420", false, "belfry-8420", false},
		{"localhost:8421", false, "belfry-8421", false},
		{"belfry.example.org", false, "__Host-belfry", true}, // TLS ends before this server
		{"127.0.0.1:8420", true, "__Host-belfry", true},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if r.Host = c.host; c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		auth.SetSession(w, r, "secret")
		got := w.Result().Cookies()[0]
		if got.Name != c.name || got.Secure != c.secure || !got.HttpOnly || got.SameSite != http.SameSiteStrictMode || got.Path != "/" {
			t.Errorf("for %s the cookie is %+v", c.host, got)
		}
		r.AddCookie(got)
		if auth.SessionOf(r) != "secret" {
			t.Errorf("for %s the cookie is not read", c.host)
		}
	}
}

func TestFormsBelongToTheirSession(t *testing.T) {
	if !auth.IsFormToken("one", auth.FormToken("one")) || auth.IsFormToken("two", auth.FormToken("one")) || auth.IsFormToken("one", "") {
		t.Error("the token of a form is good for another session, or for none")
	}
}
