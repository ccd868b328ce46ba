package service

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// scope is the namespaces of a request, in the order of full names; nil is all of them.
// Each is a separate store call, since few callers have a role in several and not in all.
type scope []string

// has reports whether a namespace is in the scope.
func (s scope) has(namespace string) bool { return s == nil || slices.Contains(s, namespace) }

// hasObject reports whether something with this full name is in the scope.
func (s scope) hasObject(full string) bool {
	namespace, _, found := strings.Cut(full, "/")
	return s == nil || found && slices.Contains(s, namespace)
}

// namespaces returns what to ask a store for: "" is all.
func (s scope) namespaces() []string {
	if s == nil {
		return []string{""}
	}
	return s
}

// byFullName orders namespaces like the full names in them.
func byFullName(a, b string) int { return cmp.Compare(a+"/", b+"/") }

// jobs is ListJobs of a store for the scope.
func (s scope) jobs(ctx context.Context, from interface {
	ListJobs(ctx context.Context, q store.JobQuery) ([]*store.Job, string, error)
}, q store.JobQuery) (list []*store.Job, next string, err error) {
	after, limit := q.After, q.Limit
	for i, namespace := range s.namespaces() {
		if namespace != "" && after >= namespace+"0" { // '0' is the letter behind '/'
			continue
		}
		q.Namespace, q.After, q.Limit = namespace, after, limit-len(list)
		part, next, err := from.ListJobs(ctx, q)
		if err != nil {
			return nil, "", err
		}
		list = append(list, part...)
		if next != "" {
			return list, next, nil
		}
		if len(list) == limit && i < len(s)-1 {
			return list, namespace + "0", nil // behind all jobs of the namespace
		}
	}
	return list, "", nil
}

// active is ListActive of a store for the scope.
func (s scope) active(ctx context.Context, from interface {
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
}, q store.ActiveQuery) (list []store.Run, err error) {
	for _, q.Namespace = range s.namespaces() {
		part, err := from.ListActive(ctx, q)
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	if len(s) > 1 {
		slices.SortFunc(list, func(a, b store.Run) int {
			return cmp.Or(a.Due.Compare(b.Due), slices.Compare(a.ID[:], b.ID[:]))
		})
	}
	return list[:min(len(list), q.Limit)], nil
}

// attempts is Attempts of a store for the scope.
func (s scope) attempts(ctx context.Context, from interface {
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
}, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error) {
	if len(s) <= 1 {
		q.Namespace = s.namespaces()[0]
		return from.Attempts(ctx, q)
	}
	for _, q.Namespace = range s {
		part, behind, err := from.Attempts(ctx, q)
		if err != nil {
			return nil, next, err
		}
		list = append(list, part...)
		// The records after it were not examined in this namespace: none may be shown yet.
		if behind != (store.RecordRef{}) && behind.Compare(next) > 0 {
			next = behind
		}
	}
	slices.SortFunc(list, func(a, b store.Record) int { return b.Ref().Compare(a.Ref()) })
	list = slices.DeleteFunc(list, func(r store.Record) bool { return r.Ref().Compare(next) < 0 })
	if len(list) > q.Limit {
		list = list[:q.Limit]
		next = list[q.Limit-1].Ref()
	}
	return list, next, nil
}

// audit is [Audit] of a store for the scope.
func (s scope) audit(ctx context.Context, from auditStore, q store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	if len(s) <= 1 {
		q.Namespace = s.namespaces()[0]
		return from.Audit(ctx, q)
	}
	for _, q.Namespace = range s {
		part, behind, err := from.Audit(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		list, next = append(list, part...), max(next, behind)
	}
	slices.SortFunc(list, func(a, b store.AuditRecord) int { return cmp.Compare(b.Seq, a.Seq) })
	list = slices.DeleteFunc(list, func(r store.AuditRecord) bool { return r.Seq < next })
	if len(list) > q.Limit {
		list = list[:q.Limit]
		next = list[q.Limit-1].Seq
	}
	return list, next, nil
}

// addUp adds the buckets of one namespace to the sum, by their beginning.
func addUp(sum, more []store.Aggregate) []store.Aggregate {
	for i := range more {
		m := &more[i]
		at, found := slices.BinarySearchFunc(sum, m.Start, func(a store.Aggregate, start time.Time) int { return a.Start.Compare(start) })
		if !found {
			sum = slices.Insert(sum, at, store.Aggregate{Start: m.Start, Outcomes: map[job.Outcome]int{}})
		}
		for outcome, n := range m.Outcomes {
			sum[at].Outcomes[outcome] += n
		}
		sum[at].Duration += m.Duration
		sum[at].Longest = max(sum[at].Longest, m.Longest)
	}
	return sum
}
