package wrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// result is how an attempt ended.
type result struct {
	code   int
	exit   *int   // the command's own exit code
	signal string // that ended it
	reason string
	note   string
	final  bool // another attempt would end in the same way
}

// report converts the result to a report.
func (r *result) report() client.Report {
	rep := client.Report{State: client.ReportSucceeded, ExitCode: r.exit, Signal: r.signal, Reason: r.reason}
	if r.code != 0 {
		rep.State = client.ReportFailed
	}
	rep.Reason = shortened(joined(rep.Reason, r.note))
	return rep
}

// reasonMax is the API's limit of a reason, minus the additions.
const reasonMax = 900

func shortened(reason string) string {
	if len(reason) <= reasonMax {
		return reason
	}
	return strings.ToValidUTF8(reason[:reasonMax], "") + "..."
}

// environment returns the environment of the command: without the token with which it is reported,
// which commands print and pass on.
func environment(own []string) []string {
	return slices.DeleteFunc(own, func(v string) bool { return strings.HasPrefix(v, "BELFRY_TOKEN=") })
}

// attempt runs the command once.
func (w *wrapping) attempt(pipes *pipes) result {
	cmd := exec.Command(w.Command[0], w.Command[1:]...)
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // a PATH with a dot is the user's decision
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.Stdin, pipes.stdout, pipes.stderr
	cmd.ExtraFiles = w.files()
	cmd.Env = environment(os.Environ())
	// On a terminal a separate group would be stopped when it reads.
	group := !onTerminal()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
	err := cmd.Start()
	if errors.Is(err, unix.ENOEXEC) { // a script without an interpreter line, run like execvp(3)
		script := exec.Command("/bin/sh", append([]string{cmd.Path}, w.Command[1:]...)...)
		script.Stdin, script.Stdout, script.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
		script.ExtraFiles, script.SysProcAttr, script.Env = cmd.ExtraFiles, cmd.SysProcAttr, cmd.Env
		cmd = script
		err = cmd.Start()
	}
	if err != nil {
		return w.notStarted(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	timedOut := w.supervise(process{cmd.Process.Pid, group}, exited)
	var r result
	state := cmd.ProcessState
	switch status := state.Sys().(syscall.WaitStatus); {
	case status.Signaled():
		r.signal = unix.SignalName(status.Signal())
		r.code = codeSignal + int(status.Signal())
		r.reason = "ended by " + r.signal
	default:
		code := status.ExitStatus()
		r.code, r.exit = code, &code
		if code != 0 {
			r.reason = fmt.Sprintf("exit status %d", code)
		}
	}
	if timedOut {
		r.code, r.reason = CodeTimedOut, joined(fmt.Sprintf("timed out after %s", job.Duration(w.Timeout).InWords()), r.reason)
	}
	return r
}

// notStarted explains why a command was not executed.
func (w *wrapping) notStarted(err error) result {
	cause := err
	var of *exec.Error
	var at *fs.PathError
	switch {
	case errors.As(err, &of):
		cause = of.Err
	case errors.As(err, &at):
		cause = at.Err
	}
	r := result{code: CodeNotExecutable, final: true, reason: fmt.Sprintf("%s: %v", w.Command[0], cause)}
	hint := ""
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		r.code = CodeNotFound
		if len(w.Command) == 1 {
			hint = "; for a shell write: belfry exec -- sh -c '...'"
		}
	}
	w.Warn("%s%s", r.reason, hint)
	return r
}

// process is a command that was started, alone or as a group.
type process struct {
	pid   int
	group bool
}

func (p process) kill(s syscall.Signal) {
	if p.group {
		_ = unix.Kill(-p.pid, s) // it may have ended
		return
	}
	_ = unix.Kill(p.pid, s)
}

// isGone reports whether no process of the group is left.
func (p process) isGone() bool { return !p.group || errors.Is(unix.Kill(-p.pid, 0), unix.ESRCH) }

// supervise passes signals on until the process has ended, and ends it when its time is over.
func (w *wrapping) supervise(p process, exited <-chan error) (timedOut bool) {
	var timeout, kill <-chan time.Time
	if w.Timeout > 0 {
		timeout = time.After(w.Timeout)
	}
	for {
		select {
		case caught := <-w.signals.caught:
			if s := w.signals.taken(caught); p.group || !fromTerminal(s) {
				p.kill(s)
			}
		case <-timeout:
			timedOut = true
			p.kill(unix.SIGTERM)
			kill = time.After(KillAfter)
		case <-kill:
			p.kill(unix.SIGKILL)
			kill = nil
		case <-exited:
			if kill != nil {
				p.endRest(kill)
			}
			return timedOut
		}
	}
}

// restEvery is the interval of checks for processes left by a command that timed out.
const restEvery = 20 * time.Millisecond

// endRest ends the remaining processes of a command that timed out.
func (p process) endRest(kill <-chan time.Time) {
	for !p.isGone() {
		select {
		case <-kill:
			p.kill(unix.SIGKILL)
			return
		case <-time.After(restEvery):
		}
	}
}

// onTerminal reports whether this process and its children receive signals of a terminal.
func onTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	return term.IsTerminal(int(tty.Fd()))
}

// fromTerminal reports whether a terminal sends a signal to the whole group.
func fromTerminal(s syscall.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGQUIT || s == unix.SIGHUP
}
