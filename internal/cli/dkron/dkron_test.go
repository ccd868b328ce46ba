package dkron

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

const shell = `"executor":"shell","executor_config":{"command":"/bin/x y"}`

func TestEachFieldOfDkronBecomesAFieldOrANote(t *testing.T) {
	const everywhere, zone = "a job without tags runs on every node", "timezone is missing"
	for _, row := range []struct {
		name, text string
		want       []string
		notes      []string
		problem    string
	}{
		{name: "the least", text: `{"name":"A b","schedule":"0 30 2 * * *","tags":{"role":"web:1"},"timezone":"Europe/Berlin",` + shell + `}`,
			want: []string{"name: a-b\n", "cron: 0 30 2 * * *", "timezone: Europe/Berlin", "command: /bin/x", `args: "y"`, "role: web", "overlap: allow", "missed: none"}, notes: []string{"tags are labels"}},
		{name: "on every node", text: `{"name":"a","schedule":"@daily",` + shell + `}`, want: []string{"strategy: broadcast", "timezone: UTC"}, notes: []string{zone, everywhere}},
		{name: "rates", text: `{"name":"a","schedule":"@every 1h30m",` + shell + `}`, want: []string{"every: 1h30m"}, notes: []string{"@every counts from 1970", everywhere}},
		{name: "once", text: `{"name":"a","schedule":"@at 2030-01-01T00:00:00Z","ephemeral":true,` + shell + `}`, want: []string{"at: \"2030-01-01T00:00:00Z\"", "delete_after: 0s"}, notes: []string{everywhere}},
		{name: "by hand", text: `{"name":"a","schedule":"@manually",` + shell + `}`, notes: []string{everywhere}},
		{name: "each minute", text: `{"name":"a","schedule":"@minutely","timezone":"UTC",` + shell + `}`, want: []string{"cron: '* * * * *'"}, notes: []string{everywhere}},
		{name: "a bad moment", text: `{"name":"a","schedule":"@at noon",` + shell + `}`, problem: "is no moment"},
		{name: "after another", text: `{"name":"a","schedule":"@daily","parent_job":"B c",` + shell + `}`, want: []string{"on: b-c"}, notes: []string{"the job runs after B c", everywhere}},
		{name: "policies", text: `{"name":"a","schedule":"@manually","concurrency":"forbid","retries":3,"disabled":true,` + shell + `}`, want: []string{"overlap: skip", "attempts: 3", "paused: true"}, notes: []string{everywhere}},
		{name: "bounds", text: `{"name":"a","schedule":"@every 1h","starts_at":"2030-01-01T00:00:00Z","expires_at":null,` + shell + `}`, want: []string{"start: \"2030-01-01T00:00:00Z\""}, notes: []string{"@every counts", everywhere}},
		{name: "owners", text: `{"name":"a","schedule":"@manually","owner":"Ops","owner_email":"o@x","processors":{"syslog":{},"log":{}},"metadata":{"team":"x"},` + shell + `}`,
			want: []string{"owner: ops", "team: x"}, notes: []string{"not mailed to o@x", "processor log is left out", "processor syslog is left out", everywhere}},
		{name: "several nodes", text: `{"name":"a","schedule":"@manually","tags":{"role":"web:2"},` + shell + `}`, notes: []string{"2 nodes of them", "tags are labels"}},
		{name: "a shell", text: `{"name":"a","schedule":"@manually","executor":"shell","executor_config":{"shell":"true","command":"echo {{x}} | cat","env":"A=b, C=d=e","cwd":"/w","timeout":"30s","mem_limit_kb":"2048","project":"p"}}`,
			want: []string{`echo {{ "{{" }}x}} | cat`, "A: b", "C: d=e", "dir: /w", "timeout: 30s", "memory: 2MiB"}, notes: []string{"executor_config.project: p is left out", everywhere}},
		{name: "quotes without a shell", text: `{"name":"a","schedule":"@manually","executor":"shell","executor_config":{"command":"echo 'a b'"}}`, notes: []string{"here sh reads it", everywhere}},
		{name: "a request", text: `{"name":"a","schedule":"@manually","executor":"http","executor_config":{"method":"post","url":"https://h/p","body":"{}","headers":"[\"A: b\"]","timeout":"5","expectCode":"200, 204","expectBody":"ok","tlsNoVerifyPeer":"true","debug":"true"}}`,
			want: []string{"method: POST", "url: https://h/p", "A: b", "timeout: 5s", "- \"200\"", "match: ok", "insecure: true"}, notes: []string{everywhere}},
		{name: "bad headers", text: `{"name":"a","executor":"http","executor_config":{"url":"http://h","headers":"x"}}`, problem: "no JSON list of headers"},
		{name: "no command", text: `{"name":"a","executor":"shell"}`, problem: "command: is missing"},
		{name: "no executor", text: `{"name":"a"}`, problem: "it has no executor"},
		{name: "another executor", text: `{"name":"a","executor":"kafka"}`, problem: "executor kafka: shell and http are imported"},
		{name: "a bad timeout", text: `{"name":"a","executor":"shell","executor_config":{"command":"x","timeout":"soon"}}`, problem: "executor_config.timeout"},
	} {
		t.Run(row.name, func(t *testing.T) {
			lines, err := Import(row.text, Options{Zone: "UTC"})
			if err != nil || len(lines) != 1 {
				t.Fatalf("%v, %v", lines, err)
			}
			line := lines[0]
			if row.problem != "" || !line.Problem.IsZero() {
				if row.problem == "" || !strings.Contains(line.Problem.String(), row.problem) || len(line.Documents) > 0 {
					t.Errorf("the problem is %q, want %q", line.Problem, row.problem)
				}
				return
			}
			if err := line.Documents[0].Validate(); err != nil {
				t.Error(err)
			}
			var b bytes.Buffer
			if err := job.Encode(&b, line.Documents, job.YAML); err != nil {
				t.Fatal(err)
			}
			for _, want := range row.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("no %q in\n%s", want, b.String())
				}
			}
			words := fmt.Sprint(line.Notes)
			for _, want := range row.notes {
				if !strings.Contains(words, want) {
					t.Errorf("no note %q in\n%s", want, words)
				}
			}
			if len(line.Notes) != len(row.notes) {
				t.Errorf("the notes are\n%s", words)
			}
		})
	}
}

func TestNamesOfDkronStayDistinct(t *testing.T) {
	lines, err := Import(`[{"name":"A","executor":"x"},{"name":"a",`+shell+`}]`, Options{})
	if err != nil || len(lines) != 2 || lines[1].Number != 2 || !strings.Contains(lines[1].Problem.String(), `its name becomes a, as that of "A"`) {
		t.Errorf("got %+v, %v", lines, err)
	}
	if _, err := Import("<html>", Options{}); err == nil || !strings.Contains(err.Error(), "GET /v1/jobs") {
		t.Error(err)
	}
}

func TestNamesInOtherScriptsOfDkronStayDistinct(t *testing.T) {
	lines, err := Import(`[{"name":"每日备份","schedule":"@daily","executor":"shell","executor_config":{"command":"x"}},
		{"name":"每周备份","schedule":"@daily","executor":"shell","executor_config":{"command":"x"}},
		{"name":"日志 rotate","schedule":"@parent","parent_job":"每日备份","executor":"shell","executor_config":{"command":"x"}}]`, Options{Zone: "UTC"})
	if err != nil || len(lines) != 3 {
		t.Fatalf("%v, %v", lines, err)
	}
	var names []string
	for _, l := range lines {
		if err := l.Documents[0].Validate(); err != nil {
			t.Error(err)
		}
		names = append(names, l.Documents[0].Job.Name)
	}
	if !strings.HasPrefix(names[0], "job-") || names[0] == names[1] || !strings.HasPrefix(names[2], "rotate-") || lines[2].Documents[0].Job.Schedule.On[0].Job != names[0] {
		t.Errorf("the names are %q, and the last follows %v", names, lines[2].Documents[0].Job.Schedule.On)
	}
}
