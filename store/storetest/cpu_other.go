//go:build !unix

package storetest

import (
	"testing"
	"time"
)

// CPUTime is zero on systems other than Unix: they have no figure.
func CPUTime(testing.TB) time.Duration { return 0 }
