//go:build !(darwin || linux)

package sqlite

// roomOf does not know how many bytes are free here.
func roomOf(string) int64 { return -1 }
