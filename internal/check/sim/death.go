package sim

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/internal/node/recovery"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// nearTick is how close to the instants at which much is due half of the deaths are.
	nearTick = 50 * time.Millisecond
	// tick is the distance between those instants.
	tick = 10 * time.Second
	// reportMost is how long a watchdog takes to end the commands of its node and report its death,
	// and freeAfter how long after that all traces of the node are gone.
	reportMost = 1500 * time.Millisecond
	freeAfter  = 6 * time.Second
)

// die ends the process of a node for a while. Its watchdog reports that, unless the
// machine is lost as well.
func (c *Core) die(n *model, d time.Duration) {
	var wait time.Duration
	if c.chance(500) {
		next := tick - c.now.Sub(beginning)%tick
		wait = max(0, next+c.between(-nearTick, nearTick))
	}
	c.after(wait, func() {
		if n.up && !c.calm {
			session, began := n.session, n.began()
			n.kill()
			if c.chance(300) {
				n.machine = "machine " + c.newID().String() // it starts on another machine
			} else if !session.IsZero() {
				dead := &recovery.DeadSession{Session: session, Began: func(run job.ID, attempt int) bool { return began[attemptKey{run, attempt}] }}
				c.after(c.between(10*time.Millisecond, reportMost), func() { c.report(n, dead) })
			}
		}
		c.after(d, n.start)
	})
}

// began returns the attempts in the process's journal.
func (n *model) began() map[attemptKey]bool {
	began := map[attemptKey]bool{}
	for _, state := range []runqueue.State{runqueue.Running, runqueue.Ended} {
		n.queue.Items(state, func(it *heldRun) { began[attemptKey{it.Ready.ID, it.Attempt.Number}] = true })
	}
	return began
}

// report does the work of a dead process's watchdog, until the store can be reached.
func (c *Core) report(n *model, dead *recovery.DeadSession) {
	if n.cut || c.outage {
		c.after(retryEvery, func() { c.report(n, dead) })
		return
	}
	ctx := context.Background()
	settle := func() {
		if _, err := dead.Recover(ctx, recovery.On(c.store)); err != nil {
			c.fail(err)
		}
	}
	settle()
	c.after(c.between(0, freeAfter), settle)
	c.after(freeAfter, func() {
		mine, err := store.RunsOn(ctx, c.store, dead.Session)
		if err != nil {
			c.fail(err)
			return
		}
		c.history.reported()
		c.history.mu.Lock()
		defer c.history.mu.Unlock()
		for i := range mine {
			c.history.problem("liveness", "the run %s of %s belongs to a process of %s that was reported dead %s ago", mine[i].ID, mine[i].Name, n.name, freeAfter)
		}
	})
}
