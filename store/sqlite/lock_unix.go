//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockFile locks the file until it is closed, or the process ends in any way. SQLite's own locks
// would admit other processes, but two nodes on one file would each believe to be alone.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		// The owner of the lock has written its process id there.
		text, _ := io.ReadAll(io.LimitReader(f, 32))
		who := ""
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			who = fmt.Sprintf(" (process %d)", pid)
		}
		return nil, errors.Join(fmt.Errorf("it %w%s: stop that one first, or give this one a data directory of its own", ErrInUse, who), f.Close())
	}
	if err == nil {
		err = note(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// unlock releases the lock and closes its file. Closing alone would leave the lock to a child
// forked at this moment, until it executes another program.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// note writes the number of the process into the file. A full disk is no reason
// not to have the lock.
func note(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}
