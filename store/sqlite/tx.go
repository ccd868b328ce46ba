package sqlite

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// errUndone is returned by statements of a transaction that SQLite has rolled back, as on a full
// disk.
var errUndone = errors.New("the transaction was undone")

// tx is the transaction of one call: a part of the writer's open transaction, or a reading
// transaction on its own connection.
type tx struct {
	d *database
	c *conn
	// first is set for the call that began the writer's transaction, reads for a call that reads.
	first, reads bool
	over         bool
	before       int64  // the connection's count of changed rows at the start
	release      func() // releases the interrupt of a reading transaction
	failed       error  // of a statement
}

var _ sqldb.Tx = (*tx)(nil)

// Begin implements [sqldb.DB].
func (d *database) Begin(ctx context.Context, adds bool) (sqldb.Tx, error) {
	w := d.writer
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	t := &tx{d: d, c: w.c, first: w.group == nil, before: w.c.totalChanges()}
	if err := w.begin(adds); err != nil {
		w.leave()
		return nil, err
	}
	return t, nil
}

// Snapshot implements [sqldb.DB].
func (d *database) Snapshot(ctx context.Context) (sqldb.Tx, error) {
	var c *conn
	select {
	case c = <-d.readers:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.closed:
		return nil, errClosed
	}
	t := &tx{d: d, c: c, reads: true, release: interruptible(ctx, c)}
	if err := c.stmt("begin").exec(); err != nil {
		t.Rollback()
		return nil, err
	}
	return t, nil
}

// Ask implements [sqldb.Tx].
func (t *tx) Ask(_ context.Context, questions ...sqldb.Question) sqldb.Rows {
	r := &rows{t: t, left: questions}
	r.More()
	return r
}

// Exec implements [sqldb.Tx].
func (t *tx) Exec(_ context.Context, text string, args ...any) error {
	if strings.HasPrefix(text, "update active ") {
		t.d.writer.era.Add(1) // it changes runs in the cache of steps
	}
	q, err := t.bound(text, args)
	if err != nil {
		return err
	}
	return t.fail(q.exec())
}

// Write implements [sqldb.Tx].
func (t *tx) Write(_ context.Context, op sqldb.Op, b *sqldb.Batch) error {
	if !t.c.inTransaction() {
		return t.fail(errUndone)
	}
	q := t.c.stmt(t.d.writing(op, b.Table))
	width := len(b.Columns)
	if op == sqldb.Delete {
		width = b.Key
	}
	for row := range b.Len() {
		for i := range width {
			switch b.Columns[i].Kind {
			case sqldb.Int:
				q.bindInt(b.Ints[i][row])
			case sqldb.Text:
				q.bindText(b.Texts[i][row])
			case sqldb.Blob:
				q.bindBlob(b.Blobs[i][row])
			}
		}
		if err := q.exec(); err != nil {
			return t.fail(err)
		}
	}
	return nil
}

// Whole implements [sqldb.Tx]. SQLite finds the way alone.
func (t *tx) Whole() {}

// Commit implements [sqldb.Tx]. A commit that fails was not done.
func (t *tx) Commit(context.Context) (sent bool, err error) {
	t.over = true
	return false, t.d.writer.join(t)
}

// Rollback implements [sqldb.Tx].
func (t *tx) Rollback() {
	switch {
	case t.over:
	case t.reads:
		if t.c.inTransaction() {
			// An error does not affect what was read.
			_ = t.c.stmt("commit").exec()
		}
		t.release()
		t.d.readers <- t.c
	default:
		t.d.writer.undo(t)
	}
	t.over = true
}

func (t *tx) fail(err error) error {
	if err != nil && t.failed == nil {
		t.failed = err
	}
	return err
}

// bound returns a statement with its arguments.
func (t *tx) bound(text string, args []any) (*stmt, error) {
	if !t.c.inTransaction() {
		return nil, t.fail(errUndone)
	}
	q := t.c.stmt(t.d.statement(text).with(args))
	for _, arg := range args {
		switch v := arg.(type) {
		case nil:
			q.bindNull()
		case int64:
			q.bindInt(v)
		case string:
			q.bindText(v)
		case []byte:
			q.bindBlob(v)
		case []int64:
			bindSet(q, v, q.bindInt)
		case []string:
			bindSet(q, v, q.bindText)
		case [][]byte:
			bindSet(q, v, q.bindBlob)
		default:
			return nil, t.fail(fmt.Errorf("an argument of type %T", arg))
		}
	}
	return q, nil
}

// bindSet binds the values of a set, and null to the rest of its parameters.
func bindSet[T any](q *stmt, set []T, bind func(T) *stmt) {
	for _, v := range set {
		bind(v)
	}
	for range room(len(set)) - len(set) {
		q.bindNull()
	}
}

// setMax is the most parameters that a statement has.
const setMax = 32766

// room returns the number of parameters for a set of n values: few sizes, so that few statements
// are prepared.
func room(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return max(n, min(size, setMax/2))
}

// rows implements [sqldb.Rows].
type rows struct {
	t    *tx
	q    *stmt // nil after the last row of the question
	left []sqldb.Question
	err  error
}

func (r *rows) Next() bool {
	if r.q == nil || r.q.next() {
		return r.q != nil
	}
	r.err = r.t.fail(r.q.err())
	r.q = nil
	return false
}

func (r *rows) More() bool {
	if r.Close(); r.err != nil || len(r.left) == 0 {
		return false
	}
	r.q, r.err = r.t.bound(r.left[0].Text, r.left[0].Args)
	r.left = r.left[1:]
	return r.err == nil
}

func (r *rows) Close() {
	if r.q != nil {
		r.err = r.t.fail(r.q.err())
		r.q = nil
	}
}

func (r *rows) Err() error   { return r.err }
func (r *rows) Int() int64   { return r.q.int() }
func (r *rows) Text() string { return r.q.text() }
func (r *rows) View() []byte { return r.q.view() }

// statement is a text of package sqldb for SQLite, cut at its sets.
type statement struct {
	parts []string
	text  string   // without sets, the whole text
	sized sync.Map // texts by the sizes of the sets
}

// The comments that other databases ignore, with their subjects. History refers to jobs by
// the numbers of their names.
var (
	numberOf = regexp.MustCompile(`/\*n\*/([a-z.]+|\?)`)
	uidOf    = regexp.MustCompile(`/\*uid\*/([a-z.]+)`)
)

// statement returns a text of package sqldb for SQLite.
func (d *database) statement(text string) *statement {
	if s, ok := d.statements.Load(text); ok {
		return s.(*statement)
	}
	// The single writer has no conflicts.
	own, _, _ := strings.Cut(text, " for update")
	own = strings.TrimSuffix(own, " order by coalesce(s.uid, '')")
	own = strings.ReplaceAll(own, "uid/*n*/", "n")
	own = numberOf.ReplaceAllString(own, "(select n from names where uid = $1)")
	own = uidOf.ReplaceAllString(own, "(select uid from names where n = $1)")
	// SQLite must read the tables in the order in which the statement names them.
	own = strings.ReplaceAll(own, " join ", " cross join ")
	own = strings.ReplaceAll(own, " left cross join ", " left join ")
	s := &statement{parts: strings.Split(own, "?*")}
	if len(s.parts) == 1 {
		s.text = own
	}
	found, _ := d.statements.LoadOrStore(text, s)
	return found.(*statement)
}

// with returns the text for the sizes of some arguments.
func (s *statement) with(args []any) string {
	if s.text != "" {
		return s.text
	}
	var sizes [4]int
	n := 0
	for _, arg := range args {
		switch v := arg.(type) {
		case []int64:
			sizes[n] = room(len(v))
		case []string:
			sizes[n] = room(len(v))
		case [][]byte:
			sizes[n] = room(len(v))
		default:
			continue
		}
		n++
	}
	if text, ok := s.sized.Load(sizes); ok {
		return text.(string)
	}
	var b strings.Builder
	for i, part := range s.parts {
		if b.WriteString(part); i < n {
			b.WriteString("?" + strings.Repeat(",?", sizes[i]-1))
		}
	}
	text, _ := s.sized.LoadOrStore(sizes, b.String())
	return text.(string)
}

// writing is a way to write a row of a table.
type writing struct {
	op    sqldb.Op
	table *sqldb.Table
}

// values are the expressions of columns that store something else than their parameter.
var values = map[string]string{"history.job": "(select n from names where uid = ?%d)"}

// writing returns the statement that writes a row. Its parameters are the columns.
func (d *database) writing(op sqldb.Op, t *sqldb.Table) string {
	key := writing{op, t}
	if text, ok := d.writings.Load(key); ok {
		return text.(string)
	}
	var names, given, set, conflict, same []string
	for i, c := range t.Columns {
		value := fmt.Sprintf("?%d", i+1)
		if other, ok := values[t.Name+"."+c.Name]; ok {
			value = fmt.Sprintf(other, i+1)
		}
		names, given = append(names, c.Name), append(given, value)
		if i < t.Key {
			same = append(same, c.Name+" = "+value)
		} else {
			set = append(set, c.Name+" = "+value)
			conflict = append(conflict, fmt.Sprintf("%s = excluded.%s", c.Name, c.Name))
		}
	}
	text := fmt.Sprintf("insert into %s (%s) values (%s)", t.Name, strings.Join(names, ", "), strings.Join(given, ", "))
	switch op {
	case sqldb.InsertNew:
		text += " on conflict do nothing"
	case sqldb.Upsert:
		text += fmt.Sprintf(" on conflict (%s) do update set %s", strings.Join(names[:t.Key], ", "), strings.Join(conflict, ", "))
	case sqldb.Update:
		text = fmt.Sprintf("update %s set %s where %s", t.Name, strings.Join(set, ", "), strings.Join(same, " and "))
	case sqldb.Delete:
		text = fmt.Sprintf("delete from %s where %s", t.Name, strings.Join(same, " and "))
	}
	d.writings.Store(key, text)
	return text
}
