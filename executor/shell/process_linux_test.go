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

// A node that was stopped for a while finds, when it wakes, the end of a process and that of
// its context at once. The process was first.
func TestProcessThatEndedBeforeItsContextEndedOnItsOwn(t *testing.T) {
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
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(executor.ErrFenced)
	s := supervision{proc: p, prepared: &prepared{}, grace: time.Second}
	if !p.gone() {
		t.Error("a process that was not waited for yet seems to run")
	}
	p.watch()
	s.await(ctx)
	if r := s.result(ctx, nil, nil); r.Outcome != job.OutcomeFailed || r.Reason != "exit status 3" {
		t.Errorf("the process has ended with %s: %s, want its own exit status", r.Outcome, r.Reason)
	}
}
