package watchdog

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/belfry-cron/belfry/internal/sys/fdpass"
)

// CarryOver is a watchdog that stays while the process of its node executes another version of its
// program.
type CarryOver struct {
	// Journal and Pipe are the numbers of the files of the journal, with its lock, and of the
	// pipe to the watchdog.
	Journal int `json:"journal"`
	Pipe    int `json:"pipe"`
	// PID is the process of the watchdog.
	PID int `json:"pid"`
}

// Carry is Close for a process that will execute another version of its program: the watchdog
// stays, and ends nothing while this process lives.
func (n *Node) Carry() (*CarryOver, error) {
	n.mu.Lock()
	n.carrying = true
	n.mu.Unlock()
	n.stop()
	<-n.stopped
	if n.stays == nil {
		return nil, errors.Join(errors.New("carry the watchdog over: it is being restarted"), n.table.file.Close())
	}
	c := &CarryOver{PID: n.stays.cmd.Process.Pid}
	var err error
	if c.Journal, err = fdpass.Keep(n.table.file); err == nil {
		c.Pipe, err = fdpass.Keep(n.stays.in)
	}
	if err != nil {
		return nil, fmt.Errorf("carry the watchdog over: %w", err)
	}
	return c, nil
}

func (n *Node) isCarrying() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.carrying
}

// replace stops the carried-over watchdog of another version before it can end anything: while it
// could read, its pipe is open.
func (c *CarryOver) replace() {
	if c == nil {
		return
	}
	_ = syscall.Kill(c.PID, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(c.PID, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	_ = syscall.Close(c.Pipe)
}
