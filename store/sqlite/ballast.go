package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ballastSize is the reserved space: enough for the log of some batches of results and of deleting
// old history.
const ballastSize = 8 << 20

const (
	// startRoom is the space that a store needs to open after it was killed on a full disk: the
	// index of its log takes 32 KiB for each 16 MiB.
	startRoom = 1 << 20
	// workRoom is the space at which new runs are accepted again: the ballast, and some for
	// writes in the meantime.
	workRoom = ballastSize + startRoom
)

// ballast is a file that reserves space for a full disk, on which SQLite could neither write
// results nor delete.
type ballast struct {
	path string
	// there is set while the file exists. Without it, only calls that make room or record past
	// events may write.
	there bool
	// tried is when making the file was last tried.
	tried time.Time
}

// free releases the space and reports whether there was any.
func (b *ballast) free() bool {
	b.there = false
	return os.Remove(b.path) == nil
}

// restore creates the file if it is missing and reports whether it exists. While the disk is full
// it tries once a second.
func (b *ballast) restore(now time.Time) bool {
	if b.there || now.Sub(b.tried).Abs() < time.Second {
		return b.there
	}
	b.tried = now
	info, err := os.Stat(b.path)
	b.there = err == nil && info.Size() == ballastSize || b.fits() && fill(b.path) == nil
	return b.there
}

// fits reports whether the file fits beside concurrent writes: trying on a nearly full disk would
// take space from results.
func (b *ballast) fits() bool {
	room := roomOf(filepath.Dir(b.path))
	return room < 0 || room >= workRoom
}

// needed describes how much space there is and how much something needs.
func needed(path string, size int64, what string) string {
	text := fmt.Sprintf("%s must be free %s", mebibytes(size), what)
	if room := roomOf(filepath.Dir(path)); room >= 0 {
		text = fmt.Sprintf("%s are free, and %s", mebibytes(room), text)
	}
	return text
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// fill makes a file that has all its blocks.
func fill(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// Not zeros, which some file systems store as holes.
	block := make([]byte, 64<<10)
	for i := range block {
		block[i] = byte(i*i>>3) | 1
	}
	for written := 0; err == nil && written < ballastSize; written += len(block) {
		_, err = f.Write(block)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
