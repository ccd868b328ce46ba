package service

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestCheckShowsMeaningAndChangesOfADocument(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "schedule": "0 3 * * *", "run": {"shell": "true"}}`)
	for _, c := range []struct {
		name, text string
		valid      bool
		want       func(client.Checked) string
		said       string
	}{
		{"a mistake has its place", "name: a\nrun: ls\npolicy:\n  overlap: skp\n", false,
			func(c client.Checked) string {
				return strings.Join([]string{c.Problems[0].Path, c.Problems[0].Hint}, " ") + " " + string(rune('0'+c.Problems[0].Line))
			}, "policy.overlap"},
		{"what is no YAML", "name: [", false, func(c client.Checked) string { return c.Problems[0].Detail }, ""},
		{"two documents", "name: a\nrun: ls\n---\nname: b\nrun: ls\n", false, func(c client.Checked) string { return c.Problems[0].Detail }, "2 documents"},
		{"a change", "name: a\nschedule: 30 3 * * *\nrun: {shell: \"true\"}", true, func(c client.Checked) string { return c.Diff }, "30 3 * * *"},
		{"the same", "name: a\nschedule: 0 3 * * *\nrun: {shell: \"true\"}", true, func(c client.Checked) string { return c.Diff + "." }, "."},
		{"a new job", "name: new\nschedule: 0 3 * * *\nrun: ls", true, func(c client.Checked) string { return c.Preview.Description }, "3"},
		{"its defaults", "name: new\nschedule: 0 3 * * *\nrun: ls", true, func(c client.Checked) string { return c.Filled }, "overlap: skip"},
		{"its command", "name: new\nschedule: 0 3 * * *\nrun: 'load --day {{ .Scheduled.Format \"15:04\" }}'", true, func(c client.Checked) string { return c.Command }, "load --day '03:00'"},
		{"a command without templates", "name: new\nschedule: 0 3 * * *\nrun: ls", true, func(c client.Checked) string { return c.Command + "." }, "."},
		{"its address", "name: new\nschedule: 0 3 * * *\nrun: {http: {url: 'https://example.com/{{ .Job }}'}}", true, func(c client.Checked) string { return c.Command }, "https://example.com/"},
		{"next times with a calendar of weekdays", "name: new\nschedule: {every: 24h, only: [mon-fri]}\nrun: ls", true, func(c client.Checked) string { return c.Preview.Next[0].Weekday().String() }, "Monday"},
		{"a job by hand", "name: new\nrun: ls", true, func(c client.Checked) string { return c.Preview.Reason }, "by hand"},
	} {
		checked, err := s.Documents.Check(t.Context(), admin, client.Check{Text: c.text})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if checked.Valid != c.valid || checked.Valid != (len(checked.Problems) == 0) {
			t.Errorf("%s: it is valid: %t, with %+v", c.name, checked.Valid, checked.Problems)
			continue
		}
		if got := c.want(checked); !strings.Contains(got, c.said) {
			t.Errorf("%s: it says %q, want %q in it", c.name, got, c.said)
		}
	}
	viewer := Caller{Name: "v", Role: store.RoleViewer, Namespace: "other"}
	checked, err := s.Documents.Check(t.Context(), viewer, client.Check{Text: "name: a\nnamespace: default\nrun: ls"})
	if err != nil || checked.Version != 0 || checked.Diff != "" {
		t.Errorf("a caller of another namespace receives %+v (%v)", checked, err)
	}
}

func TestBulk(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, document := range []string{
		`{"name": "a", "labels": {"team": "x"}, "run": {"shell": "true"}}`, `{"name": "b", "labels": {"team": "x"}, "run": {"shell": "true"}}`,
		`{"name": "c", "run": {"shell": "true"}}`, `{"name": "d", "namespace": "other", "labels": {"team": "x"}, "run": {"shell": "true"}}`,
	} {
		b.put(s, document)
	}
	team := map[string]string{"team": "x"}
	do := func(who Caller, bulk client.Bulk) client.BulkResult {
		t.Helper()
		result, err := s.Bulk.Do(t.Context(), who, bulk)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	paused := func() (names []string) {
		page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{State: job.JobPaused}, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Items {
			j, err := d.Job()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, j.FullName())
		}
		return names
	}
	if r := do(admin, client.Bulk{Action: client.BulkPause, Labels: team, DryRun: true}); r.Matched != 3 || r.Done != 0 || len(paused()) != 0 {
		t.Errorf("a dry run returned %+v and paused %v", r, paused())
	}
	two := 2
	if _, err := s.Bulk.Do(t.Context(), admin, client.Bulk{Action: client.BulkPause, Labels: team, Expect: &two}); !isType(err, client.TypeConflict) {
		t.Errorf("with another number of jobs the error is %v", err)
	}
	of := Caller{Name: "x", Role: store.RoleAdmin, Namespace: "other"}
	if r := do(of, client.Bulk{Action: client.BulkPause, Labels: team}); r.Done != 1 || strings.Join(paused(), " ") != "other/d" {
		t.Errorf("a caller of one namespace paused %v, %+v", paused(), r)
	}
	if r := do(admin, client.Bulk{Action: client.BulkPause, Labels: team, Reason: "disk"}); r.Done != 3 || len(paused()) != 3 {
		t.Errorf("paused are %v, %+v", paused(), r)
	}
	if r := do(admin, client.Bulk{Action: client.BulkResume, State: job.JobPaused}); r.Done != 3 || len(paused()) != 0 {
		t.Errorf("paused are %v, %+v", paused(), r)
	}
	if r := do(admin, client.Bulk{Action: client.BulkRun, All: true}); r.Matched != 4 || r.Done != 4 {
		t.Errorf("running all returned %+v", r)
	}
	if _, err := s.Bulk.Do(t.Context(), admin, client.Bulk{Action: client.BulkDelete}); !isType(err, client.TypeInvalid) {
		t.Errorf("without a selection the error is %v", err)
	}
	viewer, runner := Caller{Name: "v", Role: store.RoleViewer}, Caller{Name: "r", Role: store.RoleRunner}
	for _, who := range []Caller{viewer, runner} {
		if _, err := s.Bulk.Do(t.Context(), who, client.Bulk{Action: client.BulkDelete, All: true}); !isType(err, client.TypeForbidden) {
			t.Errorf("%s: the error is %v", who.Role, err)
		}
	}
	if r := do(admin, client.Bulk{Action: client.BulkDelete, All: true}); r.Done != 4 {
		t.Errorf("deleting all returned %+v", r)
	}
}
