package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/forecast"
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
