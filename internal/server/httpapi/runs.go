package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

func (a *api) runRoutes() {
	register(a, "GET /runs", "list-runs", "List runs", may(service.Read), a.listRuns, http.StatusNotFound)
	register(a, "GET /runs/{id}", "get-run", "Get a run with its attempts", may(service.Read), a.getRun)
	register(a, "GET /runs/{id}/lines", "output-lines", "Get some lines of the output of a run", may(service.Read), a.outputLines)
	register(a, "GET /runs/{id}/lines:search", "search-output", "Search the output of a run", may(service.Read), a.searchOutput)
	register(a, "GET /runs/{id}/lines:compare", "compare-outputs", "Compare the output of a run with another one's", may(service.Read), a.compareOutputs)
	register(a, "POST /runs/{id}/cancel", "cancel-run", "Cancel a run", may(service.Operate, smallBody), a.cancelRun)
	register(a, "POST /runs/{id}/steps/{step}/approve", "approve-step", "Approve a step that waits for it", may(service.Operate, smallBody), a.approveStep, http.StatusConflict)
	register(a, "POST /runs/{id}/steps/{step}/reject", "reject-step", "Reject a step that waits for an approval", may(service.Operate, smallBody), a.rejectStep, http.StatusConflict)
	register(a, "POST /runs/{id}/signals/{signal}", "signal-run", "Send a signal to the steps that wait for it", may(service.Operate, resultBody), a.signalRun, http.StatusConflict)
	register(a, "POST /runs:retry", "retry-runs", "Run several finished runs again", may(service.Operate, smallBody), a.retryRuns)
	register(a, "POST /runs/{id}/retry", "retry-run", "Run a finished run again", may(service.Operate, paramsBody), a.retryRun, http.StatusCreated, http.StatusOK)
}

type listRunsInput struct {
	PageInput
	Namespace string         `query:"namespace" doc:"Only runs of jobs of this namespace."`
	Job       string         `query:"job" maxLength:"257" doc:"Only runs of this job: namespace/name, or its uid, also when it is deleted."`
	State     []job.RunState `query:"state,explode" nullable:"false" enum:"ready,waiting,running,done" doc:"Only runs in this state. May be repeated; any may match."`
	Outcome   []job.Outcome  `query:"outcome,explode" nullable:"false" enum:"succeeded,failed,timed_out,cancelled,lost,skipped,missed,withdrawn" doc:"Only finished runs with this outcome. May be repeated; any may match."`
	Reason    string         `query:"reason" maxLength:"64" doc:"Only finished runs whose reason has this code of docs/reasons.md, itself or within another one."`
	Print     string         `query:"cause_fingerprint" maxLength:"16" doc:"Only finished runs with failures of one kind, whose cause_fingerprint this is."`
	Unmet     bool           `query:"unmet" doc:"Only finished runs that did not meet the expectations of their job (policy.expect)."`
	Kind      []job.RunKind  `query:"kind,explode" nullable:"false" enum:"schedule,backfill,hand,on,after_end,boot,step,flow" doc:"Only runs that were made by this. May be repeated; any may match."`
	Node      string         `query:"node" maxLength:"255" doc:"Only runs on this node, or assigned to it."`
	From      time.Time      `query:"from" doc:"Only runs that have ended at this instant or later, and unfinished ones that are due then."`
	To        time.Time      `query:"to" doc:"Only runs that have ended before this instant, and unfinished ones that are due before it."`
	Text      string         `query:"text" maxLength:"256" doc:"Only runs that have ended, with this in the name of the job or in the reason, which has the error. Without from it is looked for in the 7 days before to, or now; 31 days at most."`
}

func (a *api) listRuns(ctx context.Context, in *listRunsInput) (*answer[client.Page[client.Run]], error) {
	return answered(a.Service.Runs.List(ctx, caller(ctx), client.RunQuery{
		Namespace: in.Namespace, Job: in.Job, States: in.State, Outcomes: in.Outcome, Reason: in.Reason, CauseFingerprint: in.Print, Unmet: in.Unmet, Kinds: in.Kind, Node: in.Node,
		From: in.From, To: in.To, Text: in.Text, PageSize: in.PageSize, PageToken: in.PageToken,
	}))
}

// RunInput names a run in a path.
type RunInput struct {
	ID job.ID `path:"id" doc:"The identity of the run."`
}

func (a *api) getRun(ctx context.Context, in *RunInput) (*answer[client.Run], error) {
	return answered(a.Service.Runs.Get(ctx, caller(ctx), in.ID))
}

type cancelRunInput struct {
	RunInput
	Body *client.CancelRequest `required:"false"`
}

func (a *api) cancelRun(ctx context.Context, in *cancelRunInput) (*answer[client.Run], error) {
	return answered(a.Service.Runs.Cancel(ctx, caller(ctx), in.ID, given(in.Body).Reason))
}

type answerInput struct {
	RunInput
	Step string                `path:"step" maxLength:"64" doc:"The step."`
	Body *client.AnswerRequest `required:"false"`
}

func (a *api) approveStep(ctx context.Context, in *answerInput) (*answer[client.Run], error) {
	return answered(a.Service.Runs.Approve(ctx, caller(ctx), in.ID, in.Step, false, given(in.Body).Note))
}

func (a *api) rejectStep(ctx context.Context, in *answerInput) (*answer[client.Run], error) {
	return answered(a.Service.Runs.Approve(ctx, caller(ctx), in.ID, in.Step, true, given(in.Body).Note))
}

type signalInput struct {
	RunInput
	Signal string                `path:"signal" maxLength:"64" doc:"The name of the signal."`
	Body   *client.SignalRequest `required:"false"`
}

func (a *api) signalRun(ctx context.Context, in *signalInput) (*answer[client.Run], error) {
	return answered(a.Service.Runs.Signal(ctx, caller(ctx), in.ID, in.Signal, given(in.Body).Data))
}

type retryRunInput struct {
	RunInput
	IdempotencyKey string               `header:"Idempotency-Key" maxLength:"256" doc:"Requests with the same key create one run within 24 hours."`
	Body           *client.RetryRequest `required:"false"`
}

func (a *api) retryRun(ctx context.Context, in *retryRunInput) (*madeRunOutput, error) {
	return runOutput(a.Service.Runs.Retry(ctx, caller(ctx), in.ID, given(in.Body), in.IdempotencyKey))
}

type retryRunsInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"256" doc:"Requests with the same key create one run of each within 24 hours."`
	Body           client.RetriesRequest
}

func (a *api) retryRuns(ctx context.Context, in *retryRunsInput) (*answer[client.Retries], error) {
	return answered(a.Service.Runs.RetryAll(ctx, caller(ctx), in.Body.Runs, in.IdempotencyKey))
}

// LinesInput selects lines of an attempt.
type LinesInput struct {
	RunInput
	Attempt int    `query:"attempt" minimum:"0" doc:"The number of the attempt. Default: the latest."`
	Stream  string `query:"stream" enum:"stdout,stderr" doc:"Only lines of this stream: from, total and next_line then count those alone. Default: both."`
	From    int    `query:"from" minimum:"0" doc:"The place of the first line, from 1. Default: 1 for a search, else the line from which the answer reaches the last one."`
	Count   int    `query:"count" minimum:"1" maximum:"2000" default:"500" doc:"The most lines to return."`
}

func (in *LinesInput) query() client.LinesQuery {
	return client.LinesQuery{Attempt: in.Attempt, Stream: in.Stream, From: in.From, Count: in.Count}
}

func (a *api) outputLines(ctx context.Context, in *LinesInput) (*answer[client.OutputLines], error) {
	return answered(a.Service.Lines.Read(ctx, caller(ctx), in.ID, in.query()))
}

type searchOutputInput struct {
	LinesInput
	Text   string `query:"text" minLength:"1" maxLength:"256" doc:"What the lines contain, in whatever case."`
	Errors bool   `query:"errors" doc:"Only lines that name an error: that say error, err, panic, fatal, exception, failed, denied or refused."`
}

func (a *api) searchOutput(ctx context.Context, in *searchOutputInput) (*answer[client.OutputLines], error) {
	q := in.query()
	q.Text, q.Errors = in.Text, in.Errors
	return answered(a.Service.Lines.Search(ctx, caller(ctx), in.ID, q))
}

type compareOutputsInput struct {
	RunInput
	With    job.ID `query:"with" doc:"The other run, whose latest attempt is compared. Default: the last run of the job that succeeded before this one ended."`
	Attempt int    `query:"attempt" minimum:"0" doc:"The number of the attempt. Default: the latest."`
	Stream  string `query:"stream" enum:"stdout,stderr" doc:"Only lines of this stream. Default: both."`
}

func (a *api) compareOutputs(ctx context.Context, in *compareOutputsInput) (*answer[client.ComparedOutputs], error) {
	return answered(a.Service.Lines.Compare(ctx, caller(ctx), in.ID, client.CompareQuery{Attempt: in.Attempt, With: in.With, Stream: in.Stream}))
}
