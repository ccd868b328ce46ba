package job_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// now is when the sample documents are judged.
var now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// samples returns the sample files of a directory, by name.
func samples(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", dir, "*.[yj]*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no samples in %s: %v", dir, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = data
	}
	return files
}

func decode(t testing.TB, file string, text string) []job.Document {
	t.Helper()
	docs, err := job.Decode(file, []byte(text))
	if err != nil {
		t.Fatalf("Decode(%s): %v", file, err)
	}
	return docs
}

// compareGolden compares with a file, which UPDATE=1 writes.
func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (UPDATE=1 go test ./job writes it):\n got: %s\nwant: %s", file, got, want)
	}
}

func TestGoodSamplesAreAccepted(t *testing.T) {
	for name, data := range samples(t, "good") {
		docs, err := job.Decode(name, data)
		if err != nil {
			t.Error(err)
		}
		for _, doc := range docs {
			if err := doc.Validate(job.Now(now)); err != nil {
				t.Error(err)
			}
		}
	}
}

// Each bad sample has a file of the same name with the messages about it.
func TestBadSamplesAreExplained(t *testing.T) {
	for name, data := range samples(t, "bad") {
		docs, err := job.Decode(name, data)
		var lines []string
		if err != nil {
			lines = append(lines, err.Error())
		}
		for _, doc := range docs {
			if err := doc.Validate(job.Now(now)); err != nil {
				lines = append(lines, err.Error())
			}
		}
		if lines == nil {
			t.Errorf("%s: no problem was found", name)
			continue
		}
		golden := filepath.Join("testdata", "bad", strings.TrimSuffix(name, filepath.Ext(name))+".problems")
		compareGolden(t, golden, []byte(strings.Join(lines, "\n")+"\n"))
	}
}

func TestDecodeReversesEncode(t *testing.T) {
	for name, data := range samples(t, "good") {
		docs := decode(t, name, string(data))
		for _, format := range []job.Format{job.YAML, job.JSON} {
			var b bytes.Buffer
			if err := job.Encode(&b, docs, format); err != nil {
				t.Fatal(err)
			}
			again := decode(t, "again."+string(format), b.String())
			if len(again) != len(docs) {
				t.Fatalf("%s as %s: %d documents became %d", name, format, len(docs), len(again))
			}
			for i := range docs {
				if !same(again[i], docs[i]) {
					t.Errorf("%s as %s: document %d changed:\n%s", name, format, i, b.String())
				}
			}
		}
	}
}

// same reports whether documents are equal, wherever they come from.
func same(a, b job.Document) bool {
	return a.Kind == b.Kind && reflect.DeepEqual(a.Job, b.Job) && reflect.DeepEqual(a.Calendar, b.Calendar) && reflect.DeepEqual(a.Pool, b.Pool)
}

func TestEncodeKeepsItsForm(t *testing.T) {
	docs := decode(t, "everything.yaml", string(samples(t, "good")["everything.yaml"]))
	for _, format := range []job.Format{job.YAML, job.JSON} {
		var b bytes.Buffer
		if err := job.Encode(&b, docs, format); err != nil {
			t.Fatal(err)
		}
		compareGolden(t, filepath.Join("testdata", "encoded."+string(format)), b.Bytes())
	}
}

func TestEncodeRefusesAnUnknownFormat(t *testing.T) {
	if err := job.Encode(&bytes.Buffer{}, nil, "toml"); err == nil {
		t.Error("toml was accepted")
	}
}

func TestYAMLKeepsTextsAsTheyAreWritten(t *testing.T) {
	docs := decode(t, "yaml-traps.yaml", string(samples(t, "good")["yaml-traps.yaml"]))
	if len(docs) != 2 {
		t.Fatalf("%d documents, want 2: what is only a comment is none", len(docs))
	}
	j := docs[0].Job
	want := map[string]string{
		"ON": "on", "NO": "no", "TIME": "12:30", "DATE": "2026-10-01", "OCTAL": "010", "FLOAT": "1.10", "EMPTY": "", "TILDE": "~",
	}
	if !reflect.DeepEqual(j.Run.Shell.Env, want) {
		t.Errorf("env is %q, want %q", j.Run.Shell.Env, want)
	}
	if j.Name != "007" || j.Schedule.On[0].Job != "no" || *j.Run.Shell.Umask != 0o22 || j.Policy.Retry.On[0] != job.RetryLost {
		t.Errorf("got name %q, on %q, umask %o, retry on %q", j.Name, j.Schedule.On, *j.Run.Shell.Umask, j.Policy.Retry.On)
	}
	if env := docs[1].Job.Run.Shell.Env["SAME"]; env != "echo 12:30" {
		t.Errorf("the alias gave %q", env)
	}
}

func TestJSONMayHoldSeveralDocuments(t *testing.T) {
	var names []string
	for _, doc := range decode(t, "", string(samples(t, "good")["many.json"])) {
		names = append(names, doc.FullName())
	}
	if got := strings.Join(names, " "); got != "default/a default/b default/c default/d" {
		t.Errorf("got %s", got)
	}
}

// Standard input has no extension: its content shows the format.
func TestYAMLMayBeginWithABracket(t *testing.T) {
	for _, text := range []string{
		"{name: a, run: {shell: x}}", "\n{ 'name': a, run: {shell: x}}", "[{name: a, run: {shell: x}}]", "[ {\"name\": \"a\", \"run\": {\"shell\": \"x\"}} ]",
	} {
		docs, err := job.Decode("", []byte(text))
		if err != nil || len(docs) != 1 || docs[0].FullName() != "default/a" {
			t.Errorf("%s: %v, %+v", text, err, docs)
		}
	}
	for text, want := range map[string]string{
		`{"name": "a",}`: "is not valid JSON", "[]]": "is not valid JSON", "{": "is not valid JSON", "{name: a": "is not valid YAML",
	} {
		if _, err := job.Decode("", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestValidateReportsFurtherMistakes reads documents with mistakes for Decode and others for
// Validate, and some that only seem to follow.
func TestValidateReportsFurtherMistakes(t *testing.T) {
	for _, c := range []struct {
		what, text string
		want       []string // the paths that Validate reports
	}{
		{
			"an enumeration that is not known, and a minute",
			"name: a\nschedule: {cron: \"61 * * * *\"}\nrun: {shell: x}\npolicy: {overlap: skp}\n",
			[]string{"schedule.cron"},
		},
		{
			"a misspelt field does not make the one that it means missing",
			"name: a\nschedule: {timezone: Europe/Berln}\nrun: {shel: x}\n",
			[]string{"schedule.timezone"},
		},
		{
			"what is only valid with the mistaken value is not judged",
			"name: a\nrun: {shell: x}\npolicy: {overlap: queu, queue_limit: 3, priority: 1000}\n",
			[]string{"policy.priority"},
		},
		{
			"a field of nowhere hides nothing",
			"name: a\ncolour: red\nrun: {shell: x, nice: 99}\n",
			[]string{"run.nice"},
		},
	} {
		docs, err := job.Decode("x.yaml", []byte(c.text))
		if err == nil || len(docs) != 1 {
			t.Fatalf("%s: %d documents, error %v", c.what, len(docs), err)
		}
		var problems job.Problems
		errors.As(docs[0].Validate(), &problems)
		var got []string
		for _, p := range problems {
			got = append(got, p.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: reported %v, want %v", c.what, problems, c.want)
		}
	}
}

func TestDecodeExplains(t *testing.T) {
	for _, c := range []struct{ what, file, text, want string }{
		{"a misspelt field", "j.yaml", "name: a\npolicy:\n  overlapp: skip\n",
			`j.yaml:3:3: policy.overlapp: unknown field "overlapp" (did you mean "overlap"?)`},
		{"a field of nowhere", "j.yaml", "name: a\npool: {sizes: 3}\n",
			`j.yaml:2:1: pool: unknown field "pool" (known: `},
		{"a value of an enumeration", "jobs.yaml", "name: a\nrun: {shell: x}\npolicy:\n  # a comment\n\n  missed: none\n  overlap: skp\n",
			`jobs.yaml:7:12: policy.overlap: "skp" is not known; allowed: skip, queue, replace, allow (did you mean "skip"?)`},
		{"a list for a duration", "j.yaml", "policy: {timeout: [1]}", `j.yaml:1:19: policy.timeout: expected a duration such as 90s, found a list`},
		{"a number without a unit", "j.yaml", "policy: {timeout: 90}", `"90" has a number without a unit (w, d, h, m, s or ms, for example 90s)`},
		{"a text for a number", "j.yaml", `policy: {priority: "5"}`, `policy.priority: expected a whole number, found the text "5"`},
		{"a fraction for a whole number", "j.yaml", `policy: {priority: 5.5}`, `policy.priority: expected a whole number, found "5.5"`},
		{"a word for a truth value", "j.yaml", "paused: yes", `paused: expected true or false, found "yes"`},
		{"a text for a mapping", "j.yaml", "policy: skip", `policy: expected a mapping, found "skip"`},
		{"a list for a text or mapping", "j.yaml", "run: {shell: [a]}", `run.shell: expected a text or a mapping, found a list`},
		{"a text for named values", "j.yaml", "labels: a", `labels: expected a mapping of names, found "a"`},
		{"a list for a text", "j.yaml", "name: [a]", `name: expected a text, found a list`},
		{"a list for an instant", "j.yaml", `schedule: {start: [1]}`, `expected an instant such as 2026-10-01T09:00:00+02:00, found a list`},
		{"a list for a size", "j.yaml", `run: {shell: x, limits: {memory: [1]}}`, `expected a size such as 64MiB, found a list`},
		{"a list for a umask", "j.yaml", `run: {shell: x, umask: [1]}`, `expected octal digits such as 022, found a list`},
		{"a list for an id", "j.yaml", `uid: [1]`, `expected an id of 26 letters and digits, found a list`},
		{"a list for a choice", "j.yaml", `policy: {missed: [all]}`, `expected one of none, latest, all, found a list`},
		{"a mapping for a number", "j.yaml", `policy: {retry: {factor: {a: 1}}}`, `expected a number, found a mapping`},
		{"no number", "j.yaml", `policy: {retry: {factor: .nan}}`, `expected a number, found ".nan"`},
		{"a date for an instant", "j.yaml", `schedule: {start: 2026-10-01}`, `2026-10-01T00:00:00Z or 2026-10-01T00:00:00+02:00`},
		{"the year 1", "j.yaml", `schedule: {start: 0001-01-01T00:00:00Z}`, `is too early`},
		{"a long text", "j.yaml", `policy: {timeout: "` + strings.Repeat("ä", 100) + `"}`, strings.Repeat("ä", 40) + `"… is not a duration`},
		{"nothing in a list", "j.yaml", "schedule: {cron: [~]}", `schedule.cron[0]: expected a text, found nothing`},
		{"an empty list", "j.yaml", "schedule: {only: []}", `schedule.only: is an empty list (leave the field out)`},
		{"a local time", "j.yaml", "schedule: {at: 2026-10-01 09:00}",
			`"2026-10-01 09:00" is not an instant (a date, a time and an offset: 2026-10-01T09:00:00Z or 2026-10-01T09:00:00+02:00)`},
		{"a zero below the bound", "j.yaml", "schedule: {max_runs: 0}", `schedule.max_runs: must be between 1 and 1000000000, found 0`},
		{"a key given twice", "j.yaml", "name: a\nname: b\n", `j.yaml:2:1: name: is given twice, first on line 1`},
		{"a key of a map given twice", "j.yaml", "labels:\n  a: 1\n  a: 2\n", `j.yaml:3:3: labels.a: is given twice, first on line 2`},
		{"a key given twice in JSON", "", "{\"name\": \"a\",\n \"name\": \"b\"}", `2:2: name: is given twice, first on line 1`},
		{"a kind given twice", "j.yaml", "kind: job\nkind: pool\n", `j.yaml:2:1: kind: unknown field "kind"`},
		{"an unknown kind", "j.yaml", "kind: jobs", `j.yaml:1:7: kind: "jobs" is not known; allowed: job, calendar, pool, window, channel, hook, executors (did you mean "job"?)`},
		{"a strange key", "j.yaml", `labels: {"a b": [1]}`, `labels["a b"]: expected a text, found a list`},
		{"a document that is a text", "j.yaml", "hello", `j.yaml:1:1: expected a mapping, found "hello"`},
		{"tabs", "j.yaml", "name: a\nrun:\n\tshell: x\n", `is not valid YAML: found character that cannot start any token (YAML is indented with spaces`},
		{"a star without quotes", "j.yaml", "schedule: {cron: * * * * *}", `text that begins with * or & needs quotes`},
		{"a merge key", "j.yaml", "run: &r {shell: x}\npolicy:\n  <<: *r\n", `j.yaml:3:3: merge keys (<<) are not part of YAML 1.2`},
		{"a tag", "j.yaml", "name: !secret a", `the tag "!secret" has no meaning here`},
		{"JSON with a stray comma", "j.json", "{\"name\": \"a\",\n}", `j.json:2:1: is not valid JSON: `},
		{"JSON that ends too early", "j.json", `{"name": "a"`, `j.json:1:13: is not valid JSON: it ends too early`},
		{"a place in JSON", "", "{\"name\": \"ä\", \"policy\": {\"overlap\":\n  \"skp\"}, \"x\": 1}", "2:3: policy.overlap: \"skp\" is not known"},
		{"a column in JSON", "", `{"name": "ä", "pausd": true}`, `1:15: pausd: unknown field`},
		{"bytes that are no UTF-8", "j.yaml", "name: \xff", "is not encoded in UTF-8"},
	} {
		_, err := job.Decode(c.file, []byte(c.text))
		if err == nil {
			t.Errorf("%s: accepted", c.what)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %s\nwant %s", c.what, err, c.want)
		}
	}
}

func TestDecodeReportsAllProblemsInTheOrderOfTheText(t *testing.T) {
	_, err := job.Decode("j.yaml", []byte("nam: a\npaused: maybe\npolicy:\n  overlap: skp\n  timeout: soon\n---\nkind: jb\n"))
	var problems job.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if want := []int{1, 2, 4, 5, 7}; !reflect.DeepEqual(lines, want) {
		t.Errorf("lines %v, want %v:\n%v", lines, want, err)
	}
}

func TestDocumentsHaveFullNames(t *testing.T) {
	for want, doc := range map[string]job.Document{
		"default/a": {Job: &job.Job{Name: "a"}},
		"x/b":       {Calendar: &job.Calendar{Namespace: "x", Name: "b"}},
		"default/c": {Pool: &job.Pool{Name: "c"}},
		"":          {},
	} {
		if got := doc.FullName(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDecodeIsBounded(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		prev := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+prev+", ", 9) + "*" + prev + "]\n"
	}
	for _, c := range []struct{ what, file, text, want string }{
		{"deep JSON", "j.json", strings.Repeat("[", 10_000), "more than 32 levels deep"},
		{"deep YAML", "j.yaml", strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), "more than 32 levels deep"},
		{"aliases of aliases", "j.yaml", bomb, "aliases repeat more than"},
		{"an alias of what it is in", "j.yaml", "a: &a [*a]", "more than 32 levels deep"},
		{"a large file", "j.yaml", strings.Repeat("#", 17<<20), "at most 16777216 are allowed"},
	} {
		if _, err := job.Decode(c.file, []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.200v", c.what, err)
		}
	}
}

func TestAllMistakesOfSettingsAreReportedAtOnce(t *testing.T) {
	const text = "policy:\n  priority: 200\n  late: 2h\n  missed_limit: x\n  overlap: skp\n  max_parallel: 0\n"
	var defaults job.Defaults
	var problems job.Problems
	if err := job.DecodeSettings("c.yaml", []byte(text), &defaults); !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d %s", p.Line, p.Path))
	}
	want := "2 policy.priority, 3 policy.late, 4 policy.missed_limit, 5 policy.overlap, 6 policy.max_parallel"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestSettingsAreReadByTheRulesOfDocuments(t *testing.T) {
	for _, c := range []struct{ what, text, want string }{
		{"settings", "timezone: Europe/Berlin\npolicy: {late_by: 2h, retry: {attempts: 0}}\n", ""},
		{"nothing", "# only a comment\n", ""},
		{"an unknown field", "policy: {late: 2h}", `c.yaml:1:10: policy.late: unknown field "late"`},
		{"a number beyond its bounds", "policy: {priority: 200}", "c.yaml:1:20: policy.priority: must be between -100 and 100, found 200"},
		{"two documents", "timezone: UTC\n---\ntimezone: UTC\n", "c.yaml:3:1: is a second document"},
		{"a mistake of notation", "timezone: [", "is not valid YAML"},
	} {
		var defaults job.Defaults
		err := job.DecodeSettings("c.yaml", []byte(c.text), &defaults)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %s", c.what, err, c.want)
		}
	}
}

func TestPlainTextIsAScheduleOrACommand(t *testing.T) {
	for short, long := range map[string]string{
		`{name: a, schedule: "*/5 * * * *", run: ls -l}`: `{name: a, schedule: {cron: "*/5 * * * *"}, run: {shell: ls -l}}`,
	} {
		got, want := decode(t, "a.yaml", short)[0], decode(t, "a.yaml", long)[0]
		if !reflect.DeepEqual(got.Job, want.Job) {
			t.Errorf("%s is %+v, want %+v", short, got.Job, want.Job)
		}
		var text strings.Builder
		if err := job.Encode(&text, []job.Document{got}, job.YAML); err != nil {
			t.Fatal(err)
		}
		// Programs that read the output need not support the short form.
		if !strings.Contains(text.String(), "\nschedule:\n  cron:") || !strings.Contains(text.String(), "\nrun:\n  shell:") {
			t.Errorf("%s is written as\n%s", short, text.String())
		}
	}
}
