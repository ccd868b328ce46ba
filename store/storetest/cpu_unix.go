//go:build unix

package storetest

import (
	"syscall"
	"testing"
	"time"
)

// CPUTime is the processor time of this process: on a shared machine it is more telling than the
// clock.
func CPUTime(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
