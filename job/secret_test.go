package job_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestSecretsStandOnlyWhereTheyStayPrivate(t *testing.T) {
	problems := func(run string) string {
		doc := "name: a\nrun:\n" + run
		docs, err := job.Decode("a.yaml", []byte(doc))
		if err != nil {
			return err.Error()
		}
		if err := docs[0].Validate(); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, run := range []string{
		"  shell: psql\n  env: {PGPASSWORD: '{{ .Secret.db }}'}\n",
		"  shell: psql\n  stdin: 'x{{ .Secret.db }}y'\n",
		"  shell: kubectl get nodes\n  files: {KUBECONFIG: '{{ .Secret.kube }}'}\n",
		"  http: {url: 'https://example.com', headers: {Authorization: 'Bearer {{ .Secret.token }}'}}\n",
		"  http: {url: 'https://example.com', body: '{\"key\": \"{{ .Secret.token }}\", \"id\": {{ .Secret.id }}}'}\n",
		"  xxl: {group: g, handler: h, param: '{{ .Secret.token }}'}\n",
		"  flow:\n    defaults: {env: {A: '{{ .Secret.a }}'}}\n    steps: [{name: s, run: {shell: 'true', env: {B: '{{ .Secret.b }}'}}}]\n",
	} {
		if found := problems(run); found != "" {
			t.Errorf("%s: %s", run, found)
		}
	}
	for run, want := range map[string]string{
		"  shell: 'psql {{ .Secret.db }}'\n":                                                "run.shell: .Secret.db cannot be here, where others could read it",
		"  shell: {command: psql, args: ['{{ .Secret.db }}']}\n":                            "run.shell.args[0]: .Secret.db cannot be here",
		"  http: {url: 'https://example.com/{{ .Secret.db }}'}\n":                           "run.http.url: .Secret.db cannot be here",
		"  shell: 'true'\n  env: {A: '{{ .Secret.db | upper }}'}\n":                         ".Secret.db is a secret, which no function takes",
		"  shell: 'true'\n  env: {A: '{{ if .Secret.db }}1{{ end }}'}\n":                    ".Secret.db is a secret, which no function takes",
		"  shell: 'true'\n  env: {A: '{{ if eq .Secret.db \"x\" }}1{{ end }}'}\n":           ".Secret.db is a secret, which no function takes",
		"  shell: 'true'\n  env: {A: '{{ .Secret }}'}\n":                                    "a secret stands by itself",
		"  shell: 'true'\n  env: {PATH: '/bin:{{ .Secret.db }}'}\n":                         "cannot stand in PATH",
		"  shell: 'true'\n  env: {A: '{{ .Secrte.db }}'}\n":                                 "Secret",
		"  shell: 'true'\n  files: {A: x}\n  env: {A: x}\n":                                 "run.files.A: is in env as well",
		"  shell: 'true'\n  files: {BELFRY_X: x}\n":                                         "run.files.BELFRY_X: begins with BELFRY_",
		"  flow:\n    steps: [{name: s, run: {job: b, params: {x: '{{ .Secret.db }}'}}}]\n": ".Secret.db cannot be here",
		"  flow:\n    steps: [{name: s, if: '{{ .Secret.db }}', run: {shell: 'true'}}]\n":   ".Secret.db cannot be here",
	} {
		if found := problems(run); !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", run, found, want)
		}
	}
}

func TestAnAttemptNeverRunsWithoutItsSecrets(t *testing.T) {
	j := &job.Job{Name: "a", Run: job.RunSpec{Shell: &job.Shell{Command: "true", Env: map[string]string{"A": "{{ .Secret.a }}", "B": "{{ .Secret.b }}"}, Files: map[string]string{"C": "{{ .Secret.a }}"}}}}
	if got := strings.Join(j.SecretNames(), " "); got != "a b" {
		t.Errorf("it names %q", got)
	}
	d := data(t)
	d.Params = nil
	d.Secrets = map[string]string{"a": "one"}
	if _, err := j.Expand(d); err == nil || !strings.Contains(err.Error(), "run.env.B: expand template: there is no value for .Secret.b") {
		t.Errorf("without b: %v", err)
	}
	d.Secrets["b"] = "{{ two }}"
	spec, err := j.Expand(d)
	if err != nil || spec.Shell.Env["A"] != "one" || spec.Shell.Env["B"] != "{{ two }}" || spec.Shell.Files["C"] != "one" {
		t.Errorf("with both: %+v, %v", spec, err)
	}
}

func TestErrorsAboutSecretsDoNotShowThem(t *testing.T) {
	j := &job.Job{Name: "a", Run: job.RunSpec{HTTP: &job.HTTP{URL: "https://example.com", Headers: map[string]string{"X": "{{ .Secret.a }}"}}}}
	d := data(t)
	d.Params, d.Secrets = nil, map[string]string{"a": "hidden\nvalue"}
	if _, err := j.Expand(d); err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), ".Secret.a") {
		t.Errorf("%v", err)
	}
}
