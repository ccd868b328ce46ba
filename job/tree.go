package job

import (
	"encoding/json"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// node is an element of a YAML or JSON document as written. Scalars keep their text: the
// meaning of "022", "on" or "12:30" depends on the type of the field.
type node struct {
	text         string  // of a scalar
	entries      []entry // of a mapping or list, in textual order
	line, column int32
	kind         nodeKind
	quoted       bool // its notation makes the scalar a text
}

// entry is a key of a mapping with its value, or an item of a list, without a key.
type entry struct {
	key, value *node
}

// nodes are allocated together and used one by one.
type nodes []node

func (spare *nodes) next(line, column int) *node {
	const together = 32 // about the number in a job
	if len(*spare) == 0 {
		*spare = make([]node, together)
	}
	n := &(*spare)[0]
	*spare = (*spare)[1:]
	n.line, n.column = int32(line), int32(column)
	return n
}

// place returns the position of a node.
func (n *node) place() (line, column int) { return int(n.line), int(n.column) }

type nodeKind uint8

const (
	nullNode nodeKind = iota
	scalarNode
	listNode
	mappingNode
)

// get returns the value of a key in a mapping, or nil.
func (n *node) get(key string) *node {
	if n.kind == mappingNode {
		for _, e := range n.entries {
			if e.key.text == key {
				return e.value
			}
		}
	}
	return nil
}

// repeats reports whether a mapping may have a key twice. For short mappings, which
// nearly all are, it is exact.
func (n *node) repeats() bool {
	const short = 16
	if len(n.entries) > short {
		return true
	}
	for i, e := range n.entries {
		for _, before := range n.entries[:i] {
			if before.key.text == e.key.text {
				return true
			}
		}
	}
	return false
}

// tree returns the node of a value as encoding/json reads it.
func (n *node) tree() any {
	switch {
	case n.kind == mappingNode:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key.text] = e.value.tree()
		}
		return m
	case n.kind == listNode:
		items := make([]any, len(n.entries))
		for i, e := range n.entries {
			items[i] = e.value.tree()
		}
		return items
	case n.kind == nullNode:
		return nil
	case n.quoted:
		return n.text
	case n.text == "true" || n.text == "false":
		return n.text == "true"
	}
	return json.Number(n.text)
}

// describe describes the node, for messages about types.
func (n *node) describe() phrase.Text {
	switch n.kind {
	case nullNode:
		return phrase.Nothing
	case listNode:
		return phrase.AList
	case mappingNode:
		return phrase.AMapping
	}
	if n.quoted {
		return phrase.TheText.Of(quote(n.text))
	}
	return phrase.TheWord.Of(quote(n.text))
}

// add appends a key to a mapping.
func (n *node) add(key string, value *node) {
	n.entries = append(n.entries, entry{textNode(key), value})
}

// textNode returns a scalar that is a text.
func textNode(text string) *node { return &node{kind: scalarNode, text: text, quoted: true} }

// plainNode returns a scalar that is a number or a truth value.
func plainNode(text string) *node { return &node{kind: scalarNode, text: text} }

func textNodes(texts []string) []*node {
	nodes := make([]*node, len(texts))
	for i, text := range texts {
		nodes[i] = textNode(text)
	}
	return nodes
}

func list(items ...*node) *node {
	n := &node{kind: listNode, entries: make([]entry, len(items))}
	for i, item := range items {
		n.entries[i].value = item
	}
	return n
}

// object returns a mapping of keys (strings) and values (nodes) in turn.
func object(keysAndValues ...any) *node {
	n := &node{kind: mappingNode}
	for i := 0; i < len(keysAndValues); i += 2 {
		n.add(keysAndValues[i].(string), keysAndValues[i+1].(*node))
	}
	return n
}

const (
	// fileMax is the most bytes of a file: tens of thousands of jobs.
	fileMax = 16 << 20
	// depthMax is the deepest nesting. The deepest field of a document is at level 5; the
	// rest is room for reporting mistakes.
	depthMax = 32
	// aliasedMax is the most elements that YAML aliases may repeat in a file,
	// since aliases of aliases grow exponentially.
	aliasedMax = 100_000
)

// treeError is a syntax error, which makes the rest of a file unreadable.
type treeError struct {
	line, column int
	message      phrase.Text
	hint         phrase.Text
}

func (e *treeError) Error() string { return e.message.String() }
