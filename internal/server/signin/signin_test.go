package signin_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/signin"
	"github.com/belfry-cron/belfry/internal/server/signin/provider"
	"github.com/belfry-cron/belfry/store"
)

const callback = "http://127.0.0.1:1/ui/sign-in/callback"

// world is a provider and a server that people sign in to.
type world struct {
	*testing.T
	now      time.Time
	provider *provider.Provider
	server   *signin.Provider
	secret   string
}

var mapping = signin.Mapping{
	Groups:   map[string][]signin.Grant{"ops": {{Role: store.RoleAdmin}}, "web": {{Namespace: "a", Role: store.RoleViewer}, {Namespace: "b", Role: store.RoleRunner}}},
	People:   map[string][]signin.Grant{"ann@example.org": {{Namespace: "c", Role: store.RoleAdmin}}},
	Everyone: nil,
}

func newWorld(t *testing.T, change func(*signin.Config, *signin.Mapping)) *world {
	t.Helper()
	w := &world{T: t, now: time.Now(), secret: provider.Secret}
	w.provider = provider.New(func() time.Time { return w.now })
	t.Cleanup(w.provider.Close)
	c := signin.Config{
		Name: "sso", Issuer: w.provider.URL, ClientID: provider.Client, RedirectURL: callback, Scopes: []string{"email"}, GroupsClaim: "groups", Lasts: time.Hour,
		Secret: func(context.Context) (string, error) { return w.secret, nil }, Now: func() time.Time { return w.now },
	}
	m := mapping
	if change != nil {
		change(&c, &m)
	}
	var err error
	if w.server, err = signin.New(c, m); err != nil {
		t.Fatal(err)
	}
	return w
}

// browse goes to the provider and returns what the browser comes back with.
func (w *world) browse(address string) url.Values {
	w.Helper()
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := browser.Get(address)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	back, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(back.String(), callback+"?") {
		w.Fatalf("the provider sends the browser to %s, %v", back, err)
	}
	return back.Query()
}

// signIn goes all the way.
func (w *world) signIn() (*store.Person, error) {
	w.Helper()
	address, cookie, err := w.server.Begin(w.Context(), "/jobs")
	if err != nil {
		return nil, err
	}
	person, next, err := w.server.Finish(w.Context(), cookie, w.browse(address))
	if next != "/jobs" {
		w.Errorf("the browser goes to %q", next)
	}
	return person, err
}

func ann(groups ...string) map[string]any {
	return map[string]any{"sub": "17", "email": "Ann@example.org", "email_verified": true, "groups": groups}
}

func TestAPersonSignsInWithTheRolesOfTheirGroups(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		what         string
		claims, more map[string]any
		want, roles  string
	}{
		{"groups and address", ann("web", "other"), nil, "sso:Ann@example.org", "map[a:viewer b:runner c:admin]"},
		{"one group as a text", map[string]any{"sub": "1", "groups": "ops"}, nil, "sso:1", "map[:admin]"},
		{"an address that is not verified", map[string]any{"sub": "2", "email": "ann@example.org", "preferred_username": "bob", "groups": []string{"ops"}}, nil, "sso:bob", "map[:admin]"},
		{"groups beside the token", map[string]any{"sub": "3"}, map[string]any{"groups": []string{"web"}, "preferred_username": "carl"}, "sso:carl", "map[a:viewer b:runner]"},
		{"an address that is not the one that is verified", map[string]any{"sub": "5", "email": "ann@example.org"}, map[string]any{"email": "bob@example.org", "email_verified": true, "groups": "ops"}, "sso:5", "map[:admin]"},
		{"an address that is verified beside the token", map[string]any{"sub": "6", "email": "ann@example.org"}, map[string]any{"email": "ann@example.org", "email_verified": true, "groups": "ops"}, "sso:ann@example.org", "map[:admin c:admin]"},
		{"a name with what cannot be shown", map[string]any{"sub": "4", "preferred_username": "d\u202e\nx", "groups": []string{"ops"}}, nil, "sso:d x", "map[:admin]"},
	} {
		w.provider.SignIn(c.claims, c.more)
		person, err := w.signIn()
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if roles := fmt.Sprint(w.server.Roles(person)); person.Actor() != c.want || roles != c.roles {
			t.Errorf("%s: %s has %s, want %s with %s", c.what, person.Actor(), roles, c.want, c.roles)
		}
	}
}

func TestPeopleWithoutARoleAreRefusedAndMappingChangesApply(t *testing.T) {
	w := newWorld(t, nil)
	w.provider.SignIn(map[string]any{"sub": "9", "preferred_username": "eve", "groups": []string{"guests"}}, nil)
	_, err := w.signIn()
	var none *signin.NoRoleError
	if !errors.As(err, &none) || none.Person.Name != "eve" || fmt.Sprint(none.Groups) != "[guests]" {
		t.Errorf("eve: %v", err)
	}
	w.provider.SignIn(ann("web"), nil)
	person, err := w.signIn()
	if err != nil {
		t.Fatal(err)
	}
	w.server.Set(signin.Mapping{Groups: map[string][]signin.Grant{"web": {{Namespace: "a", Role: store.RoleRunner}}}})
	if got := fmt.Sprint(w.server.Roles(person)); got != "map[a:runner]" {
		t.Errorf("after the change ann has %s", got)
	}
	w.server.Set(signin.Mapping{Groups: map[string][]signin.Grant{"ops": {{Role: store.RoleAdmin}}}})
	if got := w.server.Roles(person); len(got) > 0 {
		t.Errorf("after her group was left out ann has %v", got)
	}
	w.server.Set(signin.Mapping{Everyone: []signin.Grant{{Role: store.RoleViewer}}, Domains: []string{"example.com"}})
	if got := w.server.Roles(person); len(got) > 0 {
		t.Errorf("with an address of another domain ann has %v", got)
	}
	if _, err = w.signIn(); !errors.As(err, &none) || !none.Domain {
		t.Errorf("of another domain: %v", err)
	}
	other := *person
	other.Provider = "another"
	if w.server.Roles(&other) != nil {
		t.Error("a person of another provider has roles")
	}
}

func TestInvalidIDTokensAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.provider.SignIn(ann("ops"), nil)
	for what, mistake := range map[string]func(header, claims map[string]any){
		"another nonce":         func(_, c map[string]any) { c["nonce"] = "another" },
		"no nonce":              func(_, c map[string]any) { delete(c, "nonce") },
		"another audience":      func(_, c map[string]any) { c["aud"] = "another" },
		"two audiences":         func(_, c map[string]any) { c["aud"] = []string{provider.Client, "another"} },
		"another party":         func(_, c map[string]any) { c["azp"] = "another" },
		"another issuer":        func(_, c map[string]any) { c["iss"] = "https://elsewhere.example.org" },
		"expired":               func(_, c map[string]any) { c["exp"] = w.now.Add(-time.Minute).Unix() },
		"no signature":          func(h, _ map[string]any) { h["alg"] = "none" },
		"a key that is unknown": func(h, _ map[string]any) { h["kid"] = "another" },
		"another access token":  func(_, c map[string]any) { c["at_hash"] = "AAAAAAAAAAAAAAAAAAAAAA" },
	} {
		w.provider.Mistake(mistake)
		var invalid *signin.InvalidError
		if person, err := w.signIn(); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, %v", what, person, err)
		}
	}
	w.provider.Mistake(nil)
	if _, err := w.signIn(); err != nil {
		t.Errorf("without a mistake: %v", err)
	}
	w.secret = "wrong"
	if _, err := w.signIn(); err == nil {
		t.Error("with a wrong client secret a person is signed in")
	}
}

func TestABrowserFinishesOnlyTheSignInThatItHasBegun(t *testing.T) {
	w := newWorld(t, nil)
	w.provider.SignIn(ann("ops"), nil)
	begin := func() (cookie string, back url.Values) {
		address, cookie, err := w.server.Begin(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		return cookie, w.browse(address)
	}
	mine, back := begin()
	other, theirs := begin()
	refused := func(what, cookie string, query url.Values) {
		t.Helper()
		if person, _, err := w.server.Finish(t.Context(), cookie, query); err == nil {
			t.Errorf("%s: %v is signed in", what, person)
		}
	}
	refused("without a cookie", "", back)
	refused("with a cookie that is none", "e30", back)
	refused("with the cookie of another sign-in", other, back)
	changed := maps.Clone(back)
	changed.Set("state", "another")
	refused("with another state", mine, changed)
	// The code of another sign-in: PKCE and the nonce do not fit.
	stolen := maps.Clone(back)
	stolen.Set("code", theirs.Get("code"))
	refused("with the code of another sign-in", mine, stolen)
	mixed := maps.Clone(back)
	mixed.Set("iss", "https://elsewhere.example.org")
	refused("with an answer of another issuer", mine, mixed)
	if _, _, err := w.server.Finish(t.Context(), mine, back); err != nil {
		t.Errorf("its own: %v", err)
	}
	refused("with a code that was used", mine, back)

	late, query := begin()
	w.now = w.now.Add(signin.Within + time.Second)
	refused("too late", late, query)

	w.provider.Deny("access_denied")
	cookie, query := begin()
	var denied *signin.DeniedError
	if _, _, err := w.server.Finish(t.Context(), cookie, query); !errors.As(err, &denied) || denied.Code != "access_denied" {
		t.Errorf("a person who does not agree: %v", err)
	}
}

func TestTheProviderMayBeAwayAndChangeItsKeys(t *testing.T) {
	w := newWorld(t, nil)
	w.provider.SetDown(true)
	var away *signin.AwayError
	for range 5 {
		if _, _, err := w.server.Begin(t.Context(), "/"); !errors.As(err, &away) {
			t.Fatalf("a provider that is away: %v", err)
		}
	}
	if n := w.provider.Asked(); n != 1 {
		t.Errorf("a provider that is away was asked %d times in a moment", n)
	}
	w.provider.SetDown(false)
	w.now = w.now.Add(2 * time.Second)
	w.provider.SignIn(ann("ops"), nil)
	if _, err := w.signIn(); err != nil {
		t.Fatalf("when the provider is back: %v", err)
	}
	w.provider.RotateKey()
	if _, err := w.signIn(); err != nil {
		t.Errorf("with a new key: %v", err)
	}
	// The cached metadata of the provider is used while it does not answer.
	w.now = w.now.Add(2 * time.Hour)
	w.provider.SetDown(true)
	if _, _, err := w.server.Begin(t.Context(), "/"); err != nil {
		t.Errorf("what was known is forgotten: %v", err)
	}
}
