package crontab

import (
	"maps"
	"slices"
	"strings"
)

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

// Restore returns the text of a file without the marks of [CommentOut], and the numbers of the lines
// that are no longer commented out.
func Restore(text string) (restored string, numbers []int) {
	var b strings.Builder
	n, marked := 0, map[int]bool{}
	for line := range strings.Lines(text) {
		n++
		for rest, found := strings.CutPrefix(line, importedMark); found; rest, found = strings.CutPrefix(line, importedMark) {
			line, marked[n] = rest, true
		}
		b.WriteString(line)
	}
	return b.String(), slices.Sorted(maps.Keys(marked))
}
