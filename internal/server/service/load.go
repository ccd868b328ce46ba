package service

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/forecast"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// loadJobsMax is the most jobs of a counted selection; all jobs of the server are
	// counted without reading them.
	loadJobsMax = 20_000
	// aheadMax is the latest time of counted starts, and of a requested run, from now.
	aheadMax = 32 * 24 * time.Hour
)

// Load counts future starts by schedules.
type Load struct {
	*base
	jobs *Jobs
}

// Ahead counts the starts of a future span, in steps that begin at multiples of the step
// since 1970. It begins with the step that contains [From].
func (s *Load) Ahead(ctx context.Context, who Caller, q client.LoadQuery) (client.Load, error) {
	load := client.Load{Starts: []int{}}
	of, err := who.reads(q.Namespace)
	if err != nil {
		return load, err
	}
	now := s.jobs.now() // the clock of this machine is enough, and saves a read
	if q.From.IsZero() {
		q.From = now
	}
	if q.To.IsZero() {
		q.To = q.From.Add(24 * time.Hour)
	}
	if q.To.Sub(now) > aheadMax {
		return load, WrongParameter("to", phrase.TooFarAhead)
	}
	first, n, err := buckets(&q.From, &q.To, &q.Step, now, now)
	if err != nil {
		return load, err
	}
	load.From, load.Step = first, int(q.Step/time.Second)
	timings, err := s.timings(ctx, of, q.Labels)
	if err != nil {
		return load, err
	}
	counts := forecast.New(first, q.Step, n)
	for _, t := range timings {
		if err := ctx.Err(); err != nil {
			return load, err
		}
		counts.Add(t)
	}
	load.Starts = counts.Starts()
	return load, nil
}

// timings returns the schedules of the active jobs that are selected.
func (s *Load) timings(ctx context.Context, of scope, labels map[string]string) ([]forecast.Timing, error) {
	if s.planner == nil {
		return nil, nil
	}
	if of == nil && len(labels) == 0 {
		return s.planner.Timings(nil), nil
	}
	uids := []job.ID{}
	for q := (store.JobQuery{Labels: labels, State: job.JobActive, Limit: PageMax}); ; {
		jobs, next, err := of.jobs(ctx, s.jobs.store, q)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			uids = append(uids, j.Definition.UID)
		}
		if len(uids) > loadJobsMax {
			return nil, WrongParameter("namespace", phrase.TooManyForLoad.Of(loadJobsMax), phrase.SelectFewerOrAll)
		}
		if q.After = next; next == "" {
			return s.planner.Timings(uids), nil
		}
	}
}

// Due returns the jobs that fall due within a span, each once, by when they do: at most a page
// of them.
func (s *Load) Due(ctx context.Context, who Caller, namespace string, from, to time.Time, size int) ([]client.DueJob, error) {
	list := []client.DueJob{}
	due, err := s.due(ctx, who, namespace, from, to, size)
	for _, d := range due {
		list = append(list, client.DueJob{Job: d.job.Definition.FullName(), Due: d.at})
	}
	return list, err
}

// Spread is Due, and says by how much a spread would delay the starts of each job that has none.
func (s *Load) Spread(ctx context.Context, who Caller, namespace string, from, to time.Time, spread time.Duration, size int) ([]client.DueJob, error) {
	list := []client.DueJob{}
	due, err := s.due(ctx, who, namespace, from, to, size)
	if err == nil && spread <= 0 {
		err = WrongParameter("spread", phrase.NotPositive, phrase.SuchAs.Of("15m"))
	}
	if err != nil {
		return list, err
	}
	for _, d := range due {
		one := client.DueJob{Job: d.job.Definition.FullName(), Due: d.at, Spread: d.job.Filled.Schedule.Spread}
		if one.Spread == 0 {
			delay := engine.SpreadOf(d.job.Definition.UID, spread).Seconds()
			one.Delay = &delay
		}
		list = append(list, one)
	}
	return list, nil
}

// dueJob is a job with the moment at which it falls due next.
type dueJob struct {
	job *store.Job
	at  time.Time
}

func (s *Load) due(ctx context.Context, who Caller, namespace string, from, to time.Time, size int) (list []dueJob, err error) {
	of, err := who.reads(namespace)
	if err != nil || s.planner == nil {
		return list, err
	}
	if from.IsZero() {
		if from, err = s.jobs.store.Now(ctx); err != nil {
			return list, err
		}
	}
	if to.IsZero() {
		to = from.Add(time.Minute)
	}
	if !from.Before(to) {
		return list, WrongParameter("from", phrase.NotBeforeEnd.Of(phrase.MomentOf(to)))
	}
	size = pageSize(size)
	var place engine.Upcoming
	for looked := 0; looked < lookMax; looked += readTogether {
		upcoming := s.planner.Upcoming(from, place, readTogether)
		last := len(upcoming) < readTogether
		if end := slices.IndexFunc(upcoming, func(u engine.Upcoming) bool { return !u.Next.Before(to) }); end >= 0 {
			upcoming, last = upcoming[:end], true
		}
		if len(upcoming) == 0 {
			return list, nil
		}
		jobs, err := s.jobs.jobsOf(ctx, upcoming)
		if err != nil {
			return nil, err
		}
		for i, u := range upcoming {
			place = u
			if j := jobs[i]; j == nil || j.Deleted || !of.has(j.Filled.Namespace) {
				continue
			}
			list = append(list, dueJob{jobs[i], u.Next})
			if len(list) == size {
				return list, nil
			}
		}
		if last {
			break
		}
	}
	return list, nil
}

// PlannedJob is a job with the times at which it will start within a span.
type PlannedJob struct {
	Job    string
	Labels map[string]string
	Times  []time.Time
	More   bool // than were asked for
}

// Planned returns the jobs that fall due within a span by when they first do, with at most a
// number of times each.
func (s *Load) Planned(ctx context.Context, who Caller, namespace string, from, to time.Time, size, times int) ([]PlannedJob, error) {
	due, err := s.due(ctx, who, namespace, from, to, size)
	if err != nil || len(due) == 0 {
		return nil, err
	}
	calendars, err := s.jobs.rules.calendars(ctx)
	if err != nil {
		return nil, err
	}
	var list []PlannedJob
	for _, d := range due {
		one := PlannedJob{Job: d.job.Definition.FullName(), Labels: d.job.Definition.Labels}
		timing, err := timingOf(d.job, calendars)
		if err != nil {
			return nil, err
		}
		for _, o := range upcomingOf(d.job, &timing, from, s.jobs.now(), times+1) {
			if !o.Due.Before(to) {
				break
			}
			one.Times = append(one.Times, o.Due)
		}
		if one.More = len(one.Times) > times; one.More {
			one.Times = one.Times[:times]
		}
		list = append(list, one)
	}
	return list, nil
}
