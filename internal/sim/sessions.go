package sim

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// renewalMax is how long a renewal is on its way at most, in the worst weather.
	renewalMax = 11 * time.Second
	// steadyFor is how long a session has been renewed without a gap, at least, before
	// its node takes others for dead: a minute by the clock of that node, which counts
	// from when it sent what came later.
	steadyFor = time.Minute - renewalMax
	// renewalsApart is how far apart two nodes have renewed their sessions last when the
	// store is lost to both.
	renewalsApart = 3 * time.Second
)

// session is what the steps of the store have said about a session.
type session struct {
	predecessors []job.ID
	renewed      time.Time
	steady       time.Time // since when there was no gap between renewals
	before       time.Time // the last renewal before that
	over         bool      // something of it was reaped
}

// session returns what is known of a session. The caller holds the mutex.
func (h *History) session(id job.ID) *session {
	s := h.sessions[id]
	if s == nil {
		s = &session{}
		h.sessions[id] = s
	}
	return s
}

// silent tells whether a session has a gap between its renewals that its node, too,
// must have noticed.
func (s *session) silent(now time.Time) bool {
	return now.Sub(s.renewed) > store.SessionLife+renewalMax
}

// Join implements store.Membership.
func (t *Tap) Join(ctx context.Context, given store.Session) (store.Session, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	joined, err := t.Store.Join(ctx, given)
	h.Commits++
	if s := h.session(given.ID); err == nil && s.renewed.IsZero() {
		s.renewed, s.steady, s.before, s.predecessors = t.now(), t.now(), t.now(), joined.Predecessors
	}
	return joined, err
}

// Renew implements store.Membership.
//
// No zombies: who was taken for dead is told so.
func (t *Tap) Renew(ctx context.Context, id job.ID, load store.Load) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	err := t.Store.Renew(ctx, id, load)
	h.Commits++
	if err != nil {
		return err
	}
	s, now := h.session(id), t.now()
	if s.over {
		h.problem("no zombies", "the session %s goes on, and something of it was reaped", id)
	}
	if s.silent(now) {
		s.steady, s.before = now, s.renewed
	}
	s.renewed = now
	return nil
}

// reaped notes that a session has taken another for dead, and asks whether it may.
//
// No zombies: who could not reach the store does not know whether others could. After
// an outage everybody gets time to come back.
func (t *Tap) reaped(by job.ID, was *store.Run) {
	h, now := t.history, t.now()
	reaper, dead := h.session(by), h.session(was.Session)
	heard := reaper.before
	if reaper.silent(now) {
		heard = reaper.renewed
	} else if now.Sub(reaper.steady) >= steadyFor {
		heard = time.Time{}
	}
	if !slices.Contains(reaper.predecessors, was.Session) && !heard.IsZero() && dead.renewed.After(heard.Add(-renewalsApart)) {
		h.problem("no zombies", "the node %s, heard of at %s, was taken for dead at %s by one that was silent since %s itself", was.Node, dead.renewed, now, heard)
	}
	if was.Session != by {
		dead.over = true
	}
}

// idle is a time in which a live session had claimed an attempt that did not run.
type idle struct {
	run      job.Run
	from, to time.Time
}

// unclaimed notes that a claim is over. The caller holds the mutex.
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

// idleMax is how long a live node may have claimed what it does not run, when nothing
// is wrong: claims are made two seconds ahead at most, and compared each second.
const idleMax = 8 * time.Second

// checkIdle: what a live node has claimed it runs, or gives back.
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

// checkStale: when nothing is wrong, planners know how far they have planned.
func (c *checker) checkStale() {
	for _, s := range c.stale {
		if c.late > 0 && !c.faulty(s.at.Add(-settled), s.at, true) {
			c.problem("liveness", "the planner that has moved the cursor of %s asks to move it again from where it stood, at %s", s.name, s.at)
		}
	}
}
