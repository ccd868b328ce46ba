package shell

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
)

// spawners make processes, a bounded number at a time. Each is a goroutine with
// a thread of its own.
type spawners struct {
	// threads is set when umask and nice are set by the spawner, and not by a
	// shell in the new process.
	threads    bool
	noNewPrivs bool
	baseNice   int           // of the node
	slots      chan struct{} // as many as spawners may be at work
	idle       chan *spawner // has room for all of them
	wg         sync.WaitGroup
}

// spawner makes processes on its thread.
type spawner struct {
	requests chan func(*spawner) // closed to end it
	done     chan struct{}       // after each request
	// spoiled is set when the thread could not be put back as it was.
	spoiled bool
}

// do calls f on the thread of a spawner, when one is free, with the given nice
// value. It returns the error of ctx if that ends before.
func (s *spawners) do(ctx context.Context, nice int, f func(*spawner) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.slots }()
	var one *spawner
	select {
	case one = <-s.idle:
	default:
		one = s.start()
	}
	var err error
	one.requests <- func(one *spawner) {
		err = one.withNice(s.baseNice, nice, f)
	}
	<-one.done
	if one.spoiled {
		close(one.requests)
	} else {
		s.idle <- one
	}
	return err
}

func (s *spawners) start() *spawner {
	one := &spawner{requests: make(chan func(*spawner)), done: make(chan struct{})}
	s.wg.Go(func() {
		// The thread ends with the goroutine, because it is never unlocked:
		// what was set for it must not become anybody else's.
		runtime.LockOSThread()
		s.prepareThread()
		for request := range one.requests {
			request(one)
			one.done <- struct{}{}
		}
	})
	return one
}

// close ends the spawners, all of which must be idle.
func (s *spawners) close() {
	close(s.idle)
	for one := range s.idle {
		close(one.requests)
	}
	s.wg.Wait()
}

// fork makes the process.
func (s *spawner) fork(p *prepared) (pid, pidfd int, err error) {
	if p.missing != nil {
		return 0, -1, p.missing
	}
	attr := &syscall.ProcAttr{
		Dir: p.dir,
		Env: p.env,
		Sys: &syscall.SysProcAttr{Setpgid: true, Credential: p.account.credential()},
	}
	for _, f := range p.files {
		attr.Files = append(attr.Files, f.Fd())
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
