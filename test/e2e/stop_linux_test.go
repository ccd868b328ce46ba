//go:build servers

package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// A server that stops says what it waits for. The second signal ends it at once,
// and it says what is lost by it: that is what the next start finds.
func TestSecondSignalStopsAtOnceAndReportsLosses(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	s.apply("{name: slow, run: {shell: " + strconv.Quote("exec sleep 600") + "}}")
	run := s.runByHand("slow")
	eventually(t, "it runs", func() bool { return s.run(run.ID).State == job.StateRunning && !s.run(run.ID).Started.IsZero() })
	signal := func(which syscall.Signal) {
		t.Helper()
		if err := s.cmd.Process.Signal(which); err != nil {
			t.Fatal(err)
		}
	}
	named := fmt.Sprintf(`"job":"default/slow","run":"%s","attempt":1`, run.ID)
	signal(syscall.SIGINT)
	eventually(t, "it says what it waits for", func() bool { return s.log.lines(`"msg":"waiting for an attempt to end",`+named) == 1 })
	signal(syscall.SIGHUP) // reloads, and is no second signal to stop
	signal(syscall.SIGTERM)
	s.awaitExit()
	if s.code != 130 {
		t.Errorf("the server ended with exit code %d", s.code)
	}
	eventually(t, "it says what is lost", func() bool {
		return s.log.lines(`"msg":"ended an attempt, which counts as lost at the next start",`+named) == 1
	})
	if n := s.log.lines(`"msg":"stopping at once","signal":"terminated"`); n != 1 {
		t.Errorf("%d times it was ended at once by the second signal", n)
	}
	again := f.serve(t, options{})
	if ended := again.ended(run.ID); ended.Outcome != job.OutcomeLost {
		t.Errorf("it has ended as %s: %s", ended.Outcome, ended.Reason)
	}
	again.stop()
}

// As process 1 of a container a server leaves no zombies, and knows how its own
// commands have ended.
func TestAsProcess1AServerReapsOrphans(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and unshare, to make a system of processes of its own")
	}
	t.Parallel() // beside servers of which it sees the cgroups, and not the processes
	f := newFolder(t)
	s := f.serve(t, options{below: []string{unshare, "--pid", "--fork", "--mount-proc", "--kill-child"}})
	children := func(pid int) []int {
		t.Helper()
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // of each thread
		if err != nil || len(files) == 0 {
			t.Fatalf("the children of process %d cannot be seen: %v", pid, err)
		}
		var list []int
		for _, name := range files {
			text, err := os.ReadFile(name)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue // the thread has ended
			}
			if err != nil {
				t.Fatal(err)
			}
			for field := range strings.FieldsSeq(string(text)) {
				child, err := strconv.Atoi(field)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, child)
			}
		}
		return list
	}
	first := children(s.cmd.Process.Pid)
	if len(first) != 1 {
		t.Fatalf("unshare has the children %v", first)
	}
	mark := f.path("orphan-ended")
	s.apply(fmt.Sprintf("{name: orphan, run: {shell: %q}}\n---\n{name: three, run: {shell: exit 3}}",
		"setsid sh -c 'sleep 0.2; touch "+mark+"' >/dev/null 2>&1 </dev/null & exit 0"))
	ended := s.ended(s.runByHand("orphan").ID)
	if ended.Outcome != job.OutcomeSucceeded {
		t.Errorf("the parent has ended as %s: %s", ended.Outcome, ended.Reason)
	}
	failed := func(r client.Run) bool { return r.Outcome == job.OutcomeFailed && strings.Contains(r.Reason, "3") }
	for range 20 {
		if r := s.ended(s.runByHand("three").ID); !failed(r) {
			t.Fatalf("how a command ends is lost: %s, %s", r.Outcome, r.Reason)
		}
	}
	eventually(t, "the orphan has ended", func() bool { _, err := os.Stat(mark); return err == nil })
	eventually(t, "nothing but the server is below process 1", func() bool { return len(children(first[0])) == 1 })
	if err := syscall.Kill(first[0], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.awaitExit()
	if s.code != 0 {
		t.Errorf("the server ended with exit code %d", s.code)
	}
}
