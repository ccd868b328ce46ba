package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/engine"
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

// planned is a job in the table of a planner.
type planned struct {
	store.PlannedJob
	next    time.Time // what is due after nextOf, which the cursor was
	nextOf  time.Time
	timing  engine.Timing
	place   job.Place
	handler string
}

// held is a run that a node holds.
type held struct {
	ready   store.ReadyRun
	state   itemState
	attempt store.Attempt
	run     store.Run
	fence   time.Duration
	seen    *Attempt
	result  store.Result
	cancel  bool
}

type itemState int

const (
	itemReady itemState = iota
	itemClaiming
	itemClaimed
	itemRunning
	itemEnded
	itemUnstarted
)

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

// working returns how many attempts are claimed, running or to be reported.
func (n *model) working() (count int) {
	for _, it := range n.held {
		if it.state != itemReady {
			count++
		}
	}
	return count
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

// join begins a session, and settles what the process before has left.
func (n *model) join() {
	n.held, n.order = map[job.ID]*held{}, nil
	n.session = job.ID{}
	id := n.core.newID()
	zone := "b"
	if n.name < "node-2" {
		zone = "a"
	}
	s := store.Session{
		ID: id, Node: n.name, Machine: n.machine, DataDir: "/data", Capacity: 20, Labels: map[string]string{"zone": zone},
		Roles: []string{placement.RolePlanner, placement.RoleWorker},
	}
	var try func()
	try = func() {
		sent := n.core.now
		var joined store.Session
		n.call(func() (err error) { joined, err = n.core.store.Join(context.Background(), s); return err }, func(err error) {
			if err != nil {
				n.later(retryEvery, try)
				return
			}
			n.session, n.renewed, n.steady = id, sent, sent
			n.settle(joined.Predecessors)
			n.renew()
		})
	}
	try()
}

// settle records what processes before this one have left as lost.
func (n *model) settle(predecessors []job.ID) {
	for _, p := range predecessors {
		var mine []store.Run
		n.call(func() (err error) { mine, err = n.core.store.Mine(context.Background(), p); return err }, func(err error) {
			if err != nil {
				n.later(retryEvery, func() { n.settle([]job.ID{p}) })
				return
			}
			var lost []store.Attempt
			for i := range mine {
				lost = append(lost, store.Attempt{Run: mine[i].ID, Number: mine[i].Attempt, Token: mine[i].Token})
			}
			if len(lost) > 0 {
				n.reapThese(lost, func(err error) {
					if err != nil {
						n.later(retryEvery, func() { n.settle([]job.ID{p}) })
					}
				})
			}
		})
	}
}

func (n *model) reapThese(lost []store.Attempt, then func(error)) {
	session := n.session
	n.call(func() error { return n.core.store.Reap(context.Background(), session, lost) }, then)
}

// over begins another session: the store has said that this one is over.
func (n *model) over() {
	for _, id := range slices.Clone(n.order) {
		if it := n.held[id]; it != nil && it.state == itemRunning {
			n.end(it, job.OutcomeLost)
		}
	}
	n.giveBack()
	n.table, n.since, n.live = nil, 0, nil
	n.join()
}

// renew says that the node lives, and looks who else does.
func (n *model) renew() {
	n.enforceFences()
	if n.session.IsZero() {
		return
	}
	session, sent := n.session, n.core.now
	var sessions []store.Session
	var at time.Time
	n.once("renew", func() (err error) {
		ctx := context.Background()
		if err := n.core.store.Renew(ctx, session, store.Load{Running: n.working()}); err != nil {
			return err
		}
		at = n.core.now
		sessions, err = n.core.store.Sessions(ctx)
		return err
	}, func(err error) {
		switch {
		case session != n.session:
		case errors.Is(err, store.ErrSessionOver):
			if !n.leaving {
				n.over()
			}
		case err == nil:
			if sent.Sub(n.renewed) > store.SessionLife {
				n.steady = sent
			}
			n.renewed = sent
			n.live = slices.DeleteFunc(sessions, func(s store.Session) bool { return !s.Live(at) })
		}
	})
}

// plan reads what has changed, and plans what is due.
func (n *model) plan() {
	if n.session.IsZero() || n.leaving {
		return
	}
	parts := n.share.Of(n.session, n.live)
	if !n.core.calm && n.core.chance(50) {
		parts = store.AllPartitions // the view of a node may be an old one
	}
	if parts != n.parts {
		n.parts, n.table, n.since = parts, nil, 0
	}
	var changed []store.PlannedJob
	var next int64
	since := n.since
	n.once("plan", func() (err error) {
		changed, next, err = n.core.store.JobsChanged(context.Background(), parts, since, 1000)
		return err
	}, func(err error) {
		if err != nil || parts != n.parts || since != n.since {
			return
		}
		n.since = next
		for _, j := range changed {
			n.know(j)
		}
		n.planDue()
	})
}

// know takes a job into the table, or out of it.
func (n *model) know(j store.PlannedJob) {
	i := slices.IndexFunc(n.table, func(p *planned) bool { return p.UID == j.UID })
	if !j.Active || j.Deleted {
		if i >= 0 {
			n.table = slices.Delete(n.table, i, i+1)
		}
		return
	}
	p := &planned{PlannedJob: j}
	var err error
	if p.timing, p.place, p.handler, err = n.core.compile(j.Timing); err != nil {
		n.core.fail(err)
		return
	}
	p.timing.UID = j.UID
	if i >= 0 {
		n.table[i] = p
	} else {
		n.table = append(n.table, p)
	}
}

// planDue plans what is due within the look-ahead.
func (n *model) planDue() {
	now := n.core.now.Add(n.skew)
	ahead := lookAhead
	if !n.core.calm && n.core.chance(20) {
		ahead = time.Minute // a node that is configured in another way
	}
	var items []store.PlanItem
	var decisions []engine.Decision
	for _, p := range n.table {
		if p.nextOf != p.Cursor {
			p.next, p.nextOf = p.timing.Schedule.Next(p.Cursor), p.Cursor
		}
		if p.next.IsZero() || p.next.After(now.Add(ahead*2/3)) {
			continue
		}
		d := p.timing.Decide(p.Cursor, p.Planned, now, ahead, 100)
		item := store.PlanItem{Job: p.UID, Epoch: p.Epoch, From: p.Cursor, To: d.To, Planned: p.Planned, Complete: d.Complete}
		for sequence, o := range d.Due {
			request := placement.Request{UID: p.UID, Place: p.place, Handler: p.handler, Scheduled: o.Scheduled, Sequence: p.Planned + sequence}
			placed, _ := placement.Runs(request, n.live)
			for _, r := range placed {
				item.Runs = append(item.Runs, store.NewRun{ID: n.core.newID(), Session: r.Session, Scheduled: o.Scheduled, Due: o.Due, Shard: r.Shard, Shards: r.Shards})
			}
		}
		for _, s := range d.Missed {
			item.Missed = append(item.Missed, store.MissedSpan{ID: n.core.newID(), First: s.First, Last: s.Last, Count: s.Count, Reason: s.Reason})
		}
		items, decisions = append(items, item), append(decisions, d)
	}
	if len(items) > 0 {
		n.send(items, decisions, 2)
	}
}

// send plans, and asks again when the answer was lost.
func (n *model) send(items []store.PlanItem, decisions []engine.Decision, tries int) {
	session := n.session
	var outcomes []store.PlanOutcome
	n.call(func() (err error) {
		outcomes, err = n.core.store.Plan(context.Background(), session, items)
		return err
	}, func(err error) {
		switch {
		case errors.Is(err, store.ErrSessionOver):
		case err != nil && tries > 0:
			n.send(items, decisions, tries-1)
		case err == nil:
			for i, outcome := range outcomes {
				n.answered(&items[i], &decisions[i], outcome)
			}
		}
	})
}

// answered makes the table agree with the answer to an item.
func (n *model) answered(item *store.PlanItem, d *engine.Decision, outcome store.PlanOutcome) {
	i := slices.IndexFunc(n.table, func(p *planned) bool { return p.UID == item.Job && p.Epoch == item.Epoch })
	if i < 0 {
		return
	}
	p := n.table[i]
	switch outcome {
	case store.Planned:
		if p.Cursor.Before(item.To) {
			p.Cursor = item.To
			p.Planned += len(d.Due)
		}
	case store.Moved:
		var j *store.Job
		n.call(func() (err error) { j, err = n.core.store.JobByUID(context.Background(), item.Job); return err }, func(err error) {
			if err == nil && j.Definition.Epoch == p.Epoch {
				p.Cursor, p.Planned = j.Cursor, j.Planned
			}
		})
	case store.Malformed:
		n.core.history.mu.Lock()
		n.core.history.problem("accounted", "what was planned for a job is malformed: %+v", *item)
		n.core.history.mu.Unlock()
	}
}

// placeRest places what has no node.
func (n *model) placeRest() {
	if n.session.IsZero() || n.leaving {
		return
	}
	ctx := context.Background()
	var runs []store.Run
	n.once("place", func() (err error) {
		runs, err = n.core.store.Unplaced(ctx, store.RunRef{}, store.MaxBatch)
		return err
	}, func(err error) {
		var placements []store.Placement
		for i := range runs {
			r := &runs[i]
			j, err := n.core.memory.JobByUID(ctx, r.JobUID)
			if err != nil {
				continue
			}
			request := placement.Request{UID: r.JobUID, Place: j.Filled.Place, Scheduled: r.Scheduled}
			request.Place.Shards = 0
			candidates := n.live
			if bound := request.Place.Sticky || request.Place.Strategy == job.StrategyBroadcast; bound && r.Node != "" {
				candidates = slices.DeleteFunc(slices.Clone(n.live), func(s store.Session) bool { return s.Node != r.Node })
			}
			if request.Place.Strategy == job.StrategyBroadcast {
				request.Place.Strategy = job.StrategyAny
			}
			if placed, _ := placement.Runs(request, candidates); !placed[0].Session.IsZero() {
				placements = append(placements, store.Placement{Run: r.ID, Attempt: r.Attempt, Session: placed[0].Session})
			}
		}
		if err == nil && len(placements) > 0 {
			n.call(func() error { return n.core.store.Place(ctx, placements) }, func(error) {})
		}
	})
}

// look reads what is assigned to the node.
func (n *model) look() {
	if n.session.IsZero() || n.leaving {
		return
	}
	session, until := n.session, n.core.now.Add(window)
	var runs []store.ReadyRun
	n.once("look", func() (err error) {
		runs, err = n.core.store.Ready(context.Background(), session, store.RunRef{}, until, 1000)
		return err
	}, func(err error) {
		if err == nil && session == n.session {
			n.hold(runs)
		}
	})
}

// steal looks for what others have left lying.
func (n *model) steal() {
	if n.session.IsZero() || n.leaving {
		return
	}
	session, before := n.session, n.core.now.Add(-stealAfter)
	var runs []store.ReadyRun
	n.once("steal", func() (err error) {
		runs, err = n.core.store.Overdue(context.Background(), before, store.RunRef{}, 1000)
		return err
	}, func(err error) {
		if err == nil && session == n.session {
			n.hold(runs)
		}
	})
}

// hold takes runs into memory, and claims each when it is due.
func (n *model) hold(runs []store.ReadyRun) {
	for _, r := range runs {
		if known := n.held[r.ID]; known != nil {
			if known.state != itemReady || known.ready.Attempt == r.Attempt && known.ready.Due.Equal(r.Due) {
				continue
			}
			n.drop(known)
		}
		it := &held{ready: r}
		n.held[r.ID] = it
		n.order = append(n.order, r.ID)
		lead := n.core.between(5*time.Millisecond, 50*time.Millisecond)
		if n.core.chance(200) {
			lead = n.core.between(0, 2500*time.Millisecond) // now and then too early
		}
		n.claimAt(it, r.Due.Add(-lead))
	}
}

// drop forgets a run.
func (n *model) drop(it *held) {
	if n.held[it.ready.ID] == it {
		delete(n.held, it.ready.ID)
		n.order = slices.DeleteFunc(n.order, func(id job.ID) bool { return id == it.ready.ID })
	}
}

// claimAt claims a run at a moment, with what else is due then.
func (n *model) claimAt(it *held, at time.Time) {
	n.later(max(0, at.Sub(n.core.now)), func() {
		if n.held[it.ready.ID] != it || it.state != itemReady || n.leaving || n.session.IsZero() {
			return
		}
		batch := []*held{it}
		it.state = itemClaiming
		for _, id := range n.order {
			if other := n.held[id]; other.state == itemReady && other.ready.Due.Equal(it.ready.Due) {
				other.state = itemClaiming
				batch = append(batch, other)
			}
		}
		for _, it := range batch {
			it.attempt = store.Attempt{Run: it.ready.ID, Number: it.ready.Attempt, Token: n.core.newID()}
		}
		n.claim(batch)
	})
}

// claim claims runs, with the same tokens again when the answer was lost.
func (n *model) claim(batch []*held) {
	session := n.session
	attempts := make([]store.Attempt, len(batch))
	for i, it := range batch {
		attempts[i] = it.attempt
	}
	var out []store.ClaimOutcome
	n.call(func() (err error) { out, err = n.core.store.Claim(context.Background(), session, attempts); return err }, func(err error) {
		switch {
		case session != n.session: // another session has forgotten all of this
		case errors.Is(err, store.ErrSessionOver):
			for _, it := range batch {
				n.drop(it)
			}
		case err != nil:
			n.later(retryEvery, func() {
				if session == n.session {
					n.claim(batch)
				}
			})
		default:
			for i, it := range batch {
				n.took(it, &out[i])
			}
		}
	})
}

// took acts on the answer to a claim.
func (n *model) took(it *held, out *store.ClaimOutcome) {
	switch out.Verdict {
	case store.Started:
		it.state, it.run = itemClaimed, out.Run
		it.fence = fenceOf(out.Job.Filled)
		if n.leaving || !n.core.calm && n.core.chance(50) { // as when a job was changed
			it.state = itemUnstarted
			n.report(it)
			return
		}
		// Counted from the answer, which comes after the store's now.
		n.later(max(0, out.Run.Due.Sub(out.Now)), func() { n.begin(it, out.Job) })
	case store.Early:
		it.state = itemReady
		n.claimAt(it, it.ready.Due)
	default:
		n.drop(it)
	}
}

// fenceOf returns how long after the last renewal an attempt may go on.
func fenceOf(filled *job.Job) time.Duration {
	if !specOf(filled.Name).gains {
		return 0
	}
	p := &filled.Policy
	return time.Duration(p.LostAfter) - time.Duration(*p.KillGrace) - fenceMargin
}

// fenced tells whether an attempt may not go on, or start.
func (n *model) fenced(it *held) bool {
	return it.fence > 0 && n.core.now.Sub(n.renewed) > it.fence
}

// begin starts an attempt.
func (n *model) begin(it *held, j *store.Job) {
	if n.held[it.ready.ID] != it || it.state != itemClaimed {
		return
	}
	switch {
	case it.cancel:
		it.state = itemRunning
		it.seen = &Attempt{} // of what never was
		n.end(it, job.OutcomeCancelled)
		return
	case n.fenced(it):
		it.state = itemUnstarted
		n.report(it)
		return
	}
	it.state = itemRunning
	it.seen = &Attempt{Run: it.run.Run, Number: it.attempt.Number, Node: n.name, Gains: it.fence > 0, Started: n.core.now}
	n.core.history.begin(it.seen)
	takes := n.core.between(10*time.Millisecond, 6*time.Second)
	if n.core.chance(60) && !n.core.calm {
		takes *= 20
	}
	outcome := job.OutcomeSucceeded
	if n.core.chance(120) {
		outcome = job.OutcomeFailed
	}
	if timeout := j.Filled.Policy.Timeout; timeout != nil && takes > time.Duration(*timeout) {
		takes, outcome = time.Duration(*timeout), job.OutcomeTimedOut
	}
	n.later(takes, func() {
		if n.held[it.ready.ID] == it && it.state == itemRunning {
			n.end(it, outcome)
		}
	})
}

// end ends an attempt and reports it.
func (n *model) end(it *held, outcome job.Outcome) {
	it.state = itemEnded
	it.seen.Ended, it.seen.Outcome = n.core.now, outcome
	it.result = store.Result{Attempt: it.attempt, Started: it.seen.Started, Ended: n.core.now, Outcome: outcome}
	n.report(it)
}

// enforceFences ends what another node may soon take for lost.
func (n *model) enforceFences() {
	for _, id := range slices.Clone(n.order) {
		if it := n.held[id]; it != nil && it.state == itemRunning && n.fenced(it) {
			n.end(it, job.OutcomeLost)
		}
	}
}

// report queues a result.
func (n *model) report(it *held) {
	n.results = append(n.results, it)
	n.reportAll()
}

// reportAll reports what has ended until the store has it.
func (n *model) reportAll() {
	if n.sending || len(n.results) == 0 {
		return
	}
	n.sending = true
	batch := n.results
	n.results = nil
	var results []store.Result
	var unstarted []store.Attempt
	for _, it := range batch {
		if it.state == itemUnstarted {
			unstarted = append(unstarted, it.attempt)
		} else {
			results = append(results, it.result)
		}
	}
	session := n.session
	var out []store.FinishOutcome
	n.call(func() (err error) {
		if len(unstarted) > 0 {
			if err := n.core.store.Release(context.Background(), session, unstarted); err != nil {
				return err
			}
		}
		if len(results) > 0 {
			out, err = n.core.store.Finish(context.Background(), session, results)
		}
		return err
	}, func(err error) {
		n.sending = false
		if err != nil {
			n.results = append(batch, n.results...)
			n.later(retryEvery, n.reportAll)
			return
		}
		n.core.history.ack(results, out)
		n.sayOtherwise(results)
		for _, it := range batch {
			n.drop(it)
		}
		n.reportAll()
	})
}

// sayOtherwise now and then reports again what is acknowledged, in another way: what is
// final stays as it is, whoever says what. Only a loss may turn out to be none.
func (n *model) sayOtherwise(results []store.Result) {
	if n.core.calm || !n.core.chance(20) {
		return
	}
	var others []store.Result
	for _, r := range results {
		switch r.Outcome {
		case job.OutcomeLost:
			continue
		case job.OutcomeFailed:
			r.Outcome = job.OutcomeSucceeded
		default:
			r.Outcome = job.OutcomeFailed
		}
		others = append(others, r)
	}
	if session := n.session; len(others) > 0 {
		n.call(func() error {
			_, err := n.core.store.Finish(context.Background(), session, others)
			return err
		}, func(error) {})
	}
}

// giveBack releases what is claimed and has not started.
func (n *model) giveBack() {
	for _, id := range slices.Clone(n.order) {
		switch it := n.held[id]; it.state {
		case itemReady:
			n.drop(it)
		case itemClaimed:
			it.state = itemUnstarted
			n.report(it)
		}
	}
}

// reconcile compares with what the store believes.
func (n *model) reconcile() {
	n.enforceFences()
	if n.session.IsZero() {
		return
	}
	session := n.session
	before := map[job.ID]*held{}
	for _, id := range n.order {
		if it := n.held[id]; it.state == itemRunning {
			before[it.attempt.Token] = it
		}
	}
	var mine []store.Run
	n.once("reconcile", func() (err error) { mine, err = n.core.store.Mine(context.Background(), session); return err }, func(err error) {
		if err != nil || session != n.session {
			return
		}
		var unknown []store.Attempt
		for i := range mine {
			r := &mine[i]
			delete(before, r.Token)
			it := n.held[r.ID]
			switch {
			case it == nil || it.state == itemReady:
				unknown = append(unknown, store.Attempt{Run: r.ID, Number: r.Attempt, Token: r.Token})
			case r.CancelBy == "" || it.attempt.Token != r.Token:
			case it.state == itemRunning:
				n.end(it, job.OutcomeCancelled)
			case it.state == itemClaimed:
				it.cancel = true
			}
		}
		taken := make([]*held, 0, len(before))
		for _, it := range before {
			taken = append(taken, it)
		}
		slices.SortFunc(taken, func(a, b *held) int { return cmp.Compare(a.ready.ID.String(), b.ready.ID.String()) })
		for _, it := range taken {
			if it.state == itemRunning && n.held[it.ready.ID] == it {
				n.end(it, job.OutcomeLost) // it was taken away
			}
		}
		if len(unknown) > 0 {
			n.call(func() error { return n.core.store.Release(context.Background(), session, unknown) }, func(error) {})
		}
	})
}

// tidy does what any node can do at any time.
func (n *model) tidy() {
	if n.session.IsZero() || n.leaving {
		return
	}
	ctx := context.Background()
	steady := n.core.now.Sub(n.steady) >= reapAfter && n.core.now.Sub(n.renewed) <= store.SessionLife
	var lost []store.Attempt
	n.once("tidy", func() (err error) {
		if _, err := n.core.store.Tidy(ctx); err != nil || !steady {
			return err
		}
		lost, err = n.core.store.Lost(ctx, store.MaxBatch)
		return err
	}, func(err error) {
		if err == nil && len(lost) > 0 && !n.session.IsZero() {
			n.reapThese(lost, func(error) {})
		}
	})
}
