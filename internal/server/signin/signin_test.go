package signin_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/server/signin"
	"github.com/belfry-cron/belfry/internal/server/signin/provider"
	"github.com/belfry-cron/belfry/store"
)

// here is the address of a browser.
var here = netip.MustParsePrefix("192.0.2.1/32")

const callback = "http://127.0.0.1:1/ui/sign-in/callback"

// world is a provider and a server for sign-ins.
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

// browse goes to the provider and returns the query of the browser's return.
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

// signIn does a whole sign-in.
func (w *world) signIn() (*store.Person, error) {
	w.Helper()
	address, cookie, err := w.server.Begin(w.Context(), "/jobs")
	if err != nil {
		return nil, err
	}
	person, next, err := w.server.Finish(w.Context(), cookie, w.browse(address), here)
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
		{"an address that is not verified", map[string]any{"sub": "2", "email": "ann@example.org", "preferred_username": "bob", "groups": []string{"ops"}}, nil, "sso:bob#2", "map[:admin]"},
		{"groups beside the token", map[string]any{"sub": "3"}, map[string]any{"groups": []string{"web"}, "preferred_username": "carl"}, "sso:carl#3", "map[a:viewer b:runner]"},
		{"an address that is not the one that is verified", map[string]any{"sub": "5", "email": "ann@example.org"}, map[string]any{"email": "bob@example.org", "email_verified": true, "groups": "ops"}, "sso:5", "map[:admin]"},
		{"an address that is verified beside the token", map[string]any{"sub": "6", "email": "ann@example.org"}, map[string]any{"email": "ann@example.org", "email_verified": true, "groups": "ops"}, "sso:ann@example.org", "map[:admin c:admin]"},
		{"a name with what cannot be shown", map[string]any{"sub": "4", "preferred_username": "d\u202e\nx", "groups": []string{"ops"}}, nil, "sso:d x#4", "map[:admin]"},
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
	if !errors.As(err, &none) || none.Person.Name != "eve#9" || fmt.Sprint(none.Groups) != "[guests]" {
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
		"no subject":            func(_, c map[string]any) { delete(c, "sub") },
		"an empty subject":      func(_, c map[string]any) { c["sub"] = "" },
		"issued in the future":  func(_, c map[string]any) { c["iat"] = w.now.Add(time.Hour).Unix() },
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
		if person, _, err := w.server.Finish(t.Context(), cookie, query, here); err == nil {
			t.Errorf("%s: %v is signed in", what, person)
		}
	}
	refused("without a cookie", "", back)
	refused("with a cookie that is none", "e30", back)
	refused("with the cookie of another sign-in", other, back)
	changed := maps.Clone(back)
	changed.Set("state", "another")
	refused("with another state", mine, changed)
	mixed := maps.Clone(back)
	mixed.Set("iss", "https://elsewhere.example.org")
	refused("with an answer of another issuer", mine, mixed)
	if _, _, err := w.server.Finish(t.Context(), mine, back, here); err != nil {
		t.Errorf("its own: %v", err)
	}
	asked := w.provider.Asked()
	refused("with a cookie that was used", mine, back)
	if w.provider.Asked() != asked {
		t.Error("the provider is asked again")
	}
	// The code of another sign-in: PKCE and the nonce do not fit.
	mine, back = begin()
	back.Set("code", theirs.Get("code"))
	refused("with the code of another sign-in", mine, back)

	late, query := begin()
	w.now = w.now.Add(signin.Within + time.Second)
	refused("too late", late, query)

	w.provider.Deny("access_denied")
	cookie, query := begin()
	var denied *signin.DeniedError
	if _, _, err := w.server.Finish(t.Context(), cookie, query, here); !errors.As(err, &denied) || denied.Code != "access_denied" {
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
	// The provider's cached metadata is used while it does not answer.
	w.now = w.now.Add(2 * time.Hour)
	w.provider.SetDown(true)
	if _, _, err := w.server.Begin(t.Context(), "/"); err != nil {
		t.Errorf("what was known is forgotten: %v", err)
	}
}

func TestCookiesOfASignInAreSealedWithTheClientSecret(t *testing.T) {
	w := newWorld(t, nil)
	w.provider.SignIn(ann("ops"), nil)
	address, cookie, err := w.server.Begin(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	back := w.browse(address)
	asked := w.provider.Asked()
	text, seal, _ := strings.Cut(cookie, ".")
	known, _ := base64.RawURLEncoding.DecodeString(text)
	changed := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(known), `"u":"/"`, `"u":"/x"`, 1)))
	for what, forged := range map[string]string{"without a seal": text, "with an empty seal": text + ".", "with another seal": text + "." + strings.Repeat("A", len(seal)), "changed": changed + "." + seal} {
		if person, _, err := w.server.Finish(t.Context(), forged, back, here); !errors.Is(err, signin.ErrState) {
			t.Errorf("a cookie %s: %v, %v", what, person, err)
		}
	}
	if w.provider.Asked() != asked {
		t.Error("the provider was asked for a forged cookie")
	}
	// Another node with the same settings finishes the sign-in.
	other, err := signin.New(signin.Config{
		Name: "sso", Issuer: w.provider.URL, ClientID: provider.Client, RedirectURL: callback, GroupsClaim: "groups", Lasts: time.Hour,
		Secret: func(context.Context) (string, error) { return w.secret, nil }, Now: func() time.Time { return w.now },
	}, mapping)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.Finish(t.Context(), cookie, back, here); err != nil {
		t.Errorf("on another node: %v", err)
	}
}

// An address and whether it is verified both come from the ID token or both from the userinfo
// endpoint.
func TestAnAddressAndItsVerificationAreOfOneSource(t *testing.T) {
	w := newWorld(t, nil)
	for what, c := range map[string]struct {
		token, info map[string]any
		want        string
	}{
		"only verified in the token":           {map[string]any{"email_verified": true}, map[string]any{"email": "ann@example.org", "email_verified": false}, ""},
		"only verified in the token, no more":  {map[string]any{"email_verified": true}, map[string]any{"email": "ann@example.org"}, ""},
		"not verified in the token":            {map[string]any{"email": "ann@example.org", "email_verified": false}, map[string]any{"email": "ann@example.org", "email_verified": true}, ""},
		"both beside the token":                {map[string]any{}, map[string]any{"email": "ann@example.org", "email_verified": true}, "ann@example.org"},
		"the same address verified beside it":  {map[string]any{"email": "ann@example.org"}, map[string]any{"email": "ann@example.org", "email_verified": true}, "ann@example.org"},
		"another address verified beside it":   {map[string]any{"email": "ann@example.org"}, map[string]any{"email": "bob@example.org", "email_verified": true}, ""},
		"verified in the token, not beside it": {map[string]any{"email": "ann@example.org", "email_verified": true}, map[string]any{"email": "ann@example.org", "email_verified": false}, "ann@example.org"},
	} {
		c.token["sub"], c.info["groups"] = "17", "ops"
		w.provider.SignIn(c.token, c.info)
		person, err := w.signIn()
		if err != nil || person.Email != c.want {
			t.Errorf("%s: %+v, %v, want the address %q", what, person, err, c.want)
		}
	}
}

func TestAPersonCannotChooseTheNameOfAnother(t *testing.T) {
	w := newWorld(t, nil)
	byName := newWorld(t, func(c *signin.Config, _ *signin.Mapping) { c.NameClaim = "nickname" })
	names := map[string]string{}
	for _, c := range []struct {
		claims map[string]any
		want   string
	}{
		{map[string]any{"sub": "17", "email": "ann@example.org", "email_verified": true}, "ann@example.org"},
		{map[string]any{"sub": "18", "preferred_username": "ann@example.org"}, "18"},
		{map[string]any{"sub": "19", "email": "ann@example.org", "preferred_username": "ann"}, "ann#19"},
		{map[string]any{"sub": "20", "preferred_username": "ann#19"}, "20"},
		{map[string]any{"sub": "ann@example.org"}, "#ann@example.org"},
		{map[string]any{"sub": "ann#19"}, "#ann#19"},
		{map[string]any{"sub": "21", "preferred_username": "ann@example.org\u200b"}, "21"},
		{map[string]any{"sub": "22", "email": "ann#19@example.org", "email_verified": true}, "22"},
		{map[string]any{"sub": "x\ny"}, "sha256-"},
		{map[string]any{"sub": "x y"}, "x y"},
	} {
		for _, at := range []*world{w, byName} {
			c.claims["groups"] = "ops"
			if at == byName {
				c.claims["nickname"] = c.claims["preferred_username"]
				if c.claims["email_verified"] == true {
					continue
				}
			}
			at.provider.SignIn(c.claims, nil)
			person, err := at.signIn()
			if err != nil || !strings.HasPrefix(person.Name, c.want) || len(c.want) > 7 && person.Name != c.want {
				t.Errorf("%v: %+v, %v, want the name %q", c.claims, person, err, c.want)
				continue
			}
			if other, taken := names[person.Name]; taken && other != person.Subject {
				t.Errorf("%q and %q have the name %q", other, person.Subject, person.Name)
			}
			names[person.Name] = person.Subject
		}
	}
}

// Hanging sign-ins do not delay other addresses.
func TestSignInsOfOneAddressHaveAQuarterOfTheTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := signin.New(signin.Config{Name: "sso", Issuer: "https://id.example.org", ClientID: "belfry"}, mapping)
		if err != nil {
			t.Fatal(err)
		}
		busy := signin.Turns(p)
		var done []func()
		for range 4 {
			end, ok := busy(t.Context(), here)
			if !ok {
				t.Fatal("no turn")
			}
			done = append(done, end)
		}
		begun := time.Now()
		if _, ok := busy(t.Context(), here); ok || time.Since(begun) != 5*time.Second {
			t.Errorf("a fifth sign-in of an address: %v after %s", ok, time.Since(begun))
		}
		if end, ok := busy(t.Context(), netip.MustParsePrefix("192.0.2.2/32")); !ok {
			t.Error("another address has no turn")
		} else {
			end()
		}
		go func() { time.Sleep(time.Second); done[0]() }()
		begun = time.Now()
		if _, ok := busy(t.Context(), here); !ok || time.Since(begun) != time.Second {
			t.Errorf("after the first has ended: %v after %s", ok, time.Since(begun))
		}
	})
}
