package sqldb

import (
	"bytes"
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
	Ints  [][]int64  // of the columns that are Int, by the number of the column
	Texts [][]string // of those that are Text
	Blobs [][][]byte // of those that are Blob
	// Stamps are those of the rows to Update or Delete, if they were not read: where one
	// has another, or is not there, the transaction fails.
	Stamps []uint32
	next   int
}

// rows returns a batch for about so many rows.
func (t *Table) rows(room int) *Batch {
	n := len(t.Columns)
	b := &Batch{Table: t, Ints: make([][]int64, n), Texts: make([][]string, n), Blobs: make([][][]byte, n)}
	for i, c := range t.Columns {
		switch c.Kind {
		case Int:
			b.Ints[i] = make([]int64, 0, room)
		case Text:
			b.Texts[i] = make([]string, 0, room)
		case Blob:
			b.Blobs[i] = make([][]byte, 0, room)
		}
	}
	return b
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

// Same tells whether all rows have the same value in a column. Servers take longer to
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

// id adds an id. What it points to is not copied.
func (b *Batch) id(v *job.ID) *Batch { return b.blob(idBytes(v)) }

// none is an empty blob, which null is not.
var none = []byte{}

// idBytes returns an id as a column keeps it: the zero id is empty, and sorts
// first.
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

// clean makes a text of one that somebody else's program may have written:
// databases refuse zeros, and what is not UTF-8.
func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
