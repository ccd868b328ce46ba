package xxlexec

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/store"
)

const (
	// logReaders is how many logs a node reads concurrently.
	logReaders = 16
	// lateLogsMax bounds the runs whose logs follow their results. Further logs stay with the
	// executors.
	lateLogsMax = 5000
	// lateLogMax bounds the reading of such a log.
	lateLogMax = 10 * time.Second
	// logPartsMax bounds how often the next part of a log is requested.
	logPartsMax = 1000
	// escaped is how many bytes a byte of a log may have in an answer, nearly always.
	escaped = 2
)

// readLogs reads the logs of runs that have ended, as far as that is possible in logsWithin.
func (a *Admin) readLogs(ctx context.Context, ended []endedRun) {
	ctx, cancel := context.WithTimeout(ctx, logsWithin)
	defer cancel()
	next := make(chan *endedRun)
	var group sync.WaitGroup
	for range min(logReaders, len(ended)) {
		group.Go(func() {
			for e := range next {
				a.readLog(ctx, e)
			}
		})
	}
	for i := range ended {
		e := &ended[i]
		switch {
		case e.handover.IsOver() || e.about.Address == "":
			e.logged = true // its log was read with the first result, or is not available
		case ctx.Err() == nil:
			next <- e
		}
	}
	close(next)
	group.Wait()
}

// readLog reads the log of a run, which is empty if the executor has none. It leaves logged unset
// if the time runs out.
func (a *Admin) readLog(ctx context.Context, e *endedRun) {
	capture := a.capture(e.handover)
	err := a.copyLog(ctx, e.handover, &e.about, &lines{to: capture.Stdout()})
	if ctx.Err() != nil {
		capture.Close()
		return
	}
	e.logged = true
	if message := e.callback.Message; message != "" && e.callback.Code == xxl.CodeOK {
		_, _ = fmt.Fprintf(capture.Stdout(), "The executor reported: %s\n", message) // writes to captures succeed
	}
	if err != nil {
		_, _ = fmt.Fprintf(capture.Stderr(), "The log could not be read from the executor: %v\n", err)
	}
	chunks, summary := capture.Close()
	e.bytes = summary.Bytes
	for i := range chunks {
		e.output = append(e.output, store.OutputChunk(chunks[i]))
	}
}

// capture returns a capture for the log of a handover.
func (a *Admin) capture(h *store.Handover) *output.Capture {
	c, err := output.New(output.Config{Sink: noShipping{}, Limit: max(a.outputLimit, outputLimitMin)})
	if err != nil {
		panic(err) // the limit is valid
	}
	return c.Capture(h.Attempt.Run, h.Attempt.Number)
}

// outputLimitMin is the least limit of package output.
const outputLimitMin = 8 << 10

// noShipping is the sink of a collector that ships nothing: a log is stored as a whole.
type noShipping struct{}

// Append implements [output.Sink].
func (noShipping) Append(context.Context, []output.Chunk) error { return nil }

// copyLog copies the present log of a run.
func (a *Admin) copyLog(ctx context.Context, h *store.Handover, ab *about, to io.Writer) error {
	left := a.outputLimit
	from := 1
	for range logPartsMax {
		part, err := a.logFrom(ctx, h, ab, from, left)
		if err != nil || part.Text == "" || part.To < from {
			return err
		}
		_, _ = io.WriteString(to, part.Text) // writes to captures succeed
		if left -= len(part.Text); left <= 0 || part.Cut {
			_, _ = fmt.Fprintf(to, "… the log is longer than %d bytes, and the rest stays with the executor …\n", a.outputLimit)
			return nil
		}
		from = part.To + 1
	}
	return nil
}

// logFrom reads a log from a line on. It is cut at a bound.
func (a *Admin) logFrom(ctx context.Context, h *store.Handover, ab *about, from, most int) (xxl.Log, error) {
	body, err := a.current.Load().caller.post(ctx, a.targetOf(ab), xxl.PathLog, xxl.OfLog(h.Number, ab.SentAt, from), int64(escaped*most+answerMax))
	if err != nil {
		return xxl.Log{}, err
	}
	l, err := xxl.ReadLog(body, most)
	if l.Text != "" && l.To < from && from == 1 { // some do not say how many lines they send
		l.To = strings.Count(l.Text, "\n") + 1
	}
	return l, err
}

// lines writes the lines of a log: Java has HTML in some.
type lines struct{ to io.Writer }

var unHTML = strings.NewReplacer("<br>", "\n")

func (l *lines) Write(p []byte) (int, error) {
	_, err := io.WriteString(l.to, unHTML.Replace(string(p)))
	return len(p), err
}

// lateLogs are runs whose logs are read after their results.
type lateLogs struct{ queue chan *endedRun }

func (l *lateLogs) init() { l.queue = make(chan *endedRun, lateLogsMax) }

func (l *lateLogs) add(e *endedRun) {
	select {
	case l.queue <- e:
	default: // the log stays with the executor
	}
}

// keepLogs reads logs until ctx ends.
func (a *Admin) keepLogs(ctx context.Context) {
	var group sync.WaitGroup
	for range logReaders {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case e := <-a.lateLogs.queue:
					a.keepLog(ctx, e)
				}
			}
		})
	}
	group.Wait()
}

func (a *Admin) keepLog(ctx context.Context, e *endedRun) {
	ctx, cancel := context.WithTimeout(ctx, lateLogMax)
	defer cancel()
	a.readLog(ctx, e)
	if len(e.output) == 0 {
		return
	}
	if err := a.store.AppendOutput(ctx, e.output); err != nil {
		a.log.Warn("the log of a run cannot be stored", "run", e.handover.Attempt.Run, "error", err)
		return
	}
	a.wrote(e.handover.Attempt.Run)
}
