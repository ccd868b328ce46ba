package auth_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/auth"
)

// clockOf is a clock that a test sets.
func clockOf(now *time.Time) func() time.Time { return func() time.Time { return *now } }

func openSessions(t *testing.T, dir string, now *time.Time) *auth.Sessions {
	t.Helper()
	s, err := auth.OpenSessions(dir, clockOf(now))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASessionStandsForItsTokenUntilItEnds(t *testing.T) {
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	s := openSessions(t, t.TempDir(), &now)
	token := auth.HashOf("a token")
	begin := func() string {
		secret, err := s.Begin(token)
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	holds := func(secret string, want bool, when string) {
		t.Helper()
		if got, ok := s.Token(secret); ok != want || ok && got != token {
			t.Errorf("%s the session holds is %t, want %t", when, ok, want)
		}
	}
	idle, used, ended := begin(), begin(), begin()
	holds(idle, true, "at the beginning")
	holds("another", false, "for a guess")
	if err := s.End(ended); err != nil {
		t.Fatal(err)
	}
	holds(ended, false, "after its end")
	for range 13 {
		now = now.Add(auth.SessionIdle - time.Minute)
		holds(used, true, "while it is used")
	}
	holds(idle, false, "after a time without use")
	now = now.Add(auth.SessionIdle - time.Minute)
	now = now.Add(time.Hour)
	holds(used, false, "after its longest time")
}

func TestSessionsOutliveARestartAndAreKeptAsHashes(t *testing.T) {
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	secret, err := openSessions(t, dir, &now).Begin(auth.HashOf("a token"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, auth.SessionFile)
	data, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(data), secret) {
		t.Errorf("the file has the secret itself, or cannot be read: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file can be read by others: %v, %v", info.Mode(), err)
	}
	if _, ok := openSessions(t, dir, &now).Token(secret); !ok {
		t.Error("the session is gone after a restart")
	}
	if err := os.WriteFile(file, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := openSessions(t, dir, &now).Token(secret); ok {
		t.Error("half a file still has the session")
	}
}

func TestALoginCodeWorksOnceAndForAMinute(t *testing.T) {
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	s := openSessions(t, "", &now)
	token := auth.HashOf("a token")
	code := func() string {
		c, err := s.NewCode(token)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, late := code(), code()
	if got, ok := s.Redeem(first); !ok || got != token {
		t.Error("a fresh code does not work")
	}
	if _, ok := s.Redeem(first); ok {
		t.Error("a code works twice")
	}
	if _, ok := s.Token(late); ok {
		t.Error("a code is taken for a session")
	}
	now = now.Add(auth.CodeFor + time.Second)
	if _, ok := s.Redeem(late); ok {
		t.Error("a code works after its minute")
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
