package service

import (
	"context"
	"errors"
	"slices"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// kindStore is the part of a store that documents other than jobs use.
type kindStore interface {
	store.Documents
	noteLister
	PutConsumer(ctx context.Context, c store.Consumer) error
}

// KindDocuments has the documents of a kind other than jobs.
type KindDocuments struct {
	*base
	rules *rulebook
	kind  job.Kind
	store kindStore
}

// putOfKind creates or changes a document. The feed receives ends from the first channel on,
// before the delivering node has seen it.
func putOfKind(ctx context.Context, in kindStore, d job.Document, ifVersion int64, actor string) (job.Document, error) {
	if d.Kind == job.KindChannel {
		if err := in.PutConsumer(ctx, notification.Consumer()); err != nil {
			return job.Document{}, err
		}
	}
	return in.PutDocument(ctx, d, ifVersion, actor)
}

// List returns the documents of a namespace, or of all, by name.
func (s *KindDocuments) List(ctx context.Context, who Caller, namespace string) ([]job.Document, error) {
	of, err := who.reads(namespace)
	if err != nil {
		return nil, err
	}
	all, err := s.store.Documents(ctx, s.kind)
	if err != nil {
		return nil, err
	}
	if of != nil {
		all = slices.DeleteFunc(all, func(d job.Document) bool { return !of.hasObject(d.FullName()) })
	}
	return withSources(ctx, s.store, all)
}

// Get returns a document.
func (s *KindDocuments) Get(ctx context.Context, who Caller, name Name) (job.Document, error) {
	d, err := s.find(ctx, who, Read, name)
	if err != nil {
		return job.Document{}, err
	}
	shown, err := withSources(ctx, s.store, []job.Document{d})
	if err != nil {
		return job.Document{}, err
	}
	return shown[0], nil
}

func (s *KindDocuments) find(ctx context.Context, who Caller, r Right, name Name) (job.Document, error) {
	if err := who.MayIn(r, name.Namespace); err != nil {
		return job.Document{}, err
	}
	all, err := s.store.Documents(ctx, s.kind)
	if err != nil {
		return job.Document{}, err
	}
	for _, d := range all {
		if d.FullName() == name.String() {
			return d, nil
		}
	}
	return job.Document{}, Refuse(client.TypeNotFound, phrase.NoSuchKind.Of(string(s.kind), name.String()))
}

// Put creates one or replaces its definition, and reports whether it was created. The document
// must have the name.
func (s *KindDocuments) Put(ctx context.Context, who Caller, name Name, draft Draft, expect Expect) (put job.Document, created bool, err error) {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return job.Document{}, false, err
	}
	d, err := s.rules.accept(ctx, who, Define, draft, s.kind)
	if err != nil {
		return job.Document{}, false, err
	}
	if d.FullName() != name.String() {
		return job.Document{}, false, misnamed(d, name)
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
	put, err = putOfKind(ctx, s.store, d, version, who.Name)
	switch {
	case errors.Is(err, store.ErrExists):
		return job.Document{}, false, Refuse(client.TypeChanged, phrase.KindExists.Of(string(s.kind), name.String()))
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return job.Document{}, false, changedMeanwhile(s.kind, name.String())
	case err != nil:
		return job.Document{}, false, err
	}
	s.sync(ctx)
	return put, version == 0, nil
}

// Delete removes a document that no job names.
func (s *KindDocuments) Delete(ctx context.Context, who Caller, name Name, expect Expect) error {
	d, err := s.find(ctx, who, Define, name)
	if err != nil {
		return err
	}
	if err := expect.match(d.Version()); err != nil {
		return err
	}
	err = s.store.DeleteDocument(ctx, s.kind, name.String(), d.Version(), who.Name)
	var named store.NamedError
	switch {
	case errors.As(err, &named):
		return Refuse(client.TypeConflict, phrase.IsNamedBy.Of(string(named.Kind), named.Name, string(s.kind), name.String()), phrase.ChangeJobsFirst)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return changedMeanwhile(s.kind, name.String())
	}
	return err
}
