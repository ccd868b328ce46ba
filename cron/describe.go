package cron

import (
	"math/bits"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Lang is a language of descriptions and notes.
type Lang uint8

// The languages of descriptions and notes.
const (
	English Lang = iota
	Chinese      // simplified
)

var langNames = [...]string{English: "en", Chinese: "zh"}

// String returns the name of the language, as [ParseLang] takes it.
func (l Lang) String() string { return nameOf(langNames[:], uint8(l)) }

// ParseLang returns the language of a name: en or zh.
func ParseLang(name string) (Lang, error) {
	i, err := indexOfName(phrase.Language, langNames[:], name)
	return Lang(i), err
}

// words formats descriptions in a language.
type words interface {
	describe(d *description) string
	every(d time.Duration) string
	note(n *note) string
	moreNotes(n int) string
}

func (l Lang) words() words {
	if l == Chinese {
		return chinese{}
	}
	return english{}
}

// Describe describes the due times in words, such as "every 5 minutes from 08:00 through 18:55,
// Monday through Friday". It follows from the compiled sets, not from their spelling, so that equal
// expressions have equal descriptions and different ones have different descriptions; there may be
// no occurrence. "through" includes both ends.
//
// The times are local times of the zone, which the text does not name. It omits the effect of clock
// changes, and so whether the schedule was written with a star: Notes covers that.
func (e *Expression) Describe(lang Lang) string {
	d := e.description()
	return lang.words().describe(&d)
}

// describeEvery describes an interval, such as "every 90 seconds".
func describeEvery(lang Lang, d time.Duration) string { return lang.words().every(d) }

// description is the meaning of an expression, free of any language.
type description struct {
	times    times
	rule     dayRule
	dates    monthDays
	weekdays weekdays
	months   []stretch // nil for every month
	years    []stretch // nil for every year
}

// isDate reports whether the dates are a single day of a single month, such as 25
// December.
func (d *description) isDate() bool {
	return (d.rule == byDate || d.rule == byBoth) && oneOf(d.months) && len(d.dates.specials) == 0 && oneOf(d.dates.days)
}

// isFullDate reports whether that day is also in a single year.
func (d *description) isFullDate() bool { return d.isDate() && oneOf(d.years) }

// dayRule is how dates and weekdays combine.
type dayRule uint8

const (
	everyDay  dayRule = iota
	byDate            // the dates only
	byWeekday         // the weekdays only
	byEither          // a day must match one of them
	byBoth            // a day must match both
)

// times is one of three descriptions of the times of a day: single clock times, steps inside
// windows, or the sets of seconds, minutes and hours.
type times struct {
	clock   []int // seconds of the day
	step    int   // seconds between times
	windows []window
	factors factors
	seconds bool // whether clock times are shown with seconds
}

// window is a part of the day, both ends included, in seconds.
type window struct{ first, last int }

// factors are the three sets whose product is the times. Nil means all values. A step other than 0
// means seconds or minutes at even steps from 0 through the whole minute or hour.
type factors struct {
	second, minute, hour   []stretch
	secondStep, minuteStep int
}

// wholeDay reports whether the times cover the whole day, so that "every day" is implied.
func (t *times) wholeDay() bool {
	return t.clock == nil && t.windows == nil && t.factors.hour == nil
}

// stretch is a part of a list: the values from first to last in steps. It is a
// single value when the two are equal.
type stretch struct{ first, last, step int }

func (s stretch) single() bool { return s.first == s.last }

// oneOf reports whether a list is a single value.
func oneOf(list []stretch) bool { return len(list) == 1 && list[0].single() }

// monthDays are days of the month.
type monthDays struct {
	days     []stretch // plain days, unless parity describes them
	parity   parity
	specials []monthDay
	// conditional are days that some months lack; the description must mention that. onlyThose is
	// set if there are no other days, and leapYears if only leap years have them.
	conditional []monthDay
	onlyThose   bool
	leapYears   bool
}

// parity is all odd or all even days of the month.
type parity uint8

const (
	mixed parity = iota
	odd
	even
)

// monthDay is a day of the month that is not the same date in every month, or
// that some months do not have.
type monthDay struct {
	kind monthDayKind
	n    int
}

type monthDayKind uint8

const (
	plainDay       monthDayKind = iota // day n
	beforeLast                         // n days before the last
	nearDay                            // the Monday to Friday nearest to day n
	nearBeforeLast                     // the Monday to Friday nearest to n days before the last
)

// needs returns how long a month must be to have the day.
func (d monthDay) needs() int {
	if d.kind == beforeLast || d.kind == nearBeforeLast {
		return d.n + 1
	}
	return d.n
}

// plain returns the plain day of a special one: a month lacks both or neither.
func (d monthDay) plain() monthDay {
	switch d.kind {
	case nearDay:
		d.kind = plainDay
	case nearBeforeLast:
		d.kind = beforeLast
	}
	return d
}

// one reports whether there is at most one day of the month.
func (d *monthDays) one() bool {
	return d.parity == mixed && (len(d.specials) == 0 && oneOf(d.days) || len(d.days) == 0 && len(d.specials) == 1)
}

// weekdays are days of the week, Monday being 1 and Sunday 7.
type weekdays struct {
	every []stretch    // of every week
	nth   []nthWeekday // of the month
}

// nthWeekday is a day of the week with its numbers in the month, 1 to 5, and
// lastWeekday for the last.
type nthWeekday struct {
	weekday int
	numbers []int
}

const lastWeekday = nthLast + 1

// one reports whether there is at most one such day in a week.
func (w *weekdays) one() bool {
	return len(w.nth) == 0 && oneOf(w.every) || len(w.every) == 0 && len(w.nth) == 1 && len(w.nth[0].numbers) == 1
}

// hasFifth reports whether a day is named that not every month has.
func (w *weekdays) hasFifth() bool {
	for _, d := range w.nth {
		if slices.Contains(d.numbers, nthLast) {
			return true
		}
	}
	return false
}

const (
	// clockTimesFew is the number of times a day that are listed even if a shorter form
	// exists: a list is clearest.
	clockTimesFew = 6
	// clockTimesMax is the number of times that are listed if no shorter form exists.
	clockTimesMax = 12
	// windowsMax is the number of parts of a day that share one step.
	windowsMax = 3
	// phaseMax is the number of times an hour or minute that are written as its minutes or
	// seconds ("at minutes 5 and 35 of every hour") although their steps are even.
	phaseMax = 4
	// listedMax is the number of values of a set that are listed before a step is used.
	listedMax = 12
)

// description builds the description of the sets.
func (f *fields) description() description {
	d := description{times: f.times(), years: stretchesOf(f.namedYears())}
	if f.month != allMonths {
		d.months = stretchesOf(valuesOf(uint64(f.month)))
	}
	switch dated, weekly := !f.anyDayOfMonth(), !f.anyWeekday(); {
	case dated && weekly && f.has(either):
		d.rule = byEither
	case dated && weekly:
		d.rule = byBoth
	case dated:
		d.rule = byDate
	case weekly:
		d.rule = byWeekday
	}
	if d.rule != everyDay && d.rule != byWeekday {
		d.dates = f.dates()
	}
	if d.rule != everyDay && d.rule != byDate {
		d.weekdays = f.weekdays()
	}
	return d
}

// times chooses the form of the times of a day.
func (f *fields) times() times {
	t := times{seconds: f.second != 1}
	count := bits.OnesCount64(f.second) * bits.OnesCount64(f.minute) * bits.OnesCount32(f.hour)
	if count <= clockTimesFew {
		t.clock = f.clockTimes()
		return t
	}
	if step, windows := f.windows(); step != 0 {
		t.step = step
		switch first, last := windows[0].first, windows[0].last; {
		case last-first != secondsPerDay-step:
			t.windows = windows
			return t
		case first == 0:
			return t // without end
		case f.hour != allHours || !f.fewPhases():
			t.windows = windows
			return t
		}
		t.step = 0
	}
	if count <= clockTimesMax {
		t.clock = f.clockTimes()
		return t
	}
	t.factors = f.factors()
	return t
}

// factors describes the three sets separately.
func (f *fields) factors() factors {
	var all factors
	if f.second != allSeconds {
		all.second = stretchesOf(valuesOf(f.second))
		all.secondStep = evenStep(f.second)
	}
	if f.minute != allSeconds {
		all.minute = stretchesOf(valuesOf(f.minute))
		all.minuteStep = evenStep(f.minute)
	}
	if f.hour != allHours {
		all.hour = stretchesOf(valuesOf(uint64(f.hour)))
	}
	return all
}

// evenStep returns the step of seconds or minutes that start at 0 and continue evenly into
// the next minute or hour, 0 for others.
func evenStep(set uint64) int {
	n := bits.OnesCount64(set)
	if n < 3 || 60%n != 0 || set != progression(0, 59, 60/n) {
		return 0
	}
	return 60 / n
}

// clockTimes returns all times of a day.
func (f *fields) clockTimes() []int {
	var all []int
	for s := f.timeFrom(0); s >= 0; s = f.timeAfter(s) {
		all = append(all, s)
	}
	return all
}

// timeAfter returns the time of a day that follows s, or -1.
func (f *fields) timeAfter(s int) int {
	if s++; s == secondsPerDay {
		return -1
	}
	return f.timeFrom(s)
}

// windows returns the parts of a day with the same step between times, a whole number of
// one unit. The step is 0 when that takes too many parts, or parts of a single time.
func (f *fields) windows() (step int, windows []window) {
	first := f.timeFrom(0)
	step = f.timeAfter(first) - first
	whole := step < secondsPerMinute || step < secondsPerHour && step%secondsPerMinute == 0 || step%secondsPerHour == 0
	if !whole {
		return 0, nil
	}
	// Minutes repeat what is in a minute, and hours what is in an hour: only
	// the ends of two neighbours can make one window.
	windows = []window{{}}
	for _, unit := range [...]struct {
		set    uint64
		length int
	}{{f.second, 1}, {f.minute, secondsPerMinute}, {uint64(f.hour), secondsPerHour}} {
		if windows = inEach(windows, unit.set, unit.length, step); windows == nil {
			return 0, nil
		}
	}
	for _, w := range windows {
		if w.first == w.last {
			return 0, nil
		}
	}
	return step, windows
}

// inEach returns the windows of a unit, such as a minute, in each of a set of such units.
// It returns nil if there are too many, since no larger unit makes them fewer.
func inEach(inUnit []window, set uint64, length, step int) (all []window) {
	for ; set != 0; set &= set - 1 {
		start := bits.TrailingZeros64(set) * length
		for _, w := range inUnit {
			w.first += start
			w.last += start
			if n := len(all); n > 0 && w.first == all[n-1].last+step {
				all[n-1].last = w.last
				continue
			}
			if all = append(all, w); len(all) > windowsMax {
				return nil
			}
		}
	}
	return all
}

// fewPhases reports whether the minutes of an hour, or the seconds of every
// minute, are few enough to name them.
func (f *fields) fewPhases() bool {
	n := bits.OnesCount64(f.second)
	if f.minute != allSeconds {
		n *= bits.OnesCount64(f.minute)
	}
	return n <= phaseMax
}

const (
	oddDays  = 0xaaaaaaaa & allDays
	evenDays = 0x55555555 & allDays
)

// dates describes the days of the month.
func (f *fields) dates() monthDays {
	d := monthDays{onlyThose: true}
	switch f.day {
	case oddDays:
		d.parity = odd
	case evenDays:
		d.parity = even
	default:
		d.days = stretchesOf(valuesOf(uint64(f.day)))
	}
	for _, special := range [...]struct {
		kind monthDayKind
		set  uint32
	}{{nearDay, f.nearest}, {beforeLast, f.fromLast}, {nearBeforeLast, f.nearestLast}} {
		for _, n := range valuesOf(uint64(special.set)) {
			d.specials = append(d.specials, monthDay{special.kind, n})
		}
	}
	f.markConditional(&d)
	return d
}

// markConditional finds the days that some of the named months lack. It omits days that all of them
// lack, which need no mention.
func (f *fields) markConditional(d *monthDays) {
	shortest, longest := f.monthLengths()
	conditional := func(m monthDay) bool { return shortest < m.needs() && m.needs() <= longest }
	add := func(m monthDay) {
		m = m.plain()
		if !slices.Contains(d.conditional, m) {
			d.conditional = append(d.conditional, m)
		}
	}
	if d.parity != mixed {
		d.onlyThose = false
	}
	for _, s := range d.days {
		switch {
		case conditional(monthDay{plainDay, s.first}):
			for n := s.first; n <= min(s.last, longest); n += s.step {
				add(monthDay{plainDay, n})
			}
		default:
			d.onlyThose = false
		}
	}
	for _, m := range d.specials {
		if conditional(m) {
			add(m)
		} else {
			d.onlyThose = false
		}
	}
	d.leapYears = f.month == 1<<2
}

// monthLengths returns the lengths of the shortest and the longest of the named
// months in the named years.
func (f *fields) monthLengths() (shortest, longest int) {
	shortest, longest = 31, 28
	for _, m := range valuesOf(uint64(f.month)) {
		low, high := lengthOfMonth(2001, m), lengthOfMonth(2000, m)
		if m == 2 && !f.anyYear() {
			low, high = high, low
			for _, y := range f.namedYears() {
				n := lengthOfMonth(y, m)
				low, high = min(low, n), max(high, n)
			}
		}
		shortest, longest = min(shortest, low), max(longest, high)
	}
	return shortest, longest
}

// weekdays describes the days of the week, Monday first.
func (f *fields) weekdays() weekdays {
	var w weekdays
	w.every = stretchesOf(valuesOf(uint64(f.weekday&^1 | f.weekday&1<<7)))
	for weekday := 1; weekday <= 7; weekday++ {
		set := f.nth >> (weekday % 7 * nthBits) & (1<<nthBits - 1)
		if set == 0 {
			continue
		}
		numbers := valuesOf(set)
		for i := range numbers {
			numbers[i]++
		}
		w.nth = append(w.nth, nthWeekday{weekday, numbers})
	}
	return w
}

// namedYears returns the named years, none for every year.
func (f *fields) namedYears() []int {
	var named []int
	for i, word := range f.years {
		for _, n := range valuesOf(word) {
			named = append(named, minYear+64*i+n)
		}
	}
	return named
}

// valuesOf returns the values of a set.
func valuesOf(set uint64) []int {
	var values []int
	for ; set != 0; set &= set - 1 {
		values = append(values, bits.TrailingZeros64(set))
	}
	return values
}

// stretchesOf groups rising values: all of them if they are many with even steps, otherwise
// runs of consecutive values.
func stretchesOf(values []int) []stretch {
	if len(values) > listedMax {
		step := values[1] - values[0]
		last := len(values) - 1
		even := true
		for i := range last {
			even = even && values[i+1]-values[i] == step
		}
		if even {
			return []stretch{{values[0], values[last], step}}
		}
	}
	var parts []stretch
	for len(values) > 0 {
		n := 1
		for n < len(values) && values[n] == values[0]+n {
			n++
		}
		if n < 3 {
			n = 1 // two are listed separately
		}
		parts = append(parts, stretch{values[0], values[n-1], 1})
		values = values[n:]
	}
	return parts
}

// size is a number of units of time.
type size struct {
	n    int64
	unit unit
}

type unit uint8

const (
	inSeconds unit = iota
	inMinutes
	inHours
)

// unitMax is the number of minutes or seconds that are written before switching to the
// larger unit.
const unitMax = 120

// sizesOf splits a whole number of seconds into units: a single one, such as 90 seconds, if that is
// short.
func sizesOf(seconds int64) []size {
	switch h, m := seconds/secondsPerHour, seconds/secondsPerMinute; {
	case h > 0 && seconds%secondsPerHour == 0:
		return []size{{h, inHours}}
	case m > 0 && m < unitMax && seconds%secondsPerMinute == 0:
		return []size{{m, inMinutes}}
	case seconds < unitMax:
		return []size{{seconds, inSeconds}}
	}
	var all []size
	for _, s := range [...]size{
		{seconds / secondsPerHour, inHours},
		{seconds / secondsPerMinute % 60, inMinutes},
		{seconds % 60, inSeconds},
	} {
		if s.n != 0 {
			all = append(all, s)
		}
	}
	return all
}

// eachStretch formats the parts of a list: single values, and ranges with a word between their
// ends, followed by their step.
func eachStretch(list []stretch, value func(int) string, between string, steps func(int) string) []string {
	items := make([]string, len(list))
	for i, s := range list {
		items[i] = value(s.first)
		if !s.single() {
			items[i] += between + value(s.last)
		}
		if s.step > 1 {
			items[i] += steps(s.step)
		}
	}
	return items
}

// clock writes a second of the day as the clock shows it.
func clock(second int, seconds bool) string {
	digits := func(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }
	b := digits(make([]byte, 0, len("00:00:00")), second/secondsPerHour)
	b = digits(append(b, ':'), second/secondsPerMinute%60)
	if seconds {
		b = digits(append(b, ':'), second%60)
	}
	return string(b)
}
