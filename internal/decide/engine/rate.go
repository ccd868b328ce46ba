package engine

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A run that the rate of its pool does not let start waits in the line of the rate, a slot of its own.
// The first runs in a line hold it: they are ready, and due when their turns come. Only a claim that
// starts an attempt moves the next turn, so that a run that leaves the line costs none.

// pool is a pool, or the line of its rate, in a batch.
type pool struct {
	slots *job.Slots // nil for an undeclared one
	turn  time.Time  // of the next start, if starts are evenly spread
	by    []job.ID   // the jobs whose starts moved it
}

// LineTurn is the next turn of a line after a step.
type LineTurn struct {
	Line string // the name in its slot, as PoolOfSlot returns it
	At   time.Time
	By   []job.ID // the jobs whose starts moved it
}

const (
	// inLine begins the names of lines in the place of pools: no pool has a space in its name.
	inLine = "rate "
	// turnsAhead is how far ahead turns are given: further than a run is claimed, so that a line
	// does not wait for the node of the run before.
	turnsAhead = 2 * store.ClaimAhead
	// allowedMax is how many runs wait in a line for one with overlap allow, which names no
	// queue_limit: its largest value.
	allowedMax = 10_000
	// turnSlack is how much earlier than its turn a run may start: due times are whole milliseconds.
	turnSlack = time.Millisecond
)

// PoolOfLine returns the pool of a line, and reports whether a name in the place of a pool is that of a
// line.
func PoolOfLine(name string) (pool string, isLine bool) { return strings.CutPrefix(name, inLine) }

// IsLine reports whether a name in the place of a pool is that of a line.
func IsLine(name string) bool { return strings.HasPrefix(name, inLine) }

// RateOf returns the pool whose rate bounds a run, "" for none. Own is set if the job names it apart
// from the pool of its slots.
func (p *Policy) RateOf(r *job.Run) (pool string, own bool) {
	switch {
	case p.RateKey != nil:
		return p.RateKey.Of(r.Params), true
	case p.Rate != "":
		return p.Rate, true
	}
	return p.PoolOf(r), false
}

// ByParams reports whether the parameters of a run choose its pools.
func (p *Policy) ByParams() bool { return p.Key != nil || p.RateKey != nil }

// PoolsOf returns the pools and lines that a claim of a run may use, by their names in slots.
func (p *Policy) PoolsOf(r *job.Run, all Documents) (names []string) {
	if name := p.PoolOf(r); name != "" {
		names = append(names, name)
	}
	if name, own := p.RateOf(r); own || name != "" && hasRate(all.Slots(name)) {
		names = append(names, inLine+name)
	}
	return names
}

func hasRate(s *job.Slots) bool { return s != nil && s.Rate != nil }

// lookRate reports whether the line of a run is known, or requests it.
func (b *Batch) lookRate(n *Need, p *Policy, r *store.Run) bool {
	name, own := p.RateOf(&r.Run)
	if name == "" || !own && !hasRate(b.pools[name].slots) {
		return true
	}
	return b.lookSlot(n, PoolSlot(inLine+name), r)
}

// rateOf returns the rate of a run and the slot of its line, nil for none.
func (b *Batch) rateOf(p *Policy, r *store.Run) (line string, rate *job.Rate) {
	name, own := p.RateOf(&r.Run)
	if name == "" || !own && !hasRate(b.poolOf(name).slots) {
		return "", nil
	}
	line = PoolSlot(inLine + name)
	if of := b.poolOf(inLine + name); hasRate(of.slots) {
		return line, of.slots.Rate
	}
	return "", nil
}

// turnAt returns when a run may start that is the n-th in a line, no earlier than a time.
func (b *Batch) turnAt(line string, from time.Time, n int) time.Time {
	p := b.poolOf(line[len(poolSlot):])
	if !hasRate(p.slots) {
		return from
	}
	rate := p.slots.Rate
	wait := time.Duration(min(float64(n)*float64(rate.Spacing()), math.MaxInt64/4)) // a long line may take centuries
	return lastOf(lastOf(p.turn, from).Add(wait-rate.Early()), from)
}

// spend takes the turn of an attempt that starts.
func (b *Batch) spend(j *Job, r *store.Run) {
	line, rate := b.rateOf(j.Policy, r)
	if rate == nil {
		return
	}
	name := line[len(poolSlot):]
	p := b.pools[name]
	p.turn, p.by = lastOf(p.turn, lastOf(b.now, r.Due)).Add(rate.Spacing()), append(p.by, r.JobUID)
	b.pools[name] = p
}

// turns returns the turns that the batch has moved.
func (b *Batch) turns() (list []LineTurn) {
	for name, p := range b.pools {
		if len(p.by) > 0 {
			list = append(list, LineTurn{name, p.turn, p.by})
		}
	}
	slices.SortFunc(list, func(a, b LineTurn) int { return strings.Compare(a.Line, b.Line) })
	return list
}

// freeTurns returns how many more runs in a line get their turns now: one at a time.
func (b *Batch) freeTurns(line string) int {
	switch n := b.holders(line); {
	case !hasRate(b.poolOf(line[len(poolSlot):]).slots):
		return math.MaxInt
	case n == 0 || !b.turnAt(line, b.now, n).After(b.now.Add(turnsAhead)):
		return 1
	}
	return 0
}

// moves reports whether a slot is a line in which a run has a turn: its claim gives out the next ones.
func (b *Batch) moves(slot string) bool {
	name, pooled := PoolOfSlot(slot)
	return pooled && IsLine(name) && b.holders(slot) > 0
}

// giveTurn makes a run in a line due at its turn.
func (b *Batch) giveTurn(m *member) {
	at := b.turnAt(m.Slot, b.now, b.holders(m.Slot))
	m.State, m.HoldsSlot = job.StateReady, true
	b.awaitTurn(m, at, b.outOfTurn(m.Slot, at))
}

// awaitTurn makes a run due at its turn.
func (b *Batch) awaitTurn(m *member, at time.Time, why job.Reason) {
	m.FirstDue, m.Reason, m.redated = firstDue(&m.Run), why, true
	m.Due = at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	b.save(m)
	b.hint(m.Due)
}

// outOfTurn explains why a run does not start before a time.
func (b *Batch) outOfTurn(line string, until time.Time) (none job.Reason) {
	name := line[len(poolSlot):]
	if p := b.poolOf(name); hasRate(p.slots) {
		rate := p.slots.Rate
		return reason.OutOfTurn.Of(name[len(inLine):], rate.Limit, time.Duration(rate.Per), until)
	}
	return none
}

// redate gives the runs that hold a line new turns, after a change of its rate.
func (b *Batch) redate(line string) {
	var holding []*member
	for _, m := range b.slot(line) {
		if !m.removed && m.HoldsSlot {
			holding = append(holding, m)
		}
	}
	slices.SortFunc(holding, func(x, y *member) int { return x.Ref().Compare(y.Ref()) })
	for i, m := range holding {
		at := b.turnAt(line, b.now, i)
		b.awaitTurn(m, at, b.outOfTurn(line, at))
	}
}

// limited decides about a due run that has no turn: it waits in the line, or ends by its overlap
// policy. A run that was let out of the line and waited for its slot since, or is between two attempts,
// precedes the line.
func (b *Batch) limited(j *Job, m *member, s *store.Session, line string, held bool) (out store.ClaimOutcome, yes bool) {
	r := &m.Run
	inTurn := held || r.HoldsSlot && r.Slot == line
	if !inTurn {
		if b.now.Before(r.Due) {
			return b.answer(store.Early, m), true
		}
		b.giveUp(m)
		b.moveSlot(m, line)
		b.fill(line)
	}
	start := lastOf(b.now, r.Due)
	at := b.turnAt(line, start, 0)
	if at.Sub(start) < turnSlack && (inTurn || !b.isLong(m)) {
		return out, false
	}
	if inTurn && (!held || !r.First.IsZero()) { // another attempt took the turn
		b.awaitTurn(m, at, b.outOfTurn(line, at))
		return b.answer(store.Waiting, m), true
	}
	why := b.outOfTurn(line, b.turnAt(line, b.now, b.holders(line)+b.queued(line)))
	switch overlap := j.Policy.overlap(r); {
	case held:
		b.giveUp(m)
		b.moveSlot(m, line)
	case r.Shards > 0 || j.Policy.Broadcast: // the runs of an occurrence do not exclude each other
	case overlap == job.OverlapSkip:
		b.conclude(m, job.OutcomeSkipped, why)
		return b.answer(store.Skipped, m), true
	case overlap == job.OverlapReplace:
		if later := b.replacedBy(m); later != nil {
			b.conclude(m, job.OutcomeSkipped, reason.TookPlace.Of(later.ID, later.Scheduled))
			return b.answer(store.Skipped, m), true
		}
		b.replace(m, s)
		b.fill(line)
	default:
		limit := j.Policy.QueueLimit
		if overlap == job.OverlapAllow {
			limit = allowedMax
		}
		if n := b.queued(line) + b.holders(line); r.Overlap == "" && n >= limit {
			b.conclude(m, job.OutcomeSkipped, reason.QueueFull.Of(why, n))
			return b.answer(store.Skipped, m), true
		}
	}
	if b.freeTurns(line) > 0 {
		b.giveTurn(m)
	} else {
		r.State, r.Reason = job.StateWaiting, why
		b.save(m)
	}
	return b.answer(store.Waiting, m), true
}

// isLong reports whether other runs are in the line of a run.
func (b *Batch) isLong(m *member) bool {
	return b.more[m.Slot] > 0 || slices.ContainsFunc(b.slot(m.Slot), func(o *member) bool {
		return o != m && !o.removed && (o.HoldsSlot || b.waits(o))
	})
}
