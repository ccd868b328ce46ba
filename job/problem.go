package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Problem is a mistake in a document: its place, what is wrong and, if known, a correction.
type Problem struct {
	File         string // the name given to Decode
	Line, Column int    // from 1; 0 if the document was not read from text
	Path         string // the field as the user wrote it, for example schedule.cron[1]
	Message      Reason // what is wrong
	Hint         Reason // the correction; optional
}

// Error returns the problem in one line, for example
//
//	jobs.yaml:7:12: policy.overlap: "skp" is not known; allowed: skip, queue, replace, allow (did you mean "skip"?)
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	for _, n := range []int{p.Line, p.Column} {
		if n > 0 {
			fmt.Fprintf(&b, "%d:", n)
		}
	}
	if b.Len() > 0 {
		b.WriteString(" ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message.String())
	if !p.Hint.IsZero() {
		b.WriteString(" (" + p.Hint.String() + ")")
	}
	return b.String()
}

// Problems are all mistakes that were found, in the order of the text.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Text is Error as a code with arguments, without the files.
func (ps Problems) Text() (all phrase.Text) {
	for i := range ps {
		p := &ps[i]
		one := p.Message.Text()
		if !p.Hint.IsZero() {
			one = phrase.WithHint.Of(one, p.Hint.Text())
		}
		if p.Path != "" {
			one = phrase.InField.Of(p.Path, one)
		}
		all = all.Then(one)
	}
	return all
}

// Text returns a reason of package phrase as its text.
func (r Reason) Text() phrase.Text {
	if t, ok := phrase.Of(r.Code(), r.Args()); ok {
		return t
	}
	return phrase.Said.Of(phrase.Words(r.String()))
}

// sorted puts the problems in the order of the text.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}

// asError returns the problems sorted, or nil if the list is empty.
func (ps Problems) asError() error {
	if len(ps) == 0 {
		return nil
	}
	return ps.sorted()
}

// first returns the hint of a problem, none if it has none.
func first(hint []phrase.Text) phrase.Text {
	if len(hint) == 0 {
		return phrase.Text{}
	}
	return hint[0]
}

// phraseReason converts a text to a value of a problem.
func phraseReason(t phrase.Text) Reason { return ReasonOf(t.String(), t.Code(), t.Args()) }
