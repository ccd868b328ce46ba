package clock

import "golang.org/x/sys/unix"

// bootClock runs during a suspend, which CLOCK_MONOTONIC of Linux does not.
const bootClock = unix.CLOCK_MONOTONIC
