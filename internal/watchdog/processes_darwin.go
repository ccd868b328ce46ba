package watchdog

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// bootID names the time between two starts of the machine.
func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return id, nil
}

// BootClock returns the time since the machine was started. Unlike the clock
// of package time it goes on while the machine is suspended.
func BootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// selfPath returns a path of the running program.
func selfPath() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// survey finds the process groups of the entries that have processes. Without
// /proc it knows neither what left its group nor what is only announced.
func survey(entries []Entry) map[Key][]int {
	found := map[Key][]int{}
	for _, e := range entries {
		if e.PID != 0 && !errors.Is(unix.Kill(-e.PID, 0), unix.ESRCH) {
			found[e.Key] = []int{e.PID}
		}
	}
	return found
}

func killCgroup(string) {}
