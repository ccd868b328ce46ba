package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/store"
)

// Worker is a node that runs jobs for servers, without a store. Use [OpenWorker].
type Worker struct {
	parts  *Server // only its executors and its watchdog
	remote *remote.Client
	spool  *unreported.Spool // nil until opened
	node   *node.Node
}

// OpenWorker opens everything that can fail before the first request to a server. The
// caller closes the worker. It uses only the settings, the version, the clock and the log
// of the config.
func OpenWorker(ctx context.Context, c Config) (*Worker, error) {
	keepInherited()
	spawning()
	w := &Worker{parts: &Server{Config: c, manager: systemdOf(c.Getenv, c.Log)}}
	w.parts.reportStart(ctx)
	if err := w.open(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Worker) open(ctx context.Context) error {
	s := w.parts.Settings
	w.parts.metrics = metrics.New()
	w.parts.openTelemetry(ctx, w.families)
	if err := w.listenHealth(); err != nil {
		return err
	}
	transport, err := w.transport()
	if err != nil {
		return err
	}
	w.remote, err = remote.New(remote.Config{
		Servers: s.Worker.Servers, Token: w.token, Transport: transport,
		UserAgent: "belfry-worker/" + w.parts.Version, PlainHTTP: s.AllowsPlainHTTP(), Log: w.parts.Log,
	})
	if err != nil {
		return err
	}
	_, err = os.Stat(s.Data)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := w.parts.makeData(); err != nil {
		return err
	}
	choose, err := w.parts.makeExecutors(ctx)
	if err != nil {
		if isNew {
			_ = os.Remove(s.Data) // fails if it is not empty
		}
		return err
	}
	machine, err := machineOf(s.Data)
	if err != nil {
		return err
	}
	if w.spool, err = w.parts.openSpool(ctx, remote.IsRefused); err != nil {
		return err
	}
	w.node, err = node.New(node.Config{
		Observer: w.parts.metrics, CarryOver: w.parts.CarryOver.node(), Members: w.remote, Work: w.remote, Spool: w.spool, Secrets: w.remote.Secrets, StoreName: "the store of the servers", Executors: choose, Watchdog: w.parts.watchdog, Folders: folders{w.parts.commands, w.parts.containers},
		OutputLimit: int(s.Output), Capacity: s.Capacity, DrainTimeout: time.Duration(s.Drain),
		Session: store.Session{
			Node: s.Name, Machine: machine, DataDir: s.Data, Labels: s.Labels, Roles: []string{store.RoleWorker},
			Capacity: s.Capacity, Version: w.parts.Version, Zones: cron.ZoneTableVersion(), Handlers: w.parts.handlers(),
		},
		Now: w.parts.Now, Log: w.parts.Log,
	})
	return err
}

// transport makes the connections to servers.
func (w *Worker) transport() (http.RoundTripper, error) {
	c := w.parts.Settings.Worker
	transport := remote.Transport()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if c.CA != "" {
		if transport.TLSClientConfig.RootCAs, err = certificatesIn(c.CA); err != nil {
			return nil, fmt.Errorf("read the authorities of servers: %w", err)
		}
	}
	if c.Cert != "" {
		own := &certificate{cert: c.Cert, key: c.Key, now: w.parts.Now, log: w.parts.Log}
		if err := own.load(); err != nil {
			return nil, fmt.Errorf("read the client certificate %s with the key %s: %w", c.Cert, c.Key, err)
		}
		transport.TLSClientConfig.GetClientCertificate = own.forServer
	}
	return transport, nil
}

// token reads the token of the worker.
func (w *Worker) token() (string, error) {
	s := w.parts.Settings
	if s.Worker.JoinTokenFile == "" {
		return auth.ReadToken(s.Worker.TokenFile)
	}
	secret, _, err := auth.OwnToken(s.Data)
	return secret, err
}

// join exchanges a joining token for a token of the worker's own, unless it has one.
func (w *Worker) join(ctx context.Context) error {
	s := w.parts.Settings
	if s.Worker.JoinTokenFile == "" {
		return nil
	}
	secret, joined, err := auth.OwnToken(s.Data)
	if err != nil || joined {
		return err
	}
	joins, err := auth.ReadToken(s.Worker.JoinTokenFile)
	if err != nil {
		return fmt.Errorf("read the joining token: %w", err)
	}
	hash := auth.HashOf(secret)
	granted, err := w.remote.Exchange(ctx, joins, wire.OwnToken{Node: s.Name, Hash: auth.HashText(hash)})
	if err != nil {
		return err
	}
	if err := auth.KeepOwnToken(s.Data); err != nil {
		return err
	}
	w.parts.Log.Info("joined: the worker has a token of its own", "token", granted.Name, "file", filepath.Join(s.Data, auth.WorkerTokenFile), "namespace", granted.Namespace)
	return nil
}

// Close closes everything that was opened.
func (w *Worker) Close() error { return errors.Join(w.parts.Close(), w.spool.Close()) }

// ToCarry is [Server.ToCarry] for a worker.
func (w *Worker) ToCarry() *CarryOver { return w.parts.ToCarry() }

// Running returns the attempts that are running. It may be called from any goroutine.
func (w *Worker) Running() []worker.Running {
	if w.node == nil {
		return nil
	}
	return w.node.Running()
}

// Run works until ctx ends. It waits for silent servers; a refused token or version at the start is
// an error.
func (w *Worker) Run(ctx context.Context) (err error) {
	log := w.parts.Log
	stopAnswering := w.serveHealth(ctx)
	defer func() { err = errors.Join(err, stopAnswering()) }()
	log.Info("waiting for a server", "servers", w.parts.Settings.Worker.Servers, "node", w.parts.Settings.Name)
	if err := w.join(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := w.remote.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	log.Info("working", "node", w.parts.Settings.Name, "data", w.parts.Settings.Data, "capacity", w.parts.Settings.Capacity, "version", w.parts.Version)
	ready, stopped := make(chan struct{}), make(chan struct{})
	close(ready)
	var group sync.WaitGroup
	group.Go(func() {
		// A running worker is healthy: silent servers are no reason to restart it.
		w.parts.manager.run(ctx, ready, stopped, w.parts.started, func(context.Context) error { return nil })
	})
	watching, stopWatching := context.WithCancel(ctx)
	group.Go(func() { w.parts.watchEngine(watching, w.node.Publish) })
	w.parts.working.Store(w.node)
	err = w.remote.Work(ctx, w.node.Run)
	w.parts.working.Store(nil)
	stopWatching()
	w.parts.carryOver(w.node.ToCarry())
	close(stopped)
	group.Wait()
	if err == nil && w.parts.carrying == nil {
		log.Info("stopped")
	}
	return err
}
