// Package postgres keeps Belfry's state in PostgreSQL, 13 or later: the store of nodes that
// form a cluster by using the same database. The logic is in package sqldb; this package
// has the parts specific to PostgreSQL: connections, statements that take any number of
// rows as arrays, LISTEN and NOTIFY, the schema, and history in a part for each day.
//
// # Durability
//
// A call is answered when its transaction is committed, whose durability the server
// decides: with synchronous_commit = on and a single server, it is on disk. A failover
// keeps acknowledged writes only if the new primary was a synchronous standby.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// Options configure [Open] beside the address. The zero value is valid.
type Options = sqldb.Options

// AddressError is an error in the address given to [Open] or [Check].
type AddressError = sqldb.AddressError

// Store is a database. Its methods may be called by any goroutine.
type Store struct {
	*sqldb.Store
	d     *database
	place place
}

var _ store.Store = (*Store)(nil)

const (
	// nameMax is the longest name of a schema: the server truncates longer ones, so that two
	// clusters might share one.
	nameMax = 63
	// connectMax is the default of connect_timeout.
	connectMax = 5 * time.Second
	// openMax bounds the steps of opening a database that change no schema: as long as statements may
	// take, and a connection whose other end is gone is given up.
	openMax = 30 * time.Second
	// connections is the default of pool_max_conns: beyond some, commits wait for each other.
	connections = 10
	// rollbackMax bounds a rollback, which continues after the context of its call.
	rollbackMax = time.Second
	// versionMin is the oldest server version that the statements support.
	versionMin = 13
)

// settings are the defaults of connections for settings that the address omits.
var settings = map[string]string{
	"application_name": "belfry",
	// A transaction that waited for a lock must see what its holder committed, also where a pooler
	// begins transactions.
	"default_transaction_isolation": "read committed",
	// The default is a setting of the database, or of the user.
	"client_encoding": "UTF8",
	// Statements are normally short, and a long one blocks others.
	"statement_timeout": "30s",
	"lock_timeout":      "10s",
	// A node frozen within a transaction must not hold its locks: no transaction waits for its
	// client.
	"idle_in_transaction_session_timeout": "5s",
	// A page of the feed of changes takes some milliseconds: parallel workers take longer to start,
	// and read ahead for nothing.
	"max_parallel_workers_per_gather": "0",
	// Compiling these statements takes longer than running them.
	"jit": "off",
	// A generic plan, made while tables are empty and for arrays of any length, would read all rows
	// once they are full; each statement has an index. Only a plain index scan marks entries of
	// dead rows, which otherwise pile up where runs come and go.
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"enable_mergejoin":  "off",
	// The trigger of the table active lets a connection without it end the caching of runs that it
	// writes: that of an earlier version, or of a person.
	cachesSetting: "1",
}

// cachesSetting is the setting of connections whose processes write job_state.cached_by.
const cachesSetting = "belfry.caches"

// Open opens a database by its address, postgres://user@host/name?parameters, and
// brings its schema up to date. Beside the parameters of libpq it takes schema, and
// parameters of the pool: pool_max_conns, pool_min_conns, pool_max_conn_lifetime.
func Open(ctx context.Context, address string, o Options) (*Store, error) {
	d, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return d.open(ctx, o)
}

// open opens the store of a database, and closes that if it cannot.
func (d *database) open(ctx context.Context, o Options) (*Store, error) {
	err := d.findPooler(ctx)
	if err == nil && !o.InUse {
		if err = d.hasLetters(ctx); err == nil {
			err = d.migrate(ctx)
		}
	}
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("open %s: %w", d.name, d.unreached(err))
	}
	within, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	s, err := sqldb.Open(within, d, o)
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("open %s: %w", d.name, d.unreached(err))
	}
	return &Store{Store: s, d: d}, nil
}

// database implements [sqldb.DB].
type database struct {
	pool   *pgxpool.Pool
	lines  lines
	name   string // names the database in messages, without a password
	schema string // "" for the server's default

	// Behind a pooler each transaction begins with the statement set, whose arguments are settings.
	pooled   bool
	set      string
	settings []any
	// polledUntil is when the last announcement of a node that polls for notices ends, in nanoseconds
	// since 1970.
	polledUntil atomic.Int64

	era        atomic.Int64
	statements sync.Map // prepared texts by the texts of package sqldb

	mu       sync.Mutex
	writings map[writing][]*written
}

// sslModes are the values of sslmode.
var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// connect makes the pool and its first connection, and checks the server.
func connect(ctx context.Context, address string) (*database, error) {
	d, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	if err = d.findPooler(ctx); err == nil {
		err = d.hasLetters(ctx)
	}
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("open %s: %w", d.name, d.unreached(err))
	}
	return d, nil
}

// dial makes the pool.
func dial(ctx context.Context, address string) (*database, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, &AddressError{Cause: errors.New("cannot be read")} // the cause contains the password
	}
	query, err := sqldb.Parameters(u)
	if err != nil {
		return nil, &AddressError{Cause: err}
	}
	schema := query.Get("schema")
	if len(schema) > nameMax {
		return nil, &AddressError{Cause: fmt.Errorf("schema: has %d bytes, at most %d are allowed", len(schema), nameMax)}
	}
	if mode := query.Get("sslmode"); query.Has("sslmode") && !slices.Contains(sslModes, mode) {
		return nil, &AddressError{Cause: fmt.Errorf("sslmode: %q is none of %s", mode, strings.Join(sslModes, ", "))}
	}
	query.Del("schema")
	u.RawQuery = query.Encode()
	if u.Path = cmp.Or(u.Path, "/"); u.Opaque != "" { // pgx knows a URL by its slashes
		return nil, &AddressError{Cause: errors.New("has no // before its host: postgres://user@host/name")}
	}
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		// The text before it is the address.
		_, cause, _ := strings.Cut(err.Error(), "`: ")
		return nil, &AddressError{Cause: errors.New(cause)}
	}
	if !query.Has("pool_max_conns") {
		config.MaxConns = connections
	}
	return dialWith(ctx, config, schema)
}

// dialWith makes the pool of a configuration, whose settings are kept.
func dialWith(ctx context.Context, config *pgxpool.Config, schema string) (d *database, err error) {
	c := config.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectMax
	}
	for name, value := range settings {
		if _, isSet := c.RuntimeParams[name]; !isSet {
			c.RuntimeParams[name] = value
		}
	}
	if schema != "" {
		c.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	}
	// All statements are prepared, and have binary results.
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	d = &database{schema: schema, writings: map[writing][]*written{}, name: fmt.Sprintf("postgres://%s/%s", net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), c.Database)}
	d.lines.open = map[*line]bool{}
	c.DialFunc = d.lines.watch(c.DialFunc)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		d.era.Add(1)
		return useArrays(ctx, conn)
	}
	if d.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("open %s: %w", d.name, d.unreached(err))
	}
	return d, nil
}

// unreached marks an error of opening a database that may be reachable later as an outage. A wrong
// password or database is a mistake of the configuration.
func (d *database) unreached(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case d.pooled && isOfPooler(err):
	case errors.As(err, &pgErr):
		// cannot_connect_now, too_many_connections, the codes of a server that stops, and those of one
		// that is slow: query_canceled, lock_not_available, idle_in_transaction_session_timeout.
		if !slices.Contains([]string{"57P01", "57P02", "57P03", "53300", "57014", "55P03", "25P03"}, pgErr.Code) {
			return marked(err)
		}
	case !isNetwork(err):
		return err
	}
	return &failure{err, store.ErrAway}
}

// isOfPooler reports whether an error is a pooler's own: those about connections. They end the
// connection, and what it was about may have been done.
func isOfPooler(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "08")
}

// hasLetters reports whether the database accepts all Unicode. If not, it would refuse a batch of
// results again and again for a letter in one reason.
func (d *database) hasLetters(ctx context.Context) error {
	var encoding string
	err := d.pool.QueryRow(ctx, "show server_encoding").Scan(&encoding)
	if err == nil && encoding != "UTF8" && encoding != "SQL_ASCII" { // SQL_ASCII accepts any bytes
		err = fmt.Errorf("the database has the encoding %s, and must have UTF8: createdb --encoding UTF8 --template template0", encoding)
	}
	return err
}

// Alone implements [sqldb.DB].
func (d *database) Alone() bool { return false }

// Caches implements [sqldb.DB]. Behind a pooler a failover that loses commits leaves the connections as
// they are, and what is cached would be newer than the rows.
func (d *database) Caches() bool { return !d.pooled }

// Lateral implements [sqldb.DB]. A statement opens all parts of history.
func (d *database) Lateral() bool { return true }

// Failures implements [sqldb.DB].
func (d *database) Failures() (from, condition string) { return "", sqldb.Failed }

// Paused implements [sqldb.DB].
func (d *database) Paused() string { return "j.paused_at <> 0" }

// Clock implements [sqldb.DB].
func (d *database) Clock() string {
	return "(extract(epoch from clock_timestamp()) * 1000000)::bigint * 1000"
}

// Era implements [sqldb.DB].
func (d *database) Era() int64 { return d.era.Load() }

// Close implements [sqldb.DB].
func (d *database) Close() error {
	defer time.AfterFunc(closeMax, d.lines.end).Stop()
	d.pool.Close()
	return nil
}

// isNetwork reports whether an error is about the connection and not about the content.
func isNetwork(err error) bool {
	var network net.Error
	var hook *hookError
	return errors.As(err, &network) || errors.As(err, &hook) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err)
}
