package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// statsRoutes count past and future runs.
func (a *api) statsRoutes() {
	register(a, "GET /stats", "get-stats", "Count what has run, in buckets of time", may(service.Read), a.getStats, http.StatusNotFound)
	register(a, "GET /lanes", "list-lanes", "Count what has run by job, in buckets of time", may(service.Read), a.listLanes)
	register(a, "GET /load", "get-load", "Count what schedules will start, in steps of time", may(service.Read), a.getLoad)
	register(a, "GET /load/jobs", "list-due-jobs", "List the jobs that fall due within a span", may(service.Read), a.listDueJobs)
	register(a, "GET /load/windows", "list-openings", "List when maintenance windows are open within a span", may(service.Read), a.listOpenings)
	register(a, "GET /jobs/{namespace}/{name}/statistics", "statistics-of-job", "Show how the last runs of a job went", may(service.Read), a.statisticsOfJob)
}

type statsInput struct {
	Namespace string    `query:"namespace" maxLength:"128" doc:"Only runs of jobs of this namespace."`
	Job       string    `query:"job" maxLength:"257" doc:"Only runs of this job: name, namespace/name or uid."`
	From      time.Time `query:"from" doc:"Count from the bucket with this instant on. Default: 24 hours ago."`
	To        time.Time `query:"to" doc:"Count what ended before this instant. Default: now."`
	Step      string    `query:"step" default:"60s" maxLength:"16" doc:"The length of a bucket, such as 60s, 10m or 1h: whole seconds, and 2,200 buckets at most."`
}

func (a *api) getStats(ctx context.Context, in *statsInput) (*answer[client.Stats], error) {
	step, err := stepOf(in.Step)
	if err != nil {
		return nil, err
	}
	return answered(a.Service.Stats.Over(ctx, caller(ctx), client.StatsQuery{Namespace: in.Namespace, Job: in.Job, From: in.From, To: in.To, Step: step}))
}

type lanesInput struct {
	Namespace string    `query:"namespace" maxLength:"128" doc:"Only jobs of this namespace."`
	Label     []string  `query:"label,explode" nullable:"false" maxItems:"16" doc:"Only jobs with this label: key=value. May be repeated; all must match."`
	Text      string    `query:"q" maxLength:"256" doc:"Only jobs with this text in their name, title or description."`
	From      time.Time `query:"from" doc:"Count from the bucket with this instant on. Default: 24 hours ago."`
	To        time.Time `query:"to" doc:"Count what ended before this instant. Default: now."`
	Step      string    `query:"step" default:"10m" maxLength:"16" doc:"The length of a bucket, 300 at most: multiples of 5m are counted from slices, others from the runs."`
	PageSize  int       `query:"page_size" minimum:"1" maximum:"300" default:"100" doc:"The most jobs to list."`
	PageToken string    `query:"page_token" maxLength:"1024" doc:"The next_page_token of the page before."`
}

func (a *api) listLanes(ctx context.Context, in *lanesInput) (*answer[client.Lanes], error) {
	step, err := stepOf(in.Step)
	if err != nil {
		return nil, err
	}
	labels, err := labelsOf(in.Label)
	if err != nil {
		return nil, err
	}
	return answered(a.Service.Stats.Lanes(ctx, caller(ctx), client.LanesQuery{
		Namespace: in.Namespace, Text: in.Text, Labels: labels, From: in.From, To: in.To, Step: step, PageSize: in.PageSize, PageToken: in.PageToken,
	}))
}

// stepOf reads the length of a step.
func stepOf(text string) (time.Duration, error) {
	step, err := job.ParseDuration(text)
	if err != nil {
		return 0, wrongParameter("step", err.Error())
	}
	return time.Duration(step), nil
}

type loadInput struct {
	Namespace string    `query:"namespace" maxLength:"128" doc:"Only jobs of this namespace."`
	Label     []string  `query:"label,explode" nullable:"false" maxItems:"16" doc:"Only jobs with this label: key=value. May be repeated; all must match."`
	From      time.Time `query:"from" doc:"Count from the step with this instant on. Default: now."`
	To        time.Time `query:"to" doc:"Count what falls due before this instant, at most 32 days ahead. Default: 24 hours after from."`
	Step      string    `query:"step" default:"60s" maxLength:"16" doc:"The length of a step, such as 60s, 10m or 1h: whole seconds, and 2,000 steps at most."`
}

func (a *api) getLoad(ctx context.Context, in *loadInput) (*answer[client.Load], error) {
	step, err := stepOf(in.Step)
	if err != nil {
		return nil, err
	}
	labels, err := labelsOf(in.Label)
	if err != nil {
		return nil, err
	}
	return answered(a.Service.Load.Ahead(ctx, caller(ctx), client.LoadQuery{Namespace: in.Namespace, Labels: labels, From: in.From, To: in.To, Step: step}))
}

type dueJobsInput struct {
	Namespace string    `query:"namespace" maxLength:"128" doc:"Only jobs of this namespace."`
	From      time.Time `query:"from" doc:"The beginning of the span. Default: now."`
	To        time.Time `query:"to" doc:"Its end, which is not part of it. Default: a minute after from."`
	Spread    string    `query:"spread" maxLength:"16" doc:"Also say by how much this spread, such as 15m, would delay the starts of each job."`
	PageSize  int       `query:"page_size" minimum:"1" maximum:"500" default:"100" doc:"The most items to list."`
}

func (a *api) listDueJobs(ctx context.Context, in *dueJobsInput) (*answer[client.Page[client.DueJob]], error) {
	if in.Spread == "" {
		return listed(a.Service.Load.Due(ctx, caller(ctx), in.Namespace, in.From, in.To, in.PageSize))
	}
	spread, err := job.ParseDuration(in.Spread)
	if err != nil {
		return nil, wrongParameter("spread", err.Error())
	}
	return listed(a.Service.Load.Spread(ctx, caller(ctx), in.Namespace, in.From, in.To, time.Duration(spread), in.PageSize))
}

type openingsInput struct {
	Namespace string    `query:"namespace" maxLength:"128" doc:"Only windows that match jobs of this namespace."`
	From      time.Time `query:"from" doc:"The beginning of the span. Default: now."`
	To        time.Time `query:"to" doc:"Its end, at most 32 days ahead. Default: 24 hours after from."`
}

func (a *api) listOpenings(ctx context.Context, in *openingsInput) (*answer[client.Page[client.Opening]], error) {
	return listed(a.Service.Load.Openings(ctx, caller(ctx), in.Namespace, in.From, in.To))
}

type statisticsInput struct {
	JobName
	Timezone string `query:"timezone" maxLength:"64" default:"UTC" doc:"The time zone whose days are counted."`
}

func (a *api) statisticsOfJob(ctx context.Context, in *statisticsInput) (*answer[client.JobStatistics], error) {
	return answered(a.Service.Stats.OfJob(ctx, caller(ctx), in.name(), in.Timezone))
}
