package cli_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

// wrapped is belfry exec in a separate process, like from cron.
func wrapped(t *testing.T, env map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{asBelfry, "exec"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "PASSED=as it is")
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// away is an environment for belfry exec without a server.
func away(t *testing.T) map[string]string {
	return map[string]string{"BELFRY_SERVER": "http://127.0.0.1:1", "BELFRY_TOKEN": "x", "BELFRY_SPOOL": filepath.Join(t.TempDir(), "spool")}
}

// codeOf returns the exit code of a process that has ended on its own.
func codeOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit) || exit.ExitCode() < 0:
		t.Fatalf("belfry exec itself: %v", err)
	}
	return exit.ExitCode()
}

func TestExecPassesStreamsByteForByte(t *testing.T) {
	input := make([]byte, 1<<20)
	_, _ = rand.Read(input)
	for _, flags := range [][]string{nil, {"--no-output"}} {
		for stream, script := range map[string]string{"stdout": "cat", "stderr": "cat >&2"} {
			t.Run(fmt.Sprint(stream, flags), func(t *testing.T) {
				cmd := wrapped(t, away(t), append(flags, "--", "sh", "-c", script)...)
				var out, errs bytes.Buffer
				cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %s", err, &errs)
				}
				got, other := &out, &errs
				if stream == "stderr" {
					got, other = other, got
				}
				if !bytes.Equal(got.Bytes(), input) || other.Len() > 0 {
					t.Errorf("%d bytes pass, of which many are others, and the other stream has %q", got.Len(), other)
				}
			})
		}
	}
	// Both streams are one, as with cron: their order is kept.
	cmd := wrapped(t, away(t), "--", "sh", "-c", "for i in 1 2 3 4 5; do echo $i; echo $i >&2; done; echo $PASSED")
	out, err := cmd.CombinedOutput()
	if want := "1\n1\n2\n2\n3\n3\n4\n4\n5\n5\nas it is\n"; string(out) != want || err != nil {
		t.Errorf("got %q, want %q, %v", out, want, err)
	}
}

func TestExecExitsLikeItsCommand(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	for name, text := range map[string]string{script: "exit 9\n", script + "-not": "exit 9\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code    int
		command []string
	}{
		{0, []string{"true"}},
		{1, []string{"false"}},
		{255, []string{"sh", "-c", "exit 255"}},
		{128 + 9, []string{"sh", "-c", "kill -KILL $$"}},
		{128 + 15, []string{"sh", "-c", "kill -TERM $$"}},
		{128 + 11, []string{"sh", "-c", "kill -SEGV $$"}},
		{9, []string{script}}, // without an interpreter line
		{126, []string{script + "-not"}},
		{127, []string{"no-such-command"}},
		{127, []string{script + "-absent"}},
		// The reader disconnects: the command ends by SIGPIPE, as without a pipe in between.
		{0, []string{"sh", "-c", "yes | head -n 1 >/dev/null"}},
	} {
		cmd := wrapped(t, away(t), append([]string{"--"}, c.command...)...)
		if got := codeOf(t, cmd.Run()); got != c.code {
			t.Errorf("%q ends with %d, want %d", c.command, got, c.code)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := wrapped(t, away(t), "--", "sh", "-c", "while echo y; do :; done")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	_, _ = r.Read(make([]byte, 1))
	r.Close()
	// In some shells echo fails, others end by the signal.
	if code := codeOf(t, cmd.Wait()); code != 128+13 && code != 0 && code != 2 {
		t.Errorf("without a reader it ends with %d", code)
	}
}

// started starts belfry exec with a command that writes a line first, and waits for that line.
func started(t *testing.T, cmd *exec.Cmd) (rest func() (string, int)) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	first := make([]byte, 6)
	if n, err := r.Read(first); string(first[:n]) != "ready\n" {
		t.Fatalf("got %q, %v", first[:n], err)
	}
	return func() (string, int) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r)
		r.Close()
		return b.String(), codeOf(t, cmd.Wait())
	}
}

func TestExecPassesSignalsToTheWholeGroup(t *testing.T) {
	for s, want := range map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGUSR1: "USR1", syscall.SIGQUIT: "QUIT"} {
		t.Run(want, func(t *testing.T) {
			// A test that is run by nohup ignores SIGHUP, which its commands would inherit.
			signal.Notify(make(chan os.Signal, 1), s)
			t.Cleanup(func() { signal.Reset(s) })
			// The shell and its child both report the signal.
			script := fmt.Sprintf("trap 'echo %[1]s; exit 7' %[1]s; sh -c 'trap \"echo inner %[1]s; exit 0\" %[1]s; echo ready; while :; do sleep 0.05; done'; echo no signal", want)
			cmd := wrapped(t, away(t), "--", "sh", "-c", script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, as with cron
			rest := started(t, cmd)
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			if out, code := rest(); code != 7 || out != "inner "+want+"\n"+want+"\n" {
				t.Errorf("it ends with %d, and writes %q", code, out)
			}
		})
	}
}

func TestExecEndsACommandThatTakesTooLong(t *testing.T) {
	// On a busy machine the shell may take longer to set its trap.
	for timeout := 100 * time.Millisecond; ; timeout *= 4 {
		cmd := wrapped(t, away(t), "--timeout", timeout.String(), "--", "sh", "-c", "trap 'echo asked; exit 3' TERM; while :; do sleep 0.05; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := cmd.Output()
		code := codeOf(t, err)
		if code == 124 && string(out) == "asked\n" {
			return
		}
		if code != 124 || len(out) > 0 || timeout > 10*time.Second {
			t.Fatalf("with %s it ends with %d, and writes %q", timeout, code, out)
		}
	}
}

func TestExecRetriesAFailedCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	script := fmt.Sprintf("echo x >>%s; test $(wc -l <%s) = 3", file, file)
	cmd := wrapped(t, away(t), "--retries", "2", "--backoff", "1ms", "--", "sh", "-c", script)
	if code := codeOf(t, cmd.Run()); code != 0 {
		t.Errorf("the third attempt ends with %d", code)
	}
	if cmd = wrapped(t, away(t), "--retries", "2", "--backoff", "1ms", "--", "sh", "-c", script); codeOf(t, cmd.Run()) != 1 {
		t.Error("it ends well after three failures")
	}
}

// history returns the runs of a job as words, the latest first.
func (b *bench) history(name string) string {
	b.t.Helper()
	return b.need("job", "history", name)
}

func TestExecReportsWhenTheServerIsBack(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b := newBench(t)
	var gone atomic.Bool
	at := between(t, b.url, func(http.ResponseWriter, *http.Request) bool {
		if gone.Load() {
			panic(http.ErrAbortHandler)
		}
		return true
	})
	env := map[string]string{"BELFRY_SERVER": at, "BELFRY_TOKEN": b.token(), "BELFRY_SPOOL": filepath.Join(b.dir, "spool")}
	ends := func(want int, args ...string) {
		t.Helper()
		cmd := wrapped(t, env, args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		began := time.Now()
		if code := codeOf(t, cmd.Run()); code != want || errs.Len() > 0 {
			t.Errorf("%q ends with %d, want %d:\n%s", args, code, want, &errs)
		}
		if !gone.Load() && isSlow(began) {
			b.flush(env)
		}
	}
	ends(3, "--job", "new", "--schedule", "30 2 * * *", "--grace", "1h", "--", "sh", "-c", "echo first; exit 3")
	if got := b.history("new"); strings.Count(got, "exit status 3") != 1 {
		t.Errorf("after the first:\n%s", got)
	}
	if got := b.need("logs", "new"); got != "first" {
		t.Errorf("its output is %q", got)
	}
	if got := b.need("job", "get", "new", "-o", "yaml"); !strings.Contains(got, "grace: 1h") || !strings.Contains(got, "30 2 * * *") {
		t.Errorf("the job is\n%s", got)
	}
	gone.Store(true)
	ends(4, "--job", "new", "--schedule", "29 2 * * *", "--", "sh", "-c", "echo second; exit 4")
	// This command was killed: only its parent can report that.
	cmd := wrapped(t, env, "--job", "new", "--", "sh", "-c", "echo $$; exec sleep 30")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pid := startedAndKilled(t, cmd)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if got := b.history("new"); strings.Contains(got, "exit status 4") {
		t.Fatalf("it was reported without a server:\n%s", got)
	}
	gone.Store(false)
	ends(5, "--job", "new", "--schedule", "31 2 * * *", "--grace", "1h", "--", "sh", "-c", "exit 5")
	got := b.history("new")
	for _, want := range []string{"exit status 3", "exit status 4", "exit status 5", "belfry exec ended before its command"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, got)
		}
	}
	if got := b.need("job", "get", "new", "-o", "yaml"); !strings.Contains(got, "31 2 * * *") {
		t.Errorf("the job is\n%s", got)
	}
	if out, errs, code := b.run(env, "exec", "--flush"); out != "0 sent, 0 refused, 0 given up, 0 left\n" || code != cli.ExitOK {
		t.Errorf("flush ends with %d: %s%s", code, out, errs)
	}
}

// isSlow reports whether belfry exec may have given up waiting for a server, as on a machine that
// stalls for seconds.
func isSlow(began time.Time) bool { return time.Since(began) > 4*time.Second }

// flush sends what waits in a spool.
func (b *bench) flush(env map[string]string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) {
		out, errs, _ := b.run(env, "exec", "--flush")
		if strings.HasSuffix(out, " 0 left\n") {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("what waits is not sent: %s%s", out, errs)
		}
	}
}

// startedAndKilled kills belfry exec as soon as its command has written its process id.
func startedAndKilled(t *testing.T, cmd *exec.Cmd) (pid int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := fmt.Fscan(r, &pid); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return pid
}

func TestExecWithALockRunsOneAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	b := newBench(t)
	machine := func(name string) map[string]string {
		return map[string]string{"BELFRY_SERVER": b.url, "BELFRY_TOKEN": b.token(), "BELFRY_SPOOL": filepath.Join(b.dir, name)}
	}
	without := func(name string) map[string]string {
		env := machine(name)
		env["BELFRY_SERVER"] = "http://127.0.0.1:1"
		return env
	}
	for name, c := range map[string]struct {
		first, second map[string]string
		code          int
		says          string
	}{
		"on one machine":                  {machine("a"), machine("a"), 75, "it is running already on this machine"},
		"on two machines":                 {machine("a"), machine("b"), 75, "it is running already, on another machine"},
		"on one machine without a server": {without("c"), without("c"), 75, "it is running already on this machine"},
		"on two machines without one":     {without("c"), without("d"), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for tries := 1; ; tries++ {
				began := time.Now()
				cmd := wrapped(t, c.first, "--job", "reported", "--lock", "--", "sh", "-c", "echo ready; read line; exit 6")
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				rest := started(t, cmd)
				second := wrapped(t, c.second, "--job", "reported", "--lock", "--", "true")
				var errs bytes.Buffer
				second.Stderr = &errs
				code := codeOf(t, second.Run())
				in.Close()
				if _, code := rest(); code != 6 {
					t.Errorf("the first one ends with %d", code)
				}
				if code == c.code && strings.Contains(errs.String(), c.says) {
					break
				}
				if !isSlow(began) || tries == 10 {
					t.Fatalf("the second one ends with %d, want %d:\n%s", code, c.code, &errs)
				}
			}
			// The lock is free again.
			if code := codeOf(t, wrapped(t, c.second, "--job", "reported", "--lock", "--", "true").Run()); code != 0 {
				t.Errorf("a third one ends with %d", code)
			}
			for _, env := range []map[string]string{c.first, c.second} {
				if env["BELFRY_SERVER"] == b.url {
					b.flush(env) // left after a stall of the machine
				}
			}
		})
	}
	if got := b.history("reported"); strings.Count(got, "skipped") != 2 || strings.Count(got, "exit status 6") < 2 {
		t.Errorf("reported is\n%s", got)
	}
}

// The command has the lock: it stays locked when belfry exec is killed.
func TestALockOutlivesExec(t *testing.T) {
	env := away(t)
	file := filepath.Join(t.TempDir(), "end")
	cmd := wrapped(t, env, "--job", "j", "--lock", "--", "sh", "-c", "echo $$; while ! test -e "+file+"; do sleep 0.02; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	startedAndKilled(t, cmd)
	if code := codeOf(t, wrapped(t, env, "--job", "j", "--lock", "--", "true").Run()); code != 75 {
		t.Errorf("beside the command it ends with %d", code)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) {
		if code := codeOf(t, wrapped(t, env, "--job", "j", "--lock", "--", "true").Run()); code == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the lock is held after the end of the command")
		}
	}
}
