package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startMax bounds a start: initdb takes some seconds on a busy machine.
	startMax = 2 * time.Minute
	// stopMax bounds the end of a server after a signal.
	stopMax = 2 * time.Minute
)

// process is a server whose log says when it is ready. An answer at its port could come from
// another server.
type process struct {
	Port int
	// Dir is the directory of all its files.
	Dir string

	command    func() *exec.Cmd
	ready      string // part of the log line of its readiness
	stop, kill syscall.Signal

	mu      sync.Mutex
	running *exec.Cmd
	ended   chan error // receives the end of the server
}

// newProcess makes a directory for a server, and starts it at a free port.
func newProcess(name, ready string, command func(p *process) *exec.Cmd) (*process, error) {
	p, err := prepareProcess(name, ready, command)
	if err != nil {
		return nil, err
	}
	if err := startAnywhere(&p.Port, p.Start); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// prepareProcess makes a directory for a server and chooses a port.
func prepareProcess(name, ready string, command func(p *process) *exec.Cmd) (p *process, err error) {
	p = &process{ready: ready, stop: syscall.SIGTERM, kill: syscall.SIGKILL}
	p.command = func() *exec.Cmd { return command(p) }
	if p.Port, err = FreePort(); err != nil {
		return nil, err
	}
	p.Dir, err = os.MkdirTemp("", "belfry-"+name+"-")
	return p, err
}

func (p *process) address() string { return fmt.Sprintf("127.0.0.1:%d", p.Port) }

// Start starts the server, after Stop or Kill, and waits until it is ready.
func (p *process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(p.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	earlier, err := log.Stat()
	if err != nil {
		return err
	}
	cmd := p.command()
	cmd.Dir = p.Dir
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := startTied(cmd); err != nil {
		return err
	}
	p.running, p.ended = cmd, make(chan error, 1)
	go func() { p.ended <- cmd.Wait() }()
	output := func() string {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			return err.Error()
		}
		return string(text[earlier.Size():])
	}
	deadline := time.After(startMax)
	for !strings.Contains(output(), p.ready) {
		select {
		case err := <-p.ended:
			p.running = nil
			if strings.Contains(strings.ToLower(output()), "address already in use") {
				return errTaken
			}
			return fmt.Errorf("the server ended: %w\n%s", err, output())
		case <-deadline:
			return fmt.Errorf("the server is not ready after %v:\n%s", startMax, output())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// Stop ends the server like an operator.
func (p *process) Stop() error { return p.end(p.stop) }

// Kill ends it like a power cut, except that the system keeps its memory.
func (p *process) Kill() error { return p.end(p.kill) }

func (p *process) end(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return nil
	}
	if err := p.running.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.AfterFunc(stopMax, func() { _ = p.running.Process.Kill() })
	err := <-p.ended
	late.Stop()
	p.running = nil
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == signal {
			return nil
		}
	}
	return err
}

// Close ends the server and removes its files.
func (p *process) Close() error {
	return errors.Join(p.end(p.kill), os.RemoveAll(p.Dir))
}

// CPU is the processor time that the server has used since it was started.
func (p *process) CPU() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cpuOf(p.running.Process.Pid)
}

// startAll starts servers concurrently, since they may wait for each other.
func startAll(processes []*process) error {
	errs := make([]error, len(processes))
	var wait sync.WaitGroup
	for i, p := range processes {
		wait.Go(func() { errs[i] = p.Start() })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// closeAll ends servers and removes their files.
func closeAll(processes []*process) error {
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// build returns the path of a program that a nested module of this package names as its
// tool. The go command builds it once, in about a minute, and keeps it in its cache.
func build(module, tool string) (string, error) {
	here, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/belfry-cron/belfry/test/servers").Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of package servers: %w", err)
	}
	cmd := exec.Command("go", "tool", "-n", tool)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(here)), module)
	output := &strings.Builder{}
	cmd.Stderr = output
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s in %s: %w\n%s", tool, cmd.Dir, err, output)
	}
	return strings.TrimSpace(string(path)), nil
}

// errTaken is the error of a server whose port another server has.
var errTaken = errors.New("another server has the port")

// startAnywhere starts a server at a free port, or at another one if that was taken in the
// meantime.
func startAnywhere(port *int, start func() error) (err error) {
	const tries = 5
	for range tries {
		if *port, err = FreePort(); err != nil {
			return err
		}
		if err = start(); !errors.Is(err, errTaken) {
			return err
		}
	}
	return err
}

// FreePort returns a free port, which no connection uses by chance during a restart of its server:
// systems assign ports from 32768 or 49152 on.
func FreePort() (port int, err error) {
	const from, below, tries = 10_000, 32_768, 100
	for range tries {
		port = from + rand.IntN(below-from)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}
