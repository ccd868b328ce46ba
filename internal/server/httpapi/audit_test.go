package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

// Each change has one record, with the token that it was made by.
func TestEachChangeIsAudited(t *testing.T) {
	s := newServer(t)
	s.grant("ops", "of ops", store.RoleAdmin, "")
	const nightly = "/api/v1/jobs/default/nightly"
	document := `{"name": "nightly", "schedule": {"cron": "0 * * * *"}, "run": {"shell": "true"}}`
	steps := []struct{ method, path, body, want string }{
		{"POST", "/api/v1/jobs", document, "job.create default/nightly"},
		{"PUT", nightly, strings.Replace(document, "true", "false", 1), "job.change default/nightly"},
		{"POST", nightly + "/pause", `{"reason": "the disk is full"}`, "job.pause default/nightly"},
		{"POST", nightly + "/resume", "", "job.resume default/nightly"},
		{"POST", nightly + "/rollback", `{"version": 1}`, "job.change default/nightly"},
		{"POST", nightly + "/run", "", "run.hand default/nightly"},
		{"POST", nightly + "/backfill", `{"from": "2026-11-20T10:00:00Z"}`, "run.backfill default/nightly"},
		{"POST", "/api/v1/jobs:apply", `{"documents": [` + strings.Replace(document, "nightly", "other", 1) + `]}`, "job.create default/other"},
		{"PUT", "/api/v1/pools/default/db", `{"kind": "pool", "name": "db", "pool": {"size": 1}}`, "pool.create default/db"},
		{"PUT", "/api/v1/calendars/default/off", `{"kind": "calendar", "name": "off", "calendar": {"include": ["2026-12-25"]}}`, "calendar.create default/off"},
		{"DELETE", "/api/v1/pools/default/db", "", "pool.delete default/db"},
		{"DELETE", "/api/v1/calendars/default/off", "", "calendar.delete default/off"},
		{"POST", "/api/v1/tokens", `{"name": "ci", "role": "viewer"}`, "token.create ci"},
		{"DELETE", "/api/v1/tokens/ci", "", "token.revoke ci"},
		{"DELETE", nightly, "", "job.delete default/nightly"},
		{"POST", nightly + "/restore", "", "job.restore default/nightly"},
	}
	seen := len(ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit", "").Items)
	changed := func(how, want string) {
		t.Helper()
		records := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit", "").Items
		if len(records) != seen+1 || records[0].Actor != "ops" || records[0].Action+" "+records[0].Object != want {
			t.Errorf("%s has %d records, the last is %+v, want %s", how, len(records)-seen, records[0], want)
		}
		seen = len(records)
	}
	for _, step := range steps {
		headers := []string{"Authorization", "Bearer of ops"}
		switch {
		case step.method == "PUT" && strings.HasSuffix(step.want, "nightly"), step.method == "DELETE":
			headers = append(headers, "If-Match", "*")
		case step.method == "PUT":
			headers = append(headers, "If-None-Match", "*")
		}
		if w := s.call(step.method, step.path, step.body, headers...); w.Code/100 != 2 {
			t.Fatalf("%s %s: status %d: %s", step.method, step.path, w.Code, w.Body)
		}
		changed(step.method+" "+step.path, step.want)
	}

	// Runs are cancelled, and run once more.
	run := ok[client.Run](s, "POST", "/api/v1/jobs/default/other/run", "", "Authorization", "Bearer of ops")
	changed("running", "run.hand default/other")
	ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/cancel", "", "Authorization", "Bearer of ops")
	changed("cancelling", "run.cancel default/other")
	ok[client.Run](s, "POST", "/api/v1/runs/"+run.ID.String()+"/retry", "", "Authorization", "Bearer of ops")
	changed("retrying", "run.hand default/other")

	// Calls without a change have no record.
	ok[client.Change](s, "PUT", "/api/v1/jobs/default/other", strings.Replace(document, "nightly", "other", 1), "If-Match", "*")
	s.call("POST", "/api/v1/jobs", `{"name": "bad"}`)
	if records := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit", "").Items; len(records) != seen {
		t.Errorf("what changed nothing has a record: %+v", records[0])
	}
}

func TestAuditIsFilteredAndRestricted(t *testing.T) {
	s := newServer(t)
	s.grant("web", "of web", store.RoleViewer, "web")
	s.grant("bob", "of bob", store.RoleAdmin, "")
	ok[client.Change](s, "POST", "/api/v1/jobs", webJob)
	s.pass(time.Hour)
	ok[client.Change](s, "PUT", "/api/v1/jobs/web/a", strings.Replace(webJob, "0 * * * *", "5 * * * *", 1), "If-Match", "*", "Authorization", "Bearer of bob")
	ok[client.Change](s, "POST", "/api/v1/jobs", strings.Replace(webJob, "web", "other", 1))
	since := url.QueryEscape(s.clock().Format(time.RFC3339))
	for query, want := range map[string]string{
		"object=web/a":                 "bob job.change, alice job.create",
		"object=web/a&actor=bob":       "bob job.change",
		"namespace=other":              "alice job.create",
		"from=" + since:                "alice job.create, bob job.change",
		"actor=alice&to=" + since:      "alice job.create",
		"object=bob":                   "belfry token.create",
		"actor=alice&page_size=1":      "alice job.create",
		"namespace=web&object=other/a": "",
	} {
		var got []string
		page := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit?"+query, "")
		for _, r := range page.Items {
			got = append(got, r.Actor+" "+r.Action)
		}
		if strings.Join(got, ", ") != want || (page.NextPageToken != "") != strings.Contains(query, "page_size") {
			t.Errorf("%s gives %v, and the token %q", query, got, page.NextPageToken)
		}
	}
	changes := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit?actor=bob", "").Items[0].Changes
	if len(changes) != 1 || changes[0] != (client.FieldChange{Path: "schedule.cron", Before: `["0 * * * *"]`, After: `["5 * * * *"]`}) {
		t.Errorf("what is different: %+v", changes)
	}
	if w := s.as("of web", "GET", "/api/v1/audit", ""); strings.Contains(w.Body.String(), "other/a") || strings.Contains(w.Body.String(), "token.create") || !strings.Contains(w.Body.String(), "web/a") {
		t.Errorf("a token for a namespace sees %s", w.Body)
	}
	if w := s.as("of web", "GET", "/api/v1/audit?namespace=other", ""); w.Code != http.StatusForbidden {
		t.Errorf("another namespace has the status %d", w.Code)
	}
	s.refused(client.TypeInvalid, 422, "GET", "/api/v1/audit?from="+since+"&to="+since, "")
}

// The records of one request have a group, and all say from where they come.
func TestAChangeSaysWhereItCameFrom(t *testing.T) {
	s := newServer(t)
	documents := `{"documents": [{"name": "a", "run": {"shell": "true"}}, {"name": "b", "run": {"shell": "true"}}]}`
	if w := s.call("POST", "/api/v1/jobs:apply", documents, "User-Agent", "belfry/1.2"); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	if w := s.call("POST", "/api/v1/jobs/default/a/pause", "{}", "User-Agent", "curl/8"); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	list := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit?action=job", "").Items
	if len(list) != 3 || list[0].Client != "api" || list[0].Group != "" || list[1].Client != "cli" || list[1].Group == "" || list[1].Group != list[2].Group || list[1].Address != "192.0.2.1" {
		t.Fatalf("the audit is %+v", list)
	}
	for query, want := range map[string]int{"action=job.pause": 1, "action=job.create": 2, "action=job.pa": 0, "group=" + list[1].Group: 2} {
		if got := ok[client.Page[client.AuditRecord]](s, "GET", "/api/v1/audit?"+query, "").Items; len(got) != want {
			t.Errorf("%s selects %d records, want %d", query, len(got), want)
		}
	}
}
