package httpapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
)

// An unreadable value hides no other mistake.
func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	s := newServer(t)
	one := `{"name": "A", "policy": {"timeout": [], "queue_limit": 3}, "schedule": {"cron": "61 * * * *"}, "run": {"shell": {"a": 1}}}`
	broken := `{"name": "b", "shedule": {}, "run": {"shell": "true"}}`
	lonely := `{"name": "c", "schedule": {"cron": "@daily", "only": ["nobody"]}, "run": {"shell": "true"}}`
	nameless := `{"run": {"shell": "true"}}`
	for _, c := range []struct {
		method, target, body string
		want                 []string
	}{
		{"POST", "jobs", one, []string{"/name", "/policy/timeout", "/schedule/cron", "/run/shell/a"}},
		{"PUT", "calendars/default/a", `{"kind": "calendar", "name": "a", "colour": "red", "calendar": {"weekdays": "every"}}`, []string{"/colour", "/calendar/weekdays"}},
		{"POST", "jobs:apply", `{"documents": [` + one + "," + broken + "," + lonely + "," + nameless + "," + nameless + `]}`, []string{
			"/documents/0/policy/timeout", "/documents/0/run/shell/a", "/documents/1/shedule",
			"/documents/0/name", "/documents/0/schedule/cron", "/documents/2/schedule/only/0", "/documents/3/name", "/documents/4/name",
		}},
	} {
		var got []string
		p := s.refused(client.TypeInvalid, 422, c.method, "/api/v1/"+c.target, c.body, "If-None-Match", "*")
		for _, e := range p.Errors {
			got = append(got, e.Pointer)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s names %q, want %q: %+v", c.method, c.target, got, c.want, p.Errors)
		}
	}
	if page := ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs", ""); len(page.Items) > 0 {
		t.Errorf("there are jobs: %+v", page.Items)
	}
}

func TestWrongValuesAreNamedWithARemedy(t *testing.T) {
	s := newServer(t)
	s.call("POST", "/api/v1/jobs", nightly)
	for _, c := range []struct{ method, target, body, field, detail string }{
		{"GET", "jobs?sort=age", "", "sort", "is not allowed; allowed: name, next, failure"},
		{"GET", "jobs?page_size=0", "", "page_size", "is too small; the minimum is 1"},
		{"GET", "jobs?page_size=501", "", "page_size", "is too large; the maximum is 500"},
		{"GET", "jobs?page_size=ten", "", "page_size", "is not a whole number"},
		{"GET", "jobs?filled=perhaps", "", "filled", "is neither true nor false"},
		{"GET", "jobs?colour=red", "", "colour", "is not known here"},
		{"GET", "jobs?label=a", "", "label", `"a" is not of the form key=value`},
		{"GET", "jobs?label=a%3D1&label=a%3D2", "", "label", `is given twice for a, as "1" and "2", and no job has both`},
		{"GET", "jobs?label=" + strings.Repeat("a%3D1&label=", 16) + "a%3D1", "", "label", "has too many items; the maximum is 16"},
		{"GET", "jobs?text=" + strings.Repeat("x", 257), "", "text", "is too long; the maximum is 256 characters"},
		{"POST", "tokens", `{"name": "a", "role": "viewer", "expires_in": ""}`, "expires_in", "is too short; the minimum length is 1"},
		{"GET", "runs?state=gone", "", "state", "is not allowed; allowed: ready, waiting, running, done"},
		{"GET", "runs?from=yesterday", "", "from", "is not an instant such as 2026-03-28T00:00:00Z"},
		{"GET", "runs/7", "", "id", `"7" is not an id (26 letters and digits)`},
		{"POST", "jobs/default/nightly/pause", `{"until": "tomorrow"}`, "until", "is not an instant such as 2026-03-28T00:00:00Z"},
		{"POST", "jobs/default/nightly/pause", `{"why": "so"}`, "why", "is not known here"},
		{"POST", "jobs/default/nightly/resume", `{"missed": "some"}`, "missed", "is not allowed; allowed: none, latest, all"},
		{"POST", "jobs/default/nightly/run", `{"params": {"day": 1}}`, "params.day", "is not a text"},
		{"POST", "jobs/default/nightly/run", `{"params": []}`, "params", "is not an object"},
		{"POST", "jobs/default/nightly/rollback", `{"version": 1.5}`, "version", "is not a whole number"},
		{"POST", "jobs/default/nightly/rollback", `{"version": 1e3}`, "version", "is not a whole number in digits, of 18 at most"},
		{"POST", "jobs/default/nightly/rollback", `{"version": 10000000000000000000}`, "version", "is not a whole number in digits, of 18 at most"},
		{"POST", "jobs:apply", `{"documents": {}}`, "documents", "is not a list"},
		{"POST", "jobs:apply", `{}`, "", "has no documents"},
		{"POST", "tokens", `{"name": "Ann", "role": "viewer"}`, "name", "is not a name: small letters, digits, and dots, dashes and underscores behind the first"},
		{"POST", "tokens", `{"name": 1, "role": "viewer"}`, "name", "is not a text"},
		{"GET", "jobs?text=%00", "", "text", "has a NUL byte"},
		{"GET", "jobs?namespace=%ff", "", "namespace", "is not encoded in UTF-8"},
		{"GET", "jobs/default/%00", "", "name", "has a NUL byte"},
		{"DELETE", "pools/%ff/a", "", "namespace", "is not encoded in UTF-8"},
	} {
		p := s.refused(client.TypeInvalid, 422, c.method, "/api/v1/"+c.target, c.body)
		if len(p.Errors) != 1 || p.Errors[0].Parameter+p.Errors[0].Path != c.field || p.Errors[0].Detail != c.detail {
			t.Errorf("%s %s %s: %+v, want %s: %s", c.method, c.target, c.body, p.Errors, c.field, c.detail)
		}
	}
}
