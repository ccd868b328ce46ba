package service

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/sys/parallel"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// bulkMax is the most jobs of a request: some ten seconds of a store.
	bulkMax = 10_000
	// bulkErrors is the most failures in a list.
	bulkErrors = 100
	// undoneFor is how long a pause of many jobs can be undone: the audit is searched for so long. What
	// was deleted is forgotten earlier.
	undoneFor = 24 * time.Hour
	// bulkAtOnce is how many jobs of a request are changed at a time: stores commit what comes at
	// once together, and other requests still get their turn.
	bulkAtOnce = 16
)

var bulkActions = []client.BulkAction{client.BulkPause, client.BulkResume, client.BulkRun, client.BulkDelete, client.BulkRestore}

// Bulk changes many jobs at once.
type Bulk struct {
	jobs  *Jobs
	runs  *Runs
	audit *Audit
}

// Do changes all jobs that are selected, each for itself. With DryRun it counts them; with [Expect]
// it refuses if another number is selected by now.
func (s *Bulk) Do(ctx context.Context, who Caller, bulk client.Bulk) (client.BulkResult, error) {
	result := client.BulkResult{DryRun: bulk.DryRun, Errors: []client.BulkError{}}
	if err := mayBulk(who, bulk.Action); err != nil {
		return result, err
	}
	right := Define
	if bulk.Action == client.BulkRun {
		right = Operate
	}
	of, err := who.within(right, bulk.Namespace)
	if err != nil {
		return result, err
	}
	var names []Name
	switch {
	case bulk.PausedIn != "" && bulk.Action == client.BulkResume:
		names, err = s.changedIn(ctx, who, "paused_in", bulk.PausedIn, "job.pause")
	case bulk.Action == client.BulkRestore:
		names, err = s.changedIn(ctx, who, "deleted_in", bulk.DeletedIn, "job.delete")
	case of == nil && len(bulk.Labels) == 0 && bulk.Text == "" && bulk.State == "" && !bulk.All:
		return result, WrongField("all", phrase.Missing, phrase.SelectJobs)
	default:
		names, err = s.selected(ctx, of, store.JobQuery{Labels: bulk.Labels, Text: bulk.Text, State: bulk.State, Limit: PageMax})
	}
	if err != nil {
		return result, err
	}
	result.Matched = len(names)
	if bulk.Expect != nil && *bulk.Expect != len(names) {
		return result, Refuse(client.TypeConflict, phrase.OthersSelected.Of(len(names), *bulk.Expect), phrase.CountAgain)
	}
	if bulk.DryRun {
		return result, nil
	}
	err = s.change(ctx, who, names, &bulk, "", &result)
	return result, err
}

// Each changes the jobs that are named. Requests to run with the same key run each job once.
func (s *Bulk) Each(ctx context.Context, who Caller, names []Name, bulk client.Bulk, key string) (client.BulkResult, error) {
	result := client.BulkResult{Matched: len(names), Errors: []client.BulkError{}}
	if err := mayBulk(who, bulk.Action); err != nil {
		return result, err
	}
	err := s.change(ctx, who, names, &bulk, key, &result)
	return result, err
}

// mayBulk refuses an unknown or forbidden action.
func mayBulk(who Caller, action client.BulkAction) error {
	if err := who.May(Operate); err != nil {
		return err
	}
	if !slices.Contains(bulkActions, action) {
		return WrongField("action", phrase.NotKnown.Of(phrase.Quoted(action)), phrase.AllowedActions.Of([]string{"pause", "resume", "run", "delete", "restore"}))
	}
	if action == client.BulkRun {
		return nil
	}
	return who.May(Define)
}

// change changes each job, and records each result.
func (s *Bulk) change(ctx context.Context, who Caller, names []Name, bulk *client.Bulk, key string, result *client.BulkResult) error {
	ctx, err := grouped(ctx)
	if err != nil {
		return err
	}
	result.Group = store.OriginOf(ctx).Group
	errs := make([]error, len(names))
	mayStart := make([][]client.Run, len(names))
	parallel.AtOnce(len(names), bulkAtOnce, func(i int) {
		if ctx.Err() == nil {
			mayStart[i], errs[i] = s.one(ctx, who, names[i], bulk, key)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i, err := range errs {
		switch {
		case err == nil:
			result.Done++
			result.MayStart = append(result.MayStart, mayStart[i]...)
		case len(result.Errors) < bulkErrors:
			why := ErrorOf(err).Detail
			refused := client.BulkError{Job: names[i].String(), Detail: why.String()}
			refused.Code, refused.Args = why.For()
			result.Errors = append(result.Errors, refused)
		}
	}
	return nil
}

// selected returns the names of the jobs that a query selects.
func (s *Bulk) selected(ctx context.Context, of scope, q store.JobQuery) (names []Name, err error) {
	for {
		jobs, next, err := of.jobs(ctx, s.jobs.store, q)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			names = append(names, nameOf(j.Definition))
		}
		if len(names) > bulkMax {
			return nil, Refuse(client.TypeInvalid, phrase.TooManySelected.Of(bulkMax), phrase.SelectFewer)
		}
		if q.After = next; next == "" {
			return names, nil
		}
	}
}

// changedIn returns the names of the jobs that an action of a request has changed. The audit has them.
func (s *Bulk) changedIn(ctx context.Context, who Caller, field, group, action string) (names []Name, err error) {
	if _, err := job.ParseID(group); err != nil {
		return nil, WrongField(field, phrase.NotKnown.Of(phrase.Quoted(group)))
	}
	now, err := s.jobs.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	q := client.AuditQuery{Group: group, Action: action, From: now.Add(-undoneFor), PageSize: PageMax}
	for {
		page, err := s.audit.List(ctx, who, q)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			namespace, name, _ := strings.Cut(page.Items[i].Object, "/")
			names = append(names, Name{Namespace: namespace, Name: name})
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" || len(names) > bulkMax {
			return names, nil
		}
	}
}

// one changes one job, and returns its runs that may still start as before.
func (s *Bulk) one(ctx context.Context, who Caller, name Name, bulk *client.Bulk, key string) (mayStart []client.Run, err error) {
	var out Changed
	switch bulk.Action {
	case client.BulkPause:
		out, err = s.jobs.Pause(ctx, who, name, client.PauseRequest{Reason: bulk.Reason, Until: bulk.Until}, Expect{})
	case client.BulkResume:
		out, err = s.jobs.Resume(ctx, who, name, client.ResumeRequest{Missed: bulk.Missed}, Expect{})
	case client.BulkRun:
		_, err = s.runs.Start(ctx, who, name, client.RunRequest{}, key)
	case client.BulkDelete:
		if out, err = s.jobs.Delete(ctx, who, name, bulk.Reason, Expect{}); isType(err, client.TypeNotFound) {
			err = nil // it was deleted in the meantime
		}
	case client.BulkRestore:
		out, err = s.jobs.Restore(ctx, who, name)
	}
	return out.MayStart, err
}
