package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	xxlexec "github.com/belfry-cron/belfry/executor/xxl"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// executorsOfXXL serves XXL-JOB executors and sends them work. The zero value is a server without
// them.
type executorsOfXXL struct {
	admin  *xxlexec.Admin
	listen *connections
	http   *http.Server
	// hasShortToken is whether an access token can be guessed.
	hasShortToken atomic.Bool
}

// listenXXL listens on the address for executors.
func (s *Server) listenXXL() error {
	if !s.Settings.XXL.IsOn() {
		return nil
	}
	address := string(s.Settings.XXL.Listen)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return &ListenError{address, err}
	}
	s.xxl.listen = limitConnections(l, connectionsFor(fileLimit(), s.capacity()), s.Log)
	s.closers = append(s.closers, func() error {
		if err := s.xxl.listen.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

// makeXXL makes the handler for XXL-JOB executors, if configured.
func (s *Server) makeXXL() error {
	if s.xxl.listen == nil {
		return nil
	}
	settings, err := s.settingsOfXXL(s.Settings)
	if err != nil {
		return err
	}
	s.xxl.admin, err = xxlexec.New(xxlexec.Config{
		Store: s.measured, OutputLimit: int(s.Settings.Output), Wrote: func(run job.ID) { s.followers.Wrote(run) }, Log: s.Log, Settings: settings, Known: auth.Shown,
		Secret: func(ctx context.Context, namespace, name string) (string, error) {
			return s.secrets.Value(ctx, namespace, name)
		},
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.xxl.admin.Close(); return nil })
	s.xxl.http = &http.Server{
		Handler: guard(s.xxl.admin), ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: headerMax, ConnState: s.xxl.listen.state, ConnContext: s.xxl.listen.with, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	s.Log.Info("executors of XXL-JOB may register", "address", s.xxl.listen.Addr().String())
	return nil
}

// settingsOfXXL reads the tokens, and returns the node's settings for executors.
func (s *Server) settingsOfXXL(c config.Server) (xxlexec.Settings, error) {
	tokens, err := c.XXL.ReadTokens()
	if err != nil {
		return xxlexec.Settings{}, err
	}
	if config.HasDefaultToken(tokens) {
		s.Log.Warn("executors are recognised by default_token, which everyone knows: any program on this machine can register as an executor and report results", "setting", "xxl.insecure_default_token")
	}
	isShort := config.HasShortToken(tokens)
	if isShort {
		s.Log.Warn(phrase.ShortToken.String(), "setting", "xxl.short_tokens")
	}
	s.xxl.hasShortToken.Store(isShort)
	return xxlexec.Settings{
		Tokens: tokens, Glue: c.XXL.Glue, Forward: string(c.XXL.Forward),
		Allow: config.Prefixes(c.HTTP.Allow), Deny: config.Prefixes(c.HTTP.Deny),
	}, nil
}

// serveXXL answers executors until it is shut down, and polls runs until ctx ends.
func (s *Server) serveXXL(ctx context.Context) error {
	if s.xxl.admin == nil {
		return nil
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.xxl.admin.Serve(ctx)
	}()
	err := s.xxl.http.Serve(s.xxl.listen)
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("answer executors: %w", err)
}

// stopXXL ends the answers to executors. Their runs continue.
func (s *Server) stopXXL(ctx context.Context, within time.Duration) {
	if s.xxl.http == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if err := s.xxl.http.Shutdown(ctx); err != nil {
		_ = s.xxl.http.Close()
	}
}
