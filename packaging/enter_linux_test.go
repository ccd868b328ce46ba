package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// addKernelFiles adds the kernel's usual files of containers to another root, until the end of the
// test.
func addKernelFiles(t *testing.T, root string) error {
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		return err
	}
	const null = 1<<8 | 3
	device := filepath.Join(root, "dev", "null")
	if err := syscall.Mknod(device, syscall.S_IFCHR|0o666, null); err != nil {
		return err
	}
	if err := os.Chmod(device, 0o666); err != nil {
		return err
	}
	dir := filepath.Join(root, "proc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("proc", dir, "proc", 0, ""); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return nil
}

// enter starts a process in another root, as another user.
func enter(root string, user uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
