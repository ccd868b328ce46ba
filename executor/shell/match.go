package shell

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

// matcher searches the whole output of an attempt, in bounded memory, for what
// success needs. Standard output and standard error are searched each by
// itself. ^ and $ match at the begin and end of lines, since output is lines;
// \A and \z mean nothing useful. After the first match nothing is searched any
// more.
type matcher struct {
	re      *regexp.Regexp // nil when everything will do
	found   atomic.Bool
	streams [2]streamMatcher
}

func newMatcher(s *job.Success) (*matcher, error) {
	if s == nil || s.Match == "" {
		return &matcher{}, nil
	}
	re, err := regexp.Compile("(?m)" + s.Match)
	if err != nil {
		return nil, fmt.Errorf("policy.success.match: %w", err)
	}
	return &matcher{re: re}, nil
}

// ok reports whether the output matches.
func (m *matcher) ok() bool { return m.re == nil || m.found.Load() }

// stream returns what searches one stream of the output.
func (m *matcher) stream(i int) *streamMatcher {
	if m.re == nil {
		return nil
	}
	m.streams[i].matcher = m
	return &m.streams[i]
}

// end searches what is left of both streams, when nothing follows.
func (m *matcher) end() {
	for i := range m.streams {
		if s := &m.streams[i]; m.re != nil && !m.found.Load() && m.re.Match(s.kept) {
			m.found.Store(true)
		}
	}
}

type streamMatcher struct {
	*matcher
	kept []byte
}

// write takes the next bytes. It may be called on nil.
func (m *streamMatcher) write(p []byte) {
	if m == nil || m.found.Load() {
		return
	}
	for len(p) > 0 {
		n := min(len(p), matchBuffer-len(m.kept))
		m.kept, p = append(m.kept, p[:n]...), p[n:]
		if len(m.kept) == matchBuffer {
			m.search()
		}
	}
}

// search searches the whole lines that are kept, and keeps enough of them for a
// match that continues in the next.
func (m *streamMatcher) search() {
	whole := bytes.LastIndexByte(m.kept, '\n') + 1
	if whole <= matchWindow {
		whole = len(m.kept) // a line longer than any match
	}
	if m.re.Match(m.kept[:whole]) {
		m.found.Store(true)
		m.kept = nil
		return
	}
	from := whole - matchWindow
	if i := bytes.IndexByte(m.kept[from:whole], '\n'); i >= 0 && from+i+1 < whole {
		from += i + 1
	}
	m.kept = append(m.kept[:0], m.kept[from:]...)
}
