package store

import (
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Matches tells whether the labels and the text of a query match the definition
// of a job: what a store has to look into definitions for. It is here so that
// all mean the same.
func (q *JobQuery) Matches(definition *job.Job) bool {
	for key, value := range q.Labels {
		if has, ok := definition.Labels[key]; !ok || has != value {
			return false
		}
	}
	return q.Text == "" || contains(definition.Name, q.Text) || contains(definition.Description, q.Text)
}

// Matches tells whether a query wants a record that lies within its time, and is
// of its job: the rest of the conditions.
func (q *HistoryQuery) Matches(r *Record) bool {
	return (r.Final || !q.FinalOnly) &&
		(r.Unmet != "" || !q.Unmet) &&
		(len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, r.Attempt.Outcome)) &&
		(q.Namespace == "" || r.Run.Namespace == q.Namespace) &&
		(q.Text == "" || contains(r.Run.Name, q.Text) || contains(r.Attempt.Reason, q.Text))
}

// Matches tells whether a query wants a record, wherever its list begins.
func (q *AuditQuery) Matches(r *AuditRecord) bool {
	return (q.Namespace == "" || strings.HasPrefix(r.Object, q.Namespace+"/")) &&
		(q.Object == "" || r.Object == q.Object) &&
		(q.Actor == "" || r.Actor == q.Actor) &&
		(q.From.IsZero() || !r.Time.Before(q.From)) &&
		(q.To.IsZero() || r.Time.Before(q.To))
}

// contains tells whether a text contains another one, in whatever case.
func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
