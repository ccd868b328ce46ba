package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

const (
	// nodesCount is how many nodes a cluster has.
	nodesCount = 5
	lookAhead  = 15 * time.Second
	// faultEvery is the mean time between faults.
	faultEvery = time.Minute
	// calmFor is the good weather at the end: long enough for running attempts to be lost and
	// retried.
	calmFor = 4 * time.Minute
	// sliceOf is how long a world lasts: its tombstones must outlive it.
	sliceOf = 50 * time.Minute
)

// beginning is when each world begins.
var beginning = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Core is a cluster of models over the store in memory. One goroutine handles one event after
// another; the same seed gives the same history.
type Core struct {
	history *History
	store   *Tap
	memory  *memory.Store
	random  *rand.Rand
	user    *user
	outside *outside
	nodes   []*model
	outage  bool // no node can reach the store
	calm    bool // no further faults
	repeats bool // the caller repeats a call without an answer
	err     error

	now     time.Time
	stalled time.Time // the clock of a stalled step, during that step
	events  events
	seq     int
	ids     *rand.Rand
}

// event is an action at a moment.
type event struct {
	at  time.Duration // since the beginning
	seq int           // order of requests, for events of one moment
	do  func()
	// to is the node that does it, in its process of that life; nil for the world.
	to   *model
	life int
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// events is a heap. With a thousand events a second, the allocations of container/heap would be too
// many.
type events []event

func (e *events) push(x event) {
	h := append(*e, x)
	i := len(h) - 1
	for i > 0 && x.before(&h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = x
	*e = h
}

func (e *events) pop() event {
	h := *e
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	*e = h
	if len(h) == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = last
	return first
}

// RunCore lets a cluster of models run for some time in bad weather, then for a few
// minutes in good weather, and checks what has happened.
func RunCore(seed uint64, d time.Duration) (*Core, error) {
	return runCore(seed, d, nil, nil)
}

// RunCoreInParts is [RunCore] on a store whose steps compare when they commit, as those on etcd and
// Redis: one commit in twenty loses its race or is done in part, and is repeated. Commits of a plan,
// a claim or a report may also get no answer, done or not, or come after their repetition. It counts
// these fates.
func RunCoreInParts(seed uint64, d time.Duration) (*Core, map[memory.Fate]int, error) {
	random, fates := rand.New(rand.NewPCG(seed, 4)), map[memory.Fate]int{}
	c, err := runCore(seed, d, func(c *Core) memory.Fate {
		fate := memory.Done
		if random.IntN(20) == 0 {
			fate = memory.Again + memory.Fate(random.IntN(int(memory.Late)))
		}
		if !c.repeats && fate > memory.Again {
			fate = memory.Again
		}
		fates[fate]++
		return fate
	}, nil)
	return c, fates, err
}

// repeating repeats calls of its store until they are answered, like clients of etcd and Redis after
// a commit with an unknown result.
type repeating struct {
	store.Store
	core *Core
}

// do makes a call. Within it commits may go unanswered.
func (s *repeating) do(call func() error) {
	for again := true; again; {
		s.core.repeats = true
		again = errors.Is(call(), store.ErrAway)
		s.core.repeats = false
	}
}

// Plan implements [store.Planning].
func (s *repeating) Plan(ctx context.Context, session job.ID, items []store.PlanItem) (out []store.PlanOutcome, claims []store.ClaimOutcome, err error) {
	s.do(func() error { out, claims, err = s.Store.Plan(ctx, session, items); return err })
	return out, claims, err
}

// Claim implements [store.Working].
func (s *repeating) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) (out []store.ClaimOutcome, err error) {
	s.do(func() error { out, err = s.Store.Claim(ctx, session, attempts); return err })
	return out, err
}

// Finish implements [store.Working].
func (s *repeating) Finish(ctx context.Context, session job.ID, results []store.Result) (out []store.FinishOutcome, err error) {
	s.do(func() error { out, err = s.Store.Finish(ctx, session, results); return err })
	return out, err
}

// newCore returns a cluster whose nodes are not started.
func newCore(seed uint64, fate func(*Core) memory.Fate, watch func(store.Store) store.Store) (*Core, error) {
	c := &Core{history: newHistory(), random: rand.New(rand.NewPCG(seed, 1)), ids: rand.New(rand.NewPCG(seed, 2)), now: beginning}
	clock := func() time.Time {
		if !c.stalled.IsZero() {
			return c.stalled
		}
		return c.now
	}
	options := memory.Options{Now: clock, LookAhead: lookAhead, NewID: c.newID}
	if fate != nil {
		options.Fate = func(int, int) memory.Fate { return fate(c) }
	}
	c.memory = memory.New(options)
	var behind store.Store = &repeating{c.memory, c}
	if watch != nil {
		behind = watch(behind)
	}
	c.store = NewTap(behind, c.history, clock, lookAhead)
	c.store.ends = func() time.Time { return c.now }
	c.outside = newOutside(c.history, clock)
	var err error
	if c.user, err = newUser(c.store, rand.New(rand.NewPCG(seed, 3)), clock); err != nil {
		return nil, err
	}
	for i := range nodesCount {
		n := &model{core: c, name: fmt.Sprint("node-", i), machine: fmt.Sprint("machine-", i)}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

func runCore(seed uint64, d time.Duration, fate func(*Core) memory.Fate, watch func(store.Store) store.Store) (*Core, error) {
	c, err := newCore(seed, fate, watch)
	if err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		c.after(c.between(0, time.Second), n.start)
	}
	c.editLater()
	c.faultLater()
	c.inspectLater()
	end := c.now.Add(d)
	c.run(end)
	c.calm = true
	c.outage = false
	for _, n := range c.nodes {
		n.recover()
	}
	c.run(end.Add(calmFor))
	if c.err != nil {
		return nil, c.err
	}
	if _, err := c.store.Tidy(context.Background()); err != nil {
		return nil, err
	}
	return c, c.history.Check(c.memory, c.now, lookAhead, 0)
}

// History returns the history of the cluster.
func (c *Core) History() *History { return c.history }

// Fingerprint returns a hash of the whole content of the store: the same for the same seed, on
// every machine.
func (c *Core) Fingerprint() (uint64, error) {
	h := fnv.New64a()
	query := store.HistoryQuery{Limit: store.LookMax}
	for {
		page, next, err := c.memory.Attempts(context.Background(), query)
		if err != nil {
			return 0, err
		}
		for i := range page {
			fmt.Fprintf(h, "%+v\n", page[i])
		}
		if next == (store.RecordRef{}) {
			break
		}
		query.Before = next
	}
	_, err := fmt.Fprint(h, c.now, c.seq, c.history.Commits, c.history.problems)
	return h.Sum64(), err
}

func (c *Core) newID() job.ID { return newID(c.now, c.ids) }

// after schedules a function after a time.
func (c *Core) after(d time.Duration, do func()) {
	c.ask(d, event{do: do})
}

// ask schedules an event after a time.
func (c *Core) ask(d time.Duration, e event) {
	c.seq++
	e.at, e.seq = c.now.Sub(beginning)+d, c.seq
	c.events.push(e)
}

// run lets events happen until a moment.
func (c *Core) run(until time.Time) {
	for len(c.events) > 0 && c.err == nil && c.events[0].at <= until.Sub(beginning) {
		e := c.events.pop()
		c.now = beginning.Add(e.at)
		if e.to != nil {
			e.to.deliver(e.life, e.do)
		} else {
			e.do()
		}
	}
	c.now = until
}

// fail ends the simulation because of an error in itself.
func (c *Core) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// between draws a duration, in whole microseconds as stores keep times.
func (c *Core) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.random.Int64N(int64((most-least)/time.Microsecond)+1))*time.Microsecond
}

// chance returns true in permille of a thousand cases.
func (c *Core) chance(permille int) bool { return c.random.IntN(1000) < permille }

// inspectEvery is how often the store is inspected for damage.
const inspectEvery = 5 * time.Minute

// inspectLater inspects for damage from time to time, as belfry store check does beside running
// nodes. No step may leave any, whatever the weather.
func (c *Core) inspectLater() {
	c.after(inspectEvery, func() {
		list, _, err := c.memory.ListJobs(context.Background(), store.JobQuery{Limit: store.MaxBatch})
		op := engine.Inspect{}
		for _, j := range list {
			op.Jobs = append(op.Jobs, j.Definition.UID)
		}
		if err == nil {
			err = c.memory.Operate(context.Background(), &op)
		}
		if err == nil && len(op.Found) > 0 {
			err = fmt.Errorf("damage at %s: %+v", c.now.Format(time.RFC3339Nano), op.Found)
		}
		if err != nil {
			c.fail(err)
			return
		}
		c.inspectLater()
	})
}

// editLater makes the user change something from time to time.
func (c *Core) editLater() {
	wait := c.between(0, 2*editEvery)
	if c.chance(400) {
		// Right before or after a due time, during the claims.
		ahead := 60 * time.Millisecond
		if c.chance(500) {
			ahead = store.ClaimAhead
		}
		wait = max(0, c.now.Add(wait).Truncate(10*time.Second).Add(c.between(-ahead, 10*time.Millisecond)).Sub(c.now))
		c.history.within()
	}
	c.after(wait, func() {
		if c.calm {
			return
		}
		if err := c.user.edit(); err != nil {
			c.fail(fmt.Errorf("edit: %w", err))
		}
		for _, n := range c.nodes {
			if !c.chance(200) {
				n.later(n.delay(), n.edited)
			}
		}
		c.editLater()
	})
}

// faultLater causes a fault from time to time.
func (c *Core) faultLater() {
	c.after(c.between(0, 2*faultEvery), func() {
		if c.calm {
			return
		}
		c.fault()
		c.faultLater()
	})
}

// fault causes a fault for a while: mostly shorter than a session's life, sometimes longer than
// until an attempt is lost.
func (c *Core) fault() {
	c.history.wrong()
	n := c.nodes[c.random.IntN(len(c.nodes))]
	d := c.between(500*time.Millisecond, 20*time.Second)
	if c.chance(300) {
		d = c.between(20*time.Second, 3*time.Minute)
	}
	switch k := c.random.IntN(12); {
	case k == 11:
		c.leaveAll(d)
	case k == 10: // as long as a node trusts its clock
		n.skew = c.between(-time.Second, time.Second)
		c.after(d, func() { n.skew = 0 })
	case k < 2:
		n.weather(c.random.Float64()/2, c.chance(500))
		c.after(d, func() { n.weather(0, false) })
	case k < 4:
		n.cut = true
		c.after(d, func() { n.cut = false })
	case k < 5:
		c.outage = true
		c.after(d, func() { c.outage = false })
	case k < 7:
		c.die(n, d)
	case k < 9:
		n.freeze()
		c.after(d, n.wake)
	default:
		n.leave(min(d, 30*time.Second))
	}
}

// leaveAll stops all nodes for a time, gently or at once.
func (c *Core) leaveAll(d time.Duration) {
	c.history.absence()
	gently := c.chance(500)
	for _, n := range c.nodes {
		if gently {
			n.leave(d)
			continue
		}
		n.kill()
		c.after(d+c.between(0, 5*time.Second), n.start)
	}
}

// Describe writes what has happened to a job, for the search for the cause of a
// problem.
func (c *Core) Describe(w io.Writer, name string) error {
	for _, a := range c.history.attempts {
		if a.Run.Name == name {
			if _, err := fmt.Fprintf(w, "%s %s #%d on %s: due %s, %s to %s, %s\n", name, a.Run.ID, a.Number, a.Node,
				a.Run.Due.Format(time.StampMicro), a.Started.Format(time.StampMicro), a.Ended.Format(time.StampMicro), a.Outcome); err != nil {
				return err
			}
		}
	}
	return nil
}
