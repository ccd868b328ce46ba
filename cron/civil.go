package cron

import "time"

// Civil time here is arithmetic on plain numbers: seconds and days of a calendar without
// offsets, counted from 1 January 1970. Nothing in this file uses zones or calls time.Date,
// which silently replaces local times that do not exist.

const (
	secondsPerMinute = 60
	secondsPerHour   = 3600
	secondsPerDay    = 86400

	// The years of searches. The upper one is the last that expressions can name; before
	// the lower one, the offsets of the zone table are meaningless.
	firstYear = 1900
	lastYear  = 2199
)

// floorDiv divides rounding down, which days before 1970 need.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// daysOf returns the days from 1 January 1970 to d.
func daysOf(d Date) int64 {
	// Years begin in March, so that the leap day is their last day.
	y, m := int64(d.Year), int64(d.Month)
	if m <= 2 {
		y--
		m += 12
	}
	era := floorDiv(y, 400)
	yearOfEra := y - era*400
	dayOfYear := (153*(m-3)+2)/5 + int64(d.Day) - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return era*146097 + dayOfEra - 719468
}

// dateOf is the inverse of daysOf.
func dateOf(days int64) Date {
	z := days + 719468
	era := floorDiv(z, 146097)
	dayOfEra := uint32(z - era*146097)
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	mp := (5*dayOfYear + 2) / 153
	d := Date{
		Year:  int(yearOfEra) + int(era)*400,
		Month: time.Month(mp) + 3,
		Day:   int(dayOfYear-(153*mp+2)/5) + 1,
	}
	if d.Month > 12 {
		d.Month -= 12
		d.Year++
	}
	return d
}

// weekdayOf returns the day of the week, Sunday being 0.
func weekdayOf(days int64) int {
	// 1 January 1970 was a Thursday. The bias is a multiple of 7 that keeps
	// the operand positive for all years in reach.
	return int(uint64(days+4+7*1_000_000) % 7)
}

// lengthOfMonth returns the number of days of a month.
func lengthOfMonth(year, month int) int {
	if month == 2 {
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	// The long and short months alternate, and change step after July.
	return 30 + (month+month>>3)&1
}
