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
	a.routesOf(a.Service.Windows, job.KindWindow)
	a.routesOf(a.Service.Channels, job.KindChannel)
	a.routesOf(a.Service.Hooks.KindDocuments, job.KindHook)
	a.routesOf(a.Service.Listed, job.KindExecutors)
	a.secretRoutes()
}

// ObjectName names a document but a job in a path.
type ObjectName struct {
	Namespace string `path:"namespace" maxLength:"128" doc:"Its namespace."`
	Name      string `path:"name" maxLength:"128" doc:"Its name."`
}

type listObjectsInput struct {
	Namespace string `query:"namespace" doc:"Only those of this namespace."`
}

type putKindInput struct {
	ObjectName
	Conditions
	Body client.Document
}

type deleteKindInput struct {
	ObjectName
	IfMatch string `header:"If-Match" doc:"The ETag of the version to delete, or * for any."`
}

type kindOutput struct {
	Status int
	ETag   string `header:"ETag" doc:"The version, for If-Match."`
	Body   client.Document
}

func (n ObjectName) name() service.Name { return service.Name(n) }

// routesOf adds the routes of the documents of a kind.
func (a *api) routesOf(documents *service.KindDocuments, of job.Kind) {
	kind, plural := string(of), of.Plural()
	several, a1 := plural, "a "+kind
	if kind == plural {
		kind, several, a1 = "listed-"+kind, "listed-"+plural, "a list of "+plural // beside GET /xxl/executors
	}
	one := "/" + plural + "/{namespace}/{name}"
	register(a, "GET /"+plural, "list-"+several, "List "+strings.ReplaceAll(several, "-", " ")+" by name", may(service.Read), func(ctx context.Context, in *listObjectsInput) (*answer[client.Page[client.Document]], error) {
		all, err := documents.List(ctx, caller(ctx), in.Namespace)
		shown := make([]client.Document, len(all))
		for i, d := range all {
			if shown[i], err = client.DocumentOf(d); err != nil {
				return nil, err
			}
		}
		return listed(shown, err)
	})

	register(a, "GET "+one, "get-"+kind, "Get "+a1, may(service.Read), func(ctx context.Context, in *ObjectName) (*kindOutput, error) {
		d, err := documents.Get(ctx, caller(ctx), in.name())
		if err != nil {
			return nil, err
		}
		return setAnswer(d, false)
	})

	register(a, "PUT "+one, "put-"+kind, "Create or change "+a1, may(service.Define, documentBody), func(ctx context.Context, in *putKindInput) (*kindOutput, error) {
		expect, err := in.expect()
		if err != nil {
			return nil, err
		}
		draft, err := service.ReadNamed(in.Body.RawMessage, of, in.name())
		if err != nil {
			return nil, err
		}
		d, created, err := documents.Put(ctx, caller(ctx), in.name(), draft, expect)
		if err != nil {
			return nil, err
		}
		return setAnswer(d, created)
	}, http.StatusOK, http.StatusCreated)

	register(a, "DELETE "+one, "delete-"+kind, "Delete "+a1, may(service.Define), func(ctx context.Context, in *deleteKindInput) (*struct{}, error) {
		expect, err := deletes(in.IfMatch)
		if err != nil {
			return nil, err
		}
		return nil, documents.Delete(ctx, caller(ctx), in.name(), expect)
	})
}

func setAnswer(d job.Document, created bool) (*kindOutput, error) {
	shown, err := client.DocumentOf(d)
	out := &kindOutput{Status: http.StatusOK, ETag: etag(d.Version()), Body: shown}
	if created {
		out.Status = http.StatusCreated
	}
	return out, err
}
