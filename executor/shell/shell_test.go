package shell

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the waits of tests for events that should take milliseconds.
const patience = 5 * time.Minute

// newExecutor makes an executor that may use every user.
func newExecutor(t testing.TB, change ...func(*Config)) *Executor {
	t.Helper()
	config := Config{TempDir: t.TempDir()}
	if os.Geteuid() == 0 {
		config.DefaultUser = "root"
		config.AllowUsers = []string{"*"}
	}
	for _, c := range change {
		c(&config)
	}
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become other users")
	}
}

var runCount atomic.Uint64

// attempt is an attempt of a job with the given run.
func attempt(spec job.RunSpec) executor.Attempt {
	id := job.ID{0: 1}
	n := runCount.Add(1)
	id[14], id[15] = byte(n>>8), byte(n)
	at := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	return executor.Attempt{
		Job:    (&job.Job{Namespace: "default", Name: "report", Run: spec}).WithDefaults(job.Defaults{}),
		Run:    job.Run{ID: id},
		Number: 1,
		Data: job.TemplateData{
			Scheduled: at, Previous: at.Add(-24 * time.Hour), Run: id, Attempt: 1, Shards: 1,
			Namespace: "default", Name: "report", Node: "node-a",
		},
		Grace: time.Minute,
		Start: func() error { return nil },
	}
}

func command(text string) executor.Attempt {
	return attempt(job.RunSpec{Shell: &job.Shell{Command: text}})
}

// run executes an attempt and also returns its output.
func run(t testing.TB, e *Executor, a executor.Attempt) (r executor.Result, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, err bytes.Buffer
	r = e.Run(ctx, a, executor.Output{Stdout: &out, Stderr: &err})
	if ctx.Err() != nil {
		t.Fatalf("not at its end after %v: %+v", patience, r)
	}
	return r, out.String(), err.String()
}

// describe writes a result as a line.
func describe(r executor.Result) string {
	text := string(r.Outcome)
	if r.ExitCode != nil {
		text += fmt.Sprintf(" %d", *r.ExitCode)
	}
	if r.Signal != "" {
		text += " " + r.Signal
	}
	if r.Unstarted {
		text += " unstarted"
	}
	if r.Retryable {
		text += " retryable"
	}
	return text + ": " + r.Reason.String()
}

func TestExitOfACommandIsKept(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct {
		name string
		spec job.RunSpec
		want string // of describe
		out  string
		err  string
	}{
		{name: "success", spec: job.RunSpec{Shell: &job.Shell{Command: "echo hello; echo oops >&2"}}, want: "succeeded 0: ", out: "hello\n", err: "oops\n"},
		{name: "an exit code", spec: job.RunSpec{Shell: &job.Shell{Command: "exit 3"}}, want: "failed 3: exit status 3"},
		{name: "an exit code without a shell", spec: job.RunSpec{Shell: &job.Shell{Command: "ls /does/not/exist"}}, want: "failed 2: exit status 2", err: "No such file"},
		{name: "an exit code long after the end of the output", spec: job.RunSpec{Shell: &job.Shell{Command: "exec >&- 2>&-; sleep 0.05; exit 3"}}, want: "failed 3: exit status 3"},
		{name: "a signal", spec: job.RunSpec{Shell: &job.Shell{Command: "kill -SEGV $$"}}, want: "failed SIGSEGV: ended by SIGSEGV"},
		{name: "SIGKILL from elsewhere", spec: job.RunSpec{Shell: &job.Shell{Command: "kill -KILL $$"}}, want: "failed SIGKILL: ended by SIGKILL"},
		{name: "a program that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "no-such-program --now"}}, want: "failed 127: exit status 127: no-such-program: not found in " + defaultPath, err: "no-such-program: not found"},
		{name: "a file that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "/no/such/program"}}, want: "failed 127: exit status 127: /no/such/program: not found", err: "not found"},
		{name: "the same by a shell", spec: job.RunSpec{Shell: &job.Shell{Command: "/no/such/program;"}}, want: "failed 127: exit status 127", err: "not found"},
		{name: "a file that is not executable", spec: job.RunSpec{Shell: &job.Shell{Command: write("text", "echo hello", 0o644)}}, want: "failed 126: exit status 126: " + dir + "/text: permission denied: the file is not executable", err: "permission denied"},
		{name: "a folder", spec: job.RunSpec{Shell: &job.Shell{Command: dir}}, want: "failed 126: exit status 126: " + dir + ": permission denied: it is a directory", err: "permission denied"},
		{name: "a script without a first line", spec: job.RunSpec{Shell: &job.Shell{Command: write("bare", "echo bare $1", 0o755) + " word"}}, want: "succeeded 0: ", out: "bare word\n"},
		{name: "a script with an interpreter that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: write("odd", "#!/no/such\n", 0o755)}}, want: "failed 127: exit status 127: " + dir + "/odd: the interpreter in its first line was not found", err: "interpreter"},
		{name: "a directory that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd", Dir: "/no/such/dir"}}, want: "failed: cannot enter the directory /no/such/dir: no such file or directory"},
		{name: "a directory that is a file", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd", Dir: "/etc/passwd"}}, want: "failed: cannot enter the directory /etc/passwd: not a directory"},
		{name: "a user who is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd", User: "no-such-user"}}, want: "failed: user no-such-user does not exist on this machine"},
		{name: "a group that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd", Group: "no-such-group"}}, want: "failed: group no-such-group does not exist on this machine"},
		{name: "an interpreter that is not there", spec: job.RunSpec{Shell: &job.Shell{Script: "x", Interpreter: []string{"no-such-shell"}}}, want: "failed 127: exit status 127: no-such-shell: not found in " + defaultPath, err: "no-such-shell"},
		{name: "a directory", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd; echo $PWD", Dir: "/usr"}}, want: "succeeded 0: ", out: "/usr\n/usr\n"},
		{name: "arguments, which no shell reads", spec: job.RunSpec{Shell: &job.Shell{Command: "printf", Args: []string{"%s|", "$HOME", "a b", "*", "{{ .Attempt }}"}}}, want: "succeeded 0: ", out: "$HOME|a b|*|1|"},
		{name: "another shell", spec: job.RunSpec{Shell: &job.Shell{Command: "a=(1 2 3); echo ${#a[@]}", Interpreter: []string{"bash"}}}, want: "succeeded 0: ", out: "3\n"},
		{name: "a script", spec: job.RunSpec{Shell: &job.Shell{Script: "echo $# $1 $BELFRY_NAME\nexit 4\n", Args: []string{"a b"}}}, want: "failed 4: exit status 4", out: "1 a b report\n"},
		{name: "a script that names its interpreter", spec: job.RunSpec{Shell: &job.Shell{Script: "#! /usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\n", Args: []string{"x"}}}, want: "succeeded 0: ", out: "['x']\n"},
		{name: "a script that names an interpreter with options", spec: job.RunSpec{Shell: &job.Shell{Script: "#!/bin/sh -eu\nfalse\necho no\n"}}, want: "failed 1: exit status 1"},
		{name: "a script that names an interpreter that is not there", spec: job.RunSpec{Shell: &job.Shell{Script: "#!/no/such\necho no\n"}}, want: "failed 127: exit status 127: /no/such: not found", err: "/no/such: not found"},
		{name: "a script that names another interpreter than the job", spec: job.RunSpec{Shell: &job.Shell{Script: "#!/no/such\necho yes\n", Interpreter: []string{"sh"}}}, want: "succeeded 0: ", out: "yes\n"},
		{name: "a script for another interpreter", spec: job.RunSpec{Shell: &job.Shell{Script: "import sys\nprint(sys.argv[1:])\n", Interpreter: []string{"python3", "-u"}, Args: []string{"x"}}}, want: "succeeded 0: ", out: "['x']\n"},
		{name: "a text for another interpreter", spec: job.RunSpec{Shell: &job.Shell{Command: "print(6 * 7)", Interpreter: []string{"python3", "-u"}}}, want: "succeeded 0: ", out: "42\n"},
		{name: "a text for one that wants -e", spec: job.RunSpec{Shell: &job.Shell{Command: "print 6 * 7", Interpreter: []string{"perl"}}}, want: "succeeded 0: ", out: "42"},
		{name: "no standard input", spec: job.RunSpec{Shell: &job.Shell{Command: "cat; echo end"}}, want: "succeeded 0: ", out: "end\n"},
		{name: "standard input", spec: job.RunSpec{Shell: &job.Shell{Command: "cat", Stdin: "attempt {{ .Attempt }}\n"}}, want: "succeeded 0: ", out: "attempt 1\n"},
		{name: "standard input that the command does not read", spec: job.RunSpec{Shell: &job.Shell{Command: "true", Stdin: strings.Repeat("x", 1<<20)}}, want: "succeeded 0: "},
		{name: "much standard input", spec: job.RunSpec{Shell: &job.Shell{Command: "wc -c", Stdin: strings.Repeat("x", 1<<20)}}, want: "succeeded 0: ", out: "1048576\n"},
		{name: "a template that cannot be expanded", spec: job.RunSpec{Shell: &job.Shell{Command: "echo {{ .Nothing }}"}}, want: "failed: run.shell.command: unknown field .Nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, out, err := run(t, e, attempt(c.spec))
			if got := describe(r); got != c.want && (r.ExitCode != nil || !strings.Contains(got, c.want)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if out != c.out || !strings.Contains(err, c.err) || c.err == "" && err != "" {
				t.Errorf("output %q and %q, want %q and %q", out, err, c.out, c.err)
			}
		})
	}
}

func TestScriptsAreRemoved(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	// No process has this number: the first folder is a dead node's, the other one may be a living
	// one's in a container.
	const dead = "-999999999-1"
	foreign := scriptPrefix + "999999998" + dead
	if runtime.GOOS == "linux" && processSpace() == "" {
		t.Error("the PID namespace has no name")
	}
	for _, name := range []string{scriptPrefix + processSpace() + dead, foreign} {
		if err := os.Mkdir(filepath.Join(temp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	e := newExecutor(t, func(c *Config) { c.TempDir = temp })
	r, out, _ := run(t, e, attempt(job.RunSpec{Shell: &job.Shell{Script: `stat -c '%a %u' "$0" "$(dirname "$0")"`}}))
	if want := fmt.Sprintf("600 %d\n700 %[1]d\n", os.Geteuid()); out != want || r.Outcome != job.OutcomeSucceeded {
		t.Errorf("script and folder have %q, want %q", out, want)
	}
	if left, _ := os.ReadDir(temp); len(left) != 1 || left[0].Name() != foreign {
		t.Errorf("%v are left, want only %s", left, foreign)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

func TestGigabytesOfOutput(t *testing.T) {
	t.Parallel()
	size := 1 << 30
	if testing.Short() {
		size = 100 << 20
	}
	e := newExecutor(t)
	total := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	r := e.Run(t.Context(), command(fmt.Sprintf("yes | head -c %d", size)), executor.Output{Stdout: writer(func(p []byte) { total += len(p) })})
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if total != size || r.Outcome != job.OutcomeSucceeded {
		t.Errorf("%d bytes, want %d; %s", total, size, describe(r))
	}
	t.Logf("%.0f MB/s, %d KiB allocated", float64(size)/1e6/took.Seconds(), (after.TotalAlloc-before.TotalAlloc)>>10)
}

func TestFailingWriterDoesNotAffectTheCommand(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	read, write := io.Pipe()
	read.Close()
	r := e.Run(t.Context(), command("yes | head -c 1000000; echo end >&2"), executor.Output{Stdout: write})
	if r.Outcome != job.OutcomeSucceeded {
		t.Error(describe(r))
	}
}

func TestSuccessFollowsThePolicy(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, c := range []struct {
		text    string
		success job.Success
		want    string
	}{
		{"exit 3", job.Success{ExitCodes: []int{0, 3}}, "succeeded 3: "},
		{"exit 0", job.Success{ExitCodes: []int{3}}, "failed 0: exit status 0"},
		{"echo all is well", job.Success{Match: "is (well|good)$"}, "succeeded 0: "},
		{"echo all is well >&2", job.Success{Match: "^all"}, "succeeded 0: "},
		{"echo all is lost", job.Success{Match: "well"}, `failed 0: exit status 0, but the output does not match "well"`},
		{"echo all is well; exit 1", job.Success{Match: "well"}, "failed 1: exit status 1"},
		{"yes | head -c 1000000; echo all is well", job.Success{Match: "^all is well$"}, "succeeded 0: "},
	} {
		a := command(c.text)
		a.Job.Policy.Success = &c.success
		if r, _, _ := run(t, e, a); describe(r) != c.want {
			t.Errorf("%s: %s, want %s", c.text, describe(r), c.want)
		}
	}
}

func TestFeaturesNameMissingSupport(t *testing.T) {
	t.Parallel()
	f := newExecutor(t).Features()
	t.Logf("%+v", f)
	if f.Cgroup == "" && len(f.Missing) == 0 {
		t.Error("there is no cgroup, and nothing is said to be missing")
	}
	f = newExecutor(t, func(c *Config) { c.Cgroup = "none" }).Features()
	if f.Cgroup != "" || len(f.Missing) == 0 || f.Memory != "process" {
		t.Errorf("%+v", f)
	}
}
