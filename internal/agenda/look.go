package agenda

import (
	"time"

	"github.com/belfry-cron/belfry/store"
)

const (
	// LookEvery is how often a worker reads what is assigned to it, and window how far ahead:
	// more than the longest lead of a claim and the time to the next look.
	LookEvery = time.Second
	window    = store.ClaimAhead + 2*LookEvery
	// nearWindow is how far each look goes over what was read before, for what was added
	// since: as far as the next look. hintWindow is how far a hint makes the worker look: what
	// it is about is due at once, unless it says that runs were placed anew.
	nearWindow = LookEvery + LookEvery/2
	hintWindow = 300 * time.Millisecond
	// RestUnasked is how many times longer than a look at all that is overdue the rest after it
	// is: other nodes look as well, and all of it is found in the end.
	RestUnasked = 50
	// RestMax bounds each rest. A look may also have taken long because the network was silent,
	// which is no reason to rest when it is over.
	RestMax = 5 * time.Second
	// plenty is how many runs that can be claimed are enough to look for no more of what is
	// overdue: what keeps the claims busy while more is read. recent is how long due runs are
	// read all the same: those that come one by one, such as retries, are due when they are made.
	plenty = 2 * store.MaxBatch
	recent = 2 * LookEvery
	// heeded are the hints that are about what must not go on or start, looked those about
	// what is to be claimed.
	heeded = store.HintJobs | store.HintCancels | store.HintNodes
	looked = store.HintRuns | store.HintPlaced
)

// Window is a part of the ready runs to read: those behind a place that are due until a moment.
type Window struct {
	After store.RunRef
	Until time.Time

	ahead     bool // it continues what was read before
	forgotten int  // how often the store's clock had been forgotten
}

// Hint takes note of a hint of the store.
func (a *Agenda[P]) Hint(hint store.Hint) {
	if a.hints |= hint & looked; hint&looked != 0 {
		a.wake |= WakeLook
	}
	if hint&heeded != 0 {
		a.heeds = a.heeds.With(hint & (heeded | store.HintAny))
		a.wake |= WakeHeed
	}
}

// Heeds returns the hints about what was cancelled or changed that have come since it was last
// called. Claims in flight whose jobs may have been changed are to be recalled: see Recalled.
func (a *Agenda[P]) Heeds() store.Hint {
	hint := a.heeds
	if a.heeds = 0; hint&store.HintJobs != 0 {
		a.edits++
	}
	return hint
}

// Looks returns what to read of the runs that are assigned to the worker: what has come into its
// window, and what was added at the near end since the last look. Each window that was read is
// followed by Saw.
func (a *Agenda[P]) Looks(elapsed time.Duration) []Window {
	now, known := a.clock.Now(elapsed)
	if !known {
		return nil // it was set just now
	}
	return []Window{a.near(now, elapsed, nearWindow), {After: a.read, Until: now.Add(window), ahead: true, forgotten: a.forgotten}}
}

// Hinted returns what to read because of the hints that have come since, which may be nothing. If
// it cannot be read, they are to be given again: the store does not repeat them.
func (a *Agenda[P]) Hinted(elapsed time.Duration) (list []Window, hint store.Hint) {
	hint, a.hints = a.hints, 0
	now, known := a.clock.Now(elapsed)
	switch {
	case !known:
		return nil, hint // the next look reads everything
	case hint&store.HintPlaced != 0:
		return []Window{a.near(now, elapsed, nearWindow)}, hint
	}
	return []Window{a.near(now, elapsed, hintWindow)}, hint
}

// near is what is due until some time ahead of now. With plenty to do, most of it is known: then
// what was due long ago is left out, but for once in a while.
func (a *Agenda[P]) near(now time.Time, elapsed, ahead time.Duration) Window {
	w := Window{Until: now.Add(ahead)}
	if a.pending.len() >= plenty && elapsed < a.backlogAt {
		w.After.Due = now.Add(-recent)
	}
	return w
}

// Saw says that a window was read, from one moment to another.
func (a *Agenda[P]) Saw(w Window, began, ended time.Duration) {
	switch {
	case w.ahead && w.forgotten == a.forgotten:
		a.read = store.RunRef{Due: w.Until}
	case !w.ahead && w.After == (store.RunRef{}):
		a.backlogAt = ended + min(RestMax, RestUnasked*(ended-began))
	}
}

// Overdue returns the store's clock and how many runs to take over of what is overdue on any node:
// none with a batch and more of its own to claim, which is enough to do.
func (a *Agenda[P]) Overdue(elapsed time.Duration) (now time.Time, room int) {
	now, known := a.clock.Now(elapsed)
	if !known || a.pending.len() >= store.MaxBatch {
		return now, 0
	}
	return now, a.Room()
}
