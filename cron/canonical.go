package cron

import (
	"math/bits"
	"slices"
	"strconv"
)

// String returns the canonical form: the shortest that this package knows, and the same for
// all spellings of an expression in its dialect. H and ~ appear as the drawn values.
// Parsing it in the same dialect, zone and rule for clock changes yields an equal
// expression.
func (e *Expression) String() string {
	b := make([]byte, 0, 32)
	b = e.appendTime(b)
	b = append(b, ' ')
	day, weekday := e.dayFields()
	b = append(append(b, day...), ' ')
	b = append(appendStarSet(b, uint64(e.month), monthField, 0), ' ')
	b = append(b, weekday...)
	if !e.anyYear() {
		b = append(b, ' ')
		b = e.appendYears(b)
	}
	return string(b)
}

// appendTime writes the second, where the form has one, the minute and the hour.
func (e *Expression) appendTime(b []byte) []byte {
	sets := [...]uint64{secondField: e.second, minuteField: e.minute, hourField: uint64(e.hour)}
	forced := noField // the field that must start with a star although its values do not need one
	if e.has(wildcard) {
		forced = e.starField(sets[:])
	}
	seconds := e.second != 1 || !e.anyYear() || e.dialect == Quartz || forced == secondField
	for field, set := range sets {
		switch {
		case field == secondField && !seconds:
			continue
		case field == forced:
			b = appendForcedStar(b, set, field, 0)
		case e.has(wildcard):
			b = appendStarSet(b, set, field, 0)
		default:
			b = appendSet(b, set, field, 0)
		}
		if field != hourField {
			b = append(b, ' ')
		}
	}
	return b
}

// starField returns the time field whose star makes the schedule a wildcard one,
// if it is not written with a star anyway: the largest that can begin with one.
func (e *Expression) starField(sets []uint64) int {
	candidate := noField
	for field, set := range sets {
		if step, rest := stars(set, field); step != 0 && rest == 0 {
			return noField
		}
		if set&1 != 0 {
			candidate = field
		}
	}
	return candidate
}

// dayFields returns the day of month and the day of week.
func (e *Expression) dayFields() (day, weekday []byte) {
	base := 0
	if e.dialect == Quartz {
		base = 1
	}
	anyDay, anyWeekday := e.anyDayOfMonth(), e.anyWeekday()
	if e.dialect == Quartz {
		switch {
		case anyWeekday:
			return e.appendDays(anyDay), []byte("?")
		default:
			return []byte("?"), e.appendWeekdays(nil, base, false)
		}
	}
	if anyDay || anyWeekday || e.has(either) {
		return e.appendDays(anyDay), e.appendWeekdays(nil, base, anyWeekday)
	}
	// A day must match both fields: a leading star, or a plus sign, expresses that.
	if step, rest := stars(uint64(e.day), dayField); step != 0 && rest == 0 && e.specialDays() == 0 {
		return e.appendDays(true), e.appendWeekdays(nil, base, false)
	}
	if step, rest := stars(uint64(e.weekday), weekdayField); step != 0 && rest == 0 && e.nth == 0 {
		return e.appendDays(false), e.appendWeekdays(nil, base, true)
	}
	switch {
	case e.dialect == Default:
		return e.appendDays(false), e.appendWeekdays([]byte("+"), base, false)
	case e.day&2 != 0:
		return appendForcedStar(nil, uint64(e.day), dayField, 0), e.appendWeekdays(nil, base, false)
	default:
		return e.appendDays(false), appendForcedStar(nil, uint64(e.weekday), weekdayField, base)
	}
}

// specialDays returns a number that is 0 if there are no special days of the month.
func (f *fields) specialDays() uint32 { return f.fromLast | f.nearest | f.nearestLast }

// appendDays writes the day of month, with a star where it may and can.
func (e *Expression) appendDays(star bool) []byte {
	items := list{}
	switch {
	case star:
		items.b = appendStarSet(items.b, uint64(e.day), dayField, 0)
	case e.day != 0:
		items.b = appendSet(items.b, uint64(e.day), dayField, 0)
	}
	for set := e.nearest; set != 0; set &= set - 1 {
		items.add(strconv.Itoa(bits.TrailingZeros32(set)) + "W")
	}
	for set := e.fromLast; set != 0; set &= set - 1 {
		items.add(lastName(bits.TrailingZeros32(set)))
	}
	for set := e.nearestLast; set != 0; set &= set - 1 {
		items.add(lastName(bits.TrailingZeros32(set)) + "W")
	}
	return items.b
}

// lastName returns "L" or "L-n".
func lastName(n int) string {
	if n == 0 {
		return "L"
	}
	return "L-" + strconv.Itoa(n)
}

// appendWeekdays writes the day of week, with a star where it may and can. The
// first day has the number base.
func (e *Expression) appendWeekdays(b []byte, base int, star bool) []byte {
	items := list{b: b}
	switch {
	case star:
		items.b = appendStarSet(items.b, uint64(e.weekday), weekdayField, base)
	case e.weekday != 0:
		items.b = appendSet(items.b, uint64(e.weekday), weekdayField, base)
	}
	for set := e.nth; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		day := strconv.Itoa(i/nthBits + base)
		if n := i % nthBits; n == nthLast {
			items.add(day + "L")
		} else {
			items.add(day + "#" + strconv.Itoa(n+1))
		}
	}
	return items.b
}

// list writes items with commas between them.
type list struct{ b []byte }

func (l *list) add(item string) {
	if n := len(l.b); n > 0 && l.b[n-1] != '+' {
		l.b = append(l.b, ',')
	}
	l.b = append(l.b, item...)
}

// stars returns the smallest step for which a set contains all values of "*/step", and the
// remaining values of the set. The step is 0 when the field is too small for a second
// value: then a star adds nothing.
func stars(set uint64, field int) (step int, rest uint64) {
	low, high := specs[field].min, specs[field].max
	for step = 1; step <= high-low; step++ {
		if values := progression(low, high, step); values&^set == 0 {
			return step, set &^ values
		}
	}
	return 0, set
}

// progression returns the set of low, low+step … up to high.
func progression(low, high, step int) uint64 {
	var set uint64
	for v := low; v <= high; v += step {
		set |= 1 << v
	}
	return set
}

// appendStarSet writes a set as "*" or "*/n" where it is one.
func appendStarSet(b []byte, set uint64, field, base int) []byte {
	step, rest := stars(set, field)
	if step == 0 || rest != 0 {
		return appendSet(b, set, field, base)
	}
	b = append(b, '*')
	if step > 1 {
		b = append(b, '/')
		b = strconv.AppendInt(b, int64(step), 10)
	}
	return b
}

// appendForcedStar writes a set, which has the lowest value of its field, with a star at its
// beginning.
func appendForcedStar(b []byte, set uint64, field, base int) []byte {
	step, rest := stars(set, field)
	if step == 0 {
		low, high := specs[field].min, specs[field].max
		step, rest = high-low+1, set&^(1<<low)
	}
	b = append(b, "*/"...)
	b = strconv.AppendInt(b, int64(step), 10)
	if rest != 0 {
		b = append(b, ',')
		b = appendSet(b, rest, field, base)
	}
	return b
}

// appendSet writes a set as a list of values, ranges and ranges with steps.
func appendSet(b []byte, set uint64, field, base int) []byte {
	return appendRuns(b, valueSet{set}, specs[field].max+1, base)
}

// appendYears writes the named years.
func (e *Expression) appendYears(b []byte) []byte {
	return appendRuns(b, e.years, years, minYear)
}

// valueSet is a set wide enough for every field.
type valueSet [4]uint64

func (s *valueSet) has(v int) bool { return s[v>>6]>>(v&63)&1 != 0 }
func (s *valueSet) remove(v int)   { s[v>>6] &^= 1 << (v & 63) }

// count returns the number of values, and the lowest one.
func (s *valueSet) count() (n, lowest int) {
	for i, part := range slices.Backward(s[:]) {
		if part != 0 {
			n += bits.OnesCount64(part)
			lowest = i<<6 + bits.TrailingZeros64(part)
		}
	}
	return n, lowest
}

// run is a part of a set: the values from first to last in steps.
type run struct{ first, last, step, count int }

// appendRuns writes the values below size of a set, each with base added.
func appendRuns(b []byte, set valueSet, size, base int) []byte {
	var runs []run
	for rest := set; rest != (valueSet{}); {
		r := longestRun(&rest, &set, size)
		for v := r.first; v <= r.last; v += r.step {
			rest.remove(v)
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b run) int { return a.first - b.first })
	for i, r := range runs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(r.first+base), 10)
		if r.count > 1 {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(r.last+base), 10)
		}
		if r.step > 1 {
			b = append(b, '/')
			b = strconv.AppendInt(b, int64(r.step), 10)
		}
	}
	return b
}

// longestRun returns the run of a set with the most values of rest; among equals, the smallest step
// and then the lowest first value decide. Two values are no run: a list of them is as short.
func longestRun(rest, set *valueSet, size int) run {
	const worthARange = 3
	if n, lowest := rest.count(); n < worthARange { // most sets have few values
		return run{first: lowest, last: lowest, step: 1, count: 1}
	}
	best := run{count: 0, step: 1}
	for step := 1; step == 1 || step*(worthARange-1) < size; step++ {
		for first := range size {
			if !rest.has(first) {
				continue
			}
			r := run{first: first, step: step}
			for v := first; v < size && set.has(v); v += step {
				if rest.has(v) {
					r.last = v
					r.count++
				}
			}
			if r.count < worthARange {
				r = run{first: first, last: first, step: 1, count: 1}
			}
			if r.count > best.count {
				best = r
			}
		}
	}
	return best
}
