package node

import (
	"context"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// schedules keeps the compiled schedules of jobs that have run, so that each
// attempt can be told its neighbours in time.
type schedules struct {
	store store.Jobs
	mu    sync.Mutex
	known map[job.ID]compiled
}

// compiled is the schedule of a version of a job, with the calendars of an epoch: one that
// is changed begins another.
type compiled struct {
	version, epoch int64
	schedule       cron.Schedule
	location       *time.Location
}

// schedulesMax bounds what is kept: when it is full, it is emptied.
const schedulesMax = 10_000

func newSchedules(s store.Jobs) *schedules {
	return &schedules{store: s, known: map[job.ID]compiled{}}
}

// around returns a scheduled time in the job's zone, between the ones before and
// after it, which are zero where there are none.
func (s *schedules) around(j *store.Job, scheduled time.Time) (previous, same, next time.Time) {
	c := s.compile(j)
	same = scheduled.In(c.location)
	next = c.schedule.Next(scheduled)
	if !next.IsZero() {
		next = next.In(c.location)
	}
	if before, ok := c.schedule.(interface{ Prev(time.Time) time.Time }); ok {
		previous = before.Prev(scheduled)
	} else {
		previous = lastBefore(c.schedule, scheduled)
	}
	if !previous.IsZero() {
		previous = previous.In(c.location)
	}
	return previous, same, next
}

// previousWithin is how far back the occurrence before another one is looked for where
// a schedule cannot say it: beyond the one of a year ago.
const previousWithin = 2 * 366 * 24 * time.Hour

// lastBefore finds the occurrence before a moment in windows that double.
func lastBefore(s cron.Schedule, moment time.Time) time.Time {
	for window := time.Minute; window < previousWithin; window *= 2 {
		var last time.Time
		for t := range cron.Between(s, moment.Add(-window), moment.Add(-1)) {
			last = t
		}
		if !last.IsZero() {
			return last
		}
	}
	return time.Time{}
}

// compile returns the schedule of a job, from memory if it can.
func (s *schedules) compile(j *store.Job) compiled {
	s.mu.Lock()
	c, ok := s.known[j.Definition.UID]
	s.mu.Unlock()
	if ok && c.version == j.Definition.Version && c.epoch == j.Definition.Epoch {
		return c
	}
	c = compiled{version: j.Definition.Version, epoch: j.Definition.Epoch, schedule: cron.At(), location: time.UTC}
	if zone, err := cron.LoadZone(j.Filled.Schedule.Timezone); err == nil {
		c.location = zone.Location()
	}
	calendars, err := s.calendars(j)
	if err != nil {
		return c // the next attempt may find more
	}
	if schedule, err := j.Filled.CompileSchedule(calendars); err == nil {
		c.schedule = schedule
	}
	s.mu.Lock()
	if len(s.known) >= schedulesMax {
		clear(s.known)
	}
	s.known[j.Definition.UID] = c
	s.mu.Unlock()
	return c
}

// calendars returns the calendars that a job may name.
func (s *schedules) calendars(j *store.Job) (job.Calendars, error) {
	if len(j.Filled.Schedule.Only)+len(j.Filled.Schedule.Except) == 0 {
		return nil, nil
	}
	list, err := s.store.Calendars(context.Background())
	if err != nil {
		return nil, err
	}
	return func(namespace, name string) *job.Calendar {
		for _, c := range list {
			if c.Namespace == namespace && c.Name == name {
				return c
			}
		}
		return nil
	}, nil
}
