package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/sys/spelling"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Retry creates a new manual run for the same moment as a finished one. The run of a flow
// keeps successful results.
func (s *Runs) Retry(ctx context.Context, who Caller, id job.ID, request client.RetryRequest, key string) (Made, error) {
	run, err := s.runOf(ctx, who, Operate, id)
	if err != nil {
		return Made{}, err
	}
	if run.Kind == job.RunStep {
		return Made{}, Refuse(client.TypeConflict, phrase.IsStepOf.Of(id, run.Parent)).
			hinted(phrase.FromStep.Of(fmt.Sprintf("belfry run retry %s --from %s", run.Parent, run.Step)))
	}
	if run.State != job.StateDone {
		return Made{}, Refuse(client.TypeConflict, phrase.RunNotEnded.Of(id, string(run.State)))
	}
	j, err := store.JobByUID(ctx, s.store, run.JobUID)
	if errors.Is(err, store.ErrNotFound) || err == nil && j.Deleted {
		return Made{}, Refuse(client.TypeNotFound, phrase.JobOfRunDeleted.Of(run.Job))
	}
	if err != nil {
		return Made{}, err
	}
	like := store.TriggerItem{
		Key: key, Params: run.Params, Scheduled: run.Scheduled, Shard: run.Shard, Shards: run.Shards, Again: id,
	}
	definition := j.Filled
	if run.Steps != nil {
		if definition, like.Flow, err = s.repeatFlow(ctx, j, &run, &request); err != nil {
			return Made{}, err
		}
	} else if request.ChoosesSteps() {
		return Made{}, Refuse(client.TypeConflict, phrase.NoSteps.Of(id))
	}
	if err := CheckParams(definition, request.Params, run.Params); err != nil {
		return Made{}, err
	}
	if len(request.Params) > 0 {
		// Parameters of the old run that the job does not declare are for its followers.
		like.Params = map[string]string{}
		maps.Copy(like.Params, run.Params)
		maps.Copy(like.Params, request.Params)
	}
	if !run.Previous.IsZero() {
		like.Params = job.WithPrevious(like.Params, run.Previous)
	}
	return s.trigger(ctx, who, j, like)
}

// RetryAll runs several finished runs again, each for itself. Requests with the same key make one
// run of each.
func (s *Runs) RetryAll(ctx context.Context, who Caller, runs []job.ID, key string) (client.Retries, error) {
	retries := client.Retries{Runs: []client.Run{}, Errors: []client.RetryError{}}
	if err := who.May(Operate); err != nil {
		return retries, err
	}
	if len(runs) == 0 || len(runs) > client.RetriesMax {
		return retries, WrongField("runs", phrase.HasRuns.Of(len(runs)), phrase.FromOneTo.Of(client.RetriesMax))
	}
	ctx, err := grouped(ctx)
	if err != nil {
		return retries, err
	}
	for _, id := range runs {
		again := key
		if key != "" {
			again = key + "/" + id.String() // it makes one run of each
		}
		m, err := s.Retry(ctx, who, id, client.RetryRequest{}, again)
		switch {
		case ctx.Err() != nil:
			return retries, ctx.Err()
		case err != nil:
			why := ErrorOf(err).Detail
			refused := client.RetryError{Run: id, Detail: why.String()}
			refused.Code, refused.Args = why.For()
			retries.Errors = append(retries.Errors, refused)
		default:
			retries.Runs = append(retries.Runs, m.Run)
		}
	}
	return retries, nil
}

// repeatFlow returns the definition of a repeated flow, and its initial state.
func (s *Runs) repeatFlow(ctx context.Context, j *store.Job, run *client.Run, request *client.RetryRequest) (*job.Job, []byte, error) {
	id := run.ID
	records, err := s.store.AttemptsOf(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if len(records) == 0 {
		return nil, nil, s.noRun(id)
	}
	record := finalOf(records)
	var was flow.Saved
	if err := json.Unmarshal(record.Run.Flow, &was); err != nil {
		return nil, nil, fmt.Errorf("the steps of run %s: %w", id, err)
	}
	definition, err := s.definitionOf(ctx, j, record.Run.Version, was.Definition)
	if err != nil {
		return nil, nil, err
	}
	again := flow.Again{Of: id, From: request.From, Only: request.Only, Skip: request.Skip, Changed: len(request.Params) > 0}
	if err := checkSteps(definition, request); err != nil {
		return nil, nil, err
	}
	begin := flow.Saved{Again: &again}
	state, err := flow.NewGraph(definition.Run.Flow).Again(&was.State, &again)
	if err != nil {
		return nil, nil, Refuse(client.TypeConflict, phrase.NotAgainSo.Of(id, phrase.Words(err.Error())))
	}
	for i := range state.Steps {
		step := &state.Steps[i]
		name := func(u *flow.Unit, item int) {
			if u.From == id {
				was := *u
				was.From = job.ID{}
				u.Run = runOfUnit(&was, id, run.Started, step.Name, item)
			}
		}
		name(&step.Unit, -1)
		for k := range step.Items {
			name(&step.Items[k].Unit, k)
		}
	}
	begin.State = *state
	if begin.Definition, err = json.Marshal(definition); err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(&begin)
	return definition, text, err
}

// definitionOf returns the definition that a flow ran with: its own, or the one of a
// version of its job.
func (s *Runs) definitionOf(ctx context.Context, j *store.Job, version int64, own []byte) (*job.Job, error) {
	definition := &job.Job{}
	switch {
	case own != nil:
		if err := json.Unmarshal(own, definition); err != nil {
			return nil, err
		}
	default:
		old, err := s.version(ctx, j, version)
		if err != nil {
			return nil, err
		}
		if old == nil {
			return nil, Refuse(client.TypeConflict, phrase.DefinitionGone.Of(int(version), j.Definition.FullName())).
				hinted(phrase.StartAll.Of("belfry job run " + j.Definition.FullName()))
		}
		*definition = *old
	}
	if !definition.Run.IsFlow() {
		return nil, fmt.Errorf("version %d of job %s is not a flow", version, j.Definition.FullName())
	}
	definition.UID, definition.Version, definition.Epoch, definition.Status = job.ID{}, 0, 0, nil
	return definition, nil
}

// version returns the definition of a version of a job with its defaults filled in, nil if it is
// not kept any more.
func (s *Runs) version(ctx context.Context, j *store.Job, version int64) (*job.Job, error) {
	if version == j.Definition.Version {
		return j.Filled, nil
	}
	// Versions without a definition of their own have the previous one's.
	list, err := s.store.Revisions(ctx, j.Definition.UID, version+1, 1)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0].Definition.WithDefaults(s.rules.defaults), nil
}

// checkSteps reports unknown steps and contradictory choices.
func checkSteps(definition *job.Job, request *client.RetryRequest) error {
	var names []string
	for _, step := range definition.Run.Flow.All() {
		names = append(names, step.Name)
	}
	wrong := Refuse(client.TypeInvalid, phrase.StepsDoNotFit.Of(definition.FullName()))
	for _, list := range []struct {
		field string
		names []string
	}{{"from", request.From}, {"only", request.Only}, {"skip", request.Skip}} {
		for i, name := range list.names {
			var detail, hint phrase.Text
			switch near := spelling.Near(name, names); {
			case !slices.Contains(names, name) && len(near) > 0:
				detail, hint = phrase.NoFlowStep.Of(phrase.Quoted(name)), phrase.DidYouMean.Of(phrase.Quoted(near[0]))
			case !slices.Contains(names, name):
				detail, hint = phrase.NoFlowStep.Of(phrase.Quoted(name)), phrase.ItHas.Of(names, 0)
			case list.field == "only" && len(request.From) > 0:
				detail = phrase.NotWithFrom
			case list.field == "skip" && (slices.Contains(request.From, name) || slices.Contains(request.Only, name)):
				detail = phrase.RunAndSkipped.Of(name)
			default:
				continue
			}
			wrong.withErrors(mistakeAt("", fmt.Sprintf("%s[%d]", list.field, i), detail, hint))
		}
	}
	if len(wrong.Errors) == 0 {
		return nil
	}
	return wrong
}

// sameSteps reports whether a flow begins again as a run has that was made before.
func sameSteps(begin []byte, run *client.RetryRequest) bool {
	var saved flow.Saved
	if run == nil || json.Unmarshal(begin, &saved) != nil || saved.Again == nil {
		return false
	}
	return slices.Equal(saved.Again.From, run.From) && slices.Equal(saved.Again.Only, run.Only) && slices.Equal(saved.Again.Skip, run.Skip)
}
