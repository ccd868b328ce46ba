package shell

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
)

// spawners make processes, a bounded number at a time. Each is a goroutine with
// a thread of its own, made when it is first needed. They take what is asked for
// from one queue: where many wait, each goes from one to the next without that
// another thread has to be woken in between.
type spawners struct {
	// threads is set when umask and nice are set by the spawner, and not by a
	// shell in the new process.
	threads    bool
	noNewPrivs bool
	baseNice   int // of the node
	most       int // how many there may be
	// requests has no room, so that what is in it is being worked at. It is
	// closed by close.
	requests chan request
	mu       sync.Mutex
	started  int
	wg       sync.WaitGroup
}

// request is something to do on the thread of a spawner.
type request struct {
	nice int
	f    func(*spawner) error
	done chan error // has room for the answer
}

// spawner makes processes on its thread.
type spawner struct {
	// spoiled is set when the thread could not be put back as it was.
	spoiled bool
}

// do calls f on the thread of a spawner, when one is free, with the given nice
// value. Those that wait get theirs in the order in which they came. It returns
// the error of ctx if that ends before.
func (s *spawners) do(ctx context.Context, nice int, f func(*spawner) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := request{nice: nice, f: f, done: make(chan error, 1)}
	select {
	case s.requests <- r:
		return <-r.done
	default:
		s.another()
	}
	select {
	case s.requests <- r:
		return <-r.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// another starts a spawner if there may be one more.
func (s *spawners) another() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started < s.most {
		s.started++
		s.start()
	}
}

func (s *spawners) start() {
	s.wg.Go(func() {
		// The thread ends with the goroutine, because it is never unlocked:
		// what was set for it must not become anybody else's.
		runtime.LockOSThread()
		s.prepareThread()
		var one spawner
		for r := range s.requests {
			r.done <- one.withNice(s.baseNice, r.nice, r.f)
			if one.spoiled {
				s.start() // in its place
				return
			}
		}
	})
}

// close ends the spawners, all of which must be idle.
func (s *spawners) close() {
	close(s.requests)
	s.wg.Wait()
}

// fork makes the process.
func (s *spawner) fork(p *prepared) (pid, pidfd int, err error) {
	if p.missing != nil {
		return 0, -1, p.missing
	}
	attr := &syscall.ProcAttr{
		Dir:   p.dir,
		Env:   p.env,
		Files: []uintptr{p.input.Fd(), uintptr(p.ends[0]), uintptr(p.ends[1])},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Credential: p.account.credential()},
	}
	pidfd = -1
	s.forkAttributes(attr.Sys, p, &pidfd)
	defer s.withUmask(p.umask)()
	pid, _, err = syscall.StartProcess(p.path, p.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		// Like execvp and every shell: a text without a first line that says
		// what executes it is a shell script.
		argv := append([]string{"/bin/sh", p.path}, p.argv[1:]...)
		pid, _, err = syscall.StartProcess(argv[0], argv, attr)
	}
	return pid, pidfd, err
}
