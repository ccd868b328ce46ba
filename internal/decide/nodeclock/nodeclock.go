// Package nodeclock derives one clock for all nodes of a store that has none, from the wall clocks that
// the nodes publish when they renew their sessions. It is pure: each process passes the readings of its
// clocks.
//
// # Leads
//
// A process remembers how far each wall clock is ahead of its own boot clock, which cannot be set and
// runs while the machine sleeps. So a step of the own wall clock makes no remembered lead wrong. A
// renewal that comes late only lowers its lead: of the last renewals of a node the largest lead counts.
//
// # The shared clock
//
// The shared clock is the median of the clocks that count, if most of them lie within [Apart] of it. If
// two are in the middle it is the one undisturbed for longer, by the order of revisions. Without such a
// majority no clock can be shown to be right: then the clock undisturbed for longest counts, and nodes
// that deviate from it wait.
//
// # The own clock
//
// After a step the own clock does not count until two renewals that say so are acknowledged. Until it
// is within [Apart] of the shared clock, the node must plan and claim nothing. While no clock counts, the
// shared clock continues by the boot clock.
package nodeclock

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
)

const (
	// Apart is the largest accepted difference of a clock from the shared one: the slack of
	// planners, store.PlanSlack. A node that was off must come within half of it, so that a clock at
	// the bound does not stop and start its node repeatedly.
	Apart = time.Second
	// stepMin is how far the wall clock must have moved against the boot clock, at once or in small steps, to
	// count as set. A slew moves both.
	stepMin = Apart / 2
	// backMax is how far the shared clock may fall back before it counts as set: up to that it
	// stands still, so that joining and leaving nodes do not set it back. With more, a clock that
	// was briefly wrong would stop the schedule for as long as it was ahead.
	backMax = Apart
	// leadsKept is the number of renewals whose largest lead counts: 20 s, in which at least one
	// should arrive without delay.
	leadsKept = 10
	// leadEvery is the minimum time between two counted renewals: after a suspend many arrive at
	// once, and only the latest is in time.
	leadEvery = time.Second
	// confirmations is for how many renewals a set clock must stay undisturbed before it counts.
	confirmations = 2
	// echoMax is the longest delay of a renewal of this process that may explain a difference: one
	// that takes longer has failed.
	echoMax = 3 * time.Second
	// forgetAfter is how long a node is remembered that was not heard of. Its leads outlast a
	// suspend of this machine.
	forgetAfter = time.Hour
	// derivedFor is how long a computed median is used: a slewed clock moves by some 0.1 ms in that
	// time.
	derivedFor = 250 * time.Millisecond
)

// Standing is a node's statement about its own clock in its renewals. Its value is stored.
type Standing int

// The standings.
const (
	// Good clocks count.
	Good Standing = iota
	// Doubtful clocks were set, and do not count.
	Doubtful
	// Off clocks count, and are in the minority.
	Off
)

// Renewal is the renewal of a session as this process has received it.
type Renewal struct {
	Session  job.ID
	Clock    time.Time // the clock that its node has read
	Standing Standing
	// Since is the revision since which the clock is undisturbed; 0 if it is not known yet.
	Since int64
	// Revision is the revision of the renewal.
	Revision int64
	// Own is set if this process made the renewal.
	Own bool
}

// Clock is one process's estimate of the shared clock. All times of the process are readings of its
// boot clock. Use [New]. It is not safe for concurrent use.
type Clock struct {
	life    time.Duration // how long a node counts after its last renewal
	nodes   map[job.ID]*node
	own     job.ID        // the session of this process, or zero
	ahead   time.Time     // the own wall clock at boot time 0
	settled time.Time     // the same when the undisturbed time began
	unsure  bool          // the own clock does not count
	seen    int           // number of renewals that said so
	since   int64         // revision since which the own clock is undisturbed
	zero    time.Time     // the shared clock at boot time 0
	rule    rule          // the rule that derived it
	off     bool          // the own clock deviates from it
	last    time.Time     // the latest answer
	derived time.Duration // when zero was computed
	stale   bool
}

// node is the known state of a node's clock, the own one by its renewals.
type node struct {
	leads         [leadsKept]lead
	n             int // number of leads
	heard         time.Duration
	counts        bool
	reportedSince int64 // Renewal.Since
	since         int64 // the same, or the latest revision if unknown
}

// lead is a wall clock, when the boot clock of this process was 0, or earlier.
type lead struct {
	zero time.Time
	at   time.Duration
}

// rule is how the shared clock was found.
type rule int

const (
	continued rule = iota // no clock counts
	majority
	eldest // no majority: the clock undisturbed for longest
)

// New returns the clock of a process, by its wall clock when its boot clock was 0. Life is how long
// after its last renewal a node counts.
func New(ahead time.Time, life time.Duration) *Clock {
	return &Clock{life: life, nodes: map[job.ID]*node{}, ahead: ahead, zero: ahead, settled: ahead, stale: true}
}

// doubt notes that the own wall clock was set.
func (c *Clock) doubt() {
	c.unsure, c.seen, c.since, c.stale, c.settled = true, 0, 0, true, c.ahead
	if own := c.nodes[c.own]; own != nil {
		*own = node{}
	}
}

// Heard records a renewal received at a moment.
func (c *Clock) Heard(r Renewal, boot time.Duration) {
	if r.Own {
		c.hearOwn(&r)
		if c.unsure && r.Standing != Doubtful {
			return // made before the step
		}
	}
	n := c.nodes[r.Session]
	if n == nil {
		n = &node{}
		c.nodes[r.Session] = n
	}
	c.stale = true
	if r.Standing == Doubtful || r.Since != n.reportedSince { // the clock was set
		*n = node{}
	}
	n.reportedSince, n.since, n.heard, n.counts = r.Since, cmp.Or(r.Since, r.Revision), boot, r.Standing != Doubtful
	if !n.counts {
		return
	}
	zero := r.Clock.Add(-boot)
	if at := &n.leads[max(n.n-1, 0)%leadsKept]; n.n > 0 && boot-at.at < leadEvery {
		at.zero = later(at.zero, zero)
		return
	}
	n.leads[n.n%leadsKept] = lead{zero, boot}
	n.n++
}

// hearOwn records the acknowledgement of a renewal of this process.
func (c *Clock) hearOwn(r *Renewal) {
	if c.own != r.Session {
		delete(c.nodes, c.own)
		c.own = r.Session
	}
	if c.unsure && r.Standing == Doubtful {
		c.since = r.Revision
		if c.seen++; c.seen >= confirmations {
			c.unsure = false
		}
	}
	c.since = cmp.Or(c.since, r.Revision)
}

// Forget forgets a session that has ended.
func (c *Clock) Forget(session job.ID) {
	delete(c.nodes, session)
	c.stale = true
}

// KnowsOthers reports whether the clock of another node counts.
func (c *Clock) KnowsOthers(boot time.Duration) bool {
	for id, n := range c.nodes {
		if id != c.own && n.counts && boot-n.heard <= c.life {
			return true
		}
	}
	return false
}

// Now returns the shared clock at a moment, by the own wall clock when the boot clock was 0.
func (c *Clock) Now(ahead time.Time, boot time.Duration) time.Time {
	if c.ahead = ahead; ahead.Sub(c.settled).Abs() > stepMin {
		c.doubt()
	}
	if c.stale || (boot-c.derived).Abs() >= derivedFor {
		c.derive(boot)
	}
	now := c.zero.Add(boot)
	if behind := c.last.Sub(now); behind > 0 && behind <= backMax {
		return c.last
	}
	c.last = now
	return now
}

// Standing returns the standing of the own clock for the next renewal, and since when it is
// undisturbed.
func (c *Clock) Standing() (Standing, int64) {
	switch {
	case c.unsure:
		return Doubtful, 0
	case c.off:
		return Off, c.since
	}
	return Good, c.since
}

// Usable returns nil if the node may plan and claim by the shared clock, as of the last call of Now.
func (c *Clock) Usable() error {
	by := c.ahead.Sub(c.zero).Round(time.Millisecond)
	way := "ahead of"
	if by < 0 {
		by, way = -by, "behind"
	}
	switch {
	case c.rule == continued && c.unsure:
		return fmt.Errorf("it may have been set, and its new time is not confirmed yet: it is %s %s the time so far", by, way)
	case c.off && c.rule == eldest:
		return fmt.Errorf("it is %s %s the clock of another node, which is undisturbed for longer, and no majority of the nodes shows which one is right", by, way)
	case c.off:
		return fmt.Errorf("it is %s %s the clocks of most nodes", by, way)
	}
	return nil
}

// vote is a clock that counts. It lies between two bounds, which differ only for this process.
type vote struct {
	session  job.ID
	from, to time.Time // at boot time 0
	since    int64
}

// derive works out the shared clock.
func (c *Clock) derive(boot time.Duration) {
	c.derived, c.stale = boot, false
	var votes []vote
	echo := c.ahead
	for id, n := range c.nodes {
		silent := boot - n.heard
		if silent > forgetAfter {
			delete(c.nodes, id)
			continue
		}
		if !n.counts || silent > c.life {
			continue
		}
		if id != c.own {
			zero := n.most(later)
			votes = append(votes, vote{id, zero, zero, n.since})
			continue
		}
		// The own clock is known, but its renewals may be as late as others': a difference within that
		// delay does not count.
		echo = earlier(echo, later(n.most(earlier), c.ahead.Add(-echoMax)))
	}
	own := vote{c.own, echo, c.ahead, c.since}
	if !c.unsure {
		votes = append(votes, own)
	}
	if len(votes) == 0 {
		c.rule, c.off = continued, c.unsure
		return
	}
	c.zero, c.rule = agree(votes)
	bound := Apart
	if c.off {
		bound = Apart / 2
	}
	c.off = own.off(c.zero) > bound
	if c.unsure && !c.off {
		c.unsure, c.seen = false, 0 // it was measured
	}
}

// most returns the largest or the smallest of the leads, at least one.
func (n *node) most(of func(a, b time.Time) time.Time) time.Time {
	zero := n.leads[0].zero
	for _, l := range n.leads[1:min(n.n, leadsKept)] {
		zero = of(zero, l.zero)
	}
	return zero
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// off returns how far a vote is from a clock.
func (v *vote) off(zero time.Time) time.Duration {
	return max(v.from.Sub(zero), zero.Sub(v.to), 0)
}

// agree returns the clock of several votes, at least one.
func agree(votes []vote) (zero time.Time, by rule) {
	// A vote between two bounds counts at the middle of all, or at its nearer bound.
	middle := median(votes, func(v *vote) time.Time { return v.to })
	zero = median(votes, func(v *vote) time.Time { return earlier(later(middle, v.from), v.to) })
	near := 0
	for i := range votes {
		if votes[i].off(zero) <= Apart {
			near++
		}
	}
	if 2*near > len(votes) {
		return zero, majority
	}
	return slices.MinFunc(votes, undisturbed).to, eldest
}

// undisturbed orders votes by how long their clocks are undisturbed. A clock without an
// acknowledged renewal comes last.
func undisturbed(a, b vote) int {
	return cmp.Or(cmp.Compare(uint64(a.since)-1, uint64(b.since)-1), bytes.Compare(a.session[:], b.session[:]))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// median returns the clock in the middle; of two, the one undisturbed for longer, so that all nodes
// agree.
func median(votes []vote, of func(*vote) time.Time) time.Time {
	sorted := slices.Clone(votes)
	slices.SortFunc(sorted, func(a, b vote) int { return of(&a).Compare(of(&b)) })
	low, high := &sorted[(len(sorted)-1)/2], &sorted[len(sorted)/2]
	if undisturbed(*high, *low) < 0 {
		return of(high)
	}
	return of(low)
}
