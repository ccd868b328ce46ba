package crontab_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/job"
)

// An administrator installs what is exported, so that nothing in a job of a namespace may
// become a line or a setting of its own.
func TestExportWritesNoLineThatAJobChooses(t *testing.T) {
	line := "* * * * * root touch /tmp/pwned"
	daily := job.Schedule{Cron: []string{"0 3 * * *"}}
	of := func(name string, shell job.Shell) *job.Job {
		if shell.Command == "" {
			shell.Command = "true"
		}
		shell.User = "www-data"
		return &job.Job{Name: name, Run: job.RunSpec{Shell: &shell}, Schedule: daily}
	}
	for _, c := range []struct {
		reason string
		shell  job.Shell
	}{
		{"a crontab cannot say the value of its variable A", job.Shell{Env: map[string]string{"A": "x\n" + line + "\nB=y"}}},
		{"a crontab cannot say the value of its variable A", job.Shell{Env: map[string]string{"A": "x\r" + line}}},
		{"a crontab cannot say the value of its variable A", job.Shell{Env: map[string]string{"A": `"it's"`}}},
		{"a name in its env is not", job.Shell{Env: map[string]string{"A=1\n" + line: "x"}}},
		{"its variable SHELL would be a setting of cron", job.Shell{Env: map[string]string{"SHELL": "/tmp/evil"}}},
		{"its variable CRON_TZ would be a setting of cron", job.Shell{Env: map[string]string{"CRON_TZ": "Asia/Tokyo"}}},
		{"a crontab cannot say its dir", job.Shell{Dir: "/tmp\n" + line}},
		{"its dir is not its HOME", job.Shell{Dir: "/tmp", Env: map[string]string{"HOME": "/srv"}}},
		{"a crontab cannot say its interpreter", job.Shell{Interpreter: []string{"/bin/sh\n" + line}}},
		{"its command has several lines", job.Shell{Command: "true\n" + line}},
		{"its command has control characters", job.Shell{Command: "true\r" + line}},
		{"its command has control characters", job.Shell{Command: "true\x1b[2J"}},
		{"its stdin has control characters", job.Shell{Stdin: "a\rb"}},
		{"a crontab would read a backslash of its command", job.Shell{Command: `date +\%H`}},
		{"a crontab would read a backslash of its stdin", job.Shell{Command: `echo \`, Stdin: "a"}},
		{"a crontab would read a backslash of its stdin", job.Shell{Command: "cat", Stdin: "a\\\nb"}},
	} {
		for _, format := range []crontab.Format{crontab.User, crontab.System} {
			got := crontab.Export([]*job.Job{of("evil", c.shell), of("other", job.Shell{})}, format, job.Defaults{})
			if !strings.Contains(got, "# default/evil\n#   left out: "+c.reason) || strings.Contains(got, "pwned") || !strings.Contains(got, " true\n") {
				t.Errorf("%+v: want %q in\n%s", c.shell, c.reason, got)
			}
		}
	}
	user := of("user", job.Shell{})
	user.Run.Shell.User = "root touch"
	zone := of("zone", job.Shell{})
	zone.Schedule.Timezone = "UTC\n" + line
	start := of("start", job.Shell{})
	start.Run.Shell.Command, start.Run.Shell.User, start.Schedule = "=x", "", job.Schedule{Boot: true}
	described := of("described", job.Shell{})
	described.Name, described.Description = "x\n"+line, "first\r"+line+"\x1b[2J"
	if got := crontab.Export([]*job.Job{user, zone, described}, crontab.System, job.Defaults{}); strings.Contains(got, "\n"+line) || strings.Contains(got, "root touch true") ||
		strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
		t.Errorf("got\n%s", got)
	}
	if got := crontab.Export([]*job.Job{start}, crontab.User, job.Defaults{}); !strings.Contains(got, "left out: its command begins with =") {
		t.Errorf("got\n%s", got)
	}
}

// A setting of a crontab holds for all lines below it.
func TestExportedSettingsHoldForNoOtherJob(t *testing.T) {
	of := func(name, shell string, env map[string]string) *job.Job {
		j := &job.Job{Name: name, Run: job.RunSpec{Shell: &job.Shell{Command: "run " + name, User: "root", Env: env}}, Schedule: job.Schedule{Cron: []string{"0 3 * * *"}}}
		if shell != "" {
			j.Run.Shell.Interpreter = []string{shell}
		}
		return j
	}
	got := crontab.Export([]*job.Job{
		of("a", "/bin/bash", map[string]string{"LD_PRELOAD": "/tmp/evil.so"}),
		of("b", "", nil),
		of("c", "", map[string]string{"PATH": "/usr/bin"}),
		of("d", "", map[string]string{"LD_PRELOAD": "", "PATH": "/bin"}),
	}, crontab.System, job.Defaults{})
	const want = `# default/c
#   left out: other jobs set LD_PRELOAD, which a crontab cannot unset for this one: export it apart, with --label

CRON_TZ=UTC
# default/b
0 3 * * * root run b

SHELL=/bin/bash
CRON_TZ=UTC
LD_PRELOAD=/tmp/evil.so
# default/a
0 3 * * * root run a

SHELL=/bin/sh
CRON_TZ=UTC
LD_PRELOAD=""
PATH=/bin
# default/d
0 3 * * * root run d
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzExport exports two jobs and imports them again: the same jobs come back, and no more.
func FuzzExport(f *testing.F) {
	f.Add("true", "x\n* * * * * root true\nB=y", "/srv", "", "/bin/sh", "A", "text", false, false)
	f.Add(`a\\%b`, `"quoted"`, "/tmp\r\n@reboot root x", "1\n2\\\n3", "/bin/bash", "HOME", "a\nb", true, false)
	f.Add("=x", " blank ", "", "\n\n", "", "MAILTO", "{{", false, true)
	f.Add(`{{ "{{" }} \`, `'`, "/", "%", "", "SHELL", "\x00", true, true)
	f.Fuzz(func(t *testing.T, command, value, dir, stdin, shell, name, description string, system, boot bool) {
		format := crontab.User
		if system {
			format = crontab.System
		}
		one := &job.Job{Name: "one", Description: description, Run: job.RunSpec{Shell: &job.Shell{Command: command, Dir: dir, Stdin: stdin, User: "ann", Env: map[string]string{name: value}}}}
		two := &job.Job{Name: "two", Run: job.RunSpec{Shell: &job.Shell{Command: value, Dir: value, User: "root", Args: []string{command}}}}
		three := &job.Job{Name: "three", Run: job.RunSpec{Shell: &job.Shell{Command: "three", User: "root"}}}
		if shell != "" {
			one.Run.Shell.Interpreter = []string{shell}
		}
		for _, j := range []*job.Job{one, two, three} {
			if j.Schedule.Cron = []string{"0 3 * * 1"}; boot {
				j.Schedule = job.Schedule{Boot: true}
			}
		}
		exported := crontab.Export([]*job.Job{one, two, three}, format, job.Defaults{})
		if strings.ContainsFunc(exported, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Fatalf("control characters in\n%q", exported)
		}
		key := func(j *job.Job, withCommand bool) string {
			s := j.Run.Shell
			env := maps.Clone(s.Env)
			if env == nil {
				env = map[string]string{}
			}
			home := s.Dir // which is no template
			if home == "" {
				home = strings.ReplaceAll(env["HOME"], `{{ "{{" }}`, "{{")
			}
			delete(env, "HOME")
			interpreter := slices.DeleteFunc(slices.Clone(s.Interpreter), func(s string) bool { return s == "/bin/sh" })
			text := fmt.Sprintf("%q %q %q %v", home, env, interpreter, j.Schedule.Boot)
			if system {
				text += " " + s.User
			}
			if withCommand {
				text += fmt.Sprintf(" %q %q", strings.TrimLeft(s.Command, " \t"), strings.TrimSuffix(s.Stdin, "\n"))
			}
			return text
		}
		left := map[string]bool{} // jobs that may come back once
		heads := 0
		for text := range strings.Lines(exported) {
			switch {
			case strings.HasPrefix(text, "#   left out: "):
				heads--
			case strings.HasPrefix(text, "# default/one"):
				heads++
				left[key(one, true)] = true
			case strings.HasPrefix(text, "# default/two"):
				heads++
				left[key(two, false)] = true
			case strings.HasPrefix(text, "# default/three"):
				heads++
				left[key(three, true)] = true
			}
		}
		came := 0
		for _, l := range crontab.Import(exported, crontab.Options{Format: format}) {
			if !l.Problem.IsZero() {
				t.Fatalf("line %d of\n%s\n%s", l.Number, exported, l.Problem)
			}
			for _, d := range l.Documents {
				came++
				if !left[key(d.Job, true)] && !left[key(d.Job, false)] {
					t.Fatalf("no job exported was %s, only %q:\n%s", key(d.Job, true), slices.Collect(maps.Keys(left)), exported)
				}
			}
		}
		if came != heads {
			t.Fatalf("%d jobs became %d:\n%s", heads, came, exported)
		}
	})
}
