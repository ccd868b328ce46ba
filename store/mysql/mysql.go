// Package mysql keeps Belfry's state in MySQL, 8.0.19 or later, or MariaDB, 10.6 or later: the
// store of nodes that form a cluster by using the same database. The logic is in package sqldb;
// this package has the parts specific to MySQL, as far as both servers share them: connections,
// statements for many rows, the schema, and the notices that nodes poll for, since the servers have
// no notifications.
//
// # Durability
//
// A call is answered when its transaction is committed, whose durability the server decides: with
// innodb_flush_log_at_trx_commit = 1, it is on disk. A failover keeps acknowledged writes only if
// the new primary has received them in time, which semi-synchronous replication ensures. A cluster
// of several writers (Galera, group replication in its mode of several primaries) must send all
// nodes to the same one: they do not know each other's locks.
package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"

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
	d *database
}

var _ store.Store = (*Store)(nil)

// Open opens a database by its address, mysql://user@host/name?parameters, and
// brings its schema up to date. docs/store.md has the parameters.
func Open(ctx context.Context, text string, o Options) (*Store, error) {
	a, err := parseAddress(text)
	if err != nil {
		return nil, &AddressError{Cause: err}
	}
	return a.openStore(ctx, o)
}

// openStore opens the store at an address.
func (a *address) openStore(ctx context.Context, o Options) (*Store, error) {
	if !o.InUse {
		if err := migrate(ctx, a); err != nil {
			return nil, fmt.Errorf("open %s: %w", a.name, unreached(err))
		}
	}
	d, err := connect(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", a.name, unreached(err))
	}
	within, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	s, err := sqldb.Open(within, d, o)
	if err != nil {
		_ = d.pool.Close()
		return nil, fmt.Errorf("open %s: %w", a.name, unreached(err))
	}
	return &Store{s, d}, nil
}

// database implements [sqldb.DB].
type database struct{ pool *sql.DB }

// connect makes the pool and its first connection.
func connect(ctx context.Context, a *address) (*database, error) {
	pool, err := a.open(a.limits)
	if err != nil {
		return nil, err
	}
	d := &database{pool: pool}
	pool.SetMaxOpenConns(a.connections)
	pool.SetMaxIdleConns(a.connections)
	pool.SetConnMaxLifetime(a.lifetime)
	pool.SetConnMaxIdleTime(idleTimeout / 2)
	if err := pool.PingContext(ctx); err != nil {
		_ = pool.Close()
		return nil, err
	}
	return d, nil
}

// connector makes connections with a configured session, to the first of its hosts that answers and
// is writable.
type connector struct {
	hosts     []driver.Connector
	session   string
	certified bool // it presents a certificate
	within    time.Duration
	hooked    bool // it may fail in a hook of the program
}

// Driver implements [driver.Connector].
func (c *connector) Driver() driver.Driver { return c.hosts[0].Driver() }

// Connect implements [driver.Connector]. A server may accept connections and stay silent, and
// the driver bounds only the first step.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	var failures error
	for _, host := range c.hosts {
		conn, err := c.connectWithin(ctx, host)
		if err == nil {
			return conn, nil
		}
		failures = errors.Join(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failures
}

func (c *connector) connectWithin(ctx context.Context, host driver.Connector) (driver.Conn, error) {
	within, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	conn, err := c.connect(within, host)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("no connection to MySQL or MariaDB was made within %s: %w", c.within, err)
	}
	return conn, err
}

// errReadOnly is returned for a replica.
var errReadOnly = errors.New("the database is read-only: it is a replica")

func (c *connector) connect(ctx context.Context, host driver.Connector) (driver.Conn, error) {
	conn, err := host.Connect(ctx)
	if errors.Is(err, mysql.ErrInvalidConn) && c.certified {
		// The handshake has already ended on this side.
		return nil, fmt.Errorf("%w: the server may not take the certificate of ssl-cert", err)
	}
	if err != nil && c.hooked && number(err) == 0 {
		return nil, &hookError{err}
	}
	if err != nil {
		return nil, err
	}
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, c.session, nil)
	if err == nil && len(c.hosts) > 1 {
		err = writable(ctx, conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// writable returns errReadOnly for a connection to a replica.
func writable(ctx context.Context, conn driver.Conn) error {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "select @@global.read_only", nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	value := make([]driver.Value, 1)
	if err := rows.Next(value); err != nil {
		return err
	}
	if text := fmt.Sprintf("%s", value[0]); text != "0" && fmt.Sprint(value[0]) != "0" {
		return errReadOnly
	}
	return nil
}

// begin begins a transaction with the first statement that is sent.
func (d *database) begin(ctx context.Context, statement string) (sqldb.Tx, error) {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return nil, marked(err)
	}
	t := &tx{conn: conn}
	t.pending.WriteString(statement)
	return t, nil
}

// Begin implements [sqldb.DB]. Sessions are set to READ COMMITTED.
func (d *database) Begin(ctx context.Context, _ bool) (sqldb.Tx, error) {
	return d.begin(ctx, "start transaction")
}

// Snapshot implements [sqldb.DB].
func (d *database) Snapshot(ctx context.Context) (sqldb.Tx, error) {
	return d.begin(ctx, "set transaction isolation level repeatable read;start transaction read only")
}

// KeepsNotices implements [sqldb.DB].
func (d *database) KeepsNotices() bool { return true }

// Alone implements [sqldb.DB].
func (d *database) Alone() bool { return false }

// Caches implements [sqldb.DB].
func (d *database) Caches() bool { return false }

// Lateral implements [sqldb.DB]: MariaDB does not support it.
func (d *database) Lateral() bool { return false }

// Failures implements [sqldb.DB]. An index has all rows: the column is computed for it.
func (d *database) Failures() (from, condition string) { return "", "h.failed = 1" }

// Paused implements [sqldb.DB], in the same way.
func (d *database) Paused() string { return "j.paused = 1" }

// Clock implements [sqldb.DB]. It is of the statement, and each reads it.
func (d *database) Clock() string {
	return "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) * 1000"
}

// Era implements [sqldb.DB].
func (d *database) Era() int64 { return 0 }

// Partition implements [sqldb.DB]: history has no parts. Servers want the partitioning column in each
// unique key, and lock the whole table to change parts.
func (d *database) Partition(context.Context, int64, int64) error { return nil }

// Close implements [sqldb.DB].
func (d *database) Close() error { return d.pool.Close() }

// The error numbers that matter to a call.
const (
	errDiskFull         = 1021
	errCheckRead        = 1020 // another transaction changed data of a snapshot (MariaDB)
	errTooManyConns     = 1040
	errDatabaseDenied   = 1044
	errAccessDenied     = 1045
	errServerShutdown   = 1053
	errDuplicateKey     = 1062
	errNormalShutdown   = 1077
	errTableFull        = 1114
	errTableDenied      = 1142
	errTooManyOfUser    = 1203
	errTableCorrupt     = 1034
	errIndexCorrupt     = 1712
	errLockWaitTimeout  = 1205
	errDeadlock         = 1213
	errUserLimit        = 1226 // like 1203, for the user's own limit
	errOptionPrevents   = 1290 // --read-only
	errReadOnlyTransact = 1792
	errReadOnlyMode     = 1836
	errKilledMariaDB    = 1927
	errSlowMariaDB      = 1969 // max_statement_time
	errSlowMySQL        = 3024 // max_execution_time
	errNoDiskMySQL      = 3019
	errInactiveMySQL    = 4031
)

// number returns the number of an error of the server, 0 for other errors.
func number(err error) uint16 {
	var myErr *mysql.MySQLError
	if errors.As(err, &myErr) {
		return myErr.Number
	}
	return 0
}

// failure is an error of the database, with its sentinel of package store.
type failure struct {
	error
	is error
}

func (f *failure) Unwrap() []error { return []error{f.error, f.is} }

// errTooLong replaces the driver's ErrPktTooLarge, which names a setting that does not exist.
var errTooLong = errors.New("a statement is longer than the server's max_allowed_packet")

// marked wraps an error with its sentinel.
func marked(err error) error {
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return errTooLong
	}
	switch number(err) {
	case errDiskFull, errTableFull, errNoDiskMySQL:
		return &failure{err, store.ErrNoSpace}
	case errOptionPrevents, errReadOnlyTransact, errReadOnlyMode:
		return &failure{err, store.ErrReadOnly}
	case errTableCorrupt, errIndexCorrupt:
		return &failure{err, store.ErrDamaged}
	}
	return err
}

// wasUndone reports whether a commit that failed so was surely not done.
func wasUndone(err error) bool {
	switch number(err) {
	case errDeadlock, errLockWaitTimeout, errDuplicateKey, errCheckRead:
		return true
	}
	return errors.Is(err, driver.ErrBadConn) // nothing was sent
}

// unreached marks an error of opening a database that may be reachable later as an outage. A wrong
// password or database is a mistake of the configuration.
func unreached(err error) error {
	switch n := number(err); {
	case n == errLockWaitTimeout, n == errSlowMariaDB, n == errSlowMySQL: // it is slow
	case n == errAccessDenied, (&database{}).Fault(err) != sqldb.Broken:
		return marked(err)
	}
	return &failure{err, store.ErrAway}
}

// Fault implements [sqldb.DB].
func (d *database) Fault(err error) sqldb.Fault {
	switch number(err) {
	case 0:
	case errDeadlock, errLockWaitTimeout, errDuplicateKey, errCheckRead:
		return sqldb.Conflict
	case errTooManyConns, errTooManyOfUser, errUserLimit, errServerShutdown, errNormalShutdown, errKilledMariaDB, errInactiveMySQL,
		// A known user may be able to log in again: a password changes on one side first.
		errAccessDenied,
		// After a failover the name may refer to another server.
		errOptionPrevents, errReadOnlyMode:
		return sqldb.Broken
	default:
		return sqldb.Final
	}
	var network net.Error
	var hook *hookError
	if errors.As(err, &hook) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return sqldb.Broken
	}
	return sqldb.Final
}

const (
	// noticeLife is how long the last notice of a silent node is kept.
	noticeLife = time.Hour
	// Nodes poll for notices: soon after one, then with pauses that double up to the longest, which
	// bounds how late a node learns of a cancelled run.
	lookFirst = 20 * time.Millisecond
	lookMax   = 320 * time.Millisecond
)

// Notify implements [sqldb.DB]: a row for each payload counts its notices. Each pair of node and kind
// of change has a row, and no two nodes write the same one.
func (d *database) Notify(ctx context.Context, payload string) error {
	var t text
	t.statement("insert into notices (payload, told, at_time) values (?, 1, utc_timestamp(6)) on duplicate key update told = told + 1, at_time = utc_timestamp(6)", []any{payload})
	_, err := d.pool.ExecContext(ctx, t.String())
	return err
}

// Listen implements [sqldb.DB].
func (d *database) Listen(ctx context.Context, begun func(), do func(payload string)) error {
	if _, err := d.pool.ExecContext(ctx, fmt.Sprintf("delete from notices where at_time < utc_timestamp(6) - interval %d second", int(noticeLife.Seconds()))); err != nil {
		return err
	}
	known, err := d.notices(ctx)
	if err != nil {
		return err
	}
	begun()
	timer := time.NewTimer(lookFirst)
	defer timer.Stop()
	for pause := lookFirst; ; pause = min(2*pause, lookMax) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := d.notices(ctx)
		if err != nil {
			return err
		}
		for payload, number := range now {
			if number != known[payload] {
				do(payload)
				pause = lookFirst / 2
			}
		}
		known = now
		timer.Reset(pause)
	}
}

// notices returns how often each payload was sent.
func (d *database) notices(ctx context.Context) (map[string]int64, error) {
	found, err := d.pool.QueryContext(ctx, "select payload, told from notices")
	if err != nil {
		return nil, err
	}
	defer found.Close()
	numbers := map[string]int64{}
	for found.Next() {
		var payload string
		var n int64
		if err := found.Scan(&payload, &n); err != nil {
			return nil, err
		}
		numbers[payload] = n
	}
	return numbers, found.Err()
}
