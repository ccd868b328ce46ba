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

// signals are the received signals of this process.
type signals struct {
	caught chan os.Signal
	broken chan os.Signal // SIGPIPE, which is ignored
	ending atomic.Bool
	over   chan struct{} // closed by stop
}

// catch keeps signals from ending this process. Signals ignored at its start, such as by nohup,
// stay ignored for the command.
func catch() *signals {
	// Buffered, so that none is lost while another is forwarded.
	s := &signals{caught: make(chan os.Signal, 16), broken: make(chan os.Signal, 1), over: make(chan struct{})}
	for _, one := range passed {
		if !signal.Ignored(one) {
			signal.Notify(s.caught, one)
		}
	}
	// Otherwise writing to a disconnected reader would end this process.
	signal.Notify(s.broken, unix.SIGPIPE)
	return s
}

func (s *signals) stop() {
	signal.Stop(s.caught)
	signal.Stop(s.broken)
	close(s.over)
}

// taken returns a signal as a number, and notes a request to end.
func (s *signals) taken(one os.Signal) syscall.Signal {
	number, _ := one.(syscall.Signal)
	switch number {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
		s.ending.Store(true)
	}
	return number
}

// asked reports whether an end was requested.
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

// hurry returns a channel that is closed by a signal after the end of the command.
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
