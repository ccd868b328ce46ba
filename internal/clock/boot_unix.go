//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boot returns the time since the machine was started, suspends included. It is
// the same for all processes of the machine.
func Boot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		panic(err) // every kernel that Go runs on has it
	}
	return time.Duration(t.Nano())
}
