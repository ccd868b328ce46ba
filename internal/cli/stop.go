package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/internal/server"
)

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. The second one ends the
// process, after atOnce, and the watchdog then ends its children. SIGHUP only calls hangUp. Without
// hangUp it is a first signal and never the second, since a closing terminal sends several; nohup
// blocks it. With SIGUSR2 the context ends by [server.ErrUpgrade] if upgrade agrees. The returned
// function must be called.
func untilSignal(ctx context.Context, atOnce func(os.Signal), hangUp func(), upgrade func(context.Context) bool) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8) // so that none is lost while another is handled
	asked := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if upgrade != nil {
		asked = append(asked, syscall.SIGUSR2)
	}
	if hangUp != nil || !signal.Ignored(syscall.SIGHUP) {
		asked = append(asked, syscall.SIGHUP)
	}
	signal.Notify(signals, asked...)
	done := make(chan struct{}) // closed by the caller
	var group sync.WaitGroup
	group.Go(func() {
		stopping := false
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				switch {
				case s == syscall.SIGHUP && hangUp != nil:
					hangUp()
				case s == syscall.SIGUSR2:
					if ctx.Err() == nil && upgrade(ctx) {
						cancel(server.ErrUpgrade)
					}
				case stopping && s != syscall.SIGHUP:
					atOnce(s)
					os.Exit(int(ExitInterrupted))
				default:
					stopping = true
					cancel(context.Canceled)
				}
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		group.Wait()
		cancel(nil)
	}
}

// logLost logs the attempts lost by an immediate stop. The server is nil before it has started.
func logLost(log *slog.Logger, running func() []worker.Running, by os.Signal) {
	if running == nil {
		log.Warn("stopping at once", "signal", by.String())
		return
	}
	list := running()
	log.Warn("stopping at once", "signal", by.String(), "lost", len(list))
	for _, a := range list[:min(len(list), server.NamedMax)] {
		log.Warn("ended an attempt, which counts as lost at the next start", "job", a.Job, "run", a.Run, "attempt", a.Attempt)
	}
}
