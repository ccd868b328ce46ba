package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	// namedMax is how many attempts are named in the log when a server stops.
	namedMax = 20
	// waitingEvery is how often a server that stops says that it still waits.
	waitingEvery = 10 * time.Second
)

// untilSignal returns a context that ends with the first signal. The second one
// ends the process, after atOnce, and the watchdog then ends its children. That a
// terminal is closed is told by several SIGHUP: it is never the second, and nothing at
// all for who was started so that it ignores it, as by nohup. What is returned must be
// called.
func untilSignal(ctx context.Context, atOnce func(os.Signal)) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2) // so that a second one is not lost while the first is handled
	asked := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		asked = append(asked, syscall.SIGHUP)
	}
	signal.Notify(signals, asked...)
	done := make(chan struct{}) // closed by the caller
	var group sync.WaitGroup
	group.Go(func() {
		for stopping := false; ; stopping = true {
			select {
			case <-done:
				return
			case s := <-signals:
				if stopping && s != syscall.SIGHUP {
					atOnce(s)
					os.Exit(int(ExitInterrupted))
				}
				cancel()
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		group.Wait()
		cancel()
	}
}

// sayLost says what is lost by a stop at once.
func (s *server) sayLost(by os.Signal) {
	n := s.working.Load()
	if n == nil {
		s.log.Warn("stopping at once", "signal", by.String())
		return
	}
	list := n.Running()
	s.log.Warn("stopping at once", "signal", by.String(), "lost", len(list))
	for _, a := range list[:min(len(list), namedMax)] {
		s.log.Warn("an attempt is ended, and counts as lost at the next start", "job", a.Job, "run", a.Run, "attempt", a.Attempt)
	}
}

// sayWaiting says what a server that stops waits for, until it has stopped.
func (s *server) sayWaiting(stopped <-chan struct{}) {
	list := s.node.Running()
	s.log.Info("stopping: nothing new starts, and what runs may end; a second interrupt stops at once",
		"within", time.Duration(s.config.Drain).String(), "attempts", len(list))
	for _, a := range list[:min(len(list), namedMax)] {
		s.log.Info("waiting for an attempt to end", "job", a.Job, "run", a.Run, "attempt", a.Attempt)
	}
	ticker := time.NewTicker(waitingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-ticker.C:
			if list := s.node.Running(); len(list) > 0 {
				s.log.Info("still waiting for attempts to end", slog.Int("attempts", len(list)), slog.String("job", list[0].Job), slog.Any("run", list[0].Run))
			}
		}
	}
}
