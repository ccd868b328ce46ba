// Package agenda is the mind of a worker: which runs it holds, when each is to be claimed and
// started, what is in flight, and how far ahead of their instants claims go out. It is a
// value: the caller passes the time and what has happened, and asks what to do. It reads no
// clock, calls no store and starts nothing; it is not safe for concurrent use.
//
// A run is held (Hold), becomes pending when it is to be claimed, is claimed in a batch
// (Claims), and by the answer (Answered) dropped, queued again, or the caller's to prepare and
// to queue for its start (Queue). It is then started (Starts) and, once its result is
// reported, forgotten (Reported).
package agenda

import (
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/timer"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// IdleFor is the longest wait for the next claim or start: a clock that is set must be
	// noticed.
	IdleFor = time.Second
	// PageSize is how many runs are read at a time.
	PageSize = 2000
	// HeldMax bounds the runs that are held in memory: some seconds of the highest rate that
	// a store takes. What is beyond is read when there is room again.
	HeldMax = 100_000
)

// Item is a run that the worker holds. P is what the caller keeps with it from its claim on.
type Item[P any] struct {
	Ready   store.ReadyRun
	Attempt store.Attempt // set by its first claim
	State   State
	With    P

	handle uint32
	queued bool // in a queue, not pending
	// planned is set while it is claimed by the step that makes its run.
	planned bool
	// instant is set when the claim must wait for the due time: ahead of it the slot was
	// taken, or the store's clock was behind.
	instant bool
	// again is set when its run was read as ready although it is not: it may have been given
	// the slot that it is to wait for, or its next attempt be due, before the answer that
	// says so has come. It is looked for then.
	again    bool
	answered time.Duration // when its claim was
	edits    int           // how often jobs were known to have changed when its claim was made
	// handedOver is set when the store was asked to note that a receiver outside of Belfry does the work.
	handedOver bool
}

// State is how far an item is.
type State uint8

// The states of an item, in their order.
const (
	Ready    State = iota
	Claiming       // a claim is in flight, or its answer was lost
	Claimed
	Running
	Ended   // its result is being reported
	Carried // it continues without this program
)

// Attempts returns the attempts of items.
func Attempts[P any](items []*Item[P]) []store.Attempt {
	list := make([]store.Attempt, len(items))
	for i, it := range items {
		list[i] = it.Attempt
	}
	return list
}

// Wake is what the caller is to do sooner than it would.
type Wake uint8

// What there may be to do.
const (
	WakeClaims Wake = 1 << iota // Claims may return some
	WakeStarts                  // Starts may return some
	WakeLook                    // runs may be due in a moment: look for them
	WakeReader                  // there is little left to claim: read on
	WakeHeed                    // something was cancelled or changed
)

// Agenda is the mind of a worker. Use New. Its times are those of the monotonic clock, since
// the same moment, where they are durations.
type Agenda[P any] struct {
	capacity int
	laneOf   func(job.ID) int

	items map[job.ID]*Item[P]
	// givenBack has when the claims were answered of the runs that were given back.
	givenBack map[job.ID]time.Duration
	// slots gives the queues small handles for items.
	slots []*Item[P]
	free  []uint32
	// due holds the ready items by due time of the store's clock, instants those of them that
	// are not to be claimed before it, starts the claimed ones by the moment to start on the
	// monotonic clock.
	due, instants, starts timer.Queue
	herds                 map[int64]int // items in due by due time, in steps of herdSpan
	collected             int64         // up to which due time they have left due
	pending               pending[P]
	inFlight              int  // calls that claim, or are to be repeated
	refused               bool // one is to be repeated: nothing helps but time
	claimedSince          int  // runs, since the reader was last woken for them
	busy                  int  // items that take capacity: claimed, running, or with a result to report
	asked, asking         int  // those of them whose claim has no answer yet, and is in flight just now
	leaving               bool
	// stuck is set while results are not taken, full if that is because the store has no space,
	// and noRoom while claims are refused for that.
	stuck, full, noRoom bool
	made                int // claims, since it was last asked
	edits               int // how often jobs are known to have changed
	// hints are those that were not looked for yet, and heeds those that were not heeded.
	hints, heeds store.Hint
	// backlogAt is when all that is overdue is to be read again, if there is plenty to do, and
	// read how far ahead ready runs were read.
	backlogAt time.Duration
	read      store.RunRef
	lead      Lead
	clock     Clock
	forgotten int // how often the clock was forgotten
	wake      Wake
}

// New returns the agenda of a worker that runs at most so many attempts at once. laneOf
// returns the lane of a job, below Lanes.
func New[P any](capacity int, laneOf func(job.ID) int) *Agenda[P] {
	return &Agenda[P]{
		capacity: capacity, laneOf: laneOf, items: map[job.ID]*Item[P]{}, givenBack: map[job.ID]time.Duration{}, herds: map[int64]int{}, lead: leadAtFirst,
		pending: pending[P]{laneOf: laneOf},
	}
}

// Wakes returns what is to be done sooner since it was last called.
func (a *Agenda[P]) Wakes() Wake {
	wake := a.wake
	a.wake = 0
	return wake
}

// Item returns the item of a run, nil if it is not held.
func (a *Agenda[P]) Item(run job.ID) *Item[P] { return a.items[run] }

// Holds reports whether an item is the present one of its run.
func (a *Agenda[P]) Holds(it *Item[P]) bool { return a.items[it.Ready.ID] == it }

// Items calls do for each item in a state, in the same order for the same history.
func (a *Agenda[P]) Items(s State, do func(*Item[P])) {
	for _, it := range a.slots {
		// A ready one may be stale; see Hold.
		if it != nil && it.State == s && (s != Ready || a.Holds(it)) {
			do(it)
		}
	}
}

// AnyBusy reports whether a condition holds for an item that takes capacity: its claim is in
// flight, or it is claimed and has not ended.
func (a *Agenda[P]) AnyBusy(condition func(*Item[P]) bool) bool {
	return slices.ContainsFunc(a.slots, func(it *Item[P]) bool { return it != nil && it.State != Ready && condition(it) })
}

// Load is what there is to do.
type Load struct {
	// Held are the runs that are not claimed, Pending those of them that are to be claimed now.
	Held, Pending int
	// Busy take capacity; Asked are those of them whose claim has no answer, and Asking those
	// whose claim is in flight just now.
	Busy, Asked, Asking int
}

// Load returns what there is to do.
func (a *Agenda[P]) Load() Load {
	return Load{Held: max(0, len(a.items)-a.busy), Pending: a.pending.len(), Busy: a.busy, Asked: a.asked, Asking: a.asking}
}

// Room returns how many runs can be claimed beside those that are pending. A worker that
// leaves has none.
func (a *Agenda[P]) Room() int {
	if a.leaving {
		return 0
	}
	return max(0, a.capacity-a.busy-a.pending.len())
}

// Leave makes the agenda claim nothing more.
func (a *Agenda[P]) Leave() { a.leaving = true }

// IsLeaving reports whether Leave was called.
func (a *Agenda[P]) IsLeaving() bool { return a.leaving }

// Left returns how many attempts a worker that leaves waits for, of which so many have ended and
// are not reported. It does not wait for a store without space for claims or results.
func (a *Agenda[P]) Left(unreported int) int {
	left := a.busy
	if a.noRoom {
		left -= a.asked
	}
	if a.full && left == unreported {
		return 0
	}
	return left
}

// Reports says how a report of results went. While they are not taken, what has ended holds its
// slot, so that nothing is claimed.
func (a *Agenda[P]) Reports(err error) {
	a.stuck, a.full = err != nil, errors.Is(err, store.ErrNoSpace)
}

// Made returns how many claims were made since it was last called.
func (a *Agenda[P]) Made() int {
	made := a.made
	a.made = 0
	return made
}

// Recalled reports whether jobs have changed since the claims of a batch were made: what was claimed
// may be outdated.
func (a *Agenda[P]) Recalled(batch []*Item[P]) bool {
	return slices.ContainsFunc(batch, func(it *Item[P]) bool { return it.edits != a.edits })
}

// Hold takes runs into memory and returns false when there is no more room. read is when the
// reading of them began.
func (a *Agenda[P]) Hold(runs []store.ReadyRun, read time.Duration) bool {
	for i := range runs {
		if len(a.items) >= HeldMax {
			return false
		}
		r := &runs[i]
		known := a.items[r.ID]
		switch {
		case known == nil && read < a.givenBack[r.ID]:
			// It was read before its claim, which is being given back.
		case known == nil:
			delete(a.givenBack, r.ID)
			a.enqueue(a.add(*r))
			a.wake |= WakeClaims
		case known.State == Ready && (known.Ready.Attempt != r.Attempt || !known.Ready.Due.Equal(r.Due)):
			// A retry, or it was put off: what is queued is stale.
			if known.queued {
				a.forget(known)
			} else {
				delete(a.items, r.ID) // take drops it
			}
			a.enqueue(a.add(*r))
			a.wake |= WakeClaims
		case known.State != Ready && read >= known.answered:
			known.again = true
		}
	}
	return true
}

// add makes an item of a run.
func (a *Agenda[P]) add(r store.ReadyRun) *Item[P] {
	it := &Item[P]{Ready: r}
	if n := len(a.free); n > 0 {
		it.handle, a.free = a.free[n-1], a.free[:n-1]
		a.slots[it.handle] = it
	} else {
		it.handle = uint32(len(a.slots))
		a.slots = append(a.slots, it)
	}
	a.items[r.ID] = it
	return it
}

// Adopt takes in a run that an earlier version of the program has started in this process.
func (a *Agenda[P]) Adopt(r store.ReadyRun, attempt store.Attempt) *Item[P] {
	it := a.add(r)
	it.Attempt, it.State = attempt, Running
	a.busy++
	return it
}

// forget drops an item that is in a queue. Its handle is used again once it has left the
// queue: until then the slot is empty.
func (a *Agenda[P]) forget(it *Item[P]) {
	if a.Holds(it) {
		delete(a.items, it.Ready.ID)
	}
	a.slots[it.handle] = nil
}

// drop drops an item that is in no queue.
func (a *Agenda[P]) drop(it *Item[P]) {
	a.forget(it)
	a.free = append(a.free, it.handle)
	if it.again {
		a.Hint(store.HintPlaced) // it may be due in a moment
	}
}

// enqueue puts a ready item where it waits for its time.
func (a *Agenda[P]) enqueue(it *Item[P]) {
	it.queued = true
	if it.instant {
		a.instants.Push(it.Ready.Due.UnixNano(), it.handle)
		return
	}
	a.due.Push(it.Ready.Due.UnixNano(), it.handle)
	a.herds[herdOf(it.Ready.Due)]++
}

// collect moves what is to be claimed from the queues to pending: what is due within the
// lead, and what has waited for its instant. The lead is less than before when a herd has
// left its queue; what comes then and is due no later than the herd leaves it at once.
func (a *Agenda[P]) collect(now time.Time, lead time.Duration) {
	a.collected = max(a.collected, now.Add(lead).UnixNano())
	for _, handle := range a.due.Due(a.collected, nil) {
		if it := a.taken(handle); it != nil {
			herd := herdOf(it.Ready.Due)
			if a.herds[herd]--; a.herds[herd] <= 0 {
				delete(a.herds, herd)
			}
		}
	}
	for _, handle := range a.instants.Due(now.UnixNano(), nil) {
		a.taken(handle)
	}
}

// taken makes an item that has left its queue pending.
func (a *Agenda[P]) taken(handle uint32) *Item[P] {
	it := a.slots[handle]
	if it == nil {
		a.free = append(a.free, handle)
		return nil
	}
	it.queued = false
	a.pending.push(it)
	return it
}

// Claims returns the claims to make at a moment, in at most store.MaxBatch, or how long there
// is nothing to claim. enter is called once to choose a batch by the lanes that other calls
// are in, and returns the lanes of its jobs. newToken makes the token of a claim. A batch must
// be followed by Answered or Refused, and then by Done.
func (a *Agenda[P]) Claims(elapsed time.Duration, enter func(choose func(busy Set) Set) Set, newToken func() (job.ID, error)) (batch []*Item[P], within Set, wait time.Duration) {
	now, known := a.clock.Now(elapsed)
	if !known {
		return nil, 0, IdleFor // WakeClaims follows when it is read
	}
	lead := leadMin
	if first, ok := a.due.Next(); ok {
		if lead = a.leadFor(first); time.Unix(0, first).Sub(now) <= lead {
			lead += claimSpan
		}
	}
	a.collect(now, lead)

	room := a.capacity - a.busy
	if a.leaving || a.stuck {
		room = 0
	}
	most := store.MaxBatch
	if a.inFlight > 0 && (a.refused || a.pending.len() < store.MaxBatch) {
		most = 0 // the call in flight is followed by the next
	}
	within = enter(func(busy Set) (within Set) {
		batch, within = a.take(most, room, busy, newToken)
		return within
	})
	a.sent(batch)
	if len(batch) > 0 {
		a.inFlight++
		a.claimedSince += len(batch)
		if a.claimedSince >= PageSize && a.pending.len() < store.MaxBatch {
			a.claimedSince = 0
			a.wake |= WakeReader
		}
		if a.pending.len() >= store.MaxBatch {
			a.wake |= WakeClaims // for another call; without room it would only ask again
		}
	}
	wait = IdleFor
	if first, ok := a.due.Next(); ok {
		wait = min(wait, time.Unix(0, first).Sub(now)-a.leadFor(first))
	}
	if first, ok := a.instants.Next(); ok {
		wait = min(wait, time.Unix(0, first).Sub(now))
	}
	return batch, within, max(0, wait)
}

// take takes the claims of a batch, and returns the lanes of their jobs. There is room for so
// many new ones.
func (a *Agenda[P]) take(most, room int, busy Set, newToken func() (job.ID, error)) (batch []*Item[P], within Set) {
	choice := a.pending.len() >= choiceFrom
	for len(batch) < most {
		lane, ok := a.pending.first(choice, within, busy)
		if !ok {
			break
		}
		it := a.pending.lanes[lane][0]
		if !a.Holds(it) {
			a.pending.pop(lane)
			a.drop(it)
			continue
		}
		if it.State == Ready {
			// Without room the others may take it over: that is the balancing of load. A
			// result that is reported wakes the claims.
			if room <= 0 {
				break
			}
			// The token is made before the claim: repeated after a lost answer, it is the
			// same claim.
			token, err := newToken()
			if err != nil {
				break
			}
			it.Attempt = store.Attempt{Job: it.Ready.Job, Run: it.Ready.ID, Number: it.Ready.Attempt, Token: token}
			it.State = Claiming
			a.busy++
			a.asked++
			room--
		}
		batch = append(batch, a.pending.pop(lane))
		within.Add(lane)
	}
	return batch, within
}

// Reserve takes runs that a step is to make and to claim, as far as there is room for them
// beside what is pending, and returns the claims of the first of them. The batch must be
// followed by Answered or Refused.
func (a *Agenda[P]) Reserve(runs []store.ReadyRun, newToken func() (job.ID, error)) (batch []*Item[P]) {
	room := min(a.Room(), HeldMax-len(a.items))
	if a.stuck || a.clock.n == 0 {
		return nil
	}
	for _, r := range runs[:max(0, min(len(runs), room))] {
		if a.items[r.ID] != nil {
			break // an earlier try of the step has made it, and it was found since
		}
		token, err := newToken()
		if err != nil {
			break
		}
		it := a.add(r)
		it.Attempt = store.Attempt{Job: r.Job, Run: r.ID, Number: r.Attempt, Token: token}
		it.State, it.planned = Claiming, true
		batch = append(batch, it)
	}
	a.busy += len(batch)
	a.asked += len(batch)
	a.sent(batch)
	return batch
}

// sent notes that claims are made.
func (a *Agenda[P]) sent(batch []*Item[P]) {
	a.asking += len(batch)
	a.made += len(batch)
	for _, it := range batch {
		it.edits = a.edits
	}
}

// Stall says that a call has failed: until Done no other is made, since nothing helps but time.
func (a *Agenda[P]) Stall() { a.refused = true }

// Refused takes a batch back whose claim has failed. The runs may be ours: they are asked for
// again, with the same tokens.
func (a *Agenda[P]) Refused(batch []*Item[P], err error) {
	a.asking -= len(batch)
	a.noRoom = errors.Is(err, store.ErrNoSpace)
	a.Stall()
	for _, it := range batch {
		it.planned = false
		a.pending.push(it)
	}
	a.wake |= WakeClaims
}

// Done says that the call of a batch is over, and the rest after one that was refused.
func (a *Agenda[P]) Done() {
	a.refused = false
	a.inFlight--
}

// Answered acts on the answer to the claims of a batch, which was sent and has come at two
// moments, and returns the items that were started: they are to be prepared, and queued for
// their start. It uses the memory of the batch.
func (a *Agenda[P]) Answered(batch []*Item[P], outcomes []store.ClaimOutcome, sent, answered time.Duration) (started []*Item[P]) {
	a.asking -= len(batch)
	a.noRoom = false
	if len(batch) > 0 && !batch[0].planned { // a plan takes longer
		a.lead.measured(answered-sent, len(batch), answered)
	}
	started = batch[:0]
	for i, it := range batch {
		a.asked--
		it.planned = false
		switch outcome := &outcomes[i]; outcome.Verdict {
		case store.Started:
			it.Attempt.Number = outcome.Run.Attempt
			it.again, it.answered = false, answered
			started = append(started, it)
			continue
		case store.Early:
			if now, known := a.clock.Now(answered); !known || !now.Before(it.Ready.Due) {
				// The store's clock was put back: what it shows now is true.
				a.ForgetClock()
				a.clock.Sample(outcome.Now, answered)
			}
			it.State, it.instant, it.again = Ready, true, false
			a.enqueue(it)
		default:
			a.drop(it)
		}
		a.busy--
	}
	return started
}

// Prepared says that started items can be started or released from now on.
func (a *Agenda[P]) Prepared(started []*Item[P]) {
	for _, it := range started {
		it.State = Claimed
	}
}

// Queue queues items that were claimed for their start, those that were not released
// meanwhile. theirs is what the store's clock showed in the answer, which was sent for and
// came at two moments; due returns when an item is due.
func (a *Agenda[P]) Queue(started []*Item[P], theirs time.Time, sent, answered, elapsed time.Duration, due func(*Item[P]) time.Time) {
	now := theirs.Add(elapsed - answered) // at least
	// What was read before is more exact, unless that clock was put back since: the claim was
	// decided when it was sent or later. Stores keep times to the microsecond.
	if better, known := a.clock.Now(elapsed); known && better.After(now) && better.Before(now.Add(answered-sent+time.Microsecond)) {
		now = better
	}
	for _, it := range started {
		if !a.Holds(it) {
			a.free = append(a.free, it.handle)
			continue
		}
		// Never before the due time by the store's clock, nor later than a claim can be made
		// ahead of it, if that clock is set just now.
		wait := min(max(0, due(it).Sub(now)), store.ClaimAhead)
		a.starts.Push(int64(elapsed+wait), it.handle)
	}
	a.wake |= WakeStarts
}

// Starts returns the items to start now, which run from then on, or the time to the next.
func (a *Agenda[P]) Starts(elapsed time.Duration) (begin []*Item[P], wait time.Duration) {
	for _, handle := range a.starts.Due(int64(elapsed), nil) {
		switch it := a.slots[handle]; {
		case it == nil:
			a.free = append(a.free, handle)
		case it.State == Claimed:
			it.State = Running
			begin = append(begin, it)
		}
	}
	if len(begin) > 0 {
		return begin, 0 // time has passed when they are started
	}
	wait = IdleFor
	if next, ok := a.starts.Next(); ok {
		wait = min(wait, time.Duration(next)-elapsed)
	}
	return nil, wait
}

// Release gives back those of some items that are claimed, have not started and are chosen, and
// returns them: the store is to be told.
func (a *Agenda[P]) Release(items []*Item[P], choose func(*Item[P]) bool) (released []*Item[P]) {
	for _, it := range items {
		if it.State == Claimed && a.Holds(it) && choose(it) {
			a.giveBack(it)
			released = append(released, it)
		}
	}
	return released
}

func (a *Agenda[P]) giveBack(it *Item[P]) {
	a.forget(it)
	if len(a.givenBack) >= HeldMax {
		clear(a.givenBack) // a claim in vain does no harm
	}
	a.givenBack[it.Ready.ID] = it.answered
	a.busy--
	a.wake |= WakeClaims
}

// HandOver says that the store is asked to note that a receiver outside of Belfry does the work of an item
// that runs: it is not to end because the store does not take it for this node's any more.
func (a *Agenda[P]) HandOver(it *Item[P]) { it.handedOver = true }

// Reported forgets an item whose result, or release, the store has acknowledged.
func (a *Agenda[P]) Reported(it *Item[P]) {
	a.drop(it)
	a.busy--
	a.wake |= WakeClaims
}

// Compare compares what the store believes this node to run with what is held. before are the
// items that ran when the question was asked. It returns the attempts that are nowhere here,
// so that they were never started: the answer to their claim was lost. cancelled is called
// for each that must end as its run says, and taken for each that the store knows no
// more.
func (a *Agenda[P]) Compare(mine []store.Run, before []*Item[P], cancelled func(*Item[P], *store.Run), taken func(*Item[P])) (unknown []store.Attempt) {
	believed := make(map[job.ID]bool, len(mine))
	for i := range mine {
		r := &mine[i]
		believed[r.Token] = true
		switch it := a.items[r.ID]; {
		case it == nil || it.State == Ready:
			unknown = append(unknown, r.Present())
		case r.CancelBy != "" && it.Attempt.Token == r.Token && (it.State == Claimed || it.State == Running):
			cancelled(it, r)
		}
	}
	for _, it := range before {
		if !believed[it.Attempt.Token] && it.State == Running && !it.handedOver && a.Holds(it) {
			taken(it)
		}
	}
	return unknown
}

// Now returns what the store's clock shows, at least, and whether that is known.
func (a *Agenda[P]) Now(elapsed time.Duration) (now time.Time, known bool) {
	return a.clock.Now(elapsed)
}

// Sample takes a reading of the store's clock into account that was received at a moment.
// Asked is what Forgotten returned before the clock was read: a clock that was set meanwhile
// is to be read again.
func (a *Agenda[P]) Sample(theirs time.Time, received time.Duration, asked int) {
	if a.forgotten != asked {
		return
	}
	if a.clock.n == 0 {
		a.wake |= WakeClaims // which wait for it
	}
	a.clock.Sample(theirs, received)
}

// Forgotten returns how often the store's clock was forgotten.
func (a *Agenda[P]) Forgotten() int { return a.forgotten }

// ForgetClock forgets what the store's clock showed, which was set. The queues only move
// forward: a clock that was put back needs others. What is claimed stays: it goes by the
// monotonic clock.
func (a *Agenda[P]) ForgetClock() {
	a.clock, a.read = Clock{}, store.RunRef{}
	a.forgotten++
	a.due, a.instants, a.collected = timer.Queue{}, timer.Queue{}, 0
	clear(a.herds)
	a.pending.deleteFunc(func(it *Item[P]) bool { return it.State == Ready })
	for _, it := range a.slots {
		if it != nil && it.State == Ready {
			a.enqueue(it)
		}
	}
}

// All returns the items in a state, in the same order for the same history.
func (a *Agenda[P]) All(s State) (list []*Item[P]) {
	a.Items(s, func(it *Item[P]) { list = append(list, it) })
	return list
}

// Clock is what the store's clock shows, at least, so that going by it nothing starts early.
// It goes by the monotonic clock of the node, so that a wall clock that is set, or wrong, makes
// nothing early or late.
type Clock struct {
	samples [8]time.Time // what it showed at the least when the monotonic clock began
	n       int
}

// Sample takes a reading into account that was received at a moment of the monotonic clock.
func (c *Clock) Sample(theirs time.Time, received time.Duration) {
	c.samples[c.n%len(c.samples)] = theirs.Add(-received)
	c.n++
}

// Now returns what it shows, at least, and whether that is known.
func (c *Clock) Now(elapsed time.Duration) (now time.Time, known bool) {
	if c.n == 0 {
		return time.Time{}, false
	}
	return slices.MaxFunc(c.samples[:min(c.n, len(c.samples))], time.Time.Compare).Add(elapsed), true
}
