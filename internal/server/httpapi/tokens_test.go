package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestTokenIsCreatedShownOnceUsedAndRevoked(t *testing.T) {
	s := newServer(t)
	token := ok[client.NewToken](s, "POST", "/api/v1/tokens", `{"name": "ci", "role": "viewer", "namespace": "web", "expires_in": "30d"}`)
	if token.Name != "ci" || token.Role != client.RoleViewer || token.Namespace != "web" || token.By != "alice" || !token.Expires.Equal(s.clock().Add(30*24*time.Hour)) {
		t.Errorf("the token is %+v", token)
	}
	if len(token.Secret) < 43 {
		t.Errorf("the secret %q has less than 256 bits", token.Secret)
	}
	if w := s.as(token.Secret, "GET", "/api/v1/jobs", ""); w.Code != http.StatusOK {
		t.Errorf("with it the status is %d: %s", w.Code, w.Body)
	}
	page := s.call("GET", "/api/v1/tokens", "").Body.String()
	if !strings.Contains(page, `"name":"ci"`) || strings.Contains(page, token.Secret) || strings.Contains(page, "secret") {
		t.Errorf("the list is %s", page)
	}
	if audit := s.call("GET", "/api/v1/audit", "").Body.String(); !strings.Contains(audit, "viewer in the namespace web, until 2026-12-20T14:00:00Z") || strings.Contains(audit, token.Secret) {
		t.Errorf("the audit is %s", audit)
	}
	if w := s.call("DELETE", "/api/v1/tokens/ci", ""); w.Code != http.StatusNoContent {
		t.Errorf("revoking has the status %d: %s", w.Code, w.Body)
	}
	if w := s.as(token.Secret, "GET", "/api/v1/jobs", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("once it was revoked the status is %d", w.Code)
	}
	s.refused(client.TypeNotFound, 404, "DELETE", "/api/v1/tokens/ci", "")
}

func TestATokenThatHasExpiredSaysSo(t *testing.T) {
	s := newServer(t)
	token := ok[client.NewToken](s, "POST", "/api/v1/tokens", `{"name": "short", "role": "admin", "expires_in": "1h"}`)
	s.pass(time.Hour)
	w := s.as(token.Secret, "GET", "/api/v1/jobs", "")
	if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "the token short has expired at 2026-11-20T15:00:00Z") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if page := ok[client.Page[client.Token]](s, "GET", "/api/v1/tokens", ""); len(page.Items) != 2 || !page.Items[1].Expired || page.Items[0].Expired {
		t.Errorf("the list is %+v", page)
	}
}

func TestForbiddenTokenOperationsAreRefused(t *testing.T) {
	s := newServer(t)
	for body, field := range map[string]string{
		`{"name": "Ann Smith", "role": "viewer"}`:                   "name",
		`{"name": "ann", "role": "king"}`:                           "role",
		`{"name": "belfry", "role": "viewer"}`:                      "name",
		`{"name": "ann", "role": "viewer", "namespace": "A/B"}`:     "namespace",
		`{"name": "ann", "role": "viewer", "expires_in": "-1h"}`:    "expires_in",
		`{"name": "ann", "role": "viewer", "expires_in": "later"}`:  "expires_in",
		`{"name": "ann", "role": "viewer", "expires_in": ""}`:       "expires_in",
		`{"name": "ann", "role": "viewer", "expires_in": "0s"}`:     "expires_in",
		`{"name": "ann", "role": "viewer", "expires_in": "999ms"}`:  "expires_in",
		`{"name": "ann", "role": "viewer", "expires_in": "36501d"}`: "expires_in",
		`{"name": "ann", "role": "viewer", "secret": "1234"}`:       "secret",
	} {
		p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/tokens", body)
		if len(p.Errors) != 1 || p.Errors[0].Pointer != "/"+field {
			t.Errorf("%s: the errors are %+v", body, p.Errors)
		}
	}
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/tokens", `{"name": "ann"}`)
	ok[client.NewToken](s, "POST", "/api/v1/tokens", `{"name": "ann", "role": "viewer"}`)
	s.refused(client.TypeExists, 409, "POST", "/api/v1/tokens", `{"name": "ann", "role": "admin"}`)
	if p := s.refused(client.TypeConflict, 409, "DELETE", "/api/v1/tokens/alice", ""); !strings.Contains(p.Detail, "the last token that can create others") {
		t.Errorf("the problem is %+v", p)
	}
}

func TestRevokedTokenEndsItsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.grant("ann", "of ann", store.RoleViewer, "")
		ok[client.Change](s, "POST", "/api/v1/jobs", webJob)
		run := ok[client.Run](s, "POST", "/api/v1/jobs/web/a/run", "")
		revoke := time.AfterFunc(2*time.Second, func() { s.call("DELETE", "/api/v1/tokens/ann", "") })
		defer revoke.Stop()
		// If that does not end it, this does.
		cancel := time.AfterFunc(time.Minute, func() { s.call("POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "") })
		defer cancel.Stop()
		begun := time.Now()
		w := s.call("GET", "/api/v1/runs/"+run.ID.String()+"/output", "", "Accept", "text/event-stream", "Authorization", "Bearer of ann")
		if took := time.Since(begun); took < 2*time.Second || took > 3*time.Second || !strings.Contains(w.Body.String(), "the token is no longer valid") {
			t.Errorf("after %s: %s", took, w.Body)
		}
	})
}

func TestAnAdministratorEndsSessionsOfAPerson(t *testing.T) {
	s := newServer(t)
	s.grant("ops", "of ops", store.RoleAdmin, "web")
	begin := func(name, person string) {
		t.Helper()
		if _, err := s.store.PutToken(t.Context(), store.PutToken{
			Name: name, Hash: auth.HashOf(name), Role: store.RoleSession, Lasts: time.Hour, Actor: "belfry", Terms: store.Terms{Person: &store.Person{Provider: "sso", Subject: "of " + person, Name: person}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	begin("session/person/1", "ann@example.com")
	begin("session/person/2", "bob@example.com")
	s.pass(time.Minute)
	begin("session/person/3", "ann@example.com")
	page := ok[client.Page[client.Session]](s, "GET", "/api/v1/sessions", "")
	if len(page.Items) != 3 || page.Items[0] != (client.Session{Person: "sso:ann@example.com", Subject: "of ann@example.com", Begun: s.clock().Add(-time.Minute), Expires: s.clock().Add(59 * time.Minute)}) || page.Items[2].Person != "sso:bob@example.com" {
		t.Errorf("the sessions are %+v", page.Items)
	}
	const ann = "/api/v1/sessions/sso:ann@example.com"
	if w := s.as("of ops", "DELETE", ann, ""); w.Code != http.StatusForbidden {
		t.Errorf("an administrator of a namespace gets %d", w.Code)
	}
	if ended := ok[client.SessionsEnded](s, "DELETE", ann, ""); ended.Ended != 2 {
		t.Errorf("%d sessions were ended", ended.Ended)
	}
	if page := ok[client.Page[client.Session]](s, "GET", "/api/v1/sessions", ""); len(page.Items) != 1 || page.Items[0].Person != "sso:bob@example.com" {
		t.Errorf("afterwards the sessions are %+v", page.Items)
	}
	records := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit?action=session.end", "").Items
	if len(records) != 2 || records[0].Actor != "alice" || records[0].Object != "sso:ann@example.com" || records[0].Detail != "subject of ann@example.com of sso" {
		t.Errorf("the audit is %+v", records)
	}
	if p := s.refused(client.TypeNotFound, 404, "DELETE", ann, ""); !strings.Contains(p.Detail, "there is no session of sso:ann@example.com") {
		t.Errorf("the problem is %+v", p)
	}
	s.pass(time.Hour)
	if page := ok[client.Page[client.Session]](s, "GET", "/api/v1/sessions", ""); len(page.Items) != 0 {
		t.Errorf("expired sessions are listed: %+v", page.Items)
	}
}

// verifierOfAnn is the verifier of a command of ann.
const verifierOfAnn = "a verifier of 43 letters, as RFC 7636 has it"

// staff are people with one role in the namespace web.
type staff struct{}

func (staff) Roles(*store.Person) map[string]store.Role {
	return map[string]store.Role{"web": store.RoleRunner}
}

func (staff) Lasts() time.Duration { return 8 * time.Hour }

// signInServer is a server at which people sign in, with the session of ann in a browser.
func signInServer(t *testing.T) (s *server, sessions *auth.Sessions, browser string) {
	t.Helper()
	s = newServer(t)
	sessions = auth.NewSessions(s.tokens, staff{})
	s.handler = newHandler(t, service.Config{Store: s.store, Planner: s.planner, Tokens: s.tokens, People: staff{}, Now: s.clock}, httpapi.Config{
		Now: s.clock, Version: "test", Hosts: []string{"belfry.example"}, Metrics: http.HandlerFunc(writeMetrics), Tokens: s.tokens, Sessions: sessions, SignInAt: "https://belfry.example",
	})
	browser, err := sessions.BeginPerson(t.Context(), &store.Person{Provider: "sso", Subject: "17", Name: "ann@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return s, sessions, browser
}

func TestAPersonSignsInOnACommandLine(t *testing.T) {
	s, sessions, browser := signInServer(t)
	verifier := strings.Repeat("v", 43)
	if how := ok[client.SignIn](s, "GET", "/api/v1/sign-in", ""); how.URL != "https://belfry.example/ui/sign-in/command" {
		t.Errorf("the page is %q", how.URL)
	}
	code, err := sessions.Approve(t.Context(), browser, auth.Challenge(verifier))
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"code": %q, "verifier": %q}`
	s.refused(client.TypeUnauthenticated, 401, "POST", "/api/v1/sign-in", fmt.Sprintf(body, code, strings.Repeat("w", 43)))
	s.refused(client.TypeUnauthenticated, 401, "POST", "/api/v1/sign-in", fmt.Sprintf(body, "guessed", verifier))
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/sign-in", fmt.Sprintf(body, code, "short"))
	answer := s.from("192.0.2.1:1", "", "POST", "/api/v1/sign-in", fmt.Sprintf(body, code, verifier))
	var session client.NewSession
	if err := json.Unmarshal(answer.Body.Bytes(), &session); err != nil || answer.Code != http.StatusCreated || answer.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("the session: %d, %s, %v", answer.Code, answer.Body, err)
	}
	if session.Person != "sso:ann@example.com" || session.Roles != "runner in web" || !session.Expires.Equal(s.clock().Add(8*time.Hour)) {
		t.Errorf("the session is %+v", session)
	}
	s.refused(client.TypeUnauthenticated, 401, "POST", "/api/v1/sign-in", fmt.Sprintf(body, code, verifier))

	// The session has the roles of the person, and the audit names the person.
	ok[client.Change](s, "POST", "/api/v1/jobs", webJob)
	if w := s.as(session.Secret, "POST", "/api/v1/jobs/web/a/run", ""); w.Code != http.StatusCreated {
		t.Errorf("a runner cannot run a job: %d, %s", w.Code, w.Body)
	}
	if w := s.as(session.Secret, "DELETE", "/api/v1/jobs/web/a", ""); w.Code != http.StatusForbidden {
		t.Errorf("a runner deletes a job: %d", w.Code)
	}
	records := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit?actor=sso:ann@example.com", "").Items
	if len(records) != 3 || records[0].Action != "run.hand" || !strings.Contains(records[1].Detail, "runner in web for a command line; subject 17 of sso") {
		t.Errorf("the audit is %+v", records)
	}
	if page := ok[client.Page[client.Session]](s, "GET", "/api/v1/sessions", ""); len(page.Items) != 2 {
		t.Errorf("the sessions are %+v", page.Items)
	}

	if w := s.as(session.Secret, "DELETE", "/api/v1/sign-in", ""); w.Code != http.StatusNoContent {
		t.Errorf("the end of the session: %d, %s", w.Code, w.Body)
	}
	if w := s.as(session.Secret, "GET", "/api/v1/jobs", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("an ended session gets %d", w.Code)
	}
	s.refused(client.TypeConflict, 409, "DELETE", "/api/v1/sign-in", "") // a token has no session
}

func TestTheEndOfAPersonsSessionsEndsTheirCodes(t *testing.T) {
	s, sessions, browser := signInServer(t)
	verifier := strings.Repeat("v", 43)
	code, err := sessions.Approve(t.Context(), browser, auth.Challenge(verifier))
	if err != nil {
		t.Fatal(err)
	}
	if ended := ok[client.SessionsEnded](s, "DELETE", "/api/v1/sessions/sso:ann@example.com", ""); ended.Ended != 1 {
		t.Errorf("%d sessions were ended", ended.Ended)
	}
	s.refused(client.TypeUnauthenticated, 401, "POST", "/api/v1/sign-in", fmt.Sprintf(`{"code": %q, "verifier": %q}`, code, verifier))
	if records := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit?action=session.end", "").Items; len(records) != 1 {
		t.Errorf("the audit is %+v", records)
	}
}

func TestASessionOfATokenIsNoBearer(t *testing.T) {
	s, sessions, _ := signInServer(t)
	secret, err := sessions.Begin(t.Context(), auth.HashOf(token))
	if err != nil {
		t.Fatal(err)
	}
	if w := s.as(secret, "GET", "/api/v1/jobs", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("the session of a token in a browser gets %d as a bearer", w.Code)
	}
}

func TestSignInIsRefusedWithoutAProvider(t *testing.T) {
	s := newServer(t)
	for method, body := range map[string]string{"GET": "", "POST": `{"code": "x", "verifier": "` + strings.Repeat("v", 43) + `"}`} {
		if p := s.refused(client.TypeConflict, 409, method, "/api/v1/sign-in", body); !strings.Contains(p.Detail, "no OpenID provider") {
			t.Errorf("%s: %+v", method, p)
		}
	}
}

func TestHiddenRunIsNotCancelled(t *testing.T) {
	s := newServer(t)
	s.grant("other", "of other", store.RoleAdmin, "other")
	ok[client.Change](s, "POST", "/api/v1/jobs", webJob)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/web/a/run", "")
	said := s.as("of other", "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "")
	// The answer for a run that never existed is the same.
	unknown := "01M7WSD70J4JVRQ9N4TN6P9NR3"
	never := s.as("of other", "POST", "/api/v1/runs/"+unknown+"/cancel", "")
	if said.Code != http.StatusNotFound || strings.Replace(said.Body.String(), run.ID.String(), unknown, -1) != never.Body.String() {
		t.Errorf("the answer is %d %s, and of no run %s", said.Code, said.Body, never.Body)
	}
	if now := ok[client.Run](s, "GET", "/api/v1/runs/"+run.ID.String(), ""); now.State == job.StateDone {
		t.Errorf("the run is %s: %s", now.State, now.Reason)
	}
}
