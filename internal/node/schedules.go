package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/sys/cache"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// schedules caches the compiled schedules of jobs that have run, to give each attempt its
// neighbours in time.
type schedules struct {
	store calendars
	mu    sync.Mutex
	known cache.Map[job.ID, compiledSchedule]
	// equal has the schedules by their texts: many jobs share one.
	equal cache.Map[string, *occurrences]
	// failed is why the calendars could not be read last, and until when that is the answer.
	failed error
	until  time.Time
}

// compiledSchedule is the schedule of a version of a job, with the calendars of an epoch: a changed
// calendar begins another one.
type compiledSchedule struct {
	version, epoch int64
	*occurrences
}

// occurrences computes the occurrences of a schedule for all its jobs, and caches the last answer: they
// run at the same instants.
type occurrences struct {
	schedule cron.Schedule
	location *time.Location

	mu                       sync.Mutex
	scheduled, earlier, next time.Time
}

// around returns the occurrences before and after a scheduled time.
func (o *occurrences) around(scheduled time.Time) (previous, next time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.scheduled.IsZero() || !o.scheduled.Equal(scheduled) {
		o.scheduled, o.earlier, o.next = scheduled, cron.Before(o.schedule, scheduled), o.schedule.Next(scheduled)
		for _, t := range []*time.Time{&o.earlier, &o.next} {
			if !t.IsZero() {
				*t = t.In(o.location)
			}
		}
	}
	return o.earlier, o.next
}

const (
	// knownMax bounds the jobs whose schedules are found without their texts, of about 100 bytes each.
	knownMax = 200_000
	// schedulesMax bounds the schedules.
	schedulesMax = 10_000
	// calendarsTimeout bounds a read of the calendars: claims wait for it.
	calendarsTimeout = time.Second
	// calendarsAgain is the pause after a failed read: a batch of claims waits once.
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
	previous, next = c.around(scheduled)
	return previous, scheduled.In(c.location), next, nil
}

// compile returns the schedule of a job, from memory if it can.
func (s *schedules) compile(ctx context.Context, j *store.Job) (compiledSchedule, error) {
	c, ok := s.known.Get(j.Definition.UID)
	if ok && c.version == j.Definition.Version && c.epoch == j.Definition.Epoch {
		return c, nil
	}
	c = compiledSchedule{version: j.Definition.Version, epoch: j.Definition.Epoch}
	text, isShared := scheduleText(j.Filled)
	if c.occurrences, ok = s.equal.Get(text); !ok || !isShared {
		list := &occurrences{location: time.UTC}
		if name := j.Filled.Schedule.Timezone; name != "" {
			zone, err := cron.LoadZone(name)
			if err != nil {
				return c, err
			}
			list.location = zone.Location()
		}
		calendars, err := s.calendars(ctx, j)
		if err != nil {
			return c, err
		}
		if list.schedule, err = j.Filled.CompileSchedule(calendars); err != nil {
			return c, err
		}
		if c.occurrences = list; isShared {
			s.equal.Put(text, list, schedulesMax)
		}
	}
	s.known.Put(j.Definition.UID, c, knownMax)
	return c, nil
}

// scheduleText returns a text that jobs with the same occurrences share, and false for a job
// whose occurrences also depend on its name or on calendars.
func scheduleText(j *job.Job) (text string, isShared bool) {
	s := &j.Schedule
	if len(s.Only)+len(s.Except) > 0 || slices.ContainsFunc(s.Cron, func(e string) bool { return strings.ContainsAny(e, "H~") }) {
		return "", false
	}
	return string(job.AppendJSON(nil, job.Document{Kind: job.KindJob, Job: &job.Job{Schedule: *s}})), true
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
