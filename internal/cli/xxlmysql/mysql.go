// Package xxlmysql reaches the database of an xxl-job-admin: it reads its tables, and stops and
// starts its jobs. What the tables mean is in package xxltables.
package xxlmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/belfry-cron/belfry/internal/cli/xxltables"
)

const (
	connectMax = 10 * time.Second
	// lockMax is how long the lock of the old admins may take: they hold it while they read
	// what is due within 5 s.
	lockMax = 20 * time.Second
	// rowsMax bounds the rows to read from a table, except the log.
	rowsMax = 1_000_000
	// idsMax is how many jobs a statement stops: a statement may have 65,535 values.
	idsMax      = 1000
	defaultPort = "3306"
)

// DB is the database of an xxl-job-admin.
type DB struct{ pool *sql.DB }

// Open connects to mysql://user:password@host:port/name?ssl-mode=MODE. The separate
// password is for an address without one. It opens a connection, to report mistakes in the
// address.
func Open(ctx context.Context, address, password string) (*DB, error) {
	c, err := parse(address)
	if err != nil {
		return nil, err
	}
	if c.Passwd == "" {
		c.Passwd = password
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	d := &DB{sql.OpenDB(connector)}
	if err := d.pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to mysql://%s/%s: %w", c.Addr, c.DBName, err), d.Close())
	}
	return d, nil
}

// sslModes are the values of ssl-mode, as the driver calls them.
var sslModes = map[string]string{
	"": "preferred", "PREFERRED": "preferred", "DISABLED": "false", "REQUIRED": "skip-verify", "VERIFY_CA": "true", "VERIFY_IDENTITY": "true",
}

func parse(address string) (*mysql.Config, error) {
	if strings.HasPrefix(address, "jdbc:") {
		return nil, errors.New("is an address of JDBC: write mysql://user:password@host:3306/xxl_job")
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("cannot be read") // the cause contains the password
	}
	name := strings.TrimPrefix(u.Path, "/")
	if u.Scheme != "mysql" && u.Scheme != "mariadb" || u.Hostname() == "" || name == "" {
		return nil, errors.New("is no address of a database: write mysql://user:password@host:3306/xxl_job")
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr, c.DBName = "tcp", net.JoinHostPort(u.Hostname(), port), name
	c.Timeout, c.Logger, c.MaxAllowedPacket = connectMax, &mysql.NopLogger{}, 0
	for key, values := range u.Query() {
		if key != "ssl-mode" {
			return nil, fmt.Errorf("%s: is not a parameter of this address, only ssl-mode is", key)
		}
		mode, known := sslModes[strings.ToUpper(values[0])]
		if !known {
			return nil, fmt.Errorf("ssl-mode: %q is none of DISABLED, PREFERRED, REQUIRED, VERIFY_CA and VERIFY_IDENTITY", values[0])
		}
		c.TLSConfig = mode
	}
	if c.TLSConfig == "" {
		c.TLSConfig, c.AllowFallbackToPlaintext = "preferred", true
	}
	return c, nil
}

// Close closes the connections.
func (d *DB) Close() error { return d.pool.Close() }

// Tables reads the tables as they are at one moment. For the log it returns the rows since a
// moment, in the log's format, or only the highest number.
func (d *DB) Tables(ctx context.Context, since string) (map[string]*xxltables.Table, error) {
	tx, err := d.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // it was only read
	tables := map[string]*xxltables.Table{}
	for _, name := range xxltables.Names() {
		query := "select * from " + name
		if name == xxltables.LogTable {
			query = "select max(id) as id from " + name
		}
		if tables[name], err = read(ctx, tx, rowsMax, query); err != nil {
			return nil, fmt.Errorf("read the table %s: %w", name, err)
		}
		if name != xxltables.LogTable {
			continue
		}
		log := tables[name]
		log.Highest, log.Rows = log.Rows[0][0].Text, nil // max always returns a row, even if it is null
		if since == "" {
			continue
		}
		recent, err := read(ctx, tx, xxltables.RunsMax, "select "+logColumns+" from "+name+" where trigger_time >= ? order by id", since)
		if err != nil {
			return nil, fmt.Errorf("read the table %s: %w; fewer days are shorter", name, err)
		}
		log.Columns, log.Rows = recent.Columns, recent.Rows
	}
	return tables, nil
}

// logColumns are the columns of a past run. The words of the old admin are pages of HTML.
const logColumns = "id, job_id, executor_address, executor_param, trigger_time, trigger_code, left(trigger_msg, 2000) as trigger_msg, handle_time, handle_code, left(handle_msg, 2000) as handle_msg"

func read(ctx context.Context, tx *sql.Tx, most int, query string, args ...any) (*xxltables.Table, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	t := &xxltables.Table{}
	if t.Columns, err = rows.Columns(); err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(t.Columns)), make([]any, len(t.Columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if len(t.Rows) == most {
			return nil, fmt.Errorf("it has more than %d rows", most)
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]xxltables.Value, len(values))
		for i, v := range values {
			row[i] = xxltables.Value{Text: v.String, Null: !v.Valid}
		}
		t.Rows = append(t.Rows, row)
	}
	return t, rows.Err()
}

// Stopped is a job that was stopped here, and when it would have been due next.
type Stopped struct {
	ID   int64
	Next time.Time
}

// locked runs a function in a transaction that holds the lock under which the old admins
// schedule.
func (d *DB) locked(ctx context.Context, do func(*sql.Tx) error) error {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "set innodb_lock_wait_timeout = "+strconv.Itoa(int(lockMax/time.Second))); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var name string
	err = tx.QueryRowContext(ctx, "select lock_name from xxl_job_lock where lock_name = 'schedule_lock' for update").Scan(&name)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = errors.New("the table xxl_job_lock has no row schedule_lock: the old admins do not schedule by this database")
	case err != nil:
		err = fmt.Errorf("wait for the lock of the old admins: %w", err)
	default:
		err = do(tx)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// ofGroup selects jobs by an appname, whose case the collation of the table ignores.
const ofGroup = " where job_group in (select id from xxl_job_group where binary app_name = ?)"

// Stop stops the numbered jobs of a group in one step, and returns all that it stopped, now or
// before: their next times stay in the table, unlike the next times of jobs that the old admin stops.
func (d *DB) Stop(ctx context.Context, group string, ids []int64) (list []Stopped, err error) {
	err = d.locked(ctx, func(tx *sql.Tx) error {
		for part := range slices.Chunk(ids, idsMax) {
			args := []any{group}
			for _, id := range part {
				args = append(args, id)
			}
			query := "update xxl_job_info set trigger_status = 0" + ofGroup + " and trigger_status = 1 and id in (?" + strings.Repeat(",?", len(part)-1) + ")" //nolint:gosec // of constants
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
		list, err = stopped(ctx, tx, group)
		return err
	})
	return slices.DeleteFunc(list, func(s Stopped) bool { return !slices.Contains(ids, s.ID) }), err
}

// Stopped returns the jobs of a group that Stop has stopped.
func (d *DB) Stopped(ctx context.Context, group string) ([]Stopped, error) {
	return stopped(ctx, d.pool, group)
}

func stopped(ctx context.Context, from interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, group string,
) (list []Stopped, err error) {
	rows, err := from.QueryContext(ctx, "select id, trigger_next_time from xxl_job_info"+ofGroup+" and trigger_status = 0 and trigger_next_time > 0 order by id", group)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one Stopped
		var next int64
		if err := rows.Scan(&one.ID, &next); err != nil {
			return nil, err
		}
		one.Next = time.UnixMilli(next)
		list = append(list, one)
	}
	return list, rows.Err()
}

// Start starts jobs that Stop has stopped, each with its next time, in one step. A job that
// was started in the meantime stays unchanged.
func (d *DB) Start(ctx context.Context, list []Stopped) error {
	return d.locked(ctx, func(tx *sql.Tx) error {
		for _, one := range list {
			_, err := tx.ExecContext(ctx, "update xxl_job_info set trigger_status = 1, trigger_next_time = ? where id = ? and trigger_status = 0 and trigger_next_time > 0",
				one.Next.UnixMilli(), one.ID)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
