package shell

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/sys/cache"
	"github.com/belfry-cron/belfry/job"
	"golang.org/x/sys/unix"
)

func TestCommandsThatCannotStart(t *testing.T) {
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

type refuser struct{ noWatch }

func (refuser) Spawning(executor.Process) error { return errors.New("the disk is full") }

func TestAForkWithoutRoomIsNotAFailureOfTheJob(t *testing.T) {
	needRoot(t)
	// Not parallel: the limit applies to the whole process. Root is exempt.
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &old); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, func(c *Config) { c.Dir = "/"; c.AllowGroups = []string{"54321"} })
	e.shortageRest = 0
	a := attempt(job.RunSpec{Shell: &job.Shell{Command: "pwd", User: "54321", Group: "54321"}})
	// The limit only applies if the user already has a process.
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
	if want := "failed unstarted: the machine has no room to start it: fork: resource temporarily unavailable"; describe(r) != want {
		t.Errorf("got  %s\nwant %s", describe(r), want)
	}
	if r, _, _ := run(t, e, a); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("with room: %s", describe(r))
	}
}

// With no descriptor left neither the files of a command can be opened nor its user be looked
// up, which says nothing about the job.
func TestAMachineWithoutDescriptorsFailsNoJob(t *testing.T) {
	// Not parallel: the limit applies to the whole process.
	e := newExecutor(t)
	e.shortageRest = 0
	cases := map[string]executor.Attempt{"pipes": command("pwd"), "script": attempt(job.RunSpec{Shell: &job.Shell{Script: "pwd"}})}
	if os.Geteuid() == 0 { // only root runs commands as another user
		cases["user"] = attempt(job.RunSpec{Shell: &job.Shell{Command: "pwd", User: "nobody", Dir: "/"}})
	}
	if r, _, _ := run(t, e, command("pwd")); r.Outcome != job.OutcomeSucceeded {
		t.Fatal(describe(r))
	}
	results := map[string]executor.Result{}
	withoutDescriptors(t, func() {
		for name, a := range cases {
			e.accounts.Load().known = cache.Map[[2]string, knownAccount]{}
			results[name] = e.Run(context.Background(), a, executor.Output{})
		}
	})
	for name, r := range results {
		if text := describe(r); !strings.HasPrefix(text, "failed unstarted: the machine has no room to start it: ") || !strings.HasSuffix(text, "too many open files") {
			t.Errorf("%s: %s", name, text)
		}
	}
	for name, a := range cases {
		if r, _, _ := run(t, e, a); r.Outcome != job.OutcomeSucceeded {
			t.Errorf("%s, with descriptors again: %s", name, describe(r))
		}
	}
}

// withoutDescriptors calls f while this process can open no file.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

func TestFailedLookupDoesNotBlameTheUser(t *testing.T) {
	for err, unknown := range map[error]bool{
		user.UnknownUserError("x"):  true,
		user.UnknownUserIdError(5):  true,
		user.UnknownGroupError("x"): true,
		&fs.PathError{Op: "open", Path: "/etc/passwd", Err: syscall.ENOENT}: true,
		&fs.PathError{Op: "open", Path: "/etc/passwd", Err: syscall.EMFILE}: false,
		errors.New("user: lookup username x: connection timed out"):         false,
	} {
		if isUnknown(err) != unknown {
			t.Errorf("%v: unknown is %v", err, !unknown)
		}
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

func TestBrokenSpawnerIsReplaced(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(c *Config) { c.Spawns = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	used := map[*spawner]bool{}
	for range 3 {
		err := e.spawners.do(ctx, func(s *spawner) error {
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

// Not parallel: files are counted for the whole process.
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
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: "cat", Stdin: "text"}})
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
	// All wait for the only spawner.
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

// Not parallel: threads are counted for the whole process, and never end.
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
		a.Job.Run.Shell.Stdin = ""
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
