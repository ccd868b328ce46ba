package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should take milliseconds.
const patience = time.Minute

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
		Job:    &job.Job{Namespace: "default", Name: "report", Run: spec},
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

// run executes an attempt and returns its output too.
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
	return text + ": " + r.Reason
}

func TestHowACommandEndsIsKept(t *testing.T) {
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
		{name: "a signal", spec: job.RunSpec{Shell: &job.Shell{Command: "kill -SEGV $$"}}, want: "failed SIGSEGV: ended by SIGSEGV"},
		{name: "SIGKILL from elsewhere", spec: job.RunSpec{Shell: &job.Shell{Command: "kill -KILL $$"}}, want: "failed SIGKILL: ended by SIGKILL"},
		{name: "a program that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "no-such-program --now"}}, want: "failed 127: exit status 127: no-such-program: not found in " + defaultPath, err: "no-such-program: not found"},
		{name: "a file that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "/no/such/program"}}, want: "failed 127: exit status 127: /no/such/program: not found", err: "not found"},
		{name: "the same by a shell", spec: job.RunSpec{Shell: &job.Shell{Command: "/no/such/program;"}}, want: "failed 127: exit status 127", err: "not found"},
		{name: "a file that is not executable", spec: job.RunSpec{Shell: &job.Shell{Command: write("text", "echo hello", 0o644)}}, want: "failed 126: exit status 126: " + dir + "/text: permission denied", err: "permission denied"},
		{name: "a folder", spec: job.RunSpec{Shell: &job.Shell{Command: dir}}, want: "failed 126: exit status 126: " + dir + ": permission denied", err: "permission denied"},
		{name: "a script without a first line", spec: job.RunSpec{Shell: &job.Shell{Command: write("bare", "echo bare $1", 0o755) + " word"}}, want: "succeeded 0: ", out: "bare word\n"},
		{name: "a script with an interpreter that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: write("odd", "#!/no/such\n", 0o755)}}, want: "failed 127: exit status 127: " + dir + "/odd: the interpreter in its first line was not found", err: "interpreter"},
		{name: "a directory that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd"}, Dir: "/no/such/dir"}, want: "failed: cannot enter the directory /no/such/dir: no such file or directory"},
		{name: "a directory that is a file", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd"}, Dir: "/etc/passwd"}, want: "failed: cannot enter the directory /etc/passwd: not a directory"},
		{name: "a user who is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd"}, User: "no-such-user"}, want: "failed: there is no user no-such-user on this machine"},
		{name: "a group that is not there", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd"}, Group: "no-such-group"}, want: "failed: there is no group no-such-group on this machine"},
		{name: "an interpreter that is not there", spec: job.RunSpec{Shell: &job.Shell{Script: "x", Interpreter: []string{"no-such-shell"}}}, want: "failed 127: exit status 127: no-such-shell: not found in " + defaultPath, err: "no-such-shell"},
		{name: "a directory", spec: job.RunSpec{Shell: &job.Shell{Command: "pwd; echo $PWD"}, Dir: "/usr"}, want: "succeeded 0: ", out: "/usr\n/usr\n"},
		{name: "arguments, which no shell reads", spec: job.RunSpec{Shell: &job.Shell{Command: "printf", Args: []string{"%s|", "$HOME", "a b", "*", "{{ .Attempt }}"}}}, want: "succeeded 0: ", out: "$HOME|a b|*|1|"},
		{name: "another shell", spec: job.RunSpec{Shell: &job.Shell{Command: "a=(1 2 3); echo ${#a[@]}", Interpreter: []string{"bash"}}}, want: "succeeded 0: ", out: "3\n"},
		{name: "a script", spec: job.RunSpec{Shell: &job.Shell{Script: "echo $# $1 $BELFRY_NAME\nexit 4\n", Args: []string{"a b"}}}, want: "failed 4: exit status 4", out: "1 a b report\n"},
		{name: "a script for another interpreter", spec: job.RunSpec{Shell: &job.Shell{Script: "import sys\nprint(sys.argv[1:])\n", Interpreter: []string{"python3", "-u"}, Args: []string{"x"}}}, want: "succeeded 0: ", out: "['x']\n"},
		{name: "a text for another interpreter", spec: job.RunSpec{Shell: &job.Shell{Command: "print(6 * 7)", Interpreter: []string{"python3", "-u"}}}, want: "succeeded 0: ", out: "42\n"},
		{name: "a text for one that wants -e", spec: job.RunSpec{Shell: &job.Shell{Command: "print 6 * 7", Interpreter: []string{"perl"}}}, want: "succeeded 0: ", out: "42"},
		{name: "no standard input", spec: job.RunSpec{Shell: &job.Shell{Command: "cat; echo end"}}, want: "succeeded 0: ", out: "end\n"},
		{name: "standard input", spec: job.RunSpec{Shell: &job.Shell{Command: "cat"}, Stdin: "attempt {{ .Attempt }}\n"}, want: "succeeded 0: ", out: "attempt 1\n"},
		{name: "standard input that nobody reads", spec: job.RunSpec{Shell: &job.Shell{Command: "true"}, Stdin: strings.Repeat("x", 1<<20)}, want: "succeeded 0: "},
		{name: "much standard input", spec: job.RunSpec{Shell: &job.Shell{Command: "wc -c"}, Stdin: strings.Repeat("x", 1<<20)}, want: "succeeded 0: ", out: "1048576\n"},
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
	// A folder of a node that is dead: no process has this number.
	old := filepath.Join(temp, scriptPrefix+"999999999-1")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, func(c *Config) { c.TempDir = temp })
	r, out, _ := run(t, e, attempt(job.RunSpec{Shell: &job.Shell{Script: `stat -c '%a %u' "$0" "$(dirname "$0")"`}}))
	if want := fmt.Sprintf("600 %d\n700 %[1]d\n", os.Geteuid()); out != want || r.Outcome != job.OutcomeSucceeded {
		t.Errorf("script and folder have %q, want %q", out, want)
	}
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestTheEnvironmentIsClean(t *testing.T) {
	t.Setenv("SECRET", "of the node")
	e := newExecutor(t, func(c *Config) { c.Env = map[string]string{"TZ": "UTC", "BOTH": "config"}; c.Dir = "/" })
	a := attempt(job.RunSpec{
		Shell: &job.Shell{Command: "/usr/bin/env"},
		Env:   map[string]string{"GREETING": "{{ .Param.who }}", "BOTH": "job", "LANG": "de_DE.UTF-8"},
	})
	a.Job.Params = map[string]job.Param{"who": {Default: "nobody"}, "when": {Default: "now"}}
	a.Data.Params = map[string]string{"who": "you"}
	_, out, stderr := run(t, e, a)
	self := e.accounts.self
	want := "BELFRY_RUN=" + a.Run.ID.String() + `
BELFRY_ATTEMPT=1
BELFRY_JOB=default/report
BELFRY_NAME=report
BELFRY_NAMESPACE=default
BELFRY_NEXT=
BELFRY_NODE=node-a
BELFRY_PARAM_WHEN=now
BELFRY_PARAM_WHO=you
BELFRY_PREVIOUS=2026-02-28T02:30:00Z
BELFRY_SCHEDULED=2026-03-01T02:30:00Z
BELFRY_SHARD=0
BELFRY_SHARDS=1
BOTH=job
GREETING=you
HOME=` + self.home + `
LANG=de_DE.UTF-8
LOGNAME=` + self.name + `
PATH=` + defaultPath + `
PWD=/
SHELL=/bin/sh
TZ=UTC
USER=` + self.name + "\n"
	if out != want {
		t.Errorf("environment\n%s\nwant\n%s\n%s", out, want, stderr)
	}
}

func TestNoFilesOfTheNodeAreOpen(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	_, out, _ := run(t, e, command("ls /proc/self/fd"))
	// What the test itself was started with goes to everybody.
	want, err := exec.Command("ls", "/proc/self/fd").Output()
	if err != nil || out != string(want) {
		t.Errorf("open files: %q, want %q", out, want)
	}
}

func TestUmaskNiceAndPrivileges(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	umask := job.Umask(0o027)
	for _, text := range []string{"umask; nice", "sleep 0; umask; nice"} {
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: text}, Umask: &umask, Nice: 7})
		if r, out, _ := run(t, e, a); out != "0027\n7\n" {
			t.Errorf("%s says %q, %s", text, out, describe(r))
		}
	}
	// Nothing of it stays with the threads that make processes.
	var others sync.WaitGroup
	for range 4 * e.config.Spawns {
		others.Go(func() {
			if _, out, _ := run(t, e, command("umask; nice")); out != "0022\n0\n" {
				t.Errorf("the next command has umask and nice %q", out)
			}
		})
	}
	others.Wait()
	if _, out, _ := run(t, e, command("grep NoNewPrivs /proc/self/status")); out != "NoNewPrivs:\t1\n" {
		t.Errorf("%q", out)
	}
	// The main thread may be one of those that make processes.
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t0\n") {
		t.Error("the node has lost its privileges, or had none")
	}
	e = newExecutor(t, func(c *Config) { c.AllowNewPrivileges = true })
	if _, out, _ := run(t, e, command("grep NoNewPrivs /proc/self/status")); out != "NoNewPrivs:\t0\n" {
		t.Errorf("with AllowNewPrivileges: %q", out)
	}
}

func TestUmaskAndNiceThroughAShell(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	e.spawners.threads = false // as where unshare is forbidden
	umask := job.Umask(0o027)
	a := attempt(job.RunSpec{Shell: &job.Shell{Command: "sh", Args: []string{"-c", `umask; nice; echo "$1"`, "x", "a  b"}}, Umask: &umask, Nice: 7})
	if r, out, stderr := run(t, e, a); out != "0027\n7\na  b\n" {
		t.Errorf("%q, %q, %s", out, stderr, describe(r))
	}
}

func TestOtherUsers(t *testing.T) {
	needRoot(t)
	t.Parallel()
	who := func(c *Config) {
		c.DefaultUser = "nobody"
		c.AllowUsers = []string{"not-on-this-node", "daemon", "12345"}
		c.AllowGroups = []string{"not-on-this-node", "nogroup", "54321"}
	}
	everybody := func(c *Config) { c.DefaultUser = ""; c.AllowUsers = []string{"*"} }
	nothing := func(c *Config) { c.DefaultUser = ""; c.AllowUsers = nil }
	for _, c := range []struct {
		name        string
		config      func(*Config)
		user, group string
		want        string // output or reason
	}{
		{"the default user", who, "", "", "nobody nogroup nogroup /nonexistent nobody\n"},
		{"an allowed one", who, "daemon", "", "daemon daemon daemon /usr/sbin daemon\n"},
		{"with another group", who, "daemon", "nogroup", "daemon nogroup nogroup daemon /usr/sbin daemon\n"},
		{"with the group of another", who, "daemon", "shadow", "the node's configuration does not allow user daemon the group shadow: shell.allow_groups names those that users need not be in"},
		{"with the group of root", everybody, "bin", "0", "the node's configuration does not allow user bin the group 0: shell.allow_groups names those that users need not be in"},
		{"with their own group", everybody, "bin", "bin", "bin bin bin /bin bin\n"},
		{"by number", who, "1", "", "daemon daemon daemon /usr/sbin daemon\n"},
		{"a number without a name", who, "12345", "54321", "12345 54321 54321 / 12345\n"},
		{"a number without a name or group", who, "12345", "", "user 12345 has no name on this machine, and so no group: name one in run.group"},
		{"one that is not allowed", who, "bin", "", "the node's configuration does not allow commands of user bin"},
		{"root, which is not allowed", who, "root", "", "the node's configuration does not allow commands of user root"},
		{"root by its number", who, "0", "", "the node's configuration does not allow commands of user root"},
		{"everybody", everybody, "bin", "", "bin bin bin /bin bin\n"},
		{"everybody but root", everybody, "root", "", "the node's configuration does not allow commands of user root"},
		{"nobody named", nothing, "", "", "the node is root and was not told whose commands it runs: start it with --run-as, or name a user in run.user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newExecutor(t, c.config)
			e.config.Dir = "/"
			a := attempt(job.RunSpec{
				Shell: &job.Shell{Command: `echo $(id -un 2>/dev/null || true) $(id -gn 2>/dev/null || true) $(id -Gn 2>/dev/null) $HOME $USER`},
				User:  c.user, Group: c.group,
			})
			r, out, _ := run(t, e, a)
			if got := out + r.Reason; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("their scripts", func(t *testing.T) {
		// The folders of the test are root's.
		temp, err := os.MkdirTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(temp)
		if err := os.Chmod(temp, 0o755); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, who, func(c *Config) { c.TempDir = temp; c.Dir = "/" })
		r, out, stderr := run(t, e, attempt(job.RunSpec{Shell: &job.Shell{Script: `stat -c '%a %U' "$0"; id -un`}}))
		if out != "600 nobody\nnobody\n" {
			t.Errorf("%q, %q, %s", out, stderr, describe(r))
		}
	})
}

func TestANodeThatIsNotRootRunsOnlyAsItself(t *testing.T) {
	t.Parallel()
	a := &accounts{self: account{name: "me", uid: 1000, gid: 1000, home: "/home/me"}, known: map[[2]string]knownAccount{}}
	for _, name := range []string{"", "me"} {
		if got, err := a.of(name, ""); err != nil || got.uid != 1000 || got.change {
			t.Errorf("user %q: %+v, %v", name, got, err)
		}
	}
	for _, who := range [][2]string{{"root", ""}, {"", "daemon"}, {"me", "0"}} {
		if got, err := a.of(who[0], who[1]); err == nil {
			t.Errorf("user %q and group %q: %+v", who[0], who[1], got)
		}
	}
}

func TestLimitsOfEachProcess(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	if e.Features().Memory != "process" {
		t.Skip("limits are kept by cgroups here")
	}
	timeout := job.Duration(100 * time.Second)
	limited := func(text string, limits job.Limits) executor.Attempt {
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: text}, Limits: &limits})
		a.Job.Policy.Timeout = &timeout
		return a
	}
	r, out, stderr := run(t, e, limited("ulimit -v; ulimit -t", job.Limits{Memory: 64 << 20, CPU: 0.5}))
	if out != "65536\n50\n" {
		t.Errorf("limits %q, %q, %s", out, stderr, describe(r))
	}
	r, _, stderr = run(t, e, limited("python3 -c 'bytearray(1<<30)'", job.Limits{Memory: 256 << 20}))
	if describe(r) != "failed 1: exit status 1" || !strings.Contains(stderr, "MemoryError") {
		t.Errorf("too much memory: %s, %q", describe(r), stderr)
	}
	r, _, _ = run(t, e, limited("while :; do :; done", job.Limits{CPU: 0.01}))
	if describe(r) != "failed SIGXCPU: ended by SIGXCPU: it used 1s of processor time" {
		t.Errorf("too much time: %s", describe(r))
	}
	// A program that is executed directly, and one that is not there.
	r, out, _ = run(t, e, limited("/bin/sh -c pwd", job.Limits{Memory: 64 << 20}))
	if r.Outcome != job.OutcomeSucceeded || out == "" {
		t.Errorf("%s", describe(r))
	}
	r, _, _ = run(t, e, limited("no-such-program", job.Limits{Memory: 64 << 20}))
	if r.ExitCode == nil || *r.ExitCode != 127 {
		t.Errorf("%s", describe(r))
	}
}

// ending runs a command that says "up", ends its context then, and returns how
// it ended and what it said after that.
func ending(t *testing.T, e *Executor, a executor.Attempt, cause error) (executor.Result, string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	read, write := io.Pipe()
	var rest bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		up := make([]byte, 3)
		if _, err := io.ReadFull(read, up); err == nil {
			cancel(cause)
		}
		_, _ = io.Copy(&rest, read)
	}()
	alarm := time.AfterFunc(patience, func() { panic("the command does not end") })
	defer alarm.Stop()
	r := e.Run(ctx, a, executor.Output{Stdout: write})
	write.Close()
	<-done
	return r, rest.String()
}

func TestACommandThatMustEnd(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, c := range []struct {
		name  string
		text  string
		grace time.Duration
		cause error
		want  string // of describe, with each time as T
		says  string
	}{
		{"goes when it is asked", "echo up; exec sleep 1000", time.Minute, executor.ErrTimeout, "timed_out SIGTERM: SIGTERM after T, ended by SIGTERM T later", ""},
		{"may clean up", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done", time.Minute, executor.ErrTimeout, "timed_out 5: SIGTERM after T, exit status 5 T later", "bye\n"},
		{"is killed when it ignores that", "trap '' TERM; echo up; sleep 1000", 50 * time.Millisecond, executor.ErrTimeout, "timed_out SIGKILL: SIGTERM after T, SIGKILL T later", ""},
		{"is killed at once without a grace", "trap 'echo bye' TERM; echo up; sleep 1000", 0, executor.ErrTimeout, "timed_out SIGKILL: SIGKILL after T", ""},
		{"has a child that ignores it", "(trap '' TERM; echo up; sleep 1000) & wait", 2 * time.Second, executor.ErrTimeout, "timed_out SIGTERM: SIGTERM after T, ended by SIGTERM T later; SIGKILL after T to what it left behind", ""},
		{"is cancelled", "echo up; exec sleep 1000", time.Minute, fmt.Errorf("%w by alice", executor.ErrCancelled), "cancelled SIGTERM: cancelled by alice: SIGTERM after T, ended by SIGTERM T later", ""},
		{"is fenced", "echo up; exec sleep 1000", time.Minute, executor.ErrFenced, "lost SIGTERM: the node has lost touch with the store: SIGTERM after T, ended by SIGTERM T later", ""},
		{"ends with the node", "echo up; exec sleep 1000", time.Minute, errors.New("the node stops"), "cancelled SIGTERM: the node stops: SIGTERM after T, ended by SIGTERM T later", ""},
		{"is stopped", "echo up; kill -STOP $$", time.Minute, executor.ErrTimeout, "timed_out SIGTERM: SIGTERM after T, ended by SIGTERM T later", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := command(c.text)
			a.Grace = c.grace
			r, says := ending(t, e, a, c.cause)
			if got := times.ReplaceAllString(describe(r), "T"); got != c.want || says != c.says {
				t.Errorf("got  %s, %q\nwant %s, %q", got, says, c.want, c.says)
			}
		})
	}
}

func TestTimesAreSaidShortly(t *testing.T) {
	t.Parallel()
	s := supervision{began: time.Unix(0, 0)}
	s.asked = s.began.Add(10*time.Minute + 3*time.Millisecond)
	s.killed = s.asked.Add(10*time.Second + 2*time.Millisecond)
	if got, want := s.sent("ended by SIGKILL"), "SIGTERM after 10m0s, SIGKILL 10s later"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// times are those in reasons.
var times = regexp.MustCompile(`[0-9.]+(ms|s|m0s)`)

// alivePipe returns a pipe that is at its end when no command has it open. The
// name of its other end is for commands to open.
func alivePipe(t *testing.T) (read *os.File, name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "alive")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	read = os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { read.Close() })
	return read, name
}

// isGone reads an alive pipe to its end.
func isGone(t *testing.T, read *os.File) {
	t.Helper()
	_ = read.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(read); err != nil {
		t.Errorf("a process is left: %v", err)
	}
}

func TestWhatACommandLeavesBehindIsEnded(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	const (
		asked  = "what it left behind was ended: SIGTERM T later"
		killed = asked + ", SIGKILL T later"
		// What is asked only has all the time of the test for it.
		asking, killing = patience, 100 * time.Millisecond
		// sees waits until what has left the group has said so.
		sees = "& until [ -e $ALIVE.up ]; do sleep 0.01; done"
	)
	for _, c := range []struct {
		name, text string
		cgroup     bool // needed
		grace      time.Duration
		want       string
	}{
		{"nothing", "true", false, asking, ""},
		{"something that ends by itself", "sleep 0.05 3>$ALIVE &", false, asking, ""},
		{"a grandchild", "sleep 1000 3>$ALIVE &", false, asking, asked},
		{"a grandchild without the pipes", "sleep 1000 3>$ALIVE >/dev/null 2>&1 &", false, asking, asked},
		{"a grandchild that ignores SIGTERM", "trap '' TERM; sleep 1000 3>$ALIVE &", false, killing, killed},
		{"what has left the group", "setsid sh -c '>$ALIVE.up; exec sleep 1000' 3>$ALIVE " + sees, true, killing, killed},
		{"what has left the group and the pipes", "setsid sh -c '>$ALIVE.up; exec sleep 1000' 3>$ALIVE >/dev/null 2>&1 " + sees, true, killing, killed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.cgroup && e.Features().Cgroup == "" {
				t.Skip("no cgroups here: ", e.Features().Missing)
			}
			read, name := alivePipe(t)
			a := attempt(job.RunSpec{Shell: &job.Shell{Command: c.text + "\n"}, Env: map[string]string{"ALIVE": name}})
			a.Grace = c.grace
			began := time.Now()
			r, _, stderr := run(t, e, a)
			got := times.ReplaceAllString(r.Reason, "T")
			if late := time.Since(began) > leftoverWait && c.want == "" && got == asked; late {
				got = "" // so slow a machine asks what would have ended by itself
			}
			if r.Outcome != job.OutcomeSucceeded || got != c.want || stderr != "" {
				t.Errorf("%s %q, want success: %s", describe(r), stderr, c.want)
			}
			isGone(t, read)
		})
	}
	t.Run("what has left the group, when the command must end", func(t *testing.T) {
		t.Parallel()
		if e.Features().Cgroup == "" {
			t.Skip("no cgroups here: ", e.Features().Missing)
		}
		read, name := alivePipe(t)
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: "setsid sh -c 'echo up; sleep 1000' 3>$ALIVE; wait"}, Env: map[string]string{"ALIVE": name}})
		a.Grace = 50 * time.Millisecond
		ending(t, e, a, executor.ErrTimeout)
		isGone(t, read)
	})
}

// fencing is a Watch that has ended everything.
type fencing struct{ nobody }

func (fencing) Fenced(executor.Process) bool { return true }

func TestWhatTheWatchdogHasEndedIsLost(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(c *Config) { c.Watch = fencing{} })
	for _, c := range []struct{ text, want string }{
		{"kill -KILL $$", "lost SIGKILL: the node has lost touch with the store: the watchdog made it end, ended by SIGKILL"},
		{"exit 0", "lost 0: the node has lost touch with the store: the watchdog made it end, exit status 0"},
	} {
		if r, _, _ := run(t, e, command(c.text)); describe(r) != c.want {
			t.Errorf("%s: got %s, want %s", c.text, describe(r), c.want)
		}
	}
}

// finder is a Watch that finds the rest of a command by what it writes.
type finder struct {
	nobody
	pid   atomic.Int64
	calls atomic.Int64
	ended atomic.Int64
}

func (f *finder) Ended(executor.Process) { f.ended.Add(1) }
func (f *finder) EndRest(executor.Process) int {
	f.calls.Add(1)
	if pid := f.pid.Load(); pid != 0 {
		_ = syscall.Kill(int(pid), syscall.SIGKILL)
		return 1
	}
	return 0
}

func TestWithoutCgroupsThePipesDoNotHoldARun(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{true, false} {
		t.Run(fmt.Sprint("found ", found), func(t *testing.T) {
			t.Parallel()
			var f finder
			e := newExecutor(t, func(c *Config) { c.Cgroup = "none"; c.Watch = &f })
			up := filepath.Join(t.TempDir(), "up")
			a := command("setsid sh -c 'echo $$; >" + up + "; exec sleep 1000' & until [ -e " + up + " ]; do sleep 0.01; done")
			var pid atomic.Int64
			out := writer(func(p []byte) {
				n, _ := strconv.Atoi(strings.TrimSpace(string(p)))
				pid.Store(int64(n))
				if found {
					f.pid.Store(int64(n))
				}
			})
			r := e.Run(t.Context(), a, executor.Output{Stdout: out})
			if pid.Load() == 0 {
				t.Fatal("what it has written is lost")
			}
			if !found {
				_ = syscall.Kill(int(pid.Load()), syscall.SIGKILL)
			}
			if r.Outcome != job.OutcomeSucceeded || f.calls.Load() == 0 || f.ended.Load() != 1 {
				t.Errorf("%s, looked %d times for the rest", describe(r), f.calls.Load())
			}
		})
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

func TestAWriterThatFailsDoesNotHurt(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	read, write := io.Pipe()
	read.Close()
	r := e.Run(t.Context(), command("yes | head -c 1000000; echo end >&2"), executor.Output{Stdout: write})
	if r.Outcome != job.OutcomeSucceeded {
		t.Error(describe(r))
	}
}

func TestSuccessIsWhatThePolicySays(t *testing.T) {
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

func TestWhatDoesNotStart(t *testing.T) {
	t.Parallel()
	var started atomic.Int64
	e := newExecutor(t)
	a := command("echo it has started")
	a.Start = func() error { return errors.New("the session is over") }
	r, out, _ := run(t, e, a)
	if describe(r) != "failed unstarted: the session is over" || out != "" {
		t.Errorf("%s %q", describe(r), out)
	}

	a = command("echo it has started")
	a.Start = func() error { started.Add(1); return nil }
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCancelled)
	r = e.Run(ctx, a, executor.Output{})
	if describe(r) != "cancelled unstarted: cancelled, before it started" || started.Load() != 0 {
		t.Errorf("%s, started %d times", describe(r), started.Load())
	}

	e = newExecutor(t, func(c *Config) { c.Watch = refuser{} })
	r, out, _ = run(t, e, a)
	if describe(r) != "failed unstarted: the disk is full" || out != "" {
		t.Errorf("%s %q", describe(r), out)
	}
}

type refuser struct{ nobody }

func (refuser) Spawning(executor.Process) error { return errors.New("the disk is full") }

func TestAForkWithoutRoomCanBeRetried(t *testing.T) {
	needRoot(t)
	// Not parallel: the limit is that of the whole process. Root is exempt.
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &old); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, func(c *Config) { c.Dir = "/"; c.AllowGroups = []string{"54321"} })
	a := attempt(job.RunSpec{Shell: &job.Shell{Command: "pwd"}, User: "54321", Group: "54321"})
	// The limit is looked at when the user has a process already.
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	r, _, _ := run(t, e, a)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &old); err != nil {
		t.Fatal(err)
	}
	if want := "failed retryable: the machine has no room for another process: fork: resource temporarily unavailable"; describe(r) != want {
		t.Errorf("got  %s\nwant %s", describe(r), want)
	}
	if r, _, _ := run(t, e, a); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("with room: %s", describe(r))
	}
}

func TestSpawnsAreBounded(t *testing.T) {
	t.Parallel()
	const bound = 3
	e := newExecutor(t, func(c *Config) { c.Spawns = bound })
	var now, most atomic.Int64
	gate := make(chan struct{})
	full := make(chan struct{})
	var all sync.WaitGroup
	for range 4 * bound {
		a := command("pwd")
		a.Start = func() error {
			n := now.Add(1)
			most.Store(max(most.Load(), n))
			if n == bound {
				close(full)
			}
			<-gate
			now.Add(-bound) // never reaches the bound again
			return nil
		}
		all.Go(func() { e.Run(t.Context(), a, executor.Output{}) })
	}
	<-full
	if n := now.Load(); n != bound {
		t.Errorf("%d spawns at a time, want %d", n, bound)
	}
	close(gate)
	all.Wait()
	if most.Load() > bound {
		t.Errorf("%d spawns at a time, want %d", most.Load(), bound)
	}
}

func TestASpawnerThatCannotBePutBackIsReplaced(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(c *Config) { c.Spawns = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	used := map[*spawner]bool{}
	for range 3 {
		err := e.spawners.do(ctx, 0, func(s *spawner) error {
			used[s] = true
			s.spoiled = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(used) != 3 {
		t.Errorf("3 requests had %d spawners", len(used))
	}
}

// It is not parallel: files are counted for the whole process.
func TestCommandsThatWaitForTheirTurnHaveNoFilesOpen(t *testing.T) {
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	e := newExecutor(t, func(c *Config) { c.Spawns = 1 })
	const commands = 200
	first, others := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	start := func(begin func() error) {
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: "cat"}, Stdin: "text"})
		a.Start = begin
		all.Go(func() {
			if r := e.Run(t.Context(), a, executor.Output{}); r.Outcome != job.OutcomeSucceeded {
				t.Error(describe(r))
			}
		})
	}
	start(func() error {
		first <- struct{}{}
		<-others
		return nil
	})
	<-first
	before := files()
	for range commands {
		start(func() error { return nil })
	}
	// What waits for the only spawner is all there is to wait for.
	deadline := time.Now().Add(patience)
	for waiting := 0; waiting < commands; runtime.Gosched() {
		stacks := make([]byte, 1<<22)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if waiting = bytes.Count(stacks, []byte("(*spawners).do(")); time.Now().After(deadline) {
			t.Fatalf("%d of %d commands wait", waiting, commands)
		}
	}
	if opened := files() - before; opened > commands/10 {
		t.Errorf("%d commands that wait have %d files open", commands, opened)
	}
	close(others)
	all.Wait()
}

// It is not parallel: threads are counted for the whole process, and none ever
// ends.
func TestRunningCommandsTakeNoThreads(t *testing.T) {
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	before := threads()
	e := newExecutor(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	const commands = 200
	var all sync.WaitGroup
	up := make(chan struct{}, commands)
	for range commands {
		a := command("cat")
		a.Job.Run.Stdin = ""
		a.Job.Run.Shell = &job.Shell{Command: "echo up; exec sleep 1000"}
		all.Go(func() { e.Run(ctx, a, executor.Output{Stdout: writer(func([]byte) { up <- struct{}{} })}) })
	}
	for range commands {
		<-up
	}
	taken := threads() - before
	cancel(executor.ErrCancelled)
	all.Wait()
	if taken > commands/2 {
		t.Errorf("%d commands have taken %d threads", commands, taken)
	}
}

func TestFeaturesSayWhatIsMissing(t *testing.T) {
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

func TestPlainCommands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"backup":                             "backup",
		"/usr/bin/backup --all  -v x=1 a\tb": "/usr/bin/backup|--all|-v|x=1|a|b",
		" backup\n":                          "backup",
		"date +%Y":                           "date|+%Y",
		"":                                   "", " ": "", "a;b": "", "a|b": "", "a&": "", "a > b": "", "a <b": "", "(a)": "",
		"a $b": "", "a `b`": "", "a 'b'": "", `a "b"`: "", `a \b`: "", "a *": "", "a b?": "", "a [b]": "", "a {b,c}": "",
		"a ~": "", "a # b": "", "a !b": "", "a ^b": "", "a\nb": "", "a ü": "", "a\x00b": "", "a\rb": "",
		"A=1": "", "A=1 b": "", "-a": "", "%1": "", "cd /": "", "exit 3": "", "exec a": "", "export A": "", "ulimit -v": "",
		":": "", ". a": "", "echo a": "", "true": "", "time a": "", "if a": "", "umask": "", "test a": "", "kill 1": "",
	} {
		words, ok := plainWords(text)
		if got := strings.Join(words, "|"); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, ok, want)
		}
	}
}

// FuzzPlainCommands compares the words of plain commands with those that sh
// makes of them.
func FuzzPlainCommands(f *testing.F) {
	for _, text := range []string{"a b", "a x=1 %b", "a :b .. -c", "case x", "a\tb c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words, ok := plainWords(text)
		if !ok || len(text) > 1000 {
			return
		}
		out, err := exec.Command("sh", "-c", "printf '%s\\n' "+strings.Trim(text, " \t\n")).Output()
		if want := strings.Join(words, "\n") + "\n"; err != nil || string(out) != want {
			t.Errorf("%q: %q, %v; want %q", text, words, err, out)
		}
	})
}

func TestMatchesAreFoundInAnyPieces(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("line of output\n", 20_000)
	for _, c := range []struct {
		match, output string
		want          bool
	}{
		{"x", "", false}, {"^$", "", true}, {"x", "x", true}, {"^b$", "a\nb\nc\n", true}, {"^b", "ab\n", false},
		{"done$", long + "done\n", true}, {"^done$", "done\n" + long, true}, {"^done$", long + "done\n" + long, true},
		{"^done$", long + "not done\n" + long, false}, {"^ne of", long, false}, {"line o$", long, false},
		{"a\nb", long + "a\nb" + long, true}, {"zz", strings.Repeat("y", 300_000) + "zz", true},
	} {
		for _, piece := range []int{1, 7, 4096, 32 << 10, 1 << 20} {
			if piece < 100 && len(c.output) > 1000 {
				piece += 1000
			}
			m, err := newMatcher(&job.Success{Match: c.match})
			if err != nil {
				t.Fatal(err)
			}
			s := m.stream(0)
			for rest := []byte(c.output); len(rest) > 0; {
				n := min(piece, len(rest))
				s.write(rest[:n])
				rest = rest[n:]
			}
			s.end()
			if m.ok() != c.want {
				t.Errorf("%q in %d bytes by %d: %v, want %v", c.match, len(c.output), piece, m.ok(), c.want)
			}
		}
	}
}
