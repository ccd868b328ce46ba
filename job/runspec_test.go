package job_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// The fixture was written by the version before RunSpec became a union.
func TestStoredJobsOfAnOlderVersionAreRead(t *testing.T) {
	umask := job.Umask(0o27)
	want := []job.RunSpec{
		{Shell: &job.Shell{
			Command: "report --day {{ .Scheduled }}", Env: map[string]string{"LANG": "C.UTF-8", "TOKEN": "x: <y>"}, Dir: "/srv", User: "www", Group: "33",
			Umask: &umask, Nice: 5, Stdin: "hello", Limits: &job.Limits{Memory: 64 << 20, CPU: 0.5}, UnsafeParams: true,
		}},
		{Shell: &job.Shell{Script: "print(1)\n", Interpreter: []string{"python3", "-u"}, Args: []string{"a", "b"}}},
		{HTTP: &job.HTTP{
			URL: "https://example.com/x", Headers: map[string]string{"X-Key": "k"}, Body: "{}", Expect: []string{"2xx", "404"}, Match: "ok",
			JSON: map[string]string{"status": "ok"}, Redirects: new(int), TLS: &job.TLS{CA: "/etc/ca.pem"},
		}},
		{Handler: &job.Handler{Name: "cleanup/daily"}},
	}
	stored, err := os.ReadFile("testdata/stored.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(stored), []byte("\n"))
	if len(lines) != len(want) {
		t.Fatalf("the fixture has %d jobs", len(lines))
	}
	for i, line := range lines {
		var j job.Job
		if err := json.Unmarshal(line, &j); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(j.Run, want[i]) {
			t.Errorf("%s was read as %+v", line, j.Run)
		}
		if text, err := json.Marshal(&j); err != nil || string(text) != string(line) {
			t.Errorf("stored again, %s\nbecame %s, %v", line, text, err)
		}
	}
}

func TestAStoredFieldOfANewerVersionIsIgnored(t *testing.T) {
	var r job.RunSpec
	text := `{"shell":{"command":"true","colour":"red"},"env":{"A":"b"},"flow":{"steps":[]}}`
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Shell.Command != "true" || r.Shell.Env["A"] != "b" {
		t.Errorf("read as %+v, %v", r, err)
	}
}

func TestFieldsOfAnotherKindOfWorkAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{http: {url: "https://example.com"}, env: {A: b}}`: "a.yaml:2:48: run.env: is only valid with run.shell",
		`{handler: h, nice: 0}`:                             "a.yaml:2:25: run.nice: is only valid with run.shell",
		`{handler: h, nice: null}`:                          "",
		`{env: {A: b}, shell: "true"}`:                      "",
		`{env: {A: b}}`:                                     "a.yaml:2:6: run: must have exactly one of shell, container, kubernetes, http, handler, xxl, flow and external",
		`{shell: "true", handler: h}`:                       "a.yaml:2:6: run: must have exactly one of shell, container, kubernetes, http, handler, xxl, flow and external",
	} {
		docs, err := job.Decode("a.yaml", []byte("name: a\nrun: "+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := docs[0].Validate(); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestShellBesideAContainerRunsInIt(t *testing.T) {
	const text = `
name: a
run:
  container: alpine:3.20
  shell: echo {{ .Run }}
  env: {A: b}
  user: "1000"
  limits: {memory: 64MiB, pids: 10}
---
name: b
run:
  container: {image: alpine:3.20, user: "1000"}
  shell: echo {{ .Run }}
  limits: {memory: 64MiB, pids: 10}
  env: {A: b}
`
	docs, err := job.Decode("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := job.RunSpec{Container: &job.Container{
		Image: "alpine:3.20", Shell: "echo {{ .Run }}", Env: map[string]string{"A": "b"}, User: "1000",
		Limits: &job.ContainerLimits{Memory: 64 << 20, PIDs: 10},
	}}
	for _, d := range docs {
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(d.Job.Run, want) || d.Job.Run.Work() != job.WorkContainer {
			t.Errorf("job %s was read as %+v", d.Job.Name, d.Job.Run.Container)
		}
		stored, err := json.Marshal(d.Job)
		var again job.Job
		if err = errors.Join(err, json.Unmarshal(stored, &again)); err != nil || !reflect.DeepEqual(again.Run, want) {
			t.Errorf("%s was read as %+v, %v", stored, again.Run.Container, err)
		}
	}
}

func TestTheLoginOfARegistryIsASecretOfTheJob(t *testing.T) {
	j := &job.Job{Name: "a", Run: job.RunSpec{Container: &job.Container{Image: "alpine", Registry: &job.Registry{Secret: "hub"}}}}
	if names := j.SecretNames(); !slices.Equal(names, []string{"hub"}) {
		t.Errorf("the job names the secrets %v", names)
	}
	spec, err := j.Expand(job.TemplateData{Secrets: map[string]string{"hub": "me:word"}})
	if err != nil || spec.Container.Registry.Login() != "me:word" {
		t.Errorf("expanded to %+v, %v", spec, err)
	}
	if text, err := json.Marshal(spec); err != nil || strings.Contains(string(text), "word") {
		t.Errorf("the work is written as %s, %v", text, err)
	}
}

func TestEachFieldOfTheUnionIsAKindOfWork(t *testing.T) {
	union := reflect.TypeFor[job.RunSpec]()
	for i := range union.NumField() {
		f := union.Field(i)
		var r job.RunSpec
		reflect.ValueOf(&r).Elem().Field(i).Set(reflect.New(f.Type.Elem()))
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if string(r.Work()) != name {
			t.Errorf("with %s set, the kind of work is %q, want %q", f.Name, r.Work(), name)
		}
	}
}
