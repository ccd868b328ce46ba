//go:build !race

package sim

// worldMax is how long a world of whole nodes lasts at most.
const worldMax = sliceOf
