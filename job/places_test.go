package job

import (
	"errors"
	"strings"
	"testing"
)

func TestAFieldInTheWrongPlaceIsSentToItsOwn(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"cron: '* * * * *'", `cron: unknown field "cron" ("cron" belongs in schedule)`},
		{"timezone: UTC", `timezone: unknown field "timezone" ("timezone" belongs in schedule)`},
		{"every: 5m", `("every" belongs in schedule)`},
		{"tz: UTC", `(did you mean schedule.timezone?)`},
		{"schedule: {tz: UTC, every: 1h}", `schedule.tz: unknown field "tz" (did you mean "timezone"?)`},
		{"command: echo", `(did you mean run.shell?)`},
		{"run: {shell: echo, command: echo}", `(did you mean "shell"?)`},
		{"run: {shell: echo, timeout: 5m}", `run.timeout: unknown field "timeout" ("timeout" belongs in policy)`},
		{"run: {shell: echo, cwd: /tmp}", `run.cwd: unknown field "cwd" (did you mean "dir"?)`},
		{"run: {shell: echo, environment: {A: b}}", `(did you mean "env"?)`},
		{"run: {shell: echo, retry: {attempts: 2}}", `("retry" belongs in policy)`},
		{"run: {shell: echo, labels: {a: b}}", `("labels" belongs at the top of the document)`},
		{"policy: {retries: 3}", `policy.retries: unknown field "retries" (did you mean "retry"?)`},
		{"retries: 3", `(did you mean policy.retry?)`},
		{"url: http://a/", `("url" belongs in run.http)`},
		{"enabled: true", `(did you mean "paused"?)`},
		{"policy: {enabled: true}", `(did you mean "paused", at the top of the document?)`},
		{"jobs: [{name: a}]", `(each job is a document of its own, with --- between them)`},
		{"pausd: true", `(did you mean "paused"?)`},
		{"schedule: every 5 minutes", `; did you mean "@every 5m"?`},
		{"schedule: every hour", `; did you mean "@every 1h"?`},
		{"policy: {overlapp: skip}", `(did you mean "overlap"?)`},
		{"schedule: 5m", `; did you mean "@every 5m"?`},
		{"schedule: 90 seconds", `; did you mean "@every 90s"?`},
		{"policy: {retry: 3}", `policy.retry: expected a mapping, found "3" (did you mean {attempts: 3}?)`},
		{"run: {http: 'https://a/'}", `run.http: expected a mapping, found the text "https://a/" (did you mean {url: "https://a/"}?)`},
		{"policy: {overlap: forbid}", `allowed: skip, queue, replace, allow (did you mean "skip"?)`},
		{"policy: {overlap: Forbid}", `(did you mean "skip"?)`},
		{"policy: {overlap: Replace}", `(did you mean "replace"?)`},
		{"policy: {missed: catchup}", `allowed: none, latest, all (did you mean "all"?)`},
		{"run: {docker: {image: alpine}}", `(did you mean "container"?)`},
		{"image: alpine", `(did you mean run.container?)`},
		{"workdir: /", `(did you mean run.dir?)`},
		{"place: {host: b}", `(did you mean "labels"?)`},
		{"run: {shell: echo, title: Nightly}", `("title" belongs at the top of the document)`},
		{"notify: ops", `unknown field "notify" (a channel chooses the jobs that it reports: kind: channel)`},
		{"run: {shell: echo, on_failure: ops}", `(a channel chooses the jobs that it reports: kind: channel)`},
		{"kind: CronJob", `allowed: job, calendar, pool, window, channel, hook, executors (belfry kubernetes import turns CronJobs into jobs)`},
		{"name: 备份", `name: "备份" is not a name (lower-case letters, digits, dots, dashes and underscores, at most 128, the first a letter or digit; title takes any text)`},
		{"name: My Backup_Job", `at most 128, the first a letter or digit; title takes any text; did you mean "my-backup_job"?)`},
		{"frobnicate: 1", "(known: namespace, name, "},
	} {
		text := row.text
		if !strings.HasPrefix(text, "name:") {
			text = "name: a\n" + text
		}
		documents, err := Decode("", []byte(text+"\n"))
		if err == nil {
			for _, d := range documents {
				err = errors.Join(err, d.Validate())
			}
		}
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s:\n got %v\nwant %s", row.text, err, row.want)
		}
	}
}

func TestEachOtherWordMeansAField(t *testing.T) {
	places := map[string]bool{}
	for struct_, at := range jobPlaces {
		for _, f := range fieldsOf(struct_) {
			places[strings.TrimPrefix(at+"."+f.name, ".")] = true
		}
	}
	for word, full := range otherWords {
		if !places[full] {
			t.Errorf("%s means %s, which no job has", word, full)
		}
	}
}
