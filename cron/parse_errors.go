package cron

import (
	"strings"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// The messages of the parser. Nothing in this file runs for a valid expression.

// fail makes the error for the bytes from start to end.
func (p *parser) fail(start, end int, problem, allowed, hint phrase.Text) error {
	var field phrase.Text
	if p.field != noField {
		field = specs[p.field].name
	}
	return newParseError(p.expr, start, end-start, field, problem, allowed, hint)
}

// failItem reports a missing part at a position.
func (p *parser) failItem(at int, problem phrase.Text) error {
	if at < p.end {
		return p.fail(at, at+1, problem, p.allowed(), silence)
	}
	return p.fail(at, at, problem, p.allowed(), silence)
}

// unexpected reports a misplaced character.
func (p *parser) unexpected() error {
	r, size := utf8.DecodeRuneInString(p.expr[p.pos:])
	var hint phrase.Text
	switch r {
	case '#', '~', '(', '+':
		hint = p.elsewhere()
	case '-':
		hint = phrase.RangeForm
	case '.':
		hint = phrase.WholeNumbers
	case '*':
		hint = phrase.StarForm
	}
	return p.fail(p.pos, p.pos+size, phrase.NotExpected.Of(phrase.Quoted(string(r))), silence, hint)
}

// elsewhere explains where a misplaced character belongs.
func (p *parser) elsewhere() phrase.Text {
	switch p.expr[p.pos] {
	case '#':
		if p.dialect == Vixie5 {
			return phrase.NthDialects
		}
		return phrase.NthPlace
	case '+':
		if p.dialect == Default {
			return phrase.PlusPlace
		}
		return phrase.PlusDialect
	}
	return silence
}

// outOfRange reports a number outside of the field's range.
func (p *parser) outOfRange(start int, digits string) error {
	var hint phrase.Text
	if p.field == weekdayField && p.dialect == Quartz && number(digits) == 0 {
		hint = phrase.SundayIsOne
	}
	return p.fail(start, start+len(digits), phrase.OutOfRange.Of(digits), p.allowed(), hint)
}

// notAValue reports a word that is neither a number nor a name of the field.
func (p *parser) notAValue(start int, word string) error {
	spec := &specs[p.field]
	end := start + len(word)
	if c := word[0]; isDigit(c) {
		return p.fail(start, end, phrase.NotNumber.Of(phrase.Quoted(word)), p.allowed(), p.meant(word))
	}
	for _, other := range []int{monthField, weekdayField} {
		if _, ok := named(&specs[other], word); ok && other != p.field {
			return p.fail(start, end, phrase.IsOther.Of(phrase.Quoted(word), specs[other].name), p.allowed(), silence)
		}
	}
	problem := phrase.NotNumber.Of(phrase.Quoted(word))
	hint := p.meant(word)
	if spec.names != "" {
		problem = phrase.NotNumberOrName.Of(phrase.Quoted(word))
		hint = hint.Or(didYouMean(nearestName(spec, word)))
	}
	return p.fail(start, end, problem, p.allowed(), hint)
}

// meant recognizes a word that has a meaning in another field or dialect.
func (p *parser) meant(word string) phrase.Text {
	last := word[len(word)-1] | 0x20
	switch {
	case strings.EqualFold(word, "H"):
		return phrase.HDialect
	case p.field == dayField && p.dialect != Vixie5 && last == 'w' && isDigits(word[:len(word)-1]):
		return phrase.WSingleDay.Of(phrase.Quoted(word))
	case last != 'l' && last != 'w' || len(word) > 4:
		return silence
	case p.dialect == Vixie5 && (p.field == dayField || p.field == weekdayField):
		return phrase.LWDialects
	case len(word) <= 2 && p.field != dayField:
		return phrase.LWPlace
	}
	return silence
}

// allowed returns the values of the field in words.
func (p *parser) allowed() phrase.Text {
	spec := &specs[p.field]
	low, high := spec.min, spec.max
	if p.field == weekdayField {
		high = 7
		if p.dialect == Quartz {
			low = 1
		}
	}
	if n := len(spec.names); n > 0 {
		return phrase.RangeOrNames.Of(low, high, strings.ToUpper(spec.names[:3]+"-"+spec.names[n-3:]))
	}
	return phrase.Range.Of(low, high)
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

// didYouMean makes a hint of a suggestion.
func didYouMean(suggestion string) phrase.Text {
	if suggestion == "" {
		return silence
	}
	return phrase.DidYouMeanBare.Of(suggestion)
}
