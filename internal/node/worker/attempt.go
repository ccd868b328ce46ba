package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// errFenced means that it is too late to start an attempt.
var errFenced = errors.New("the node could not reach the store for too long to start it safely")

// fenced reports whether an attempt is past its fence.
func (w *Worker) fenced(it *item) bool {
	return it.With.fence > 0 && w.Boot() > w.Renewed()+it.With.fence
}

// preparedAttempt is the state of an attempt, made at its claim.
type preparedAttempt struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc // ends it
	executor  executor.Executor       // nil if the node has none for the job
	attempt   executor.Attempt
	capture   *output.Capture
	problem   error         // why it cannot start, or nil
	secrets   *secretValues // nil for an attempt without secrets
	started   time.Time     // when it took effect
	postponed bool          // it lacks something that the reason of ended names
	handed    bool          // an external receiver may have been asked to do the work
	timeout   *time.Timer   // runs from started on; nil for none
	deadline  time.Duration // the moment of the timeout, on the boot clock; 0 for none
	ended     executor.Result
	over      time.Time  // when it ended
	refused   job.Reason // why its parameters are refused
	// result is filled in at the end: the results of many simultaneous runs must not
	// allocate then, nor be copied to a longer list.
	result result
}

// prepare prepares an attempt.
func (w *Worker) prepare(ctx context.Context, it *item) {
	w.make(it, w.Output.Capture(it.With.run.ID, it.Attempt.Number))
	p := it.With.prepared
	p.attempt.Data, p.problem = w.dataOf(ctx, it)
	// A run that follows another one, or is a step of a flow, has values that no request was checked for.
	p.refused = refusedParam(it.With.job.Filled, p.attempt.Data.Params)
}

// refusedParam returns why a value of a parameter is refused, if one is.
func refusedParam(j *job.Job, params map[string]string) job.Reason {
	first, refused := "", job.Reason{}
	for name, p := range j.Params {
		if why, _ := p.Wrong(params[name]); !why.IsZero() && (first == "" || name < first) {
			first, refused = name, reason.ParamRefused.Of(name, why)
		}
	}
	return refused
}

// make prepares an attempt without the data of its templates.
func (w *Worker) make(it *item, capture *output.Capture) {
	it.With.fence = runqueue.FenceOf(&it.With.job.Filled.Policy, it.With.run)
	definition := it.With.job.Filled
	p := &preparedAttempt{executor: w.Executors(definition), capture: capture}
	// It outlives the context of Run until endRunning. Without a parent it costs a third, also at the
	// start.
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	// Read now and not at the start, when thousands of simultaneous runs would read
	// scattered memory.
	due, timeout := it.With.run.Due, time.Duration(0)
	if t := definition.Policy.Timeout; t != nil {
		timeout = time.Duration(*t)
	}
	p.attempt = executor.Attempt{
		Job: definition, Run: it.With.run.Run, Number: it.Attempt.Number,
		WantsResult: it.With.run.Kind == job.RunStep || it.With.run.Kind == job.RunByFlow, Together: it.With.together, Grace: runqueue.Grace(&definition.Policy), Fence: it.With.fence,
		Start: func() error {
			if w.fenced(it) {
				return errFenced
			}
			if w.Journal != nil {
				if err := w.Journal.Announce(it.With.run.ID, it.Attempt.Number); err != nil {
					return err
				}
			}
			// The timeout begins here, after the wait for capacity.
			if timeout > 0 {
				p.timeout = time.AfterFunc(timeout, func() { p.cancel(executor.ErrTimeout) })
				p.deadline = w.Boot() + timeout
			}
			begun := !p.started.IsZero()
			if p.started = w.Now(); w.Observer != nil && !begun {
				w.Observer.Started(p.started.Sub(due))
			}
			if p.attempt.Kept {
				w.keep(it)
			}
			return nil
		},
		HandOver: func(ctx context.Context, h executor.Handover) (int64, error) {
			if p.timeout != nil {
				p.timeout.Stop()
			}
			p.handed = true
			return w.handOver(ctx, it, &store.Handover{Attempt: it.Attempt, Kind: h.Kind, To: h.To, About: h.About, Timeout: timeout})
		},
	}
	if len(definition.SecretNames()) > 0 && p.problem == nil {
		if names := definition.SecretsOf(it.With.run.Params); len(names) > 0 {
			p.secrets = w.fetch(p.ctx, it, names)
		}
	}
	// The next process could not mask secrets in the output.
	if outliving, ok := p.executor.(executor.Outliving); ok && w.Keeper != nil && p.secrets == nil && p.problem == nil && outliving.Outlives() {
		p.attempt.Kept = true
		capture.NumberChunks(func(below int) { w.Keeper.Chunks(it.With.run.ID, it.Attempt.Number, below) })
	}
	it.With.prepared = p
}

// discard releases the prepared state of an attempt that does not start.
func (p *preparedAttempt) discard() {
	p.cancel(nil)
	p.capture.Close()
}

// execute runs an attempt.
func (w *Worker) execute(it *item) {
	p := it.With.prepared
	p.ended = executor.Result{Unstarted: true}
	switch {
	case p.ctx.Err() != nil: // cancelled between its claim and its start
	case p.problem != nil:
		p.ended.Reason = job.Text(p.problem.Error())
	case !p.refused.IsZero():
		p.ended = executor.Result{Outcome: job.OutcomeFailed, Reason: p.refused}
	case p.secrets != nil:
		p.ended = w.withSecrets(p)
	default:
		p.ended = w.safely(p, executor.Output{Stdout: p.capture.Stdout(), Stderr: p.capture.Stderr()})
	}
	p.over = w.Now()
}

// resultOf returns the result of an attempt that was executed.
func (w *Worker) resultOf(it *item) *result {
	p := it.With.prepared
	defer p.cancel(nil)
	if p.timeout != nil {
		p.timeout.Stop()
	}
	ended, res := &p.ended, &p.result
	res.item = it
	res.Attempt = it.Attempt
	res.Ended = p.over
	res.Started = p.started
	if res.Started.IsZero() || res.Ended.Before(res.Started) {
		res.Started = res.Ended // it never took effect, or the clock was set back
	}
	res.Outcome, res.Reason = ended.Outcome, ended.Reason
	res.handed = p.handed
	// A handed-over attempt survives the end of its node and of the session.
	if res.handedOver = p.handed && !ended.Unstarted && (ended.HandedOver || ended.Outcome == job.OutcomeLost); res.handedOver {
		res.Outcome, res.Reason = "", job.Reason{}
	}
	if ended.Unstarted {
		// A cancelled attempt is over even if it never began. Any other may still run, here or
		// elsewhere: its timeout begins when it takes effect.
		cause := context.Cause(p.ctx)
		res.unstarted = !errors.Is(cause, executor.ErrCancelled)
		switch {
		case !res.unstarted:
			res.Outcome, res.Reason = executor.ByCause(p.ctx)
		case cause == nil || errors.Is(cause, executor.ErrTimeout): // otherwise the node stops
			res.Postponed = p.postponed || ended.Postponed
			w.sayUnstarted(it, ended.Reason.String())
		}
	}
	res.ExitCode, res.Signal, res.HTTPStatus = ended.ExitCode, ended.Signal, ended.HTTPStatus
	if res.Outcome.Failed() {
		res.Cause = causeOf(ended, p.capture)
	}
	res.Usage = ended.Usage
	res.Retryable, res.Permanent, res.Value = ended.Retryable, ended.Permanent, ended.Value
	if w.Observer != nil && !p.started.IsZero() && !res.handedOver {
		w.Observer.Ended(it.Ready.Job, res.Outcome, res.Ended)
	}
	// Checked first: attempts are many, and debug logs are rare.
	if w.Log.Enabled(p.ctx, slog.LevelDebug) {
		w.Log.Debug("an attempt has ended", "job", it.With.run.Namespace+"/"+it.With.run.Name, "run", it.With.run.ID, "attempt", it.Attempt.Number,
			"outcome", res.Outcome, "reason", res.Reason.String(), "took", res.Ended.Sub(res.Started))
	}
	chunks, summary := p.capture.Close()
	res.OutputBytes = summary.Bytes
	for i := range chunks {
		res.Output = append(res.Output, store.OutputChunk(chunks[i]))
	}
	return res
}

// causeOf returns the cause of an attempt's failure. The executor's words are masked, as is the
// output.
func causeOf(ended *executor.Result, capture *output.Capture) string {
	if ended.Cause != "" {
		return reason.Cause(ended.Cause)
	}
	if cause := reason.LastLine(capture.End(output.Stderr)); cause != "" {
		return cause
	}
	return reason.LastLine(capture.End(output.Stdout))
}

// unstartedEvery is the shortest interval between log lines about unstarted attempts: a
// shortage affects all of them.
const unstartedEvery = 10 * time.Second

// sayUnstarted logs why an attempt was not started and is retried.
func (w *Worker) sayUnstarted(it *item, reason string) {
	if left, ok := w.unstarted.Allow(time.Now()); ok {
		w.Log.Warn("an attempt was not started; retrying", "job", it.With.run.Namespace+"/"+it.With.run.Name, "run", it.With.run.ID,
			"attempt", it.Attempt.Number, "reason", reason, "left_out", left)
	}
}

// safely runs an attempt; an executor that panics has failed.
func (w *Worker) safely(p *preparedAttempt, out executor.Output) (ended executor.Result) {
	defer func() {
		if cause := recover(); cause != nil {
			run := &p.attempt.Run
			w.Log.Error("an executor panicked", "run", run.ID, "job", run.Namespace+"/"+run.Name, "attempt", p.attempt.Number, "panic", cause, "stack", string(debug.Stack()))
			ended = executor.Result{Outcome: job.OutcomeFailed, Reason: reason.Panicked.Of(reason.Words(fmt.Sprint(cause)))}
			if p.handed { // the request may have arrived
				ended = executor.Result{HandedOver: true}
			}
		}
	}()
	if p.executor == nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: reason.NoExecutor.Of()}
	}
	return p.executor.Run(p.ctx, p.attempt, out)
}

// dataOf returns the data for templates.
func (w *Worker) dataOf(ctx context.Context, it *item) (data job.TemplateData, err error) {
	r, definition := it.With.run, it.With.job.Filled
	data = job.TemplateData{
		Scheduled: r.Scheduled, Run: r.ID, Attempt: it.Attempt.Number, Shard: r.Shard, Shards: max(1, r.Shards),
		Namespace: r.Namespace, Name: r.Name, Node: w.Self.Node, Params: map[string]string{},
	}
	for name, p := range definition.Params {
		data.Params[name] = p.Default
	}
	for name, value := range r.Params {
		// A follower inherits all parameters, to pass them on to its own followers, even when it is
		// repeated: undeclared ones are not for this job.
		if _, declared := definition.Params[name]; declared {
			data.Params[name] = value
		}
	}
	data.Trace = job.TraceOf(r.Params)
	if w.Trace != nil {
		data.Trace = w.Trace(&r.Run, it.Attempt.Number)
	}
	data.Steps, data.Item, data.Index = it.With.steps, it.With.item, it.With.index
	if w.Around != nil {
		data.Previous, data.Scheduled, data.Next, err = w.Around(ctx, it.With.job, r.Scheduled)
	}
	if chosen := job.PreviousOf(r.Params); !chosen.IsZero() {
		data.Previous = chosen.In(data.Scheduled.Location())
	}
	return data, err
}

// endRunning ends the chosen running attempts.
func (w *Worker) endRunning(cause error, choose func(*item) bool) {
	w.decide(func(queue *runqueue.Queue[claim]) {
		queue.Items(runqueue.Running, func(it *item) {
			if choose(it) {
				it.With.prepared.cancel(cause)
			}
		})
	})
}
