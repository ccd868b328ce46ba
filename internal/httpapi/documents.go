package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// calendars returns a way to look up the calendars of the store.
func (a *api) calendars(ctx context.Context) (job.Calendars, error) {
	list, err := a.Store.Calendars(ctx)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*job.Calendar, len(list))
	for _, c := range list {
		byName[c.FullName()] = c
	}
	return func(namespace, name string) *job.Calendar { return byName[namespace+"/"+name] }, nil
}

// read reads a document of a kind from a request, and checks it.
func (a *api) read(ctx context.Context, raw client.Document, kind job.Kind) (job.Document, error) {
	d, err := decode(raw, "")
	var unread job.Problems
	if err != nil && !errors.As(err, &unread) {
		return d, err
	}
	if len(unread) > 0 && (d.Kind != kind || mayDefine(ctx, d, "") != nil) {
		return d, unread // what else is wrong is not known, or nobody else's business
	}
	if d.Kind != kind {
		return d, refuse(client.TypeInvalid, "the document is not a %s", kind).withErrors(client.FieldError{
			Pointer: "/kind", Path: "kind", Detail: fmt.Sprintf("is %s, and must be %s here", d.Kind, kind),
		})
	}
	if err := mayDefine(ctx, d, ""); err != nil {
		return d, err
	}
	calendars, err := a.calendars(ctx)
	if err != nil {
		return d, err
	}
	rules, err := a.rules(ctx, calendars)
	if err != nil {
		return d, err
	}
	return d, together(unread, check(d, rules))
}

// together returns what is wrong with a document in the order of its text: what could not
// be read of it, and what is wrong with the rest.
func together(unread job.Problems, err error) error {
	var mistakes job.Problems
	if len(unread) == 0 || err != nil && !errors.As(err, &mistakes) {
		return err
	}
	mistakes = slices.Concat(unread, mistakes)
	slices.SortStableFunc(mistakes, func(a, b job.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return mistakes
}

// decode reads one document. The pointer is where it stands in the request. If the error
// is of type job.Problems, the document is returned as far as it could be read; without
// a kind if that is not far.
func decode(raw client.Document, pointer string) (job.Document, error) {
	list, err := job.Decode("", raw.RawMessage)
	if err != nil && len(list) != 1 {
		return job.Document{}, err
	}
	if len(list) != 1 {
		return job.Document{}, refuse(client.TypeInvalid, "one document is wanted").withErrors(client.FieldError{
			Pointer: pointer, Detail: fmt.Sprintf("holds %d documents", len(list)), Hint: "an object describes one",
		})
	}
	return list[0], err
}

// rules are what documents must keep on this server.
func (a *api) rules(ctx context.Context, calendars job.Calendars) ([]job.Option, error) {
	now, err := a.Store.Now(ctx)
	return []job.Option{job.Now(now), job.Under(a.Defaults), job.Among(calendars)}, err
}

// check finds what is wrong with a document by the rules of a server. The error is of
// type job.Problems.
func check(d job.Document, rules []job.Option) error {
	if d.Calendar != nil && len(d.Calendar.Days.ICS) > 0 {
		return job.Problems{{
			Path: "calendar.ics", Message: "a server reads no files",
			Hint: "belfry apply reads them, and sends the days that are in them",
		}}
	}
	return d.Validate(rules...)
}

// timingOf returns what decides when a job falls due.
func timingOf(j *store.Job, calendars job.Calendars) (engine.Timing, error) {
	return engine.TimingOf(j.Filled, j.Definition.UID, calendars)
}

// upcoming returns the next occurrences that are due after a moment.
func upcoming(t *engine.Timing, from time.Time, count int) []engine.Occurrence {
	from = t.Begin(from)
	var list []engine.Occurrence
	for len(list) < count {
		next := t.Schedule.Next(from)
		if next.IsZero() {
			break
		}
		// As the planner would see it at that moment: it alone is due.
		list = append(list, t.Decide(engine.Progress{Cursor: next.Add(-1)}, next, 0, engine.Most{OnTime: 1}).Due...)
		from = next
	}
	return list
}
