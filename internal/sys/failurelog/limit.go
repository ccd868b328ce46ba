package failurelog

import (
	"sync"
	"time"
)

// Limit permits one log line per span of time and counts the suppressed ones. The zero value with
// Every set is ready; several goroutines may share one.
type Limit struct {
	// Every is the shortest time between two lines.
	Every time.Duration

	mu    sync.Mutex
	until time.Time
	left  int
}

// Allow reports whether a line may be written now and, if so, how many were suppressed since the
// last one.
func (l *Limit) Allow(now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.until) {
		l.left++
		return 0, false
	}
	leftOut, l.left, l.until = l.left, 0, now.Add(l.Every)
	return leftOut, true
}

// LeftOut returns and resets the number of suppressed lines, once the span of the last line
// is over. It is for lines that no other line follows.
func (l *Limit) LeftOut(now time.Time) (n int, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.until) {
		return 0, false
	}
	n, l.left = l.left, 0
	return n, true
}
