package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// tx is a transaction. Statements without rows wait for the next statement with rows, or for the
// commit, to share its message: a step takes one round trip per question.
type tx struct {
	db    *database
	conn  *pgxpool.Conn
	queue *pgx.Batch
	begin int // number of statements that begin it
	// sent is set once the transaction has begun on the server.
	sent bool
}

func (d *database) begin(ctx context.Context, statement string) (sqldb.Tx, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, fault(err)
	}
	t := &tx{db: d, conn: conn, queue: &pgx.Batch{}}
	t.queue.Queue(statement)
	if d.pooled {
		t.queue.Queue(d.set, d.settings...)
	}
	t.begin = t.queue.Len()
	return t, nil
}

// Begin implements [sqldb.DB].
func (d *database) Begin(ctx context.Context, _ bool) (sqldb.Tx, error) {
	return d.begin(ctx, "begin isolation level read committed")
}

// Snapshot implements [sqldb.DB].
func (d *database) Snapshot(ctx context.Context) (sqldb.Tx, error) {
	return d.begin(ctx, "begin isolation level repeatable read read only")
}

// send sends pending statements, and reads all answers except the answers of a number of
// statements at the end.
func (t *tx) send(ctx context.Context, asked int) (answers, error) {
	n := t.queue.Len()
	var results answers
	if t.db.pooled {
		results = sendUnprepared(ctx, t.conn.Conn(), t.queue)
	} else {
		results = t.conn.SendBatch(ctx, t.queue)
	}
	t.queue, t.sent = &pgx.Batch{}, true
	for range n - asked {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // says the same
			return nil, fault(err)
		}
	}
	return results, nil
}

// Ask implements [sqldb.Tx].
func (t *tx) Ask(ctx context.Context, questions ...sqldb.Question) sqldb.Rows {
	for _, q := range questions {
		t.queue.Queue(t.db.statement(q.Text), q.Args...)
	}
	results, err := t.send(ctx, len(questions))
	if err != nil {
		return &rows{err: err}
	}
	r := &rows{results: results, left: len(questions)}
	r.More()
	return r
}

// Exec implements [sqldb.Tx].
func (t *tx) Exec(_ context.Context, text string, args ...any) error {
	t.queue.Queue(t.db.statement(text), args...)
	return nil
}

// Whole implements [sqldb.Tx].
func (t *tx) Whole() { t.queue.Queue("set local enable_seqscan = on") }

// Write implements [sqldb.Tx].
func (t *tx) Write(_ context.Context, op sqldb.Op, b *sqldb.Batch) error {
	w := t.db.written(op, b)
	n := len(b.Columns)
	if op == sqldb.Delete {
		n = b.Key
	}
	args := make([]any, 0, n+2)
	for i := range n {
		if w.once&(1<<i) != 0 {
			args = append(args, first(b, i))
		} else {
			args = append(args, b.Column(i))
		}
	}
	t.queue.Queue(w.text, args...)
	return nil
}

// first returns the value of the first row in a column.
func first(b *sqldb.Batch, column int) any {
	switch b.Columns[column].Kind {
	case sqldb.Int:
		return b.Ints[column][0]
	case sqldb.Text:
		return b.Texts[column][0]
	}
	return b.Blobs[column][0]
}

// Commit implements [sqldb.Tx].
func (t *tx) Commit(ctx context.Context) (unknown bool, err error) {
	if !t.sent && t.queue.Len() == t.begin {
		return false, nil // nothing but the beginning was sent
	}
	t.queue.Queue("commit")
	results, err := t.send(ctx, 1)
	if err == nil {
		_, err = results.Exec()
		err = fault(errors.Join(err, results.Close()))
	}
	if err != nil {
		// An error from the server means that it was not done.
		var pgErr *pgconn.PgError
		return !errors.As(err, &pgErr) || isOfPooler(err), err
	}
	t.conn.Release()
	t.conn = nil
	return false, nil
}

// Rollback implements [sqldb.Tx].
func (t *tx) Rollback() {
	if t.conn == nil {
		return
	}
	if t.sent && !t.conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackMax)
		if _, err := t.conn.Exec(ctx, "rollback"); err != nil {
			_ = t.conn.Conn().Close(ctx) // the connection is of no further use
		}
		cancel()
	}
	t.conn.Release()
	t.conn = nil
}

// rows are the rows of the last statements of a batch.
type rows struct {
	results answers // nil once they are closed
	left    int     // number of statements after this one
	list    pgx.Rows
	fields  []pgconn.FieldDescription
	values  [][]byte
	column  int
	err     error
}

func (r *rows) Next() bool {
	if r.results == nil {
		return false
	}
	if !r.list.Next() {
		if r.left == 0 || r.list.Err() != nil {
			r.Close()
		}
		return false
	}
	r.values, r.column = r.list.RawValues(), 0
	return true
}

func (r *rows) More() bool {
	if r.results == nil {
		return false
	}
	r.left--
	var err error
	if r.list, err = r.results.Query(); err != nil {
		r.Close()
		return false
	}
	r.fields = r.list.FieldDescriptions()
	return true
}

func (r *rows) Close() {
	if r.results == nil {
		return
	}
	var err error
	if r.list != nil {
		r.list.Close()
		err = r.list.Err()
	}
	if closed := r.results.Close(); err == nil {
		err = closed
	}
	r.err, r.results = fault(err), nil
}

func (r *rows) Err() error { return r.err }

func (r *rows) View() []byte {
	v := r.values[r.column]
	r.column++
	return v
}

func (r *rows) Text() string { return string(r.View()) }

// Int reads a number in the binary format of the protocol, of any width. A sum of 64 bits is a
// numeric.
func (r *rows) Int() int64 {
	oid := r.fields[r.column].DataTypeOID
	v := r.View()
	switch {
	case oid == pgtype.NumericOID:
		return numeric(v)
	case len(v) == 8:
		return int64(binary.BigEndian.Uint64(v))
	case len(v) == 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case len(v) == 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	}
	return 0
}

// numeric reads a whole number: digits to the base of 10,000 after a head with their count, the
// weight of the first, and the sign.
func numeric(v []byte) (n int64) {
	if len(v) < 8 {
		return 0
	}
	count, weight := int(binary.BigEndian.Uint16(v)), int(int16(binary.BigEndian.Uint16(v[2:])))
	for i := 0; i <= weight; i++ {
		n *= 10_000
		if i < count {
			n += int64(binary.BigEndian.Uint16(v[8+2*i:]))
		}
	}
	if binary.BigEndian.Uint16(v[4:]) != 0 {
		return -n
	}
	return n
}

// statement translates a text of package sqldb for PostgreSQL: numbered parameters, and arrays for
// sets.
func (d *database) statement(text string) string {
	if s, ok := d.statements.Load(text); ok {
		return s.(string)
	}
	var b strings.Builder
	n := 0
	for rest := text; rest != ""; {
		i := strings.IndexByte(rest, '?')
		if i < 0 {
			b.WriteString(rest)
			break
		}
		n++
		before, isSet := strings.CutSuffix(rest[:i], "in (")
		b.WriteString(before)
		if isSet = isSet && strings.HasPrefix(rest[i:], "?*)"); isSet {
			fmt.Fprintf(&b, "= any($%d)", n)
			rest = rest[i+len("?*)"):]
			continue
		}
		b.WriteString(rest[len(before):i])
		b.WriteString("$" + strconv.Itoa(n))
		rest = rest[i+1:]
	}
	s, _ := d.statements.LoadOrStore(text, b.String())
	return s.(string)
}

// writing is a way to write rows of a table.
type writing struct {
	op    sqldb.Op
	table *sqldb.Table
}

// written is a statement of an operation on a table: it takes one value for each column that is
// equal in all rows, and an array for each other column. So one statement serves any number of
// rows.
type written struct {
	once columnSet
	text string
}

// columnSet has a bit for each column of a table, by its number.
type columnSet uint64

// writtenMax bounds the statements of one operation on a table: more than the usual sets of equal
// columns. Each is prepared on each connection.
const writtenMax = 32

var types = [...]string{sqldb.Int: "bigint", sqldb.Text: "text", sqldb.Blob: "bytea"}

// written returns the statement that writes a batch. The server spends more on a value
// in an array than on writing it to a row.
func (d *database) written(op sqldb.Op, b *sqldb.Batch) *written {
	var same columnSet
	if op != sqldb.Delete {
		for i := range b.Columns {
			if (i >= b.Key || b.Len() == 1) && b.Same(i) {
				same |= 1 << i
			}
		}
	}
	key := writing{op, b.Table}
	d.mu.Lock()
	defer d.mu.Unlock()
	var best *written
	for _, w := range d.writings[key] {
		if w.once == same {
			return w
		}
		if w.once&^same == 0 && (best == nil || bits.OnesCount64(uint64(w.once)) > bits.OnesCount64(uint64(best.once))) {
			best = w
		}
	}
	if len(d.writings[key]) >= writtenMax {
		if best != nil {
			return best
		}
		same = 0 // which fits all
	}
	w := &written{same, writeStatement(key, same)}
	d.writings[key] = append(d.writings[key], w)
	return w
}

func writeStatement(w writing, once columnSet) string {
	t, list := w.table, w.table.Columns
	if w.op == sqldb.Delete {
		list = list[:t.Key]
	}
	var names, arrays, listed, values, set, conflict, same []string
	for i, c := range list {
		names = append(names, c.Name)
		value := "n." + c.Name
		if once&(1<<i) != 0 {
			value = fmt.Sprintf("$%d::%s", i+1, types[c.Kind])
		} else {
			arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, types[c.Kind]))
			listed = append(listed, c.Name)
		}
		values = append(values, value)
		if i < t.Key {
			same = append(same, fmt.Sprintf("o.%s = %s", c.Name, value))
		} else {
			set = append(set, fmt.Sprintf("%s = %s", c.Name, value))
			conflict = append(conflict, fmt.Sprintf("%s = excluded.%s", c.Name, c.Name))
		}
	}
	given := ""
	if len(arrays) > 0 {
		given = fmt.Sprintf(" from unnest(%s) as n (%s)", strings.Join(arrays, ", "), strings.Join(listed, ", "))
	}
	insert := fmt.Sprintf("insert into %s (%s) select %s%s", t.Name, strings.Join(names, ", "), strings.Join(values, ", "), given)
	statement := insert
	switch w.op {
	case sqldb.InsertNew:
		statement = insert + " on conflict do nothing"
	case sqldb.Upsert:
		statement = fmt.Sprintf("%s on conflict (%s) do update set %s", insert, strings.Join(names[:t.Key], ", "), strings.Join(conflict, ", "))
	case sqldb.Update:
		statement = fmt.Sprintf("update %s o set %s%s where %s", t.Name, strings.Join(set, ", "), given, strings.Join(same, " and "))
	case sqldb.Delete:
		statement = fmt.Sprintf("delete from %s o using unnest(%s) as n (%s) where %s", t.Name, strings.Join(arrays, ", "), strings.Join(listed, ", "), strings.Join(same, " and "))
	}
	return statement
}

// failure is an error of the database, with its sentinel of package store.
type failure struct {
	error
	is error
}

func (f *failure) Unwrap() []error { return []error{f.error, f.is} }

// connectError is the reason of a failed connection, in one line.
type connectError struct {
	error
	text string
}

func (u *connectError) Error() string { return u.text }

func (u *connectError) Unwrap() error { return u.error }

// brief says once what pgx repeats for its attempts with TLS and without. The lack of TLS is not
// the reason if the attempt without it was made.
func brief(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	const noTLS, strange = ": tls error: server refused TLS connection", ": received unexpected message: %!w(<nil>)"
	var parts []string
	for line := range strings.Lines(connect.Unwrap().Error()) {
		if line = strings.TrimSpace(line); !slices.Contains(parts, line) {
			parts = append(parts, line)
		}
	}
	parts = slices.DeleteFunc(parts, func(line string) bool {
		from, refused := strings.CutSuffix(line, noTLS)
		return refused && slices.ContainsFunc(parts, func(other string) bool { return other != line && strings.HasPrefix(other, from+":") })
	})
	text := strings.ReplaceAll(strings.Join(parts, "; "), strange, ": what answers is not PostgreSQL")
	return &connectError{err, fmt.Sprintf("connect as %s: %s", connect.Config.User, text)}
}

// fault wraps an error with its sentinel, and is brief.
func fault(err error) error { return marked(brief(err)) }

// marked wraps an error with its sentinel.
func marked(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.Code {
	case "53100": // disk_full
		return &failure{err, store.ErrNoSpace}
	case "25006": // read_only_sql_transaction: a standby
		return &failure{err, store.ErrReadOnly}
	case "XX001", "XX002": // data_corrupted, index_corrupted
		return &failure{err, store.ErrDamaged}
	}
	return err
}

// Fault implements [sqldb.DB].
func (d *database) Fault(err error) sqldb.Fault {
	var pgErr *pgconn.PgError
	var connect *pgconn.ConnectError
	if errors.As(err, &pgErr) && !errors.As(err, &connect) {
		switch pgErr.Code {
		case "40001", "40P01", "23505", "55P03":
			// serialization_failure, deadlock_detected, unique_violation (two made the same row),
			// lock_not_available.
			return sqldb.Conflict
		case "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006", "0A000":
			// admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout,
			// idle_in_transaction_session_timeout, transaction_timeout, a standby,
			// feature_not_supported: a cached plan whose result has changed.
			return sqldb.Broken
		}
		if d.pooled && isOfPooler(err) {
			return sqldb.Broken
		}
		return sqldb.Final
	}
	// Whatever the server says: it may have too many connections, or not yet the new password.
	if connect != nil || pgconn.SafeToRetry(err) || isNetwork(err) {
		return sqldb.Broken
	}
	return sqldb.Final
}
