package shell

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A node in a container sees the cgroups of one outside of it, and not its process.
func TestTheCgroupOfANodeThatLivesIsNotRemoved(t *testing.T) {
	base, err := delegatedCgroup()
	if err != nil {
		t.Skip("no cgroups here: ", err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dir, lock, err := makeNodesCgroup(base, ended.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	removeOldCgroups(base)
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("it is locked: %v", err)
	}
	unix.Close(lock)
	removeOldCgroups(base)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("nobody has it: %v", err)
	}
}
