package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns the time since the machine was started, suspends included.
func Boot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return monotonic() // a kernel older than 2.6.39
	}
	return time.Duration(t.Nano())
}
