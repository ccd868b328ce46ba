// Package spool keeps files of one user in a directory until their content has been delivered. Each
// has a line for each item, or for each change of the item. A killed process may leave an
// incomplete last line. The package does not interpret the lines.
package spool

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// Suffix is the extension of complete files, and unfinished the extension of files being
	// written.
	Suffix     = ".json"
	unfinished = ".new"
	// unfinishedFor is the age at which an unfinished file belongs to a killed process.
	unfinishedFor = time.Hour
)

// Dir is a directory. Any number of processes share it.
type Dir struct{ path string }

// Open opens a directory, creating it and subdirectories if necessary. Other users must not be able
// to write there: their files would be sent in the name of this user.
func Open(path string, below ...string) (*Dir, error) {
	d := &Dir{path}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return d, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return d, err
	}
	if isForeign(info) || info.Mode().Perm()&0o022 != 0 {
		return d, fmt.Errorf("%s may be written by other users; it should belong to this one and have the mode 0700", path)
	}
	for _, name := range below {
		if err := os.MkdirAll(filepath.Join(path, name), 0o700); err != nil {
			return d, err
		}
	}
	return d, nil
}

// Path returns the path of a name in the directory.
func (d *Dir) Path(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// File is a file that is listed.
type File struct {
	Path string
	Size int64
	At   time.Time // time of its last change
	// Foreign is set for a file of another user, and for a non-file: its content must not be
	// trusted.
	Foreign bool
}

// List returns the files, the oldest first, and removes what processes that were killed have
// not finished.
func (d *Dir) List() (list []File, err error) {
	names, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := name.Info()
		if err == nil && strings.HasSuffix(name.Name(), unfinished) && time.Since(info.ModTime()) > unfinishedFor {
			_ = os.Remove(d.Path(name.Name())) // left by a killed process
		}
		if err != nil || !strings.HasSuffix(name.Name(), Suffix) {
			continue // it is gone, or not a spool file
		}
		list = append(list, File{d.Path(name.Name()), info.Size(), info.ModTime(), isForeign(info) || !info.Mode().IsRegular()})
	}
	return list, nil
}

func isForeign(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) != os.Geteuid()
}

// Total returns how many bytes files have.
func Total(list []File) (sum int64) {
	for _, f := range list {
		sum += f.Size
	}
	return sum
}

// Record is a file that this process has locked. A nil one is one that could not be written.
type Record struct {
	file *os.File
	path string
}

// Create makes a file with a line and locks it.
func (d *Dir) Create(name string, line []byte) (*Record, error) {
	return create(d.Path(name+Suffix), line)
}

func create(path string, line []byte) (*Record, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	r := &Record{f, path}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		_, err = f.Write(append(slices.Clip(line), '\n'))
	}
	if err != nil {
		r.Remove()
		r.Release()
		return nil, err
	}
	return r, nil
}

// Replace atomically replaces a file by one with a line, and locks it.
func (d *Dir) Replace(name string, line []byte) (*Record, error) {
	fresh := d.Path(name + Suffix + unfinished)
	r, err := create(fresh, line)
	if err != nil {
		return nil, err
	}
	r.path = d.Path(name + Suffix)
	if err := os.Rename(fresh, r.path); err != nil {
		_ = os.Remove(fresh) // the rename has failed with the reason
		r.Release()
		return nil, err
	}
	return r, nil
}

// Take locks a file and returns its lines. It returns no record if another process has it, or it is
// gone, and no lines if they cannot be read.
func Take(path string, sizeMax int64) (*Record, [][]byte) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil
	}
	r := &Record{f, path}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		r.Release()
		return nil, nil
	}
	// Between both steps another process may have delivered or replaced it.
	mine, err := f.Stat()
	now, gone := os.Stat(path)
	if err != nil || gone != nil || !os.SameFile(mine, now) {
		r.Release()
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(f, sizeMax))
	if err != nil {
		return r, nil
	}
	return r, slices.Collect(bytes.Lines(data))
}

// Add adds a line.
func (r *Record) Add(line []byte) error {
	if r == nil {
		return nil
	}
	_, err := r.file.Write(append(slices.Clip(line), '\n'))
	return err
}

// Empty removes all lines.
func (r *Record) Empty() error {
	if err := r.file.Truncate(0); err != nil {
		return err
	}
	_, err := r.file.Seek(0, io.SeekStart)
	return err
}

// Touch notes that the process is alive.
func (r *Record) Touch() {
	if r != nil {
		now := time.Now()
		_ = os.Chtimes(r.path, now, now) // without it, the record's time is less exact
	}
}

// Remove removes the file.
func (r *Record) Remove() {
	if r != nil {
		_ = os.Remove(r.path) // another process may have delivered it
	}
}

// Release releases the lock.
func (r *Record) Release() {
	if r != nil {
		r.file.Close()
	}
}
