package service

import (
	"cmp"
	"context"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Next returns the next occurrences of a job that are due after an instant; zero is now.
func (s *Jobs) Next(ctx context.Context, who Caller, name Name, from time.Time, count int) (client.Occurrences, error) {
	next := client.Occurrences{Items: []client.Occurrence{}}
	j, err := s.find(ctx, who, Read, name)
	if err != nil {
		return next, err
	}
	calendars, err := s.rules.calendars(ctx)
	if err != nil {
		return next, err
	}
	next.Timezone = j.Filled.Schedule.Timezone
	zone, err := cron.LoadZone(next.Timezone)
	if err != nil {
		return next, err
	}
	windows, err := s.rules.windows(ctx)
	if err != nil {
		return next, err
	}
	add := func(scheduled, due time.Time) {
		next.Items = append(next.Items, client.Occurrence{Scheduled: scheduled.In(zone.Location()), Due: due.In(zone.Location()), Window: openingOver(windows, j, due)})
	}
	if chained, err := s.nextInChain(ctx, j); err != nil || chained != nil {
		if chained != nil && chained.Due.After(from) {
			add(chained.Scheduled, chained.Due)
		}
		return next, err
	}
	if why := neverDue(j); !why.IsZero() {
		next.Why = client.WhyOf(why)
		return next, nil
	}
	timing, err := timingOf(j, calendars)
	if err != nil {
		return next, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return next, err
	}
	for _, o := range upcomingOf(j, &timing, cmp.Or(from, now), now, count) {
		add(o.Scheduled, o.Due)
	}
	if len(next.Items) == 0 {
		next.Why = client.WhyOf(reason.NothingFollows.Of())
	}
	return next, nil
}

// timingOf returns the timing of a job.
func timingOf(j *store.Job, calendars job.Calendars) (engine.Timing, error) {
	return engine.TimingOf(j.Filled, j.Definition.UID, calendars)
}

// upcomingOf returns the next occurrences of a job that are due after a moment, as far as its
// number of runs allows.
func upcomingOf(j *store.Job, timing *engine.Timing, from, now time.Time, count int) (list []engine.Occurrence) {
	left := count
	if most := j.Filled.Schedule.MaxRuns; most > 0 {
		left = min(left, most-j.Planned)
	}
	for _, o := range upcoming(timing, from, count) {
		// Occurrences planned ahead are counted already.
		if planned := !o.Scheduled.After(j.Cursor) && o.Due.After(now); !planned {
			if left--; left < 0 {
				break
			}
		}
		list = append(list, o)
	}
	return list
}

// upcoming returns the next occurrences that are due after a moment.
func upcoming(t *engine.Timing, from time.Time, count int) []engine.Occurrence {
	from = t.Begin(from)
	var list []engine.Occurrence
	for len(list) < count {
		next := t.Schedule.Next(from)
		if next.IsZero() {
			break
		}
		// As the planner would see it at that moment: it alone is due.
		list = append(list, t.Decide(engine.Progress{Cursor: next.Add(-1)}, next, 0, engine.Most{OnTime: 1}).Due...)
		from = next
	}
	return list
}

// chainLookMax is the number of runs of a job that are searched for the next of its chain.
// A chain has one; more exist only after many manual starts.
const chainLookMax = 100

// nextInChain returns the next run of a job that falls due some time after the end of the
// last one, nil while that is running.
func (s *Jobs) nextInChain(ctx context.Context, j *store.Job) (*store.Run, error) {
	if !isChain(j) {
		return nil, nil
	}
	list, err := s.store.ListActive(ctx, store.ActiveQuery{Job: j.Definition.UID, State: job.StateReady, Limit: chainLookMax})
	return inChain(list, j), err
}

// isChain reports whether an active job falls due after its own end.
func isChain(j *store.Job) bool {
	return j.Filled.Schedule.AfterEnd != 0 && stateOf(j) == job.JobActive
}

// inChain finds the next run of a chain among ready runs.
func inChain(ready []store.Run, j *store.Job) *store.Run {
	for i := range ready {
		if r := &ready[i]; r.JobUID == j.Definition.UID && r.Kind == job.RunAfterEnd && r.Epoch == j.Definition.Epoch && r.Attempt == 1 {
			return r
		}
	}
	return nil
}

// chainsMax is the most chains in a list whose next run is read one by one. For more, the list
// searches the ready runs that are due first, at most [PageMax]: one read for all.
const chainsMax = 2

// nextInChains is nextInChain for the jobs of a list, in their order.
func (s *Jobs) nextInChains(ctx context.Context, jobs []*store.Job) ([]*store.Run, error) {
	next, chains := make([]*store.Run, len(jobs)), 0
	for _, j := range jobs {
		if isChain(j) {
			chains++
		}
	}
	var ready []store.Run
	var err error
	if chains > chainsMax {
		if ready, err = s.store.ListActive(ctx, store.ActiveQuery{State: job.StateReady, Limit: PageMax}); err != nil {
			return nil, err
		}
	}
	for i, j := range jobs {
		if chains > chainsMax {
			next[i] = inChain(ready, j)
		} else if next[i], err = s.nextInChain(ctx, j); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// stateOf returns the state of a job.
func stateOf(j *store.Job) job.JobState {
	if j.Definition.Status == nil {
		return job.JobActive
	}
	return j.Definition.Status.State
}

// neverDue explains why a job has no next due time, or returns "".
func neverDue(j *store.Job) (none job.Reason) {
	s := &j.Filled.Schedule
	state := stateOf(j)
	switch {
	case state == job.JobPaused:
		return reason.PausedNow.Of(j.Definition.Status.PausedBy, j.Definition.Status.PausedFor)
	case state == job.JobCompleted:
		return reason.Completed.Of()
	case len(s.Cron) > 0 || s.Every > 0 || len(s.At) > 0:
		return none
	case len(s.On) > 0:
		return reason.DueByOther.Of()
	case s.AfterEnd > 0:
		return reason.DueAfterEnd.Of(time.Duration(s.AfterEnd))
	case s.Boot:
		return reason.DueAtBoot.Of()
	}
	return reason.ByHandOnly.Of()
}
