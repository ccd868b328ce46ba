package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// StoreError is why the store of a server could not be opened.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the store.
func (e *StoreError) Unwrap() error { return e.Err }

// StoreOptions are the options of a store besides the settings.
type StoreOptions struct {
	Now func() time.Time
	Log *slog.Logger
	// Ended receives the ended runs. It may be nil.
	Ended func(store.Ends)
	// KeepDefaults leaves jobs with their present defaults, for a process that is no server.
	KeepDefaults bool
	// Lost receives the number of acknowledged steps that a store no longer has. It may be nil.
	Lost func(steps int64)
}

// tellLost logs that the store has lost steps.
func (o *StoreOptions) tellLost(steps int64) {
	o.Log.Error("the store has lost steps that it had acknowledged, as after a failover or a crash: runs may run again and changes may have to be made again", "steps", steps)
	if o.Lost != nil {
		o.Lost(steps)
	}
}

// OpenStore opens the store that the settings name. The error is a *StoreError.
func OpenStore(ctx context.Context, c config.Server, o StoreOptions) (s store.Store, err error) {
	if c.History != "" {
		if s, err = openApart(ctx, c, o); err != nil {
			return nil, &StoreError{err}
		}
		return s, nil
	}
	defaults, refill := c.JobDefaults(), tellRefill(o.Log)
	switch c.Store.Kind() {
	case config.Postgres:
		s, err = postgres.Open(ctx, string(c.Store), postgres.Options{Defaults: defaults, Revisions: c.Keep.Revisions, Refill: refill, Ended: o.Ended, KeepDefaults: o.KeepDefaults})
	case config.Etcd:
		s, err = etcd.Open(ctx, string(c.Store), etcd.Options{Defaults: defaults, Revisions: c.Keep.Revisions, Refill: refill, Ended: o.Ended, KeepDefaults: o.KeepDefaults, Lost: o.tellLost})
	case config.MySQL:
		s, err = mysql.Open(ctx, string(c.Store), mysql.Options{Defaults: defaults, Revisions: c.Keep.Revisions, Refill: refill, Ended: o.Ended, KeepDefaults: o.KeepDefaults})
	case config.Redis:
		s, err = redis.Open(ctx, string(c.Store), redis.Options{Defaults: defaults, Revisions: c.Keep.Revisions, Refill: refill, Ended: o.Ended, KeepDefaults: o.KeepDefaults, Lost: o.tellLost})
	default:
		s, err = sqlite.Open(ctx, c.Store.File(), sqlite.Options{Now: o.Now, Defaults: defaults, Revisions: c.Keep.Revisions, Refill: refill, Ended: o.Ended, KeepDefaults: o.KeepDefaults})
	}
	if err != nil {
		return nil, &StoreError{err}
	}
	if store.IsPooled(s) {
		o.Log.Info("the store is behind a connection pooler: each transaction brings its settings, and hints of other servers are polled for")
	}
	return s, nil
}

// ErrNoSQL is returned by [Migration] for a store that only Belfry itself upgrades.
var ErrNoSQL = errors.New("the schema of the store is upgraded by Belfry alone")

// Migration returns the statements that the schema of a store in PostgreSQL, MySQL or MariaDB still
// needs, for an administrator.
func Migration(ctx context.Context, s config.Store) (script string, err error) {
	switch s.Kind() {
	case config.Postgres:
		return postgres.Script(ctx, string(s))
	case config.MySQL:
		return mysql.Script(ctx, string(s))
	}
	return "", ErrNoSQL
}

// tellRefill returns a function that logs the progress of a refill, in a store that was
// opened with other defaults than before.
func tellRefill(log *slog.Logger) func(store.Refill) {
	begun := false
	return func(r store.Refill) {
		first := !begun
		begun = true
		switch took := r.Took.Round(time.Millisecond); {
		case r.Err != nil:
			log.Error("cannot apply the changed defaults to all jobs; retrying", "looked_at", r.Looked, "error", r.Err)
		case r.Superseded:
			log.Warn("another server started with other defaults; this server stops applying its own", "looked_at", r.Looked, "changed", r.Changed)
		case r.Over && r.Looked > 0:
			log.Info("applied the changed defaults to all jobs", "jobs", r.Looked, "changed", r.Changed, "took", took)
		case r.Over || first && r.Jobs == 0 && r.Took < time.Second:
			// There are no jobs, as at the first start.
		case first:
			log.Info("the defaults have changed since the last start; applying them to jobs that do not override them", "jobs", r.Jobs)
		default:
			log.Info("applying the changed defaults", "looked_at", r.Looked, "jobs", r.Jobs, "changed", r.Changed, "for", took)
		}
	}
}
