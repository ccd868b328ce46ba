package cli

import (
	"os"
	"strconv"
	"syscall"
)

// keepInherited keeps what whoever has started the server has left open from the
// commands that it runs: those of another user must not read it, and none must hold a
// lock or a pipe with it. What this program opens is not inherited anyway.
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
