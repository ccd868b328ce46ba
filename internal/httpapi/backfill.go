package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// backfillMax is the most runs that one request makes: an answer that can
	// still be read, and a second of the store at most.
	backfillMax = 1000
	// backfillCounted is how far the runs of a request that asks for too many
	// are counted.
	backfillCounted = 100_000
)

type backfillInput struct {
	JobName
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"Requests with the same key, none included, make the run of a scheduled time once in 24 hours. Another key makes it again."`
	Body           client.BackfillRequest
}

type backfillOutput struct {
	Status int
	Body   client.Backfill
}

// backfillJob makes a run for each scheduled time of a range in the past.
func (a *api) backfillJob(ctx context.Context, in *backfillInput) (*backfillOutput, error) {
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	said := in.Body
	if said.To.IsZero() {
		said.To = now
	}
	if err := checkBackfill(j, &said, now); err != nil {
		return nil, err
	}
	items, err := a.backfillItems(ctx, j, &said, now, in.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	zone, err := cron.LoadZone(j.Filled.Schedule.Timezone)
	if err != nil {
		return nil, err
	}
	out := &backfillOutput{Status: http.StatusOK}
	out.Body = client.Backfill{DryRun: said.DryRun, Timezone: j.Filled.Schedule.Timezone, Items: []client.BackfillRun{}}
	for i := range items {
		out.Body.Items = append(out.Body.Items, client.BackfillRun{
			Scheduled: items[i].Scheduled.In(zone.Location()), Shard: items[i].Shard, Shards: items[i].Shards,
		})
	}
	if said.DryRun {
		return out, nil
	}
	shown := out.Body.Items
	for part := range slices.Chunk(items, store.MaxBatch) {
		outcomes, err := a.Store.Trigger(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, outcome := range outcomes {
			if outcome.Err != nil {
				return nil, refuse(client.TypeConflict, "job %s was paused or deleted at the same time", j.Definition.FullName()).
					withHint("%d runs were made before; the same request makes the others", out.Body.Made)
			}
			shown[i].Run, shown[i].Made = outcome.Run, outcome.Made
			if outcome.Made {
				out.Status = http.StatusCreated
				out.Body.Made++
			}
		}
		shown = shown[len(part):]
	}
	return out, nil
}

// checkBackfill finds what is wrong with a request.
func checkBackfill(j *store.Job, said *client.BackfillRequest, now time.Time) error {
	s := &j.Filled.Schedule
	var wrong client.FieldError
	switch {
	case said.From.IsZero():
		wrong = client.FieldError{Pointer: "/from", Path: "from", Detail: "is missing"}
	case said.To.After(now):
		wrong = client.FieldError{
			Pointer: "/to", Path: "to", Detail: "is in the future", Hint: "what is to come runs by the schedule; leave it out for now",
		}
	case !said.From.Before(said.To):
		wrong = client.FieldError{Pointer: "/from", Path: "from", Detail: fmt.Sprintf("is not before to, which is %s", said.To.Format(time.RFC3339))}
	case said.Overlap == job.OverlapAllow && j.Filled.Policy.ConcurrencyKey != "":
		wrong = client.FieldError{
			Pointer: "/overlap", Path: "overlap", Detail: "is allow, and the pool of policy.concurrency_key bounds how many go on at once",
			Hint: "use queue, skip or replace",
		}
	}
	if wrong.Detail != "" {
		return wrongRequest(wrong)
	}
	if len(s.Cron) == 0 && s.Every == 0 && len(s.At) == 0 {
		return refuse(client.TypeConflict, "job %s has no scheduled times: %s", j.Definition.FullName(), neverDue(j)).
			withHint("only a job with cron, every or at can be backfilled")
	}
	if status := j.Definition.Status; status != nil && status.State == job.JobPaused {
		return refuse(client.TypeConflict, "job %s is paused, and backfills wait for nothing", j.Definition.FullName()).
			withHint("resume it before, or run it by hand")
	}
	return nil
}

// backfillItems returns what is to be made: for each scheduled time one run, or
// one for each shard.
func (a *api) backfillItems(ctx context.Context, j *store.Job, said *client.BackfillRequest, now time.Time, key string) ([]store.TriggerItem, error) {
	calendars, err := a.calendars(ctx)
	if err != nil {
		return nil, err
	}
	timing, err := timingOf(j, calendars)
	if err != nil {
		return nil, err
	}
	times, count := timing.Past(said.From, said.To, backfillMax+1, backfillCounted)
	live, err := a.liveSessions(ctx)
	if err != nil {
		return nil, err
	}
	request := placement.Request{UID: j.Definition.UID, Place: j.Filled.Place, Handler: j.Filled.Run.Handler}
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
			id, err := a.newID()
			if err != nil {
				return nil, err
			}
			item := store.TriggerItem{
				ID: id, Job: j.Definition.UID, Kind: job.RunBackfill, Session: p.Session, Node: p.Node, Shard: p.Shard, Shards: p.Shards,
				// One after the other, so that those which wait go on in order.
				Scheduled: scheduled, Due: now.Add(time.Duration(i) * time.Millisecond),
				Overlap: cmp.Or(said.Overlap, job.OverlapQueue), Actor: actorOf(ctx),
			}
			if key != "" {
				item.Key = engine.KeyOf(scheduled) + " " + key
			}
			items = append(items, item)
		}
	}
	return items, nil
}

// tooManyRuns says how many runs a request would make, and how to ask for them.
func tooManyRuns(times []time.Time, count, split int) *problem {
	many := fmt.Sprint(count * split)
	if count >= backfillCounted {
		many = "more than " + many
	}
	p := refuse(client.TypeTooMany, "there would be %s runs, and a request makes at most %d", many, backfillMax)
	if first := backfillMax / split; first > 0 && first < len(times) {
		return p.withHint("split it: the first part is up to %s", times[first].UTC().Format(time.RFC3339Nano))
	}
	return p
}

// liveSessions returns the sessions that runs can be placed on.
func (a *api) liveSessions(ctx context.Context) ([]store.Session, error) {
	sessions, err := a.Store.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(sessions, func(s store.Session) bool { return !s.Live(now) }), nil
}

type cancelBackfillInput struct {
	JobName
	Body *client.CancelRequest `required:"false"`
}

type cancelBackfillOutput struct {
	Body client.BackfillCancelled
}

// cancelBackfill ends all runs of a job that were made by backfill. It begins
// with the last: none of them starts because one before it has made room.
func (a *api) cancelBackfill(ctx context.Context, in *cancelBackfillInput) (*cancelBackfillOutput, error) {
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	runs, err := a.backfillsOf(ctx, j.Definition.UID)
	if err != nil {
		return nil, err
	}
	out := &cancelBackfillOutput{Body: client.BackfillCancelled{Running: []client.Run{}}}
	slices.Reverse(runs)
	for part := range slices.Chunk(runs, store.MaxBatch) {
		cancelled, err := a.Store.CancelRuns(ctx, part, actorOf(ctx), reason)
		if err != nil {
			return nil, err
		}
		for i := range cancelled {
			if cancelled[i].State != job.StateDone {
				out.Body.Running = append(out.Body.Running, activeRun(&cancelled[i]))
			} else if cancelled[i].Outcome == job.OutcomeCancelled {
				out.Body.Ended++
			}
		}
	}
	slices.Reverse(out.Body.Running)
	return out, nil
}

// backfillsOf returns the unfinished runs of a job that were made by backfill, by
// due time.
func (a *api) backfillsOf(ctx context.Context, uid job.ID) (ids []job.ID, err error) {
	q := store.ActiveQuery{Job: uid, Limit: store.MaxBatch}
	for {
		runs, err := a.Store.ListActive(ctx, q)
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
		q.After = store.RunRef{Due: last.Due, ID: last.ID}
	}
}
