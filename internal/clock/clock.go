// Package clock reads the clock that goes on while a machine is suspended, and
// notices when the wall clock is set. Go's own monotonic clock stands still
// during a suspend: a lease would seem valid after it.
package clock

import "time"

// stepMin is the difference from which the wall clock counts as set: more than
// it is slewed by between two looks, and less than what makes a run early or
// late in a way that anybody would notice.
const stepMin = 250 * time.Millisecond

// Watch notices steps of a wall clock against a boot clock.
type Watch struct {
	now    func() time.Time
	boot   func() time.Duration
	offset time.Duration
}

// NewWatch begins to watch.
func NewWatch(now func() time.Time, boot func() time.Duration) *Watch {
	w := &Watch{now: now, boot: boot}
	w.offset = w.difference()
	return w
}

// Stepped returns by how much the wall clock was set since the last call, or 0.
func (w *Watch) Stepped() time.Duration {
	offset := w.difference()
	step := offset - w.offset
	w.offset = offset
	if -stepMin < step && step < stepMin {
		return 0
	}
	return step
}

func (w *Watch) difference() time.Duration {
	return time.Duration(w.now().UnixNano()) - w.boot()
}
