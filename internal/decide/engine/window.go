package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Windows are the maintenance windows of a store, compiled. They are immutable, and safe for
// concurrent use; nil has none.
type Windows struct{ list []window }

type window struct {
	*job.Window
	full  string
	opens cron.Schedule
}

// NewWindows compiles the windows among some documents with the calendars among them. A window that
// does not compile, which validation should have refused, never opens.
func NewWindows(all Documents) *Windows {
	ws := &Windows{}
	for _, d := range all.List(job.KindWindow) {
		if opens, err := d.Window.AsJob().CompileSchedule(all.Calendar); err == nil {
			ws.list = append(ws.list, window{d.Window, d.FullName(), opens})
		}
	}
	return ws
}

func (ws *Windows) empty() bool { return ws == nil || len(ws.list) == 0 }

// Opening is a span in which a window applies to a job.
type Opening struct {
	Window        string // in full
	Action        job.WindowAction
	Opened, Until time.Time
	Why           job.Reason
}

// Reason explains why a run does not start.
func (o *Opening) Reason() job.Reason { return reason.InWindow.Of(o.Window, o.Until, o.Why) }

// Open returns the opening that applies to a job at a moment: of a window that skips before one that
// holds, then the one that closes last.
func (ws *Windows) Open(namespace string, labels map[string]string, at time.Time) (open Opening, yes bool) {
	if ws.empty() {
		return open, false
	}
	for i := range ws.list {
		w := &ws.list[i]
		if !w.Matches(namespace, labels) {
			continue
		}
		o, is := w.openingAt(at)
		if is && (!yes || o.skips() && !open.skips() || o.skips() == open.skips() && o.Until.After(open.Until)) {
			open, yes = o, true
		}
	}
	return open, yes
}

// Between returns the openings of the chosen windows that overlap a span, in the order of their
// beginnings, at most some of each window.
func (ws *Windows) Between(from, to time.Time, most int, chosen func(*job.Window) bool) (list []Opening) {
	if ws.empty() {
		return nil
	}
	for i := range ws.list {
		w := &ws.list[i]
		if !chosen(w.Window) {
			continue
		}
		for at, n := from, 0; n < most && !at.IsZero() && at.Before(to); {
			if open, yes := w.openingAt(at); yes {
				list = append(list, open)
				n, at = n+1, open.Until
			}
			at = w.opens.Next(at)
		}
	}
	slices.SortStableFunc(list, func(a, b Opening) int { return a.Opened.Compare(b.Opened) })
	return list
}

func (o *Opening) skips() bool { return o.Action == job.WindowSkip }

// openingsMax bounds the overlapping openings that are joined to one: a run held to the end of a
// longer chain is held again.
const openingsMax = 1000

// openingAt returns the opening that covers a moment.
func (w *window) openingAt(at time.Time) (open Opening, yes bool) {
	span := time.Duration(w.For)
	after, closes := at.Add(-span), at.Before(w.Closed)
	if !closes && w.Closed.After(after) {
		after = w.Closed
	}
	first := w.opens.Next(after)
	if first.IsZero() || first.After(at) {
		return open, false
	}
	until := first.Add(span)
	for n, start := 0, first; n < openingsMax; n++ {
		if start = w.opens.Next(start); start.IsZero() || start.After(until) {
			break
		}
		until = start.Add(span)
	}
	if closes && until.After(w.Closed) {
		until = w.Closed
	}
	why := job.Reason{}
	if w.Description != "" {
		why = job.Text(w.Description)
	}
	action := cmp.Or(w.Action, job.WindowHold)
	return Opening{Window: w.full, Action: action, Opened: first, Until: until.UTC(), Why: why}, true
}

// lookWindows requests the windows.
func (b *Batch) lookWindows(n *Need) { n.Windows = n.Windows || !b.facts.hasWindows }

// UseWindows adds all windows.
func (b *Batch) UseWindows(ws *Windows) { b.facts.windows, b.facts.hasWindows = ws, true }

// windowOver returns the opening that keeps a run from starting at its due time or, if that is past,
// now. A run by hand starts anyway, as in a pause, and the steps of a begun flow continue.
func (b *Batch) windowOver(j *Job, r *store.Run, now time.Time) (open Opening, yes bool) {
	b.missing(b.facts.hasWindows, "the windows", "")
	if b.facts.windows.empty() || r.Kind == job.RunByHand || isStep(&r.Run) || j.Document == nil {
		return open, false
	}
	return b.facts.windows.Open(j.Namespace, j.Document.Filled.Labels, lastOf(r.Due, now))
}

// windowSlot begins the slot keys of runs that windows hold.
const windowSlot = "window "

// IsShared reports whether runs of several jobs use a slot: that of a pool, or of the runs that a
// window holds.
func IsShared(key string) bool { return strings.HasPrefix(key, poolSlot) || isWindowSlot(key) }

func isWindowSlot(key string) bool { return strings.HasPrefix(key, windowSlot) }

// isHeld reports whether a window holds a run.
func isHeld(r *store.Run) bool { return isWindowSlot(r.Slot) }

// inWindow decides about a run that must not start because a window is open: it is skipped, or held
// until the window closes. Requested runs and further attempts are always held.
//
// A held run is due again when the window closes, and in the slot of the window, where a change of
// the window finds it.
func (b *Batch) inWindow(j *Job, m *member, open *Opening) store.ClaimOutcome {
	r, why := &m.Run, open.Reason()
	if open.skips() && mayEndInWindow(r) {
		b.conclude(m, job.OutcomeSkipped, why)
		return b.answer(store.Skipped, m)
	}
	if _, has := b.facts.documents[job.KindWindow]; !has || !b.facts.whole[j.UID] {
		return b.answer(store.Early, m) // the window has just opened: see lookWindowOf
	}
	if why, ends := b.endsInWindow(j, m, why); ends {
		b.conclude(m, job.OutcomeSkipped, why)
		return b.answer(store.Skipped, m)
	}
	b.giveUp(m)
	b.moveSlot(m, windowSlot+open.Window)
	if !r.First.IsZero() || j.Policy.Missed == job.MissedAll {
		r.Overlap = cmp.Or(r.Overlap, j.Policy.caughtUp()) // it must run, so it waits for its slot
	}
	r.FirstDue, r.Due, r.Reason = firstDue(r), open.Until, why
	r.LateAfter = j.Policy.LateAfter(r.Kind, r.Due)
	b.save(m)
	return b.answer(store.Waiting, m)
}

// mayEndInWindow reports whether a window that skips ends a run.
func mayEndInWindow(r *store.Run) bool {
	return r.First.IsZero() && (isOccurrence(r.Kind) || r.Kind == job.RunBoot)
}

// endsInWindow decides whether an occurrence ends in a window that holds it, by the policy for missed
// ones.
func (b *Batch) endsInWindow(j *Job, m *member, why job.Reason) (_ job.Reason, ends bool) {
	if m.Kind != job.RunScheduled || m.Overlap != "" || !m.First.IsZero() {
		return why, false
	}
	held := 0
	for _, o := range slices.Clone(b.unfinished(j.UID)) {
		if o == m || o.removed || !isHeld(&o.Run) || o.Kind != job.RunScheduled {
			continue
		}
		switch held++; {
		case j.Policy.Missed != job.MissedLatest:
		case o.Scheduled.After(m.Scheduled):
			return reason.MissedLatest.Of(why), true
		case o.Scheduled.Before(m.Scheduled):
			b.conclude(o, job.OutcomeSkipped, reason.MissedLatest.Of(why))
		}
	}
	switch {
	case j.Policy.Missed == job.MissedNone:
		return reason.MissedNone.Of(why), true
	case held >= j.Document.Filled.Policy.MissedLimit && j.Policy.Missed == job.MissedAll:
		return reason.HeldMax.Of(why, held), true
	}
	return why, false
}

// lookWindowOf requests the windows and, if one holds a run, the other runs of its job and the
// documents, so that no change of the window misses the run. The time of the step is unknown yet: it
// is soon after the latest renewal of a session.
func (b *Batch) lookWindowOf(n *Need, m *member) {
	if b.lookWindows(n); b.facts.windows.empty() {
		return
	}
	j, _ := b.lookJob(n, m.JobUID)
	if j == nil || j.Deleted {
		return
	}
	var heard time.Time
	for _, s := range b.sessions {
		heard = lastOf(heard, s.Renewed)
	}
	for _, now := range [...]time.Time{heard, heard.Add(HeardWithin), heard.Add(store.SessionLife)} {
		if open, yes := b.windowOver(j, &m.Run, now); yes && !(open.skips() && mayEndInWindow(&m.Run)) {
			b.lookWhole(n, j.UID)
			b.lookDocuments(n, job.KindWindow)
		}
	}
}

// lookHeld requests the runs that a window holds.
func (b *Batch) lookHeld(n *Need, key string) {
	if b.lookSessions(n); later(EndOfSlot, b.facts.slots[key]) {
		n.slot(key, job.ID{}, EndOfSlot)
	}
}

// freeHeld makes runs due now that a window holds, since it was changed, so that their claims decide
// again. Further ones follow in other steps.
func (b *Batch) freeHeld(key string) {
	n := 0
	for _, m := range slices.Clone(b.slot(key)) {
		if m.removed || m.State != job.StateReady {
			continue
		}
		b.moveSlot(m, b.jobOf(&m.Run).Policy.SlotKey(&m.Run.Run, m.Node))
		m.Due = b.now.Truncate(time.Millisecond)
		b.save(m)
		b.done.Hints |= store.HintRuns | store.HintPlaced
		if n++; n == b.fillMax(key) {
			b.done.Fill = append(b.done.Fill, SlotNeed{Key: key})
			return
		}
	}
}
