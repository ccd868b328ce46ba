//go:build linux || darwin

package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// derivedFor is how long a reading of the boot clock is made do with, by a clock that
	// is read without a call of the system: thousands of runs that start at one instant
	// ask for the time.
	derivedFor = 100 * time.Millisecond
	// apart is how far the wall clock and the monotonic clock may have gone apart
	// meanwhile. When the machine was suspended, the wall clock is set forward by as much
	// as the boot clock.
	apart = time.Millisecond
	// together is the longest interval between readings of both clocks: the error of the
	// derived time.
	together = 50 * time.Microsecond
)

// reading is what the boot clock has shown.
type reading struct {
	boot time.Duration
	at   time.Time
}

// readingOf returns a reading, or nil if an interruption separated it from the earlier
// reading of the other clocks, which took a given time.
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

// readBoot asks the system.
func readBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		panic(err) // every kernel that Go runs on has it
	}
	return time.Duration(t.Nano())
}
