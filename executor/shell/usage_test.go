package shell

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// burn is a command that needs some processor time and little memory.
const burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"

func TestUsageOfACommandIsMeasured(t *testing.T) {
	own := make([]byte, 128<<20) // a command must not seem to use the memory of its node
	for i := range own {
		own[i] = 1
	}
	var node syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &node); err != nil {
		t.Fatal(err)
	}
	large := int64(node.Maxrss)*maxrssUnit + 300<<20 //nolint:unconvert // it has 32 bits on some machines
	e := newExecutor(t)
	r, _, _ := run(t, e, command(fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%d count=1 2>&1", large)))
	if u := r.Usage; u.MemoryBytes < large || u.MemoryBytes > large+large/4 || u.MemoryAtMost || u.CPUSeconds <= 0 {
		t.Errorf("a command with %d bytes: %s", large, u.Stored())
	}
	r, _, _ = run(t, e, command(burn))
	if u := r.Usage; u.MemoryBytes <= 0 || u.MemoryBytes > 64<<20 && !u.MemoryAtMost || u.CPUSeconds < 0.01 || u.CPUSeconds > 60 {
		t.Errorf("a command that computes: %s", u.Stored())
	}
	if u := r.Usage; runtime.GOOS == "linux" && (u.ReadBytes == nil || u.WrittenBytes == nil || !u.MemoryAtMost) {
		t.Errorf("a command that computes: %s", u.Stored())
	}
	if r, _, _ = run(t, e, command("exit 3")); r.Usage.MemoryBytes == 0 {
		t.Error("a failure has no usage")
	}
	runtime.KeepAlive(own)
}

func TestProcessorTimeInACgroupIncludesProcessesWithoutAParent(t *testing.T) {
	e := newExecutor(t)
	if e.cgroups == nil {
		t.Skip("no cgroups here")
	}
	for _, text := range []string{"sh -c '" + burn + "' &", "true"} { // the second one in the same cgroup
		r, _, _ := run(t, e, command(text))
		if got := r.Usage.CPU(); (got > 20*time.Millisecond) != (text != "true") {
			t.Errorf("%s: %v of processor time", text, got)
		}
	}
}
