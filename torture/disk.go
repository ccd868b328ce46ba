package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A disk is a folder for what nodes and store write. Root has it as a file system of its own, which can be full while the rest of
// the machine is not.
type disk struct {
	dir, size string
	mounted   bool
}

// openDisk makes the folder; size is that of tmpfs, such as 512m.
func openDisk(dir, size string) (*disk, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d := &disk{dir: dir, size: size}
	if os.Getuid() != 0 {
		return d, nil
	}
	// Without the right to mount, as in a container, it is a folder.
	d.mounted = exec.Command("mount", "-t", "tmpfs", "-o", "mode=755,size="+size, "crontorture", dir).Run() == nil
	return d, nil
}

// unmount also removes what a killed run has left.
func unmount(dir string) { _ = exec.Command("umount", "-l", dir).Run() }

func (d *disk) close() {
	if d.mounted {
		unmount(d.dir)
		d.mounted = false
	}
}

// fill leaves no byte free: the file system becomes as small as what is in it.
func (d *disk) fill() error {
	const tries = 20 // what is written meanwhile makes it too small
	var err error
	for range tries {
		var now syscall.Statfs_t
		if err := syscall.Statfs(d.dir, &now); err != nil {
			return err
		}
		if err = d.resize(fmt.Sprint((int64(now.Blocks) - int64(now.Bfree)) * int64(now.Bsize))); err == nil {
			return nil
		}
	}
	return err
}

// free gives it its size again.
func (d *disk) free() error { return d.resize(d.size) }

func (d *disk) resize(size string) error {
	if out, err := exec.Command("mount", "-o", "remount,size="+size, d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("resize %s to %s: %w: %s", d.dir, size, err, out)
	}
	return nil
}

// used returns the bytes of all files.
func (d *disk) used() (bytes int64) {
	_ = filepath.Walk(d.dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() { // what was removed meanwhile has none
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
