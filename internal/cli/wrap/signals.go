package wrap

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passed are the signals that mean the command.
var passed = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}

// signals are those that this process has received.
type signals struct {
	caught chan os.Signal
	broken chan os.Signal // SIGPIPE, which is ignored
	ending atomic.Bool
	over   chan struct{} // closed by stop
}

// catch keeps signals from ending this process. Those that it was started to ignore, such as
// by nohup, the command ignores too.
func catch() *signals {
	// So that none is lost while another is passed on.
	s := &signals{caught: make(chan os.Signal, 16), broken: make(chan os.Signal, 1), over: make(chan struct{})}
	for _, one := range passed {
		if !signal.Ignored(one) {
			signal.Notify(s.caught, one)
		}
	}
	// Without it, writing to a reader that has gone would end this process.
	signal.Notify(s.broken, unix.SIGPIPE)
	return s
}

func (s *signals) stop() {
	signal.Stop(s.caught)
	signal.Stop(s.broken)
	close(s.over)
}

// taken returns a signal as a number, and notes when it asks for the end.
func (s *signals) taken(one os.Signal) syscall.Signal {
	number, _ := one.(syscall.Signal)
	switch number {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
		s.ending.Store(true)
	}
	return number
}

// asked reports whether the end was asked for.
func (s *signals) asked() bool { return s.ending.Load() }

// within reports whether an end is requested within a time.
func (s *signals) within(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !s.asked() {
		select {
		case one := <-s.caught:
			s.taken(one)
		case <-timer.C:
			return false
		}
	}
	return true
}

// hurry returns what is closed when a signal comes that finds no command any more.
func (s *signals) hurry() <-chan struct{} {
	hurried := make(chan struct{})
	go func() {
		select {
		case <-s.caught:
			close(hurried)
		case <-s.over:
		}
	}()
	return hurried
}
