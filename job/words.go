package job

import (
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/internal/sys/spelling"
)

// The words that messages are made of.

// quotedMax is the most bytes of a value in a message: enough to recognise it.
const quotedMax = 80

// quote returns a value for use in a message, cut if it is long.
func quote(value string) string {
	if len(value) > quotedMax {
		return strconv.Quote(strings.ToValidUTF8(value[:quotedMax], "")) + "…"
	}
	return strconv.Quote(value)
}

// suffix returns text with a prefix and a suffix, or nothing if the text is empty.
func suffix(before, text string, after ...string) string {
	if text == "" {
		return ""
	}
	return before + text + strings.Join(after, "")
}

// nearest returns a question that suggests the name nearest to the written one, or "" if
// none is near.
func nearest(written string, names []string) string {
	near := spelling.Near(written, names)
	if len(near) == 0 {
		return ""
	}
	return `did you mean "` + near[0] + `"?`
}
