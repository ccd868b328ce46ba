package shell

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// link passes files to a thread with its own table of open files. Linux gives a new process a copy
// of its creating thread's table, and closes most of it again: with thousands of connections and
// pipes that takes longest. Go assumes that threads share one table. So a thread with its own table
// may only create processes; and it keeps the files of the runtime, which any thread may use when
// it sleeps or has collected garbage.
type link struct {
	node, thread int // the ends of a socket; -1 if the thread has the node's files
}

// runtimeFiles returns the files by which the runtime waits for other files, and the standard ones.
func runtimeFiles() ([]int, error) {
	// The runtime opens them for the first file that must be waited for, and never closes them.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	const dir = "/proc/self/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	keep := []int{unix.Stdin, unix.Stdout, unix.Stderr}
	kinds := map[string]bool{"anon_inode:[eventpoll]": false, "anon_inode:[eventfd]": false}
	for _, entry := range list {
		kind, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if _, wanted := kinds[kind]; err != nil || !wanted {
			continue // a file closed since does not count
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, err
		}
		kinds[kind] = true
		keep = append(keep, fd)
	}
	for kind, found := range kinds {
		if !found {
			return nil, fmt.Errorf("the runtime has no %s", kind)
		}
	}
	return keep, nil
}

// keepOnly gives the calling thread its own table with only the given files.
func keepOnly(keep []int) error {
	last := slices.Max(keep)
	// Files after the last one are not even copied.
	if err := unix.CloseRange(uint(last)+1, math.MaxUint32, unix.CLOSE_RANGE_UNSHARE); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	for fd := range last {
		if !slices.Contains(keep, fd) {
			unix.Close(fd) // many are none
		}
	}
	return nil
}

// newLink makes the link of a thread that will keep only some files. theirs is the thread's end,
// while it has the node's files.
func newLink(keep []int) (l link, theirs int) {
	if keep != nil {
		if ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err == nil {
			return link{node: ends[0], thread: -1}, ends[1]
		}
	}
	return link{-1, -1}, -1
}

// separate gives the calling thread, which serves the link, its own table of files, if it can.
func (l *link) separate(keep []int, theirs int) {
	if l.node < 0 || keepOnly(append(slices.Clip(keep), theirs)) != nil {
		return
	}
	l.thread = theirs
	// A table is as long as its highest number.
	if low, err := unix.FcntlInt(uintptr(theirs), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		unix.Close(theirs)
		l.thread = low
	}
}

// settle closes what the node needs no more when the thread has called separate.
func (l *link) settle(theirs int) {
	if theirs >= 0 {
		unix.Close(theirs)
	}
	if l.thread < 0 {
		l.close()
	}
}

// close closes the node's end. The thread's end closes with the thread.
func (l *link) close() {
	if l.node >= 0 {
		unix.Close(l.node)
		l.node = -1
	}
}

// pass sends files to the thread, which receives them next.
func (l *link) pass(list files) error {
	if l.node < 0 {
		return nil
	}
	if err := unix.Sendmsg(l.node, []byte{0}, unix.UnixRights(list...), nil, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("pass files to the thread that makes the process: %w", err)
	}
	return nil
}

// take receives the passed files, with their numbers in the thread.
func (l *link) take(list files) (files, error) {
	if l.node < 0 {
		return list, nil
	}
	var text [1]byte
	room := make([]byte, unix.CmsgSpace(4*len(list)))
	_, n, _, _, err := unix.Recvmsg(l.thread, text[:], room, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("take the files of the process: %w", err)
	}
	var taken files
	messages, err := unix.ParseSocketControlMessage(room[:n])
	for i := range messages {
		fds, parseErr := unix.ParseUnixRights(&messages[i])
		taken, err = append(taken, fds...), errors.Join(err, parseErr)
	}
	if err == nil && len(taken) != len(list) {
		err = unix.EMFILE // files without a number were dropped
	}
	if err != nil {
		l.drop(taken)
		return nil, fmt.Errorf("take the files of the process: %w", err)
	}
	return taken, nil
}

// drop closes the thread's own.
func (l *link) drop(list files) {
	if l.node < 0 {
		return
	}
	for _, fd := range list {
		unix.Close(fd)
	}
}
