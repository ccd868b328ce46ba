package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/inside"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/web"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ListenError is why a server could not listen on its address.
type ListenError struct {
	Address string
	Err     error
}

func (e *ListenError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the system.
func (e *ListenError) Unwrap() error { return e.Err }

// listenHTTP listens on the address of the API.
func (s *Server) listenHTTP() error {
	return s.listenOn(string(s.Settings.Listen))
}

// listenOn listens on an address, or uses the listener of the previous version of the program.
func (s *Server) listenOn(address string) error {
	l, err := s.CarryOver.listener(address)
	if l == nil && err == nil {
		l, err = net.Listen("tcp", address)
	}
	if err != nil {
		return &ListenError{address, err}
	}
	s.socket, _ = l.(*net.TCPListener)
	s.address = address
	s.listen = limitConnections(l, connectionsFor(fileLimit(), s.capacity()), s.Log)
	s.closers = append(s.closers, func() error {
		if err := s.listen.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

// readCertificate reads the certificate of the server, if it has one.
func (s *Server) readCertificate() error {
	c := s.Settings.TLS
	if c.Cert == "" {
		return nil
	}
	s.own = &certificate{cert: c.Cert, key: c.Key, now: s.Now, log: s.Log}
	s.own.authorities = c.ClientCA
	if err := s.own.load(); err != nil {
		return fmt.Errorf("read the certificate %s with the key %s: %w", c.Cert, c.Key, err)
	}
	return nil
}

// The bounds of a connection.
const (
	headerTime = 10 * time.Second // to send the headers
	readTime   = time.Minute      // to send a whole request: 16 MiB on a slow line
	answerTime = 2 * time.Minute  // to receive the answer; for a follower each event
	idleTime   = 2 * time.Minute  // until the next request
	headerMax  = 64 << 10
)

// makeHTTP makes what answers requests.
func (s *Server) makeHTTP() error {
	if err := s.makeSignIn(); err != nil {
		return err
	}
	hosts := []string{s.Settings.Name}
	if host := s.Settings.OIDC.RedirectURL.Host(); host != "" {
		hosts = append(hosts, host)
	}
	for _, host := range s.Settings.Hosts {
		hosts = append(hosts, string(host))
	}
	if host := s.Settings.HTTP.CallbackURL.Host(); host != "" {
		hosts = append(hosts, host)
	}
	if host, _, err := net.SplitHostPort(string(s.Settings.Listen)); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	s.events = events.New(s.measured)
	var live service.LiveLogs
	if s.xxl.admin != nil {
		live = s.xxl.admin
	}
	answers, err := service.New(service.Config{
		LiveLogs: live, Store: s.measured, Transactions: s.transactions(), Planner: s.node.Planner(), Events: s.events, Followers: s.followers, Tokens: s.tokens,
		Remark: s.remark, About: s.about, Kept: s.node.Kept, Secrets: s.secrets, Send: s.sender.Send,
		People:  s.people(),
		MayLose: s.mayLose(),
		Node:    s.Settings.Name, SharedUser: s.Settings.SharedUser(), Defaults: s.Settings.JobDefaults(), Now: s.Now, Log: s.Log,
	})
	if err != nil {
		return err
	}
	s.service = answers
	s.workers = host.New(host.Config{
		Store: s.measured, Tokens: s.tokens, Secrets: s.secrets, Followers: s.followers, Node: s.Settings.Name, OutputLimit: int(s.Settings.Output),
		Trace: s.telemetry.Tracer(), Now: s.Now,
	})
	s.makeNotifier(answers)
	sessions := auth.NewSessions(s.tokens, s.people())
	pages, err := web.Handler(web.Config{
		Service: web.ServiceOf(answers), Tokens: s.tokens, Sessions: sessions, SignIn: s.signIn, SignInAt: s.Settings.OIDC.Button, Node: s.Settings.Name, Version: s.Version, Now: s.Now, Log: s.Log,
	})
	if err != nil {
		return err
	}
	if !s.Settings.Has(store.RoleAPI) {
		pages = nil
	}
	handler, err := httpapi.Handler(httpapi.Config{
		Service: answers, Workers: s.workers, Tokens: s.tokens, Sessions: sessions, SignInAt: s.signInAt(), Pages: pages, Node: s.Settings.Name, Hosts: hosts, Metrics: metrics.Handler(s.families),
		Version: s.Version, Now: s.Now, Log: s.Log, WithoutAPI: !s.Settings.Has(store.RoleAPI), WorkerCertificates: s.Settings.TLS.WorkerCertificates,
		AssistantChanges: s.Settings.MCP.AllowChanges,
	})
	if err != nil {
		return err
	}
	s.http = s.answersWith(handler)
	return nil
}

// answersWith returns the HTTP server for a handler and the bound address.
func (s *Server) answersWith(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: guard(handler), ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerMax, ConnState: s.listen.state, ConnContext: s.listen.with,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
}

// families returns the metrics of the server.
func (s *Server) families(ctx context.Context) []metrics.Family {
	var history func() metrics.History
	if s.apart != nil {
		history = s.historyMetrics
	}
	return s.metrics.Families(ctx, metrics.Sources{
		History:       history,
		Windows:       s.openWindows,
		Hooks:         s.service.Hooks.Counts,
		Containers:    s.containersMetrics(),
		Clusters:      s.jobs.Away,
		Approvals:     func(ctx context.Context) (int, error) { return s.service.Attention.Approvals(ctx, s.itself()) },
		Notifications: func() metrics.Notifications { return metrics.Notifications(s.notifier.Stats()) },
		Version:       s.Version, Store: s.measured, Next: s.node.Planner().NextAfter,
		Load: func() metrics.Load { return inside.LoadOf(s.node.Stats()) },
	})
}

// openWindows returns the open maintenance windows by full name.
func (s *Server) openWindows(ctx context.Context) (map[string]job.WindowAction, error) {
	now := s.Now()
	list, err := s.service.Load.Openings(ctx, s.itself(), "", now, now.Add(1))
	open := map[string]job.WindowAction{}
	for i := range list {
		open[list[i].Window] = list[i].Action
	}
	return open, err
}

// serve answers requests until the server is shut down.
func (s *Server) serve() error { return s.serveWith(s.http, s.listen) }

func (s *Server) serveWith(answers *http.Server, l net.Listener) (err error) {
	if s.own != nil {
		answers.TLSConfig = s.own.config()
		err = answers.ServeTLS(l, "", "") // it has the certificate
	} else {
		err = answers.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
