package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// tokenStore is what the routes about tokens want.
type tokenStore interface {
	PutToken(ctx context.Context, p store.PutToken) (store.Token, error)
	DeleteToken(ctx context.Context, name, actor string) error
	Tokens(ctx context.Context) ([]store.Token, error)
}

func (a *api) tokenRoutes() {
	register(a, http.MethodGet, "/tokens", "list-tokens", "List tokens by name", a.listTokens)
	register(a, http.MethodPost, "/tokens", "create-token", "Make a token", a.createToken, http.StatusCreated)
	register(a, http.MethodDelete, "/tokens/{name}", "revoke-token", "Revoke a token", a.revokeToken)
}

type listTokensOutput struct {
	Body client.Page[client.Token]
}

// listTokens shows all of them on one page: there are store.TokensMax at most.
func (a *api) listTokens(ctx context.Context, _ *struct{}) (*listTokensOutput, error) {
	list, err := a.Store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	out := &listTokensOutput{Body: client.Page[client.Token]{Items: []client.Token{}}}
	for i := range list {
		out.Body.Items = append(out.Body.Items, shownToken(&list[i], now))
	}
	return out, nil
}

func shownToken(t *store.Token, now time.Time) client.Token {
	return client.Token{
		Name: t.Name, Role: client.Role(t.Role), Namespace: t.Namespace,
		Created: t.Created, By: t.By, Expires: t.Expires, Expired: !t.Valid(now),
	}
}

// lastsMin is the shortest life of a token: a shorter one is over before anybody
// has used it. lastsMax is the longest: what comes behind is no date that anybody
// means, and at last none that fits.
const (
	lastsMin = job.Duration(time.Second)
	lastsMax = 100 * 365 * job.Duration(24*time.Hour)
)

type createTokenInput struct {
	Body client.TokenRequest
}

type createTokenOutput struct {
	Status       int
	CacheControl string `header:"Cache-Control"`
	Body         client.NewToken
}

func (a *api) createToken(ctx context.Context, in *createTokenInput) (*createTokenOutput, error) {
	said := &in.Body
	wrong := func(path, detail string) error {
		return wrongRequest(client.FieldError{Pointer: "/" + path, Path: path, Detail: detail})
	}
	if said.Name == engine.System {
		return nil, wrong("name", "is the name of what Belfry does by itself")
	}
	var lasts job.Duration
	if said.ExpiresIn != "" {
		var err error
		if lasts, err = job.ParseDuration(said.ExpiresIn); err != nil {
			return nil, wrong("expires_in", err.Error())
		}
		if lasts < lastsMin || lasts > lastsMax {
			return nil, wrong("expires_in", "must be from a second to 100 years; leave it out for a token that does not expire")
		}
	}
	secret, err := auth.NewSecret()
	if err != nil {
		return nil, err
	}
	t, err := a.Store.PutToken(ctx, store.PutToken{
		Name: said.Name, Hash: auth.HashOf(secret), Role: store.Role(said.Role), Namespace: said.Namespace,
		Lasts: time.Duration(lasts), Actor: actorOf(ctx),
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return nil, refuse(client.TypeExists, "there is a token %s already", said.Name).withHint("choose another name, or revoke it before")
	case errors.Is(err, store.ErrLimit):
		return nil, refuse(client.TypeConflict, "there are %d tokens already, and that is the most", store.TokensMax).withHint("revoke those that nobody needs")
	case err != nil:
		return nil, err
	}
	a.Tokens.Forget()
	return &createTokenOutput{
		Status: http.StatusCreated, CacheControl: "no-store",
		Body: client.NewToken{Token: shownToken(&t, t.Created), Secret: secret},
	}, nil
}

// TokenName names a token in a path.
type TokenName struct {
	Name string `path:"name" maxLength:"128" doc:"Its name."`
}

func (a *api) revokeToken(ctx context.Context, in *TokenName) (*struct{}, error) {
	err := a.Store.DeleteToken(ctx, in.Name, actorOf(ctx))
	a.Tokens.Forget() // also when nobody knows what has become of it
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, refuse(client.TypeNotFound, "there is no token %s", in.Name)
	case errors.Is(err, store.ErrLastAdmin):
		return nil, refuse(client.TypeConflict, "%s is the last token that can make others", in.Name).
			withHint("make another one with the role admin and without a namespace before")
	}
	return nil, err
}
