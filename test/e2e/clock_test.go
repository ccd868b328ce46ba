//go:build servers

package e2e_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
	"github.com/belfry-cron/belfry/test/e2e/ownclock"
	"github.com/belfry-cron/belfry/test/servers"
)

// ownClock builds the program with a wall clock of its own.
var ownClock = sync.OnceValues(func() (string, error) {
	flags, err := ownclock.Flags(programs.dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(programs.dir, "belfry-clock")
	return path, servers.Build(path, "cmd/belfry", flags...)
})

// withClock returns how to start a server whose clock setClock sets.
func (f *folder) withClock(t *testing.T) options {
	t.Helper()
	program, err := ownClock()
	if err != nil {
		t.Fatal(err)
	}
	return options{program: program, env: []string{ownclock.Variable + "=" + f.path("clock")}}
}

// setClock sets the server's clock ahead of the machine's clock by a duration.
func (f *folder) setClock(t *testing.T, by time.Duration) {
	t.Helper()
	if err := ownclock.Set(f.path("clock"), by); err != nil {
		t.Fatal(err)
	}
}

// missed returns how many occurrences the missed ones stand for, and in how many
// records.
func missed(runs []client.Run) (occurrences, records int) {
	for _, r := range runs {
		if r.Outcome == job.OutcomeMissed {
			occurrences += max(1, r.Count)
			records++
		}
	}
	return occurrences, records
}

// succeeded returns how many runs have.
func succeeded(runs []client.Run) int {
	n := 0
	for _, r := range runs {
		if r.Outcome == job.OutcomeSucceeded {
			n++
		}
	}
	return n
}

func TestDowntimeFollowsTheMissedPolicyOfEachJob(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	o := f.withClock(t)
	const down = 2 * time.Hour
	schedule, _ := far(10 * time.Minute) // 12 occurrences
	f.setClock(t, -down)
	s := f.serve(t, o)
	rows := []struct {
		name, policy string
		ran          int
		records      int // of the missed, if it matters
	}{
		{"none", "{missed: none}", 0, 0},
		{"latest", "{missed: latest}", 1, 0},
		{"all", "{missed: all, late_by: forever, overlap: queue, queue_limit: 100}", 12, 0},
		{"limited", "{missed: all, missed_limit: 3, late_by: forever, overlap: queue, queue_limit: 100}", 3, 1},
		{"not-too-late", "{missed: all, late_by: 30m, overlap: queue, queue_limit: 100}", 3, 0},
		{"latest-too-late", "{missed: latest, late_by: 1m}", 0, 0},
	}
	for _, row := range rows {
		s.apply(fmt.Sprintf("name: %s\nschedule: %s\nrun: {shell: %s}\npolicy: %s\n", row.name, schedule, f.witness("slots=1"), row.policy))
	}
	s.stop()
	f.setClock(t, 0)
	s = f.serve(t, o)
	for _, row := range rows {
		var runs []client.Run
		eventually(t, row.name+" accounts for all", func() bool {
			runs = s.done(row.name)
			n, _ := missed(runs)
			return n+succeeded(runs) >= 12
		})
		ran := succeeded(runs)
		n, records := missed(runs)
		if ran != row.ran || n != 12-row.ran {
			t.Errorf("%s: %d ran and %d were missed, want %d and %d", row.name, ran, n, row.ran, 12-row.ran)
		}
		if row.records > 0 && records != row.records {
			t.Errorf("%s: the missed have %d records, want %d", row.name, records, row.records)
		}
		for _, r := range runs {
			if r.Outcome == job.OutcomeMissed && r.Reason == "" {
				t.Errorf("%s: a run was missed without a reason", row.name)
			}
		}
		equal(t, row.name+": starts", f.count(t, evidence.Start, row.name), row.ran)
	}
}

func TestClockStepsDoubleNothing(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	o := f.withClock(t)
	f.setClock(t, 0)
	s := f.serve(t, o)
	schedule, _ := far(10 * time.Minute)
	s.apply("name: beat\nschedule: {every: 1s}\nrun: {shell: " + f.witness("slots=1") + "}\npolicy: {overlap: allow}\n" +
		"---\nname: far\nschedule: " + schedule + "\nrun: {shell: " + f.witness("slots=1") + "}\n" +
		"---\nname: hand\nrun: {shell: " + f.witness() + "}\n")
	beats := func(n int) {
		t.Helper()
		since := f.count(t, evidence.Start, "beat")
		eventually(t, "the schedule continues", func() bool { return f.count(t, evidence.Start, "beat") >= since+n })
	}
	beats(2)

	f.setClock(t, time.Hour)
	eventually(t, "the hour that was skipped follows the policy", func() bool {
		n, _ := missed(s.done("far"))
		return n == 5 && f.count(t, evidence.End, "far") == 1
	})
	eventually(t, "the log says that the clock was set", func() bool { return s.log.lines("the wall clock was set") == 1 })
	beats(2)

	// Back again: what has been is not once more, and the server continues.
	f.setClock(t, 0)
	run := s.ended(s.runByHand("hand").ID)
	equal(t, "by hand", run.Outcome, job.OutcomeSucceeded)
	until(t, time.Now().Add(2500*time.Millisecond)) // what falls due again would run
	f.setClock(t, time.Hour)
	beats(2)
	s.pauseNow("beat")
	s.pauseNow("far")
	s.settled()

	seen := map[string]string{}
	for _, e := range f.events(t) {
		if e.Kind != evidence.Start || e.Job == "default/hand" {
			continue
		}
		key := e.Job + " " + e.Scheduled.String()
		if other, twice := seen[key]; twice {
			t.Errorf("the occurrence %s ran as %s and as %s", key, other, e.Run)
		}
		seen[key] = e.Run
	}
	h := evidence.History{Events: f.events(t), Records: s.records()}
	for _, v := range evidence.Check(h) {
		if v.Invariant == evidence.StartedOnce {
			t.Errorf("%s", v.Text)
		}
	}
}
