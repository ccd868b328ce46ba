package sim

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// How often a model does what nodes do. Real ones do it more often: what matters
// here is the order in which steps may fall, and not how soon they come.
const (
	renewEvery     = 2 * time.Second
	planEvery      = 5 * time.Second
	lookEvery      = 4 * time.Second
	stealEvery     = 4 * time.Second
	reconcileEvery = 6 * time.Second
	tidyEvery      = 15 * time.Second
	placeEvery     = 8 * time.Second

	stealAfter  = time.Second
	fenceMargin = 3 * time.Second
	reapAfter   = time.Minute
	// callTimeout is how long a node waits for an answer.
	callTimeout = 3 * time.Second
	retryEvery  = time.Second
	window      = 7 * time.Second
)

// errNoAnswer is what a node knows of a call whose answer did not come.
var errNoAnswer = errors.New("no answer")

// model is a model of a node: it does what a node does as far as the store can tell.
type model struct {
	core    *Core
	name    string
	machine string // with another one, a new process knows of none before it

	// The network.
	loss float64 // of the messages
	slow bool
	cut  bool
	skew time.Duration

	// The process. life counts those that there were; a message for another one is
	// for nobody.
	life    int
	up      bool
	frozen  time.Time // since when; zero when it goes on
	inbox   []func()  // what comes while it is frozen
	leaving bool

	session job.ID
	renewed time.Time // when the last acknowledged renewal was sent
	steady  time.Time
	live    []store.Session
	table   []*planned
	since   int64
	parts   store.Partitions
	share   placement.Share
	held    map[job.ID]*held
	order   []job.ID // of what is held, as it came
	results []*held
	sending bool
	busy    map[string]bool // calls of a kind that are under way
}

// start begins a process, if the node has none.
func (n *model) start() {
	if n.up {
		return
	}
	n.life++
	n.up, n.leaving, n.frozen, n.inbox = true, false, time.Time{}, nil
	n.table, n.since, n.live, n.parts = nil, 0, nil, store.Partitions{}
	n.busy = map[string]bool{}
	n.results, n.sending = nil, false
	n.join()
	n.every(renewEvery, n.renew)
	n.every(planEvery, n.plan)
	n.every(lookEvery, n.look)
	n.every(stealEvery, n.steal)
	n.every(reconcileEvery, n.reconcile)
	n.every(tidyEvery, n.tidy)
	n.every(placeEvery, n.placeRest)
}

// kill ends the process, and what runs in it.
func (n *model) kill() {
	if !n.up {
		return
	}
	if !n.frozen.IsZero() {
		n.wakeEvidence()
	}
	n.up = false
	n.life++
	for _, id := range n.order {
		if it := n.held[id]; it != nil && it.state == itemRunning {
			it.seen.Ended, it.seen.Outcome = n.core.now, job.OutcomeLost
		}
	}
	n.inbox = nil
}

// freeze stops everything on the machine for a while.
func (n *model) freeze() {
	if !n.up || !n.frozen.IsZero() {
		return
	}
	n.frozen = n.core.now
	for _, id := range n.order {
		if it := n.held[id]; it != nil && it.state == itemRunning && it.seen.Frozen.IsZero() {
			it.seen.Frozen = n.core.now
		}
	}
}

// wakeEvidence notes when what was frozen went on.
func (n *model) wakeEvidence() {
	for _, id := range n.order {
		if it := n.held[id]; it != nil && it.state == itemRunning {
			it.seen.Woken = n.core.now
		}
	}
	n.frozen = time.Time{}
}

// wake lets a frozen machine go on: first it looks at its fences.
func (n *model) wake() {
	if !n.up || n.frozen.IsZero() {
		return
	}
	n.wakeEvidence()
	n.enforceFences()
	inbox := n.inbox
	n.inbox = nil
	for _, do := range inbox {
		if n.up {
			do()
		}
	}
}

// weather changes how messages of the node travel.
func (n *model) weather(loss float64, slow bool) { n.loss, n.slow = loss, slow }

// recover ends all faults of the node.
func (n *model) recover() {
	n.weather(0, false)
	n.cut, n.skew = false, 0
	n.wake()
	n.start()
}

// leave stops the node gently; it is started again some time after.
func (n *model) leave(away time.Duration) {
	if !n.up || n.leaving {
		return
	}
	n.leaving = true
	session := n.session
	var tell, end func()
	tell = func() {
		n.call(func() error { return n.core.store.Leave(context.Background(), session) }, func(err error) {
			if err != nil && !errors.Is(err, store.ErrSessionOver) {
				n.later(retryEvery, tell)
				return
			}
			end()
		})
	}
	end = func() {
		n.giveBack()
		if n.working() > 0 {
			n.later(retryEvery, end)
			return
		}
		n.call(func() error { return n.core.store.End(context.Background(), session) }, func(err error) {
			if err != nil {
				n.later(retryEvery, end)
				return
			}
			n.kill()
			n.core.after(away, n.start)
		})
	}
	tell()
}

// deliver hands something to the process that asked for it, when it can take it.
func (n *model) deliver(life int, do func()) {
	switch {
	case n.life != life || !n.up:
	case !n.frozen.IsZero():
		n.inbox = append(n.inbox, do)
	default:
		do()
	}
}

// later makes the process do something after a time.
func (n *model) later(d time.Duration, do func()) {
	life := n.life
	n.core.after(d, func() { n.deliver(life, do) })
}

// every makes the process do something again and again.
func (n *model) every(d time.Duration, do func()) {
	n.later(n.core.between(d/2, d*3/2), func() {
		do()
		if n.up {
			n.every(d, do)
		}
	})
}

// delay draws how long a message takes.
func (n *model) delay() time.Duration {
	d := n.core.between(100*time.Microsecond, 3*time.Millisecond)
	if n.slow {
		d += n.core.between(0, 300*time.Millisecond)
		if n.core.chance(30) {
			d += n.core.between(0, 10*time.Second)
		}
	}
	return d
}

// call sends a request to the store: it may be made or not, now or much later, also
// when the process is gone, and its answer may be lost.
func (n *model) call(do func() error, then func(error)) {
	c, life := n.core, n.life
	fail := func() { c.after(callTimeout, func() { n.deliver(life, func() { then(errNoAnswer) }) }) }
	if n.cut || c.outage || n.loss > 0 && c.random.Float64() < n.loss/2 {
		fail()
		return
	}
	arrive := func() {
		if c.outage {
			fail()
			return
		}
		err := do()
		if n.cut || n.loss > 0 && c.random.Float64() < n.loss/2 {
			fail()
			return
		}
		c.after(n.delay(), func() { n.deliver(life, func() { then(err) }) })
	}
	if n.slow || c.chance(300) {
		c.after(n.delay(), arrive)
		return
	}
	arrive()
}

// once makes a call unless one of its kind is under way.
func (n *model) once(kind string, do func() error, then func(error)) {
	if n.busy[kind] {
		return
	}
	n.busy[kind] = true
	n.call(do, func(err error) {
		n.busy[kind] = false
		then(err)
	})
}
