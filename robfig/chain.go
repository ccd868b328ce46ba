package robfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"
)

// JobWrapper wraps a job, to act before and after it.
type JobWrapper func(Job) Job

// Chain is a sequence of wrappers, the first being the outermost.
type Chain struct{ wrappers []JobWrapper }

// NewChain returns a chain of wrappers.
func NewChain(wrappers ...JobWrapper) Chain { return Chain{wrappers} }

// Then puts the wrappers around a job.
func (c Chain) Then(j Job) Job {
	for i := range c.wrappers {
		j = c.wrappers[len(c.wrappers)-1-i](j)
	}
	return j
}

// Recover logs the panics of a job. Belfry then records the run as succeeded.
func Recover(logger Logger) JobWrapper {
	return func(j Job) Job {
		return FuncJob(func() {
			defer func() {
				if value := recover(); value != nil {
					const size = 64 << 10
					stack := make([]byte, size)
					stack = stack[:runtime.Stack(stack, false)]
					err, ok := value.(error)
					if !ok {
						err = fmt.Errorf("%v", value)
					}
					logger.Error(err, "panic", "stack", "...\n"+string(stack))
				}
			}()
			j.Run()
		})
	}
}

// DelayIfStillRunning makes a run wait in this process for the end of the previous one, and logs
// delays of more than a minute. WithPolicy(belfry.Overlap(job.OverlapQueue)) does it across all
// instances.
func DelayIfStillRunning(logger Logger) JobWrapper {
	return func(j Job) Job {
		free := newFree()
		return FuncJob(func() {
			start := time.Now()
			<-free
			defer func() { free <- struct{}{} }()
			if late := time.Since(start); late > time.Minute {
				logger.Info("delay", "duration", late)
			}
			j.Run()
		})
	}
}

// newFree returns a channel that is full while no job runs: a lock that synctest can wait
// for, unlike a mutex.
func newFree() chan struct{} {
	free := make(chan struct{}, 1)
	free <- struct{}{}
	return free
}

// SkipIfStillRunning skips a run in this process while the previous one is running.
// WithPolicy(belfry.Overlap(job.OverlapSkip)) does it across all instances.
func SkipIfStillRunning(logger Logger) JobWrapper {
	return func(j Job) Job {
		free := newFree()
		return FuncJob(func() {
			select {
			case <-free:
				defer func() { free <- struct{}{} }()
				j.Run()
			default:
				logger.Info("skip")
			}
		})
	}
}

// Logger is the log of a [Cron] and its wrappers.
type Logger interface {
	Info(msg string, keysAndValues ...any)
	Error(err error, msg string, keysAndValues ...any)
}

// DefaultLogger logs errors to standard output, [DiscardLogger] nothing.
var (
	DefaultLogger = PrintfLogger(log.New(os.Stdout, "cron: ", log.LstdFlags))
	DiscardLogger = PrintfLogger(log.New(io.Discard, "", 0))
)

// Printer is a logger of package log.
type Printer interface{ Printf(string, ...any) }

// PrintfLogger returns a [Logger] that logs errors alone.
func PrintfLogger(p Printer) Logger { return printf{p, false} }

// VerbosePrintfLogger returns a [Logger] that logs everything.
func VerbosePrintfLogger(p Printer) Logger { return printf{p, true} }

// isQuiet reports whether a logger is known to log errors alone.
func isQuiet(l Logger) bool {
	p, is := l.(printf)
	return is && !p.verbose
}

type printf struct {
	to      Printer
	verbose bool
}

func (p printf) Info(msg string, keysAndValues ...any) {
	if p.verbose {
		p.to.Printf("%s%s", msg, pairs(keysAndValues))
	}
}

func (p printf) Error(err error, msg string, keysAndValues ...any) {
	p.to.Printf("%s, error=%v%s", msg, err, pairs(keysAndValues))
}

func pairs(list []any) string {
	var b strings.Builder
	for i := 0; i+1 < len(list); i += 2 {
		value := list[i+1]
		if at, ok := value.(time.Time); ok {
			value = at.Format(time.RFC3339)
		}
		fmt.Fprintf(&b, ", %v=%v", list[i], value)
	}
	return b.String()
}

// slogTo passes the node's log to a [Logger]: warnings and errors as errors.
type slogTo struct{ logger Logger }

// Enabled implements [slog.Handler].
func (s slogTo) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements [slog.Handler].
func (s slogTo) Handle(_ context.Context, r slog.Record) error {
	var list []any
	var failure error
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && a.Key == "error" {
			failure = err
			return true
		}
		if a.Key == "reason" && r.Level >= slog.LevelError {
			failure = errors.New(a.Value.String())
			return true
		}
		list = append(list, a.Key, a.Value)
		return true
	})
	if r.Level < slog.LevelWarn {
		s.logger.Info(r.Message, list...)
		return nil
	}
	if failure == nil {
		failure = fmt.Errorf("%s", r.Message)
	}
	s.logger.Error(failure, r.Message, list...)
	return nil
}

// WithAttrs implements [slog.Handler]: the node adds none.
func (s slogTo) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements [slog.Handler]: the node makes none.
func (s slogTo) WithGroup(string) slog.Handler { return s }
