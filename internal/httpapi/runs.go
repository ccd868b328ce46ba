package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// runStore is what the routes about runs want.
type runStore interface {
	Active(ctx context.Context, run job.ID) (store.Run, error)
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
	AttemptsOf(ctx context.Context, run job.ID) ([]store.Record, error)
	Cancel(ctx context.Context, run job.ID, by, reason string) (store.Run, error)
	CancelRuns(ctx context.Context, runs []job.ID, by, reason string) ([]store.Run, error)
	JobByUID(ctx context.Context, uid job.ID) (*store.Job, error)
	Trigger(ctx context.Context, items []store.TriggerItem) ([]store.TriggerOutcome, error)
}

func (a *api) runRoutes() {
	register(a, http.MethodGet, "/runs", "list-runs", "List runs", a.listRuns, http.StatusNotFound)
	register(a, http.MethodGet, "/runs/{id}", "get-run", "Get a run with its attempts", a.getRun)
	register(a, http.MethodPost, "/runs/{id}/cancel", "cancel-run", "Cancel a run", a.cancelRun)
	register(a, http.MethodPost, "/runs/{id}/retry", "retry-run", "Run once more what has ended", a.retryRun, http.StatusCreated, http.StatusOK)
}

// activeRun is a run that is planned or going on, as the API shows it.
func activeRun(r *store.Run) client.Run {
	run := client.Run{
		ID: r.ID, Job: r.Namespace + "/" + r.Name, JobUID: r.JobUID, Version: r.Version,
		Kind: r.Kind, Key: r.Key, Shard: r.Shard, Shards: r.Shards,
		State: r.State, Outcome: r.Outcome, Reason: r.Reason,
		Scheduled: r.Scheduled, Due: r.Due, Attempt: r.Attempt, Node: r.Node,
		Params: r.Params, Parent: r.Parent,
		CancelBy: r.CancelBy, CancelReason: r.CancelReason,
	}
	if r.State == job.StateRunning {
		// It is claimed a moment before it is due, and started then.
		run.Started = r.Claimed
		if r.Due.After(r.Claimed) {
			run.Started = r.Due
		}
	}
	return run
}

// endedRun is a run of which the last record is known, as the API shows it.
func endedRun(r *store.Record) client.Run {
	run := client.Run{
		ID: r.Run.ID, Job: r.Run.Namespace + "/" + r.Run.Name, JobUID: r.Run.JobUID, Version: r.Run.Version,
		Kind: r.Run.Kind, Key: r.Run.Key, Shard: r.Run.Shard, Shards: r.Run.Shards,
		State: job.StateDone, Outcome: r.Attempt.Outcome, Reason: r.Attempt.Reason,
		Scheduled: r.Run.Scheduled, Due: r.Run.Due, Started: r.Attempt.Started, Ended: r.Attempt.Ended,
		Attempt: r.Attempt.Number, Node: r.Attempt.Node, Params: r.Run.Params, Parent: r.Run.Parent,
		ExitCode: r.Attempt.ExitCode, Signal: r.Attempt.Signal, HTTPStatus: r.Attempt.HTTPStatus, OutputBytes: r.OutputBytes,
		Unmet: r.Unmet,
	}
	if r.Attempt.Number == 0 && r.Run.Attempt > 0 {
		// It ended before the attempt that was to be next.
		run.Attempt = r.Run.Attempt - 1
	}
	if r.Count > 1 {
		run.Count, run.Until = r.Count, r.Until
	}
	return run
}

func attemptOf(r *store.Record) client.Attempt {
	return client.Attempt{
		Number: r.Attempt.Number, Node: r.Attempt.Node, Started: r.Attempt.Started, Ended: r.Attempt.Ended,
		Outcome: r.Attempt.Outcome, Reason: r.Attempt.Reason, ExitCode: r.Attempt.ExitCode, Signal: r.Attempt.Signal,
		HTTPStatus: r.Attempt.HTTPStatus, OutputBytes: r.OutputBytes, Late: r.Replaces, Unmet: r.Unmet,
	}
}

// finalOf returns the record that ends a run. That of a run which ended between
// two attempts has no number, and comes before theirs.
func finalOf(records []store.Record) *store.Record {
	for i := range records {
		if records[i].Final {
			return &records[i]
		}
	}
	return &records[len(records)-1]
}

// run returns a run that the caller may know of, be it active or over.
func (a *api) run(ctx context.Context, id job.ID) (client.Run, error) {
	run, err := a.anyRun(ctx, id)
	if err == nil && !visible(ctx, run.Job) {
		return client.Run{}, noRun(id)
	}
	return run, err
}

// anyRun returns a run, whoever asks.
func (a *api) anyRun(ctx context.Context, id job.ID) (client.Run, error) {
	active, err := a.Store.Active(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return client.Run{}, err
	}
	isActive := err == nil
	if isActive {
		one := []store.Run{active}
		if err := a.explain(ctx, one); err != nil {
			return client.Run{}, err
		}
		active = one[0]
	}
	// A run that ends between the two questions is in the answer to this one.
	records, err := a.Store.AttemptsOf(ctx, id)
	if err != nil {
		return client.Run{}, err
	}
	var run client.Run
	switch {
	case isActive:
		run = activeRun(&active)
	case len(records) > 0:
		run = endedRun(finalOf(records))
	default:
		return client.Run{}, noRun(id)
	}
	for i := range records {
		if records[i].Attempt.Number > 0 {
			run.Attempts = append(run.Attempts, attemptOf(&records[i]))
		}
	}
	return run, nil
}

func noRun(id job.ID) *problem {
	return refuse(client.TypeNotFound, "there is no run %s", id).withHint("it may have been removed with its history")
}

type listRunsInput struct {
	PageInput
	Namespace string    `query:"namespace" doc:"Only runs of jobs of this namespace."`
	Job       string    `query:"job" maxLength:"257" doc:"Only runs of this job: namespace/name, or its uid, also when it is deleted."`
	State     []string  `query:"state,explode" nullable:"false" enum:"ready,waiting,running,done" doc:"Only runs in this state. May be repeated; any may match."`
	Outcome   []string  `query:"outcome,explode" nullable:"false" enum:"succeeded,failed,timed_out,cancelled,lost,skipped,missed,withdrawn" doc:"Only runs that have ended so. May be repeated; any may match."`
	Unmet     bool      `query:"unmet" doc:"Only runs that have ended and were not as their job expects (policy.expect)."`
	From      time.Time `query:"from" doc:"Only runs that have ended at this instant or later."`
	To        time.Time `query:"to" doc:"Only runs that have ended before this instant."`
	Text      string    `query:"text" maxLength:"256" doc:"Only runs that have ended, with this in the name of the job or in the reason, which has the error. Without from it is looked for in the 7 days before to, or now; 31 days at most."`
}

type listRunsOutput struct {
	Body client.Page[client.Run]
}

// runsPlace is where a page of runs ended: among the active ones, by due time,
// or among those that have ended.
type runsPlace struct {
	Active *store.RunRef    `json:"active,omitempty"`
	Ended  *store.RecordRef `json:"ended,omitempty"`
	Past   bool             `json:"past,omitempty"` // all active ones were shown
}

const (
	// partsMax is how many parts of history are looked at for one page, each
	// of store.LookMax records, if lookTime does not end it before.
	partsMax = 10
	// windowSlack is how much more than client.TextWindowMax is allowed, since
	// clients count it by clocks of their own.
	windowSlack = time.Hour
)

// activeStates are those of runs that have not ended.
var activeStates = []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning}

// listRuns shows the active runs by due time, and then those that have ended, the
// latest first. A run that ends while pages are read may be shown in both
// places, and is left out of none.
func (a *api) listRuns(ctx context.Context, in *listRunsInput) (*listRunsOutput, error) {
	var place runsPlace
	if err := readToken(in.PageToken, &place); err != nil {
		return nil, err
	}
	uid, err := a.jobOf(ctx, in.Job)
	if err != nil {
		return nil, err
	}
	if err := a.checkTime(ctx, in); err != nil {
		return nil, err
	}
	onlyEnded := len(in.Outcome) > 0 || in.Unmet || !in.From.IsZero() || !in.To.IsZero() || in.Text != ""
	wanted := func(s job.RunState) bool { return len(in.State) == 0 || slices.Contains(in.State, string(s)) }
	states := slices.DeleteFunc(slices.Clone(activeStates), func(s job.RunState) bool { return !wanted(s) })

	out := &listRunsOutput{Body: client.Page[client.Run]{Items: []client.Run{}}}
	if !onlyEnded && len(states) > 0 && place.Ended == nil && !place.Past {
		next, err := a.listActive(ctx, in, uid, states, place.Active, out)
		if err != nil || next != nil {
			if next != nil {
				out.Body.NextPageToken = writeToken(runsPlace{Active: next})
			}
			return out, err
		}
	}
	if !wanted(job.StateDone) {
		return out, nil
	}
	if len(out.Body.Items) >= in.PageSize {
		out.Body.NextPageToken = writeToken(runsPlace{Past: true})
		return out, nil
	}
	return out, a.listEnded(ctx, in, uid, place.Ended, out)
}

// checkTime reports a span of time that cannot be meant, and one that is too long
// to look for a text in. With a text it sets the beginning of the span.
func (a *api) checkTime(ctx context.Context, in *listRunsInput) error {
	if !in.From.IsZero() && !in.To.IsZero() && !in.From.Before(in.To) {
		return wrongParameter("from", "is not before the end, "+in.To.Format(time.RFC3339), "")
	}
	if in.Text == "" {
		return nil
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return err
	}
	to := cmp.Or(in.To, now)
	if in.From.IsZero() {
		in.From = to.Add(-client.TextWindow)
	}
	if span := to.Sub(in.From); in.PageToken == "" && span > client.TextWindowMax+windowSlack {
		return wrongParameter("from", fmt.Sprintf("is %s before the end, and text is looked for in at most %s", days(span), days(client.TextWindowMax)),
			"choose a later beginning or an earlier end")
	}
	return nil
}

// days writes a long span of time.
func days(d time.Duration) string { return fmt.Sprintf("%d days", d/(24*time.Hour)) }

// jobOf returns the uid of a job in a query; zero if none is named.
func (a *api) jobOf(ctx context.Context, name string) (job.ID, error) {
	if name == "" {
		return job.ID{}, nil
	}
	if id, err := job.ParseID(name); err == nil {
		return id, nil
	}
	namespace, short, found := strings.Cut(name, "/")
	if !found {
		namespace, short = job.DefaultNamespace, name
	}
	j, err := a.find(ctx, JobName{namespace, short})
	if err != nil {
		return job.ID{}, err
	}
	return j.Definition.UID, nil
}

// listActive fills a page with active runs. It returns where to go on if there
// are more.
func (a *api) listActive(ctx context.Context, in *listRunsInput, uid job.ID, states []job.RunState, after *store.RunRef, out *listRunsOutput) (*store.RunRef, error) {
	q := store.ActiveQuery{Namespace: in.Namespace, Job: uid, Limit: in.PageSize + 1}
	if len(states) == 1 {
		q.State = states[0]
	}
	if after != nil {
		q.After = *after
	}
	for {
		runs, err := a.Store.ListActive(ctx, q)
		if err != nil {
			return nil, err
		}
		if err := a.explain(ctx, runs); err != nil {
			return nil, err
		}
		for i := range runs {
			if !slices.Contains(states, runs[i].State) {
				continue
			}
			if len(out.Body.Items) == in.PageSize {
				return &q.After, nil
			}
			out.Body.Items = append(out.Body.Items, activeRun(&runs[i]))
			q.After = store.RunRef{Due: runs[i].Due, ID: runs[i].ID}
		}
		if len(runs) < q.Limit {
			return nil, nil
		}
		last := runs[len(runs)-1]
		q.After = store.RunRef{Due: last.Due, ID: last.ID}
	}
}

// listEnded fills a page with runs that have ended.
func (a *api) listEnded(ctx context.Context, in *listRunsInput, uid job.ID, before *store.RecordRef, out *listRunsOutput) error {
	q := store.HistoryQuery{Namespace: in.Namespace, Job: uid, From: in.From, To: in.To, Text: in.Text, Unmet: in.Unmet, FinalOnly: true}
	for _, o := range in.Outcome {
		q.Outcomes = append(q.Outcomes, job.Outcome(o))
	}
	if before != nil {
		q.Before = *before
	}
	began := a.Now()
	for range partsMax {
		q.Limit = in.PageSize - len(out.Body.Items)
		records, next, err := a.Store.Attempts(ctx, q)
		if err != nil {
			return err
		}
		for i := range records {
			out.Body.Items = append(out.Body.Items, endedRun(&records[i]))
		}
		if q.Before = next; next == (store.RecordRef{}) {
			return nil
		}
		if len(out.Body.Items) == in.PageSize || a.Now().Sub(began) >= lookTime {
			break
		}
	}
	out.Body.NextPageToken = writeToken(runsPlace{Ended: &q.Before})
	return nil
}

// RunInput names a run in a path.
type RunInput struct {
	ID job.ID `path:"id" doc:"The identity of the run."`
}

type runOutput struct {
	Body client.Run
}

func (a *api) getRun(ctx context.Context, in *RunInput) (*runOutput, error) {
	run, err := a.run(ctx, in.ID)
	return &runOutput{run}, err
}

type cancelRunInput struct {
	RunInput
	Body *client.CancelRequest `required:"false"`
}

func (a *api) cancelRun(ctx context.Context, in *cancelRunInput) (*runOutput, error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	if caller(ctx).Namespace != "" {
		if _, err := a.run(ctx, in.ID); err != nil {
			return nil, err
		}
	}
	cancelled, err := a.Store.Cancel(ctx, in.ID, actorOf(ctx), reason)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err == nil && cancelled.State != job.StateDone {
		return &runOutput{activeRun(&cancelled)}, nil
	}
	run, err := a.run(ctx, in.ID)
	if err == nil && run.Outcome != job.OutcomeCancelled {
		err = refuse(client.TypeConflict, "run %s has ended already: %s", in.ID, run.Outcome)
	}
	return &runOutput{run}, err
}

type retryRunInput struct {
	RunInput
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"256" doc:"Requests with the same key make one run in 24 hours."`
}

// retryRun makes a new run by hand that stands for the same moment.
func (a *api) retryRun(ctx context.Context, in *retryRunInput) (*madeRunOutput, error) {
	run, err := a.run(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if run.State != job.StateDone {
		return nil, refuse(client.TypeConflict, "run %s has not ended yet: it is %s", in.ID, run.State)
	}
	j, err := a.Store.JobByUID(ctx, run.JobUID)
	if errors.Is(err, store.ErrNotFound) || err == nil && j.Deleted {
		return nil, refuse(client.TypeNotFound, "the job %s of the run was deleted", run.Job)
	}
	if err != nil {
		return nil, err
	}
	// Parameters that the job does not declare, or not any more, are for those that follow it.
	return a.trigger(ctx, j, store.TriggerItem{
		Key: in.IdempotencyKey, Params: run.Params, Scheduled: run.Scheduled, Shard: run.Shard, Shards: run.Shards,
	})
}
