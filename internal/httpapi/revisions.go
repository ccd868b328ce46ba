package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// revisionStore is what the routes about revisions want.
type revisionStore interface {
	Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]store.Revision, error)
}

func (a *api) revisionRoutes() {
	register(a, http.MethodGet, "/jobs/{namespace}/{name}/revisions", "list-revisions", "List the versions of a job, the latest first", a.listRevisions)
	register(a, http.MethodGet, "/jobs/{namespace}/{name}/revisions/{version}", "get-revision", "Get a version of a job", a.getRevision)
	register(a, http.MethodPost, "/jobs/{namespace}/{name}/rollback", "rollback-job", "Make a job what it was in a version", a.rollbackJob)
}

type listRevisionsInput struct {
	JobName
	PageInput
}

type listRevisionsOutput struct {
	Body client.Page[client.Revision]
}

// revisionsPlace is where a page of revisions ended.
type revisionsPlace struct {
	Version int64 `json:"version"`
}

func (a *api) listRevisions(ctx context.Context, in *listRevisionsInput) (*listRevisionsOutput, error) {
	var place revisionsPlace
	if err := readToken(in.PageToken, &place); err != nil {
		return nil, err
	}
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	list, err := a.Store.Revisions(ctx, j.Definition.UID, place.Version, in.PageSize+1)
	if err != nil {
		return nil, err
	}
	out := &listRevisionsOutput{Body: client.Page[client.Revision]{Items: []client.Revision{}}}
	if len(list) > in.PageSize {
		list = list[:in.PageSize]
		out.Body.NextPageToken = writeToken(revisionsPlace{list[len(list)-1].Version})
	}
	for _, r := range list {
		out.Body.Items = append(out.Body.Items, client.Revision{Version: r.Version, Changed: r.Changed, Actor: r.Actor})
	}
	return out, nil
}

type getRevisionInput struct {
	JobName
	Version int64 `path:"version" minimum:"1" doc:"The version."`
	Since   int64 `query:"since" minimum:"1" doc:"Add what is different from this version."`
}

type revisionOutput struct {
	Body client.Revision
}

func (a *api) getRevision(ctx context.Context, in *getRevisionInput) (*revisionOutput, error) {
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	r, err := a.revision(ctx, j, in.Version)
	if err != nil {
		return nil, err
	}
	out := &revisionOutput{client.Revision{Version: r.Version, Changed: r.Changed, Actor: r.Actor}}
	if out.Body.Job, err = client.DocumentOf(job.Document{Job: r.Definition}); err != nil {
		return nil, err
	}
	if in.Since > 0 {
		before, err := a.revision(ctx, j, in.Since)
		if err != nil {
			return nil, err
		}
		name := j.Definition.FullName()
		out.Body.Diff, err = difference(
			versioned(name, before.Version), job.Document{Job: before.Definition},
			versioned(name, r.Version), job.Document{Job: r.Definition},
		)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// revision reads a version of a job.
func (a *api) revision(ctx context.Context, j *store.Job, version int64) (store.Revision, error) {
	list, err := a.Store.Revisions(ctx, j.Definition.UID, version+1, 1)
	if err != nil {
		return store.Revision{}, err
	}
	if len(list) == 0 || list[0].Version != version {
		p := refuse(client.TypeNotFound, "there is no version %d of job %s", version, j.Definition.FullName())
		if version < j.Definition.Version {
			return store.Revision{}, p.withHint("old versions are not kept for ever")
		}
		return store.Revision{}, p.withHint("the latest is %d", j.Definition.Version)
	}
	return list[0], nil
}

type rollbackJobInput struct {
	JobName
	IfMatch string `header:"If-Match" doc:"The ETag of the version to change. Default: any."`
	Body    client.RollbackRequest
}

// rollbackJob makes a version the latest again, as a new one. Whether the job is
// paused stays as it is: that was done by hand, for a reason of its own.
func (a *api) rollbackJob(ctx context.Context, in *rollbackJobInput) (*changeOutput, error) {
	j, err := a.find(ctx, in.JobName)
	if err != nil {
		return nil, err
	}
	r, err := a.revision(ctx, j, in.Body.Version)
	if err != nil {
		return nil, err
	}
	if err := mayDefine(ctx, job.Document{Job: r.Definition}, ""); err != nil {
		return nil, err
	}
	calendars, err := a.calendars(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := a.rules(ctx, calendars)
	if err != nil {
		return nil, err
	}
	err = check(job.Document{Job: r.Definition}, rules)
	var mistakes job.Problems
	if errors.As(err, &mistakes) {
		p := invalid(mistakes, "")
		p.Detail = versioned(j.Definition.FullName(), r.Version) + " is not right any more"
		for i := range p.Errors {
			p.Errors[i].Pointer = "" // it is not in the request
		}
		return nil, p
	}
	if err != nil {
		return nil, err
	}
	return a.edit(ctx, in.JobName, in.IfMatch, func(now *job.Job, _ *store.PutJob) {
		paused := now.Paused
		*now = *r.Definition
		now.Paused = paused
	})
}

// nowhere is the name of what is not there before a change, or after it.
const nowhere = "/dev/null"

// versioned names a version of something.
func versioned(name string, version int64) string {
	return fmt.Sprintf("%s version %d", name, version)
}

// difference returns what is different between two documents, in lines as files
// have them, or "" if they say the same. Without a document there is nothing on
// its side.
func difference(oldName string, old job.Document, newName string, new job.Document) (string, error) {
	var texts [2]bytes.Buffer
	for i, d := range [...]job.Document{old, new} {
		if d.FullName() == "" {
			continue
		}
		d = d.Bare()
		d.PutIn(job.DefaultNamespace)
		if err := job.Encode(&texts[i], []job.Document{d}, job.YAML); err != nil {
			return "", err
		}
	}
	// The first line repeats the two below it.
	_, text, _ := bytes.Cut(diff.Diff(oldName, texts[0].Bytes(), newName, texts[1].Bytes()), []byte("\n"))
	return string(text), nil
}
