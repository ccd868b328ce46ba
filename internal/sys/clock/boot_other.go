//go:build !linux && !darwin

package clock

import "time"

// start is when the program was started, more or less.
var start = time.Now()

// Boot returns the time since some moment before the program was started.
func Boot() time.Duration { return time.Since(start) }
