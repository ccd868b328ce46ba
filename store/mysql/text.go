package mysql

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// Values are written into the texts of statements: the protocol has no arrays, and a prepared
// statement takes a fixed number of rows. A text or blob with a letter that could end the literal
// is written in hexadecimal digits, so that the mode of a connection does not matter.

// text is the text of one or several statements.
type text struct{ strings.Builder }

// statement writes a statement with its arguments.
func (t *text) statement(s string, args []any) {
	for _, arg := range args {
		before, after, _ := strings.Cut(s, "?")
		t.WriteString(before)
		if rest, isSet := strings.CutPrefix(after, "*"); isSet {
			after = rest
			t.set(arg)
		} else {
			t.value(arg)
		}
		s = after
	}
	t.WriteString(s)
}

func (t *text) value(v any) {
	switch v := v.(type) {
	case nil:
		t.WriteString("null")
	case int64:
		t.int(v)
	case string:
		t.string(v)
	case []byte:
		t.blob(v)
	default:
		panic(fmt.Sprintf("argument of type %T", v))
	}
}

// set writes the values of a set. An empty set is written as null, which equals no value.
func (t *text) set(v any) {
	switch v := v.(type) {
	case []int64:
		list(t, v, t.int)
	case []string:
		list(t, v, t.string)
	case [][]byte:
		list(t, v, t.blob)
	default:
		panic(fmt.Sprintf("set of type %T", v))
	}
}

func list[T any](t *text, values []T, write func(T)) {
	if len(values) == 0 {
		t.WriteString("null")
	}
	for i, v := range values {
		t.comma(i)
		write(v)
	}
}

func (t *text) int(v int64) {
	if v == math.MinInt64 {
		// A minus sign would negate a number that does not fit.
		t.WriteString("(-9223372036854775807-1)")
		return
	}
	var b [20]byte
	t.Write(strconv.AppendInt(b[:0], v, 10))
}

func (t *text) string(v string) {
	if !strings.ContainsAny(v, `'\`) {
		t.WriteByte('\'')
		t.WriteString(v)
		t.WriteByte('\'')
		return
	}
	t.WriteString("_utf8mb4 ")
	t.blob([]byte(v))
}

func (t *text) blob(v []byte) {
	t.Grow(2*len(v) + 3)
	t.WriteString("x'")
	var b [128]byte
	for len(v) > 0 {
		n := min(len(v), len(b)/2)
		t.Write(b[:hex.Encode(b[:], v[:n])])
		v = v[n:]
	}
	t.WriteByte('\'')
}

// statementMax is the length at which a statement for many rows, or the pending statements, are
// sent: far below the default limit of a packet.
const statementMax = 1 << 20

// write writes a statement for the rows of a batch from one on, and returns the row to continue
// with. Parsing a value costs servers more than writing it, so that values common to all rows are
// written once.
func (t *text) write(op sqldb.Op, b *sqldb.Batch, row int) int {
	if op == sqldb.Delete {
		return t.delete(b, row)
	}
	var listed []int // columns written in each row
	for i := range b.Columns {
		switch {
		case i < b.Key:
		case op == sqldb.Update && b.Same(i):
			continue
		case op != sqldb.Update && zero(b, i) && b.Same(i):
			continue // the column has its default
		}
		listed = append(listed, i)
	}
	t.WriteString("insert into ")
	t.WriteString(b.Name)
	t.WriteByte('(')
	for n, i := range listed {
		t.comma(n)
		t.WriteString(b.Columns[i].Name)
	}
	t.WriteString(")values")
	for first := row; row < b.Len() && t.Len() < statementMax; row++ {
		t.comma(row - first)
		t.WriteByte('(')
		for n, i := range listed {
			t.comma(n)
			t.cell(b, row, i)
		}
		t.WriteByte(')')
	}
	switch op {
	case sqldb.InsertNew:
		// "insert ignore" would hide other errors, too.
		key := b.Columns[0].Name
		fmt.Fprintf(t, " on duplicate key update %s=%s.%s", key, b.Name, key)
	case sqldb.Upsert, sqldb.Update:
		// Rows to update exist: the step has locked them.
		t.WriteString(" on duplicate key update ")
		for i := b.Key; i < len(b.Columns); i++ {
			t.comma(i - b.Key)
			t.WriteString(b.Columns[i].Name)
			t.WriteByte('=')
			if slices.Contains(listed, i) {
				fmt.Fprintf(t, "values(%s)", b.Columns[i].Name)
			} else {
				t.cell(b, 0, i)
			}
		}
	}
	return row
}

func (t *text) comma(n int) {
	if n > 0 {
		t.WriteByte(',')
	}
}

// zero reports whether the first row has the default in a column.
func zero(b *sqldb.Batch, column int) bool {
	switch b.Columns[column].Kind {
	case sqldb.Int:
		return b.Ints[column][0] == 0
	case sqldb.Text:
		return b.Texts[column][0] == ""
	}
	return len(b.Blobs[column][0]) == 0
}

// delete is write for rows that are deleted by their keys.
func (t *text) delete(b *sqldb.Batch, row int) int {
	t.WriteString("delete from ")
	t.WriteString(b.Name)
	t.WriteString(" where ")
	for first := row; row < b.Len() && t.Len() < statementMax; row++ {
		switch {
		case b.Key == 1 && row == first:
			t.WriteString(b.Columns[0].Name)
			t.WriteString(" in (")
		case b.Key == 1:
			t.comma(row - first)
		case row > first:
			// MariaDB's optimizer does not look up rows by tuples.
			t.WriteString(" or ")
		}
		for i, c := range b.Columns[:b.Key] {
			if i > 0 {
				t.WriteString(" and ")
			}
			if b.Key > 1 {
				t.WriteString(c.Name)
				t.WriteByte('=')
			}
			t.cell(b, row, i)
		}
	}
	if b.Key == 1 {
		t.WriteByte(')')
	}
	return row
}

func (t *text) cell(b *sqldb.Batch, row, column int) {
	switch b.Columns[column].Kind {
	case sqldb.Int:
		t.int(b.Ints[column][row])
	case sqldb.Text:
		t.string(b.Texts[column][row])
	case sqldb.Blob:
		t.blob(b.Blobs[column][row])
	}
}
