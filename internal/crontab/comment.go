package crontab

import "strings"

// importedMark stands before the lines that became jobs.
const importedMark = "#belfry# "

// CommentOut returns the text of a file in which the lines with these numbers are
// comments, marked so that a person finds them and what they were.
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
