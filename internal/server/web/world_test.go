package web_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/web"
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
	// documents applies documents as the API does.
	documents *service.Documents
	node      job.ID
	failed    job.ID
	running   job.ID
	flow      job.ID // it waits for an answer, and for a signal
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
	w.documents = s.Documents
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
		results, err := w.store.Trigger(ctx, []store.TriggerItem{{ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: w.node, Actor: "ann"}})
		w.must(err)
		attempt := store.Attempt{Run: results[0].Run, Number: 1, Token: w.id()}
		outcomes, err := w.store.Claim(ctx, w.node, []store.Attempt{attempt})
		w.must(err)
		if outcomes[0].Verdict != store.Started {
			w.t.Fatalf("the run was not claimed: %+v", outcomes)
		}
		if list[0].Job.Name != "price-import" {
			w.running = results[0].Run
			continue
		}
		w.failed = results[0].Run
		code := 1
		_, err = w.store.Finish(ctx, w.node, []store.Result{{Attempt: attempt, Started: w.now, Ended: w.now.Add(400 * time.Millisecond), Outcome: job.OutcomeFailed, Reason: job.Text("exit status 1"), Cause: "feed.csv: 0 <rows>", ExitCode: &code}})
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
	outcomes, err := w.store.Trigger(ctx, []store.TriggerItem{{ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: w.node, Actor: "ann"}})
	w.must(err)
	w.flow = outcomes[0].Run
	_, err = w.store.Claim(ctx, w.node, []store.Attempt{{Run: w.flow, Number: 1, Token: w.id()}})
	w.must(err)
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
		"/", "/wall", "/jobs", "/jobs?q=label:team=shop&sort=next", "/jobs?state=never_ran&sort=failure", "/jobs?q=due:1h", "/timeline?by=label:team", "/jobs?q=nothing", "/jobs/shop/price-import", "/jobs/shop/price-import?only=hand", "/jobs/shop/price-import?only=unexpected",
		"/jobs/data/warehouse-load", "/jobs/ops/by-hand", "/runs", "/runs?outcome=failed&range=24h", "/runs?q=nothing", "/runs/" + w.failed.String(), "/runs/" + w.running.String(),
		"/jobs/new", "/jobs/new?from=shop/price-import", "/jobs/import", "/jobs/shop/price-import/edit", "/jobs/shop/price-import/definition", "/jobs/shop/price-import/definition?as=filled",
		"/jobs/shop/price-import/schedule", "/jobs/shop/price-import/statistics", "/timeline", "/timeline?span=1h&by=node", "/timeline?span=6h&by=namespace&at=2026-11-24T08:00:00Z", "/timeline?at=2026-11-20T08:00:00Z", "/timeline?view=week", "/timeline?minute=2026-11-23T08:50:00Z",
		"/nodes", "/audit", "/audit?actor=wei", "/settings", "/ui/kit",
		"/executors", "/notifications", "/channels/new", "/channels/ops/hook",
		"/flows", "/jobs/data/nightly", "/jobs/data/nightly/graph", "/jobs/data/nightly/edit", "/jobs/new?flow=1", "/runs/" + w.flow.String(), "/runs/" + w.flow.String() + "?step=ready",
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
