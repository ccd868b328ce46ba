package store

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Matches reports whether the labels and the text of a query match the definition of a job,
// the conditions that a store must check in definitions. All stores share it so that they
// agree.
func (q *JobQuery) Matches(definition *job.Job) bool {
	for key, value := range q.Labels {
		if has, ok := definition.Labels[key]; !ok || has != value {
			return false
		}
	}
	if q.Work != "" && !definition.Run.Does(q.Work) {
		return false
	}
	return q.Text == "" || contains(definition.Name, q.Text) || contains(definition.Title, q.Text) || contains(definition.Description, q.Text)
}

// Matches reports whether a record within the time and job of a query meets its other conditions.
func (q *HistoryQuery) Matches(r *Record) bool {
	return (r.Final || !q.FinalOnly) &&
		(!q.Failed || r.HasFailed()) &&
		!slices.Contains(q.Except, r.Run.JobUID) &&
		(!r.Unmet.IsZero() || !q.Unmet) &&
		(q.Fingerprint == 0 || r.Attempt.Fingerprint == q.Fingerprint) &&
		(q.Reason == "" || r.Attempt.Reason.Has(q.Reason)) &&
		(len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, r.Attempt.Outcome)) &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, r.Run.Kind)) &&
		(q.Node == "" || r.Attempt.Node == q.Node) &&
		(q.Namespace == "" || r.Run.Namespace == q.Namespace) &&
		(q.Text == "" || contains(r.Run.Name, q.Text) || contains(r.Attempt.Reason.String(), q.Text) || contains(r.Attempt.Cause, q.Text))
}

// Matches reports whether a query counts a record that is within its time.
func (q *AggregateQuery) Matches(r *Record) bool {
	return r.Final && (q.Namespace == "" || r.Run.Namespace == q.Namespace) && (q.Job.IsZero() || r.Run.JobUID == q.Job) &&
		(q.Jobs == nil || slices.Contains(q.Jobs, r.Run.JobUID))
}

// Counter adds up what [Aggregate] returns, from records or their parts in any order.
type Counter struct {
	q    *AggregateQuery
	at   map[countKey]int
	list []Aggregate
}

type countKey struct {
	start int64
	job   job.ID
}

// Counter returns an empty counter.
func (q *AggregateQuery) Counter() *Counter { return &Counter{q: q, at: map[countKey]int{}} }

// Record adds a record.
func (c *Counter) Record(r *Record) {
	took := time.Duration(0)
	if r.Attempt.Number > 0 {
		took = r.Attempt.Ended.Sub(r.Attempt.Started)
	}
	c.Add(r.Attempt.Ended, r.Run.JobUID, r.Attempt.Outcome, r.Count, took, took)
}

// Add adds records of a job with one outcome, which ended in one bucket.
func (c *Counter) Add(ended time.Time, of job.ID, outcome job.Outcome, count int, took, longest time.Duration) {
	if !c.q.ByJob {
		of = job.ID{}
	}
	start := c.q.From.Add(ended.Sub(c.q.From).Truncate(c.q.Bucket)).UTC()
	key := countKey{start.UnixNano(), of}
	at, ok := c.at[key]
	if !ok {
		at = len(c.list)
		c.at[key] = at
		c.list = append(c.list, Aggregate{Start: start, Job: of, Outcomes: map[job.Outcome]int{}})
	}
	bucket := &c.list[at]
	bucket.Outcomes[outcome] += count
	bucket.Duration += took
	bucket.Longest = max(bucket.Longest, longest)
}

// Counts adds what another history has counted for the same query.
func (c *Counter) Counts(list []Aggregate) {
	for i := range list {
		a := &list[i]
		for outcome, count := range a.Outcomes {
			c.Add(a.Start, a.Job, outcome, count, 0, 0)
		}
		bucket := &c.list[c.at[countKey{a.Start.UnixNano(), a.Job}]]
		bucket.Duration += a.Duration
		bucket.Longest = max(bucket.Longest, a.Longest)
	}
}

// List returns the counts in the order of their buckets and jobs; nil without any.
func (c *Counter) List() []Aggregate {
	slices.SortFunc(c.list, func(a, b Aggregate) int {
		return cmp.Or(a.Start.Compare(b.Start), bytes.Compare(a.Job[:], b.Job[:]))
	})
	return c.list
}

// Collector collects the results of Recent from records in descending order.
type Collector struct {
	lists [][]Record
	at    map[job.ID]int
	n     int
	open  int // number of lists that are not full
}

// Collect begins to gather the latest n records of each job.
func Collect(jobs []job.ID, n int) *Collector {
	c := &Collector{lists: make([][]Record, len(jobs)), at: make(map[job.ID]int, len(jobs)), n: n, open: len(jobs)}
	for i, uid := range jobs {
		c.at[uid] = i
	}
	return c
}

// Add takes the next record, and returns false once all lists are full.
func (c *Collector) Add(r *Record) bool {
	i, ok := c.at[r.Run.JobUID]
	if ok && r.Final && r.Attempt.Outcome != job.OutcomeWithdrawn && len(c.lists[i]) < c.n {
		if c.lists[i] = append(c.lists[i], *r); len(c.lists[i]) == c.n {
			c.open--
		}
	}
	return c.open > 0
}

// Lists returns the collected records, in the order of the jobs.
func (c *Collector) Lists() [][]Record { return c.lists }

// Matches reports whether a query selects a record, wherever its list begins.
func (q *AuditQuery) Matches(r *AuditRecord) bool {
	return (q.Namespace == "" || strings.HasPrefix(r.Object, q.Namespace+"/")) &&
		(q.Object == "" || r.Object == q.Object) &&
		(q.Actor == "" || r.Actor == q.Actor) &&
		(q.Action == "" || r.Action == q.Action || strings.HasPrefix(r.Action, q.Action+".")) &&
		(q.Group == "" || r.Origin.Group == q.Group) &&
		within(r.Time, q.From, q.To)
}

// contains reports whether a text contains another, ignoring case.
func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
