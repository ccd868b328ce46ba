package clock

import "golang.org/x/sys/unix"

// bootClock goes on during a suspend.
const bootClock = unix.CLOCK_BOOTTIME
