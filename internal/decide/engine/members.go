package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Join begins a session: see [store.Membership].
type Join struct{ Session store.Session }

// Need requests the sessions and the drains, and whether sessions that are only signs of life have
// running attempts.
func (o *Join) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	for id, s := range b.sessions {
		if Ended(s, b.facts.over[id]) {
			b.lookRunning(n, id)
		}
	}
	n.Drains = !b.facts.hasDrains
}

// Decide decides about it.
func (o *Join) Decide(b *Batch) error {
	if o.Session.ID.IsZero() {
		return errors.New("a session needs an id")
	}
	if b.session(o.Session.ID) != nil {
		return o.again(b)
	}
	s := o.Session
	s.Joined, s.Renewed, s.Leaving, s.Predecessors = b.now, b.now, false, nil
	s.Steady, s.BeforeGap, s.Left = b.now, time.Time{}, time.Time{}
	s.Drain = b.drains()[s.Node]
	for _, id := range slices.SortedFunc(maps.Keys(b.allSessions()), compareIDs) {
		other := b.session(id)
		if Ended(other, b.facts.over[id]) && b.running(id).IsZero() {
			continue
		}
		if IsPredecessor(other, &s) {
			s.Predecessors = append(s.Predecessors, id)
			b.saveSession(other, func(own *store.Session) { own.Leaving = true }) // its process has ended
		}
	}
	s.Absences = Absences(&s, slices.Collect(maps.Values(b.sessions)), b.now)
	o.Session = s
	b.done.Sessions = append(b.done.Sessions, &s)
	b.done.Hints |= store.HintRuns
	return nil
}

// again decides about a known session, after a lost answer or a change to another version of the
// program. It keeps its runs.
func (o *Join) again(b *Batch) error {
	known, err := b.Present(o.Session.ID)
	if err != nil {
		return err
	}
	if known.Leaving {
		// A later process on its data directory has replaced it, or it is leaving.
		return fmt.Errorf("session %s: %w", known.ID, store.ErrSessionOver)
	}
	session := o.Session
	o.Session = *known
	if describedAs(known, &session) {
		return nil
	}
	o.Session.Node, o.Session.Roles, o.Session.Labels, o.Session.Handlers = session.Node, session.Roles, session.Labels, session.Handlers
	o.Session.Capacity, o.Session.Version, o.Session.Zones, o.Session.Address = session.Capacity, session.Version, session.Zones, session.Address
	o.Session.Drain = b.drains()[session.Node]
	// It remains the same session, but caches of descriptions must notice the change.
	o.Session.Joined = known.Joined.Add(time.Microsecond)
	Renew(&o.Session, b.now)
	s := o.Session
	b.done.Sessions = append(b.done.Sessions, &s)
	b.done.Hints |= store.HintRuns | store.HintNodes
	return nil
}

// describedAs reports whether two sessions describe their node alike.
func describedAs(a, b *store.Session) bool {
	return a.Node == b.Node && slices.Equal(a.Roles, b.Roles) && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Handlers, b.Handlers) &&
		a.Capacity == b.Capacity && a.Version == b.Version && a.Zones == b.Zones && a.Address == b.Address
}

// IsPredecessor reports whether a session belongs to an earlier process on the data directory and
// boot of another session. Until 2026-11 Machine was only the boot, which is now its prefix:
// containers of one host share the boot and may share the path, so that the node's name
// distinguishes those.
func IsPredecessor(earlier, s *store.Session) bool {
	if earlier.DataDir != s.DataDir {
		return false
	}
	boot, _, _ := strings.Cut(s.Machine, "/")
	return earlier.Machine == s.Machine || earlier.Machine == boot && earlier.Node == s.Node
}

func compareIDs(a, b job.ID) int { return slices.Compare(a[:], b[:]) }

// saveSession stores a changed copy of a shared session.
func (b *Batch) saveSession(s *store.Session, change func(*store.Session)) {
	own := *s
	change(&own)
	b.done.Sessions = append(b.done.Sessions, &own)
}

// Renewal renews the session of a live node: see [store.Membership].
type Renewal struct {
	Session job.ID
	Load    store.Load
}

// Need requests the sessions.
func (o *Renewal) Need(b *Batch, n *Need) { b.lookSessions(n) }

// Decide decides about it.
func (o *Renewal) Decide(b *Batch) error {
	s, err := b.Present(o.Session)
	if err != nil {
		return err
	}
	b.saveSession(s, func(own *store.Session) {
		Renew(own, b.now)
		own.Load = o.Load
	})
	return nil
}

// Leave records that a node accepts no more runs: see [store.Membership].
type Leave struct{ Session job.ID }

// Need requests the sessions.
func (o *Leave) Need(b *Batch, n *Need) { b.lookSessions(n) }

// Decide decides about it.
func (o *Leave) Decide(b *Batch) error {
	s, err := b.Present(o.Session)
	if err != nil {
		return err
	}
	b.leave(s)
	b.done.HandOn = append(b.done.HandOn, o.Session)
	b.done.Hints |= store.HintRuns | store.HintNodes
	return nil
}

// End removes a session: see [store.Membership].
type End struct{ Session job.ID }

// Need requests the sessions, and whether this one has running attempts.
func (o *End) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	b.lookRunning(n, o.Session)
}

// lookRunning requests whether a session has running attempts.
func (b *Batch) lookRunning(n *Need, session job.ID) {
	if !b.facts.running[session] {
		ask(&n.asked.running, &n.Running, session, session)
	}
}

// running returns a run that a session runs, zero for none.
func (b *Batch) running(session job.ID) job.ID {
	b.missing(b.facts.running[session], "what is run by session", session)
	return b.facts.busy[session]
}

// leave records since when a session accepts no more runs: a silent node has accepted none since
// its last renewal. Later renewals, for running attempts, do not change that.
func (b *Batch) leave(s *store.Session) {
	b.saveSession(s, func(own *store.Session) {
		if own.Leaving = true; !own.Left.IsZero() {
			return
		}
		if own.Left = b.now; b.now.Sub(own.Renewed) >= store.SessionLife {
			own.Left = own.Renewed
		}
	})
}

// Decide decides about it.
func (o *End) Decide(b *Batch) error {
	if run := b.running(o.Session); !run.IsZero() {
		return fmt.Errorf("end session %s: run %s is running: %w", o.Session, run, store.ErrConflict)
	}
	if s := b.session(o.Session); s != nil && RemembersEnd(s, slices.Collect(maps.Values(b.sessions)), b.now) {
		b.leave(s)
		b.done.Reaped = append(b.done.Reaped, o.Session) // the session is never renewed
		return nil
	}
	b.done.Ended = append(b.done.Ended, o.Session)
	return nil
}

// DrainNode starts or ends the drain of a node: see [store.Membership].
type DrainNode struct{ store.DrainNode }

// Need requests the sessions and the drains.
func (o *DrainNode) Need(b *Batch, n *Need) {
	b.lookSessions(n)
	n.Drains = !b.facts.hasDrains
}

// Decide decides about it.
func (o *DrainNode) Decide(b *Batch) error {
	var of []*store.Session
	for _, id := range slices.SortedFunc(maps.Keys(b.allSessions()), compareIDs) {
		if s := b.session(id); s.Node == o.Node {
			of = append(of, s)
		}
	}
	known := b.drains()[o.Node]
	if known == nil && len(of) == 0 {
		return fmt.Errorf("drain node %s: %w", o.Node, store.ErrNotFound)
	}
	if o.Undo == (known == nil) {
		return nil
	}
	drain := b.Drain(&o.DrainNode)
	b.done.Drains = append(b.done.Drains, NodeDrain{o.Node, drain})
	for _, s := range of {
		b.saveSession(s, func(own *store.Session) { own.Drain = drain })
		if drain != nil {
			b.done.HandOn = append(b.done.HandOn, s.ID)
		}
	}
	return nil
}

func (b *Batch) drains() map[string]*store.Drain {
	b.missing(b.facts.hasDrains, "the drains", "")
	return b.facts.drains
}
