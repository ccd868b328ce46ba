package node

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/store"
)

const (
	// tendEvery is the interval of housekeeping, and expireEvery the interval of searching history
	// for expired records: the nodes of a cluster take turns, so that many cost no more than one.
	tendEvery   = 500 * time.Millisecond
	expireEvery = time.Minute
	// stepsMax bounds how many steps of tidying are done in a row.
	stepsMax = 20
)

// tend does the housekeeping that any node can do: it ends lost attempts, settles withdrawn runs,
// and removes expired data. It waits for the store.
func (n *Node) tend(ctx context.Context) {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	expired := minuteOf(n.storeNow())
	// As many runs expire as are made: while more remain, the next tick continues.
	expiring := false
	fails := failurelog.New(n.config.Log, "cannot tidy the store", "tidying the store works again")
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// By a clock that was just set all sessions seem old, even this one.
		n.lookAtClock()
		if n.member.Load().Renewed() < n.clock.Last() {
			continue
		}
		now := n.storeNow()
		minute := minuteOf(now)
		tends, expires := n.Turn(now.UnixNano()/int64(tendEvery)), expiring || minute != expired && n.Turn(minute)
		if !tends && !expires {
			continue
		}
		var err error
		if tends {
			err = n.tendOnce(ctx)
		}
		if err == nil && expires {
			expired = minute
			expiring, err = n.expire(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		fails.Saw(err)
	}
}

// expire removes expired history and audit records. It reports whether more history remains.
func (n *Node) expire(ctx context.Context) (more bool, err error) {
	keep := n.Kept()
	more, err = untilDone(ctx, func(ctx context.Context) (bool, error) { return n.config.Upkeep.Expire(ctx, keep) })
	if err != nil || more {
		return more, err
	}
	_, err = untilDone(ctx, func(ctx context.Context) (bool, error) { return n.config.Upkeep.ExpireAudit(ctx, keep) })
	return false, err
}

// minuteOf returns the number of the minute for searching history. It begins half a minute
// after the full minute, when most jobs fall due.
func minuteOf(at time.Time) int64 { return at.Add(expireEvery/2).UnixNano() / int64(expireEvery) }

// Turn reports whether it is this node's turn among the live nodes.
func (n *Node) Turn(number int64) bool {
	m := n.member.Load()
	return m != nil && engine.Turn(m.ID(), m.Live(), number)
}

// tendOnce does the housekeeping of one turn.
func (n *Node) tendOnce(ctx context.Context) error {
	if err := n.reap(ctx); err != nil {
		return err
	}
	if _, err := untilDone(ctx, n.config.Upkeep.Tidy); err != nil {
		return err
	}
	return n.alert(ctx)
}

// alert raises an alert for each run that is not as its job expects.
func (n *Node) alert(ctx context.Context) error {
	alerts, err := n.config.Upkeep.Alerts(ctx, store.MaxBatch)
	for i := range alerts {
		r := &alerts[i].Run
		for _, unmet := range alerts[i].Unmet {
			n.config.Log.Warn("a run does not meet the expectations of its job", "expectation", unmet.String(),
				"job", r.Namespace+"/"+r.Name, "run", r.ID, "attempt", r.Attempt, "scheduled", r.Scheduled, "state", r.State, "node", r.Node)
		}
	}
	return err
}

// untilDone repeats a step, within bounds, while more work remains, and reports whether some
// remains.
func untilDone(ctx context.Context, step func(context.Context) (bool, error)) (more bool, err error) {
	for range stepsMax {
		if more, err = step(ctx); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// reap ends the attempts of nodes that were silent for too long, by the store's clock.
func (n *Node) reap(ctx context.Context) error {
	lost, err := n.config.Upkeep.Lost(ctx, store.MaxBatch)
	if err != nil || len(lost) == 0 {
		return err
	}
	n.config.Log.Warn("attempts are lost: their node is silent", "attempts", len(lost))
	for _, a := range lost[:min(len(lost), namedMax)] {
		n.config.Log.Warn("an attempt is lost: its node is silent", "run", a.Run, "attempt", a.Number)
	}
	return n.config.Upkeep.Reap(ctx, n.member.Load().ID(), lost)
}
