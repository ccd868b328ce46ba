package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// An attempt that was handed over is running and belongs to no session. A handover is changed
// only in steps that have read its run, so that a store need not lock or compare more.

// isHandedOver reports whether a receiver outside of Belfry does the work of a run.
func isHandedOver(r *store.Run) bool {
	return r.State == job.StateRunning && r.Session.IsZero() && !isFlow(r)
}

// handovers are the handovers added to a batch.
type handovers struct {
	byNumber map[int64]*store.Handover
	asked    map[int64]bool  // for by number
	ofRun    map[job.ID]bool // all unfinished handovers of the run are loaded
	last     int64           // last reserved number
	hasLast  bool
	changed  []*store.Handover
}

// AddHandover adds a copy of a handover. An existing one stays unchanged.
func (b *Batch) AddHandover(h *store.Handover) {
	if b.handovers.byNumber[h.Number] == nil {
		own := *h
		put(&b.handovers.byNumber, h.Number, &own)
	}
}

// UseNumber adds the last number that was reserved, 0 if none was.
func (b *Batch) UseNumber(last int64) { b.handovers.last, b.handovers.hasLast = last, true }

// lookHandover requests a handover by its number.
func (b *Batch) lookHandover(n *Need, number int64) {
	if !b.handovers.asked[number] {
		ask(&n.asked.handovers, &n.Handovers, number, number)
	}
}

// lookHandoversOf requests the open handovers of a run.
func (b *Batch) lookHandoversOf(n *Need, ref RunRef) {
	if !b.handovers.ofRun[ref.Run] {
		ask(&n.asked.handedOver, &n.HandedOver, ref.Run, ref)
	}
}

func (b *Batch) answeredHandovers(n *Need) {
	for _, number := range n.Handovers {
		put(&b.handovers.asked, number, true)
	}
	for _, ref := range n.HandedOver {
		put(&b.handovers.ofRun, ref.Run, true)
	}
}

func (b *Batch) handover(number int64) *store.Handover {
	h := b.handovers.byNumber[number]
	b.missing(h != nil || b.handovers.asked[number], "handover", number)
	return h
}

func (b *Batch) saveHandover(h *store.Handover) {
	if !slices.Contains(b.handovers.changed, h) {
		b.handovers.changed = append(b.handovers.changed, h)
		b.done.Handovers = append(b.done.Handovers, h)
	}
}

// endHandover ends a handover whose attempt is over, or that another handover has
// replaced.
func (b *Batch) endHandover(h *store.Handover) {
	if !h.IsOver() {
		h.Ask, h.Ended = time.Time{}, b.now
		b.saveHandover(h)
	}
}

// runsUnder reports whether the attempt of a handover is running, and handed over.
func (b *Batch) runsUnder(h *store.Handover) (m *member, yes bool) {
	m = b.run(h.Attempt.Run)
	return m, m != nil && !m.removed && runs(m, h.Attempt) && isHandedOver(&m.Run)
}

// askNow makes the next keeper poll a run that must end.
func (b *Batch) askNow(m *member) {
	if isHandedOver(&m.Run) {
		b.done.AskNow = append(b.done.AskNow, AskNow{Run: m.ID, Job: m.JobUID, At: b.now})
	}
}

// Numbers reserves numbers: see [store.Handovers].
type Numbers struct {
	N     int
	From  int64
	First int64
}

// Need requests the last number.
func (o *Numbers) Need(b *Batch, n *Need) { n.Number = !b.handovers.hasLast }

// Decide reserves them.
func (o *Numbers) Decide(b *Batch) error {
	b.missing(b.handovers.hasLast, "the last number", "")
	o.First = max(b.handovers.last+1, o.From)
	b.done.Number = o.First + int64(o.N) - 1
	b.handovers.last = b.done.Number
	return nil
}

// HandOver records the receivers of attempts: see [store.Handovers].
type HandOver struct {
	Session  job.ID
	List     []store.Handover
	Outcomes []store.HandedOver
}

// Need requests the runs, the numbers, and the earlier handovers of the runs.
func (o *HandOver) Need(b *Batch, n *Need) {
	for i := range o.List {
		h := &o.List[i]
		b.lookHandover(n, h.Number)
		again := slices.ContainsFunc(o.List[:i], func(e store.Handover) bool { return e.Attempt.Run == h.Attempt.Run })
		if m, _ := b.lookRun(n, refOf(&h.Attempt)); m != nil && (again || isHandedOver(&m.Run)) {
			b.lookHandoversOf(n, refOf(&h.Attempt))
		}
	}
}

// Decide records each of them, if its attempt allows.
func (o *HandOver) Decide(b *Batch) error {
	o.Outcomes = sized(o.Outcomes, len(o.List))
	for i := range o.List {
		o.Outcomes[i] = b.handOver(o.Session, &o.List[i])
	}
	return nil
}

// handOver records a handover before it is sent, under a number of one attempt, so that nothing is
// sent twice.
func (b *Batch) handOver(session job.ID, given *store.Handover) store.HandedOver {
	m := b.run(given.Attempt.Run)
	known := b.handover(given.Number)
	switch {
	case known != nil && known.Attempt != given.Attempt:
		return store.HandNumbers
	case m == nil || m.removed || !runs(m, given.Attempt) || m.Session != session && !m.Session.IsZero():
		return store.HandGone
	case m.CancelBy != "":
		return store.HandEnding
	case known != nil && known.IsOver():
		return store.HandGone // a later handover has replaced it
	case known != nil:
		return store.Handed // its answer was lost
	}
	if m.Session.IsZero() {
		for _, h := range b.openHandovers(m) {
			b.endHandover(h)
		}
	} else {
		put(&b.handovers.ofRun, m.ID, true) // a run of a session has no handovers; this is the first
	}
	own := *given
	own.Sent, own.Seen, own.Ended = b.now, time.Time{}, time.Time{}
	own.Ask = b.now.Add(store.AskAgain)
	put(&b.handovers.byNumber, own.Number, &own)
	b.saveHandover(&own)
	m.Session = job.ID{}
	b.save(m)
	return store.Handed
}

// openHandovers returns the open handovers of a run, by number.
func (b *Batch) openHandovers(m *member) (list []*store.Handover) {
	b.missing(!isHandedOver(&m.Run) || b.handovers.ofRun[m.ID], "the handovers of run", m.ID)
	for _, number := range slices.Sorted(maps.Keys(b.handovers.byNumber)) {
		if h := b.handovers.byNumber[number]; h.Attempt.Run == m.ID && !h.IsOver() {
			list = append(list, h)
		}
	}
	return list
}

// ToAsk gives handovers to a caller that polls them: see [store.Handovers]. The candidates need not
// be due or running. If a step was committed in part and repeated, the next call returns that part.
type ToAsk struct {
	Given []store.Handover
	Taken []store.Outstanding
}

// Need requests the handovers and their runs.
func (o *ToAsk) Need(b *Batch, n *Need) { lookGiven(b, n, o.Given) }

func lookGiven(b *Batch, n *Need, list []store.Handover) {
	for i := range list {
		b.lookHandover(n, list[i].Number)
		b.lookRun(n, refOf(&list[i].Attempt))
	}
}

// Decide decides about each handover.
func (o *ToAsk) Decide(b *Batch) error {
	o.Taken = o.Taken[:0]
	for i := range o.Given {
		h := b.handover(o.Given[i].Number)
		if h == nil || h.IsOver() {
			continue
		}
		m, running := b.runsUnder(h)
		if !running {
			b.endHandover(h)
			continue
		}
		if h.Ask.After(b.now) {
			continue // another caller has it
		}
		h.Ask = b.now.Add(store.AskAgain)
		b.saveHandover(h)
		o.Taken = append(o.Taken, store.Outstanding{Handover: *h, Run: m.Run, Now: b.now})
	}
	return nil
}

// Asked records the answers of receivers: see [store.Handovers].
type Asked struct{ List []store.Answer }

// Need requests the handovers and their runs.
func (o *Asked) Need(b *Batch, n *Need) {
	for i := range o.List {
		h := &o.List[i].Handover
		b.lookHandover(n, h.Number)
		b.lookRun(n, refOf(&h.Attempt))
	}
}

// Decide decides about each answer.
func (o *Asked) Decide(b *Batch) error {
	for i := range o.List {
		a := &o.List[i]
		h := b.handover(a.Handover.Number)
		if h == nil || h.IsOver() {
			continue
		}
		if _, running := b.runsUnder(h); !running {
			b.endHandover(h)
			continue
		}
		if a.Seen {
			h.Seen = b.now
		}
		if a.About != "" {
			h.About = a.About
		}
		if h.Ask.Equal(a.Handover.Ask) {
			h.Ask = b.now.Add(a.Next)
		}
		b.saveHandover(h)
	}
	return nil
}
