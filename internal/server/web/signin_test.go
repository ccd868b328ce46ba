package web_test

import (
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/signin"
	"github.com/belfry-cron/belfry/internal/server/signin/provider"
	"github.com/belfry-cron/belfry/internal/server/web"
	"github.com/belfry-cron/belfry/store"
)

// people is a world whose people sign in at a provider.
type people struct {
	*world
	provider *provider.Provider
	signIn   *signin.Provider
}

var groups = map[string][]signin.Grant{
	"ops": {{Role: store.RoleAdmin}}, "team": {{Namespace: "shop", Role: store.RoleViewer}, {Namespace: "data", Role: store.RoleRunner}},
}

func newPeople(t *testing.T) *people {
	w := &people{world: newWorld(t)}
	w.now = time.Now() // tokens of the provider are as old as it says
	w.provider = provider.New(w.clock)
	t.Cleanup(w.provider.Close)
	var err error
	w.signIn, err = signin.New(signin.Config{
		Name: "sso", Issuer: w.provider.URL, ClientID: provider.Client, RedirectURL: "http://127.0.0.1:8420/ui/sign-in/callback", GroupsClaim: "groups", Lasts: time.Hour,
		Secret: func(context.Context) (string, error) { return provider.Secret, nil }, Now: w.clock,
	}, signin.Mapping{Groups: groups})
	w.must(err)
	w.sessions = auth.NewSessions(w.tokens, w.signIn)
	s, err := service.New(service.Config{Store: w.store, Tokens: w.tokens, People: w.signIn, Now: w.clock})
	w.must(err)
	w.pages, err = web.Handler(web.Config{Service: web.ServiceOf(s), Tokens: w.tokens, Sessions: w.sessions, SignIn: w.signIn, SignInAt: "Example ID", Node: "ber-1", Version: "test", Now: w.clock})
	w.must(err)
	w.fill()
	return w
}

// visit asks for a page with cookies, which the answer changes.
func (w *people) visit(address string, cookies map[string]string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest("GET", address, nil)
	r.Host = "127.0.0.1:8420"
	for name, value := range cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer := httptest.NewRecorder()
	w.pages.ServeHTTP(answer, r)
	for _, c := range answer.Result().Cookies() {
		if cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(cookies, c.Name)
		}
	}
	return answer
}

// enter signs a person in, and returns the last answer.
func (w *people) enter(claims map[string]any, next string, cookies map[string]string) *httptest.ResponseRecorder {
	w.t.Helper()
	w.provider.SignIn(claims, nil)
	answer := w.visit("/ui/sign-in?next="+url.QueryEscape(next), cookies)
	if answer.Code != http.StatusSeeOther {
		w.t.Fatalf("the sign-in begins with %d: %s", answer.Code, answer.Body)
	}
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	back, err := browser.Get(answer.Header().Get("Location"))
	w.must(err)
	w.must(back.Body.Close())
	address, found := strings.CutPrefix(back.Header.Get("Location"), "http://127.0.0.1:8420")
	if !found {
		w.t.Fatalf("the provider sends the browser to %s", back.Header.Get("Location"))
	}
	return w.visit(address, cookies)
}

const sessionCookie = "belfry-8420"

func member(groups ...string) map[string]any {
	return map[string]any{"sub": "17", "email": "kim@example.org", "email_verified": true, "groups": groups}
}

func TestAPersonSignsInAndHasOneRoleHereAndAnotherThere(t *testing.T) {
	w := newPeople(t)
	cookies := map[string]string{}
	if page := w.visit("/ui/login", cookies).Body.String(); !strings.Contains(page, "Sign in with Example ID") || !strings.Contains(page, `name="token"`) {
		t.Error("the sign-in page has no button for the provider, or no field for a token")
	}
	answer := w.enter(member("team"), "/jobs", cookies)
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "url=/jobs") || cookies[sessionCookie] == "" {
		t.Fatalf("after the sign-in: %d, %v, %s", answer.Code, cookies, answer.Body)
	}
	if len(cookies) != 1 {
		t.Errorf("the cookie of the sign-in is left: %v", cookies)
	}
	page := w.visit("/jobs", cookies).Body.String()
	for text, want := range map[string]bool{"price-import": true, "warehouse-load": true, "by-hand": false, "sso:kim@example.org": true} {
		if strings.Contains(page, text) != want {
			t.Errorf("the list of jobs has %q: %t, want %t", text, !want, want)
		}
	}
	if code := w.visit("/jobs/ops/by-hand", cookies).Code; code != http.StatusForbidden {
		t.Errorf("a job of another namespace: %d", code)
	}
	for address, want := range map[string]bool{"/jobs/data/warehouse-load": true, "/jobs/shop/price-import": false} {
		page := w.visit(address, cookies).Body.String()
		if strings.Contains(page, "/run\"") != want {
			t.Errorf("%s has a button to run: %t, want %t", address, !want, want)
		}
	}
	run := func(address string) int {
		r := httptest.NewRequest("POST", address+"/run", strings.NewReader(url.Values{"form": {auth.FormToken(cookies[sessionCookie])}}.Encode()))
		r.Host = "127.0.0.1:8420"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: sessionCookie, Value: cookies[sessionCookie]})
		answer := httptest.NewRecorder()
		w.pages.ServeHTTP(answer, r)
		return answer.Code
	}
	if code := run("/jobs/shop/price-import"); code != http.StatusForbidden {
		t.Errorf("a viewer runs a job: %d", code)
	}
	if code := run("/jobs/data/warehouse-load"); code != http.StatusSeeOther {
		t.Errorf("a runner cannot run a job: %d", code)
	}
	records, _, err := w.store.Audit(t.Context(), store.AuditQuery{Actor: "sso:kim@example.org", Limit: 10})
	w.must(err)
	if len(records) != 2 || records[0].Object != "data/warehouse-load" || records[1].Action != "session.begin" || !strings.Contains(records[1].Detail.String(), "runner in data, viewer in shop; subject 17 of sso") {
		t.Errorf("the audit has %+v", records)
	}

	// The mapping changes: the session has the new roles at once, and ends with the last.
	w.signIn.Set(signin.Mapping{Groups: map[string][]signin.Grant{"team": {{Namespace: "ops", Role: store.RoleViewer}}}})
	if page := w.visit("/jobs", cookies).Body.String(); strings.Contains(page, "price-import") || !strings.Contains(page, "by-hand") {
		t.Error("the session keeps roles that were taken away")
	}
	w.signIn.Set(signin.Mapping{Groups: map[string][]signin.Grant{"others": {{Role: store.RoleAdmin}}}})
	if code := w.visit("/jobs", cookies).Code; code != http.StatusSeeOther {
		t.Errorf("the session of a person without roles: %d", code)
	}
	w.signIn.Set(signin.Mapping{Groups: groups})
	if code := w.visit("/jobs", cookies).Code; code != http.StatusOK {
		t.Errorf("the session is gone: %d", code)
	}
	w.now = w.now.Add(time.Hour)
	if code := w.visit("/jobs", cookies).Code; code != http.StatusSeeOther {
		t.Errorf("the session lasts longer than it may: %d", code)
	}
}

func TestAnEndedSessionOpensNoPage(t *testing.T) {
	w := newPeople(t)
	here, there := map[string]string{}, map[string]string{}
	w.enter(member("ops"), "/", here)
	w.enter(member("ops"), "/", there)
	answers, err := service.New(service.Config{Store: w.store, Tokens: w.tokens, People: w.signIn, Now: w.clock})
	w.must(err)
	ended, err := answers.Access.EndSessions(t.Context(), service.Caller{Name: "root", Role: store.RoleAdmin}, "sso:kim@example.org")
	w.must(err)
	if ended.Ended != 2 {
		t.Errorf("%d sessions were ended", ended.Ended)
	}
	for _, cookies := range []map[string]string{here, there} {
		if code := w.visit("/jobs", cookies).Code; code != http.StatusSeeOther {
			t.Errorf("an ended session answers %d", code)
		}
	}
	w.enter(member("ops"), "/", here)
	if code := w.visit("/jobs", here).Code; code != http.StatusOK {
		t.Errorf("after another sign-in: %d", code)
	}
}

func TestASignInThatFailsSaysWhy(t *testing.T) {
	w := newPeople(t)
	cookies := map[string]string{}
	answer := w.enter(member("guests"), "/", cookies)
	if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "kim@example.org has no role here. None of these groups has one: guests.") || len(cookies) > 0 {
		t.Errorf("without a role: %d, %v", answer.Code, cookies)
	}
	if answer := w.visit("/ui/sign-in/callback?state=x&code=y", map[string]string{}); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "did not begin in this browser") {
		t.Errorf("from nowhere: %d", answer.Code)
	}
	w.provider.Mistake(func(_, claims map[string]any) { claims["nonce"] = "another" })
	if answer := w.enter(member("ops"), "/", cookies); answer.Code != http.StatusBadGateway || cookies[sessionCookie] != "" {
		t.Errorf("with another nonce: %d", answer.Code)
	}
	w.provider.Mistake(nil)
	for range 20 {
		answer = w.visit("/ui/sign-in/callback", map[string]string{})
	}
	if answer.Code != http.StatusTooManyRequests {
		t.Errorf("many sign-ins that fail: %d", answer.Code)
	}
}

func TestASignInLeadsNowhereElseAndTakesNoSessionOver(t *testing.T) {
	w := newPeople(t)
	for _, next := range []string{"https://evil.example.org/", "//evil.example.org/", `/\evil.example.org`, "/\t/evil.example.org", "javascript:alert(1)", "jobs"} {
		answer := w.enter(member("ops"), next, map[string]string{})
		if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), "evil") || !strings.Contains(answer.Body.String(), `url=/"`) {
			t.Errorf("next %q leads to %s", next, answer.Body)
		}
	}
	// A session that someone has planted is not the one of the person, and ends.
	planted, err := w.sessions.Begin(t.Context(), auth.HashOf(secretOf("vera")))
	w.must(err)
	cookies := map[string]string{sessionCookie: planted}
	w.enter(member("ops"), "/", cookies)
	if cookies[sessionCookie] == planted {
		t.Error("the session is the one from before")
	}
	if _, err := w.sessions.Holder(t.Context(), planted); err == nil {
		t.Error("the session from before is good still")
	}
	if holder, err := w.sessions.Holder(t.Context(), cookies[sessionCookie]); err != nil || holder.Name != "sso:kim@example.org" {
		t.Errorf("the session is of %q, %v", holder.Name, err)
	}
	w.must(w.sessions.End(t.Context(), cookies[sessionCookie]))
	if code := w.visit("/", cookies).Code; code != http.StatusSeeOther {
		t.Errorf("after the log-out: %d", code)
	}
}

// post sends a form with cookies.
func (w *people) post(address string, form url.Values, cookies map[string]string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest("POST", address, strings.NewReader(form.Encode()))
	r.Host = "127.0.0.1:8420"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, value := range cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer := httptest.NewRecorder()
	w.pages.ServeHTTP(answer, r)
	return answer
}

var (
	backToCommand = regexp.MustCompile(`url=(http://127\.0\.0\.1:[^"]+)"`)
	shownCode     = regexp.MustCompile(`<code[^>]*>([A-Za-z0-9_-]{43})</code>`)
)

func TestAPersonLetsACommandLineSignIn(t *testing.T) {
	w := newPeople(t)
	const verifier = "the verifier of a command line"
	query := url.Values{"challenge": {auth.Challenge(verifier)}, "state": {"of-the-command"}, "port": {"4242"}}
	page := "/ui/sign-in/command?" + query.Encode()

	// A stranger signs in first, and who has logged in with a token goes to the provider.
	cookies := map[string]string{}
	if answer := w.visit(page, cookies); answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "/ui/login?next="+url.QueryEscape(page) {
		t.Errorf("a stranger: %d, %s", answer.Code, answer.Header().Get("Location"))
	}
	ofToken, err := w.sessions.Begin(t.Context(), auth.HashOf(secretOf("vera")))
	w.must(err)
	if answer := w.visit(page, map[string]string{sessionCookie: ofToken}); answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "/ui/sign-in?next="+url.QueryEscape(page) {
		t.Errorf("with a token: %d, %s", answer.Code, answer.Header().Get("Location"))
	}
	if answer := w.enter(member("team"), page, cookies); !strings.Contains(answer.Body.String(), "url=/ui/sign-in/command?challenge=") {
		t.Fatalf("after the sign-in: %s", answer.Body)
	}
	asked := w.visit(page, cookies)
	if body := asked.Body.String(); asked.Code != http.StatusOK || !strings.Contains(body, "asks to act as sso:kim@example.org") || !strings.Contains(body, query.Get("challenge")) {
		t.Errorf("the page: %d, %s", asked.Code, body)
	}

	form := func(port string) url.Values {
		return url.Values{"form": {auth.FormToken(cookies[sessionCookie])}, "challenge": query["challenge"], "state": query["state"], "port": {port}}
	}
	answer := w.post("/ui/sign-in/command", form("4242"), cookies)
	found := backToCommand.FindStringSubmatch(answer.Body.String())
	if answer.Code != http.StatusOK || found == nil || answer.Header().Get("Referrer-Policy") != "no-referrer" {
		t.Fatalf("the approval: %d, %s", answer.Code, answer.Body)
	}
	back, err := url.Parse(html.UnescapeString(found[1]))
	w.must(err)
	if back.Host != "127.0.0.1:4242" || back.Path != "/" || back.Query().Get("state") != "of-the-command" {
		t.Errorf("the browser goes to %s", back)
	}
	_, holder, _, err := w.sessions.BeginCommand(t.Context(), back.Query().Get("code"), verifier)
	w.must(err)
	if holder.Name != "sso:kim@example.org" || holder.Roles["data"] != store.RoleRunner {
		t.Errorf("the command is %q with %v", holder.Name, holder.Roles)
	}

	// Without a port the page shows the code.
	answer = w.post("/ui/sign-in/command", form(""), cookies)
	code := shownCode.FindStringSubmatch(answer.Body.String())
	if code == nil || backToCommand.MatchString(answer.Body.String()) {
		t.Fatalf("without a port: %d, %s", answer.Code, answer.Body)
	}
	_, _, _, err = w.sessions.BeginCommand(t.Context(), code[1], verifier)
	w.must(err)

	// A form of another page, and addresses that belfry login does not print.
	forged := form("4242")
	forged.Set("form", "another")
	if answer := w.post("/ui/sign-in/command", forged, cookies); answer.Code != http.StatusForbidden {
		t.Errorf("a form of another site: %d", answer.Code)
	}
	for name, values := range map[string][]string{"challenge": {"", "short", strings.Repeat("x", 44)}, "state": {"", "a b", strings.Repeat("x", 129)}, "port": {"80", "65536", "-1", "1024@evil.example"}} {
		for _, value := range values {
			wrong := form("4242")
			wrong.Set(name, value)
			if answer := w.post("/ui/sign-in/command", wrong, cookies); answer.Code != http.StatusBadRequest {
				t.Errorf("%s %q is approved: %d", name, value, answer.Code)
			}
			if answer := w.visit("/ui/sign-in/command?"+wrong.Encode(), cookies); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), name) {
				t.Errorf("%s %q is shown: %d", name, value, answer.Code)
			}
		}
	}
}

// An address whose sign-ins the provider has refused is refused here, and the provider is asked no more.
func TestAnAddressWithManyRefusedSignInsReachesNoProvider(t *testing.T) {
	w := newPeople(t)
	w.provider.SignIn(member("ops"), nil)
	forged := func() int {
		cookies := map[string]string{}
		begun, err := url.Parse(w.visit("/ui/sign-in", cookies).Header().Get("Location"))
		w.must(err)
		return w.visit("/ui/sign-in/callback?code=guessed&state="+begun.Query().Get("state"), cookies).Code
	}
	for range 21 {
		forged()
	}
	asked := w.provider.Asked()
	if code := forged(); code != http.StatusTooManyRequests || w.provider.Asked() != asked {
		t.Errorf("after 21 guesses: %d, and the provider was asked %d times more", code, w.provider.Asked()-asked)
	}
	w.now = w.now.Add(time.Minute)
	if answer := w.enter(member("ops"), "/", map[string]string{}); answer.Code != http.StatusOK {
		t.Errorf("a minute later: %d", answer.Code)
	}
}
