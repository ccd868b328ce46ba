//go:build darwin || freebsd

package shell

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/job"
)

func newSpawners(n int, _ job.Umask, noNewPrivs bool, features *Features) *spawners {
	if noNewPrivs {
		features.Missing = append(features.Missing, "Commands can gain privileges: this system has no no_new_privs.")
	}
	return &spawners{idle: make(chan *spawner, n), most: n, umask: umaskOfProcess()}
}

func (s *spawners) prepareThread() {}

func firstThread() bool { return false }

func (s *spawner) withNice(_, _ int, f func() error) error { return f() }

func (s *spawner) withUmask(*job.Umask) func() { return func() {} }

func inCgroup(*syscall.SysProcAttr, int) {}

// link is not needed: threads cannot have files of their own.
type link struct{}

func newLink([]int) (link, int)              { return link{}, -1 }
func (*link) separate([]int, int)            {}
func (*link) settle(int)                     {}
func (*link) close()                         {}
func (*link) pass(files) error               { return nil }
func (*link) take(list files) (files, error) { return list, nil }
func (*link) drop(files)                     {}

func outputPipe() (read *os.File, write int, err error) {
	read, end, err := os.Pipe()
	if err != nil {
		return nil, -1, err
	}
	defer end.Close()
	if write, err = unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		read.Close()
		return nil, -1, err
	}
	return read, write, nil
}

// isZombie cannot be known here without waiting for the process.
func isZombie(int) bool { return false }

// isChild is not used: without pidfds nothing is carried over.
func isChild(int) bool { return false }

func pidfdFile(int) *os.File { return nil }

func textFile(text, temp string) (*os.File, error) { return unlinkedFile(text, temp) }

func groupAlive(group int) bool { return !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }

// cgroup is not there.
type cgroup struct{ fd int }

func (*cgroup) path() string            { return "" }
func (*cgroup) retire()                 {}
func (*cgroup) kill()                   {}
func (*cgroup) terminate(int)           {}
func (*cgroup) vacate() bool            { return true }
func (*cgroup) oomKills(job.Limits) int { return 0 }
func (*cgroup) cpu() time.Duration      { return 0 }
func (*cgroup) peak(job.Limits) int64   { return 0 }

func reopenCgroup(string) *cgroup { return nil }

type cgroups struct{}

func newCgroups(_ string, features *Features) *cgroups {
	features.Missing = append(features.Missing, "This system has no cgroups: limits apply to each process, and processes that leave their group are not ended.")
	return nil
}

func (*cgroups) take(job.Limits, Features) (*cgroup, error) { return nil, nil }
func (*cgroups) put(*cgroup)                                {}
func (*cgroups) close()                                     {}

// processSpace is empty: all processes share one numbering.
func processSpace() string { return "" }
