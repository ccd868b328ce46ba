package notify

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/job"
)

// service is a fake service that keeps the latest request and answers as configured.
type service struct {
	*httptest.Server
	request *http.Request
	body    string
	status  int
	header  map[string]string
	answer  string
}

func newService(t *testing.T) *service {
	s := &service{status: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.request, s.body = r, string(body)
		for name, value := range s.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.answer)
	}))
	t.Cleanup(s.Close)
	return s
}

// at is the present moment in all these tests.
var at = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// newTestSender returns a sender whose secrets are these, in the namespace default.
func newTestSender(t *testing.T, secrets map[string]string) *Sender {
	dir := t.TempDir()
	for name, value := range secrets {
		file := filepath.Join(dir, "default", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(value+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s := NewSender(SenderConfig{Secrets: &secret.Keeper{Files: secret.Files(dir), Getenv: func(string) string { return "" }}, Version: "1.2", Now: func() time.Time { return at }})
	t.Cleanup(s.Close)
	return s
}

// to decodes a channel with the address of a service.
func to(t *testing.T, text string) *job.Channel {
	t.Helper()
	docs, err := job.Decode("c.yaml", []byte("kind: channel\nname: ops\nlink: https://belfry.example.org\nrules: [{events: [failed]}]\nto: "+text))
	if err == nil {
		err = docs[0].Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return docs[0].Channel
}

// message returns a message about a failed job, with characters that are special to services.
func message(c *job.Channel) *notification.Message {
	e := notification.Event{
		Kind: job.NoticeFailed, Namespace: "shop", Job: "backup", Run: job.ID{15: 1}, Attempt: 2, Node: "one", Time: at, Began: at.Add(-90 * time.Second), Lasting: true,
		Text: job.Text("exit status 3: <@U1> *x* “é”"), Cause: "disk is full",
	}
	c.UID = job.ID{15: 7}
	g := notification.NewGroup(c, &e)
	g.Add(c.WithDefaults(), e, at)
	g.Begin()
	m := notification.MessageOf(c.WithDefaults(), []*notification.Group{g}, at)
	m.Lines[0].Failing = &notification.Failing{Since: at.Add(-time.Hour), Version: 8, Before: 7}
	m.Lines[0].Output = []string{"reading", "  a_b = <1>"}
	return &m
}

// over is the message that it has recovered.
func over(c *job.Channel) *notification.Message {
	e := notification.Event{Kind: job.NoticeFailed, Namespace: "shop", Job: "backup", Run: job.ID{15: 1}, Time: at, Lasting: true}
	c.UID = job.ID{15: 7}
	filled := c.WithDefaults()
	filled.Rules[0].Events = append(filled.Rules[0].Events, job.NoticeRecovered)
	filled.Rules[0].Namespaces = []string{"*"}
	g := notification.NewGroup(filled, &e)
	g.Add(filled, e, at)
	g.Begin()
	g.Delivered(at)
	g.End(e.Key(), at)
	g.Begin()
	m := notification.MessageOf(filled, []*notification.Group{g}, at)
	return &m
}

const (
	runLink = "https://belfry.example.org/runs/00000000000000000000000001"
	details = "attempt 2 on one, 1 min 30 s; failing since Nov 23 11:00 UTC (version 7 → 8); belfry logs 00000000000000000000000001"
	line    = "shop/backup failed: exit status 3: <@U1> *x* “é”: disk is full\n" + details + "\n    reading\n      a_b = <1>"
	// detailed are the same in the JSON of programs.
	detailed = `"failing": {"since": "2026-11-23T11:00:00Z", "version": 8, "version_before": 7}, "output": ["reading", "  a_b = <1>"]`
)

// sent delivers a message and checks the request.
func (s *service) sent(t *testing.T, err error, path, body string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.request.Method + " " + s.request.URL.String(); got != "POST "+path {
		t.Errorf("the request is %s, want %s", got, path)
	}
	if kind := s.request.Header.Get("Content-Type"); kind != "application/json; charset=utf-8" {
		t.Errorf("the type is %s", kind)
	}
	if agent := s.request.Header.Get("User-Agent"); agent != "belfry/1.2" {
		t.Errorf("the agent is %s", agent)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal([]byte(s.body), &got), json.Unmarshal([]byte(body), &want)); err != nil {
		t.Fatalf("%v in\n%s\n%s", err, s.body, body)
	}
	gotText, _ := json.MarshalIndent(got, "", " ")
	wantText, _ := json.MarshalIndent(want, "", " ")
	if string(gotText) != string(wantText) {
		t.Errorf("the body is\n%s\nwant\n%s", gotText, wantText)
	}
}

// quote writes a text as JSON.
func quote(text string) string {
	b, _ := marshal(text)
	return string(b)
}

// The key, message and signature come from the specification's libraries.
func TestWebhookSignatureIsThatOfStandardWebhooks(t *testing.T) {
	key, err := webhookKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := webhookSignature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	for _, bad := range []string{"", "whsec_", "whsec_c2hvcnQ=", "not base64!"} {
		if _, err := webhookKey(bad); err == nil {
			t.Errorf("the key %q was taken", bad)
		}
	}
}

func TestWebhook(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"key": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	c := to(t, "{webhook: {url: "+fake.URL+"/hook, secret: {file: key}}}")
	m := message(c)
	fake.sent(t, s.Send(t.Context(), c, m), "/hook", fmt.Sprintf(`{"type": "belfry.notification", "timestamp": "2026-11-23T12:00:00Z", "data": {
		"id": %q, "key": %q, "channel": "default/ops", "open": true, "severity": "error", "time": "2026-11-23T12:00:00Z",
		"title": "shop/backup failed", "link": "https://belfry.example.org", "events": [{
			"kind": "failed", "over": false, "severity": "error", "namespace": "shop", "job": "backup", "run": "00000000000000000000000001", "count": 1,
			"first": "2026-11-23T12:00:00Z", "last": "2026-11-23T12:00:00Z", "what": "shop/backup failed", "reason": "exit status 3: <@U1> *x* “é”", "reason_code": "text", "cause": "disk is full",
			"node": "one", "attempt": 2, "took_seconds": 90, "command": "belfry logs 00000000000000000000000001", `+detailed+`, "link": %q}]}}`,
		m.ID, m.Key, runLink))
	header := fake.request.Header
	key, _ := webhookKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if header.Get("webhook-id") != m.ID || header.Get("webhook-timestamp") != "1795435200" ||
		header.Get("webhook-signature") != webhookSignature(key, m.ID, "1795435200", []byte(fake.body)) {
		t.Errorf("the header is %v", header)
	}
}

func TestSlack(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL + "/services/T/B/x", "token": "xoxb-1"})
	body := `"text": "🔴 shop/backup failed", "unfurl_links": false, "blocks": [
		{"type": "header", "text": {"type": "plain_text", "text": "🔴 shop/backup failed"}},
		{"type": "section", "text": {"type": "mrkdwn", "verbatim": true, "text": "shop/backup failed: exit status 3: &lt;@U1&gt; *x* “é”: disk is full\n` + details + `\n    reading\n      a_b = &lt;1&gt;\n` + runLink + `"}}]`
	c := to(t, "{slack: {url: {file: url}}}")
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/services/T/B/x", "{"+body+"}")

	c = to(t, "{slack: {token: {file: token}, channel: C123, server: "+fake.URL+"}}")
	fake.answer = `{"ok": true}`
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/api/chat.postMessage", `{"channel": "C123", `+body+"}")
	if fake.request.Header.Get("Authorization") != "Bearer xoxb-1" {
		t.Errorf("the header is %v", fake.request.Header)
	}
	fake.answer = `{"ok": false, "error": "channel_not_found"}`
	isRefused(t, s.Send(t.Context(), c, message(c)), "Slack says channel_not_found")
	fake.answer = `{"ok": false, "error": "ratelimited"}`
	isRetried(t, s.Send(t.Context(), c, message(c)), 30*time.Second)
}

func isRefused(t *testing.T, err error, want string) {
	t.Helper()
	var f *notification.Failure
	if !errors.As(err, &f) || !f.Refused || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want a refusal with %q", err, want)
	}
}

func isRetried(t *testing.T, err error, after time.Duration) {
	t.Helper()
	var f *notification.Failure
	if !errors.As(err, &f) || f.Refused || f.After != after {
		t.Errorf("the error is %#v, want one after which to wait %s", err, after)
	}
}

func TestTeams(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL + "/workflows/1"})
	c := to(t, "{teams: {url: {file: url}}}")
	fake.status = http.StatusAccepted
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/workflows/1", `{"type": "message", "attachments": [{
		"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": null, "content": {
			"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": [
				{"type": "TextBlock", "text": "shop/backup failed", "wrap": true, "size": "Medium", "weight": "Bolder", "color": "attention"},
				{"type": "TextBlock", "text": `+quote(`shop/backup failed: exit status 3: \<@U1\> \*x\* “é”: disk is full`+"\n\n"+details)+`, "wrap": true},
				{"type": "TextBlock", "text": `+quote(`reading`+"\n\n"+`  a\_b = \<1\>`)+`, "wrap": true, "fontType": "Monospace", "size": "Small"}],
			"actions": [{"type": "Action.OpenUrl", "title": "Open in Belfry", "url": "`+runLink+`"}]}}]}`)
}

func TestDiscord(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL + "/api/webhooks/1/x"})
	c := to(t, "{discord: {url: {file: url}}}")
	fake.status = http.StatusNoContent
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/api/webhooks/1/x", `{"allowed_mentions": {"parse": []}, "embeds": [{
		"title": "shop/backup failed", "description": `+quote(`shop/backup failed: exit status 3: \<@U1\> \*x\* “é”: disk is full`+"\n"+details+"\n    reading\n      "+`a\_b = \<1\>`+"\n"+runLink)+`,
		"color": 11805464, "timestamp": "2026-11-23T12:00:00.000Z", "url": "`+runLink+`"}]}`)
	named := message(c)
	named.Title = "shop/clean_up_now failed"
	if err := s.Send(t.Context(), c, named); err != nil || !strings.Contains(string(fake.body), `"title":"shop/clean\\_up\\_now failed"`) {
		t.Errorf("%v, and %s", err, fake.body)
	}
	fake.status, fake.header = http.StatusTooManyRequests, map[string]string{"Retry-After": "1.5"}
	isRetried(t, s.Send(t.Context(), c, message(c)), 1500*time.Millisecond)
	fake.header, fake.answer = nil, `{"message":"You are being rate limited.","retry_after":0.5,"global":false}`
	isRetried(t, s.Send(t.Context(), c, message(c)), 500*time.Millisecond)
}

func TestTelegram(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"token": "12:ab"})
	c := to(t, "{telegram: {token: {file: token}, chat: \"-100\", server: "+fake.URL+"}}")
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/bot12:ab/sendMessage",
		`{"chat_id": "-100", "link_preview_options": {"is_disabled": true}, "text": `+quote("🔴 shop/backup failed\n"+line+"\n"+runLink)+`}`)
	fake.status, fake.answer = http.StatusTooManyRequests, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 15","parameters":{"retry_after":15}}`
	isRetried(t, s.Send(t.Context(), c, message(c)), 15*time.Second)
	fake.status, fake.answer = http.StatusUnauthorized, `{"ok":false,"error_code":401,"description":"Unauthorized"}`
	isRefused(t, s.Send(t.Context(), c, message(c)), "status 401")
}

func TestPagerDuty(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"key": "R0"})
	c := to(t, "{pagerduty: {key: {file: key}, server: "+fake.URL+"}}")
	fake.status = http.StatusAccepted
	m := message(c)
	fake.sent(t, s.Send(t.Context(), c, m), "/v2/enqueue", fmt.Sprintf(`{"routing_key": "R0", "event_action": "trigger", "dedup_key": %q,
		"client": "Belfry", "client_url": %q, "links": [{"href": %q, "text": "Open in Belfry"}], "payload": {
			"summary": "shop/backup failed", "source": "one", "severity": "error", "timestamp": "2026-11-23T12:00:00Z", "class": "belfry",
			"custom_details": {"more": 0, "events": [{"kind": "failed", "over": false, "severity": "error", "namespace": "shop", "job": "backup",
				"run": "00000000000000000000000001", "count": 1, "first": "2026-11-23T12:00:00Z", "last": "2026-11-23T12:00:00Z",
				"what": "shop/backup failed", "reason": "exit status 3: <@U1> *x* “é”", "reason_code": "text", "cause": "disk is full",
			"node": "one", "attempt": 2, "took_seconds": 90, "command": "belfry logs 00000000000000000000000001", `+detailed+`, "link": %q}]}}}`, m.Key, runLink, runLink, runLink))
	m.Lines[0].Namespace, m.Lines[0].Job, m.Lines[0].Node = "", "", "" // as if the history store is away
	if err := s.Send(t.Context(), c, m); err != nil || !strings.Contains(string(fake.body), `"source":"belfry"`) {
		t.Errorf("%v, and %s", err, fake.body)
	}
	fake.sent(t, s.Send(t.Context(), c, over(c)), "/v2/enqueue", fmt.Sprintf(`{"routing_key": "R0", "event_action": "resolve", "dedup_key": %q}`, m.Key))
}

func TestOpsgenie(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"key": "K1"})
	c := to(t, "{opsgenie: {key: {file: key}, server: "+fake.URL+"}}")
	fake.status = http.StatusAccepted
	m := message(c)
	fake.sent(t, s.Send(t.Context(), c, m), "/v2/alerts", fmt.Sprintf(`{"message": "shop/backup failed", "alias": %q, "description": %s,
		"source": "belfry", "tags": ["belfry"], "priority": "P2", "details": {"channel": "default/ops", "message": %q, "link": %q}}`,
		m.Key, quote(line+"\n"+runLink), m.ID, runLink))
	if fake.request.Header.Get("Authorization") != "GenieKey K1" {
		t.Errorf("the header is %v", fake.request.Header)
	}
	fake.sent(t, s.Send(t.Context(), c, over(c)), "/v2/alerts/"+m.Key+"/close?identifierType=alias", `{"source": "belfry", "note": "shop/backup has recovered"}`)
}

// The signature was made with openssl dgst -sha256 -hmac.
func TestDingTalk(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL + "/robot/send?access_token=a", "key": "SECabc"})
	c := to(t, "{dingtalk: {url: {file: url}, secret: {file: key}}}")
	fake.answer = `{"errcode":0,"errmsg":"ok"}`
	body := `{"msgtype": "text", "text": {"content": ` + quote("🔴 shop/backup failed\n"+line+"\n"+runLink) + `}}`
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/robot/send?access_token=a&sign="+url.QueryEscape(dingTalkSign)+"&timestamp=1795435200000", body)
	for _, fake.answer = range []string{`{"errcode":410100,"errmsg":"send too fast"}`, `{"errcode":130101,"errmsg":"send too fast"}`} {
		isRetried(t, s.Send(t.Context(), c, message(c)), 10*time.Minute)
	}
	fake.answer = `{"errcode":310000,"errmsg":"sign not match"}`
	isRefused(t, s.Send(t.Context(), c, message(c)), "sign not match")
}

// The signature was made with openssl dgst -sha256 -hmac.
func TestFeishu(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL + "/open-apis/bot/v2/hook/x", "key": "abc"})
	c := to(t, "{feishu: {url: {file: url}, secret: {file: key}}}")
	fake.answer = `{"code":0,"msg":"success","data":{}}`
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/open-apis/bot/v2/hook/x", `{"timestamp": "1795435200", "sign": "`+feishuSign+`",
		"msg_type": "text", "content": {"text": `+quote("🔴 shop/backup failed\n"+line+"\n"+runLink)+`}}`)
	fake.answer = `{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}`
	isRefused(t, s.Send(t.Context(), c, message(c)), "sign match fail")
	fake.answer = `{"code":11232,"msg":"frequency limited"}`
	isRetried(t, s.Send(t.Context(), c, message(c)), 30*time.Second)
	fake.status = http.StatusBadRequest
	isRetried(t, s.Send(t.Context(), c, message(c)), 30*time.Second)
	fake.answer = `{"code":9499,"msg":"Bad Request","data":{}}`
	isRefused(t, s.Send(t.Context(), c, message(c)), "Bad Request")
}

func TestWeCom(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL + "/cgi-bin/webhook/send?key=x"})
	c := to(t, "{wecom: {url: {file: url}}}")
	fake.answer = `{"errcode":0,"errmsg":"ok"}`
	fake.sent(t, s.Send(t.Context(), c, message(c)), "/cgi-bin/webhook/send?key=x", `{"msgtype": "text", "text": {"content": `+quote("🔴 shop/backup failed\n"+line+"\n"+runLink)+`}}`)
	fake.answer = `{"errcode":93000,"errmsg":"invalid webhook url"}`
	isRefused(t, s.Send(t.Context(), c, message(c)), "invalid webhook url")
	long := message(c)
	long.Lines[0].Reason = strings.Repeat("é", 5000)
	fake.answer = `{"errcode":0}`
	if err := s.Send(t.Context(), c, long); err != nil {
		t.Fatal(err)
	}
	var reply struct{ Text struct{ Content string } }
	if err := json.Unmarshal([]byte(fake.body), &reply); err != nil || len(reply.Text.Content) > weComMax || !strings.Contains(reply.Text.Content, "ééé…") {
		t.Errorf("a long text has %d bytes, %v", len(reply.Text.Content), err)
	}
}

func TestAnswersOfServicesAreUnderstood(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL})
	c := to(t, "{slack: {url: {file: url}}}")
	for _, test := range []struct {
		status  int
		header  string
		refused bool
		after   time.Duration
	}{
		{http.StatusBadRequest, "", true, 0}, {http.StatusNotFound, "", true, 0}, {http.StatusMovedPermanently, "", true, 0},
		{http.StatusTooManyRequests, "120", false, 2 * time.Minute}, {http.StatusServiceUnavailable, at.Add(time.Hour).Format(http.TimeFormat), false, time.Hour},
		{http.StatusBadGateway, "soon", false, 0},
	} {
		fake.status, fake.answer, fake.header = test.status, "no\nwords", map[string]string{"Retry-After": test.header, "Location": "http://127.0.0.1:1/"}
		err := s.Send(t.Context(), c, message(c))
		var f *notification.Failure
		if !errors.As(err, &f) || f.Refused != test.refused || f.After != test.after || f.Unsure || err.Error() != fmt.Sprintf("status %d: no words", test.status) {
			t.Errorf("status %d means %#v", test.status, err)
		}
	}
}

func TestErrorsDoNotShowSecrets(t *testing.T) {
	s := newTestSender(t, map[string]string{"url": "http://127.0.0.1:1/secret-path", "bad": "ht tp://secret-path"})
	for _, file := range []string{"url", "bad"} {
		c := to(t, "{slack: {url: {file: "+file+"}}}")
		if err := s.Send(t.Context(), c, message(c)); err == nil || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestAddressesThatAreClosedAreNotCalled(t *testing.T) {
	fake := newService(t)
	s := newTestSender(t, map[string]string{"url": fake.URL})
	s.config.Control = func(string, string, syscall.RawConn) error { return errors.New("address is a loopback address") }
	s = NewSender(s.config)
	c := to(t, "{slack: {url: {file: url}}}")
	if err := s.Send(t.Context(), c, message(c)); err == nil || !strings.Contains(err.Error(), "loopback") || fake.request != nil {
		t.Errorf("the error is %v, and the service has received %v", err, fake.request)
	}
	c = to(t, "{mail: {server: \""+fake.Listener.Addr().String()+"\", from: a@b, to: [c@d]}}")
	if err := s.Send(t.Context(), c, message(c)); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("the error for mail is %v", err)
	}
}

func TestSecretsBelongToTheirNamespace(t *testing.T) {
	s := newTestSender(t, map[string]string{"mine": "x"})
	if err := errors.Join(os.WriteFile(filepath.Join(string(s.config.Secrets.Files), "outside"), []byte("y"), 0o600),
		os.Symlink("../outside", filepath.Join(string(s.config.Secrets.Files), "default", "link"))); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"BELFRY_SECRET_WEB_SHOP__TOKEN": "z", "TOKEN": "no"}
	s.config.Secrets.Getenv = func(name string) string { return variables[name] }
	for _, test := range []struct {
		namespace  string
		ref        job.Secret
		want, fail string
	}{
		{"", job.Secret{File: "mine"}, "x", ""},
		{"default", job.Secret{File: "mine"}, "x", ""},
		{"other", job.Secret{File: "mine"}, "", "read the secret mine of the namespace other: no such file"},
		{"default", job.Secret{File: "link"}, "", "read the secret link"},
		{"default", job.Secret{File: "../outside"}, "", "read the secret"},
		{"web-shop", job.Secret{Env: "TOKEN"}, "z", ""},
		{"web", job.Secret{Env: "TOKEN"}, "", "the variable BELFRY_SECRET_WEB__TOKEN of the server is not set"},
	} {
		got, err := s.secret(t.Context(), &job.Channel{Namespace: test.namespace}, &test.ref)
		if got != test.want || (err == nil) != (test.fail == "") || err != nil && !strings.Contains(err.Error(), test.fail) {
			t.Errorf("%s %+v is %q, %v", test.namespace, test.ref, got, err)
		}
	}
}

// mailServer accepts one mail and keeps it.
type mailServer struct {
	net.Listener
	said   chan []string
	refuse string // a receiver to refuse
	mech   string
}

func newMailServer(t *testing.T, config *tls.Config, implicit bool) *mailServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if implicit {
		l = tls.NewListener(l, config)
	}
	s := &mailServer{Listener: l, said: make(chan []string, 1), mech: "PLAIN LOGIN"}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		var lines []string
		defer func() { conn.Close(); s.said <- lines }()
		fmt.Fprint(conn, "220 mail\r\n")
		secured := implicit
		for {
			line, err := readLine(conn)
			if err != nil {
				return
			}
			lines = append(lines, line)
			switch verb := strings.ToUpper(strings.Fields(line + " .")[0]); verb {
			case "EHLO":
				if config != nil && !secured {
					fmt.Fprint(conn, "250-mail\r\n250 STARTTLS\r\n")
				} else {
					fmt.Fprintf(conn, "250-mail\r\n250 AUTH %s\r\n", s.mech)
				}
			case "STARTTLS":
				fmt.Fprint(conn, "220 go\r\n")
				conn, secured = tls.Server(conn, config), true
			case "AUTH":
				if strings.HasSuffix(line, "LOGIN") {
					for _, question := range []string{"VXNlcm5hbWU6", "UGFzc3dvcmQ6"} {
						fmt.Fprintf(conn, "334 %s\r\n", question)
						answer, _ := readLine(conn)
						lines = append(lines, answer)
					}
				}
				fmt.Fprint(conn, "235 ok\r\n")
			case "RCPT":
				if s.refuse != "" && strings.Contains(line, s.refuse) {
					fmt.Fprint(conn, "550 no such user\r\n")
				} else {
					fmt.Fprint(conn, "250 ok\r\n")
				}
			case "DATA":
				fmt.Fprint(conn, "354 go\r\n")
				for line != "." {
					if line, err = readLine(conn); err != nil {
						return
					}
					lines = append(lines, line)
				}
				fmt.Fprint(conn, "250 ok\r\n")
			case "QUIT":
				fmt.Fprint(conn, "221 bye\r\n")
				return
			default:
				fmt.Fprint(conn, "250 ok\r\n")
			}
		}
	}()
	return s
}

func readLine(r io.Reader) (string, error) {
	var b strings.Builder
	for one := make([]byte, 1); ; {
		if _, err := r.Read(one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return strings.TrimSuffix(b.String(), "\r"), nil
		}
		b.WriteByte(one[0])
	}
}

func TestMail(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	config := &tls.Config{Certificates: web.TLS.Certificates}
	for _, test := range []struct {
		name, tls, mech string
		implicit        bool
		want            []string
	}{
		{"STARTTLS", "starttls", "PLAIN", false, []string{"STARTTLS", "AUTH PLAIN AGJlbGZyeQBwdw=="}},
		{"TLS from the beginning", "implicit", "PLAIN", true, []string{"AUTH PLAIN AGJlbGZyeQBwdw=="}},
		{"a server that knows only LOGIN", "starttls", "LOGIN", false, []string{"AUTH LOGIN", "YmVsZnJ5", "cHc="}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := newMailServer(t, config, test.implicit)
			server.mech, server.refuse = test.mech, "gone@"
			s := newTestSender(t, map[string]string{"pw": "pw"})
			s.mailTLS = func(string) *tls.Config {
				return &tls.Config{RootCAs: web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"}
			}
			c := to(t, fmt.Sprintf("{mail: {server: %q, from: belfry@example.org, to: [gone@example.org, ops@example.org], username: belfry, password: {file: pw}, tls: %s}}", server.Addr(), test.tls))
			m := message(c)
			if err := s.Send(t.Context(), c, m); err != nil {
				t.Fatal(err)
			}
			text := strings.Join(<-server.said, "\n")
			for _, want := range append(test.want, "MAIL FROM:<belfry@example.org>", "RCPT TO:<ops@example.org>", "From: belfry@example.org",
				"Subject: [belfry] shop/backup failed", "Message-ID: <"+m.ID+"@example.org>", "References: <"+m.Key+"@example.org>", "Date: Mon, 23 Nov 2026 12:00:00 +0000",
				"Auto-Submitted: auto-generated", "Content-Type: multipart/alternative", "exit status 3: <@U1> *x* =E2=80=9C=C3=A9=E2=80=9D", "&lt;@U1&gt;", "    reading", "<pre>reading", "belfry logs") {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
		})
	}
}

func TestMailRequiresTheConfiguredEncryption(t *testing.T) {
	server := newMailServer(t, nil, false)
	s := newTestSender(t, map[string]string{"pw": "pw"})
	c := to(t, fmt.Sprintf("{mail: {server: %q, from: a@b.org, to: [c@d.org], username: u, password: {file: pw}}}", server.Addr()))
	isRefused(t, s.Send(t.Context(), c, message(c)), "does not offer STARTTLS")
	if text := strings.Join(<-server.said, "\n"); strings.Contains(text, "AUTH") {
		t.Errorf("the server has received %s", text)
	}
}

func TestPlainMailToAServerWithoutEncryption(t *testing.T) {
	server := newMailServer(t, nil, false)
	s := newTestSender(t, nil)
	c := to(t, fmt.Sprintf("{mail: {server: %q, from: a@b.org, to: [c@d.org], tls: none, plain: true}}", server.Addr()))
	if err := s.Send(t.Context(), c, message(c)); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(<-server.said, "\n"); !strings.Contains(text, "Content-Type: text/plain; charset=utf-8") || strings.Contains(text, "html") {
		t.Errorf("the server has received %s", text)
	}
}

func TestEveryServiceHasASender(t *testing.T) {
	for _, name := range job.ServiceNames() {
		if services[name] == nil {
			t.Errorf("nothing delivers to %s", name)
		}
	}
	if len(services) != len(job.ServiceNames()) {
		t.Errorf("there are %d senders for %d services", len(services), len(job.ServiceNames()))
	}
}

func TestASendEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and stays silent
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newTestSender(t, nil)
	c := to(t, fmt.Sprintf("{mail: {server: %q, from: a@b.org, to: [c@d.org]}}", l.Addr()))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Send(ctx, c, message(c)); err == nil {
		t.Error("it has succeeded")
	}
}

const (
	dingTalkSign = "KUX25XeJH6X8wIIlwoFgyZ4EzAibwsPSL64B7ZvrU5c="
	feishuSign   = "BVe1nYrbaoRY9Ii45Om8QwChnbsiUZfjeysy4n0/IW8="
)

func TestARecoveryTellsHowLongTheProblemLasted(t *testing.T) {
	c := to(t, "{webhook: {url: 'https://a.example', secret: {file: key}}}").WithDefaults()
	c.Rules[0].Events = append(c.Rules[0].Events, job.NoticeRecovered)
	c.Rules[0].Namespaces = []string{"*"}
	e := notification.Event{Kind: job.NoticeFailed, Namespace: "shop", Job: "backup", Run: job.ID{15: 1}, Attempt: 1, Time: at, Cause: "disk is full", Lasting: true}
	g := notification.NewGroup(c, &e)
	g.Add(c, e, at)
	g.Begin()
	g.Delivered(at)
	g.End(e.Key(), at.Add(90*time.Minute))
	g.Begin()
	m := notification.MessageOf(c, []*notification.Group{g}, at.Add(2*time.Hour))
	if got := m.Lines[0].Text(time.UTC); got != "shop/backup has recovered after 1 h 30 min" || m.Lines[0].Lasted != 5400 || m.Lines[0].Details(time.UTC) != "" {
		t.Errorf("the message says %q: %+v", got, m.Lines[0])
	}
}

// posted checks a list of alerts against the OpenAPI document of Alertmanager's API v2
// (postableAlerts), and like its handler, and returns the alerts.
func (s *service) posted(t *testing.T) []postableAlert {
	t.Helper()
	if s.request == nil || s.request.Method != http.MethodPost || s.request.URL.Path != "/am/api/v2/alerts" || !strings.HasPrefix(s.request.Header.Get("Content-Type"), "application/json") {
		t.Fatalf("the request is %+v", s.request)
	}
	var fields []map[string]json.RawMessage
	var alerts []postableAlert
	if err := errors.Join(json.Unmarshal([]byte(s.body), &fields), json.Unmarshal([]byte(s.body), &alerts)); err != nil {
		t.Fatalf("%v in %s", err, s.body)
	}
	for i, a := range alerts {
		for name := range fields[i] {
			if !slices.Contains([]string{"labels", "annotations", "startsAt", "endsAt", "generatorURL"}, name) {
				t.Errorf("an alert has the field %s", name)
			}
		}
		if a.Labels["alertname"] == "" || a.EndsAt.Before(a.StartsAt) {
			t.Errorf("Alertmanager refuses %+v", a)
		}
		for _, set := range []map[string]string{a.Labels, a.Annotations} {
			for name, value := range set {
				if !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) || value == "" || !utf8.ValidString(value) {
					t.Errorf("Alertmanager refuses %s=%q", name, value)
				}
			}
		}
		if u, err := url.Parse(a.Generator); err != nil || a.Generator != "" && u.Scheme == "" {
			t.Errorf("generatorURL is %q", a.Generator)
		}
	}
	return alerts
}

func TestAlertmanager(t *testing.T) {
	down, fake := newService(t), newService(t)
	down.Close()
	s := newTestSender(t, map[string]string{"password": "p"})
	c := to(t, "{alertmanager: {urls: ["+down.URL+", "+fake.URL+"/am/], username: belfry, password: {file: password}, labels: {team: shop}}}")
	if err := s.Send(t.Context(), c, message(c)); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"alertname": "BelfryFailed", "severity": "critical", "channel": "default/ops", "namespace": "shop", "job": "backup", "team": "shop"}
	firing := fake.posted(t)
	if user, password, _ := fake.request.BasicAuth(); user != "belfry" || password != "p" {
		t.Errorf("the user is %q with %q", user, password)
	}
	if len(firing) != 1 || !maps.Equal(firing[0].Labels, labels) || !firing[0].StartsAt.Equal(at) || !firing[0].EndsAt.After(at.Add(30*24*time.Hour)) || firing[0].Generator != runLink {
		t.Errorf("it fires as %+v", firing)
	}
	wanted := map[string]string{"summary": "shop/backup failed", "description": line, "run": "00000000000000000000000001", "command": "belfry logs 00000000000000000000000001"}
	if !maps.Equal(firing[0].Annotations, wanted) {
		t.Errorf("its annotations are %q", firing[0].Annotations)
	}
	if err := s.Send(t.Context(), c, over(c)); err != nil {
		t.Fatal(err)
	}
	if resolved := fake.posted(t); !maps.Equal(resolved[0].Labels, labels) || !resolved[0].EndsAt.Equal(at) {
		t.Errorf("it is resolved by %+v", resolved)
	}
	moment := notification.Event{Kind: job.NoticeLateStart, Namespace: "shop", Job: "backup", Run: job.ID{15: 1}, Time: at, Late: time.Minute}
	c.Rules[0].Events = []job.Notice{moment.Kind}
	g := notification.NewGroup(c, &moment)
	g.Add(c.WithDefaults(), moment, at)
	g.Begin()
	m := notification.MessageOf(c.WithDefaults(), []*notification.Group{g}, at)
	if err := s.Send(t.Context(), c, &m); err != nil {
		t.Fatal(err)
	}
	if passing := fake.posted(t); passing[0].Labels["alertname"] != "BelfryLateStart" || passing[0].Labels["severity"] != "warning" || !passing[0].EndsAt.Equal(at.Add(momentFor)) {
		t.Errorf("what does not last is %+v", passing)
	}
	test := notification.Test(c, "1", "ann", at)
	if err := s.Send(t.Context(), c, &test); err != nil || fake.posted(t)[0].Labels["alertname"] != "BelfryTest" || fake.posted(t)[0].Labels["severity"] != "warning" {
		t.Errorf("a test is %s (%v)", fake.body, err)
	}
	fake.status, fake.answer = http.StatusBadRequest, `"start time must be before end time"`
	isRefused(t, s.Send(t.Context(), c, message(c)), "start time must be before end time")
}

// The message of each service has what a person needs, whatever its form.
func TestEachServiceTellsWhatAPersonNeeds(t *testing.T) {
	for _, name := range job.ServiceNames() {
		if name == "mail" {
			continue // see TestMail
		}
		fake := newService(t)
		fake.answer = `{"ok": true, "errcode": 0, "code": 0}`
		s := newTestSender(t, map[string]string{"url": fake.URL + "/x", "key": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
		c := to(t, map[string]string{
			"webhook": "{webhook: {url: " + fake.URL + ", secret: {file: key}}}", "telegram": "{telegram: {token: {file: key}, chat: x, server: " + fake.URL + "}}",
			"pagerduty": "{pagerduty: {key: {file: key}, server: " + fake.URL + "}}", "opsgenie": "{opsgenie: {key: {file: key}, server: " + fake.URL + "}}",
			"alertmanager": "{alertmanager: {urls: [" + fake.URL + "]}}",
			"slack":        "{slack: {url: {file: url}}}", "teams": "{teams: {url: {file: url}}}", "discord": "{discord: {url: {file: url}}}",
			"dingtalk": "{dingtalk: {url: {file: url}}}", "feishu": "{feishu: {url: {file: url}}}", "wecom": "{wecom: {url: {file: url}}}",
		}[name])
		if err := s.Send(t.Context(), c, message(c)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range []string{"shop", "backup", "exit status 3", "disk is full", `attempt 2 on one|"node":"one"`, "belfry logs 00000000000000000000000001", "2026-11-23T11:00:00Z|Nov 23 11:00 UTC", "reading", runLink, `1 min 30 s|"took_seconds":90`, `attempt 2|"attempt":2`} {
			if !slices.ContainsFunc(strings.Split(want, "|"), func(text string) bool { return strings.Contains(fake.body, text) }) {
				t.Errorf("%s does not tell %s: %s", name, want, fake.body)
			}
		}
	}
}
