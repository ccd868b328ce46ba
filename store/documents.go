package store

import (
	"context"

	"github.com/belfry-cron/belfry/job"
)

// Documents keeps calendars, pools, windows, channels, hooks and lists of executors.
type Documents interface {
	// PutDocument creates or changes a document by name, and writes its audit record in the
	// same step. A changed calendar begins a new epoch for each job that names it, and a
	// larger pool hands on its slots; the runs that a changed window holds are due at once. A document with the same content changes nothing.
	// [ErrExists], [ErrNotFound] and [ErrConflict] concern ifVersion, [ErrLimit] concerns
	// [ChannelsMax], [ExecutorsMax], [HooksMax] and [WindowsMax].
	PutDocument(ctx context.Context, d job.Document, ifVersion int64, actor string) (job.Document, error)
	// DeleteDocument removes the document with a full name. [ErrNotFound] means an unknown
	// document, [ErrConflict] another version than the given one, and a [NamedError] a calendar
	// in use by a job.
	DeleteDocument(ctx context.Context, kind job.Kind, full string, ifVersion int64, actor string) error
	// Documents returns the documents of some kinds, kind by kind, sorted by full name. They
	// are shared and never changed.
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
}

// DocumentKinds are the kinds of [Documents].
var DocumentKinds = []job.Kind{job.KindCalendar, job.KindPool, job.KindWindow, job.KindChannel, job.KindHook, job.KindExecutors}

const (
	// ChannelsMax is the most notification channels in a store: the delivering node compares
	// each event with the rules of all of them.
	ChannelsMax = 1000
	// ExecutorsMax is the most documents of executors in a store: nodes that send work to
	// executors keep all of them in memory, and read them with the registrations.
	ExecutorsMax = 1000
	// WindowsMax is the most maintenance windows in a store: each claim compares its job with all of
	// them.
	WindowsMax = 200
	// HooksMax is the most hooks in a store: each call searches all of them.
	HooksMax = 1000
)

// DocumentReader is the part of a store that reads documents.
type DocumentReader interface {
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
}

// LookUpCalendars returns a lookup function for the calendars of a store.
func LookUpCalendars(ctx context.Context, s DocumentReader) (job.Calendars, error) {
	list, err := Calendars(ctx, s)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*job.Calendar, len(list))
	for _, c := range list {
		byName[c.FullName()] = c
	}
	return func(namespace, name string) *job.Calendar { return byName[namespace+"/"+name] }, nil
}

// Calendars returns the calendars of a store by full name.
func Calendars(ctx context.Context, s DocumentReader) ([]*job.Calendar, error) {
	return documents(ctx, s, job.KindCalendar, func(d *job.Document) *job.Calendar { return d.Calendar })
}

// Channels returns the channels of a store by full name.
func Channels(ctx context.Context, s DocumentReader) ([]*job.Channel, error) {
	return documents(ctx, s, job.KindChannel, func(d *job.Document) *job.Channel { return d.Channel })
}

func documents[T any](ctx context.Context, s DocumentReader, kind job.Kind, of func(*job.Document) T) ([]T, error) {
	all, err := s.Documents(ctx, kind)
	var list []T
	for i := range all {
		list = append(list, of(&all[i]))
	}
	return list, err
}
