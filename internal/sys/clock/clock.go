// Package clock reads the clock that continues while a machine is suspended, and detects
// steps of the wall clock. Go's own monotonic clock stands still during a suspend: a lease
// would seem valid after it.
package clock

import (
	"sync"
	"time"
)

const (
	// stepMin is the smallest difference that counts as a step of the wall clock: more than
	// its slew between two checks, and less than a noticeable error of a run's start.
	stepMin = 250 * time.Millisecond
	// readWithin bounds the reading of both clocks, so that a busy machine does not seem to set its
	// clock; readsMax bounds the tries.
	readWithin = 10 * time.Millisecond
	readsMax   = 10
)

// Watch notices steps of a wall clock against a boot clock. Its methods may be
// called by any goroutine.
type Watch struct {
	now  func() time.Time
	boot func() time.Duration

	mu     sync.Mutex
	offset time.Duration
	last   time.Duration
}

// NewWatch begins to watch.
func NewWatch(now func() time.Time, boot func() time.Duration) *Watch {
	w := &Watch{now: now, boot: boot}
	w.offset, _ = w.difference()
	return w
}

// Stepped returns by how much the wall clock was set since the last call, or 0. Only one of several
// callers gets it.
func (w *Watch) Stepped() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	offset, at := w.difference()
	step := offset - w.offset
	if -stepMin < step && step < stepMin {
		// A slewed clock must not add up to a step.
		w.offset = offset
		return 0
	}
	w.offset, w.last = offset, at
	return step
}

// Zero returns the moment at which the boot clock was 0, by the wall clock as it is set now.
func (w *Watch) Zero() time.Time {
	offset, _ := w.difference()
	return time.Unix(0, int64(offset))
}

// Last returns when a step was noticed last, by the boot clock; 0 for never.
func (w *Watch) Last() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// difference returns by how much the wall clock is ahead of the boot clock, and the latter. As they
// are not read at once, the quickest pair counts.
func (w *Watch) difference() (offset, at time.Duration) {
	shortest := time.Duration(-1)
	for range readsMax {
		before := w.boot()
		wall := time.Duration(w.now().UnixNano())
		after := w.boot()
		if took := after - before; shortest < 0 || took < shortest {
			shortest, offset, at = took, wall-after, after
		}
		if shortest <= readWithin {
			break
		}
	}
	return offset, at
}
