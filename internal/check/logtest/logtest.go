// Package logtest is for tests that read a log during writes.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Log collects the writes of any number of goroutines. Its zero value is ready for use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns everything written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the lines with a text.
func (l *Log) Lines(text string) (list []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			list = append(list, line)
		}
	}
	return list
}

// Count returns how many lines have a text.
func (l *Log) Count(text string) int { return len(l.Lines(text)) }
