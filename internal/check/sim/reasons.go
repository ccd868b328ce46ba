package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// absence is a time in which no node was there, as the steps of the store have shown.
type absence struct{ from, to time.Time }

// leave records that a session takes no more runs.
func (s *session) leave(now time.Time) {
	if s.left.IsZero() {
		// A clock that was set back may have it leave before its last renewal.
		s.left, s.heardLeaving = now, now.Sub(s.renewed) < store.SessionLife
	}
}

// sign returns the last sign of life before a moment of a session that took runs.
func (s *session) sign(at time.Time) time.Time {
	if !s.left.IsZero() && s.left.Before(at) {
		if at = s.left; s.heardLeaving {
			return at
		}
	}
	var sign time.Time
	for _, t := range s.steady {
		if !t.from.After(at) {
			sign = t.to
			if at.Before(sign) {
				sign = at
			}
		}
	}
	return sign
}

// joins records the absence of all nodes that a session ends, if any. The caller holds the mutex.
func (h *History) joins(by job.ID, predecessors []job.ID, now time.Time) {
	var seen time.Time
	for id, s := range h.sessions {
		sign := s.sign(now)
		gone := id == by || !s.ended.IsZero() || !s.left.IsZero() || slices.Contains(predecessors, id)
		if !gone && now.Sub(sign) < store.SessionLife {
			return
		}
		if id != by && sign.After(seen) {
			seen = sign
		}
	}
	if !seen.IsZero() {
		h.absences = append(h.absences, absence{seen, now})
	}
}

// wasKept reports whether a session existed throughout an absence: its node could not reach the
// store, or stood still.
func (h *History) wasKept(a absence) bool {
	for _, s := range h.sessions {
		if len(s.steady) > 0 && !s.steady[0].from.After(a.from) && s.renewed.After(a.to) && (s.left.IsZero() || s.left.After(a.to)) {
			return true
		}
	}
	return false
}

// claimedOver reports whether a run was claimed before an absence and after it: its node stood
// still, and what it starts when it wakes no missed policy decides.
func (h *History) claimedOver(run job.ID, a absence) bool {
	return slices.ContainsFunc(h.claims[run], func(c truth.Claim) bool { return c.Made.Before(a.from) && (c.To.IsZero() || c.To.After(a.to)) })
}

// closeClaim records the end of a claim. The caller holds the mutex.
func (h *History) closeClaim(run job.ID, now time.Time) {
	if list := h.claims[run]; len(list) > 0 && list[len(list)-1].To.IsZero() {
		list[len(list)-1].To = now
	}
}

// checkReasons: a reason is true.
func (c *checker) checkReasons() {
	c.happened = c.world()
	for _, list := range c.records {
		for _, r := range list {
			c.checkBusy(r)
			c.checkAbsent(r)
		}
	}
	for _, untrue := range c.happened.Check() {
		c.problem("reasons", "%s", untrue)
	}
}

// untoldMax is how long the end of an attempt may be unknown when a reason says that it runs: renewals
// mention it after a second, are up to 2.5 s old, and take up to 10 s in slow weather.
const untoldMax = 12 * time.Second

// onItsWayMax bounds how long after the end of its process a renewal arrives: a message takes up to
// 10.3 s in slow weather.
const onItsWayMax = 11 * time.Second

// world returns what has happened to the judge of reasons.
func (c *checker) world() *truth.World {
	w := &truth.World{
		Records: c.records, Active: c.active, Claims: c.claims, Cancels: c.cancels,
		Openings: c.openings, Attempts: map[job.ID][]truth.Attempt{}, Sessions: map[job.ID]*truth.Session{},
		Whole: true, Stalled: stalledMax, Untold: untoldMax, OnItsWay: onItsWayMax,
		Lost: func(run job.ID, number int) bool { return !c.lost[attemptKey{run, number}].IsZero() },
		Handed: func(run job.ID, number int) bool {
			_, ok := c.handed[attemptKey{run, number}]
			return ok // see checkHandedOver
		},
		Rule: func(name string) (truth.Rule, bool) {
			of, ok := steady[name]
			rule := truth.Rule{Missed: of.missed, Replace: strings.Contains(of.rest, "overlap: replace")}
			if strings.Contains(of.rest, "overlap: queue") {
				rule.Queue = 1
				if _, limit, set := strings.Cut(of.rest, "queue_limit: "); set {
					_, _ = fmt.Sscan(limit, &rule.Queue)
				}
			}
			return rule, ok
		},
		Rate: func(of string, r *job.Run) *job.Rate {
			if !specOf(r.Name).rated || of != job.DefaultNamespace+"/"+rated {
				return nil
			}
			return &rate
		},
		Changed: func(name string, _ time.Time) bool {
			_, isSteady := steady[name]
			return !isSteady
		},
		Texts: map[string]job.Outcome{
			"": job.OutcomeSucceeded, "exit status 1": job.OutcomeFailed, "the timeout has passed": job.OutcomeTimedOut, "it was cancelled": job.OutcomeCancelled,
			reason.NodeStopped.Of().String(): job.OutcomeLost, reason.NodeFenced.Of().String(): job.OutcomeLost,
		},
	}
	for _, a := range c.attempts {
		w.Attempts[a.Run.ID] = append(w.Attempts[a.Run.ID], truth.Attempt{Number: a.Number, Started: a.Started, Ended: a.Ended, Frozen: a.Frozen, Outcome: a.Outcome})
	}
	for id, s := range c.sessions {
		s.Left = s.left
		w.Sessions[id] = &s.Session
	}
	return w
}

// checkBusy: a run that is named as running ran at that moment.
func (c *checker) checkBusy(r *store.Record) {
	at := r.Run.Due
	why := r.Attempt.Reason
	if reason.AfterOutage.Is(why) {
		why = reason.Inner(why, "why")
	}
	if reason.QueueFull.Is(why) {
		why = reason.Inner(why, "why")
	}
	run := reason.StillRunning.Arg(why, "run")
	switch {
	case r.Attempt.Outcome != job.OutcomeSkipped:
		return
	case reason.StillRunning.Is(why):
	case reason.WasRunning.Is(why):
		at = r.Attempt.Ended
	default:
		return
	}
	id, err := job.ParseID(run)
	if err != nil || !c.happened.Holds(id, at) && !(specOf(r.Run.Name).flowMost > 0 && c.ranThen(id, at)) {
		c.problem("reasons", "the run of %s of %s was skipped because %s, which did not run at %s", r.Run.Name, r.Run.Due, r.Attempt.Reason, at)
	}
}

// checkAbsent: no node gave a sign of life in an absence that a reason names.
func (c *checker) checkAbsent(r *store.Record) {
	span := r.Attempt.Reason
	for !reason.NoNodeThere.Is(span) {
		inner := reason.Inner(span, "outage")
		if inner.IsZero() {
			inner = reason.Inner(span, "why")
		}
		if span = inner; span.IsZero() {
			return
		}
	}
	from, errFrom := time.Parse(time.RFC3339, reason.NoNodeThere.Arg(span, "from"))
	to, errTo := time.Parse(time.RFC3339, reason.NoNodeThere.Arg(span, "to"))
	if errFrom != nil || errTo != nil {
		c.problem("reasons", "the span of %q cannot be read", r.Attempt.Reason)
		return
	}
	from = from.Add(time.Second) // the reason has whole seconds
	for _, s := range c.sessions {
		if sign := s.sign(to.Add(-stalledMax)); sign.After(from) { // a step that came after the record may have an earlier clock
			c.problem("reasons", "the run of %s of %s was missed because %s, and node %s was there at %s", r.Run.Name, r.Run.Due, r.Attempt.Reason, s.Node, sign)
			return
		}
	}
}

// firstDue is when a run fell due, before a window or a line postponed it.
func firstDue(r *job.Run) time.Time {
	if s := specOf(r.Name); s.windowed || s.rated {
		return r.Scheduled
	}
	return r.Due
}

// isFollowed reports whether a later occurrence of the job of a record fell due in an absence of all
// nodes: only the latest is on time.
func (c *checker) isFollowed(r *store.Record) bool {
	if _, ok := steady[r.Run.Name]; !ok {
		return true // an edit may have withdrawn the later one
	}
	last := firstDue(&r.Run)
	if !r.Until.IsZero() {
		last = r.Until
	}
	for _, a := range c.absences {
		isLater := func(other *job.Run) bool {
			due := firstDue(other)
			return due.After(last) && !due.Before(a.from) && !due.After(a.to)
		}
		for _, o := range c.byJob[r.Run.JobUID] {
			if isLater(&o.Run) {
				return true
			}
		}
		for id := range c.active {
			if o := c.active[id]; o.JobUID == r.Run.JobUID && isLater(&o.Run) {
				return true
			}
		}
	}
	return false
}

// checkAbsences checks the occurrences due in an absence of all nodes: only the latest starts, with
// the policy none only if it was due right before the end, and all with the policy all.
func (c *checker) checkAbsences() {
	for _, a := range c.absences {
		if c.wasKept(a) {
			continue
		}
		began := map[job.ID]map[string]bool{}
		for _, at := range c.attempts {
			due := firstDue(&at.Run)
			if at.Number > 1 || at.Run.Kind != job.RunScheduled || due.Before(a.from) || !due.Before(a.to) || at.Started.Before(a.to) || c.claimedOver(at.Run.ID, a) {
				continue
			}
			if _, ok := steady[at.Run.Name]; !ok {
				continue // a resume may catch it up
			}
			if steady[at.Run.Name].missed == job.MissedNone && due.Before(a.to.Add(-missedAfter)) {
				c.problem("accounted", "%s of %s has started, which fell due while no node was there from %s to %s", at.Run.Name, due, a.from, a.to)
			}
			if began[at.Run.JobUID] == nil {
				began[at.Run.JobUID] = map[string]bool{}
			}
			began[at.Run.JobUID][at.Run.Key] = true
		}
		for uid, keys := range began {
			name := c.jobs[uid].name
			if steady[name].missed != job.MissedAll && len(keys) > 1 {
				c.problem("accounted", "of %s, which fell due while no node was there from %s to %s, %d have started, want at most the latest", name, a.from, a.to, len(keys))
			}
		}
	}
}

// change is an edit of a job that began an epoch.
type change struct {
	job   job.ID
	epoch int64
	at    time.Time
	// filled is the job as it was put, active from then on.
	filled *job.Job
}

// endedSchedule is a job whose schedule has ended at a moment, by a change of a user.
type endedSchedule struct {
	was *store.Job
	at  time.Time
}

// checkUnplanned checks that occurrences due and unplanned at the end of a schedule are in one
// record, since the cursor of the next epoch passes them.
func (c *checker) checkUnplanned() error {
	for _, u := range c.unplanned {
		uid, epoch := u.was.Definition.UID, u.was.Definition.Epoch
		timing, err := engine.TimingOf(u.was.Filled, uid, nil)
		if err != nil {
			return err
		}
		for at := range cron.Between(timing.Schedule, u.was.Cursor, timing.Begin(u.at)) {
			in := 0
			for _, r := range c.byJob[uid] {
				if r.Attempt.Outcome == job.OutcomeMissed && r.Run.Epoch == epoch && !at.Before(r.Run.Scheduled) && !r.Until.IsZero() && !at.After(r.Until) {
					in++
				}
			}
			if c.Late++; in != 1 {
				c.problem("accounted", "%s of %s was due and not planned when its epoch %d ended at %s, and is in %d records", u.was.Definition.Name, at, epoch, u.at, in)
			}
		}
	}
	return nil
}

// checkShared checks that an occurrence of two schedules runs in the later epoch or, if it began
// before, in the earlier one: it is not withdrawn by one and passed by the other.
func (c *checker) checkShared() error {
	for _, e := range c.edits {
		if _, ok := steady[c.jobs[e.job].name]; ok {
			continue
		}
		timing, err := engine.TimingOf(e.filled, e.job, nil)
		if err != nil {
			return err
		}
		passed := c.jobs[e.job].epochs[e.epoch]
		if passed == nil {
			continue
		}
		settled, claimed := c.settledBefore(e)
		for at := range cron.Between(timing.Schedule, timing.Begin(e.at), passed.to) {
			if !at.After(settled) || at.Before(claimed) || c.isAccounted(e, at) {
				continue
			}
			c.problem("accounted", "no node has run %s of %s, which its epoch %d of %s has passed", c.jobs[e.job].name, at, e.epoch, e.at)
		}
	}
	return nil
}

// settledBefore returns the latest scheduled time that was settled or begun when an epoch began,
// and the latest that was claimed and due: the store cannot know that such a run has not begun and
// is released later.
func (c *checker) settledBefore(e change) (settled, claimed time.Time) {
	latest := func(last *time.Time, r *job.Run) {
		if r.Kind == job.RunScheduled && r.Epoch < e.epoch && r.Scheduled.After(*last) {
			*last = r.Scheduled
		}
	}
	for _, r := range c.byJob[e.job] {
		switch {
		case r.Final && r.Attempt.Outcome != job.OutcomeWithdrawn && !r.Attempt.Ended.After(e.at):
			latest(&settled, &r.Run)
			if !r.Until.IsZero() && r.Until.After(settled) {
				settled = r.Until
			}
		case !slices.ContainsFunc(c.claims[r.Run.ID], func(claim truth.Claim) bool { return !claim.From.After(e.at) }):
		case r.Attempt.Outcome == job.OutcomeWithdrawn:
			latest(&claimed, &r.Run)
		default:
			latest(&settled, &r.Run)
		}
	}
	return settled, claimed
}

// isAccounted reports whether an occurrence has a run or a record that is no withdrawal by
// an epoch before its own.
func (c *checker) isAccounted(e change, at time.Time) bool {
	for _, r := range c.byJob[e.job] {
		switch {
		case r.Run.Kind != job.RunScheduled || !r.Final:
		case r.Run.Scheduled.Equal(at) && (r.Attempt.Outcome != job.OutcomeWithdrawn || r.Run.Epoch >= e.epoch),
			!r.Until.IsZero() && !at.Before(r.Run.Scheduled) && !at.After(r.Until):
			return true
		}
	}
	for id := range c.active {
		if r := c.active[id]; r.JobUID == e.job && r.Kind == job.RunScheduled && r.Scheduled.Equal(at) {
			return true
		}
	}
	return false
}

// Leave implements [store.Membership].
func (t *Tap) Leave(ctx context.Context, id job.ID) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	err := t.Store.Leave(ctx, id)
	if h.Commits++; err == nil {
		h.session(id).leave(t.now())
	}
	return err
}
