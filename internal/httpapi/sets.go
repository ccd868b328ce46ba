package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// setStore is what the routes about calendars and pools want.
type setStore interface {
	Calendars(ctx context.Context) ([]*job.Calendar, error)
	PutCalendar(ctx context.Context, c *job.Calendar, ifVersion int64, actor string) (*job.Calendar, error)
	DeleteCalendar(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
	Pools(ctx context.Context) ([]*job.Pool, error)
	PutPool(ctx context.Context, p *job.Pool, ifVersion int64, actor string) (*job.Pool, error)
	DeletePool(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
}

// setKind is what calendars and pools differ in.
type setKind struct {
	kind   job.Kind
	plural string
	list   func(context.Context) ([]job.Document, error)
	put    func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error)
	remove func(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
}

func (a *api) setRoutes() {
	for _, k := range []setKind{
		{
			job.KindCalendar, "calendars",
			func(ctx context.Context) ([]job.Document, error) {
				list, err := a.Store.Calendars(ctx)
				return documentsOf(list, func(c *job.Calendar) job.Document { return job.Document{Calendar: c} }), err
			},
			func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
				c, err := a.Store.PutCalendar(ctx, d.Calendar, ifVersion, actor)
				return job.Document{Calendar: c}, err
			},
			a.Store.DeleteCalendar,
		},
		{
			job.KindPool, "pools",
			func(ctx context.Context) ([]job.Document, error) {
				list, err := a.Store.Pools(ctx)
				return documentsOf(list, func(p *job.Pool) job.Document { return job.Document{Pool: p} }), err
			},
			func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
				p, err := a.Store.PutPool(ctx, d.Pool, ifVersion, actor)
				return job.Document{Pool: p}, err
			},
			a.Store.DeletePool,
		},
	} {
		a.routesOf(k)
	}
}

func documentsOf[T any](list []T, document func(T) job.Document) []job.Document {
	var documents []job.Document
	for _, item := range list {
		documents = append(documents, document(item))
	}
	return documents
}

// SetName names a calendar or pool in a path.
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

// routesOf adds the routes of one kind.
func (a *api) routesOf(k setKind) {
	find := func(ctx context.Context, n SetName) (job.Document, error) {
		all, err := k.list(ctx)
		if err != nil {
			return job.Document{}, err
		}
		for _, d := range all {
			if d.FullName() == n.Namespace+"/"+n.Name {
				return d, nil
			}
		}
		return job.Document{}, refuse(client.TypeNotFound, "there is no %s %s/%s", k.kind, n.Namespace, n.Name)
	}
	path := "/" + k.plural + "/{namespace}/{name}"

	register(a, http.MethodGet, "/"+k.plural, "list-"+k.plural, "List "+k.plural+" by name", func(ctx context.Context, in *listSetsInput) (*listJobsOutput, error) {
		all, err := k.list(ctx)
		if err != nil {
			return nil, err
		}
		out := &listJobsOutput{Body: client.Page[client.Document]{Items: []client.Document{}}}
		for _, d := range all {
			if in.Namespace != "" && !strings.HasPrefix(d.FullName(), in.Namespace+"/") {
				continue
			}
			shown, err := client.DocumentOf(d)
			if err != nil {
				return nil, err
			}
			out.Body.Items = append(out.Body.Items, shown)
		}
		return out, nil
	})

	register(a, http.MethodGet, path, "get-"+string(k.kind), "Get a "+string(k.kind), func(ctx context.Context, in *SetName) (*setOutput, error) {
		d, err := find(ctx, *in)
		if err != nil {
			return nil, err
		}
		shown, err := client.DocumentOf(d)
		return &setOutput{Status: http.StatusOK, ETag: etag(d.Version()), Body: shown}, err
	})

	register(a, http.MethodPut, path, "put-"+string(k.kind), "Create or change a "+string(k.kind), func(ctx context.Context, in *putSetInput) (*setOutput, error) {
		return a.putSet(ctx, k, in, find)
	}, http.StatusOK, http.StatusCreated)

	register(a, http.MethodDelete, path, "delete-"+string(k.kind), "Delete a "+string(k.kind), func(ctx context.Context, in *deleteSetInput) (*struct{}, error) {
		if in.IfMatch == "" {
			return nil, noVersion()
		}
		d, err := find(ctx, in.SetName)
		if err != nil {
			return nil, err
		}
		version, err := matched(in.IfMatch, d.Version())
		if err != nil {
			return nil, err
		}
		err = k.remove(ctx, in.Namespace, in.Name, version, actorOf(ctx))
		var named store.NamedError
		switch {
		case errors.As(err, &named):
			return nil, refuse(client.TypeConflict, "job %s names the %s %s", named.Job, k.kind, d.FullName()).withHint("change it before, and others that may name it")
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
			return nil, changedMeanwhile(k, d)
		}
		return nil, err
	})
}

func changedMeanwhile(k setKind, d job.Document) *problem {
	return refuse(client.TypeChanged, "%s %s was changed by somebody else at the same time", k.kind, d.FullName())
}

// putSet creates or changes a calendar or pool.
func (a *api) putSet(ctx context.Context, k setKind, in *putSetInput, find func(context.Context, SetName) (job.Document, error)) (*setOutput, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	d, err := a.read(ctx, in.Body, k.kind)
	if err != nil {
		return nil, err
	}
	if d.FullName() != in.Namespace+"/"+in.Name {
		return nil, refuse(client.TypeInvalid, "the document is about another %s", k.kind).withErrors(client.FieldError{
			Pointer: "/name", Path: "name", Detail: "is " + d.FullName() + ", and the request is about " + in.Namespace + "/" + in.Name,
		})
	}
	var version int64
	if in.IfNoneMatch == "" {
		old, err := find(ctx, in.SetName)
		if err != nil {
			return nil, err
		}
		if version, err = matched(in.IfMatch, old.Version()); err != nil {
			return nil, err
		}
	}
	put, err := k.put(ctx, d, version, actorOf(ctx))
	switch {
	case errors.Is(err, store.ErrExists):
		return nil, refuse(client.TypeChanged, "there is a %s %s already", k.kind, d.FullName())
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return nil, changedMeanwhile(k, d)
	case err != nil:
		return nil, err
	}
	a.sync(ctx)
	shown, err := client.DocumentOf(put)
	out := &setOutput{Status: http.StatusOK, ETag: etag(put.Version()), Body: shown}
	if version == 0 {
		out.Status = http.StatusCreated
	}
	return out, err
}
