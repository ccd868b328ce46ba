package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestTokenIsCreatedShownOnceUsedAndRevoked(t *testing.T) {
	s := newServer(t)
	made := ok[client.NewToken](s, "POST", "/api/v1/tokens", `{"name": "ci", "role": "viewer", "namespace": "web", "expires_in": "30d"}`)
	if made.Name != "ci" || made.Role != client.RoleViewer || made.Namespace != "web" || made.By != "alice" || !made.Expires.Equal(s.clock().Add(30*24*time.Hour)) {
		t.Errorf("the token is %+v", made)
	}
	if len(made.Secret) < 43 {
		t.Errorf("the secret %q has less than 256 bits", made.Secret)
	}
	if w := s.as(made.Secret, "GET", "/api/v1/jobs", ""); w.Code != http.StatusOK {
		t.Errorf("with it the status is %d: %s", w.Code, w.Body)
	}
	page := s.call("GET", "/api/v1/tokens", "").Body.String()
	if !strings.Contains(page, `"name":"ci"`) || strings.Contains(page, made.Secret) || strings.Contains(page, "secret") {
		t.Errorf("the list is %s", page)
	}
	if audit := s.call("GET", "/api/v1/audit", "").Body.String(); !strings.Contains(audit, "viewer in the namespace web, until 2026-12-20T14:00:00Z") || strings.Contains(audit, made.Secret) {
		t.Errorf("the audit is %s", audit)
	}
	if w := s.call("DELETE", "/api/v1/tokens/ci", ""); w.Code != http.StatusNoContent {
		t.Errorf("revoking has the status %d: %s", w.Code, w.Body)
	}
	if w := s.as(made.Secret, "GET", "/api/v1/jobs", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("once it was revoked the status is %d", w.Code)
	}
	s.refused(client.TypeNotFound, 404, "DELETE", "/api/v1/tokens/ci", "")
}

func TestATokenThatHasExpiredSaysSo(t *testing.T) {
	s := newServer(t)
	made := ok[client.NewToken](s, "POST", "/api/v1/tokens", `{"name": "short", "role": "admin", "expires_in": "1h"}`)
	s.pass(time.Hour)
	w := s.as(made.Secret, "GET", "/api/v1/jobs", "")
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

func TestHiddenRunIsNotCancelled(t *testing.T) {
	s := newServer(t)
	s.grant("other", "of other", store.RoleAdmin, "other")
	ok[client.Change](s, "POST", "/api/v1/jobs", webJob)
	run := ok[client.Run](s, "POST", "/api/v1/jobs/web/a/run", "")
	said := s.as("of other", "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "")
	// The answer for a run that never existed is the same.
	unknown := "01M7WSD70J4JVRQ9N4TN6P9NR3"
	never := s.as("of other", "POST", "/api/v1/runs/"+unknown+"/cancel", "")
	if said.Code != http.StatusNotFound || strings.Replace(said.Body.String(), run.ID.String(), unknown, 1) != never.Body.String() {
		t.Errorf("it is told %d %s, and of no run %s", said.Code, said.Body, never.Body)
	}
	if now := ok[client.Run](s, "GET", "/api/v1/runs/"+run.ID.String(), ""); now.State == job.StateDone {
		t.Errorf("the run is %s: %s", now.State, now.Reason)
	}
}
