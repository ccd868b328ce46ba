package clock

import "golang.org/x/sys/unix"

// bootClock goes on during a suspend, which it does not on Linux.
const bootClock = unix.CLOCK_MONOTONIC
