package job

import (
	"slices"
	"strings"
)

// plainReader reads the simplest form of YAML documents: mappings and lists by indentation,
// and ASCII texts on one line, quoted or not. Programs write nearly all of their files that
// way. It makes the same nodes as the library, in a tenth of the time; it leaves everything
// uncertain, above all mistakes, to the library.
type plainReader struct {
	text string // the text after the current line
	line int    // its number
	// more is set if there is a current line, at is its indentation, and rest its content.
	more  bool
	at    int
	rest  string
	spare nodes
	stack []entry // the open mappings and lists
}

// document returns the node of a document whose first line has a number, or nil if it is
// not plain.
func (r *plainReader) document(text string, line int) *node {
	r.text, r.line, r.stack = strings.TrimPrefix(text, "---\n"), line, r.stack[:0]
	if len(r.text) == len(text) {
		r.line--
	}
	r.next()
	if !r.more || r.at > 0 {
		return nil
	}
	if n := r.block(0); n != nil && !r.more {
		return n
	}
	return nil
}

// next moves to the next line that is not empty.
func (r *plainReader) next() {
	for r.more = false; r.text != "" && !r.more; r.line++ {
		r.rest, r.text, _ = strings.Cut(r.text, "\n")
		r.more = r.rest != ""
	}
	indented := len(r.rest)
	r.rest = strings.TrimLeft(r.rest, " ")
	r.at = indented - len(r.rest)
}

// block returns the mapping or list that begins on the current line, or nil if it is not plain. The
// lines after it must belong to the enclosing blocks.
func (r *plainReader) block(depth int) *node {
	if depth == depthMax {
		return nil
	}
	at, first := r.at, len(r.stack)
	n := r.spare.next(r.line, at+1)
	n.kind = mappingNode
	isList := strings.HasPrefix(r.rest, "- ")
	if isList {
		n.kind = listNode
	}
	for r.more && r.at == at && isList == strings.HasPrefix(r.rest, "- ") {
		var e entry
		if isList {
			e.value = r.item(depth)
		} else {
			e = r.pair(depth)
		}
		if e.value == nil {
			return nil
		}
		r.stack = append(r.stack, e)
	}
	n.entries = slices.Clone(r.stack[first:])
	r.stack = r.stack[:first]
	return n
}

// item returns the content after a dash.
func (r *plainReader) item(depth int) *node {
	r.rest, r.at = r.rest[len("- "):], r.at+len("- ")
	if plainKey(r.rest) > 0 {
		return r.block(depth + 1)
	}
	return r.scalar()
}

// pair returns a key with its value, which is nil if it is not plain.
func (r *plainReader) pair(depth int) (e entry) {
	at, length := r.at, plainKey(r.rest)
	if length == 0 {
		return e
	}
	e.key = r.spare.next(r.line, at+1)
	e.key.setScalar(r.rest[:length], false)
	if r.rest = r.rest[length+1:]; r.rest != "" {
		r.rest, r.at = r.rest[1:], at+length+2
		e.value = r.scalar()
		return e
	}
	if r.next(); r.more && (r.at > at || r.at == at && strings.HasPrefix(r.rest, "- ")) {
		e.value = r.block(depth + 1)
	}
	return e
}

// scalar returns the rest of the line as a text and advances.
func (r *plainReader) scalar() *node {
	text, quoted := plainText(r.rest)
	if text == "" {
		return nil
	}
	n := r.spare.next(r.line, r.at+1)
	n.setScalar(text, quoted)
	r.next()
	return n
}

// plainKey returns the length of the key at the start of a line, 0 for none. The key ends
// with a colon, and then a space or the end of the line.
func plainKey(line string) int {
	const most = 128 // bytes; the library allows 1,024 including the indentation
	for i := range min(len(line), most) {
		switch c := line[i]; {
		case isLetter(c), i > 0 && (isDigit(c) || c == '_' || c == '-' || c == '.' || c == '/'):
		case c == ':' && (i+1 == len(line) || line[i+1] == ' '):
			return i
		default:
			return 0
		}
	}
	return 0
}

// plainText returns the rest of a line as a text, "" if it is not plain.
func plainText(line string) (text string, quoted bool) {
	if line == "" {
		return "", false
	}
	begin, end := line[0], line[len(line)-1]
	quoted = begin == '"' || begin == '\''
	switch {
	case quoted:
		if text = line[1:]; end != begin || text == "" {
			return "", false
		}
		text = text[:len(text)-1]
	case isLetter(begin), isDigit(begin), begin == '/', begin == '.', begin == '_', begin == '$', begin == '~':
		if text = line; end == ':' || end == ' ' {
			return "", false
		}
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', quoted && (c == begin || c == '\\'):
			return "", false
		case !quoted && (c == ' ' && text[i+1] == '#' || c == ':' && text[i+1] == ' '):
			return "", false
		}
	}
	return text, quoted
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
