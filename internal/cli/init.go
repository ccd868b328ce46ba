package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/belfry-cron/belfry/internal/node/watchdog"
)

// RunAsFirst is [Run] for the first process of a system or container, which every orphan becomes a
// child of and which must wait for them. It runs a server in a child process, forwards the signals
// that stop it, and waits for all children that end. It does not take the server's own children
// from their parent.
func RunAsFirst(ctx context.Context, env Env, args []string) ExitCode {
	if len(args) == 0 || args[0] != "serve" {
		return Run(ctx, env, args) // the command soon ends, and starts no process
	}
	if err := watchdog.HideMemory(); err != nil { // this process has the server's environment
		env.tell("belfry serve: %v\n", err)
		return ExitFailed
	}
	code, err := runBelow(args)
	if err != nil {
		env.tell("belfry serve: %v\n", err)
	}
	return code
}

// runBelow runs this program as a child of this process until it ends, and returns its exit code.
func runBelow(args []string) (ExitCode, error) {
	program, err := os.Executable()
	if err != nil {
		return ExitFailed, failed("find this program: %v", err)
	}
	signals := make(chan os.Signal, 8) // more than anyone sends before they are forwarded
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	// It has a process group of its own, since a terminal would send it each interrupt a second time.
	server, err := os.StartProcess(program, append([]string{program}, args...), &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return ExitFailed, failed("start the server below process 1: %v", err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				_ = syscall.Kill(server.Pid, s.(syscall.Signal)) // it may have ended just now
			}
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return ExitFailed, failed("wait for the server: %v", err)
		case pid == server.Pid && status.Signaled():
			return ExitCode(128 + int(status.Signal())), nil
		case pid == server.Pid && status.Exited():
			return ExitCode(status.ExitStatus()), nil
		}
	}
}
