package shell

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/job"
)

// umaskOfProcess returns the umask of this process, which can only be read by setting it:
// for a moment to one that denies everything.
func umaskOfProcess() job.Umask {
	own := unix.Umask(0o777)
	unix.Umask(own)
	return job.Umask(own)
}

// spawners create processes, a bounded number at a time. Each has its own thread, and starts when
// it is first needed.
type spawners struct {
	// threads is set when the spawner sets umask and nice, and not a shell in the new process.
	threads    bool
	noNewPrivs bool
	umask      job.Umask // of the spawners, or of the node if threads is not set
	baseNice   int       // of the node
	// keep are the files that separate threads share with the node; nil if they share all.
	keep []int
	most int // their maximum
	// idle has capacity for all of them.
	idle    chan *spawner
	mu      sync.Mutex
	started int
	wg      sync.WaitGroup
}

// spawner creates processes on its thread, one at a time.
type spawner struct {
	// orders and results are unbuffered; each order is answered in results. orders is closed at the end.
	orders  chan order
	results chan spawnResult
	link    link
	// spoiled is set when the settings of the thread could not be restored.
	spoiled bool
}

// order is a process to make, with its files by the numbers that they have for the node.
type order struct {
	*preparedCommand
	files files
}

// spawnResult is a process, or the error that prevented it.
type spawnResult struct {
	pid int
	err error
}

// do calls f with an idle spawner, in the order of the calls. It returns the error of ctx
// if that ends before.
func (s *spawners) do(ctx context.Context, f func(*spawner) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var one *spawner
	select {
	case one = <-s.idle:
	default:
		s.another()
		select {
		case one = <-s.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() {
		if one.spoiled {
			one.end()
			s.start() // in its place
			return
		}
		s.idle <- one
	}()
	return f(one)
}

// another starts a spawner if there are fewer than most.
func (s *spawners) another() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started < s.most {
		s.started++
		s.start()
	}
}

// start starts an idle spawner. Its thread ends with it, because it is never unlocked: no other
// goroutine may have its settings.
func (s *spawners) start() {
	one := &spawner{orders: make(chan order), results: make(chan spawnResult)}
	var theirs int
	one.link, theirs = newLink(s.keep)
	ready := make(chan struct{})
	s.wg.Go(func() {
		onThread(func() {
			s.prepareThread()
			one.link.separate(s.keep, theirs)
			close(ready)
			for o := range one.orders {
				pid, err := one.makeProcess(o, s.baseNice)
				one.results <- spawnResult{pid, err}
			}
		})
	})
	s.wg.Go(func() {
		<-ready
		one.link.settle(theirs)
		s.idle <- one
	})
}

// onThread calls f on a dedicated thread, never on the first one, whose files the system
// shows for the whole process.
func onThread(f func()) {
	runtime.LockOSThread()
	if !firstThread() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onThread(f) // the first one is in use
	}()
	<-done
	runtime.UnlockOSThread()
}

// close ends the spawners. None may be in use.
func (s *spawners) close() {
	for range s.started {
		(<-s.idle).end()
	}
	s.wg.Wait()
}

func (s *spawner) end() {
	close(s.orders)
	s.link.close()
}

// fork makes the process.
func (s *spawner) fork(p *preparedCommand) (pid int, err error) {
	if p.missing != nil {
		return 0, p.missing
	}
	o := order{p, p.files()}
	if err := s.link.pass(o.files); err != nil {
		return 0, errUnopened{err}
	}
	s.orders <- o
	m := <-s.results
	return m.pid, m.err
}

// makeProcess creates the process, on the thread.
func (s *spawner) makeProcess(o order, baseNice int) (pid int, err error) {
	list, err := s.link.take(o.files)
	if err != nil {
		return 0, errUnopened{err}
	}
	defer s.link.drop(list)
	err = s.withNice(baseNice, o.nice, func() error {
		defer s.withUmask(o.umask)()
		pid, err = startProcess(o.preparedCommand, list)
		return err
	})
	return pid, err
}

// startProcess makes the process with files by the numbers that they have for the thread.
func startProcess(p *preparedCommand, list files) (pid int, err error) {
	attr := &syscall.ProcAttr{
		Dir:   p.dir,
		Env:   p.env,
		Files: []uintptr{uintptr(list[0]), uintptr(list[1]), uintptr(list[2])},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Credential: p.account.credential()},
	}
	if len(list) > stdFiles {
		inCgroup(attr.Sys, list[stdFiles])
	}
	pid, _, err = syscall.StartProcess(p.path, p.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		// As in execvp and every shell, a text without an interpreter line is a shell script.
		argv := append([]string{"/bin/sh", p.path}, p.argv[1:]...)
		pid, _, err = syscall.StartProcess(argv[0], argv, attr)
	}
	return pid, err
}
