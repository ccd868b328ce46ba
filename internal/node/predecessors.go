package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/belfry-cron/belfry/internal/node/membership"
	"github.com/belfry-cron/belfry/internal/node/recovery"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/job"
)

// deliver moves the results of earlier sessions to the store, before their remaining
// attempts are settled: the first result of an attempt counts.
func (n *Node) deliver(ctx context.Context) error {
	if n.config.Spool == nil || n.config.Work == nil {
		return nil
	}
	session, err := n.newID() // a session of no node: results count by their attempts' tokens
	if err != nil {
		return err
	}
	attempts, err := n.config.Spool.Deliver(ctx, session, n.config.Work.Finish)
	if n.config.Watchdog != nil {
		for i := range attempts {
			n.config.Watchdog.Forget(watchdog.Key{Run: attempts[i].Run, Number: attempts[i].Number})
		}
	}
	return err
}

// settlePredecessors settles the attempts of earlier processes on this machine.
func (n *Node) settlePredecessors(ctx context.Context, m *membership.Member) error {
	if n.config.Work == nil {
		return nil
	}
	for _, predecessor := range m.Predecessors() {
		settled, err := n.deadOf(predecessor).Recover(ctx, n.config.Work)
		n.sayLeft(settled)
		if err != nil {
			return fmt.Errorf("settle the runs of session %s: %w", predecessor, err)
		}
	}
	return nil
}

// deadOf returns the session of a dead process of this machine.
func (n *Node) deadOf(session job.ID) *recovery.DeadSession {
	return &recovery.DeadSession{Session: session, Began: func(run job.ID, attempt int) bool {
		return n.config.Watchdog == nil || n.config.Watchdog.Began(watchdog.Key{Run: run, Number: attempt})
	}}
}

// sayLeft logs and removes the settled attempts of an earlier process.
func (n *Node) sayLeft(s recovery.Recovered) {
	if len(s.Lost)+len(s.GivenBack) == 0 {
		return
	}
	n.config.Log.Warn("the previous process ended while attempts were running", "lost", len(s.Lost), "not_begun", len(s.GivenBack))
	for i := range s.Lost {
		r := &s.Lost[i]
		if i < namedMax {
			n.config.Log.Warn("an attempt is lost: the previous process ended before it reported the result",
				"job", r.Namespace+"/"+r.Name, "run", r.ID, "attempt", r.Attempt)
		}
		if n.config.Watchdog != nil {
			n.config.Watchdog.Forget(watchdog.Key{Run: r.ID, Number: r.Attempt})
		}
	}
}

// settleAgain waits some seconds for late results of earlier processes, and ends their
// sessions.
func (n *Node) settleAgain(ctx context.Context) {
	for {
		var sessions []job.ID
		select {
		case <-ctx.Done():
			return
		case sessions = <-n.predecessors:
		}
		var group sync.WaitGroup
		for _, session := range sessions {
			group.Go(func() {
				settled, err := n.deadOf(session).Again(ctx, n.config.Work)
				n.sayLeft(settled)
				if err == nil {
					// If it fails, the store removes the session in some minutes.
					_ = n.config.Members.End(ctx, session)
				}
			})
		}
		group.Wait()
	}
}
