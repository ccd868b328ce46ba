// Package xxlexec replaces xxl-job-admin: it sends work to executors of XXL-JOB, which register
// themselves, run it and call back.
//
// A sent attempt belongs to no node: [store.Handovers] keeps it. It ends by the callback of its
// executor, which any node accepts, or by the keeper of a node, which polls executors and ends
// cancelled, overlong and lost attempts. Nothing is sent twice: each request is first recorded
// under its own number, and only a request that certainly did not arrive is sent to another
// executor.
package xxlexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/internal/sys/egress"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Kind of the handovers and registrations of this package.
const Kind = store.ExecutorsOfXXL

// Store is the [Admin]'s part of a store.
type Store interface {
	store.Registry
	store.Handovers
	ListActive(ctx context.Context, q store.ActiveQuery) ([]store.Run, error)
	Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
	AppendOutput(ctx context.Context, chunks []store.OutputChunk) error
	Now(ctx context.Context) (time.Time, error)
	Hints(ctx context.Context) <-chan store.Hint
	Documents(ctx context.Context, kinds ...job.Kind) ([]job.Document, error)
}

// Config configures an [Admin].
type Config struct {
	Store Store
	// OutputLimit bounds the stored log of a run. Default: 1 MiB.
	OutputLimit int
	// Wrote is called for each run whose log was stored after its result. May be nil.
	Wrote func(run job.ID)
	// Known is called for each request with a valid access token, before its body is read. It may be
	// nil.
	Known func(ctx context.Context)
	// Secret returns the value of a secret, for groups with a token of their own. May be nil
	// where no document names one.
	Secret func(ctx context.Context, namespace, name string) (string, error)
	Log    *slog.Logger
	Settings
	// dial replaces the connections to executors in tests.
	dial dial
}

// Settings are the part of a [Config] that can change while an [Admin] works.
type Settings struct {
	// Tokens are the access tokens that executors may show, at least one. The first is shown to them.
	Tokens []string
	// Glue permits sending code to executors.
	Glue bool
	// Forward is the address of an admin of XXL-JOB that gets registrations, and callbacks of
	// runs that are not Belfry's; "" for none.
	Forward string
	// Allow and Deny open and close addresses of executors as they do for HTTP jobs.
	Allow, Deny []netip.Prefix
}

const (
	outputLimitDefault = 1 << 20
	// refreshEvery is the interval for reading the registry: as often as nodes read each
	// other's sessions.
	refreshEvery = 2 * time.Second
	// flushEvery is for how long signs of life are gathered.
	flushEvery = time.Second
	// keepEvery is the longest interval of the keeper.
	keepEvery = time.Second
)

// Admin replaces xxl-job-admin. It is an executor.Executor.
type Admin struct {
	store       Store
	outputLimit int
	known       func(ctx context.Context)
	wrote       func(run job.ID)
	secret      func(ctx context.Context, namespace, name string) (string, error)
	log         *slog.Logger
	dial        dial

	current  atomic.Pointer[settings]
	registry registry
	groups   groupTokens
	routes   routes
	keeper   keeper
	lateLogs lateLogs
	live     liveLogs
	failures failures
	forwards *forwards
}

// settings are [Settings], prepared.
type settings struct {
	Settings
	hashes []tokenHash
	remote *egress.Guard // for other machines
	local  *egress.Guard // for loopback addresses, which only callers on this machine register
	caller *caller
}

// New returns an [Admin]. Serve makes it work.
func New(c Config) (*Admin, error) {
	a := &Admin{
		store: c.Store, outputLimit: cmp.Or(c.OutputLimit, outputLimitDefault), wrote: c.Wrote, secret: c.Secret, log: c.Log, dial: c.dial,
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.wrote == nil {
		a.wrote = func(job.ID) {}
	}
	if a.known = c.Known; a.known == nil {
		a.known = func(context.Context) {}
	}
	a.registry.init()
	a.routes.init()
	a.keeper.init()
	a.lateLogs.init()
	a.live.init()
	a.forwards = newForwards(a.log)
	if err := a.Set(c.Settings); err != nil {
		return nil, err
	}
	return a, nil
}

// Set replaces the settings of later work.
func (a *Admin) Set(s Settings) error {
	if len(s.Tokens) == 0 {
		return errors.New("executors need an access token: xxl.tokens names the files that have one")
	}
	next := &settings{Settings: s}
	for _, token := range s.Tokens {
		next.hashes = append(next.hashes, hashOf(token))
	}
	var err error
	if next.remote, err = egress.New(egress.Config{Allow: s.Allow, Deny: s.Deny}); err != nil {
		return fmt.Errorf("addresses of executors: %w", err)
	}
	if next.local, err = egress.New(egress.Config{Allow: s.Allow, Deny: s.Deny, Loopback: true}); err != nil {
		return fmt.Errorf("addresses of executors: %w", err)
	}
	next.caller = newCaller(a.dialer(next.remote), a.dialer(next.local))
	if old := a.current.Swap(next); old != nil {
		old.caller.close()
	}
	return nil
}

// dialer returns a dialer for addresses that a guard allows.
func (a *Admin) dialer(g *egress.Guard) dial {
	if a.dial != nil {
		return a.dial
	}
	return (&net.Dialer{Timeout: dialMax, Control: g.Control}).DialContext
}

// Close closes idle connections.
func (a *Admin) Close() { a.current.Load().caller.close() }

// Serve maintains the registry and the handovers until ctx ends.
func (a *Admin) Serve(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { a.keepRegistry(ctx) })
	group.Go(func() { a.keep(ctx) })
	group.Go(func() { a.keepLogs(ctx) })
	group.Go(func() { a.forwards.run(ctx, a) })
	group.Wait()
}

// keepRegistry writes signs of life, and reads the ones of other nodes.
func (a *Admin) keepRegistry(ctx context.Context) {
	failing := failurelog.New(a.log, "the registry of executors cannot be read or written", "the registry of executors is read and written again")
	flush, refresh := time.NewTicker(flushEvery), time.NewTicker(refreshEvery)
	defer flush.Stop()
	defer refresh.Stop()
	failing.Saw(a.refresh(ctx))
	for {
		select {
		case <-ctx.Done():
			return
		case <-flush.C:
			failing.Saw(a.flush(ctx))
		case <-refresh.C:
			failing.Saw(a.refresh(ctx))
		}
	}
}

// keep runs the keeper each second, and when a run must end.
func (a *Admin) keep(ctx context.Context) {
	failing := failurelog.New(a.log, "cannot check the runs at executors", "checking the runs at executors works again")
	hints := a.store.Hints(ctx)
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case hint, ok := <-hints:
			if !ok {
				hints = nil // only the ticker remains
			}
			if hint&store.HintCancels == 0 {
				continue
			}
		case <-tick.C:
		}
		failing.Saw(a.askAll(ctx))
	}
}

var _ http.Handler = (*Admin)(nil)
