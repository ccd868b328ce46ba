package cron

import (
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// NeverReason explains why the expression does not fall due after an instant, such as
// "February has no day 30". It returns "" if it falls due.
func (e *Expression) NeverReason(after time.Time) string { return e.Never(after).String() }

// Never is NeverReason as a code with arguments.
func (e *Expression) Never(after time.Time) (falls phrase.Text) {
	if !e.Next(after).IsZero() {
		return falls
	}
	end := time.Unix(daysOf(Date{lastYear + 1, time.January, 3})*secondsPerDay, 0)
	if last := e.Prev(end); !last.IsZero() {
		return e.endedReason(last, after.In(e.zone.location).Year())
	}
	if e.isPossible() {
		return phrase.ClockSkips.Of(e.zone.Name())
	}
	return phrase.InBothLanguages.Of(e.impossibleDate(), e.impossibleInChinese())
}

// endedReason explains why an expression whose last occurrence was in a year has ended.
func (e *Expression) endedReason(last time.Time, year int) phrase.Text {
	named := e.namedYears()
	n := len(named)
	switch {
	case n == 0:
		return phrase.ExpressionsEnd.Of(lastYear)
	case named[n-1] >= year:
		return phrase.LastIsPast.Of(last.Format(time.RFC3339))
	case n == 1:
		return phrase.YearIsPast.Of(named[0])
	default:
		return phrase.LastYearIsPast.Of(named[n-1])
	}
}

// isPossible reports whether any day matches the sets.
func (f *fields) isPossible() bool {
	_, ok := f.onOrAfter(daysOf(Date{firstYear, time.January, 1}) * secondsPerDay)
	return ok
}

// inAnyYear returns the sets without their years.
func (f *fields) inAnyYear() *fields {
	g := *f
	g.years = [4]uint64{}
	return &g
}

// impossibleDate explains why no day matches the sets. It is called only then.
func (f *fields) impossibleDate() string {
	var en english
	d := f.description()
	if d.rule == byDate || d.rule == byBoth {
		if _, longest := f.monthLengths(); d.dates.leastNeed() > longest {
			return f.lacking(&d)
		}
	}
	inYears := ""
	if f.inAnyYear().isPossible() {
		inYears = en.yearsClause(&d)
	}
	switch {
	case d.rule == byWeekday:
		// Only the fifth of a month can be missing, and only in named years.
		var fifth []string
		for _, w := range d.weekdays.nth {
			fifth = append(fifth, "no fifth "+englishWeekdays[w.weekday])
		}
		return "there is " + en.join(fifth, "and") + en.period(&d)
	case d.rule == byEither:
		return "there is neither such a day of month nor such a day of week" + en.period(&d)
	case d.isFullDate() && d.weekdays.nth == nil:
		day := daysOf(Date{d.years[0].first, time.Month(d.months[0].first), d.dates.days[0].first})
		return en.datesOf(&d) + " is a " + englishWeekdays[(weekdayOf(day)+6)%7+1]
	default:
		return "no day satisfies day of month, month and day of week together" + inYears
	}
}

// leastNeed returns the length of the shortest month that has one of the dates.
func (d *monthDays) leastNeed() int {
	least := 1
	if d.parity == mixed {
		least = lengthMax + 1
	}
	if d.days != nil {
		least = d.days[0].first
	}
	for _, s := range d.specials {
		least = min(least, s.needs())
	}
	return least
}

// lengthMax is the length of the longest month.
const lengthMax = 31

// lacking says that each named month lacks the dates.
func (f *fields) lacking(d *description) string {
	var en english
	_, longest := f.inAnyYear().monthLengths()
	inYears := ""
	if d.dates.leastNeed() <= longest {
		if len(d.dates.specials) == 0 && oneOf(d.dates.days) {
			if oneOf(d.years) {
				return en.datesOf(d) + " does not exist"
			}
			return en.datesOf(d) + " does not exist in " + en.years(d.years)
		}
		inYears = " in " + en.years(d.years)
	}
	verb := " have no "
	if oneOf(d.months) {
		verb = " has no "
	}
	var items []string
	if d.dates.days != nil {
		var days []string
		for _, s := range d.dates.days {
			for n := s.first; n <= s.last; n += s.step {
				days = append(days, strconv.Itoa(n))
			}
		}
		items = append(items, "day "+en.join(days, "or"))
	}
	for _, s := range d.dates.specials {
		item := strings.TrimPrefix(en.monthDay(s.plain()), "the ")
		if len(items) == 0 || items[len(items)-1] != item {
			items = append(items, item)
		}
	}
	return en.months(d.months) + verb + strings.Join(items, " and no ") + inYears
}

// impossibleInChinese is impossibleDate in Chinese.
func (f *fields) impossibleInChinese() string {
	var zh chinese
	d := f.description()
	dates := zh.dates(&d.dates)
	switch {
	case (d.rule == byDate || d.rule == byBoth) && d.dates.leastNeed() > f.longestMonth():
		return strings.TrimSuffix(zh.heading(&d), "：") + "没有" + spaced("", dates)
	case d.rule == byWeekday:
		return zh.heading(&d) + "没有" + zh.weekdays(&d.weekdays, "")
	case d.rule == byEither:
		return zh.heading(&d) + "既没有这样的日期，也没有这样的星期"
	case d.isFullDate() && d.weekdays.nth == nil:
		day := daysOf(Date{d.years[0].first, time.Month(d.months[0].first), d.dates.days[0].first})
		return spaced(zh.years(&d), zh.months(d.months)) + spaced("", dates) + "是" + chineseWeekdays[(weekdayOf(day)+6)%7+1]
	}
	return zh.heading(&d) + "没有任何一天同时满足日期、月份和星期"
}

func (f *fields) longestMonth() int {
	_, longest := f.monthLengths()
	return longest
}
