package job

import (
	"bytes"
	"unicode/utf8"
)

// partMin is the smallest part of a file that is decoded separately: some milliseconds of
// work.
const partMin = 64 << 10

// DecodeInParts is [Decode] for long files, with concurrent decoding of parts: each calls do
// for every i from 0 to below n, on any goroutines, and returns when all calls are done.
func DecodeInParts(file string, data []byte, each func(n int, do func(i int))) ([]Document, error) {
	return decodeInParts(file, data, partMin, each)
}

func decodeInParts(file string, data []byte, least int, each func(n int, do func(i int))) ([]Document, error) {
	parts := partsOf(file, data, least)
	if len(parts) < 2 {
		return Decode(file, data)
	}
	each(len(parts), func(i int) { parts[i].read(file) })
	var docs []Document
	var problems Problems
	aliased := 0
	for _, p := range parts {
		if aliased += p.aliased; p.bad || aliased > aliasedMax {
			// Mistakes, and the counts before them, are reported for the whole file.
			return Decode(file, data)
		}
		docs = append(docs, p.docs...)
		problems = append(problems, p.problems...)
	}
	return docs, problems.asError()
}

// section is some documents of a YAML file.
type section struct {
	data []byte
	line int // number of lines before the part

	// The result: bad is set for a syntax error.
	docs     []Document
	problems Problems
	aliased  int
	bad      bool
}

func (p *section) read(file string) {
	var plain plainReader
	rest := yamlReader{line: p.line}
	d := &decoder{file: file}
	text := string(p.data)
	for begin, end := 0, 0; begin < len(text); begin = end {
		end += nextDocument(p.data[begin:], 0)
		nodes, bad := []*node{plain.document(text[begin:end], rest.line+1)}, (*treeError)(nil)
		if nodes[0] == nil {
			nodes, bad = rest.parse(p.data[begin:end])
		}
		if bad != nil {
			p.bad = true
			return
		}
		p.docs = append(p.docs, d.documents(nodes)...)
		rest.line += bytes.Count(p.data[begin:end], []byte("\n"))
	}
	p.problems, p.aliased = d.problems, rest.aliased
}

// partsOf cuts a file before lines that begin a document of YAML, wherever they are: such a
// line ends every text. A file is one part if it is not YAML, exceeds the bounds, or has
// rare content that affects several documents: directives, and line endings that are not
// counted here.
func partsOf(file string, data []byte, least int) []section {
	text := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(text) > fileMax || isJSON(file, text) || !utf8.Valid(text) {
		return nil
	}
	if bytes.HasPrefix(text, []byte("%")) {
		return nil
	}
	for _, odd := range []string{"\n%", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.Contains(text, []byte(odd)) {
			return nil
		}
	}
	var parts []section
	line := 0
	for len(text) > 0 {
		end := nextDocument(text, least)
		parts = append(parts, section{data: text[:end], line: line})
		line += bytes.Count(text[:end], []byte("\n"))
		text = text[end:]
	}
	return parts
}

// nextDocument returns where the first document begins behind an offset, or the end.
func nextDocument(text []byte, from int) int {
	separator := []byte("\n---")
	for from < len(text) {
		at := bytes.Index(text[from:], separator)
		if at < 0 {
			break
		}
		from += at + 1
		behind := from + len(separator) - 1
		if behind == len(text) || text[behind] == ' ' || text[behind] == '\t' || text[behind] == '\n' {
			return from
		}
	}
	return len(text)
}
