package service

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Badges show how jobs are to everyone with a link: its secret is a token that allows nothing else.
type Badges struct {
	*base
	jobs   *Jobs
	store  tokenStore
	tokens Tokens
}

// The name of the token of a badge has what it shows behind the prefix: namespace/name of a job, or namespace?key=value.
const (
	badgeRole   = store.Role("badge")
	badgePrefix = "badge:"
)

// badgeColors are the colours of the messages.
const (
	badgePassing = "#2e7d4f"
	badgeFailing = "#c0392b"
	badgeNeutral = "#6b6f76"
)

// nameOf returns the name of the token of a badge, and the namespace whose jobs it shows.
func (s *Badges) nameOf(ctx context.Context, who Caller, of client.BadgeOf) (name, namespace string, err error) {
	if err := who.May(Define); err != nil {
		return "", "", err
	}
	switch key, value, ok := strings.Cut(of.Label, "="); {
	case of.Job != "" && of.Label == "":
		namespace, name, found := strings.Cut(of.Job, "/")
		if !found {
			namespace, name = job.DefaultNamespace, of.Job
		}
		j, err := s.jobs.find(ctx, who, Define, Name{Namespace: namespace, Name: name})
		if err != nil {
			return "", "", err
		}
		return badgePrefix + j.Filled.FullName(), j.Filled.Namespace, nil
	case of.Job == "" && ok && key != "" && value != "":
		err := who.MayIn(Define, of.Namespace)
		if of.Namespace == "" {
			err = who.May(Administer)
		}
		return badgePrefix + of.Namespace + "?" + of.Label, of.Namespace, err
	}
	return "", "", WrongParameter("label", phrase.NotBadge)
}

// badgeOf returns what the badge with a token shows. ok is false for other tokens.
func badgeOf(t *store.Token) (of client.BadgeOf, ok bool) {
	shows, ok := strings.CutPrefix(t.Name, badgePrefix)
	if !ok || t.Role != badgeRole {
		return of, false
	}
	if namespace, label, found := strings.Cut(shows, "?"); found {
		return client.BadgeOf{Label: label, Namespace: namespace}, true
	}
	return client.BadgeOf{Job: shows}, true
}

// List returns the badges in the namespaces whose jobs the caller may change.
func (s *Badges) List(ctx context.Context, who Caller) ([]client.Badge, error) {
	if err := who.May(Define); err != nil {
		return nil, err
	}
	tokens, err := s.store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	list := []client.Badge{}
	for i := range tokens {
		t := &tokens[i]
		if of, ok := badgeOf(t); ok && who.roleIn(t.Namespace).Allows(Define.Role) {
			list = append(list, client.Badge{BadgeOf: of, Token: t.Name, Created: t.Created, By: t.By})
		}
	}
	return list, nil
}

// Create makes the badge of a job or label, in place of the one before.
func (s *Badges) Create(ctx context.Context, who Caller, of client.BadgeOf) (client.Badge, error) {
	name, namespace, err := s.nameOf(ctx, who, of)
	if err != nil {
		return client.Badge{}, err
	}
	secret, err := auth.NewSecret()
	if err != nil {
		return client.Badge{}, err
	}
	_, err = s.store.PutToken(ctx, store.PutToken{Name: name, Hash: auth.HashOf(secret), Role: badgeRole, Namespace: namespace, Replace: true, Actor: who.Name})
	s.tokens.Forget()
	if errors.Is(err, store.ErrLimit) {
		return client.Badge{}, Refuse(client.TypeConflict, phrase.TooManyTokens.Of(store.TokensMax))
	}
	return client.Badge{BadgeOf: of, Token: name, SVG: "/badge/" + secret + ".svg", JSON: "/badge/" + secret + ".json"}, err
}

// Revoke ends the link of a badge.
func (s *Badges) Revoke(ctx context.Context, who Caller, of client.BadgeOf) (client.Badge, error) {
	name, _, err := s.nameOf(ctx, who, of)
	if err != nil {
		return client.Badge{}, err
	}
	err = s.store.DeleteToken(ctx, name, who.Name)
	s.tokens.Forget()
	if errors.Is(err, store.ErrNotFound) {
		return client.Badge{}, Refuse(client.TypeNotFound, phrase.NoSuchToken.Of(name))
	}
	return client.Badge{BadgeOf: of, Token: name}, err
}

// Show returns what the badge with a secret shows, in a language.
func (s *Badges) Show(ctx context.Context, secret, lang string) (client.BadgeState, error) {
	t, err := s.tokens.ByHash(ctx, auth.HashOf(secret))
	if err != nil && !errors.Is(err, auth.ErrUnknown) {
		return client.BadgeState{}, err
	}
	of, ok := badgeOf(&t)
	if err != nil || !ok {
		return client.BadgeState{}, Refuse(client.TypeNotFound, phrase.NoSuchBadge)
	}
	reader := Caller{Name: t.Name, Role: store.RoleViewer, Namespace: t.Namespace}
	show := s.ofJob
	if of.Label != "" {
		show = s.ofLabel
	}
	message, color, err := show(ctx, reader, of)
	if lang != phrase.Chinese {
		lang = phrase.English
	}
	return client.BadgeState{SchemaVersion: 1, Label: cmp.Or(of.Label, of.Job), Message: reason.In(lang, reason.Say(message), nil), Color: color}, err
}

// ofJob says how a job is.
func (s *Badges) ofJob(ctx context.Context, reader Caller, of client.BadgeOf) (message phrase.Text, color string, err error) {
	namespace, name, _ := strings.Cut(of.Job, "/")
	j, err := s.jobs.find(ctx, reader, Read, Name{Namespace: namespace, Name: name})
	if err != nil {
		return message, "", err
	}
	now, err := s.jobs.store.Now(ctx)
	if err != nil {
		return message, "", err
	}
	last, err := s.jobs.store.Recent(ctx, []job.ID{j.Definition.UID}, 1)
	if err != nil {
		return message, "", err
	}
	filled, err := s.jobs.shownOf(ctx, j, true, now, last[0], nil)
	if err != nil {
		return message, "", err
	}
	switch is := filled.Status; {
	case is.State == job.JobPaused:
		return phrase.BadgePaused, badgeNeutral, nil
	case is.Failures > 0:
		return phrase.BadgeFailing.Of(is.Failures), badgeFailing, nil
	case is.LastOutcome == "":
		return phrase.BadgeNeverRan, badgeNeutral, nil
	}
	return phrase.BadgePassing, badgePassing, nil
}

// ofLabel says how the jobs with a label are.
func (s *Badges) ofLabel(ctx context.Context, reader Caller, of client.BadgeOf) (message phrase.Text, color string, err error) {
	key, value, _ := strings.Cut(of.Label, "=")
	q := client.JobQuery{Namespace: of.Namespace, Labels: map[string]string{key: value}, PageSize: 1}
	some, err := s.jobs.Listed(ctx, reader, q, false)
	if err != nil {
		return message, "", err
	}
	q.Failing, q.PageSize = true, PageMax
	failing, err := s.jobs.Listed(ctx, reader, q, false)
	switch {
	case err != nil:
		return message, "", err
	case len(failing.Items) > 0:
		return phrase.BadgeJobsFailing.Of(len(failing.Items)), badgeFailing, nil
	case len(some.Items) == 0 && some.NextPageToken == "":
		return phrase.BadgeNoJobs, badgeNeutral, nil
	}
	return phrase.BadgePassing, badgePassing, nil
}
