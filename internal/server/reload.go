package server

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
)

// reloadOn reads the configuration again for each request, until ctx ends.
func (s *Server) reloadOn(ctx context.Context, requests <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-requests:
			s.reload()
		}
	}
}

// reload rereads the configuration and applies the reloadable settings. It stops nothing, whatever
// it finds.
func (s *Server) reload() {
	if s.Read == nil {
		return
	}
	next, mistakes, err := s.Read()
	if err != nil {
		s.Log.Error("cannot reload the configuration; the server keeps the old one", "error", err, "mistakes", mistakes)
		return
	}
	taken, needRestart := []string{}, []string{}
	for _, f := range config.Changed(s.loaded, next) {
		// A listener cannot change between HTTP and HTTPS.
		other := strings.HasPrefix(f.Name, "tls.") && (s.own != nil) != (next.TLS.Cert != "")
		if f.Reload && !other {
			taken = append(taken, f.Name)
		} else {
			needRestart = append(needRestart, f.Name)
		}
	}
	if err := s.take(next); err != nil {
		s.Log.Error("cannot reload all of the configuration", "error", err)
		return
	}
	s.loaded = next
	s.Log.Info("configuration reloaded", "changed", taken)
	if len(needRestart) > 0 {
		s.Log.Warn("changed settings need a restart", "settings", needRestart)
	}
	s.Level.Set(next.Level()) // last, so that a higher level does not hide these lines
}

// take applies the reloadable settings.
func (s *Server) take(c config.Server) error {
	s.node.Keep(retentionOf(c))
	if s.signIn != nil {
		s.signIn.Set(mappingOf(c.OIDC))
	}
	if s.own != nil && c.TLS.Cert != "" {
		if err := s.own.reload(c.TLS.Cert, c.TLS.Key, c.TLS.ClientCA); err != nil {
			return fmt.Errorf("the certificate %s with the key %s: %w", c.TLS.Cert, c.TLS.Key, err)
		}
	}
	if err := s.commands.Allow(c.Shell.AllowUsers, c.Shell.AllowGroups); err != nil {
		return err
	}
	if s.containers != nil {
		s.containers.Allow(containerSettings(c))
	}
	if err := s.setClusters(c); err != nil {
		return err
	}
	s.node.Publish(s.handlers())
	if s.xxl.admin != nil && c.XXL.IsOn() {
		settings, err := s.settingsOfXXL(c)
		if err != nil {
			return err
		}
		if err := s.xxl.admin.Set(settings); err != nil {
			return err
		}
	}
	return s.requests.Restrict(s.access(c))
}

// access returns the allowed targets of HTTP jobs.
func (s *Server) access(c config.Server) httpexec.Config {
	return httpexec.Config{
		Version: s.Version,
		Allow:   config.Prefixes(c.HTTP.Allow), Deny: config.Prefixes(c.HTTP.Deny),
		TLSDirs: config.Dirs(c.HTTP.TLSDirs), Loopback: s.Settings.LocalOnly(), CallbackURL: s.callbackURL(),
	}
}

// callbackURL returns the address for services' reports, by default the address that this server
// listens on.
func (s *Server) callbackURL() string {
	if s.Settings.Listen == "" {
		return "" // a worker without a store hands no work over
	}
	if at, ok := s.listen.Addr().(*net.TCPAddr); s.Settings.HTTP.CallbackURL == "" && ok && !at.IP.IsUnspecified() {
		return s.URL()
	}
	return string(s.Settings.HTTP.CallbackURL)
}

func retentionOf(c config.Server) store.Retention {
	return store.Retention{
		Runs: c.Keep.Runs, For: time.Duration(c.Keep.For), OutputFor: time.Duration(c.Keep.OutputFor),
		Audit: c.Keep.Audit, AuditFor: time.Duration(c.Keep.AuditFor),
	}
}
