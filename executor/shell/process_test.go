package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

// ending runs a command that prints "up", then ends its context, and returns how the command ended
// and its later output.
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

func TestEndingACommand(t *testing.T) {
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
		{"is cancelled", "echo up; exec sleep 1000", time.Minute, &executor.Cancelled{By: "alice"}, "cancelled SIGTERM: cancelled by alice: SIGTERM after T, ended by SIGTERM T later", ""},
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

func TestTimesAreShort(t *testing.T) {
	t.Parallel()
	s := supervision{began: time.Unix(0, 0)}
	s.asked = s.began.Add(10*time.Minute + 3*time.Millisecond)
	s.killed = s.asked.Add(10*time.Second + 2*time.Millisecond)
	if got, want := s.sent(job.Text("ended by SIGKILL")), "SIGTERM after 10 min, SIGKILL 10 s later"; got.String() != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// times matches the times in reasons.
var times = regexp.MustCompile(`[0-9.]+ (ms|s|min)`)

// alivePipe returns a pipe that ends when no command has it open, and the name of the other end for
// commands.
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

func TestLeftoverProcessesAreEnded(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	const (
		asked  = "what it left behind was ended: SIGTERM T later"
		killed = asked + ", SIGKILL T later"
		// A command that only gets a signal may take the time of the test.
		asking, killing = patience, 100 * time.Millisecond
		// sees waits until the process that left the group has reported.
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
		{"what has left the group", "setsid sh -c '>$ALIVE.up; exec sleep 1000' 3>$ALIVE " + sees, true, asking, asked},
		{"what has left the group and the pipes", "setsid sh -c '>$ALIVE.up; exec sleep 1000' 3>$ALIVE >/dev/null 2>&1 " + sees, true, asking, asked},
		{"what has left the group and ignores SIGTERM", "setsid sh -c 'trap \"\" TERM; >$ALIVE.up; exec sleep 1000' 3>$ALIVE " + sees, true, killing, killed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.cgroup && e.Features().Cgroup == "" {
				t.Skip("no cgroups here: ", e.Features().Missing)
			}
			read, name := alivePipe(t)
			a := attempt(job.RunSpec{Shell: &job.Shell{Command: c.text + "\n", Env: map[string]string{"ALIVE": name}}})
			a.Grace = c.grace
			began := time.Now()
			r, _, stderr := run(t, e, a)
			got := times.ReplaceAllString(r.Reason.String(), "T")
			if late := time.Since(began) > leftoverWait && c.want == "" && got == asked; late {
				got = "" // a slow machine may signal a command that would have ended on its own
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
		a := attempt(job.RunSpec{Shell: &job.Shell{Command: "setsid sh -c 'echo up; sleep 1000' 3>$ALIVE; wait", Env: map[string]string{"ALIVE": name}}})
		a.Grace = 50 * time.Millisecond
		ending(t, e, a, executor.ErrTimeout)
		isGone(t, read)
	})
}

// fencing is a Watch that has ended all attempts.
type fencing struct{ noWatch }

func (fencing) Fenced(executor.Process) bool { return true }

func TestAttemptEndedByTheWatchdogIsLost(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(c *Config) { c.Watch = fencing{} })
	for _, c := range []struct{ text, want string }{
		{"kill -KILL $$", "lost SIGKILL: the node has lost touch with the store: ended by the watchdog, ended by SIGKILL"},
		{"exit 0", "lost 0: the node has lost touch with the store: ended by the watchdog, exit status 0"},
	} {
		if r, _, _ := run(t, e, command(c.text)); describe(r) != c.want {
			t.Errorf("%s: got %s, want %s", c.text, describe(r), c.want)
		}
	}
}

// finder is a Watch that finds remaining processes by a file that they write.
type finder struct {
	noWatch
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

func TestPipesDoNotBlockARunWithoutCgroups(t *testing.T) {
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
