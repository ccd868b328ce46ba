//go:build !unix

package storetest

import (
	"testing"
	"time"
)

// CPUTime is zero on systems other than Unix: no figure is taken there.
func CPUTime(testing.TB) time.Duration { return 0 }
