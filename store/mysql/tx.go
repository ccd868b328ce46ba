package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// rollbackMax bounds a rollback, which does not end with the context of a call. A connection that
// needs longer is closed, which also rolls back.
const rollbackMax = 2 * time.Second

// tx is a transaction. Statements without rows wait for the next statement with rows, or for the
// commit, to share its message: a round trip to a close server takes half a millisecond.
type tx struct {
	conn *sql.Conn
	// pending are unsent statements, separated by semicolons. The first begins the transaction.
	pending text
	open    bool // something was sent, so that it must be rolled back
	stale   bool // the server of the connection has become read-only
}

var _ sqldb.Tx = (*tx)(nil)

func (t *tx) add(statement string, args []any) {
	if t.pending.Len() > 0 {
		t.pending.WriteByte(';')
	}
	t.pending.statement(statement, args)
}

// take removes and returns the pending statements.
func (t *tx) take() string {
	text := t.pending.String()
	t.pending.Reset()
	t.open = true
	return text
}

// failed returns an error for callers. After a failover the server may have become a replica: the
// next connection resolves the name again.
func (t *tx) failed(err error) error {
	err = marked(err)
	t.stale = t.stale || errors.Is(err, store.ErrReadOnly)
	return err
}

// Ask implements [sqldb.Tx].
func (t *tx) Ask(ctx context.Context, questions ...sqldb.Question) sqldb.Rows {
	for _, q := range questions {
		t.add(q.Text, q.Args)
	}
	found, err := t.conn.QueryContext(ctx, t.take()) //nolint:rowserrcheck // rows.Next asks for it
	if err != nil {
		return &rows{err: t.failed(err)}
	}
	r := &rows{rows: found, left: len(questions) - 1}
	r.begin()
	return r
}

// Exec implements [sqldb.Tx].
func (t *tx) Exec(ctx context.Context, statement string, args ...any) error {
	t.add(statement, args)
	return t.relieve(ctx)
}

// relieve sends what waits if it is long.
func (t *tx) relieve(ctx context.Context) error {
	if t.pending.Len() < statementMax {
		return nil
	}
	_, err := t.conn.ExecContext(ctx, t.take())
	return t.failed(err)
}

// Whole implements [sqldb.Tx]. The server finds the plan itself.
func (t *tx) Whole() {}

// Write implements [sqldb.Tx].
func (t *tx) Write(ctx context.Context, op sqldb.Op, b *sqldb.Batch) error {
	for row := 0; row < b.Len(); {
		if t.pending.Len() > 0 {
			t.pending.WriteByte(';')
		}
		row = t.pending.write(op, b, row)
		if err := t.relieve(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements [sqldb.Tx].
func (t *tx) Commit(ctx context.Context) (sent bool, err error) {
	t.add("commit", nil)
	_, err = t.conn.ExecContext(ctx, t.take())
	if err != nil {
		return !wasUndone(err), t.failed(err)
	}
	t.release()
	return false, nil
}

// Rollback implements [sqldb.Tx].
func (t *tx) Rollback() {
	if t.conn == nil {
		return
	}
	defer t.release()
	if !t.open {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackMax)
	defer cancel()
	if _, err := t.conn.ExecContext(ctx, "rollback"); err != nil || t.stale {
		// The connection is not used again.
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// release returns the connection to the pool.
func (t *tx) release() {
	_ = t.conn.Close() // an error means that it is closed
	t.conn = nil
}

// rows implements [sqldb.Rows].
type rows struct {
	rows  *sql.Rows
	left  int // number of questions after this one
	cells []cell
	dest  []any // to the cells
	next  int   // index of the next cell
	err   error
}

func (r *rows) Next() bool {
	if r.rows == nil {
		return false
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil || r.left == 0 {
			r.fail(err)
		}
		return false
	}
	r.next = 0
	if err := r.rows.Scan(r.dest...); err != nil {
		r.fail(err)
		return false
	}
	return true
}

func (r *rows) More() bool {
	if r.rows == nil {
		return false
	}
	r.left--
	if !r.rows.NextResultSet() {
		r.fail(cmp.Or(r.rows.Err(), errNoAnswer))
		return false
	}
	return r.begin()
}

// errNoAnswer says that the server has left a question unanswered.
var errNoAnswer = errors.New("the server has left out an answer")

// begin begins to read the rows of a question.
func (r *rows) begin() bool {
	names, err := r.rows.Columns()
	if err != nil {
		r.fail(err)
		return false
	}
	r.cells, r.dest = make([]cell, len(names)), make([]any, len(names))
	for i := range r.cells {
		r.dest[i] = &r.cells[i]
	}
	return true
}

// fail ends the rows, with an error or none.
func (r *rows) fail(err error) {
	if closing := r.rows.Close(); err == nil {
		err = closing
	}
	r.rows, r.err = nil, marked(err)
}

// Close implements [sqldb.Rows].
func (r *rows) Close() {
	if r.rows != nil {
		r.fail(nil)
	}
}

// Err implements [sqldb.Rows].
func (r *rows) Err() error { return r.err }

func (r *rows) cell() *cell {
	r.next++
	return &r.cells[r.next-1]
}

func (r *rows) Int() int64   { return r.cell().int() }
func (r *rows) Text() string { return string(r.cell().bytes) }
func (r *rows) View() []byte { return r.cell().bytes }

// cell is a value of a row: a number, or the bytes of another value. Null is zero.
type cell struct {
	number int64
	bytes  []byte // valid until the next row
}

// Scan implements [sql.Scanner].
func (c *cell) Scan(v any) error {
	c.number, c.bytes = 0, nil
	switch v := v.(type) {
	case nil:
	case int64:
		c.number = v
	case uint64:
		c.number = int64(v)
	case []byte:
		c.bytes = v
	default:
		return fmt.Errorf("a value of type %T", v)
	}
	return nil
}

// int returns a number. Sums are decimal.
func (c *cell) int() int64 {
	if c.bytes == nil {
		return c.number
	}
	whole, _, _ := strings.Cut(string(c.bytes), ".")
	n, _ := strconv.ParseInt(whole, 10, 64) // the column is a number
	return n
}
