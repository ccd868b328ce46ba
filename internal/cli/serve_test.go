package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestADataDirectoryIsToldApartFromOthersOfThisMachine(t *testing.T) {
	of := func(dir string) string {
		t.Helper()
		machine, err := machineOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return machine
	}
	one, two, link := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(one, link); err != nil {
		t.Fatal(err)
	}
	// Containers of one host have the same boot and may have the same path.
	if of(one) == of(two) {
		t.Errorf("two directories are both %s", of(one))
	}
	if of(one) != of(link) {
		t.Errorf("one directory is %s, and %s by another path", of(one), of(link))
	}
}
