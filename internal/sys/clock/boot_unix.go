//go:build linux || darwin

package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// derivedFor is how long later times derive from a reading of the boot clock, by a clock
	// without system calls: thousands of runs that start at one instant read the time.
	derivedFor = 100 * time.Millisecond
	// apart is how far the wall clock and the monotonic clock may diverge in that time. After a
	// suspend the wall clock is ahead by as much as the boot clock.
	apart = time.Millisecond
	// together is the longest interval between readings of both clocks: the error of the
	// derived time.
	together = 50 * time.Microsecond
)

// reading is a reading of the boot clock.
type reading struct {
	boot time.Duration
	at   time.Time
}

// readingOf returns a reading, or nil if it was interrupted after the other clocks were read, in
// the time took.
func readingOf(boot time.Duration, at time.Time, took time.Duration) *reading {
	if took >= together {
		return nil
	}
	return &reading{boot, at}
}

var latest atomic.Pointer[reading]

// Boot returns the time since the machine was started, suspends included. It is
// the same for all processes of the machine.
func Boot() time.Duration {
	now := time.Now()
	if last := latest.Load(); last != nil {
		if boot, ok := last.derive(now.Sub(last.at), now.Round(0).Sub(last.at.Round(0))); ok {
			return boot
		}
	}
	boot := readBoot()
	if r := readingOf(boot, now, time.Since(now)); r != nil {
		latest.Store(r)
	}
	return boot
}

// derive returns the boot clock after a time by the two other clocks, if it has run in step
// with the monotonic clock since the reading.
func (r *reading) derive(monotonic, wall time.Duration) (boot time.Duration, ok bool) {
	ok = 0 <= monotonic && monotonic < derivedFor && (wall-monotonic).Abs() < apart
	return r.boot + monotonic, ok
}

// readBoot reads the boot clock from the system.
func readBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		panic(err) // every kernel supported by Go has it
	}
	return time.Duration(t.Nano())
}
