//go:build !linux

package clock

import "time"

// Boot returns the time since some moment before the program was started.
func Boot() time.Duration { return monotonic() }
