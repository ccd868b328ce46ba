//go:build servers

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// alive reports whether a process is there.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	// Its parent may not have noticed yet that it is dead.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// starts returns the processes that have written a start.
func (f *folder) starts(t testing.TB, name string) []int {
	t.Helper()
	var pids []int
	for _, e := range f.events(t) {
		if e.Kind == evidence.Start && e.Job == "default/"+name {
			pids = append(pids, e.PID)
		}
	}
	return pids
}

func TestKilledServerNeitherLosesNorDoublesRuns(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	beats := []*watched{newWatched("beat", time.Second), newWatched("slow-beat", 2*time.Second)}
	beats[0].job.Slots, beats[1].job.Slots, beats[1].job.Retries = 1, 1, 1
	for _, w := range beats {
		w.job.StartWithin = punctual
	}
	beats[0].create(s, f.witness("slots=1"), "")
	beats[1].create(s, f.witness("slots=1", "for=1500ms"), "policy: {retry: {attempts: 1, backoff: 0s, on: [lost]}}\n")
	s.apply(`
name: moved
run: {shell: ` + f.witness("slots=1", "ignore", "until="+f.path("go"), "child=ignore+for=10m") + `}
policy: {retry: {attempts: 1, backoff: 0s, on: [lost]}, kill_grace: 200ms}
---
name: left
run: {shell: ` + f.witness("slots=1", "until="+f.path("go"), "child=apart+ignore+for=10m") + `}
`)
	moved, left := s.runByHand("moved").ID, s.runByHand("left").ID
	eventually(t, "all have started", func() bool {
		return f.count(t, evidence.Start, "") >= 6 && len(f.starts(t, "moved.child")) == 1 && len(f.starts(t, "left.child")) == 1 &&
			f.count(t, evidence.Start, "beat") >= 2
	})
	var before []int
	for _, name := range []string{"moved", "moved.child", "left", "left.child"} {
		before = append(before, f.starts(t, name)...)
	}
	down := evidence.Span{From: time.Now()}
	s.kill()
	eventually(t, "the watchdog ends what the server ran", func() bool { return !slices.ContainsFunc(before, alive) })

	s = f.serve(t, options{})
	down.To = time.Now()
	if run := s.ended(left); run.Outcome != job.OutcomeLost || len(run.Attempts) != 1 {
		t.Errorf("without a retry: got %s after %d attempts, want lost after 1: %s", run.Outcome, len(run.Attempts), run.Reason)
	}
	eventually(t, "the lost run is tried again", func() bool { return len(f.starts(t, "moved")) == 2 })
	f.touch(t, "go")
	run := s.ended(moved)
	if run.Outcome != job.OutcomeSucceeded || len(run.Attempts) != 2 || run.Attempts[0].Outcome != job.OutcomeLost {
		t.Errorf("with a retry: got %+v, want succeeded after a lost attempt", run)
	}
	since := f.count(t, evidence.Start, "beat")
	eventually(t, "the schedule continues", func() bool { return f.count(t, evidence.Start, "beat") >= since+2 })
	h := evidence.History{
		Down: []evidence.Span{down},
		Jobs: []evidence.Job{
			{Name: "default/moved", Slots: 1, Retries: 1}, {Name: "default/left", Slots: 1},
			{Name: "default/moved.child"}, {Name: "default/left.child"},
		},
		Acknowledged: map[string]string{moved.String(): "succeeded", left.String(): "lost"},
	}
	for _, w := range beats {
		w.pause(s)
		h.Jobs = append(h.Jobs, w.finish())
	}
	s.settled()
	h.Events, h.Records = withoutChildren(f.events(t)), s.records()
	check(t, h)
}

// withoutChildren leaves out what children of jobs have written: they are no
// attempts.
func withoutChildren(events []evidence.Event) []evidence.Event {
	return slices.DeleteFunc(events, func(e evidence.Event) bool { return strings.HasSuffix(e.Job, ".child") })
}

func TestGracefulStopNeitherLosesNorDelaysRuns(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	w := newWatched("beat", time.Second)
	w.job.Slots, w.job.StartWithin = 1, punctual
	w.create(s, f.witness("slots=1"), "")
	s.apply("name: lasting\nrun: {shell: " + f.witness("until="+f.path("go")) + "}\n")
	lasting := s.runByHand("lasting").ID
	eventually(t, "both have started", func() bool {
		return f.count(t, evidence.Start, "beat") > 0 && f.count(t, evidence.Start, "lasting") == 1
	})

	down := evidence.Span{From: time.Now()}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says that it stops", func() bool { return s.log.lines("nothing new starts") == 1 })
	if run := s.run(lasting); run.State != job.StateRunning {
		t.Errorf("the server that stops says that its run is %s, want running", run.State)
	}
	f.touch(t, "go")
	s.awaitExit()
	if s.code != 0 {
		t.Errorf("the server ended with exit code %d", s.code)
	}
	s = f.serve(t, options{})
	down.To = time.Now()
	if run := s.run(lasting); run.Outcome != job.OutcomeSucceeded || run.Attempt != 1 {
		t.Errorf("what ran during the stop: got %s at attempt %d, want succeeded at the first", run.Outcome, run.Attempt)
	}
	since := f.count(t, evidence.Start, "beat")
	eventually(t, "the schedule continues", func() bool { return f.count(t, evidence.Start, "beat") >= since+1 })
	w.pause(s)
	s.settled()
	check(t, evidence.History{
		Down: []evidence.Span{down}, Jobs: []evidence.Job{w.finish(), {Name: "default/lasting"}},
		Events: f.events(t), Records: s.records(), Acknowledged: map[string]string{lasting.String(): "succeeded"},
	})
}

func TestNothingStartsAfterAnAcknowledgedPause(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	const jobs = 20
	var list []*watched
	for i := range jobs {
		w := newWatched(fmt.Sprintf("beat-%02d", i), time.Second)
		w.create(s, f.witness("fast"), "")
		list = append(list, w)
	}
	eventually(t, "they run", func() bool { return f.count(t, evidence.Start, "") >= jobs })
	// Right before they fall due, and while they do.
	moment := time.Now().Truncate(time.Second).Add(1950 * time.Millisecond)
	until(t, moment)
	for _, w := range list {
		w.pause(s)
	}
	until(t, moment.Add(2500*time.Millisecond))
	s.settled()
	h := evidence.History{Events: f.events(t), Records: s.records()}
	for _, w := range list {
		h.Jobs = append(h.Jobs, w.finish())
	}
	check(t, h)
	// A run by hand works on a paused job.
	if run := s.ended(s.runByHand(list[0].name).ID); run.Outcome != job.OutcomeSucceeded {
		t.Errorf("by hand: got %s, want succeeded", run.Outcome)
	}
}

// terms returns how many SIGTERM a run has seen.
func (f *folder) terms(t testing.TB, run client.Run) int {
	t.Helper()
	n := 0
	for _, e := range f.events(t) {
		if e.Kind == evidence.Term && e.Run == run.ID.String() && e.Job == run.Job {
			n++
		}
	}
	return n
}

// terminated runs a command until its timeout and the grace after it, and returns the run and
// the sum of both. On a machine that stands still a command gets its SIGTERM before it can see
// any: then both are longer.
func (s *server) terminated(f *folder, name, command string) (run client.Run, limits time.Duration) {
	s.t.Helper()
	for timeout := 3 * time.Second; ; timeout *= 2 {
		grace := timeout / 3
		s.apply(fmt.Sprintf("name: %s\nrun: {shell: %s}\npolicy: {timeout: %s, kill_grace: %s}\n", name, command, timeout, grace))
		run = s.ended(s.runByHand(name).ID)
		if f.terms(s.t, run) > 0 || timeout > patience/4 {
			return run, timeout + grace
		}
	}
}

func TestARunThatIgnoresItsEndIsKilledWithItsGroup(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	run, limits := s.terminated(f, "stubborn", f.witness("ignore", "for=10m", "child=ignore+for=10m"))
	if run.Outcome != job.OutcomeTimedOut || run.Signal != "SIGKILL" {
		t.Errorf("got %s by %q, want timed_out by SIGKILL", run.Outcome, run.Signal)
	}
	if !strings.HasPrefix(run.Reason, "SIGTERM after ") || !strings.Contains(run.Reason, "SIGKILL") {
		t.Errorf("the reason %q does not say what was sent when", run.Reason)
	}
	if took := run.Ended.Sub(run.Started); took < limits || took > limits+patience {
		t.Errorf("it took %s, want the timeout and the grace", took)
	}
	if n := f.terms(t, run); n != 1 {
		t.Errorf("it got %d SIGTERM, want 1", n)
	}
	eventually(t, "its child is gone", func() bool { return !slices.ContainsFunc(f.starts(t, "stubborn.child"), alive) })
}

func TestSurvivorsBelowAShellAreReportedTruthfully(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	// sh ends with SIGTERM at once, and what it runs does not.
	command := fmt.Sprintf("%s %s ignore for=10m; true", programs.witness, f.evidence)
	run, _ := s.terminated(f, "below", strconv.Quote(command))
	if run.Outcome != job.OutcomeTimedOut || run.Signal != "SIGTERM" {
		t.Errorf("got %s by %q, want timed_out by SIGTERM", run.Outcome, run.Signal)
	}
	sent := regexp.MustCompile(`^SIGTERM after [\d.]+ m?s, ended by SIGTERM [\d.]+ m?s later; SIGKILL after [\d.]+ m?s to what it left behind$`)
	if !sent.MatchString(run.Reason) {
		t.Errorf("the reason %q does not say what was sent when", run.Reason)
	}
	if n := f.terms(t, run); n != 1 {
		t.Errorf("what ran below the shell got %d SIGTERM, want 1", n)
	}
	if pids := f.starts(t, "below"); slices.ContainsFunc(pids, alive) {
		t.Error("the run has ended, and what ran below the shell is there")
	}
}

func TestGrandchildDoesNotBlockARun(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	s.apply(`
name: parent
run: {shell: ` + f.witness("child=ignore+for=10m") + `}
policy: {kill_grace: 300ms}
---
name: parent-apart
run: {shell: ` + f.witness("child=ignore+apart+for=10m") + `}
policy: {kill_grace: 300ms}
`)
	for _, name := range []string{"parent", "parent-apart"} {
		run := s.ended(s.runByHand(name).ID)
		if run.Outcome != job.OutcomeSucceeded {
			t.Errorf("%s: got %s: %s", name, run.Outcome, run.Reason)
		}
		if took := run.Ended.Sub(run.Started); took > patience {
			t.Errorf("%s: the run took %s, its command ended at once", name, took)
		}
		eventually(t, name+" leaves nothing behind", func() bool {
			pids := f.starts(t, name+".child")
			return len(pids) == 1 && !alive(pids[0])
		})
	}
}

func TestOutputIsReadableWhileRunning(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	s.apply("name: talker\nrun: {shell: " + f.witness("say=hello", "until="+f.path("go")) + "}\n")
	id := s.runByHand("talker").ID
	eventually(t, "what it prints can be read", func() bool { return s.output(id) == "hello\n" })
	if run := s.run(id); run.State != job.StateRunning {
		t.Errorf("the run is %s, want running", run.State)
	}
	f.touch(t, "go")
	s.ended(id)
}

// field returns a number of kilobytes from the status of a process.
func field(t *testing.T, pid int, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			var kb int
			if _, err := fmt.Sscan(value, &kb); err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Fatalf("the status of a process has no %s", name)
	return 0
}

func TestAJobThatPrintsAGigabyte(t *testing.T) {
	f := newFolder(t)
	s := f.serve(t, options{})
	w := newWatched("beat", time.Second)
	w.job.StartWithin = punctual
	w.create(s, f.witness(), "")
	const mebibytes = 1024
	s.apply(fmt.Sprintf("name: flood\nrun: {shell: %s}\n", f.witness(fmt.Sprintf("flood=%d", mebibytes))))
	began := time.Now()
	id := s.runByHand("flood").ID
	within(t, 10*time.Minute, "it ends", func() bool { return s.run(id).State == job.StateDone })
	took := time.Since(began)
	run := s.run(id)
	if run.Outcome != job.OutcomeSucceeded || run.OutputBytes != mebibytes<<20 {
		t.Errorf("got %s with %d bytes, want succeeded with %d", run.Outcome, run.OutputBytes, mebibytes<<20)
	}
	text := s.output(id)
	if len(text) > 1<<20+64<<10 || len(text) < 1<<19 {
		t.Errorf("%d bytes are kept, want about 1 MiB", len(text))
	}
	const start = "abcdefgh"
	if !strings.HasPrefix(text, start) || !strings.Contains(text[1<<18:len(text)-1<<18], "are missing (") {
		t.Errorf("the cut is not marked in the middle, or the beginning does not exist: %.40q", text)
	}
	const most = 200 << 10
	if peak := field(t, s.cmd.Process.Pid, "VmHWM"); peak > most {
		t.Errorf("the server has taken %d KiB, want at most %d", peak, most)
	}
	t.Logf("%d MiB in %s, the server has taken %d KiB", mebibytes, took, field(t, s.cmd.Process.Pid, "VmHWM"))
	size := int64(0)
	for _, name := range []string{"belfry.db", "belfry.db-wal"} {
		if info, err := os.Stat(filepath.Join(f.data, name)); err == nil {
			size += info.Size()
		}
	}
	if size > 64<<20 {
		t.Errorf("the store has %d bytes", size)
	}
	w.pause(s)
	s.settled()
	check(t, evidence.History{Jobs: []evidence.Job{w.finish(), {Name: "default/flood"}}, Events: f.events(t), Records: s.records()})
}

func TestADamagedStoreIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	s.apply("name: a\nschedule: {every: 1h}\nrun: {shell: 'true'}\n")
	s.stop()
	path := filepath.Join(f.data, "belfry.db")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, "this is no database")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s = f.begin(t, options{})
	s.awaitExit()
	eventually(t, "the refusal names the file and the way out", func() bool {
		log := s.log.String()
		return strings.Contains(log, path) && strings.Contains(log, "not a database") && strings.Contains(log, "Restore it from a backup")
	})
	if s.code != 1 {
		t.Errorf("the exit code is %d, want 1", s.code)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(data) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestASecondServerIsRefused(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	second := f.begin(t, options{})
	second.awaitExit()
	eventually(t, "the refusal names what is in use", func() bool {
		return strings.Contains(second.log.String(), filepath.Join(f.data, "belfry.db")) && strings.Contains(second.log.String(), "in use by another process")
	})
	third := newFolder(t).begin(t, options{args: []string{"--listen", s.url[len("http://"):]}})
	third.awaitExit()
	eventually(t, "the refusal names the address", func() bool {
		return strings.Contains(third.log.String(), "the address "+s.url[len("http://"):]+" is in use")
	})
	if second.code != 1 || third.code != 1 {
		t.Errorf("the exit codes are %d and %d, want 1", second.code, third.code)
	}
	// The first one continues.
	s.apply("name: a\nrun: {shell: 'true'}\n")
	if run := s.ended(s.runByHand("a").ID); run.Outcome != job.OutcomeSucceeded {
		t.Errorf("got %s: %s", run.Outcome, run.Reason)
	}
}

func TestAnUnknownZoneIsRefusedWithTheJob(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{env: []string{"ZONEINFO=/nowhere"}})
	document := func(zone string) client.Apply {
		text := fmt.Sprintf(`{"name": "a", "schedule": {"cron": "0 3 * * *", "timezone": %q}, "run": {"shell": "true"}}`, zone)
		return client.Apply{Documents: []client.Document{{RawMessage: json.RawMessage(text)}}}
	}
	_, err := s.Apply(t.Context(), document("Europe/Berln"))
	if !client.IsType(err, client.TypeInvalid) || !strings.Contains(err.Error(), "schedule.timezone") || !strings.Contains(err.Error(), "Europe/Berlin") {
		t.Errorf("got %v, want that schedule.timezone is invalid, and a proposal", err)
	}
	if _, err := s.Job(t.Context(), "default", "a", false); !client.IsType(err, client.TypeNotFound) {
		t.Errorf("the refused job: got %v, want that it does not exist", err)
	}
	if _, err := s.Apply(t.Context(), document("Europe/Berlin")); err != nil {
		t.Errorf("a zone that there is: %v", err)
	}
}

func TestAServerSaysWhoHasItsPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	out, code := command(t, "serve", "--data", newFolder(t).data, "--listen", taken.Addr().String(), "--run-as", me(t))
	if code != 1 || !strings.Contains(out, "the address "+taken.Addr().String()+" is in use") || !strings.Contains(out, "--listen names another address") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
