package httpapi_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// listAll returns the names and next moments of all pages of a list.
func listAll(s *server, query string, size int) (names []string, next []time.Time) {
	s.t.Helper()
	token := ""
	for pages := 0; ; pages++ {
		page := ok[client.Page[client.Document]](s, "GET", fmt.Sprintf("/api/v1/jobs?%s&page_size=%d&page_token=%s", query, size, url.QueryEscape(token)), "")
		if len(page.Items) > size {
			s.t.Fatalf("a page of %d has %d jobs", size, len(page.Items))
		}
		for _, d := range page.Items {
			j, err := d.Job()
			if err != nil {
				s.t.Fatal(err)
			}
			names, next = append(names, j.FullName()), append(next, j.Status.Next)
		}
		if token = page.NextPageToken; token == "" {
			return names, next
		}
		if pages > 10_000 {
			s.t.Fatal("the list has no end")
		}
	}
}

func TestJobsAreListedByDueTime(t *testing.T) {
	s := newServer(t)
	s.planner.table = map[job.ID]time.Time{}
	const n = 2500
	type due struct {
		engine.Upcoming
		name string
	}
	var scheduled []due
	var unscheduled []string
	for i := range n {
		j := &job.Job{
			Namespace: []string{"big", "big", "big", "small"}[min(3, i%4+i%100/99)], Name: fmt.Sprintf("j%04d", i*7919%n),
			Labels: map[string]string{"third": fmt.Sprint(i % 3)}, Run: job.RunSpec{Shell: &job.Shell{Command: "true"}},
		}
		if i%50 != 0 {
			j.Schedule.Cron = []string{"0 3 * * *"}
		}
		made, err := store.PutOne(context.Background(), s.store, store.PutJob{Definition: j, IfVersion: store.AnyVersion})
		if err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			unscheduled = append(unscheduled, made.Definition.FullName())
			continue
		}
		next := s.clock().Add(time.Duration(1+i*31%97) * time.Minute)
		uid := made.Definition.UID
		s.planner.table[uid] = next
		scheduled = append(scheduled, due{engine.Upcoming{Next: next, Job: uid}, made.Definition.FullName()})
	}
	slices.SortFunc(scheduled, func(a, b due) int { return a.Compare(b.Upcoming) })
	slices.Sort(unscheduled)
	want := func(namespace string) (names []string) {
		for _, d := range scheduled {
			names = append(names, d.name)
		}
		names = append(names, unscheduled...)
		return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, namespace) })
	}
	for _, size := range []int{33, 500} {
		for query, expected := range map[string][]string{
			"sort=next":                              want(""),
			"sort=next&namespace=big":                want("big/"), // more than are sorted at once
			"sort=next&namespace=small":              want("small/"),
			"sort=next&namespace=small&state=active": want("small/"),
			"sort=next&namespace=big&state=paused":   nil,
			"sort=next&namespace=elsewhere":          nil,
			"sort=next&text=j0777&state=active":      {want("")[slices.IndexFunc(want(""), func(s string) bool { return strings.HasSuffix(s, "j0777") })]},
		} {
			names, next := listAll(s, query, size)
			if !slices.Equal(names, expected) {
				t.Errorf("%s in pages of %d: %d jobs, want %d in another order", query, size, len(names), len(expected))
			}
			for i := range next {
				if j := slices.IndexFunc(scheduled, func(d due) bool { return d.name == names[i] }); j >= 0 && !next[i].Equal(scheduled[j].Next) {
					t.Errorf("%s is shown to fall due at %s", names[i], next[i])
				}
			}
		}
	}
	sparse, _ := listAll(s, "sort=next&label=third=1", 100)
	if len(sparse) < n/3 || len(sparse) > n/3+1 {
		t.Errorf("%d of %d jobs have the label", len(sparse), n)
	}
}

func TestARareJobAmongManyIsFoundInBoundedSteps(t *testing.T) {
	s := newServer(t)
	s.planner.table = map[job.ID]time.Time{}
	looks := &countingStore{Store: s.store}
	s.handle(looks)
	for i := range store.JobLookMax + 500 {
		j := &job.Job{Name: fmt.Sprintf("j%05d", i), Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
		if i == store.JobLookMax+100 {
			j.Description = "the only rare one"
		}
		if _, err := store.PutOne(t.Context(), s.store, store.PutJob{Definition: j, IfVersion: store.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	for _, sort := range []string{"name", "next"} {
		names, _ := listAll(s, "text=rare&sort="+sort, 10)
		if want := fmt.Sprintf("default/j%05d", store.JobLookMax+100); len(names) != 1 || names[0] != want {
			t.Errorf("sorted by %s the list is %v", sort, names)
		}
	}
	if page := ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs?text=rare", ""); len(page.Items) != 1 {
		t.Errorf("the first page has %d jobs", len(page.Items))
	}
	// A list that never ends ends at some point, whatever the query.
	for _, sort := range []string{"name", "next"} {
		looks.endless, looks.calls, looks.after = true, 0, nil
		page := ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs?text=rare&page_size=1&sort="+sort, "")
		if page.NextPageToken == "" || looks.calls > 100 {
			t.Errorf("sorted by %s: the store was asked %d times, and the token is %q", sort, looks.calls, page.NextPageToken)
		}
		calls := looks.calls
		ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs?text=rare&page_size=1&sort="+sort+"&page_token="+page.NextPageToken, "")
		if got := looks.after[calls]; got == "" || got != looks.after[calls-1]+"x" {
			t.Errorf("sorted by %s: the second page begins behind %q, and the first has looked at %q last", sort, got, looks.after[calls-1])
		}
	}
}

// However few of what a page could have were found by then, it is given in time.
func TestSlowPageIsReturnedPartially(t *testing.T) {
	s := newServer(t)
	s.planner.table = map[job.ID]time.Time{}
	slow := &countingStore{Store: s.store, endless: true, took: func() { s.pass(time.Second) }}
	s.handle(slow)
	for _, path := range []string{"/api/v1/jobs?text=rare", "/api/v1/jobs?text=rare&sort=next", "/api/v1/runs?text=rare"} {
		slow.calls = 0
		page := ok[client.Page[any]](s, "GET", path, "")
		if page.NextPageToken == "" || slow.calls > 2 {
			t.Errorf("%s: the store was asked %d times, and the token is %q", path, slow.calls, page.NextPageToken)
		}
	}
}

// countingStore counts the questions for jobs and attempts. Once it is endless, it
// finds none and says that there are more.
type countingStore struct {
	service.Store
	endless bool
	took    func() // called by each if it is set
	calls   int
	after   []string // what each about jobs was about
}

func (s *countingStore) Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error) {
	s.calls++
	if s.took != nil {
		s.took()
	}
	if s.endless {
		return nil, store.RecordRef{Ended: time.Unix(1, 0)}, nil
	}
	return s.Store.Attempts(ctx, q)
}

func (s *countingStore) ListJobs(ctx context.Context, q store.JobQuery) ([]*store.Job, string, error) {
	s.calls++
	s.after = append(s.after, q.After)
	if s.took != nil {
		s.took()
	}
	if s.endless {
		return nil, q.After + "x", nil
	}
	return s.Store.ListJobs(ctx, q)
}

func TestPageTokensBelongToOneList(t *testing.T) {
	s := newServer(t)
	s.planner.table = map[job.ID]time.Time{}
	for _, name := range []string{"a", "b"} {
		s.call("POST", "/api/v1/jobs", strings.ReplaceAll(nightly, "nightly", name))
	}
	for one, other := range map[string]string{"name": "next", "next": "name"} {
		page := ok[client.Page[client.Document]](s, "GET", "/api/v1/jobs?page_size=1&sort="+one, "")
		if page.NextPageToken == "" {
			t.Fatalf("sorted by %s there is one page", one)
		}
		p := s.refused(client.TypeInvalid, 422, "GET", "/api/v1/jobs?page_size=1&sort="+other+"&page_token="+url.QueryEscape(page.NextPageToken), "")
		if len(p.Errors) != 1 || p.Errors[0].Parameter != "page_token" {
			t.Errorf("errors %+v", p.Errors)
		}
	}
}
