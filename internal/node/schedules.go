package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/sys/cache"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// schedules keeps the compiled schedules of jobs that have run, so that each
// attempt can be given its neighbours in time.
type schedules struct {
	store calendars
	mu    sync.Mutex
	known cache.Map[job.ID, compiled]
	// failed is why the calendars could not be read last, and until when that is the answer.
	failed error
	until  time.Time
}

// compiled is the schedule of a version of a job, with the calendars of an epoch: a changed
// calendar begins another one.
type compiled struct {
	version, epoch int64
	schedule       cron.Schedule
	location       *time.Location
}

const (
	// schedulesMax bounds the cache: when it is full, it is emptied.
	schedulesMax = 10_000
	// calendarsTimeout is how long a read of the calendars may take: claims wait for it.
	calendarsTimeout = time.Second
	// calendarsAgain is how long after a read has failed the next one is made: a batch of
	// claims waits once.
	calendarsAgain = time.Second
)

// calendars is where they are read from.
type calendars interface {
	Calendars(ctx context.Context) ([]*job.Calendar, error)
}

func newSchedules(s calendars) *schedules {
	return &schedules{store: s}
}

// around returns a scheduled time in the job's zone, between its neighbours, zero for none.
// It fails if they cannot be determined.
func (s *schedules) around(ctx context.Context, j *store.Job, scheduled time.Time) (previous, same, next time.Time, err error) {
	c, err := s.compile(ctx, j)
	if err != nil {
		return previous, same, next, fmt.Errorf("the occurrences before and after this one cannot be known: %w", err)
	}
	same = scheduled.In(c.location)
	next = c.schedule.Next(scheduled)
	if !next.IsZero() {
		next = next.In(c.location)
	}
	if previous = cron.Before(c.schedule, scheduled); !previous.IsZero() {
		previous = previous.In(c.location)
	}
	return previous, same, next, nil
}

// compile returns the schedule of a job, from memory if it can.
func (s *schedules) compile(ctx context.Context, j *store.Job) (compiled, error) {
	c, ok := s.known.Get(j.Definition.UID)
	if ok && c.version == j.Definition.Version && c.epoch == j.Definition.Epoch {
		return c, nil
	}
	c = compiled{version: j.Definition.Version, epoch: j.Definition.Epoch, location: time.UTC}
	if name := j.Filled.Schedule.Timezone; name != "" {
		zone, err := cron.LoadZone(name)
		if err != nil {
			return c, err
		}
		c.location = zone.Location()
	}
	calendars, err := s.calendars(ctx, j)
	if err != nil {
		return c, err
	}
	if c.schedule, err = j.Filled.CompileSchedule(calendars); err != nil {
		return c, err
	}
	s.known.Put(j.Definition.UID, c, schedulesMax)
	return c, nil
}

// calendars returns the calendars that a job may name.
func (s *schedules) calendars(ctx context.Context, j *store.Job) (job.Calendars, error) {
	if len(j.Filled.Schedule.Only)+len(j.Filled.Schedule.Except) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	failed, until := s.failed, s.until
	s.mu.Unlock()
	if time.Now().Before(until) {
		return nil, failed
	}
	ctx, cancel := context.WithTimeout(ctx, calendarsTimeout)
	defer cancel()
	list, err := s.store.Calendars(ctx)
	if err != nil {
		err = fmt.Errorf("read the calendars: %w", err)
		s.mu.Lock()
		s.failed, s.until = err, time.Now().Add(calendarsAgain)
		s.mu.Unlock()
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
