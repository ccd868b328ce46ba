package tutorial

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestTheWalkFromBackupToRestoreWorksAsWritten(t *testing.T) {
	r := newReader(t)
	if n := r.read("../../docs/restore.md", strings.NewReplacer("/tmp/old", filepath.Join(r.dir, "old"), "/tmp/new", filepath.Join(r.dir, "new"))); n < 25 {
		t.Errorf("the walk has %d blocks, and the test understands no others", n)
	}
}
