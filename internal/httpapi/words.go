package httpapi

import "strings"

// libraryWords are the beginning and the end of what the routes' library says about
// a value, and what is said instead, where what stands between them takes the
// place of the %. The first that fits counts.
var libraryWords = []struct{ theirs, behind, ours string }{
	{`expected value to be one of "`, `"`, "is not allowed; allowed: %"},
	{"expected number >= ", "", "is too small; the minimum is %"},
	{"expected number <= ", "", "is too large; the maximum is %"},
	{"expected length >= ", "", "is too short; the minimum is % characters"},
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

// inOurWords says what is wrong with a value as the rest of the API does. What
// the library says else stays as it is.
func inOurWords(text string) string {
	for _, w := range libraryWords {
		if rest, ok := strings.CutPrefix(text, w.theirs); ok {
			rest = strings.TrimSuffix(rest, w.behind)
			return strings.ReplaceAll(w.ours, "%", rest)
		}
	}
	return text
}
