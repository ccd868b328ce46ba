package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// heldRun is a run that a node holds: the queue is a real worker's, and only the calls are modelled.
type heldRun = runqueue.Item[claimedRun]

// claimedRun is the model's data about a claimed run.
type claimedRun struct {
	queue    *runqueue.Queue[claimedRun] // that holds it
	run      *store.Run
	job      *store.Job
	fence    time.Duration
	seen     *Attempt
	result   *store.Result // nil before its start
	queuedAt time.Time     // when it was queued for a report
	cancel   bool
	handed   bool // the store may have recorded that the service does the work
}

// newRunQueue begins the queue of a session.
func (n *model) newRunQueue() {
	n.begun = n.core.now
	n.queue = runqueue.New[claimedRun](capacity, stripes.Of)
}

// elapsed returns the monotonic clock of the session.
func (n *model) elapsed() time.Duration { return n.core.now.Sub(n.begun) }

// working returns how many attempts are claimed, running or to be reported.
func (n *model) working() int { return n.queue.Load().Busy }

// look reads the store's clock, and the runs assigned to the node.
func (n *model) look() {
	if n.session.IsZero() || n.leaving {
		return
	}
	session, asked := n.session, n.queue.Forgotten()
	var theirs time.Time
	n.once(errandLook, func() error { theirs = n.core.now; return nil }, func(err error) {
		if err == nil && session == n.session {
			n.queue.Sample(theirs, n.elapsed(), asked)
			n.read(n.queue.Looks(n.elapsed()), 0)
		}
	})
}

// hinted reads what hints are about.
func (n *model) hinted() {
	if n.session.IsZero() || n.leaving {
		return
	}
	windows, hint := n.queue.Hinted(n.elapsed())
	n.read(windows, hint)
}

// read reads the runs assigned to the node, one window after the other. Without an answer it
// repeats the hint.
func (n *model) read(windows []runqueue.Window, hint store.Hint) {
	if len(windows) == 0 {
		return
	}
	session, queue, began, w := n.session, n.queue, n.elapsed(), windows[0]
	var runs []store.ReadyRun
	n.call(func() (err error) {
		runs, err = n.core.store.Ready(context.Background(), store.ReadyQuery{Session: session, After: w.After, Until: w.Until, Limit: runqueue.PageSize})
		return err
	}, func(err error) {
		switch {
		case session != n.session:
		case err != nil:
			queue.Hint(hint)
			n.act()
		default:
			queue.Saw(w, began, n.elapsed())
			n.hold(runs, began)
			n.read(windows[1:], hint)
		}
	})
}

// steal searches for runs that others have left.
func (n *model) steal() {
	if n.session.IsZero() || n.leaving {
		return
	}
	now, room := n.queue.Overdue(n.elapsed())
	if room == 0 {
		return
	}
	session, began := n.session, n.elapsed()
	var runs []store.ReadyRun
	n.once(errandSteal, func() (err error) {
		runs, err = n.core.store.Ready(context.Background(), store.ReadyQuery{Any: true, Until: now.Add(-stealAfter).Add(-1), Limit: runqueue.PageSize})
		return err
	}, func(err error) {
		if err == nil && session == n.session {
			n.hold(runs[:min(len(runs), room)], began)
		}
	})
}

// hold adds runs to the queue.
func (n *model) hold(runs []store.ReadyRun, began time.Duration) {
	n.queue.Hold(runs, began)
	for i := range runs {
		if runs[i].Due.Sub(n.core.now) > store.ClaimAhead && n.core.chance(20) {
			n.claimAhead(&runs[i])
		}
	}
	n.act()
}

// claimAhead claims a run earlier than is allowed, as a node with a wrong clock would. The
// answer is dropped.
func (n *model) claimAhead(r *store.ReadyRun) {
	if n.core.outage {
		return
	}
	a := store.Attempt{Job: r.Job, Run: r.ID, Number: r.Attempt, Token: n.core.newID()}
	if out, err := n.core.store.Claim(context.Background(), n.session, []store.Attempt{a}); err == nil && out[0].Verdict == store.Started {
		n.core.fail(fmt.Errorf("a claim of run %s was granted %s before it is due", r.ID, r.Due.Sub(n.core.now)))
	}
}

// act does what the queue has woken the node for.
func (n *model) act() {
	wake := n.queue.Wakes()
	if wake&runqueue.WakeClaims != 0 {
		n.claims()
	}
	if wake&runqueue.WakeStarts != 0 {
		n.starts()
	}
	if wake&runqueue.WakeLook != 0 {
		n.later(n.delay(), n.hinted)
	}
	if wake&runqueue.WakeRevoke != 0 {
		n.queue.Revocations()
		n.release(n.queue.All(runqueue.Claimed), n.changed)
	}
}

// soon calls do after a time, unless the same is requested again before.
func (n *model) soon(asked *int, wait time.Duration, do func()) {
	*asked++
	number, queue := *asked, n.queue
	// The world has whole microseconds.
	n.later(wait.Truncate(time.Microsecond)+time.Microsecond, func() {
		if number == *asked && queue == n.queue {
			do()
		}
	})
}

// claims makes the claims that are due.
func (n *model) claims() {
	if n.session.IsZero() {
		return
	}
	for {
		batch, _, wait := n.queue.Claims(n.elapsed(),
			func(choose func(runqueue.Set) runqueue.Set) runqueue.Set { return choose(0) },
			func() (job.ID, error) { return n.core.newID(), nil })
		if len(batch) == 0 {
			n.soon(&n.claimsAsked, wait, n.claims)
			return
		}
		n.claim(batch)
	}
}

// claim claims runs, with the same tokens again when the answer was lost.
func (n *model) claim(batch []*heldRun) {
	session, queue, sent := n.session, n.queue, n.elapsed()
	attempts := runqueue.Attempts(batch)
	var out []store.ClaimOutcome
	n.call(func() (err error) { out, err = n.core.store.Claim(context.Background(), session, attempts); return err }, func(err error) {
		if session != n.session {
			return // another session has dropped all of these
		}
		if errors.Is(err, store.ErrSessionOver) {
			out, err = make([]store.ClaimOutcome, len(batch)), nil
			for i := range out {
				out[i].Verdict = store.Taken
			}
		}
		if err != nil {
			queue.Refused(batch, err)
			n.later(retryEvery, func() {
				if session == n.session {
					queue.Done()
					n.claims()
				}
			})
			return
		}
		n.took(batch, out, sent)
		queue.Done()
		n.claims()
		n.act()
	})
}

// lateMost bounds the delay of a duplicate request: the attempt may be over, and the next one ready
// or running.
const lateMost = 10 * time.Second

// claimLate repeats the claim of a running attempt, late; its answer is dropped.
func (n *model) claimLate(a store.Attempt) {
	session := n.session
	n.core.after(n.core.between(0, lateMost), func() {
		if !n.core.outage {
			_, _ = n.core.store.Claim(context.Background(), session, []store.Attempt{a})
		}
	})
}

// took acts on the answers to the claims of a batch.
func (n *model) took(batch []*heldRun, out []store.ClaimOutcome, sent time.Duration) {
	for i, it := range batch {
		if o := &out[i]; o.Verdict == store.Started {
			it.With = claimedRun{queue: n.queue, run: o.Run, job: o.Job, fence: runqueue.FenceOf(&o.Job.Filled.Policy, o.Run)}
		}
	}
	answered := n.elapsed()
	started := n.queue.Answered(batch, out, sent, answered)
	n.queue.Prepared(started)
	recalled := n.queue.Recalled(started)
	n.release(started, func(it *heldRun) bool {
		version := engine.VersionOf(it.With.job)
		return n.leaving || version.Recalls(&it.With.run.Run, it.With.run.Version) || recalled && n.changed(it) || !n.core.calm && n.core.chance(20)
	})
	n.queue.Enqueue(started, out[0].Now, sent, answered, n.elapsed(), func(it *heldRun) time.Time { return it.With.run.Due })
}

// starts starts what is due.
func (n *model) starts() {
	for {
		begin, wait := n.queue.Starts(n.elapsed())
		if len(begin) == 0 {
			n.soon(&n.startsAsked, wait, n.starts)
			return
		}
		for _, it := range begin {
			n.begin(it)
		}
	}
}

// release releases the chosen claimed and unstarted items. If the store does not learn of it, Mine
// lists them later.
func (n *model) release(items []*heldRun, choose func(*heldRun) bool) {
	n.releaseThese(runqueue.Attempts(n.queue.Release(items, choose)))
}

func (n *model) releaseThese(attempts []store.Attempt) {
	if session := n.session; len(attempts) > 0 {
		n.call(func() error { return n.core.store.Release(context.Background(), session, attempts) }, func(error) {})
	}
}

// fenced reports whether an attempt may not continue or start.
func (n *model) fenced(it *heldRun) bool {
	return it.With.fence > 0 && n.core.now.Sub(n.renewed) > it.With.fence
}

// begin starts an attempt.
func (n *model) begin(it *heldRun) {
	c := &it.With
	switch {
	case c.cancel:
		c.seen = &Attempt{} // evidence of an attempt that never was
		n.end(it, job.OutcomeCancelled)
		return
	case n.fenced(it):
		n.report(it)
		return
	}
	if specOf(c.run.Name).handed {
		n.handOver(it)
		return
	}
	c.seen = &Attempt{Run: c.run.Run, Number: it.Attempt.Number, Node: n.name, Gains: gainsBy(&c.run.Run), Started: n.core.now}
	n.core.history.begin(c.seen)
	if !n.core.calm && n.core.chance(50) {
		n.claimLate(it.Attempt)
	}
	takes := n.core.between(10*time.Millisecond, 6*time.Second)
	long := 60
	if c.run.Name == alternating {
		long = 900
	}
	if n.core.chance(long) && !n.core.calm {
		takes *= 20
	}
	outcome := job.OutcomeSucceeded
	if n.core.chance(120) {
		outcome = job.OutcomeFailed
	}
	if timeout := c.job.Filled.Policy.Timeout; timeout != nil && takes > time.Duration(*timeout) {
		takes, outcome = time.Duration(*timeout), job.OutcomeTimedOut
	}
	n.later(takes, func() {
		if it.State == runqueue.Running && c.queue == n.queue {
			n.end(it, outcome)
		}
	})
}

// end ends an attempt and reports it.
func (n *model) end(it *heldRun, outcome job.Outcome) {
	c := &it.With
	c.seen.Ended, c.seen.Outcome = n.core.now, outcome
	c.result = &store.Result{Attempt: it.Attempt, Started: c.seen.Started, Ended: n.core.now, Outcome: outcome}
	n.report(it)
}

// enforceFences ends attempts that another node may soon count as lost.
func (n *model) enforceFences() {
	for _, it := range n.queue.All(runqueue.Running) {
		if n.fenced(it) {
			n.end(it, job.OutcomeLost)
		}
	}
}

// report queues a result.
func (n *model) report(it *heldRun) {
	it.State, it.With.queuedAt = runqueue.Ended, n.core.now
	n.results = append(n.results, it)
	n.reportAll()
}

// unreportedAfter is the bound of real workers.
const unreportedAfter = time.Second

// unreported returns how many results have waited for a while.
func (n *model) unreported() (count int) {
	for _, list := range [...][]*heldRun{n.results, n.sent} {
		for _, it := range list {
			if n.core.now.Sub(it.With.queuedAt) >= unreportedAfter {
				count++
			}
		}
	}
	return count
}

// reportAll reports what has ended until the store has it.
func (n *model) reportAll() {
	if n.sending || len(n.results) == 0 {
		return
	}
	n.sending = true
	batch := n.results
	n.results, n.sent = nil, batch
	var results []store.Result
	var unstarted, takenBack []store.Attempt
	for _, it := range batch {
		if it.With.result == nil {
			if unstarted = append(unstarted, it.Attempt); it.With.handed {
				takenBack = append(takenBack, it.Attempt)
			}
		} else {
			results = append(results, *it.With.result)
		}
	}
	session, sent := n.session, n.elapsed()
	var out []store.FinishOutcome
	n.call(func() (err error) {
		if len(unstarted) > 0 {
			if err := n.core.store.Release(context.Background(), session, unstarted); err != nil {
				return err
			}
		}
		if len(takenBack) > 0 {
			if err := n.core.store.Release(context.Background(), job.ID{}, takenBack); err != nil {
				return err
			}
		}
		if len(results) > 0 {
			out, err = n.core.store.Finish(context.Background(), session, results)
		}
		return err
	}, func(err error) {
		n.sending, n.sent = false, nil
		if n.queue.Reports(err); err != nil {
			n.results = append(batch, n.results...)
			n.later(retryEvery, n.reportAll)
			return
		}
		n.core.history.ack(results, out)
		if n.plans.Ended(results) {
			n.plan()
		}
		n.sayOtherwise(results)
		for _, it := range batch {
			it.With.queue.Reported(it)
		}
		for i := range out {
			if n.session == session {
				n.queue.Hold(out[i].Ready, sent)
			}
		}
		n.act()
		n.reportAll()
	})
}

// sayOtherwise sometimes repeats an acknowledged report with another result, at once or when the
// next attempt runs: a final outcome stays. Only a loss may be revised.
func (n *model) sayOtherwise(results []store.Result) {
	if n.core.calm || !n.core.chance(20) {
		return
	}
	var others []store.Result
	for _, r := range results {
		switch r.Outcome {
		case job.OutcomeLost:
			continue
		case job.OutcomeFailed:
			r.Outcome = job.OutcomeSucceeded
		default:
			r.Outcome = job.OutcomeFailed
		}
		others = append(others, r)
	}
	if session := n.session; len(others) > 0 {
		n.later(n.core.between(0, lateMost), func() {
			n.call(func() error {
				_, err := n.core.store.Finish(context.Background(), session, others)
				return err
			}, func(error) {})
		})
	}
}

// giveBack releases what is claimed and has not started.
func (n *model) giveBack() {
	n.release(n.queue.All(runqueue.Claimed), func(*heldRun) bool { return true })
}

// changed reports whether the job of an early claim has changed since.
func (n *model) changed(it *heldRun) bool {
	j, err := store.JobByUID(context.Background(), n.core.memory, it.With.run.JobUID)
	if err != nil {
		return false
	}
	version := engine.VersionOf(j)
	return version.Recalls(&it.With.run.Run, it.With.run.Version)
}

// edited tells the node that jobs have changed.
func (n *model) edited() {
	n.queue.Hint(store.HintJobs)
	n.act()
}

// reconcile compares with what the store believes.
func (n *model) reconcile() {
	n.enforceFences()
	if n.session.IsZero() {
		return
	}
	session, before := n.session, n.queue.All(runqueue.Running)
	var mine []store.Run
	n.once(errandReconcile, func() (err error) { mine, err = store.RunsOn(context.Background(), n.core.store, session); return err }, func(err error) {
		if err != nil || session != n.session {
			return
		}
		unknown := n.queue.Compare(mine, before,
			func(it *heldRun, _ *store.Run) {
				if it.With.cancel = true; it.State == runqueue.Running {
					n.end(it, job.OutcomeCancelled)
				}
			},
			func(it *heldRun) { n.end(it, job.OutcomeLost) }) // another node has taken it
		n.releaseThese(unknown)
	})
}
