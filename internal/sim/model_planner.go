package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// planned is a job in the table of a planner.
type planned struct {
	store.PlannedJob
	next    time.Time // what is due after nextOf, which the cursor was
	nextOf  time.Time
	timing  engine.Timing
	catchUp time.Time // of the decision before
	where   engine.Whereabouts
}

// plan reads what has changed, and plans what is due.
func (n *model) plan() {
	if n.session.IsZero() || n.leaving {
		return
	}
	parts := n.share.Of(n.session, n.live)
	if !n.core.calm && n.core.chance(50) {
		parts = store.AllPartitions // the view of a node may be an old one
	}
	if parts != n.parts {
		n.parts, n.table, n.since = parts, nil, 0
	}
	var changed []store.PlannedJob
	var next int64
	since := n.since
	n.once(errandPlan, func() (err error) {
		changed, next, err = n.core.store.JobsChanged(context.Background(), parts, since, 1000)
		return err
	}, func(err error) {
		if err != nil || parts != n.parts || since != n.since {
			return
		}
		n.since = next
		for _, j := range changed {
			n.know(j)
		}
		n.planDue()
	})
}

// know takes a job into the table, or out of it.
func (n *model) know(j store.PlannedJob) {
	i := slices.IndexFunc(n.table, func(p *planned) bool { return p.UID == j.UID })
	if !j.Active || j.Deleted {
		if i >= 0 {
			n.table = slices.Delete(n.table, i, i+1)
		}
		return
	}
	p := &planned{PlannedJob: j}
	var err error
	if p.timing, p.where, err = n.core.compile(j.Timing); err != nil {
		n.core.fail(err)
		return
	}
	p.timing.UID = j.UID
	if i >= 0 {
		n.table[i] = p
	} else {
		n.table = append(n.table, p)
	}
}

// planDue plans what is due within the look-ahead.
func (n *model) planDue() {
	now := n.core.now.Add(n.skew)
	ahead := lookAhead
	if !n.core.calm && n.core.chance(20) {
		ahead = time.Minute // a node that is configured in another way
	}
	var items []store.PlanItem
	var decisions []engine.Decision
	for _, p := range n.table {
		if p.nextOf != p.Cursor {
			p.next, p.nextOf = p.timing.Schedule.Next(p.Cursor), p.Cursor
		}
		if p.next.IsZero() || p.next.After(now.Add(ahead*2/3)) {
			continue
		}
		most := 100
		if !n.core.calm && n.core.chance(5) {
			most = 2
		}
		d := p.timing.Decide(engine.Progress{Cursor: p.Cursor, Planned: p.Planned, CatchUp: p.catchUp}, now, ahead, engine.Most{Missed: most, OnTime: most}, engine.AbsencesOf(n.live)...)
		item := store.PlanItem{Job: p.UID, Epoch: p.Epoch, From: p.Cursor, To: d.To, Planned: p.Planned, Complete: d.Complete}
		for sequence, o := range d.Due {
			request := placement.Request{UID: p.UID, Place: p.where.Place, Handler: p.where.Handler, Scheduled: o.Scheduled, Sequence: p.Planned + sequence}
			placed, _ := placement.Runs(request, n.live)
			for _, r := range placed {
				item.Runs = append(item.Runs, store.NewRun{ID: n.core.newID(), Session: r.Session, Node: r.Node, Scheduled: o.Scheduled, Due: o.Due, NextDue: o.NextDue, Shard: r.Shard, Shards: r.Shards})
			}
		}
		for _, s := range d.Missed {
			item.Missed = append(item.Missed, store.MissedSpan{ID: n.core.newID(), First: s.First, Last: s.Last, Count: s.Count, Reason: s.Reason})
		}
		items, decisions = append(items, item), append(decisions, d)
	}
	if len(items) > 0 {
		n.send(items, decisions, 2)
	}
}

// send plans, and asks again when the answer was lost.
func (n *model) send(items []store.PlanItem, decisions []engine.Decision, tries int) {
	session := n.session
	batch, mind, sent := n.reserve(items), n.mind, n.elapsed()
	var outcomes []store.PlanOutcome
	var claims []store.ClaimOutcome
	n.call(func() (err error) {
		outcomes, claims, err = n.core.store.Plan(context.Background(), session, items)
		return err
	}, func(err error) {
		if session == n.session && len(batch) > 0 {
			if err == nil {
				n.took(batch, claims, sent)
			} else {
				mind.Refused(batch) // they are asked for by claims
			}
			defer n.act()
		}
		switch {
		case errors.Is(err, store.ErrSessionOver):
		case err != nil && tries > 0:
			n.send(items, decisions, tries-1)
		case err == nil:
			for i, outcome := range outcomes {
				n.answered(&items[i], &decisions[i], outcome)
			}
		}
	})
}

// reserve gives tokens to runs that are due and its own, most of the time. A step that is
// repeated has its tokens: more of them would get the answers of those before.
func (n *model) reserve(items []store.PlanItem) []*held {
	if n.leaving || !n.core.calm && n.core.chance(20) {
		return nil
	}
	var due []*store.NewRun
	var runs []store.ReadyRun
	for i := range items {
		for k := range items[i].Runs {
			r := &items[i].Runs[k]
			if !r.Token.IsZero() {
				return nil
			}
			if r.Session == n.session && !r.Due.After(n.core.now.Add(n.skew)) {
				due = append(due, r)
				runs = append(runs, store.ReadyRun{RunRef: store.RunRef{Due: r.Due, ID: r.ID}, Job: items[i].Job, Session: r.Session, Attempt: 1})
			}
		}
	}
	batch := n.mind.Reserve(runs, func() (job.ID, error) { return n.core.newID(), nil })
	for i, it := range batch {
		due[i].Token = it.Attempt.Token
	}
	return batch
}

// answered makes the table agree with the answer to an item.
func (n *model) answered(item *store.PlanItem, d *engine.Decision, outcome store.PlanOutcome) {
	i := slices.IndexFunc(n.table, func(p *planned) bool { return p.UID == item.Job && p.Epoch == item.Epoch })
	if i < 0 {
		return
	}
	p := n.table[i]
	switch outcome {
	case store.Planned:
		if p.Cursor.Before(item.To) {
			p.Cursor, p.catchUp = item.To, d.CatchUp
			p.Planned += len(d.Due)
		}
	case store.Moved:
		var j *store.Job
		n.call(func() (err error) { j, err = n.core.store.JobByUID(context.Background(), item.Job); return err }, func(err error) {
			if err == nil && j.Definition.Epoch == p.Epoch {
				p.Cursor, p.Planned = j.Cursor, j.Planned
			}
		})
	case store.Malformed:
		n.core.history.mu.Lock()
		n.core.history.problem("accounted", "what was planned for a job is malformed: %+v", *item)
		n.core.history.mu.Unlock()
	}
}

// placeRest places what has no node.
func (n *model) placeRest() {
	if n.session.IsZero() || n.leaving {
		return
	}
	ctx := context.Background()
	var runs []store.Run
	n.once(errandPlace, func() (err error) {
		runs, err = n.core.store.Unplaced(ctx, store.RunRef{}, store.MaxBatch)
		return err
	}, func(err error) {
		var placements []store.Placement
		for i := range runs {
			r := &runs[i]
			j, err := n.core.memory.JobByUID(ctx, r.JobUID)
			if err != nil {
				continue
			}
			request := placement.Request{UID: r.JobUID, Place: j.Filled.Place, Scheduled: r.Scheduled}
			request.Place.Shards = 0
			bound := request.Place.Binds()
			candidates := slices.DeleteFunc(slices.Clone(n.live), func(s store.Session) bool { return !engine.MayGoTo(bound, r.Node, s.Node) })
			if request.Place.Strategy == job.StrategyBroadcast {
				request.Place.Strategy = job.StrategyAny
			}
			if placed, _ := placement.Runs(request, candidates); !placed[0].Session.IsZero() {
				placements = append(placements, store.Placement{Job: r.JobUID, Run: r.ID, Attempt: r.Attempt, Session: placed[0].Session})
			}
		}
		if err == nil && len(placements) > 0 {
			n.call(func() error { return n.core.store.Place(ctx, placements) }, func(error) {})
		}
	})
}
