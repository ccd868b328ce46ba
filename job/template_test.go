package job_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

func berlin(t testing.TB) *time.Location {
	t.Helper()
	// A fixed zone is enough here, and the same on every machine.
	return time.FixedZone("CET", 3600)
}

func data(t testing.TB) job.TemplateData {
	run, err := job.ParseID("01JA2B3C4D5E6F7G8H9JKMNPQR")
	if err != nil {
		t.Fatal(err)
	}
	return job.TemplateData{
		Scheduled: time.Date(2026, 3, 1, 2, 30, 0, 0, berlin(t)),
		Next:      time.Date(2026, 3, 2, 2, 30, 0, 0, berlin(t)),
		Run:       run, Attempt: 2, Shard: 0, Shards: 12,
		Namespace: "team-a", Name: "report", Node: "node's",
		Params: map[string]string{"day": "Mon & Tue", "empty": "", "quote": `it's "5" \ $(id)`, "span": "90s", "zone": "UTC"},
	}
}

var params = []string{"day", "empty", "quote", "span", "zone"}

func TestTemplatesExpand(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{`no action`, `no action`},
		{`{{ .Scheduled }}`, `2026-03-01T02:30:00+01:00`},
		{`{{ .Scheduled.Format "2006-01-02" }}`, `2026-03-01`},
		{`{{ (.Scheduled.AddDate 0 0 -1).Format "2 Jan 2006" }}`, `28 Feb 2026`},
		{`{{ (.Scheduled.AddDate 0 0 -1).UTC.Format "2006-01-02 15" }}`, `2026-02-28 01`},
		{`{{ .Scheduled.Add "-1h30m" }}`, `2026-03-01T01:00:00+01:00`},
		{`{{ .Scheduled.In "Asia/Tokyo" }}`, `2026-03-01T10:30:00+09:00`},
		{`{{ .Scheduled.Year }}/{{ .Scheduled.Month }}/{{ .Scheduled.ISOWeek }}`, `2026/3/9`},
		{`{{ .Scheduled.Unix }}`, `1772328600`},
		{`[{{ .Previous }}{{ .Previous.Format "2006" }}{{ .Previous.AddDate 0 0 1 }}]`, `[]`},
		{`{{ if .Previous }}a{{ else if .Next }}b{{ else }}c{{ end }}`, `b`},
		{`{{ .Run }} {{ .Attempt }} {{ .Shard }}/{{ .Shards }}`, `01JA2B3C4D5E6F7G8H9JKMNPQR 2 0/12`},
		{`{{ .Job }} {{ .Namespace }} {{ .Name }} {{ .Node }}`, `team-a/report team-a report node's`},
		{`{{ .Param.day }}`, `Mon & Tue`},
		{`{{ .Param.day | lower | replace " & " "+" }}`, `mon+tue`},
		{`{{ upper .Param.day }}{{ trim " x " }}`, `MON & TUEx`},
		{`{{ .Param.empty | default "none" }} {{ default "none" .Param.day }}`, `none Mon & Tue`},
		{`{{ pad 3 .Shards }} {{ .Shard | add 1 | pad 2 }}`, `012 01`},
		{`{{ if and .Param.day (not .Param.empty) (eq .Attempt 2) (ne .Name "x") }}yes{{ end }}`, `yes`},
		{`{{ if eq .Shard 0 }}{{ if not (gt .Attempt 5) }}yes{{ end }}{{ end }}`, `yes`},
		{`{{ .Scheduled.Add .Param.span }} {{ .Scheduled.In .Param.zone }}`, `2026-03-01T02:31:30+01:00 2026-03-01T01:30:00Z`},
		{`{{ if or .Param.empty (gt .Shard 0) (lt .Shard 0) }}yes{{ end }}`, ``},
		{`{{ "{{" }}.Names}} {{` + "`{{.ID}}`" + `}}`, `{{.Names}} {{.ID}}`},
		{"a\n  {{- /* a comment */ -}}\n  b", `ab`},
	} {
		compiled, err := job.CompileTemplate(job.TemplateText, c.template, params)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		if got, err := compiled.Execute(data(t)); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.template, got, err, c.want)
		}
	}
}

func TestTemplatesAreCheckedBeforeTheyRun(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{`{{ .Schedled }}`, `unknown field .Schedled (did you mean "Scheduled"?)`},
		{`{{ .Names }}`, `unknown field .Names (did you mean "Name"?)`},
		{`{{ .Zzzzzzzz }}`, `unknown field .Zzzzzzzz (there are .Attempt, .Job, `},
		{`{{ .Scheduled.Fromat "x" }}`, `.Scheduled is a time and has no .Fromat (did you mean "Format"?)`},
		{`{{ .Attempt.Year }}`, `.Attempt is a number and has no .Year`},
		{`{{ .Param.dy }}`, `unknown parameter .Param.dy (did you mean "day"?)`},
		{`{{ .Param.zzzz }}`, `unknown parameter .Param.zzzz (declared are day, empty, quote, span, zone)`},
		{`{{ .Param }}`, `.Param needs the name of a parameter`},
		{`{{ .Scheduled.Format }}`, `.Scheduled.Format takes one argument (a text), found 0`},
		{`{{ .Scheduled.Format 5 }}`, `.Scheduled.Format takes a text, but 5 is a number`},
		{`{{ .Scheduled.AddDate 0 0 }}`, `takes 3 arguments (a number, a number, a number), found 2`},
		{`{{ .Scheduled.Add "soon" }}`, `"soon" is not a duration`},
		{`{{ .Scheduled.Add "forever" }}`, `cannot be moved forever`},
		{`{{ .Scheduled.In "Europe/Berln" }}`, `Europe/Berlin`},
		{`{{ .Name "x" }}`, `.Name is not a function and takes no arguments`},
		{`{{ "x" | "y" }}`, `is not a template: non executable command`},
		{`{{ "x" | (.Name) }}`, `is not a function and takes no arguments`},
		{`{{ uper .Name }}`, `"uper" is not a function (did you mean "upper"?)`},
		{`{{ printf "%999d" 1 }}`, `"printf" is not a function (there are add, and, `},
		{`{{ pad 999 1 }}`, `pad takes a width from 1 to 64, found 999`},
		{`{{ add 1 1.5 }}`, `1.5 is not a whole number`},
		{`{{ and }}`, `and takes one argument (a value), found 0`},
		{`{{ range .Shards }}x{{ end }}`, `"range" is not part of templates`},
		{`{{ with .Name }}x{{ end }}`, `"with" is not part of templates`},
		{`{{ template "x" }}`, `"template" is not part of templates`},
		{`{{ define "x" }}{{ end }}`, `define and block are not part of templates`},
		{`{{ block "x" . }}y{{ end }}`, `not part of templates`},
		{`{{ $x := .Name }}`, `variables are not part of templates`},
		{`{{ $.Name }}`, `has no meaning in a template`},
		{`{{ . }}`, `has no meaning in a template`},
		{`{{ nil }}`, `nil`},
		{`{{ if .Nam }}{{ end }}`, `unknown field .Nam`},
		{"a\nb {{ .Name", `is not a template: unclosed action in line 2`},
		{`{{ if .Name }}`, `is not a template: unexpected EOF`},
		{strings.Repeat(`{{ if .Name }}`, 60) + strings.Repeat(`{{ end }}`, 60), `more than 50 levels deep`},
		{`{{ ` + strings.Repeat("(", 60) + ".Name" + strings.Repeat(")", 60) + ` }}`, `more than 50 levels deep`},
	} {
		_, err := job.CompileTemplate(job.TemplateText, c.template, params)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.template, err, c.want)
		}
	}
}

func TestURLValuesStayInTheirPlace(t *testing.T) {
	d := data(t)
	d.Params["day"] = "a/b?c=d&e f#g"
	for _, c := range []struct{ template, want string }{
		{`https://example.com/{{ .Param.day }}/x`, `https://example.com/a%2Fb%3Fc=d&e%20f%23g/x`},
		{`https://example.com/?x={{ .Param.day }}&y=1`, `https://example.com/?x=a%2Fb%3Fc%3Dd%26e+f%23g&y=1`},
		{`https://example.com?at={{ .Scheduled }}`, `https://example.com?at=2026-03-01T02%3A30%3A00%2B01%3A00`},
		{`https://example.com/{{ if .Param.empty }}a{{ else }}b{{ end }}/{{ .Shard }}`, `https://example.com/b/0`},
	} {
		compiled, err := job.CompileTemplate(job.TemplateURL, c.template, params)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		got, err := compiled.Execute(d)
		if err != nil || got != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.template, got, err, c.want)
		}
		if u, err := url.Parse(got); err != nil || u.Host != "example.com" || u.Fragment != "" {
			t.Errorf("%s became %v, %v", c.template, u, err)
		}
	}
	for template, want := range map[string]string{
		`https://{{ .Node }}/`:                       "the scheme and host of a URL cannot be templates",
		`{{ .Param.day }}`:                           "the scheme and host of a URL cannot be templates",
		`https://user:{{ .Param.day }}@example.com/`: "the scheme and host of a URL cannot be templates",
		`https://example.com/#{{ .Name }}`:           "what follows # is never sent",
		`https://example.com/{{ if .Param.day }}?a={{ else }}b/{{ end }}{{ .Param.day }}`: "so that what follows is unclear",
	} {
		if _, err := job.CompileTemplate(job.TemplateURL, template, params); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", template, err, want)
		}
	}
	compiled, err := job.CompileTemplate(job.TemplateURL, `https://example.com/a/.{{ .Param.day }}/b`, params)
	if err != nil {
		t.Fatal(err)
	}
	d.Params["day"] = "."
	if got, err := compiled.Execute(d); err == nil {
		t.Errorf("a value made the path %s", got)
	}
}

func TestJSONValuesStayValues(t *testing.T) {
	template := `{"in": "<{{ .Param.quote }}>", "alone": {{ .Param.quote }}, "n": {{ .Attempt }}, "t": {{ eq .Shard 0 }}, "{{ .Name }}": "\"{{ .Node }}"}`
	compiled, err := job.CompileTemplate(job.TemplateJSON, template, params)
	if err != nil {
		t.Fatal(err)
	}
	d := data(t)
	for _, value := range []string{`plain`, `"}, "x": "`, `\`, "\n\t\x00\x7f", "\xff", `</script>`, "\u2028", `it's "5" \ $(id)`} {
		d.Params["quote"] = value
		text, err := compiled.Execute(d)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%q made %s: %v", value, text, err)
		}
		value = strings.ToValidUTF8(value, "\uFFFD")
		if got["in"] != "<"+value+">" || got["alone"] != value || got["n"] != 2.0 || got["t"] != true || got["report"] != `"node's` {
			t.Errorf("%q made %s", value, text)
		}
	}
	for template, want := range map[string]string{
		`{"a": "\{{ .Name }}"}`:                          "a value follows a backslash",
		`{{ if .Name }}"{{ else }}1{{ end }}{{ .Name }}`: "so that what follows is unclear",
	} {
		if _, err := job.CompileTemplate(job.TemplateJSON, template, params); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", template, err, want)
		}
	}
}

func TestHeadersStayOnTheirLine(t *testing.T) {
	compiled, err := job.CompileTemplate(job.TemplateHeader, "run {{ .Param.day }}", params)
	if err != nil {
		t.Fatal(err)
	}
	d := data(t)
	d.Params["day"] = "x\r\nX-Admin: 1"
	if got, err := compiled.Execute(d); err == nil {
		t.Errorf("got %q", got)
	}
}

func TestFormValuesAreEscaped(t *testing.T) {
	compiled, err := job.CompileTemplate(job.TemplateForm, "a={{ .Param.quote }}&b={{ .Attempt }}", params)
	if err != nil {
		t.Fatal(err)
	}
	got, err := compiled.Execute(data(t))
	if err != nil {
		t.Fatal(err)
	}
	values, err := url.ParseQuery(got)
	if err != nil || values.Get("a") != `it's "5" \ $(id)` || values.Get("b") != "2" {
		t.Errorf("%s is %v, %v", got, values, err)
	}
}

func TestTemplateOutputIsBounded(t *testing.T) {
	d := data(t)
	d.Params["day"] = strings.Repeat("a", 100_000)
	for _, template := range []string{
		`{{ replace "a" "` + strings.Repeat("b", 1000) + `" .Param.day }}`,
		`{{ replace "a" "bbbbb" .Param.day | replace "b" "ccccc" | replace "c" "ddddd" }}`,
		strings.Repeat(`{{ .Param.day }}`, 30),
	} {
		compiled, err := job.CompileTemplate(job.TemplateText, template, params)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := compiled.Execute(d); err == nil {
			t.Errorf("%.60s made %d bytes", template, len(got))
		}
	}
}

func TestBodyKindFollowsTheContentType(t *testing.T) {
	for _, c := range []struct {
		contentType, body string
		want              job.TemplateKind
	}{
		{"", ` {"a": 1}`, job.TemplateJSON},
		{"", `[1]`, job.TemplateJSON},
		{"", `{{ .Name }}`, job.TemplatePrivate},
		{"", `hello`, job.TemplatePrivate},
		{"text/plain", `{"a": 1}`, job.TemplatePrivate},
		{"application/problem+JSON", `x`, job.TemplateJSON},
		{"application/x-www-form-urlencoded; charset=utf-8", `a=1`, job.TemplateForm},
	} {
		h := &job.HTTP{Body: c.body}
		if c.contentType != "" {
			h.Headers = map[string]string{"content-type": c.contentType}
		}
		if got := h.BodyKind(); got != c.want {
			t.Errorf("%q %q: got %d, want %d", c.contentType, c.body, got, c.want)
		}
	}
}

func TestExpandFillsInEveryTemplate(t *testing.T) {
	docs := decode(t, "x.yaml", `
name: x
params: {a: default a, b: default b}
run:
  shell: {command: "/bin/{{ .Name }}", args: ["{{ .Param.a }}", "{{ .Param.b }}"]}
  env: {E: "{{ .Attempt }}"}
  stdin: "{{ .Param.a }}"
`)
	d := data(t)
	d.Params = map[string]string{"a": "it's"}
	got, err := docs[0].Job.Expand(d)
	if err != nil {
		t.Fatal(err)
	}
	if got.Shell.Command != "/bin/report" || got.Shell.Args[0] != "it's" || got.Shell.Args[1] != "default b" || got.Shell.Env["E"] != "2" || got.Shell.Stdin != "it's" {
		t.Errorf("got %+v %+v", got, got.Shell)
	}
	if docs[0].Job.Run.Shell.Args[0] != "{{ .Param.a }}" || docs[0].Job.Run.Shell.Env["E"] != "{{ .Attempt }}" {
		t.Error("the job was changed")
	}
	d.Params["c"] = "x"
	if _, err := docs[0].Job.Expand(d); err == nil || !strings.Contains(err.Error(), `has no parameter "c"`) {
		t.Errorf("an undeclared parameter: %v", err)
	}
}

func TestEnvironmentDescribesTheRun(t *testing.T) {
	env := data(t).Environment()
	for name, want := range map[string]string{
		"BELFRY_JOB": "team-a/report", "BELFRY_ATTEMPT": "2", "BELFRY_SCHEDULED": "2026-03-01T02:30:00+01:00",
		"BELFRY_PREVIOUS": "", "BELFRY_PARAM_QUOTE": `it's "5" \ $(id)`, "BELFRY_SHARDS": "12",
	} {
		if got, ok := env[name]; !ok || got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
