package node

import (
	"context"
	"time"
)

// watchEvery is the interval for comparing the clocks: a step must be noticed within a
// second.
const watchEvery = 250 * time.Millisecond

// watchClock detects steps of the wall clock. It never waits for a store, which may be slow at that
// moment.
func (n *Node) watchClock(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			n.lookAtClock()
		}
	}
}

// lookAtClock notifies the parts that depend on the wall clock after a step.
func (n *Node) lookAtClock() {
	step := n.clock.Stepped()
	if step == 0 {
		return
	}
	n.config.Log.Warn("the wall clock was set", "by", step)
	n.stepped()
	select {
	case n.clockSet <- struct{}{}:
	default: // a renewal is due anyway
	}
}

// stepped notifies the planner and the worker that the clock of their queues was set.
func (n *Node) stepped() {
	if n.planner != nil {
		n.planner.ClockStepped()
	}
	if w := n.worker.Load(); w != nil {
		w.ClockStepped()
	}
}

// renewAfterSteps renews the session after a step of the wall clock, by which it may seem
// old.
func (n *Node) renewAfterSteps(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.clockSet:
		}
		if err := n.member.Load().Renew(ctx); err != nil && ctx.Err() == nil {
			n.config.Log.Error("the session was not renewed after the clock was set", "error", err)
		}
		if n.planner != nil {
			n.planner.ClockStepped() // the store may use this clock
		}
	}
}
