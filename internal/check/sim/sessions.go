package sim

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// session is a session's data from the steps of the store.
type session struct {
	truth.Session
	predecessors []job.ID
	renewed      time.Time
	// steady are the times in which it was renewed without a gap, in their order.
	steady []stretch
	ended  time.Time // when it was removed from the store
	left   time.Time // when it stopped taking runs
	over   bool      // a run of it was reaped
	// heardLeaving is set if it was not silent when it left: that was a sign of life.
	heardLeaving bool
}

// stretch is a time from one renewal to another.
type stretch struct{ from, to time.Time }

// renew notes a renewal.
func (s *session) renew(now time.Time, load store.Load) {
	s.renewed, s.HeardAt, s.Unreported = now, append(s.HeardAt, now), append(s.Unreported, load.Unreported)
	if last := len(s.steady) - 1; last >= 0 && now.Sub(s.steady[last].to) <= store.SessionLife {
		s.steady[last].to = now
		return
	}
	s.steady = append(s.steady, stretch{now, now})
}

// heard returns the last renewal before a moment, as far as it is known: the moment itself while
// renewals are steady.
func (s *session) heard(at time.Time) time.Time {
	var heard time.Time
	for _, t := range s.steady {
		switch {
		case t.from.After(at):
		case t.to.Before(at):
			heard = t.to
		default:
			heard = at
		}
	}
	return heard
}

// silence returns how long before a moment the store was certainly reachable without a renewal of a
// node. It considers only renewals.
func (h *History) silence(heard, at time.Time) (longest time.Duration) {
	for _, s := range h.sessions {
		for _, t := range s.steady {
			if !t.from.After(at) && at.Sub(t.to) < store.SessionLife {
				longest = max(longest, min(at.Sub(heard), at.Sub(t.from)))
			}
		}
	}
	return longest
}

// session returns the data of a session. The caller holds the mutex.
func (h *History) session(id job.ID) *session {
	s := h.sessions[id]
	if s == nil {
		s = &session{}
		h.sessions[id] = s
	}
	return s
}

// Join implements [store.Membership].
func (t *Tap) Join(ctx context.Context, given store.Session) (store.Session, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	joined, err := t.Store.Join(ctx, given)
	h.Commits++
	if s := h.session(given.ID); err == nil && s.renewed.IsZero() {
		s.Node, s.predecessors = given.Node, joined.Predecessors
		h.joins(given.ID, joined.Predecessors, t.now())
		s.renew(t.now(), store.Load{})
	}
	return joined, err
}

// Renew implements [store.Membership]. A session that counted as dead must get an error.
func (t *Tap) Renew(ctx context.Context, id job.ID, load store.Load) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	err := t.Store.Renew(ctx, id, load)
	h.Commits++
	if err != nil {
		return err
	}
	s := h.session(id)
	if s.over {
		h.problem("no zombies", "the session %s is alive, and one of its attempts was reaped", id)
	}
	s.renew(t.now(), load)
	return nil
}

// End implements [store.Membership].
func (t *Tap) End(ctx context.Context, id job.ID) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	err := t.Store.End(ctx, id)
	h.Commits++
	if s := h.session(id); err == nil && s.ended.IsZero() {
		s.ended = t.now()
		s.leave(t.now())
	}
	return err
}

// reaped records that a session has counted another as dead, and checks that it may: an outage of
// the store is no silence.
func (t *Tap) reaped(by job.ID, was *store.Run) {
	h, now := t.history, t.now()
	dead := h.session(was.Session)
	if known := h.runs[was.ID]; known != nil && !slices.Contains(h.session(by).predecessors, was.Session) {
		silence, lostAfter := h.silence(dead.renewed, now), known.lostAfter
		if silence <= lostAfter {
			h.problem("no zombies", "the node %s, heard of at %s, was taken for dead at %s: it was silent for %s and may be for %s", was.Node, dead.renewed, now, silence, lostAfter)
		}
	}
	if was.Session != by {
		dead.over = true
	}
}

// checkGone checks a run that ended because its node was gone.
func (c *checker) checkGone(r *store.Record, lostAfter time.Duration) {
	at, heard := r.Attempt.Ended, r.Run.Due
	for _, s := range c.sessions {
		if s.Node == r.Run.Node && (s.ended.IsZero() || s.ended.After(at)) && s.heard(at).After(heard) {
			heard = s.heard(at)
		}
	}
	if silence := c.silence(heard, at); silence+stalledMax <= lostAfter { // a renewal that came after the record may have an earlier clock
		c.problem("accounted", "a run of %s of %s has ended at %s because the node %s was gone, which was heard of at %s, silent for %s and may be for %s", r.Run.Name, r.Run.Due, at, r.Run.Node, heard, silence, lostAfter)
	}
}

// idle is a time in which a live session held a claim that did not run.
type idle struct {
	run      job.Run
	from, to time.Time
}

// unclaimed records the end of a claim. The caller holds the mutex.
func (h *History) unclaimed(run job.ID) {
	known := h.runs[run]
	if known == nil || known.claimed.IsZero() {
		return
	}
	if to := h.session(known.session).renewed; !h.begun[attemptKey{run, known.run.Attempt}] && to.After(known.claimed) {
		h.idle = append(h.idle, idle{known.run, known.claimed, to})
	}
	known.claimed = time.Time{}
}

// idleMax is how long a live node may hold a claim that it does not run, when nothing is wrong:
// claims are made at most two seconds ahead, and compared each second.
const idleMax = 8 * time.Second

// checkIdle checks that a live node runs or releases its claims.
func (c *checker) checkIdle() {
	if c.late == 0 {
		return
	}
	for _, i := range c.idle {
		for from := i.from; i.to.Sub(from) > idleMax; from = from.Add(time.Second) {
			if !c.faulty(from, from.Add(idleMax), true) {
				c.problem("liveness", "a run of %s of %s was claimed on %s for %s and did not run", i.run.Name, i.run.Due, i.run.Node, i.to.Sub(i.from))
				break
			}
		}
	}
}

// checkStale checks that planners know their position when nothing is wrong.
func (c *checker) checkStale() {
	for _, s := range c.stale {
		if c.late > 0 && !c.faulty(s.at.Add(-settled), s.at, true) {
			c.problem("liveness", "the planner that has moved the cursor of %s asks to move it again from where it stood, at %s", s.name, s.at)
		}
	}
}
