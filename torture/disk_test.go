package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestADiskIsFullForAWhile(t *testing.T) {
	d, err := openDisk(filepath.Join(t.TempDir(), "data"), "4m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	if !d.mounted {
		t.Skip("this user mounts nothing")
	}
	file := filepath.Join(d.dir, "file")
	write := func() error { return os.WriteFile(file, make([]byte, 1<<20), 0o600) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if used := d.used(); used != 1<<20 {
		t.Errorf("%d bytes are used", used)
	}
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "other"), []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a byte more: %v", err)
	}
	if err := d.free(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "other"), make([]byte, 2<<20), 0o600); err != nil {
		t.Error(err)
	}
}
