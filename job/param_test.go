package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestAValueOfAParameterFitsItsType(t *testing.T) {
	enum := []string{"eu", "us"}
	for _, c := range []struct {
		param job.Param
		value string
		want  string // "" for a valid one
	}{
		{job.Param{}, "any\ntext", ""},
		{job.Param{Pattern: "v[0-9]+|main"}, "v12", ""},
		{job.Param{Pattern: "v[0-9]+|main"}, "v12 ", `"v12 " does not match v[0-9]+|main`},
		{job.Param{Pattern: "v[0-9]+|main"}, "xmain", `"xmain" does not match v[0-9]+|main`},
		{job.Param{Type: job.ParamEnum, Values: enum}, "eu", ""},
		{job.Param{Type: job.ParamEnum, Values: enum}, "ue", `"ue" is not known; allowed: eu, us (did you mean "eu"?)`},
		{job.Param{Type: job.ParamSecret, Values: []string{"token"}}, "other", `"other" is not known; allowed: token`},
		{job.Param{Type: job.ParamBool}, "false", ""},
		{job.Param{Type: job.ParamBool}, "yes", `"yes" is neither true nor false (true or false)`},
		{job.Param{Type: job.ParamInt, Min: "-5", Max: "100"}, "-5", ""},
		{job.Param{Type: job.ParamInt, Min: "-5", Max: "100"}, "101", "must be at most 100, found 101"},
		{job.Param{Type: job.ParamInt, Min: "-5"}, "-6", "must be at least -5, found -6"},
		{job.Param{Type: job.ParamInt}, "1.5", "1.5 is not a whole number"},
		{job.Param{Type: job.ParamInt}, "9223372036854775808", "9223372036854775808 is not a whole number"},
		{job.Param{Type: job.ParamNumber, Max: "0.5"}, "0.25", ""},
		{job.Param{Type: job.ParamNumber, Max: "0.5"}, "5e-1", ""},
		{job.Param{Type: job.ParamNumber, Max: "0.5"}, "0.51", "must be at most 0.5, found 0.51"},
		{job.Param{Type: job.ParamNumber}, "NaN", `"NaN" is not a number`},
		{job.Param{Type: job.ParamNumber}, "0x10", `"0x10" is not a number`},
		{job.Param{Type: job.ParamDate, Min: "2026-01-01"}, "2026-02-28", ""},
		{job.Param{Type: job.ParamDate, Min: "2026-01-01"}, "2025-12-31", "must be at least 2026-01-01, found 2025-12-31"},
		{job.Param{Type: job.ParamDate}, "2026-02-30", `"2026-02-30" is not a date: write it like 2026-10-01`},
		{job.Param{Type: job.ParamDateTime, Max: "2026-01-01T00:00:00Z"}, "2026-01-01T01:00:00+01:00", ""},
		{job.Param{Type: job.ParamDateTime, Max: "2026-01-01T00:00:00Z"}, "2026-01-01T00:00:00-01:00", "must be at most 2026-01-01T00:00:00Z, found 2026-01-01T00:00:00-01:00"},
		{job.Param{Type: job.ParamDateTime}, "2026-01-01", `"2026-01-01" is not an instant (an instant such as 2026-10-01T09:00:00+02:00)`},
		{job.Param{Type: job.ParamInt}, "", ""},
		{job.Param{Type: job.ParamInt, Required: true}, "", "is missing (a run needs a value for it)"},
	} {
		why, hint := c.param.Wrong(c.value)
		got := why.String()
		if !hint.IsZero() {
			got += " (" + hint.String() + ")"
		}
		if got != c.want {
			t.Errorf("%+v with %q: %q, want %q", c.param, c.value, got, c.want)
		}
	}
}

func TestDeclarationsOfParametersAreChecked(t *testing.T) {
	for param, want := range map[string]string{
		"{type: enum, values: [a, b], default: b}": "",
		"{type: int, min: 1, max: 3, default: 2}":  "",
		"{type: number, min: .5, required: true}":  "",
		"{type: date, max: 2026-10-01, title: 日}":  "",
		"{type: int, min: 1, default: 0}":          "default: must be at least 1, found 0",
		"{type: int, min: 3, max: 1}":              "max: must be at least 3, found 1",
		"{type: int, min: x}":                      "min: x is not a whole number",
		"{type: enum}":                             "values: is missing (name the values that a run may choose)",
		"{type: enum, values: [a, a]}":             "values[1]: a is given twice",
		"{type: enum, values: [a, '']}":            `values[1]: "" is empty`,
		"{values: [a]}":                            "values: is only valid with type: enum or type: secret",
		"{min: 1}":                                 "min: is only valid with type: int, type: number, type: date or type: datetime",
		"{type: int, pattern: x}":                  "pattern: is only valid with type: text",
		"{pattern: '('}":                           "pattern: is not a regular expression",
		"{type: secret, values: ['a b']}":          `values[0]: "a b" is not the name of a secret`,
		"{type: numer}":                            `type: "numer" is not known`,
		"{required: true, default: x}":             "required: is not needed with a default",
		"{type: bool, default: yes}":               `default: "yes" is neither true nor false`,
	} {
		got := problemsIn(t, "{name: a, params: {p: "+param+"}, run: {shell: x}}")
		if want == "" && got != "" || want != "" && !strings.Contains(got, "params.p."+want) {
			t.Errorf("%s: %q, want %q", param, got, want)
		}
	}
}

func TestARequiredParameterIsForRunsByHand(t *testing.T) {
	got := problemsIn(t, "{name: a, params: {p: {required: true}}, run: {shell: x}, schedule: {every: 1h}}")
	if want := "params.p.required: keeps scheduled runs from starting: they have no value for it (give it a default instead)"; !strings.Contains(got, want) {
		t.Errorf("with a schedule: %q, want %q", got, want)
	}
	got = problemsIn(t, "{name: a, params: {p: {required: true, default: x}}, run: {shell: x}, schedule: {every: 1h}}")
	if want := "params.p.required: is not needed with a default"; !strings.Contains(got, want) || strings.Contains(got, "give it a default") {
		t.Errorf("with a schedule and a default: %q, want %q alone", got, want)
	}
}

// problemsIn returns the problems of a document.
func problemsIn(t *testing.T, text string) string {
	t.Helper()
	list, err := job.Decode("", []byte(text))
	for i := range list {
		if err == nil {
			err = list[i].Validate()
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// The value of a chosen secret is where secrets may be, and only what a run chose is read.
func TestAParameterChoosesASecret(t *testing.T) {
	const params = "params: {account: {type: secret, values: [test_key, live_key], default: test_key}}\n"
	for run, want := range map[string]string{
		`run: {shell: "charge", env: {KEY: "{{ .Param.account }}", DB: "{{ .Secret.db }}"}}`:    "",
		`run: {shell: "charge {{ .Param.account }}"}`:                                           ".Param.account cannot be here",
		`run: {shell: "charge", env: {KEY: "{{ upper .Param.account }}"}}`:                      "account",
		`run: {flow: {steps: [{name: s, run: {job: b, params: {x: "{{ .Param.account }}"}}}]}}`: ".Param.account cannot be here",
	} {
		got := problemsIn(t, "name: a\n"+params+run+"\n")
		if want == "" && got != "" || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", run, got, want)
		}
	}
	list, err := job.Decode("", []byte("name: a\n"+params+`run: {shell: "charge", env: {KEY: "{{ .Param.account }}", DB: "{{ .Secret.db }}"}}`))
	if err != nil {
		t.Fatal(err)
	}
	j := list[0].Job
	if got := j.SecretNames(); !slices.Equal(got, []string{"db", "live_key", "test_key"}) {
		t.Errorf("the job names the secrets %v", got)
	}
	for chosen, want := range map[string]string{"live_key": "[db live_key]", "": "[db]", "default": "[db test_key]"} {
		given := map[string]string{"account": chosen}
		if chosen == "default" {
			given = nil
		}
		if got := fmt.Sprint(j.SecretsOf(given)); got != want {
			t.Errorf("a run with %v reads the secrets %s, want %s", given, got, want)
		}
	}
	data := job.TemplateData{Params: map[string]string{"account": "live_key"}, Secrets: map[string]string{"live_key": "s3cr3t", "db": "x"}}
	spec, err := j.Expand(data)
	if err != nil || spec.Shell.Env["KEY"] != "s3cr3t" {
		t.Errorf("the command has the environment %v (%v)", spec, err)
	}
}
