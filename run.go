package belfry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// RunID identifies a run. Its text sorts by the time of creation.
type RunID = job.ID

// Run is an attempt of a run, as its handler sees it. Its methods may be called by any goroutine
// until the handler returns.
type Run struct {
	ID        RunID
	Job       string // its name
	Namespace string
	Kind      job.RunKind // what created the run: the schedule, a request, another job …

	// Scheduled is the scheduled time of the run, in the zone of the job; Previous and Next
	// are the scheduled times before and after it, or zero. A handler that processes the
	// time from Previous to Scheduled covers each period once.
	Scheduled, Previous, Next time.Time

	Attempt       int // from 1
	Shard, Shards int // the share of the work, from 0, and the number of shares: 0 of 1 if it is not split
	Node          string

	// Flow is the run of the flow that contains this step, [Step] the name of the step, and
	// Steps the readable results of other steps by name: see [StepOf.Result] and [StepResult].
	// They are zero outside of flows.
	Flow  RunID
	Step  string
	Steps map[string]job.StepData

	// Params are the parameters of the job as texts. A handler receives them as its
	// input.
	Params map[string]string
	// Metadata is the map that [WithMetadata] filled when the run, or the run that it
	// follows, was triggered.
	Metadata map[string]string

	// Log writes into the output of the run.
	Log *slog.Logger

	log      outputLog
	out      executor.Output
	result   []byte
	item     json.RawMessage // item of ForEach; nil for none
	mu       sync.Mutex      // guards progress
	progress time.Time
}

// Write adds to the standard error of the run, like Log. It never fails.
func (r *Run) Write(p []byte) (int, error) { return r.out.Stderr.Write(p) }

var _ io.Writer = (*Run)(nil)

// progressEvery is the shortest interval between progress lines, because the output of a run is
// bounded.
const progressEvery = time.Second

// Progress logs the progress of the run, at most once a second and at the end.
func (r *Run) Progress(done, total int64) {
	r.mu.Lock()
	now := time.Now()
	due := done >= total || now.Sub(r.progress) >= progressEvery
	if due {
		r.progress = now
	}
	r.mu.Unlock()
	if due {
		r.Log.Info("progress", "done", done, "total", total, "percent", 100*done/max(1, total))
	}
}

// outputLog is the handler of Run.Log. Most runs do not log, so that the writing handler is created
// on first use.
type outputLog struct {
	level slog.Level
	out   io.Writer
	once  sync.Once
	text  slog.Handler
}

func (o *outputLog) handler() slog.Handler {
	o.once.Do(func() { o.text = slog.NewTextHandler(o.out, &slog.HandlerOptions{Level: o.level}) })
	return o.text
}

// Enabled implements [slog.Handler].
func (o *outputLog) Enabled(_ context.Context, level slog.Level) bool { return level >= o.level }

// Handle implements [slog.Handler].
func (o *outputLog) Handle(ctx context.Context, r slog.Record) error {
	return o.handler().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (o *outputLog) WithAttrs(attrs []slog.Attr) slog.Handler { return o.handler().WithAttrs(attrs) }

// WithGroup implements [slog.Handler].
func (o *outputLog) WithGroup(name string) slog.Handler { return o.handler().WithGroup(name) }

// functions executes the attempts of jobs that call handlers.
type functions Scheduler

// Run implements [executor.Executor].
func (f *functions) Run(ctx context.Context, a executor.Attempt, out executor.Output) executor.Result {
	s := (*Scheduler)(f)
	name := handlerOf(a.Job)
	h := s.handlers[name] // no handlers are added while the node runs
	if h == nil {
		return executor.Result{Unstarted: true, Reason: reason.NoHandler.Of(name)}
	}
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true, Reason: job.Text(err.Error())}
	}
	run := s.runOf(&a, out)
	ended := make(chan error, 1) // of capacity one
	go func() {
		var err error
		defer func() { ended <- err }()
		defer recovered(&err)
		err = h.chain(ctx, run)
	}()
	err, left := s.await(ctx, &a, ended)
	if left {
		outcome, why := executor.ByCause(ctx)
		return executor.Result{Outcome: outcome, Reason: reason.HandlerLeft.Of(why)}
	}
	return resultOf(ctx, run, err)
}

// runOf returns the handler's view of an attempt.
func (s *Scheduler) runOf(a *executor.Attempt, out executor.Output) *Run {
	d := &a.Data
	run := &Run{
		ID: a.Run.ID, Job: a.Run.Name, Namespace: a.Run.Namespace, Kind: a.Run.Kind,
		Scheduled: d.Scheduled, Previous: d.Previous, Next: d.Next,
		Attempt: a.Number, Shard: d.Shard, Shards: d.Shards, Node: d.Node,
		Params: d.Params, Metadata: metadataOf(a.Run.Params),
		out: out,
	}
	run.log.level, run.log.out = s.settings.logLevel, out.Stderr
	run.Log = slog.New(&run.log)
	if a.Run.Kind == job.RunStep {
		run.Step, _ = a.Run.Step()
		run.Flow, run.Steps, run.item = a.Run.Parent, d.Steps, d.Item
	}
	return run
}

// metadataOf returns the metadata among the parameters of a run; nil for none.
func metadataOf(params map[string]string) map[string]string {
	var metadata map[string]string
	for name, value := range params {
		if name, is := strings.CutPrefix(name, job.MetadataPrefix); is {
			if metadata == nil {
				metadata = map[string]string{}
			}
			metadata[name] = value
		}
	}
	return metadata
}

// await waits for a handler. A handler that continues after its context has ended keeps the
// slot of its job, so that no other run overlaps it, unless the node stops or another node
// may already run the job.
func (s *Scheduler) await(ctx context.Context, a *executor.Attempt, ended <-chan error) (err error, left bool) {
	select {
	case err := <-ended:
		return err, false
	case <-ctx.Done():
	}
	grace := time.NewTimer(a.Grace)
	defer grace.Stop()
	select {
	case err := <-ended:
		return err, false
	case <-grace.C:
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrStopped) || errors.Is(cause, ErrFenced) {
		return nil, true
	}
	s.settings.log.Warn("a handler ignores the end of its context; its run continues until the handler returns",
		"job", a.Run.Namespace+"/"+a.Run.Name, "run", a.Run.ID, "cause", cause)
	select {
	case err := <-ended:
		return err, false
	case <-s.abandon:
		return nil, true
	}
}

// recovered converts a panic to an error.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}

// resultOf returns the result of an attempt from its handler's error, which may be nil.
func resultOf(ctx context.Context, run *Run, err error) executor.Result {
	if err == nil {
		if run.result != nil {
			_, _ = run.out.Stdout.Write(append(run.result, '\n')) // it never fails
		}
		return executor.Result{Outcome: job.OutcomeSucceeded, Value: run.result}
	}
	var panicked *PanicError
	if errors.As(err, &panicked) {
		_, _ = fmt.Fprintf(run, "panic: %v\n\n%s", panicked.Value, panicked.Stack)
	}
	if ctx.Err() != nil {
		outcome, why := executor.ByCause(ctx)
		if text := err.Error(); text != context.Canceled.Error() && text != why.String() {
			why = reason.Because.Of(why, job.Text(bounded(text)))
		}
		return executor.Result{Outcome: outcome, Reason: why, Cause: reason.FirstLine(err.Error())}
	}
	return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(bounded(err.Error())), Cause: reason.FirstLine(err.Error()), Permanent: IsPermanent(err)}
}

// reasonMax is the most bytes of an error in the reason of a failure, which lists show.
const reasonMax = 4 << 10

func bounded(text string) string {
	if len(text) <= reasonMax {
		return text
	}
	return strings.ToValidUTF8(text[:reasonMax], "") + "…"
}

// handlerOf returns the handler that a job calls, "" if it calls none.
func handlerOf(j *job.Job) string { return j.Run.HandlerName() }

// runSpec returns the definition of a job that calls a handler.
func runSpec(handler string) job.RunSpec { return job.RunSpec{Handler: &job.Handler{Name: handler}} }

// merged returns a map with the entries of both.
func merged(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
