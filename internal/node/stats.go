package node

import (
	"math/bits"
	"time"

	"github.com/belfry-cron/belfry/internal/node/planner"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Stats are the node's numbers at a moment.
type Stats struct {
	Planner planner.Stats
	Worker  worker.Stats
	// Capacity is how many attempts may run at once: 0 without the role worker.
	Capacity int
	// ClockAhead is by how much the wall clock is ahead of the store's.
	ClockAhead time.Duration
	// ClockOff reports that the node neither plans nor claims because of its clock.
	ClockOff bool
	// Live reports whether the session was renewed within [store.SessionLife], Silent is the time
	// since, and Drained reports whether it accepts no runs.
	Live    bool
	Silent  time.Duration
	Drained bool
	// Session is the present one, and Partitions how many it plans.
	Session    job.ID
	Partitions int
}

// Stats returns the node's numbers. It may be called at any time; a node without a session has
// zeros.
func (n *Node) Stats() Stats {
	var s Stats
	if n.planner != nil {
		s.Planner = n.planner.Stats()
	}
	if n.config.Session.Works() {
		s.Capacity = n.config.Capacity
	}
	if w := n.worker.Load(); w != nil {
		s.Worker = w.Stats()
	}
	if m := n.member.Load(); m != nil {
		s.ClockAhead, s.ClockOff, s.Session, s.Drained = m.ClockAhead(), m.ClockOff(), m.ID(), m.Drained()
		s.Silent = n.config.Boot() - m.Renewed()
		s.Live = s.Silent < store.SessionLife
		for _, word := range n.partitions() {
			s.Partitions += bits.OnesCount64(word)
		}
	}
	return s
}

// Running returns the attempts that are running.
func (n *Node) Running() []worker.Running {
	if w := n.worker.Load(); w != nil {
		return w.Running()
	}
	return nil
}
