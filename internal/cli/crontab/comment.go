package crontab

import "strings"

// importedMark stands before the lines that became jobs.
const importedMark = "#belfry# "

// CommentOut returns the text of a file with the numbered lines commented out, marked so
// that a person can find and restore them.
func CommentOut(text string, numbers map[int]bool) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(text) {
		if n++; numbers[n] {
			b.WriteString(importedMark)
		}
		b.WriteString(line)
	}
	return b.String()
}
