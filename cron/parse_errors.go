package cron

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The messages of the parser. Nothing in this file runs for a valid expression.

// fail makes the error for the bytes from start to end.
func (p *parser) fail(start, end int, problem, allowed, hint string) error {
	e := &ParseError{Expr: p.expr, Pos: start, Len: end - start, Problem: printable(problem), Allowed: allowed, Hint: printable(hint)}
	if p.field != noField {
		e.Field = specs[p.field].name
	}
	return e
}

// failItem reports a missing part at a position.
func (p *parser) failItem(at int, problem string) error {
	if at < p.end {
		return p.fail(at, at+1, problem, p.allowed(), "")
	}
	return p.fail(at, at, problem, p.allowed(), "")
}

// unexpected reports a misplaced character.
func (p *parser) unexpected() error {
	r, size := utf8.DecodeRuneInString(p.expr[p.pos:])
	hint := ""
	switch r {
	case '#', '~', '(', '+':
		hint = p.elsewhere()
	case '-':
		hint = "a range is written a-b"
	case '.':
		hint = "values are whole numbers"
	case '*':
		hint = "a star stands alone, or in front of a step: */n"
	}
	return p.fail(p.pos, p.pos+size, fmt.Sprintf("%q is not expected here", string(r)), "", hint)
}

// elsewhere explains where a misplaced character belongs.
func (p *parser) elsewhere() string {
	switch p.expr[p.pos] {
	case '#':
		if p.dialect == Vixie5 {
			return "d#n is part of the default and quartz dialects"
		}
		return "d#n stands in day of week: 5#2 is the second Friday"
	case '+':
		if p.dialect == Default {
			return "a plus sign stands in front of day of week only"
		}
		return "a plus sign is part of the default dialect, in front of day of week"
	}
	return ""
}

// outOfRange reports a number outside of the field's range.
func (p *parser) outOfRange(start int, digits string) error {
	hint := ""
	if p.field == weekdayField && p.dialect == Quartz && number(digits) == 0 {
		hint = "Sunday is 1 in the quartz dialect"
	}
	return p.fail(start, start+len(digits), digits+" is out of range", p.allowed(), hint)
}

// notAValue reports a word that is neither a number nor a name of the field.
func (p *parser) notAValue(start int, word string) error {
	spec := &specs[p.field]
	end := start + len(word)
	if c := word[0]; isDigit(c) {
		return p.fail(start, end, fmt.Sprintf("%q is not a number", word), p.allowed(), p.meant(word))
	}
	for _, other := range []int{monthField, weekdayField} {
		if _, ok := named(&specs[other], word); ok && other != p.field {
			return p.fail(start, end, fmt.Sprintf("%q is a %s", word, specs[other].name), p.allowed(), "")
		}
	}
	problem := fmt.Sprintf("%q is not a number", word)
	hint := p.meant(word)
	if spec.names != "" {
		problem += " or a name"
		if hint == "" {
			hint = didYouMean(nearestName(spec, word))
		}
	}
	return p.fail(start, end, problem, p.allowed(), hint)
}

// meant recognizes a word that has a meaning in another field or dialect.
func (p *parser) meant(word string) string {
	last := word[len(word)-1] | 0x20
	switch {
	case strings.EqualFold(word, "H"):
		return "H is part of the default dialect"
	case p.field == dayField && p.dialect != Vixie5 && last == 'w' && isDigits(word[:len(word)-1]):
		return fmt.Sprintf("W stands behind a single day: write %q, or a range without W", word)
	case last != 'l' && last != 'w' || len(word) > 4:
		return ""
	case p.dialect == Vixie5 && (p.field == dayField || p.field == weekdayField):
		return "L and W are part of the default and quartz dialects"
	case len(word) <= 2 && p.field != dayField:
		return "L and W stand in day of month, and L behind a day of week"
	}
	return ""
}

// allowed returns the values of the field in words.
func (p *parser) allowed() string {
	spec := &specs[p.field]
	low, high := spec.min, spec.max
	if p.field == weekdayField {
		high = 7
		if p.dialect == Quartz {
			low = 1
		}
	}
	values := fmt.Sprintf("%d-%d", low, high)
	if n := len(spec.names); n > 0 {
		values += fmt.Sprintf(" or %s-%s", strings.ToUpper(spec.names[:3]), strings.ToUpper(spec.names[n-3:]))
	}
	return values
}

// nearestName returns the name of the field that a word probably means. Names
// have three letters, so one that is longer is compared by its beginning first:
// "mond" and "Tuesday".
func nearestName(spec *fieldSpec, word string) string {
	var names []string
	for i := 0; i < len(spec.names); i += 3 {
		name := strings.ToUpper(spec.names[i : i+3])
		if len(word) > 3 && strings.EqualFold(word[:3], name) {
			return name
		}
		names = append(names, name)
	}
	return nearest(word, names)
}

// printable escapes characters that would break a line, as Go does, since messages repeat
// words of the expression.
func printable(text string) string {
	if strings.IndexFunc(text, isUnprintable) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isUnprintable(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// didYouMean makes a hint of a suggestion.
func didYouMean(suggestion string) string {
	if suggestion == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s?", suggestion)
}
