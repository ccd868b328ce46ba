package runqueue

import (
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	// LookEvery is the interval of a worker's polls for assigned runs, and window how far
	// ahead they read: more than the longest lead of a claim and the time to the next poll.
	LookEvery = time.Second
	window    = store.ClaimAhead + 2*LookEvery
	// nearWindow is how far each poll rereads the near future, for new runs: as far as the next
	// poll. hintWindow is how far a poll after a hint reads: hinted runs are due at once, unless
	// the hint is about placed runs.
	nearWindow = LookEvery + LookEvery/2
	hintWindow = 300 * time.Millisecond
	// RestUnasked is the backoff after a poll of the whole backlog, as a multiple of its duration:
	// other nodes poll as well, and find all of it eventually.
	RestUnasked = 50
	// RestMax bounds each backoff. A poll may also be slow because of a short network outage, which
	// is no reason for a long backoff.
	RestMax = 5 * time.Second
	// plenty is the number of claimable runs that stops polls of the backlog: enough to keep the
	// claims busy in the meantime. recent is how long due runs are always polled: single ones, such
	// as retries, are due at their creation.
	plenty = 2 * store.MaxBatch
	recent = 2 * LookEvery
	// revoking are the hints that revoke work, claimable the hints that announce claimable runs.
	revoking  = store.HintJobs | store.HintCancels | store.HintNodes
	claimable = store.HintRuns | store.HintPlaced
)

// Window is a part of the ready runs to read: runs after a place that are due until a moment.
type Window struct {
	After store.RunRef
	Until time.Time

	ahead     bool // it continues the previous read
	forgotten int  // how often the store's clock had been forgotten before
}

// Hint records a hint of the store.
func (a *Queue[P]) Hint(hint store.Hint) {
	if a.hints |= hint & claimable; hint&claimable != 0 {
		a.wake |= WakeLook
	}
	if hint&revoking != 0 {
		a.revocations = a.revocations.With(hint & (revoking | store.HintAny))
		a.wake |= WakeRevoke
	}
}

// Revocations returns the revoking hints since the last call. Claims in flight whose jobs may
// have changed must be recalled: see Recalled.
func (a *Queue[P]) Revocations() store.Hint {
	hint := a.revocations
	if a.revocations = 0; hint&store.HintJobs != 0 {
		a.edits++
	}
	return hint
}

// Looks returns the windows of assigned runs to read: the newly reached time, and the near future
// again for new runs. The caller calls Saw after reading each window.
func (a *Queue[P]) Looks(elapsed time.Duration) []Window {
	now, known := a.clock.Now(elapsed)
	if !known {
		return nil // the clock was just set
	}
	return []Window{a.near(now, elapsed, nearWindow), {After: a.read, Until: now.Add(window), ahead: true, forgotten: a.forgotten}}
}

// Hinted returns the windows to read for the hints since the last call, possibly none. If
// the read fails, the caller must pass the hints again: the store does not repeat them.
func (a *Queue[P]) Hinted(elapsed time.Duration) (list []Window, hint store.Hint) {
	hint, a.hints = a.hints, 0
	now, known := a.clock.Now(elapsed)
	switch {
	case !known:
		return nil, hint // the next poll reads everything
	case hint&store.HintPlaced != 0:
		return []Window{a.near(now, elapsed, nearWindow)}, hint
	}
	return []Window{a.near(now, elapsed, hintWindow)}, hint
}

// near is the window of runs due until shortly after now. With plenty pending it usually omits old
// due runs, most of which are held.
func (a *Queue[P]) near(now time.Time, elapsed, ahead time.Duration) Window {
	w := Window{Until: now.Add(ahead)}
	if a.pending.len() >= plenty && elapsed < a.backlogAt {
		w.After.Due = now.Add(-recent)
	}
	return w
}

// Saw records that a window was read, from one moment to another.
func (a *Queue[P]) Saw(w Window, began, ended time.Duration) {
	switch {
	case w.ahead && w.forgotten == a.forgotten:
		a.read = store.RunRef{Due: w.Until}
	case !w.ahead && w.After == (store.RunRef{}):
		a.backlogAt = ended + min(RestMax, RestUnasked*(ended-began))
	}
}

// Overdue returns the store's clock and how many overdue runs to take over from any node: none
// while more than a batch of own runs is claimable.
func (a *Queue[P]) Overdue(elapsed time.Duration) (now time.Time, room int) {
	now, known := a.clock.Now(elapsed)
	if !known || a.pending.len() >= store.MaxBatch {
		return now, 0
	}
	return now, a.Room()
}
