package belfry

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ErrNoStore is returned by methods that need a store if the [Scheduler] was created by
// [Connect]: its token can only run jobs. To call a server with other rights, use package
// client.
var ErrNoStore = errors.New("a program that is connected to a server reaches no store: ask the server, with package client or the command line")

// Connect returns a scheduler that runs its handlers for the Belfry servers at an address,
// such as https://belfry.example.com:8420, and needs no database. The token has the role
// worker: belfry token create NAME --role worker.
//
// The jobs are declared or applied elsewhere, as with [WithHandlersOnly], and name the
// handlers. With a token for a namespace, the program runs only jobs of that namespace
// that select it by place.labels.worker, the name of the token.
//
// Run retries while no server answers. It returns an error for a mistake in the program, or
// when a server refuses the token or the protocol. [WithNamespace], [WithOwner] and [WithHistory]
// have no effect: jobs and servers have those settings.
func Connect(address, token string, options ...Option) *Scheduler {
	s := newScheduler(options)
	s.settings.handlersOnly = true
	c := &s.settings.connection
	c.servers = append([]string{address}, c.servers...)
	if c.token == nil {
		c.token = func() (string, error) { return token, nil }
	}
	var err error
	s.remote, err = remote.New(remote.Config{
		Servers: c.servers, Token: c.token, PlainHTTP: c.plain, Transport: c.transport,
		UserAgent: "belfry-go/" + version(), Log: s.settings.log,
	})
	if err != nil {
		s.mistake(caller(), "belfry.Connect: %v", err)
	}
	return s
}

// connection has the settings of [Connect]'s requests to servers.
type connection struct {
	servers   []string
	token     func() (string, error)
	transport http.RoundTripper
	plain     bool
}

// isSet reports whether an option for [Connect] was given.
func (c *connection) isSet() bool {
	return len(c.servers) > 0 || c.token != nil || c.transport != nil || c.plain
}

// WithServers adds servers on the same store for [Connect]: if one does not answer, the next one is
// tried.
func WithServers(addresses ...string) Option {
	return func(s *settings) { s.connection.servers = append(s.connection.servers, addresses...) }
}

// WithToken replaces the token of [Connect] by a function. It is called at the start and
// each time a server refuses the last token, so tokens can rotate without a restart.
func WithToken(token func() (string, error)) Option {
	return func(s *settings) { s.connection.token = token }
}

// WithTransport replaces the transport of [Connect]'s requests, for a private certificate
// authority, client certificates or a proxy. Default: [http.DefaultTransport].
func WithTransport(t http.RoundTripper) Option {
	return func(s *settings) { s.connection.transport = t }
}

// WithPlainHTTP allows [Connect] to call servers on other machines without TLS. Anyone on the
// network path can read the token and the jobs.
func WithPlainHTTP() Option { return func(s *settings) { s.connection.plain = true } }

// WithSpool keeps the results of handlers in a directory until the store or a server accepts
// them. Unreported results survive the process, and the next process reports them. Each process
// needs its own directory. Default: unreported results are kept in memory, and their runs are
// lost with the process.
func WithSpool(directory string) Option {
	return func(s *settings) { s.spool = directory }
}

// spoolWait is how long [Run] waits for the process that used the spool before.
const spoolWait = 5 * time.Second

// openSpool opens the spool of the program; nil if it has none.
func (s *Scheduler) openSpool(ctx context.Context, isRefused func(error) bool) (*unreported.Spool, error) {
	if s.settings.spool == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, spoolWait)
	defer cancel()
	return unreported.Open(ctx, unreported.Config{Dir: s.settings.spool, IsRefused: isRefused, Log: s.settings.log})
}

// runConnected is [Run] for a scheduler of [Connect].
func (s *Scheduler) runConnected(ctx context.Context) (err error) {
	machine, err := job.NewID(s.settings.now(), rand.Reader)
	if err != nil {
		return err
	}
	c := s.nodeConfig(machine.String(), []string{store.RoleHandlers})
	c.Members, c.Work, c.StoreName = s.remote, s.remote, "the store of the servers"
	spool, err := s.openSpool(ctx, remote.IsRefused)
	if err != nil {
		return err
	}
	if spool != nil {
		defer func() { err = errors.Join(err, spool.Close()) }()
		c.Spool = spool
	}
	n, err := node.New(c)
	if err != nil {
		return err
	}
	if err := s.remote.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before a server answered
		}
		return err
	}
	return s.remote.Work(ctx, func(ctx context.Context) error { return s.runNode(ctx, n) })
}
