package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/web"
	"github.com/belfry-cron/belfry/store"
)

func TestStrangersAreSentToTheLoginPage(t *testing.T) {
	w := newWorld(t)
	stranger := &browser{w, "no session"}
	for _, path := range w.pagePaths() {
		if answer := stranger.ask("GET", path, nil); answer.Code != http.StatusSeeOther || !strings.HasPrefix(answer.Header().Get("Location"), "/ui/login?next=") {
			t.Errorf("%s answers a stranger with %d", path, answer.Code)
		}
	}
	if answer := stranger.ask("GET", "/runs?outcome=failed", nil); answer.Header().Get("Location") != "/ui/login?next=%2Fruns%3Foutcome%3Dfailed" {
		t.Errorf("the login page does not know the way back: %s", answer.Header().Get("Location"))
	}
	if answer := stranger.ask("GET", "/jobs", nil, "X-Belfry", "1"); answer.Code != http.StatusUnauthorized {
		t.Errorf("a script of a page whose session has ended is answered with %d", answer.Code)
	}
	// The browser has not sent the cookie, because the link is on another site.
	if answer := stranger.ask("GET", "/jobs", nil, "Sec-Fetch-Site", "cross-site"); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `http-equiv="refresh"`) {
		t.Errorf("a link of another site is answered with %d: %s", answer.Code, answer.Body)
	}
	if answer := stranger.send("/jobs/shop/price-import/pause"); answer.Code != http.StatusUnauthorized {
		t.Errorf("a form of a stranger is answered with %d", answer.Code)
	}
}

func TestLogInAndOut(t *testing.T) {
	w := newWorld(t)
	stranger := &browser{w, ""}
	post := func(pairs ...string) *httptest.ResponseRecorder { return stranger.send("/ui/login", pairs...) }
	if answer := post("token", secretOf("eve")); answer.Code != http.StatusUnauthorized || len(answer.Result().Cookies()) != 0 {
		t.Errorf("a wrong token is answered with %d", answer.Code)
	}
	answer := post("token", " "+secretOf("ann")+" ", "next", "/runs", "zone", "Asia/Shanghai")
	if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "/runs" {
		t.Fatalf("logging in answers %d to %s", answer.Code, answer.Header().Get("Location"))
	}
	cookies := answer.Result().Cookies()
	if len(cookies) != 2 || !strings.Contains(cookies[1].Value, "Shanghai") {
		t.Errorf("the cookies are %v", cookies)
	}
	b := &browser{w, cookies[0].Value}
	if got := b.ask("GET", "/jobs", nil); got.Code != http.StatusOK {
		t.Errorf("the session shows no page: %d", got.Code)
	}
	for _, next := range []string{"//evil.example", "https://evil.example", `/\evil.example`, "javascript:alert(1)"} {
		if got := post("token", secretOf("ann"), "next", next).Header().Get("Location"); got != "/" {
			t.Errorf("after logging in %q leads to %q", next, got)
		}
	}
	if got := b.send("/ui/logout"); got.Code != http.StatusSeeOther {
		t.Errorf("logging out answers %d", got.Code)
	}
	if got := b.ask("GET", "/jobs", nil); got.Code != http.StatusSeeOther {
		t.Errorf("after logging out a page answers %d", got.Code)
	}
}

func TestACodeOfTheCommandLineLogsInOnce(t *testing.T) {
	w := newWorld(t)
	code, err := w.sessions.NewCode(t.Context(), auth.HashOf(secretOf("ann")))
	w.must(err)
	stranger := &browser{w, ""}
	if answer := stranger.send("/ui/login", "code", code); answer.Code != http.StatusSeeOther {
		t.Errorf("the code answers %d", answer.Code)
	}
	if answer := stranger.send("/ui/login", "code", code); answer.Code != http.StatusUnauthorized {
		t.Errorf("the code answers %d the second time", answer.Code)
	}
}

// Nodes share the sessions by the store: a browser may come to any of them.
func TestABrowserMayComeToAnyNode(t *testing.T) {
	w := newWorld(t)
	w.fill()
	other := *w
	other.tokens = auth.New(w.store, w.clock)
	other.sessions = auth.NewSessions(other.tokens, nil)
	s, err := service.New(service.Config{Store: w.store, Tokens: other.tokens, Now: w.clock})
	w.must(err)
	other.pages, err = web.Handler(web.Config{Service: web.ServiceOf(s), Tokens: other.tokens, Sessions: other.sessions, Node: "ber-2", Version: "test", Now: w.clock})
	w.must(err)

	code, err := w.sessions.NewCode(t.Context(), auth.HashOf(secretOf("ann")))
	w.must(err)
	stranger := &browser{&other, ""}
	stranger.ask("GET", "/jobs", nil) // this node has read the tokens by now
	w.now = w.now.Add(150 * time.Millisecond)
	other.now = w.now
	answer := stranger.send("/ui/login", "code", code)
	cookies := answer.Result().Cookies()
	if answer.Code != http.StatusSeeOther || len(cookies) == 0 {
		t.Fatalf("the code of another node answers %d: %.400s", answer.Code, answer.Body)
	}
	here, there := &browser{w, cookies[0].Value}, &browser{&other, cookies[0].Value}
	for name, b := range map[string]*browser{"one node": here, "the other": there} {
		if answer := b.ask("GET", "/jobs", nil); answer.Code != http.StatusOK {
			t.Errorf("the session answers %d on %s", answer.Code, name)
		}
		if answer := b.send("/jobs/shop/price-import/run"); answer.Code != http.StatusSeeOther {
			t.Errorf("a form answers %d on %s", answer.Code, name)
		}
	}
	here.send("/ui/logout")
	w.now = w.now.Add(time.Second)
	if answer := there.ask("GET", "/jobs", nil); answer.Code != http.StatusSeeOther {
		t.Errorf("a second after logging out on one node, the other answers %d", answer.Code)
	}
}

func TestLoggingOutEverywhereEndsTheSessionsOfTheToken(t *testing.T) {
	w := newWorld(t)
	here, elsewhere, other := w.login("ann"), w.login("ann"), w.login("vera")
	if answer := here.send("/ui/logout", "all", "1"); answer.Code != http.StatusSeeOther {
		t.Fatalf("logging out everywhere answers %d", answer.Code)
	}
	for name, c := range map[string]struct {
		b    *browser
		want int
	}{"this browser": {here, http.StatusSeeOther}, "her other one": {elsewhere, http.StatusSeeOther}, "that of another token": {other, http.StatusOK}} {
		if answer := c.b.ask("GET", "/jobs", nil); answer.Code != c.want {
			t.Errorf("%s is answered with %d, want %d", name, answer.Code, c.want)
		}
	}
}

func TestASessionEndsWithItsToken(t *testing.T) {
	w := newWorld(t)
	b := w.login("vera")
	w.must(w.store.DeleteToken(context.WithoutCancel(t.Context()), "vera", "ann"))
	w.tokens.Forget()
	if answer := b.ask("GET", "/jobs", nil); answer.Code != http.StatusSeeOther {
		t.Errorf("after its token was revoked the session answers %d", answer.Code)
	}
}

func TestWrongTokensAreCounted(t *testing.T) {
	stranger := &browser{newWorld(t), ""}
	for range 20 {
		stranger.send("/ui/login", "token", "wrong")
	}
	if answer := stranger.send("/ui/login", "token", "wrong"); answer.Code != http.StatusTooManyRequests || answer.Header().Get("Retry-After") == "" {
		t.Errorf("the 21st wrong token is answered with %d", answer.Code)
	}
}

func TestFormsOfOtherPagesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	for _, form := range []url.Values{{}, {"form": {"guessed"}}, {"form": {auth.FormToken("another session")}}} {
		if answer := b.ask("POST", "/jobs/shop/price-import/pause", form); answer.Code != http.StatusForbidden {
			t.Errorf("a form with %v answers %d", form, answer.Code)
		}
	}
	if j, err := store.JobNamed(t.Context(), w.store, "shop", "price-import"); err != nil || j.Definition.Paused {
		t.Errorf("a foreign form has paused the job: %v", err)
	}
}

// An administrator sees all sessions, and ends the session of another; other people do neither.
func TestAnAdministratorEndsASession(t *testing.T) {
	w := newWorld(t)
	admin, other := w.login("ann"), w.login("vera")
	body := admin.ask("GET", "/settings", nil).Body.String()
	at := regexp.MustCompile(`<b class="name" title="vera">.*?action="(/sessions/[^"]+/end)"`).FindStringSubmatch(body)
	if at == nil {
		t.Fatalf("the settings show no session of vera: %s", body[max(0, strings.Index(body, `id="sessions"`)):])
	}
	if body := other.ask("GET", "/settings", nil).Body.String(); strings.Contains(body, `id="sessions"`) {
		t.Error("the settings show the sessions to a person who is no administrator")
	}
	if answer := other.send(at[1]); answer.Code != http.StatusForbidden {
		t.Errorf("a person who is no administrator ends a session: %d", answer.Code)
	}
	if answer := admin.send(at[1]); answer.Code != http.StatusSeeOther {
		t.Errorf("ending a session answers %d: %s", answer.Code, answer.Body)
	}
	if answer := other.ask("GET", "/jobs", nil); answer.Code != http.StatusSeeOther {
		t.Errorf("a session that was ended shows a page: %d", answer.Code)
	}
	if answer := admin.ask("GET", "/jobs", nil); answer.Code != http.StatusOK {
		t.Errorf("the session of the administrator has ended: %d", answer.Code)
	}
}
