package cron

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Schedule is a sequence of due times.
type Schedule interface {
	// Next returns the first occurrence strictly after t, or the zero time if none exists.
	// It is deterministic and safe for concurrent use.
	Next(t time.Time) time.Time
}

// ParseSchedule compiles a cron expression as [Parse] does, or an interval such as
// "@every 90s". The error, if any, is a *ParseError.
func ParseSchedule(expr string, opts ...Option) (Schedule, error) {
	const every = "@every"
	trimmed := strings.TrimLeft(expr, " \t")
	if len(trimmed) < len(every) || !strings.EqualFold(trimmed[:len(every)], every) ||
		len(trimmed) > len(every) && !isBlank(trimmed[len(every)]) {
		return Parse(expr, opts...)
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.dialect != Default {
		return Parse(expr, opts...) // its error says that the dialect has no intervals
	}
	text := strings.Trim(trimmed[len(every):], " \t")
	at := strings.LastIndex(expr, text)
	d, err := parseEvery(text)
	if err != nil {
		return nil, newParseError(expr, at, len(text), phrase.Name.Of(every), phrase.OfError(err), silence, phrase.IntervalForm)
	}
	return Interval{Every: d}, nil
}

// Intervals are at least [MinEvery], the finest resolution of Belfry, and at most [MaxEvery],
// up to which arithmetic on durations is exact.
const (
	MinEvery = 10 * time.Millisecond
	MaxEvery = maxEveryDays * 24 * time.Hour

	maxEveryDays = 100 * 365
)

// parseEvery reads a duration, with days.
func parseEvery(text string) (time.Duration, error) {
	if text == "" {
		return 0, phrase.Mistake(phrase.DurationMissing)
	}
	rest, days := text, 0
	if before, after, found := strings.Cut(text, "d"); found {
		if !isDigits(before) {
			return 0, phrase.Mistake(phrase.NotDuration.Of(phrase.Quoted(text)))
		}
		days, rest = number(before), after
	}
	var d time.Duration
	if rest != "" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, phrase.Mistake(phrase.NotDuration.Of(phrase.Quoted(text)))
		}
	}
	d += time.Duration(min(days, maxEveryDays+1)) * 24 * time.Hour
	switch {
	case d < MinEvery:
		return 0, phrase.Mistake(phrase.ShortInterval.Of(text, MinEvery.String()))
	case d > MaxEvery:
		return 0, phrase.Mistake(phrase.LongInterval.Of(text))
	}
	return d, nil
}

// Interval falls due at a fixed rate: at Anchor and at every multiple of Every
// from there, in both directions. With the zero Anchor that is the Unix epoch,
// so that an interval which divides a day falls on the same times of day in UTC
// without end. An interval outside [MinEvery] and [MaxEvery] never falls due.
type Interval struct {
	Every  time.Duration
	Anchor time.Time
}

// Next returns the first occurrence strictly after t, in the location of t.
func (i Interval) Next(t time.Time) time.Time {
	if first := i.horizon(firstYear); t.Before(first) {
		t = first.Add(-1)
	}
	return i.step(t, func(past time.Duration) time.Duration {
		return i.Every - past
	})
}

// Prev returns the last occurrence strictly before t, in the location of t.
func (i Interval) Prev(t time.Time) time.Time {
	if end := i.horizon(lastYear + 1); t.After(end) {
		t = end
	}
	return i.step(t, func(past time.Duration) time.Duration {
		if past == 0 {
			return -i.Every
		}
		return -past
	})
}

// horizon returns the beginning of a year.
func (Interval) horizon(year int) time.Time {
	return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
}

// step moves t by the result of move for the time since the occurrence at or before t.
func (i Interval) step(t time.Time, move func(past time.Duration) time.Duration) time.Time {
	if i.Every < MinEvery || i.Every > MaxEvery {
		return time.Time{}
	}
	anchor := i.Anchor
	if anchor.IsZero() {
		anchor = time.Unix(0, 0)
	}
	// A duration is at most 292 years: approach t by whole intervals first.
	stride := MaxEvery - MaxEvery%i.Every
	for t.Sub(anchor) > stride {
		anchor = anchor.Add(stride)
	}
	for anchor.Sub(t) > stride {
		anchor = anchor.Add(-stride)
	}
	past := t.Sub(anchor) % i.Every
	if past < 0 {
		past += i.Every
	}
	moved := t.Add(move(past))
	if moved.Before(i.horizon(firstYear)) || !moved.Before(i.horizon(lastYear+1)) {
		return time.Time{}
	}
	return moved
}

// String returns the interval as [ParseSchedule] reads it. The anchor is not part
// of it.
func (i Interval) String() string { return "@every " + shortDuration(i.Every) }

// Describe returns the interval in words.
func (i Interval) Describe(lang Lang) string { return describeEvery(lang, i.Every) }

// shortDuration writes a duration without parts that are zero: "1h", not
// "1h0m0s", and days above 24 hours.
func shortDuration(d time.Duration) string {
	days := d / (24 * time.Hour)
	rest := d % (24 * time.Hour)
	if days > 0 && rest == 0 {
		return strconv.FormatInt(int64(days), 10) + "d"
	}
	text := rest.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if days > 0 {
		text = strconv.FormatInt(int64(days), 10) + "d" + text
	}
	return text
}

// Instants are single moments.
type Instants struct {
	sorted []time.Time
}

// At returns the schedule that falls due at the given moments, in any order, once
// each.
func At(instants ...time.Time) Instants {
	sorted := slices.Clone(instants)
	slices.SortFunc(sorted, time.Time.Compare)
	return Instants{sorted: sorted}
}

// Next returns the first of the moments strictly after t.
func (s Instants) Next(t time.Time) time.Time {
	i, _ := slices.BinarySearchFunc(s.sorted, t, func(at, t time.Time) int {
		if at.After(t) {
			return 1
		}
		return -1
	})
	if i == len(s.sorted) {
		return time.Time{}
	}
	return s.sorted[i]
}

// Union returns the schedule that falls due whenever a given one does. Simultaneous occurrences are
// one.
func Union(schedules ...Schedule) Schedule {
	if len(schedules) == 1 {
		return schedules[0]
	}
	return union(slices.Clone(schedules))
}

type union []Schedule

func (u union) Next(t time.Time) time.Time {
	var first time.Time
	for _, s := range u {
		if next := s.Next(t); first.IsZero() || !next.IsZero() && next.Before(first) {
			first = next
		}
	}
	return first
}

// Bounded returns the part of a schedule from start to end, both included. A zero
// instant is no bound.
func Bounded(s Schedule, start, end time.Time) Schedule {
	if start.IsZero() && end.IsZero() {
		return s
	}
	return boundedSchedule{schedule: s, start: start, end: end}
}

type boundedSchedule struct {
	schedule   Schedule
	start, end time.Time
}

func (b boundedSchedule) Next(t time.Time) time.Time {
	if t.Before(b.start) {
		t = b.start.Add(-1)
	}
	next := b.schedule.Next(t)
	if !b.end.IsZero() && next.After(b.end) {
		return time.Time{}
	}
	return next
}

// Between iterates over the occurrences after one instant and up to another, included,
// like the movement of a cursor.
func Between(s Schedule, after, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for t := s.Next(after); !t.IsZero() && !t.After(until); t = s.Next(t) {
			if !yield(t) {
				return
			}
		}
	}
}

// beforeMax is how far back [Before] searches if a schedule has no Prev: beyond the occurrence
// of a year ago.
const beforeMax = 2 * 366 * 24 * time.Hour

// Before returns the last occurrence strictly before an instant, or the zero time if there is none
// in the two years before it. Without a method Prev it searches windows that double.
func Before(s Schedule, instant time.Time) time.Time {
	if known, ok := s.(interface{ Prev(time.Time) time.Time }); ok {
		return known.Prev(instant)
	}
	for window := time.Minute; window < beforeMax; window *= 2 {
		var last time.Time
		for t := range Between(s, instant.Add(-window), instant.Add(-1)) {
			last = t
		}
		if !last.IsZero() {
			return last
		}
	}
	return time.Time{}
}
