package cron

import (
	"fmt"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// ParseError is a mistake in an expression, with its position.
type ParseError struct {
	Expr    string // the expression as given
	Field   string // the field, such as "day of month"; "" for none
	Pos     int    // start of the mistake in Expr, in bytes from 0
	Len     int    // length in bytes; 0 if something is missing at Pos
	Problem string // the problem, such as "61 is out of range"
	Allowed string // the allowed values, such as "0-59"; may be ""
	Hint    string // a suggestion, such as `did you mean "FRI"?`; may be ""

	wording, hint phrase.Text
}

// newParseError returns the error of some bytes of an expression.
func newParseError(expr string, pos, length int, field, problem, allowed, hint phrase.Text) *ParseError {
	return &ParseError{
		Expr: expr, Field: field.String(), Pos: pos, Len: length, Problem: problem.String(), Allowed: allowed.String(), Hint: hint.String(),
		wording: phrase.ExpressionWording.Of(field, problem, allowed), hint: hint,
	}
}

// Error formats the error in one line.
func (e *ParseError) Error() string { return e.Text().String() }

// Text is Error as a code with arguments.
func (e *ParseError) Text() phrase.Text {
	return phrase.ExpressionWrong.Of(e.wording, e.Pos+1, phrase.Exact(e.Expr), e.hint)
}

// Wording returns the message without its place, and the hint.
func (e *ParseError) Wording() (message, hint phrase.Text) { return e.wording, e.hint }

// silence is a part of a message that is not there.
var silence phrase.Text

// nameOf returns the name of a value of an enumeration.
func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("invalid(%d)", i)
}

// indexOfName is the inverse of nameOf, with a readable error.
func indexOfName(what phrase.Text, names []string, name string) (int, error) {
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	return 0, phrase.Mistake(phrase.UnknownName.Of(what, phrase.Quoted(name), names, nearest(name, names)))
}

// nearest returns the candidate nearest to a mistyped word, or "".
func nearest(word string, candidates []string) string {
	// A third of the letters may be wrong, at least one.
	best, most := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c), most); d < most {
			best, most = c, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their neighbour to
// turn a into b. It stops counting at most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	older := make([]int, len(b)+1)
	old := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old, row = old, row, older
	}
	return min(old[len(b)], most)
}
