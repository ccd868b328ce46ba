package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Names resolves the names in a job. Upstreams returns the full names of the upstream jobs
// of a job, none for an unknown one.
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

// StartedBy returns the outcomes of an upstream job's runs that start a job.
func StartedBy(j *job.Job, upstream string) []job.UpstreamOn {
	var on []job.UpstreamOn
	for _, up := range j.Schedule.On {
		outcome := cmp.Or(up.Outcome, job.OnSucceeded)
		if qualified(j.Namespace, up.Job) == upstream && !slices.Contains(on, outcome) {
			on = append(on, outcome)
		}
	}
	return on
}

// Cycle returns a cycle of followers through a job, as the chain of jobs back to it, or nil. In a
// cycle each run would start another one without end.
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

// CycleInWords describes a result of [Cycle].
func CycleInWords(way []string) string {
	return "job " + strings.Join(way, " follows ")
}
