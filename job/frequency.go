package job

import (
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

const (
	// lostAfterMost is the default lost_after of a job that is due every minute or less
	// often: a failover of the database must not end a long run.
	lostAfterMost = Duration(60 * time.Second)
	// lostAfterFrequent is the default lost_after of a job that is due more often:
	// waiting for a dead node costs it more than the loss of a run. It is raised to the
	// minimum for kill_grace.
	lostAfterFrequent = Duration(20 * time.Second)
	// frequent is the interval between occurrences below which a job is frequent.
	frequent = time.Minute
	// frequencySample is how many occurrences of cron expressions with seconds are examined:
	// occurrences of one minute are adjacent.
	frequencySample = 100
)

// lostAfter returns the default of lost_after.
func (j *Job) lostAfter(killGrace Duration) Duration {
	least := killGrace + lossMargin + silenceMax
	if j.isFrequent() {
		return max(lostAfterFrequent, least)
	}
	return max(lostAfterMost, least)
}

// isFrequent reports whether occurrences can be less than a minute apart. Calendars and
// bounds only reduce them, and are ignored.
func (j *Job) isFrequent() bool {
	s := &j.Schedule
	switch {
	case s.Every > 0:
		return time.Duration(s.Every) < frequent
	case s.AfterEnd > 0:
		return time.Duration(s.AfterEnd) < frequent
	case len(s.Cron) > 0:
		return s.hasSeconds() && isDense(j.crons())
	}
	at := slices.SortedFunc(slices.Values(s.At), time.Time.Compare)
	for i := range at[min(1, len(at)):] {
		if gap := at[i+1].Sub(at[i]); gap > 0 && gap < frequent {
			return true
		}
	}
	return false
}

// hasSeconds reports whether an expression may match more than one second of a minute.
// Expressions of five fields, which most jobs have, match the first.
func (s *Schedule) hasSeconds() bool {
	for _, expression := range s.Cron {
		fields := strings.Fields(zonePrefix.ReplaceAllString(expression, ""))
		if len(fields) > 5 || len(fields) > 0 && strings.EqualFold(fields[0], "@every") {
			return true
		}
	}
	return false
}

// crons returns the union of the valid expressions; validation reports invalid ones.
func (j *Job) crons() cron.Schedule {
	var list []cron.Schedule
	for _, expression := range j.Schedule.Cron {
		if one, err := cron.ParseSchedule(expression, cron.WithJob(namespaceOf(j.Namespace), j.Name)); err == nil {
			list = append(list, one)
		}
	}
	return cron.Union(list...)
}

// isDense reports whether two of the first occurrences are less than a minute apart.
func isDense(s cron.Schedule) bool {
	last := s.Next(time.Unix(0, 0))
	for range frequencySample {
		next := s.Next(last)
		if next.IsZero() {
			return false
		}
		if next.Sub(last) < frequent {
			return true
		}
		last = next
	}
	return false
}
