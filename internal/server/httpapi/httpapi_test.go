package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestJobsThatFollowThemselvesAreRefused(t *testing.T) {
	s := newServer(t)
	const a, b = `{"name": "a", "schedule": {"on": "b"}, "run": {"shell": "true"}}`, `{"name": "b", "schedule": {"on": "a"}, "run": {"shell": "true"}}`
	p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs:apply", `{"documents": [`+a+`, `+b+`]}`)
	if len(p.Errors) != 2 || p.Errors[1].Pointer != "/documents/1/schedule/on" || p.Errors[1].Detail != "goes round: job default/b follows default/a follows default/b" {
		t.Errorf("the errors are %+v", p.Errors)
	}
	ok[client.Change](s, "POST", "/api/v1/jobs", a)
	p = s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs", b)
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/schedule/on" || p.Errors[0].Detail != "goes round: job default/b follows default/a follows default/b" {
		t.Errorf("the errors are %+v", p.Errors)
	}
	p = s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs:apply", `{"documents": [`+b+`], "dry_run": true}`)
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/documents/0/schedule/on" {
		t.Errorf("the errors are %+v", p.Errors)
	}
}

// What jobs follow may be turned round: in the end there is no circle, whatever the
// order of the documents.
func TestFollowersCanBeReversed(t *testing.T) {
	s := newServer(t)
	chain := func(names ...string) (docs []string) {
		for i, name := range names {
			schedule := `{"every": "1h"}`
			if i > 0 {
				schedule = `{"on": "` + names[i-1] + `"}`
			}
			docs = append(docs, `{"name": "`+name+`", "schedule": `+schedule+`, "run": {"shell": "true"}}`)
		}
		return docs
	}
	apply := func(docs []string) {
		ok[client.Applied](s, "POST", "/api/v1/jobs:apply", `{"documents": [`+strings.Join(docs, ", ")+`]}`)
	}
	for i := range 5 { // each is the first to be named
		apply(chain("a", "b", "c", "d", "e"))
		back := chain("e", "d", "c", "b", "a")
		apply(append(back[i:], back[:i]...))
	}
	// Also by way of what is not among the documents: d follows e, b follows c.
	apply([]string{
		`{"name": "e", "schedule": {"on": "b"}, "run": {"shell": "true"}}`,
		`{"name": "c", "schedule": {"every": "1h"}, "run": {"shell": "true"}}`,
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a token"

// server is an API on a store in memory, whose clock is set by hand.
type server struct {
	t       *testing.T
	store   *memory.Store
	tokens  *auth.Tokens
	handler http.Handler
	planner *planner
	name    string      // of the node
	events  *events.Hub // nil until the test follows what happens

	followers *service.Followers // nil unless the test follows output

	mu  sync.Mutex
	now time.Time
}

// planner answers as a node does.
type planner struct {
	ready chan struct{}
	syncs int
	// table has what falls due when; nil is half past two for all.
	table map[job.ID]time.Time
}

func (p *planner) NextAfter(uid job.ID, at time.Time) (time.Time, bool) {
	if p.table == nil {
		return time.Date(2026, 11, 21, 2, 30, 0, 0, time.UTC), true
	}
	if next := p.table[uid]; !next.Before(at) {
		return next, true
	}
	return time.Time{}, false
}

func (p *planner) Upcoming(at time.Time, after engine.Upcoming, n int) (list []engine.Upcoming) {
	for uid := range p.table {
		next, ok := p.NextAfter(uid, at)
		if u := (engine.Upcoming{Next: next, Job: uid}); ok && u.Compare(after) > 0 {
			list = append(list, u)
		}
	}
	slices.SortFunc(list, engine.Upcoming.Compare)
	return list[:min(n, len(list))]
}

func (p *planner) Timings([]job.ID) []forecast.Timing { return nil }

func (p *planner) Sync(context.Context) error { p.syncs++; return nil }
func (p *planner) Ready() <-chan struct{}     { return p.ready }

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, now: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), planner: &planner{ready: closed()}}
	s.store = memory.New(memory.Options{Now: s.clock})
	s.tokens = auth.New(s.store, s.clock)
	s.grant("alice", token, store.RoleAdmin, "")
	s.handle(s.store)
	return s
}

// handle makes the API, on the store of the server or something around it.
func (s *server) handle(on service.Store) {
	s.t.Helper()
	s.handler = newHandler(s.t, service.Config{Store: on, Planner: s.planner, Node: s.name, Events: s.events, Followers: s.followers, Tokens: s.tokens, Now: s.clock}, httpapi.Config{
		Node: s.name, Now: s.clock, Version: "test", Hosts: []string{"belfry.example"}, Metrics: http.HandlerFunc(writeMetrics), Tokens: s.tokens,
	})
}

// plain builds the API of a server that plans nothing.
func (s *server) plain(on service.Store) {
	s.t.Helper()
	s.handler = newHandler(s.t, service.Config{Store: on, Tokens: s.tokens, Now: s.clock}, httpapi.Config{Tokens: s.tokens, Now: s.clock})
}

// handleAt makes the API of a node with a clock of its own.
func (s *server) handleAt(now func() time.Time) {
	s.t.Helper()
	s.handler = newHandler(s.t, service.Config{Store: s.store, Planner: s.planner, Tokens: s.tokens, Now: now}, httpapi.Config{Tokens: s.tokens, Now: now})
}

// newHandler makes an API and the service behind it.
func newHandler(t testing.TB, behind service.Config, c httpapi.Config) http.Handler {
	t.Helper()
	handler, err := httpapi.Handler(withService(t, behind, c))
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func withService(t testing.TB, behind service.Config, c httpapi.Config) httpapi.Config {
	t.Helper()
	var err error
	if behind.Secrets == nil {
		now := func() time.Time { return time.Now() }
		behind.Secrets = &secret.Keeper{Store: behind.Store, Now: now, Getenv: func(string) string { return "" }, Ring: &secret.Ring{Command: []string{"/bin/echo", secret.NewKey(now())}, Now: now}}
	}
	if c.Service, err = service.New(behind); err != nil {
		t.Fatal(err)
	}
	if kept, ok := behind.Store.(host.Store); ok {
		c.Workers = host.New(host.Config{Store: kept, Tokens: behind.Tokens, Secrets: behind.Secrets, Followers: behind.Followers, Node: behind.Node, Now: behind.Now})
	}
	return c
}

func writeMetrics(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics\n") }

// grant adds a token.
func (s *server) grant(name, secret string, role store.Role, namespace string) {
	s.t.Helper()
	_, err := s.store.PutToken(s.t.Context(), store.PutToken{Name: name, Hash: auth.HashOf(secret), Role: role, Namespace: namespace, Actor: "belfry"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.tokens.Forget()
}

func (s *server) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *server) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// call makes a request as an administrator. Headers are pairs of name and value.
func (s *server) call(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8420"
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	return s.answer(r)
}

// answer answers a request, and compares the answer with the description of the
// API.
func (s *server) answer(r *http.Request) *httptest.ResponseRecorder {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	description(s.t).check(s.t, r, w)
	return w
}

// ok makes a request that must succeed, and decodes the answer.
func ok[T any](s *server, method, path, body string, headers ...string) T {
	s.t.Helper()
	w := s.call(method, path, body, headers...)
	if w.Code/100 != 2 {
		s.t.Fatalf("%s %s: status %d: %s", method, path, w.Code, w.Body)
	}
	var answer T
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		s.t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
	}
	return answer
}

// refused makes a request that must be refused for a reason.
func (s *server) refused(kind client.ProblemType, status int, method, path, body string, headers ...string) client.Problem {
	s.t.Helper()
	w := s.call(method, path, body, headers...)
	var p client.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		s.t.Fatalf("%s %s: status %d: %v: %s", method, path, w.Code, err, w.Body)
	}
	if p.Type != kind || w.Code != status || p.Status != status || p.Title == "" || w.Header().Get("Content-Type") != "application/problem+json" {
		s.t.Fatalf("%s %s: status %d, %s, want %d, %s: %s", method, path, w.Code, p.Type, status, kind, w.Body)
	}
	if p.Code == "" || p.Hint != "" && p.HintCode == "" {
		s.t.Errorf("%s %s: the refusal has no code, so that it is English alone: %s", method, path, w.Body)
	}
	return p
}

const nightly = `{"name": "nightly", "schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, "run": {"shell": "echo hello"}, "params": {"day": ""}}`

func TestJobIsCreatedReadChangedAndDeleted(t *testing.T) {
	s := newServer(t)
	w := s.call("POST", "/api/v1/jobs", nightly)
	if w.Code != http.StatusCreated || w.Header().Get("ETag") != `"1"` {
		t.Fatalf("status %d, ETag %s: %s", w.Code, w.Header().Get("ETag"), w.Body)
	}
	if s.planner.syncs != 1 {
		t.Error("the job was not planned at once")
	}
	s.refused(client.TypeExists, 409, "POST", "/api/v1/jobs", nightly)

	var read client.Document
	w = s.call("GET", "/api/v1/jobs/default/nightly", "")
	if err := json.Unmarshal(w.Body.Bytes(), &read); err != nil || w.Header().Get("ETag") != `"1"` {
		t.Fatalf("%v, ETag %s: %s", err, w.Header().Get("ETag"), w.Body)
	}
	j, err := read.Job()
	if err != nil {
		t.Fatal(err)
	}
	if j.Run.Shell.Command != "echo hello" || j.Version != 1 || j.Status.State != job.JobActive || j.Status.Next.IsZero() || j.Policy.Overlap != "" {
		t.Errorf("the job is %s", read.RawMessage)
	}
	filled := ok[client.Document](s, "GET", "/api/v1/jobs/default/nightly?filled=true", "")
	if !strings.Contains(string(filled.RawMessage), `"overlap":"skip"`) {
		t.Errorf("no defaults are filled in: %s", filled.RawMessage)
	}

	// A document that was read can be written back.
	again := ok[client.Change](s, "PUT", "/api/v1/jobs/default/nightly", string(read.RawMessage), "If-Match", `"1"`)
	if again.Result != client.Unchanged {
		t.Errorf("writing what was read has %s the job", again.Result)
	}
	changed := strings.Replace(nightly, "hello", "bye", 1)
	s.refused(client.TypeVersionWanted, 428, "PUT", "/api/v1/jobs/default/nightly", changed)
	s.refused(client.TypeChanged, 412, "PUT", "/api/v1/jobs/default/nightly", changed, "If-Match", `"7"`)
	s.refused(client.TypeChanged, 412, "PUT", "/api/v1/jobs/default/nightly", changed, "If-None-Match", `*`)
	s.refused(client.TypeInvalid, 422, "PUT", "/api/v1/jobs/default/nightly", changed, "If-Match", `1`)
	w = s.call("PUT", "/api/v1/jobs/default/nightly", changed, "If-Match", `"7", "1"`)
	if w.Code != 200 || w.Header().Get("ETag") != `"2"` {
		t.Fatalf("status %d, ETag %s: %s", w.Code, w.Header().Get("ETag"), w.Body)
	}
	ok[client.Change](s, "PUT", "/api/v1/jobs/default/other", strings.Replace(nightly, "nightly", "other", 1), "If-None-Match", "*")

	s.refused(client.TypeVersionWanted, 428, "DELETE", "/api/v1/jobs/default/nightly", "")
	s.refused(client.TypeChanged, 412, "DELETE", "/api/v1/jobs/default/nightly", "", "If-Match", `"1"`)
	if gone := ok[client.Change](s, "DELETE", "/api/v1/jobs/default/nightly", "", "If-Match", `"2"`); gone.Result != client.Deleted {
		t.Errorf("the answer is %v", gone)
	}
	p := s.refused(client.TypeNotFound, 404, "GET", "/api/v1/jobs/default/nightly", "")
	if p.Detail != "there is no job default/nightly" {
		t.Errorf("the detail is %q", p.Detail)
	}
	records := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit", "")
	var actions []string
	for _, r := range records.Items {
		actions = append(actions, r.Actor+" "+r.Action)
	}
	if got := strings.Join(actions, ", "); got != "alice job.delete, alice job.create, alice job.change, alice job.create, belfry token.create" {
		t.Errorf("the audit has %s", got)
	}
}

func TestMistakesNameTheirPlace(t *testing.T) {
	s := newServer(t)
	tests := []struct {
		name, body string
		status     int
		errors     []client.FieldError
	}{
		{
			"a value", `{"name": "x", "schedule": {"cron": ["0 9 * * *", "61 * * * *"]}, "run": {"shell": "true"}}`, 422,
			[]client.FieldError{{Pointer: "/schedule/cron/1", Path: "schedule.cron[1]"}},
		},
		{
			"two fields", `{"name": "x", "run": {"shel": "true"}, "policy": {"overlap": "skp"}}`, 422,
			[]client.FieldError{{Pointer: "/run/shel", Path: "run.shel"}, {Pointer: "/policy/overlap", Path: "policy.overlap"}},
		},
		{
			"a label with a slash", `{"name": "x", "labels": {"a b/c": "y"}, "run": {"shell": "true"}}`, 422,
			[]client.FieldError{{Pointer: "/labels/a b~1c", Path: `labels["a b/c"]`}},
		},
		{
			"a calendar that does not exist", `{"name": "x", "schedule": {"cron": "0 9 * * *", "except": "holidays"}, "run": {"shell": "true"}}`, 422,
			[]client.FieldError{{Pointer: "/schedule/except", Path: "schedule.except"}},
		},
		{"a calendar", `{"kind": "calendar", "name": "x", "calendar": {"include": "2026-12-25"}}`, 422, []client.FieldError{{Pointer: "/kind", Path: "kind"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := s.refused(client.TypeInvalid, tt.status, "POST", "/api/v1/jobs", tt.body)
			if len(p.Errors) != len(tt.errors) {
				t.Fatalf("the errors are %+v", p.Errors)
			}
			for i, want := range tt.errors {
				got := p.Errors[i]
				if got.Pointer != want.Pointer || got.Path != want.Path || got.Detail == "" {
					t.Errorf("error %d is %+v, want %+v", i, got, want)
				}
			}
		})
	}
	for _, body := range []string{`{`, `nothing`, `{"name": }`} {
		if p := s.refused(client.TypeMalformed, 400, "POST", "/api/v1/jobs", body); !strings.HasPrefix(p.Detail, "the body is not JSON: ") {
			t.Errorf("%q gives %q", body, p.Detail)
		}
	}
	p := s.refused(client.TypeInvalid, 422, "GET", "/api/v1/runs?sate=ready&page_size=0", "")
	if len(p.Errors) != 1 || p.Errors[0].Parameter != "sate" {
		t.Errorf("the errors are %+v", p.Errors)
	}
	p = s.refused(client.TypeInvalid, 422, "GET", "/api/v1/runs?state=red&page_size=1000", "")
	if len(p.Errors) != 2 {
		t.Errorf("the errors are %+v", p.Errors)
	}
	s.refused(client.TypeInvalid, 422, "GET", "/api/v1/runs?page_token=zzz", "")
	s.refused(client.TypeInvalid, 422, "GET", "/api/v1/runs/one", "")
	s.refused(client.TypeMediaType, 415, "POST", "/api/v1/jobs", "name: x", "Content-Type", "text/plain")
	s.refused(client.TypeTooLarge, 413, "POST", "/api/v1/jobs", `{"name": "`+strings.Repeat("x", 17<<20)+`"}`)
	s.refused(client.TypeNotFound, 404, "GET", "/api/v1/jibs", "")
	for _, astray := range []string{"/api/v1/jobs//x", "/api/v1/jobs/default/../x", "//readyz", "/api/v1/./jobs"} {
		if p := s.refused(client.TypeNotFound, 404, "GET", astray, ""); p.Detail != astray+" does not exist" {
			t.Errorf("the detail is %q", p.Detail)
		}
	}
	w := s.call("PATCH", "/api/v1/jobs/default/x", "")
	if w.Code != 405 || w.Header().Get("Allow") != "GET, PUT, DELETE" {
		t.Errorf("status %d, Allow %q: %s", w.Code, w.Header().Get("Allow"), w.Body)
	}
}

func TestRequestsOfOtherSitesAreRefused(t *testing.T) {
	s := newServer(t)
	for host, status := range map[string]int{
		"127.0.0.1:8420": 200, "localhost": 200, "LOCALHOST:8420": 200, "[::1]:8420": 200, "10.1.2.3": 200, "belfry.example:8420": 200, "Belfry.Example.": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "": 403,
	} {
		if w := s.call("GET", "/livez", "", "Host", host); w.Code != status {
			t.Errorf("host %q has the status %d, want %d", host, w.Code, status)
		}
	}
	s.refused(client.TypeCrossOrigin, 403, "POST", "/api/v1/jobs", nightly, "Origin", "https://evil.example")
	s.refused(client.TypeCrossOrigin, 403, "POST", "/api/v1/jobs", nightly, "Sec-Fetch-Site", "cross-site")
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly, "Sec-Fetch-Site", "same-origin")
}

func TestPauseAndResume(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	change := ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", `{"reason": "the disk is full", "until": "2026-12-01T00:00:00Z"}`)
	j, err := change.Job.Job()
	if err != nil {
		t.Fatal(err)
	}
	if !j.Paused || j.Status.PausedBy != "alice" || j.Status.PauseReason != "the disk is full" || j.Status.PausedUntil.IsZero() || !j.Status.Next.IsZero() {
		t.Errorf("the job is %s", change.Job.RawMessage)
	}
	next := ok[client.Occurrences](s, "GET", "/api/v1/jobs/default/nightly/next", "")
	if next.Reason != "the job is paused by alice: the disk is full" || len(next.Items) != 0 {
		t.Errorf("the next occurrences are %+v", next)
	}
	if again := ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", ""); again.Result != client.Unchanged {
		t.Errorf("a second pause has %s the job", again.Result)
	}
	// Files do not resume what was paused by hand, unless they say so.
	kept := ok[client.Applied](s, "POST", "/api/v1/jobs:apply", `{"documents": [`+nightly+`]}`)
	if kept.Results[0].Result != client.Unchanged {
		t.Errorf("applying a file that says nothing about a pause has %s the job", kept.Results[0].Result)
	}
	said := ok[client.Applied](s, "POST", "/api/v1/jobs:apply", `{"documents": [`+strings.Replace(nightly, "{", `{"paused": false, `, 1)+`]}`)
	if said.Results[0].Result != client.Changed {
		t.Errorf("applying a file that says paused: false has %s the job", said.Results[0].Result)
	}
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", "{}")
	change = ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/resume", `{"missed": "latest"}`)
	if j, err = change.Job.Job(); err != nil || j.Paused || j.Status.State != job.JobActive || j.Status.PausedBy != "" {
		t.Errorf("%v, the job is %s", err, change.Job.RawMessage)
	}
	if len(change.Warnings) != 0 {
		t.Errorf("a resume that makes up for what was missed warns %q", change.Warnings)
	}
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "follower", "paused": true, "schedule": {"on": "nightly"}, "run": {"shell": "true"}}`)
	for missed, want := range map[string]int{"all": 1, "none": 0} {
		ok[client.Change](s, "POST", "/api/v1/jobs/default/follower/pause", "")
		change = ok[client.Change](s, "POST", "/api/v1/jobs/default/follower/resume", `{"missed": "`+missed+`"}`)
		if len(change.Warnings) != want {
			t.Errorf("the resume of a job without scheduled times, missed %s, warns %q", missed, change.Warnings)
		}
	}
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/nightly/pause", `{"until": "2020-01-01T00:00:00Z"}`)
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/nightly/pause", `{"untill": "2030-01-01T00:00:00Z"}`)
	s.refused(client.TypeChanged, 412, "POST", "/api/v1/jobs/default/nightly/pause", ``, "If-Match", `"1"`)
	s.refused(client.TypeNotFound, 404, "POST", "/api/v1/jobs/default/other/pause", "")
}

func TestNextShowsJitterAndZone(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	next := ok[client.Occurrences](s, "GET", "/api/v1/jobs/default/nightly/next?count=3", "")
	if next.Timezone != "Europe/Berlin" || len(next.Items) != 3 {
		t.Fatalf("the next occurrences are %+v", next)
	}
	if got := next.Items[0].Scheduled.Format(time.RFC3339); got != "2026-11-21T02:30:00+01:00" || !next.Items[0].Due.Equal(next.Items[0].Scheduled) {
		t.Errorf("the first is %+v", next.Items[0])
	}
	jitter := strings.Replace(strings.Replace(nightly, "nightly", "late", 1), `"timezone"`, `"jitter": "1h", "max_runs": 2, "timezone"`, 1)
	ok[client.Change](s, "POST", "/api/v1/jobs", jitter)
	next = ok[client.Occurrences](s, "GET", "/api/v1/jobs/default/late/next?count=5", "")
	if len(next.Items) != 2 || !next.Items[0].Due.After(next.Items[0].Scheduled) {
		t.Errorf("the next occurrences are %+v", next)
	}
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "hand", "run": {"shell": "true"}}`)
	if next = ok[client.Occurrences](s, "GET", "/api/v1/jobs/default/hand/next", ""); next.Reason == "" {
		t.Error("nothing says why the job is never due")
	}
}

func TestListsComeInPages(t *testing.T) {
	s := newServer(t)
	for i := range 7 {
		ok[client.Change](s, "POST", "/api/v1/jobs", fmt.Sprintf(`{"name": "job-%d", "labels": {"odd": "%d"}, "run": {"shell": "true"}}`, i, i%2))
	}
	var names []string
	for token := ""; ; {
		page := ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs?page_size=3&page_token="+token, "")
		for _, d := range page.Items {
			j, err := d.Job()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, j.Name)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "job-0 job-1 job-2 job-3 job-4 job-5 job-6" {
		t.Errorf("the pages have %s", got)
	}
	odd := ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs?label=odd=1", "")
	if len(odd.Items) != 3 {
		t.Errorf("%d jobs have the label", len(odd.Items))
	}
	if empty := s.call("GET", "/api/v1/jobs?namespace=nobody", ""); !strings.Contains(empty.Body.String(), `"items":[]`) {
		t.Errorf("an empty list is %s", empty.Body)
	}
	s.refused(client.TypeInvalid, 422, "GET", "/api/v1/jobs?label=odd", "")
}

func TestApplyChecksAllBeforeItWritesAny(t *testing.T) {
	s := newServer(t)
	wrong := `{"documents": [` + nightly + `, {"name": "bad", "schedule": {"cron": "61 * * * *"}, "run": {"shell": "true"}}, {"name": "bad2", "rum": 1}]}`
	p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs:apply", wrong)
	if len(p.Errors) == 0 || p.Errors[0].Pointer != "/documents/2/rum" {
		t.Errorf("the errors are %+v", p.Errors)
	}
	p = s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs:apply", `{"documents": [`+nightly+`, {"name": "bad", "schedule": {"cron": "61 * * * *"}, "run": {"shell": "true"}}]}`)
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/documents/1/schedule/cron" || p.Detail != "the documents have a mistake; nothing was changed" {
		t.Errorf("the problem is %+v", p)
	}
	s.refused(client.TypeNotFound, 404, "GET", "/api/v1/jobs/default/nightly", "")
	p = s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs:apply", `{"documents": [`+nightly+`, `+nightly+`]}`)
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Detail, "twice") {
		t.Errorf("the errors are %+v", p.Errors)
	}
}

func TestApplyWritesReferencedDocumentsFirst(t *testing.T) {
	s := newServer(t)
	body := `{"documents": [
		{"name": "workdays", "schedule": {"cron": "0 9 * * *", "except": "holidays"}, "run": {"shell": "true"}, "policy": {"concurrency_key": "disk"}},
		{"kind": "calendar", "name": "holidays", "calendar": {"include": "2026-12-25"}},
		{"kind": "pool", "name": "disk", "pool": {"size": 2}}]`
	dry := ok[client.Applied](s, "POST", "/api/v1/jobs:apply", body+`, "dry_run": true}`)
	if !dry.DryRun || len(dry.Results) != 3 || dry.Results[0].Result != client.Created {
		t.Errorf("the dry run says %+v", dry)
	}
	s.refused(client.TypeNotFound, 404, "GET", "/api/v1/jobs/default/workdays", "")
	s.grant("plan", "of plan", store.RoleViewer, "")
	s.grant("web plan", "of web plan", store.RoleViewer, "web")
	for _, c := range []struct {
		token, mode string
		want        int
	}{{"of plan", `, "dry_run": true}`, http.StatusOK}, {"of plan", `}`, http.StatusForbidden}, {"of web plan", `, "dry_run": true}`, http.StatusForbidden}} {
		if w := s.as(c.token, "POST", "/api/v1/jobs:apply", body+c.mode); w.Code != c.want {
			t.Errorf("%s%s: %d %s", c.token, c.mode, w.Code, w.Body)
		}
	}
	applied := ok[client.Applied](s, "POST", "/api/v1/jobs:apply", body+`}`)
	for _, r := range applied.Results {
		if r.Result != client.Created || r.Version != 1 {
			t.Errorf("the result is %+v", r)
		}
	}
	for _, r := range ok[client.Applied](s, "POST", "/api/v1/jobs:apply", body+`}`).Results {
		if r.Result != client.Unchanged {
			t.Errorf("applying again has %s %s", r.Result, r.Name)
		}
	}
	if list := ok[client.Page[client.Document]](s, "GET", "/api/v1/calendars", ""); len(list.Items) != 1 {
		t.Errorf("the calendars are %+v", list)
	}
	s.refused(client.TypeConflict, 409, "DELETE", "/api/v1/calendars/default/holidays", "", "If-Match", "*")
	s.refused(client.TypeVersionWanted, 428, "DELETE", "/api/v1/calendars/default/holidays", "")
	if w := s.call("GET", "/api/v1/pools/default/disk", ""); w.Code != 200 || w.Header().Get("ETag") != `"1"` {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	ok[client.Document](s, "PUT", "/api/v1/pools/default/disk", `{"kind": "pool", "name": "disk", "pool": {"size": 3}}`, "If-Match", `"1"`)
	s.refused(client.TypeChanged, 412, "DELETE", "/api/v1/pools/default/disk", "", "If-Match", `"1"`)
	if w := s.call("DELETE", "/api/v1/pools/default/disk", "", "If-Match", `"2"`); w.Code != 204 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// meddlingStore is one in which another client changes a pool whenever the pools were read.
type meddlingStore struct {
	*memory.Store
	size int
}

func (s *meddlingStore) Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error) {
	list, err := s.Store.Documents(ctx, kinds...)
	if err != nil {
		return nil, err
	}
	s.size++
	_, err = s.PutDocument(ctx, job.Document{Pool: &job.Pool{Name: "disk", Slots: job.Slots{Size: s.size}}}, store.AnyVersion, "bob")
	return list, err
}

func TestPruneSparesConcurrentlyChangedJobs(t *testing.T) {
	s := newServer(t)
	ok[client.Applied](s, "POST", "/api/v1/jobs:apply", `{"documents": [{"kind": "pool", "name": "disk", "pool": {"size": 1}}]}`)
	s.handle(&meddlingStore{s.store, 1})
	s.refused(client.TypeChanged, 412, "DELETE", "/api/v1/pools/default/disk", "", "If-Match", `"1"`)
	if list, err := s.store.Documents(t.Context(), job.KindPool); err != nil || len(list) != 1 {
		t.Errorf("%d pools are left, %v", len(list), err)
	}
}

func TestPruneDeletesDocumentsTheOwnerDropped(t *testing.T) {
	s := newServer(t)
	a, b := `{"name": "a", "run": {"shell": "true"}}`, `{"name": "b", "run": {"shell": "true"}}`
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "nobodys", "run": {"shell": "true"}}`)
	ok[client.Applied](s, "POST", "/api/v1/jobs:apply", `{"documents": [`+a+`,`+b+`], "owner": "team"}`)
	p := s.refused(client.TypeConflict, 409, "POST", "/api/v1/jobs:apply", `{"documents": [`+a+`], "owner": "others"}`)
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Detail, `"team"`) {
		t.Errorf("the errors are %+v", p.Errors)
	}
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs:apply", `{"documents": [], "prune": true}`)
	body := `{"documents": [` + a + `], "owner": "team", "prune": true`
	for _, r := range []client.Applied{
		ok[client.Applied](s, "POST", "/api/v1/jobs:apply", body+`, "dry_run": true}`),
		ok[client.Applied](s, "POST", "/api/v1/jobs:apply", body+`}`),
	} {
		if len(r.Results) != 2 || r.Results[0].Result != client.Unchanged || r.Results[1].Name != "default/b" || r.Results[1].Result != client.Deleted {
			t.Errorf("the results are %+v", r)
		}
	}
	left := ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs", "")
	if len(left.Items) != 2 {
		t.Errorf("%d jobs are left", len(left.Items))
	}
}

func TestApplyWarnsOfFollowersWithoutALeader(t *testing.T) {
	s := newServer(t)
	follower := func(on string) string {
		return `{"name": "f", "schedule": {"on": ` + on + `}, "run": {"shell": "true"}}`
	}
	const a = `{"name": "a", "run": {"shell": "true"}}`
	const missing = "schedule.on: job "
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"name": "there", "run": {"shell": "true"}}`)
	for _, c := range []struct{ what, body, want string }{
		{"a name that is nowhere", `{"documents": [` + follower(`"nope"`) + `]}`, missing + "default/nope"},
		{"another namespace", `{"documents": [` + a + `, ` + follower(`["x/a", "a"]`) + `]}`, missing + "x/a"},
		{"a job of the store", `{"documents": [` + follower(`"there"`) + `]}`, ""},
		{"a job that comes with it", `{"documents": [` + follower(`"a"`) + `, ` + a + `], "owner": "team"}`, ""},
		{"nothing to change", `{"documents": [` + follower(`"a"`) + `, ` + a + `], "owner": "team"}`, ""},
		{"a dry run that deletes it", `{"documents": [` + follower(`"a"`) + `], "owner": "team", "prune": true, "dry_run": true}`, missing + "default/a"},
		{"a call that deletes it", `{"documents": [` + follower(`"a"`) + `], "owner": "team", "prune": true}`, missing + "default/a"},
		{"one that was deleted", `{"documents": [` + follower(`"a"`) + `], "owner": "team"}`, missing + "default/a"},
	} {
		var got []string
		for _, r := range ok[client.Applied](s, "POST", "/api/v1/jobs:apply", c.body).Results {
			got = append(got, r.Warnings...)
		}
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want+" does not exist")) {
			t.Errorf("%s: the warnings are %q, want %q", c.what, got, c.want)
		}
	}
}

func TestBodiesWithDuplicateKeysAreRefused(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	for body, key := range map[string]string{
		`{"params": {"day": "1", "day": "2"}}`:             "day",
		`{"params": {"day": "1"}, "params": {"day": "2"}}`: "params",
	} {
		p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/nightly/run", body)
		if len(p.Errors) != 1 || p.Errors[0].Detail != fmt.Sprintf("%q is given twice", key) {
			t.Errorf("%s: the errors are %+v", body, p.Errors)
		}
	}
	if list := ok[client.Page[client.Run]](s, "GET", "/api/v1/runs", ""); len(list.Items) != 0 {
		t.Errorf("%d runs were made", len(list.Items))
	}
	p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs", `{"name": "a", "name": "b", "run": {"shell": "true"}}`)
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/name" {
		t.Errorf("a document that says a thing twice: %+v", p.Errors)
	}
}

// fullStore has room for a few jobs.
type fullStore struct {
	*memory.Store
	mu   sync.Mutex
	left int
}

func (s *fullStore) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	s.mu.Lock()
	full := s.left < len(list)
	if !full {
		s.left -= len(list)
	}
	s.mu.Unlock()
	if full {
		return nil, fmt.Errorf("put jobs: %w", store.ErrNoSpace)
	}
	return s.Store.PutJobs(ctx, list)
}

func TestRepeatedApplyFinishesTheRest(t *testing.T) {
	s := newServer(t)
	full := &fullStore{Store: s.store, left: 2*store.PutMax + 1}
	s.plain(full)
	var documents []string
	for i := range 5 * store.PutMax {
		documents = append(documents, fmt.Sprintf(`{"name": "job-%d", "run": {"shell": "true"}}`, i))
	}
	body := `{"documents": [` + strings.Join(documents, ",") + `]}`
	p := s.refused(client.TypeUnavailable, 503, "POST", "/api/v1/jobs:apply", body)
	if p.Hint != fmt.Sprintf("%d documents were applied; apply again for the rest", 2*store.PutMax) || !strings.Contains(p.Detail, "the store has no space left") {
		t.Errorf("the problem is %+v", p)
	}
	full.left = 1000
	created := 0
	for _, r := range ok[client.Applied](s, "POST", "/api/v1/jobs:apply", body).Results {
		if r.Result == client.Created {
			created++
		}
	}
	if created != 3*store.PutMax {
		t.Errorf("%d jobs were created, want the %d that were left", created, 3*store.PutMax)
	}
}

func TestReadiness(t *testing.T) {
	s := newServer(t)
	if w := s.call("GET", "/readyz", "", "Authorization", ""); w.Code != 200 {
		t.Errorf("status %d", w.Code)
	}
	s.planner.ready = make(chan struct{})
	if w := s.call("GET", "/readyz", "", "Authorization", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "jobs have not been read") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if w := s.call("GET", "/livez", "", "Authorization", ""); w.Code != 200 {
		t.Errorf("status %d", w.Code)
	}
}

// brokenStore fails, or panics.
type brokenStore struct {
	*memory.Store
	err error
}

func (s brokenStore) ListJobs(context.Context, store.JobQuery) ([]*store.Job, string, error) {
	if s.err == nil {
		panic("a mistake of the programmer")
	}
	return nil, "", s.err
}

func TestInternalErrorsAreNotShown(t *testing.T) {
	for _, tt := range []struct {
		err    error
		kind   client.ProblemType
		status int
	}{
		{nil, client.TypeInternal, 500},
		{fmt.Errorf("the secret path /x"), client.TypeInternal, 500},
		{fmt.Errorf("write: %w", store.ErrNoSpace), client.TypeUnavailable, 503},
		{fmt.Errorf("write: %w", store.ErrReadOnly), client.TypeUnavailable, 503},
		{fmt.Errorf("write: %w", store.ErrAway), client.TypeUnavailable, 503},
		{context.DeadlineExceeded, client.TypeTimeout, 504},
	} {
		s := newServer(t)
		s.plain(brokenStore{s.store, tt.err})
		if p := s.refused(tt.kind, tt.status, "GET", "/api/v1/jobs", ""); strings.Contains(p.Detail+p.Hint, "secret") {
			t.Errorf("the problem tells %q", p.Detail)
		}
	}
}

// dial returns a client of a real server.
func (s *server) dial() *client.Client {
	s.t.Helper()
	web := httptest.NewServer(s.handler)
	s.t.Cleanup(web.Close)
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{URL: web.URL, Token: token, HTTP: &http.Client{Transport: transport}})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// A change that is meant for an old version is refused even if it would change nothing.
func TestStaleIfMatchIsRefusedForAnyBody(t *testing.T) {
	s := newServer(t)
	for path, document := range map[string]string{
		"jobs":      `{"name": "x", "description": "%s", "run": {"shell": "true"}}`,
		"pools":     `{"kind": "pool", "name": "x", "description": "%s", "pool": {"size": 1}}`,
		"channels":  `{"kind": "channel", "name": "x", "description": "%s", "to": {"teams": {"url": {"file": "x"}}}, "rules": [{"events": ["failed"]}]}`,
		"executors": `{"kind": "executors", "name": "x", "title": "%s", "addresses": ["http://10.0.0.5:9999"]}`,
		"calendars": `{"kind": "calendar", "name": "x", "description": "%s", "calendar": {"include": "2026-12-25"}}`,
	} {
		path = "/api/v1/" + path + "/default/x"
		second := fmt.Sprintf(document, "two")
		for _, r := range [][2]string{{"If-None-Match", "*"}, {"If-Match", `"1"`}} {
			text := second
			if r[0] == "If-None-Match" {
				text = fmt.Sprintf(document, "one")
			}
			if w := s.call("PUT", path, text, r[0], r[1]); w.Code/100 != 2 {
				t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
			}
		}
		s.refused(client.TypeChanged, 412, "PUT", path, second, "If-Match", `"1"`)
		s.refused(client.TypeChanged, 412, "PUT", path, second, "If-None-Match", "*")
		if w := s.call("PUT", path, second, "If-Match", `"2"`); w.Code != 200 || w.Header().Get("ETag") != `"2"` {
			t.Errorf("%s: the present version has the status %d: %s", path, w.Code, w.Body)
		}
	}
	ok[client.Change](s, "POST", "/api/v1/jobs/default/x/pause", "")
	s.refused(client.TypeChanged, 412, "POST", "/api/v1/jobs/default/x/pause", "", "If-Match", `"2"`)
}

// fasterStore is one in which bob writes each job right before it is written.
type fasterStore struct{ *memory.Store }

func (s fasterStore) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	bobs := slices.Clone(list)
	bobs[0].Actor = "bob"
	if _, err := s.Store.PutJobs(ctx, bobs); err != nil {
		return nil, err
	}
	return s.Store.PutJobs(ctx, list)
}

func TestSecondEqualChangeToAVersionIsRefused(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	s.handle(fasterStore{s.store})
	s.refused(client.TypeChanged, 412, "PUT", "/api/v1/jobs/default/nightly", `{"name": "nightly", "run": {"shell": "false"}}`, "If-Match", `"1"`)
	ok[client.Change](s, "PUT", "/api/v1/jobs/default/nightly", `{"name": "nightly", "run": {"shell": "true"}}`, "If-Match", "*")
}
