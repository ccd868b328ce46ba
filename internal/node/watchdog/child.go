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
	// answers has something when the watchdog has answered; several answers
	// may become one.
	answers chan struct{}
	exited  chan struct{} // closed when it has ended and was waited for
	// buried is closed when it has ended all attempts, and reports what is left.
	buried chan struct{}
	isLeft atomic.Bool // it outlives this process
}

// start starts a watchdog and does not wait for its first answer.
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
	// A session of its own: signals to the node's group are not for it.
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
				_ = cmd.Process.Release() // it reports, and this process ends
				return
			}
			// It is gone, or it has closed its output and is as good as gone.
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

// send writes to the watchdog. It waits no longer than for an answer.
func (c *child) send(text []byte) error {
	_ = c.in.SetWriteDeadline(time.Now().Add(answerWithin))
	_, err := c.in.Write(text)
	return err
}

// end closes the pipe, upon which the watchdog ends all attempts and then itself, and kills
// it if that takes too long.
func (c *child) end() {
	c.in.Close()
	select {
	case <-c.exited:
		c.out.Close()
	case <-time.After(deathGrace + killWait + answerWithin):
		c.kill()
	}
}

// leave is end for a watchdog that has to report to the store: it returns when all attempts have
// ended, and the watchdog outlives this process by the time that the report takes.
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

// kill ends the watchdog without that it ends anything: while it can still
// read, the pipe to it is open.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
	c.in.Close()
	c.out.Close()
}
