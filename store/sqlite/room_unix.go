//go:build darwin || linux

package sqlite

import "syscall"

// roomOf returns the number of free bytes on the disk of a directory, -1 if unknown.
func roomOf(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
