package httpapi

import "strings"

// libraryWords are the beginning and the end of the routing library's messages about a
// value, and our replacements, in which the text between them replaces the %. The first
// match counts.
var libraryWords = []struct{ theirs, behind, ours string }{
	{`expected value to be one of "`, `"`, "is not allowed; allowed: %"},
	{"expected number >= ", "", "is too small; the minimum is %"},
	{"expected number <= ", "", "is too large; the maximum is %"},
	{"expected length >= ", "", "is too short; the minimum length is %"},
	{"expected length <= ", "", "is too long; the maximum is % characters"},
	{"expected array length <= ", "", "has too many items; the maximum is %"},
	{"expected string to be RFC 3339 date-time", "", instantWanted},
	{"invalid date/time for format ", "", instantWanted},
	{"expected integer", "", "is not a whole number"},
	{"invalid integer", "", "is not a whole number"},
	{"expected boolean", "", "is neither true nor false"},
	{"invalid boolean", "", "is neither true nor false"},
	{"expected object", "", "is not an object"},
	{"expected array", "", "is not a list"},
	{"expected string to be ", "", "is not %"},
	{"expected string", "", "is not a text"},
	{"expected required property ", " to be present", "has no %"},
	{"unexpected property", "", "is not known here"},
	{"unknown query parameter", "", "is not known here"},
	{"invalid value: ", "", "%"},
}

const instantWanted = "is not an instant such as 2026-03-28T00:00:00Z"

// inOurWords rewords a message about a value in the style of the API. Other messages of the
// library stay unchanged.
func inOurWords(text string) string {
	for _, w := range libraryWords {
		if rest, ok := strings.CutPrefix(text, w.theirs); ok {
			rest = strings.TrimSuffix(rest, w.behind)
			return strings.ReplaceAll(w.ours, "%", rest)
		}
	}
	return text
}
