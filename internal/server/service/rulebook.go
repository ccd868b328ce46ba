package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Draft is a document as its author sent it: the readable part, with the problems of the
// rest.
type Draft struct {
	job.Document
	Unread job.Problems
}

// ReadDraft reads one document, in JSON or YAML. The pointer is where the document is in the
// request.
func ReadDraft(text []byte, pointer string) (Draft, error) {
	return readDraft(text, pointer, job.KindJob)
}

// ReadNamed reads the document of a request about one of a kind, which may leave out its kind and its name.
func ReadNamed(text []byte, kind job.Kind, name Name) (Draft, error) {
	draft, err := readDraft(text, "", kind)
	draft.PutAt(name.Namespace, name.Name)
	return draft, err
}

func readDraft(text []byte, pointer string, kind job.Kind) (Draft, error) {
	list, err := job.DecodeAs(kind, "", text)
	var unread job.Problems
	switch {
	case err != nil && !errors.As(err, &unread):
		return Draft{}, err
	case len(list) == 1:
		return Draft{list[0], unread}, nil
	case err != nil:
		return Draft{Unread: unread}, nil //nolint:nilerr // the draft has the error
	}
	return Draft{}, Refuse(client.TypeInvalid, phrase.OneDocument).withErrors(mistakeAt(pointer, "", phrase.HoldsSeveral.Of(len(list)), phrase.ObjectDescribes))
}

// rulebook has the rules that documents must keep on this server.
type rulebook struct {
	store interface {
		store.DocumentReader
		Now(ctx context.Context) (time.Time, error)
	}
	defaults job.Defaults
	secrets  *secret.Keeper
}

// calendars returns a lookup function for the calendars of the store.
func (b *rulebook) calendars(ctx context.Context) (job.Calendars, error) {
	return store.LookUpCalendars(ctx, b.store)
}

// present returns the rules as they are now, with the calendars of the store, which a job that
// names none does without: to read them costs a third of its creation.
func (b *rulebook) present(ctx context.Context, d *job.Document) ([]job.Option, error) {
	if d.Job != nil && len(d.Job.Schedule.Only)+len(d.Job.Schedule.Except) == 0 {
		return b.with(ctx, noCalendars)
	}
	calendars, err := b.calendars(ctx)
	if err != nil {
		return nil, err
	}
	return b.with(ctx, calendars)
}

func noCalendars(string, string) *job.Calendar { return nil }

// with returns the rules with other calendars.
func (b *rulebook) with(ctx context.Context, calendars job.Calendars) ([]job.Option, error) {
	now, err := b.store.Now(ctx)
	return []job.Option{job.Now(now), job.Under(b.defaults), job.Among(calendars), job.KnownSecrets(b.unknownSecret(ctx))}, err
}

// unknownSecret explains why a secret does not exist, or returns none if it does or that
// cannot be checked: then its use reports it.
func (b *rulebook) unknownSecret(ctx context.Context) func(namespace, name string) job.Reason {
	type full struct{ namespace, name string }
	known := map[full]job.Reason{}
	return func(namespace, name string) job.Reason {
		why, ok := known[full{namespace, name}]
		if !ok {
			_, err := b.secrets.Get(ctx, namespace, name)
			if missing := (*secret.Missing)(nil); errors.As(err, &missing) {
				why = reason.Say(missing.Text())
			}
			known[full{namespace, name}] = why
		}
		return why
	}
}

// accept checks that a draft is a document of a kind, that it stays in the caller's
// namespace, and that it keeps the rules.
func (b *rulebook) accept(ctx context.Context, who Caller, r Right, d Draft, kind job.Kind) (job.Document, error) {
	may := who.mayName(r, d.Document, "")
	if len(d.Unread) > 0 && (d.Kind != kind || may != nil) {
		return d.Document, d.Unread // the other checks need a readable document
	}
	if d.Kind != kind {
		return d.Document, Refuse(client.TypeInvalid, phrase.NoKindHere.Of(string(kind))).withErrors(mistakeAt("", "kind", phrase.KindWanted.Of(string(d.Kind), string(kind))))
	}
	if may != nil {
		return d.Document, may
	}
	rules, err := b.present(ctx, &d.Document)
	if err != nil {
		return d.Document, err
	}
	return d.Document, together(d.Unread, check(d.Document, rules))
}

// together returns the problems of a document in the order of its text.
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

// check validates a document by the rules. The error is a [job.Problems].
func check(d job.Document, rules []job.Option) error {
	if d.Calendar != nil && len(d.Calendar.Days.ICS) > 0 {
		return job.Problems{reason.Problem(job.Problem{Path: "calendar.ics"}, phrase.NoFilesRead, phrase.ApplyReadsFiles)}
	}
	return d.Validate(rules...)
}
