package columns

import (
	"math"
	"time"
)

// Nanos returns a moment as a row keeps it: nanoseconds since 1970, 0 for the zero time. A moment
// outside of 1678 to 2262 becomes the nearest representable one; nothing is due there.
func Nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Before(earliest):
		return math.MinInt64
	case t.After(Latest):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Latest is the last moment that a row can hold.
var Latest = time.Unix(0, math.MaxInt64)

var earliest = time.Unix(0, math.MinInt64)

// FromNanos is the inverse of [Nanos].
func FromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
