package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// TestACrowd has BELFRY_CROWD jobs that are due in one second; make soak runs it
// with 10,000.
func TestACrowd(t *testing.T) {
	size := 2000
	if text := os.Getenv("BELFRY_CROWD"); text != "" {
		var err error
		if size, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const capacity = 20
	f := newFolder(t)
	s := f.serve(t, options{args: []string{"--capacity", strconv.Itoa(capacity)}})
	// Far enough ahead that all are there before.
	due := time.Now().Truncate(time.Second).Add(3*time.Second + time.Duration(size)*500*time.Microsecond)
	var h evidence.History
	var text strings.Builder
	for i := range size {
		name := fmt.Sprintf("job-%05d", i)
		fmt.Fprintf(&text, "---\nname: %s\nschedule: {at: %s}\nrun: {shell: %s}\n", name, instant(due), f.witness("fast"))
		h.Jobs = append(h.Jobs, evidence.Job{Name: "default/" + name, Occurrences: []time.Time{due}, Slots: capacity, Lock: "capacity"})
	}
	s.apply(text.String())
	if late := time.Since(due); late > 0 {
		t.Fatalf("the machine is too slow for this test: applying took until %s after the jobs were due", late)
	}
	eventually(t, "all are planned ahead", func() bool {
		nodes, err := s.Nodes(t.Context())
		return err == nil && nodes.Items[0].Ready == size || time.Now().After(due)
	})
	until(t, due)
	within(t, time.Minute+patience, "all have run", func() bool {
		// Each writes two lines; reading them all each time would take the machine.
		info, err := os.Stat(f.evidence)
		return err == nil && info.Size() >= int64(size)*195 && f.count(t, evidence.End, "") >= size
	})
	t.Logf("%d jobs in %s", size, time.Since(due))
	s.settled()
	h.Events, h.Records = f.events(t), s.records()
	check(t, h)
	for _, r := range h.Records {
		if r.Outcome != "succeeded" {
			t.Fatalf("run %s of %s: %s", r.Run, r.Job, r.Outcome)
		}
	}
}

// processorTime returns what a process has used.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	words := strings.Fields(rest)
	const utime, stime, tick = 11, 12, 10 * time.Millisecond
	var total time.Duration
	for _, i := range []int{utime, stime} {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			t.Fatal(err)
		}
		total += time.Duration(n) * tick
	}
	return total
}

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if err := os.Mkdir(f.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", f.data, "tmpfs", 0, "size=32m,mode=0700"); err != nil {
		t.Skipf("NOT SHOWN HERE: what a full disk does. A small file system cannot be mounted (%v); "+
			"run the tests as root on a machine that allows it. The tests of store/sqlite show what the store does.", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(f.data, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := f.serve(t, options{})
	beat := newWatched("beat", time.Second)
	beat.create(s, f.witness(), "")
	s.apply("name: hand\nrun: {shell: " + f.witness("say=something") + "}\n---\nname: across\nrun: {shell: " + f.witness("until="+f.path("go")) + "}\n")
	acknowledged := map[string]string{}
	for range 5 {
		acknowledged[s.ended(s.runByHand("hand").ID).ID.String()] = "succeeded"
	}
	across := s.runByHand("across").ID
	eventually(t, "they run", func() bool {
		return f.count(t, evidence.Start, "across") == 1 && f.count(t, evidence.Start, "beat") >= 2
	})

	filler, err := os.Create(f.data + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	full := func() {
		block := make([]byte, 4<<10)
		for {
			if _, err := filler.Write(block); err != nil {
				return
			}
		}
	}
	full()
	open := evidence.Span{From: time.Now().Add(-time.Second)}
	// What happens is written into the space that was kept for it; the disk stays full.
	within(t, time.Minute, "new work is refused", func() bool {
		full()
		run, err := s.RunJob(t.Context(), "default", "hand", client.RunRequest{}, "")
		if err == nil {
			acknowledged[run.ID.String()] = ""
		}
		return client.IsType(err, client.TypeUnavailable)
	})
	f.touch(t, "go") // this one ends while the disk is full
	var quiet time.Time
	started := -1
	within(t, time.Minute, "nothing starts any more", func() bool {
		full()
		if n := f.count(t, evidence.Start, ""); n != started {
			started, quiet = n, time.Now()
		}
		return time.Since(quiet) > 2500*time.Millisecond
	})
	before, since := processorTime(t, s.cmd.Process.Pid), time.Now()
	until(t, since.Add(2*time.Second))
	if used := processorTime(t, s.cmd.Process.Pid) - before; used > time.Second {
		t.Errorf("on a full disk the server used %s of processor time in %s", used, time.Since(since))
	}
	said := map[string]int{}
	for line := range strings.Lines(s.log.String()) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "ERROR" {
			said[entry.Msg]++
		}
	}
	if !strings.Contains(s.log.String(), "no space left on the disk of "+f.data) {
		t.Error("the log does not say that the disk is full")
	}
	for message, n := range said {
		if n > 1 {
			t.Errorf("the log says %d times: %s", n, message)
		}
	}
	if _, err := s.Jobs(t.Context(), client.JobQuery{}); err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}

	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it goes on by itself", func() bool {
		return f.count(t, evidence.Start, "beat") > 0 && f.count(t, evidence.Start, "") > started+1
	})
	open.To = time.Now()
	if run := s.ended(across); run.Outcome != job.OutcomeSucceeded {
		t.Errorf("what ended while the disk was full: got %s: %s", run.Outcome, run.Reason)
	}
	acknowledged[across.String()] = "succeeded"
	beat.pause(s)
	s.settled()
	h := evidence.History{
		Jobs: []evidence.Job{beat.finish(), {Name: "default/hand"}, {Name: "default/across"}}, Acknowledged: acknowledged,
		Down: []evidence.Span{open}, Events: f.events(t), Records: s.records(),
	}
	check(t, h)
}
