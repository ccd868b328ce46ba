package server

import (
	"os"
	"strconv"
	"syscall"
)

// keepInherited keeps the files that the parent of the server has left open from the commands
// of jobs: commands of another user must not read them, and none must hold a lock or a pipe
// with them. What this program opens is not inherited anyway.
func keepInherited() {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // there is no way to know
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
