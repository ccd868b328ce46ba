package cron

import (
	"strconv"
	"strings"
	"time"
)

// english formats descriptions in English.
type english struct{}

var (
	englishMonths   = [...]string{1: "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
	englishWeekdays = [...]string{1: "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
	englishNumbers  = [...]string{1: "first", "second", "third", "fourth", "fifth", lastWeekday: "last"}
	englishUnits    = [...]string{inSeconds: "second", inMinutes: "minute", inHours: "hour"}
)

func (en english) describe(d *description) string {
	times := en.times(&d.times)
	switch d.rule {
	case byDate:
		return times + " on " + en.datesOf(d) + en.yearsClause(d)
	case byBoth:
		return times + " on " + en.datesOf(d) + en.yearsClause(d) + en.condition(d)
	case byEither:
		if period := en.period(d); period != "" {
			times += period + ","
		}
		return times + " on " + en.datesIn(&d.dates, " of the month") + " or on " + en.weekdays(&d.weekdays, "and", " of the month") + en.ifThere(&d.weekdays)
	case byWeekday:
		return times + en.weekdaysOf(d)
	}
	if !d.times.wholeDay() {
		times += " every day"
	}
	return times + en.period(d)
}

// times describes the times of a day.
func (en english) times(t *times) string {
	if t.clock != nil {
		return "at " + en.clocks(t.clock, t.seconds)
	}
	if t.step == 0 {
		return en.factors(t)
	}
	text := en.every(time.Duration(t.step) * time.Second)
	if t.windows == nil {
		if t.step == secondsPerHour {
			text += " on the hour"
		}
		return text
	}
	parts := make([]string, len(t.windows))
	for i, w := range t.windows {
		parts[i] = "from " + clock(w.first, t.seconds) + " through " + clock(w.last, t.seconds)
	}
	return text + " " + en.join(parts, "and")
}

// factors describes times as seconds of minutes of hours.
func (en english) factors(t *times) string {
	f := &t.factors
	hours := "every hour"
	if f.hour != nil {
		hours = en.values("the hour", f.hour)
	}
	if !t.seconds {
		minutes := en.factor("minute", f.minute, f.minuteStep)
		if f.minute == nil || f.minuteStep != 0 {
			return minutes + " during " + hours
		}
		return minutes + " of " + hours
	}
	seconds := en.factor("second", f.second, f.secondStep)
	switch {
	case f.minute != nil:
		return seconds + " of " + en.values("minute", f.minute) + " of " + hours
	case f.hour == nil:
		return seconds + " of every minute"
	case f.second == nil || f.secondStep != 0:
		return seconds + " during " + hours
	default:
		return seconds + " of every minute of " + hours
	}
}

// factor formats a set of minutes or seconds with its preposition.
func (en english) factor(unit string, values []stretch, step int) string {
	switch {
	case values == nil:
		return "every " + unit
	case step != 0:
		return "every " + strconv.Itoa(step) + " " + unit + "s"
	default:
		return "at " + en.values(unit, values)
	}
}

// weekdaysOf formats the days of the week with their months and years, and the preposition.
func (en english) weekdaysOf(d *description) string {
	w := &d.weekdays
	switch {
	case len(w.nth) == 0 && len(w.every) == 1 && !w.every[0].single():
		text := ", " + en.weekdays(w, "and", "")
		if period := en.period(d); period != "" {
			text += "," + period
		}
		return text
	case len(w.every) == 0:
		return " on " + en.weekdays(w, "and", en.ofMonths(d)) + en.ifThere(w) + en.yearsClause(d)
	default:
		text := " on " + en.weekdays(w, "and", " of the month") + en.ifThere(w)
		if period := en.period(d); period != "" && len(w.nth) > 0 {
			return text + "," + period
		}
		return text + en.period(d)
	}
}

// weekdays formats days of the week; months follow days that are counted in a month.
func (en english) weekdays(w *weekdays, conjunction, months string) string {
	var items []string
	article := ""
	if conjunction == "or" {
		article = "a "
	}
	for _, s := range w.every {
		if s.single() || conjunction == "or" {
			for n := s.first; n <= s.last; n++ {
				items = append(items, article+englishWeekdays[n])
			}
		} else {
			items = append(items, englishWeekdays[s.first]+" through "+englishWeekdays[s.last])
		}
	}
	for _, d := range w.nth {
		numbers := make([]string, len(d.numbers))
		for i, n := range d.numbers {
			numbers[i] = englishNumbers[n]
		}
		items = append(items, "the "+en.join(numbers, conjunction)+" "+englishWeekdays[d.weekday])
	}
	text := en.join(items, conjunction)
	if len(w.nth) > 0 {
		text += months
	}
	return text
}

// ifThere says that some months lack the day.
func (english) ifThere(w *weekdays) string {
	switch {
	case !w.hasFifth():
		return ""
	case w.one():
		return " (if there is one)"
	default:
		return " (the fifth only if there is one)"
	}
}

// condition says that a day of the month must also be a day of the week.
func (en english) condition(d *description) string {
	text := " if the day is "
	if d.dates.one() {
		text = " if it is "
	}
	return text + en.weekdays(&d.weekdays, "or", " of the month")
}

// datesOf describes days of the month with the months.
func (en english) datesOf(d *description) string {
	if d.isDate() {
		text := strconv.Itoa(d.dates.days[0].first) + " " + englishMonths[d.months[0].first]
		if d.isFullDate() {
			text += " " + strconv.Itoa(d.years[0].first)
		}
		return text + en.remark(&d.dates)
	}
	return en.datesIn(&d.dates, en.ofMonths(d))
}

// datesIn describes days of the month, followed by the months.
func (en english) datesIn(d *monthDays, months string) string {
	var items []string
	switch {
	case d.parity == odd:
		items = append(items, "odd days")
	case d.parity == even:
		items = append(items, "even days")
	case d.days != nil:
		items = append(items, en.values("day", d.days))
	}
	for _, s := range d.specials {
		items = append(items, en.monthDay(s))
	}
	return en.join(items, "and") + months + en.remark(d)
}

func (en english) monthDay(d monthDay) string {
	switch {
	case d.kind == plainDay:
		return "day " + strconv.Itoa(d.n)
	case d.kind == beforeLast && d.n == 0:
		return "the last day"
	case d.kind == beforeLast && d.n == 1:
		return "the day before the last day"
	case d.kind == beforeLast:
		return "the " + en.ordinal(d.n) + " day before the last day"
	case d.kind == nearBeforeLast && d.n == 0:
		return "the last working day (Monday to Friday)"
	case d.kind == nearBeforeLast:
		return "the weekday (Monday to Friday, in the same month) nearest to " + en.monthDay(monthDay{beforeLast, d.n})
	default:
		return "the weekday (Monday to Friday, in the same month) nearest to day " + strconv.Itoa(d.n)
	}
}

// remark names the days that some months lack.
func (en english) remark(d *monthDays) string {
	if len(d.conditional) == 0 {
		return ""
	}
	where := "in months that have it"
	switch {
	case d.leapYears:
		where = "in leap years"
	case len(d.conditional) > 1:
		where = "each only in months that have it"
	case d.onlyThose && d.days == nil && d.specials[0].kind != beforeLast:
		where = "in months that have " + en.monthDay(d.conditional[0])
	}
	if d.onlyThose {
		return " (" + where + ")"
	}
	if !strings.HasPrefix(where, "each") {
		where = "only " + where
	}
	items := make([]string, len(d.conditional))
	for i, m := range d.conditional {
		items[i] = en.monthDay(m)
	}
	return " (" + en.join(items, "and") + " " + where + ")"
}

// ofMonths appends the months to days that are counted in a month.
func (en english) ofMonths(d *description) string {
	if d.months == nil {
		return " of the month"
	}
	return " of " + en.months(d.months)
}

// period formats the months and years with their preposition.
func (en english) period(d *description) string {
	switch {
	case d.months == nil:
		return en.yearsClause(d)
	case d.years == nil:
		return " in " + en.months(d.months)
	default:
		return " in " + en.months(d.months) + " of " + en.years(d.years)
	}
}

func (en english) months(months []stretch) string {
	return en.join(eachStretch(months, func(n int) string { return englishMonths[n] }, " through ", en.steps), "and")
}

// yearsClause describes the years, unless they are part of a full date.
func (en english) yearsClause(d *description) string {
	if d.years == nil || d.isFullDate() {
		return ""
	}
	return " in " + en.years(d.years)
}

func (en english) years(years []stretch) string {
	if oneOf(years) {
		return en.numbers(years)
	}
	return "the years " + en.numbers(years)
}

// values formats numbers of a unit, such as "minutes 5 and 35".
func (en english) values(unit string, values []stretch) string {
	if !oneOf(values) {
		unit += "s"
	}
	return unit + " " + en.numbers(values)
}

func (en english) numbers(values []stretch) string {
	return en.join(eachStretch(values, strconv.Itoa, " through ", en.steps), "and")
}

func (english) steps(step int) string { return " in steps of " + strconv.Itoa(step) }

func (en english) clocks(times []int, seconds bool) string {
	items := make([]string, len(times))
	for i, t := range times {
		items[i] = clock(t, seconds)
	}
	return en.join(items, "and")
}

// join formats a list.
func (english) join(items []string, conjunction string) string {
	last := len(items) - 1
	if last < 1 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:last], ", ") + " " + conjunction + " " + items[last]
}

// ordinal returns 1st, 2nd, 3rd and so on, up to 99.
func (english) ordinal(n int) string {
	suffix := "th"
	if n/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

func (en english) every(d time.Duration) string {
	if d%time.Second != 0 {
		return "every " + d.String()
	}
	sizes := sizesOf(int64(d / time.Second))
	if len(sizes) == 1 && sizes[0].n == 1 {
		return "every " + englishUnits[sizes[0].unit]
	}
	return "every " + en.sizes(sizes)
}

func (english) sizes(sizes []size) string {
	items := make([]string, len(sizes))
	for i, s := range sizes {
		items[i] = strconv.FormatInt(s.n, 10) + " " + englishUnits[s.unit]
		if s.n != 1 {
			items[i] += "s"
		}
	}
	return strings.Join(items, " ")
}

func (en english) note(n *note) string {
	one := n.count == 1
	if n.day {
		return en.date(n.times[0]) + " does not exist in " + n.place + ": " + en.noteTimes(n, false) + " " + en.outcome(n)
	}
	what := " do not exist"
	switch {
	case n.outcome >= runTwice && one:
		what = " comes twice"
	case n.outcome >= runTwice:
		what = " come twice"
	case one:
		what = " does not exist"
	}
	return en.noteTimes(n, true) + what + " in " + n.place + ": " + en.outcome(n)
}

// outcome formats the effect in a note.
func (en english) outcome(n *note) string {
	one := n.count == 1
	run, not := "run", "do not run"
	if one {
		run, not = "runs", "does not run"
	}
	switch n.outcome {
	case notRun:
		return not
	case caughtUp:
		switch {
		case n.regular:
			return run + " once at " + en.runs(n) + ", together with the regular time"
		case one:
			return run + " at " + en.runs(n)
		default:
			return run + " once at " + en.runs(n)
		}
	case movedLater:
		text := run + " at " + en.runs(n)
		if n.count > noteTimesMax {
			text = run + " " + en.sizes(sizesOf(n.length)) + " later"
		}
		switch {
		case n.regular && one:
			text += ", together with the regular time"
		case n.regular:
			text += ", once where that is a regular time as well"
		}
		return text
	case runTwice:
		return run + " twice"
	case runFirst:
		return run + " on the first pass only (" + offsetOf(n.offset) + ")"
	default:
		return run + " on the last pass only (" + offsetOf(n.offset) + ")"
	}
}

// noteTimes formats the times of a note.
func (en english) noteTimes(n *note, dated bool) string {
	items := make([]string, len(n.times), len(n.times)+1)
	for i, c := range n.times {
		items[i] = clock(secondOfDay(c), n.seconds)
		if dated && (i == 0 || !sameDay(c, n.times[i-1])) {
			items[i] = "on " + en.date(c) + " " + items[i]
		}
	}
	if n.count > len(items) {
		items = append(items, strconv.Itoa(n.count-len(items))+" more")
	}
	return en.join(items, "and")
}

// runs formats the times at which skipped times run, with the date if it differs.
func (en english) runs(n *note) string {
	items := make([]string, len(n.runs))
	for i, c := range n.runs {
		items[i] = clock(secondOfDay(c), n.seconds)
		if !sameDay(c, n.times[0]) && (i == len(n.runs)-1 || !sameDay(c, n.runs[i+1])) {
			items[i] += " on " + en.date(c)
		}
	}
	return en.join(items, "and")
}

// date formats the day of a civil time.
func (english) date(c int64) string {
	d := dateOf(floorDiv(c, secondsPerDay))
	return strconv.Itoa(d.Day) + " " + englishMonths[d.Month] + " " + strconv.Itoa(d.Year)
}

func (english) moreNotes(n int) string {
	if n == 1 {
		return "and 1 more change of the clock"
	}
	return "and " + strconv.Itoa(n) + " more changes of the clock"
}
