package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// held is a run that a node holds.
type held struct {
	ready   store.ReadyRun
	state   itemState
	attempt store.Attempt
	run     *job.Run
	fence   time.Duration
	seen    *Attempt
	result  *store.Result
	cancel  bool
}

type itemState int

const (
	itemReady itemState = iota
	itemClaiming
	itemClaimed
	itemRunning
	itemEnded
	itemUnstarted
)

// working returns how many attempts are claimed, running or to be reported.
func (n *model) working() (count int) {
	for _, it := range n.order {
		if it.state != itemReady {
			count++
		}
	}
	return count
}

// look reads what is assigned to the node.
func (n *model) look() {
	if n.session.IsZero() || n.leaving {
		return
	}
	session, until := n.session, n.core.now.Add(window)
	var runs []store.ReadyRun
	n.once(errandLook, func() (err error) {
		runs, err = n.core.store.Ready(context.Background(), session, store.RunRef{}, until, 1000)
		return err
	}, func(err error) {
		if err == nil && session == n.session {
			n.hold(runs)
		}
	})
}

// steal looks for what others have left lying.
func (n *model) steal() {
	if n.session.IsZero() || n.leaving {
		return
	}
	session, before := n.session, n.core.now.Add(-stealAfter)
	var runs []store.ReadyRun
	n.once(errandSteal, func() (err error) {
		runs, err = n.core.store.Overdue(context.Background(), before, store.RunRef{}, 1000)
		return err
	}, func(err error) {
		if err == nil && session == n.session {
			n.hold(runs)
		}
	})
}

// hold takes runs into memory, and claims each when it is due.
func (n *model) hold(runs []store.ReadyRun) {
	for _, r := range runs {
		if known := n.held[r.ID]; known != nil {
			if known.state != itemReady || known.ready.Attempt == r.Attempt && known.ready.Due.Equal(r.Due) {
				continue
			}
			n.drop(known)
		}
		it := &held{ready: r}
		n.held[r.ID] = it
		n.order = append(n.order, it)
		lead := n.core.between(5*time.Millisecond, 50*time.Millisecond)
		if n.core.chance(200) {
			lead = n.core.between(0, 2500*time.Millisecond) // now and then too early
		}
		n.claimAt(it, r.Due.Add(-lead))
	}
}

// drop forgets a run.
func (n *model) drop(it *held) {
	if n.held[it.ready.ID] == it {
		delete(n.held, it.ready.ID)
		n.order = slices.DeleteFunc(n.order, func(other *held) bool { return other == it })
	}
}

// claimAt claims a run at a moment, with what else is due then.
func (n *model) claimAt(it *held, at time.Time) {
	n.later(max(0, at.Sub(n.core.now)), func() {
		if n.held[it.ready.ID] != it || it.state != itemReady || n.leaving || n.session.IsZero() {
			return
		}
		batch := []*held{it}
		it.state = itemClaiming
		for _, other := range n.order {
			if other.state == itemReady && other.ready.Due.Equal(it.ready.Due) {
				other.state = itemClaiming
				batch = append(batch, other)
			}
		}
		for _, it := range batch {
			it.attempt = store.Attempt{Run: it.ready.ID, Number: it.ready.Attempt, Token: n.core.newID()}
		}
		n.claim(batch)
	})
}

// claim claims runs, with the same tokens again when the answer was lost.
func (n *model) claim(batch []*held) {
	session := n.session
	attempts := make([]store.Attempt, len(batch))
	for i, it := range batch {
		attempts[i] = it.attempt
	}
	var out []store.ClaimOutcome
	n.call(func() (err error) { out, err = n.core.store.Claim(context.Background(), session, attempts); return err }, func(err error) {
		switch {
		case session != n.session: // another session has forgotten all of this
		case errors.Is(err, store.ErrSessionOver):
			for _, it := range batch {
				n.drop(it)
			}
		case err != nil:
			n.later(retryEvery, func() {
				if session == n.session {
					n.claim(batch)
				}
			})
		default:
			for i, it := range batch {
				n.took(it, &out[i])
			}
		}
	})
}

// lateMost is how late a request comes at most that comes twice: the attempt may be over by
// then, and the next one ready or run.
const lateMost = 10 * time.Second

// claimLate lets the claim of an attempt that runs come once more, late, for nobody.
func (n *model) claimLate(a store.Attempt) {
	session := n.session
	n.core.after(n.core.between(0, lateMost), func() {
		if !n.core.outage {
			_, _ = n.core.store.Claim(context.Background(), session, []store.Attempt{a})
		}
	})
}

// took acts on the answer to a claim.
func (n *model) took(it *held, out *store.ClaimOutcome) {
	switch out.Verdict {
	case store.Started:
		it.state, it.run = itemClaimed, &out.Run.Run
		it.fence = fenceOf(out.Job.Filled)
		if n.leaving || !n.core.calm && n.core.chance(50) { // as when a job was changed
			it.state = itemUnstarted
			n.report(it)
			return
		}
		// Counted from the answer, which comes after the store's now.
		n.later(max(0, out.Run.Due.Sub(out.Now)), func() { n.begin(it, out.Job) })
	case store.Early:
		it.state = itemReady
		n.claimAt(it, it.ready.Due)
	default:
		n.drop(it)
	}
}

// fenceOf returns how long after the last renewal an attempt may go on.
func fenceOf(filled *job.Job) time.Duration {
	if !specOf(filled.Name).gains {
		return 0
	}
	p := &filled.Policy
	return time.Duration(p.LostAfter) - time.Duration(*p.KillGrace) - fenceMargin
}

// fenced tells whether an attempt may not go on, or start.
func (n *model) fenced(it *held) bool {
	return it.fence > 0 && n.core.now.Sub(n.renewed) > it.fence
}

// begin starts an attempt.
func (n *model) begin(it *held, j *store.Job) {
	if n.held[it.ready.ID] != it || it.state != itemClaimed {
		return
	}
	switch {
	case it.cancel:
		it.state = itemRunning
		it.seen = &Attempt{} // of what never was
		n.end(it, job.OutcomeCancelled)
		return
	case n.fenced(it):
		it.state = itemUnstarted
		n.report(it)
		return
	}
	it.state = itemRunning
	it.seen = &Attempt{Run: *it.run, Number: it.attempt.Number, Node: n.name, Gains: it.fence > 0, Started: n.core.now}
	n.core.history.begin(it.seen)
	if !n.core.calm && n.core.chance(50) {
		n.claimLate(it.attempt)
	}
	takes := n.core.between(10*time.Millisecond, 6*time.Second)
	if n.core.chance(60) && !n.core.calm {
		takes *= 20
	}
	outcome := job.OutcomeSucceeded
	if n.core.chance(120) {
		outcome = job.OutcomeFailed
	}
	if timeout := j.Filled.Policy.Timeout; timeout != nil && takes > time.Duration(*timeout) {
		takes, outcome = time.Duration(*timeout), job.OutcomeTimedOut
	}
	n.later(takes, func() {
		if n.held[it.ready.ID] == it && it.state == itemRunning {
			n.end(it, outcome)
		}
	})
}

// end ends an attempt and reports it.
func (n *model) end(it *held, outcome job.Outcome) {
	it.state = itemEnded
	it.seen.Ended, it.seen.Outcome = n.core.now, outcome
	it.result = &store.Result{Attempt: it.attempt, Started: it.seen.Started, Ended: n.core.now, Outcome: outcome}
	n.report(it)
}

// enforceFences ends what another node may soon take for lost.
func (n *model) enforceFences() {
	for _, it := range n.order {
		if it.state == itemRunning && n.fenced(it) {
			n.end(it, job.OutcomeLost)
		}
	}
}

// report queues a result.
func (n *model) report(it *held) {
	n.results = append(n.results, it)
	n.reportAll()
}

// reportAll reports what has ended until the store has it.
func (n *model) reportAll() {
	if n.sending || len(n.results) == 0 {
		return
	}
	n.sending = true
	batch := n.results
	n.results = nil
	var results []store.Result
	var unstarted []store.Attempt
	for _, it := range batch {
		if it.state == itemUnstarted {
			unstarted = append(unstarted, it.attempt)
		} else {
			results = append(results, *it.result)
		}
	}
	session := n.session
	var out []store.FinishOutcome
	n.call(func() (err error) {
		if len(unstarted) > 0 {
			if err := n.core.store.Release(context.Background(), session, unstarted); err != nil {
				return err
			}
		}
		if len(results) > 0 {
			out, err = n.core.store.Finish(context.Background(), session, results)
		}
		return err
	}, func(err error) {
		n.sending = false
		if err != nil {
			n.results = append(batch, n.results...)
			n.later(retryEvery, n.reportAll)
			return
		}
		n.core.history.ack(results, out)
		n.sayOtherwise(results)
		for _, it := range batch {
			n.drop(it)
		}
		n.reportAll()
	})
}

// sayOtherwise now and then reports again what is acknowledged, in another way, at once or
// when the next attempt runs: what is final stays as it is, whoever says what. Only a loss
// may turn out to be none.
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
	for _, it := range slices.Clone(n.order) {
		switch it.state {
		case itemReady:
			n.drop(it)
		case itemClaimed:
			it.state = itemUnstarted
			n.report(it)
		}
	}
}

// reconcile compares with what the store believes.
func (n *model) reconcile() {
	n.enforceFences()
	if n.session.IsZero() {
		return
	}
	session := n.session
	before := map[job.ID]*held{}
	for _, it := range n.order {
		if it.state == itemRunning {
			before[it.attempt.Token] = it
		}
	}
	var mine []store.Run
	n.once(errandReconcile, func() (err error) { mine, err = n.core.store.Mine(context.Background(), session); return err }, func(err error) {
		if err != nil || session != n.session {
			return
		}
		var unknown []store.Attempt
		for i := range mine {
			r := &mine[i]
			delete(before, r.Token)
			it := n.held[r.ID]
			switch {
			case it == nil || it.state == itemReady:
				unknown = append(unknown, store.Attempt{Run: r.ID, Number: r.Attempt, Token: r.Token})
			case r.CancelBy == "" || it.attempt.Token != r.Token:
			case it.state == itemRunning:
				n.end(it, job.OutcomeCancelled)
			case it.state == itemClaimed:
				it.cancel = true
			}
		}
		taken := make([]*held, 0, len(before))
		for _, it := range before {
			taken = append(taken, it)
		}
		slices.SortFunc(taken, func(a, b *held) int { return cmp.Compare(a.ready.ID.String(), b.ready.ID.String()) })
		for _, it := range taken {
			if it.state == itemRunning && n.held[it.ready.ID] == it {
				n.end(it, job.OutcomeLost) // it was taken away
			}
		}
		if len(unknown) > 0 {
			n.call(func() error { return n.core.store.Release(context.Background(), session, unknown) }, func(error) {})
		}
	})
}
