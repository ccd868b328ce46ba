package httpapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// hooked is a server with a job that takes a branch, and with hooks.
type hooked struct{ *server }

func newHooked(t *testing.T) hooked {
	s := hooked{newServer(t)}
	ok[any](s.server, "PUT", "/api/v1/jobs/default/deploy", `{"name": "deploy", "params": {"branch": {"pattern": "[a-z/]*"}}, "run": {"shell": "true"}}`, "If-None-Match", "*")
	return s
}

// hook makes a hook of a form with a secret, and returns its path. More fields follow as JSON.
func (s hooked) hook(form job.HookForm, secret, more string) string {
	s.t.Helper()
	ok[any](s.server, "PUT", "/api/v1/secrets/default/key_"+string(form), `{"value": `+string(must(json.Marshal(secret)))+`}`)
	d := ok[struct{ UID job.ID }](s.server, "PUT", "/api/v1/hooks/default/"+string(form),
		fmt.Sprintf(`{"job": "deploy", "from": %q, "secret": "key_%s"%s}`, form, form, more), "If-None-Match", "*")
	return "/hooks/" + d.UID.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// send calls a hook without a token.
func (s hooked) send(path, body string, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8420"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// starts calls a hook and returns the run of the answer.
func (s hooked) starts(status int, path, body string, headers ...string) client.HookCalled {
	s.t.Helper()
	w := s.send(path, body, headers...)
	var called client.HookCalled
	if err := json.Unmarshal(w.Body.Bytes(), &called); err != nil || w.Code != status {
		s.t.Fatalf("the call has the status %d, want %d: %s", w.Code, status, w.Body)
	}
	return called
}

// unproven calls a hook whose proof is not valid.
func (s hooked) unproven(path, body string, headers ...string) string {
	s.t.Helper()
	w := s.send(path, body, headers...)
	if w.Code != http.StatusUnauthorized {
		s.t.Errorf("a call without a proof has the status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func (s hooked) runs() int {
	s.t.Helper()
	return len(ok[client.Page[client.Run]](s.server, "GET", "/api/v1/runs?job=default/deploy", "").Items)
}

func signed(key, text string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// TestHooksKnowTheSignaturesOfTheProviders has the vectors of the documentation of GitHub and of Standard
// Webhooks. Stripe publishes none with its secret: its digest is of openssl dgst -sha256 -hmac.
func TestHooksKnowTheSignaturesOfTheProviders(t *testing.T) {
	s := newHooked(t)
	at := time.Unix(1614265330, 0)
	s.handleAt(func() time.Time { return at })

	github := s.hook(job.HookGitHub, "It's a Secret to Everybody", "")
	const digest = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	if s.starts(http.StatusAccepted, github, "Hello, World!", "X-Hub-Signature-256", digest).Run.IsZero() {
		t.Error("the vector of GitHub starts no run")
	}

	standard := s.hook(job.HookStandard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "")
	vector := []string{"Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp", "1614265330", "Webhook-Signature", "v1a,bm8= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}
	if s.starts(http.StatusAccepted, standard, `{"test": 2432232314}`, vector...).Run.IsZero() {
		t.Error("the vector of Standard Webhooks starts no run")
	}

	stripe := s.hook(job.HookStripe, "whsec_test_secret", "")
	const ofStripe = "d8ad0119c04884f963d66fde235b40b6fb9b013e987cbf5471d69f2574a46d8e"
	if s.starts(http.StatusAccepted, stripe, `{"id": "evt_1", "object": "event"}`, "Stripe-Signature", "t=1614265330,v0=ff,v1=00,v1="+ofStripe).Run.IsZero() {
		t.Error("a call of Stripe starts no run")
	}
	s.starts(http.StatusAccepted, s.hook(job.HookGitLab, "token", ""), `{}`, "X-Gitlab-Token", "token")
	s.starts(http.StatusAccepted, s.hook(job.HookURL, "s3cret", "")+"/s3cret", "")
	if n := s.runs(); n != 5 {
		t.Errorf("5 calls have started %d runs", n)
	}
}

func TestAHookIsNotCalledWithoutItsSecret(t *testing.T) {
	s := newHooked(t)
	now := s.clock()
	github, gitlab := s.hook(job.HookGitHub, "k", ""), s.hook(job.HookGitLab, "k", "")
	stripe, standard, address := s.hook(job.HookStripe, "k", ""), s.hook(job.HookStandard, "whsec_"+base64.StdEncoding.EncodeToString([]byte("k")), ""), s.hook(job.HookURL, "k", "")
	unix := func(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }
	ofGitHub := func(body string) string { return "sha256=" + hex.EncodeToString(signed("k", body)) }
	ofStripe := func(at string) string { return "t=" + at + ",v1=" + hex.EncodeToString(signed("k", at+".{}")) }
	ofStandard := func(version, id, at string) []string {
		return []string{"Webhook-Id", id, "Webhook-Timestamp", at, "Webhook-Signature", version + "," + base64.StdEncoding.EncodeToString(signed("k", id+"."+at+".{}"))}
	}
	wrong := s.unproven(github, "{}", "X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
	for name, answer := range map[string]func() string{
		"an unknown hook": func() string {
			return s.unproven("/hooks/"+s.id().String(), "{}", "X-Hub-Signature-256", ofGitHub("{}"))
		},
		"no id":        func() string { return s.unproven("/hooks/x", "{}") },
		"no signature": func() string { return s.unproven(github, "{}") },
		"another body": func() string { return s.unproven(github, `{"a": 1}`, "X-Hub-Signature-256", ofGitHub("{}")) },
		"SHA-1": func() string {
			return s.unproven(github, "{}", "X-Hub-Signature", "sha1="+hex.EncodeToString(signed("k", "{}")))
		},
		"another algorithm in the header": func() string {
			return s.unproven(github, "{}", "X-Hub-Signature-256", "sha1="+hex.EncodeToString(signed("k", "{}")))
		},
		"the form of another provider": func() string { return s.unproven(github, "{}", "X-Gitlab-Token", "k") },
		"a part of the token":          func() string { return s.unproven(gitlab, "{}", "X-Gitlab-Token", "") },
		"a stale time of Stripe":       func() string { return s.unproven(stripe, "{}", "Stripe-Signature", ofStripe(unix(-6*time.Minute))) },
		"a future time of Stripe":      func() string { return s.unproven(stripe, "{}", "Stripe-Signature", ofStripe(unix(6*time.Minute))) },
		"v0 of Stripe": func() string {
			return s.unproven(stripe, "{}", "Stripe-Signature", strings.Replace(ofStripe(unix(0)), "v1", "v0", 1))
		},
		"no time of Stripe": func() string { return s.unproven(stripe, "{}", "Stripe-Signature", ofStripe("")) },
		"a changed time of Stripe": func() string {
			return s.unproven(stripe, "{}", "Stripe-Signature", "t="+unix(1)+",t="+ofStripe(unix(0)))
		},
		"a stale time":            func() string { return s.unproven(standard, "{}", ofStandard("v1", "a", unix(-6*time.Minute))...) },
		"an asymmetric signature": func() string { return s.unproven(standard, "{}", ofStandard("v1a", "a", unix(0))...) },
		"no id of the message":    func() string { return s.unproven(standard, "{}", ofStandard("v1", "", unix(0))...) },
		"another id": func() string {
			return s.unproven(standard, "{}", append(ofStandard("v1", "a", unix(0)), "Webhook-Id", "b")...)
		},
		"a wrong secret in the address": func() string { return s.unproven(address+"/K", "{}") },
		"no secret in the address":      func() string { return s.unproven(address, "{}") },
		"a secret elsewhere":            func() string { return s.unproven(github+"/k", "{}") },
	} {
		s.pass(time.Minute) // of the count of failures; times above are of the beginning
		now = s.clock()
		if got := answer(); got != wrong {
			t.Errorf("%s is answered by %s, want what a wrong signature is: %s", name, got, wrong)
		}
	}
	now = s.clock()
	s.starts(http.StatusAccepted, stripe, "{}", "Stripe-Signature", ofStripe(unix(-4*time.Minute)))
	if n := s.runs(); n != 1 {
		t.Errorf("%d runs have started, want the valid one alone", n)
	}
	if records, _, err := s.store.Audit(t.Context(), store.AuditQuery{Action: "hook.refuse", Limit: 10}); err != nil || len(records) != 0 {
		t.Errorf("strangers write %d records of the audit: %v", len(records), err)
	}
}

func TestAHookTakesCallsFromItsAddresses(t *testing.T) {
	s := newHooked(t)
	near := s.hook(job.HookURL, "k", `, "allow": ["192.0.2.0/24"]`) + "/k" // where httptest sends from
	s.starts(http.StatusAccepted, near, "{}")
	far := s.hook(job.HookGitLab, "k", `, "allow": ["198.51.100.0/24", "2001:db8::1"]`)
	wrong := s.unproven(far, "{}", "X-Gitlab-Token", "x")
	if got := s.unproven(far, "{}", "X-Gitlab-Token", "k"); got != wrong {
		t.Errorf("a call from elsewhere is answered by %s, want what a wrong secret is: %s", got, wrong)
	}
	if n := s.runs(); n != 1 {
		t.Errorf("%d runs have started, want that of the near address alone", n)
	}
	records, _, err := s.store.Audit(t.Context(), store.AuditQuery{Action: "hook.refuse", Limit: 10})
	if err != nil || len(records) != 1 || !strings.Contains(records[0].Detail.String(), "192.0.2.1") {
		t.Errorf("the audit has %+v, want one call with its address: %v", records, err)
	}
}

func TestARepeatedDeliveryStartsNothing(t *testing.T) {
	s := newHooked(t)
	github := s.hook(job.HookGitHub, "k", "")
	signature := "sha256=" + hex.EncodeToString(signed("k", "{}"))
	first := s.starts(http.StatusAccepted, github, "{}", "X-Hub-Signature-256", signature, "X-GitHub-Delivery", "a")
	// The id is not signed: an attacker can choose another.
	again := s.starts(http.StatusOK, github, "{}", "X-Hub-Signature-256", signature, "X-GitHub-Delivery", "b")
	if !again.Repeated || again.Run != first.Run {
		t.Errorf("a repeated call has started %+v, want the run %s", again, first.Run)
	}
	s.pass(store.KeyLife - time.Minute)
	if again := s.starts(http.StatusOK, github, "{}", "X-Hub-Signature-256", signature); again.Run != first.Run {
		t.Errorf("a call of yesterday has started %+v", again)
	}

	stripe := s.hook(job.HookStripe, "k", "")
	event := func(body string) []string {
		at := fmt.Sprint(s.clock().Unix())
		return []string{"Stripe-Signature", "t=" + at + ",v1=" + hex.EncodeToString(signed("k", at+"."+body))}
	}
	body := `{"id": "evt_1", "pending_webhooks": 1}`
	one := s.starts(http.StatusAccepted, stripe, body, event(body)...)
	body = `{"id": "evt_1", "pending_webhooks": 0}`
	if again := s.starts(http.StatusOK, stripe, body, event(body)...); again.Run != one.Run {
		t.Errorf("an event sent again has started %+v, want %s", again, one.Run)
	}

	gitlab := s.hook(job.HookGitLab, "k", "")
	one = s.starts(http.StatusAccepted, gitlab, "{}", "X-Gitlab-Token", "k", "Idempotency-Key", "x")
	if again := s.starts(http.StatusOK, gitlab, "{}", "X-Gitlab-Token", "k", "Idempotency-Key", "x"); again.Run != one.Run {
		t.Errorf("a retry of GitLab has started %+v, want %s", again, one.Run)
	}
	if n := s.runs(); n != 3 {
		t.Errorf("%d runs have started, want one for each delivery", n)
	}
}

func TestAHookMakesParametersOfItsCall(t *testing.T) {
	s := newHooked(t)
	path := s.hook(job.HookURL, "k", `, "if": "{{ eq .Header.x_event \"push\" }}", "params": {"branch": "{{ .Body.head.ref | lower }}"}`) + "/k"
	run := s.starts(http.StatusAccepted, path, `{"head": {"ref": "refs/heads/Main"}}`, "X-Event", "push").Run
	r := ok[client.Run](s.server, "GET", "/api/v1/runs/"+run.String(), "")
	if r.Params["branch"] != "refs/heads/main" {
		t.Errorf("the run has the parameters %v", r.Params)
	}
	if ignored := s.starts(http.StatusOK, path, `{}`, "X-Event", "ping"); !ignored.Run.IsZero() {
		t.Errorf("a call that does not pass the filter has started %v", ignored)
	}
	s.starts(http.StatusAccepted, path, "head=x&y=1", "X-Event", "push", "Content-Type", "application/x-www-form-urlencoded")
	s.starts(http.StatusAccepted, path, "", "X-Event", "push")
	w := s.send(path, `{"head": {"ref": "bad ref!"}}`, "X-Event", "push")
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), `"params.branch"`) {
		t.Errorf("a value that does not fit is answered by %d: %s", w.Code, w.Body)
	}
	if w := s.send(path, "{", "X-Event", "push", "Content-Type", "application/json"); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("broken JSON is answered by %d: %s", w.Code, w.Body)
	}
	records, _, err := s.store.Audit(t.Context(), store.AuditQuery{Actor: "hook:default/url", Limit: 10})
	var actions []string
	for _, record := range records {
		actions = append(actions, record.Action)
	}
	if want := "hook.refuse hook.refuse run.hand run.hand hook.ignore run.hand"; err != nil || strings.Join(actions, " ") != want {
		t.Errorf("the audit has %v, want %s: %v", actions, want, err)
	}
	if !strings.Contains(records[1].Detail.String(), "params.branch") {
		t.Errorf("the audit says %q of a refused call", records[1].Detail)
	}
	ok[any](s.server, "PUT", "/api/v1/hooks/default/url", `{"job": "deploy", "from": "url", "secret": "key_url", "paused": true}`, "If-Match", "*")
	if called := s.starts(http.StatusOK, path, `{}`, "X-Event", "push"); !called.Run.IsZero() {
		t.Errorf("a paused hook has started %v", called)
	}
	ok[any](s.server, "PUT", "/api/v1/hooks/default/url", `{"job": "gone", "from": "url", "secret": "key_url"}`, "If-Match", "*")
	if w := s.send(path, `{}`); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "default/gone") {
		t.Errorf("a hook of a job that is missing answers %d: %s", w.Code, w.Body)
	}
}

func TestARunHasAWebhookOfItsOwn(t *testing.T) {
	s := newHooked(t)
	const path = "/api/v1/jobs/default/deploy/run"
	for body, field := range map[string]string{
		`{"notify": {"url": "ftp://a"}}`:                        "notify.url",
		`{"notify": {"url": "https://"}}`:                       "notify.url",
		`{"notify": {"url": "https://a", "secret": "a-b"}}`:     "notify.secret",
		`{"notify": {"url": "https://a", "secret": "missing"}}`: "notify.secret",
	} {
		if p := s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "POST", path, body); len(p.Errors) != 1 || p.Errors[0].Path != field {
			t.Errorf("%s has the mistakes %+v, want one in %s", body, p.Errors, field)
		}
	}
	if n := s.runs(); n != 0 {
		t.Errorf("refused requests have made %d runs", n)
	}
	s.grant("ci", "secret of ci", store.RoleRunner, "")
	if w := s.as("secret of ci", "POST", path, `{"notify": {"url": "https://a"}}`); w.Code != http.StatusForbidden {
		t.Errorf("a runner brings an address: %d: %s", w.Code, w.Body)
	}
	notes := func() []store.Note { return must(s.store.Notes(t.Context(), notification.RunNotes, "", 10)) }
	var run client.Run
	for range 2 {
		run = ok[client.Run](s.server, "POST", path, `{"notify": {"url": "https://a"}}`, "Idempotency-Key", "1")
	}
	if list := notes(); len(list) != 1 || list[0].Name != notification.RunNotes+run.ID.String() || !strings.Contains(string(list[0].Text), "https://a") {
		t.Errorf("the store has kept %+v, want the webhook of the run once", list)
	}
	ok[client.Run](s.server, "POST", path, `{}`)
	if list := notes(); len(list) != 1 {
		t.Errorf("a run without a webhook has one: %+v", list)
	}
}

func TestARunByHandHasAnotherInterval(t *testing.T) {
	s := newHooked(t)
	const path = "/api/v1/jobs/default/deploy/run"
	for body, field := range map[string]string{
		`{"scheduled": "2026-11-20T14:00:01Z"}`:                                     "scheduled",
		`{"previous": "2026-11-20T14:00:00Z"}`:                                      "previous",
		`{"previous": "2026-11-02T00:00:00Z", "scheduled": "2026-11-01T00:00:00Z"}`: "previous",
		`{"scheduled": "2026-11-01T00:00:00Z", "debounce": {"for": "10s"}}`:         "debounce",
	} {
		if p := s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "POST", path, body); len(p.Errors) != 1 || p.Errors[0].Path != field {
			t.Errorf("%s has the mistakes %+v, want one in %s", body, p.Errors, field)
		}
	}
	s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "POST", path, `{"params": {":previous": "2026-11-01T00:00:00Z"}}`)
	const october = `{"params": {"branch": "main"}, "previous": "2026-10-01T02:00:00+02:00", "scheduled": "2026-11-01T00:00:00Z"}`
	run := ok[client.Run](s.server, "POST", path, october, "Idempotency-Key", "1")
	from, to := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	if !run.Previous.Equal(from) || !run.Scheduled.Equal(to) || !run.Due.Equal(s.clock()) || len(run.Params) != 1 {
		t.Errorf("the run has the interval from %s to %s, is due at %s and has the parameters %v", run.Previous, run.Scheduled, run.Due, run.Params)
	}
	if again := ok[client.Run](s.server, "POST", path, october, "Idempotency-Key", "1"); again.ID != run.ID {
		t.Errorf("the same request has made another run")
	}
	s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "POST", path, strings.Replace(october, "10-01", "10-02", 1), "Idempotency-Key", "1")
	unique := func(day string) job.ID {
		return ok[client.Run](s.server, "POST", path, `{"unique": {"for": "1h"}, "scheduled": "2026-11-`+day+`T00:00:00Z"}`).ID
	}
	if a, b := unique("01"), unique("02"); a == b || a != unique("01") {
		t.Error("unique requests for two intervals make not one run for each")
	}
	n := s.node()
	n.start(run)
	n.finish(run, job.OutcomeFailed)
	retry := ok[client.Run](s.server, "POST", "/api/v1/runs/"+run.ID.String()+"/retry", `{"params": {"branch": "x"}}`)
	if !retry.Previous.Equal(from) || !retry.Scheduled.Equal(to) || retry.Params["branch"] != "x" {
		t.Errorf("the retry has the interval from %s to %s and the parameters %v", retry.Previous, retry.Scheduled, retry.Params)
	}
}

func TestBodiesOfHooksAreBounded(t *testing.T) {
	s := newHooked(t)
	path := s.hook(job.HookURL, "k", "") + "/k"
	s.starts(http.StatusAccepted, path, `"`+strings.Repeat("x", 1<<20-2)+`"`)
	for name, body := range map[string]string{"large": strings.Repeat("x", 1<<20+1), "of many values": "[" + strings.Repeat("1,", 50_000) + "1]"} {
		if w := s.send(path, body); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("a body that is %s has the status %d: %s", name, w.Code, w.Body)
		}
	}
}

func TestAnAddressGuessesFewSecretsOfHooks(t *testing.T) {
	s := newHooked(t)
	path := s.hook(job.HookURL, "k", "")
	for range 20 {
		s.unproven(path+"/x", "")
	}
	if w := s.send(path+"/x", ""); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("the 21st wrong secret has the status %d: %s", w.Code, w.Body)
	}
	s.starts(http.StatusAccepted, path+"/k", "")
}

func TestMistakesInHooksHaveTheirPlace(t *testing.T) {
	s := newHooked(t)
	p := s.refused(client.TypeInvalid, http.StatusUnprocessableEntity, "PUT", "/api/v1/hooks/default/h",
		`{"job": "De ploy", "from": "url", "secret": "none", "if": "{{ .Boddy.x }}", "params": {"a b": "{{", "c": "{{ .Param.x }}"}}`, "If-None-Match", "*")
	var paths []string
	for _, e := range p.Errors {
		paths = append(paths, e.Path)
	}
	if want := `job, secret, if, params["a b"], params["a b"], params.c`; strings.Join(paths, ", ") != want {
		t.Errorf("the mistakes are in %s, want %s: %+v", strings.Join(paths, ", "), want, p.Errors)
	}
}
