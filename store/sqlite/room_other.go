//go:build !(darwin || linux)

package sqlite

// roomOf reports that the free space is unknown on this system.
func roomOf(string) int64 { return -1 }
