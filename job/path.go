package job

import (
	"fmt"
	"slices"
	"strings"
)

// path is the way to a field, from the root (nil) downwards.
type path struct {
	parent *path
	key    string
	index  int // of an item in its list; notItem for a key of a mapping
}

const notItem = -1

// root is the path of a whole document.
var root *path

func (p *path) field(key string) *path { return &path{parent: p, key: key, index: notItem} }
func (p *path) item(index int) *path   { return &path{parent: p, index: index} }

// at follows names that are joined with dots.
func (p *path) at(names string) *path {
	for name := range strings.SplitSeq(names, ".") {
		p = p.field(name)
	}
	return p
}

// steps returns the elements of the path from the root downwards.
func (p *path) steps() []*path {
	var steps []*path
	for ; p != nil; p = p.parent {
		steps = append(steps, p)
	}
	slices.Reverse(steps)
	return steps
}

// String writes the path as users see it: names with dots, [n] for items and
// ["a key"] where a key is not a plain name.
func (p *path) String() string {
	var b strings.Builder
	for _, step := range p.steps() {
		switch {
		case step.index != notItem:
			fmt.Fprintf(&b, "[%d]", step.index)
		case step.key == "" || strings.Trim(step.key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
			b.WriteString("[" + quote(step.key) + "]")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step.key)
		}
	}
	return b.String()
}
