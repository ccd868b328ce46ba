//go:build servers

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// upgradable starts a server whose program can be replaced.
func (f *folder) upgradable(t *testing.T, args ...string) (s *server, program string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("commands are carried over on Linux alone")
	}
	if err := os.MkdirAll(filepath.Dir(f.evidence), 0o755); err != nil {
		t.Fatal(err)
	}
	program = f.path("belfry")
	f.install(t, program)
	return f.serve(t, options{program: program, args: args}), program
}

// install puts the program into a file, as a package manager does: the old one stays for those
// who have it open.
func (f *folder) install(t *testing.T, program string) {
	t.Helper()
	f.write(t, program, `cp "$0" "$1.new"`, programs.belfry)
}

// write makes a program by a command of the shell, in a process of its own: no other process that
// is made meanwhile has the file open.
func (f *folder) write(t *testing.T, program, command, from string) {
	t.Helper()
	if text, err := exec.Command("sh", "-c", command+` && chmod +x "$1.new" && mv "$1.new" "$1"`, from, program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// gone reports whether a process has ended, be it waited for or not.
func gone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

const continues = `"msg":"continuing with the attempts of the version before"`

// upgrade executes the file of the program, and waits until it has taken over.
func (s *server) upgrade() {
	s.t.Helper()
	before := s.log.lines(continues)
	s.signal(syscall.SIGUSR2)
	eventually(s.t, "the new version continues", func() bool { return s.log.lines(continues) > before })
}

// steps is a command that says each number when a file of that name is there, and the file
// where it has written its process id.
func (f *folder) steps(n int) (command, pid string) {
	pid = f.path("pid")
	return fmt.Sprintf("echo $$ >>%s; for i in $(seq 0 %d); do while [ ! -e %s/go$i ]; do sleep 0.05; done; echo step $i; echo and $i >&2; done", pid, n-1, filepath.Dir(pid)), pid
}

// says waits until a run has written a text.
func (s *server) says(run job.ID, text string) {
	s.t.Helper()
	eventually(s.t, "the run writes "+text, func() bool { return strings.Contains(s.output(run), text) })
}

func TestACommandRunsThroughThreeUpgrades(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s, program := f.upgradable(t)
	command, pid := f.steps(5)
	s.apply(fmt.Sprintf("{name: long, run: {shell: %q}, policy: {overlap: skip, retry: {attempts: 2}, success: {exit_codes: [7], match: 'step 0\\nstep'}}}", command+"; exit 7"))
	run := s.runByHand("long").ID
	f.touch(t, "go0")
	s.says(run, "and 0")
	for i := range 3 {
		f.install(t, program)
		s.upgrade()
		if got := s.run(run); got.State != job.StateRunning || got.Attempt != 1 {
			t.Fatalf("after upgrade %d it is attempt %d and %s", i+1, got.Attempt, got.State)
		}
		if other := s.ended(s.runByHand("long").ID); other.Outcome != job.OutcomeSkipped {
			t.Errorf("after upgrade %d another run ended %s: its slot was free", i+1, other.Outcome)
		}
		f.touch(t, fmt.Sprint("go", i+1))
		s.says(run, fmt.Sprint("and ", i+1))
	}
	f.touch(t, "go4")
	ended := s.ended(run)
	if ended.Outcome != job.OutcomeSucceeded || ended.Attempt != 1 || ended.ExitCode == nil || *ended.ExitCode != 7 {
		t.Errorf("it ended as attempt %d with %s: %s", ended.Attempt, ended.Outcome, ended.Reason)
	}
	if got, want := s.output(run), "step 0\nand 0\nstep 1\nand 1\nstep 2\nand 2\nstep 3\nand 3\nstep 4\nand 4\n"; !sameLines(got, want) {
		t.Errorf("the output is\n%swant\n%s", got, want)
	}
	if started, _ := os.ReadFile(pid); strings.Count(string(started), "\n") != 1 {
		t.Errorf("it was started as the processes %q", started)
	}
	s.stop()
}

// sameLines compares texts, but for the order of neighbours that came from two streams.
func sameLines(a, b string) bool {
	for _, prefix := range []string{"step", "and"} {
		var of [2]string
		for i, text := range []string{a, b} {
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, prefix) {
					of[i] += line
				}
			}
		}
		if of[0] != of[1] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestAfterAnUpgradeCommandsCanBeCancelledAndTimeOut(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s, _ := f.upgradable(t)
	s.apply(`{name: cancelled, run: {shell: "sleep 600 & wait"}}`)
	cancelled := s.runByHand("cancelled").ID
	eventually(t, "it runs", func() bool { return s.run(cancelled).State == job.StateRunning })
	var late job.ID
	timeout := 6 * time.Second
	for ; ; timeout *= 2 {
		s.apply(fmt.Sprintf(`{name: late, run: {shell: "sleep 600"}, policy: {timeout: %s}}`, timeout))
		late = s.runByHand("late").ID
		eventually(t, "the other runs", func() bool { state := s.run(late).State; return state == job.StateRunning || state == job.StateDone })
		s.upgrade()
		if s.run(late).State == job.StateRunning || timeout > patience/2 {
			break // else the upgrade took longer
		}
	}
	if _, err := s.Cancel(t.Context(), cancelled, client.CancelRequest{Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if got := s.ended(cancelled); got.Outcome != job.OutcomeCancelled || !strings.Contains(got.Reason, "SIGTERM after") || !strings.Contains(got.Reason, "enough") {
		t.Errorf("the cancelled run ended with %s: %s", got.Outcome, got.Reason)
	}
	got := s.ended(late)
	if took := got.Ended.Sub(got.Started); got.Outcome != job.OutcomeTimedOut || took < timeout || took > timeout+patience {
		t.Errorf("the late run took %s and ended with %s: %s", took, got.Outcome, got.Reason)
	}
	s.stop()
}

func TestACommandThatEndsWhileNoVersionRunsHasItsExitStatus(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	file := filepath.Join(t.TempDir(), "belfry.yaml")
	const settings = "capacity: 7\n"
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := f.upgradable(t, "--config", file)
	pid := f.path("pid")
	s.apply(fmt.Sprintf("{name: short, run: {shell: %q}}", "echo $$ >"+pid+"; while [ ! -e "+f.path("go")+" ]; do sleep 0.02; done; echo last words; exit 9"))
	run := s.runByHand("short").ID
	eventually(t, "it runs", func() bool { text, _ := os.ReadFile(pid); return len(text) > 0 })

	// The new version begins when it can read its settings: meanwhile the command ends.
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	before := s.log.lines(continues)
	s.signal(syscall.SIGUSR2)
	for _, wait := range []func(){func() {}, func() {
		eventually(t, "the old version ends", func() bool { return s.log.lines(`"msg":"executing the new version"`) == 1 })
		f.touch(t, "go")
		number, _ := os.ReadFile(pid)
		eventually(t, "the command ends", func() bool { return gone(string(number)) })
	}} {
		wait()
		if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the new version continues", func() bool { return s.log.lines(continues) > before })
	ended := s.ended(run)
	if ended.Outcome != job.OutcomeFailed || ended.ExitCode == nil || *ended.ExitCode != 9 || ended.Attempt != 1 {
		t.Errorf("it ended as attempt %d with %s: %s", ended.Attempt, ended.Outcome, ended.Reason)
	}
	if got := s.output(run); got != "last words\n" {
		t.Errorf("its output is %q", got)
	}
	s.stop()
}

func TestAKillAfterAnUpgradeEndsCommandsAsBefore(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s, _ := f.upgradable(t)
	command, pid := f.steps(1)
	s.apply(fmt.Sprintf("{name: long, run: {shell: %q}}", command))
	run := s.runByHand("long").ID
	eventually(t, "it runs", func() bool { text, _ := os.ReadFile(pid); return len(text) > 0 })
	s.upgrade()
	s.kill()
	next := f.serve(t, options{})
	if got := next.ended(run); got.Outcome != job.OutcomeLost {
		t.Errorf("it ended with %s: %s", got.Outcome, got.Reason)
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if !gone(string(text)) {
		t.Error("the command is still running")
	}
	next.stop()
}

func TestAnUpgradeToAProgramThatDoesNotWorkChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s, program := f.upgradable(t)
	s.apply(fmt.Sprintf("{name: short, run: {shell: %q}}", "while [ ! -e "+f.path("go")+" ]; do sleep 0.02; done"))
	run := s.runByHand("short").ID
	eventually(t, "it runs", func() bool { return s.run(run).State == job.StateRunning })
	f.write(t, program, `printf '#!/bin/sh\necho the library is missing >&2\nexit 1\n' >"$1.new"`, "")
	s.signal(syscall.SIGUSR2)
	eventually(t, "it says why", func() bool {
		return s.log.lines(`"msg":"cannot upgrade; this version continues"`) == 1 && s.log.lines("the library is missing") == 1
	})
	f.touch(t, "go")
	if ended := s.ended(run); ended.Outcome != job.OutcomeSucceeded {
		t.Errorf("it ended with %s: %s", ended.Outcome, ended.Reason)
	}
	s.stop()
}
