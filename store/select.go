package store

import (
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

// contains tells whether a text contains another one, in whatever case.
func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
