package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A parameter has its last bound value, whatever the row before had.
func TestParameterKeepsNothingOfAnEarlierRow(t *testing.T) {
	c, err := connect(filepath.Join(t.TempDir(), "bind.db"), true, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	values := []struct {
		quoted string
		bind   func(*stmt)
	}{
		{"NULL", func(s *stmt) { s.bindNull() }},
		{"0", func(s *stmt) { s.bindInt(0) }},
		{"1", func(s *stmt) { s.bindInt(1) }},
		{"''", func(s *stmt) { s.bindText("") }},
		{"'a'", func(s *stmt) { s.bindText("a") }},
		{"X''", func(s *stmt) { s.bindBlob(nil) }},
		{"X'00'", func(s *stmt) { s.bindBlob([]byte{0}) }},
		{"'" + strings.Repeat("b", 2*valuesMax) + "'", func(s *stmt) { s.bindText(strings.Repeat("b", 2*valuesMax)) }},
	}
	for i := range values {
		for j := range values {
			for _, k := range []int{i, j, j, i} {
				q := c.stmt("select quote(?), quote(?)")
				values[k].bind(q)
				values[i].bind(q)
				var got []string
				for q.next() {
					got = append(got, q.text(), q.text())
				}
				if err := q.err(); err != nil || !slices.Equal(got, []string{values[k].quoted, values[i].quoted}) {
					t.Fatalf("%d after %d: %v %.20q", k, i, err, fmt.Sprint(got))
				}
			}
		}
	}
	q := c.stmt("select quote(?), quote(?)").bindInt(1)
	if q.exec() == nil {
		t.Error("a parameter that was given nothing has what it had before")
	}
}
