package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/belfry-cron/belfry/history/mongo"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/joined"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// openApart opens a control store and a history store, and joins them.
func openApart(ctx context.Context, c config.Server, o StoreOptions) (store.Store, error) {
	control, err := openControl(ctx, c.Store, controlOptions{
		defaults: c.JobDefaults(), revisions: c.Keep.Revisions, refill: tellRefill(o.Log), ended: o.Ended, keepDefaults: o.KeepDefaults, lost: o.tellLost,
	})
	if err != nil {
		return nil, err
	}
	s, err := joinHistory(ctx, control, c, o)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	return s, nil
}

// joinHistory joins a control store with its history, which a server can start without.
func joinHistory(ctx context.Context, control joined.Control, c config.Server, o StoreOptions) (*joined.Store, error) {
	opt := joined.Options{Log: o.Log, Dir: filepath.Join(c.Data, "output")}
	if !o.KeepDefaults {
		return joined.Open(ctx, control, func(ctx context.Context) (store.History, error) { return openHistory(ctx, c.History, o.Log) }, opt)
	}
	opt.Dir = "" // the node's server ships waiting output
	history, err := openHistory(ctx, c.History, o.Log)
	if err != nil {
		return nil, fmt.Errorf("history store: %w", err)
	}
	return joined.New(ctx, control, history, opt)
}

// controlOptions are the options of a store without history.
type controlOptions struct {
	defaults     job.Defaults
	revisions    int
	keepDefaults bool
	refill       func(store.Refill)
	ended        func(store.Ends)
	lost         func(steps int64)
}

// openControl opens a store without history.
func openControl(ctx context.Context, s config.Store, o controlOptions) (joined.Control, error) {
	if s.Kind() == config.Redis {
		return redis.OpenControl(ctx, string(s), redis.Options{
			Defaults: o.defaults, Revisions: o.revisions, KeepDefaults: o.keepDefaults, Refill: o.refill, Ended: o.ended, Lost: o.lost,
		})
	}
	return etcd.OpenControl(ctx, string(s), etcd.Options{
		Defaults: o.defaults, Revisions: o.revisions, KeepDefaults: o.keepDefaults, Refill: o.refill, Ended: o.ended, Lost: o.lost,
	})
}

// OpenControl opens a store with a separate history, for a command that inspects it.
func OpenControl(ctx context.Context, s config.Store) (store.Control, error) {
	return openControl(ctx, s, controlOptions{keepDefaults: true})
}

// historyStore is a history that can be closed.
type historyStore interface {
	store.History
	Close() error
}

// openHistory opens the store of a history. It has no jobs, so that defaults do not matter.
func openHistory(ctx context.Context, h config.History, log *slog.Logger) (historyStore, error) {
	switch h.Kind() {
	case config.Postgres:
		return postgres.Open(ctx, string(h), postgres.Options{KeepDefaults: true})
	case config.MySQL:
		return mysql.Open(ctx, string(h), mysql.Options{KeepDefaults: true})
	case config.MongoDB:
		return mongo.Open(ctx, string(h), mongo.Options{Log: log})
	}
	return sqlite.Open(ctx, h.File(), sqlite.Options{KeepDefaults: true})
}

// remark returns the warnings of /readyz about an unwritable store and a late history.
func (s *Server) remark() (warning phrase.Text, err error) {
	if n := s.working.Load(); n != nil {
		switch err := n.Unwritable(); {
		case errors.Is(err, store.ErrNoSpace):
			warning = phrase.NoSpaceLeft
		case err != nil:
			warning = phrase.StoreReadOnly
		}
	}
	if u := s.unopened.Load(); u != nil && u.N > 0 {
		warning = warning.Then(phrase.KeyMissing.Of(u.First))
	}
	if s.apart != nil {
		status := s.apart.Status()
		if err := status.Err(); err != nil {
			return phrase.Text{}, err
		}
		warning = warning.Then(status.Warning())
	}
	return warning, nil
}

func (s *Server) historyMetrics() metrics.History {
	status := s.apart.Status()
	h := metrics.History{
		Records: status.Held.Entries, Bytes: status.Held.Bytes, OutputBytes: status.OutputBytes,
		Refused: status.Aside, OutputDropped: status.OutputDropped, Away: status.Away != nil,
	}
	if !status.Held.Oldest.IsZero() {
		h.Oldest = max(0, s.Now().Sub(status.Held.Oldest))
	}
	return h
}
