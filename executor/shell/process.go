package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// process is a started process.
type process struct {
	pid    int
	exited chan struct{} // closed once it has ended and been reaped
	// status and usage are valid after exited.
	status unix.WaitStatus
	// usage is that of the process and the processes that it has waited for.
	usage unix.Rusage
	// watching is closed when the wait for it has ended, and pidfd is the file of that wait, nil if
	// not possible. watch sets both.
	watching chan struct{}
	pidfd    *os.File
}

func newProcess(pid int) *process { return &process{pid: pid, exited: make(chan struct{})} }

// over reports whether the process has ended, and if so closes exited. It is not to be called
// after watch.
func (p *process) over() bool {
	for {
		pid, err := unix.Wait4(p.pid, &p.status, unix.WNOHANG, &p.usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if pid != p.pid {
			return false
		}
		close(p.exited)
		return true
	}
}

// gone reports whether the process has ended, reaped or not: a node that resumes after SIGSTOP may
// see the end of a context first.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return isZombie(p.pid)
	}
}

// watch begins to wait for the process. With a pidfd that needs no thread: ten thousand commands
// may run.
func (p *process) watch() {
	p.watching, p.pidfd = make(chan struct{}), pidfdFile(p.pid)
	go func() {
		defer close(p.watching)
		if p.pidfd != nil {
			defer p.pidfd.Close()
			switch waited, err := p.waitReadable(); {
			case errors.Is(err, os.ErrDeadlineExceeded):
				return // by unwatch
			case waited:
				close(p.exited)
				return
			}
		}
		defer close(p.exited)
		for {
			if _, err := unix.Wait4(p.pid, &p.status, 0, &p.usage); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
}

// unwatch ends the wait for a process, and reports whether another program can wait for it: not if
// it has ended, or if the wait cannot be cancelled.
func (p *process) unwatch() bool {
	if p.pidfd == nil {
		return false
	}
	_ = p.pidfd.SetReadDeadline(time.Now()) // if it is closed, the process has ended
	<-p.watching
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// waitReadable waits in the runtime's poller, for which a pidfd is readable once its process has
// ended. It returns false if that does not work.
func (p *process) waitReadable() (waited bool, err error) {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return false, err
	}
	err = raw.Read(func(uintptr) bool {
		for {
			pid, err := unix.Wait4(p.pid, &p.status, unix.WNOHANG, &p.usage)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			waited = err == nil && pid == p.pid
			return waited || err != nil
		}
	})
	return err == nil && waited, err
}

// bufferSize is the size of a read of output: half of a pipe, so that its writer can continue.
const bufferSize = 32 << 10

// pump copies what a command writes until the pipe is at its end or its deadline. It uses a buffer
// only while there is output to copy.
func (e *Executor) pump(pipe *os.File, to io.Writer, match *verdict.StreamMatcher) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		var buffer *[]byte
		var n int
		err := raw.Read(func(fd uintptr) bool {
			buffer = e.buffers.Get().(*[]byte)
			for {
				n, err = unix.Read(int(fd), *buffer)
				if !errors.Is(err, unix.EINTR) {
					break
				}
			}
			if errors.Is(err, unix.EAGAIN) {
				e.buffers.Put(buffer)
				buffer = nil
				return false
			}
			return true
		})
		if err == nil && n > 0 {
			// Writers never fail; after a failure the output would still be read to the end,
			// unnoticed by the command.
			_, _ = to.Write((*buffer)[:n])
			match.Write((*buffer)[:n])
		}
		if buffer != nil {
			e.buffers.Put(buffer)
		}
		if err != nil || n <= 0 {
			return
		}
	}
}

// supervision is the state of a command from the start of its process to the end of its group.
type supervision struct {
	proc     *process
	prepared *preparedCommand
	watch    Watch
	grace    time.Duration
	drained  <-chan struct{} // closed at the end of the output
	began    time.Time
	// hidden is the most memory that the previous program of the node had, if that started the command.
	hidden int64

	// When the group got SIGTERM, because ctx ended or processes were left; zero for never.
	asked time.Time
	// When it got SIGKILL: during the life of the process, or after it for the remaining ones.
	killed, rest time.Time
	ended        time.Time // when the process ended, not its group
	stuck        bool      // SIGKILL has no effect on it
	leftover     bool      // it left processes that had to be ended
	carried      bool      // another program continues it
	fenced       bool      // the watchdog has ended it, because the node was silent
}

// run waits until all processes of the command have ended, and ends them when ctx ends.
func (s *supervision) run(ctx context.Context) {
	// Most commands and their output end soon: they need no watch.
	timer := time.NewTimer(watchAfter)
	select {
	case <-s.drained:
	case <-timer.C:
	case <-ctx.Done():
	}
	timer.Stop()
	if !s.proc.over() {
		s.proc.watch()
	}
	if s.await(ctx); !s.carried {
		s.drain()
	}
}

// await waits for the end of the process, and ends it when ctx ends.
func (s *supervision) await(ctx context.Context) {
	select {
	case <-s.proc.exited:
	case <-ctx.Done():
	}
	if s.carried = errors.Is(context.Cause(ctx), executor.ErrCarried) && !s.proc.gone() && s.proc.unwatch(); s.carried {
		return
	}
	if !s.proc.gone() {
		s.end() //nolint:contextcheck // ctx may have ended, and the grace begins then
		return
	}
	// The process ended first, even if ctx has ended since.
	<-s.proc.exited
	s.ended = time.Now()
	s.settle(ctx)
}

// end signals the whole group to end, and kills the rest after the grace.
func (s *supervision) end() {
	exited := s.proc.exited
	if s.grace > 0 {
		s.asked = time.Now()
		s.signal(unix.SIGTERM)
		timer := time.NewTimer(s.grace)
		defer timer.Stop()
		select {
		case <-exited:
		case <-timer.C:
		}
		if s.proc.gone() { // it may have ended in time, while the node was stopped
			<-exited
			s.ended = time.Now()
			if s.emptyWithin(s.grace-time.Since(s.asked), nil) {
				return
			}
		}
	}
	s.kill()
}

// kill kills the whole group and waits until it is gone.
func (s *supervision) kill() {
	if s.ended.IsZero() {
		s.killed = time.Now()
	} else {
		s.rest = time.Now()
	}
	s.signal(unix.SIGKILL)
	if s.ended.IsZero() {
		timer := time.NewTimer(killWait)
		defer timer.Stop()
		select {
		case <-s.proc.exited:
			s.ended = time.Now()
		case <-timer.C:
			s.stuck = true
			return
		}
	}
	s.emptyWithin(killWait, func() { s.signal(unix.SIGKILL) })
}

// settle ends the remaining processes of a command that has exited. They may exit on their own; if
// not, they get SIGTERM, then SIGKILL.
func (s *supervision) settle(ctx context.Context) {
	if s.empty() {
		return
	}
	waited, cancel := context.WithTimeout(ctx, leftoverWait)
	defer cancel()
	if s.emptyUntil(waited, nil) {
		return
	}
	s.leftover = true
	s.asked = time.Now()
	s.signal(unix.SIGTERM)
	if !s.emptyWithin(s.grace, nil) { //nolint:contextcheck // what is left has its grace though ctx ends
		s.kill() //nolint:contextcheck // likewise
	}
}

// drain reads what is still in the pipes. A process outside the group that
// has them open is searched for and killed.
func (s *supervision) drain() {
	if s.forced() && s.prepared.cgroup == nil {
		s.endRest()
	}
	timer := time.NewTimer(drainWait)
	defer timer.Stop()
	select {
	case <-s.drained:
		return
	case <-timer.C:
	}
	found := s.endRest()
	s.leftover = s.leftover || found && !s.forced()
	timer.Reset(drainWait)
	select {
	case <-s.drained:
	case <-timer.C:
	}
}

// endRest kills processes that have left the group, and reports whether there were any.
func (s *supervision) endRest() bool {
	if s.watch.EndRest(s.prepared.watched) == 0 {
		return false
	}
	if s.rest.IsZero() && s.killed.IsZero() {
		s.rest = time.Now()
	}
	return true
}

// forced reports whether the process did not end on its own.
func (s *supervision) forced() bool {
	return !s.leftover && !s.asked.IsZero() || !s.killed.IsZero()
}

// signal sends a signal to the group and, with a cgroup, to processes that have left it.
func (s *supervision) signal(sig syscall.Signal) {
	// It may be gone. Its number is not reused before it was reaped, nor while its group has
	// members.
	_ = unix.Kill(-s.proc.pid, sig)
	switch sig {
	case unix.SIGKILL:
		s.prepared.cgroup.kill()
	case unix.SIGTERM:
		s.prepared.cgroup.terminate(s.proc.pid)
		// A stopped process only handles SIGTERM once it continues.
		_ = unix.Kill(-s.proc.pid, unix.SIGCONT)
	}
}

// empty reports whether the group has no processes left. The process itself must have been reaped.
func (s *supervision) empty() bool {
	if s.prepared.cgroup != nil {
		// Zombies do not count there, and processes that left the group do.
		return s.prepared.cgroup.vacate()
	}
	if errors.Is(unix.Kill(-s.proc.pid, 0), unix.ESRCH) {
		return true
	}
	// As process 1 this process is the parent of orphans, which are zombies until it reaps them.
	for {
		if pid, err := unix.Wait4(-s.proc.pid, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
			break
		}
	}
	return !groupAlive(s.proc.pid)
}

func (s *supervision) emptyWithin(d time.Duration, again func()) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return s.emptyUntil(ctx, again)
}

// emptyUntil waits until the group is empty or ctx ends, and reports whether it is empty. It calls
// again each time that it is not.
func (s *supervision) emptyUntil(ctx context.Context, again func()) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := pollFirst; ; wait = min(2*wait, pollMost) {
		select {
		case <-ctx.Done():
			return s.empty()
		case <-timer.C:
		}
		if s.empty() {
			return true
		}
		if again != nil {
			again()
		}
		timer.Reset(wait)
	}
}

// result returns the result of the command.
func (s *supervision) result(ctx context.Context, success *job.Success, match *verdict.Matcher) executor.Result {
	r := executor.Result{Outcome: job.OutcomeFailed}
	var ending job.Reason
	switch status := s.proc.status; {
	case s.stuck:
		ending = reason.Hangs.Of(shortly(killWait))
	case status.Signaled():
		r.Signal = unix.SignalName(status.Signal())
		ending = reason.EndedBy.Of(r.Signal)
	default:
		code := status.ExitStatus()
		r.ExitCode = &code
		ending = reason.ExitStatus.Of(code)
	}

	if sent := s.sent(ending); !sent.IsZero() {
		var cause job.Reason
		r.Outcome, cause = executor.ByCause(ctx)
		if r.Reason = sent; r.Outcome != job.OutcomeTimedOut {
			r.Reason = reason.Because.Of(cause, sent)
		}
		return r
	}
	if s.fenced {
		r.Outcome, r.Reason = job.OutcomeLost, reason.ByWatchdog.Of(reason.NodeFenced.Of(), ending)
		return r
	}
	switch {
	case r.ExitCode == nil:
		r.Reason = s.explained(r.Signal, ending)
	case !slices.Contains(successCodes(success), *r.ExitCode):
		r.Reason = ending
	case !match.OK():
		r.Reason = reason.Unmatched.Of(ending, success.Match)
	default:
		r.Outcome = job.OutcomeSucceeded
	}
	if s.leftover {
		if left := s.left(); r.Reason.IsZero() {
			r.Reason = left
		} else {
			r.Reason = reason.Both.Of(r.Reason, left)
		}
	}
	return r
}

// sent describes the signals to the command and their times; none if it exited by itself.
func (s *supervision) sent(ending job.Reason) (sent job.Reason) {
	if !s.forced() {
		return sent
	}
	var stuck job.Reason
	if s.stuck {
		stuck = ending
	}
	after := shortly(s.asked.Sub(s.began))
	switch {
	case s.asked.IsZero():
		return reason.Killed.Of(shortly(s.killed.Sub(s.began)), stuck)
	case !s.killed.IsZero():
		return reason.TermKilled.Of(after, shortly(s.killed.Sub(s.asked)), stuck)
	}
	sent = reason.Terminated.Of(after, ending, shortly(s.ended.Sub(s.asked)))
	if !s.rest.IsZero() {
		sent = reason.Both.Of(sent, reason.RestKilled.Of(shortly(s.rest.Sub(s.began))))
	}
	return sent
}

// left describes the signals to the remaining processes of an exited command, with their times
// after its end.
func (s *supervision) left() job.Reason {
	asked, killed := shortly(s.asked.Sub(s.ended)), shortly(s.rest.Sub(s.ended))
	switch {
	case s.rest.IsZero():
		return reason.LeftTerm.Of(asked)
	case s.asked.IsZero():
		return reason.LeftKilled.Of(killed)
	}
	return reason.LeftBoth.Of(asked, killed)
}

// explained adds the cause of a signal that this process has not sent, if possible.
func (s *supervision) explained(signal string, ending job.Reason) job.Reason {
	p := s.prepared
	switch {
	case signal == "SIGKILL" && p.cgroup.oomKills(p.limits) > p.oomKills:
		return reason.OverMemory.Of(ending, fmt.Sprint(p.limits.Memory))
	case p.cpuTime > 0 && signal == "SIGXCPU":
		return reason.OverTime.Of(ending, shortly(p.cpuTime))
	}
	return ending
}

func successCodes(s *job.Success) []int {
	if s == nil || len(s.ExitCodes) == 0 {
		return []int{0}
	}
	return s.ExitCodes
}

// shortly rounds a time to the precision that a reader needs.
func shortly(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
