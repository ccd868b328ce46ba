//go:build race

package sim

import "time"

// worldMax is how long a world of whole nodes lasts at most. The race detector ends
// the program when a bubble has had very many timers, golang/go#78156.
const worldMax = 8 * time.Minute
