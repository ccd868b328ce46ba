package server

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/health"
)

// makeSecrets makes the keeper of secrets in the store.
func (s *Server) makeSecrets() {
	c := s.Settings.Secrets
	file, isNew, borrowed := s.Settings.KeyFile()
	s.secrets = &secret.Keeper{
		Store: s.measured, Now: s.Now, Getenv: s.Getenv, Files: secret.Files(s.Settings.SecretsDir()),
		Ring: &secret.Ring{File: file, Make: isNew, Borrowed: borrowed, Command: c.KeyCommand, Now: s.Now},
	}
	s.secrets.Ring.Sealed = s.secrets.AnySealed
	if c.Vault.Address != "" {
		s.secrets.Vault = &secret.Vault{
			Address: string(c.Vault.Address), TokenFile: c.Vault.TokenFile, Namespace: c.Vault.Namespace, CA: c.Vault.CA, Paths: c.Vault.Paths,
			Cache: cmp.Or(time.Duration(c.Vault.Cache), secret.VaultCache), Timeout: cmp.Or(time.Duration(c.Vault.Timeout), secret.VaultTimeout), Now: s.Now,
		}
	}
}

const (
	// openEvery is how often a server tries to open all secrets, which reads them all, and openAgain
	// how often after a failure: a person who restores a key waits for it.
	openEvery = time.Minute
	openAgain = 10 * time.Second
	// openWithin bounds a try, with a slow key service and a slow store.
	openWithin = 30 * time.Second
)

// watchSecrets tries to open all secrets until ctx ends, and logs when it cannot.
func (s *Server) watchSecrets(ctx context.Context) {
	for {
		s.openSecrets(ctx)
		wait := openEvery
		if s.secretsHint().Status != health.Well {
			wait = openAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (s *Server) openSecrets(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	u, err := s.secrets.Unopened(ctx)
	if err != nil {
		s.Log.Debug("the secrets of the store were not examined", "error", err)
		return
	}
	was := s.unopened.Swap(u)
	switch found := u.Found().String(); {
	case was != nil && was.Found().String() == found:
	case u.N > 0:
		s.Log.Error("jobs and channels with these secrets wait", "found", found, "do", u.Do().String())
	case found != "":
		s.Log.Warn(found, "do", u.Do().String())
	case was != nil:
		s.Log.Info("all secrets can be opened")
	}
}

// secretsHint names the secrets that this server cannot open; Well if it opens all.
func (s *Server) secretsHint() health.Finding {
	f := health.Finding{Check: phrase.OfSecrets, Status: health.Well}
	u := s.unopened.Load()
	if u == nil || u.Found().IsZero() {
		return f
	}
	if f.Status = health.Note; u.N > 0 {
		f.Status = health.Wrong
	}
	f.Found, f.Do = u.Found(), u.Do()
	return f
}

// secretsOf returns the secrets of an attempt of this node.
func (s *Server) secretsOf(ctx context.Context, of work.SecretsOf) (map[string]string, error) {
	return s.secrets.Values(ctx, of.Namespace, of.Names)
}

// Watchdog is the watchdog process of a server: see [watchdog.Main]. It returns the exit status.
func Watchdog() int {
	code := watchdog.Main(ReportDeath)
	shell.RemoveOldScripts(os.TempDir()) // of the server: they may contain secrets
	return code
}
