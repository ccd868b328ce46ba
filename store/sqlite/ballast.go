package sqlite

import (
	"errors"
	"os"
	"time"
)

// ballastSize is the space that is kept for the time when there is no other:
// enough for the log of some batches of results and of deleting old history.
const ballastSize = 8 << 20

// ballast is a file that takes space only to give it back when the disk is full,
// because SQLite without space can write no result and delete nothing either.
type ballast struct {
	path string
	// there is set while the file is. Else only what makes room or records
	// what has happened is written.
	there bool
	// tried is when making the file was last tried.
	tried time.Time
}

// free gives the space back and tells whether there was any.
func (b *ballast) free() bool {
	b.there = false
	return os.Remove(b.path) == nil
}

// restore makes the file if it is not there and tells whether it is. While the
// disk is full it tries once a second.
func (b *ballast) restore(now time.Time) bool {
	if b.there || now.Sub(b.tried).Abs() < time.Second {
		return b.there
	}
	b.tried = now
	info, err := os.Stat(b.path)
	b.there = err == nil && info.Size() == ballastSize || fill(b.path) == nil
	return b.there
}

// fill makes a file that has all its blocks.
func fill(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// Not zeros, which some file systems keep as holes.
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
