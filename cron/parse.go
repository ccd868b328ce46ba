package cron

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// maxLength bounds an expression, in bytes: even a list of all 60 seconds is shorter.
const maxLength = 256

// The fields in the order of the seven-field form. The numbers are part of the
// hash that H and ~ draw from and never change.
const (
	secondField = iota
	minuteField
	hourField
	dayField
	monthField
	weekdayField
	yearField
	fieldCount

	noField = -1
)

// fieldSpec describes the allowed values of a field.
type fieldSpec struct {
	name     phrase.Text
	min, max int
	names    string // three letters each, from the value base
	rest     string // the rest of each full name
	base     int
}

const (
	monthNames   = "janfebmaraprmayjunjulaugsepoctnovdec"
	monthRests   = "uary ruary ch il  e y ust tember ober ember ember"
	weekdayNames = "sunmontuewedthufrisat"
	weekdayRests = "day day sday nesday rsday day urday"
)

var specs = [fieldCount]fieldSpec{
	secondField:  {name: phrase.Second, max: 59},
	minuteField:  {name: phrase.Minute, max: 59},
	hourField:    {name: phrase.Hour, max: 23},
	dayField:     {name: phrase.DayOfMonth, min: 1, max: 31},
	monthField:   {name: phrase.Month, min: 1, max: 12, names: monthNames, rest: monthRests, base: 1},
	weekdayField: {name: phrase.DayOfWeek, max: 6, names: weekdayNames, rest: weekdayRests},
	yearField:    {name: phrase.Year, min: minYear, max: lastYear},
}

// macros are the names for whole expressions.
var macros = []struct{ name, expr string }{
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
}

// Parse compiles a cron expression. The error, if any, is a *ParseError.
//
// An expression that never falls due, such as "0 0 30 2 *", is no error: [Expression.Next] returns
// the zero time, and [Expression.NeverReason] explains why.
func Parse(expr string, opts ...Option) (*Expression, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	p := parser{expr: expr, dialect: o.dialect, job: o.job, field: noField}
	e := &Expression{zone: o.zone.orUTC(), clockChange: o.clockChange, dialect: o.dialect}
	if err := p.parse(e, o.zone); err != nil {
		return nil, err
	}
	return e, nil
}

// parser reads one expression from left to right.
type parser struct {
	expr    string // as the user wrote it
	pos     int    // index of the next byte
	dialect Dialect
	job     string

	field int // the field being read, or noField
	end   int // where it ends

	warnings *[]phrase.Text // receives warnings, or nil
}

func (p *parser) parse(e *Expression, zone *Zone) error {
	if len(p.expr) > maxLength {
		return newParseError(p.expr[:maxLength]+"…", maxLength, 0, silence, phrase.ExpressionLong.Of(len(p.expr)), phrase.AtMost.Of(maxLength), silence)
	}
	p.skipBlanks()
	if rest := p.expr[p.pos:]; strings.HasPrefix(rest, "TZ=") || strings.HasPrefix(rest, "CRON_TZ=") {
		if err := p.zonePrefix(e, zone); err != nil {
			return err
		}
	}
	p.skipBlanks()
	if p.pos < len(p.expr) && p.expr[p.pos] == '@' {
		return p.macro(e)
	}
	return p.fields(e)
}

// zonePrefix reads "TZ=Zone " or "CRON_TZ=Zone ".
func (p *parser) zonePrefix(e *Expression, given *Zone) error {
	front := p.pos
	start := strings.IndexByte(p.expr, '=') + 1
	p.end = p.wordEnd(start)
	name := p.expr[start:p.end]
	if p.dialect != Default {
		return p.fail(front, p.end, phrase.NoPrefix.Of(p.dialect.String()), silence, silence)
	}
	zone, err := LoadZone(name)
	if err != nil {
		return p.fail(start, p.end, phrase.OfError(err), silence, silence)
	}
	if given != nil && given.Name() != zone.Name() {
		return p.fail(start, p.end, phrase.TwoZones.Of(zone.Name(), given.Name()), silence, phrase.NameOne)
	}
	e.zone = zone
	p.pos = p.end
	return nil
}

// macro reads an expression such as "@daily".
func (p *parser) macro(e *Expression) error {
	start := p.pos
	word := p.expr[start:p.wordEnd(start)]
	rest := strings.TrimRight(p.expr[start:], " \t")
	if p.dialect == Quartz {
		return p.fail(start, start+len(word), phrase.NotInDialect.Of(word, Quartz.String()), silence, silence)
	}
	switch {
	case strings.EqualFold(word, "@every"):
		if p.dialect != Default {
			return p.fail(start, start+len(word), phrase.NotInDialect.Of("@every", Vixie5.String()), silence, silence)
		}
		return p.fail(start, start+len(word), phrase.EveryIsInterval, silence, phrase.ParseScheduleReads)
	case strings.EqualFold(word, "@reboot"):
		return p.fail(start, start+len(word), phrase.RebootNoTime, silence, phrase.UseBoot)
	case len(rest) != len(word):
		next := start + len(word)
		for p.expr[next] == ' ' || p.expr[next] == '\t' {
			next++
		}
		return p.fail(next, p.wordEnd(next), phrase.StandsAlone.Of(word), silence, silence)
	}
	names := make([]string, 0, len(macros))
	for _, m := range macros {
		if strings.EqualFold(m.name, word) {
			if p.dialect == Vixie5 && m.name != word {
				return p.fail(start, start+len(word), phrase.LowerMacros.Of(word), silence, phrase.WriteBoot.Of(m.name))
			}
			inner := parser{expr: m.expr, dialect: p.dialect, field: noField}
			return inner.fields(e)
		}
		names = append(names, m.name)
	}
	return p.fail(start, start+len(word), phrase.UnknownMacro.Of(word), phrase.List.Of(names), didYouMean(nearest(word, names)))
}

// fields reads the fields that most expressions consist of.
func (p *parser) fields(e *Expression) error {
	var starts [fieldCount + 1]int
	count := 0
	for i := p.pos; ; {
		for i < len(p.expr) && isBlank(p.expr[i]) {
			i++
		}
		if i == len(p.expr) {
			break
		}
		if count <= fieldCount {
			starts[count] = i
		}
		count++
		i = p.wordEnd(i)
	}
	first, ok := p.firstField(count)
	if !ok {
		return p.wrongCount(count, starts[:])
	}
	if p.dialect == Default && count == 6 {
		if err := p.yearByMistake(starts[5]); err != nil {
			return err
		}
	}

	e.fields = fields{second: 1, minute: 1, hour: 1, day: allDays, month: allMonths, weekday: allWeekdays}
	var stars, questions uint8 // the fields that begin with a star, or are "?"
	forced := false            // set by "+" before the day of week
	for i := range count {
		p.field = first + i
		p.pos = starts[i]
		p.end = p.wordEnd(p.pos)
		switch p.expr[p.pos] {
		case '*':
			stars |= 1 << p.field
		case '?':
			if err := p.question(); err != nil {
				return err
			}
			stars |= 1 << p.field
			questions |= 1 << p.field
			continue
		case '+':
			if p.dialect == Default && p.field == weekdayField {
				forced = true
				p.pos++
			}
		}
		if err := p.list(e); err != nil {
			return err
		}
	}
	if p.warnings != nil && p.dialect == Default && count > 5 && questions != 0 {
		*p.warnings = append(*p.warnings, phrase.QuartzForm.Of(`"?"`))
	}
	if p.dialect == Quartz {
		p.field = dayField
		if err := p.oneQuestion(questions, starts[dayField-first], starts[weekdayField-first]); err != nil {
			return err
		}
	}
	if stars&(1<<secondField|1<<minuteField|1<<hourField) != 0 {
		e.marks |= wildcard
	}
	if p.dialect != Quartz && !forced && stars&(1<<dayField|1<<weekdayField) == 0 {
		e.marks |= either
	}
	e.normalize()
	return nil
}

// firstField returns the field that an expression of n fields begins
// with.
func (p *parser) firstField(count int) (int, bool) {
	switch {
	case count == 5 && p.dialect != Quartz:
		return minuteField, true
	case (count == 6 || count == 7) && p.dialect != Vixie5:
		return secondField, true
	default:
		return 0, false
	}
}

// wrongCount makes the error for a wrong number of fields.
func (p *parser) wrongCount(count int, starts []int) error {
	wanted := phrase.FiveFields
	most := 5
	var hint phrase.Text
	switch p.dialect {
	case Default:
		wanted = phrase.AnyFields
		most = 7
	case Vixie5:
		if count == 6 || count == 7 {
			hint = phrase.DefaultHasMore
		}
	case Quartz:
		wanted = phrase.QuartzFields
		most = 7
		if count == 5 {
			hint = phrase.DefaultTakesFive
		}
	}
	if every := everyMeant(p.expr); every != "" && p.dialect == Default {
		hint = phrase.DidYouMean.Of(phrase.Quoted(every))
	}
	for _, m := range macros {
		if strings.EqualFold(m.name[1:], strings.TrimSpace(p.expr)) && p.dialect != Quartz {
			hint = didYouMean(m.name)
		}
	}
	found := phrase.FoundFields.Of(count)
	pos, end := len(p.expr), len(p.expr)
	switch {
	case count == 0:
		found = phrase.ExpressionEmpty
	case count > most:
		pos = starts[most]
		end = len(strings.TrimRight(p.expr, " \t"))
	}
	return p.fail(pos, end, found, wanted, hint)
}

// everyUnits are the units of fixed rates, by the singular.
var everyUnits = map[string]string{
	"s": "s", "sec": "s", "second": "s", "m": "m", "min": "m", "minute": "m", "h": "h", "hr": "h", "hour": "h", "d": "d", "day": "d",
}

// everyMeant returns the expression for a rate in words, as "every 5 minutes", or for a duration, as "5m"; else "".
func everyMeant(expr string) string {
	rest, every := strings.CutPrefix(strings.ToLower(strings.TrimSpace(expr)), "every ")
	rest = strings.TrimSpace(rest)
	number := strings.TrimRight(rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))], " ")
	word := strings.TrimSpace(rest[len(number):])
	if len(number) > 9 || number != "" && number[0] == '0' {
		return ""
	}
	unit, known := everyUnits[word]
	if !known {
		unit, known = everyUnits[strings.TrimSuffix(word, "s")]
	}
	if !known || number == "" && !every {
		return ""
	}
	if number == "" {
		number = "1"
	}
	return "@every " + number + unit
}

// yearByMistake refuses a year in the last of six fields, the day of week: it was probably
// meant as a year, without a leading second.
func (p *parser) yearByMistake(last int) error {
	word := p.expr[last:p.wordEnd(last)]
	if len(word) < 4 || !isDigits(word[:4]) || len(word) > 4 && isDigit(word[4]) {
		return nil
	}
	p.field = weekdayField
	rest := strings.TrimSpace(p.expr[p.pos:last])
	return p.fail(last, last+len(word),
		phrase.YearInSix.Of(word), silence,
		phrase.SevenWithYear.Of(phrase.Quoted("0 "+rest+" "+word), word))
}

// question reads a field that begins with "?".
func (p *parser) question() error {
	switch {
	case p.dialect == Vixie5:
		return p.fail(p.pos, p.pos+1, phrase.NotInDialect.Of(`"?"`, Vixie5.String()), silence, phrase.WriteBoot.Of(`"*"`))
	case p.field != dayField && p.field != weekdayField:
		return p.fail(p.pos, p.pos+1, phrase.QuestionPlace, silence, phrase.WriteBoot.Of(`"*"`))
	case p.end != p.pos+1:
		return p.fail(p.pos, p.end, phrase.AloneInField.Of(`"?"`), silence, silence)
	}
	return nil
}

// oneQuestion checks Quartz's rule for the day fields.
func (p *parser) oneQuestion(questions uint8, day, weekday int) error {
	switch questions & (1<<dayField | 1<<weekdayField) {
	case 1 << dayField, 1 << weekdayField:
		return nil
	case 0:
		return p.fail(day, p.wordEnd(weekday), phrase.QuestionWanted, silence, silence)
	default:
		return p.fail(day, p.wordEnd(weekday), phrase.OneQuestion, silence, silence)
	}
}

// list reads the items of a field, with commas between them.
func (p *parser) list(e *Expression) error {
	var set uint64
	if p.field == dayField {
		e.day = 0
	}
	for {
		if p.pos == p.end || p.expr[p.pos] == ',' {
			return p.failItem(p.pos, phrase.ValueMissing)
		}
		bits, err := p.item(e)
		if err != nil {
			return err
		}
		set |= bits
		if p.pos == p.end {
			break
		}
		if p.expr[p.pos] != ',' {
			return p.unexpected()
		}
		p.pos++
	}
	switch p.field {
	case secondField:
		e.second = set
	case minuteField:
		e.minute = set
	case hourField:
		e.hour = uint32(set)
	case dayField:
		e.day = uint32(set)
	case monthField:
		e.month = uint16(set)
	case weekdayField:
		e.weekday = uint8(set)
	}
	return nil
}

// item reads one item of a list: a star, value, range, or a special day. It returns the set of its
// values, and adds years and special days to e.
func (p *parser) item(e *Expression) (uint64, error) {
	spec := &specs[p.field]
	switch c := p.expr[p.pos]; {
	case c == '*':
		p.pos++
		step, _, err := p.step()
		if err != nil {
			return 0, err
		}
		return p.span(e, spec.min, spec.max, step), nil
	case c == '/' && p.dialect == Quartz:
		step, _, err := p.step()
		if err != nil {
			return 0, err
		}
		return p.span(e, spec.min, spec.max, step), nil
	case c == '~':
		return p.random(e, spec.min)
	}
	start := p.pos
	word := p.word()
	if word == "" {
		return 0, p.unexpected()
	}
	if p.dialect != Vixie5 {
		if bits, ok, err := p.special(e, start, word); ok || err != nil {
			return bits, err
		}
	}
	from, err := p.value(start, word)
	if err != nil {
		return 0, err
	}
	if p.pos == p.end {
		return p.span(e, from, from, 1), nil
	}
	switch p.expr[p.pos] {
	case '-':
		return p.rangeFrom(e, start, from)
	case '~':
		return p.random(e, from)
	case '/':
		if p.dialect == Vixie5 {
			return 0, p.fail(start, p.end, phrase.StepAfterOne, silence, phrase.WriteBoot.Of(fmt.Sprintf("%s-%d%s", word, spec.max, p.expr[p.pos:p.end])))
		}
		if p.noStep() {
			return p.span(e, from, from, 1), nil
		}
		step, _, err := p.step()
		if err != nil {
			return 0, err
		}
		return p.span(e, p.weekdayZero(from), spec.max, step), nil
	}
	return p.span(e, from, from, 1), nil
}

// rangeFrom reads the rest of a range "from-to" or "from-to/step".
func (p *parser) rangeFrom(e *Expression, start, from int) (uint64, error) {
	spec := &specs[p.field]
	p.pos++
	at := p.pos
	word := p.word()
	if word == "" {
		return 0, p.failItem(at, phrase.RangeEndMissing)
	}
	to, err := p.value(at, word)
	if err != nil {
		return 0, err
	}
	toEnd := p.pos
	step, stepped, err := p.step()
	if err != nil {
		return 0, err
	}
	if from > to {
		switch {
		case p.dialect == Vixie5 && p.field == weekdayField && to == 0:
			if stepped {
				return 0, p.fail(start, p.pos, phrase.SundayStep, silence, phrase.WriteSeven)
			}
			to = 7
		case p.dialect == Vixie5:
			return 0, p.fail(start, toEnd, phrase.RangeEndsEarly.Of(p.expr[start:toEnd]), silence, phrase.NoWrapVixie)
		case p.field == yearField:
			return 0, p.fail(start, toEnd, phrase.RangeEndsEarly.Of(p.expr[start:toEnd]), silence, phrase.YearsNoWrap)
		default:
			to += spec.max - spec.min + 1
		}
	}
	return p.span(e, from, to, step), nil
}

// span returns the values from..to in steps, wrapping around the end of the field.
func (p *parser) span(e *Expression, from, to, step int) uint64 {
	spec := &specs[p.field]
	if p.field == yearField {
		for y := from; y <= to; y += step {
			e.years[(y-minYear)>>6] |= 1 << ((y - minYear) & 63)
		}
		return 0
	}
	if step == 1 && to <= spec.max {
		return 1<<(to+1) - 1<<from
	}
	var set uint64
	for v := from; v <= to; v += step {
		if v > spec.max {
			set |= 1 << (v - (spec.max - spec.min + 1))
		} else {
			set |= 1 << v
		}
	}
	return set
}

// step reads an optional "/n".
func (p *parser) step() (n int, found bool, err error) {
	if p.pos == p.end || p.expr[p.pos] != '/' {
		return 1, false, nil
	}
	p.pos++
	start := p.pos
	word := p.word()
	if word == "" {
		return 0, false, p.fail(start, p.pos, phrase.StepMissing, phrase.OneOrMore, silence)
	}
	if !isDigits(word) {
		return 0, false, p.fail(start, p.pos, phrase.StepNoNumber.Of(phrase.Quoted(word)), phrase.OneOrMore, silence)
	}
	n = number(word)
	if n == 0 {
		return 0, false, p.fail(start, p.pos, phrase.StepZero, phrase.OneOrMore, silence)
	}
	p.warnOfStep(n)
	return n, true, nil
}

// noStep reads "/0" in the quartz dialect, which means only the value in front.
func (p *parser) noStep() bool {
	end := p.pos + 1
	for end < p.end && isAlnum(p.expr[end]) {
		end++
	}
	digits := p.expr[p.pos+1 : end]
	if p.dialect != Quartz || !isDigits(digits) || number(digits) != 0 {
		return false
	}
	p.pos = end
	return true
}

// random reads the rest of "from~to", "from~", "~to" or "~" and draws a value.
func (p *parser) random(e *Expression, from int) (uint64, error) {
	spec := &specs[p.field]
	start := p.pos
	if p.dialect == Quartz || p.field == yearField {
		return 0, p.fail(start, start+1, phrase.NoRandomHere, silence, silence)
	}
	p.pos++
	to := max(spec.max, from) // "7~" is Sunday
	if p.pos < p.end && p.expr[p.pos] != ',' {
		at := p.pos
		word := p.word()
		if word == "" {
			return 0, p.unexpected()
		}
		var err error
		if to, err = p.value(at, word); err != nil {
			return 0, err
		}
	}
	if from > to {
		return 0, p.fail(start, p.pos, phrase.RandomEndsEarly.Of(from, to), silence, silence)
	}
	n, err := p.draw(start, "~", to-from+1)
	if err != nil {
		return 0, err
	}
	return p.span(e, from+n, from+n, 1), nil
}

// draw returns a number below n that is always the same for a job and field.
func (p *parser) draw(at int, what string, n int) (int, error) {
	if p.job == "" {
		return 0, p.fail(at, at+1, phrase.DrawsFromJob.Of(what), silence, silence)
	}
	sum := sha256.Sum256(append([]byte(p.job), 0, byte(p.field)))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n)), nil
}

// special reads H and the special days L, W and #. ok is false for any other word.
func (p *parser) special(e *Expression, start int, word string) (set uint64, ok bool, err error) {
	if len(word) == 1 && word[0]|0x20 == 'h' {
		set, err = p.hashed(e, start)
		return set, true, err
	}
	switch p.field {
	case dayField:
		return p.specialDay(e, start, word)
	case weekdayField:
		return p.specialWeekday(e, start, word)
	}
	return 0, false, nil
}

// lastOfDays is the last day of the month that H draws from: every month has
// it.
const lastOfDays = 28

// hashed reads the rest of "H", "H(a-b)", "H/n" or "H(a-b)/n".
func (p *parser) hashed(e *Expression, start int) (uint64, error) {
	spec := &specs[p.field]
	if p.dialect != Default || p.field == yearField {
		return 0, p.fail(start, start+1, phrase.NoHHere, silence, silence)
	}
	from, to := spec.min, spec.max
	if p.field == dayField {
		to = lastOfDays
	}
	if p.pos < p.end && p.expr[p.pos] == '(' {
		var err error
		if from, to, err = p.bounds(); err != nil {
			return 0, err
		}
	}
	step, stepped, err := p.step()
	if err != nil {
		return 0, err
	}
	n := to - from + 1
	if stepped {
		n = min(n, step)
	}
	drawn, err := p.draw(start, "H", n)
	if err != nil {
		return 0, err
	}
	if !stepped {
		to = from + drawn
	}
	return p.span(e, from+drawn, to, step), nil
}

// bounds reads "(a-b)".
func (p *parser) bounds() (from, to int, err error) {
	start := p.pos
	malformed := func() error {
		return p.fail(start, p.end, phrase.BoundsMalformed, silence, phrase.WriteBounds)
	}
	var values [2]int
	for i, before := range [2]byte{'(', '-'} {
		if p.pos == p.end || p.expr[p.pos] != before {
			return 0, 0, malformed()
		}
		p.pos++
		at := p.pos
		word := p.word()
		if word == "" {
			return 0, 0, malformed()
		}
		if values[i], err = p.value(at, word); err != nil {
			return 0, 0, err
		}
	}
	if p.pos == p.end || p.expr[p.pos] != ')' {
		return 0, 0, malformed()
	}
	p.pos++
	from, to = values[0], values[1]
	if p.field == weekdayField && from == 7 {
		from, to = 0, to%7
	}
	if from > to {
		return 0, 0, p.fail(start, p.pos, phrase.BoundsEndEarly.Of(p.expr[start:p.pos]), silence, silence)
	}
	return from, to, nil
}

// maxFromLast is the largest n of L-n: the first day of the longest month.
const maxFromLast = 30

// specialDay reads L, L-n, LW, L-nW and nW.
func (p *parser) specialDay(e *Expression, start int, word string) (uint64, bool, error) {
	spec := &specs[dayField]
	switch {
	case strings.EqualFold(word, "L"):
		n, weekday := 0, false
		if p.pos < p.end && p.expr[p.pos] == '-' {
			p.pos++
			at := p.pos
			offset := p.word()
			if digits, found := cutSuffixFold(offset, 'w'); found {
				offset, weekday = digits, true
			}
			if !isDigits(offset) {
				return 0, true, p.fail(at, p.pos, phrase.DaysAfterL, phrase.Range.Of(0, maxFromLast), silence)
			}
			if n = number(offset); n > maxFromLast {
				return 0, true, p.fail(at, p.pos, phrase.DaysBeforeLast.Of(offset), phrase.Range.Of(0, maxFromLast), silence)
			}
		}
		if weekday {
			e.nearestLast |= 1 << n
		} else {
			e.fromLast |= 1 << n
		}
		return 0, true, nil
	case strings.EqualFold(word, "LW"):
		e.nearestLast |= 1
		return 0, true, nil
	}
	digits, found := cutSuffixFold(word, 'w')
	if !found || digits != "" && !isDigits(digits) {
		return 0, false, nil
	}
	if digits == "" {
		return 0, true, p.fail(start, p.pos, phrase.WNeedsDay, silence, phrase.SuchAsW.Of(`"15W"`, `"LW"`))
	}
	n := number(digits)
	if n < spec.min || n > spec.max {
		return 0, true, p.outOfRange(start, digits)
	}
	e.nearest |= 1 << n
	return 0, true, nil
}

// specialWeekday reads d#n, d#L and dL, and in the quartz dialect L.
func (p *parser) specialWeekday(e *Expression, start int, word string) (uint64, bool, error) {
	day, last := cutSuffixFold(word, 'l')
	switch {
	case last && day == "":
		if p.dialect == Quartz {
			return 1 << 6, true, nil
		}
		return 0, true, p.fail(start, p.pos, phrase.LNeedsDay, silence, phrase.SuchAsL.Of(`"5L" or "FRIL"`, `"6"`))
	case last:
		d, err := p.value(start, day)
		if err != nil {
			return 0, true, err
		}
		e.nth |= 1 << (d%7*nthBits + nthLast)
		return 0, true, nil
	case p.pos == p.end || p.expr[p.pos] != '#':
		return 0, false, nil
	}
	d, err := p.value(start, word)
	if err != nil {
		return 0, true, err
	}
	p.pos++
	at := p.pos
	which := p.word()
	n := nthLast
	if !strings.EqualFold(which, "L") {
		if n = number(which) - 1; !isDigits(which) || n < 0 || n >= nthLast {
			problem := phrase.OutOfRange.Of("#" + which)
			if which == "" {
				problem = phrase.NthMissing
			}
			return 0, true, p.fail(at, p.pos, problem, phrase.OneToFive, silence)
		}
	}
	e.nth |= 1 << (d%7*nthBits + n)
	return 0, true, nil
}

// value reads a number or name of the field. For the day of week it returns 7 for 7, so that ranges
// can end in it.
func (p *parser) value(start int, word string) (int, error) {
	spec := &specs[p.field]
	if !isDigits(word) {
		if v, ok := named(spec, word); ok {
			return v, nil
		}
		if v, ok := p.longName(spec, start, word); ok {
			return v, nil
		}
		return 0, p.notAValue(start, word)
	}
	v := number(word)
	low, high := spec.min, spec.max
	if p.field == weekdayField {
		if p.dialect == Quartz {
			v-- // Sunday is 1
		} else {
			high = 7
		}
	}
	if v < low || v > high {
		return 0, p.outOfRange(start, word)
	}
	return v, nil
}

// weekdayZero turns 7, the other number of Sunday, into 0.
func (p *parser) weekdayZero(v int) int {
	if p.field == weekdayField {
		return v % 7
	}
	return v
}

// longName looks up a name of more than three letters. The default dialect reads full names, and Quartz
// any word whose first three letters are a name. Quartz ignores the text between such a word and the
// next comma, so here only a word at the end of its item is a name.
func (p *parser) longName(spec *fieldSpec, start int, word string) (int, bool) {
	if p.dialect == Default {
		return fullName(spec, word)
	}
	end := start + len(word)
	isLast := end == p.end || p.expr[end] == ','
	if p.dialect != Quartz || len(word) < 4 || !isLast || strings.ContainsAny(word, "0123456789") {
		return 0, false
	}
	return named(spec, word[:3])
}

// fullName looks up a full name.
func fullName(spec *fieldSpec, word string) (int, bool) {
	if len(word) <= 3 {
		return 0, false
	}
	v, ok := named(spec, word[:3])
	if !ok {
		return 0, false
	}
	return v, strings.EqualFold(word[3:], strings.Split(spec.rest, " ")[v-spec.base])
}

// named looks up a word among the names of a field.
func named(spec *fieldSpec, word string) (int, bool) {
	if len(word) != 3 {
		return 0, false
	}
	a, b, c := word[0]|0x20, word[1]|0x20, word[2]|0x20
	for i := 0; i < len(spec.names); i += 3 {
		if spec.names[i] == a && spec.names[i+1] == b && spec.names[i+2] == c {
			return i/3 + spec.base, true
		}
	}
	return 0, false
}

// normalize gives equivalent sets the same form.
func (e *Expression) normalize() {
	if e.has(either) && (e.anyDayOfMonth() || e.anyWeekday()) {
		// Any day matches one of them.
		e.marks &^= either
		e.day, e.weekday = allDays, allWeekdays
	}
	if e.anyDayOfMonth() {
		e.fromLast, e.nearest, e.nearestLast = 0, 0, 0
	}
	if e.anyWeekday() {
		e.nth = 0
	}
	named := 0
	for _, word := range e.years {
		named += bits.OnesCount64(word)
	}
	if named == years {
		e.years = [4]uint64{}
	}
}

// word reads letters and digits up to the end of the field.
func (p *parser) word() string {
	start := p.pos
	for p.pos < p.end && isAlnum(p.expr[p.pos]) {
		p.pos++
	}
	return p.expr[start:p.pos]
}

func (p *parser) skipBlanks() {
	for p.pos < len(p.expr) && isBlank(p.expr[p.pos]) {
		p.pos++
	}
}

// wordEnd returns where the text without blanks that begins at i ends.
func (p *parser) wordEnd(i int) int {
	for i < len(p.expr) && !isBlank(p.expr[i]) {
		i++
	}
	return i
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isAlnum(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// number returns the value of digits. It stops growing far above all bounds.
func number(digits string) int {
	n := 0
	for i := range len(digits) {
		if n < 1_000_000 {
			n = n*10 + int(digits[i]-'0')
		}
	}
	return n
}

// cutSuffixFold removes a letter, given in lower case, from the end of a word.
func cutSuffixFold(word string, letter byte) (string, bool) {
	if word != "" && word[len(word)-1]|0x20 == letter {
		return word[:len(word)-1], true
	}
	return word, false
}
