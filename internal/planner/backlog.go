package planner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
)

// What was missed is planned as fast as it is run, and not faster: a node that was away
// for a night may have millions of runs to make up for. All at once in the store they
// would slow down every look for runs, and what falls due now would wait behind them.

const (
	// backlogFor is how long a node works at the runs that are due and wait for it when
	// more of what was missed is planned: what falls due now waits behind them, and four
	// looks later none is left.
	backlogFor = 2 * time.Second
	// backlogMin is how many those are at least: enough to see how fast they are run.
	backlogMin = 200
	// growEvery is how soon is looked again while few may wait, which are soon counted, and
	// where the nodes run more than was thought: from the least to the most takes half a
	// second.
	growEvery  = 100 * time.Millisecond
	backlogFew = 10 * backlogMin
	// rateKept is how old the last look may be for what was run since to say something: to
	// plan what there was room for then takes a slow store some seconds.
	rateKept = 10 * time.Second
	// backlogMax is how many they are at most: what the fastest node takes on between two
	// looks, twice. None counts further.
	backlogMax = 20_000
	// catchUpMost is for how many missed occurrences a job is planned at a time: enough
	// that the moves of its cursor cost little beside them. Of a job whose runs wait for
	// each other fewer are planned if other jobs can use the room: see backlog.most.
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
	if held > 0 && time.Since(p.backlog.seen) >= p.backlog.again {
		if err := p.measureRoom(ctx); err != nil {
			return due, 0, err
		}
	}
	if p.backlog.room <= 0 {
		return due, 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.share(len(p.table.held))
	for left := p.backlog.room; admitted < len(p.table.held) && left > 0; admitted++ {
		left -= p.backlog.most(p.table.timingOf(p.table.held[admitted]))
	}
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
		p.Log.Info("more occurrences were missed than can run at once; catching up step by step", "jobs", held)
	} else {
		p.Log.Info("caught up: all missed occurrences are planned")
	}
}

// backlog is what a planner knows of the runs that wait for nodes. It is Run's alone.
type backlog struct {
	// room is how many runs of what was missed may be planned, as of the last look.
	room  int
	seen  time.Time     // when that was
	again time.Duration // how long after that is looked again
	limit int           // how many may wait for each node
	waits int           // how many waited for all nodes
	added int           // how many this planner has planned of what was missed, since then
	// serial is how many runs a job gets at a time that wait for each other.
	serial int
}

// share divides the room among the jobs that wait for it. Each has a part at most, if its runs
// wait for each other: those that cannot start are claimed twice.
func (b *backlog) share(held int) { b.serial = min(max(1, backlogFew/max(1, held)), catchUpMost) }

// most returns for how many missed occurrences a job is planned at a time.
func (b *backlog) most(t *engine.Timing) int {
	if t.Serial {
		return max(1, b.serial)
	}
	return catchUpMost
}

// look takes over how many runs wait for each of the nodes that take any, and for how many
// this planner has room: its share of what the nodes have room for.
func (b *backlog) look(waits []int, share float64, now time.Time) {
	all := 0
	for _, n := range waits {
		all += n
	}
	if since := now.Sub(b.seen); since > rateKept {
		b.limit = backlogMin // what was true of other runs, long ago, says nothing
	} else {
		// The others have planned as much as this one for their shares. What fell due
		// meanwhile is left out, and keeps the limit low while there is much of it.
		ended := float64(b.waits-all) + float64(b.added)/share
		each := ended / float64(len(waits)) * float64(backlogFor) / float64(since)
		// A stall, or what ends all at once, is no rate: it moves by steps.
		step := 2
		if all == 0 {
			step = 4 // a worker may be idle
		}
		b.limit = min(max(int(each), b.limit/2, backlogMin), step*b.limit, backlogMax)
	}
	if b.again = every; b.limit < backlogFew || all < b.limit*len(waits)/2 && b.limit < backlogMax {
		b.again = growEvery
	}
	room := 0
	for _, n := range waits {
		room += max(0, b.limit-n)
	}
	b.room, b.seen, b.waits, b.added = int(math.Ceil(float64(room)*share)), now, all, 0
}

// plan takes from the room for runs that wait from now on.
func (b *backlog) plan(runs int) {
	b.room -= runs
	b.added += runs
}

// measureRoom finds out how many runs this node may add to what waits.
func (p *Planner) measureRoom(ctx context.Context) error {
	counted, err := p.Store.Backlog(ctx, backlogMax)
	if err != nil {
		return fmt.Errorf("count the backlog: %w", err)
	}
	p.mu.Lock()
	mine := p.mine.Len()
	p.mu.Unlock()
	if mine == 0 {
		p.backlog = backlog{seen: time.Now(), again: every, limit: backlogMin}
		return nil
	}
	var waits []int
	for _, s := range p.Live() {
		if s.Takes() && s.Works() {
			waits = append(waits, counted[s.ID])
		}
	}
	if len(waits) == 0 {
		waits = append(waits, counted[job.ID{}]) // they wait for a node
	}
	p.backlog.look(waits, float64(mine)/job.Partitions, time.Now())
	return nil
}
