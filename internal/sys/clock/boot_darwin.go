package clock

import "golang.org/x/sys/unix"

// bootClock also runs during a suspend, unlike Linux's CLOCK_MONOTONIC.
const bootClock = unix.CLOCK_MONOTONIC
