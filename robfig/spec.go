package robfig

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SpecSchedule is the schedule of an expression: a bit for each value of a field, and the highest
// bit where the field is a star.
type SpecSchedule struct {
	Second, Minute, Hour, Dom, Month, Dow uint64

	// Location is the zone of the schedule; [time.Local] and nil mean the zone of the [Cron].
	Location *time.Location
}

const starBit = 1 << 63

// bounds are the values of a field.
type bounds struct {
	min, max int
	names    []string // from min on
}

var fieldBounds = [...]bounds{
	{0, 59, nil}, {0, 59, nil}, {0, 23, nil}, {1, 31, nil},
	{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// specOf reads six fields as robfig/cron does.
func specOf(fields []string, location *time.Location) (*SpecSchedule, bool) {
	s := &SpecSchedule{Location: location}
	for i, set := range s.fields() {
		for part := range strings.SplitSeq(fields[i], ",") {
			some, ok := fieldBounds[i].read(part)
			if !ok {
				return nil, false
			}
			*set |= some
		}
		if *set == 0 {
			return nil, false
		}
	}
	return s, true
}

func (s *SpecSchedule) fields() [6]*uint64 {
	return [...]*uint64{&s.Second, &s.Minute, &s.Hour, &s.Dom, &s.Month, &s.Dow}
}

// read reads one part of a list: a value, a range or a star, with a step behind it.
func (b bounds) read(part string) (set uint64, ok bool) {
	span, stepText, hasStep := strings.Cut(part, "/")
	step := 1
	if hasStep {
		var err error
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return 0, false
		}
	}
	first, last, isRange := strings.Cut(span, "-")
	from, to := b.min, b.max
	isStar := first == "*" || first == "?"
	switch {
	case isStar && isRange:
		return 0, false
	case isStar:
		if step == 1 {
			set = starBit
		}
	default:
		if from, ok = b.value(first); !ok {
			return 0, false
		}
		if isRange {
			if to, ok = b.value(last); !ok {
				return 0, false
			}
		} else if !hasStep {
			to = from
		}
	}
	if from < b.min || to > b.max || from > to {
		return 0, false
	}
	for v := from; v <= to; v += step {
		set |= 1 << v
	}
	return set, true
}

func (b bounds) value(text string) (int, bool) {
	if i := slices.Index(b.names, strings.ToLower(text)); i >= 0 {
		return b.min + i, true
	}
	v, err := strconv.Atoi(text)
	return v, err == nil && v >= 0
}

// expression writes the schedule as package cron reads it. A star is written only for a field that
// is one, since it decides whether both day fields must match.
func (s *SpecSchedule) expression() string {
	text := make([]string, len(fieldBounds))
	for i, set := range s.fields() {
		if *set&starBit != 0 {
			text[i] = "*"
			continue
		}
		var parts []string
		for rest := *set; rest != 0; {
			from := bits.TrailingZeros64(rest)
			length := bits.TrailingZeros64(^(rest >> from))
			rest &^= (1<<length - 1) << from
			if length == 1 {
				parts = append(parts, strconv.Itoa(from))
			} else {
				parts = append(parts, fmt.Sprintf("%d-%d", from, from+length-1))
			}
		}
		text[i] = strings.Join(parts, ",")
	}
	return strings.Join(text, " ")
}

// in returns the zone of the schedule in a [Cron], or at a time, of another zone.
func (s *SpecSchedule) in(other *time.Location) *time.Location {
	if s.Location == nil || s.Location == time.Local {
		return other
	}
	return s.Location
}

// yearsMax is how far the next time is searched: 29 February comes after eight years at the latest.
const yearsMax = 8

// Next returns the next time after a moment, in the zone of the moment; the zero time is never. A
// local time that the clock skips is left out, and a repeated one comes twice.
func (s *SpecSchedule) Next(after time.Time) time.Time {
	t := after.In(s.in(after.Location())).Truncate(time.Second).Add(time.Second)
	for last := t.Year() + yearsMax; t.Year() <= last; {
		hour, minute, second := t.Clock()
		switch {
		case !has(s.Month, int(t.Month())):
			t = later(t, dayStart(t, t.Year(), t.Month()+1, 1))
		case !s.hasDay(t):
			t = later(t, dayStart(t, t.Year(), t.Month(), t.Day()+1))
		case !has(s.Hour, hour):
			next := t.Add(time.Hour - time.Duration(minute)*time.Minute - time.Duration(second)*time.Second)
			_, offset := t.Zone()
			if _, then := next.Zone(); then != offset { // it may have passed the beginning of an hour
				next = t.Add(time.Minute - time.Duration(second)*time.Second)
			}
			t = next
		case !has(s.Minute, minute):
			t = t.Add(time.Minute - time.Duration(second)*time.Second)
		case !has(s.Second, second):
			t = t.Add(time.Second)
		default:
			return t.In(after.Location())
		}
	}
	return time.Time{}
}

func has(set uint64, value int) bool { return set&(1<<value) != 0 }

// hasDay reports whether the day of a time matches: by both fields where one is a star, else by
// either.
func (s *SpecSchedule) hasDay(t time.Time) bool {
	dom, dow := has(s.Dom, t.Day()), has(s.Dow, int(t.Weekday()))
	if (s.Dom|s.Dow)&starBit != 0 {
		return dom && dow
	}
	return dom || dow
}

// quarter divides all changes of clocks of the present: they begin and end at one.
const quarter = 15 * time.Minute

// dayStart returns the first moment of a date in the zone of t, which is 01:00 where the clock
// skips midnight.
func dayStart(t time.Time, year int, month time.Month, day int) time.Time {
	start := time.Date(year, month, day, 0, 0, 0, 0, t.Location())
	date := func(t time.Time) int { return t.YearDay() + t.Year()*1000 }
	want := date(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	for date(start) < want {
		start = start.Add(quarter)
	}
	for before := start.Add(-quarter); date(before) >= want; before = before.Add(-quarter) {
		start = before
	}
	return start
}

// later returns next, and a moment after t if that is not after it.
func later(t, next time.Time) time.Time {
	if next.After(t) {
		return next
	}
	return t.Add(quarter)
}
