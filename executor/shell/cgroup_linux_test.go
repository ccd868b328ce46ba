package shell

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A node in a container sees the cgroups of an outside node, and not its process.
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
		t.Errorf("it is unlocked, and not removed: %v", err)
	}
}

// Not parallel: files are counted for the whole process.
func TestACgroupIsUsedAgainAndItsFilesAreClosed(t *testing.T) {
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	newExecutor(t) // opens the files that the runtime keeps
	before := open()
	var watch recorder
	config := Config{Watch: &watch, TempDir: t.TempDir()}
	if os.Geteuid() == 0 {
		config.DefaultUser = "root"
	}
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if e.cgroups == nil {
		e.Close()
		t.Skip("no cgroups here: ", e.Features().Missing)
	}
	used := map[string]bool{}
	for range 3 {
		run(t, e, command("exit 0"))
		used[watch.last.Cgroup] = true
	}
	if len(used) != 1 {
		t.Errorf("one command after the other was in %v", used)
	}
	run(t, e, command("setsid sleep 1000 >/dev/null 2>&1 &")) // it is killed with the cgroup
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if after := open(); after > before {
		t.Errorf("%d files were open before, and are %d after", before, after)
	}
}
