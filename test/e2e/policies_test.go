//go:build servers

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// as returns the server for a part of a test.
func (s *server) as(t testing.TB) *server {
	part := *s
	part.t = t
	return &part
}

// instant writes a time as job files have it.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// atLeast waits for runs of a job that are over.
func (s *server) atLeast(n int, name string) []client.Run {
	s.t.Helper()
	var runs []client.Run
	eventually(s.t, fmt.Sprintf("%d runs of %s end", n, name), func() bool {
		runs = s.done(name)
		return len(runs) >= n
	})
	return runs
}

// state returns the state of a job.
func (s *server) state(name string) *job.Job {
	s.t.Helper()
	d, err := s.Job(s.t.Context(), "default", name, false)
	if err != nil {
		s.t.Fatal(err)
	}
	j, err := d.Job()
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// next returns the next occurrences of a job.
func (s *server) next(name string, count int) []client.Occurrence {
	s.t.Helper()
	next, err := s.Next(s.t.Context(), "default", name, count)
	if err != nil {
		s.t.Fatal(err)
	}
	return next.Items
}

// ahead is how long before a fixed instant the job is made that falls due then, at first.
const ahead = 4 * time.Second

// soon makes jobs that fall due at a full second, and returns it. Where that has passed before
// they were made, as on a machine that stands still meanwhile, it makes others further ahead: their
// names end with number.
func (s *server) soon(documents func(number int, at time.Time) string) (number int, at time.Time) {
	s.t.Helper()
	for lead := ahead; ; lead *= 2 {
		at = time.Now().Truncate(time.Second).Add(lead)
		_, err := s.tryApply(documents(number, at))
		if err == nil && time.Now().Before(at) {
			return number, at
		}
		if lead > 2*patience || time.Now().Before(at) {
			s.t.Fatalf("jobs cannot be made %s ahead: %v", lead, err)
		}
		number++
	}
}

// far returns a schedule that has no occurrence near to now, and the last one that it
// has had.
func far(every time.Duration) (schedule string, last time.Time) {
	last = time.Now().Add(-every / 2).Truncate(time.Second)
	return fmt.Sprintf("{every: %s, offset: %ds}", every, last.Unix()%int64(every/time.Second)), last
}

// cancelAll cancels what a job runs, if it has not ended on its own since it was asked
// for: also a run that was claimed ahead ends so, when a pause has called it back.
func (s *server) cancelAll(name string) {
	s.t.Helper()
	for _, r := range s.runs(name, job.StateRunning) {
		if _, err := s.Cancel(s.t.Context(), r.ID, client.CancelRequest{}); err != nil && !client.IsType(err, client.TypeConflict) {
			s.t.Error(err)
		}
	}
}

// pauseNow pauses a job.
func (s *server) pauseNow(name string) {
	s.t.Helper()
	if _, err := s.Pause(s.t.Context(), "default", name, client.PauseRequest{}); err != nil {
		s.t.Fatal(err)
	}
}

// did returns the runs of a job that have not been withdrawn.
func did(runs []client.Run) []client.Run {
	return slices.DeleteFunc(runs, func(r client.Run) bool { return r.Outcome == job.OutcomeWithdrawn })
}

// equal compares what was seen with what was wanted.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

// TestPolicies has a part for each row of what job files can say about when a job
// runs and what happens then, as far as one node can show it. What needs another
// time than now is in TestDowntimeFollowsTheMissedPolicyOfEachJob.
func TestPolicies(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	configuration := f.path("config.yaml")
	if err := os.WriteFile(configuration, []byte("http: {allow: [127.0.0.0/8]}\ndefaults: {namespaces: {short: {policy: {timeout: 500ms}}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := f.serve(t, options{args: []string{"--config", configuration, "--timezone", "Asia/Shanghai", "--label", "disk=ssd"}})
	rows := []struct {
		name string
		show func(t *testing.T, s *server)
	}{
		{"expressions of a list that fall on one instant are one occurrence", func(t *testing.T, s *server) {
			w := newWatched("list", time.Second)
			text := "name: list\nschedule: {cron: ['* * * * * *', '*/2 * * * * *']}\nrun: {shell: " + f.witness() + "}\n"
			if err := w.change(func() (client.Change, error) { _, err := s.tryApply(text); return client.Change{}, err }, never); err != nil {
				t.Fatal(err)
			}
			s.atLeast(3, "list")
			w.pause(s)
			f.check(t, s, w)
		}},
		{"a fixed rate counts from the epoch, moved by its offset", func(t *testing.T, s *server) {
			s.apply("name: offset\nschedule: {every: 2s, offset: 1s}\nrun: {shell: 'true'}\n")
			for _, r := range s.atLeast(2, "offset") {
				equal(t, "the second, by two", r.Scheduled.Unix()%2, 1)
			}
		}},
		{"a fixed rate counts from its start", func(t *testing.T, s *server) {
			start := time.Now().Truncate(time.Second).Add(time.Hour)
			s.apply("name: aligned\nschedule: {every: 7s, align: start, start: " + instant(start) + "}\nrun: {shell: 'true'}\n")
			next := s.next("aligned", 2)
			equal(t, "the first", next[0].Scheduled.UTC(), start.UTC())
			equal(t, "the second", next[1].Scheduled.Sub(start), 7*time.Second)
		}},
		{"a fixed delay counts from the end", func(t *testing.T, s *server) {
			s.apply("name: delay\nschedule: {after_end: 1s}\nrun: {shell: " + f.witness("for=500ms", "slots=1") + "}\n")
			runs := s.atLeast(3, "delay")
			for i := 1; i < len(runs); i++ {
				if gap := runs[i].Started.Sub(runs[i-1].Ended); gap < time.Second-time.Millisecond || gap > patience {
					t.Errorf("run %d started %s after the end of the one before", i, gap)
				}
			}
		}},
		{"fixed instants, after which the job is completed", func(t *testing.T, s *server) {
			number, first := s.soon(func(number int, at time.Time) string {
				return fmt.Sprintf("name: twice-%d\nschedule: {at: [%s, %s]}\nrun: {shell: 'true'}\n", number, instant(at), instant(at.Add(time.Second)))
			})
			name := fmt.Sprint("twice-", number)
			runs := s.atLeast(2, name)
			equal(t, "scheduled", []time.Time{runs[0].Scheduled.UTC(), runs[1].Scheduled.UTC()}, []time.Time{first.UTC(), first.Add(time.Second).UTC()})
			eventually(t, "it is completed", func() bool { return s.state(name).Status.State == job.JobCompleted })
		}},
		{"fixed instants, after which the job is removed", func(t *testing.T, s *server) {
			number, _ := s.soon(func(number int, at time.Time) string {
				return fmt.Sprintf("name: gone-%d\nschedule: {at: %s, delete_after: 5s}\nrun: {shell: %s}\n", number, instant(at), f.witness())
			})
			name := fmt.Sprint("gone-", number)
			eventually(t, "it has run", func() bool { return f.count(t, evidence.End, name) == 1 })
			eventually(t, "it is removed", func() bool {
				_, err := s.Job(t.Context(), "default", name, false)
				return client.IsType(err, client.TypeNotFound)
			})
		}},
		{"due after another job, with its parameters and its time", func(t *testing.T, s *server) {
			s.apply(`
name: leader
params: {who: nobody, code: "0"}
run: {shell: 'exit {{ .Param.code }}'}
---
name: after-success
params: {who: nobody}
schedule: {on: leader}
run: {shell: 'echo {{ .Param.who }} {{ .Scheduled }}'}
---
name: after-failure
schedule: {on: [{job: leader, outcome: failed}]}
run: {shell: 'true'}
---
name: after-both
schedule: {on: [{job: default/leader, outcome: finished}]}
run: {shell: 'true'}
`)
			for i, params := range []map[string]string{{"who": "ada"}, {"code": "3"}} {
				run, err := s.RunJob(t.Context(), "default", "leader", client.RunRequest{Params: params}, "")
				if err != nil {
					t.Fatal(err)
				}
				s.ended(run.ID)
				s.atLeast(i+1, "after-both") // which does not overlap with its next run
			}
			for _, r := range s.atLeast(2, "after-both") {
				equal(t, "the outcome of a job without their parameters", r.Outcome, job.OutcomeSucceeded)
			}
			success, failure := s.atLeast(1, "after-success"), s.atLeast(1, "after-failure")
			equal(t, "after success and after failure", []int{len(success), len(failure)}, []int{1, 1})
			leader := s.run(success[0].Parent)
			equal(t, "the scheduled time", success[0].Scheduled, leader.Scheduled)
			if text := s.output(success[0].ID); !strings.HasPrefix(text, "ada ") {
				t.Errorf("it printed %q, want the parameter of the leader", text)
			}
		}},
		{"nothing falls due outside of start and end", func(t *testing.T, s *server) {
			number, start := s.soon(func(number int, at time.Time) string {
				return fmt.Sprintf("name: bounded-%d\nschedule: {every: 1s, start: %s, end: %s}\nrun: {shell: 'true'}\n", number, instant(at), instant(at.Add(2*time.Second)))
			})
			name := fmt.Sprint("bounded-", number)
			eventually(t, "it is completed", func() bool { return s.state(name).Status.State == job.JobCompleted })
			runs := s.atLeast(3, name)
			equal(t, "runs", len(runs), 3)
			equal(t, "the first", runs[0].Scheduled.UTC(), start.UTC())
		}},
		{"completed after a number of runs", func(t *testing.T, s *server) {
			s.apply("name: few\nschedule: {every: 1s, max_runs: 2}\nrun: {shell: 'true'}\n")
			s.atLeast(2, "few")
			eventually(t, "it is completed", func() bool { return s.state("few").Status.State == job.JobCompleted })
			equal(t, "runs", len(s.runs("few")), 2)
		}},
		{"what the clock does in spring and in autumn", func(t *testing.T, s *server) {
			// Berlin has no 02:30 on 31 March 2030, and two of them on 27 October.
			const spring, autumn = "2030-03-31T00:00:00+01:00", "2030-10-27T00:00:00+02:00"
			for _, c := range []struct{ rule, start, want string }{
				{"vixie", spring, "2030-03-31T03:00:00+02:00"},
				{"literal", spring, "2030-04-01T02:30:00+02:00"},
				{"skip_once", spring, "2030-04-01T02:30:00+02:00"},
				{"shift_once", spring, "2030-03-31T03:30:00+02:00"},
				{"skip_last", spring, "2030-04-01T02:30:00+02:00"},
				{"skip_once", autumn, "2030-10-27T02:30:00+02:00"},
				{"shift_once", autumn, "2030-10-27T02:30:00+02:00"},
				{"skip_last", autumn, "2030-10-27T02:30:00+01:00"},
			} {
				name := strings.ReplaceAll(c.rule, "_", "-") + c.start[4:7]
				s.apply(fmt.Sprintf("name: %s\nschedule: {cron: '30 2 * * *', timezone: Europe/Berlin, clock_change: %s, start: %s}\nrun: {shell: 'true'}\n", name, c.rule, c.start))
				equal(t, name, s.next(name, 1)[0].Scheduled.Format(time.RFC3339), c.want)
			}
		}},
		{"days and times of day that are left out", func(t *testing.T, s *server) {
			s.apply(`
name: office
schedule: {cron: '0 */6 * * *', timezone: UTC, only: [mon-fri, '06:00-20:00'], except: [2030-10-01], start: 2030-09-30T00:00:00Z}
run: {shell: 'true'}
`)
			var times []string
			for _, o := range s.next("office", 4) {
				times = append(times, o.Scheduled.Format("01-02T15"))
			}
			equal(t, "the times", times, []string{"09-30T06", "09-30T12", "09-30T18", "10-02T06"})
		}},
		{"a drawn minute is the same for a job and another for another", func(t *testing.T, s *server) {
			drawn := map[int]bool{}
			for i := range 8 {
				name := fmt.Sprintf("drawn-%d", i)
				s.apply("name: " + name + "\nschedule: {cron: 'H * * * *'}\nrun: {shell: 'true'}\n")
				next := s.next(name, 2)
				equal(t, "the minutes of "+name, next[0].Scheduled.Minute(), next[1].Scheduled.Minute())
				drawn[next[0].Scheduled.Minute()] = true
			}
			if len(drawn) < 2 {
				t.Errorf("eight jobs have drawn the minutes %v", drawn)
			}
		}},
		{"calendars, with extra working days and moved occurrences", func(t *testing.T, s *server) {
			s.apply(`
kind: calendar
name: workdays
calendar: {weekdays: mon-fri, exclude: [2030-10-01..2030-10-03], include: [2030-10-05]}
---
name: working
schedule: {cron: '0 9 * * *', timezone: UTC, only: workdays, start: 2030-09-30T00:00:00Z}
run: {shell: 'true'}
---
name: moved-on
schedule: {cron: '0 9 1 10 *', timezone: UTC, only: workdays, off_day: next, start: 2030-09-30T00:00:00Z}
run: {shell: 'true'}
---
name: moved-back
schedule: {cron: '0 9 1 10 *', timezone: UTC, only: workdays, off_day: previous, start: 2030-09-30T00:00:00Z}
run: {shell: 'true'}
`)
			var days []string
			for _, o := range s.next("working", 4) {
				days = append(days, o.Scheduled.Format("01-02"))
			}
			equal(t, "the days", days, []string{"09-30", "10-04", "10-05", "10-07"})
			equal(t, "next", s.next("moved-on", 1)[0].Scheduled.Format("01-02"), "10-04")
			equal(t, "previous", s.next("moved-back", 1)[0].Scheduled.Format("01-02"), "09-30")
		}},
		{"jitter is as it was shown before", func(t *testing.T, s *server) {
			s.apply("name: jittery\nschedule: {every: 2s, jitter: 1s}\nrun: {shell: " + f.witness() + "}\n")
			due := map[int64]time.Time{}
			for _, o := range s.next("jittery", 10) {
				due[o.Scheduled.Unix()] = o.Due
			}
			s.atLeast(2, "jittery")
			for _, r := range s.done("jittery") {
				if r.Started.IsZero() {
					continue // it was skipped
				}
				if want, shown := due[r.Scheduled.Unix()]; shown && !r.Due.Equal(want) {
					t.Errorf("the run of %s was due at %s, and %s was shown", r.Scheduled, r.Due, want)
				}
				if late := r.Due.Sub(r.Scheduled); late < 0 || late > time.Second || r.Started.Before(r.Due) {
					t.Errorf("the run of %s was due %s later, and started at %s", r.Scheduled, late, r.Started)
				}
			}
		}},
		{"spread moves all occurrences alike", func(t *testing.T, s *server) {
			s.apply("name: spread\nschedule: {every: 1h, spread: 30m}\nrun: {shell: 'true'}\n")
			next := s.next("spread", 3)
			for _, o := range next {
				equal(t, "moved by", o.Due.Sub(o.Due.Truncate(time.Hour)), next[0].Due.Sub(next[0].Due.Truncate(time.Hour)))
			}
		}},
		{"a run knows the interval that it stands for", func(t *testing.T, s *server) {
			s.apply("name: interval\nschedule: {every: 1s, max_runs: 2}\nrun: {shell: 'echo $BELFRY_PREVIOUS $BELFRY_SCHEDULED $BELFRY_NEXT'}\n")
			runs := s.atLeast(2, "interval")
			run := runs[max(0, slices.IndexFunc(runs, func(r client.Run) bool { return r.Outcome == job.OutcomeSucceeded }))] // one may be skipped
			words := strings.Fields(s.output(run.ID))
			if len(words) != 3 {
				t.Fatalf("it printed %q", words)
			}
			for i, word := range words {
				got, err := time.Parse(time.RFC3339, word)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "the time", got.UTC(), run.Scheduled.Add(time.Duration(i-1)*time.Second).UTC())
			}
			if !strings.HasSuffix(words[1], "+08:00") {
				t.Errorf("%s is not in the zone of the server", words[1])
			}
		}},

		{"overlap: skip", func(t *testing.T, s *server) {
			w := newWatched("skip", time.Second)
			w.job.Slots = 1
			w.create(s, f.witness("slots=1", "for=1400ms"), "")
			eventually(t, "one is skipped", func() bool { return slices.Contains(outcomes(s.done("skip")), job.OutcomeSkipped) })
			s.atLeast(3, "skip")
			w.pause(s)
			f.check(t, s, w)
			for _, r := range s.done("skip") {
				if r.Outcome == job.OutcomeSkipped && r.Reason == "" {
					t.Error("a run was skipped without a reason")
				}
			}
		}},
		{"overlap: queue, up to its limit", func(t *testing.T, s *server) {
			w := newWatched("queue", time.Second)
			w.job.Slots = 1
			w.create(s, f.witness("slots=1", "until="+f.path("queue")), "policy: {overlap: queue, queue_limit: 2}\n")
			eventually(t, "two wait and one is skipped", func() bool {
				return len(s.runs("queue", job.StateRunning)) == 1 && len(s.runs("queue", job.StateWaiting)) == 2 &&
					slices.Contains(outcomes(s.done("queue")), job.OutcomeSkipped)
			})
			for _, r := range s.runs("queue", job.StateWaiting) {
				if r.Reason == "" {
					t.Error("a run waits without a reason")
				}
			}
			f.touch(t, "queue")
			eventually(t, "those that waited run", func() bool { return f.count(t, evidence.End, "queue") >= 3 })
			w.pause(s)
			f.check(t, s, w)
		}},
		{"overlap: replace", func(t *testing.T, s *server) {
			w := newWatched("replace", time.Second)
			w.job.Slots = 1
			w.create(s, f.witness("slots=1", "for=60s"), "policy: {overlap: replace}\n")
			eventually(t, "two are replaced", func() bool { return f.count(t, evidence.Term, "replace") >= 2 })
			w.pause(s)
			s.cancelAll("replace")
			f.check(t, s, w)
			if got := outcomes(s.done("replace")); !slices.Contains(got, job.OutcomeCancelled) {
				t.Errorf("the runs ended as %v, want that some are cancelled", got)
			}
		}},
		{"overlap: allow", func(t *testing.T, s *server) {
			w := newWatched("allow", time.Second)
			w.create(s, f.witness("until="+f.path("allow")), "policy: {overlap: allow}\n")
			eventually(t, "three go on at once", func() bool { return len(s.runs("allow", job.StateRunning)) >= 3 })
			w.pause(s)
			f.touch(t, "allow")
			f.check(t, s, w)
		}},
		{"max_parallel", func(t *testing.T, s *server) {
			w := newWatched("parallel", time.Second)
			w.job.Slots = 2
			w.create(s, f.witness("slots=2", "until="+f.path("parallel")), "policy: {max_parallel: 2}\n")
			eventually(t, "two go on and one is skipped", func() bool {
				return len(s.runs("parallel", job.StateRunning)) == 2 && slices.Contains(outcomes(s.done("parallel")), job.OutcomeSkipped)
			})
			w.pause(s)
			f.touch(t, "parallel")
			f.check(t, s, w)
		}},
		{"concurrency_key", func(t *testing.T, s *server) {
			s.apply("kind: pool\nname: two\npool: {size: 2}\n")
			var list []*watched
			for i := range 3 {
				w := newWatched(fmt.Sprintf("pool-%d", i), time.Second)
				w.job.Slots, w.job.Lock = 2, "two"
				w.create(s, f.witness("slots=2", "lock="+f.path("two"), "for=700ms"), "policy: {concurrency_key: two, overlap: queue}\n")
				list = append(list, w)
			}
			eventually(t, "all have run", func() bool {
				for _, w := range list {
					if f.count(t, evidence.End, w.name) < 2 {
						return false
					}
				}
				return true
			})
			for _, w := range list {
				w.pause(s)
			}
			f.check(t, s, list...)
		}},
		{"concurrency_key: a pool that is not declared has one slot", func(t *testing.T, s *server) {
			var list []*watched
			for i := range 2 {
				w := newWatched(fmt.Sprintf("lonely-%d", i), time.Second)
				w.job.Slots, w.job.Lock = 1, "lonely"
				w.create(s, f.witness("slots=1", "lock="+f.path("lonely"), "for=300ms"), "policy: {concurrency_key: lonely, overlap: queue}\n")
				list = append(list, w)
			}
			eventually(t, "both have run", func() bool {
				return f.count(t, evidence.End, "lonely-0") >= 2 && f.count(t, evidence.End, "lonely-1") >= 2
			})
			for _, w := range list {
				w.pause(s)
			}
			f.check(t, s, list...)
		}},
		{"late_by: what waits too long is missed", func(t *testing.T, s *server) {
			w := newWatched("late", time.Second)
			w.job.Slots = 1
			w.create(s, f.witness("slots=1", "until="+f.path("late")), "policy: {overlap: queue, queue_limit: 10, late_by: 1s}\n")
			eventually(t, "one is missed", func() bool {
				return slices.Contains(outcomes(s.done("late")), job.OutcomeMissed)
			})
			w.pause(s)
			f.touch(t, "late")
			f.check(t, s, w)
			for _, r := range s.done("late") {
				if r.Outcome == job.OutcomeMissed && r.Reason == "" {
					t.Error("a run was missed without a reason")
				}
			}
		}},
		{"needs_previous: waits for the success of the one before", func(t *testing.T, s *server) {
			s.apply("name: ordered\nschedule: {every: 1s, max_runs: 2}\nrun: {shell: " + f.witness("failures=1") + "}\npolicy: {needs_previous: true, overlap: queue}\n")
			eventually(t, "the second waits", func() bool { return len(s.runs("ordered", job.StateWaiting)) == 1 })
			failed := s.atLeast(1, "ordered")[0]
			equal(t, "the first", failed.Outcome, job.OutcomeFailed)
			if waiting := s.runs("ordered", job.StateWaiting); waiting[0].Reason == "" {
				t.Error("it waits without a reason")
			}
			// The cause is fixed: the job succeeds now, and the first is run again.
			s.apply("name: ordered\nschedule: {every: 1s, max_runs: 2}\nrun: {shell: " + f.witness() + "}\npolicy: {needs_previous: true, overlap: queue}\n")
			again, err := s.Retry(t.Context(), failed.ID, client.RetryRequest{}, "")
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "the scheduled time of the rerun", again.Scheduled, failed.Scheduled)
			equal(t, "the rerun", s.ended(again.ID).Outcome, job.OutcomeSucceeded)
			eventually(t, "the second runs", func() bool {
				return len(s.runs("ordered", job.StateWaiting)) == 0 && f.count(t, evidence.End, "ordered") == 3
			})
		}},
		{"retry: attempts, with the time between them", func(t *testing.T, s *server) {
			s.apply("name: retried\nrun: {shell: " + f.witness("failures=2") + "}\npolicy: {retry: {attempts: 3, backoff: 300ms, factor: 2}}\n")
			run := s.ended(s.runByHand("retried").ID)
			equal(t, "outcome", run.Outcome, job.OutcomeSucceeded)
			if len(run.Attempts) != 3 {
				t.Fatalf("%d attempts, want 3", len(run.Attempts))
			}
			for i, least := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
				if gap := run.Attempts[i+1].Started.Sub(run.Attempts[i].Ended); gap < least || gap > least+patience {
					t.Errorf("attempt %d came after %s, want %s", i+2, gap, least)
				}
			}
		}},
		{"retry: only what it is for", func(t *testing.T, s *server) {
			s.apply(`
name: other-code
run: {shell: 'exit 4'}
policy: {retry: {attempts: 2, backoff: 0s, exit_codes: [3]}}
---
name: only-lost
run: {shell: 'exit 3'}
policy: {retry: {attempts: 2, backoff: 0s, on: lost}}
---
name: this-code
run: {shell: 'exit 3'}
policy: {retry: {attempts: 2, backoff: 0s, exit_codes: [3]}}
`)
			for name, attempts := range map[string]int{"other-code": 1, "only-lost": 1, "this-code": 3} {
				run := s.ended(s.runByHand(name).ID)
				equal(t, "attempts of "+name, len(run.Attempts), attempts)
				equal(t, name, run.Outcome, job.OutcomeFailed)
			}
		}},
		{"retry: as long as it is worth it, and never longer apart than that", func(t *testing.T, s *server) {
			s.apply(`
name: hurried
run: {shell: 'false'}
policy: {retry: {attempts: 100, backoff: 2s, factor: 1, within: 7s}}
---
name: steady
run: {shell: 'false'}
policy: {retry: {attempts: 3, backoff: 100ms, factor: 100, max: 200ms}}
`)
			hurried, steady := s.runByHand("hurried").ID, s.runByHand("steady").ID
			run := s.ended(hurried)
			for tries := 0; len(run.Attempts) < 2 && tries < 5; tries++ { // the machine stood still for too long
				run = s.ended(s.runByHand("hurried").ID)
			}
			if n := len(run.Attempts); n < 2 || n > 4 {
				t.Errorf("%d attempts within 7 seconds, 2 seconds apart", n)
			}
			if !strings.Contains(run.Reason, "more than 7 s after the first") && !strings.Contains(run.Reason, "could not start within 7 s of the first") {
				t.Errorf("it gave up because %q", run.Reason)
			}
			if run = s.ended(steady); len(run.Attempts) != 4 {
				t.Fatalf("%d attempts, want 4", len(run.Attempts))
			}
			for i := range 3 {
				if gap := run.Attempts[i+1].Started.Sub(run.Attempts[i].Ended); gap > patience {
					t.Errorf("attempt %d came after %s, want about 200ms", i+2, gap)
				}
			}
		}},
		{"success: by exit code and by output", func(t *testing.T, s *server) {
			s.apply(`
name: code-3
run: {shell: 'exit 3'}
policy: {success: {exit_codes: [0, 3]}}
---
name: says-done
run: {shell: 'echo all done'}
policy: {success: {match: 'd.ne'}}
---
name: says-nothing
run: {shell: 'echo nothing'}
policy: {success: {match: 'd.ne'}}
`)
			for name, want := range map[string]job.Outcome{"code-3": job.OutcomeSucceeded, "says-done": job.OutcomeSucceeded, "says-nothing": job.OutcomeFailed} {
				equal(t, name, s.ended(s.runByHand(name).ID).Outcome, want)
			}
		}},
		{"success: by the status and the text of an answer", func(t *testing.T, s *server) {
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusAccepted)
				fmt.Fprint(w, "it is ", r.URL.Path[1:])
			}))
			defer site.Close()
			for name, c := range map[string]struct {
				more string
				want job.Outcome
			}{
				"fine":     {"", job.OutcomeSucceeded},
				"accepted": {", expect: [202]", job.OutcomeSucceeded},
				"only-200": {", expect: [200]", job.OutcomeFailed},
				"matches":  {", match: 'is m.t'", job.OutcomeSucceeded},
				"differs":  {", match: 'is well'", job.OutcomeFailed},
			} {
				s.apply(fmt.Sprintf("name: %s\nrun: {http: {url: %q%s}}\n", name, site.URL+"/"+name, c.more))
				run := s.ended(s.runByHand(name).ID)
				equal(t, name+": "+run.Reason, run.Outcome, c.want)
				equal(t, "the status of "+name, run.HTTPStatus, http.StatusAccepted)
			}
		}},
		{"pause_on_failure", func(t *testing.T, s *server) {
			s.apply("name: failing\nschedule: {every: 1s}\nrun: {shell: 'false'}\npolicy: {pause_on_failure: 2}\n")
			eventually(t, "it is paused", func() bool { return s.state("failing").Status.State == job.JobPaused })
			if reason := s.state("failing").Status.PauseReason; reason == "" {
				t.Error("it is paused without a reason")
			}
			failed := slices.DeleteFunc(outcomes(s.done("failing")), func(o job.Outcome) bool { return o != job.OutcomeFailed })
			equal(t, "failed runs", len(failed), 2)
		}},
		{"a pause has a reason and an end", func(t *testing.T, s *server) {
			s.apply("name: resting\nschedule: {every: 1s}\nrun: {shell: " + f.witness() + "}\n")
			var end time.Time
			for lead := ahead; ; lead *= 2 { // the pause may be over before it can be looked at
				end = time.Now().Add(lead)
				_, err := s.Pause(t.Context(), "default", "resting", client.PauseRequest{Reason: "rest", Until: end})
				status := s.state("resting").Status
				if time.Now().After(end) && lead < patience {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "the reason", status.PauseReason, "rest")
				break
			}
			eventually(t, "it runs again", func() bool { return f.count(t, evidence.Start, "resting") > 0 })
			for _, e := range f.events(t) {
				if e.Job == "default/resting" && e.Scheduled.Before(end.Add(-time.Second)) && e.Scheduled.After(end.Add(-2*time.Second)) {
					t.Errorf("the occurrence of %s ran, which fell into the pause until %s", e.Scheduled, end)
				}
			}
		}},
		{"resuming catches up if that is said", func(t *testing.T, s *server) {
			s.apply("name: none\nschedule: {every: 1s}\nrun: {shell: 'true'}\npaused: true\n---\nname: all\nschedule: {every: 1s}\nrun: {shell: 'true'}\npolicy: {overlap: allow}\npaused: true\n")
			paused := time.Now()
			until(t, paused.Add(3*time.Second))
			resumed := map[string]time.Time{}
			for name, missed := range map[string]job.Missed{"none": "", "all": job.MissedAll} {
				resumed[name] = time.Now()
				if _, err := s.Resume(t.Context(), "default", name, client.ResumeRequest{Missed: missed}); err != nil {
					t.Fatal(err)
				}
			}
			before := func(name string) int {
				n := 0
				for _, r := range did(s.done(name)) {
					if r.Scheduled.Before(resumed[name]) && r.Scheduled.After(paused) {
						n++
					}
				}
				return n
			}
			eventually(t, "what fell due meanwhile runs", func() bool { return before("all") >= 2 })
			s.atLeast(1, "none")
			equal(t, "caught up without being asked", before("none"), 0)
		}},
		{"a backfill makes up for what was scheduled before", func(t *testing.T, s *server) {
			schedule, to := far(time.Hour)
			s.apply("name: filled\nschedule: " + schedule + "\nrun: {shell: " + f.witness("slots=1") + "}\n")
			request := client.BackfillRequest{From: to.Add(-4 * time.Hour), To: to, DryRun: true}
			preview, err := s.Backfill(t.Context(), "default", "filled", request, "")
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "runs of the preview, and made", []int{len(preview.Items), preview.Made}, []int{4, 0})
			request.DryRun = false
			backfill, err := s.Backfill(t.Context(), "default", "filled", request, "once")
			if err != nil {
				t.Fatal(err)
			}
			for i, item := range backfill.Items {
				equal(t, "scheduled", item.Scheduled.UTC(), to.Add(time.Duration(i-4)*time.Hour).UTC())
				run := s.ended(item.Run)
				equal(t, "a run of the backfill", []string{string(run.Kind), string(run.Outcome)}, []string{"backfill", "succeeded"})
			}
			again, err := s.Backfill(t.Context(), "default", "filled", request, "once")
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "made by the same request again", again.Made, 0)
			equal(t, "starts", f.count(t, evidence.Start, "filled"), 4)
			equal(t, "beside each other", f.count(t, evidence.Contended, "filled"), 0)
		}},
		{"each strategy finds the one node", func(t *testing.T, s *server) {
			var names []string
			s.soon(func(number int, at time.Time) string {
				var text strings.Builder
				names = nil
				for _, strategy := range []job.Strategy{
					job.StrategyAny, job.StrategyRoundRobin, job.StrategyRandom, job.StrategyFirst, job.StrategyLast, job.StrategyHash,
					job.StrategyLeastRecentlyUsed, job.StrategyLeastFrequentlyUsed, job.StrategyBroadcast,
				} {
					name := fmt.Sprintf("by-%s-%d", strings.ReplaceAll(string(strategy), "_", "-"), number)
					names = append(names, name)
					fmt.Fprintf(&text, "---\nname: %s\nschedule: {at: %s}\nplace: {strategy: %s, sticky: true}\nrun: {shell: 'true'}\n", name, instant(at), strategy)
				}
				return text.String()
			})
			for _, name := range names {
				run := s.atLeast(1, name)[0]
				equal(t, name, []string{string(run.Outcome), run.Node}, []string{"succeeded", "one"})
			}
		}},
		{"many shards of one occurrence", func(t *testing.T, s *server) {
			const shards = 120
			number, _ := s.soon(func(number int, at time.Time) string {
				return fmt.Sprintf("name: split-%d\nschedule: {at: %s}\nplace: {shards: %d}\nrun: {shell: %s}\n",
					number, instant(at), shards, f.witness("fast"))
			})
			name := fmt.Sprint("split-", number)
			seen := map[int]bool{}
			for _, run := range s.atLeast(shards, name) {
				if run.Shards != shards || seen[run.Shard] || run.Outcome != job.OutcomeSucceeded {
					t.Errorf("shard %d of %d is %s, and was there before: %v", run.Shard, run.Shards, run.Outcome, seen[run.Shard])
				}
				seen[run.Shard] = true
			}
			equal(t, "shards", len(seen), shards)
			equal(t, "starts", f.count(t, evidence.Start, name), shards)
		}},
		{"a backfill runs the past in order, once, and ends as a whole", func(t *testing.T, s *server) {
			schedule, to := far(time.Hour)
			s.apply("name: past\nschedule: " + schedule + "\nrun: {shell: " + f.witness("slots=1", "for=100ms") + "}\n")
			ask := client.BackfillRequest{From: to.Add(-3 * time.Hour), To: to}
			for _, want := range []int{3, 0} { // the second one repeats it
				backfill, err := s.Backfill(t.Context(), "default", "past", ask, "")
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "made", backfill.Made, want)
			}
			runs := s.atLeast(3, "past")
			for i, r := range runs {
				equal(t, "the kind and the outcome", []any{r.Kind, r.Outcome}, []any{job.RunBackfill, job.OutcomeSucceeded})
				equal(t, "scheduled", r.Scheduled.UTC(), to.Add(time.Duration(i-3)*time.Hour).UTC())
			}
			for _, e := range f.events(t) {
				if e.Kind == evidence.Contended && e.Job == "default/past" {
					t.Error("two of them ran side by side")
				}
			}

			s.apply("name: wrong\nschedule: " + schedule + "\nrun: {shell: sleep 600}\n")
			if _, err := s.Backfill(t.Context(), "default", "wrong", ask, ""); err != nil {
				t.Fatal(err)
			}
			eventually(t, "one runs and the others wait", func() bool {
				return len(s.runs("wrong", job.StateRunning)) == 1 && len(s.runs("wrong", job.StateWaiting)) == 2
			})
			over, err := s.CancelBackfill(t.Context(), "default", "wrong", client.CancelRequest{Reason: "the wrong week"})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "ended and asked to end", []int{over.Ended, len(over.Running)}, []int{2, 1})
			for _, r := range s.atLeast(3, "wrong") {
				equal(t, "outcome", r.Outcome, job.OutcomeCancelled)
			}
		}},
		{"a follower that is a broadcast runs on each node", func(t *testing.T, s *server) {
			s.apply("name: first\nrun: {shell: 'true'}\n---\nname: everyone\nschedule: {on: first}\nplace: {strategy: broadcast}\nrun: {shell: 'true'}\n")
			s.ended(s.runByHand("first").ID)
			run := s.atLeast(1, "everyone")[0]
			equal(t, "kind, outcome and shares", []any{run.Kind, run.Outcome, run.Shard, run.Shards}, []any{job.RunOn, job.OutcomeSucceeded, 0, 1})
		}},
		{"expect: a run that takes too long is reported while it runs, and marked", func(t *testing.T, s *server) {
			s.apply("name: slow\nrun: {shell: " + f.witness("until="+f.path("slow")) + "}\npolicy: {expect: {duration_below: 1s}}\n")
			id := s.runByHand("slow").ID
			eventually(t, "the log says so", func() bool {
				return s.log.lines("attempt 1 has not ended 1 s after it started") == 1
			})
			eventually(t, "a second since the command began, and not only since its claim", func() bool {
				run := s.run(id)
				return !run.Started.IsZero() && time.Since(run.Started) > time.Second
			})
			f.touch(t, "slow")
			if run := s.ended(id); !strings.HasPrefix(run.Unmet, "attempt 1 took ") || !strings.HasSuffix(run.Unmet, ", expected was less than 1 s") {
				t.Errorf("the mark is %q", run.Unmet)
			}
		}},
		{"expect: what starts and ends late is marked", func(t *testing.T, s *server) {
			s.apply("name: tardy\nrun: {shell: " + f.witness("until="+f.path("tardy")) + "}\npolicy: {overlap: queue, expect: {start_within: 20ms, finish_within: 30ms}}\n")
			first := s.runByHand("tardy").ID
			eventually(t, "the first runs", func() bool { return s.run(first).State == job.StateRunning })
			id := s.runByHand("tardy").ID
			eventually(t, "the second has waited for longer", func() bool {
				run := s.run(id)
				return run.State == job.StateWaiting && time.Since(run.Due) > 100*time.Millisecond
			})
			f.touch(t, "tardy")
			if run := s.ended(id); !strings.Contains(run.Unmet, "it started ") || !strings.Contains(run.Unmet, "it ended ") {
				t.Errorf("the mark is %q", run.Unmet)
			}
		}},
		{"the defaults of a namespace count for a job that says nothing else", func(t *testing.T, s *server) {
			s.apply("namespace: short\nname: endless\nrun: {shell: " + f.witness("for=60s") + "}\n")
			run, err := s.RunJob(t.Context(), "short", "endless", client.RunRequest{}, "")
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "the outcome", s.ended(run.ID).Outcome, job.OutcomeTimedOut)
		}},
		{"what a command is given", func(t *testing.T, s *server) {
			s.apply(`
name: given
run: {shell: 'umask; nice; pwd; cat; echo "$WORD"', umask: "027", nice: 19, dir: /, stdin: "read\n", env: {WORD: said}}
`)
			id := s.runByHand("given").ID
			s.ended(id)
			equal(t, "its mask, priority, directory, input and environment", s.output(id), "0027\n19\n/\nread\nsaid\n")
		}},
		{"shards", func(t *testing.T, s *server) {
			s.apply("name: sharded\nplace: {shards: 3}\nrun: {shell: 'echo {{ .Shard }}/{{ .Shards }}'}\n")
			run := s.runByHand("sharded")
			var parts []string
			for _, id := range append([]job.ID{run.ID}, run.Others...) {
				parts = append(parts, strings.TrimSpace(s.output(s.ended(id).ID)))
			}
			slices.Sort(parts)
			equal(t, "they said", parts, []string{"0/3", "1/3", "2/3"})
		}},
		{"labels, and a run that no node may execute", func(t *testing.T, s *server) {
			s.apply(`
name: here
place: {labels: {disk: ssd}}
run: {shell: 'true'}
---
name: everywhere
place: {strategy: broadcast, labels: {disk: ssd}}
run: {shell: 'true'}
---
name: elsewhere
place: {labels: {disk: tape}}
run: {shell: 'true'}
`)
			for _, name := range []string{"here", "everywhere"} {
				equal(t, name, s.ended(s.runByHand(name).ID).Outcome, job.OutcomeSucceeded)
			}
			run := s.runByHand("elsewhere")
			if state := s.run(run.ID).State; state == job.StateRunning || state == job.StateDone {
				t.Errorf("it is %s", state)
			}
			if _, err := s.Cancel(t.Context(), run.ID, client.CancelRequest{Reason: "nobody"}); err != nil {
				t.Error(err)
			}
			equal(t, "cancelled", s.ended(run.ID).Outcome, job.OutcomeCancelled)
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.show(t, whole.as(t))
		})
	}
}

// check compares what jobs have written with what the server says of them, once
// their runs are over.
func (f *folder) check(t testing.TB, s *server, list ...*watched) {
	t.Helper()
	var h evidence.History
	mine := map[string]bool{}
	for _, w := range list {
		eventually(t, "the runs of "+w.name+" end", func() bool {
			return len(s.runs(w.name, job.StateReady, job.StateWaiting, job.StateRunning)) == 0
		})
		h.Jobs = append(h.Jobs, w.finish())
		mine[w.job.Name] = true
		h.Records = append(h.Records, s.recordsOf(w.name)...)
	}
	for _, e := range f.events(t) {
		if mine[e.Job] {
			h.Events = append(h.Events, e)
		}
	}
	check(t, h)
}

func TestOrderOfPriorityOnAFullNode(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{args: []string{"--capacity", "1"}})
	number, _ := s.soon(func(number int, at time.Time) string {
		var text strings.Builder
		for _, priority := range []int{-5, 7, 0, 50} {
			fmt.Fprintf(&text, "---\nname: p%d-%d\nschedule: {at: %s}\nrun: {shell: %s}\npolicy: {priority: %d}\n",
				priority+100, number, instant(at), f.witness("for=100ms", "slots=1", "lock="+f.path("one")), priority)
		}
		return text.String()
	})
	var order []string
	eventually(t, "all have run", func() bool {
		ended := 0
		order = nil
		for _, e := range f.events(t) {
			name, present := strings.CutSuffix(e.Job, fmt.Sprint("-", number))
			switch {
			case present && e.Kind == evidence.Start:
				order = append(order, name)
			case present && e.Kind == evidence.End:
				ended++
			}
		}
		return ended == 4
	})
	for _, e := range f.events(t) {
		switch e.Kind {
		case evidence.Contended:
			t.Errorf("%s ran beside another, with a capacity of 1", e.Job)
		}
	}
	equal(t, "the order", order, []string{"default/p150", "default/p107", "default/p100", "default/p95"})
}

// TestSoakOfRetention waits for the background, which looks once a minute.
func TestSoakOfRetention(t *testing.T) {
	if os.Getenv("BELFRY_SOAK") == "" {
		t.Skip("takes a minute: make soak runs it")
	}
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	s.apply("name: forgetful\nrun: {shell: 'true'}\npolicy: {keep: {runs: 2}}\n")
	for range 5 {
		s.ended(s.runByHand("forgetful").ID)
	}
	within(t, 5*time.Minute, "the others are forgotten", func() bool { return len(s.runs("forgetful")) == 2 })
}

func TestBootJobsRunOncePerStart(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.serve(t, options{})
	s.apply("name: boot\nschedule: {boot: true}\nrun: {shell: " + f.witness() + "}\n")
	s.stop()
	s = f.serve(t, options{})
	equal(t, "after the first start with it", s.atLeast(1, "boot")[0].Kind, job.RunBoot)
	s.kill()
	s = f.serve(t, options{})
	s.atLeast(2, "boot")
	s.settled()
	equal(t, "starts", f.count(t, evidence.Start, "boot"), 2)
}
