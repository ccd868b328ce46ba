package service

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestGroupsComeFromExecutorsAndJobs(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	ctx := t.Context()
	if err := b.store.Register(ctx, []store.Registration{
		{Kind: store.ExecutorsOfXXL, Group: "idle", Address: "http://10.0.0.7:9999"},
		{Kind: store.ExecutorsOfXXL, Group: "orders", Address: "http://10.0.0.8:9999"},
		{Kind: store.ExecutorsOfXXL, Group: "orders", Address: "http://10.0.0.9:9999"},
	}); err != nil {
		t.Fatal(err)
	}
	at := func(group string) job.RunSpec { return job.RunSpec{XXL: &job.XXL{Group: group, Handler: "h"}} }
	for name, run := range map[string]job.RunSpec{
		"a/one":  at("orders"),
		"b/two":  at("nowhere"),
		"b/flow": {Flow: &job.Flow{Steps: []job.Step{{Name: "x", Run: at("orders")}, {Name: "y", Run: at("orders")}}, Finally: []job.Step{{Name: "z", Run: at("late")}}}},
		"b/else": {Shell: &job.Shell{Command: "true"}},
	} {
		if _, err := store.PutOne(ctx, b.store, store.PutJob{Actor: "ann", Definition: &job.Job{Namespace: name[:1], Name: name[2:], Run: run}}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Executors.List(ctx, admin)
	want := []client.ExecutorGroup{{Group: "idle", Executors: 1}, {Group: "late", Jobs: 1}, {Group: "nowhere", Jobs: 1}, {Group: "orders", Executors: 2, Jobs: 2}}
	if err != nil || !page.AllJobs || !reflect.DeepEqual(page.Groups, want) {
		t.Errorf("the groups are %+v, all jobs %v, %v; want %+v", page.Groups, page.AllJobs, err, want)
	}
	// A caller of a namespace learns of no group that no job there names.
	viewer := Caller{Name: "v", Role: store.RoleViewer, Namespace: "a"}
	page, err = s.Executors.List(ctx, viewer)
	want = []client.ExecutorGroup{{Group: "orders", Executors: 2, Jobs: 1}}
	if len(page.Items) != 2 || page.Items[0].Group != "orders" || page.Items[1].Group != "orders" {
		t.Errorf("for a namespace the executors are %+v", page.Items)
	}
	for group, n := range map[string]int{"orders": 2, "idle": 0} {
		if list, err := s.Executors.Addresses(ctx, viewer, group); err != nil || len(list) != n {
			t.Errorf("for a namespace the group %s has %q, %v", group, list, err)
		}
	}
	if err != nil || page.AllJobs || !reflect.DeepEqual(page.Groups, want) {
		t.Errorf("for a namespace the groups are %+v, all jobs %v, %v; want %+v", page.Groups, page.AllJobs, err, want)
	}
}

// slowJobs is a store whose lists of jobs wait.
type slowJobs struct {
	Store
	wait chan struct{} // nil for none
}

func (s *slowJobs) ListJobs(ctx context.Context, q store.JobQuery) ([]*store.Job, string, error) {
	if s.wait != nil {
		<-s.wait
	}
	return s.Store.ListJobs(ctx, q)
}

// Only the first reader waits for a long search of the groups: others see the last answer meanwhile.
func TestASearchOfGroupsHoldsNoPageUp(t *testing.T) {
	b := newBench(t)
	slow := &slowJobs{Store: b.store}
	s := b.serviceOn(Config{Store: slow})
	put := func(name, group string) {
		t.Helper()
		definition := &job.Job{Namespace: "a", Name: name, Run: job.RunSpec{XXL: &job.XXL{Group: group, Handler: "h"}}}
		if _, err := store.PutOne(t.Context(), b.store, store.PutJob{Actor: "ann", Definition: definition}); err != nil {
			t.Fatal(err)
		}
	}
	groups := func() (names []string) {
		t.Helper()
		page, err := s.Executors.List(t.Context(), admin)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range page.Groups {
			names = append(names, g.Group)
		}
		return names
	}
	put("one", "orders")
	groups()
	b.pass(time.Hour)
	put("two", "late")
	slow.wait = make(chan struct{})
	for range 2 {
		if got := groups(); !slices.Equal(got, []string{"orders"}) {
			t.Errorf("during a search the groups are %q", got)
		}
	}
	close(slow.wait)
	for got := []string(nil); !slices.Equal(got, []string{"late", "orders"}); got = groups() {
		if t.Context().Err() != nil {
			t.Fatalf("after it they are %q", got)
		}
	}
}
