package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// workerRoutes are the routes for workers without a store.
func (a *api) workerRoutes() {
	const session = "/worker/sessions/{session}"
	register(a, "POST /worker/tokens", "worker-token", "Exchange a joining token for a token of the worker's own", may(service.JoinAsWorker, smallBody), taking(a.Workers.OwnToken), http.StatusConflict)
	register(a, "POST /worker/sessions", "worker-join", "Begin a session of a worker", may(service.WorkAsWorker, workerBody), taking(a.Workers.Join), http.StatusUpgradeRequired)
	register(a, "GET /worker/clock", "worker-clock", "Get the clock of the store", may(service.WorkAsWorker), bare(a.Workers.Clock))
	register(a, "GET /worker/calendars", "worker-calendars", "List the calendars that schedules name", may(service.WorkAsWorker), bare(a.Workers.Calendars))
	register(a, "POST "+session+"/renew", "worker-renew", "Say that the worker lives", may(service.WorkAsWorker, smallBody), sessionTelling(a.Workers.Renew), workerAnswers...)
	register(a, "POST "+session+"/leave", "worker-leave", "Say that the worker stops and takes no more runs", may(service.WorkAsWorker), a.workerLeave, workerAnswers...)
	register(a, "DELETE "+session, "worker-end", "End a session whose worker runs nothing any more", may(service.WorkAsWorker), a.workerEnd, workerAnswers...)
	register(a, "GET "+session+"/members", "worker-members", "Get the session of the worker, and what it may know of others", may(service.WorkAsWorker), ofSession(a.Workers.Members), workerAnswers...)
	register(a, "GET "+session+"/ready", "worker-ready", "List runs that are assigned to the worker", may(service.WorkAsWorker), a.workerReady, workerAnswers...)
	register(a, "POST "+session+"/overdue", "worker-overdue", "List overdue runs that other nodes have left and the worker may run", may(service.WorkAsWorker, smallBody), sessionTaking(a.Workers.Stealable), workerAnswers...)
	register(a, "POST "+session+"/claims", "worker-claim", "Claim attempts", may(service.WorkAsWorker, workerBody), sessionTaking(a.Workers.Claim), workerAnswers...)
	register(a, "POST "+session+"/releases", "worker-release", "Give back attempts that have not begun", may(service.WorkAsWorker, workerBody), sessionTelling(a.Workers.Release), workerAnswers...)
	register(a, "POST "+session+"/results", "worker-finish", "Report how attempts ended", may(service.WorkAsWorker, workerBody), sessionTaking(a.Workers.Finish), workerAnswers...)
	register(a, "GET "+session+"/runs", "worker-runs", "List the runs of the worker, with those to cancel", may(service.WorkAsWorker), ofSession(a.Workers.Mine), workerAnswers...)
	register(a, "POST "+session+"/output", "worker-output", "Keep output of attempts that run", may(service.WorkAsWorker, workerBody), sessionTelling(a.Workers.Output), workerAnswers...)
	register(a, "POST "+session+"/versions", "worker-versions", "Get the present versions of jobs", may(service.WorkAsWorker, workerBody), sessionTaking(a.Workers.Versions), workerAnswers...)
	register(a, "POST "+session+"/over", "worker-over", "Ask which runs have ended", may(service.WorkAsWorker, smallBody), sessionTaking(a.Workers.Over), workerAnswers...)
	register(a, "POST "+session+"/secrets", "worker-secrets", "Get the secrets of an attempt", may(service.WorkAsWorker, smallBody), sessionTaking(a.Workers.Secrets), workerAnswers...)
	register(a, "POST "+session+"/boot", "worker-boot", "Start the jobs that are due at the start of a node", may(service.WorkAsWorker, smallBody), sessionTelling(a.Workers.StartBoot), workerAnswers...)
	register(a, "GET "+session+"/hints", "worker-hints", "Wait until there is something to look at", may(service.WorkAsWorker), a.workerHints, workerAnswers...)
}

// workerAnswers are the possible statuses of a session's request.
var workerAnswers = []int{http.StatusGone, http.StatusInsufficientStorage}

// WorkerSession names the session of a worker in a path.
type WorkerSession struct {
	Session job.ID `path:"session" doc:"The session of the worker."`
}

func (a *api) workerLeave(ctx context.Context, in *WorkerSession) (*struct{}, error) {
	return nil, a.Workers.Leave(ctx, caller(ctx), in.Session)
}

func (a *api) workerEnd(ctx context.Context, in *WorkerSession) (*struct{}, error) {
	return nil, a.Workers.End(ctx, caller(ctx), in.Session)
}

type readyInput struct {
	WorkerSession
	AfterDue time.Time `query:"after_due" doc:"With after_id, the place behind which to look."`
	AfterID  string    `query:"after_id" maxLength:"26" doc:"The run at that place."`
	Until    time.Time `query:"until" doc:"Only runs that are due until then. Default: now."`
	Limit    int       `query:"limit" minimum:"1" maximum:"5000" default:"500" doc:"The most runs to list."`
}

func (a *api) workerReady(ctx context.Context, in *readyInput) (*answer[wire.Runs], error) {
	after := wire.Place{Due: in.AfterDue}
	if in.AfterID != "" {
		if err := after.ID.UnmarshalText([]byte(in.AfterID)); err != nil {
			return nil, wrongParameter("after_id", err.Error())
		}
	}
	return answered(a.Workers.Ready(ctx, caller(ctx), in.Session, after, in.Until, in.Limit))
}

type hintsInput struct {
	WorkerSession
	After string `query:"after" maxLength:"64" doc:"The place of the last answer. Without it the answer comes at once, and says to look at everything."`
	Wait  int    `query:"wait" minimum:"0" maximum:"20" default:"20" doc:"How many seconds to wait for hints."`
}

func (a *api) workerHints(ctx context.Context, in *hintsInput) (*answer[wire.Hints], error) {
	return answered(a.Workers.Hints(ctx, caller(ctx), in.Session, in.After, time.Duration(in.Wait)*time.Second))
}
