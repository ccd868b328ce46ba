package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Badges show how jobs are to everyone with a link: its secret is a token that allows nothing else.
type Badges struct {
	*shared
	jobs  *Jobs
	store interface {
		PutToken(ctx context.Context, p store.PutToken) (store.Token, error)
		DeleteToken(ctx context.Context, name, actor string) error
	}
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
	return client.Badge{Token: name, SVG: "/badge/" + secret + ".svg", JSON: "/badge/" + secret + ".json"}, err
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
	return client.Badge{Token: name}, err
}

// Show returns what the badge with a secret shows.
func (s *Badges) Show(ctx context.Context, secret string) (client.BadgeState, error) {
	t, err := s.tokens.ByHash(ctx, auth.HashOf(secret))
	if err != nil && !errors.Is(err, auth.ErrUnknown) {
		return client.BadgeState{}, err
	}
	of, ok := strings.CutPrefix(t.Name, badgePrefix)
	if err != nil || !ok || t.Role != badgeRole {
		return client.BadgeState{}, Refuse(client.TypeNotFound, phrase.NoSuchBadge)
	}
	shown := client.BadgeState{SchemaVersion: 1, Color: badgeNeutral}
	reader := Caller{Name: t.Name, Role: store.RoleViewer, Namespace: t.Namespace}
	if _, label, ok := strings.Cut(of, "?"); ok {
		key, value, _ := strings.Cut(label, "=")
		shown.Label = label
		return shown, s.ofLabel(ctx, reader, client.JobQuery{Namespace: t.Namespace, Labels: map[string]string{key: value}}, &shown)
	}
	namespace, name, _ := strings.Cut(of, "/")
	j, err := s.jobs.find(ctx, reader, Read, Name{Namespace: namespace, Name: name})
	if err != nil {
		return client.BadgeState{}, err
	}
	now, err := s.jobs.store.Now(ctx)
	if err != nil {
		return client.BadgeState{}, err
	}
	last, err := s.jobs.store.Recent(ctx, []job.ID{j.Definition.UID}, 1)
	if err != nil {
		return client.BadgeState{}, err
	}
	filled, err := s.jobs.shownOf(ctx, j, true, now, last[0], nil)
	if err != nil {
		return client.BadgeState{}, err
	}
	shown.Label = of
	switch is := filled.Status; {
	case is.State == job.JobPaused:
		shown.Message = "paused"
	case is.Failures > 0:
		shown.Message, shown.Color = fmt.Sprintf("failing, %d in a row", is.Failures), badgeFailing
	case is.LastOutcome == "":
		shown.Message = "never ran"
	default:
		shown.Message, shown.Color = "passing", badgePassing
	}
	return shown, nil
}

// ofLabel says how the jobs of a query are.
func (s *Badges) ofLabel(ctx context.Context, reader Caller, q client.JobQuery, shown *client.BadgeState) error {
	q.PageSize = 1
	some, err := s.jobs.Listed(ctx, reader, q, false)
	if err != nil {
		return err
	}
	q.Failing, q.PageSize = true, PageMax
	failing, err := s.jobs.Listed(ctx, reader, q, false)
	switch {
	case err != nil:
		return err
	case len(failing.Items) > 0:
		shown.Message, shown.Color = fmt.Sprintf("%d failing", len(failing.Items)), badgeFailing
	case len(some.Items) == 0 && some.NextPageToken == "":
		shown.Message = "no jobs"
	default:
		shown.Message, shown.Color = "passing", badgePassing
	}
	return nil
}
