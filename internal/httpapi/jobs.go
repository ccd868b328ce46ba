package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// jobStore is what the routes about jobs want.
type jobStore interface {
	PutJob(ctx context.Context, p store.PutJob) (*store.Job, error)
	PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error)
	JobsNamed(ctx context.Context, names []string) ([]*store.Job, error)
	Job(ctx context.Context, namespace, name string) (*store.Job, error)
	ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error)
	DeleteJob(ctx context.Context, d store.DeleteJob) error
	Calendars(ctx context.Context) ([]*job.Calendar, error)
	Trigger(ctx context.Context, items []store.TriggerItem) ([]store.TriggerOutcome, error)
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
	Attempts(ctx context.Context, q store.HistoryQuery) ([]store.Record, store.RecordRef, error)
}

func (a *api) jobRoutes() {
	register(a, http.MethodGet, "/jobs", "list-jobs", "List jobs", a.listJobs)
	register(a, http.MethodPost, "/jobs", "create-job", "Create a job", a.createJob, http.StatusCreated)
	register(a, http.MethodGet, "/jobs/{namespace}/{name}", "get-job", "Get a job", a.getJob)
	register(a, http.MethodPut, "/jobs/{namespace}/{name}", "put-job", "Create or change a job", a.putJob, http.StatusOK, http.StatusCreated)
	register(a, http.MethodDelete, "/jobs/{namespace}/{name}", "delete-job", "Delete a job", a.deleteJob)
	register(a, http.MethodPost, "/jobs/{namespace}/{name}/pause", "pause-job", "Pause a job", a.pauseJob)
	register(a, http.MethodPost, "/jobs/{namespace}/{name}/resume", "resume-job", "Resume a job", a.resumeJob)
	register(a, http.MethodPost, "/jobs/{namespace}/{name}/run", "run-job", "Run a job now", a.runJob, http.StatusCreated, http.StatusOK)
	register(a, http.MethodPost, "/jobs/{namespace}/{name}/backfill", "backfill-job", "Run what was scheduled in the past", a.backfillJob, http.StatusOK, http.StatusCreated)
	register(a, http.MethodPost, "/jobs/{namespace}/{name}/backfill/cancel", "cancel-backfill", "Cancel all backfills of a job", a.cancelBackfill)
	register(a, http.MethodGet, "/jobs/{namespace}/{name}/next", "next-of-job", "Say when a job falls due next", a.nextOfJob)
	register(a, http.MethodPost, "/jobs:apply", "apply", "Make documents true", a.apply)
}

// JobName names a job in a path. It is exported, as the types below that others
// embed, because the routes' library sees no other.
type JobName struct {
	Namespace string `path:"namespace" maxLength:"128" doc:"The namespace of the job."`
	Name      string `path:"name" maxLength:"128" doc:"The name of the job."`
}

// noJob is the problem of a job that does not exist.
func noJob(namespace, name string) *problem {
	return refuse(client.TypeNotFound, "there is no job %s/%s", namespace, name).
		withHint("belfry job list -A shows those that there are")
}

// find reads a job. One that the caller may not know of is not there.
func (a *api) find(ctx context.Context, n JobName) (*store.Job, error) {
	if !visible(ctx, n.Namespace+"/"+n.Name) {
		return nil, noJob(n.Namespace, n.Name)
	}
	j, err := a.Store.Job(ctx, n.Namespace, n.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noJob(n.Namespace, n.Name)
	}
	return j, err
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

func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// show returns a job as its user wrote it, or with its defaults, and with what
// the server knows about it.
func (a *api) show(ctx context.Context, j *store.Job, filled bool) (client.Document, error) {
	now, err := a.Store.Now(ctx)
	if err != nil {
		return client.Document{}, err
	}
	return a.showAt(ctx, j, filled, now)
}

// showAt is show with the next occurrence after a moment.
func (a *api) showAt(ctx context.Context, j *store.Job, filled bool, at time.Time) (client.Document, error) {
	last, _, err := a.Store.Attempts(ctx, store.HistoryQuery{Job: j.Definition.UID, FinalOnly: true, Limit: 1})
	if err != nil {
		return client.Document{}, err
	}
	if len(last) == 0 {
		return a.documentOf(ctx, j, filled, at, nil)
	}
	return a.documentOf(ctx, j, filled, at, &last[0])
}

// documentOf returns a job with the next occurrence after a moment, and the record
// that has ended its last run, nil if there is none.
func (a *api) documentOf(ctx context.Context, j *store.Job, filled bool, at time.Time, last *store.Record) (client.Document, error) {
	shown := *j.Definition
	if filled {
		shown = *j.Filled
	}
	shown.UID, shown.Version = j.Definition.UID, j.Definition.Version
	var status job.Status
	if j.Definition.Status != nil {
		status = *j.Definition.Status
	}
	if a.Planner != nil && status.State == job.JobActive {
		status.Next, _ = a.Planner.NextAfter(shown.UID, at)
	}
	chained, err := a.nextInChain(ctx, j)
	if err != nil {
		return client.Document{}, err
	}
	if chained != nil {
		status.Next = chained.Scheduled
	}
	if last != nil {
		status.LastRun, status.LastEnded, status.LastOutcome = last.Run.ID, last.Attempt.Ended, last.Attempt.Outcome
	}
	shown.Status = &status
	return client.DocumentOf(job.Document{Job: &shown})
}

type getJobInput struct {
	JobName
	Filled bool `query:"filled" doc:"Fill in the defaults."`
}

func (a *api) getJob(ctx context.Context, in *getJobInput) (*documentOutput, error) {
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	d, err := a.show(ctx, j, in.Filled)
	return &documentOutput{ETag: etag(j.Definition.Version), Body: d}, err
}

type createJobInput struct {
	Body client.Document
}

func (a *api) createJob(ctx context.Context, in *createJobInput) (*changeOutput, error) {
	d, err := a.read(ctx, in.Body, job.KindJob)
	if err != nil {
		return nil, err
	}
	old, err := a.present(ctx, d.Job)
	if err != nil {
		return nil, err
	}
	if old != nil {
		return nil, exists(d.Job.FullName())
	}
	return a.put(ctx, store.PutJob{Definition: d.Job, IfVersion: 0}, nil)
}

// present returns the job that a definition would change, nil if there is none.
func (a *api) present(ctx context.Context, j *job.Job) (*store.Job, error) {
	old, err := a.Store.Job(ctx, cmp.Or(j.Namespace, job.DefaultNamespace), j.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return old, err
}

func exists(name string) *problem {
	return refuse(client.TypeExists, "there is a job %s already", name).withHint("PUT changes it")
}

type putJobInput struct {
	JobName
	Conditions
	Body client.Document
}

// Conditions say which version a change is meant for.
type Conditions struct {
	IfMatch     string `header:"If-Match" doc:"The ETag of the version to change, or * for any."`
	IfNoneMatch string `header:"If-None-Match" doc:"* to create what must not exist."`
}

// check refuses a change that does not say which version it is for, or says it in a way
// that means nothing.
func (c *Conditions) check() error {
	switch {
	case c.IfMatch == "" && c.IfNoneMatch == "":
		return refuse(client.TypeVersionWanted, "the header If-Match is missing").
			withHint(`send If-Match: "VERSION" with the ETag of what was read, If-Match: * for any version, or If-None-Match: * to create`)
	case c.IfNoneMatch != "" && (c.IfNoneMatch != "*" || c.IfMatch != ""):
		return wrongParameter("If-None-Match", "allowed is * alone, without If-Match", "")
	}
	return nil
}

func (a *api) putJob(ctx context.Context, in *putJobInput) (*changeOutput, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	d, err := a.read(ctx, in.Body, job.KindJob)
	if err != nil {
		return nil, err
	}
	if named := d.Job.FullName(); named != in.Namespace+"/"+in.Name {
		return nil, refuse(client.TypeInvalid, "the document is about another job").withErrors(client.FieldError{
			Pointer: "/name", Path: "name", Detail: fmt.Sprintf("is %s, and the request is about %s/%s", named, in.Namespace, in.Name),
			Hint: "a job cannot be renamed; create another one",
		})
	}
	if in.IfNoneMatch != "" {
		old, err := a.present(ctx, d.Job)
		if err != nil {
			return nil, err
		}
		out, err := a.put(ctx, store.PutJob{Definition: d.Job, IfVersion: 0}, old)
		var refused *problem
		if errors.As(err, &refused) && refused.Type == client.TypeExists {
			return nil, refuse(client.TypeChanged, "there is a job %s already", d.Job.FullName())
		}
		return out, err
	}
	old, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	version, err := matched(in.IfMatch, old.Definition.Version)
	if err != nil {
		return nil, err
	}
	return a.put(ctx, store.PutJob{Definition: d.Job, IfVersion: version}, old)
}

// matched returns the version that a change is for: the present one, if the
// header allows it.
func matched(header string, present int64) (int64, error) {
	header = strings.TrimSpace(header)
	if header == "*" {
		return present, nil
	}
	for tag := range strings.SplitSeq(header, ",") {
		text, err := strconv.Unquote(strings.TrimSpace(tag))
		if err == nil {
			_, err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return 0, wrongParameter("If-Match", fmt.Sprintf(`%s is no ETag of this server, which are numbers in quotes, such as "3"`, tag), "")
		}
		if text == strconv.FormatInt(present, 10) {
			return present, nil
		}
	}
	return 0, changed(present, header)
}

func changed(present int64, wanted string) *problem {
	return refuse(client.TypeChanged, "it has version %d by now, and the change is for version %s", present, strings.ReplaceAll(wanted, `"`, "")).
		withHint("read it again, and decide again").withHeader("ETag", etag(present))
}

// put writes a job, plans it and says what comes of it. old is the job as it was
// read before, nil if there was none.
func (a *api) put(ctx context.Context, p store.PutJob, old *store.Job) (*changeOutput, error) {
	p.Actor = actorOf(ctx)
	if p.Definition.Paused && p.Pause == (store.Pause{}) {
		p.Pause.By = p.Actor
	}
	var before int64
	if old != nil {
		before = old.Definition.Version
		if p.Definition.Paused && old.Definition.Paused && p.Pause.Reason == "" && p.Pause.Until.IsZero() {
			p.Pause = store.Pause{} // whoever paused it has said why
		}
	}
	j, err := a.Store.PutJob(ctx, p)
	if err != nil {
		return nil, putProblem(err, p)
	}
	a.sync(ctx)
	var out *changeOutput
	if old == nil {
		out, err = a.created(ctx, j)
	} else {
		out, err = a.change(ctx, j)
	}
	if err != nil {
		return nil, err
	}
	if j.Definition.Version == before {
		out.Body.Result = client.Unchanged
	}
	out.Body.Warnings, err = a.warnOfUpstreams(ctx, j.Definition)
	return out, err
}

// warnOfUpstreams warns of what a job follows and is not there. It may come later.
func (a *api) warnOfUpstreams(ctx context.Context, j *job.Job) (list []string, err error) {
	for _, up := range engine.Follows(j) {
		namespace, name, _ := strings.Cut(up, "/")
		switch _, err := a.Store.Job(ctx, namespace, name); {
		case errors.Is(err, store.ErrNotFound):
			list = append(list, absentWarning(up))
		case err != nil:
			return nil, err
		}
	}
	return list, nil
}

// cycleHint is for jobs that would follow themselves.
const cycleHint = "one of them must fall due by something else; a job that follows itself has after_end"

// putProblem says why a job was not written. Between the look at it and the
// write somebody else was there.
func putProblem(err error, p store.PutJob) error {
	name := p.Definition.FullName()
	switch {
	case errors.Is(err, store.ErrExists):
		return exists(name)
	case errors.Is(err, store.ErrCycle):
		_, way, _ := strings.Cut(err.Error(), store.ErrCycle.Error()+": ")
		return refuse(client.TypeInvalid, "%s", mistakesIn(1)).withErrors(client.FieldError{
			Pointer: "/schedule/on", Path: "schedule.on", Detail: "goes round: " + way, Hint: cycleHint,
		})
	case errors.Is(err, store.ErrNotFound):
		return refuse(client.TypeConflict, "job %s was deleted at the same time", name)
	case errors.Is(err, store.ErrConflict):
		return refuse(client.TypeChanged, "job %s was changed by somebody else at the same time", name).
			withHint("read it again, and decide again")
	}
	return err
}

// created returns the answer to a change that has made a job, which has had no runs
// yet.
func (a *api) created(ctx context.Context, j *store.Job) (*changeOutput, error) {
	out := &changeOutput{Status: http.StatusCreated, ETag: etag(j.Definition.Version)}
	out.Body = client.Change{Result: client.Created, Running: []client.Run{}}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	out.Body.Job, err = a.documentOf(ctx, j, false, now, nil)
	return out, err
}

// change returns the answer to a change: the job, and the runs that the change
// does not reach any more.
func (a *api) change(ctx context.Context, j *store.Job) (*changeOutput, error) {
	out := &changeOutput{Status: http.StatusOK, ETag: etag(j.Definition.Version)}
	out.Body = client.Change{Result: client.Changed, Running: []client.Run{}}
	var err error
	if out.Body.Job, err = a.show(ctx, j, false); err != nil {
		return nil, err
	}
	running, err := a.Store.ListActive(ctx, store.ActiveQuery{Job: j.Definition.UID, State: job.StateRunning, Limit: runningMax})
	if err != nil {
		return nil, err
	}
	for i := range running {
		out.Body.Running = append(out.Body.Running, activeRun(&running[i]))
	}
	return out, nil
}

// runningMax bounds the runs that the answer to a change names.
const runningMax = 100

type deleteJobInput struct {
	JobName
	IfMatch string `header:"If-Match" doc:"The ETag of the version to delete, or * for any."`
}

// noVersion is the problem of a deletion that does not say of which version.
func noVersion() *problem {
	return refuse(client.TypeVersionWanted, "the header If-Match is missing").
		withHint(`send If-Match: "VERSION" with the ETag of what was read, or If-Match: * for any version`)
}

func (a *api) deleteJob(ctx context.Context, in *deleteJobInput) (*changeOutput, error) {
	if in.IfMatch == "" {
		return nil, noVersion()
	}
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	version, err := matched(in.IfMatch, j.Definition.Version)
	if err != nil {
		return nil, err
	}
	err = a.Store.DeleteJob(ctx, store.DeleteJob{UID: j.Definition.UID, IfVersion: version, Actor: actorOf(ctx)})
	if errors.Is(err, store.ErrConflict) {
		return nil, refuse(client.TypeChanged, "job %s was changed by somebody else at the same time", j.Definition.FullName())
	}
	if err != nil {
		return nil, err
	}
	a.sync(ctx)
	out, err := a.change(ctx, j)
	if err != nil {
		return nil, err
	}
	out.Body.Result, out.ETag = client.Deleted, ""
	return out, nil
}

type pauseJobInput struct {
	JobName
	IfMatch string               `header:"If-Match" doc:"The ETag of the version to pause. Default: any."`
	Body    *client.PauseRequest `required:"false"`
}

func (a *api) pauseJob(ctx context.Context, in *pauseJobInput) (*changeOutput, error) {
	var said client.PauseRequest
	if in.Body != nil {
		said = *in.Body
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	if !said.Until.IsZero() && !said.Until.After(now) {
		return nil, wrongRequest(client.FieldError{
			Pointer: "/until", Path: "until", Detail: "is in the past",
		})
	}
	return a.edit(ctx, in.JobName, in.IfMatch, func(j *job.Job, p *store.PutJob) {
		j.Paused = true
		p.Pause = store.Pause{By: actorOf(ctx), Reason: said.Reason, Until: said.Until}
	})
}

type resumeJobInput struct {
	JobName
	IfMatch string                `header:"If-Match" doc:"The ETag of the version to resume. Default: any."`
	Body    *client.ResumeRequest `required:"false"`
}

func (a *api) resumeJob(ctx context.Context, in *resumeJobInput) (*changeOutput, error) {
	var said client.ResumeRequest
	if in.Body != nil {
		said = *in.Body
	}
	nothing := false // to make up for
	out, err := a.edit(ctx, in.JobName, in.IfMatch, func(j *job.Job, p *store.PutJob) {
		j.Paused = false
		p.CatchUp = said.Missed
		s := &j.Schedule
		nothing = len(s.Cron)+len(s.At) == 0 && s.Every == 0
	})
	if err == nil && nothing && (said.Missed == job.MissedLatest || said.Missed == job.MissedAll) {
		out.Body.Warnings = append(out.Body.Warnings, "missed: nothing is made up for: only a job with cron, every or at has scheduled times")
	}
	return out, err
}

// editMax is how often a small change is made again because somebody else has
// changed the job at the same time.
const editMax = 10

// edit makes a small change to a job as it is, whatever its version unless the
// header wants one.
func (a *api) edit(ctx context.Context, n JobName, ifMatch string, change func(*job.Job, *store.PutJob)) (*changeOutput, error) {
	for tries := 1; ; tries++ {
		old, err := a.find(ctx, n)
		if err != nil {
			return nil, err
		}
		if ifMatch != "" {
			if _, err := matched(ifMatch, old.Definition.Version); err != nil {
				return nil, err
			}
		}
		definition := *old.Definition
		p := store.PutJob{Definition: &definition, IfVersion: old.Definition.Version}
		change(&definition, &p)
		out, err := a.put(ctx, p, old)
		var refused *problem
		if errors.As(err, &refused) && refused.Type == client.TypeChanged && ifMatch == "" && tries < editMax {
			continue
		}
		return out, err
	}
}
