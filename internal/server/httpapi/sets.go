package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

func (a *api) setRoutes() {
	a.routesOf(a.Service.Calendars, job.KindCalendar)
	a.routesOf(a.Service.Pools, job.KindPool)
	a.routesOf(a.Service.Channels, job.KindChannel)
	a.routesOf(a.Service.Listed, job.KindExecutors)
	a.secretRoutes()
}

// SetName names a document but a job in a path.
type SetName struct {
	Namespace string `path:"namespace" maxLength:"128" doc:"Its namespace."`
	Name      string `path:"name" maxLength:"128" doc:"Its name."`
}

type listSetsInput struct {
	Namespace string `query:"namespace" doc:"Only those of this namespace."`
}

type putSetInput struct {
	SetName
	Conditions
	Body client.Document
}

type deleteSetInput struct {
	SetName
	IfMatch string `header:"If-Match" doc:"The ETag of the version to delete, or * for any."`
}

type setOutput struct {
	Status int
	ETag   string `header:"ETag" doc:"The version, for If-Match."`
	Body   client.Document
}

func (n SetName) name() service.Name { return service.Name(n) }

// routesOf adds the routes of the documents of a kind.
func (a *api) routesOf(sets *service.Sets, of job.Kind) {
	kind, plural := string(of), of.Plural()
	several, a1 := plural, "a "+kind
	if kind == plural {
		kind, several, a1 = "listed-"+kind, "listed-"+plural, "a list of "+plural // beside GET /xxl/executors
	}
	one := "/" + plural + "/{namespace}/{name}"
	register(a, http.MethodGet, "/"+plural, "list-"+several, "List "+strings.ReplaceAll(several, "-", " ")+" by name", func(ctx context.Context, in *listSetsInput) (*answer[client.Page[client.Document]], error) {
		all, err := sets.List(ctx, caller(ctx), in.Namespace)
		shown := make([]client.Document, len(all))
		for i, d := range all {
			if shown[i], err = client.DocumentOf(d); err != nil {
				return nil, err
			}
		}
		return listed(shown, err)
	})

	register(a, http.MethodGet, one, "get-"+kind, "Get "+a1, func(ctx context.Context, in *SetName) (*setOutput, error) {
		d, err := sets.Get(ctx, caller(ctx), in.name())
		if err != nil {
			return nil, err
		}
		return setAnswer(d, false)
	})

	register(a, http.MethodPut, one, "put-"+kind, "Create or change "+a1, func(ctx context.Context, in *putSetInput) (*setOutput, error) {
		expect, err := in.expect()
		if err != nil {
			return nil, err
		}
		draft, err := service.ReadDraft(in.Body.RawMessage, "")
		if err != nil {
			return nil, err
		}
		d, created, err := sets.Put(ctx, caller(ctx), in.name(), draft, expect)
		if err != nil {
			return nil, err
		}
		return setAnswer(d, created)
	}, http.StatusOK, http.StatusCreated)

	register(a, http.MethodDelete, one, "delete-"+kind, "Delete "+a1, func(ctx context.Context, in *deleteSetInput) (*struct{}, error) {
		expect, err := deletes(in.IfMatch)
		if err != nil {
			return nil, err
		}
		return nil, sets.Delete(ctx, caller(ctx), in.name(), expect)
	})
}

func setAnswer(d job.Document, created bool) (*setOutput, error) {
	shown, err := client.DocumentOf(d)
	out := &setOutput{Status: http.StatusOK, ETag: etag(d.Version()), Body: shown}
	if created {
		out.Status = http.StatusCreated
	}
	return out, err
}
