package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// reads counts how often jobs are asked for.
type reads struct {
	*memory.Store
	asked int
}

func (c *reads) JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error) {
	c.asked++
	return c.Store.JobsByUID(ctx, uids)
}

func (c *reads) Recent(ctx context.Context, jobs []job.ID, n int) ([][]store.Record, error) {
	c.asked++
	return c.Store.Recent(ctx, jobs, n)
}

func (c *reads) Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	c.asked++
	return c.Store.Attempts(ctx, q)
}

// The overview is read again each second, with as many round trips however much fails.
func TestFailingJobsAreReadTogether(t *testing.T) {
	b := newBench(t)
	c := &reads{Store: b.store}
	s := b.serviceOn(Config{Store: c})
	for i := range 20 {
		b.put(s, fmt.Sprintf(`{"name": "job-%02d", "run": {"shell": "false"}}`, i))
		b.ends(s, fmt.Sprintf("job-%02d", i), job.OutcomeFailed)
	}
	c.asked = 0
	list, err := s.Attention.List(t.Context(), admin, "")
	if err != nil || len(list) != 20 {
		t.Fatalf("%d jobs need a person (%v)", len(list), err)
	}
	if c.asked > 3 {
		t.Errorf("20 failing jobs take %d reads", c.asked)
	}
	b.ends(s, "job-04", job.OutcomeSucceeded)
	page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{Failing: true, Text: "job-0", Recent: 5}, false)
	if err != nil || len(page.Items) != 9 || page.NextPageToken != "" || len(page.Recent["default/job-09"]) != 1 || page.Recent["default/job-04"] != nil {
		t.Errorf("the failing jobs are %d (%v), with the runs %v", len(page.Items), err, page.Recent)
	}
}

func TestNamespacesAreThoseOfJobsThatTheCallerMaySee(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, name := range []string{"web-2/a", "web/a", "web/b", "crm/c"} {
		namespace, name, _ := strings.Cut(name, "/")
		b.put(s, fmt.Sprintf(`{"namespace": %q, "name": %q, "run": {"shell": "true"}}`, namespace, name))
	}
	for who, want := range map[*Caller]string{
		&admin: "crm web web-2",
		{Name: "vera", Role: store.RoleViewer, Namespace: "web"}: "web",
	} {
		list, err := s.Jobs.Namespaces(t.Context(), *who)
		slices.Sort(list)
		if err != nil || strings.Join(list, " ") != want {
			t.Errorf("%s sees the namespaces %q (%v), want %q", who.Name, list, err, want)
		}
	}
}

func TestLastRunsOfSeveralJobsByName(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	b.put(s, `{"name": "b", "run": {"shell": "true"}}`)
	b.ends(s, "a", job.OutcomeSucceeded)
	b.ends(s, "a", job.OutcomeFailed)
	recent, err := s.Jobs.Recent(t.Context(), admin, []string{"default/a", "default/b", "default/gone"}, 5)
	if err != nil || len(recent["default/a"]) != 2 || recent["default/a"][0].Outcome != job.OutcomeFailed || len(recent["default/b"]) != 0 {
		t.Errorf("the last runs are %+v (%v)", recent, err)
	}
	recent, err = s.Jobs.Recent(t.Context(), Caller{Name: "vera", Role: store.RoleViewer, Namespace: "web"}, []string{"default/a"}, 5)
	if err != nil || len(recent) != 0 {
		t.Errorf("a stranger sees %+v (%v)", recent, err)
	}
}

// A round trip for each of them would take a database some 40 ms.
func TestJobsByDueTimeAreReadInBatches(t *testing.T) {
	b := newBench(t)
	c := &reads{Store: b.store}
	p := &planned{timings: map[job.ID]forecast.Timing{}}
	s := b.serviceOn(Config{Store: c, Planner: p})
	for i := range 60 {
		b.put(s, fmt.Sprintf(`{"name": "job-%02d", "run": {"shell": "true"}, "schedule": {"cron": "0 %d * * *"}}`, i, i%24))
		j, err := store.JobNamed(t.Context(), b.store, "default", fmt.Sprintf("job-%02d", i))
		if err != nil {
			t.Fatal(err)
		}
		p.timings[j.Definition.UID] = forecast.Timing{Schedule: each(time.Duration(i+1) * time.Hour), Jobs: 1}
	}
	c.asked = 0
	page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{Sort: client.ByNext, PageSize: 50}, false)
	if err != nil || len(page.Items) != 50 || page.NextPageToken == "" {
		t.Fatalf("the page has %d jobs (%v)", len(page.Items), err)
	}
	if c.asked > 3 {
		t.Errorf("a page of 50 jobs takes %d reads", c.asked)
	}
	c.asked = 0
	due, err := s.Load.Due(t.Context(), admin, "", b.clock(), b.clock().Add(200*time.Hour), 55)
	if err != nil || len(due) != 55 || !slices.IsSortedFunc(due, func(a, b client.DueJob) int { return a.Due.Compare(b.Due) }) {
		t.Fatalf("due are %d jobs (%v)", len(due), err)
	}
	if c.asked > 1 {
		t.Errorf("55 jobs that fall due take %d reads", c.asked)
	}
	if due, err = s.Load.Due(t.Context(), admin, "", b.clock(), due[9].Due.Add(1), 5); err != nil || len(due) != 5 {
		t.Errorf("of the first ten, %d jobs are due (%v)", len(due), err)
	}
}

// searched is a store whose parts take as long as in a busy one.
type searched struct {
	*memory.Store
	b     *bench
	parts int
}

func (s *searched) ListJobs(ctx context.Context, q store.JobQuery) ([]*store.Job, string, error) {
	s.parts++
	s.b.mu.Lock()
	s.b.now = s.b.now.Add(lookTime)
	s.b.mu.Unlock()
	if s.parts == 3 {
		return s.Store.ListJobs(ctx, store.JobQuery{Limit: q.Limit})
	}
	return nil, "default/a", nil
}

// A page that has found nothing is of no use to its reader, and continues for a while.
func TestAPageOfJobsSearchesOnUntilItHasOne(t *testing.T) {
	b := newBench(t)
	b.put(b.serviceOn(Config{Store: b.store}), `{"name": "found", "run": {"shell": "true"}}`)
	slow := &searched{Store: b.store, b: b}
	s := b.serviceOn(Config{Store: slow})
	page, err := s.Jobs.List(t.Context(), admin, client.JobQuery{Text: "found"}, false)
	if err != nil || len(page.Items) != 1 || slow.parts != 3 {
		t.Errorf("after %d parts the page has %d jobs (%v)", slow.parts, len(page.Items), err)
	}
	slow.parts = 3
	page, err = s.Jobs.List(t.Context(), admin, client.JobQuery{Text: "nothing"}, false)
	if err != nil || len(page.Items) != 0 || page.NextPageToken == "" || slow.parts != 3+int(emptyTime/lookTime) {
		t.Errorf("after %d parts the page has %d jobs (%v)", slow.parts-3, len(page.Items), err)
	}
}

// names returns the names of all pages of a list of jobs.
func (b *bench) names(s *Service, who Caller, q client.JobQuery) (names []string) {
	b.t.Helper()
	for range 100 {
		page, err := s.Jobs.Listed(b.t.Context(), who, q, false)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, j := range page.Items {
			names = append(names, j.Name)
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			return names
		}
	}
	b.t.Fatal("the list does not end")
	return nil
}

func TestJobsThatNeverRan(t *testing.T) {
	b := newBench(t)
	p := &planned{timings: map[job.ID]forecast.Timing{}}
	s := b.serviceOn(Config{Planner: p})
	for i := range 9 {
		name := fmt.Sprintf("job-%d", i)
		b.put(s, fmt.Sprintf(`{"name": %q, "run": {"shell": "true"}, "schedule": {"cron": "0 3 * * *"}}`, name))
		if i%3 != 1 {
			b.ends(s, name, job.OutcomeSucceeded)
		}
		p.plan(t, b, name, time.Duration(9-i)*time.Hour)
	}
	for _, c := range []struct {
		q    client.JobQuery
		want string
	}{
		{client.JobQuery{NeverRan: true}, "job-1 job-4 job-7"},
		{client.JobQuery{NeverRan: true, PageSize: 2}, "job-1 job-4 job-7"},
		{client.JobQuery{NeverRan: true, PageSize: 2, Sort: client.ByNext}, "job-7 job-4 job-1"},
		{client.JobQuery{NeverRan: true, Text: "4", Recent: 5}, "job-4"},
		{client.JobQuery{NeverRan: true, DueBefore: b.clock().Add(3 * time.Hour)}, "job-7"},
	} {
		if got := strings.Join(b.names(s, admin, c.q), " "); got != c.want {
			t.Errorf("%+v lists %q, want %q", c.q, got, c.want)
		}
	}
}

func TestJobsThatFallDueBeforeAMoment(t *testing.T) {
	b := newBench(t)
	p := &planned{timings: map[job.ID]forecast.Timing{}}
	s := b.serviceOn(Config{Planner: p})
	for i := range 6 {
		name := fmt.Sprintf("job-%d", i)
		b.put(s, fmt.Sprintf(`{"namespace": "team-%d", "name": %q, "run": {"shell": "true"}, "schedule": {"cron": "0 3 * * *"}}`, i%2, name))
		if i != 3 {
			p.plan(t, b, fmt.Sprintf("team-%d/%s", i%2, name), time.Duration(6-i)*time.Hour)
		}
	}
	at := b.clock().Add(4 * time.Hour)
	for _, c := range []struct {
		q    client.JobQuery
		want string
	}{
		{client.JobQuery{DueBefore: at.Add(1)}, "job-5 job-4 job-2"},
		{client.JobQuery{DueBefore: at}, "job-5 job-4"},
		{client.JobQuery{DueBefore: at.Add(1), PageSize: 1}, "job-5 job-4 job-2"},
		{client.JobQuery{DueBefore: at.Add(1), Namespace: "team-0", PageSize: 1}, "job-4 job-2"},
		{client.JobQuery{DueBefore: b.clock()}, ""},
	} {
		if got := strings.Join(b.names(s, admin, c.q), " "); got != c.want {
			t.Errorf("%+v lists %q, want %q", c.q, got, c.want)
		}
	}
	b.ends(s, "team-1/job-5", job.OutcomeFailed)
	b.ends(s, "team-0/job-0", job.OutcomeFailed)
	if got := strings.Join(b.names(s, admin, client.JobQuery{DueBefore: at, Failing: true}), " "); got != "job-5" {
		t.Errorf("of those that fail %q are due", got)
	}
	_, err := s.Jobs.Listed(t.Context(), admin, client.JobQuery{DueBefore: at, Sort: client.ByFailure}, false)
	if e := ErrorOf(err); e.Type != client.TypeInvalid || len(e.Errors) != 1 || e.Errors[0].Parameter != "due_before" {
		t.Errorf("with another order the answer is %v", err)
	}
}

func TestJobsByTheirLastFailure(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for i := range 7 {
		b.put(s, fmt.Sprintf(`{"namespace": "team-%d", "name": "job-%d", "run": {"shell": "true"}}`, i%2, i))
	}
	for _, end := range []struct {
		i       int
		outcome job.Outcome
	}{
		{4, job.OutcomeFailed}, {1, job.OutcomeTimedOut}, {2, job.OutcomeFailed}, {4, job.OutcomeLost}, {5, job.OutcomeSucceeded}, {2, job.OutcomeSucceeded},
	} {
		b.ends(s, fmt.Sprintf("team-%d/job-%d", end.i%2, end.i), end.outcome)
		b.pass(time.Second)
	}
	for _, c := range []struct {
		who  Caller
		q    client.JobQuery
		want string
	}{
		{admin, client.JobQuery{}, "job-4 job-2 job-1 job-0 job-6 job-3 job-5"},
		{admin, client.JobQuery{PageSize: 2}, "job-4 job-2 job-1 job-0 job-6 job-3 job-5"},
		{admin, client.JobQuery{PageSize: 3, Namespace: "team-0"}, "job-4 job-2 job-0 job-6"},
		{admin, client.JobQuery{Text: "job-1"}, "job-1"},
		{admin, client.JobQuery{Failing: true}, "job-4 job-1"},
		{Caller{Name: "vera", Role: store.RoleViewer, Namespace: "team-1"}, client.JobQuery{PageSize: 1}, "job-1 job-3 job-5"},
	} {
		c.q.Sort = client.ByFailure
		if got := strings.Join(b.names(s, c.who, c.q), " "); got != c.want {
			t.Errorf("%+v lists %q for %s, want %q", c.q, got, c.who.Name, c.want)
		}
	}
	page, err := s.Jobs.Listed(t.Context(), admin, client.JobQuery{Sort: client.ByFailure, PageSize: 1}, false)
	if err != nil {
		t.Fatal(err)
	}
	b.ends(s, "team-1/job-3", job.OutcomeFailed)
	got := b.names(s, admin, client.JobQuery{Sort: client.ByFailure, PageSize: 3, PageToken: page.NextPageToken})
	if want := "job-2 job-1 job-0 job-6 job-3 job-5"; strings.Join(got, " ") != want {
		t.Errorf("after a failure between two pages the rest is %q, want %q", got, want)
	}
}
