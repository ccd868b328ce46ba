//go:build servers

package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if err := os.Mkdir(f.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", f.data, "tmpfs", 0, "size=32m,mode=0700"); err != nil {
		t.Skipf("NOT SHOWN HERE: what a full disk does. A small file system cannot be mounted (%v); "+
			"run the tests as root on a machine that allows it. The tests of store/sqlite show what the store does.", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(f.data, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := f.serve(t, options{})
	filler, err := os.Create(f.data + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	full := func() {
		block := make([]byte, 4<<10)
		for {
			if _, err := filler.Write(block); err != nil {
				return
			}
		}
	}
	f.survives(t, s, fault{
		begin: full,
		goOn:  full, // what the server frees is taken at once
		end: func() {
			if err := errors.Join(filler.Truncate(0), os.Remove(filler.Name())); err != nil {
				t.Fatal(err)
			}
		},
		says: "no space left on the disk",
	})
}

// immutable makes a file unwritable, also through what is open, or
// undoes that.
func immutable(path string, on bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	const flag = 0x10 // FS_IMMUTABLE_FL
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	flags &^= flag
	if on {
		flags |= flag
	}
	return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// canForbidWriting reports whether this file system keeps to immutable.
func canForbidWriting(t *testing.T, path string) error {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := immutable(path, true); err != nil {
		return err
	}
	_, err = file.WriteString("x")
	if undone := immutable(path, false); undone != nil {
		t.Fatal(undone)
	}
	if err == nil {
		return errors.New("what is open can be written")
	}
	return nil
}

func TestAStoreThatBecomesReadOnly(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if err := canForbidWriting(t, f.path("try")); err != nil {
		t.Skipf("NOT SHOWN HERE: what a read-only store does. Files cannot be made immutable (%v); "+
			"run the tests as root, with TMPDIR on ext4, xfs or btrfs. The tests of store/sqlite show what the store does.", err)
	}
	s := f.serve(t, options{})
	set := func(on bool) {
		// All but the memory that the connections share, by which they read.
		for _, name := range []string{"belfry.db", "belfry.db-wal", "belfry.db-ballast"} {
			if err := immutable(filepath.Join(f.data, name), on); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { set(false) }) // or the folder cannot be removed
	f.survives(t, s, fault{
		begin: func() { set(true) },
		goOn:  func() {},
		end:   func() { set(false) },
		says:  "the store is read-only",
	})
}
