package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Tap is a store that records the steps of the store behind it, and notices violations at once. It
// makes one step at a time.
type Tap struct {
	store.Store
	history *History
	now     func() time.Time // the clock of the step
	ends    func() time.Time // the clock when the step is made
	ahead   time.Duration    // the look-ahead for runs
}

// NewTap returns a tap of a store with a clock.
func NewTap(s store.Store, h *History, now func() time.Time, lookAhead time.Duration) *Tap {
	return &Tap{Store: s, history: h, now: now, ends: now, ahead: lookAhead}
}

// Plan implements [store.Planning]. It checks that a cursor moves on from its position.
func (t *Tap) Plan(ctx context.Context, session job.ID, items []store.PlanItem) ([]store.PlanOutcome, []store.ClaimOutcome, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	out, claims, err := t.Store.Plan(ctx, session, items)
	h.Commits++
	for i, outcome := range out {
		item := &items[i]
		b := h.book(item.Job)
		if outcome == store.Moved && b.planner == session {
			h.stale = append(h.stale, stale{b.name, t.now()})
		}
		if outcome != store.Planned {
			continue
		}
		b.planner = session
		s := b.epochs[item.Epoch]
		switch {
		case item.Epoch < b.epoch, b.deleted:
			h.problem("withdrawn means withdrawn", "epoch %d of %s is planned after it was ended", item.Epoch, b.name)
		case item.To.After(t.now().Add(t.ahead + store.PlanSlack)):
			h.problem("once", "%s is planned %s ahead", b.name, item.To.Sub(t.now()))
		case s == nil:
			b.epochs[item.Epoch] = &span{from: item.From, to: item.To}
		case item.From.Equal(s.to):
			s.to = item.To
		case item.To.Equal(s.to): // the answer was lost
		default:
			h.problem("once", "the cursor of %s moved from %s to %s, and stood at %s", b.name, item.From, item.To, s.to)
		}
	}
	for i := range claims {
		if claims[i].Verdict == store.Started {
			h.Planned++
			t.claimed(ctx, &claims[i])
		}
	}
	return out, claims, err
}

// Claim implements [store.Working].
func (t *Tap) Claim(ctx context.Context, session job.ID, attempts []store.Attempt) ([]store.ClaimOutcome, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.named(attempts...)
	out, err := t.Store.Claim(ctx, session, attempts)
	h.Commits++
	for i := range out {
		switch out[i].Verdict {
		case store.Started:
			if r := out[i].Run; r.Attempt != attempts[i].Number {
				h.problem("started once", "a claim of attempt %d of %s of %s has started attempt %d", attempts[i].Number, r.Name, r.Due, r.Attempt)
			}
			t.claimed(ctx, &out[i])
		case store.Taken:
			t.taken(ctx, session, attempts[i])
		}
	}
	return out, err
}

// named checks that nodes name the jobs of attempts: otherwise stores that keep runs with their jobs
// would have to search for them.
func (h *History) named(attempts ...store.Attempt) {
	for _, a := range attempts {
		if a.Job.IsZero() {
			h.problem("contract", "attempt %d of run %s is named without its job", a.Number, a.Run)
		}
	}
}

// Place implements [store.Planning].
func (t *Tap) Place(ctx context.Context, placements []store.Placement) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range placements {
		h.named(store.Attempt{Job: p.Job, Run: p.Run, Number: p.Attempt})
	}
	return t.Store.Place(ctx, placements)
}

// taken checks a claim that was refused as Taken. A repeated claim must get the same answer.
func (t *Tap) taken(ctx context.Context, session job.ID, a store.Attempt) {
	r, err := store.ActiveRun(ctx, t.Store, a.Run)
	if err == nil && r.State == job.StateRunning && r.Session == session && r.Attempt == a.Number && r.Token != a.Token {
		t.history.problem("started once", "%s has claimed a run of %s of %s twice, with two tokens", r.Node, r.Name, r.Due)
	}
}

// claimed judges a claim that the store has granted.
func (t *Tap) claimed(ctx context.Context, out *store.ClaimOutcome) {
	h, now := t.history, t.now()
	r, b := out.Run, h.book(out.Run.JobUID)
	if known := h.runs[r.ID]; known != nil && known.token == r.Token {
		return // the answer was lost
	}
	occurrence := r.Kind == job.RunScheduled || r.Kind == job.RunAfterEnd || r.Kind == job.RunBoot
	step := r.Kind == job.RunStep || r.Kind == job.RunByFlow // a begun flow runs to its end
	switch {
	case b.deleted && !step:
		h.problem("withdrawn means withdrawn", "a run of %s of %s was claimed after the job was deleted", b.name, r.Due)
	case occurrence && (r.Epoch < b.epoch || r.Epoch < out.Job.Definition.Epoch):
		h.problem("withdrawn means withdrawn", "a run of epoch %d of %s was claimed in epoch %d", r.Epoch, b.name, b.epoch)
	case b.paused && r.Kind != job.RunByHand && !step:
		h.problem("withdrawn means withdrawn", "a run of %s of %s was claimed while the job was paused", b.name, r.Due)
	case out.Job.Definition.Version < b.version:
		h.problem("withdrawn means withdrawn", "a run of %s was claimed under version %d after version %d", b.name, out.Job.Definition.Version, b.version)
	case h.cancels[r.ID] > 0:
		h.problem("withdrawn means withdrawn", "a run of %s of %s was claimed after it was cancelled", b.name, r.Due)
	case r.Due.Sub(now) > store.ClaimAhead:
		h.problem("no start early", "a run of %s was claimed %s ahead", b.name, r.Due.Sub(now))
	}
	h.outOfWindow(r, now)
	h.closeClaim(r.ID, t.ends())
	began := now.Truncate(time.Microsecond) // the precision of stores
	if r.Due.After(began) {
		began = r.Due
	}
	h.claims[r.ID] = append(h.claims[r.ID], truth.Claim{By: r.Session, Made: t.ends(), From: began})
	h.runs[r.ID] = &runBook{slot: r.Slot, token: r.Token, run: r.Run, session: r.Session, claimed: now, lostAfter: time.Duration(out.Job.Filled.Policy.LostAfter)}
	t.hold(ctx, r)
}

// outOfWindow checks that a claimed run is one that the window, if it is open, does not concern.
func (h *History) outOfWindow(r *store.Run, now time.Time) {
	if !specOf(r.Name).windowed || r.Kind == job.RunByHand {
		return
	}
	starts, free := later(r.Due, now), r.FirstDue
	for _, o := range h.openings {
		switch known := o.Over.IsZero(); {
		case known && !starts.Before(o.From) && starts.Before(o.To):
			h.problem("windows", "a run of %s of %s was claimed at %s, and the window is open from %s to %s", r.Name, r.Scheduled, now, o.From, o.To)
		case !known && o.From.Before(o.Over) && o.Over.Before(o.To):
			free = later(free, o.Over)
		case o.To.Before(now):
			free = later(free, o.To)
		}
	}
	if !r.FirstDue.IsZero() && !now.Before(r.Due) && r.Attempt == 1 && parallelOf(r.Name) == 0 { // others may wait for a slot
		h.freed = append(h.freed, freed{r.Name, free, now})
	}
}

// PutDocument implements [store.Documents]. It notes when the window is open.
func (t *Tap) PutDocument(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	put, err := t.Store.PutDocument(ctx, d, ifVersion, actor)
	h.Commits++
	if w := d.Window; err == nil && w != nil {
		h.closeWindow(t.now())
		opens := w.Schedule.At[0]
		closes := opens.Add(time.Duration(w.For))
		if !w.Closed.IsZero() && opens.Before(w.Closed) {
			closes = w.Closed
		}
		h.openings = append(h.openings, truth.Opening{From: opens, To: closes, Put: t.now()})
	}
	return put, err
}

// DeleteDocument implements [store.Documents].
func (t *Tap) DeleteDocument(ctx context.Context, kind job.Kind, full string, ifVersion int64, actor string) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	err := t.Store.DeleteDocument(ctx, kind, full, ifVersion, actor)
	h.Commits++
	if err == nil && kind == job.KindWindow {
		h.closeWindow(t.now())
	}
	return err
}

// closeWindow ends the latest opening.
func (h *History) closeWindow(at time.Time) {
	if n := len(h.openings); n > 0 && h.openings[n-1].Over.IsZero() {
		h.openings[n-1].Over = at
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// hold notes that a run has its slot, and compares with how many may have it.
func (t *Tap) hold(ctx context.Context, r *store.Run) {
	h := t.history
	most := parallelOf(r.Name)
	if most == 0 {
		return
	}
	holders := h.holders[r.Slot]
	if holders == nil {
		holders = map[job.ID]bool{}
		h.holders[r.Slot] = holders
	}
	holders[r.ID] = true
	if len(holders) > most {
		t.ended(ctx) // the claim may have ended runs to replace
	}
	if len(holders) > most {
		h.problem("overlap", "%d runs of %s hold the slot %s, want at most %d", len(holders), r.Name, r.Slot, most)
	}
}

// settle removes holders of slots that no longer hold them, which only the step shows: a run with a
// retry ahead keeps its slot.
func (t *Tap) settle(ctx context.Context, runs []job.ID) {
	for _, id := range runs {
		known := t.history.runs[id]
		if known == nil {
			continue
		}
		if _, err := store.ActiveRun(ctx, t.Store, id); err != nil {
			t.history.free(known.slot, id)
		}
	}
}

// ended checks which holders of slots are over, after a step that may have ended any of them.
func (t *Tap) ended(ctx context.Context) {
	for slot, holders := range t.history.holders {
		for id := range holders {
			if r, err := store.ActiveRun(ctx, t.Store, id); err != nil || !r.HoldsSlot || r.Slot != slot {
				t.history.free(slot, id)
			}
		}
	}
}

// free records that a run no longer holds a slot.
func (h *History) free(slot string, run job.ID) {
	if holders := h.holders[slot]; holders != nil {
		if delete(holders, run); len(holders) == 0 {
			delete(h.holders, slot)
		}
	}
}

// Finish implements [store.Working].
func (t *Tap) Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range results {
		h.named(results[i].Attempt)
		for _, at := range [...]time.Time{results[i].Started, results[i].Ended} {
			if at.After(t.ends().Add(stalledMax)) {
				h.problem("the store's clock", "attempt %d of %s is to have started or ended at %s", results[i].Number, results[i].Run, at)
			}
		}
	}
	out, err := t.Store.Finish(ctx, session, results)
	h.Commits++
	ids := make([]job.ID, 0, len(results))
	for i := range results {
		ids = append(ids, results[i].Run)
		if err == nil && out[i].Accepted && results[i].Outcome == job.OutcomeLost {
			h.takeForLost(results[i].Attempt, t.now())
		}
		// A repeated result of an earlier attempt ends no claim.
		if known := h.runs[results[i].Run]; err == nil && out[i].Accepted && known != nil && known.token == results[i].Token {
			h.closeClaim(results[i].Run, t.ends())
		}
	}
	t.settle(ctx, ids)
	return out, err
}

// takeForLost records when an attempt first counted as lost.
func (h *History) takeForLost(a store.Attempt, now time.Time) {
	if key := (attemptKey{a.Run, a.Number}); h.lost[key].IsZero() {
		h.lost[key] = now
	}
}

// ack notes that a node has the answer to its results.
func (h *History) ack(results []store.Result, out []store.FinishOutcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range results {
		if out[i].Accepted {
			h.acked[attemptKey{results[i].Run, results[i].Number}] = results[i].Outcome
		}
	}
}

// HandOver implements [store.Handovers].
func (t *Tap) HandOver(ctx context.Context, session job.ID, list []store.Handover) ([]store.HandedOver, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	out, err := t.Store.HandOver(ctx, session, list)
	h.Commits++
	for i := range out {
		key := attemptKey{list[i].Attempt.Run, list[i].Attempt.Number}
		if _, known := h.handed[key]; out[i] == store.Handed && !known {
			h.handed[key] = handedOver{list[i].Attempt.Token, t.now(), list[i].Timeout}
			h.HandedOver++
		}
	}
	return out, err
}

// Release implements [store.Working].
func (t *Tap) Release(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.named(attempts...)
	err := t.Store.Release(ctx, session, attempts)
	h.Commits++
	for _, a := range attempts {
		r, gone := store.ActiveRun(ctx, t.Store, a.Run)
		if err == nil && gone == nil && r.Token == a.Token {
			continue // it is handed over, so that its session does not release it
		}
		if key := (attemptKey{a.Run, a.Number}); err == nil && h.handed[key].token == a.Token { // a later claim may reuse the number
			delete(h.handed, key)
		}
		if known := h.runs[a.Run]; err == nil && known != nil && known.token == a.Token {
			h.unclaimed(a.Run)
			h.closeClaim(a.Run, t.ends())
		}
	}
	// A released run keeps its slot until its next claim at most.
	t.ended(ctx)
	return err
}

// Reap implements [store.Working].
func (t *Tap) Reap(ctx context.Context, session job.ID, attempts []store.Attempt) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	running := map[job.ID]store.Run{}
	for _, a := range attempts {
		if r, err := store.ActiveRun(ctx, t.Store, a.Run); err == nil && r.Token == a.Token && r.State == job.StateRunning {
			running[a.Run] = r
		}
	}
	h.named(attempts...)
	err := t.Store.Reap(ctx, session, attempts)
	h.Commits++
	for _, a := range attempts {
		if was, ok := running[a.Run]; ok {
			if r, err := store.ActiveRun(ctx, t.Store, a.Run); err != nil || r.Token != was.Token {
				h.takeForLost(a, t.now())
				h.unclaimed(a.Run)
				h.closeClaim(a.Run, t.ends())
				if was.Session.IsZero() {
					h.problem("handed over", "attempt %d of %s of %s was handed over, and %s has taken it for lost", a.Number, was.Name, was.Due, session)
				}
				t.reaped(session, &was)
			}
		}
	}
	t.ended(ctx)
	return err
}

// Tidy implements [store.Store].
func (t *Tap) Tidy(ctx context.Context) (bool, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	more, err := t.Store.Tidy(ctx)
	h.Commits++
	t.ended(ctx)
	return more, err
}

// Cancel implements [store.Working].
func (t *Tap) Cancel(ctx context.Context, run job.ID, by, reason string) (store.Run, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := t.Store.Cancel(ctx, run, by, reason)
	h.Commits++
	if err == nil {
		h.cancels[run]++
	}
	t.ended(ctx)
	return r, err
}

// PutJobs implements [store.Jobs]. Its answer is the user's.
func (t *Tap) PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	was := make([]*store.Job, len(list)) // nil for a new job
	for i := range list {
		was[i], _ = store.JobNamed(ctx, t.Store, job.DefaultNamespace, list[i].Definition.Name)
	}
	jobs, err := t.Store.PutJobs(ctx, list)
	h.Commits++
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		d := j.Definition
		if was[i] != nil && d.Epoch == was[i].Definition.Epoch && (d.Paused != was[i].Definition.Paused || !slices.Equal(d.Schedule.Cron, was[i].Definition.Schedule.Cron)) {
			h.problem("withdrawn means withdrawn", "%s was paused, resumed or rescheduled, and its epoch is %d as before", d.Name, d.Epoch)
		}
		if was[i] == nil || d.Version > was[i].Definition.Version {
			h.Changes++
		}
		b := h.book(d.UID)
		if b.name == "" {
			b.name, b.created = d.Name, t.now()
		}
		if d.Epoch > b.epoch {
			if was[i] != nil && was[i].Definition.Epoch < d.Epoch { // or its pause has ended
				h.leave(was[i], t.now())
			}
			b.end(t.now())
			b.epochs[d.Epoch] = &span{from: j.Cursor, to: j.Cursor}
			b.planner = job.ID{}
			if !d.Paused && was[i] != nil {
				h.edits = append(h.edits, change{d.UID, d.Epoch, t.now(), j.Filled})
			}
		}
		b.epoch, b.version = d.Epoch, d.Version
		// A pause with an end does not restrict later claims.
		b.paused = d.Paused && list[i].Pause.Until.IsZero()
	}
	t.ended(ctx)
	return jobs, nil
}

// leave records the end of a job's schedule.
func (h *History) leave(was *store.Job, at time.Time) {
	if was.Definition.Paused || was.Deleted {
		return
	}
	s := &was.Filled.Schedule
	if (len(s.Cron) > 0 || s.Every > 0) && (s.MaxRuns == 0 || was.Planned < s.MaxRuns) {
		h.unplanned = append(h.unplanned, endedSchedule{was, at})
	}
}

// end records that users were told of the end of all epochs before a moment.
func (b *book) end(at time.Time) {
	if b.ended[b.epoch].IsZero() {
		b.ended[b.epoch] = at
	}
}

// DeleteJob implements [store.Jobs].
func (t *Tap) DeleteJob(ctx context.Context, d store.DeleteJob) error {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	was, found := store.JobByUID(ctx, t.Store, d.UID)
	err := t.Store.DeleteJob(ctx, d)
	h.Commits++
	if err == nil && found == nil {
		h.leave(was, t.now())
	}
	if err == nil {
		h.Changes++
		b := h.book(d.UID)
		b.deleted = true
		b.end(t.now())
	}
	return err
}

// Trigger implements [store.Planning]. It checks that a key is one run.
func (t *Tap) Trigger(ctx context.Context, items []store.TriggerItem) ([]store.TriggerOutcome, error) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	out, err := t.Store.Trigger(ctx, items)
	h.Commits++
	for i := range out {
		if out[i].Err != nil {
			continue
		}
		key := items[i].Job.String() + string(items[i].Kind) + cmp.Or(items[i].Key, items[i].Scheduled.String())
		if known, ok := h.asked[key]; ok && known != out[i].Run {
			h.problem("once", "the key %s of a request has made the runs %s and %s", items[i].Key, known, out[i].Run)
		}
		h.asked[key] = out[i].Run
	}
	return out, err
}

// Expire implements [store.History]. It removes nothing, since the checker reads all of it.
func (t *Tap) Expire(context.Context, store.Retention) (bool, error) { return false, nil }
