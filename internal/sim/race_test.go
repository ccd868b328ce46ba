//go:build race

package sim

import "time"

// With the race detector worlds of whole nodes are short: it ends the program when a
// bubble has had very many timers, golang/go#78156.
func init() { worldMax = 8 * time.Minute }
