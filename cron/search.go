package cron

import "math/bits"

// The search for matching civil times. It is arithmetic on bit sets: no loop over minutes or days,
// one bounded loop over months, and no zone. clock.go maps its results to instants.

// Each set holds a value v of its field as bit v.
const (
	allSeconds  = 1<<60 - 1
	allHours    = 1<<24 - 1
	allDays     = 1<<32 - 2 // 1 to 31
	allMonths   = 1<<13 - 2 // 1 to 12
	allWeekdays = 1<<7 - 1  // 0 to 6, Sunday first
)

const (
	minYear = 1970 // the first valid year of an expression
	years   = lastYear - minYear + 1

	// nthBits is the width of one day of the week in fields.nth: the first to
	// the fifth of a month and, in the last bit, its last.
	nthBits = 6
	nthLast = 5
)

// fields is the compiled form that the grammars share. It is plain data, so
// that == reports whether two expressions fall due at the same civil times.
type fields struct {
	second, minute uint64
	nth            uint64    // d#n and dL: bit d*nthBits + n-1, or + nthLast
	years          [4]uint64 // bit y-minYear; all zero means any year
	hour           uint32
	day            uint32 // days of the month
	fromLast       uint32 // L-n: bit n
	nearest        uint32 // nW: bit n
	nearestLast    uint32 // L-nW: bit n
	month          uint16
	weekday        uint8
	marks          marks
}

// marks are properties of the fields together.
type marks uint8

const (
	// either is [Vixie]'s rule for two restricted day fields: a day must match one of them. Without
	// it a day must match both.
	either marks = 1 << iota
	// wildcard is set for a second, minute or hour that begins with a star: such a schedule follows
	// real time through clock changes; other schedules have fixed times.
	wildcard
)

func (f *fields) has(m marks) bool { return f.marks&m != 0 }

func (f *fields) anyYear() bool { return f.years == [4]uint64{} }

func (f *fields) hasYear(year int) bool {
	if f.anyYear() {
		return true
	}
	i := year - minYear
	return i >= 0 && i < years && f.years[i>>6]>>(i&63)&1 != 0
}

// anyDayOfMonth reports whether the day of the month restricts nothing.
func (f *fields) anyDayOfMonth() bool { return f.day == allDays }

// anyWeekday reports whether the day of the week restricts nothing.
func (f *fields) anyWeekday() bool { return f.weekday == allWeekdays }

// days returns the matching days of a month as bits 1 to 31. first is the day
// of the week of its first day.
func (f *fields) days(year, month, first int) uint32 {
	length := lengthOfMonth(year, month)
	inMonth := uint32(1)<<(length+1) - 2

	byDate := f.day
	if f.fromLast != 0 {
		// L-n is day length-n: mirror the bits and move them into place.
		byDate |= bits.Reverse32(f.fromLast) >> (31 - length)
	}
	if f.nearest|f.nearestLast != 0 {
		byDate |= f.nearestWeekdays(length, first)
	}
	byDate &= inMonth
	if f.anyWeekday() && !f.has(either) {
		return byDate
	}

	const everyWeek = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28 | 1<<35
	byWeekday := uint32(uint64(f.weekday)*everyWeek>>first) << 1
	if f.nth != 0 {
		byWeekday |= f.nthWeekdays(length, first)
	}
	byWeekday &= inMonth
	if f.has(either) {
		return byDate | byWeekday
	}
	return byDate & byWeekday
}

// nearestWeekdays returns the days of nW and L-nW: the Monday to Friday nearest to a day,
// inside the month.
func (f *fields) nearestWeekdays(length, first int) uint32 {
	wanted := f.nearest
	if f.nearestLast != 0 {
		wanted |= bits.Reverse32(f.nearestLast) >> (31 - length)
	}
	wanted &= uint32(1)<<(length+1) - 2
	var found uint32
	for wanted != 0 {
		d := bits.TrailingZeros32(wanted)
		wanted &= wanted - 1
		switch (first + d - 1) % 7 {
		case 0: // a Sunday moves to Monday, or back to Friday at the end
			d++
			if d > length {
				d -= 3
			}
		case 6: // a Saturday moves to Friday, or on to Monday at the start
			d--
			if d < 1 {
				d += 3
			}
		}
		found |= 1 << d
	}
	return found
}

// nthWeekdays returns the days of d#n and dL.
func (f *fields) nthWeekdays(length, first int) uint32 {
	var found uint32
	for set := f.nth; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		weekday, n := i/nthBits, i%nthBits
		d := 1 + (weekday-first+7)%7
		if n == nthLast {
			d += (length - d) / 7 * 7
		} else {
			d += 7 * n
		}
		if d <= length {
			found |= 1 << d
		}
	}
	return found
}

// timeFrom returns the first matching second of a day at or after second s of
// it, or -1.
func (f *fields) timeFrom(s int) int {
	h, m, sec := s/secondsPerHour, s/secondsPerMinute%60, s%60
	if f.hour>>h&1 != 0 {
		if f.minute>>m&1 != 0 {
			if rest := f.second >> sec; rest != 0 {
				return s + bits.TrailingZeros64(rest)
			}
		}
		if rest := f.minute >> (m + 1); rest != 0 {
			m += 1 + bits.TrailingZeros64(rest)
			return h*secondsPerHour + m*secondsPerMinute + bits.TrailingZeros64(f.second)
		}
	}
	if rest := f.hour >> (h + 1); rest != 0 {
		h += 1 + bits.TrailingZeros32(rest)
		return h*secondsPerHour + bits.TrailingZeros64(f.minute)*secondsPerMinute + bits.TrailingZeros64(f.second)
	}
	return -1
}

// timeUpTo returns the last matching second of a day at or before second s of
// it, or -1.
func (f *fields) timeUpTo(s int) int {
	h, m, sec := s/secondsPerHour, s/secondsPerMinute%60, s%60
	if f.hour>>h&1 != 0 {
		if f.minute>>m&1 != 0 {
			if rest := f.second << (63 - sec); rest != 0 {
				return s - bits.LeadingZeros64(rest)
			}
		}
		if rest := f.minute & (1<<m - 1); rest != 0 {
			m = bits.Len64(rest) - 1
			return h*secondsPerHour + m*secondsPerMinute + bits.Len64(f.second) - 1
		}
	}
	if rest := f.hour & (1<<h - 1); rest != 0 {
		h = bits.Len32(rest) - 1
		return h*secondsPerHour + (bits.Len64(f.minute)-1)*secondsPerMinute + bits.Len64(f.second) - 1
	}
	return -1
}

// onOrAfter returns the first matching civil second at or after c.
func (f *fields) onOrAfter(c int64) (int64, bool) {
	day := floorDiv(c, secondsPerDay)
	d := dateOf(day)
	if d.Year < firstYear {
		d = Date{firstYear, 1, 1}
		day = daysOf(d)
		c = day * secondsPerDay
	}
	if !f.hasYear(d.Year) {
		next := f.yearFrom(d.Year)
		if next < 0 {
			return 0, false
		}
		d = Date{next, 1, 1}
		day = daysOf(d)
		c = day * secondsPerDay
	}
	if d.Year <= lastYear && f.month>>d.Month&1 != 0 {
		set := f.days(d.Year, int(d.Month), weekdayOf(day-int64(d.Day-1)))
		if set>>d.Day&1 != 0 {
			if s := f.timeFrom(int(c - day*secondsPerDay)); s >= 0 {
				return day*secondsPerDay + int64(s), true
			}
		}
		if set >>= d.Day + 1; set != 0 {
			day += 1 + int64(bits.TrailingZeros32(set))
			return day*secondsPerDay + int64(f.timeFrom(0)), true
		}
	}
	// The months that follow. day is moved to the first of each.
	day -= int64(d.Day - 1)
	for year, month := d.Year, int(d.Month); ; {
		day += int64(lengthOfMonth(year, month))
		if month++; month > 12 {
			month = 1
			if year++; !f.hasYear(year) {
				next := f.yearFrom(year)
				if next < 0 {
					return 0, false
				}
				year, day = next, daysOf(Date{next, 1, 1})
			}
		}
		if year > lastYear {
			return 0, false
		}
		if f.month>>month&1 == 0 {
			continue
		}
		if set := f.days(year, month, weekdayOf(day)); set != 0 {
			day += int64(bits.TrailingZeros32(set)) - 1
			return day*secondsPerDay + int64(f.timeFrom(0)), true
		}
	}
}

// onOrBefore returns the last matching civil second at or before c.
func (f *fields) onOrBefore(c int64) (int64, bool) {
	day := floorDiv(c, secondsPerDay)
	d := dateOf(day)
	if d.Year > lastYear {
		d = Date{lastYear, 12, 31}
		day = daysOf(d)
		c = day*secondsPerDay + secondsPerDay - 1
	}
	if !f.hasYear(d.Year) {
		previous := f.yearUpTo(d.Year)
		if previous < 0 {
			return 0, false
		}
		d = Date{previous, 12, 31}
		day = daysOf(d)
		c = day*secondsPerDay + secondsPerDay - 1
	}
	if d.Year >= firstYear && f.month>>d.Month&1 != 0 {
		set := f.days(d.Year, int(d.Month), weekdayOf(day-int64(d.Day-1)))
		if set>>d.Day&1 != 0 {
			if s := f.timeUpTo(int(c - day*secondsPerDay)); s >= 0 {
				return day*secondsPerDay + int64(s), true
			}
		}
		if set &= 1<<d.Day - 1; set != 0 {
			day += int64(bits.Len32(set) - 1 - d.Day)
			return day*secondsPerDay + int64(f.timeUpTo(secondsPerDay-1)), true
		}
	}
	// The months before. day is moved to the first of each.
	day -= int64(d.Day - 1)
	for year, month := d.Year, int(d.Month); ; {
		if month--; month < 1 {
			month = 12
			if year--; !f.hasYear(year) {
				previous := f.yearUpTo(year)
				if previous < 0 {
					return 0, false
				}
				year, day = previous, daysOf(Date{previous + 1, 1, 1})
			}
		}
		if year < firstYear {
			return 0, false
		}
		day -= int64(lengthOfMonth(year, month))
		if f.month>>month&1 == 0 {
			continue
		}
		if set := f.days(year, month, weekdayOf(day)); set != 0 {
			day += int64(bits.Len32(set)) - 2
			return day*secondsPerDay + int64(f.timeUpTo(secondsPerDay-1)), true
		}
	}
}

// yearFrom returns the first named year at or after year, or -1. It is called
// only where years are named.
func (f *fields) yearFrom(year int) int {
	for y := max(year, minYear); y <= lastYear; y++ {
		if f.hasYear(y) {
			return y
		}
	}
	return -1
}

// yearUpTo returns the last named year at or before year, or -1.
func (f *fields) yearUpTo(year int) int {
	for y := min(year, lastYear); y >= minYear; y-- {
		if f.hasYear(y) {
			return y
		}
	}
	return -1
}
