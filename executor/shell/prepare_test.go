package shell

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

func TestTheEnvironmentIsClean(t *testing.T) {
	t.Setenv("SECRET", "of the node")
	e := newExecutor(t, func(c *Config) { c.Env = map[string]string{"TZ": "UTC", "BOTH": "config"}; c.Dir = "/" })
	a := attempt(job.RunSpec{
		Shell: &job.Shell{
			Command: "/usr/bin/env",
			Env:     map[string]string{"GREETING": "{{ .Param.who }}", "BOTH": "job", "LANG": "de_DE.UTF-8"},
		},
	})
	a.Job.Params = map[string]job.Param{"who": {Default: "nobody"}, "when": {Default: "now"}}
	a.Data.Params = map[string]string{"who": "you"}
	_, out, stderr := run(t, e, a)
	self := e.accounts.Load().self
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
	want := "0\n1\n2\n3\n" // ls itself opens the last one
	if !e.Features().OwnFiles {
		// All commands inherit the files that the test was started with.
		out, err := exec.Command("ls", "/proc/self/fd").Output()
		if err != nil {
			t.Fatal(err)
		}
		want = string(out)
	}
	if _, out, _ := run(t, e, command("ls /proc/self/fd")); out != want {
		t.Errorf("open files: %q, want %q", out, want)
	}
}

func TestUmaskNiceAndPrivileges(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	umask := job.Umask(0o027)
	for _, text := range []string{"umask; nice", "sleep 0; umask; nice"} {
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: text, Umask: &umask, Nice: 7}})
		if r, out, _ := run(t, e, a); out != "0027\n7\n" {
			t.Errorf("%s says %q, %s", text, out, describe(r))
		}
	}
	// The threads that create processes keep none of the settings.
	usual, err := exec.Command("sh", "-c", "umask 022; umask; nice").Output()
	if err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	for range 4 * e.config.Spawns {
		others.Go(func() {
			if _, out, _ := run(t, e, command("umask; nice")); out != string(usual) {
				t.Errorf("the next command has umask and nice %q", out)
			}
		})
	}
	others.Wait()
	if _, out, _ := run(t, e, command("grep NoNewPrivs /proc/self/status")); out != "NoNewPrivs:\t1\n" {
		t.Errorf("%q", out)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t0\n") {
		t.Error("the node has lost its privileges, or had none")
	}
	e = newExecutor(t, func(c *Config) { c.AllowNewPrivileges = true })
	if _, out, _ := run(t, e, command("grep NoNewPrivs /proc/self/status")); out != "NoNewPrivs:\t0\n" {
		t.Errorf("with AllowNewPrivileges: %q", out)
	}
}

// The node's umask does not apply to its commands, and a job cannot exceed the configured umask and
// nice value.
func TestUmaskAndNiceAreBounded(t *testing.T) {
	own := umaskOfProcess()
	t.Parallel()
	for _, c := range []struct {
		umask, of string // in the configuration and the job; "" for none
		niceMin   int
		nice      int
		want      string
	}{
		{"", "", 0, 0, "0022\n"},
		{"", "077", 0, 0, "0077\n"},
		{"077", "", 0, 0, "0077\n"},
		{"002", "", 0, 0, "0002\n"},
		{"", "002", 0, 0, "failed: run.umask: 002 is more permissive than shell.umask in the configuration of the node, 022"},
		{"027", "022", 0, 0, "failed: run.umask: 022 is more permissive than shell.umask in the configuration of the node, 027"},
		{"", "", 0, -1, "failed: run.nice: -1 is below shell.nice_min in the configuration of the node, which is 0"},
		{"", "", 5, 4, "failed: run.nice: 4 is below shell.nice_min in the configuration of the node, which is 5"},
	} {
		for _, threads := range []bool{true, false} {
			e := newExecutor(t, func(config *Config) {
				if config.NiceMin = c.niceMin; c.umask != "" {
					config.Umask = new(job.Umask)
					_ = config.Umask.UnmarshalText([]byte(c.umask))
				}
			})
			if !threads {
				e.spawners.threads, e.spawners.umask = false, own // as if unshare were forbidden
			}
			a := attempt(job.RunSpec{Shell: &job.Shell{Command: "umask", Nice: c.nice}})
			if c.of != "" {
				a.Job.Run.Shell.Umask = new(job.Umask)
				_ = a.Job.Run.Shell.Umask.UnmarshalText([]byte(c.of))
			}
			r, got, _ := run(t, e, a)
			if r.Outcome != job.OutcomeSucceeded {
				got = describe(r)
			}
			if got != c.want {
				t.Errorf("%+v with threads %v: got %q", c, threads, got)
			}
		}
	}
}

func TestUmaskAndNiceThroughAShell(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	e.spawners.threads = false // as if unshare were forbidden
	umask := job.Umask(0o027)
	a := attempt(job.RunSpec{Shell: &job.Shell{Command: "sh", Args: []string{"-c", `umask; nice; echo "$1"`, "x", "a  b"}, Umask: &umask, Nice: 7}})
	if r, out, stderr := run(t, e, a); out != "0027\n7\na  b\n" {
		t.Errorf("%q, %q, %s", out, stderr, describe(r))
	}
}

func TestOtherUsers(t *testing.T) {
	needRoot(t)
	t.Parallel()
	who := func(c *Config) {
		c.DefaultUser = "nobody"
		c.File = "/etc/belfry.yaml"
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
		{"with the group of another", who, "daemon", "shadow", "user daemon is not in the group shadow, and shell.allow_groups in /etc/belfry.yaml does not list it"},
		{"with the group of root", everybody, "bin", "0", "user bin is not in the group 0, and shell.allow_groups in the configuration file (serve --config) does not list it"},
		{"with their own group", everybody, "bin", "bin", "bin bin bin /bin bin\n"},
		{"by number", who, "1", "", "daemon daemon daemon /usr/sbin daemon\n"},
		{"a number without a name", who, "12345", "54321", "12345 54321 54321 / 12345\n"},
		{"a number without a name or group", who, "12345", "", "user 12345 has no name on this machine and so no group: name one in run.group"},
		{"one that is not allowed", who, "bin", "", "run.user: commands may not run as user bin on this node: shell.allow_users in /etc/belfry.yaml does not list it"},
		{"root, which is not allowed", who, "root", "", "run.user: commands may not run as user root on this node: shell.allow_users in /etc/belfry.yaml does not list it"},
		{"root by its number", who, "0", "", "run.user: commands may not run as user root on this node: shell.allow_users in /etc/belfry.yaml does not list it"},
		{"everybody", everybody, "bin", "", "bin bin bin /bin bin\n"},
		{"everybody but root", everybody, "root", "", "run.user: commands may not run as user root on this node: shell.allow_users in the configuration file (serve --config) does not list it"},
		{"nobody named", nothing, "", "", "the job has no run.user and the server, which runs as root, has no user for such jobs: name one in run.user, or start the server with --run-as"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newExecutor(t, c.config)
			e.config.Dir = "/"
			a := attempt(job.RunSpec{
				Shell: &job.Shell{
					Command: `echo $(id -un 2>/dev/null || true) $(id -gn 2>/dev/null || true) $(id -Gn 2>/dev/null) $HOME $USER`,
					User:    c.user, Group: c.group,
				},
			})
			r, out, _ := run(t, e, a)
			if got := out + r.Reason.String(); got != c.want {
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

func TestUnprivilegedNodeRunsOnlyAsItself(t *testing.T) {
	t.Parallel()
	a := &accounts{self: account{name: "me", uid: 1000, gid: 1000, home: "/home/me"}}
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

func TestADefaultUserThatCannotBeSwitchedToIsRefused(t *testing.T) {
	t.Parallel()
	me := account{name: "me", uid: 1000}
	for _, c := range []struct {
		user string
		root bool
		want string
	}{
		{"daemon", true, ""},
		{"1000", false, ""},
		{"daemon", false, "this server runs as user me and cannot run commands as daemon: only root can switch users"},
		{"not-on-this-node", true, "user not-on-this-node does not exist on this machine"},
	} {
		got := ""
		if err := checkDefaultUser(c.user, c.root, me); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, root %t: %q, want %q", c.user, c.root, got, c.want)
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
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: text, Limits: &limits}})
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
	if describe(r) != "failed SIGXCPU: ended by SIGXCPU: it used 1 s of processor time" {
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
