package service

import (
	"context"
	"errors"
	"slices"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/notice"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// setStore is the part of a store that documents but jobs use.
type setStore interface {
	Calendars(ctx context.Context) ([]*job.Calendar, error)
	PutCalendar(ctx context.Context, c *job.Calendar, ifVersion int64, actor string) (*job.Calendar, error)
	DeleteCalendar(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
	Pools(ctx context.Context) ([]*job.Pool, error)
	PutPool(ctx context.Context, p *job.Pool, ifVersion int64, actor string) (*job.Pool, error)
	DeletePool(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
	Channels(ctx context.Context) ([]*job.Channel, error)
	PutChannel(ctx context.Context, c *job.Channel, ifVersion int64, actor string) (*job.Channel, error)
	DeleteChannel(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
	Executors(ctx context.Context) ([]*job.Executors, error)
	PutExecutors(ctx context.Context, e *job.Executors, ifVersion int64, actor string) (*job.Executors, error)
	DeleteExecutors(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
	PutConsumer(ctx context.Context, c store.Consumer) error
}

// Sets has the documents of a kind, but the jobs.
type Sets struct {
	*shared
	rules  *rulebook
	kind   job.Kind
	list   func(context.Context) ([]job.Document, error)
	put    func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error)
	remove func(ctx context.Context, namespace, name string, ifVersion int64, actor string) error
}

func calendars(s *shared, rules *rulebook, in setStore) *Sets {
	document := func(c *job.Calendar) job.Document { return job.Document{Calendar: c} }
	return &Sets{
		s, rules, job.KindCalendar,
		func(ctx context.Context) ([]job.Document, error) {
			list, err := in.Calendars(ctx)
			return documentsOf(list, document), err
		},
		func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
			c, err := in.PutCalendar(ctx, d.Calendar, ifVersion, actor)
			return document(c), err
		},
		in.DeleteCalendar,
	}
}

func pools(s *shared, rules *rulebook, in setStore) *Sets {
	document := func(p *job.Pool) job.Document { return job.Document{Pool: p} }
	return &Sets{
		s, rules, job.KindPool,
		func(ctx context.Context) ([]job.Document, error) {
			list, err := in.Pools(ctx)
			return documentsOf(list, document), err
		},
		func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
			p, err := in.PutPool(ctx, d.Pool, ifVersion, actor)
			return document(p), err
		},
		in.DeletePool,
	}
}

func channels(s *shared, rules *rulebook, in setStore) *Sets {
	document := func(c *job.Channel) job.Document { return job.Document{Channel: c} }
	return &Sets{
		s, rules, job.KindChannel,
		func(ctx context.Context) ([]job.Document, error) {
			list, err := in.Channels(ctx)
			return documentsOf(list, document), err
		},
		func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
			c, err := putChannel(ctx, in, d.Channel, ifVersion, actor)
			return document(c), err
		},
		in.DeleteChannel,
	}
}

func listedExecutors(s *shared, rules *rulebook, in setStore) *Sets {
	document := func(e *job.Executors) job.Document { return job.Document{Executors: e} }
	return &Sets{
		s, rules, job.KindExecutors,
		func(ctx context.Context) ([]job.Document, error) {
			list, err := in.Executors(ctx)
			return documentsOf(list, document), err
		},
		func(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error) {
			e, err := in.PutExecutors(ctx, d.Executors, ifVersion, actor)
			return document(e), err
		},
		in.DeleteExecutors,
	}
}

// putChannel creates or changes a channel. The feed receives ends from then on, before the
// delivering node has seen the channel.
func putChannel(ctx context.Context, in setStore, c *job.Channel, ifVersion int64, actor string) (*job.Channel, error) {
	if err := in.PutConsumer(ctx, notice.Consumer()); err != nil {
		return nil, err
	}
	return in.PutChannel(ctx, c, ifVersion, actor)
}

func documentsOf[T any](list []T, document func(T) job.Document) []job.Document {
	var documents []job.Document
	for _, item := range list {
		documents = append(documents, document(item))
	}
	return documents
}

// List returns the sets of a namespace, or of all, by name.
func (s *Sets) List(ctx context.Context, who Caller, namespace string) ([]job.Document, error) {
	of, err := who.reads(namespace)
	if err != nil {
		return nil, err
	}
	all, err := s.list(ctx)
	if err != nil || of == nil {
		return all, err
	}
	return slices.DeleteFunc(all, func(d job.Document) bool { return !of.hasObject(d.FullName()) }), nil
}

// Get returns a set.
func (s *Sets) Get(ctx context.Context, who Caller, name Name) (job.Document, error) {
	return s.find(ctx, who, Read, name)
}

func (s *Sets) find(ctx context.Context, who Caller, r Right, name Name) (job.Document, error) {
	if err := who.MayIn(r, name.Namespace); err != nil {
		return job.Document{}, err
	}
	all, err := s.list(ctx)
	if err != nil {
		return job.Document{}, err
	}
	for _, d := range all {
		if d.FullName() == name.String() {
			return d, nil
		}
	}
	return job.Document{}, refuse(client.TypeNotFound, "there is no %s %s", s.kind, name)
}

// Put creates one or replaces its definition, and reports whether it was created. The document
// must have the name.
func (s *Sets) Put(ctx context.Context, who Caller, name Name, draft Draft, expect Expect) (put job.Document, created bool, err error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return job.Document{}, false, err
	}
	d, err := s.rules.accept(ctx, who, Define, draft, s.kind)
	if err != nil {
		return job.Document{}, false, err
	}
	if d.FullName() != name.String() {
		return job.Document{}, false, refuse(client.TypeInvalid, "the document is about another %s", s.kind).withErrors(client.FieldError{
			Pointer: "/name", Path: "name", Detail: "is " + d.FullName() + ", and the request is about " + name.String(),
		})
	}
	var version int64
	if !expect.Absent {
		old, err := s.find(ctx, who, Define, name)
		if err != nil {
			return job.Document{}, false, err
		}
		if version = old.Version(); expect.match(version) != nil {
			return job.Document{}, false, expect.match(version)
		}
	}
	put, err = s.put(ctx, d, version, who.Name)
	switch {
	case errors.Is(err, store.ErrExists):
		return job.Document{}, false, refuse(client.TypeChanged, "%s %s already exists", s.kind, name)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return job.Document{}, false, changedMeanwhile(s.kind, name.String())
	case err != nil:
		return job.Document{}, false, err
	}
	s.sync(ctx)
	return put, version == 0, nil
}

// Delete removes a set that no job names.
func (s *Sets) Delete(ctx context.Context, who Caller, name Name, expect Expect) error {
	d, err := s.find(ctx, who, Define, name)
	if err != nil {
		return err
	}
	if err := expect.match(d.Version()); err != nil {
		return err
	}
	err = s.remove(ctx, name.Namespace, name.Name, d.Version(), who.Name)
	var named store.NamedError
	switch {
	case errors.As(err, &named):
		return refuse(client.TypeConflict, "job %s names the %s %s", named.Job, s.kind, name).withHint("change the jobs that name it first")
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return changedMeanwhile(s.kind, name.String())
	}
	return err
}
