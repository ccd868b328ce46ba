package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// person reads in a, and runs in b; web is as b, and c is not for them.
var person = Caller{Name: "sso:ann", Roles: map[string]store.Role{"a": store.RoleViewer, "b": store.RoleRunner, "a-x": store.RoleAdmin}}

func TestRolesOfAPersonDifferByNamespace(t *testing.T) {
	for _, c := range []struct {
		right     Right
		namespace string
		want      string
	}{
		{Read, "a", ""}, {Operate, "a", "sso:ann is viewer in the namespace a, and this needs runner"},
		{Read, "b", ""}, {Operate, "b", ""}, {Define, "b", "sso:ann is runner in the namespace b, and this needs admin"},
		{Define, "a-x", ""}, {Read, "c", "sso:ann is viewer in a, admin in a-x, runner in b, and this is in another namespace"},
		{Administer, "a-x", "sso:ann is viewer in a, admin in a-x, runner in b, and this is about all of the server"},
		{WorkAsWorker, "b", "sso:ann is viewer in a, admin in a-x, runner in b, and this needs worker"},
	} {
		got := ""
		if err := person.MayIn(c.right, c.namespace); err != nil {
			got = ErrorOf(err).Detail.String()
		}
		if got != c.want {
			t.Errorf("%v in %s: %q, want %q", c.right, c.namespace, got, c.want)
		}
	}
	all := Caller{Name: "x", Roles: map[string]store.Role{"": store.RoleViewer, "b": store.RoleAdmin}}
	if all.MayIn(Read, "z") != nil || all.MayIn(Define, "b") != nil || all.MayIn(Define, "z") == nil || all.May(Observe) != nil || all.May(Administer) == nil {
		t.Error("a role in all namespaces and another one in one of them do not add up")
	}
	none := Caller{Name: "x", Roles: map[string]store.Role{}}
	if none.May(Read) == nil || none.MayIn(Read, "a") == nil || none.sees("a/x") {
		t.Error("a person without roles may read")
	}
}

// shelf is a store whose answers are slices, in parts of at most most.
type shelf struct {
	jobs    []string
	records []store.Record
	audit   []store.AuditRecord
	most    int // that one call looks at
}

func (s *shelf) ListJobs(_ context.Context, q store.JobQuery) (list []*store.Job, next string, err error) {
	looked := 0
	last := ""
	for _, full := range s.jobs {
		namespace, name, _ := strings.Cut(full, "/")
		if full <= q.After || q.Namespace != "" && namespace != q.Namespace {
			continue
		}
		if looked == s.most || len(list) == q.Limit {
			return list, last, nil
		}
		looked, last = looked+1, full
		list = append(list, &store.Job{Definition: &job.Job{Namespace: namespace, Name: name}})
	}
	return list, "", nil
}

func (s *shelf) Attempts(_ context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	looked := 0
	for i := range s.records {
		r := &s.records[i]
		if q.Before != (store.RecordRef{}) && r.Ref().Compare(q.Before) >= 0 {
			continue
		}
		if looked == s.most || len(list) == q.Limit {
			return list, next, nil
		}
		looked, next = looked+1, r.Ref()
		if q.Namespace == "" || r.Run.Namespace == q.Namespace {
			list = append(list, *r)
		}
	}
	return list, store.RecordRef{}, nil
}

func (s *shelf) Audit(_ context.Context, q store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	looked := 0
	for i := range s.audit {
		r := &s.audit[i]
		if q.Before != 0 && r.Seq >= q.Before {
			continue
		}
		if looked == s.most || len(list) == q.Limit {
			return list, next, nil
		}
		looked, next = looked+1, r.Seq
		if q.Matches(r) {
			list = append(list, *r)
		}
	}
	return list, 0, nil
}

// TestListsOfSeveralNamespacesMissNothing reads lists in pages of all sizes, from stores that
// look at little at a time.
func TestListsOfSeveralNamespacesMissNothing(t *testing.T) {
	s := &shelf{}
	begin := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	var jobs, records, audit []string
	for i := range 60 {
		namespace := []string{"a", "b", "c", "a-x"}[i*7%4]
		full := fmt.Sprintf("%s/job-%02d", namespace, i)
		s.jobs = append(s.jobs, full)
		s.records = append(s.records, store.Record{Run: job.Run{Namespace: namespace, Name: full}, Attempt: job.Attempt{Ended: begin.Add(-time.Duration(i/3) * time.Second), Number: 60 - i}})
		s.audit = append(s.audit, store.AuditRecord{Seq: int64(60 - i), Object: full})
		if namespace != "c" {
			jobs, records, audit = append(jobs, full), append(records, full), append(audit, full)
		}
	}
	slices.Sort(s.jobs)
	slices.Sort(jobs)
	of, err := person.reads("")
	if err != nil || fmt.Sprint(of) != "[a-x a b]" {
		t.Fatalf("the namespaces are %v, %v", of, err)
	}
	for _, s.most = range []int{1, 3, 1000} {
		for _, limit := range []int{1, 2, 7, 100} {
			var got []string
			for q := (store.JobQuery{Limit: limit}); ; {
				list, next, err := of.jobs(t.Context(), s, q)
				if err != nil || len(list) > limit {
					t.Fatalf("%d jobs of %d, %v", len(list), limit, err)
				}
				for _, j := range list {
					got = append(got, j.Definition.Namespace+"/"+j.Definition.Name)
				}
				if q.After = next; next == "" {
					break
				}
			}
			same(t, "jobs", s.most, limit, got, jobs)
			got = nil
			for q := (store.HistoryQuery{Limit: limit}); ; {
				list, next, err := of.attempts(t.Context(), s, q)
				if err != nil || len(list) > limit {
					t.Fatalf("%d records of %d, %v", len(list), limit, err)
				}
				for i := range list {
					got = append(got, list[i].Run.Name)
				}
				if q.Before = next; next == (store.RecordRef{}) {
					break
				}
			}
			same(t, "records", s.most, limit, got, records)
			got = nil
			for q := (store.AuditQuery{Limit: limit}); ; {
				list, next, err := of.audit(t.Context(), s, q)
				if err != nil || len(list) > limit {
					t.Fatalf("%d changes of %d, %v", len(list), limit, err)
				}
				for i := range list {
					got = append(got, list[i].Object)
				}
				if q.Before = next; next == 0 {
					break
				}
			}
			same(t, "audit", s.most, limit, got, audit)
		}
	}
}

func same(t *testing.T, what string, most, limit int, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s, %d looked at and %d at a time: %v, want %v", what, most, limit, got, want)
	}
}

func TestBucketsOfSeveralNamespacesAddUp(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 23, 9, minute, 0, 0, time.UTC) }
	ok := func(minute, n int, took time.Duration) store.Aggregate {
		return store.Aggregate{Start: at(minute), Outcomes: map[job.Outcome]int{job.OutcomeSucceeded: n}, Duration: took, Longest: took}
	}
	a := []store.Aggregate{ok(1, 2, time.Second), ok(3, 1, time.Second)}
	sum := addUp(addUp(nil, a), []store.Aggregate{ok(0, 1, 0), ok(3, 4, time.Minute)})
	if got := fmt.Sprint(len(sum), sum[0].Start.Minute(), sum[2].Outcomes[job.OutcomeSucceeded], sum[2].Duration, sum[2].Longest, a[1].Outcomes); got != "3 0 5 1m1s 1m0s map[succeeded:1]" {
		t.Errorf("the sum is %s", got)
	}
}
