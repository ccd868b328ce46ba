// Package runqueue makes the decisions of a worker: which runs it holds, when to claim and start
// each, which calls are in flight, and how far ahead of their due times claims are sent. It is a
// value: the caller passes the time and events, and asks for the next actions. It reads no clock,
// calls no store and starts no goroutine; it is not safe for concurrent use.
//
// A run is held (Hold), becomes pending when it is claimable, is claimed in a batch (Claims) and,
// depending on the answer (Answered), dropped, queued again, or returned to the caller, who
// prepares it and queues it for its start (Enqueue). It is then started (Starts) and, once its
// result is reported, removed (Reported).
package runqueue

import (
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/timer"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// IdleFor is the longest wait for the next claim or start: a clock that is set must be
	// noticed.
	IdleFor = time.Second
	// PageSize is how many runs one read returns.
	PageSize = 2000
	// HeldMax bounds the runs that are held in memory: some seconds of the highest rate of a store.
	// Further runs are read when there is room again.
	HeldMax = 100_000
)

// Item is a run that the worker holds. P is the caller's data, set at its claim.
type Item[P any] struct {
	Ready   store.ReadyRun
	Attempt store.Attempt // set by its first claim
	State   State
	With    P

	handle uint32
	queued bool // in a queue, not pending
	// planned is set while the step that creates the run also claims it.
	planned bool
	// instant is set when the claim must wait for the due time: an earlier one found the slot
	// taken, or the store's clock behind.
	instant bool
	// notBefore is the store's time before which the claim is not repeated, in nanoseconds.
	notBefore int64
	// again is set when its run was read as ready although it is not: the answer that frees its
	// slot or schedules its next attempt may still be on the way. Then the run is read again.
	again    bool
	answered time.Duration // when its claim was answered
	edits    int           // count of known job changes at its claim
	// handedOver is set once the store was asked to record a receiver outside of Belfry.
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
	Ended     // its result is being reported
	Continues // it continues in the next program
)

// Attempts returns the attempts of items.
func Attempts[P any](items []*Item[P]) []store.Attempt {
	list := make([]store.Attempt, len(items))
	for i, it := range items {
		list[i] = it.Attempt
	}
	return list
}

// Wake tells the caller which actions to take early.
type Wake uint8

// The early actions.
const (
	WakeClaims Wake = 1 << iota // Claims may return claims
	WakeStarts                  // Starts may return items
	WakeLook                    // runs may be due soon: poll
	WakeReader                  // few claimable runs are left: read more
	WakeRevoke                  // jobs or runs were cancelled or changed
)

// Queue makes the decisions of a worker. Use [New]. Durations are times of the monotonic
// clock, since a fixed moment.
type Queue[P any] struct {
	capacity int
	stripeOf func(job.ID) int

	items map[job.ID]*Item[P]
	// givenBack has the times at which the claims of released runs were answered.
	givenBack map[job.ID]time.Duration
	// slots gives the queues small handles for items.
	slots []*Item[P]
	free  []uint32
	// due holds the ready items by due time of the store's clock, instants the items that must not
	// be claimed before it, and starts the claimed items by their start on the monotonic clock.
	due, instants, starts timer.Queue
	herds                 map[int64]int // number of items in due by due time, in steps of herdSpan
	collected             int64         // due time up to which items have left due
	pending               pending[P]
	inFlight              int  // number of claim calls in flight or to repeat
	refused               bool // a claim call must be repeated after a backoff
	claimedSince          int  // claims since the reader was last woken for more
	busy                  int  // items that take capacity: claimed, running or unreported
	asked, asking         int  // number of items whose claims lack an answer, and whose claims are in flight
	leaving               bool
	// stuck is set while results are refused, full if that is for lack of space, and noRoom while
	// claims are refused for that.
	stuck, full, noRoom bool
	claimCount          int // claims since the last call of Made
	edits               int // count of known job changes
	// hints are hints before their poll, and revocations revoking hints before their effect.
	hints, revocations store.Hint
	// backlogAt is when to read the whole backlog again, if plenty is pending, and read how far
	// ahead runs were read.
	backlogAt time.Duration
	read      store.RunRef
	lead      Lead
	clock     Clock
	forgotten int // how often the clock was forgotten
	wake      Wake
}

// New returns the queue of a worker with a capacity in attempts. stripeOf returns the stripe
// of a job, below [Stripes].
func New[P any](capacity int, stripeOf func(job.ID) int) *Queue[P] {
	return &Queue[P]{
		capacity: capacity, stripeOf: stripeOf, items: map[job.ID]*Item[P]{}, givenBack: map[job.ID]time.Duration{}, herds: map[int64]int{}, lead: leadAtFirst,
		pending: pending[P]{stripeOf: stripeOf},
	}
}

// Wakes returns the early actions requested since the last call.
func (a *Queue[P]) Wakes() Wake {
	wake := a.wake
	a.wake = 0
	return wake
}

// Item returns the item of a held run, or nil.
func (a *Queue[P]) Item(run job.ID) *Item[P] { return a.items[run] }

// Holds reports whether an item is the present one of its run.
func (a *Queue[P]) Holds(it *Item[P]) bool { return a.items[it.Ready.ID] == it }

// Items calls do for each item in a state, in the same order for the same history.
func (a *Queue[P]) Items(s State, do func(*Item[P])) {
	for _, it := range a.slots {
		// A ready item may be stale: see Hold.
		if it != nil && it.State == s && (s != Ready || a.Holds(it)) {
			do(it)
		}
	}
}

// AnyBusy reports whether an item that takes capacity meets a condition: its claim is in flight, or
// it is claimed and has not ended.
func (a *Queue[P]) AnyBusy(condition func(*Item[P]) bool) bool {
	return slices.ContainsFunc(a.slots, func(it *Item[P]) bool { return it != nil && it.State != Ready && condition(it) })
}

// Load is the amount of work.
type Load struct {
	// Held is the number of unclaimed runs, and Pending how many of them are claimable now.
	Held, Pending int
	// Busy is the number of runs that take capacity. Of them, Asked have a claim without an answer,
	// and Asking a claim in flight.
	Busy, Asked, Asking int
}

// Load returns the amount of work.
func (a *Queue[P]) Load() Load {
	return Load{Held: max(0, len(a.items)-a.busy), Pending: a.pending.len(), Busy: a.busy, Asked: a.asked, Asking: a.asking}
}

// Room returns how many more runs can be claimed beside the pending ones. A leaving worker
// has none.
func (a *Queue[P]) Room() int {
	if a.leaving {
		return 0
	}
	return max(0, a.capacity-a.busy-a.pending.len())
}

// Leave stops further claims.
func (a *Queue[P]) Leave() { a.leaving = true }

// IsLeaving reports whether Leave was called.
func (a *Queue[P]) IsLeaving() bool { return a.leaving }

// Left returns the number of attempts that a leaving worker waits for, given the number of
// ended, unreported ones. It does not wait for a store that is out of space for claims or
// results.
func (a *Queue[P]) Left(unreported int) int {
	left := a.busy
	if a.noRoom {
		left -= a.asked
	}
	if a.full && left == unreported {
		return 0
	}
	return left
}

// Reports records the success of a report of results. While reports fail, ended attempts
// hold their slots, so that nothing is claimed.
func (a *Queue[P]) Reports(err error) {
	a.stuck, a.full = err != nil, errors.Is(err, store.ErrNoSpace)
}

// Made returns the number of claims since its last call.
func (a *Queue[P]) Made() int {
	claims := a.claimCount
	a.claimCount = 0
	return claims
}

// Recalled reports whether jobs have changed since the claims of a batch, so that they may be
// stale.
func (a *Queue[P]) Recalled(batch []*Item[P]) bool {
	return slices.ContainsFunc(batch, func(it *Item[P]) bool { return it.edits != a.edits })
}

// Hold takes runs into memory and returns false when there is no more room. read is when their
// reading began.
func (a *Queue[P]) Hold(runs []store.ReadyRun, read time.Duration) bool {
	for i := range runs {
		if len(a.items) >= HeldMax {
			return false
		}
		r := &runs[i]
		known := a.items[r.ID]
		switch {
		case known == nil && read < a.givenBack[r.ID]:
			// It was read before its claim, which is being released.
		case known == nil:
			delete(a.givenBack, r.ID)
			a.enqueue(a.add(*r))
			a.wake |= WakeClaims
		case known.State == Ready && (known.Ready.Attempt != r.Attempt || !known.Ready.Due.Equal(r.Due)):
			// A retry, or a postponed run: the queued item is stale.
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
func (a *Queue[P]) add(r store.ReadyRun) *Item[P] {
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

// Adopt adds a run that an earlier version of the program has started in this process.
func (a *Queue[P]) Adopt(r store.ReadyRun, attempt store.Attempt) *Item[P] {
	it := a.add(r)
	it.Attempt, it.State = attempt, Running
	a.busy++
	return it
}

// forget drops an item that is in a queue. Its handle is reused once it has left the queue: until
// then the slot is empty.
func (a *Queue[P]) forget(it *Item[P]) {
	if a.Holds(it) {
		delete(a.items, it.Ready.ID)
	}
	a.slots[it.handle] = nil
}

// drop drops an item that is in no queue.
func (a *Queue[P]) drop(it *Item[P]) {
	a.forget(it)
	a.free = append(a.free, it.handle)
	if it.again {
		a.Hint(store.HintPlaced) // it may be due soon
	}
}

// enqueue queues a ready item by its time.
func (a *Queue[P]) enqueue(it *Item[P]) {
	it.queued = true
	if it.instant {
		a.instants.Push(max(it.Ready.Due.UnixNano(), it.notBefore), it.handle)
		return
	}
	a.due.Push(it.Ready.Due.UnixNano(), it.handle)
	a.herds[herdOf(it.Ready.Due)]++
}

// collect moves claimable items from the queues to pending: items due within the lead, and items
// whose instant has come. After a herd has left its queue the lead may shrink; new items due no
// later than the herd then leave at once.
func (a *Queue[P]) collect(now time.Time, lead time.Duration) {
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

// taken moves an item that has left its queue to pending.
func (a *Queue[P]) taken(handle uint32) *Item[P] {
	it := a.slots[handle]
	if it == nil {
		a.free = append(a.free, handle)
		return nil
	}
	it.queued = false
	a.pending.push(it)
	return it
}

// Claims returns the claims to make at a moment, at most [store.MaxBatch], or the time until the next
// claim. enter is called once to choose a batch outside the stripes of other calls, and returns the
// stripes of its jobs. newToken generates the token of a claim. A batch must be followed by
// Answered or Refused, and then by Done.
func (a *Queue[P]) Claims(elapsed time.Duration, enter func(choose func(busy Set) Set) Set, newToken func() (job.ID, error)) (batch []*Item[P], within Set, wait time.Duration) {
	now, known := a.clock.Now(elapsed)
	if !known {
		return nil, 0, IdleFor // a reading of the clock sets WakeClaims
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
			a.wake |= WakeClaims // for another call; without room it would only be called in vain
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

// take takes the claims of a batch, new ones only while there is room, and returns the stripes of
// their jobs.
func (a *Queue[P]) take(most, room int, busy Set, newToken func() (job.ID, error)) (batch []*Item[P], within Set) {
	choice := a.pending.len() >= choiceFrom
	for len(batch) < most {
		stripe, ok := a.pending.first(choice, within, busy)
		if !ok {
			break
		}
		it := a.pending.stripes[stripe][0]
		if !a.Holds(it) {
			a.pending.pop(stripe)
			a.drop(it)
			continue
		}
		if it.State == Ready {
			// Without room other nodes may take it over, which balances the load. A reported result
			// sets WakeClaims.
			if room <= 0 {
				break
			}
			// The token precedes the claim: repeated after a lost answer, it is the same claim.
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
		batch = append(batch, a.pending.pop(stripe))
		within.Add(stripe)
	}
	return batch, within
}

// Reserve adds runs that a step is about to create and claim, as far as pending runs leave room,
// and returns their claims. The batch must be followed by Answered or Refused.
func (a *Queue[P]) Reserve(runs []store.ReadyRun, newToken func() (job.ID, error)) (batch []*Item[P]) {
	room := min(a.Room(), HeldMax-len(a.items))
	if a.stuck || a.clock.n == 0 {
		return nil
	}
	for _, r := range runs[:max(0, min(len(runs), room))] {
		if a.items[r.ID] != nil {
			break // an earlier try of the step has created it, and a poll has found it
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

// sent records that claims are in flight.
func (a *Queue[P]) sent(batch []*Item[P]) {
	a.asking += len(batch)
	a.claimCount += len(batch)
	for _, it := range batch {
		it.edits = a.edits
	}
}

// Stall records a failed call: no other call follows before Done, after a backoff.
func (a *Queue[P]) Stall() { a.refused = true }

// Refused queues a batch again after a failed call. The claims may have succeeded: they are retried
// with the same tokens.
func (a *Queue[P]) Refused(batch []*Item[P], err error) {
	a.asking -= len(batch)
	a.noRoom = errors.Is(err, store.ErrNoSpace)
	a.Stall()
	for _, it := range batch {
		it.planned = false
		a.pending.push(it)
	}
	a.wake |= WakeClaims
}

// Done records the end of a batch's call, including the backoff after a failure.
func (a *Queue[P]) Done() {
	a.refused = false
	a.inFlight--
}

// Answered acts on the answer to the claims of a batch, given the times of request and answer, and
// returns the started items, which the caller then prepares and queues for their start. It reuses
// the memory of the batch.
func (a *Queue[P]) Answered(batch []*Item[P], outcomes []store.ClaimOutcome, sent, answered time.Duration) (started []*Item[P]) {
	a.asking -= len(batch)
	a.noRoom = false
	if len(batch) > 0 && !batch[0].planned { // planning takes longer
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
			if !outcome.Now.Before(it.Ready.Due) { // another node reports first
				it.notBefore = outcome.Now.Add(store.ClaimAgain).UnixNano()
			} else if now, known := a.clock.Now(answered); !known || !now.Before(it.Ready.Due) {
				// The store's clock was set back: its present time counts.
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

// Prepared marks started items as ready to be started or released.
func (a *Queue[P]) Prepared(started []*Item[P]) {
	for _, it := range started {
		it.State = Claimed
	}
}

// Enqueue queues claimed items for their start, except those released since. theirs is the store's
// time in the answer, with the times of request and answer; due returns when an item is due.
func (a *Queue[P]) Enqueue(started []*Item[P], theirs time.Time, sent, answered, elapsed time.Duration, due func(*Item[P]) time.Time) {
	now := theirs.Add(elapsed - answered) // at least
	// An earlier reading is more exact, unless the clock was set back since: the claim was decided
	// after the request. Stores keep times to the microsecond.
	if better, known := a.clock.Now(elapsed); known && better.After(now) && better.Before(now.Add(answered-sent+time.Microsecond)) {
		now = better
	}
	for _, it := range started {
		if !a.Holds(it) {
			a.free = append(a.free, it.handle)
			continue
		}
		// Never before the due time by the store's clock, and bounded by how early a claim can be,
		// in case that clock was just set.
		wait := min(max(0, due(it).Sub(now)), store.ClaimAhead)
		a.starts.Push(int64(elapsed+wait), it.handle)
	}
	a.wake |= WakeStarts
}

// Starts returns the items to start now, which run from then on, or the time to the next.
func (a *Queue[P]) Starts(elapsed time.Duration) (begin []*Item[P], wait time.Duration) {
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
		return begin, 0 // time passes until they are started
	}
	wait = IdleFor
	if next, ok := a.starts.Next(); ok {
		wait = min(wait, time.Duration(next)-elapsed)
	}
	return nil, wait
}

// Release releases the chosen items that are claimed and not started, and returns them for
// the report to the store.
func (a *Queue[P]) Release(items []*Item[P], choose func(*Item[P]) bool) (released []*Item[P]) {
	for _, it := range items {
		if it.State == Claimed && a.Holds(it) && choose(it) {
			a.giveBack(it)
			released = append(released, it)
		}
	}
	return released
}

func (a *Queue[P]) giveBack(it *Item[P]) {
	a.forget(it)
	if len(a.givenBack) >= HeldMax {
		clear(a.givenBack) // a useless claim does no harm
	}
	a.givenBack[it.Ready.ID] = it.answered
	a.busy--
	a.wake |= WakeClaims
}

// HandOver marks a running item before its handover is recorded, so that it does not end when the
// store no longer counts it as this node's.
func (a *Queue[P]) HandOver(it *Item[P]) { it.handedOver = true }

// Reported removes an item whose result, or release, the store has acknowledged.
func (a *Queue[P]) Reported(it *Item[P]) {
	a.drop(it)
	a.busy--
	a.wake |= WakeClaims
}

// Compare compares the store's list of this node's attempts with the held ones. before are the
// items that were running at the request. It returns unknown attempts, which were never started:
// the answer to their claim was lost. It calls cancelled for each cancelled item, and taken for
// each that the store no longer has.
func (a *Queue[P]) Compare(mine []store.Run, before []*Item[P], cancelled func(*Item[P], *store.Run), taken func(*Item[P])) (unknown []store.Attempt) {
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

// Now returns a lower bound of the store's clock, and whether it is known.
func (a *Queue[P]) Now(elapsed time.Duration) (now time.Time, known bool) {
	return a.clock.Now(elapsed)
}

// Sample records a reading of the store's clock received at a moment. asked is the result of
// Forgotten before the reading: if the clock was set since, it must be read again.
func (a *Queue[P]) Sample(theirs time.Time, received time.Duration, asked int) {
	if a.forgotten != asked {
		return
	}
	if a.clock.n == 0 {
		a.wake |= WakeClaims // claims wait for it
	}
	a.clock.Sample(theirs, received)
}

// Forgotten returns how often the store's clock was forgotten.
func (a *Queue[P]) Forgotten() int { return a.forgotten }

// ForgetClock discards the readings of the store's clock, which was set. The queues only move
// forward, so that a clock set back needs new ones. Claimed items stay: they follow the monotonic
// clock.
func (a *Queue[P]) ForgetClock() {
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
func (a *Queue[P]) All(s State) (list []*Item[P]) {
	a.Items(s, func(it *Item[P]) { list = append(list, it) })
	return list
}

// Clock estimates a lower bound of the store's clock, so that nothing starts early. It
// follows the node's monotonic clock, so that a wrong or changed wall clock has no effect.
type Clock struct {
	samples [8]time.Time // lower bounds of the store's time at the monotonic time 0
	n       int
}

// Sample adds a reading received at a moment of the monotonic clock.
func (c *Clock) Sample(theirs time.Time, received time.Duration) {
	c.samples[c.n%len(c.samples)] = theirs.Add(-received)
	c.n++
}

// Now returns a lower bound of the store's time, and whether it is known.
func (c *Clock) Now(elapsed time.Duration) (now time.Time, known bool) {
	if c.n == 0 {
		return time.Time{}, false
	}
	return slices.MaxFunc(c.samples[:min(c.n, len(c.samples))], time.Time.Compare).Add(elapsed), true
}
