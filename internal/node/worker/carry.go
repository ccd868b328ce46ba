package worker

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// CarryOver is an attempt that continues while the node's process executes another version of
// the program.
type CarryOver struct {
	// Claim is the store's answer to its claim.
	Claim   wire.Claim `json:"claim"`
	Started time.Time  `json:"started"`
	// Deadline is when it has timed out, by the boot clock; 0 for never.
	Deadline time.Duration `json:"deadline,omitempty"`
	Output   output.State  `json:"output"`
	// Executor is the state with which its executor continues.
	Executor json.RawMessage `json:"executor"`
}

// Carry is Leave for a process that will execute another version of its program: it does not wait
// for attempts that can continue there. Once Run has returned, TakeCarryOvers returns them.
func (w *Worker) Carry(ctx context.Context) error {
	w.decide(func(queue *runqueue.Queue[claim]) { queue.Leave() })
	w.giveBack(ctx)
	ticker := time.NewTicker(leaveEvery)
	defer ticker.Stop()
	for {
		left := 0
		w.decide(func(queue *runqueue.Queue[claim]) {
			left = queue.Load().Busy
			queue.Items(runqueue.Running, func(it *item) {
				if carries(it) {
					left--
				}
			})
		})
		if left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			w.endRunning(executor.ErrCarried, carries)
			return ctx.Err()
		case <-ticker.C:
		}
	}
	w.endRunning(executor.ErrCarried, carries)
	return nil
}

// carries reports whether a running attempt can continue without this program. One with secrets
// cannot: the next program would not know the values to mask.
func carries(it *item) bool {
	if it.With.prepared.secrets != nil {
		return false
	}
	c, ok := it.With.prepared.executor.(executor.Carrier)
	return ok && c.Carries()
}

// TakeCarryOvers returns the attempts that continue. For this worker they are no longer running.
func (w *Worker) TakeCarryOvers() (list []CarryOver) {
	w.decide(func(queue *runqueue.Queue[claim]) {
		for _, it := range queue.All(runqueue.Continues) {
			list = append(list, *it.With.carried)
			queue.Reported(it)
		}
	})
	return list
}

// Unreported reports whether results of ended attempts are in neither the store nor a
// spool.
func (w *Worker) Unreported() bool { return w.Spool == nil && w.results.len() > 0 }

// HasResults reports whether the store lacks results of ended attempts.
func (w *Worker) HasResults() bool { return w.results.len() > 0 }

// ended completes an executed attempt.
func (w *Worker) ended(it *item) {
	p := it.With.prepared
	if p.ended.CarryOver == nil {
		w.finished(it)
		return
	}
	defer p.cancel(nil)
	if p.timeout != nil {
		p.timeout.Stop()
	}
	written, err := claimOf(it)
	if err != nil { // its job cannot be encoded: the attempt cannot continue
		p.ended = executor.Result{Outcome: job.OutcomeLost, Reason: job.Text(err.Error())}
		w.finished(it)
		return
	}
	c := &CarryOver{Claim: written, Started: p.started, Deadline: p.deadline, Output: p.capture.Carry(), Executor: p.ended.CarryOver}
	w.decide(func(*runqueue.Queue[claim]) { it.State, it.With.carried = runqueue.Continues, c })
}

// claimOf returns the store's answer to the claim of an attempt.
func claimOf(it *item) (wire.Claim, error) {
	return wire.ClaimOf(&store.ClaimOutcome{
		Verdict: store.Started, Job: it.With.job, Run: it.With.run, Steps: it.With.steps, Item: it.With.item, Index: it.With.index, Together: it.With.together,
	})
}

// Kept is an attempt that outlives this process, in the form in which the [Keeper] keeps it.
type Kept struct {
	Session job.ID `json:"session"`
	CarryOver
}

// ReadKept reads what the Keeper has kept of an attempt.
func ReadKept(text []byte) (k Kept, err error) {
	if err = json.Unmarshal(text, &k); err == nil {
		_, err = k.Claim.Outcome()
	}
	if err == nil && k.Claim.Run == nil {
		err = errors.New("it is no claimed attempt")
	}
	return k, err
}

// keep keeps the state with which another process continues a starting attempt.
func (w *Worker) keep(it *item) {
	p := it.With.prepared
	written, err := claimOf(it)
	var text []byte
	if err == nil {
		text, err = json.Marshal(Kept{w.Self.ID, CarryOver{Claim: written, Started: p.started, Deadline: p.deadline, Executor: executor.Anew}})
	}
	if err == nil {
		err = w.Keeper.Keep(it.With.run.ID, it.Attempt.Number, text)
	}
	if err != nil {
		w.Log.Warn("the attempt will be lost if this process dies", "job", it.With.run.Namespace+"/"+it.With.run.Name, "run", it.With.run.ID, "error", err)
	}
}

// Adopt continues attempts that an earlier version of the program has started in this
// process, or that an earlier process has left. It is called before Run.
func (w *Worker) Adopt(list []CarryOver) error {
	var items []*item
	for i := range list {
		c := &list[i]
		outcome, err := c.Claim.Outcome()
		if err != nil {
			return err
		}
		run := outcome.Run
		var it *item
		w.decide(func(queue *runqueue.Queue[claim]) {
			ready := store.ReadyRun{RunRef: store.RunRef{Due: run.Due, ID: run.ID}, Job: run.JobUID, Session: w.Self.ID, Attempt: run.Attempt, Priority: run.Priority}
			it = queue.Adopt(ready, run.Present())
			it.With.run, it.With.job, it.With.steps = run, outcome.Job, outcome.Steps
			it.With.item, it.With.index, it.With.together = outcome.Item, outcome.Index, outcome.Together
			w.make(it, w.Output.Resume(run.ID, run.Attempt, c.Output))
		})
		p := it.With.prepared
		p.attempt.CarryOver, p.started, p.deadline = c.Executor, c.Started, c.Deadline
		if p.deadline > 0 {
			p.timeout = time.AfterFunc(max(0, p.deadline-w.Boot()), func() { p.cancel(executor.ErrTimeout) })
		}
		if w.Observer != nil {
			w.Observer.Resumed()
		}
		items = append(items, it)
	}
	w.starter.add(items)
	return nil
}

// End ends attempts that cannot continue because their session is over, and returns when none
// of them runs. Their results do not count.
func End(list []CarryOver, executors Executors) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(executor.ErrFenced)
	var group sync.WaitGroup
	for i := range list {
		outcome, err := list[i].Claim.Outcome()
		if err != nil || outcome.Job == nil {
			continue
		}
		definition := outcome.Job.Filled
		if e := executors(definition); e != nil {
			group.Go(func() {
				ended := e.Run(ctx, executor.Attempt{
					Job: definition, Run: outcome.Run.Run, Number: outcome.Run.Attempt, Grace: runqueue.Grace(&definition.Policy), CarryOver: list[i].Executor,
				}, executor.Output{})
				if ended.Release != nil {
					ended.Release()
				}
			})
		}
	}
	group.Wait()
}
