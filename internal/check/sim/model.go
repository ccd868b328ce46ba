package sim

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/decide/planqueue"
	"github.com/belfry-cron/belfry/internal/decide/runqueue"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The intervals of a model's work. Real nodes work more often: the order of steps matters here, not
// their speed.
const (
	renewEvery     = 2 * time.Second
	planEvery      = 5 * time.Second
	lookEvery      = 2 * time.Second
	stealEvery     = 4 * time.Second
	reconcileEvery = 6 * time.Second
	tidyEvery      = 15 * time.Second
	placeEvery     = 8 * time.Second

	stealAfter = time.Second
	// callTimeout is how long a node waits for an answer.
	callTimeout = 3 * time.Second
	retryEvery  = time.Second
	// capacity is how many attempts a node may run.
	capacity = 20
)

// errNoAnswer is the error of a call without an answer.
var errNoAnswer = errors.New("no answer")

// model is a model of a node: for the store it acts like one.
type model struct {
	core    *Core
	name    string
	machine string // on another machine a new process knows no predecessors

	// The network.
	loss float64 // of the messages
	slow bool
	cut  bool
	skew time.Duration

	// The process. life counts them; a message for an earlier one is
	// dropped.
	life    int
	up      bool
	frozen  time.Time // since when; zero while it runs
	inbox   []func()  // messages that arrive while it is frozen
	leaving bool

	session job.ID
	renewed time.Time // when the last acknowledged renewal was sent
	live    []store.Session
	share   placement.Share
	plans   *planqueue.Queue
	since   int64 // position in the feed of changed jobs
	queue   *runqueue.Queue[claimedRun]
	begun   time.Time // when the clock of the queue began
	results []*heldRun
	sent    []*heldRun // results in a report
	// claimsAsked and startsAsked count the scheduled queries of the queue.
	claimsAsked, startsAsked int
	sending, planning        bool
	busy                     [errands]bool // kinds with a call in flight
}

// start begins a process, if the node has none.
func (n *model) start() {
	if n.up {
		return
	}
	n.life++
	n.up, n.leaving, n.frozen, n.inbox = true, false, time.Time{}, nil
	n.live = nil
	n.newPlanQueue()
	n.busy = [errands]bool{}
	n.results, n.sent, n.sending = nil, nil, false
	n.join()
	n.every(renewEvery, n.renew)
	n.every(planEvery, n.plan)
	n.every(lookEvery, n.look)
	n.every(stealEvery, n.steal)
	n.every(reconcileEvery, n.reconcile)
	n.every(tidyEvery, n.tidy)
	n.every(keepEvery, n.keep)
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
	for _, it := range n.queue.All(runqueue.Running) {
		it.With.seen.Ended, it.With.seen.Outcome = n.core.now, job.OutcomeLost
	}
	n.inbox = nil
}

// freeze stops all processes of the machine for a while.
func (n *model) freeze() {
	if !n.up || !n.frozen.IsZero() {
		return
	}
	n.frozen = n.core.now
	for _, it := range n.queue.All(runqueue.Running) {
		if it.With.seen.Frozen.IsZero() {
			it.With.seen.Frozen = n.core.now
		}
	}
}

// wakeEvidence notes when what was frozen went on.
func (n *model) wakeEvidence() {
	for _, it := range n.queue.All(runqueue.Running) {
		it.With.seen.Woken = n.core.now
	}
	n.frozen = time.Time{}
}

// wake lets a frozen machine continue: first it checks its fences.
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

// leave stops the node gently, and starts it again later.
func (n *model) leave(away time.Duration) {
	if !n.up || n.leaving {
		return
	}
	session := n.session
	if session.IsZero() { // a node without a session hands nothing on
		n.kill()
		n.core.after(away, n.start)
		return
	}
	n.leaving = true
	n.queue.Leave()
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

// deliver calls a function in the process of a life, once it is awake.
func (n *model) deliver(life int, do func()) {
	switch {
	case n.life != life || !n.up:
	case !n.frozen.IsZero():
		n.inbox = append(n.inbox, do)
	default:
		do()
	}
}

// later calls a function in the process after a time.
func (n *model) later(d time.Duration, do func()) {
	n.core.ask(d, event{do: do, to: n, life: n.life})
}

// every calls a function in the process repeatedly.
func (n *model) every(d time.Duration, do func()) {
	var again func()
	next := func() { n.later(n.core.between(d/2, d*3/2), again) }
	again = func() {
		do()
		if n.up {
			next()
		}
	}
	next()
}

// delay draws the duration of a message.
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

// call is a request to the store: it may be made or not, now or much later, even after the end of
// the process, and its answer may be lost.
type call struct {
	node *model
	life int // of the process that waits for the answer
	do   func() error
	then func(error)
	kind errand
	err  error // the answer
}

// call sends a request to the store.
func (n *model) call(do func() error, then func(error)) { n.request(errandOther, do, then) }

func (n *model) request(kind errand, do func() error, then func(error)) {
	c, x := n.core, &call{node: n, life: n.life, do: do, then: then, kind: kind}
	switch {
	case n.cut || c.outage || n.loss > 0 && c.random.Float64() < n.loss/2:
		x.fail()
	case n.slow || c.chance(300):
		c.after(n.delay(), x.arrive)
	default:
		x.arrive()
	}
}

// stalledMax bounds the time of a step from its clock to its commit: longer than a claim is made ahead.
const stalledMax = 2 * time.Second

// arrive makes the request. A step may stall after reading the clock, while other steps are made.
func (x *call) arrive() {
	c := x.node.core
	if c.calm || !c.chance(5) {
		x.make()
		return
	}
	began := c.now
	c.after(c.between(0, stalledMax), func() {
		c.stalled = began
		x.make()
		c.stalled = time.Time{}
	})
}

func (x *call) make() {
	n, c := x.node, x.node.core
	if c.outage {
		x.fail()
		return
	}
	x.err = x.do()
	if n.cut || n.loss > 0 && c.random.Float64() < n.loss/2 {
		x.fail()
		return
	}
	x.answer(n.delay())
}

// fail lets the request have no answer.
func (x *call) fail() {
	x.err = errNoAnswer
	x.answer(callTimeout)
}

// answer delivers the answer to the process that waits for it.
func (x *call) answer(after time.Duration) {
	x.node.core.ask(after, event{do: x.tell, to: x.node, life: x.life})
}

func (x *call) tell() {
	x.node.busy[x.kind] = false
	x.then(x.err)
}

// errand is a kind of call of which a node makes one at a time, except errandOther.
type errand int

const (
	errandOther errand = iota
	errandPlace
	errandLook
	errandSteal
	errandReconcile
	errandRenew
	errandTidy
	errandKeep
	errands // number of kinds
)

// once makes a call unless one of its kind is in flight.
func (n *model) once(kind errand, do func() error, then func(error)) {
	if n.busy[kind] {
		return
	}
	n.busy[kind] = true
	n.request(kind, do, then)
}
