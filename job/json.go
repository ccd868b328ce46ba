package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// parseJSON returns the consecutive values of a JSON file, up to a mistake, which it also returns.
func parseJSON(data []byte) ([]*node, *treeError) {
	r := jsonReader{data: data, line: 1, column: 1}
	var docs []*node
	for {
		r.space()
		begin := r.next
		if begin == len(data) {
			return docs, nil
		}
		doc, err := r.value(0)
		if err != nil {
			return docs, r.fail(begin, err)
		}
		docs = append(docs, doc)
	}
}

// jsonReader builds nodes, with their lines and columns. It is strict, with error messages
// from encoding/json.
type jsonReader struct {
	data []byte
	next int // offset of the next byte
	// line and column are the position of the offset counted.
	line, column, counted int
	spare                 nodes
}

var errNotJSON = errors.New("is not valid JSON")

// fail reports a mistake in the value that begins at an offset.
func (r *jsonReader) fail(begin int, err error) *treeError {
	var bad *treeError
	if errors.As(err, &bad) {
		return bad
	}
	offset := len(r.data)
	var skipped json.RawMessage
	err = json.NewDecoder(bytes.NewReader(r.data[begin:])).Decode(&skipped)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		offset = min(begin+max(0, int(syntax.Offset)-1), offset)
	} else {
		err = errors.New("it ends too early")
	}
	bad = &treeError{message: phrase.InvalidJSON.Of(phrase.Words(err.Error()))}
	bad.line, bad.column = r.position(max(offset, r.counted))
	return bad
}

// position returns the line and column of an offset. Offsets never go back.
func (r *jsonReader) position(offset int) (line, column int) {
	for ; r.counted < offset; r.counted++ {
		switch c := r.data[r.counted]; {
		case c == '\n':
			r.line++
			r.column = 1
		case utf8.RuneStart(c):
			r.column++
		}
	}
	return r.line, r.column
}

// space skips white space, and returns the next byte, 0 at the end.
func (r *jsonReader) space() byte {
	for ; r.next < len(r.data); r.next++ {
		switch c := r.data[r.next]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// value reads the next value.
func (r *jsonReader) value(depth int) (*node, error) {
	c := r.space()
	line, column := r.position(r.next)
	n := r.spare.next(line, column)
	if depth > depthMax {
		return nil, &treeError{line, column, phrase.TooDeep.Of(depthMax), phrase.Text{}}
	}
	switch {
	case c == '{':
		n.kind = mappingNode
		return n, r.items('}', func() error {
			if r.space() != '"' {
				return errNotJSON
			}
			key, err := r.value(depth + 1)
			if err != nil {
				return err
			}
			if r.space() != ':' {
				return errNotJSON
			}
			r.next++
			value, err := r.value(depth + 1)
			n.entries = append(n.entries, entry{key, value})
			return err
		})
	case c == '[':
		n.kind = listNode
		return n, r.items(']', func() error {
			item, err := r.value(depth + 1)
			n.entries = append(n.entries, entry{value: item})
			return err
		})
	case c == '"':
		n.kind, n.quoted = scalarNode, true
		return n, r.string(n)
	}
	text := r.word()
	switch {
	case text == "null":
		n.kind = nullNode
	case text == "true" || text == "false" || jsonNumber.MatchString(text):
		n.kind, n.text = scalarNode, text
	default:
		return nil, errNotJSON
	}
	return n, nil
}

// items reads the items between two brackets.
func (r *jsonReader) items(end byte, item func() error) error {
	r.next++
	if r.space() == end {
		r.next++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch r.space() {
		case ',':
			r.next++
		case end:
			r.next++
			return nil
		default:
			return errNotJSON
		}
	}
}

// string reads a text in quotes.
func (r *jsonReader) string(n *node) error {
	begin, plain := r.next, true
	for r.next++; r.next < len(r.data); r.next++ {
		switch c := r.data[r.next]; {
		case c == '"':
			r.next++
			if plain {
				n.text = string(r.data[begin+1 : r.next-1])
				return nil
			}
			return json.Unmarshal(r.data[begin:r.next], &n.text)
		case c == '\\':
			plain = false
			r.next++ // the next text is not an end
		case c < ' ':
			return errNotJSON
		}
	}
	return errNotJSON
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// word reads a number or name.
func (r *jsonReader) word() string {
	begin := r.next
	for ; r.next < len(r.data); r.next++ {
		switch c := r.data[r.next]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', c == '-', c == '+', c == '.', c == 'E':
		default:
			return string(r.data[begin:r.next])
		}
	}
	return string(r.data[begin:])
}

// writeJSON writes one document as an object, and several as an array of them.
func writeJSON(w io.Writer, docs []*node) error {
	n := list(docs...)
	if len(docs) == 1 {
		n = docs[0]
	}
	const likely = 1 << 10 // bytes of a document
	_, err := w.Write(append(appendJSON(make([]byte, 0, likely*len(docs)), n, 0), '\n'))
	return err
}

// appendJSON appends a value, indented for a depth.
func appendJSON(b []byte, n *node, depth int) []byte {
	switch {
	case n.kind == listNode:
		b = append(b, '[')
		for i, item := range n.entries {
			b = appendJSON(appendBreak(b, i, depth+1), item.value, depth+1)
		}
		return append(appendEnd(b, len(n.entries), depth), ']')
	case n.kind == mappingNode:
		b = append(b, '{')
		for i, e := range n.entries {
			b = appendJSON(appendBreak(b, i, depth+1), e.key, depth+1)
			b = appendJSON(append(b, ": "...), e.value, depth+1)
		}
		return append(appendEnd(b, len(n.entries), depth), '}')
	case n.quoted:
		return appendJSONText(b, n.text)
	}
	return append(b, n.text...)
}

// appendBreak appends the separator before an item.
func appendBreak(b []byte, item, depth int) []byte {
	return appendLine(appendComma(b, item), depth)
}

// appendComma appends the separator between an item and the previous one.
func appendComma(b []byte, item int) []byte {
	if item > 0 {
		b = append(b, ',')
	}
	return b
}

// appendEnd appends the line break before a closing bracket.
func appendEnd(b []byte, items, depth int) []byte {
	if items == 0 {
		return b
	}
	return appendLine(b, depth)
}

func appendLine(b []byte, depth int) []byte {
	b = append(b, '\n')
	for range depth {
		b = append(b, "  "...)
	}
	return b
}

// appendJSONText appends a text in JSON. It does not escape characters such as <, so that people
// can read them.
func appendJSONText(b []byte, text string) []byte {
	if isPlain(text) {
		b = append(append(b, '"'), text...)
		return append(b, '"')
	}
	var escaped bytes.Buffer
	encoder := json.NewEncoder(&escaped)
	encoder.SetEscapeHTML(false)
	// A string cannot fail to be written into memory.
	_ = encoder.Encode(text)
	return append(b, bytes.TrimRight(escaped.Bytes(), "\n")...)
}

// isPlain reports whether JSON writes a text as it is. Nearly all are.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
