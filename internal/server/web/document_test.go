package web

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/job"
)

// formOf are all fields of the form with an example that a document can have.
var formOf = map[string]string{
	"run.container.image": "alpine:3.20", "run.container.shell": "echo a\necho b", "run.container.command": "etl\nload", "run.container.args": "--day=1\n--all",
	"run.container.env": "DB_HOST=db", "run.container.mounts": "/data/in:/in:ro\n/data/out:/out", "run.container.user": "1000:1000", "run.container.network": "none",
	"run.kubernetes.image": "alpine:3.20", "run.kubernetes.shell": "echo a\necho b", "run.kubernetes.command": "etl\nload", "run.kubernetes.args": "--day=1\n--all",
	"run.kubernetes.env": "DB_HOST=db", "run.kubernetes.secret_env": "DB_PASSWORD=shop-db/password", "run.kubernetes.cluster": "eu", "run.kubernetes.namespace": "shop",
	"run.kubernetes.user": "1000:1000", "run.kubernetes.service_account": "loader",
	"name": "nightly", "namespace": "shop", "description": "the prices of the day", "labels": "team=shop\ntier=1",
	"schedule.cron": "30 2 * * MON-FRI\n0 12 * * SAT", "schedule.every": "15m", "schedule.after_end": "5m",
	"schedule.at": "2027-01-31T09:00:00+01:00\n2027-02-28T09:00:00+01:00", "schedule.on": "imports\nshop/load failed",
	"schedule.timezone": "Europe/Berlin", "schedule.clock_change": "literal", "schedule.only": "mon-fri\n09:00-17:00", "schedule.except": "holidays",
	"schedule.off_day": "previous", "schedule.boot": "true", "schedule.spread": "10m", "schedule.jitter": "30s",
	"schedule.start": "2027-01-01T00:00:00Z", "schedule.end": "2027-12-31T00:00:00Z", "schedule.max_runs": "10",
	"run.shell": "echo one\necho two", "run.dir": "/srv", "run.user": "shop",
	"run.http.url": "https://example.com/run", "run.http.method": "POST", "run.http.expect": "200\n202", "run.http.body": "{\"a\": 1}\n{\"b\": 2}",
	"run.handler": "orders.export", "run.flow.steps": "- name: a # the first\n  run: {shell: echo a}\n- name: b\n  needs: a\n  run: {shell: echo b}",
	"run.xxl.group": "orders", "run.xxl.handler": "settle", "run.xxl.param": "--all", "run.xxl.block": "cover_early", "run.external.grace": "10m",
	"title": "价格导入", "params": "day: {type: date}\nrows: {type: int, default: 100}",
	"place.labels": "zone=de\ngpu=a100", "place.strategy": "round_robin", "place.shards": "4",
	"policy.timeout": "30m", "policy.retry.attempts": "2", "policy.retry.backoff": "1m", "policy.overlap": "queue", "policy.missed": "all",
	"policy.expect.finish_within": "45m",
}

// What the form writes is what it shows, and what a document can have there.
func TestEachFieldOfTheFormIsWrittenAndShown(t *testing.T) {
	for i := range editFields {
		f := &editFields[i]
		want, ok := formOf[f.path]
		if !ok {
			t.Errorf("the test has no example for %s", f.path)
			continue
		}
		text, err := setField("name: a # mine\n", f.in(""), f.as, want)
		if err != nil {
			t.Errorf("%s: %v", f.path, err)
			continue
		}
		if got, ok := fieldOf(text, f.in(text), f.as); got != want || !ok {
			t.Errorf("%s is shown as %q, want %q:\n%s", f.path, got, want, text)
		}
		if !strings.Contains(text, "# mine") && f.path != "name" {
			t.Errorf("%s has cost a comment:\n%s", f.path, text)
		}
		if list, err := job.Decode("", []byte(text)); err != nil || len(list) != 1 {
			t.Errorf("a document with %s cannot be read: %v\n%s", f.path, err, text)
		}
		if text, err = setField(text, f.in(text), f.as, ""); err != nil || strings.Contains(text, strings.Split(want, "\n")[0]) {
			t.Errorf("%s is still there when its field is empty: %v\n%s", f.path, err, text)
		}
	}
}

// A form that shows a document and gets the same values back has changed nothing.
func TestFormLosesNothingOfADocument(t *testing.T) {
	for name, text := range map[string]string{
		"lists": `name: nightly # ours
labels: {team: shop, "quoted": "1"}
schedule:
  # why so early
  cron:
    - 30 2 * * * # weekdays
    - "0 12 * * SAT"
  only: [mon-fri, "09:00-17:00"]
  except: holidays
  timezone: Europe/Berlin
run: {shell: "true"}
place: {labels: {zone: de}, strategy: first}
`,
		"other jobs":   "name: a\nschedule:\n  on:\n    - b\n    - {job: c, outcome: finished} # whatever it does\nrun: {shell: {command: make, args: [all]}, env: {A: b}}\n",
		"times":        "name: a\nschedule: {at: [2027-01-31T09:00:00+01:00], delete_after: 1h}\nrun: {http: {url: https://example.com, headers: {A: b}}}\n",
		"short forms":  "name: a\nschedule: 0 3 * * *\nrun: echo\n",
		"a chain":      "name: a\nschedule: {after_end: 5m, max_runs: 3}\nrun: {handler: {name: orders}}\n",
		"a flow":       "name: a\nrun:\n  flow:\n    steps:\n      - {name: x, run: {shell: \"true\"}}\n",
		"what is none": "name: a\nlabels: {a: b, c: \"\"}\nrun: {shell: \"true\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			list, err := job.Decode("", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			work := list[0].Job.Run.Work()
			want := canonical(t, text)
			for i := range editFields {
				f := &editFields[i]
				value, ok := fieldOf(text, f.in(text), f.as)
				if !f.isOf(work) || !ok || value == "" {
					continue
				}
				again, err := setField(text, f.in(text), f.as, value)
				if err != nil {
					t.Fatalf("%s: %v", f.path, err)
				}
				if got := canonical(t, again); got != want {
					t.Errorf("with %s as it was the document is\n%s\nwant\n%s", f.path, got, want)
				}
				if strings.Count(again, "#") != strings.Count(text, "#") {
					t.Errorf("with %s as it was a comment is gone:\n%s", f.path, again)
				}
			}
		})
	}
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	list, err := job.Decode("", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var b bytes.Buffer
	if err := job.Encode(&b, list, job.YAML); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFieldsOfTheFormChangeOnlyTheirOwnLines(t *testing.T) {
	for _, c := range []struct {
		text, path string
		as         fieldForm
		value      string
		want       string
	}{
		{"schedule: 0 3 * * *\n", "schedule.cron", asList, "0 4 * * *", "schedule: 0 4 * * *\n"},
		{"schedule: 0 3 * * *\n", "schedule.cron", asList, "0 3 * * *\n0 5 * * *\n", "schedule:\n  cron:\n    - 0 3 * * *\n    - 0 5 * * *\n"},
		{"schedule:\n  cron:\n    - 0 3 * * * # early\n    - 0 4 * * *\n", "schedule.cron", asList, " 0 3 * * * \n\n0 5 * * *", "schedule:\n  cron:\n    - 0 3 * * * # early\n    - 0 5 * * *\n"},
		{"schedule: {on: [a]}\n", "schedule.on", asList, "a\nb failed", "schedule: {on: [a, {job: b, outcome: failed}]}\n"},
		{"labels:\n  a: b # one\n  c: d\n", "labels", asPairs, "a=b\ne = f=g\na=again", "labels:\n  a: b # one\n  e: f=g\n"},
		{"labels: {a: b}\nname: x\n", "labels", asPairs, "\n", "name: x\n"},
		{"place: {shards: 2}\n", "place.shards", asScalar, "3", "place: {shards: 3}\n"},
		{"schedule: {boot: true}\n", "schedule.boot", asScalar, "false", "schedule: {boot: false}\n"},
	} {
		if got, err := setField(c.text, c.path, c.as, c.value); err != nil || got != c.want {
			t.Errorf("%q with %s %q is %q (%v), want %q", c.text, c.path, c.value, got, err, c.want)
		}
	}
}

// What the form cannot show stays in the document, and its field says so.
func TestFormSaysWhatOnlyTheDocumentHas(t *testing.T) {
	p := &page{lang: i18n.English}
	for text, path := range map[string]string{
		"labels: {a: {b: c}}\n":            "labels",
		"schedule: {cron: [{a: b}]}\n":     "schedule.cron",
		"schedule: {on: {job: x, y: z}}\n": "schedule.on",
		"description: [a, b]\n":            "description",
	} {
		for i := range editFields {
			if f := &editFields[i]; f.path == path {
				field := p.editField(f, text, nil)
				if !field.Elsewhere || field.Value != "" || field.Example != "written in the document" {
					t.Errorf("the field of %q is %+v", text, field)
				}
			}
		}
	}
}

// A crontab that is imported on a Chinese page is explained in Chinese.
func TestNotesOfImportedLinesAreInTheLanguageOfThePage(t *testing.T) {
	const lines = `MAILTO=ops@example.com
2BAD=x
30 2 * * 1-5 /usr/local/bin/report.sh
@reboot /usr/local/bin/warm-cache
0~30 4 * * * /usr/local/bin/spread
5 4 * * * echo 'a\\b'
1 2 3
0 0 30 2 * never
RANDOM_DELAY=often
5 5 * * * late
RANDOM_DELAY=0
5 5 * * friday sudo late`
	p := &page{lang: i18n.Chinese}
	fields := 0
	for _, line := range crontab.Import(lines, crontab.Options{Format: crontab.FormatOf("crontab"), Zone: "UTC"}) {
		for _, note := range append(line.Notes, line.Problem) {
			if note.IsZero() {
				continue
			}
			fields++
			if got := clean(note.In(string(p.lang))); !strings.ContainsFunc(got, func(c rune) bool { return unicode.Is(unicode.Han, c) }) {
				t.Errorf("line %d is explained with %q", line.Number, got)
			}
		}
	}
	if fields < 10 {
		t.Errorf("%d things are said of the lines", fields)
	}
}

// The reason of a pause is in the language of the reader, also where the status comes from a document.
func TestThePauseOfADocumentIsSaidInChinese(t *testing.T) {
	why := reason.PausedByFailure.Of(3, job.ID{7})
	_, args := why.For()
	p := &page{lang: i18n.Chinese}
	got := p.pauseReason(&job.Status{PauseReason: why.String(), PauseCode: why.Code(), PauseArgs: args.Texts()})
	if want := reason.In(reason.Chinese, why, nil); got != want {
		t.Errorf("the page says %q, want %q", got, want)
	}
}
