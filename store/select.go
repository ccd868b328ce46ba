package store

import (
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
	return q.Text == "" || contains(definition.Name, q.Text) || contains(definition.Description, q.Text)
}

// Matches reports whether a record that is within the time and of the job of a query meets
// its other conditions.
func (q *HistoryQuery) Matches(r *Record) bool {
	return (r.Final || !q.FinalOnly) &&
		(!q.Failed || r.HasFailed()) &&
		!slices.Contains(q.Except, r.Run.JobUID) &&
		(!r.Unmet.IsZero() || !q.Unmet) &&
		(q.Reason == "" || r.Attempt.Reason.Has(q.Reason)) &&
		(len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, r.Attempt.Outcome)) &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, r.Run.Kind)) &&
		(q.Node == "" || r.Attempt.Node == q.Node) &&
		(q.Namespace == "" || r.Run.Namespace == q.Namespace) &&
		(q.Text == "" || contains(r.Run.Name, q.Text) || contains(r.Attempt.Reason.String(), q.Text))
}

// Matches reports whether a query counts a record that is within its time.
func (q *AggregateQuery) Matches(r *Record) bool {
	return r.Final && (q.Namespace == "" || r.Run.Namespace == q.Namespace) && (q.Job.IsZero() || r.Run.JobUID == q.Job)
}

// Count adds a record to the counts: to the last bucket, as records mostly come in their
// order, to the one that it belongs to, or to a new one behind them.
func (q *AggregateQuery) Count(list []Aggregate, r *Record) []Aggregate {
	took := time.Duration(0)
	if r.Attempt.Number > 0 {
		took = r.Attempt.Ended.Sub(r.Attempt.Started)
	}
	return q.Add(list, r.Attempt.Ended, r.Attempt.Outcome, r.Count, took)
}

// Add is Count for the parts of a record.
func (q *AggregateQuery) Add(list []Aggregate, ended time.Time, outcome job.Outcome, count int, took time.Duration) []Aggregate {
	start := q.From.Add(ended.Sub(q.From).Truncate(q.Bucket)).UTC()
	at := len(list) - 1
	for at >= 0 && !list[at].Start.Equal(start) {
		at--
	}
	if at < 0 {
		at = len(list)
		list = append(list, Aggregate{Start: start, Outcomes: map[job.Outcome]int{}})
	}
	bucket := &list[at]
	bucket.Outcomes[outcome] += count
	bucket.Duration += took
	bucket.Longest = max(bucket.Longest, took)
	return list
}

// Collector gathers what Recent returns from records that come the latest first.
type Collector struct {
	lists [][]Record
	at    map[job.ID]int
	n     int
	open  int // lists that are not full
}

// Collect begins to gather the latest n records of each job.
func Collect(jobs []job.ID, n int) *Collector {
	c := &Collector{lists: make([][]Record, len(jobs)), at: make(map[job.ID]int, len(jobs)), n: n, open: len(jobs)}
	for i, uid := range jobs {
		c.at[uid] = i
	}
	return c
}

// Add takes the next record, and returns false when no more is wanted.
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

// Matches reports whether a query wants a record, wherever its list begins.
func (q *AuditQuery) Matches(r *AuditRecord) bool {
	return (q.Namespace == "" || strings.HasPrefix(r.Object, q.Namespace+"/")) &&
		(q.Object == "" || r.Object == q.Object) &&
		(q.Actor == "" || r.Actor == q.Actor) &&
		(q.Action == "" || r.Action == q.Action || strings.HasPrefix(r.Action, q.Action+".")) &&
		(q.Group == "" || r.Origin.Group == q.Group) &&
		within(r.Time, q.From, q.To)
}

// contains reports whether a text contains another one, in whatever case.
func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
