package shell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/job"
)

// newSpawners tests on a separate thread which settings a thread can have.
func newSpawners(n int, umask job.Umask, noNewPrivs bool, features *Features) *spawners {
	s := &spawners{idle: make(chan *spawner, n), most: n, noNewPrivs: noNewPrivs, umask: umask}
	missing := func(format string, args ...any) {
		features.Missing = append(features.Missing, fmt.Sprintf(format, args...))
	}
	keep, err := runtimeFiles()
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		onThread(func() {
			if unshareErr := unix.Unshare(unix.CLONE_FS); unshareErr != nil {
				missing("Threads cannot have a umask of their own (%v): commands with umask or nice are started through sh.", unshareErr)
			} else {
				s.threads = true
			}
			if noNewPrivs {
				if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
					missing("Commands can gain privileges: no_new_privs is not available (%v).", err)
				} else {
					features.NoNewPrivileges = true
				}
			}
			// The system call returns 20 less the nice value.
			if v, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
				s.baseNice = 20 - v
			}
			if err == nil {
				err = keepOnly(keep)
			}
		})
	}()
	<-tried
	if !s.threads {
		s.umask = umaskOfProcess()
	}
	if err == nil {
		s.keep, features.OwnFiles = keep, true
	} else {
		missing("Threads cannot have files of their own (%v): each open connection makes starting a command slower.", err)
	}
	return s
}

// prepareThread makes the settings of the thread that newSpawners found to work.
func (s *spawners) prepareThread() {
	if s.threads {
		_ = unix.Unshare(unix.CLONE_FS)
		unix.Umask(int(s.umask))
	}
	if s.noNewPrivs {
		_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
}

func firstThread() bool { return unix.Gettid() == unix.Getpid() }

// withNice calls f while the thread has another nice value, which the process
// inherits.
func (s *spawner) withNice(base, nice int, f func() error) error {
	if nice == 0 {
		return f()
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil {
		return errRefused{fmt.Errorf("set nice to %d: %w", nice, err)}
	}
	defer func() {
		// Only root can return to a higher priority.
		s.spoiled = unix.Setpriority(unix.PRIO_PROCESS, 0, base) != nil
	}()
	return f()
}

// withUmask sets the umask of the thread and returns a function that restores it.
func (s *spawner) withUmask(mask *job.Umask) func() {
	if mask == nil {
		return func() {}
	}
	old := unix.Umask(int(*mask))
	return func() { unix.Umask(old) }
}

func inCgroup(sys *syscall.SysProcAttr, fd int) {
	sys.UseCgroupFD, sys.CgroupFD = true, fd
}

// outputPipe makes a pipe whose read end waits by the runtime's poller. The
// write end is an ordinary one, as a command expects it.
func outputPipe() (read *os.File, write int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, -1, err
	}
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETFL, 0); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, -1, err
	}
	return os.NewFile(uintptr(fds[0]), "output"), fds[1], nil
}

// isZombie reports whether a child has ended, also when it was waited for since.
func isZombie(pid int) bool {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return errors.Is(err, unix.ECHILD) || err == nil && info.Signo != 0
		}
	}
}

// isChild reports whether a process is a child of this one that was not waited for.
func isChild(pid int) bool {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// pidfdFile returns a file of a process that can be waited for, or nil. The process must
// not have been waited for.
func pidfdFile(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

// textFile returns a file to read a text from, which is in memory only: it may
// hold a secret.
func textFile(text, temp string) (*os.File, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return unlinkedFile(text, temp)
	}
	return withText(os.NewFile(uintptr(fd), "stdin"), text)
}

// groupAlive reports whether a process group has a member besides zombies, which process 1 does not
// always reap. It reads the state of every process.
func groupAlive(group int) bool {
	if errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
		return false
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return true
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	want := strconv.Itoa(group)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		b, _ := os.ReadFile("/proc/" + name + "/stat")
		// After the name in parentheses: state, parent, group.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) > 2 && fields[2] == want && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return false
}

// processSpace names the PID namespace of this process: numbers of another one mean other
// processes, or none.
func processSpace() string {
	link, err := os.Readlink("/proc/self/ns/pid") // "pid:[4026531836]"
	if err != nil {
		return ""
	}
	return strings.Trim(link, "pid:[]")
}
