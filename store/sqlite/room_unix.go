//go:build darwin || linux

package sqlite

import "syscall"

// roomOf returns how many bytes are free on the disk of a directory, -1 if that is not
// known.
func roomOf(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
