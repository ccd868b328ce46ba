package service

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A span selects ended runs by their end, and the others by their due time.
func TestRunsOfASpanOfTime(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	begun := b.clock()
	for i := range 2 {
		b.put(s, fmt.Sprintf(`{"name": "ended-%d", "run": {"shell": "true"}}`, i))
		b.ends(s, fmt.Sprintf("ended-%d", i), job.OutcomeSucceeded) // takes a minute
	}
	for i := range 3 {
		b.runOf(s, fmt.Sprintf(`{"name": "ready-%d", "run": {"shell": "true"}}`, i))
		b.pass(time.Minute)
	}
	at := func(minutes int) time.Time { return begun.Add(time.Duration(minutes) * time.Minute) }
	for _, c := range []struct {
		q    client.RunQuery
		want string
	}{
		{client.RunQuery{}, "ready-0 ready-1 ready-2 ended-1 ended-0"},
		{client.RunQuery{From: at(1)}, "ready-0 ready-1 ready-2 ended-1"},
		{client.RunQuery{From: at(3)}, "ready-1 ready-2"},
		{client.RunQuery{To: at(3)}, "ready-0 ended-1 ended-0"},
		{client.RunQuery{From: at(1), To: at(4)}, "ready-0 ready-1 ended-1"},
		{client.RunQuery{From: at(1), To: at(4), PageSize: 1}, "ready-0 ready-1 ended-1"},
		{client.RunQuery{From: at(1), States: []job.RunState{job.StateDone}}, "ended-1"},
		{client.RunQuery{From: at(1), Outcomes: []job.Outcome{job.OutcomeSucceeded}}, "ended-1"},
	} {
		var names []string
		for {
			page, err := s.Runs.List(t.Context(), admin, c.q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Items {
				names = append(names, strings.TrimPrefix(page.Items[i].Job, "default/"))
			}
			if c.q.PageToken = page.NextPageToken; c.q.PageToken == "" {
				break
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v lists %q, want %q", c.q, got, c.want)
		}
	}
}

// A job that failed long ago is found behind whatever succeeded since.
func TestFailuresAreFoundBehindManyRunsThatSucceeded(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, name := range []string{"monthly", "busy", "well"} {
		b.put(s, fmt.Sprintf(`{"name": %q, "run": {"shell": "true"}}`, name))
	}
	b.ends(s, "monthly", job.OutcomeFailed)
	b.ends(s, "well", job.OutcomeFailed)
	b.pass(20 * 24 * time.Hour)
	b.ends(s, "well", job.OutcomeSucceeded)
	for range 3 {
		b.ends(s, "busy", job.OutcomeSucceeded)
	}
	page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{Failing: true}, false)
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%d jobs fail (%v)", len(page.Items), err)
	}
	if got := strings.Join(b.names(s, admin, client.JobQuery{Sort: client.ByFailure}), " "); got != "well monthly busy" {
		t.Errorf("by their last failure jobs are %q", got)
	}
}

// Jobs whose last run succeeded do not take the room of those that fail.
func TestJobsThatRecoveredDoNotHideThoseThatFail(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "fails", "run": {"shell": "false"}}`)
	b.ends(s, "fails", job.OutcomeFailed)
	for i := range failedPart + 2 {
		name := fmt.Sprintf("recovered-%03d", i)
		b.put(s, fmt.Sprintf(`{"name": %q, "run": {"shell": "true"}}`, name))
		b.ends(s, name, job.OutcomeFailed)
		b.ends(s, name, job.OutcomeSucceeded)
	}
	if got := b.names(s, admin, client.JobQuery{Failing: true}); len(got) != 1 || got[0] != "fails" {
		t.Errorf("jobs that fail are %q", got)
	}
}

// The next runs of many chains are read at once, and each job has its own.
func TestNextRunsOfChainsAreReadTogether(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for i := range chainsMax + 3 {
		b.put(s, fmt.Sprintf(`{"name": "chain-%d", "schedule": {"after_end": "%dm"}, "run": {"shell": "true"}}`, i, i+1))
	}
	page, err := s.Jobs.Listed(t.Context(), admin, client.JobQuery{}, true)
	if err != nil || len(page.Items) != chainsMax+3 {
		t.Fatalf("%d jobs (%v)", len(page.Items), err)
	}
	for _, j := range page.Items {
		one, err := s.Jobs.find(t.Context(), admin, Read, Name{j.Namespace, j.Name})
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.Jobs.nextInChain(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if (want == nil) != j.Status.Next.IsZero() || want != nil && !want.Scheduled.Equal(j.Status.Next) {
			t.Errorf("%s is due at %s in a list, and alone it is %+v", j.Name, j.Status.Next, want)
		}
	}
}

func TestAnUnknownRunSaysHowLongRunsAreKept(t *testing.T) {
	b := newBench(t)
	kept := store.Retention{For: 90 * 24 * time.Hour}
	s := b.serviceOn(Config{Kept: func() store.Retention { return kept }})
	id := b.id()
	hint := func() string {
		t.Helper()
		_, err := s.Runs.Get(t.Context(), admin, id)
		e := ErrorOf(err)
		if e.Type != client.TypeNotFound || e.Detail.String() != "there is no run "+id.String() {
			t.Errorf("the answer is %s: %s", e.Type, e.Detail)
		}
		return e.Hint.String()
	}
	if got, want := hint(), "its id was made on 2026-11-20; this server keeps finished runs for 90 d, unless policy.keep of the job differs"; got != want {
		t.Errorf("the hint is %q, want %q", got, want)
	}
	kept = store.Retention{Runs: 500} // as after a reload
	if got, want := hint(), "its id was made on 2026-11-20; this server keeps finished runs forever, at most 500 of a job, unless policy.keep of the job differs"; got != want {
		t.Errorf("the hint is %q, want %q", got, want)
	}
}

// A run says how many attempts the version allows that it runs under, and when the running one ends at the latest.
func TestARunSaysWhenItsAttemptEndsAtTheLatest(t *testing.T) {
	for _, c := range []struct {
		run, policy string
		most        int
		within      time.Duration // of the start; 0 for no bound
	}{
		{`"shell": "true"`, `"timeout": "1h", "kill_grace": "5s", "retry": {"attempts": 2}`, 3, time.Hour + 5*time.Second},
		{`"shell": "true"`, `"timeout": "1h", "kill_grace": "0s"`, 1, time.Hour},
		{`"shell": "true"`, `"retry": {"attempts": 1}`, 2, 0},
		{`"http": {"url": "https://example.org"}`, `"timeout": "1h"`, 1, time.Hour + 10*time.Second},
		{`"http": {"url": "https://example.org", "callback": true}`, `"timeout": "1h"`, 1, 0},
	} {
		b := newBench(t)
		s := b.serviceOn(Config{})
		document := fmt.Sprintf(`{"name": "a", "run": {%s}, "policy": {%s}}`, c.run, c.policy)
		run := b.runOf(s, document)
		check := func(when string, want time.Time) {
			t.Helper()
			got, err := s.Runs.Get(t.Context(), admin, run.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got.AttemptsMax != c.most || !got.Deadline.Equal(want) {
				t.Errorf("%s: %s it may have %d attempts and ends by %s, want %d and %s", document, when, got.AttemptsMax, got.Deadline, c.most, want)
			}
		}
		check("before its start", time.Time{})
		b.start(run)
		var want time.Time
		if c.within > 0 {
			want = b.clock().Add(c.within)
		}
		b.pass(time.Minute)
		check("while it runs", want)
		draft, err := ReadDraft([]byte(fmt.Sprintf(`{"name": "a", "run": {%s}, "policy": {"timeout": "5m", "retry": {"attempts": 9}}}`, c.run)), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Jobs.Put(t.Context(), admin, nameOf(draft.Job), draft, Expect{}); err != nil {
			t.Fatal(err)
		}
		check("under another version of its job", want)
		b.finish(run, job.OutcomeSucceeded)
		check("after its end", time.Time{})
	}
}

// A run is marked if it was under way in the minute before the store was seen to have lost steps.
func TestRunsAreMarkedThatALossMayHaveTouched(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{MayLose: true})
	ended := func(name string) job.ID {
		run := b.runOf(s, fmt.Sprintf(`{"name": %q, "run": {"shell": "true"}}`, name))
		b.start(run)
		b.finish(run, job.OutcomeSucceeded)
		return run.ID
	}
	old := ended("old")
	b.pass(2 * lossBefore)
	recent, open := ended("recent"), b.runOf(s, `{"name": "open", "run": {"shell": "true"}}`).ID
	b.pass(time.Second)
	at := b.clock()
	note := store.Note{Name: LossNotes + "one", Text: Losses{Steps: 2}.Add(3, at)}
	if _, err := b.store.PutNote(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Second)
	later := ended("later")
	for id, marked := range map[job.ID]bool{old: false, recent: true, open: true, later: false} {
		run, err := s.Runs.Get(t.Context(), admin, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(run.StoreLoss, "the store lost steps at "+at.UTC().Format(time.RFC3339)); got != marked || marked && run.StoreLossCode == "" {
			t.Errorf("%s is marked by %q (%s), want a mark: %v", run.Job, run.StoreLoss, run.StoreLossCode, marked)
		}
	}
	l, err := ParseLosses(note)
	if err != nil || l.Steps != 5 || len(l.At) != 1 {
		t.Errorf("the note has %+v, %v", l, err)
	}
	for range 2 * lossesKept {
		note.Text = l.Add(1, at)
		if l, err = ParseLosses(note); err != nil {
			t.Fatal(err)
		}
	}
	if l.Steps != 5+2*lossesKept || len(l.At) != lossesKept {
		t.Errorf("after many losses the note has %d steps and %d moments", l.Steps, len(l.At))
	}
}
