package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-cron/belfry/store"
)

// URL returns an opener for the database at an address, for belfry.New. See [Open]. Defaults that
// servers on the same store have applied stay.
func URL(address string) store.Opener {
	return store.Opening(func(ctx context.Context) (*Store, error) { return Open(ctx, address, Options{KeepDefaults: true}) })
}

const (
	// poolSchema is the default of [Schema]: the program has tables of its own.
	poolSchema = "belfry"
	// poolConnections is the default of [MaxConns], and poolConnectionsMin the least: one connection
	// listens, and with fewer than three others calls wait for each other.
	poolConnections, poolConnectionsMin = 5, 4
	// statementsMax is how many statements a connection keeps prepared, the default of pgx: a program
	// behind a pooler may have turned that off for its own.
	statementsMax = 512
)

// PoolOption is an option of [Pool].
type PoolOption func(*poolOptions)

type poolOptions struct {
	schema      string
	connections int
}

// Schema names the schema of the tables, which is created if it does not exist. Default: belfry.
func Schema(name string) PoolOption { return func(o *poolOptions) { o.schema = name } }

// MaxConns bounds the connections of the store. Default: 5, of which one listens. The minimum is 4.
func MaxConns(n int) PoolOption { return func(o *poolOptions) { o.connections = n } }

// Pool returns an opener for the database of a pool of the program, for belfry.New. The store
// connects as the pool does, with its addresses, TLS, BeforeConnect, DialFunc and Tracer, and has few
// connections of its own: its settings are not for the statements of the program, nor the
// program's for Belfry. Of the settings of the pool it has application_name, role and options. Other
// hooks of the pool, such as AfterConnect, are not called. Closing the store leaves the pool open.
// Defaults that servers on the same store have applied stay.
func Pool(pool *pgxpool.Pool, options ...PoolOption) store.Opener {
	o := poolOptions{poolSchema, poolConnections}
	for _, set := range options {
		set(&o)
	}
	return store.Opening(func(ctx context.Context) (*Store, error) {
		config, err := o.config(pool)
		if err != nil {
			return nil, fmt.Errorf("postgres.Pool: %w", err)
		}
		d, err := dialWith(ctx, config, o.schema)
		if err != nil {
			return nil, err
		}
		return d.open(ctx, Options{KeepDefaults: true})
	})
}

// config derives the configuration of the store's connections from that of a pool.
func (o *poolOptions) config(pool *pgxpool.Pool) (*pgxpool.Config, error) {
	switch {
	case pool == nil:
		return nil, errors.New("the pool is nil")
	case o.schema == "" || len(o.schema) > nameMax:
		return nil, fmt.Errorf("Schema: has %d bytes, must have 1 to %d", len(o.schema), nameMax)
	case o.connections < poolConnectionsMin:
		return nil, fmt.Errorf("MaxConns: is %d, must be at least %d", o.connections, poolConnectionsMin)
	}
	config := pool.Config() // a copy
	config.MaxConns, config.MinConns, config.MinIdleConns = int32(o.connections-1), 0, 0
	config.BeforeAcquire = nil //nolint:staticcheck // a program may still use it
	config.PrepareConn, config.AfterRelease, config.BeforeClose, config.ShouldPing = nil, nil, nil, nil
	if hook := config.BeforeConnect; hook != nil {
		config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
			if err := hook(ctx, c); err != nil {
				return &hookError{err}
			}
			return nil
		}
	}
	c := config.ConnConfig
	c.AfterConnect = nil
	c.StatementCacheCapacity = max(c.StatementCacheCapacity, statementsMax)
	maps.DeleteFunc(c.RuntimeParams, func(name, _ string) bool {
		return !slices.Contains([]string{"application_name", "role", "options"}, name)
	})
	return config, nil
}

// hookError is an error of the hook that provides credentials: it may be able to later.
type hookError struct{ error }

func (h *hookError) Error() string { return "BeforeConnect of the pool: " + h.error.Error() }

func (h *hookError) Unwrap() error { return h.error }
