package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

type runJobInput struct {
	JobName
	IdempotencyKey string             `header:"Idempotency-Key" maxLength:"256" doc:"Requests with the same key make one run in 24 hours."`
	Body           *client.RunRequest `required:"false"`
}

type madeRunOutput struct {
	Status int
	Body   client.Run
}

func (a *api) runJob(ctx context.Context, in *runJobInput) (*madeRunOutput, error) {
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	var said client.RunRequest
	if in.Body != nil {
		said = *in.Body
	}
	if err := checkParams(j.Filled, said.Params); err != nil {
		return nil, err
	}
	return a.trigger(ctx, j, store.TriggerItem{Key: in.IdempotencyKey, Params: said.Params})
}

// paramMax is the longest value of a parameter: it must fit into the
// environment of a command.
const paramMax = 64 << 10

// checkParams reports parameters that a job does not declare.
func checkParams(j *job.Job, params map[string]string) error {
	var wrong []client.FieldError
	declared := slices.Sorted(maps.Keys(j.Params))
	for _, name := range slices.Sorted(maps.Keys(params)) {
		e := client.FieldError{Pointer: "/params" + pointerOf("["+strconv.Quote(name)+"]"), Path: "params." + name}
		_, known := j.Params[name]
		switch {
		case !known && len(declared) == 0:
			e.Detail = "is not declared by the job, which takes no parameters"
		case !known:
			e.Detail, e.Hint = "is not declared by the job", "declared: "+inList(declared)
		case len(params[name]) > paramMax:
			e.Detail = fmt.Sprintf("has %d bytes, at most %d are allowed", len(params[name]), paramMax)
		case strings.Contains(params[name], "\x00"):
			e.Detail = "has a NUL byte"
		default:
			continue
		}
		wrong = append(wrong, e)
	}
	if len(wrong) == 0 {
		return nil
	}
	return refuse(client.TypeInvalid, "the parameters do not fit job %s", j.FullName()).withErrors(wrong...)
}

// trigger makes the runs of a request by hand, one for each shard, placed on
// nodes that live, and answers with the first.
func (a *api) trigger(ctx context.Context, j *store.Job, like store.TriggerItem) (*madeRunOutput, error) {
	live, err := a.liveSessions(ctx)
	if err != nil {
		return nil, err
	}
	scheduled := cmp.Or(like.Scheduled, a.Now())
	first, err := a.newID()
	if err != nil {
		return nil, err
	}
	if like.Key == "" {
		like.Key = first.String()
	}
	placed, _ := placement.Runs(placement.Request{
		UID: j.Definition.UID, Place: j.Filled.Place, Handler: j.Filled.Run.Handler, Scheduled: scheduled, Sequence: int(first[15]),
	}, live)
	if like.Shards > 0 {
		// One share alone is asked for.
		one := placed[like.Shard%len(placed)]
		placed = []placement.Placed{{Session: one.Session, Node: one.Node, Shard: like.Shard, Shards: like.Shards}}
	}
	items := make([]store.TriggerItem, len(placed))
	for i, p := range placed {
		items[i] = like
		items[i].ID, items[i].Job, items[i].Kind, items[i].Actor = first, j.Definition.UID, job.RunByHand, actorOf(ctx)
		items[i].Session, items[i].Node, items[i].Shard, items[i].Shards = p.Session, p.Node, p.Shard, p.Shards
		if i > 0 {
			if items[i].ID, err = a.newID(); err != nil {
				return nil, err
			}
		}
	}
	var outcomes []store.TriggerOutcome
	for part := range slices.Chunk(items, store.MaxBatch) {
		made, err := a.Store.Trigger(ctx, part)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, made...)
	}
	out := &madeRunOutput{Status: http.StatusOK}
	for i, outcome := range outcomes {
		if outcome.Err != nil {
			return nil, noJob(j.Definition.Namespace, j.Definition.Name)
		}
		if outcome.Made {
			out.Status = http.StatusCreated
		}
		if i > 0 {
			out.Body.Others = append(out.Body.Others, outcome.Run)
		}
	}
	others := out.Body.Others
	out.Body, err = a.run(ctx, outcomes[0].Run)
	out.Body.Others = others
	return out, err
}
