package cron

import (
	"sort"
	"strings"
	"time"
)

const (
	// notesMax is how many changes of the clock are listed one by one: years of
	// two changes each, and more than a person reads.
	notesMax = 10
	// noteTimesMax is how many times of the day one note lists.
	noteTimesMax = 6
)

// Notes describes the effect of clock changes between two instants, both included: one
// sentence for each change that skips or repeats a time of the expression, such as "on 29
// March 2026 02:30 does not exist in Berlin: runs at 03:00". If there are many, the last
// sentence counts the rest.
//
// A schedule that continues evenly through the change, such as every 15 minutes of every
// hour, has no note about it.
func (e *Expression) Notes(lang Lang, from, to time.Time) []string {
	low, high := from.Unix(), to.Unix()
	segments := e.zone.segments
	// Include changes just outside the range: their skipped or repeated times may reach
	// into it.
	i := sort.Search(len(segments), func(i int) bool { return segments[i].start >= low-reach })
	var notes []string
	more := 0
	for i = max(i, 1); i < len(segments) && segments[i].start <= high+reach; i++ {
		if !e.isNoted(i, low, high) {
			continue
		}
		if len(notes) == notesMax {
			more++
			continue
		}
		n := e.noteOf(i)
		notes = append(notes, lang.words().note(&n))
	}
	if more > 0 {
		notes = append(notes, lang.words().moreNotes(more))
	}
	return notes
}

// note is the effect of one clock change, independent of a language.
type note struct {
	place   string
	times   []int64 // the first skipped or repeated civil times
	count   int     // number of these times
	day     bool    // the whole day of the first one is skipped
	outcome outcome
	runs    []int64 // for caughtUp and movedLater: the civil times at which they run
	regular bool    // a run in runs coincides with a regular one
	length  int64   // of the gap or fold, in seconds
	offset  int64   // offset of the single pass that runs
	seconds bool    // whether civil times are shown with seconds
}

// outcome is the fate of skipped or repeated times.
type outcome uint8

const (
	notRun     outcome = iota // skipped and lost
	caughtUp                  // skipped, and run once after the gap
	movedLater                // skipped, and run later
	runTwice                  // repeated, and run twice
	runFirst                  // repeated, and run on the first pass
	runLast                   // repeated, and run on the last pass
)

// changeAt returns the civil times that the change at the beginning of segment i skips or
// repeats, from first to last, and their treatment.
func (e *Expression) changeAt(i int) (first, last int64, what outcome) {
	start := e.zone.segments[i].start
	before, after := e.zone.segments[i-1].offset, e.zone.segments[i].offset
	if after > before {
		switch e.inGap(after - before) {
		case caught:
			what = caughtUp
		case shifted:
			what = movedLater
		default:
			what = notRun
		}
		return start + before, start + after - 1, what
	}
	switch e.inFold(before - after) {
	case firstPass:
		what = runFirst
	case lastPass:
		what = runLast
	default:
		what = runTwice
	}
	return start + after, start + before - 1, what
}

// isNoted reports whether the change at the beginning of segment i affects the expression between
// two instants in a way worth a note.
func (e *Expression) isNoted(i int, low, high int64) bool {
	start := e.zone.segments[i].start
	before, after := e.zone.segments[i-1].offset, e.zone.segments[i].offset
	first, last, what := e.changeAt(i)
	names := func(first, last int64) bool {
		c, ok := e.onOrAfter(first)
		return ok && c <= last
	}
	switch what {
	case notRun, caughtUp:
		if start < low || start > high || !names(first, last) {
			return false
		}
		if what == caughtUp && !e.shows(start+after) {
			return true // a run at an unnamed time
		}
	case movedLater:
		if !names(max(first, low+before), min(last, high+before)) {
			return false
		}
	default:
		if !names(max(first, low+before), min(last, high+before)) && !names(max(first, low+after), min(last, high+after)) {
			return false
		}
		if what != runTwice {
			return true
		}
	}
	return !e.goesOn(first, last, max(before-after, after-before))
}

// goesOn reports whether runs stay evenly spaced although the civil times from first to last,
// length seconds, are skipped or repeated: every hour has the same times, and the change moves
// neither these times nor the days.
func (e *Expression) goesOn(first, last, length int64) bool {
	if e.hour != allHours || !e.repeatsAfter(length) {
		return false
	}
	if e.rulesOutDays() {
		day := floorDiv(first, secondsPerDay)
		end := floorDiv(last+1, secondsPerDay)
		if length >= secondsPerDay || e.hasDay(day) != e.hasDay(end) {
			return false
		}
	}
	return true
}

// repeatsAfter reports whether the minutes and seconds of an hour stay the same when
// shifted by n seconds.
func (e *Expression) repeatsAfter(length int64) bool {
	turned := func(set uint64, by int64) bool {
		return (set<<by|set>>(60-by))&allSeconds == set
	}
	if by := length % secondsPerMinute; by != 0 {
		return e.minute == allSeconds && turned(e.second, by)
	}
	return turned(e.minute, length/secondsPerMinute%60)
}

// rulesOutDays reports whether some days have no occurrence.
func (f *fields) rulesOutDays() bool {
	return !f.anyDayOfMonth() || !f.anyWeekday() || f.month != allMonths || !f.anyYear()
}

// hasDay reports whether a day, counted from 1970, matches.
func (f *fields) hasDay(day int64) bool {
	d := dateOf(day)
	return f.hasYear(d.Year) && f.month>>d.Month&1 != 0 &&
		f.days(d.Year, int(d.Month), weekdayOf(day-int64(d.Day-1)))>>d.Day&1 != 0
}

// noteOf makes the note about the change at the beginning of segment i.
func (e *Expression) noteOf(i int) note {
	start := e.zone.segments[i].start
	before, after := e.zone.segments[i-1].offset, e.zone.segments[i].offset
	first, last, what := e.changeAt(i)
	n := note{place: placeOf(e.zone), outcome: what, length: max(before-after, after-before), offset: before}
	n.seconds = e.second != 1
	for c, ok := e.onOrAfter(first); ok && c <= last; c, ok = e.onOrAfter(c + 1) {
		if n.count++; n.count <= noteTimesMax {
			n.times = append(n.times, c)
		}
		if what != movedLater {
			continue
		}
		moved := c + n.length
		if n.count <= noteTimesMax {
			n.runs = append(n.runs, moved)
		}
		n.regular = n.regular || e.shows(moved)
	}
	switch what {
	case caughtUp:
		n.runs = []int64{start + after}
		n.regular = e.shows(start + after)
		n.seconds = n.seconds || (start+after)%secondsPerMinute != 0
	case movedLater:
		n.seconds = n.seconds || n.length%secondsPerMinute != 0
	case runLast:
		n.offset = after
	}
	n.day = after > before && floorDiv(first, secondsPerDay)*secondsPerDay == first && n.length == secondsPerDay
	return n
}

// shows reports whether the expression names a civil time.
func (f *fields) shows(c int64) bool {
	found, ok := f.onOrAfter(c)
	return ok && found == c
}

// placeOf returns the last part of the name of a zone, with spaces.
func placeOf(z *Zone) string {
	name := z.Name()
	return strings.ReplaceAll(name[strings.LastIndexByte(name, '/')+1:], "_", " ")
}

// secondOfDay returns the second of the day of a civil time.
func secondOfDay(c int64) int { return int(c - floorDiv(c, secondsPerDay)*secondsPerDay) }

// sameDay reports whether two civil times are on one day.
func sameDay(a, b int64) bool { return floorDiv(a, secondsPerDay) == floorDiv(b, secondsPerDay) }

// offsetOf writes an offset such as UTC+02:00.
func offsetOf(seconds int64) string {
	sign := "+"
	if seconds < 0 {
		sign, seconds = "-", -seconds
	}
	return "UTC" + sign + clock(int(seconds), seconds%secondsPerMinute != 0)
}
