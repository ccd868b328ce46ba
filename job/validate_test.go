package job_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

func TestValidateNamesFieldsOfJobsMadeInGo(t *testing.T) {
	j := &job.Job{
		Name:     "a",
		Schedule: job.Schedule{Cron: []string{"@daily", "61 * * * *"}, ClockChange: "summer"},
		Run:      job.RunSpec{Shell: &job.Shell{Command: "echo {{ .Nam }}\x00", Env: map[string]string{"A B": strings.Repeat("x", 20_000)}}},
		Place:    job.Place{Shards: -1},
		Version:  -1,
		Labels:   map[string]string{},
	}
	for i := range 65 {
		j.Labels[fmt.Sprint("label", i)] = "x"
	}
	err := j.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"schedule.cron[1]: minute: 61 is out of range",
		`schedule.clock_change: "summer" is not known; allowed: vixie, literal, skip_once, shift_once, skip_last`,
		"run.shell.command: unknown field .Nam",
		"run.shell.command: has a NUL byte",
		`run.env["A B"]: has 20000 bytes, at most 16384 are allowed`,
		`run.env["A B"]: "A B" is not the name of an environment variable`,
		"place.shards: must be between 1 and 1000, found -1",
		"version: must be at least 1, found -1",
		"labels: has 65 entries, at most 64 are allowed",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin %v", want, err)
		}
	}
}

func TestValidateShowsPathsAsTheyWereWritten(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, run: {shell: x}, schedule: {cron: 61 * * * *}}":             "a.yaml:1:45: schedule.cron: minute",
		"{name: a, run: {shell: x}, schedule: {cron: [61 * * * *]}}":           "a.yaml:1:46: schedule.cron[0]: minute",
		"{name: a, run: {shell: 'echo {{ .X }}'}}":                             "a.yaml:1:24: run.shell: unknown field",
		"{name: a, run: {shell: {command: 'echo {{ .X }}'}}}":                  "a.yaml:1:34: run.shell.command: unknown field",
		"{name: a, run: {shell: x}, schedule: {on: a}}":                        "a.yaml:1:43: schedule.on: is the job itself",
		"{name: a, run: {shell: x}, schedule: {on: {job: a}}}":                 "a.yaml:1:49: schedule.on.job: is the job itself",
		"{name: a, run: {shell: x}, schedule: {on: [b, {job: a}]}}":            "a.yaml:1:53: schedule.on[1].job: is the job itself",
		"{name: a, run: {shell: x}, policy: {kill_grace: 2m, lost_after: 1m}}": "a.yaml:1:65: policy.lost_after: 1m is too short",
		`{name: a, run: {shell: x, dir: "/tmp\nx"}}`:                           "a.yaml:1:32: run.dir: has a control character",
		`{name: a, run: {shell: {command: x, interpreter: "/bin/sh\r"}}}`:      "a.yaml:1:50: run.shell.interpreter: has a control character",
		"{run: {shell: x}}": "a.yaml:1:1: name: is missing",
		"name: a\nrun: {shell: x}\npolicy:\n  retry:\n    backoff: 1s\n":               "a.yaml:5:5: policy.retry.attempts: is missing",
		"{name: a, run: {shell: {args: [x]}}, labels: {x/y: ok, 'b c': no}}":           `a.yaml:1:63: labels["b c"]: "b c" is not the name of a label`,
		"{name: a, run: {shell: x}, params: {p: {description: '" + long(5000) + "'}}}": "params.p.description: has 5000 bytes, at most 4096 are allowed",
		"{kind: pool, name: a, pool: {}}":                                              "a.yaml:1:29: pool.size: is missing",
	} {
		err := decode(t, "a.yaml", text)[0].Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s:\n got %v\nwant %s", text, err, want)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestLostAfterLeavesTimeToEndRuns(t *testing.T) {
	for policy, good := range map[string]bool{
		"{lost_after: 19s}":                  true,
		"{lost_after: 18s}":                  false,
		"{lost_after: 9s, kill_grace: 0}":    true,
		"{lost_after: 8s, kill_grace: 0}":    false,
		"{lost_after: 1h, kill_grace: 30m}":  true,
		"{kill_grace: 51s}":                  true,
		"{kill_grace: 52s}":                  true, // the default is long enough for that
		"{lost_after: 100s, kill_grace: 1m}": true,
	} {
		err := decode(t, "a.yaml", "{name: a, run: {shell: x}, policy: "+policy+"}")[0].Validate()
		if (err == nil) != good {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

func TestPoliciesAreJudgedUnderTheDefaultsOfTheServer(t *testing.T) {
	doc := decode(t, "a.yaml", "{name: a, run: {shell: x}, policy: {queue_limit: 2}}")[0]
	if err := doc.Validate(); err == nil {
		t.Error("queue_limit was accepted without overlap: queue")
	}
	if err := doc.Validate(job.Under(job.Defaults{Policy: job.Policy{Overlap: job.OverlapQueue}})); err != nil {
		t.Error(err)
	}
}

func TestOnCombinesOnlyWithCronAndEvery(t *testing.T) {
	for schedule, want := range map[string]string{
		`{cron: "@daily", on: b}`: "",
		`{every: 1h, on: b}`:      "",
		`{cron: "@daily", dialect: quartz, on: b, at: 2030-01-01T00:00:00Z}`: "schedule.at: stands beside cron",
		`{at: 2030-01-01T00:00:00Z, on: b}`:                                  "schedule.on: stands beside at",
		`{after_end: 1h, on: b}`:                                             "schedule.on: stands beside after_end",
		`{cron: "@daily", every: 1h, on: b}`:                                 "schedule.every: stands beside cron",
	} {
		err := decode(t, "a.yaml", "{name: a, run: {shell: x}, schedule: "+schedule+"}")[0].Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", schedule, err, want)
		}
	}
}

// Applying a file again must not fail because time has passed.
func TestFinishedSchedulesAreValid(t *testing.T) {
	later := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, schedule := range []string{
		"{at: 2026-10-01T00:00:00Z}",
		`{cron: "@daily", end: 2026-10-01T00:00:00Z}`,
		`{cron: "@daily", only: 2026-10-01}`,
	} {
		err := decode(t, "a.yaml", "{name: a, run: {shell: x}, schedule: "+schedule+"}")[0].Validate(job.Now(later))
		if err != nil {
			t.Errorf("%s: %v", schedule, err)
		}
	}
}

func TestWarningsNameLikelyMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"policy: {missed: all}":                                            "policy.missed: all is limited by late_by, which is 1h",
		"policy: {missed: all, late_by: forever}":                          "",
		"policy: {overlap: replace, late_by: 5s}":                          "policy.late_by: 5s is shorter than kill_grace, which is 10s",
		"policy: {overlap: replace, late_by: 5s, kill_grace: 5s}":          "",
		"policy: {overlap: replace, late_by: forever}":                     "",
		"policy: {overlap: queue, late_by: 5s}":                            "",
		"policy: {timeout: 1m, expect: {duration_below: 2m}}":              "policy.expect.duration_below: has no effect",
		"policy: {timeout: 0, expect: {duration_below: 2m}}":               "",
		"schedule: {every: 10s, jitter: 10s}":                              "schedule.jitter: is cut short",
		"schedule: {every: 10s, jitter: 9s}, policy: {missed: none}":       "",
		"schedule: {at: '2026-11-20T12:00:00Z'}":                           "schedule.at: is in the past",
		"schedule: {at: ['2026-11-20T12:00:00Z', '2027-01-01T00:00:00Z']}": "",
		"schedule: {every: 10s, end: '2026-11-20T12:00:00Z'}":              "schedule.end: is in the past",
		"schedule: {every: 10s, end: '2026-11-20T12:00:01Z'}":              "",
		"schedule: {cron: ['0 * * * *', '*/70 * * * *']}":                  "schedule.cron[1]: minute: a step of 70 in a field of 60 values",
		"schedule: {cron: '0 9 * * *', timezone: EST}":                     "schedule.cron: EST is UTC-5 all year; America/New_York has summer time",
		"schedule: {cron: '0 9 * * *', timezone: America/New_York}":        "",
		"schedule: '0 0 12 ? * 2'":                                         `schedule: "?" with seconds is the form of Quartz`,
		"schedule: {cron: '0 0 12 ? * 2', dialect: quartz}":                "",
	} {
		doc := decode(t, "a.yaml", "{name: a, run: {shell: x}, "+text+"}")[0]
		got := doc.Warnings(job.Now(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)))
		if want == "" && len(got) > 0 || want != "" && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, got, want)
		}
	}
	if got := decode(t, "a.yaml", "{kind: pool, name: a, pool: {size: 1}}")[0].Warnings(); got != nil {
		t.Errorf("a pool: %v", got)
	}
}

// A job's omitted settings cause warnings by their defaults.
func TestWarningsLookAtDefaults(t *testing.T) {
	doc := decode(t, "a.yaml", "{name: a, run: {shell: x}, schedule: {every: 1m}}")[0]
	all := job.Defaults{Policy: job.Policy{Missed: job.MissedAll}}
	for _, d := range []job.Defaults{all, {Namespaces: map[string]job.Defaults{job.DefaultNamespace: all}}} {
		if got := doc.Warnings(job.Under(d)); len(got) != 1 || got[0].Path != "policy.missed" {
			t.Errorf("under %+v: got %v, want a warning about missed", d, got)
		}
	}
	if got := doc.Warnings(job.Under(job.Defaults{Namespaces: map[string]job.Defaults{"other": all}})); got != nil {
		t.Errorf("defaults of another namespace: got %v", got)
	}
}

func TestWorkOfExecutorsIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		`run: {xxl: {handler: h}}`:                                                                         `run.xxl.group: is missing (the appname of the executors, for example order-service)`,
		`run: {xxl: {group: a b, handler: h}}`:                                                             `run.xxl.group: "a b" has a blank`,
		`run: {xxl: {group: g}}`:                                                                           `run.xxl: must have exactly one of handler and glue`,
		`run: {xxl: {group: g, handler: h, glue: {type: shell, source: ls}}}`:                              `run.xxl: must have exactly one of handler and glue`,
		`run: {xxl: {group: g, glue: {type: shell, source: " "}}}`:                                         `run.xxl.glue.source: is missing`,
		`run: {xxl: {group: g, glue: {type: cobol, source: x}}}`:                                           `run.xxl.glue.type: "cobol" is not known`,
		`run: {xxl: {group: g, handler: h, id: 2147483648}}`:                                               `run.xxl.id: `,
		`run: {xxl: {group: g, handler: h, block: serial}}`:                                                `run.xxl.block: is only valid with policy.overlap: allow (with overlap: skip no executor ever has two runs of the job)`,
		`{run: {xxl: {group: g, handler: h}}, place: {sticky: true}}`:                                      `place.sticky: is about nodes, and executors do the work of this job`,
		`{run: {xxl: {group: g, handler: h}}, schedule: {boot: true}, place: {strategy: broadcast}}`:       `schedule.boot: cannot be combined with a broadcast over executors`,
		`{run: {shell: ls}, place: {strategy: first_idle}}`:                                                `place.strategy: first_idle is only valid with run.xxl (use any)`,
		`{run: {xxl: {group: g, handler: h}}, policy: {success: {match: x}}}`:                              `success.match: is not valid with run.xxl`,
		`{run: {xxl: {group: g, handler: h, block: discard_later}}, policy: {overlap: allow}}`:             ``,
		`{run: {xxl: {group: g, handler: h, param: "{{ .Shard }}"}}, place: {strategy: first, shards: 3}}`: ``,
	} {
		docs, err := job.Decode("a.yaml", []byte(text))
		var problems []string
		for _, found := range []error{err, docs[0].Validate()} {
			if found != nil {
				problems = append(problems, found.Error())
			}
		}
		if got := strings.Join(problems, "\n"); want == "" && strings.Contains(got, "run") || !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nwant %s", text, got, want)
		}
	}
}

// Executors identify a job by its number, so that numbers never change.
func TestNumbersOfJobsAtExecutors(t *testing.T) {
	uid := job.ID{1, 2, 3}
	if got := (&job.XXL{}).Number(uid); got != 1457766814 {
		t.Errorf("made from the uid: %d", got)
	}
	if got := (&job.XXL{ID: 17}).Number(uid); got != 17 {
		t.Errorf("named: %d", got)
	}
	g := job.Glue{Type: job.GlueShell, Source: "ls"}
	if got := g.Moment(); got != 399506973541 {
		t.Errorf("made from the code: %d", got)
	}
}

func TestARequestWithCallbackIsSentOnce(t *testing.T) {
	for fields, want := range map[string]string{
		"":                                     "",
		"method: PUT":                          "",
		"headers: {Idempotency-Key: a}":        "",
		"method: GET":                          `run.http.method: "GET" may be sent twice, and a request with callback must not`,
		"redirects: 1":                         "run.http.redirects: would send a request with callback twice",
		"headers: {x-idempotency-key: a}":      "run.http.headers.x-idempotency-key: lets connections send a request again",
		"headers: {belfry-callback: a}":        "run.http.headers.belfry-callback: is set by callback",
		"headers: {Belfry-Callback-Secret: a}": "run.http.headers.Belfry-Callback-Secret: is set by callback",
	} {
		docs, err := job.Decode("a.yaml", []byte("{name: a, run: {http: {url: 'http://a', callback: true, "+fields+"}}}"))
		if err == nil {
			err = docs[0].Job.Validate()
		}
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", fields, err, want)
		case want == "":
			filled := docs[0].Job.WithDefaults(job.Defaults{}).Run.HTTP
			if filled.Method == "GET" || *filled.Redirects != 0 {
				t.Errorf("%s: the method is %s, and %d redirects are followed", fields, filled.Method, *filled.Redirects)
			}
		}
	}
}
