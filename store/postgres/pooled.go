package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-cron/belfry/store"
)

// asked are the settings that a pooler accepts at the start of a connection, and keeps for it.
var asked = []string{"application_name", "client_encoding", "options"}

// atBegin are settings that each transaction names where it begins.
var atBegin = []string{"default_transaction_isolation"}

var _ store.Pooled = (*Store)(nil)

// Pooled reports whether the database is behind a connection pooler, such as PgBouncer. Then each
// transaction may be on another connection to the server: it has its settings within itself,
// statements are not kept prepared, and hints are polled for.
func (s *Store) Pooled() bool { return s.d.pooled }

// findPooler finds out whether a pooler is between, which refuses or drops the settings of a
// connection, and then prepares for it.
func (d *database) findPooler(ctx context.Context) error {
	lost, err := d.lostSettings(ctx)
	if err != nil && !isPooler(err) {
		return brief(err)
	}
	if err == nil && len(lost) == 0 {
		return nil
	}
	config := d.pool.Config()
	d.pool.Close()
	c := config.ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	var calls []string
	d.settings = nil
	for _, name := range slices.Sorted(maps.Keys(c.RuntimeParams)) {
		if slices.Contains(asked, name) {
			continue
		}
		// Without the cache of runs the trigger of the table active must see that.
		if !slices.Contains(atBegin, name) && name != cachesSetting {
			n := len(d.settings)
			calls = append(calls, fmt.Sprintf("set_config($%d, $%d, true)", n+1, n+2))
			d.settings = append(d.settings, name, c.RuntimeParams[name])
		}
		delete(c.RuntimeParams, name)
	}
	d.pooled, d.set = true, "select "+strings.Join(calls, ", ")
	if d.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	return brief(d.within(ctx, func(asker) error { return nil }))
}

// lostSettings returns the settings of a connection that have not reached the server.
func (d *database) lostSettings(ctx context.Context) (lost []string, err error) {
	names := slices.Collect(maps.Keys(d.pool.Config().ConnConfig.RuntimeParams))
	err = d.pool.QueryRow(ctx, "select coalesce(array_agg(name order by name), '{}') from pg_settings where name = any($1) and source <> 'client'", names).Scan(&lost)
	return lost, err
}

// isPooler reports whether an error is one of poolers alone: protocol_violation and
// feature_not_supported for settings, and those of statements that were prepared on another
// connection (duplicate_prepared_statement, invalid_sql_statement_name).
func isPooler(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains([]string{"08P01", "0A000", "42P05", "26000"}, pgErr.Code)
}

// asker runs statements: a pool or a transaction.
type asker interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

// ask calls do with something that has the settings: behind a pooler that is a transaction.
func (d *database) ask(ctx context.Context, do func(asker) error) error {
	if d.pooled {
		return d.within(ctx, do)
	}
	return do(d.pool)
}

// within calls do in a transaction with the settings.
func (d *database) within(ctx context.Context, do func(asker) error) error {
	return d.transact(ctx, func(t pgx.Tx) error { return do(t) })
}

// transact is within for statements that need a transaction.
func (d *database) transact(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(t pgx.Tx) error {
		if d.pooled {
			if _, err := t.Exec(ctx, d.set, d.settings...); err != nil {
				return err
			}
		}
		return do(t)
	})
}

// answers are the results of a batch, in the order of its statements.
type answers interface {
	Exec() (pgconn.CommandTag, error)
	Query() (pgx.Rows, error)
	Close() error
}

// sendUnprepared sends a batch whose statements are parsed where they run. The types of arguments
// are known, so that it takes one round trip.
func sendUnprepared(ctx context.Context, conn *pgx.Conn, queue *pgx.Batch) answers {
	batch := &pgconn.Batch{}
	binaries := []int16{pgtype.BinaryFormatCode}
	for _, q := range queue.QueuedQueries {
		values, types := make([][]byte, len(q.Arguments)), make([]uint32, len(q.Arguments))
		for i, a := range q.Arguments {
			values[i], types[i] = encodeArgument(a)
		}
		batch.ExecParams(q.SQL, values, types, binaries, binaries)
	}
	return &unprepared{conn.PgConn().ExecBatch(ctx, batch), conn.TypeMap()}
}

// encodeArgument returns the binary format of an argument of package sqldb, and its type. Nil has
// none.
func encodeArgument(a any) (value []byte, oid uint32) {
	switch v := a.(type) {
	case int64:
		return binary.BigEndian.AppendUint64(nil, uint64(v)), pgtype.Int8OID
	case string:
		return []byte(v), pgtype.TextOID
	case []byte:
		return v, pgtype.ByteaOID
	case []int64:
		return encodeInts(v, nil), pgtype.Int8ArrayOID
	case []string:
		return encodeTexts(v, nil), pgtype.TextArrayOID
	case [][]byte:
		return encodeBlobs(v, nil), pgtype.ByteaArrayOID
	case nil:
		return nil, 0
	}
	panic(fmt.Sprintf("package sqldb has no arguments of type %T", a))
}

type unprepared struct {
	results *pgconn.MultiResultReader
	types   *pgtype.Map
}

func (u *unprepared) next() (*pgconn.ResultReader, error) {
	if u.results.NextResult() {
		return u.results.ResultReader(), nil
	}
	if err := u.results.Close(); err != nil {
		return nil, err
	}
	return nil, io.ErrUnexpectedEOF
}

func (u *unprepared) Exec() (pgconn.CommandTag, error) {
	r, err := u.next()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return r.Close()
}

func (u *unprepared) Query() (pgx.Rows, error) {
	r, err := u.next()
	if err != nil {
		return nil, err
	}
	return pgx.RowsFromResultReader(u.types, r), nil
}

func (u *unprepared) Close() error { return u.results.Close() }
