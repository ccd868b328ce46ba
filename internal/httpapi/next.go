package httpapi

import (
	"cmp"
	"context"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

type nextInput struct {
	JobName
	Count int       `query:"count" minimum:"1" maximum:"1000" default:"10" doc:"How many."`
	From  time.Time `query:"from" doc:"Those that are due after this instant. Default: now."`
}

type nextOutput struct {
	Body client.Occurrences
}

func (a *api) nextOfJob(ctx context.Context, in *nextInput) (*nextOutput, error) {
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	calendars, err := a.calendars(ctx)
	if err != nil {
		return nil, err
	}
	out := &nextOutput{}
	out.Body.Items = []client.Occurrence{}
	out.Body.Timezone = j.Filled.Schedule.Timezone
	zone, err := cron.LoadZone(j.Filled.Schedule.Timezone)
	if err != nil {
		return nil, err
	}
	add := func(scheduled, due time.Time) {
		out.Body.Items = append(out.Body.Items, client.Occurrence{Scheduled: scheduled.In(zone.Location()), Due: due.In(zone.Location())})
	}
	if chained, err := a.nextInChain(ctx, j); err != nil || chained != nil {
		if chained != nil && chained.Due.After(in.From) {
			add(chained.Scheduled, chained.Due)
		}
		return out, err
	}
	if out.Body.Reason = neverDue(j); out.Body.Reason != "" {
		return out, nil
	}
	timing, err := timingOf(j, calendars)
	if err != nil {
		return nil, err
	}
	left := in.Count
	if most := j.Filled.Schedule.MaxRuns; most > 0 {
		left = min(left, most-j.Planned)
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range upcoming(&timing, cmp.Or(in.From, now), in.Count) {
		// What is planned and not yet due is counted already.
		if planned := !o.Scheduled.After(j.Cursor) && o.Due.After(now); !planned {
			if left--; left < 0 {
				break
			}
		}
		add(o.Scheduled, o.Due)
	}
	if len(out.Body.Items) == 0 {
		out.Body.Reason = "nothing follows in the schedule"
	}
	return out, nil
}

// chainLookMax is how many runs of a job are looked through for the next of its chain:
// it has one, and others only where many are asked for by hand.
const chainLookMax = 100

// nextInChain returns the next run of a job that falls due some time after the end of
// the last one. There is none while that goes on.
func (a *api) nextInChain(ctx context.Context, j *store.Job) (*store.Run, error) {
	if j.Filled.Schedule.AfterEnd == 0 || stateOf(j) != job.JobActive {
		return nil, nil
	}
	list, err := a.Store.ListActive(ctx, store.ActiveQuery{Job: j.Definition.UID, State: job.StateReady, Limit: chainLookMax})
	for i := range list {
		if r := &list[i]; r.Kind == job.RunAfterEnd && r.Epoch == j.Definition.Epoch && r.Attempt == 1 {
			return r, nil
		}
	}
	return nil, err
}

// stateOf returns the state of a job.
func stateOf(j *store.Job) job.JobState {
	if j.Definition.Status == nil {
		return job.JobActive
	}
	return j.Definition.Status.State
}

// neverDue says why a job falls due at no time that could be named.
func neverDue(j *store.Job) string {
	s := &j.Filled.Schedule
	state := stateOf(j)
	switch {
	case state == job.JobPaused:
		reason := "the job is paused"
		if by := j.Definition.Status.PausedBy; by != "" {
			reason += " by " + by
		}
		if why := j.Definition.Status.PauseReason; why != "" {
			reason += ": " + why
		}
		return reason
	case state == job.JobCompleted:
		return "the job is completed"
	case len(s.Cron) > 0 || s.Every > 0 || len(s.At) > 0:
		return ""
	case len(s.On) > 0:
		return "the job falls due when another one ends"
	case s.AfterEnd > 0:
		return "the job falls due " + s.AfterEnd.String() + " after its previous run has ended"
	case s.Boot:
		return "the job falls due when a node starts"
	}
	return "the job has no schedule: it runs by hand"
}
