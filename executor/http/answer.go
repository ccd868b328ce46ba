package httpexec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// expected reports whether a status matches expect: 200, 200-204 or 2xx. Invalid patterns,
// which validation refuses, match nothing.
func expected(status int, expect []string) bool {
	for _, e := range expect {
		if class, ok := strings.CutSuffix(e, "xx"); ok {
			if strconv.Itoa(status/100) == class {
				return true
			}
			continue
		}
		from, to, isRange := strings.Cut(e, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 == nil && err2 == nil && first <= status && status <= last {
			return true
		}
	}
	return false
}

// statusText returns "503 Service Unavailable". It omits the server's own text, which may be
// arbitrary.
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprint(status, " ", http.StatusText(status)))
}

// unmatched explains why the response does not match; none if it does. As in the output of
// commands, ^ and $ match at the beginning and end of lines: the response "ok\n" matches ^ok$. cut
// is set if body is incomplete.
func unmatched(body []byte, cut bool, pattern string) (why job.Reason) {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return reason.BadPattern.Of(pattern)
	}
	switch {
	case re.Match(body):
		return why
	case cut:
		return reason.BeginNoMatch.Of(len(body), pattern)
	}
	return reason.AnswerNoMatch.Of(pattern)
}

// unmatchedJSON explains why a response is not the expected JSON; none if it is. The keys of wanted
// are paths, such as status or data.items.0.state; the values are the expected values, texts
// verbatim and other values as JSON. A field whose name contains dots takes precedence over a path.
func unmatchedJSON(body []byte, cut bool, wanted map[string]string) (why job.Reason) {
	if cut {
		return reason.JSONTooLong.Of(len(body))
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var answer any
	if err := decoder.Decode(&answer); err != nil {
		return reason.NotJSON.Of(reason.Words(err.Error()))
	}
	for _, place := range slices.Sorted(maps.Keys(wanted)) {
		value, ok := at(answer, place)
		switch want := wanted[place]; {
		case !ok:
			return reason.NoField.Of(place, want)
		case textOf(value) != want:
			return reason.WrongField.Of(place, reason.Words(shorten(textOf(value))), want)
		}
	}
	return why
}

// at returns the value at a path in a JSON value.
func at(value any, place string) (any, bool) {
	if object, ok := value.(map[string]any); ok {
		if v, ok := object[place]; ok {
			return v, true
		}
	}
	first, rest, deeper := strings.Cut(place, ".")
	switch v := value.(type) {
	case map[string]any:
		inner, ok := v[first]
		if !ok || !deeper {
			return inner, ok
		}
		return at(inner, rest)
	case []any:
		i, err := strconv.Atoi(first)
		if err != nil || i < 0 || i >= len(v) {
			return nil, false
		}
		if !deeper {
			return v[i], true
		}
		return at(v[i], rest)
	}
	return nil, false
}

// textOf returns the user's notation of a JSON value.
func textOf(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	text, _ := json.Marshal(value) // it was decoded from JSON
	return string(text)
}
