package auth_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
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

// node returns the sessions of another node.
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
	// Another token of the same name does not restore the session.
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
		{"belfry.example.org", false, "__Host-belfry", true}, // a proxy ends TLS
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

// staff are people with one role in all namespaces.
type staff struct {
	lasts time.Duration
	gone  bool // they have lost the role
}

func (s *staff) Roles(*store.Person) map[string]store.Role {
	if s.gone {
		return nil
	}
	return map[string]store.Role{"": store.RoleRunner}
}

func (s *staff) Lasts() time.Duration { return s.lasts }

func TestAPersonLetsACommandBeginASessionOfItsOwn(t *testing.T) {
	w := newSessionWorld(t)
	people := &staff{lasts: 8 * time.Hour}
	node := func() *auth.Sessions {
		return auth.NewSessions(auth.New(w.store, func() time.Time { return w.now }), people)
	}
	browser, command := node(), node()
	ann := &store.Person{Provider: "sso", Subject: "17", Name: "ann@example.org"}
	signedIn := w.now
	secret, err := browser.BeginPerson(t.Context(), ann)
	w.must(err)
	approve := func(secret, challenge string) string {
		t.Helper()
		code, err := browser.Approve(t.Context(), secret, challenge)
		w.must(err)
		return code
	}
	refused := func(what, code, verifier string) {
		t.Helper()
		if _, _, _, err := command.BeginCommand(t.Context(), code, verifier); !errors.Is(err, auth.ErrUnknown) {
			t.Errorf("%s begins a session: %v", what, err)
		}
	}
	const verifier = "a verifier"
	w.now = w.now.Add(6 * time.Hour)
	code := approve(secret, auth.Challenge(verifier))
	refused("another verifier", code, "another")
	refused("another code", "another", verifier)
	refused("the session in place of the code", secret, verifier)
	if _, err := browser.Redeem(t.Context(), code); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("the code logs a browser in: %v", err)
	}
	own, holder, ends, err := command.BeginCommand(t.Context(), code, verifier)
	w.must(err)
	if own == secret || holder.Name != "sso:ann@example.org" || holder.Roles[""] != store.RoleRunner || !ends.Equal(signedIn.Add(people.lasts)) {
		t.Errorf("the command has the session of %q with %v until %s", holder.Name, holder.Roles, ends)
	}
	refused("a code that was used", code, verifier)

	late := approve(secret, auth.Challenge(verifier))
	w.now = w.now.Add(auth.CodeFor)
	refused("a code that is a minute old", late, verifier)

	// The end of one session does not end the other.
	w.must(browser.End(t.Context(), secret))
	if holder, err := command.Holder(t.Context(), own); err != nil || holder.Name != "sso:ann@example.org" {
		t.Errorf("the session of the command is of %q, %v", holder.Name, err)
	}
	// A chain of sessions ends with the sign-in.
	again := approve(own, auth.Challenge(verifier))
	w.now = w.now.Add(time.Second) // the other node reads the store each second
	next, _, ends, err := command.BeginCommand(t.Context(), again, verifier)
	w.must(err)
	if !ends.Equal(signedIn.Add(people.lasts)) {
		t.Errorf("the next session lasts until %s", ends)
	}
	pending := approve(own, auth.Challenge(verifier))
	people.gone = true
	refused("a person without a role", pending, verifier)
	people.gone = false
	w.now = signedIn.Add(people.lasts)
	for _, secret := range []string{own, next} {
		if _, err := command.Holder(t.Context(), secret); !errors.Is(err, auth.ErrUnknown) {
			t.Errorf("a session outlives the sign-in: %v", err)
		}
	}
}

func TestOnlyAPersonWithAChallengeApprovesACommand(t *testing.T) {
	w := newSessionWorld(t)
	s := auth.NewSessions(auth.New(w.store, func() time.Time { return w.now }), &staff{lasts: time.Hour})
	ofToken, err := s.Begin(t.Context(), w.token)
	w.must(err)
	if _, err := s.Approve(t.Context(), ofToken, auth.Challenge("x")); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("the session of a token approves a command: %v", err)
	}
	person, err := s.BeginPerson(t.Context(), &store.Person{Provider: "sso", Subject: "1", Name: "ann"})
	w.must(err)
	for _, challenge := range []string{"", "x", "a/b", auth.Challenge("x") + "A", strings.Repeat("=", 43), auth.Challenge("x")[:42] + "/"} {
		if _, err := s.Approve(t.Context(), person, challenge); !errors.Is(err, auth.ErrChallenge) {
			t.Errorf("the challenge %q is taken: %v", challenge, err)
		}
	}
}

// An address may be reassigned to another person, who then has sessions beside the first person's.
func TestTwoPeopleNeverHaveOneNameInTheAudit(t *testing.T) {
	w := newSessionWorld(t)
	sessions := auth.NewSessions(auth.New(w.store, func() time.Time { return w.now }), &staff{lasts: time.Hour})
	var names []string
	for _, subject := range []string{"17", "18", "17"} {
		secret, err := sessions.BeginPerson(t.Context(), &store.Person{Provider: "sso", Subject: subject, Name: "ann@example.org"})
		w.must(err)
		holder, err := sessions.Holder(t.Context(), secret)
		w.must(err)
		names = append(names, holder.Name)
	}
	if want := []string{"sso:ann@example.org", "sso:ann@example.org#18", "sso:ann@example.org"}; !slices.Equal(names, want) {
		t.Errorf("the names are %q, want %q", names, want)
	}
}
