package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/signin"
)

// makeSignIn makes the provider of sign-ins, if configured, without contacting it.
func (s *Server) makeSignIn() (err error) {
	c := s.Settings.OIDC
	if c.Issuer == "" {
		return nil
	}
	s.signIn, err = signInOf(c, s.Now, s.Log, s.clientSecret)
	return err
}

// CheckSignIn returns why people cannot sign in with a configuration, nil if they can. It does not
// read secrets of Belfry.
func CheckSignIn(ctx context.Context, c config.OIDC, now func() time.Time) error {
	s := &Server{Config: Config{Now: now}}
	p, err := signInOf(c, now, nil, func(ctx context.Context, c config.OIDC) (string, error) {
		c.ClientSecretName = ""
		return s.clientSecret(ctx, c)
	})
	if err != nil {
		return err
	}
	return p.Check(ctx)
}

// signInOf returns the provider of a configuration.
func signInOf(c config.OIDC, now func() time.Time, log *slog.Logger, secretOf func(context.Context, config.OIDC) (string, error)) (*signin.Provider, error) {
	settings := signin.Config{
		Name: c.Name, Issuer: string(c.Issuer), ClientID: c.ClientID, RedirectURL: string(c.RedirectURL), Scopes: c.Scopes,
		GroupsClaim: c.GroupsClaim, NameClaim: c.NameClaim, Lasts: time.Duration(c.SessionFor), CA: c.CA, Now: now, Log: log,
	}
	if c.ClientSecret != "" || c.ClientSecretFile != "" || c.ClientSecretName != "" {
		settings.Secret = func(ctx context.Context) (string, error) { return secretOf(ctx, c) }
	}
	return signin.New(settings, mappingOf(c))
}

// clientSecret reads the secret of the client from where it is.
func (s *Server) clientSecret(ctx context.Context, c config.OIDC) (string, error) {
	switch {
	case c.ClientSecretFile != "":
		return auth.ReadToken(c.ClientSecretFile)
	case c.ClientSecretName != "":
		namespace, name, _ := strings.Cut(c.ClientSecretName, "/")
		values, err := s.secrets.Values(ctx, namespace, []string{name})
		if err != nil {
			return "", fmt.Errorf("secret %s: %w", c.ClientSecretName, err)
		}
		return values[name], nil
	}
	return string(c.ClientSecret), nil
}

// mappingOf returns the roles that are configured.
func mappingOf(c config.OIDC) signin.Mapping {
	grants := func(list []config.Grant) (out []signin.Grant) {
		for _, g := range list {
			namespace, role := g.Parse()
			out = append(out, signin.Grant{Namespace: namespace, Role: role})
		}
		return out
	}
	m := signin.Mapping{Groups: map[string][]signin.Grant{}, People: map[string][]signin.Grant{}, Everyone: grants(c.Everyone), Domains: c.EmailDomains}
	for group, list := range c.Groups {
		m.Groups[group] = grants(list)
	}
	for address, list := range c.People {
		m.People[strings.ToLower(address)] = grants(list)
	}
	return m
}

// signInAt returns the address of this server at which people sign in, without a path; "" without a
// provider.
func (s *Server) signInAt() string {
	if s.signIn == nil {
		return ""
	}
	return strings.TrimSuffix(string(s.Settings.OIDC.RedirectURL), config.CallbackPath)
}

// people are the people who sign in at the provider.
func (s *Server) people() auth.People {
	if s.signIn == nil {
		return nil
	}
	return s.signIn
}

// checkSignIn contacts the provider until it answers, so that the log reports problems
// before anyone signs in.
func (s *Server) checkSignIn(ctx context.Context) {
	const every = 10 * time.Second
	for s.signIn.Check(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}
