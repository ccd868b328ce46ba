package server

import (
	"os"
	"strconv"
	"syscall"
)

// keepInherited closes files that the server inherited to the commands of jobs: commands of another
// user must not read them, and none may hold a lock or a pipe through them. Files opened by this
// program are never inherited.
func keepInherited() {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // they cannot be listed
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
