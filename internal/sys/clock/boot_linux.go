package clock

import "golang.org/x/sys/unix"

// bootClock runs during a suspend.
const bootClock = unix.CLOCK_BOOTTIME
