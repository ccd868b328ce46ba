package httpapi_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// world is a server that has one of everything, the same each time: for requests
// of every kind.
type world struct {
	*server
	ended  client.Run // with output
	active client.Run
	// notification is the id of one.
	notification string
	waiting      job.ID // the run of a flow that waits for a person and a signal
}

// exchanged is a store that can be exchanged for another one, so that the routes
// are made once.
type exchanged struct{ *memory.Store }

// routes serve all worlds, which come one after the other.
var routes struct {
	sync.Mutex
	on     *exchanged
	tokens *auth.Tokens
	http.Handler
}

// newWorld makes a world. The one before it is over. It is not for bubbles of synctest, whose
// channels are of no use to the next world.
func newWorld(t *testing.T) *world {
	t.Helper()
	s := &server{t: t, now: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)}
	s.store = memory.New(memory.Options{Now: s.clock})
	routes.Lock()
	defer routes.Unlock()
	if routes.on == nil {
		routes.on = &exchanged{s.store}
		routes.tokens = auth.New(routes.on, s.clock)
		routes.Handler = newHandler(t, service.Config{Store: routes.on, Tokens: routes.tokens, Now: s.clock, Planner: &planner{ready: closed()}, Send: func(context.Context, *job.Channel, *notification.Message) error { return nil }}, httpapi.Config{
			Tokens: routes.tokens, Now: s.clock, Version: "test", Metrics: http.HandlerFunc(writeMetrics),
			Sessions: auth.NewSessions(routes.tokens, staff{}), SignInAt: "https://belfry.example",
		})
	}
	routes.on.Store = s.store
	s.tokens, s.handler = routes.tokens, routes.Handler
	s.grant("alice", token, store.RoleAdmin, "")
	w := &world{server: s}
	w.fill()
	return w
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// fill puts in one of everything.
func (w *world) fill() {
	w.t.Helper()
	ctx := w.t.Context()
	must := func(err error) {
		if err != nil {
			w.t.Helper()
			w.t.Fatal(err)
		}
	}
	deleted, err := store.PutOne(ctx, w.store, store.PutJob{Definition: &job.Job{Namespace: job.DefaultNamespace, Name: "deleted", Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}, Actor: "alice"})
	must(err)
	must(w.store.DeleteJob(ctx, store.DeleteJob{UID: deleted.Definition.UID, IfVersion: store.AnyVersion, Actor: "alice"}))
	_, err = w.store.PutToken(ctx, store.PutToken{Name: "ci", Hash: auth.HashOf("of ci"), Role: store.RoleRunner, Actor: "alice"})
	must(err)
	_, err = w.store.PutToken(ctx, store.PutToken{Name: "far", Hash: auth.HashOf(tokenOfWorker), Role: store.RoleRemote, Actor: "alice"})
	must(err)
	_, err = w.store.PutToken(ctx, store.PutToken{Name: "rack", Hash: auth.HashOf(tokenOfJoining), Role: store.RoleJoin, Actor: "alice", Terms: store.Terms{Uses: 100_000}})
	must(err)
	_, err = w.store.PutToken(ctx, store.PutToken{
		Name: "code/" + auth.Challenge(verifierOfAnn) + "/1", Hash: auth.HashOf("a code"), Role: store.RoleCode, Lasts: time.Minute, Actor: "belfry",
		Terms: store.Terms{Person: &store.Person{Provider: "sso", Subject: "17", Name: "ann@example.com", SignedIn: w.clock()}},
	})
	must(err)
	_, err = w.store.PutToken(ctx, store.PutToken{
		Name: "session/person/1", Hash: auth.HashOf("of ann"), Role: store.RoleSession, Lasts: time.Hour, Actor: "belfry",
		Terms: store.Terms{Person: &store.Person{Provider: "sso", Subject: "17", Name: "ann@example.com"}},
	})
	must(err)
	_, err = w.store.PutDocument(ctx, job.Document{Calendar: &job.Calendar{Name: "holidays", Days: job.Days{Include: []string{"2026-12-25"}}}}, 0, "alice")
	must(err)
	_, err = w.store.PutDocument(ctx, job.Document{Pool: &job.Pool{Name: "database", Slots: job.Slots{Size: 3}}}, 0, "alice")
	must(err)
	_, err = w.store.PutDocument(ctx, job.Document{Window: &job.Window{Name: "upgrade", Match: job.WindowMatch{Labels: map[string]string{"team": "none"}}, Schedule: job.Schedule{Cron: []string{"@yearly"}}, For: job.Duration(time.Hour)}}, 0, "alice")
	must(err)
	_, err = w.store.PutDocument(ctx, job.Document{Hook: &job.Hook{Name: "deploy", Job: "nightly", From: job.HookGitHub, Secret: "api_key"}}, 0, "alice")
	must(err)
	_, err = w.store.PutDocument(ctx, job.Document{Executors: &job.Executors{Name: "orders", Addresses: []string{"http://10.0.0.5:9999"}}}, 0, "alice")
	must(err)
	channel, err := w.store.PutDocument(ctx, job.Document{Channel: &job.Channel{
		Name: "ops", To: job.Service{Teams: &job.AddressService{URL: job.Secret{File: "teams"}}}, Rules: []job.ChannelRule{{Events: []job.Notice{job.NoticeFailed}}},
	}}, 0, "alice")
	must(err)
	event := notification.Event{Kind: job.NoticeFailed, Namespace: "default", Job: "nightly", Run: w.id(), Time: w.clock(), Text: job.Text("exit status 1"), Lasting: true}
	group := notification.NewGroup(channel.Channel, &event)
	group.Add(channel.Channel, event, w.clock())
	text, err := json.Marshal(group)
	must(err)
	_, err = w.store.PutNote(ctx, store.Note{Name: notification.GroupNotes + channel.UID().String() + "/" + group.ID, Text: text})
	must(err)
	for _, name := range []string{"api_key", "kubeconfig"} {
		_, err = w.store.PutNote(ctx, store.Note{Name: secret.Prefix + "default/" + name, Text: []byte(`{"version": 1, "by": "alice", "file": "key"}`)})
		must(err)
	}
	w.notification = channel.UID().String() + "-" + group.ID
	definition := job.Job{
		Name: "nightly", Schedule: job.Schedule{Cron: []string{"30 2 * * *"}},
		Params: map[string]job.Param{"day": {}}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
	}
	j, err := store.PutOne(ctx, w.store, store.PutJob{Definition: &definition, Actor: "alice"})
	must(err)
	changed := definition
	changed.Description = "the second version"
	j, err = store.PutOne(ctx, w.store, store.PutJob{Definition: &changed, IfVersion: j.Definition.Version, Actor: "alice"})
	must(err)

	_, err = store.PutOne(ctx, w.store, store.PutJob{Definition: &job.Job{Name: "reported", Run: job.RunSpec{External: &job.External{}}}, Actor: "alice"})
	must(err)
	_, err = w.store.PutToken(ctx, store.PutToken{Name: "ping:default/reported", Hash: auth.HashOf(pingKey), Role: "ping", Namespace: "default", Actor: "alice"})
	must(err)

	for name, key := range map[string]string{"badge:default/nightly": badgeKey, "badge:default?team=shop": badgeKey + "-team"} {
		_, err = w.store.PutToken(ctx, store.PutToken{Name: name, Hash: auth.HashOf(key), Role: "badge", Namespace: "default", Actor: "alice"})
		must(err)
	}

	n := w.node()
	for _, run := range []*client.Run{&w.ended, &w.active} {
		outcomes, err := w.store.Trigger(ctx, []store.TriggerItem{{
			ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: n.session, Actor: "alice",
		}})
		must(err)
		*run = client.Run{ID: outcomes[0].Run, Attempt: 1}
		n.start(*run)
		if run == &w.ended {
			n.finish(*run, job.OutcomeSucceeded, n.wrote(*run, "one\ntwo\n")...)
		}
	}
	w.handOver(callbackNumber, token)
	w.waiting = w.flow()
}

// callbackNumber is the number of a request that was handed over; its secret is the token
// that requests of this world have.
const callbackNumber = 17

// tokenOfWorker is the token of a worker without a store.
const tokenOfWorker = "of far"

// tokenOfJoining is a joining token.
const tokenOfJoining = "of rack"

// pingKey is the ping key of the job named reported.
const pingKey = "the-key-of-reported"

// badgeKey is the secret of the badge of the job named nightly.
const badgeKey = "the-badge-of-nightly"

// changes returns how much has been changed so far: each change has a record in
// the audit.
func (w *world) changes() int64 {
	w.t.Helper()
	records, _, err := w.store.Audit(w.t.Context(), store.AuditQuery{Limit: 1})
	if err != nil || len(records) == 0 {
		w.t.Fatalf("the audit has %d records: %v", len(records), err)
	}
	return records[0].Seq
}

// target writes a path of the description for what is in the world.
func (w *world) target(o *operation) string {
	name := "nightly"
	switch tag := strings.Split(o.path, "/"); {
	case len(tag) < 4:
	case strings.HasSuffix(o.path, "/report"), strings.HasSuffix(o.path, "/ping-key"):
		name = "reported"
	case strings.HasSuffix(o.path, "/restore"):
		name = "deleted"
	case tag[3] == "calendars":
		name = "holidays"
	case tag[3] == "pools":
		name = "database"
	case tag[3] == "windows":
		name = "upgrade"
	case tag[3] == "hooks":
		name = "deploy"
	case tag[3] == "executors":
		name = "orders"
	case tag[3] == "channels":
		name = "ops"
	case tag[3] == "tokens":
		name = "ci"
	case tag[3] == "secrets":
		name = "api_key"
	}
	id := w.ended.ID.String()
	var session job.ID
	if strings.Contains(o.path, "{session}") {
		session = w.id()
		hash := auth.HashOf(tokenOfWorker)
		if _, err := w.store.Join(w.t.Context(), store.Session{ID: session, Node: "far", Machine: "worker/" + hex.EncodeToString(hash[:]) + "/m", DataDir: "/", Roles: []string{store.RoleWorker}, Capacity: 1}); err != nil {
			w.t.Fatal(err)
		}
	}
	switch {
	case strings.HasSuffix(o.path, "/cancel"):
		id = w.active.ID.String()
	case strings.Contains(o.path, "/steps/"), strings.Contains(o.path, "/signals/"):
		id = w.waiting.String()
	case strings.HasPrefix(o.path, "/api/v1/nodes/"):
		id = "one" // as node names it
	case strings.HasPrefix(o.path, "/api/v1/notifications/"):
		id = w.notification
	}
	return strings.NewReplacer("{namespace}", "default", "{name}", name, "{id}", id, "{version}", "1", "{session}", session.String(), "{key}", pingKey, "{file}", badgeKey+".json", "{number}", strconv.Itoa(callbackNumber), "{signal}", "start", "{step}", "ask", "{person}", "sso:ann@example.com").Replace(o.path)
}

// flow starts a flow that waits for an approval and a signal, and returns its run.
func (w *world) flow() job.ID {
	w.t.Helper()
	definition := job.Job{Name: "release", Run: job.RunSpec{Flow: &job.Flow{Steps: []job.Step{
		{Name: "ask", Wait: &job.Wait{Approval: "release it?"}}, {Name: "hear", Wait: &job.Wait{Signal: "start"}},
	}}}}
	j, err := store.PutOne(w.t.Context(), w.store, store.PutJob{Definition: &definition, Actor: "alice"})
	if err != nil {
		w.t.Fatal(err)
	}
	n := w.node()
	outcomes, err := w.store.Trigger(w.t.Context(), []store.TriggerItem{{
		ID: w.id(), Job: j.Definition.UID, Kind: job.RunByHand, Key: w.id().String(), Session: n.session, Actor: "alice",
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	// The claim starts the flow, which no node runs.
	if _, err := w.store.Claim(w.t.Context(), n.session, []store.Attempt{{Job: j.Definition.UID, Run: outcomes[0].Run, Number: 1, Token: w.id()}}); err != nil {
		w.t.Fatal(err)
	}
	return outcomes[0].Run
}

// request makes a request that the server need not refuse.
func (w *world) request(o *operation, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(o.method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8420"
	r.Header.Set("Authorization", "Bearer "+token)
	if strings.HasPrefix(o.path, "/api/v1/worker/") {
		r.Header.Set("Authorization", "Bearer "+tokenOfWorker)
		if strings.HasSuffix(o.path, "/worker/tokens") {
			r.Header.Set("Authorization", "Bearer "+tokenOfJoining)
		}
	}
	if o.node["operationId"] == "sign-out" {
		r.Header.Set("Authorization", "Bearer of ann")
	}
	if o.node["requestBody"] != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if o.method == http.MethodPut || o.method == http.MethodDelete {
		r.Header.Set("If-Match", "*")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	return r
}

// examples returns bodies of requests that an operation takes, by what is in them.
func examples(t testing.TB, o *operation) []string {
	t.Helper()
	switch id := o.node["operationId"]; id {
	case "create-job":
		return []string{`{"name": "b", "run": {"shell": "true"}}`, anHTTPJob("b")}
	case "put-job":
		return []string{`{"name": "nightly", "run": {"shell": "true"}}`, everything(t, "nightly")}
	case "snooze-attention", "wake-attention", "take-attention", "release-attention", "note-attention":
		return []string{`{"job": "default/release", "until": "2036-12-01T08:00:00Z", "next_version": true, "another_cause": true, "note": "ask the vendor"}`}
	case "create-badge", "revoke-badge":
		return []string{`{"job": "default/nightly"}`, `{"label": "team=shop", "namespace": "default"}`}
	case "retry-runs":
		return []string{`{"runs": ["01M7WSD70J4JVRQ9N4TN6P9NR3", "01M7WSD70J4JVRQ9N4TN6P9NR4"]}`}
	case "put-calendar":
		return []string{`{"kind": "calendar", "name": "holidays", "description": "free days", "labels": {"a": "b"}, "calendar": {"weekdays": "mon-fri", "include": ["2026-12-24"], "exclude": "2026-10-01..2026-10-07"}}`}
	case "put-pool":
		return []string{`{"kind": "pool", "name": "database", "description": "three", "labels": {"a": "b"}, "pool": {"size": 3}}`}
	case "put-hook":
		return []string{`{"kind": "hook", "name": "deploy", "job": "nightly", "from": "github", "secret": "api_key", "params": {"day": "{{ .Body.day }}"}, "if": "{{ eq .Header.x_github_event \"push\" }}", "paused": true, "description": "pushes", "labels": {"a": "b"}}`}
	case "put-window":
		return []string{`{"kind": "window", "name": "upgrade", "description": "database", "labels": {"a": "b"}, "match": {"labels": {"team": "db"}, "namespaces": ["default"]}, "schedule": {"cron": "0 2 * * 0", "timezone": "Europe/Berlin"}, "for": "2h", "action": "skip", "closed": "2026-11-20T08:00:00Z"}`}
	case "put-listed-executors":
		return []string{
			`{"kind": "executors", "name": "orders", "addresses": ["http://10.0.0.5:9999"]}`,
			`{"kind": "executors", "name": "orders", "group": "order-service", "title": "Orders", "labels": {"a": "b"}, "addresses": ["http://10.0.0.5:9999/", "https://orders.example.org/x"], "token": "orders_token"}`,
		}
	case "put-channel":
		return []string{
			`{"kind": "channel", "name": "ops", "description": "all", "labels": {"a": "b"}, "to": {"slack": {"url": {"file": "slack"}}}, "rules": [{"events": ["failed", "failing"], "jobs": ["a*"], "labels": {"x": "y"}, "in_a_row": 4}], "group": {"by": "run", "wait": "5s", "every": "1m"}, "repeat": "1h", "limit": {"messages": 5, "per": "1m"}, "quiet": [{"from": "22:00", "to": "07:00", "days": ["mon"], "except": ["failing"]}], "zone": "Europe/Berlin", "link": "https://belfry.example.org"}`,
		}
	case "apply":
		return []string{
			`{"documents": []}`,
			`{"documents": [{"name": "b", "run": {"shell": "true"}}, {"kind": "pool", "name": "p", "pool": {"size": 1}}], "owner": "team", "prune": true, "dry_run": true, "diff": true}`,
			`{"documents": [{"name": "nightly", "run": {"shell": "true"}}], "diff": true}`,
		}
	case "check":
		return []string{`{"text": "name: b\nrun: ls"}`, `{"text": "{\"name\": \"b\", \"run\": {\"shell\": \"true\"}}", "lang": "zh"}`}
	case "bulk":
		return []string{
			`{"action": "pause", "namespace": "default", "labels": {"team": "a"}, "text": "n", "state": "active", "reason": "the disk is full", "until": "2026-12-01T00:00:00Z", "dry_run": true, "expect": 0}`,
			`{"action": "resume", "all": true, "missed": "latest"}`,
		}
	case "sign-in":
		return []string{`{"code": "a code", "verifier": "` + verifierOfAnn + `"}`}
	case "callback":
		return []string{`{"state": "running"}`, `{"state": "failed", "exit_code": 3, "reason": "no disk", "output": "half"}`}
	case "report-job":
		return []string{
			`{"state": "started", "lock": true}`,
			`{"state": "failed", "at": "2026-11-20T13:00:00Z", "started": "2026-11-20T12:00:00Z", "exit_code": 3, "signal": "SIGKILL", "reason": "no", "output": "oh", "run": "01M7WD7TG05Y77ZYHQG119SMKS"}`,
		}
	case "backfill-job":
		return []string{`{"from": "2026-11-18T00:00:00Z"}`, `{"from": "2026-11-18T00:00:00Z", "to": "2026-11-19T00:00:00+01:00", "overlap": "allow", "dry_run": true}`}
	case "cancel-backfill", "cancel-run":
		return []string{``, `{}`, `{"reason": "enough"}`}
	case "approve-step", "reject-step":
		return []string{``, `{"note": "it looks right"}`}
	case "signal-run":
		return []string{``, `{"data": {"rows": 3}}`}
	case "drain-node":
		return []string{``, `{"reason": "a new disk"}`}
	case "add-past-runs":
		return []string{
			`{"items": []}`,
			`{"items": [{"number": 7, "job": "default/nightly", "by_hand": true, "executor": "http://10.0.0.5:9999", "started": "2026-11-01T00:00:00Z", "ended": "2026-11-01T00:00:05Z", "outcome": "failed", "reason": "no rows"}]}`,
		}
	case "raise-numbers":
		return []string{`{"from": 1000001}`}
	case "pause-job":
		return []string{``, `{"reason": "the disk is full", "until": "2026-12-01T00:00:00Z"}`}
	case "resume-job":
		return []string{``, `{"missed": "latest"}`}
	case "rollback-job":
		return []string{`{"version": 1}`}
	case "retry-run":
		return []string{``, `{"params": {"day": "monday"}}`, `{"from": [], "only": [], "skip": []}`}
	case "run-job":
		return []string{``, `{"params": {"day": "monday"}}`, `{"notify": {"url": "https://ci.example.org/belfry", "secret": "api_key"}}`}
	case "worker-token":
		return []string{`{"node": "far", "hash": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`}
	case "worker-join":
		return []string{`{"oldest_protocol": 1, "newest_protocol": 2, "session": "01M7WD7TG05Y77ZYHQG119SMKS", "node": "far", "machine": "m", "directory": "/var/lib/belfry", "capacity": 8, "labels": {"zone": "a"}, "handlers": ["a"], "handlers_only": true, "version": "1.0", "zone_table": "2026a"}`}
	case "worker-renew":
		return []string{`{"running": 1, "ready": 2, "clock_ahead_ms": -3}`}
	case "worker-overdue":
		return []string{`{"now": "2026-11-20T14:00:00Z", "by_ms": 1000, "limit": 10}`, `{"now": "2026-11-20T14:00:00Z", "by_ms": 1000, "limit": 10, "after": {"due": "2026-11-20T13:00:00Z", "id": "01M7WD7TG05Y77ZYHQG119SMKS"}}`}
	case "worker-claim", "worker-release":
		return []string{`{"attempts": []}`, `{"attempts": [{"job": "01M7WD7TG05Y77ZYHQG119SMKS", "run": "01M7WD7TG05Y77ZYHQG119SMKT", "attempt": 1, "token": "01M7WD7TG05Y77ZYHQG119SMKV"}]}`}
	case "worker-finish":
		return []string{`{"results": [{"job": "01M7WD7TG05Y77ZYHQG119SMKS", "run": "01M7WD7TG05Y77ZYHQG119SMKT", "attempt": 1, "token": "01M7WD7TG05Y77ZYHQG119SMKV", "started": "2026-11-20T13:00:00Z", "ended": "2026-11-20T14:00:00Z", "outcome": "failed", "reason": "no", "exit_code": 3, "output_bytes": 3,
			"output": [{"run": "01M7WD7TG05Y77ZYHQG119SMKT", "attempt": 1, "seq": 0, "offset": 0, "bytes": 3, "time": "2026-11-20T14:00:00Z", "data": "AAADAGFiYw=="}]}]}`}
	case "worker-output":
		return []string{`{"chunks": [{"run": "01M7WD7TG05Y77ZYHQG119SMKT", "attempt": 1, "seq": 0, "offset": 0, "bytes": 3, "time": "2026-11-20T14:00:00Z", "data": "AAADAGFiYw=="}]}`}
	case "worker-secrets":
		return []string{`{"attempt": {"job": "01M7WD7TG05Y77ZYHQG119SMKS", "run": "01M7WD7TG05Y77ZYHQG119SMKT", "attempt": 1, "token": "01M7WD7TG05Y77ZYHQG119SMKV"}, "names": ["api_key"]}`}
	case "put-secret":
		return []string{`{"value": "hunter2", "description": "for the shop"}`, `{"file": "key"}`, `{"env": "KEY"}`}
	case "worker-versions":
		return []string{`{"jobs": ["01M7WD7TG05Y77ZYHQG119SMKS"]}`}
	case "worker-over":
		return []string{`{"runs": ["01M7WD7TG05Y77ZYHQG119SMKT"]}`}
	case "worker-boot":
		return []string{`{"process": "01M7WD7TG05Y77ZYHQG119SMKS"}`}
	case "create-token":
		return []string{`{"name": "ann", "role": "viewer"}`, `{"name": "bob", "role": "runner", "namespace": "web", "expires_in": "30d"}`}
	default:
		t.Fatalf("%s takes a body, and there is no example of it", o.pattern)
		return nil
	}
}

// everything is the job that has almost every field.
func everything(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../job/testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list, err := job.Decode("everything.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	j := list[0].Job
	j.Namespace, j.Name, j.Paused, j.Schedule.Only, j.Schedule.Except = "default", name, false, nil, []string{"holidays"}
	d, err := client.DocumentOf(job.Document{Job: j})
	if err != nil {
		t.Fatal(err)
	}
	return string(d.RawMessage)
}

func anHTTPJob(name string) string {
	return `{"name": "` + name + `", "schedule": {"every": "1m"}, "run": {"http": {"url": "https://example.com/{{ .Name }}", "method": "PUT",
		"headers": {"X-Run": "{{ .Run }}"}, "body": "x", "expect": ["2xx"], "match": "ok", "json": {"status": "ok"}, "redirects": 0, "tls": {"insecure": true}}}}`
}
