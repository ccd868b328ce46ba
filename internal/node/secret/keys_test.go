package secret

import (
	"io/fs"
	"syscall"
	"testing"
)

// fileOf is a file of a user, with a mode.
type fileOf struct {
	fs.FileInfo
	owner uint32
	mode  fs.FileMode
}

func (f fileOf) Mode() fs.FileMode { return f.mode }
func (f fileOf) Sys() any          { return &syscall.Stat_t{Uid: f.owner} }

func TestOnlyRootMayShareASecretWithItsGroup(t *testing.T) {
	const server = 65532
	for _, c := range []struct {
		file fileOf
		user int
		want bool
	}{
		{fileOf{owner: server, mode: 0o600}, server, true},
		{fileOf{owner: server, mode: 0o640}, server, false},
		{fileOf{owner: 0, mode: 0o440}, server, true}, // a Secret of Kubernetes
		{fileOf{owner: 0, mode: 0o640}, server, true},
		{fileOf{owner: 0, mode: 0o460}, server, false},
		{fileOf{owner: 0, mode: 0o444}, server, false},
		{fileOf{owner: 7, mode: 0o440}, server, false},
		{fileOf{owner: 0, mode: 0o640}, 0, false},
	} {
		if got := private(c.file, c.user); got != c.want {
			t.Errorf("user %d, file of %d with mode %04o: private is %v", c.user, c.file.owner, c.file.mode, got)
		}
	}
}
