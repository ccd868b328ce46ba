package sqldb

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// sieve finds the definitions that a query selects among many.
type sieve struct {
	*store.JobQuery
	all bool // it uses no field of definitions
	// parts occur in each matching definition, apart from case. Searching for them costs a tenth of
	// decoding.
	parts  [][]byte
	folded []byte // the examined definition in lower case
}

func sieveOf(q *store.JobQuery) *sieve {
	s := &sieve{JobQuery: q, all: q.Text == "" && len(q.Labels) == 0 && q.Work == ""}
	parts := []string{q.Text, string(q.Work)}
	for key, value := range q.Labels {
		parts = append(parts, key, value)
	}
	for _, part := range parts {
		// Escaped and non-ASCII letters are left to the full comparison.
		if quoted, err := json.Marshal(part); err == nil && len(quoted) == len(part)+2 && isASCII(quoted) {
			s.parts = append(s.parts, fold(nil, []byte(part)))
		}
	}
	return s
}

// has reports whether the query selects a definition by its content, which is read only then
// if it matters.
func (s *sieve) has(q reader) (bool, error) {
	if s.all {
		return true, nil
	}
	return s.hasText(q.View())
}

func (s *sieve) hasText(text []byte) (bool, error) {
	if isASCII(text) {
		s.folded = fold(s.folded[:0], text)
		for _, part := range s.parts {
			if !bytes.Contains(s.folded, part) {
				return false, nil
			}
		}
	}
	decode := columns.DecodeSaid
	if s.Work != "" {
		decode = columns.DecodeJob
	}
	document, err := decode(text)
	return err == nil && s.Matches(document), err
}

func isASCII(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// fold appends a text of ASCII in small letters.
func fold(to, text []byte) []byte {
	for _, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		to = append(to, c)
	}
	return to
}
