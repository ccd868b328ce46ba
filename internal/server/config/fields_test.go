package config_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
)

func TestEveryFieldIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range config.Fields() {
		if f.Doc == "" || f.Why == "" || seen[f.Name] {
			t.Errorf("%s is there twice, or does not say what it means and why its default is what it is: %+v", f.Name, f)
		}
		seen[f.Name] = true
	}
	for _, name := range []string{"data", "keep.for", "tls.cert", "shell.env", "http.allow", "defaults.policy", "log_level"} {
		if !seen[name] {
			t.Errorf("%s is not there", name)
		}
	}
}

func TestDefaultsMatchTheDocumentation(t *testing.T) {
	filled := config.Server{Data: "DATA"}.Filled(environment(), "machine", false)
	layers := config.Layers{}
	checked := 0
	for _, s := range layers.Settings(filled) {
		if s.From != "default" {
			t.Errorf("%s is from %q", s.Name, s.From)
		}
		// Other defaults depend on the machine and are in words.
		if s.Value == nil || strings.Contains(s.Default, " ") {
			continue
		}
		text, err := json.Marshal(s.Value)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		if got := strings.Trim(string(text), `"`); got != s.Default {
			t.Errorf("%s is %s, and documented as %s", s.Name, got, s.Default)
		}
	}
	if checked < 12 {
		t.Errorf("%d defaults were compared", checked)
	}
}

func TestSettingsNameTheirSourceAndHideSecrets(t *testing.T) {
	l := config.Layers{
		Flags:    config.Server{Capacity: 3, Labels: map[string]string{"zone": "a"}},
		Env:      config.Server{Data: filepath.Join("env", "data")},
		File:     config.Server{Data: "file", Name: "file", Shell: config.Shell{Env: map[string]string{"TOKEN": "secret-one"}}},
		FileName: "belfry.yaml",
	}
	result := l.Flags.Over(l.Env).Over(l.File)
	result.Store = "postgres://ann:secret-two@db/belfry"
	got := map[string]config.Setting{}
	for _, s := range l.Settings(result.Filled(environment(), "machine", false)) {
		got[s.Name] = s
	}
	for name, from := range map[string]string{
		"capacity": "--capacity", "labels": "--label", "data": "BELFRY_DATA", "name": "belfry.yaml", "shell.env": "belfry.yaml", "listen": "default",
	} {
		if got[name].From != from {
			t.Errorf("%s is from %q, want %q", name, got[name].From, from)
		}
	}
	if plain, _ := got["plain_http"].Value.(*bool); got["hosts"].Value != nil || plain == nil || *plain {
		t.Errorf("unset values are %v and %v", got["hosts"].Value, got["plain_http"].Value)
	}
	text, err := json.Marshal([]any{got["shell.env"].Value, got["store"].Value})
	if want := `[{"TOKEN":"xxxxx"},"postgres://ann:xxxxx@db/belfry"]`; err != nil || string(text) != want {
		t.Errorf("secrets are shown as %s, want %s (%v)", text, want, err)
	}
}
