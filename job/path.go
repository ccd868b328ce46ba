package job

import (
	"fmt"
	"strings"
)

// path is the way to a field, from the root (nil) downwards.
type path struct {
	parent *path
	key    string
	index  int // index of an item in its list; notItem for a mapping's key
	// hasParts is set for a text that is a document itself, whose parts have paths too.
	hasParts bool
}

const notItem = -1

// root is the path of a whole document.
var root *path

func (p *path) field(key string) *path { return &path{parent: p, key: key, index: notItem} }
func (p *path) item(index int) *path   { return &path{parent: p, index: index} }

// at follows names joined with dots.
func (p *path) at(names string) *path {
	for name := range strings.SplitSeq(names, ".") {
		p = p.field(name)
	}
	return p
}

// String writes the path as users see it: names with dots, [n] for items and
// ["a key"] where a key is not a plain name.
func (p *path) String() string {
	var b strings.Builder
	p.write(&b)
	return b.String()
}

// write writes the path. It keeps nothing, so that the many paths of valid documents take no
// memory.
func (p *path) write(b *strings.Builder) {
	if p != nil {
		p.parent.write(b)
		p.writeStep(b)
	}
}

// writeStep writes the last step.
func (p *path) writeStep(b *strings.Builder) {
	switch {
	case p.index != notItem:
		fmt.Fprintf(b, "[%d]", p.index)
	case p.key == "" || strings.Trim(p.key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		b.WriteString("[" + quote(p.key).String() + "]")
	default:
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p.key)
	}
}
