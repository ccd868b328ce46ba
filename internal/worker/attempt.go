package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/output"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// fenceMargin is how long before others may take an attempt for lost its end
// begins, besides the grace that it is given.
const fenceMargin = 3 * time.Second

// errFenced says that an attempt must not start any more.
var errFenced = errors.New("the node has not reached the store for too long to start it")

// fenceOf returns how long after the last renewal an attempt may go on: as long
// as another node cannot have its retry or slot. 0 is without end.
func fenceOf(it *item) time.Duration {
	p := &it.job.Filled.Policy
	// Beside a run that overlaps nothing others may run anyway.
	gains := p.ConcurrencyKey != "" || cmp.Or(it.run.Overlap, p.Overlap) != job.OverlapAllow
	if r := p.Retry; r != nil && r.Attempts != nil && *r.Attempts > 0 {
		for _, on := range r.On {
			gains = gains || on == job.RetryLost
		}
	}
	if !gains {
		return 0
	}
	return max(time.Millisecond, time.Duration(p.LostAfter)-grace(p)-fenceMargin)
}

func grace(p *job.Policy) time.Duration {
	if p.KillGrace == nil {
		return 0
	}
	return time.Duration(*p.KillGrace)
}

// fenced tells whether an attempt is past its fence.
func (w *Worker) fenced(it *item) bool {
	return it.fence > 0 && w.Boot() > w.Renewed()+it.fence
}

// prepared is what an attempt needs to start, made at its claim.
type prepared struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc // ends it
	executor executor.Executor       // nil when the node has none for the job
	attempt  executor.Attempt
	capture  *output.Capture
	started  time.Time   // when it took effect
	timeout  *time.Timer // from then on; nil for none
	ended    executor.Result
	over     time.Time // when it had ended
	// result is filled at its end: those of a herd that ends at once must take no
	// memory then, nor be copied from one list to a longer one.
	result result
}

// prepare makes what an attempt needs to start.
func (w *Worker) prepare(it *item) {
	it.fence = fenceOf(it)
	definition := it.job.Filled
	p := &prepared{executor: w.Executors(definition), capture: w.Output.Capture(it.run.ID, it.attempt.Number)}
	// It outlives the context of Run, and is ended by endAll. Without a parent it
	// costs a third, at the instant too.
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	// Read now and not at the instant, when a herd reads thousands of places in memory.
	due, timeout := it.run.Due, time.Duration(0)
	if t := definition.Policy.Timeout; t != nil {
		timeout = time.Duration(*t)
	}
	p.attempt = executor.Attempt{
		Job: definition, Run: it.run.Run, Number: it.attempt.Number,
		Data: w.dataOf(it), Grace: grace(&definition.Policy), Fence: it.fence,
		Start: func() error {
			if w.fenced(it) {
				return errFenced
			}
			if w.Journal != nil {
				if err := w.Journal.Announce(it.run.ID, it.attempt.Number); err != nil {
					return err
				}
			}
			// A timeout counts from here: waiting for room to start is no
			// part of it.
			if timeout > 0 {
				p.timeout = time.AfterFunc(timeout, func() { p.cancel(executor.ErrTimeout) })
			}
			begun := !p.started.IsZero()
			if p.started = w.Now(); w.Observer != nil && !begun {
				w.Observer.Started(p.started.Sub(due))
			}
			return nil
		},
	}
	it.prepared = p
}

// discard drops what was made for an attempt that does not start.
func (p *prepared) discard() {
	p.cancel(nil)
	p.capture.Close()
}

// execute runs an attempt.
func (w *Worker) execute(it *item) {
	p := it.prepared
	p.ended = executor.Result{Unstarted: true}
	if p.ctx.Err() == nil { // not cancelled between its claim and its start
		p.ended = w.safely(p)
	}
	p.over = w.Now()
}

// resultOf returns the result of an attempt that was executed.
func (w *Worker) resultOf(it *item) *result {
	p := it.prepared
	defer p.cancel(nil)
	if p.timeout != nil {
		p.timeout.Stop()
	}
	ended, res := &p.ended, &p.result
	res.item = it
	res.Attempt = it.attempt
	res.Ended = p.over
	res.Started = p.started
	if res.Started.IsZero() || res.Ended.Before(res.Started) {
		res.Started = res.Ended // it never took effect, or the clock was put back
	}
	res.Outcome, res.Reason = ended.Outcome, ended.Reason
	if ended.Unstarted {
		// One that was cancelled or has timed out is over although it never
		// began; another may still run on another node.
		cause := context.Cause(p.ctx)
		res.unstarted = !errors.Is(cause, executor.ErrCancelled) && !errors.Is(cause, executor.ErrTimeout)
		if !res.unstarted {
			res.Outcome, res.Reason = executor.ByCause(p.ctx)
		}
	}
	res.ExitCode, res.Signal, res.HTTPStatus, res.Retryable = ended.ExitCode, ended.Signal, ended.HTTPStatus, ended.Retryable
	if w.Observer != nil && !p.started.IsZero() {
		w.Observer.Ended(it.ready.Job, res.Outcome, res.Ended)
	}
	// Asked first: there are thousands a second, and mostly nobody wants to know.
	if w.Log.Enabled(p.ctx, slog.LevelDebug) {
		w.Log.Debug("an attempt has ended", "job", it.run.Namespace+"/"+it.run.Name, "run", it.run.ID, "attempt", it.attempt.Number,
			"outcome", res.Outcome, "reason", res.Reason, "took", res.Ended.Sub(res.Started))
	}
	chunks, summary := p.capture.Close()
	res.OutputBytes = summary.Bytes
	for i := range chunks {
		res.Output = append(res.Output, store.OutputChunk(chunks[i]))
	}
	return res
}

// safely runs an attempt; an executor that panics has failed.
func (w *Worker) safely(p *prepared) (ended executor.Result) {
	defer func() {
		if cause := recover(); cause != nil {
			run := &p.attempt.Run
			w.Log.Error("an executor has panicked", "run", run.ID, "job", run.Namespace+"/"+run.Name, "attempt", p.attempt.Number, "panic", cause, "stack", string(debug.Stack()))
			ended = executor.Result{Outcome: job.OutcomeFailed, Reason: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	if p.executor == nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: "this node has nothing to run it with"}
	}
	return p.executor.Run(p.ctx, p.attempt, executor.Output{Stdout: p.capture.Stdout(), Stderr: p.capture.Stderr()})
}

// dataOf returns what templates are executed with.
func (w *Worker) dataOf(it *item) job.TemplateData {
	r, definition := it.run, it.job.Filled
	data := job.TemplateData{
		Scheduled: r.Scheduled, Run: r.ID, Attempt: it.attempt.Number, Shard: r.Shard, Shards: max(1, r.Shards),
		Namespace: r.Namespace, Name: r.Name, Node: w.Self.Node, Params: map[string]string{},
	}
	for name, p := range definition.Params {
		data.Params[name] = p.Default
	}
	for name, value := range r.Params {
		// What follows another run was given all that this had, for those that
		// follow it in their turn, also where it is run once more: what it does not
		// declare is not for itself.
		if _, declared := definition.Params[name]; declared {
			data.Params[name] = value
		}
	}
	if w.Around != nil {
		data.Previous, data.Scheduled, data.Next = w.Around(it.job, r.Scheduled)
	}
	return data
}

// endAll ends the attempts that run.
func (w *Worker) endAll(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.items {
		if it.state == running {
			it.prepared.cancel(cause)
		}
	}
}
