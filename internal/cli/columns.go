package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

// table writes rows in columns, the first row being their names. A column is as wide as its widest
// text, which is never cut, since the end of a name may matter.
func table(w io.Writer, s style, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, text := range row {
			widths[i] = max(widths[i], columns(oneLine(text)))
		}
	}
	line := func(row []string, mark func(string) string) {
		var b strings.Builder
		for i, text := range row {
			text = oneLine(text)
			b.WriteString(text)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-columns(text)+2))
			}
		}
		fmt.Fprintln(w, mark(strings.TrimRight(b.String(), " ")))
	}
	line(head, s.faint)
	for _, row := range rows {
		line(row, func(text string) string { return text })
	}
}

// oneLine makes a text safe for a row: one line, and nothing that a terminal
// would obey.
func oneLine(text string) string { return strings.ReplaceAll(printable(text), "\n", " ") }

// instant formats a moment: for a person by the clock of its zone and its distance, for a program
// exactly.
func instant(env Env, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if !env.StdoutIsTerminal {
		return t.Format("2006-01-02T15:04:05.999Z07:00")
	}
	return t.Format("Mon 2006-01-02 15:04:05 -07:00")
}

// distance formats how far away a moment is.
func distance(env Env, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return countdown(t, env.Now(), cron.English)
}

// orDash returns a text, or a dash for none, so that columns stay distinct.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// list is the envelope of lists in JSON and YAML.
type list[T any] struct {
	Items         []T    `json:"items"`
	NextPageToken string `json:"next_page_token"`
}

// showList prints items in the requested format. table writes the table; name returns the name of
// an item.
func showList[T any](env Env, format string, items []T, next string, name func(T) string, asText func(io.Writer)) error {
	var b bytes.Buffer
	switch format {
	case asJSONL:
		for _, item := range items {
			if err := encodeJSONLine(&b, item); err != nil {
				return err
			}
		}
	case asName:
		for _, item := range items {
			fmt.Fprintln(&b, oneLine(name(item)))
		}
	default:
		if items == nil {
			items = []T{}
		}
		return showOne(env, format, list[T]{items, next}, "", asText)
	}
	return write(env, b.Bytes())
}

// showOne prints one item in the requested format.
func showOne(env Env, format string, value any, name string, asText func(io.Writer)) error {
	var b bytes.Buffer
	var err error
	switch format {
	case asJSON:
		err = encodeJSON(&b, value)
	case asYAML:
		err = encodeYAML(&b, value)
	case asJSONL:
		err = encodeJSONLine(&b, value)
	case asName:
		fmt.Fprintln(&b, oneLine(name))
	default:
		asText(&b)
	}
	if err != nil {
		return err
	}
	return write(env, b.Bytes())
}

// fieldLines writes names with their values, without empty ones.
func fieldLines(w io.Writer, s style, pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s  %s\n", s.faint(fmt.Sprintf("%-*s", width, pairs[i])), oneLine(pairs[i+1]))
		}
	}
}

// compact makes JSON that was read into JSON as commands print it.
func compact(raw []byte) json.RawMessage { return json.RawMessage(bytes.TrimSpace(raw)) }
