package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a process has for a gentle end before it is killed: longer than the drain of any system here
// with commands of a few seconds.
const stopTimeout = 20 * time.Second

// A process is a node or a server, which can be started again.
type process struct {
	name    string
	command func() *exec.Cmd
	log     string
	// When it ends by itself, it is started again after a second, as a supervisor does.
	supervised bool

	mu      sync.Mutex
	cmd     *exec.Cmd
	done    chan struct{}
	down    bool // its end was asked for
	revived int
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	return p.launch()
}

// revive starts a process again that has ended by itself.
func (p *process) revive(ended *exec.Cmd) {
	time.Sleep(time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.supervised && !p.down && p.cmd == ended {
		p.revived++
		_ = p.launch() // an error has its line in the report: the node stays away
	}
}

// launch is called with the lock.
func (p *process) launch() error {
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		_ = cmd.Wait()
		close(done)
		p.revive(cmd)
	}()
	return nil
}

func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s was not started", p.name)
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s to %s: %w", s, p.name, err)
	}
	return nil
}

// signalAll also signals the children: a server may have a process for each connection.
func (p *process) signalAll(s syscall.Signal) error {
	err := p.signal(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range children(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, s) // it may have ended meanwhile
	}
	return err
}

func (p *process) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// pid is that of the process, or 0 if it has ended.
func (p *process) pid() int {
	if p.ended() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

func (p *process) restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revived
}

func (p *process) leaveDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
}

// kill ends the process as a crash does; commands that it has started live on, if the system does not see to them.
func (p *process) kill() error {
	p.leaveDown()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

func (p *process) stop() error {
	p.leaveDown()
	if p.ended() {
		return nil
	}
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return p.kill()
	}
}

// end stops the process and kills all that is left of its group.
func (p *process) end() {
	_ = p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// build compiles a program of this module into a folder.
func build(dir, pkg string) (string, error) {
	path := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s (run crontorture in its own folder): %w\n%s", pkg, err, out)
	}
	return path, nil
}
