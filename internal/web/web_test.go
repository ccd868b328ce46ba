package web_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/internal/service"
	"github.com/belfry-cron/belfry/internal/web"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// world is a web UI on a store in memory, with one of everything.
type world struct {
	t        *testing.T
	now      time.Time
	store    *memory.Store
	tokens   *auth.Tokens
	sessions *auth.Sessions
	pages    http.Handler
	ids      int
	node     job.ID
	failed   job.ID
	running  job.ID
	flow     job.ID // it waits for an answer, and for a signal
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 11, 23, 8, 41, 0, 0, time.UTC)}
	w.store = memory.New(memory.Options{Now: w.clock})
	w.serve(service.Config{Store: w.store})
	w.grant("ann", "", store.RoleAdmin)
	w.grant("vera", "", store.RoleViewer)
	return w
}

// serve answers requests with another service.
func (w *world) serve(c service.Config) {
	w.t.Helper()
	w.tokens = auth.New(w.store, w.clock)
	w.sessions = auth.NewSessions(w.tokens, nil)
	c.Tokens, c.Now = w.tokens, w.clock
	s, err := service.New(c)
	w.must(err)
	w.pages, err = web.Handler(web.Config{Service: web.ServiceOf(s), Tokens: w.tokens, Sessions: w.sessions, Node: "ber-1", Version: "test", Now: w.clock})
	w.must(err)
}

func (w *world) clock() time.Time { return w.now }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) id() (id job.ID) {
	w.ids++
	id[0], id[14], id[15] = 1, byte(w.ids>>8), byte(w.ids)
	return id
}

// secretOf is the token of a person.
func secretOf(name string) string {
	return "belfry_" + base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf("%-32s", name)))
}

func (w *world) grant(name, namespace string, role store.Role) {
	w.t.Helper()
	_, err := w.store.PutToken(w.t.Context(), store.PutToken{Name: name, Hash: auth.HashOf(secretOf(name)), Role: role, Namespace: namespace, Actor: "ann"})
	w.must(err)
}

// fill puts jobs and runs in.
func (w *world) fill() {
	w.t.Helper()
	ctx := w.t.Context()
	w.node = w.id()
	_, err := w.store.Join(ctx, store.Session{ID: w.node, Node: "ber-1", Roles: []string{store.RoleWorker}, Capacity: 8, Labels: map[string]string{"zone": "de"}})
	w.must(err)
	for _, text := range []string{
		"namespace: shop\nname: price-import\ndescription: prices\nlabels: {team: shop, tier: '1'}\nschedule: {cron: '*/10 * * * *', timezone: Europe/Berlin}\nparams: {feed: {default: v1, description: which}}\nrun: {shell: 'true'}\npolicy: {timeout: 30s, pause_on_failure: 10}\n",
		"namespace: data\nname: warehouse-load\nschedule: {cron: '25 7 * * *'}\nrun: {http: {url: 'https://example.org'}}\n",
		"namespace: ops\nname: by-hand\nrun: {handler: bake}\n",
	} {
		list, err := job.Decode("", []byte(text))
		w.must(err)
		j, err := store.PutOne(ctx, w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
		w.must(err)
		if list[0].Job.Run.HandlerName() != "" {
			continue // no node has it
		}
		made, err := w.store.Trigger(ctx, []store.TriggerItem{{ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: w.node, Actor: "ann"}})
		w.must(err)
		attempt := store.Attempt{Run: made[0].Run, Number: 1, Token: w.id()}
		outcomes, err := w.store.Claim(ctx, w.node, []store.Attempt{attempt})
		w.must(err)
		if outcomes[0].Verdict != store.Started {
			w.t.Fatalf("the run was not claimed: %+v", outcomes)
		}
		if list[0].Job.Name != "price-import" {
			w.running = made[0].Run
			continue
		}
		w.failed = made[0].Run
		code := 1
		_, err = w.store.Finish(ctx, w.node, []store.Result{{Attempt: attempt, Started: w.now, Ended: w.now.Add(400 * time.Millisecond), Outcome: job.OutcomeFailed, Reason: "exit status 1", ExitCode: &code}})
		w.must(err)
	}
	w.begin()
	w.reach()
}

// begin puts in a flow that waits.
func (w *world) begin() {
	w.t.Helper()
	ctx := w.t.Context()
	list, err := job.Decode("", []byte("namespace: data\nname: nightly\nschedule: {cron: '0 2 * * *'}\nrun: {flow: {steps: [{name: extract, wait: {for: 1h}}, "+
		"{name: ask, wait: {approval: 'publish?'}}, {name: ready, wait: {signal: open}}, {name: each, for_each: [a, b], run: {shell: 'true'}}, {name: publish, needs: [extract, ask], run: {shell: 'true'}}], finally: [{name: tell, run: {handler: say}}]}}\n"))
	w.must(err)
	j, err := store.PutOne(ctx, w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
	w.must(err)
	made, err := w.store.Trigger(ctx, []store.TriggerItem{{ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: w.node, Actor: "ann"}})
	w.must(err)
	w.flow = made[0].Run
	_, err = w.store.Claim(ctx, w.node, []store.Attempt{{Run: w.flow, Number: 1, Token: w.id()}})
	w.must(err)
}

func TestAFlowIsAnsweredOnItsPage(t *testing.T) {
	w := newWorld(t)
	w.fill()
	ann, vera := w.login("ann"), w.login("vera")
	path := "/runs/" + w.flow.String()
	shows := func(b *browser, path string, texts ...string) {
		t.Helper()
		body := b.ask("GET", path, nil).Body.String()
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("%s does not show %q", path, text)
			}
		}
	}
	shows(ann, "/", "step ask waits for a person: publish?")
	shows(ann, "/flows", "nightly", "0 of 6 steps")
	shows(ann, path, `<a href="/flows?namespace=data">data</a>`, `aria-current="page">This run</a>`, `<a href="/jobs/data/nightly/graph">Graph</a>`, `data-graph tabindex="0"`)
	shows(ann, "/jobs/data/nightly/graph", "shell true, for each item", "icons.svg#clock", "icons.svg#user", "icons.svg#bell", "icons.svg#term", "icons.svg#code", `<div class="seg needs-script"`)
	shows(ann, "/jobs/data/nightly/graph", "for each item", "after extract, ask", "approval: publish?")
	shows(ann, path, "running, 0 of 6 steps done", "waits for extract, ask", "0 of 2 items have ended", "waits for signal open", path+"/steps/ask/answer")
	shows(ann, path+"?step=ready", "Send signal open")
	if body := vera.ask("GET", path, nil).Body.String(); strings.Contains(body, "/answer") {
		t.Error("a viewer may answer")
	}
	if answer := vera.send(path+"/steps/ask/answer", "answer", "approve"); answer.Code != http.StatusForbidden {
		t.Errorf("the answer of a viewer is answered with %d", answer.Code)
	}
	if answer := ann.send(path+"/steps/ask/answer", "answer", "perhaps"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("an answer that is none is answered with %d", answer.Code)
	}
	if answer := ann.send(path+"/steps/ask/answer", "answer", "reject", "note", "too few rows"); answer.Code != http.StatusSeeOther {
		t.Errorf("a rejection is answered with %d: %.300s", answer.Code, answer.Body)
	}
	shows(ann, path, "too few rows", "1 of 6 steps")
	if answer := ann.send(path+"/signal", "signal", "open", "data", "{"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("a signal that is not JSON is answered with %d", answer.Code)
	}
	if answer := ann.send(path+"/signal", "signal", "open", "data", `{"rows":12}`); answer.Code != http.StatusSeeOther {
		t.Errorf("a signal is answered with %d: %.300s", answer.Code, answer.Body)
	}
	shows(ann, path+"?step=ready", "{&#34;rows&#34;:12}")
	if answer := ann.send(path+"/retry", "from", "ask"); answer.Code != http.StatusConflict {
		t.Errorf("a flow that has not ended is run again: %d", answer.Code)
	}
	if answer := ann.send("/runs/"+w.flow.String()+"/cancel", "reason", "enough"); answer.Code != http.StatusSeeOther {
		t.Errorf("the end is answered with %d", answer.Code)
	}
	if answer := ann.send("/runs/"+w.flow.String()+"/cancel", "reason", "at once"); answer.Code != http.StatusSeeOther {
		t.Errorf("the second end is answered with %d", answer.Code)
	}
	shows(ann, path+"?step=ready", "From ready", "Take ready as succeeded")
	again := ann.send(path+"/retry", "from", "extract", "from", "ask")
	if again.Code != http.StatusSeeOther {
		t.Fatalf("running again from a step is answered with %d: %s", again.Code, again.Body)
	}
	shows(ann, again.Header().Get("Location"), "Runs again")
	if answer := ann.ask("GET", "/jobs/shop/price-import/graph", nil); answer.Code != http.StatusNotFound {
		t.Errorf("the graph of a job that is no flow is answered with %d", answer.Code)
	}
}

// browser is one who is logged in.
type browser struct {
	*world
	secret string
}

func (w *world) login(name string) *browser {
	w.t.Helper()
	secret, err := w.sessions.Begin(w.t.Context(), auth.HashOf(secretOf(name)))
	w.must(err)
	return &browser{w, secret}
}

// ask makes a request as the browser. Headers are pairs.
func (b *browser) ask(method, path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequestWithContext(b.t.Context(), method, path, body)
	r.Host = "127.0.0.1:8420"
	r.AddCookie(&http.Cookie{Name: "belfry-8420", Value: b.secret})
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.pages.ServeHTTP(w, r)
	return w
}

func (b *browser) send(path string, pairs ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	form := url.Values{"form": {auth.FormToken(b.secret)}}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.ask("POST", path, form)
}

// pagePaths are all pages of a world.
func (w *world) pagePaths() []string {
	return []string{
		"/", "/jobs", "/jobs?q=label:team=shop&sort=next", "/jobs?state=never_ran&sort=failure", "/jobs?q=due:1h", "/timeline?by=label:team", "/jobs?q=nothing", "/jobs/shop/price-import", "/jobs/shop/price-import?only=hand", "/jobs/shop/price-import?only=unexpected",
		"/jobs/data/warehouse-load", "/jobs/ops/by-hand", "/runs", "/runs?outcome=failed&range=24h", "/runs?q=nothing", "/runs/" + w.failed.String(), "/runs/" + w.running.String(),
		"/jobs/new", "/jobs/new?from=shop/price-import", "/jobs/import", "/jobs/shop/price-import/edit", "/jobs/shop/price-import/definition", "/jobs/shop/price-import/definition?as=filled",
		"/jobs/shop/price-import/schedule", "/jobs/shop/price-import/statistics", "/timeline", "/timeline?span=1h&by=node", "/timeline?span=6h&by=namespace&at=2026-11-24T08:00:00Z", "/timeline?at=2026-11-20T08:00:00Z", "/timeline?view=week", "/timeline?minute=2026-11-23T08:50:00Z",
		"/nodes", "/audit", "/audit?actor=wei", "/settings", "/ui/kit",
		"/executors", "/notifications", "/channels/new", "/channels/ops/hook",
		"/flows", "/jobs/data/nightly", "/jobs/data/nightly/graph", "/jobs/data/nightly/edit", "/jobs/new?flow=1", "/runs/" + w.flow.String(), "/runs/" + w.flow.String() + "?step=ready",
	}
}

var untranslated = regexp.MustCompile(`>[a-z]+\.[a-z_.]+<`)

// forAuthors are the pages that a viewer is refused.
var forAuthors = regexp.MustCompile(`^/(jobs|channels)/(new|import)|/edit$`)

func TestEveryPageIsWrittenInBothLanguages(t *testing.T) {
	w := newWorld(t)
	w.fill()
	for _, name := range []string{"ann", "vera"} {
		b := w.login(name)
		for _, path := range w.pagePaths() {
			for _, lang := range []string{"en", "zh"} {
				answer := b.ask("GET", path, nil, "Accept-Language", lang)
				body := answer.Body.String()
				status := http.StatusOK
				if name == "vera" && forAuthors.MatchString(path) {
					status = http.StatusForbidden
				}
				if answer.Code != status || !strings.Contains(body, "</html>") || !strings.Contains(body, `lang="`+lang+`"`) {
					t.Errorf("%s for %s in %s answers %d: %.300s", path, name, lang, answer.Code, body)
				}
				if key := untranslated.FindString(body); key != "" {
					t.Errorf("%s in %s shows the key %s", path, lang, key)
				}
				if strings.Contains(body, "<script>") || strings.Contains(body, " style=") || strings.Contains(body, " onclick=") {
					t.Errorf("%s has what its policy forbids", path)
				}
			}
		}
	}
}

func TestEmptyServerOffersFirstSteps(t *testing.T) {
	answer := newWorld(t).login("ann").ask("GET", "/", nil)
	if !strings.Contains(answer.Body.String(), "/jobs/new") {
		t.Errorf("the first page does not lead to a first job: %s", answer.Body)
	}
}

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

func TestFormsPerformTheirAction(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	leads := func(to, path string, pairs ...string) {
		t.Helper()
		answer := b.send(path, pairs...)
		if answer.Code != http.StatusSeeOther || !strings.HasPrefix(answer.Header().Get("Location"), to) {
			t.Errorf("%s answers %d to %s: %.400s", path, answer.Code, answer.Header().Get("Location"), answer.Body)
		}
	}
	leads("/jobs/shop/price-import?said=paused", "/jobs/shop/price-import/pause", "reason", "the disk is full", "until", "2026-12-01T10:00")
	if j, err := store.JobNamed(t.Context(), w.store, "shop", "price-import"); err != nil || !j.Definition.Paused || j.Definition.Status.PauseReason != "the disk is full" {
		t.Errorf("the job is not paused: %+v, %v", j.Definition.Status, err)
	}
	leads("/jobs?said=resumed", "/jobs/shop/price-import/resume", "back", "/jobs")
	leads("/runs/", "/jobs/shop/price-import/run", "param.feed", "v2", "once", "k")
	leads("/runs/", "/runs/"+w.failed.String()+"/retry")
	leads("/runs/"+w.running.String(), "/runs/"+w.running.String()+"/cancel", "reason", "enough")
	leads("/jobs?n=1&said=bulk", "/jobs/bulk", "job", "data/warehouse-load", "action", "pause", "back", "/jobs", "confirmed", "1")
	leads("/nodes?said=drained", "/nodes/ber-1/drain", "reason", "a new disk")
	leads("/nodes?said=undrained", "/nodes/ber-1/undrain")
	leads("/settings?said=revoked", "/tokens/vera/revoke")
	leads("/jobs", "/ui/look", "theme", "dark", "lang", "zh", "back", "/jobs")
	if answer := b.send("/jobs/ops/by-hand/delete", "confirm", "another"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("deleting without the name answers %d", answer.Code)
	}
	leads("/jobs?said=deleted", "/jobs/ops/by-hand/delete", "confirm", "by-hand")
	answer := b.send("/tokens", "name", "ci", "role", "runner")
	if answer.Code != http.StatusCreated || !strings.Contains(answer.Body.String(), "belfry_") {
		t.Errorf("a new token is not shown: %d", answer.Code)
	}
}

// isPaused tells which of the jobs are paused.
func (w *world) isPaused(names ...string) (paused []bool) {
	w.t.Helper()
	for _, full := range names {
		namespace, name, _ := strings.Cut(full, "/")
		j, err := store.JobNamed(w.t.Context(), w.store, namespace, name)
		w.must(err)
		paused = append(paused, j.Definition.Paused)
	}
	return paused
}

func TestManyJobsAreCountedBeforeTheyAreChanged(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	filter := []string{"action", "pause", "all", "1", "q", "label:team=shop", "back", "/jobs?q=label:team=shop"}
	answer := b.send("/jobs/bulk", filter...)
	if body := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(body, "Pause 1 job<") || !strings.Contains(body, `name="expect" value="1"`) {
		t.Errorf("the confirmation answers %d: %.1500s", answer.Code, body)
	}
	names := []string{"shop/price-import", "data/warehouse-load"}
	if got := w.isPaused(names...); got[0] || got[1] {
		t.Errorf("before the confirmation the jobs are paused: %v", got)
	}
	if answer := b.send("/jobs/bulk", append(filter, "confirmed", "1", "expect", "2")...); answer.Code != http.StatusConflict || w.isPaused(names...)[0] {
		t.Errorf("another number than was confirmed answers %d", answer.Code)
	}
	if answer := b.send("/jobs/bulk", append(filter, "confirmed", "1", "expect", "1", "reason", "the disk is full")...); answer.Code != http.StatusSeeOther {
		t.Errorf("the change answers %d: %.400s", answer.Code, answer.Body)
	}
	if got := w.isPaused(names...); !got[0] || got[1] {
		t.Errorf("after the confirmation the jobs are paused: %v", got)
	}
	answer = b.send("/jobs/bulk", "action", "run", "job", "shop/price-import", "job", "shop/none", "confirmed", "1")
	if body := answer.Body.String(); answer.Code != http.StatusConflict || !strings.Contains(body, "shop/none") || !strings.Contains(body, "1 job was changed") {
		t.Errorf("a job that does not exist answers %d: %.1500s", answer.Code, body[strings.Index(body, "<main"):])
	}
	if answer := b.send("/jobs/bulk", "action", "paint", "job", "shop/price-import"); answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest {
		t.Errorf("an action that does not exist answers %d", answer.Code)
	}
	if answer := w.login("vera").send("/jobs/bulk", append(filter, "confirmed", "1", "expect", "1")...); answer.Code != http.StatusForbidden {
		t.Errorf("a viewer is answered with %d", answer.Code)
	}
}

var identified = regexp.MustCompile(`\sid="([^"]+)"`)

// Parts of pages are replaced by their ids.
func TestNoIDIsTwiceInAPage(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	for _, path := range w.pagePaths() {
		seen := map[string]bool{}
		for _, m := range identified.FindAllStringSubmatch(b.ask("GET", path, nil).Body.String(), -1) {
			if seen[m[1]] {
				t.Errorf("%s has the id %s twice", path, m[1])
			}
			seen[m[1]] = true
		}
	}
}

// offered are the forms that change something.
var offered = regexp.MustCompile(`action="[^"]*/(?:run|pause|resume|cancel|retry|drain|tokens|delete|bulk|look|logout)"`)

func TestADocumentIsCheckedAndSaved(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	shows := func(path string, status int, want string, pairs ...string) string {
		t.Helper()
		answer := b.send(path, pairs...)
		if body := answer.Body.String(); answer.Code != status || !strings.Contains(body, want) {
			t.Errorf("%s with %v answers %d without %q: %.600s", path, pairs, answer.Code, want, body[max(0, strings.Index(body, "<form method=\"post\" action=\"/jobs")):])
		}
		return answer.Body.String()
	}
	const good = "name: nightly\nschedule: {cron: '30 2 * * *', timezone: Europe/Berlin}\nrun: {shell: 'true'} # as ever\n"
	shows("/jobs/new", 200, "at 02:30 every day", "document", good)
	shows("/jobs/new", 200, "did you mean FRI?", "document", strings.Replace(good, "30 2 * * *", "30 2 * * MON-FIR", 1))
	shows("/jobs/new", 200, "line 2", "document", strings.Replace(good, "30 2 * * *", "nonsense", 1))
	// The form changes the text and keeps the rest of it.
	body := shows("/jobs/new", 200, "# as ever", "document", good, "was.description", "", "field.description", "tells all", "was.schedule.cron", "30 2 * * *", "field.schedule.cron", "0 4 * * *")
	if !strings.Contains(body, "description: tells all") || !strings.Contains(body, "at 04:00 every day") {
		t.Errorf("the form has not changed the document: %s", body)
	}
	if answer := b.send("/jobs/new", "document", good, "action", "save"); answer.Header().Get("Location") != "/jobs/default/nightly?said=saved" {
		t.Errorf("creating answers %d to %s", answer.Code, answer.Header().Get("Location"))
	}
	shows("/jobs/new", 409, "nightly", "document", good, "action", "save")
	shows("/jobs/default/nightly/edit", 422, "schedule", "document", strings.Replace(good, "30 2 * * *", "nonsense", 1), "action", "save", "of", "default/nightly", "present", "1")
	changed := strings.Replace(good, "30 2", "45 2", 1)
	shows("/jobs/default/nightly/edit", 200, "cron: 45 2 * * *</span>", "document", changed, "of", "default/nightly", "present", "1")
	if answer := b.send("/jobs/default/nightly/edit", "document", changed, "action", "save", "of", "default/nightly", "present", "1"); answer.Code != http.StatusSeeOther {
		t.Errorf("saving answers %d: %s", answer.Code, answer.Body)
	}
	// Another person has saved meanwhile: both versions are there.
	late := strings.Replace(good, "30 2", "50 2", 1)
	body = shows("/jobs/default/nightly/edit", 412, "45 2 * * *", "document", late, "action", "save", "of", "default/nightly", "present", "1")
	if !strings.Contains(body, "50 2 * * *") || !strings.Contains(body, `name="over" value="2"`) {
		t.Errorf("the conflict does not offer both versions: %s", body)
	}
	if answer := b.send("/jobs/default/nightly/edit", "document", late, "of", "default/nightly", "present", "1", "over", "2"); answer.Code != http.StatusSeeOther {
		t.Errorf("saving over the version that was shown answers %d", answer.Code)
	}
	if answer := b.send("/jobs/default/nightly/rollback", "version", "1", "present", "3"); answer.Code != http.StatusSeeOther {
		t.Errorf("rolling back answers %d: %s", answer.Code, answer.Body)
	}
	if answer := b.send("/jobs/default/nightly/rollback", "version", "1", "present", "2"); answer.Code != http.StatusPreconditionFailed {
		t.Errorf("rolling back an older page answers %d", answer.Code)
	}
}

func TestFoldedGroupsOfTheFormSayWhatIsInThem(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	const document = "name: nightly\nschedule: {cron: '30 2 * * *', timezone: Asia/Tokyo, clock_change: literal}\nrun: {shell: 'true'}\nplace: {labels: {zone: ZONE}}\npolicy: {timeout: 30m, retry: {attempts: 2, backoff: 1m}}\n"
	for zone, want := range map[string]string{"de": `faint" data-summary>matching nodes: 1 of 1<`, "fr": `warn-text" data-summary>matching nodes: 0 of 1<`} {
		body := b.send("/jobs/new", "document", strings.Replace(document, "ZONE", zone, 1)).Body.String()
		for _, want := range []string{want, "data-summary>2 more attempts after 1 min · ended after 30 min", "now 17:41, UTC&#43;09:00", "a repeated one runs twice"} {
			if !strings.Contains(body, want) {
				t.Errorf("in zone %s the form does not say %q", zone, want)
			}
		}
		if strings.Contains(body, `id="g-where" open`) || strings.Contains(body, `id="g-wrong" open`) {
			t.Error("a group without a mistake is unfolded")
		}
	}
	body := b.send("/jobs/new", "document", strings.Replace(document, "30m", "soon", 1)).Body.String()
	if !strings.Contains(body, `id="g-wrong" open`) || !strings.Contains(body, "line 5, column 19") || !strings.Contains(body, "<h2>1 mistake</h2>") {
		t.Errorf("the mistake in a folded group is not shown: %s", body)
	}
}

func TestEachFieldOfTheFormGoesIntoTheDocument(t *testing.T) {
	w := newWorld(t)
	b := w.login("ann")
	text := "name: nightly # at night\nschedule: 30 2 * * *\nrun: 'true'\n"
	check := func(path, was, is string) {
		t.Helper()
		answer := b.send("/jobs/new", "document", text, "was."+path, was, "field."+path, is)
		body := html.UnescapeString(answer.Body.String())
		_, body, _ = strings.Cut(body, "data-document>")
		text, _, _ = strings.Cut(body, "</textarea>")
		if list, err := job.Decode("", []byte(text)); err != nil || list[0].Validate(job.Now(w.now)) != nil {
			t.Fatalf("with %s %q the document is no job: %v\n%s", path, is, err, text)
		}
	}
	fields := [][2]string{
		{"namespace", "shop"}, {"description", "tells all"}, {"schedule.timezone", "Europe/Berlin"}, {"schedule.clock_change", "skip_once"}, {"schedule.spread", "5m"},
		{"run.dir", "/srv"}, {"run.user", "shop"}, {"policy.timeout", "30m"}, {"policy.retry.attempts", "2"}, {"policy.retry.backoff", "1m"}, {"policy.overlap", "queue"},
		{"policy.missed", "latest"}, {"policy.expect.finish_within", "45m"},
	}
	for _, f := range fields {
		check(f[0], "", f[1])
	}
	list, err := job.Decode("", []byte(text))
	w.must(err)
	j := list[0].Job
	if s := &j.Schedule; j.Namespace != "shop" || len(s.Cron) != 1 || s.Cron[0] != "30 2 * * *" || s.ClockChange != job.ClockSkipOnce || s.Spread != job.Duration(5*time.Minute) {
		t.Errorf("the schedule is %+v", s)
	}
	if s := j.Run.Shell; s == nil || s.Command != "true" || s.Dir != "/srv" || s.User != "shop" {
		t.Errorf("the command is %+v", s)
	}
	if p := &j.Policy; p.Retry == nil || *p.Retry.Attempts != 2 || p.Overlap != job.OverlapQueue || p.Expect.FinishWithin != job.Duration(45*time.Minute) {
		t.Errorf("the policy is %+v", p)
	}
	for _, f := range slices.Backward(fields) {
		check(f[0], f[1], "")
	}
	if want := "name: nightly # at night\nschedule:\n  cron: 30 2 * * *\nrun:\n  shell: 'true'\n"; text != want {
		t.Errorf("without them the document is\n%s, want\n%s", text, want)
	}
	if body := b.send("/jobs/new", "document", "name: a\nrun: {shell: {command: 'true', dir: /srv}}\n", "was.run.dir", "/srv", "field.run.dir", "/var").Body.String(); !strings.Contains(body, "dir: /var") || strings.Contains(body, "/srv") {
		t.Errorf("a directory inside of run.shell does not change: %s", body)
	}
}

// The form has the fields of all kinds of schedule and work, and hides those of other kinds than the document has.
func TestTheFormOffersKindsOfScheduleAndWork(t *testing.T) {
	b := newWorld(t).login("ann")
	shows := func(document string, wants ...string) {
		t.Helper()
		body := b.send("/jobs/new", "document", document).Body.String()
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("for %q the form has no %q", document, want)
			}
		}
	}
	const request = "name: a\nschedule: {every: 5m}\nrun: {http: {url: 'https://example.org'}}\n"
	shows(request, `value="http" checked`, `value="every" checked`, `<div class="field" data-kind="shell"><label for="f-run.dir">`, `<div class="field wide set" data-kind="http">`)
	shows("name: a\nrun: {handler: bake}\n", `value="handler" checked`, `value="hand" checked`)
	shows("name: a\nschedule: {cron: '0 3 * * *', on: [b]}\nrun: {shell: x}\n", `value="cron" checked`, `<div class="field wide set" data-kind="on">`)
	if body := b.send("/jobs/new", "document", "name: a\nrun: {external: {}}\n").Body.String(); strings.Contains(body, "kind.what") {
		t.Error("the form of work that it cannot say offers other work")
	}
	// As the script sends another kind: the fields of the former one are empty.
	body := html.UnescapeString(b.send("/jobs/new", "document", request,
		"was.schedule.cron", "", "field.schedule.cron", "0 4 * * *", "was.schedule.every", "5m", "field.schedule.every", "",
		"was.run.handler", "", "field.run.handler", "bake", "was.run.http.url", "https://example.org", "field.run.http.url", "").Body.String())
	for _, want := range []string{"at 04:00 every day", "name: a\nschedule: {cron: 0 4 * * *}\nrun:\n  handler: bake\n", `value="handler" checked`} {
		if !strings.Contains(body, want) {
			t.Errorf("after another kind is chosen there is no %q", want)
		}
	}
}

func TestTheListOfJobsFindsWhatNeverRanAndWhatFallsDue(t *testing.T) {
	w := newWorld(t)
	w.fill()
	list, err := job.Decode("", []byte("namespace: shop\nname: unused\nschedule: {cron: '0 0 1 1 *'}\nrun: {shell: 'true'}\n"))
	w.must(err)
	_, err = store.PutOne(t.Context(), w.store, store.PutJob{Definition: list[0].Job, Actor: "wei"})
	w.must(err)
	w.now = w.now.Add(time.Minute)
	b := w.login("ann")
	rows := func(path string) string {
		t.Helper()
		var names []string
		for _, m := range regexp.MustCompile(`<tr data-href="/jobs/([^"]*)"`).FindAllStringSubmatch(b.ask("GET", path, nil).Body.String(), -1) {
			names = append(names, m[1])
		}
		return strings.Join(names, " ")
	}
	if got := rows("/jobs?state=never_ran"); !strings.Contains(got, "shop/unused") || strings.Contains(got, "price-import") {
		t.Errorf("never ran: %s", got)
	}
	if got := rows("/jobs?sort=failure"); !strings.HasPrefix(got, "shop/price-import ") || !strings.Contains(got, "shop/unused") {
		t.Errorf("by the last failure: %s", got)
	}
	b.shows("/jobs?q=due:1h", "due within", "--due-before 1h")
	b.shows("/jobs?state=never_ran", "--never-ran")
	for _, pairs := range [][]string{{"state", "never_ran"}, {"state", "failing"}, {"q", "due:1h"}} {
		if answer := b.send("/jobs/bulk", append([]string{"action", "pause", "all", "1"}, pairs...)...); answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest {
			t.Errorf("pausing all jobs with %v is answered with %d", pairs, answer.Code)
		}
	}
}

func TestLanesOfTheTimelineAreByLabel(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.now = w.now.Add(time.Minute)
	w.login("ann").shows("/timeline?by=label:team", "By team", "team=shop", "no team", "/jobs?q=label%3Ateam%3Dshop")
}

func TestSettingsChooseHowRowsLook(t *testing.T) {
	b := newWorld(t).login("ann")
	answer := b.send("/ui/look", "rows", "roomy", "back", "/settings")
	cookies := answer.Result().Cookies()
	if answer.Code != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("the choice is answered with %d and %v", answer.Code, cookies)
	}
	body := b.ask("GET", "/settings", nil, "Cookie", "belfry-8420="+b.secret+"; "+cookies[0].Name+"="+cookies[0].Value).Body.String()
	for _, want := range []string{`<body class="roomy"`, `value="roomy" checked`, "Log out everywhere"} {
		if !strings.Contains(body, want) {
			t.Errorf("the settings do not show %q", want)
		}
	}
}

func TestACrontabIsShownBeforeItsJobsAreMade(t *testing.T) {
	b := newWorld(t).login("ann")
	const text = "30 2 * * 1-5 /usr/local/bin/report.sh\n@reboot /bin/true\n"
	if answer := b.send("/jobs/import", "crontab", text); answer.Code != 200 || !strings.Contains(answer.Body.String(), "at 02:30") {
		t.Errorf("the lines are not explained: %d %s", answer.Code, answer.Body)
	}
	if answer := b.send("/jobs/import", "crontab", text, "action", "save"); answer.Header().Get("Location") != "/jobs?n=2&said=imported" {
		t.Errorf("importing answers %d to %s: %.500s", answer.Code, answer.Header().Get("Location"), answer.Body)
	}
}

func TestUnknownThingsAreNamedInChinese(t *testing.T) {
	b := newWorld(t).login("ann")
	for path, want := range map[string]string{
		"/runs/01HZZZZZZZZZZZZZZZZZZZZZZZ": "没有运行 01HZZZZZZZZZZZZZZZZZZZZZZZ", "/jobs/shop/none": "没有任务 shop/none", "/nothing": "该地址不存在",
	} {
		if body := b.ask("GET", path, nil, "Accept-Language", "zh").Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s does not say %q: %s", path, want, body)
		}
	}
}

func TestABackfillShowsItsTimesFirst(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	before := len(b.ask("GET", "/runs", nil).Body.String())
	form := []string{"from", "2026-11-23T08:00", "to", "2026-11-23T08:30", "overlap", "queue"}
	if answer := b.send("/jobs/shop/price-import/backfill", form...); answer.Code != 200 || !strings.Contains(answer.Body.String(), "It would run 3 times") {
		t.Errorf("the times are not shown: %d", answer.Code)
	}
	if after := len(b.ask("GET", "/runs", nil).Body.String()); after != before {
		t.Error("showing the times has made runs")
	}
	if answer := b.send("/jobs/shop/price-import/backfill", append(form, "action", "run")...); answer.Code != 200 || !strings.Contains(answer.Body.String(), "3 runs were made") {
		t.Errorf("the runs are not made: %d", answer.Code)
	}
}

func TestAViewerSeesNoButtonsAndIsRefused(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("vera")
	for _, path := range w.pagePaths() {
		body := b.ask("GET", path, nil).Body.String()
		for _, action := range offered.FindAllString(body, -1) {
			if action != `action="/ui/logout"` && action != `action="/ui/look"` {
				t.Errorf("%s offers %s to a viewer", path, action)
			}
		}
	}
	for _, b := range []*browser{b, newWorld(t).login("vera")} { // with jobs and without
		for _, path := range []string{"/", "/jobs", "/flows", "/jobs/shop/price-import", "/jobs/data/nightly/graph"} {
			body := b.ask("GET", path, nil).Body.String()
			for _, refused := range []string{`href="/jobs/new`, `href="/jobs/import`, `/edit"`, "jobs.new", "/examples"} {
				if strings.Contains(body, refused) {
					t.Errorf("%s leads a viewer to %s", path, refused)
				}
			}
		}
	}
	for _, path := range []string{"/jobs/shop/price-import/pause", "/jobs/shop/price-import/run", "/jobs/shop/price-import/delete?confirm=price-import", "/runs/" + w.running.String() + "/cancel", "/nodes/ber-1/drain", "/tokens"} {
		if answer := b.send(path, "confirm", "price-import", "name", "x", "role", "admin"); answer.Code != http.StatusForbidden {
			t.Errorf("%s of a viewer answers %d", path, answer.Code)
		}
	}
}

func TestNamespaceTokenSeesNoOtherNamespace(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.grant("shopkeeper", "shop", store.RoleAdmin)
	b := w.login("shopkeeper")
	if body := b.ask("GET", "/jobs", nil).Body.String(); strings.Contains(body, "warehouse-load") || !strings.Contains(body, "price-import") {
		t.Error("the list has jobs of another namespace, or not its own")
	}
	if answer := b.ask("GET", "/jobs/data/warehouse-load", nil); answer.Code != http.StatusForbidden && answer.Code != http.StatusNotFound {
		t.Errorf("a job of another namespace answers %d", answer.Code)
	}
}

func TestPagesCarryAStrictPolicy(t *testing.T) {
	answer := newWorld(t).login("ann").ask("GET", "/", nil)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types belfry",
		"Referrer-Policy":         "same-origin", "X-Content-Type-Options": "nosniff", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		if got := answer.Header().Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestErrorPagesNameWhatStillWorks(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	for _, path := range []string{"/nothing", "/jobs/shop/nothing", "/runs/nothing", "/runs/" + w.id().String()} {
		answer := b.ask("GET", path, nil)
		if answer.Code != http.StatusNotFound || !strings.Contains(answer.Body.String(), `href="/jobs"`) {
			t.Errorf("%s answers %d", path, answer.Code)
		}
	}
}

// A Chinese page says in Chinese what is wrong with a document, and leaves the words of the document as they are.
func TestMistakesInDocumentsAreInTheLanguageOfThePage(t *testing.T) {
	b := newWorld(t).login("ann")
	send := func(path, lang, document, action string) string {
		form := url.Values{"form": {auth.FormToken(b.secret)}, "document": {document}, "action": {action}}
		return html.UnescapeString(b.ask("POST", path, form, "Accept-Language", lang).Body.String())
	}
	const wrong = "name: nightly\nschedule: {cron: '0 3 * * MON-FIR'}\nrun: {shel: 'true'}\npolicy: {timeout: 90}\n"
	for _, c := range []struct{ path, document, action, english, chinese string }{
		{"/jobs/new", wrong, "check", `unknown field "shel" <span class="muted">did you mean "shell"?`, `未知字段 "shel" <span class="muted">您是不是想写 "shell"？`},
		{"/jobs/new", wrong, "check", `"90" has a number without a unit w, d, h, m, s or ms`, `"90" 的数字没有单位 w、d、h、m、s 或 ms`},
		{"/jobs/new", "name: a\nschedule: {cron: '0 3 * * MON-FIR'}\nrun: {shell: x}\n", "check", `day of week: "FIR" is not a number or a name`, `星期："FIR" 不是数字或名称`},
		{"/jobs/new", "name: Nightly\nrun: {shell: x}\n", "save", `"Nightly" is not a name`, `"Nightly" 不是有效名称`},
		{"/channels/new", "kind: channel\nname: ops\nto: {webhook: {}}\nrules: [{events: [failed]}]\n", "save", "must have one of url and url_secret", "必须有 url 和 url_secret 之一"},
		{"/channels/new", "kind: chanel\n", "check", `"chanel" is not known`, `未知的值 "chanel"`},
	} {
		if body := send(c.path, "en", c.document, c.action); !strings.Contains(body, c.english) {
			t.Errorf("in English %s says of %q no %q", c.path, c.document, c.english)
		}
		if body := send(c.path, "zh", c.document, c.action); !strings.Contains(body, c.chinese) {
			t.Errorf("in Chinese %s says of %q no %q", c.path, c.document, c.chinese)
		}
	}
}

// The page of versions says what each has changed, numbers the lines of a difference as the newer text has them,
// and offers to restore the version before.
func TestVersionsSayWhatTheyChanged(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	const text = "namespace: shop\nname: price-import\ndescription: the prices of the day\nlabels: {team: shop, tier: '1'}\nschedule: {cron: '*/10 * * * *', timezone: Europe/Berlin}\nparams: {feed: {default: v1, description: which}}\nrun: {shell: 'false'}\npolicy: {timeout: 30s, pause_on_failure: 10}\n"
	if answer := b.send("/jobs/shop/price-import/edit", "document", text, "action", "save", "of", "shop/price-import", "present", "1"); answer.Code != http.StatusSeeOther {
		t.Fatalf("saving answers %d: %s", answer.Code, answer.Body)
	}
	body := html.UnescapeString(b.ask("GET", "/jobs/shop/price-import/definition", nil).Body.String())
	for _, want := range []string{
		`title="description, run.shell">description, run.shell</span>`,
		`<span class="add" data-n="4">+description: the prices of the day</span>`,
		`<span class="del">-description: prices</span>`,
		`name="version" value="1"`, `data-copy="kind: job`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the versions do not show %q", want)
		}
	}
	if vera := w.login("vera").ask("GET", "/jobs/shop/price-import/definition", nil); strings.Contains(vera.Body.String(), "/rollback") {
		t.Error("a viewer is offered to restore a version")
	}
}

// The audit can be cut to a time, and offers the same changes from the API.
func TestTheAuditIsCutToATime(t *testing.T) {
	w := newWorld(t)
	w.fill()
	b := w.login("ann")
	body := html.UnescapeString(b.ask("GET", "/audit?range=7d&actor=wei&action=job", nil).Body.String())
	for _, want := range []string{
		`<option value="7d" selected>`, `href="/api/v1/audit?action=job&actor=wei&from=2026-11-16T08%3A41%3A00Z"`, "belfry audit --actor wei --action job --since 7d",
		`<h2>Today</h2><span class="grow">Mon 23 Nov</span>`, "shop/price-import",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the audit of a week shows no %q", want)
		}
	}
	w.now = w.now.Add(48 * time.Hour)
	b = w.login("ann")
	if body := b.ask("GET", "/audit?range=24h", nil).Body.String(); strings.Contains(body, "shop/price-import") || !strings.Contains(body, `<option value="24h" selected>`) {
		t.Error("the audit of a day shows what was changed two days ago")
	}
	if body := b.ask("GET", "/audit?range=7d", nil).Body.String(); !strings.Contains(body, "shop/price-import") {
		t.Error("the audit of a week does not show what was changed two days ago")
	}
}

// The help of keys lists each key that pages have.
func TestTheHelpOfKeysHasThemAll(t *testing.T) {
	body := newWorld(t).login("vera").ask("GET", "/flows", nil).Body.String()
	for _, key := range []string{"/", "Ctrl K", "?", "g o", "g s", "j k", "Enter", "f", "w"} {
		if !strings.Contains(body, "<dt><kbd>"+key+"</kbd></dt>") {
			t.Errorf("the help has no %q", key)
		}
	}
}
