package job_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// problemsOf validates a job with the parameters p and q and the given run.
func problemsOf(t *testing.T, run string) string {
	t.Helper()
	text := "name: j\nparams: {p: {}, q: {}}\nrun:\n  " + strings.ReplaceAll(run, "\n", "\n  ") + "\n"
	documents, err := job.Decode("j.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := documents[0].Validate(); err != nil {
		return err.Error()
	}
	return ""
}

// Quoting keeps a value one word, which is not enough if that word is a program or code.
func TestParametersCannotChooseTheProgram(t *testing.T) {
	const program = "cannot stand as the program of a command"
	for run, want := range map[string]string{
		"shell: '{{ .Param.p }}'":                                    program,
		"shell: 'cd /srv; {{ .Param.p }} --all'":                     program,
		"shell: './{{ .Param.p }} x'":                                program,
		"shell: 'LANG=C {{ .Param.p }} x'":                           program,
		"shell: 'true && {{ .Param.p | lower }}'":                    program,
		"shell: 'echo $({{ .Param.p }})'":                            program,
		"shell: 'echo \"$({{ .Param.p }} x)\"'":                      program,
		"shell: 'echo <({{ .Param.p }})'":                            program,
		"shell: 'cat f | {{ .Param.p }}'":                            program,
		"shell: '( {{ .Param.p }} )'":                                program,
		"shell: 'if {{ .Param.p }}; then :; fi'":                     program,
		"shell: 'while true; do {{ .Param.p }}; done'":               program,
		"shell: 'true 2>/dev/null || {{ .Param.p }}'":                program,
		"shell: '>out {{ .Param.p }}'":                               program,
		"shell: '2>err {{ .Param.p }}'":                              program,
		"shell: 'exec {{ .Param.p }}'":                               program,
		"shell: 'sudo -u backup {{ .Param.p }}'":                     program,
		"shell: 'nice -n 5 {{ .Param.p }}'":                          program,
		"shell: 'timeout 10m {{ .Param.p }}'":                        program,
		"shell: 'env A=b {{ .Param.p }}'":                            program,
		"shell: 'flock /run/lock {{ .Param.p }}'":                    program,
		"shell: '{{ if .Param.q }}echo {{ end }}{{ .Param.p }}'":     program,
		"shell: \"case x in x) {{ .Param.p }};; esac\"":              program,
		"shell: {command: '{{ .Param.p }}', args: [x]}":              program,
		"shell: {command: '/opt/{{ .Param.p }}', args: [x]}":         program,
		"shell: {command: sudo, args: [-u, me, '{{ .Param.p }}']}":   program,
		"shell: 'sh -c {{ .Param.p }}'":                              "where sh reads code",
		"shell: 'bash -ec {{ .Param.p }}'":                           "where bash reads code",
		"shell: '/bin/bash {{ .Param.p }}'":                          "where bash reads code",
		"shell: 'sudo bash -c {{ .Param.p }}'":                       "where bash reads code",
		"shell: 'find . -exec sh -c {{ .Param.p }} x {} +'":          "where sh reads code",
		"shell: 'docker exec box python3.12 -c {{ .Param.p }}'":      "where python3.12 reads code",
		"shell: 'perl -ne {{ .Param.p }}'":                           "where perl reads code",
		"shell: 'awk {{ .Param.p }} f'":                              "where awk reads code",
		"shell: 'ssh host run {{ .Param.p }}'":                       "where ssh reads code",
		"shell: 'su backup -c {{ .Param.p }}'":                       "where su reads code",
		"shell: '. {{ .Param.p }}'":                                  "where . reads code",
		"shell: 'set -e; source {{ .Param.p }}'":                     "where source reads code",
		"shell: 'trap {{ .Param.p }} EXIT'":                          "where trap reads code",
		"shell: 'find . -exec {{ .Param.p }} {} +'":                  program,
		"shell: 'find . -name x -execdir env {{ .Param.p }} {} +'":   program,
		"shell: {command: find, args: [., -ok, '{{ .Param.p }}']}":   program,
		"shell: {command: bash, args: [-c, '{{ .Param.p }}']}":       "run.shell.args[1]: .Param.p may hold any text and cannot stand where bash reads code",
		"shell: 'PATH={{ .Param.p }} make'":                          "in PATH",
		"shell: 'PATH=/srv/{{ .Param.p }}:$PATH; make'":              "in PATH",
		"shell: 'export LD_PRELOAD={{ .Param.p }}'":                  "in LD_PRELOAD",
		"shell: {command: env, args: ['PATH={{ .Param.p }}', make]}": "in PATH",
		"shell: make\nenv: {PATH: '{{ .Param.p }}:/bin'}":            "run.env.PATH: .Param.p may hold any text and cannot stand in PATH",
	} {
		got := problemsOf(t, run)
		if !strings.Contains(got, want) || !strings.Contains(got, "run.unsafe_params: true") {
			t.Errorf("%s: %q, want %q", run, got, want)
		}
		if got := problemsOf(t, run+"\nunsafe_params: true"); got != "" {
			t.Errorf("%s with unsafe_params: %s", run, got)
		}
	}
}

func TestParametersMayBeArguments(t *testing.T) {
	for _, run := range []string{
		"shell: 'echo {{ .Param.p }}'",
		"shell: './report.sh --day {{ .Scheduled.Format \"2006\" }} {{ .Param.p }} > {{ .Param.q }} 2>&1'",
		"shell: 'x={{ .Param.p }}; echo \"$x\"'",
		"shell: 'X={{ .Param.p }} make {{ .Param.q }}'",
		"shell: 'echo \"$(printf %s {{ .Param.p }})\"'",
		"shell: 'grep -c {{ .Param.p }} file | tail -n {{ .Param.q }}'",
		"shell: 'tar -c {{ .Param.p }}'",
		"shell: 'ping -c {{ .Param.p }} host'",
		"shell: '. ./profile {{ .Param.p }}'",
		"shell: 'trap cleanup {{ .Param.p }}'",
		"shell: 'find . -name {{ .Param.p }} -exec touch {{ .Param.q }} {} +'",
		"shell: 'kubectl drain node {{ .Param.p }}'",
		"shell: 'python3 -u report.py {{ .Param.p }}'",
		"shell: 'sh -c ''echo \"$1\"'' x {{ .Param.p }}'",
		"shell: 'sudo -u backup tar {{ .Param.p }}'",
		"shell: 'timeout 10m make {{ .Param.p }}'",
		"shell: 'if [ {{ .Param.p }} = x ]; then echo {{ .Param.q }}; fi'",
		"shell: 'for f in {{ .Param.p }}; do echo {{ .Param.q }}; done'",
		"shell: 'case {{ .Param.p }} in a) echo {{ .Param.q }};; *) echo {{ .Param.q }};; esac'",
		"shell: 'echo {{ if .Param.p }}{{ .Param.p }}{{ else }}none{{ end }} {{ .Param.q }}'",
		"shell: '{{ .Name }} {{ .Shard }}'", // these have limited texts
		"shell: {command: printf, args: ['%s', '{{ .Param.p }}']}",
		"shell: {script: 'echo $BELFRY_PARAM_P', args: ['{{ .Param.p }}']}",
		"shell: {command: python3, args: [report.py, -c, '{{ .Param.p }}']}",
		"shell: make\nenv: {TARGET: '{{ .Param.p }}'}",
	} {
		if got := problemsOf(t, run); got != "" {
			t.Errorf("%s: %s", run, got)
		}
	}
}

// A job stored before this rule runs unchanged.
func TestStoredJobsWithParametersAsProgramsStillRun(t *testing.T) {
	j := &job.Job{
		Namespace: "default", Name: "old", Params: map[string]job.Param{"p": {Default: "date"}},
		Run: job.RunSpec{Shell: &job.Shell{Command: "{{ .Param.p }} -u"}},
	}
	run, err := j.Expand(job.TemplateData{})
	if err != nil || run.Shell.Command != "'date' -u" {
		t.Errorf("%v, %v", run, err)
	}
}

func TestValuesInXMLStayValues(t *testing.T) {
	for _, h := range []*job.HTTP{
		{Body: `<order who="{{ .Param.p }}">{{ .Param.p }}</order>`},
		{Body: `order: {{ .Param.p }}`, Headers: map[string]string{"content-type": "application/soap+xml; charset=utf-8"}},
		{Body: `<p>{{ .Param.p }}</p>`, Headers: map[string]string{"Content-Type": "text/html"}},
	} {
		j := &job.Job{Namespace: "default", Name: "x", Params: map[string]job.Param{"p": {}}, Run: job.RunSpec{HTTP: h}}
		h.URL = "https://example.org"
		spec, err := j.Expand(job.TemplateData{Params: map[string]string{"p": `</order>&"' a` + "\n"}})
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.ReplaceAll(h.Body, "{{ .Param.p }}", "&lt;/order&gt;&amp;&#34;&#39; a&#10;"); spec.HTTP.Body != want {
			t.Errorf("got %s, want %s", spec.HTTP.Body, want)
		}
		if _, err := j.Expand(job.TemplateData{Params: map[string]string{"p": "\x01"}}); err == nil || !strings.Contains(err.Error(), "XML") {
			t.Errorf("a control character: %v", err)
		}
	}
	plain := &job.HTTP{Body: "<{{ .Param.p }}>", Headers: map[string]string{"Content-Type": "text/plain"}}
	if plain.BodyKind() != job.TemplatePrivate {
		t.Error("plain text is taken for XML")
	}
}
