package crontab_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/job"
)

var update = flag.Bool("update", false, "write the jobs that the files of test/crontabs make into them")

// TestFilesMakeExactlyTheseJobs reads the files of test/crontabs: the comment of each has
// options, its part "in" the file to import, and its part "out" what must come of it.
func TestFilesMakeExactlyTheseJobs(t *testing.T) {
	files, err := filepath.Glob("../../../test/crontabs/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, want := part(archive, "in"), part(archive, "out")
			got := imported(t, string(in.Data), options(t, string(archive.Comment)))
			if *update {
				want.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want.Data) {
				t.Errorf("got\n%s\nwant\n%s", got, want.Data)
			}
		})
	}
}

func part(a *txtar.Archive, name string) *txtar.File {
	for i := range a.Files {
		if a.Files[i].Name == name {
			return &a.Files[i]
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name})
	return &a.Files[len(a.Files)-1]
}

// options reads lines such as "format: user". The default is a user alice
// in Berlin.
func options(t *testing.T, comment string) crontab.Options {
	opt := crontab.Options{
		Format: crontab.User, Owner: "alice", Zone: "Europe/Berlin",
		Home: func(user string) string {
			if user == "root" {
				return "/root"
			}
			return "/home/" + user
		},
	}
	for line := range strings.Lines(comment) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		switch key {
		case "format":
			if opt.Format = crontab.Format(value); opt.Format != crontab.User {
				opt.Owner = ""
			}
		case "user":
			opt.Owner = value
		case "zone":
			opt.Zone = value
		case "host":
			opt.Host = value
		case "unit":
			opt.Unit = value
		case "home":
			opt.Home = nil
		case "scripts":
			opt.Scripts = func(string) []string { return strings.Fields(value) }
		default:
			t.Fatalf("unknown option %q", key)
		}
	}
	return opt
}

// imported writes what a file makes: documents, and the notes and problems of lines.
func imported(t *testing.T, text string, opt crontab.Options) string {
	var b bytes.Buffer
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, l := range crontab.Import(text, opt) {
		fmt.Fprintf(&b, "# line %d\n", l.Number)
		for _, note := range l.Notes {
			fmt.Fprintf(&b, "# note: %s\n", note)
		}
		if !l.Problem.IsZero() {
			fmt.Fprintf(&b, "# no job: %s\n", l.Problem)
			if len(l.Documents) > 0 {
				t.Errorf("line %d has both a problem and documents", l.Number)
			}
		}
		for _, d := range l.Documents {
			if err := d.Validate(job.Now(now)); err != nil {
				t.Errorf("line %d makes a job that is refused: %v", l.Number, err)
			}
		}
		if len(l.Documents) > 0 {
			if err := job.Encode(&b, l.Documents, job.YAML); err != nil {
				t.Fatal(err)
			}
			if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// TestImportedJobsComeBackAsLines exports what was imported, and imports that again.
func TestImportedJobsComeBackAsLines(t *testing.T) {
	text := "SHELL=/bin/bash\nMAILTO=ops\n*/5 1-3 * jan 1-5 echo \\%H \"{{ x }}\"%in 1%in 2\n@daily cd /srv && ./run\n0 4 1,15 * 5 true\n@reboot ./start\n"
	opt := options(t, "")
	first := crontab.Import(text, opt)
	var jobs []*job.Job
	for _, l := range first {
		for _, d := range l.Documents {
			jobs = append(jobs, d.Job)
		}
	}
	exported := crontab.Export(jobs, crontab.User, job.Defaults{})
	var again []*job.Job
	for _, l := range crontab.Import(exported, opt) {
		if !l.Problem.IsZero() {
			t.Errorf("line %d of\n%s\n%s", l.Number, exported, l.Problem)
		}
		for _, d := range l.Documents {
			again = append(again, d.Job)
		}
	}
	if len(again) != len(jobs) {
		t.Fatalf("%d jobs became %d:\n%s", len(jobs), len(again), exported)
	}
	byName := map[string]*job.Job{}
	for _, j := range again {
		byName[j.Name] = j
	}
	for _, j := range jobs {
		other := byName[j.Name]
		if other == nil {
			t.Errorf("%s is gone:\n%s", j.Name, exported)
			continue
		}
		if other.Run.Shell.Command != j.Run.Shell.Command || other.Run.Shell.Stdin != j.Run.Shell.Stdin || other.Run.Shell.Dir != j.Run.Shell.Dir {
			t.Errorf("%s became %+v %q", j.Name, other.Run.Shell, other.Run.Shell.Stdin)
		}
	}
}

func TestExportNotesLossesInACrontab(t *testing.T) {
	name := func(n string) *job.Job {
		return &job.Job{Name: n, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}, Schedule: job.Schedule{Cron: []string{"0 1 * * *"}}}
	}
	seconds, template, http, every, paused := name("seconds"), name("template"), name("http"), name("every"), name("paused")
	seconds.Schedule.Cron = []string{"*/10 * * * * *"}
	template.Run.Shell.Command = "echo {{ .Scheduled }}"
	http.Run = job.RunSpec{HTTP: &job.HTTP{URL: "http://example.org"}}
	every.Schedule = job.Schedule{Every: job.Duration(time.Minute)}
	paused.Paused = true
	got := crontab.Export([]*job.Job{name("plain"), seconds, template, http, every, paused}, crontab.User, job.Defaults{})
	for _, want := range []string{
		"# default/plain\n0 1 * * * true\n",
		"# default/seconds\n#   left out: a crontab cannot say \"*/10 * * * * *\"\n",
		"# default/template\n#   left out: it has templates\n",
		"# default/http\n#   left out: it does not run a command\n",
		"# default/every\n#   left out: it has no cron expression\n",
		"# default/paused\n#   left out: it is paused\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
}

func TestALastLineWithoutAnEndIsNoted(t *testing.T) {
	lines := crontab.Import("@daily a\n@daily b", options(t, ""))
	if len(lines) != 2 || len(lines[0].Notes) != 0 || len(lines[1].Notes) != 1 || !strings.Contains(lines[1].Notes[0].String(), "no end of line") {
		t.Errorf("got %+v", lines)
	}
}

func TestLinesAreCommentedOut(t *testing.T) {
	got := crontab.CommentOut("A=1\n* * * * * a\n\n@daily b", map[int]bool{2: true, 4: true})
	if want := "A=1\n#belfry# * * * * * a\n\n#belfry# @daily b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzImport(f *testing.F) {
	f.Add("* * * * * a%b\\%c", 0)
	f.Add("-", 0)
	f.Add("1 5 id cmd\nSTART_HOURS_RANGE=3-22", 2)
	f.Add("[Timer]\nOnCalendar=Mon..Fri *-*-1..7 10:00:00 Europe/Paris", 3)
	f.Fuzz(func(t *testing.T, text string, format int) {
		opt := options(t, "")
		opt.Unit = "x.service"
		formats := crontab.Formats()
		opt.Format = crontab.Format(formats[uint(format)%uint(len(formats))])
		for _, l := range crontab.Import(text, opt) {
			if (l.Problem.IsZero()) == (len(l.Documents) == 0) {
				t.Errorf("line %d: problem %q with %d documents", l.Number, l.Problem, len(l.Documents))
			}
		}
	})
}
