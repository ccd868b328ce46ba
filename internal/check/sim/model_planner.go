package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/decide/stripes"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// changedMax is how many changed jobs one read returns.
const changedMax = 1000

// newPlanQueue begins the queue of a process: its decisions are real, and only the calls are
// modelled.
func (n *model) newPlanQueue() {
	n.since, n.planning = 0, false
	n.plans = planqueue.New(lookAhead, stripes.Of)
}

// clock returns the store's clock as the node knows it.
func (n *model) clock() time.Time { return n.core.now.Add(n.skew) }

// ask makes a store call of the planner.
func (n *model) ask(do func() error, then func()) {
	n.call(do, func(err error) {
		if err != nil {
			n.unanswered()
			return
		}
		then()
	})
}

// unanswered ends a round: what the store had acknowledged before may be lost.
func (n *model) unanswered() {
	n.plans.Failed()
	n.plans.MayHaveLost(n.clock())
	n.planning = false
}

// plan reads what has changed, and plans what is due.
func (n *model) plan() {
	if n.session.IsZero() || n.leaving || n.planning {
		return
	}
	n.planning = true
	parts := n.share.Of(n.session, n.live)
	if !n.core.calm && n.core.chance(50) {
		parts = store.AllPartitions // the view of a node may be out of date
	}
	var changed []store.PlannedJob
	var next int64
	n.ask(func() (err error) {
		changed, next, err = n.core.store.JobsChanged(context.Background(), store.AllPartitions, n.since, changedMax)
		return err
	}, func() {
		n.since = next
		for text, err := range n.plans.Put(changed) {
			n.core.fail(fmt.Errorf("compile %s: %w", text, err))
		}
		if len(changed) == changedMax {
			n.planning = false
			n.plan()
			return
		}
		n.plans.Take(parts, n.clock())
		n.readCursors(n.turn)
	})
}

// readCursors reads the unknown cursors of jobs.
func (n *model) readCursors(then func()) {
	uids := n.plans.ToRead()
	if len(uids) == 0 {
		then()
		return
	}
	var list []store.JobCursor
	n.ask(func() (err error) { list, err = n.core.store.Cursors(context.Background(), uids); return err }, func() {
		n.plans.Read(len(uids), list)
		n.readCursors(then)
	})
}

// turn plans the occurrences within the look-ahead.
func (n *model) turn() {
	now := n.clock()
	if !n.core.calm && n.core.chance(20) {
		n.plans.LookAhead = time.Minute // a node with another configuration
	}
	if !n.plans.Collect(now, n.core.now) {
		n.admit(now)
		return
	}
	var waiting map[job.ID]int
	n.ask(func() (err error) {
		waiting, err = n.core.store.Backlog(context.Background(), planqueue.BacklogMax)
		return err
	}, func() {
		n.plans.Room(waiting, n.live, n.core.now)
		n.admit(now)
	})
}

// admit plans due occurrences while there is room, or ends the round.
func (n *model) admit(now time.Time) {
	if n.plans.Admit() > 0 {
		n.batch(now)
		return
	}
	n.planning = false
	n.plans.LookAhead = lookAhead
	if n.plans.Held() > 0 {
		n.later(n.plans.LookSoon(), n.plan)
	}
}

// batch plans a batch of the turn.
func (n *model) batch(now time.Time) {
	if n.plans.Left() == 0 {
		n.turn()
		return
	}
	v := planqueue.View{Now: now, Self: n.session, Live: n.live, Paced: true}
	if !n.core.calm && n.core.chance(5) {
		v.Most = 2
	}
	b, _, err := n.plans.Next(v, func(choose func(runqueue.Set) runqueue.Set) runqueue.Set { return choose(0) },
		func() (job.ID, error) { return n.core.newID(), nil })
	n.plans.LookAhead = lookAhead
	if err != nil {
		n.core.fail(err)
		return
	}
	if len(b.Items) == 0 {
		n.batch(now)
		return
	}
	n.send(&b, now)
}

// send writes a batch to the store, together with the claims of the node's own due runs.
func (n *model) send(b *planqueue.Batch, now time.Time) {
	session, queue, sent := n.session, n.queue, n.elapsed()
	claimed := n.reserve(b, now)
	_, runs := b.Own(session, now)
	var outcomes []store.PlanOutcome
	var claims []store.ClaimOutcome
	n.call(func() (err error) {
		outcomes, claims, err = n.core.store.Plan(context.Background(), session, b.Items)
		if len(claimed) == 0 {
			n.planLate(session, b.Items)
		}
		return err
	}, func(err error) {
		if session == n.session && len(claimed) > 0 {
			if err == nil {
				n.took(claimed, claims, sent)
			} else {
				queue.Refused(claimed, err) // claims will ask for them
			}
			n.act()
		}
		if err != nil {
			n.unanswered()
			return
		}
		b.Claimed(runs, claims)
		_, refused := n.plans.Answered(b, outcomes, n.clock(), n.core.now)
		for _, item := range refused {
			n.core.history.mu.Lock()
			n.core.history.problem("accounted", "what was planned for a job is malformed: %+v", *item)
			n.core.history.mu.Unlock()
		}
		n.readCursors(func() { n.batch(now) })
	})
}

// planLate repeats a plan without claims, late; its answer is dropped.
func (n *model) planLate(session job.ID, items []store.PlanItem) {
	if n.core.calm || !n.core.chance(50) {
		return
	}
	n.core.after(n.core.between(0, lateMost), func() {
		if !n.core.outage {
			_, _, _ = n.core.store.Plan(context.Background(), session, items)
		}
	})
}

// reserve usually gives tokens to the node's own due runs.
func (n *model) reserve(b *planqueue.Batch, now time.Time) []*heldRun {
	if n.leaving || !n.core.calm && n.core.chance(20) {
		return nil
	}
	due, runs := b.Own(n.session, now)
	batch := n.queue.Reserve(runs, func() (job.ID, error) { return n.core.newID(), nil })
	for i, it := range batch {
		due[i].Token = it.Attempt.Token
	}
	return batch
}

// placeRest places what has no node.
func (n *model) placeRest() {
	if n.session.IsZero() || n.leaving {
		return
	}
	ctx := context.Background()
	var runs []store.Run
	places, others := map[job.ID]engine.Whereabouts{}, []job.ID(nil)
	n.once(errandPlace, func() (err error) {
		if runs, err = n.core.store.Unplaced(ctx, store.RunRef{}, store.MaxBatch); err != nil {
			return err
		}
		places, others = n.plans.Whereabouts(runs)
		jobs, err := n.core.store.JobsByUID(ctx, others)
		for i, j := range jobs {
			if j != nil {
				places[others[i]] = engine.WhereaboutsOf(j.Filled)
			}
		}
		return err
	}, func(err error) {
		if placements := planqueue.Place(runs, places, n.live); err == nil && len(placements) > 0 {
			n.call(func() error { return n.core.store.Place(ctx, placements) }, func(error) {})
		}
	})
}
