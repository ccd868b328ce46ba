package server

import (
	"os"
	"strconv"
	"syscall"
)

// keepInherited closes files that the server inherited to the commands of jobs: commands of
// another user must not read them, and none must hold a lock or a pipe through them. Files
// opened by this program are not inherited in any case.
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
