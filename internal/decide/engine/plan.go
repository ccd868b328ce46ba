package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// OnTime is how overdue an occurrence may be when it is planned and still count as on
	// time: a restart of a node is not downtime. After one, only the latest counts.
	OnTime = 30 * time.Second
	// countMax bounds the count of missed occurrences: a job that was due every second
	// for a year must not take seconds.
	countMax = 10_000
)

// Timing determines when a job is planned.
type Timing struct {
	UID      job.ID
	Schedule cron.Schedule
	// Planned is set for a job that falls due by its schedule: by cron, every or at.
	Planned bool
	Jitter  time.Duration
	Spread  time.Duration
	Missed  job.Missed
	// MissedLimit is the most occurrences that [job.MissedAll] catches up.
	MissedLimit int
	// LateBy is how late a run may start; negative is without end.
	LateBy time.Duration
	// MaxRuns is the most occurrences that become runs; 0 is without end.
	MaxRuns int
	// Serial is set for a job that catches up on all missed occurrences with runs that wait for
	// each other or a pool.
	Serial bool
}

// Progress is how far a job is planned.
type Progress struct {
	Cursor  time.Time
	Planned int // number of occurrences with runs
	// CatchUp is the result of the previous decision: the end of the remaining catch-up.
	CatchUp time.Time
}

// Most bounds the occurrences of a decision: missed ones to catch up on, and those on time.
type Most struct{ Missed, OnTime int }

// Decision is what to plan for a job.
type Decision struct {
	// To is the new cursor; the old one if nothing is planned.
	To     time.Time
	Due    []Occurrence
	Missed []Span
	// CatchUp is the end of the missed occurrences after To that further decisions catch up
	// on, zero for none.
	CatchUp time.Time
	// Complete is set if no occurrence follows.
	Complete bool
	// Next is the first scheduled time after To, zero if no occurrence follows.
	Next time.Time
}

// Occurrence is one due moment of a job.
type Occurrence struct {
	Scheduled time.Time
	Due       time.Time // Scheduled plus jitter and spread
	NextDue   time.Time // due time of the following occurrence, zero for none
}

// Span is a sequence of missed occurrences with one record.
type Span struct {
	First, Last time.Time
	Count       int // at most countMax
	Reason      job.Reason
}

// Decide returns the plan for a job at the moment now and as far as ahead.
//
// Occurrences due longer ago than [OnTime] are missed and follow the policy. So do those due longer
// than [OnTime] before the end of an absence of all nodes, or before a later occurrence due in it.
// Occurrences are planned in order, in any number of decisions with the same result.
func (t *Timing) Decide(from Progress, now time.Time, ahead time.Duration, most Most, absences ...store.Absence) Decision {
	d := Decision{To: from.Cursor}
	left := math.MaxInt // of max_runs
	if t.MaxRuns > 0 {
		left = t.MaxRuns - from.Planned
	}
	next := t.Schedule.Next(from.Cursor)
	if !next.IsZero() && left > 0 {
		if !next.After(from.CatchUp) {
			t.catchUp(&d, gap{next, from.CatchUp, job.Reason{}, absences, false}, next, now, min(left, most.Missed))
		} else if fresh, followed := t.onTimeFrom(from.Cursor, now, absences); next.Before(fresh) {
			t.makeUp(&d, gap{next, fresh.Add(-1), job.Reason{}, absences, followed}, now, left, most.Missed)
		}
		next = t.Schedule.Next(d.To)
	}
	if left = min(left-len(d.Due), most.OnTime); !d.CatchUp.IsZero() {
		left = 0
	}
	for left > 0 && !next.IsZero() && !next.After(now.Add(ahead)) {
		following := t.Schedule.Next(next)
		d.Due = append(d.Due, Occurrence{Scheduled: next, Due: t.due(next, following)})
		d.To, next = next, following
		left--
	}
	if t.MaxRuns > 0 && from.Planned+len(d.Due) >= t.MaxRuns {
		next, d.CatchUp = time.Time{}, time.Time{}
	}
	d.Next, d.Complete = next, next.IsZero()
	t.chain(d.Due, next)
	return d
}

// chain sets the due time of the next occurrence in each one. next is the scheduled time after the
// last, zero for none.
func (t *Timing) chain(due []Occurrence, next time.Time) {
	for i := range due {
		switch {
		case i+1 < len(due):
			due[i].NextDue = due[i+1].Due
		case !next.IsZero():
			due[i].NextDue = t.dueAt(next)
		}
	}
}

// dueAt returns when the occurrence that is scheduled for a moment is due.
func (t *Timing) dueAt(scheduled time.Time) time.Time {
	var following time.Time
	if t.Jitter > 0 {
		following = t.Schedule.Next(scheduled)
	}
	return t.due(scheduled, following)
}

// Begin returns the cursor for planning from a moment on: all later due occurrences follow it, even
// if they are scheduled earlier and delayed by spread and jitter.
func (t *Timing) Begin(at time.Time) time.Time {
	due := at.Add(1)
	return t.dueFrom(due.Add(-t.Spread-t.Jitter), due).Add(-1)
}

// dueFrom returns the earliest scheduled time after a cursor that may be due at a moment or
// later, given the delays of spread and jitter.
func (t *Timing) dueFrom(cursor, due time.Time) time.Time {
	from := due
	if t.Spread > 0 {
		from = from.Add(-SpreadOf(t.UID, t.Spread))
	}
	// Jitter never reaches the next occurrence: only the last one before the moment may be due
	// after it.
	if t.Jitter > 0 && cursor.Before(from) {
		if last := latest(t.Schedule, cursor, from.Add(-1), 1); len(last) > 0 && !t.due(last[0], t.Schedule.Next(last[0])).Before(due) {
			return last[0]
		}
	}
	return from
}

// onTimeFrom returns the earliest scheduled time after a cursor that counts as on time. followed is
// set if it is the latest one due in an absence of all nodes.
func (t *Timing) onTimeFrom(cursor, now time.Time, absences []store.Absence) (from time.Time, followed bool) {
	due := onTimeFrom(now, absences)
	from = t.dueFrom(cursor, due)
	for _, a := range absences {
		if a.To.Before(due) {
			continue
		}
		if last := t.lastDue(cursor, a); !last.IsZero() && !last.Before(from) {
			from, followed = last, true
		}
	}
	return from, followed
}

// lastDue returns the latest scheduled time after a cursor that fell due in an absence, zero for
// none.
func (t *Timing) lastDue(cursor time.Time, a store.Absence) time.Time {
	until := a.To
	if t.Spread > 0 {
		until = until.Add(-SpreadOf(t.UID, t.Spread))
	}
	// Jitter never reaches the next occurrence: only the last one may be due later.
	for _, scheduled := range slices.Backward(latest(t.Schedule, cursor, until, 2)) {
		switch due := t.dueAt(scheduled); {
		case due.After(a.To):
		case due.Before(a.From):
			return time.Time{}
		default:
			return scheduled
		}
	}
	return time.Time{}
}

// Resume returns the occurrences of a pause to catch up on once: those due until now, by another
// policy than the job's.
func (t *Timing) Resume(policy job.Missed, from Progress, now time.Time) Decision {
	once := *t
	once.Missed, once.MissedLimit = policy, cmp.Or(t.MissedLimit, job.DefaultMissedLimit)
	d := Decision{To: from.Cursor}
	left := math.MaxInt
	if t.MaxRuns > 0 {
		left = t.MaxRuns - from.Planned
	}
	end := t.Begin(now)
	if first := t.Schedule.Next(from.Cursor); !first.IsZero() && !first.After(end) && left > 0 {
		once.makeUp(&d, gap{first, end, reason.JobPaused.Of("", job.Reason{}), nil, false}, now, left, math.MaxInt)
	}
	d.To = end
	return d
}

// gap is a sequence of missed occurrences, from the first one up to a moment.
type gap struct {
	first, last time.Time
	why         job.Reason // none if no node planned them in time
	absences    []store.Absence
	followed    bool // a later occurrence is on time: it is the latest
}

// makeUp applies the policy to a gap. It catches up on at most the first left occurrences, which
// max_runs allows, within the bound of the decision.
func (t *Timing) makeUp(d *Decision, g gap, now time.Time, left, most int) {
	want := 0
	switch t.Missed {
	case job.MissedLatest:
		if !g.followed {
			want = 1
		}
	case job.MissedAll:
		want = t.MissedLimit
	}
	begin := g.last.Add(1) // start of the catch-up
	if caught := latest(t.Schedule, g.first.Add(-1), g.last, want); len(caught) > 0 {
		begin = caught[0]
	}
	t.catchUp(d, g, begin, now, min(left, most))
}

// catchUp plans the occurrences of a gap from a moment on, within a bound. Earlier ones, and ones
// that are too late, are missed.
func (t *Timing) catchUp(d *Decision, g gap, begin, now time.Time, most int) {
	var late time.Time // occurrences before it are too late
	if t.LateBy >= 0 {
		late = now.Add(-t.LateBy)
	}
	next := begin
	for !next.IsZero() && !next.After(g.last) && len(d.Due) < most {
		following := t.Schedule.Next(next)
		if due := t.due(next, following); !due.Before(late) {
			d.Due = append(d.Due, Occurrence{Scheduled: next, Due: due})
		}
		next = following
	}
	if !next.IsZero() && !next.After(g.last) {
		d.CatchUp = g.last
	}

	// All occurrences before the first caught-up one are one record.
	until := g.last
	if len(d.Due) > 0 {
		until = d.Due[0].Scheduled.Add(-1)
		d.To = d.Due[len(d.Due)-1].Scheduled
	}
	if span, ok := t.span(g.first, until); ok {
		first, last := t.dueAt(span.First), t.dueAt(span.Last)
		why := g.why
		if why.IsZero() {
			why = whyUnplanned(first, last, g.absences)
		}
		span.Reason = whyMissed(why, t.Missed, t.MissedLimit)
		if last.Before(late) {
			span.Reason = reason.MissedLate.Of(why, t.LateBy)
		}
		d.Missed = append(d.Missed, span)
		if len(d.Due) == 0 {
			d.To = span.Last
		}
	}
}

// span counts the occurrences from first, itself an occurrence, to last.
func (t *Timing) span(first, last time.Time) (Span, bool) {
	if first.After(last) {
		return Span{}, false
	}
	s := Span{First: first, Last: first, Count: 1}
	for next := t.Schedule.Next(first); !next.IsZero() && !next.After(last); next = t.Schedule.Next(next) {
		s.Last = next
		if s.Count++; s.Count == countMax {
			if end := latest(t.Schedule, next, last, 1); len(end) > 0 {
				s.Last = end[0]
			}
			break
		}
	}
	return s, true
}

// latest returns the last n occurrences after one moment and up to another. It examines
// doubling windows that end there, so that the cost grows with n and not with the time.
func latest(s cron.Schedule, after, until time.Time, n int) []time.Time {
	if n <= 0 {
		return nil
	}
	for window := time.Minute; ; window *= 2 {
		from := until.Add(-window)
		whole := !from.After(after)
		if whole {
			from = after
		}
		var found []time.Time
		for o := range cron.Between(s, from, until) {
			if found = append(found, o); len(found) > 2*n {
				found = append(found[:0], found[len(found)-n:]...)
			}
		}
		if whole || len(found) >= n {
			return found[max(0, len(found)-n):]
		}
	}
}

// due returns when the occurrence is due: later by the spread of the job and the
// jitter of the occurrence. Both are hashes, so that all nodes agree and the
// preview shows them.
func (t *Timing) due(scheduled, following time.Time) time.Time {
	due := scheduled
	if t.Spread > 0 {
		due = due.Add(SpreadOf(t.UID, t.Spread))
	}
	if jitter := t.Jitter; jitter > 0 {
		if !following.IsZero() {
			// Never as late as the next occurrence.
			jitter = min(jitter, following.Sub(scheduled)-time.Millisecond)
		}
		due = due.Add(t.share(jitter, "jitter", scheduled.UnixNano()))
	}
	return due
}

// share returns a fixed part of a duration for a job, a purpose and a number.
func (t *Timing) share(most time.Duration, purpose string, n int64) time.Duration {
	return share(t.UID, most, purpose, n)
}

// SpreadOf returns by how much a spread delays all occurrences of a job.
func SpreadOf(id job.ID, spread time.Duration) time.Duration { return share(id, spread, "spread", 0) }

// share returns a part of a duration, in whole milliseconds, by a hash of an id,
// a purpose and a number.
func share(id job.ID, most time.Duration, purpose string, n int64) time.Duration {
	steps := uint64(max(0, most)/time.Millisecond) + 1
	text := append(append([]byte(nil), id[:]...), purpose...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(n)))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%steps) * time.Millisecond
}
