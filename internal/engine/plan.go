package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
)

const (
	// OnTime is how long an occurrence may have been due when it is planned and
	// still counts as on time: a restart of a node is not downtime.
	OnTime = 30 * time.Second
	// countMax is how far missed occurrences are counted: a job that was due
	// every second for a year must not cost seconds.
	countMax = 10_000
)

// Timing is what decides when a job is planned.
type Timing struct {
	UID      job.ID
	Schedule cron.Schedule
	// Planned is set for a job that falls due by its schedule: by cron, every or at.
	Planned bool
	Jitter  time.Duration
	Spread  time.Duration
	Missed  job.Missed
	// MissedLimit is how many occurrences job.MissedAll catches up.
	MissedLimit int
	// LateBy is how late a run may start; negative is without end.
	LateBy time.Duration
	// MaxRuns is how many occurrences become runs; 0 is without end.
	MaxRuns int
}

// Decision is what to plan for a job.
type Decision struct {
	// To is the cursor to move to; it is the old one when there is nothing to
	// plan.
	To     time.Time
	Due    []Occurrence
	Missed []Span
	// Complete says that nothing follows.
	Complete bool
	// Next is the first scheduled time after To, zero when nothing follows.
	Next time.Time
}

// Occurrence is one due moment of a job.
type Occurrence struct {
	Scheduled time.Time
	Due       time.Time // later than Scheduled by jitter and spread
}

// Span is occurrences that are recorded as missed.
type Span struct {
	First, Last time.Time
	Count       int // at most countMax are counted
	Reason      string
}

// Decide says what to plan for a job whose cursor stands at a scheduled time, of
// which planned occurrences have become runs, at the moment now and as far as
// ahead; at most so many occurrences.
//
// What was due longer ago than OnTime was missed and follows the policy, in one decision
// whatever the number. The rest is planned in order, in as many decisions as it
// takes: one after another they give what a single one would.
func (t *Timing) Decide(cursor time.Time, planned int, now time.Time, ahead time.Duration, most int) Decision {
	d := Decision{To: cursor}
	left := math.MaxInt // of max_runs
	if t.MaxRuns > 0 {
		left = t.MaxRuns - planned
	}
	next := t.Schedule.Next(cursor)
	if fresh := t.fresh(cursor, now); !next.IsZero() && next.Before(fresh) && left > 0 {
		left -= t.catchUp(&d, next, fresh.Add(-1), now, left, "no node planned it in time")
		next = t.Schedule.Next(d.To)
	}
	left = min(left, most)
	for left > 0 && !next.IsZero() && !next.After(now.Add(ahead)) {
		following := t.Schedule.Next(next)
		d.Due = append(d.Due, Occurrence{Scheduled: next, Due: t.due(next, following)})
		d.To, next = next, following
		left--
	}
	if t.MaxRuns > 0 && planned+len(d.Due) >= t.MaxRuns {
		next = time.Time{}
	}
	d.Next, d.Complete = next, next.IsZero()
	return d
}

// fresh returns the moment from which on what is scheduled is on time: what is due
// OnTime ago or later, which spread and jitter may have put off for long.
func (t *Timing) fresh(cursor, now time.Time) time.Time {
	due := now.Add(-OnTime)
	from := due
	if t.Spread > 0 {
		from = from.Add(-t.share(t.Spread, "spread", 0))
	}
	// Jitter never goes as far as the next occurrence: only the last one before
	// may be due behind it.
	if t.Jitter > 0 && cursor.Before(from) {
		if last := latest(t.Schedule, cursor, from.Add(-1), 1); len(last) > 0 && !t.due(last[0], t.Schedule.Next(last[0])).Before(due) {
			return last[0]
		}
	}
	return from
}

// Resume says what to make up for of the time of a pause, from a cursor to now: the
// occurrences that a policy other than that of the job catches up, for once.
func (t *Timing) Resume(policy job.Missed, cursor time.Time, planned int, now time.Time) Decision {
	once := *t
	once.Missed, once.MissedLimit = policy, cmp.Or(t.MissedLimit, job.DefaultMissedLimit)
	d := Decision{To: cursor}
	left := math.MaxInt
	if t.MaxRuns > 0 {
		left = t.MaxRuns - planned
	}
	if first := t.Schedule.Next(cursor); !first.IsZero() && !first.After(now) && left > 0 {
		once.catchUp(&d, first, now, now, left, "the job was paused")
	}
	d.To = now
	return d
}

// catchUp applies the policy to the occurrences from first to last, which were
// missed for some reason, and returns how many it has caught up, at most left.
func (t *Timing) catchUp(d *Decision, first, last, now time.Time, left int, why string) int {
	want := 0
	reason := why + ", and the missed policy is none"
	switch t.Missed {
	case job.MissedLatest:
		want = 1
		reason = why + ", and the missed policy is latest: a later one runs"
	case job.MissedAll:
		want = t.MissedLimit
		reason = fmt.Sprintf("%s, and at most %d are caught up", why, t.MissedLimit)
	}
	var late time.Time // before it an occurrence is too late to be caught up
	if t.LateBy >= 0 {
		late = now.Add(-t.LateBy)
	}
	caught := latest(t.Schedule, first.Add(-1), last, min(want, left))
	for _, o := range caught {
		if due := t.due(o, t.Schedule.Next(o)); !due.Before(late) {
			d.Due = append(d.Due, Occurrence{Scheduled: o, Due: due})
		}
	}
	caught = caught[len(caught)-len(d.Due):]

	// Everything before the first that is caught up is one record.
	until := last
	if len(caught) > 0 {
		until = caught[0].Add(-1)
	}
	if span, ok := t.span(first, until); ok {
		span.Reason = reason
		if t.LateBy >= 0 && t.due(span.Last, t.Schedule.Next(span.Last)).Before(late) {
			span.Reason = fmt.Sprintf("%s, and it may start at most %s late", why, job.Duration(t.LateBy))
		}
		d.Missed = append(d.Missed, span)
	}
	// Between the caught up ones nothing is left out, and behind the last
	// there is nothing before the end.
	if len(caught) > 0 {
		d.To = caught[len(caught)-1]
	} else {
		d.To = d.Missed[len(d.Missed)-1].Last
	}
	return len(caught)
}

// span counts the occurrences from first, which is one, to last.
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

// latest returns the last n occurrences after one moment and up to another. It
// looks at windows that end there and double, so that the cost follows n and
// not the time.
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
		due = due.Add(t.share(t.Spread, "spread", 0))
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

// share returns a part of a duration that is always the same for a job, a
// purpose and a number.
func (t *Timing) share(most time.Duration, purpose string, n int64) time.Duration {
	return share(t.UID, most, purpose, n)
}

// share returns a part of a duration, in whole milliseconds, by a hash of an id,
// a purpose and a number.
func share(id job.ID, most time.Duration, purpose string, n int64) time.Duration {
	steps := uint64(max(0, most)/time.Millisecond) + 1
	text := append(append([]byte(nil), id[:]...), purpose...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, uint64(n)))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%steps) * time.Millisecond
}
