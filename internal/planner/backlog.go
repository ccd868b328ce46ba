package planner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
)

// What was missed is planned as fast as it is run, and not faster: a node that was away
// for a night may have millions of runs to make up for. All at once in the store they
// would slow down every look for runs, and what falls due now would wait behind them.

const (
	// backlogMax is how many runs that are due may wait for each node when more of what
	// was missed is planned: what a node takes on between two looks, twice.
	backlogMax = 20_000
	// catchUpMost is for how many missed occurrences a job is planned at a time: enough
	// that the moves of its cursor cost little beside them.
	catchUpMost = 50
)

// catchesUp tells whether an entry has missed occurrences that may be many. The caller
// holds the mutex.
func (p *Planner) catchesUp(e *entry, now time.Time) bool {
	return e.next < now.Add(-engine.OnTime).UnixNano() && p.table.timings[e.timing].engine.Missed == job.MissedAll
}

// admit holds back what is to be caught up of the entries that are due, and returns the
// others and, behind them, as many that were held back as there is room for.
func (p *Planner) admit(ctx context.Context, now time.Time, due []uint32) (_ []uint32, admitted int, err error) {
	p.mu.Lock()
	due = slices.DeleteFunc(due, func(i uint32) bool {
		if !p.catchesUp(&p.table.entries[i], now) {
			return false
		}
		p.table.held = append(p.table.held, i)
		return true
	})
	held := len(p.table.held)
	p.mu.Unlock()
	if held > 0 && time.Since(p.roomAt) >= every {
		if err := p.measureRoom(ctx); err != nil {
			return due, 0, err
		}
	}
	if p.room <= 0 {
		return due, 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	admitted = min(len(p.table.held), (p.room+catchUpMost-1)/catchUpMost)
	due = append(due, p.table.held[:admitted]...)
	if p.table.held = p.table.held[admitted:]; len(p.table.held) == 0 {
		p.table.held = nil // its room with it
	}
	return due, admitted, nil
}

// sayHeld logs that jobs have begun to wait, and that none does any more.
func (p *Planner) sayHeld() {
	p.mu.Lock()
	held := len(p.table.held)
	p.mu.Unlock()
	if (held > 0) == p.saidHeld {
		return
	}
	if p.saidHeld = held > 0; p.saidHeld {
		p.Log.Info("more was missed than can be run at once: it is made up for bit by bit", "jobs", held)
	} else {
		p.Log.Info("all that was missed is planned")
	}
}

// measureRoom finds out how many runs this node may add to what waits: its share of what
// the nodes that run something have room for, by the partitions that it plans.
func (p *Planner) measureRoom(ctx context.Context) error {
	backlog, err := p.Store.Backlog(ctx, backlogMax)
	if err != nil {
		return fmt.Errorf("count the backlog: %w", err)
	}
	room, nodes := 0, 0
	for _, s := range p.Live() {
		if s.Takes() && slices.Contains(s.Roles, placement.RoleWorker) {
			room += backlogMax - backlog[s.ID]
			nodes++
		}
	}
	if nodes == 0 {
		room = backlogMax - backlog[job.ID{}] // they wait for a node
	}
	p.mu.Lock()
	mine := p.mine.Len()
	p.mu.Unlock()
	p.room, p.roomAt = room*mine/job.Partitions, time.Now()
	return nil
}
