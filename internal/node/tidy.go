package node

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/store"
)

const (
	// tendEvery is how often what can be done at any time is done, and expireEvery
	// how often history is looked through for what need not be kept: by the nodes of
	// a cluster in turn, so that many cost the store no more than one.
	tendEvery   = 500 * time.Millisecond
	expireEvery = time.Minute
	// reapAfter is how long a node must have renewed its session without a gap
	// before it takes others for dead: after an outage of the store they get that
	// long to come back. It goes by no job's lost_after. What a longer one would
	// spare has been ended by its own node before, or its late result counts; a
	// shorter one is met late only in the first minute.
	reapAfter = 60 * time.Second
	// stepsMax bounds how many steps of tidying are done in a row.
	stepsMax = 20
)

// tend does what any node can do at any time: it ends what is lost, settles what
// was withdrawn, and removes what need not be kept. All of it may take as long as
// the store does.
func (n *Node) tend(ctx context.Context) {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	expired := minuteOf(n.storeNow())
	// As much comes to its end as is made: where there is more to remove, it
	// goes on at the next tick.
	expiring := false
	fails := trouble.With(n.config.Log, "the store cannot be tidied", "the store is tidied again")
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// By a clock that was just set all sessions seem old, this one too.
		n.lookAtClock()
		if n.member.Load().Renewed() < n.clock.Last() {
			continue
		}
		now := n.storeNow()
		minute := minuteOf(now)
		tends, expires := n.turn(now.UnixNano()/int64(tendEvery)), expiring || minute != expired && n.turn(minute)
		if !tends && !expires {
			continue
		}
		var err error
		if tends {
			err = n.tendOnce(ctx)
		}
		if err == nil && expires {
			expired = minute
			expiring, err = untilDone(ctx, func(ctx context.Context) (bool, error) {
				return n.config.Store.Expire(ctx, n.config.Retention)
			})
		}
		if ctx.Err() != nil {
			return
		}
		fails.Saw(err)
	}
}

// minuteOf returns the number of the minute in which history is looked through. It
// begins half a minute after those in which most jobs fall due.
func minuteOf(at time.Time) int64 { return at.Add(expireEvery/2).UnixNano() / int64(expireEvery) }

// turn tells whether it is the turn of this node.
func (n *Node) turn(number int64) bool {
	m := n.member.Load()
	return placement.Turn(m.ID(), m.Live(), number)
}

// tendOnce does what is done at each turn.
func (n *Node) tendOnce(ctx context.Context) error {
	if err := n.reap(ctx); err != nil {
		return err
	}
	if _, err := untilDone(ctx, n.config.Store.Tidy); err != nil {
		return err
	}
	return n.alert(ctx)
}

// alert raises an alert for each run that is not as its job expects.
func (n *Node) alert(ctx context.Context) error {
	alerts, err := n.config.Store.Alerts(ctx, store.MaxBatch)
	for i := range alerts {
		r := &alerts[i].Run
		for _, unmet := range alerts[i].Unmet {
			n.config.Log.Warn("a run is not as its job expects", "expectation", unmet,
				"job", r.Namespace+"/"+r.Name, "run", r.ID, "attempt", r.Attempt, "scheduled", r.Scheduled, "state", r.State, "node", r.Node)
		}
	}
	return err
}

// untilDone repeats a step, within bounds, while it says that there is more to
// do, and tells whether there still is.
func untilDone(ctx context.Context, step func(context.Context) (bool, error)) (more bool, err error) {
	for range stepsMax {
		if more, err = step(ctx); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// reap ends the attempts of nodes that were silent for too long. A node does so
// only when it was not silent itself, and its clock was not set.
func (n *Node) reap(ctx context.Context) error {
	m := n.member.Load()
	steady := func() bool {
		n.lookAtClock() // or all nodes would seem silent after a step
		return n.config.Boot()-max(n.clock.Last(), m.Steady()) >= reapAfter
	}
	if !steady() {
		return nil
	}
	lost, err := n.config.Store.Lost(ctx, store.MaxBatch)
	if err != nil || len(lost) == 0 || !steady() {
		return err
	}
	n.config.Log.Warn("attempts are lost: their node is silent", "attempts", len(lost))
	for _, a := range lost[:min(len(lost), namedMax)] {
		n.config.Log.Warn("an attempt is lost: its node is silent", "run", a.Run, "attempt", a.Number)
	}
	return n.config.Store.Reap(ctx, m.ID(), lost)
}
