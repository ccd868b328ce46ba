package job

import (
	"strconv"
	"strings"
)

// The words that messages are made of.

// quotedMax is how much of a value a message repeats: enough to recognise it.
const quotedMax = 80

// quote returns a value for use in a message, cut if it is long.
func quote(value string) string {
	if len(value) > quotedMax {
		return strconv.Quote(strings.ToValidUTF8(value[:quotedMax], "")) + "…"
	}
	return strconv.Quote(value)
}

// suffix returns text with what goes before and after it, or nothing if there
// is no text.
func suffix(before, text string, after ...string) string {
	if text == "" {
		return ""
	}
	return before + text + strings.Join(after, "")
}

// nearest returns a question for the name that is nearest to what was written,
// or "" if none is near.
func nearest(written string, names []string) string {
	best, distance := "", 1+max(1, len(written)/3)
	if len(written) > 64 {
		return ""
	}
	for _, name := range names {
		if d := editDistance(strings.ToLower(written), strings.ToLower(name)); d < distance {
			best, distance = name, d
		}
	}
	return suffix("did you mean ", suffix(`"`, best, `"`), "?")
}

// editDistance counts the letters to insert, delete, replace or swap with
// their neighbour to get from a to b. Package cron counts them as well, in words
// of its own: it imports the standard library alone, and what it exports is about
// schedules.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
