package cron

import (
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// ClockChange is the treatment of civil times that a change of the clock skips or repeats.
// Every change of a zone's offset counts, daylight saving or not.
type ClockChange uint8

// The rules for changes of the clock. A wildcard schedule is one whose second, minute or
// hour begins with a star; all others have fixed times.
const (
	// Vixie is the behaviour of cron. A skipped fixed time runs once, at the first instant
	// after the gap, and a repeated one runs on the first pass. A wildcard schedule follows
	// real time. A change of 3 hours or more is a correction of the clock: no run is added
	// or suppressed.
	Vixie ClockChange = iota
	// Literal runs whenever the clock shows the time: never in a gap, twice
	// in a fold.
	Literal
	// SkipOnce drops skipped times and runs repeated ones on the first pass.
	SkipOnce
	// ShiftOnce moves skipped times later by the length of the gap and runs repeated ones
	// on the first pass.
	ShiftOnce
	// SkipLast drops skipped times and runs repeated ones on the last pass, as Java's
	// Quartz does.
	SkipLast
)

var clockChangeNames = [...]string{
	Vixie: "vixie", Literal: "literal", SkipOnce: "skip_once", ShiftOnce: "shift_once", SkipLast: "skip_last",
}

// String returns the name of the rule, as [ParseClockChange] takes it.
func (c ClockChange) String() string { return nameOf(clockChangeNames[:], uint8(c)) }

// ParseClockChange returns the rule of a name: vixie, literal, skip_once,
// shift_once or skip_last.
func ParseClockChange(name string) (ClockChange, error) {
	i, err := indexOfName(phrase.RuleOfClock, clockChangeNames[:], name)
	return ClockChange(i), err
}

// correction is the smallest change that [Vixie] treats as a correction of the clock, as
// cronie does.
const correction = 3 * secondsPerHour

// reach is longer than any two offsets differ, so that instants and civil times
// can be compared across zones with this much room.
const reach = 2 * secondsPerDay

// gapRule is the treatment of the civil times in a gap.
type gapRule uint8

const (
	lost    gapRule = iota // they do not run
	caught                 // they run once, at the end of the gap
	shifted                // each runs later by the length of the gap
)

// inGap returns the treatment of a gap with a length in seconds.
func (e *Expression) inGap(length int64) gapRule {
	switch {
	case e.clockChange == ShiftOnce:
		return shifted
	case e.clockChange == Vixie && !e.has(wildcard) && length < correction:
		return caught
	default:
		return lost
	}
}

// foldRule is the treatment of the civil times in a fold.
type foldRule uint8

const (
	bothPasses foldRule = iota
	firstPass
	lastPass
)

// inFold returns the treatment of a fold with a length in seconds.
func (e *Expression) inFold(length int64) foldRule {
	switch e.clockChange {
	case SkipOnce, ShiftOnce:
		return firstPass
	case SkipLast:
		return lastPass
	case Vixie:
		if !e.has(wildcard) && length < correction {
			return firstPass
		}
	}
	return bothPasses
}

// span returns the civil seconds from first to last in which segment i lets the expression
// run: all of it, without the suppressed pass of a fold. Both ends are included.
func (e *Expression) span(i int) (first, last int64) {
	segments := e.zone.segments
	s := segments[i]
	first = s.start + s.offset
	if i > 0 {
		if fold := segments[i-1].offset - s.offset; fold > 0 && e.inFold(fold) == firstPass {
			first += fold
		}
	}
	last = e.zone.end(i) + s.offset - 1
	if i+1 < len(segments) {
		if fold := s.offset - segments[i+1].offset; fold > 0 && e.inFold(fold) == lastPass {
			last -= fold
		}
	}
	return first, last
}

// onOrAfterInstant returns the first occurrence at or after an instant.
//
// It goes from segment to segment, but a search in civil time that finds nothing
// up to a time c has ruled out all segments before c as well, so that it takes
// a few steps whatever the distance.
func (e *Expression) onOrAfterInstant(from int64) (int64, bool) {
	z := e.zone
	for i := z.segmentAt(from); ; {
		s := z.segments[i]
		if u, ok := e.firstFromGap(i, from); ok {
			return u, true
		}
		first, last := e.span(i)
		first = max(first, from+s.offset)
		c, found := e.onOrAfter(first)
		if found && c <= last {
			return c - s.offset, true
		}
		if i++; i == len(z.segments) {
			return 0, false
		}
		if next := z.segments[i]; next.start+next.offset < first {
			continue // a fold repeats civil times before first
		}
		if !found {
			// Nothing matches from first on, and no later segment begins before it: none is shorter
			// than the fold that follows.
			return 0, false
		}
		from = max(from, c-reach)
		i = max(i, z.segmentAt(c-reach))
	}
}

// onOrBeforeInstant returns the last occurrence at or before an instant: the
// mirror of onOrAfterInstant.
func (e *Expression) onOrBeforeInstant(to int64) (int64, bool) {
	z := e.zone
	for i := z.segmentAt(to); ; {
		s := z.segments[i]
		first, last := e.span(i)
		last = min(last, to+s.offset)
		c, found := e.onOrBefore(last)
		instant, ok := e.lastFromGap(i, to)
		if found && c >= first && (!ok || c-s.offset > instant) {
			return c - s.offset, true
		}
		if ok {
			return instant, true
		}
		if i--; i < 0 {
			return 0, false
		}
		if s.start+z.segments[i].offset-1 > last {
			continue // a fold has already had civil times after last
		}
		if !found {
			return 0, false
		}
		to = min(to, c+reach)
		i = min(i, z.segmentAt(c+reach))
	}
}

// gap returns the civil times skipped by the change at the beginning of segment i, from
// first to last, and their treatment.
func (e *Expression) gap(i int) (first, last int64, rule gapRule) {
	if i == 0 {
		return 0, 0, lost
	}
	s, before := e.zone.segments[i], e.zone.segments[i-1].offset
	if s.offset <= before {
		return 0, 0, lost
	}
	return s.start + before, s.start + s.offset - 1, e.inGap(s.offset - before)
}

// firstFromGap returns the first occurrence at or after an instant that replaces a time
// skipped at the beginning of segment i, unless an existing time comes first.
func (e *Expression) firstFromGap(i int, from int64) (int64, bool) {
	first, last, rule := e.gap(i)
	if rule == lost {
		return 0, false
	}
	start, before := e.zone.segments[i].start, e.zone.segments[i-1].offset
	if rule == caught {
		if from > start {
			return 0, false
		}
		c, ok := e.onOrAfter(first)
		return start, ok && c <= last
	}
	first = max(first, from+before)
	if first > last {
		return 0, false
	}
	c, ok := e.onOrAfter(first)
	if !ok || c > last {
		return 0, false
	}
	moved := c - before
	if c, ok := e.onOrAfter(max(from, start) + e.zone.segments[i].offset); ok {
		moved = min(moved, c-e.zone.segments[i].offset)
	}
	return moved, true
}

// lastFromGap returns the last occurrence at or before an instant that replaces a time
// skipped at the beginning of segment i.
func (e *Expression) lastFromGap(i int, to int64) (int64, bool) {
	first, last, rule := e.gap(i)
	if rule == lost {
		return 0, false
	}
	start, before := e.zone.segments[i].start, e.zone.segments[i-1].offset
	if rule == shifted {
		last = min(last, to+before)
	}
	c, ok := e.onOrBefore(last)
	if !ok || c < first {
		return 0, false
	}
	if rule == caught {
		return start, true
	}
	return c - before, true
}

// secondsOf returns the second of a time, clamped so that sums with offsets cannot
// overflow.
func secondsOf(t time.Time) int64 { return max(beforeAllTime, min(t.Unix(), afterAllTime)) }
