//go:build servers

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// TestACrowd has BELFRY_CROWD jobs that are due in one second; make soak runs it
// with CROWD.
func TestACrowd(t *testing.T) {
	size := 500
	if text := os.Getenv("BELFRY_CROWD"); text != "" {
		var err error
		if size, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const capacity = 20
	var f *folder
	var s *server
	var due time.Time
	var h evidence.History
	// Far enough ahead that all are there before; on a machine that is busy that is
	// further.
	for lead := 3*time.Second + time.Duration(size)*2*time.Millisecond; ; lead *= 2 {
		f, h = newFolder(t), evidence.History{}
		s = f.serve(t, options{args: []string{"--capacity", strconv.Itoa(capacity)}})
		due = time.Now().Truncate(time.Second).Add(lead)
		const atOnce = 1000 // so that no request takes long
		for first := 0; first < size; first += atOnce {
			var text strings.Builder
			for i := first; i < min(first+atOnce, size); i++ {
				name := fmt.Sprintf("job-%05d", i)
				fmt.Fprintf(&text, "---\nname: %s\nschedule: {at: %s}\nrun: {shell: %s}\n", name, instant(due), f.witness("fast"))
				h.Jobs = append(h.Jobs, evidence.Job{Name: "default/" + name, Occurrences: []time.Time{due}, Slots: capacity, Lock: "capacity"})
			}
			s.apply(text.String())
		}
		if time.Now().Before(due) {
			break
		}
		const most = 2 * time.Minute
		if lead > most {
			t.Fatalf("%d jobs cannot be made in %s", size, lead)
		}
		s.kill()
	}
	within(t, time.Until(due)+patience, "all are planned ahead", func() bool {
		nodes, err := s.Nodes(t.Context())
		return err == nil && nodes.Items[0].Ready == size || time.Now().After(due)
	})
	until(t, due)
	written := int64(0)
	for all := false; !all; {
		eventually(t, "more of them run", func() bool {
			info, err := os.Stat(f.evidence)
			if err != nil || info.Size() == written {
				return false
			}
			written = info.Size()
			// Each writes two lines; reading them all each time would take the machine.
			all = written >= int64(size)*195 && f.count(t, evidence.End, "") >= size
			return true
		})
	}
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

// fault is something that keeps a server from writing its store.
type fault struct {
	begin func()
	// goOn is called again and again until end.
	goOn func()
	end  func()
	// says is what the log has to say, once.
	says string
}

// survives shows what a server does about a fault, and that it continues afterwards.
func (f *folder) survives(t *testing.T, s *server, fault fault) {
	t.Helper()
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

	fault.begin()
	open := evidence.Span{From: time.Now().Add(-time.Second)}
	// Events are still written where there is room for them.
	within(t, 3*patience, "new work is refused", func() bool {
		fault.goOn()
		run, err := s.RunJob(t.Context(), "default", "hand", client.RunRequest{}, "")
		if err == nil {
			acknowledged[run.ID.String()] = ""
		}
		return client.IsType(err, client.TypeUnavailable)
	})
	f.touch(t, "go") // this one ends during the fault
	var quiet time.Time
	started := -1
	within(t, 3*patience, "nothing starts any more", func() bool {
		fault.goOn()
		if n := f.count(t, evidence.Start, ""); n != started {
			started, quiet = n, time.Now()
		}
		return time.Since(quiet) > 2500*time.Millisecond
	})
	const (
		most  = 4 // of the time that passes, a quarter of one processor
		tries = 5 // it may have other things to do in some of them
	)
	for try := 1; ; try++ {
		before, since := processorTime(t, s.cmd.Process.Pid), time.Now()
		until(t, since.Add(2*time.Second))
		used, passed := processorTime(t, s.cmd.Process.Pid)-before, time.Since(since)
		if used <= passed/most {
			break
		}
		if try == tries {
			t.Errorf("the server used %s of processor time in %s", used, passed)
			break
		}
	}
	if _, err := s.Jobs(t.Context(), client.JobQuery{}); err != nil {
		t.Errorf("reading during the fault: %v", err)
	}
	fault.end()
	eventually(t, "runs start again", func() bool {
		return f.count(t, evidence.Start, "beat") > 0 && f.count(t, evidence.Start, "") > started+1
	})
	open.To = time.Now()
	if run := s.ended(across); run.Outcome != job.OutcomeSucceeded {
		t.Errorf("what ended during the fault: got %s: %s", run.Outcome, run.Reason)
	}
	acknowledged[across.String()] = "succeeded"
	var parts []string
	others := map[string]int{}
	for line := range strings.Lines(s.log.String()) {
		var entry struct{ Level, Msg, Store, Run string }
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Run != "" || strings.HasPrefix(entry.Msg, "the store does not respond") {
			continue // runs that a busy machine delays and a disk that others keep busy are logged too
		}
		switch {
		case entry.Level != "ERROR" && entry.Level != "WARN":
		case entry.Store != "":
			parts = append(parts, entry.Level+" "+entry.Msg+" "+entry.Store)
		default: // what else cannot be written in so long a time
			others[entry.Msg]++
		}
	}
	for msg, n := range others {
		if n > 3 {
			t.Errorf("the log says %d times: %s", n, msg)
		}
	}
	if len(parts) != 1 || !strings.Contains(parts[0], fault.says) || !strings.HasSuffix(parts[0], " sqlite:"+filepath.Join(f.data, "belfry.db")) {
		t.Errorf("the log says %d things, want once that %s, and where:\n%s", len(parts), fault.says, strings.Join(parts, "\n"))
	}
	if n := s.log.lines("the store is writable again"); n != 1 {
		t.Errorf("the log says %d times that the store is writable again, want once", n)
	}
	beat.pause(s)
	s.settled()
	h := evidence.History{
		Jobs: []evidence.Job{beat.finish(), {Name: "default/hand"}, {Name: "default/across"}}, Acknowledged: acknowledged,
		Down: []evidence.Span{open}, Events: f.events(t), Records: s.records(),
	}
	check(t, h)
}
