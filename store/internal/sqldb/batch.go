package sqldb

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// Batch is rows of a table, column by column. Values are added in the order of
// the columns, row after row.
type Batch struct {
	*Table
	Ints  [][]int64  // Int columns, by their number
	Texts [][]string // Text columns
	Blobs [][][]byte // Blob columns
	next  int
}

// rows returns an empty batch for about n rows, which belongs to the transaction until
// its end.
func (t *tx) rows(table *Table, room int) *Batch {
	b, _ := table.spare.Get().(*Batch)
	if b == nil {
		n := len(table.Columns)
		b = &Batch{Table: table, Ints: make([][]int64, n), Texts: make([][]string, n), Blobs: make([][][]byte, n)}
	}
	for i, c := range table.Columns {
		switch c.Kind {
		case Int:
			b.Ints[i] = slices.Grow(b.Ints[i], room)
		case Text:
			b.Texts[i] = slices.Grow(b.Texts[i], room)
		case Blob:
			b.Blobs[i] = slices.Grow(b.Blobs[i], room)
		}
	}
	t.batches = append(t.batches, b)
	return b
}

// release lets other transactions reuse the batches of an ended one.
func (t *tx) release() {
	for _, b := range t.batches {
		for i, c := range b.Columns {
			switch c.Kind {
			case Int:
				b.Ints[i] = b.Ints[i][:0]
			case Text:
				clear(b.Texts[i])
				b.Texts[i] = b.Texts[i][:0]
			case Blob:
				clear(b.Blobs[i])
				b.Blobs[i] = b.Blobs[i][:0]
			}
		}
		b.next = 0
		b.spare.Put(b)
	}
	t.batches = nil
}

// Len returns the number of rows.
func (b *Batch) Len() int {
	return max(len(b.Ints[0]), len(b.Texts[0]), len(b.Blobs[0]))
}

// Column returns the values of a column: []int64, []string or [][]byte.
func (b *Batch) Column(i int) any {
	switch b.Columns[i].Kind {
	case Int:
		return b.Ints[i]
	case Text:
		return b.Texts[i]
	}
	return b.Blobs[i]
}

// Same reports whether all rows have the same value in a column. Servers take longer to
// read a value than to write it, so that dialects leave such values out of the rows.
func (b *Batch) Same(column int) bool {
	switch b.Columns[column].Kind {
	case Int:
		return allSame(b.Ints[column], func(x, y int64) bool { return x == y })
	case Text:
		return allSame(b.Texts[column], func(x, y string) bool { return x == y })
	}
	return allSame(b.Blobs[column], bytes.Equal)
}

func allSame[T any](list []T, equal func(x, y T) bool) bool {
	for _, v := range list[1:] {
		if !equal(v, list[0]) {
			return false
		}
	}
	return true
}

func (b *Batch) step() {
	if b.next++; b.next == len(b.Columns) {
		b.next = 0
	}
}

func (b *Batch) int(v int64) *Batch {
	b.Ints[b.next] = append(b.Ints[b.next], v)
	b.step()
	return b
}

func (b *Batch) text(v string) *Batch {
	b.Texts[b.next] = append(b.Texts[b.next], clean(v))
	b.step()
	return b
}

func (b *Batch) blob(v []byte) *Batch {
	if v == nil {
		v = none
	}
	b.Blobs[b.next] = append(b.Blobs[b.next], v)
	b.step()
	return b
}

func (b *Batch) time(t time.Time) *Batch { return b.int(columns.Nanos(t)) }

func (b *Batch) bool(v bool) *Batch { return b.int(toInt(v)) }

// id adds an id, without a copy of its bytes.
func (b *Batch) id(v *job.ID) *Batch { return b.blob(idBytes(v)) }

// none is an empty blob, unlike null.
var none = []byte{}

// idBytes returns an id as a column holds it: the zero id is empty, and sorts first.
func idBytes(v *job.ID) []byte {
	if v.IsZero() {
		return none
	}
	return v[:]
}

// idOf is idBytes for a value.
func idOf(v job.ID) []byte { return idBytes(&v) }

func toInt(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

// clean repairs a text that another program may have written: databases refuse zero bytes
// and invalid UTF-8.
func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
