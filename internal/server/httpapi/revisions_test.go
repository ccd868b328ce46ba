package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

func TestVersionsAreListedComparedAndRestored(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	for i := range 4 {
		changed := strings.Replace(nightly, "hello", fmt.Sprint("hello ", i), 1)
		ok[client.Change](s, "PUT", "/api/v1/jobs/default/nightly", changed, "If-Match", "*")
	}
	const revisions = "/api/v1/jobs/default/nightly/revisions"
	var versions []int64
	for token := ""; ; {
		page := ok[client.Page[client.Revision]](s, "GET", revisions+"?page_size=2&page_token="+token, "")
		for _, r := range page.Items {
			versions = append(versions, r.Version)
			if r.Actor != "alice" || !r.Changed.Equal(s.clock()) {
				t.Errorf("version %d was made by %q at %s", r.Version, r.Actor, r.Changed)
			}
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if fmt.Sprint(versions) != "[5 4 3 2 1]" {
		t.Errorf("the versions are %v", versions)
	}

	r := ok[client.Revision](s, "GET", revisions+"/2?since=1", "")
	if j, err := r.Job.Job(); err != nil || j.Run.Shell.Command != "echo hello 0" || j.Version != 2 {
		t.Errorf("version 2 is %s", r.Job.RawMessage)
	}
	if !strings.Contains(r.Diff, "\n-  shell: echo hello\n+  shell: echo hello 0\n") || !strings.HasPrefix(r.Diff, "--- default/nightly version 1\n+++ default/nightly version 2\n@@ ") {
		t.Errorf("the difference is:\n%s", r.Diff)
	}
	if r := ok[client.Revision](s, "GET", revisions+"/2?since=2", ""); r.Diff != "" {
		t.Errorf("a version differs from itself by:\n%s", r.Diff)
	}
	s.refused(client.TypeNotFound, 404, "GET", revisions+"/6", "")
	s.refused(client.TypeNotFound, 404, "GET", revisions+"/9223372036854775807", "")
	s.refused(client.TypeNotFound, 404, "GET", revisions+"/2?since=6", "")
	s.refused(client.TypeInvalid, 422, "GET", revisions+"/0", "")
	s.refused(client.TypeNotFound, 404, "GET", "/api/v1/jobs/default/nobody/revisions", "")

	const rollback = "/api/v1/jobs/default/nightly/rollback"
	ok[client.Change](s, "POST", "/api/v1/jobs/default/nightly/pause", "")
	s.refused(client.TypeChanged, 412, "POST", rollback, `{"version": 1}`, "If-Match", `"5"`)
	back := ok[client.Change](s, "POST", rollback, `{"version": 1}`, "If-Match", `"6"`)
	j, err := back.Job.Job()
	if err != nil || back.Result != client.Changed || j.Version != 7 || j.Run.Shell.Command != "echo hello" || !j.Paused {
		t.Errorf("after the way back it is %s: %s", back.Result, back.Job.RawMessage)
	}
	if again := ok[client.Change](s, "POST", rollback, `{"version": 1}`); again.Result != client.Unchanged {
		t.Errorf("the way back a second time has %s the job", again.Result)
	}
	s.refused(client.TypeNotFound, 404, "POST", rollback, `{"version": 70}`)
	s.refused(client.TypeInvalid, 422, "POST", rollback, `{}`)
}

func TestFollowersOfAJobAreListed(t *testing.T) {
	s := newServer(t)
	const followers = "/api/v1/jobs/default/up/followers"
	put := func(namespace, name, on string) {
		ok[client.Change](s, "POST", "/api/v1/jobs", fmt.Sprintf(`{"namespace": %q, "name": %q, "schedule": {%s}, "run": {"shell": "true"}}`, namespace, name, on))
	}
	list := func(bearer, query string) (names []string, pages int) {
		for next := ""; ; {
			w := s.as(bearer, "GET", followers+"?page_token="+next+query, "")
			var page client.Page[client.Follower]
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 {
				t.Fatalf("status %d, %v: %s", w.Code, err, w.Body)
			}
			for _, f := range page.Items {
				names = append(names, fmt.Sprintf("%s/%s %s %v", f.Namespace, f.Name, f.State, f.Outcomes))
			}
			pages++
			if next = page.NextPageToken; next == "" {
				slices.Sort(names)
				return names, pages
			}
		}
	}
	s.refused(client.TypeNotFound, 404, "GET", followers, "")
	put("default", "up", "")
	if names, pages := list(token, ""); len(names) != 0 || pages != 1 {
		t.Errorf("a job without followers has %v", names)
	}
	put("default", "b", `"on": ["up", {"job": "up", "outcome": "failed"}]`)
	put("default", "a", `"on": [{"job": "up", "outcome": "finished"}]`)
	put("web", "c", `"on": "default/up"`)
	put("web", "d", `"on": "up"`)
	ok[client.Change](s, "POST", "/api/v1/jobs/web/c/pause", "")
	want := []string{"default/a active [finished]", "default/b active [succeeded failed]", "web/c paused [succeeded]"}
	for size, pages := range map[string]int{"": 1, "&page_size=3": 1, "&page_size=2": 2, "&page_size=1": 3} {
		if names, n := list(token, size); !slices.Equal(names, want) || n != pages {
			t.Errorf("with %q the followers are %v on %d pages, want %v on %d", size, names, n, want, pages)
		}
	}
	s.grant("default-viewer", "of default", store.RoleViewer, "default")
	for _, size := range []string{"", "&page_size=1"} {
		if names, _ := list("of default", size); !slices.Equal(names, want[:2]) {
			t.Errorf("the holder of a token for default sees %v", names)
		}
	}
	s.grant("web-viewer", "of web", store.RoleViewer, "web")
	if w := s.as("of web", "GET", followers, ""); w.Code != 403 {
		t.Errorf("the holder of a token for web gets status %d: %s", w.Code, w.Body)
	}
	s.refused(client.TypeInvalid, 422, "GET", followers+"?page_token=x", "")

	ok[client.Change](s, "DELETE", "/api/v1/jobs/default/up", "", "If-Match", "*")
	if names, _ := list(token, ""); !slices.Equal(names, want) {
		t.Errorf("the followers of a deleted job are %v", names)
	}
}

func TestRestoringAVersionRespectsTheNamespaceOfTheToken(t *testing.T) {
	s := newServer(t)
	ok[client.Change](s, "POST", "/api/v1/jobs", `{"namespace": "web", "name": "a", "schedule": {"on": "ops/secret"}, "run": {"shell": "true"}}`)
	ok[client.Change](s, "PUT", "/api/v1/jobs/web/a", webJob, "If-Match", "*")
	s.grant("web-admin", "of web", store.RoleAdmin, "web")
	if w := s.as("of web", "POST", "/api/v1/jobs/web/a/rollback", `{"version": 1}`); w.Code != 403 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if w := s.as("of web", "POST", "/api/v1/jobs/web/a/rollback", `{"version": 2}`); w.Code != 200 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestBringingBackAJobRespectsTheNamespaceOfTheToken(t *testing.T) {
	s := newServer(t)
	s.grant("web-admin", "of web", store.RoleAdmin, "web")
	for name, want := range map[string]int{"web/a": 403, "ops/b": 403, "web/c": 200} {
		namespace, short, _ := strings.Cut(name, "/")
		on := map[string]string{"web/a": "ops/secret", "ops/b": "web/x", "web/c": "web/x"}[name]
		ok[client.Change](s, "POST", "/api/v1/jobs", fmt.Sprintf(`{"namespace": %q, "name": %q, "schedule": {"on": %q}, "run": {"shell": "true"}}`, namespace, short, on))
		ok[client.Change](s, "DELETE", "/api/v1/jobs/"+name+"?reason=a+slip", "", "If-Match", "*")
		if w := s.as("of web", "POST", "/api/v1/jobs/"+name+"/restore", ""); w.Code != want {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, want, w.Body)
		}
	}
	ok[client.Change](s, "POST", "/api/v1/jobs/web/a/restore", "")
	s.refused(client.TypeExists, 409, "POST", "/api/v1/jobs/web/a/restore", "")
	s.refused(client.TypeNotFound, 404, "POST", "/api/v1/jobs/web/never/restore", "")

	group := ok[client.BulkResult](s, "POST", "/api/v1/jobs:bulk", `{"action": "delete", "namespace": "web", "reason": "all of them"}`).Group
	if back := ok[client.BulkResult](s, "POST", "/api/v1/jobs:bulk", `{"action": "restore", "deleted_in": "`+group+`"}`); back.Done != 2 {
		t.Errorf("brought back: %+v", back)
	}
	s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs:bulk", `{"action": "restore"}`)
}

func TestInvalidVersionIsNotRestored(t *testing.T) {
	s := newServer(t)
	const calendar = `{"kind": "calendar", "name": "holidays", "calendar": {"include": ["2026-12-25"]}}`
	ok[client.Document](s, "PUT", "/api/v1/calendars/default/holidays", calendar, "If-None-Match", "*")
	ok[client.Change](s, "POST", "/api/v1/jobs", strings.Replace(nightly, `"timezone"`, `"except": ["holidays"], "timezone"`, 1))
	ok[client.Change](s, "PUT", "/api/v1/jobs/default/nightly", nightly, "If-Match", "*")
	if w := s.call("DELETE", "/api/v1/calendars/default/holidays", "", "If-Match", "*"); w.Code != 204 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	p := s.refused(client.TypeInvalid, 422, "POST", "/api/v1/jobs/default/nightly/rollback", `{"version": 1}`)
	if p.Detail != "default/nightly version 1 is not right any more" || len(p.Errors) != 1 || p.Errors[0].Path != "schedule.except[0]" {
		t.Errorf("the problem is %+v", p)
	}
}
