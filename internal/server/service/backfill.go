package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// backfillMax is the most runs of a request: the response stays readable, and the
	// store is busy for a second at most.
	backfillMax = 1000
	// backfillCounted bounds the count of runs for a request that exceeds the limit.
	backfillCounted = 100_000
)

// Backfill creates a run for each scheduled time of a range in the past. Requests with the
// same key, "" included, create the run of a scheduled time once in 24 hours.
func (s *Runs) Backfill(ctx context.Context, who Caller, name Name, request client.BackfillRequest, key string) (client.Backfill, error) {
	out := client.Backfill{DryRun: request.DryRun, Items: []client.BackfillRun{}}
	j, err := s.jobs.find(ctx, who, Operate, name)
	if err == nil {
		err = startable(j)
	}
	if err != nil {
		return out, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return out, err
	}
	request.To = cmp.Or(request.To, now)
	if err := checkBackfill(j, &request, now); err != nil {
		return out, err
	}
	items, err := s.backfillItems(ctx, who, j, &request, now, key)
	if err != nil {
		return out, err
	}
	out.Timezone = j.Filled.Schedule.Timezone
	zone, err := cron.LoadZone(out.Timezone)
	if err != nil {
		return out, err
	}
	for i := range items {
		out.Items = append(out.Items, client.BackfillRun{
			Scheduled: items[i].Scheduled.In(zone.Location()), Shard: items[i].Shard, Shards: items[i].Shards,
		})
	}
	if request.DryRun {
		return out, nil
	}
	shown := out.Items
	for part := range slices.Chunk(items, store.MaxBatch) {
		outcomes, err := s.store.Trigger(ctx, part)
		if err != nil {
			return out, err
		}
		for i, outcome := range outcomes {
			if outcome.Err != nil {
				return out, Refuse(client.TypeConflict, phrase.JobGoneMeanwhile.Of(name.String()), phrase.RepeatForRest.Of(out.Made))
			}
			shown[i].Run, shown[i].Made = outcome.Run, outcome.Made
			if outcome.Made {
				out.Made++
			}
		}
		shown = shown[len(part):]
	}
	return out, nil
}

// checkBackfill returns the mistake in a request.
func checkBackfill(j *store.Job, request *client.BackfillRequest, now time.Time) error {
	s := &j.Filled.Schedule
	switch {
	case request.From.IsZero():
		return WrongField("from", phrase.Missing)
	case request.To.After(now):
		return WrongField("to", phrase.InFuture, phrase.LeaveOutForNow)
	case !request.From.Before(request.To):
		return WrongField("from", phrase.NotBeforeTo.Of(phrase.MomentOf(request.To)))
	case request.Overlap == job.OverlapAllow && j.Filled.Policy.ConcurrencyKey != "":
		return WrongField("overlap", phrase.AllowInPool, phrase.OtherOverlaps)
	}
	if len(s.Cron) == 0 && s.Every == 0 && len(s.At) == 0 {
		e := Refuse(client.TypeConflict, phrase.NoScheduledTimes.Of(j.Definition.FullName()), phrase.BackfillNeeds)
		e.Detail = reason.Because.Of(e.Detail, neverDue(j))
		return e
	}
	if status := j.Definition.Status; status != nil && status.State == job.JobPaused {
		return Refuse(client.TypeConflict, phrase.JobIsPaused.Of(j.Definition.FullName()), phrase.ResumeFirst)
	}
	return nil
}

// backfillItems returns the runs to create: for each scheduled time one run, or one for
// each shard.
func (s *Runs) backfillItems(ctx context.Context, who Caller, j *store.Job, req *client.BackfillRequest, now time.Time, key string) ([]store.TriggerItem, error) {
	calendars, err := s.rules.calendars(ctx)
	if err != nil {
		return nil, err
	}
	timing, err := timingOf(j, calendars)
	if err != nil {
		return nil, err
	}
	times, count := timing.Past(req.From, req.To, backfillMax+1, backfillCounted)
	live, err := s.liveSessions(ctx)
	if err != nil {
		return nil, err
	}
	request, err := s.placing(ctx, j)
	if err != nil {
		return nil, err
	}
	split := 1
	if len(times) > 0 {
		request.Scheduled = times[0]
		placed, _ := placement.Runs(request, live)
		split = len(placed)
	}
	if count*split > backfillMax {
		return nil, tooManyRuns(times, count, split)
	}
	var items []store.TriggerItem
	for i, scheduled := range times {
		request.Scheduled, request.Sequence = scheduled, i
		placed, _ := placement.Runs(request, live)
		for _, p := range placed {
			id, err := s.newID()
			if err != nil {
				return nil, err
			}
			item := store.TriggerItem{
				ID: id, Job: j.Definition.UID, Kind: job.RunBackfill, Session: p.Session, Node: p.Node, Shard: p.Shard, Shards: p.Shards,
				// In sequence, so that waiting runs start in order.
				Scheduled: scheduled, Due: now.Add(time.Duration(i) * time.Millisecond),
				Overlap: cmp.Or(req.Overlap, job.OverlapQueue), Actor: who.Name,
			}
			if key != "" {
				item.Key = engine.KeyOf(scheduled) + " " + key
			}
			items = append(items, item)
		}
	}
	return items, nil
}

// tooManyRuns reports the number of runs of a request, and how to request fewer.
func tooManyRuns(times []time.Time, count, split int) *Error {
	many := phrase.TooManyRuns.Of(fmt.Sprint(count*split), backfillMax)
	if count >= backfillCounted {
		many = phrase.MoreThanRuns.Of(fmt.Sprint(count*split), backfillMax)
	}
	e := Refuse(client.TypeTooMany, many)
	if first := backfillMax / split; first > 0 && first < len(times) {
		return e.hinted(phrase.SplitUpTo.Of(phrase.MomentOf(times[first])))
	}
	return e
}

// placing returns the node requirements of a job's runs.
func (s *Runs) placing(ctx context.Context, j *store.Job) (placement.Request, error) {
	where := engine.WhereaboutsOf(j.Filled)
	r := placement.Request{UID: j.Definition.UID, Place: where.Place, Handler: where.Handler, User: where.User}
	if where.Split == "" {
		return r, nil
	}
	candidates, err := candidatesIn(ctx, s.store)
	r.Split = engine.SplitOf(where.Split, candidates)
	return r, err
}

// candidatesIn returns the executors that are registered or listed, by group and address.
func candidatesIn(ctx context.Context, in runStore) ([]store.Registration, error) {
	registered, err := in.Registrations(ctx, store.ExecutorsOfXXL)
	if err != nil {
		return nil, err
	}
	listed, err := in.Documents(ctx, job.KindExecutors)
	return store.Candidates(registered, listed), err
}

// CancelBackfill ends all backfill runs of a job. It begins with the last one, so that no
// run starts because another one was cancelled.
func (s *Runs) CancelBackfill(ctx context.Context, who Caller, name Name, reason string) (client.BackfillCancelled, error) {
	out := client.BackfillCancelled{Running: []client.Run{}}
	j, err := s.jobs.find(ctx, who, Operate, name)
	if err != nil {
		return out, err
	}
	runs, err := s.backfillsOf(ctx, j.Definition.UID)
	if err != nil {
		return out, err
	}
	slices.Reverse(runs)
	for part := range slices.Chunk(runs, store.MaxBatch) {
		cancelled, err := s.store.CancelRuns(ctx, j.Definition.UID, part, who.Name, reason)
		if err != nil {
			return out, err
		}
		for i := range cancelled {
			if cancelled[i].State != job.StateDone {
				out.Running = append(out.Running, activeRun(&cancelled[i]))
			} else if cancelled[i].Outcome == job.OutcomeCancelled {
				out.Ended++
			}
		}
	}
	slices.Reverse(out.Running)
	return out, nil
}

// backfillsOf returns the unfinished runs of a job that were made by backfill, by
// due time.
func (s *Runs) backfillsOf(ctx context.Context, uid job.ID) (ids []job.ID, err error) {
	q := store.ActiveQuery{Job: uid, Limit: store.MaxBatch}
	for {
		runs, err := s.store.ListActive(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range runs {
			if runs[i].Kind == job.RunBackfill {
				ids = append(ids, runs[i].ID)
			}
		}
		if len(runs) < q.Limit {
			return ids, nil
		}
		last := &runs[len(runs)-1]
		q.After = last.Ref()
	}
}
