// Package verdict judges what a command has written, for all executors of commands: whether its output
// matches, and its result. It reads no files.
package verdict

import (
	"bytes"
	"fmt"
	"regexp"
	"sync/atomic"

	"github.com/belfry-cron/belfry/job"
)

const (
	// matchWindow is the longest match in bytes that is always found, however the output
	// is chunked.
	matchWindow = 64 << 10
	// matchBuffer is the size of the searched blocks, so that each byte is searched at
	// most twice.
	matchBuffer = 2 * matchWindow
)

// Matcher searches the whole output of an attempt, in bounded memory, for the pattern of success.
// It searches standard output and standard error separately. ^ and $ match at the beginning and end
// of lines, since output is lines; \A and \z have no use. It stops at the first match.
type Matcher struct {
	re      *regexp.Regexp // nil without a pattern
	found   atomic.Bool
	streams [2]StreamMatcher
}

// NewMatcher returns a matcher for the pattern of success.
func NewMatcher(s *job.Success) (*Matcher, error) {
	if s == nil || s.Match == "" {
		return &Matcher{}, nil
	}
	re, err := regexp.Compile("(?m)" + s.Match)
	if err != nil {
		return nil, fmt.Errorf("policy.success.match: %w", err)
	}
	return &Matcher{re: re}, nil
}

// OK reports whether the output matches.
func (m *Matcher) OK() bool { return m.re == nil || m.found.Load() }

// Stream returns the matcher of one stream of the output.
func (m *Matcher) Stream(i int) *StreamMatcher {
	if m.re == nil {
		return nil
	}
	m.streams[i].matcher = m
	return &m.streams[i]
}

// End searches the rest of both streams at their end.
func (m *Matcher) End() {
	for i := range m.streams {
		if s := &m.streams[i]; m.re != nil && !m.found.Load() && m.re.Match(s.tail) {
			m.found.Store(true)
		}
	}
}

// StreamMatcher searches one stream of the output of an attempt.
type StreamMatcher struct {
	matcher *Matcher
	tail    []byte
}

// Write searches the next bytes. It may be called on nil.
func (m *StreamMatcher) Write(p []byte) {
	if m == nil || m.matcher.found.Load() {
		return
	}
	for len(p) > 0 {
		n := min(len(p), matchBuffer-len(m.tail))
		m.tail, p = append(m.tail, p[:n]...), p[n:]
		if len(m.tail) == matchBuffer {
			m.search()
		}
	}
}

// State returns whether the pattern was found, and the kept text of both streams, for another
// process that continues the attempt.
func (m *Matcher) State() (found bool, tails [2][]byte) {
	return m.found.Load(), [2][]byte{m.streams[0].tail, m.streams[1].tail}
}

// Continue sets the state of another process. Call it before the first Write.
func (m *Matcher) Continue(found bool, tails [2][]byte) {
	m.found.Store(found)
	for i := range m.streams {
		m.streams[i].tail = tails[i]
	}
}

// search searches the kept whole lines, and keeps enough of them for a match that continues in the
// next line.
func (m *StreamMatcher) search() {
	whole := bytes.LastIndexByte(m.tail, '\n') + 1
	if whole <= matchWindow {
		whole = len(m.tail) // a line longer than any match
	}
	if m.matcher.re.Match(m.tail[:whole]) {
		m.matcher.found.Store(true)
		m.tail = nil
		return
	}
	from := whole - matchWindow
	if i := bytes.IndexByte(m.tail[from:whole], '\n'); i >= 0 && from+i+1 < whole {
		from += i + 1
	}
	m.tail = append(m.tail[:0], m.tail[from:]...)
}
