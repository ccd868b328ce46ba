//go:build darwin || freebsd

package watchdog

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// HideMemory does nothing: commands that run as another user cannot read the memory of the
// server.
func HideMemory() error { return nil }

// selfPath returns a path of the running program.
func selfPath() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// surveyProcesses finds the process groups of the entries that have processes. Without /proc it
// finds neither processes that left their group nor those that are only announced.
func surveyProcesses(entries []Entry) map[Key][]int {
	found := map[Key][]int{}
	for _, e := range entries {
		if e.PID != 0 && !errors.Is(unix.Kill(-e.PID, 0), unix.ESRCH) {
			found[e.Key] = []int{e.PID}
		}
	}
	return found
}

func killCgroup(string) {}
