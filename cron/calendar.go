package cron

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Date is a day of the calendar, without a zone.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

// ParseDate reads a date such as "2026-10-01".
func ParseDate(text string) (Date, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return Date{}, phrase.Mistake(phrase.NotDate.Of(phrase.Quoted(text)))
	}
	year, month, day := t.Date()
	if year < firstYear || year > lastYear {
		return Date{}, phrase.Mistake(phrase.DateOutOfRange.Of(text, firstYear, lastYear))
	}
	return Date{year, month, day}, nil
}

// String returns the date as [ParseDate] reads it.
func (d Date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d.Year, d.Month, d.Day) }

// Weekday returns the day of the week.
func (d Date) Weekday() time.Weekday { return time.Weekday(weekdayOf(daysOf(d))) }

// DateRange is the dates from one to another, both included.
type DateRange struct {
	From, To Date
}

// Weekdays is a set of days of the week.
type Weekdays uint8

// WeekdaysOf returns the set of the given days.
func WeekdaysOf(days ...time.Weekday) Weekdays {
	var set Weekdays
	for _, d := range days {
		set |= 1 << d
	}
	return set
}

// Has reports whether a day of the week is in the set.
func (w Weekdays) Has(day time.Weekday) bool { return w>>day&1 != 0 }

// Contains reports whether a date falls on a day of the set, which makes [Weekdays]
// one kind of [Days].
func (w Weekdays) Contains(d Date) bool { return w.Has(d.Weekday()) }

// Days is a set of dates.
type Days interface {
	Contains(Date) bool
}

// Calendar is a set of dates: the dates on its weekdays, minus the excluded and plus the
// included ones. Included dates take precedence, so a Chinese working-day calendar (调休) is
// one Calendar: Monday to Friday as weekdays, the holidays excluded, and the adjusted
// working days, such as Saturdays, included.
type Calendar struct {
	weekdays         Weekdays
	include, exclude dateSet
}

// NewCalendar returns a calendar. A [Calendar] is immutable and safe for concurrent use.
func NewCalendar(weekdays Weekdays, include, exclude []DateRange) *Calendar {
	return &Calendar{weekdays: weekdays, include: newDateSet(include), exclude: newDateSet(exclude)}
}

// Contains reports whether a date is in the calendar.
func (c *Calendar) Contains(d Date) bool {
	day := daysOf(d)
	return c.include.has(day) || c.weekdays.Has(time.Weekday(weekdayOf(day))) && !c.exclude.has(day)
}

// dateSet is a sorted list of ranges that do not touch, in days since 1970.
type dateSet []struct{ from, to int64 }

func newDateSet(ranges []DateRange) dateSet {
	set := make(dateSet, 0, len(ranges))
	for _, r := range ranges {
		if from, to := daysOf(r.From), daysOf(r.To); from <= to {
			set = append(set, struct{ from, to int64 }{from, to})
		}
	}
	slices.SortFunc(set, func(a, b struct{ from, to int64 }) int { return int(a.from - b.from) })
	joined := set[:0]
	for _, r := range set {
		if n := len(joined); n > 0 && r.from <= joined[n-1].to+1 {
			joined[n-1].to = max(joined[n-1].to, r.to)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

func (s dateSet) has(day int64) bool {
	_, found := slices.BinarySearchFunc(s, day, func(r struct{ from, to int64 }, day int64) int {
		switch {
		case r.to < day:
			return -1
		case r.from > day:
			return 1
		default:
			return 0
		}
	})
	return found
}

// TimeRange is a half-open range of times of day, as durations since midnight on the wall
// clock. A range whose end is not after its beginning crosses midnight: 22:00 to 02:00.
type TimeRange struct {
	From, To time.Duration
}

func (r TimeRange) has(second int64) bool {
	t := time.Duration(second) * time.Second
	if r.From < r.To {
		return r.From <= t && t < r.To
	}
	return t >= r.From || t < r.To
}

// Rules are conditions on an occurrence. The zero Rules have none.
type Rules struct {
	Days  []Days      // sets that contain the date
	Times []TimeRange // ranges that contain the time of day
}

func (r *Rules) hasDay(d Date) bool {
	return slices.ContainsFunc(r.Days, func(days Days) bool { return days.Contains(d) })
}

func (r *Rules) hasTime(second int64) bool {
	return slices.ContainsFunc(r.Times, func(t TimeRange) bool { return t.has(second) })
}

// OffDay is the treatment of an occurrence on an excluded day.
type OffDay uint8

// The treatments of occurrences on excluded days.
const (
	OffDaySkip     OffDay = iota // the occurrence is dropped
	OffDayNext                   // it moves to the next day that is not excluded
	OffDayPrevious               // it moves to the previous such day
)

var offDayNames = [...]string{OffDaySkip: "skip", OffDayNext: "next", OffDayPrevious: "previous"}

// String returns the name, as [ParseOffDay] takes it.
func (o OffDay) String() string { return nameOf(offDayNames[:], uint8(o)) }

// ParseOffDay returns the value of a name: skip, next or previous.
func ParseOffDay(name string) (OffDay, error) {
	i, err := indexOfName(phrase.RuleOfDays, offDayNames[:], name)
	return OffDay(i), err
}

// Filter is a schedule restricted by rules. An occurrence stays if it matches the days and
// times of Only, where Only has any, and no day or time of Except. An occurrence on an
// excluded day can move to another day instead, at the same local time, by at most 31
// days; beyond that it is dropped. The time of the expression moves, without the effect of
// a clock change on the excluded day. Occurrences at the same instant become one.
type Filter struct {
	Schedule Schedule
	Zone     *Zone // of the dates and times of day; nil is UTC
	Only     Rules
	Except   Rules
	OffDay   OffDay
}

const (
	// maxMove is the most days that an occurrence moves.
	maxMove = 31
	// filterHorizon bounds the search for an allowed day, so that rules without any
	// allowed day are detected in about a millisecond.
	filterHorizon = 40 * 366
)

// allowsDay reports whether a day, counted from 1970, is allowed.
func (f *Filter) allowsDay(day int64) bool {
	d := dateOf(day)
	return (len(f.Only.Days) == 0 || f.Only.hasDay(d)) && !f.Except.hasDay(d)
}

// allowsTime reports whether a second of the day is allowed.
func (f *Filter) allowsTime(second int64) bool {
	return (len(f.Only.Times) == 0 || f.Only.hasTime(second)) && !f.Except.hasTime(second)
}

// Next returns the first occurrence strictly after t, in the zone of the filter. It searches 40
// years.
//
// It goes day by day: a day has its own occurrences and the ones that move to it.
func (f *Filter) Next(t time.Time) time.Time {
	zone := f.Zone.orUTC()
	start := floorDiv(zone.civil(t), secondsPerDay)
	end := start + filterHorizon
	for day := start; day <= end; day++ {
		if !f.allowsDay(day) {
			continue
		}
		if next := f.firstOn(day, t); !next.IsZero() {
			return next.In(zone.location)
		}
		// Skip days without occurrences.
		source := dayAfter(f.Schedule, zone, day)
		if clock := clockOf(f.Schedule); clock != nil && f.OffDay != OffDaySkip {
			source = min(source, dayAfter(clock, utc, day))
		}
		if source == math.MaxInt64 {
			end = min(end, day+maxMove) // occurrences on excluded days may still move here
			continue
		}
		if f.OffDay == OffDayPrevious {
			source -= maxMove
		}
		day = max(day, source-1)
	}
	return time.Time{}
}

// dayAfter returns the first day after the given one on which a schedule falls
// due, or [math.MaxInt64].
func dayAfter(s Schedule, zone *Zone, day int64) int64 {
	following := s.Next(zone.startOf(day + 1).Add(-1))
	if following.IsZero() {
		return math.MaxInt64
	}
	return floorDiv(zone.civil(following), secondsPerDay)
}

// clockOf returns a schedule of expressions by the clock, as if in UTC, without clock
// changes. It is nil for other schedules, which mean instants.
func clockOf(s Schedule) Schedule {
	switch s := s.(type) {
	case *Expression:
		e := *s
		e.zone = utc
		return &e
	case union:
		all := make(union, len(s))
		for i := range s {
			if all[i] = clockOf(s[i]); all[i] == nil {
				return nil
			}
		}
		return all
	}
	return nil
}

// firstOn returns the first occurrence after t that falls on a day or moves
// there.
func (f *Filter) firstOn(day int64, t time.Time) time.Time {
	first := f.firstFrom(day, day, t)
	if f.OffDay == OffDaySkip {
		return first
	}
	step := int64(-1) // occurrences on earlier days may move to this day
	if f.OffDay == OffDayPrevious {
		step = 1
	}
	for n := int64(1); n <= maxMove && !f.allowsDay(day+n*step); n++ {
		if moved := f.firstFrom(day+n*step, day, t); first.IsZero() || !moved.IsZero() && moved.Before(first) {
			first = moved
		}
	}
	return first
}

// firstFrom returns the first occurrence of day source, moved to day target, that
// is after t.
func (f *Filter) firstFrom(source, target int64, t time.Time) time.Time {
	zone := f.Zone.orUTC()
	schedule, from := f.Schedule, zone
	if clock := clockOf(f.Schedule); clock != nil && source != target {
		schedule, from = clock, utc
	}
	after := from.startOf(source).Add(-1)
	switch now := zone.civil(t); {
	case source == target && t.After(after):
		after = t
	case source != target && floorDiv(now, secondsPerDay) == target:
		// Times before now are past, whatever day they come from.
		after = from.at(now + (source-target)*secondsPerDay).Add(-1)
	}
	for {
		due := schedule.Next(after)
		if due.IsZero() || floorDiv(from.civil(due), secondsPerDay) != source {
			return time.Time{}
		}
		second := from.civil(due) - source*secondsPerDay
		after = due
		if !f.allowsTime(second) {
			later := from.at(source*secondsPerDay + f.boundaryAfter(second)).Add(-1)
			if later.After(after) {
				after = later
			}
			continue
		}
		if source != target {
			due = zone.at(target*secondsPerDay + second).Add(time.Duration(due.Nanosecond()))
		}
		if due.After(t) {
			return due
		}
	}
}

// boundaryAfter returns the first second of the day after the given one at which
// one of the time ranges begins or ends, or the end of the day.
func (f *Filter) boundaryAfter(second int64) int64 {
	first := int64(secondsPerDay)
	for _, ranges := range [...][]TimeRange{f.Only.Times, f.Except.Times} {
		for _, r := range ranges {
			for _, edge := range [...]time.Duration{r.From, r.To} {
				if s := int64((edge + time.Second - 1) / time.Second); s > second {
					first = min(first, s)
				}
			}
		}
	}
	return first
}
