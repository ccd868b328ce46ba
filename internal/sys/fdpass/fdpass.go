// Package fdpass keeps files open for the program that this process executes next.
package fdpass

import (
	"os"
	"syscall"
)

// Keep returns the number under which a file stays open when this process executes another program.
// The file itself closes then.
func Keep(f syscall.Conn) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(own uintptr) { fd, err = syscall.Dup(int(own)) }); controlErr != nil {
		return 0, controlErr
	}
	return fd, err
}

// File returns a file that the previous program kept, by its number. Commands do not inherit it.
func File(fd int, name string) *os.File {
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}
