package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/belfry-cron/belfry/store"
)

// URL returns an opener for the database at an address, for belfry.New. See [Open]. Defaults that
// servers on the same store have applied stay.
func URL(address string) store.Opener {
	return store.Opening(func(ctx context.Context) (*Store, error) { return Open(ctx, address, Options{KeepDefaults: true}) })
}

const (
	// configDatabase is the default of [Database]: that of the program has tables of its own.
	configDatabase = "belfry"
	// configConnections is the default of [MaxConns], and connectionsMin the least: calls, notices and
	// those of the API wait for each other otherwise.
	configConnections, connectionsMin = 5, 3
)

// ConfigOption is an option of [Config].
type ConfigOption func(*configOptions)

type configOptions struct {
	database    string
	connections int
}

// Database names the database of the tables, which must exist and have no others. Default: belfry.
func Database(name string) ConfigOption { return func(o *configOptions) { o.database = name } }

// MaxConns bounds the connections of the store. Default: 5. The minimum is 3.
func MaxConns(n int) ConfigOption { return func(o *configOptions) { o.connections = n } }

// Config returns an opener for the server of a configuration with which the program makes its
// *sql.DB, for belfry.New. The store connects as it does, with its address, TLS, DialFunc and
// BeforeConnect, and has few connections of its own: its sessions have other settings than the
// program's, and take several statements at once. Defaults that servers on the same store have applied
// stay.
func Config(c *mysql.Config, options ...ConfigOption) store.Opener {
	o := configOptions{configDatabase, configConnections}
	for _, set := range options {
		set(&o)
	}
	return store.Opening(func(ctx context.Context) (*Store, error) {
		a, err := o.address(c)
		if err != nil {
			return nil, fmt.Errorf("mysql.Config: %w", err)
		}
		return a.openStore(ctx, Options{KeepDefaults: true})
	})
}

// address derives the address of the store from a configuration.
func (o *configOptions) address(of *mysql.Config) (*address, error) {
	switch {
	case of == nil:
		return nil, errors.New("the configuration is nil")
	case o.database == "":
		return nil, errors.New("Database: is empty, and must name a database for belfry alone")
	case o.connections < connectionsMin:
		return nil, fmt.Errorf("MaxConns: is %d, must be at least %d", o.connections, connectionsMin)
	}
	c := of.Clone()
	c.DBName = o.database
	c.Params = nil // they are settings of the program's sessions
	c.AllowAllFiles, c.ClientFoundRows, c.ColumnsWithAlias, c.InterpolateParams, c.ParseTime, c.RejectReadOnly = false, false, false, false, false, false
	c.Loc, c.MultiStatements, c.MaxAllowedPacket = time.UTC, true, 0
	c.Timeout = cmp.Or(c.Timeout, connectTimeout)
	if err := c.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin")); err != nil {
		return nil, err
	}
	return &address{
		config: c, hosts: []string{c.Addr}, name: fmt.Sprintf("mysql://%s/%s", c.Addr, c.DBName),
		connections: o.connections, limits: limits{statementTimeout, lockTimeout, idleTimeout}, hooked: true,
	}, nil
}

// hookError is an error before a connection is made, as of the hook that provides a password: it may
// be able to later.
type hookError struct{ error }

func (h *hookError) Unwrap() error { return h.error }
