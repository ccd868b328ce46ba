package watchdog

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// child is a running watchdog.
type child struct {
	cmd     *exec.Cmd
	in, out *os.File
	// answers is signalled after an answer of the watchdog; several answers may be one signal.
	answers chan struct{}
	exited  chan struct{} // closed once it has ended and been reaped
	// buried is closed once it has ended all attempts but kept ones, and reports the rest.
	buried chan struct{}
	isLeft atomic.Bool // it outlives this process
}

// start starts a watchdog without waiting for its first answer.
func (n *Node) start() (*child, error) {
	fail := func(err error) (*child, error) { return nil, fmt.Errorf("start the watchdog: %w", err) }
	childIn, in, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return fail(err)
	}
	defer childOut.Close()
	cmd := exec.Command(n.config.Command[0], n.config.Command[1:]...)
	cmd.Args[0] = "belfry-watchdog"
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childIn, childOut, os.Stderr
	cmd.ExtraFiles = []*os.File{n.table.file}
	cmd.Env = []string{"GOMAXPROCS=1", "TMPDIR=" + os.TempDir()}
	// Its own session: signals to the node's group do not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return fail(err)
	}
	c := &child{cmd: cmd, in: in, out: out, answers: make(chan struct{}, 1), exited: make(chan struct{}), buried: make(chan struct{})}
	n.mu.Lock()
	n.pid = cmd.Process.Pid
	n.mu.Unlock()
	go func() {
		defer close(c.exited)
		defer func() {
			if c.isLeft.Load() {
				_ = cmd.Process.Release() // it reports while this process ends
				return
			}
			// It is gone, or has closed its output and is useless.
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			n.mu.Lock()
			n.pid = 0
			n.mu.Unlock()
		}()
		b := make([]byte, 64)
		for {
			n, err := out.Read(b)
			if err != nil {
				return
			}
			if bytes.IndexByte(b[:n], saysBuried) >= 0 {
				close(c.buried)
			}
			select {
			case c.answers <- struct{}{}:
			default:
			}
		}
	}()
	settings := order.AppendUint32(nil, uint32(len(n.config.Settings)))
	if err := c.send(append(settings, n.config.Settings...)); err != nil {
		c.kill()
		return fail(err)
	}
	return c, nil
}

// send writes to the watchdog, waiting at most as long as for an answer.
func (c *child) send(text []byte) error {
	_ = c.in.SetWriteDeadline(time.Now().Add(answerWithin))
	_, err := c.in.Write(text)
	return err
}

// end closes the pipe, so that the watchdog ends all attempts and then exits, and kills it if that
// takes too long.
func (c *child) end() {
	c.in.Close()
	select {
	case <-c.exited:
		c.out.Close()
	case <-time.After(deathGrace + killWait + answerWithin):
		c.kill()
	}
}

// leave is end for a watchdog that must report to the store or keeps containers: it returns when all attempts have
// ended, and the watchdog outlives this process by the time of its report.
func (c *child) leave() {
	c.isLeft.Store(true)
	c.in.Close()
	select {
	case <-c.buried:
	case <-c.exited:
	case <-time.After(deathGrace + killWait + answerWithin):
		c.isLeft.Store(false)
		c.kill()
		return
	}
	c.out.Close()
	<-c.exited
}

// kill kills the watchdog before it can end anything: while it could read, its pipe is open.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
	c.in.Close()
	c.out.Close()
}
