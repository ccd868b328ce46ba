package servers

import (
	"os/exec"
	"testing"
)

// FerretDB is a server of a test that speaks the protocol of MongoDB, and keeps everything in
// SQLite. It has no transactions, change streams or expiring indexes.
type FerretDB struct{ *process }

// StartFerretDB starts a server, and stops it at the end of the test.
func StartFerretDB(t testing.TB) *FerretDB {
	t.Helper()
	f, err := NewFerretDB()
	if err != nil {
		t.Fatalf("start FerretDB: %v", err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("stop FerretDB: %v", err)
		}
	})
	return f
}

// NewFerretDB starts a server that Close ends, for the TestMain of a package.
func NewFerretDB() (*FerretDB, error) {
	program, err := build("ferretdb", "ferretdb")
	if err != nil {
		return nil, err
	}
	p, err := newProcess("ferretdb", "ready for connections", func(p *process) *exec.Cmd {
		return exec.Command(program, "-dir", p.Dir, "-listen", p.address())
	})
	if err != nil {
		return nil, err
	}
	return &FerretDB{p}, nil
}

// URL is the address for clients.
func (f *FerretDB) URL() string { return "mongodb://" + f.address() + "/" }
