package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

func (a *api) jobRoutes() {
	const one = "/jobs/{namespace}/{name}"
	register(a, "GET /jobs", "list-jobs", "List jobs", may(service.Read), a.listJobs)
	register(a, "POST /jobs", "create-job", "Create a job", may(service.Define, documentBody), a.createJob, http.StatusCreated)
	register(a, "GET "+one, "get-job", "Get a job", may(service.Read), a.getJob)
	register(a, "PUT "+one, "put-job", "Create or change a job", may(service.Define, documentBody), a.putJob, http.StatusOK, http.StatusCreated)
	register(a, "DELETE "+one, "delete-job", "Delete a job", may(service.Define), a.deleteJob)
	register(a, "POST "+one+"/restore", "restore-job", "Bring back a job that was deleted in the last hour", may(service.Define), a.restoreJob)
	register(a, "POST "+one+"/pause", "pause-job", "Pause a job", may(service.Define, smallBody), a.pauseJob)
	register(a, "POST "+one+"/resume", "resume-job", "Resume a job", may(service.Define, smallBody), a.resumeJob)
	register(a, "POST "+one+"/run", "run-job", "Run a job now", may(service.Operate, paramsBody), a.runJob, http.StatusCreated, http.StatusOK)
	register(a, "POST "+one+"/report", "report-job", "Report on work that Belfry does not start", may(service.Operate, reportBody), a.reportJob)
	register(a, "POST "+one+"/ping-key", "rotate-ping-key", "Make the ping key of a job, in place of the one before", may(service.Define), a.rotatePingKey)
	register(a, "POST "+one+"/backfill", "backfill-job", "Run a job for past scheduled times", may(service.Operate, smallBody), a.backfillJob, http.StatusOK, http.StatusCreated)
	register(a, "POST "+one+"/backfill/cancel", "cancel-backfill", "Cancel all backfills of a job", may(service.Operate, smallBody), a.cancelBackfill)
	register(a, "GET "+one+"/next", "next-of-job", "Show when a job falls due next", may(service.Read), a.nextOfJob)
	register(a, "GET "+one+"/followers", "list-followers", "List the jobs that runs of a job start", may(service.Read), a.listFollowers)
	register(a, "GET "+one+"/revisions", "list-revisions", "List the versions of a job, the latest first", may(service.Read), a.listRevisions)
	register(a, "GET "+one+"/revisions/{version}", "get-revision", "Get a version of a job", may(service.Read), a.getRevision)
	register(a, "POST "+one+"/rollback", "rollback-job", "Restore a version of a job", may(service.Define, smallBody), a.rollbackJob)
	register(a, "POST /jobs:apply", "apply", "Create or update jobs, calendars, pools, channels and executors to match documents", may(service.Read, filesBody), taking(a.Service.Documents.Apply))
	register(a, "POST /jobs:check", "check", "Check a document and say what it means, without saving it", may(service.Read, documentBody), taking(a.Service.Documents.Check))
	register(a, "POST /jobs:bulk", "bulk", "Pause, resume, run, delete or restore all jobs that are selected", may(service.Operate, smallBody), taking(a.Service.Bulk.Do))
	register(a, "GET /schedules:preview", "preview-schedule", "Explain a schedule and show when it falls due", may(service.Read), a.previewSchedule)
}

// JobName names a job in a path. It is exported, as the types below that others embed,
// because the routes' library sees no other.
type JobName struct {
	Namespace string `path:"namespace" maxLength:"128" doc:"The namespace of the job."`
	Name      string `path:"name" maxLength:"128" doc:"The name of the job."`
}

func (n JobName) name() service.Name { return service.Name(n) }

// PageInput is part of the question for every list.
type PageInput struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"500" default:"100" doc:"How many items a page has."`
	PageToken string `query:"page_token" maxLength:"1024" doc:"The next_page_token of the page before."`
}

// answer has only a body.
type answer[T any] struct{ Body T }

func answered[T any](body T, err error) (*answer[T], error) { return &answer[T]{body}, err }

// listed answers with a list that has one page.
func listed[T any](items []T, err error) (*answer[client.Page[T]], error) {
	return &answer[client.Page[T]]{client.Page[T]{Items: items}}, err
}

type documentOutput struct {
	ETag string `header:"ETag" doc:"The version of the job, for If-Match."`
	Body client.Document
}

type changeOutput struct {
	Status int
	ETag   string `header:"ETag" doc:"The version of the job, for If-Match."`
	Body   client.Change
}

func changed(c service.Changed, err error) (*changeOutput, error) {
	out := &changeOutput{Status: http.StatusOK, ETag: etag(c.Version), Body: c.Change}
	if c.Result == client.Created {
		out.Status = http.StatusCreated
	}
	return out, err
}

func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// Conditions are the expected version of a change's object.
type Conditions struct {
	IfMatch     string `header:"If-Match" doc:"The ETag of the version to change, or * for any."`
	IfNoneMatch string `header:"If-None-Match" doc:"* to create what must not exist."`
}

// expect reads the conditions, one of which is required.
func (c *Conditions) expect() (service.Expect, error) {
	switch {
	case c.IfMatch == "" && c.IfNoneMatch == "":
		return service.Expect{}, service.Refuse(client.TypeVersionWanted, phrase.IfMatchMissing, phrase.SendIfMatchOrNone)
	case c.IfNoneMatch != "" && (c.IfNoneMatch != "*" || c.IfMatch != ""):
		return service.Expect{}, wrongParameter("If-None-Match", "allowed is * alone, without If-Match")
	case c.IfNoneMatch != "":
		return service.Expect{Absent: true}, nil
	}
	return matching(c.IfMatch)
}

// deletes reads the version that a deletion is for, which must be given.
func deletes(ifMatch string) (service.Expect, error) {
	if ifMatch == "" {
		return service.Expect{}, service.Refuse(client.TypeVersionWanted, phrase.IfMatchMissing, phrase.SendIfMatch)
	}
	return matching(ifMatch)
}

// matching reads the header If-Match.
func matching(header string) (expect service.Expect, err error) {
	if header = strings.TrimSpace(header); header == "" || header == "*" {
		return expect, nil
	}
	for tag := range strings.SplitSeq(header, ",") {
		text, err := strconv.Unquote(strings.TrimSpace(tag))
		var version int64
		if err == nil {
			version, err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return expect, wrongParameter("If-Match", fmt.Sprintf(`%s is not an ETag of this server; they are numbers in quotes, such as "3"`, tag))
		}
		expect.Versions = append(expect.Versions, version)
	}
	return expect, nil
}

type listJobsInput struct {
	PageInput
	Namespace string    `query:"namespace" doc:"Only jobs of this namespace."`
	Label     []string  `query:"label,explode" nullable:"false" maxItems:"16" doc:"Only jobs with this label: key=value. May be repeated; all must match."`
	Text      string    `query:"text" maxLength:"256" doc:"Only jobs with this in their name, title or description."`
	State     string    `query:"state" enum:"active,paused,completed" doc:"Only jobs in this state."`
	Failing   bool      `query:"failing" doc:"Only active jobs whose last run failed, at most the 50 that failed last. They come by name or by failure, in one page."`
	NeverRan  bool      `query:"never_ran" doc:"Only jobs of which no finished run is kept. A page may be shorter than asked for."`
	DueBefore time.Time `query:"due_before" doc:"Only jobs that fall due before this instant. They come by when they do, unless failing is true."`
	Work      string    `query:"work" enum:"shell,http,handler,xxl,flow,external" doc:"Only jobs that run this, such as flow."`
	Sort      string    `query:"sort" enum:"name,next,failure" default:"name" doc:"The order: by name, by when they fall due next, with those at the end that fall due at no known time, or by their last failure, with those at the end that did not fail lately."`
	Filled    bool      `query:"filled" doc:"Fill in the defaults."`
	Recent    int       `query:"recent" minimum:"0" maximum:"50" doc:"How many of the last runs of each job to show."`
}

func (a *api) listJobs(ctx context.Context, in *listJobsInput) (*answer[client.JobPage], error) {
	labels, err := labelsOf(in.Label)
	if err != nil {
		return nil, err
	}
	return answered(a.Service.Jobs.List(ctx, caller(ctx), client.JobQuery{
		Namespace: in.Namespace, Labels: labels, Text: in.Text, State: job.JobState(in.State), Failing: in.Failing, NeverRan: in.NeverRan, DueBefore: in.DueBefore,
		Work: job.Work(in.Work), Sort: client.JobOrder(in.Sort), PageSize: in.PageSize, PageToken: in.PageToken, Recent: in.Recent,
	}, in.Filled))
}

// labelsOf reads labels that jobs are selected by, each key=value.
func labelsOf(pairs []string) (labels map[string]string, err error) {
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, wrongParameter("label", fmt.Sprintf("%q is not of the form key=value", pair))
		}
		if before, twice := labels[key]; twice && before != value {
			return nil, wrongParameter("label", fmt.Sprintf("is given twice for %s, as %q and %q, and no job has both", key, before, value))
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	return labels, nil
}

type getJobInput struct {
	JobName
	Filled bool `query:"filled" doc:"Fill in the defaults."`
}

func (a *api) getJob(ctx context.Context, in *getJobInput) (*documentOutput, error) {
	d, version, err := a.Service.Jobs.Get(ctx, caller(ctx), in.name(), in.Filled)
	return &documentOutput{ETag: etag(version), Body: d}, err
}

type createJobInput struct {
	Body client.Document
}

func (a *api) createJob(ctx context.Context, in *createJobInput) (*changeOutput, error) {
	draft, err := service.ReadDraft(in.Body.RawMessage, "")
	if err != nil {
		return nil, err
	}
	return changed(a.Service.Jobs.Create(ctx, caller(ctx), draft))
}

type putJobInput struct {
	JobName
	Conditions
	Body client.Document
}

func (a *api) putJob(ctx context.Context, in *putJobInput) (*changeOutput, error) {
	expect, err := in.expect()
	if err != nil {
		return nil, err
	}
	draft, err := service.ReadNamed(in.Body.RawMessage, job.KindJob, in.name())
	if err != nil {
		return nil, err
	}
	return changed(a.Service.Jobs.Put(ctx, caller(ctx), in.name(), draft, expect))
}

type deleteJobInput struct {
	JobName
	IfMatch string `header:"If-Match" doc:"The ETag of the version to delete, or * for any."`
	Reason  string `query:"reason" maxLength:"1024" doc:"Why, for the audit."`
}

func (a *api) deleteJob(ctx context.Context, in *deleteJobInput) (*changeOutput, error) {
	expect, err := deletes(in.IfMatch)
	if err != nil {
		return nil, err
	}
	out, err := changed(a.Service.Jobs.Delete(ctx, caller(ctx), in.name(), in.Reason, expect))
	out.ETag = ""
	return out, err
}

type restoreJobInput struct{ JobName }

func (a *api) restoreJob(ctx context.Context, in *restoreJobInput) (*changeOutput, error) {
	out, err := changed(a.Service.Jobs.Restore(ctx, caller(ctx), in.name()))
	out.Status = http.StatusOK
	return out, err
}

type pauseJobInput struct {
	JobName
	IfMatch string               `header:"If-Match" doc:"The ETag of the version to pause. Default: any."`
	Body    *client.PauseRequest `required:"false"`
}

func (a *api) pauseJob(ctx context.Context, in *pauseJobInput) (*changeOutput, error) {
	expect, err := matching(in.IfMatch)
	if err != nil {
		return nil, err
	}
	return changed(a.Service.Jobs.Pause(ctx, caller(ctx), in.name(), given(in.Body), expect))
}

// given returns a body that may be left out.
func given[T any](body *T) (b T) {
	if body != nil {
		b = *body
	}
	return b
}

type resumeJobInput struct {
	JobName
	IfMatch string                `header:"If-Match" doc:"The ETag of the version to resume. Default: any."`
	Body    *client.ResumeRequest `required:"false"`
}

func (a *api) resumeJob(ctx context.Context, in *resumeJobInput) (*changeOutput, error) {
	expect, err := matching(in.IfMatch)
	if err != nil {
		return nil, err
	}
	return changed(a.Service.Jobs.Resume(ctx, caller(ctx), in.name(), given(in.Body), expect))
}

// TraceInput is the trace of a request. It is exported so that huma sees it.
type TraceInput struct {
	Traceparent string `header:"traceparent" doc:"The trace of the request, as in W3C's Trace Context: the run is linked to it."`
	Tracestate  string `header:"tracestate" doc:"Belongs to traceparent."`
	Baggage     string `header:"baggage" doc:"Values that the run gets, as in W3C's Baggage."`
}

// metadata returns what the run keeps of the trace.
func (in TraceInput) metadata() map[string]string {
	return job.Trace{Parent: in.Traceparent, State: in.Tracestate, Baggage: in.Baggage}.Kept().Headers()
}

type runJobInput struct {
	JobName
	TraceInput
	IdempotencyKey string             `header:"Idempotency-Key" maxLength:"256" doc:"Requests with the same key create one run within 24 hours."`
	Body           *client.RunRequest `required:"false"`
}

type madeRunOutput struct {
	Status int
	Body   client.Run
}

func runOutput(m service.Made, err error) (*madeRunOutput, error) {
	out := &madeRunOutput{Status: http.StatusOK, Body: m.Run}
	if m.New {
		out.Status = http.StatusCreated
	}
	return out, err
}

func (a *api) runJob(ctx context.Context, in *runJobInput) (*madeRunOutput, error) {
	return runOutput(a.Service.Runs.StartWith(ctx, caller(ctx), in.name(), given(in.Body), in.IdempotencyKey, in.metadata()))
}

type reportInput struct {
	JobName
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"Reports with the same key are one report, in 24 hours."`
	Body           client.Report
}

func (a *api) reportJob(ctx context.Context, in *reportInput) (*answer[client.Reported], error) {
	return answered(a.Service.Reports.Take(ctx, caller(ctx), in.name(), in.Body, in.IdempotencyKey))
}

type pingKeyOutput struct {
	CacheControl string `header:"Cache-Control"`
	Body         client.PingKey
}

func (a *api) rotatePingKey(ctx context.Context, in *JobName) (*pingKeyOutput, error) {
	key, err := a.Service.Reports.RotatePingKey(ctx, caller(ctx), in.name())
	return &pingKeyOutput{CacheControl: "no-store", Body: key}, err
}

type backfillInput struct {
	JobName
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"Requests with the same key, none included, make the run of a scheduled time once in 24 hours. Another key makes it again."`
	Body           client.BackfillRequest
}

type backfillOutput struct {
	Status int
	Body   client.Backfill
}

func (a *api) backfillJob(ctx context.Context, in *backfillInput) (*backfillOutput, error) {
	body, err := a.Service.Runs.Backfill(ctx, caller(ctx), in.name(), in.Body, in.IdempotencyKey)
	out := &backfillOutput{Status: http.StatusOK, Body: body}
	if body.Made > 0 {
		out.Status = http.StatusCreated
	}
	return out, err
}

type cancelBackfillInput struct {
	JobName
	Body *client.CancelRequest `required:"false"`
}

func (a *api) cancelBackfill(ctx context.Context, in *cancelBackfillInput) (*answer[client.BackfillCancelled], error) {
	return answered(a.Service.Runs.CancelBackfill(ctx, caller(ctx), in.name(), given(in.Body).Reason))
}

type nextInput struct {
	JobName
	Count int       `query:"count" minimum:"1" maximum:"1000" default:"10" doc:"How many."`
	From  time.Time `query:"from" doc:"Only occurrences after this instant. Default: now."`
}

func (a *api) nextOfJob(ctx context.Context, in *nextInput) (*answer[client.Occurrences], error) {
	return answered(a.Service.Jobs.Next(ctx, caller(ctx), in.name(), in.From, in.Count))
}

type listOfJobInput struct {
	JobName
	PageInput
}

func (a *api) listFollowers(ctx context.Context, in *listOfJobInput) (*answer[client.Page[client.Follower]], error) {
	return answered(a.Service.Jobs.Followers(ctx, caller(ctx), in.name(), in.PageSize, in.PageToken))
}

func (a *api) listRevisions(ctx context.Context, in *listOfJobInput) (*answer[client.Page[client.Revision]], error) {
	return answered(a.Service.Jobs.Revisions(ctx, caller(ctx), in.name(), in.PageSize, in.PageToken))
}

type getRevisionInput struct {
	JobName
	Version int64 `path:"version" minimum:"1" doc:"The version."`
	Since   int64 `query:"since" minimum:"1" doc:"Add what is different from this version."`
}

func (a *api) getRevision(ctx context.Context, in *getRevisionInput) (*answer[client.Revision], error) {
	return answered(a.Service.Jobs.Revision(ctx, caller(ctx), in.name(), in.Version, in.Since))
}

type rollbackJobInput struct {
	JobName
	IfMatch string `header:"If-Match" doc:"The ETag of the version to change. Default: any."`
	Body    client.RollbackRequest
}

func (a *api) rollbackJob(ctx context.Context, in *rollbackJobInput) (*changeOutput, error) {
	expect, err := matching(in.IfMatch)
	if err != nil {
		return nil, err
	}
	return changed(a.Service.Jobs.Rollback(ctx, caller(ctx), in.name(), in.Body.Version, expect))
}

type previewInput struct {
	Expr     string    `query:"expr" maxLength:"1024" doc:"A cron expression."`
	TZ       string    `query:"tz" maxLength:"64" doc:"The IANA time zone whose clock the expression means. Default: UTC."`
	Dialect  string    `query:"dialect" enum:"default,vixie5,quartz" default:"default" doc:"The grammar of the expression."`
	DST      string    `query:"dst" enum:"vixie,literal,skip_once,shift_once,skip_last" default:"vixie" doc:"What the expression does where the clock changes."`
	Schedule string    `query:"schedule" maxLength:"32768" doc:"Instead of an expression: all that a job has as its schedule, in JSON."`
	Job      string    `query:"job" maxLength:"257" doc:"The job, namespace/name, for which H and ~ choose their values, and in whose namespace calendars are looked up."`
	Lang     string    `query:"lang" enum:"en,zh" default:"en" doc:"The language of the description."`
	From     time.Time `query:"from" doc:"The occurrences after this instant. Default: now."`
	N        int       `query:"n" minimum:"1" maximum:"1000" default:"10" doc:"How many occurrences."`
}

func (a *api) previewSchedule(ctx context.Context, in *previewInput) (*answer[client.Preview], error) {
	return answered(a.Service.Schedules.Preview(ctx, caller(ctx), client.PreviewQuery{
		Expression: in.Expr, Timezone: in.TZ, Dialect: in.Dialect, ClockChange: job.ClockChange(in.DST), Schedule: in.Schedule,
		Job: in.Job, Lang: in.Lang, From: in.From, Count: in.N,
	}))
}
