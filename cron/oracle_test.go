package cron

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The oracle implements the rules of the package in the slowest and simplest way. A generator makes
// an expression as a text together with the meaning of each field, as tables of booleans; no code
// here parses. A wall has the civil times of a zone, instant by instant, from the time package; the
// oracle applies the rules for clock changes by walking over it. It shares only the names of
// dialects and rules with the package.

var seedFlag = flag.Uint64("seed", 1, "seed of the random expressions and instants")

// newRand returns the source of randomness of a test and logs how to repeat it.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	t.Logf("random with -seed %d", *seedFlag)
	return rand.New(rand.NewPCG(*seedFlag, 0x0ca1e7da2))
}

// moment is a date and time on the wall.
type moment struct {
	year, month, day, hour, minute, second int16
	weekday                                int16 // Sunday is 0
	length                                 int16 // number of days in the month
}

func momentOf(t time.Time) moment {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	return moment{
		int16(year), int16(month), int16(day), int16(hour), int16(minute), int16(second),
		int16(t.Weekday()), daysInMonth(year, int(month)),
	}
}

// daysInMonth is a table of the lengths of months.
func daysInMonth(year, month int) int16 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%400 == 0 || year%100 != 0 && year%4 == 0 {
			return 29
		}
		return 28
	}
	return 31
}

// plus adds less than a day, as a clock without changes does.
func (m moment) plus(seconds int64) moment {
	s := int64(m.hour)*3600 + int64(m.minute)*60 + int64(m.second) + seconds
	if s >= 24*3600 {
		s -= 24 * 3600
		m.weekday = (m.weekday + 1) % 7
		if m.day++; m.day > m.length {
			m.day = 1
			if m.month++; m.month > 12 {
				m.month = 1
				m.year++
			}
			m.length = daysInMonth(int(m.year), int(m.month))
		}
	}
	m.hour, m.minute, m.second = int16(s/3600), int16(s/60%60), int16(s%60)
	return m
}

// meaning is an expression as text, with its meaning.
type meaning struct {
	text        string
	dialect     Dialect
	clockChange ClockChange
	job         string // "" for none

	second, minute, hour, month [60]bool
	years                       map[int16]bool // nil means any year
	day, weekday                func(moment) bool
	and                         bool // a day must match both day fields
	wildcard                    bool
}

func (n *meaning) String() string {
	return fmt.Sprintf("%q (%s, %s)", n.text, n.dialect, n.clockChange)
}

// compile parses the text for a zone.
func (n *meaning) compile(t testing.TB, zone *Zone) *Expression {
	t.Helper()
	options := []Option{In(zone), WithDialect(n.dialect), WithClockChange(n.clockChange)}
	if n.job != "" {
		namespace, name, _ := strings.Cut(n.job, "/")
		options = append(options, WithJob(namespace, name))
	}
	e, err := Parse(n.text, options...)
	if err != nil {
		t.Fatalf("%v: %v", n, err)
	}
	return e
}

// holds reports whether a civil time matches the expression.
func (n *meaning) holds(m moment) bool {
	return n.second[m.second] && n.minute[m.minute] && n.hour[m.hour] && n.holdsOn(m)
}

// holdsOn reports whether the calendar shows a day of the expression.
func (n *meaning) holdsOn(m moment) bool {
	if !n.month[m.month] || n.years != nil && !n.years[m.year] {
		return false
	}
	if n.and {
		return n.day(m) && n.weekday(m)
	}
	return n.day(m) || n.weekday(m)
}

// wall has the civil times of a place from an instant on, every step seconds. All clock changes
// happen on a step.
type wall struct {
	zone    *Zone
	from    int64
	step    int64
	moments []moment
	changes []change
}

// change is a change of the clock: the instant at which the new offset begins,
// and by how many seconds the clock was moved forward.
type change struct{ at, by int64 }

func newWall(zone *Zone, from, to, step int64) *wall {
	w := &wall{zone: zone, from: from, step: step, moments: make([]moment, 0, (to-from)/step)}
	location := zone.Location()
	var last moment
	lastOffset := 0
	for u := from; u < to; u += step {
		t := time.Unix(u, 0).In(location)
		_, offset := t.Zone()
		switch {
		case u == from:
			last = momentOf(t)
		case offset != lastOffset:
			w.changes = append(w.changes, change{u, int64(offset - lastOffset)})
			last = momentOf(t)
		default:
			last = last.plus(step)
		}
		lastOffset = offset
		w.moments = append(w.moments, last)
	}
	return w
}

func (w *wall) to() int64 { return w.from + int64(len(w.moments))*w.step }

// days returns a moment of each day that the wall shows.
func (w *wall) days() []moment {
	var found []moment
	for i := 0; i < len(w.moments); i += int(3600 / min(w.step, 3600)) {
		if m := w.moments[i]; len(found) == 0 || found[len(found)-1].day != m.day {
			found = append(found, m)
		}
	}
	return found
}

func (w *wall) at(u int64) moment { return w.moments[(u-w.from)/w.step] }

// occurrences returns the instants of the wall, in order, at which an expression
// falls due.
func (w *wall) occurrences(n *meaning) []int64 {
	due := make([]bool, len(w.moments))
	day, dayHolds := moment{}, false
	for i, m := range w.moments {
		if !n.second[m.second] || !n.minute[m.minute] || !n.hour[m.hour] {
			continue
		}
		if m.day != day.day || m.month != day.month || m.year != day.year {
			day, dayHolds = m, n.holdsOn(m)
		}
		due[i] = dayHolds
	}
	set := func(u int64, value bool) {
		if i := (u - w.from) / w.step; u >= w.from && i < int64(len(due)) {
			due[i] = value
		}
	}
	for _, c := range w.changes {
		if c.by > 0 {
			w.gap(n, c, set)
		} else {
			w.fold(n, c, set)
		}
	}
	var found []int64
	for i, is := range due {
		if is {
			found = append(found, w.from+int64(i)*w.step)
		}
	}
	return found
}

const threeHours = 3 * 3600

// gap walks through the times that a change skipped and applies the rule.
func (w *wall) gap(n *meaning, c change, set func(int64, bool)) {
	m := w.at(c.at - w.step)
	for late := int64(0); late < c.by; late += w.step {
		m = m.plus(w.step)
		if !n.holds(m) {
			continue
		}
		switch n.clockChange {
		case Vixie:
			// A fixed time runs once, at the first instant after the gap.
			if !n.wildcard && c.by < threeHours {
				set(c.at, true)
			}
		case ShiftOnce:
			// Moved later by the length of the gap: where the clock would
			// show the time had it not been changed.
			set(c.at+late, true)
		}
	}
}

// fold walks through both passes of the times that a change repeated.
func (w *wall) fold(n *meaning, c change, set func(int64, bool)) {
	length := -c.by
	for after := int64(0); after < length; after += w.step {
		first, second := c.at-length+after, c.at+after
		switch n.clockChange {
		case Vixie:
			if !n.wildcard && length < threeHours {
				set(second, false)
			}
		case SkipOnce, ShiftOnce:
			set(second, false)
		case SkipLast:
			set(first, false)
		}
	}
}

// compare checks that Next and Prev of an expression, called repeatedly, return exactly the
// occurrences on the wall.
func (w *wall) compare(t testing.TB, n *meaning) {
	t.Helper()
	w.compareWith(t, n, w.occurrences(n))
}

// compareWith is compare with known occurrences.
func (w *wall) compareWith(t testing.TB, n *meaning, want []int64) {
	t.Helper()
	e := n.compile(t, w.zone)
	at := time.Unix(w.from-1, 0)
	for i := 0; ; i++ {
		next := e.Next(at)
		if !next.IsZero() && !next.After(at) {
			t.Fatalf("%v in %s: Next(%s) = %s, which is not later", n, w.zone, stamp(at), stamp(next))
		}
		if next.IsZero() || next.Unix() >= w.to() {
			if i < len(want) {
				t.Fatalf("%v in %s: Next(%s) = %s, the oracle has %s", n, w.zone, stamp(at), stamp(next), w.stamp(want[i]))
			}
			break
		}
		if i == len(want) || next.Unix() != want[i] {
			wanted := "none in its window"
			if i < len(want) {
				wanted = w.stamp(want[i])
			}
			t.Fatalf("%v in %s: Next(%s) = %s, the oracle has %s", n, w.zone, stamp(at.In(w.zone.Location())), stamp(next), wanted)
		}
		at = next
	}
	at = time.Unix(w.to(), 0)
	for i := len(want) - 1; ; i-- {
		previous := e.Prev(at)
		if !previous.IsZero() && !previous.Before(at) {
			t.Fatalf("%v in %s: Prev(%s) = %s, which is not earlier", n, w.zone, stamp(at), stamp(previous))
		}
		if previous.IsZero() || previous.Unix() < w.from {
			if i >= 0 {
				t.Fatalf("%v in %s: Prev(%s) = %s, the oracle has %s", n, w.zone, stamp(at), stamp(previous), w.stamp(want[i]))
			}
			break
		}
		if i < 0 || previous.Unix() != want[i] {
			wanted := "none in its window"
			if i >= 0 {
				wanted = w.stamp(want[i])
			}
			t.Fatalf("%v in %s: Prev(%s) = %s, the oracle has %s", n, w.zone, stamp(at.In(w.zone.Location())), stamp(previous), wanted)
		}
		at = previous
	}
}

// compareFromAnywhere checks Next and Prev from random instants of the wall, such
// as the middle of a gap's end or of a second pass.
func (w *wall) compareFromAnywhere(t testing.TB, r *rand.Rand, n *meaning, times int) {
	t.Helper()
	e := n.compile(t, w.zone)
	want := w.occurrences(n)
	for range times {
		u := w.from + r.Int64N(w.to()-w.from)
		if len(w.changes) > 0 && r.IntN(2) == 0 {
			c := w.changes[r.IntN(len(w.changes))]
			u = c.at + r.Int64N(5) - 2
			if r.IntN(2) == 0 {
				u += c.by
			}
		}
		at := time.Unix(u, int64(r.IntN(2)*r.IntN(1e9))).In(w.zone.Location())
		var next, previous int64
		haveNext, havePrevious := false, false
		for _, o := range want {
			if time.Unix(o, 0).Before(at) {
				previous, havePrevious = o, true
			}
			if time.Unix(o, 0).After(at) && !haveNext {
				next, haveNext = o, true
			}
		}
		got := e.Next(at)
		if inside := !got.IsZero() && got.Unix() < w.to(); inside != haveNext || haveNext && got.Unix() != next {
			t.Fatalf("%v in %s: Next(%s) = %s, the oracle has %s (%t)", n, w.zone, at.Format(time.RFC3339Nano), stamp(got), w.stamp(next), haveNext)
		}
		got = e.Prev(at)
		if inside := !got.IsZero() && got.Unix() >= w.from; inside != havePrevious || havePrevious && got.Unix() != previous {
			t.Fatalf("%v in %s: Prev(%s) = %s, the oracle has %s (%t)", n, w.zone, at.Format(time.RFC3339Nano), stamp(got), w.stamp(previous), havePrevious)
		}
	}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format(time.RFC3339)
}

func (w *wall) stamp(u int64) string { return stamp(time.Unix(u, 0).In(w.zone.Location())) }

// changesOf finds the changes of a zone's offset between two instants by asking
// the time package day after day, then second by second in halves. No zone of the
// table changes twice within a day.
func changesOf(location *time.Location, from, to int64) []change {
	offsetAt := func(u int64) int64 {
		_, offset := time.Unix(u, 0).In(location).Zone()
		return int64(offset)
	}
	var found []change
	last := offsetAt(from)
	for u := from; u < to; u += 24 * 3600 {
		next := min(u+24*3600, to)
		offset := offsetAt(next)
		if offset == last {
			continue
		}
		low, high := u, next
		for high-low > 1 {
			if middle := (low + high) / 2; offsetAt(middle) == last {
				low = middle
			} else {
				high = middle
			}
		}
		found = append(found, change{high, offset - last})
		last = offset
	}
	return found
}

// fieldRule is the grammars' rule for a field.
type fieldRule struct {
	index     int // position in the form of seven fields
	low, high int
	names     []string // names of the values from low on
}

var fieldRules = [...]fieldRule{
	{0, 0, 59, nil},
	{1, 0, 59, nil},
	{2, 0, 23, nil},
	{3, 1, 31, nil},
	{4, 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{5, 0, 6, strings.Fields("sun mon tue wed thu fri sat")},
	{6, 1970, 2199, nil},
}

// generator makes random expressions.
type generator struct {
	r        *rand.Rand
	dialect  Dialect
	job      string
	quarters bool // all times are quarters of an hour
}

// between returns a number of a range, its ends included.
func (g *generator) between(low, high int) int { return low + g.r.IntN(high-low+1) }

func (g *generator) oneIn(n int) bool { return g.r.IntN(n) == 0 }

// hash is the number that H and ~ draw in a field, which never changes.
func hash(job string, field, n int) int {
	sum := sha256.Sum256([]byte(job + "\x00" + string(rune(field))))
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(n))
}

// expression makes an expression with any rule for changes of the clock.
func (g *generator) expression() *meaning {
	n := &meaning{dialect: g.dialect, clockChange: ClockChange(g.r.IntN(5))}
	g.job = ""
	if g.dialect != Quartz && g.oneIn(4) {
		g.job = fmt.Sprintf("team-%d/job-%d", g.r.IntN(10), g.r.IntN(1000))
		n.job = g.job
	}
	count := 5
	switch {
	case g.dialect == Quartz:
		count = g.between(6, 7)
	case g.dialect == Default:
		count = g.between(5, 7)
	}
	var texts []string
	add := func(text string) string {
		texts = append(texts, text)
		return text
	}
	begins := func(text, with string) bool { return strings.HasPrefix(text, with) }

	n.second[0] = true
	if count > 5 {
		n.second = [60]bool{}
		second := "0"
		if g.quarters || g.oneIn(2) {
			n.second[0] = true
		} else {
			second = g.field(fieldRules[0], func(v int) { n.second[v] = true })
		}
		n.wildcard = begins(add(second), "*")
	}
	minute := ""
	if g.quarters {
		minute = g.quarterHours(func(v int) { n.minute[v] = true })
	} else {
		minute = g.field(fieldRules[1], func(v int) { n.minute[v] = true })
	}
	n.wildcard = begins(add(minute), "*") || n.wildcard
	hour := add(g.field(fieldRules[2], func(v int) { n.hour[v] = true }))
	n.wildcard = begins(hour, "*") || n.wildcard

	var day, weekday string
	day, n.day = g.dayField()
	weekday, n.weekday = g.weekdayField()
	everyDay := func(moment) bool { return true }
	if g.dialect == Quartz {
		if g.oneIn(2) {
			day, n.day = "?", everyDay
		} else {
			weekday, n.weekday = "?", everyDay
		}
		n.and = true
	}
	if g.dialect == Default {
		if g.oneIn(12) {
			day, n.day = "?", everyDay
		}
		switch g.r.IntN(12) {
		case 0:
			weekday, n.weekday = "?", everyDay
		case 1, 2:
			if !begins(weekday, "*") {
				weekday = "+" + weekday
			}
		}
	}
	for _, text := range []string{day, weekday} {
		if begins(text, "*") || begins(text, "?") || begins(text, "+") {
			n.and = true
		}
	}
	add(day)
	add(g.field(fieldRules[4], func(v int) { n.month[v] = true }))
	add(weekday)
	if count == 7 {
		n.years = map[int16]bool{}
		add(g.field(fieldRules[6], func(v int) { n.years[int16(v)] = true }))
		if len(n.years) == 2199-1970+1 {
			n.years = nil // all nameable years means any year, even before 1970
		}
	}
	n.text = strings.Join(texts, g.blank())
	if g.oneIn(8) {
		n.text = g.blank() + n.text + g.blank()
	}
	return n
}

func (g *generator) blank() string {
	return [...]string{" ", " ", " ", " ", "  ", "\t", " \t "}[g.r.IntN(7)]
}

// quarterHours makes a minute field of quarters of an hour.
func (g *generator) quarterHours(mark func(int)) string {
	if g.oneIn(4) {
		for v := 0; v < 60; v += 15 {
			mark(v)
		}
		return "*/15"
	}
	v := 15 * g.r.IntN(4)
	mark(v)
	return fmt.Sprint(v)
}

// field makes a list and marks its values.
func (g *generator) field(rule fieldRule, mark func(int)) string {
	text := g.item(rule, mark)
	for g.oneIn(3) {
		text += "," + g.item(rule, mark)
	}
	return text
}

// item makes one item of a list and marks its values. It walks through the values one by one, and
// wraps around the end of the field where a range does.
func (g *generator) item(rule fieldRule, mark func(int)) string {
	low, high := rule.low, rule.high
	isYear, isWeekday := rule.index == 6, rule.index == 5
	walk := func(from, to, step int) {
		v := from
		for i := 0; ; i++ {
			if i%step == 0 {
				mark(v)
			}
			if v == to {
				return
			}
			if v++; v > high {
				v = low
			}
		}
	}
	step, stepText := 1, ""
	if g.oneIn(3) {
		step = g.between(1, high-low+5)
		if g.oneIn(2) {
			step = g.between(1, 7)
		}
		stepText = fmt.Sprintf("/%d", step)
	}
	a, b := g.between(low, high), g.between(low, high)
	if isYear {
		a, b = g.between(2015, 2040), g.between(2015, 2040)
	}
	switch kind := g.r.IntN(12); {
	case kind < 3:
		walk(low, high, step)
		if g.dialect == Quartz && stepText != "" && g.oneIn(3) {
			return stepText
		}
		return "*" + stepText
	case kind < 6 && (stepText == "" || g.dialect == Vixie5):
		walk(a, a, 1)
		return g.value(rule, a)
	case kind < 6:
		walk(a, high, step)
		text := g.value(rule, a)
		if isWeekday && a == 0 && g.dialect == Default && g.oneIn(2) {
			text = "7" // counts as 0
		}
		return text + stepText
	case kind == 6 && !isYear && g.dialect != Quartz && g.job != "":
		return g.random(rule, mark)
	case kind == 7 && !isYear && g.dialect == Default && g.job != "":
		return g.hashed(rule, mark)
	case isWeekday && g.oneIn(3) && g.dialect != Quartz:
		// Up to Sunday as 7.
		walk(a, high, step)
		if length := high - a + 1; length%step == 0 {
			mark(0)
		}
		if g.dialect == Vixie5 && stepText == "" && a > 0 && g.oneIn(2) {
			return fmt.Sprintf("%s-%s", g.value(rule, a), g.value(rule, 0))
		}
		if a == 0 && stepText == "" {
			return "0-7"
		}
		return fmt.Sprintf("%d-7%s", a, stepText)
	default:
		if a > b && (isYear || g.dialect == Vixie5) {
			a, b = b, a
		}
		if a == b && isWeekday && a == 0 {
			b = 1 // 0-0 and 7-7 have separate tests
		}
		walk(a, b, step)
		return fmt.Sprintf("%s-%s%s", g.value(rule, a), g.value(rule, b), stepText)
	}
}

// value writes a value as a number or name.
func (g *generator) value(rule fieldRule, v int) string {
	if rule.names != nil && g.oneIn(2) {
		name := rule.names[v-rule.low]
		switch g.r.IntN(3) {
		case 0:
			name = strings.ToUpper(name)
		case 1:
			name = strings.ToUpper(name[:1]) + name[1:]
		}
		return name
	}
	if rule.index == 5 && g.dialect == Quartz {
		v++
	}
	if g.oneIn(8) {
		return fmt.Sprintf("%02d", v)
	}
	return fmt.Sprint(v)
}

// random makes "a~b", "a~", "~b" or "~".
func (g *generator) random(rule fieldRule, mark func(int)) string {
	a, b := g.between(rule.low, rule.high), g.between(rule.low, rule.high)
	if a > b {
		a, b = b, a
	}
	left, right := g.value(rule, a), g.value(rule, b)
	if g.oneIn(3) {
		a, left = rule.low, ""
	}
	if g.oneIn(3) {
		b, right = rule.high, ""
	}
	mark(a + hash(g.job, rule.index, b-a+1))
	return left + "~" + right
}

// hashed makes "H", "H(a-b)", "H/n" or "H(a-b)/n".
func (g *generator) hashed(rule fieldRule, mark func(int)) string {
	a, b := rule.low, rule.high
	text := "H"
	if rule.index == 3 {
		b = 28
	}
	if g.oneIn(2) {
		a, b = g.between(rule.low, rule.high), g.between(rule.low, rule.high)
		if a > b {
			a, b = b, a
		}
		text = fmt.Sprintf("H(%s-%s)", g.value(rule, a), g.value(rule, b))
	}
	if g.oneIn(2) {
		mark(a + hash(g.job, rule.index, b-a+1))
		return text
	}
	step := g.between(1, 20)
	for v := a + hash(g.job, rule.index, min(step, b-a+1)); v <= b; v += step {
		mark(v)
	}
	return fmt.Sprintf("%s/%d", text, step)
}

// dayField makes a day of month.
func (g *generator) dayField() (string, func(moment) bool) {
	var plain [60]bool
	var special []func(moment) bool
	one := func() string {
		if g.dialect == Vixie5 || !g.oneIn(3) {
			return g.item(fieldRules[3], func(v int) { plain[v] = true })
		}
		text, holds := g.specialDay()
		special = append(special, holds)
		return text
	}
	text := one()
	for g.oneIn(3) {
		text += "," + one()
	}
	return text, func(m moment) bool {
		for _, holds := range special {
			if holds(m) {
				return true
			}
		}
		return plain[m.day]
	}
}

// specialDay makes L, L-n, LW, L-nW or nW.
func (g *generator) specialDay() (string, func(moment) bool) {
	n := g.between(0, 30)
	switch g.r.IntN(5) {
	case 0:
		return g.anyCase("L"), func(m moment) bool { return m.day == m.length }
	case 1:
		return g.anyCase(fmt.Sprintf("L-%d", n)), func(m moment) bool { return int(m.day) == int(m.length)-n }
	case 2:
		return g.anyCase("LW"), func(m moment) bool { return isNearestWorkday(m, int(m.length)) }
	case 3:
		return g.anyCase(fmt.Sprintf("L-%dW", n)), func(m moment) bool { return isNearestWorkday(m, int(m.length)-n) }
	default:
		return g.anyCase(fmt.Sprintf("%dW", n+1)), func(m moment) bool { return isNearestWorkday(m, n+1) }
	}
}

func (g *generator) anyCase(text string) string {
	if g.oneIn(3) {
		return strings.ToLower(text)
	}
	return text
}

// isNearestWorkday reports whether this day is the Monday to Friday of its month nearest to another
// day of the month.
func isNearestWorkday(m moment, to int) bool {
	if to < 1 || to > int(m.length) {
		return false
	}
	nearest, distance := 0, 100
	for day := 1; day <= int(m.length); day++ {
		weekday := (int(m.weekday) + day - int(m.day) + 70) % 7
		away := max(day-to, to-day)
		if weekday != 0 && weekday != 6 && away < distance {
			nearest, distance = day, away
		}
	}
	return int(m.day) == nearest
}

// weekdayField makes a day of week.
func (g *generator) weekdayField() (string, func(moment) bool) {
	var plain [60]bool
	var special []func(moment) bool
	one := func() string {
		if g.dialect == Vixie5 || !g.oneIn(3) {
			return g.item(fieldRules[5], func(v int) { plain[v] = true })
		}
		text, holds := g.specialWeekday()
		special = append(special, holds)
		return text
	}
	text := one()
	for g.oneIn(3) {
		text += "," + one()
	}
	return text, func(m moment) bool {
		for _, holds := range special {
			if holds(m) {
				return true
			}
		}
		return plain[m.weekday]
	}
}

// specialWeekday makes d#n, d#L or dL, and in the quartz dialect L.
func (g *generator) specialWeekday() (string, func(moment) bool) {
	d, n := g.between(0, 6), g.between(1, 5)
	day := g.value(fieldRules[5], d)
	if d == 0 && g.dialect == Default && g.oneIn(3) {
		day = "7"
	}
	last := func(m moment) bool { return int(m.weekday) == d && m.day+7 > m.length }
	switch g.r.IntN(4) {
	case 0:
		return day + g.anyCase("L"), last
	case 1:
		return day + "#" + g.anyCase("L"), last
	case 2:
		if g.dialect == Quartz {
			return g.anyCase("L"), func(m moment) bool { return m.weekday == 6 }
		}
	}
	return fmt.Sprintf("%s#%d", day, n), func(m moment) bool {
		return int(m.weekday) == d && int(m.day-1)/7+1 == n
	}
}
