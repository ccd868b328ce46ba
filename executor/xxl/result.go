package xxlexec

import (
	"context"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// logsWithin is how long results wait for the logs of their runs. An executor waits for the answer,
// for 3 s at most; a slower log is stored after its result.
const logsWithin = 150 * time.Millisecond

// take takes the results of runs, and returns results of runs that are not Belfry's. A caller with a
// group's token may only report runs of that group; "" is for all groups.
func (a *Admin) take(ctx context.Context, list []xxl.Callback, of string) (unknown []xxl.Callback, err error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	for len(list) > 0 {
		some := list[:min(len(list), store.MaxBatch)]
		list = list[len(some):]
		others, err := a.takeSome(ctx, some, of, now)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, others...)
	}
	return unknown, nil
}

// takeSome takes at most [store.MaxBatch] results.
func (a *Admin) takeSome(ctx context.Context, list []xxl.Callback, of string, now time.Time) (unknown []xxl.Callback, err error) {
	numbers, first := make([]int64, 0, len(list)), map[int64]*xxl.Callback{}
	for i := range list {
		if c := &list[i]; first[c.LogID] == nil { // the first result counts
			first[c.LogID] = c
			numbers = append(numbers, c.LogID)
		}
	}
	known, err := a.store.Handovers(ctx, store.HandoverQuery{Numbers: numbers, Limit: store.MaxBatch})
	if err != nil {
		return nil, err
	}
	ended := make([]endedRun, 0, len(known))
	for i := range known {
		h := &known[i]
		if h.Kind != Kind {
			continue
		}
		note, err := aboutOf(h)
		if err != nil {
			a.log.Warn("what is known about a run at an executor cannot be read", "number", h.Number, "error", err)
		}
		callback := first[h.Number]
		if delete(first, h.Number); of != "" && of != note.Group {
			a.log.Warn("a result is left out: its caller has the token of another group", "number", h.Number, "group", note.Group, "caller_group", of)
			continue
		}
		ended = append(ended, endedRun{handover: h, about: note, callback: callback})
	}
	for i := range list {
		if c := &list[i]; first[c.LogID] == c {
			unknown = append(unknown, *c)
		}
	}
	a.readLogs(ctx, ended)
	results := make([]store.Result, len(ended))
	for i := range ended {
		results[i] = ended[i].result(now)
	}
	if len(results) == 0 {
		return unknown, nil
	}
	if _, err := a.store.Finish(ctx, job.ID{}, results); err != nil {
		return nil, err
	}
	for i := range ended {
		a.keeper.ended(&ended[i])
		if !ended[i].logged {
			a.lateLogs.add(&ended[i])
		}
	}
	return unknown, nil
}

// endedRun is a run that has ended by its executor's report.
type endedRun struct {
	handover *store.Handover
	about    about
	callback *xxl.Callback
	// output is its log; logged is set once that was read.
	output []store.OutputChunk
	bytes  int64
	logged bool
}

// result returns how the run ended. The store counts a cancelled run as cancelled, whatever the
// executor reports.
func (e *endedRun) result(now time.Time) store.Result {
	h := e.handover
	r := store.Result{Attempt: h.Attempt, Started: h.Sent, Outcome: job.OutcomeFailed, Reason: job.Text(e.callback.Message), Output: e.output, OutputBytes: e.bytes}
	deadline := h.Deadline()
	switch {
	case e.callback.Code == xxl.CodeOK && !e.about.mayQueue() && !deadline.IsZero() && now.After(deadline):
		// Executors in Go report runs that they ended at their timeout as a success.
		r.Outcome = job.OutcomeTimedOut
		r.Reason = reason.LateSuccess.Of(now.Sub(h.Sent).Round(time.Millisecond), h.Timeout)
	case e.callback.Code == xxl.CodeOK:
		r.Outcome, r.Reason = job.OutcomeSucceeded, job.Reason{}
	case e.callback.Code == xxl.CodeTimeout:
		r.Outcome = job.OutcomeTimedOut
	case r.Reason.IsZero() && e.callback.Code != 0:
		r.Reason = reason.ReportedCode.Of(int(e.callback.Code))
	case r.Reason.IsZero():
		r.Reason = reason.NoCode.Of()
	}
	if r.Outcome != job.OutcomeSucceeded {
		r.Cause = causeOf(e.callback.Message)
	}
	return r
}

// causeOf returns the line of a message with the cause: executors in Java send stack traces, whose
// innermost cause comes last.
func causeOf(message string) string {
	const inner = "\nCaused by: "
	if i := strings.LastIndex(message, inner); i >= 0 {
		message = message[i+len(inner):]
	}
	return reason.FirstLine(message)
}
