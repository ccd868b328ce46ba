package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// tokenStore is the part of a store that tokens use.
type tokenStore interface {
	PutToken(ctx context.Context, p store.PutToken) (store.Token, error)
	DeleteToken(ctx context.Context, name, actor string) error
	Tokens(ctx context.Context) ([]store.Token, error)
	Now(ctx context.Context) (time.Time, error)
}

// Access creates, lists and revokes tokens.
type Access struct {
	store      tokenStore
	tokens     Tokens
	sharedUser string
}

// List returns all tokens by name: [store.TokensMax] at most.
func (s *Access) List(ctx context.Context, who Caller) ([]client.Token, error) {
	if err := who.May(Administer); err != nil {
		return nil, err
	}
	tokens, err := s.store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	list := []client.Token{}
	for i := range tokens {
		if isHeld(tokens[i].Role) { // others are parts of jobs, or stand in for tokens
			list = append(list, shownToken(&tokens[i], now))
		}
	}
	return list, nil
}

// isHeld reports whether tokens with a role are for people, programs or workers.
func isHeld(r store.Role) bool {
	return r.Allows(store.RoleViewer) || r == store.RoleRemote || r == store.RoleJoin
}

func shownToken(t *store.Token, now time.Time) client.Token {
	shown := client.Token{
		Name: t.Name, Role: client.Role(t.Role), Namespace: t.Namespace,
		Created: t.Created, By: t.By, Expires: t.Expires, Expired: !t.Valid(now), LastUsed: t.LastUsed,
		Labels: t.Labels, Certificate: t.Certificate,
	}
	if t.Role == store.RoleJoin {
		shown.Role, shown.Joins = client.RoleWorker, new(t.Uses)
	}
	return shown
}

// lastsMin is the shortest life of a token: a shorter one ends before its first use. lastsMax
// is the longest: a later date is a mistake, and at last does not fit.
const (
	lastsMin = job.Duration(time.Second)
	lastsMax = 100 * 365 * job.Duration(24*time.Hour)
)

const (
	// joinFor is the default life of a joining token, and joinMax the longest: setup
	// scripts of machines contain it.
	joinFor = job.Duration(time.Hour)
	joinMax = 30 * job.Duration(24*time.Hour)
)

// termsOf returns the terms of a token for workers.
func termsOf(request *client.TokenRequest) (terms store.Terms, err error) {
	if request.Role != client.RoleWorker {
		switch {
		case request.Joins != 0:
			return terms, WrongField("joins", phrase.ForWorkers)
		case len(request.Labels) > 0:
			return terms, WrongField("labels", phrase.ForWorkers)
		case request.Certificate != "":
			return terms, WrongField("certificate", phrase.ForWorkers)
		}
		return terms, nil
	}
	for i, label := range request.Labels {
		key, value, found := strings.Cut(label, "=")
		path := fmt.Sprintf("labels[%d]", i)
		if !found || !job.IsLabel(key, value) {
			return terms, WrongField(path, phrase.NotTokenLabel.Of(phrase.Quoted(label)))
		}
		if key == job.LabelWorker || key == job.LabelWorkerNamespace {
			return terms, WrongField(path, phrase.LabelOfServer.Of(key))
		}
	}
	if strings.ContainsFunc(request.Certificate, unicode.IsControl) {
		return terms, WrongField("certificate", phrase.CannotBeShown)
	}
	return store.Terms{Labels: request.Labels, Certificate: request.Certificate, Uses: request.Joins}, nil
}

// Create makes a token.
func (s *Access) Create(ctx context.Context, who Caller, request client.TokenRequest) (client.NewToken, error) {
	if err := who.May(Administer); err != nil {
		return client.NewToken{}, err
	}
	if request.Name == engine.System {
		return client.NewToken{}, WrongField("name", phrase.NameInAudit)
	}
	var lasts job.Duration
	if request.ExpiresIn != "" {
		var err error
		if lasts, err = job.ParseDuration(request.ExpiresIn); err != nil {
			return client.NewToken{}, WrongField("expires_in", phrase.OfError(err))
		}
		if lasts < lastsMin || lasts > lastsMax {
			return client.NewToken{}, WrongField("expires_in", phrase.TokenLife)
		}
	}
	terms, err := termsOf(&request)
	if err != nil {
		return client.NewToken{}, err
	}
	role := store.Role(request.Role)
	if request.Joins > 0 {
		role, lasts = store.RoleJoin, cmp.Or(lasts, joinFor)
		if lasts > joinMax {
			return client.NewToken{}, WrongField("expires_in", phrase.JoinLife)
		}
	}
	secret, err := auth.NewSecret()
	if err != nil {
		return client.NewToken{}, err
	}
	t, err := s.store.PutToken(ctx, store.PutToken{
		Name: request.Name, Hash: auth.HashOf(secret), Role: role, Namespace: request.Namespace,
		Lasts: time.Duration(lasts), Actor: who.Name, Terms: terms,
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return client.NewToken{}, Refuse(client.TypeExists, phrase.TokenExists.Of(request.Name), phrase.OtherNameFirst)
	case errors.Is(err, store.ErrLimit):
		return client.NewToken{}, Refuse(client.TypeConflict, phrase.TooManyTokens.Of(store.TokensMax), phrase.RevokeUnneeded)
	case err != nil:
		return client.NewToken{}, err
	}
	s.tokens.Forget()
	token := client.NewToken{Token: shownToken(&t, t.Created), Secret: secret}
	if s.sharedUser != "" && t.Namespace != "" {
		token.Warnings = []string{"commands run as " + s.sharedUser + ", the user of the server: a job of the namespace can read the server's own token and store, and so all others; run the server as root with --run-as to keep namespaces apart"}
	}
	return token, nil
}

// Sessions returns the valid sessions of tokens and people, the latest first.
func (s *Access) Sessions(ctx context.Context, who Caller) ([]auth.Session, error) {
	if err := who.May(Administer); err != nil {
		return nil, err
	}
	tokens, err := s.store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.store.Now(ctx)
	return auth.SessionsAmong(tokens, now), err
}

// EndSession ends one of Sessions, on all nodes within a second.
func (s *Access) EndSession(ctx context.Context, who Caller, id string) error {
	list, err := s.Sessions(ctx, who)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(one auth.Session) bool { return one.ID == id })
	if at < 0 {
		return nil // it has ended
	}
	defer s.tokens.Forget()
	if err := s.store.DeleteToken(ctx, list[at].Name, who.Name); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// eachOfPeople calls f with each valid session of a person, and each code for one.
func (s *Access) eachOfPeople(ctx context.Context, f func(*store.Token) error) error {
	tokens, err := s.store.Tokens(ctx)
	if err != nil {
		return err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	for i := range tokens {
		if t := &tokens[i]; t.Role.StandsIn() && t.Person != nil && t.Valid(now) {
			if err := f(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// EndSessions ends all sessions of a person, who is named as in the audit.
func (s *Access) EndSessions(ctx context.Context, who Caller, person string) (ended client.SessionsEnded, err error) {
	if err := who.May(Administer); err != nil {
		return ended, err
	}
	defer s.tokens.Forget() // a failed call may have taken effect
	err = s.eachOfPeople(ctx, func(t *store.Token) error {
		if t.Person.Actor() != person {
			return nil
		}
		if t.Role == store.RoleCode { // a command may be about to begin a session with it
			err := s.store.DeleteToken(ctx, t.Name, engine.System)
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			return err
		}
		err := s.store.DeleteToken(ctx, t.Name, who.Name)
		if errors.Is(err, store.ErrNotFound) {
			return nil // the person has just logged out
		}
		if err == nil {
			ended.Ended++
		}
		return err
	})
	if err == nil && ended.Ended == 0 {
		err = Refuse(client.TypeNotFound, phrase.NoSessionOf.Of(person), phrase.ListSessions)
	}
	return ended, err
}

// Revoke ends a token.
func (s *Access) Revoke(ctx context.Context, who Caller, name string) error {
	if err := who.May(Administer); err != nil {
		return err
	}
	err := s.store.DeleteToken(ctx, name, who.Name)
	s.tokens.Forget() // a failed call may have taken effect
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Refuse(client.TypeNotFound, phrase.NoSuchToken.Of(name))
	case errors.Is(err, store.ErrLastAdmin):
		return Refuse(client.TypeConflict, phrase.LastAdmin.Of(name), phrase.CreateAdminFirst)
	}
	return err
}
