//go:build servers

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// signal sends a signal to the process.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// A machine that stands still beside the frozen server moves what must be at one time or another:
// then all is done once more.
func TestFrozenServerDoublesNothing(t *testing.T) {
	t.Parallel()
	const tries = 5
	for try := 1; ; try++ {
		wrong := frozen(t)
		if wrong == "" {
			return
		}
		if t.Logf("try %d: %s", try, wrong); try == tries {
			t.Fatal(wrong)
		}
	}
}

// frozen freezes a server, and says what was not at its time meanwhile.
func frozen(t *testing.T) (wrong string) {
	t.Helper()
	f := newFolder(t)
	s := f.serve(t, options{})
	beat := newWatched("beat", time.Second)
	beat.job.Slots = 1
	beat.create(s, f.witness("slots=1"), "")
	// The shortest lost_after that there is: others could take the slot and the
	// retry after it. The last one blocks no other, and continues.
	s.apply(`
name: slotted
run: {shell: ` + f.witness("slots=1", "until="+f.path("go")) + `}
policy: {lost_after: 9s, kill_grace: 0s}
---
name: retried
run: {shell: ` + f.witness("slots=1", "until="+f.path("go")) + `}
policy: {lost_after: 9s, kill_grace: 0s, overlap: allow, retry: {attempts: 5, backoff: 0s, on: [lost]}}
---
name: harmless
run: {shell: ` + f.witness("until="+f.path("go")) + `}
policy: {lost_after: 9s, kill_grace: 0s, overlap: allow}
`)
	defer func() {
		if wrong != "" {
			s.kill()
		}
	}()
	slotted, retried, harmless := s.runByHand("slotted").ID, s.runByHand("retried").ID, s.runByHand("harmless").ID
	eventually(t, "all run", func() bool {
		return len(f.starts(t, "slotted")) > 0 && len(f.starts(t, "retried")) > 0 && len(f.starts(t, "harmless")) > 0 &&
			f.count(t, evidence.Start, "beat") >= 2
	})
	ending := slices.Concat(f.starts(t, "slotted"), f.starts(t, "retried"))

	// The time of the watchdog counts from here.
	eventually(t, "the session is renewed", func() bool {
		nodes, err := s.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(nodes.Items[0].Renewed) < 500*time.Millisecond
	})
	frozen := evidence.Span{From: time.Now()}
	s.signal(syscall.SIGSTOP)
	if len(f.starts(t, "slotted")) != 1 || len(f.starts(t, "retried")) != 1 || slices.ContainsFunc(ending, dead) {
		return "what ran had ended before"
	}
	eventually(t, "the watchdog ends what others could take", func() bool { return !slices.ContainsFunc(ending, alive) })
	if took := time.Since(frozen.From); took < 2*time.Second || took > 9*time.Second {
		return fmt.Sprintf("the watchdog ended what others could take from 9 s on after %s", took)
	}
	until(t, frozen.From.Add(9500*time.Millisecond)) // beyond the session and lost_after
	if !alive(f.starts(t, "harmless")[0]) {
		return "a run by whose loss nothing is gained was ended too"
	}
	started := f.count(t, evidence.Start, "")
	s.signal(syscall.SIGCONT)

	eventually(t, "what was lost is tried again", func() bool { return len(f.starts(t, "retried")) > 1 })
	f.touch(t, "go")
	if run := s.ended(retried); run.Outcome != job.OutcomeSucceeded || len(run.Attempts) < 2 || run.Attempts[0].Outcome != job.OutcomeLost {
		t.Errorf("with a retry: got %s after %+v, want succeeded after a lost attempt", run.Outcome, run.Attempts)
	}
	if run := s.ended(slotted); run.Outcome != job.OutcomeLost || len(run.Attempts) != 1 || run.Reason == "" {
		t.Errorf("without a retry: got %s (%s) after %d attempts, want lost after 1", run.Outcome, run.Reason, len(run.Attempts))
	}
	if run := s.ended(harmless); run.Outcome != job.OutcomeSucceeded || len(run.Attempts) != 1 {
		t.Errorf("what went on: got %s after %d attempts, want succeeded after 1", run.Outcome, len(run.Attempts))
	}
	if run := s.ended(s.runByHand("slotted").ID); run.Outcome != job.OutcomeSucceeded {
		t.Errorf("the slot afterwards: got %s: %s", run.Outcome, run.Reason)
	}
	eventually(t, "the schedule continues", func() bool {
		return f.count(t, evidence.Start, "beat") >= 2 && f.count(t, evidence.Start, "") > started+3
	})
	frozen.To = time.Now()
	beat.pause(s)
	s.settled()
	check(t, evidence.History{
		Down: []evidence.Span{frozen},
		Jobs: []evidence.Job{
			beat.finish(), {Name: "default/slotted", Slots: 1}, {Name: "default/retried", Retries: 5, Slots: 1}, {Name: "default/harmless"},
		},
		Acknowledged: map[string]string{retried.String(): "succeeded", harmless.String(): "succeeded", slotted.String(): "lost"},
		Events:       f.events(t), Records: s.records(),
	})
	return ""
}

// dead reports whether a process is no more.
func dead(pid int) bool { return !alive(pid) }

// TestAFollowerSurvivesADeathRightAfterItsLeader kills the server in the moment in
// which a run ends and another is due because of it.
func TestAFollowerSurvivesADeathRightAfterItsLeader(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	const deaths = 6 // each of which can meet what was lost in the one before
	policy := fmt.Sprintf("policy: {overlap: allow, retry: {attempts: %d, backoff: 0s, on: [lost]}}", deaths)
	s.apply(`
name: leader
params: {n: ""}
run: {shell: ` + f.witness("for=20ms") + `}
` + policy + `
---
name: follower
params: {n: ""}
schedule: {on: leader}
run: {shell: 'echo n={{ .Param.n }}'}
` + policy)
	leaders := map[job.ID]string{}
	ended := func(id job.ID) bool {
		return slices.ContainsFunc(f.events(t), func(e evidence.Event) bool { return e.Kind == evidence.End && e.Run == id.String() })
	}
	for n := range deaths {
		number := fmt.Sprint(n)
		run, err := s.RunJob(t.Context(), "default", "leader", client.RunRequest{Params: map[string]string{"n": number}}, "")
		if err != nil {
			t.Fatal(err)
		}
		leaders[run.ID] = number
		if n%2 == 0 {
			// The command has ended, and its result is on its way.
			eventually(t, "the leader ends", func() bool { return ended(run.ID) })
		} else {
			// The result is acknowledged.
			s.ended(run.ID)
		}
		s.kill()
		s = f.serve(t, options{})
	}
	for id := range leaders {
		if run := s.ended(id); run.Outcome != job.OutcomeSucceeded {
			t.Errorf("a leader is %s: %s", run.Outcome, run.Reason)
		}
	}
	s.settled()
	followers := map[job.ID]int{}
	for _, r := range s.done("follower") {
		followers[r.Parent]++
		if r.Outcome != job.OutcomeSucceeded {
			t.Errorf("a follower is %s: %s", r.Outcome, r.Reason)
		}
		if text := s.output(r.ID); strings.TrimSpace(text) != "n="+leaders[r.Parent] {
			t.Errorf("the follower of run %s printed %q, want the parameter of its leader", leaders[r.Parent], text)
		}
	}
	for id, number := range leaders {
		if followers[id] != 1 {
			t.Errorf("leader %s has %d followers, want 1", number, followers[id])
		}
	}
}
