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
)

// makeSecrets makes what keeps secrets in the store.
func (s *Server) makeSecrets() {
	c := s.Settings.Secrets
	file, made := s.Settings.KeyFile()
	s.secrets = &secret.Keeper{
		Store: s.measured, Now: s.Now, Getenv: s.Getenv, Files: secret.Files(s.Settings.SecretsDir()),
		Ring: &secret.Ring{File: file, Make: made, Command: c.KeyCommand, Now: s.Now},
	}
	if c.Vault.Address != "" {
		s.secrets.Vault = &secret.Vault{
			Address: string(c.Vault.Address), TokenFile: c.Vault.TokenFile, Namespace: c.Vault.Namespace, CA: c.Vault.CA, Paths: c.Vault.Paths,
			Cache: cmp.Or(time.Duration(c.Vault.Cache), secret.VaultCache), Timeout: cmp.Or(time.Duration(c.Vault.Timeout), secret.VaultTimeout), Now: s.Now,
		}
	}
}

// secretsOf returns the secrets of an attempt of this node.
func (s *Server) secretsOf(ctx context.Context, of work.SecretsOf) (map[string]string, error) {
	return s.secrets.Values(ctx, of.Namespace, of.Names)
}

// Watchdog is the process that watches over a server: see watchdog.Main. It returns the exit
// status.
func Watchdog() int {
	code := watchdog.Main(ReportDeath)
	shell.RemoveOldScripts(os.TempDir()) // those of the server: they may hold secrets
	return code
}
