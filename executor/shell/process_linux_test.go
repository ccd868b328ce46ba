package shell

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

// A node that was stopped for a while finds, when it wakes, that both a process and its
// context have ended. The process was first.
func TestProcessThatEndedBeforeItsContextEndedOnItsOwn(t *testing.T) {
	p := endedProcess(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(executor.ErrFenced)
	s := supervision{proc: p, prepared: &preparedCommand{}, grace: time.Second}
	if !p.gone() {
		t.Error("a process that was not waited for yet seems to run")
	}
	p.watch()
	s.await(ctx)
	if r := s.result(ctx, nil, nil); r.Outcome != job.OutcomeFailed || r.Reason.String() != "exit status 3" {
		t.Errorf("the process has ended with %s: %s, want its own exit status", r.Outcome, r.Reason)
	}
}

// The same applies to its grace.
func TestProcessThatEndedBeforeItsGraceWasNotKilled(t *testing.T) {
	for range 20 { // chance decides which comes first
		p := endedProcess(t)
		p.watch()
		<-p.exited
		s := supervision{proc: p, prepared: &preparedCommand{}, grace: 1}
		if s.end(); !s.killed.IsZero() || s.ended.IsZero() {
			t.Fatal("a process that had ended was killed")
		}
	}
}

// endedProcess returns a process that has ended with exit status 3 and is not reaped yet.
func endedProcess(t *testing.T) *process {
	t.Helper()
	child, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 3"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess(child.Pid)
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
