package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// parseJSON returns the values of a JSON file, which may hold several after
// one another. Those before a mistake are returned together with it.
func parseJSON(data []byte) ([]*node, *treeError) {
	r := jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1, column: 1}
	r.decoder.UseNumber()
	var docs []*node
	for {
		if len(bytes.TrimSpace(data[r.decoder.InputOffset():])) == 0 {
			return docs, nil
		}
		doc, err := r.value(0)
		if err != nil {
			return docs, r.fail(err)
		}
		docs = append(docs, doc)
	}
}

// jsonReader builds nodes from the tokens of encoding/json, whose offsets it
// turns into lines and columns as it goes.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	// line and column are those of the offset counted.
	line, column, counted int
}

// next returns the offset at which the next token begins.
func (r *jsonReader) next() int {
	offset := int(r.decoder.InputOffset())
	return len(r.data) - len(bytes.TrimLeft(r.data[offset:], " \t\r\n,:"))
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

func (r *jsonReader) fail(err error) *treeError {
	var bad *treeError
	if errors.As(err, &bad) {
		return bad
	}
	offset := r.next()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		offset = max(0, min(int(syntax.Offset)-1, len(r.data)))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		offset, err = len(r.data), errors.New("it ends too early")
	}
	bad = &treeError{message: "is not valid JSON: " + strings.TrimPrefix(err.Error(), "json: ")}
	bad.line, bad.column = r.position(max(offset, r.counted))
	return bad
}

// value reads the next value.
func (r *jsonReader) value(depth int) (*node, error) {
	n := &node{}
	n.line, n.column = r.position(r.next())
	if depth > depthMax {
		return nil, &treeError{n.line, n.column, fmt.Sprintf("is nested more than %d levels deep", depthMax), ""}
	}
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case nil:
		n.kind = nullNode
	case string:
		n.kind, n.text, n.quoted = scalarNode, token, true
	case json.Number:
		n.kind, n.text = scalarNode, token.String()
	case bool:
		n.kind, n.text = scalarNode, fmt.Sprint(token)
	case json.Delim:
		if token == '[' {
			n.kind = listNode
		} else {
			n.kind = mappingNode
		}
		for r.decoder.More() {
			if n.kind == listNode {
				item, err := r.value(depth + 1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, item)
				continue
			}
			key, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			value, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.entries = append(n.entries, entry{key, value})
		}
		// The bracket that closes.
		if _, err := r.decoder.Token(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// writeJSON writes one document as an object, and several as an array of them.
func writeJSON(w io.Writer, docs []*node) error {
	var b bytes.Buffer
	if len(docs) == 1 {
		appendJSON(&b, docs[0])
	} else {
		appendJSON(&b, list(docs...))
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		return err
	}
	indented.WriteByte('\n')
	_, err := w.Write(indented.Bytes())
	return err
}

func appendJSON(b *bytes.Buffer, n *node) {
	switch {
	case n.kind == listNode:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			appendJSON(b, item)
		}
		b.WriteByte(']')
	case n.kind == mappingNode:
		b.WriteByte('{')
		for i, e := range n.entries {
			if i > 0 {
				b.WriteByte(',')
			}
			appendJSON(b, e.key)
			b.WriteByte(':')
			appendJSON(b, e.value)
		}
		b.WriteByte('}')
	case n.quoted:
		b.Write(jsonText(n.text))
	default:
		b.WriteString(n.text)
	}
}

// jsonText returns a text as JSON writes it. Letters such as < stay as they
// are, for people to read.
func jsonText(text string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	// A string cannot fail to be written into memory.
	_ = encoder.Encode(text)
	return bytes.TrimRight(b.Bytes(), "\n")
}
