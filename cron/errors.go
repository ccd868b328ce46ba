package cron

import (
	"fmt"
	"strings"
)

// ParseError is a mistake in an expression, with its position.
type ParseError struct {
	Expr    string // the expression as given
	Field   string // the field, such as "day of month"; "" when it is not about one
	Pos     int    // where in Expr the mistake begins, in bytes from 0
	Len     int    // how many bytes are wrong; 0 when something is missing at Pos
	Problem string // the problem, such as "61 is out of range"
	Allowed string // the allowed values, such as "0-59"; may be ""
	Hint    string // a suggestion, such as `did you mean "FRI"?`; may be ""
}

// Error returns the whole message in one line.
func (e *ParseError) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Problem)
	if e.Allowed != "" {
		b.WriteString(", allowed is ")
		b.WriteString(e.Allowed)
	}
	fmt.Fprintf(&b, " (at position %d of %q)", e.Pos+1, e.Expr)
	if e.Hint != "" {
		b.WriteString("; ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// nameOf returns the name of a value of an enumeration.
func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("invalid(%d)", i)
}

// indexOfName is the inverse of nameOf, with an error for people.
func indexOfName(what string, names []string, name string) (int, error) {
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	hint := ""
	if near := nearest(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return 0, fmt.Errorf("unknown %s %q, allowed is %s%s", what, name, strings.Join(names, ", "), hint)
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
