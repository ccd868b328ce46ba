package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
)

// workerRoutes are the routes for workers without a store.
func (a *api) workerRoutes() {
	const session = "/worker/sessions/{session}"
	register(a, http.MethodPost, "/worker/tokens", "worker-token", "Exchange a joining token for a token of the worker's own", a.workerToken, http.StatusConflict)
	register(a, http.MethodPost, "/worker/sessions", "worker-join", "Begin a session of a worker", a.workerJoin, http.StatusUpgradeRequired)
	register(a, http.MethodGet, "/worker/clock", "worker-clock", "Get the clock of the store", a.workerClock)
	register(a, http.MethodGet, "/worker/calendars", "worker-calendars", "List the calendars that schedules name", a.workerCalendars)
	register(a, http.MethodPost, session+"/renew", "worker-renew", "Say that the worker lives", a.workerRenew, workerAnswers...)
	register(a, http.MethodPost, session+"/leave", "worker-leave", "Say that the worker stops and takes no more runs", a.workerLeave, workerAnswers...)
	register(a, http.MethodDelete, session, "worker-end", "End a session whose worker runs nothing any more", a.workerEnd, workerAnswers...)
	register(a, http.MethodGet, session+"/members", "worker-members", "Get the session of the worker, and what it may know of others", a.workerMembers, workerAnswers...)
	register(a, http.MethodGet, session+"/ready", "worker-ready", "List runs that are assigned to the worker", a.workerReady, workerAnswers...)
	register(a, http.MethodPost, session+"/overdue", "worker-overdue", "List overdue runs that other nodes have left and the worker may run", a.workerOverdue, workerAnswers...)
	register(a, http.MethodPost, session+"/claims", "worker-claim", "Claim attempts", a.workerClaim, workerAnswers...)
	register(a, http.MethodPost, session+"/releases", "worker-release", "Give back attempts that have not begun", a.workerRelease, workerAnswers...)
	register(a, http.MethodPost, session+"/results", "worker-finish", "Report how attempts ended", a.workerFinish, workerAnswers...)
	register(a, http.MethodGet, session+"/runs", "worker-runs", "List the runs of the worker, with those to cancel", a.workerRuns, workerAnswers...)
	register(a, http.MethodPost, session+"/output", "worker-output", "Keep output of attempts that run", a.workerOutput, workerAnswers...)
	register(a, http.MethodPost, session+"/versions", "worker-versions", "Get the present versions of jobs", a.workerVersions, workerAnswers...)
	register(a, http.MethodPost, session+"/over", "worker-over", "Ask which runs have ended", a.workerOver, workerAnswers...)
	register(a, http.MethodPost, session+"/secrets", "worker-secrets", "Get the secrets of an attempt", a.workerSecrets, workerAnswers...)
	register(a, http.MethodPost, session+"/boot", "worker-boot", "Start the jobs that are due at the start of a node", a.workerBoot, workerAnswers...)
	register(a, http.MethodGet, session+"/hints", "worker-hints", "Wait until there is something to look at", a.workerHints, workerAnswers...)
}

// workerAnswers are the possible statuses of a session's request.
var workerAnswers = []int{http.StatusGone, http.StatusInsufficientStorage}

// WorkerSession names the session of a worker in a path.
type WorkerSession struct {
	Session job.ID `path:"session" doc:"The session of the worker."`
}

type ownTokenInput struct{ Body wire.OwnToken }

func (a *api) workerToken(ctx context.Context, in *ownTokenInput) (*answer[wire.Granted], error) {
	return answered(a.Service.Workers.OwnToken(ctx, caller(ctx), in.Body))
}

type joinInput struct{ Body wire.Join }

func (a *api) workerJoin(ctx context.Context, in *joinInput) (*answer[wire.Joined], error) {
	return answered(a.Service.Workers.Join(ctx, caller(ctx), in.Body))
}

func (a *api) workerClock(ctx context.Context, _ *struct{}) (*answer[wire.Clock], error) {
	return answered(a.Service.Workers.Clock(ctx, caller(ctx)))
}

func (a *api) workerCalendars(ctx context.Context, _ *struct{}) (*answer[wire.Calendars], error) {
	return answered(a.Service.Workers.Calendars(ctx, caller(ctx)))
}

type renewInput struct {
	WorkerSession
	Body wire.Load
}

func (a *api) workerRenew(ctx context.Context, in *renewInput) (*struct{}, error) {
	return nil, a.Service.Workers.Renew(ctx, caller(ctx), in.Session, in.Body)
}

func (a *api) workerLeave(ctx context.Context, in *WorkerSession) (*struct{}, error) {
	return nil, a.Service.Workers.Leave(ctx, caller(ctx), in.Session)
}

func (a *api) workerEnd(ctx context.Context, in *WorkerSession) (*struct{}, error) {
	return nil, a.Service.Workers.End(ctx, caller(ctx), in.Session)
}

func (a *api) workerMembers(ctx context.Context, in *WorkerSession) (*answer[wire.Members], error) {
	return answered(a.Service.Workers.Members(ctx, caller(ctx), in.Session))
}

type readyInput struct {
	WorkerSession
	AfterDue time.Time `query:"after_due" doc:"With after_id, the place behind which to look."`
	AfterID  string    `query:"after_id" maxLength:"26" doc:"The run at that place."`
	Until    time.Time `query:"until" doc:"Only runs that are due until then. Default: now."`
	Limit    int       `query:"limit" minimum:"1" maximum:"5000" default:"500" doc:"At most so many."`
}

func (a *api) workerReady(ctx context.Context, in *readyInput) (*answer[wire.Runs], error) {
	after := wire.Place{Due: in.AfterDue}
	if in.AfterID != "" {
		if err := after.ID.UnmarshalText([]byte(in.AfterID)); err != nil {
			return nil, wrongParameter("after_id", err.Error())
		}
	}
	return answered(a.Service.Workers.Ready(ctx, caller(ctx), in.Session, after, in.Until, in.Limit))
}

type overdueInput struct {
	WorkerSession
	Body wire.Overdue
}

func (a *api) workerOverdue(ctx context.Context, in *overdueInput) (*answer[wire.Runs], error) {
	return answered(a.Service.Workers.Stealable(ctx, caller(ctx), in.Session, in.Body))
}

type attemptsInput struct {
	WorkerSession
	Body wire.Attempts
}

func (a *api) workerClaim(ctx context.Context, in *attemptsInput) (*answer[wire.Claims], error) {
	return answered(a.Service.Workers.Claim(ctx, caller(ctx), in.Session, in.Body))
}

func (a *api) workerRelease(ctx context.Context, in *attemptsInput) (*struct{}, error) {
	return nil, a.Service.Workers.Release(ctx, caller(ctx), in.Session, in.Body)
}

type resultsInput struct {
	WorkerSession
	Body wire.Results
}

func (a *api) workerFinish(ctx context.Context, in *resultsInput) (*answer[wire.Finished], error) {
	return answered(a.Service.Workers.Finish(ctx, caller(ctx), in.Session, in.Body))
}

func (a *api) workerRuns(ctx context.Context, in *WorkerSession) (*answer[wire.Mine], error) {
	return answered(a.Service.Workers.Mine(ctx, caller(ctx), in.Session))
}

type workerOutputInput struct {
	WorkerSession
	Body wire.Output
}

func (a *api) workerOutput(ctx context.Context, in *workerOutputInput) (*struct{}, error) {
	return nil, a.Service.Workers.Output(ctx, caller(ctx), in.Session, in.Body)
}

type versionsInput struct {
	WorkerSession
	Body wire.Jobs
}

func (a *api) workerVersions(ctx context.Context, in *versionsInput) (*answer[wire.Versions], error) {
	return answered(a.Service.Workers.Versions(ctx, caller(ctx), in.Session, in.Body))
}

type overInput struct {
	WorkerSession
	Body wire.RunIDs
}

func (a *api) workerOver(ctx context.Context, in *overInput) (*answer[wire.RunIDs], error) {
	return answered(a.Service.Workers.Over(ctx, caller(ctx), in.Session, in.Body))
}

type secretsInput struct {
	WorkerSession
	Body wire.SecretsOf
}

func (a *api) workerSecrets(ctx context.Context, in *secretsInput) (*answer[wire.Secrets], error) {
	return answered(a.Service.Workers.Secrets(ctx, caller(ctx), in.Session, in.Body))
}

type bootInput struct {
	WorkerSession
	Body wire.Boot
}

func (a *api) workerBoot(ctx context.Context, in *bootInput) (*struct{}, error) {
	return nil, a.Service.Workers.StartBoot(ctx, caller(ctx), in.Session, in.Body)
}

type hintsInput struct {
	WorkerSession
	After string `query:"after" maxLength:"64" doc:"The place of the last answer. Without it the answer comes at once, and says to look at everything."`
	Wait  int    `query:"wait" minimum:"0" maximum:"20" default:"20" doc:"How many seconds to wait for hints."`
}

func (a *api) workerHints(ctx context.Context, in *hintsInput) (*answer[wire.Hints], error) {
	return answered(a.Service.Workers.Hints(ctx, caller(ctx), in.Session, in.After, time.Duration(in.Wait)*time.Second))
}
