// Package wrap runs the command of a crontab line and reports on it to a server. Streams, signals
// and exit code stay the same as without it, even if no server answers. Unsent reports wait in a
// spool on disk. The package has no schedule: cron starts it.
package wrap

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/spool"
)

// The exit codes of a wrapped command that has none. They are the codes of timeout(1), shells and
// sysexits(3).
const (
	CodeLocked        = 75 // it is already running
	CodeTimedOut      = 124
	CodeNotExecutable = 126
	CodeNotFound      = 127
	codeSignal        = 128 // plus the number of the signal
)

const (
	// lockWithin bounds how long a silent server delays a command with a lock.
	lockWithin = 5 * time.Second
	// sendWithin bounds how long reports are sent after the end of the command: cron starts
	// the next one anyway.
	sendWithin = 5 * time.Second
	// drainWithin is how long output is waited for that processes in the background hold open.
	drainWithin = 500 * time.Millisecond
	// startAgain is the pause before an unaccepted report of a start is repeated.
	startAgain = time.Minute
	// KillAfter is how long a command has to end after SIGTERM.
	KillAfter = 10 * time.Second

	// The wait between attempts doubles, as for jobs.
	retryFirst = 10 * time.Second
	retryMost  = 10 * time.Minute
)

// Server receives reports: a *client.Client.
type Server interface {
	Report(ctx context.Context, namespace, name string, r client.Report, idempotencyKey string) (client.Reported, error)
	Apply(ctx context.Context, a client.Apply) (client.Applied, error)
}

// Config is what to run and where to report.
type Config struct {
	Namespace, Name string // the job
	// Document is the job itself as JSON without line breaks, to create or change; nil leaves the
	// job alone.
	Document []byte
	Command  []string

	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Silent keeps the output out of the report. The command then uses the streams directly.
	Silent bool

	Lock    bool
	Timeout time.Duration // 0 is none
	Retries int
	// RetryFirst is the wait before the first retry; 0 is 10s.
	RetryFirst time.Duration

	// Server receives the reports; nil sends none. Address distinguishes the servers of one spool.
	Server  Server
	Address string
	Spool   *Spool
	Now     func() time.Time
	// Warn reports problems with a report, never with the command.
	Warn func(format string, args ...any)
}

// A wrapping is one start of a command.
type wrapping struct {
	Config
	sender
	entry   entry
	record  *spool.Record // nil if the spool cannot be written
	lock    *lock
	alone   bool // no server has confirmed the lock
	signals *signals
}

// Run runs the command and returns the exit code to end with. The signals of the process are
// the command's until it returns.
func Run(ctx context.Context, c Config) int {
	c.RetryFirst = cmp.Or(c.RetryFirst, retryFirst)
	w := &wrapping{Config: c, sender: sender{server: c.Server, address: c.Address, spool: c.Spool, warn: c.Warn}}
	w.entry = entry{Server: c.Address, Namespace: c.Namespace, Name: c.Name, Key: newKey(), Started: c.Now(), Document: c.Document, fresh: true}
	w.signals = catch()
	defer w.signals.stop()

	// Requests end some time after the command, or at a later signal.
	sending, stop := context.WithCancel(ctx)
	defer stop()
	if busy := w.begin(sending); busy != "" {
		c.Warn("job %s/%s: %s", c.Namespace, c.Name, busy)
		w.skip(sending, busy)
		return CodeLocked
	}
	defer w.lock.release()

	ended := make(chan struct{})
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		w.reportRunning(sending, ended)
	}()
	pipes, err := connect(c.Stdout, c.Stderr, c.Silent)
	if err != nil {
		c.Warn("output is not reported: %v", err)
	}
	last := w.attempts(pipes)
	w.lock.release()
	end := w.Now()
	pipes.drain(drainWithin)

	hurried := w.signals.hurry()
	go func() {
		select {
		case <-hurried:
		case <-time.After(sendWithin):
		case <-sending.Done():
		}
		stop()
	}()
	close(ended)
	<-reported
	rep := last.report()
	rep.At, rep.Output = end, pipes.text()
	if w.alone {
		rep.Reason = joined(rep.Reason, "the lock was held on this machine alone, since no server confirmed it")
	}
	w.end(sending, rep)
	pipes.wait(hurried)
	return last.code
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// newKey returns a key for the reports on one start. Keys sort by time, and so do the files of the
// spool.
func newKey() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // crypto/rand never fails
	return fmt.Sprintf("%016x-%s", time.Now().UnixNano(), hex.EncodeToString(random))
}

// begin takes the lock, if there is one, and records that the command runs. It returns why the
// command must not run.
func (w *wrapping) begin(ctx context.Context) (busy string) {
	if w.Lock {
		l, err := w.Spool.lock(w.Namespace, w.Name)
		if err != nil {
			w.Warn("the lock is not held on this machine: %v", err)
		} else if l == nil {
			return "it is running already on this machine"
		}
		w.lock = l
		w.entry.Locked = l != nil
	}
	if w.server == nil {
		w.alone = w.Lock
		return ""
	}
	var err error
	if w.record, err = w.Spool.begin(&w.entry); err != nil {
		w.Warn("a report that cannot be sent will be lost: %v", err)
	}
	if !w.Lock {
		return ""
	}
	asked, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	_, err = w.start(asked, &w.entry, true)
	switch {
	case client.IsType(err, client.TypeExists):
		w.record.Remove()
		w.record = nil
		w.lock.release()
		return "it is running already, on another machine or under another user"
	case err != nil:
		w.alone = true
		w.complain(err)
	default:
		note(w.record, &w.entry)
	}
	return ""
}

// skip reports that the command was not started.
func (w *wrapping) skip(ctx context.Context, reason string) {
	if w.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	w.end(ctx, client.Report{State: client.ReportSkipped, At: w.Now(), Reason: reason})
}

// reportRunning reports the start and that the command is still running, until it has ended.
func (w *wrapping) reportRunning(ctx context.Context, ended <-chan struct{}) {
	if w.server == nil {
		return
	}
	var due time.Duration
	for {
		select {
		case <-ended:
			return
		case <-time.After(due):
		}
		first := w.entry.Run.IsZero()
		until, err := w.start(ctx, &w.entry, false)
		if ctx.Err() == nil {
			w.complain(err)
		}
		if err == nil && first {
			note(w.record, &w.entry)
		}
		w.record.Touch()
		due = startAgain
		if left := until.Sub(w.Now()) / 3; err == nil && left > 0 {
			due = left
		}
	}
}

// end sends the last report and the rest of the spool.
func (w *wrapping) end(ctx context.Context, report client.Report) {
	if w.server == nil {
		return
	}
	w.entry.End = &report
	rec, dropped, err := w.Spool.end(w.record, &w.entry)
	if err != nil {
		w.Warn("the spool cannot keep the report: %v", err)
	}
	if dropped > 0 {
		w.Warn("the spool %s is full: its oldest %s given up", w.Spool.Path(), reports(dropped))
	}
	delivered := w.deliver(ctx, &w.entry)
	switch {
	case delivered == nil || isFinal(delivered):
		rec.Remove()
	case err != nil:
		w.Warn("the report is lost: %v", delivered)
	}
	rec.Release()
	w.complain(delivered)
	if delivered == nil {
		if _, err := w.Flush(ctx); err != nil {
			w.complain(err)
		}
	}
}

func reports(n int) string {
	if n == 1 {
		return "report is"
	}
	return fmt.Sprintf("%d reports are", n)
}

// attempts runs the command until it succeeds, has to end, or has no retry left.
func (w *wrapping) attempts(pipes *pipes) (last result) {
	defer pipes.closeOwn()
	wait := w.RetryFirst
	for n := 1; ; n++ {
		last = w.attempt(pipes)
		if w.Retries > 0 {
			last.note = fmt.Sprintf("attempt %d of %d", n, w.Retries+1)
		}
		if last.code == 0 || last.final || n > w.Retries || w.signals.asked() {
			return last
		}
		if w.signals.within(wait) {
			return last
		}
		wait = min(2*wait, retryMost)
	}
}

// files returns the files that the command inherits besides its streams: the lock, which thus lasts
// as long as the command, whatever happens to this process.
func (w *wrapping) files() []*os.File {
	if w.lock == nil {
		return nil
	}
	return []*os.File{w.lock.file}
}
