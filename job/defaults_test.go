package job_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// filled returns the first job of a text with its defaults.
func filled(t testing.TB, text string, defaults job.Defaults) *job.Job {
	t.Helper()
	return decode(t, "job.yaml", text)[0].Job.WithDefaults(defaults)
}

func TestDefaultsKeepTheirForm(t *testing.T) {
	docs := decode(t, "jobs.yaml", `
{name: shell, schedule: {cron: "@daily"}, run: {shell: echo}}
---
{name: request, schedule: {every: 1m, except: mon}, run: {http: {url: https://example.com, body: x}}, policy: {overlap: queue, missed: all, retry: {attempts: 1}}}
---
{name: handler, schedule: {on: shell}, run: {handler: x}, policy: {overlap: allow, retry: {attempts: 1, backoff: 1h}}}
`)
	for i := range docs {
		docs[i].Job = docs[i].Job.WithDefaults(job.Defaults{})
	}
	var b bytes.Buffer
	if err := job.Encode(&b, docs, job.YAML); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, filepath.Join("testdata", "defaults.yaml"), b.Bytes())
}

func TestJobsWithDefaultsAreValidAndStayTheSame(t *testing.T) {
	seconds := job.Duration(30 * time.Second)
	defaults := job.Defaults{
		Timezone: "Asia/Tokyo",
		Policy: job.Policy{
			Overlap: job.OverlapQueue, QueueLimit: 3, MaxParallel: 2, Missed: job.MissedAll, MissedLimit: 5, Timeout: &seconds,
			Success: &job.Success{ExitCodes: []int{0, 1}},
		},
	}
	for name, data := range samples(t, "good") {
		for _, doc := range decode(t, name, string(data)) {
			if doc.Job == nil {
				continue
			}
			for _, d := range []job.Defaults{{}, defaults} {
				once := doc.Job.WithDefaults(d)
				if err := once.Validate(job.Now(now)); err != nil {
					t.Errorf("%s: %s with defaults: %v", name, doc.FullName(), err)
				}
				if twice := once.WithDefaults(d); !reflect.DeepEqual(once, twice) {
					t.Errorf("%s: %s changed when its defaults were filled in again", name, doc.FullName())
				}
			}
		}
	}
}

func TestNamespaceDefaultsOverrideServerDefaults(t *testing.T) {
	minute, hour := job.Duration(time.Minute), job.Duration(time.Hour)
	three := 3
	server := job.Defaults{Timezone: "Europe/Berlin", Policy: job.Policy{LateBy: &minute, Retry: &job.Retry{Attempts: &three, Backoff: &minute}}}
	namespace := job.Defaults{Policy: job.Policy{LateBy: &hour, Retry: &job.Retry{Factor: 5}}}
	j := filled(t, "{name: a, run: {shell: x}, policy: {retry: {backoff: 5s}}}", namespace.Over(server))
	if j.Schedule.Timezone != "Europe/Berlin" || *j.Policy.LateBy != hour {
		t.Errorf("timezone %s, late_by %s", j.Schedule.Timezone, j.Policy.LateBy)
	}
	r := j.Policy.Retry
	if *r.Attempts != 3 || r.Factor != 5 || *r.Backoff != job.Duration(5*time.Second) {
		t.Errorf("retry %d times, factor %v, backoff %s", *r.Attempts, r.Factor, r.Backoff)
	}
	if namespace.Policy.Retry.Attempts != nil || server.Policy.Retry.Factor != 0 {
		t.Error("the defaults themselves were changed")
	}
}

func TestANamespaceHasDefaultsOfItsOwn(t *testing.T) {
	minute, hour := job.Duration(time.Minute), job.Duration(time.Hour)
	server := job.Defaults{
		Timezone: "Europe/Berlin", Policy: job.Policy{Timeout: &hour, Overlap: job.OverlapQueue, QueueLimit: 5},
		Namespaces: map[string]job.Defaults{
			"web":     {Timezone: "Asia/Tokyo", Policy: job.Policy{Timeout: &minute}},
			"default": {Policy: job.Policy{Overlap: job.OverlapAllow}},
		},
	}
	for namespace, want := range map[string]string{
		"namespace: web, ":   "Asia/Tokyo 1m queue 5",
		"":                   "Europe/Berlin 1h allow 0",
		"namespace: other, ": "Europe/Berlin 1h queue 5",
	} {
		j := filled(t, "{"+namespace+"name: a, run: {shell: x}}", server)
		if got := fmt.Sprint(j.Schedule.Timezone, " ", j.Policy.Timeout, " ", j.Policy.Overlap, " ", j.Policy.QueueLimit); got != want {
			t.Errorf("%s: got %s, want %s", j.FullName(), got, want)
		}
	}
}

func TestDefaultsKeepExplicitFields(t *testing.T) {
	yes, hour := true, job.Duration(time.Hour)
	server := job.Defaults{Policy: job.Policy{NeedsPrevious: &yes, Timeout: &hour, KillGrace: &hour}}
	text := "{name: a, run: {shell: x}, policy: {needs_previous: false, timeout: 0, kill_grace: 0, late_by: 0, priority: 0}}"
	p := filled(t, text, server).Policy
	if *p.NeedsPrevious || *p.Timeout != 0 || *p.KillGrace != 0 || *p.LateBy != 0 || *p.Priority != 0 {
		t.Errorf("needs_previous %t, timeout %s, kill_grace %s, late_by %s", *p.NeedsPrevious, p.Timeout, p.KillGrace, p.LateBy)
	}
}

func TestTheZoneOfAnExpressionIsThatOfItsJob(t *testing.T) {
	j := filled(t, `{name: a, schedule: {cron: "TZ=Asia/Tokyo 0 9 * * *"}, run: {shell: x}}`, job.Defaults{Timezone: "Europe/Berlin"})
	if j.Schedule.Timezone != "Asia/Tokyo" {
		t.Errorf("timezone is %s", j.Schedule.Timezone)
	}
	if err := j.Validate(); err != nil {
		t.Error(err)
	}
}

func TestWithDefaultsDoesNotChangeTheJob(t *testing.T) {
	for _, doc := range decode(t, "x.yaml", string(samples(t, "good")["everything.yaml"])) {
		if doc.Job == nil {
			continue
		}
		var before, after bytes.Buffer
		if err := job.Encode(&before, []job.Document{doc}, job.YAML); err != nil {
			t.Fatal(err)
		}
		doc.Job.WithDefaults(job.Defaults{})
		if err := job.Encode(&after, []job.Document{doc}, job.YAML); err != nil {
			t.Fatal(err)
		}
		if before.String() != after.String() {
			t.Errorf("%s was changed to\n%s", doc.FullName(), after.String())
		}
	}
}
