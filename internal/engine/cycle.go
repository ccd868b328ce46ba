package engine

import (
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Names resolves the names in a job. Upstreams returns the full names of the jobs that one
// follows, none for an unknown job.
type Names struct {
	Calendars job.Calendars
	Upstreams func(full string) ([]string, error)
}

// Follows returns the full names of the jobs that a job follows.
func Follows(j *job.Job) []string {
	var names []string
	for _, up := range j.Schedule.On {
		if full := qualified(j.Namespace, up.Job); !slices.Contains(names, full) {
			names = append(names, full)
		}
	}
	return names
}

// Cycle returns how a job would follow itself, as the chain of jobs back to the job, or
// nil. A run in a cycle would be followed by the next one for ever, without a pause.
func Cycle(full string, follows []string, upstreams func(full string) ([]string, error)) ([]string, error) {
	seen := map[string]bool{}
	var search func(way []string, follows []string) ([]string, error)
	search = func(way []string, follows []string) ([]string, error) {
		for _, up := range follows {
			further := append(slices.Clone(way), up)
			if up == full {
				return further, nil
			}
			if seen[up] {
				continue
			}
			seen[up] = true
			next, err := upstreams(up)
			if err != nil {
				return nil, err
			}
			if found, err := search(further, next); found != nil || err != nil {
				return found, err
			}
		}
		return nil, nil
	}
	return search([]string{full}, follows)
}

// CycleInWords writes what Cycle has found.
func CycleInWords(way []string) string {
	return "job " + strings.Join(way, " follows ")
}
