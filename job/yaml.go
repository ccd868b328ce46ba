package job

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// parseYAML returns the documents of a YAML file. After a mistake it returns the documents before
// it and the mistake.
func parseYAML(data []byte) ([]*node, *treeError) { return (&yamlReader{}).parse(data) }

func (r *yamlReader) parse(data []byte) ([]*node, *treeError) {
	var docs []*node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return docs, yamlError(err)
		}
		doc, bad := r.convert(&root, 0)
		if bad != nil {
			return docs, bad
		}
		docs = append(docs, doc)
	}
}

var yamlErrorLine = regexp.MustCompile(`^line (\d+): `)

func yamlError(err error) *treeError {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	bad := &treeError{}
	if m := yamlErrorLine.FindStringSubmatch(message); m != nil {
		bad.line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	bad.message = phrase.NotYAML.Of(phrase.Words(message))
	switch {
	case strings.Contains(message, "cannot start any token"):
		bad.hint = phrase.YAMLSpaces
	case strings.Contains(message, "mapping values are not allowed"):
		bad.hint = phrase.YAMLColon
	case strings.Contains(message, "unknown anchor"), strings.Contains(message, "expected alphabetic or numeric character"):
		bad.hint = phrase.YAMLStar
	}
	return bad
}

// yamlReader turns the nodes of the YAML library into ours and counts what
// aliases repeat.
type yamlReader struct {
	line    int // number of lines before this document
	inAlias int
	aliased int
	spare   nodes
}

func (r *yamlReader) convert(y *yaml.Node, depth int) (*node, *treeError) {
	fail := func(message phrase.Text) (*node, *treeError) {
		return nil, &treeError{line: y.Line, column: y.Column, message: message}
	}
	if depth > depthMax {
		return fail(phrase.TooDeep.Of(depthMax))
	}
	if r.inAlias > 0 {
		if r.aliased++; r.aliased > aliasedMax {
			return fail(phrase.TooManyAliases.Of(aliasedMax))
		}
	}
	n := r.spare.next(r.line+y.Line, y.Column)
	if y.Style&yaml.TaggedStyle != 0 && y.ShortTag() != "!!str" {
		return fail(phrase.NoTag.Of(quote(y.Tag)))
	}
	switch y.Kind {
	case yaml.DocumentNode:
		return r.convert(y.Content[0], depth)
	case yaml.AliasNode:
		r.inAlias++
		n, bad := r.convert(y.Alias, depth+1)
		r.inAlias--
		if bad != nil {
			return nil, bad
		}
		// A mistake is shown at the place of the alias.
		n.line, n.column = int32(r.line+y.Line), int32(y.Column)
		return n, nil
	case yaml.ScalarNode:
		n.setScalar(y.Value, y.Style&^yaml.FlowStyle != 0)
	case yaml.SequenceNode:
		n.kind = listNode
		n.entries = make([]entry, 0, len(y.Content))
		for _, item := range y.Content {
			converted, bad := r.convert(item, depth+1)
			if bad != nil {
				return nil, bad
			}
			n.entries = append(n.entries, entry{value: converted})
		}
	case yaml.MappingNode:
		n.kind = mappingNode
		n.entries = make([]entry, 0, len(y.Content)/2)
		for i := 0; i < len(y.Content); i += 2 {
			key, bad := r.convert(y.Content[i], depth+1)
			if bad != nil {
				return nil, bad
			}
			if key.kind == listNode || key.kind == mappingNode {
				return wrong(key, phrase.KeyNotText.Of(key.describe()), phrase.Text{})
			}
			if key.text == "<<" && !key.quoted {
				return wrong(key, phrase.NoMergeKeys, phrase.WriteFields)
			}
			value, bad := r.convert(y.Content[i+1], depth+1)
			if bad != nil {
				return nil, bad
			}
			n.entries = append(n.entries, entry{key, value})
		}
	default:
		return fail(phrase.Empty)
	}
	return n, nil
}

// setScalar turns a node into a scalar.
func (n *node) setScalar(text string, quoted bool) {
	n.text, n.quoted, n.kind = text, quoted, scalarNode
	if quoted {
		return
	}
	switch text {
	case "", "~", "null", "Null", "NULL":
		n.kind = nullNode
	}
}

func wrong(n *node, message, hint phrase.Text) (*node, *treeError) {
	line, column := n.place()
	return nil, &treeError{line, column, message, hint}
}

// writeYAML writes a document. The second and further ones of a file begin
// with "---".
func writeYAML(w io.Writer, docs []*node) error {
	if len(docs) == 0 {
		return nil
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	for _, doc := range docs {
		if err := encoder.Encode(yamlNode(doc)); err != nil {
			return err
		}
	}
	return encoder.Close()
}

// yamlNode converts a node to a node of the YAML library.
func yamlNode(n *node) *yaml.Node {
	switch n.kind {
	case listNode:
		if len(n.entries) == 1 && n.entries[0].value.kind == scalarNode {
			return yamlNode(n.entries[0].value)
		}
		y := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range n.entries {
			y.Content = append(y.Content, yamlNode(item.value))
		}
		return y
	case mappingNode:
		y := &yaml.Node{Kind: yaml.MappingNode}
		for _, e := range n.entries {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: e.key.text}
			y.Content = append(y.Content, key, yamlNode(e.value))
		}
		return y
	}
	y := &yaml.Node{Kind: yaml.ScalarNode, Value: n.text}
	if n.quoted {
		// The library quotes texts that look like another type.
		y.Tag = "!!str"
		if wordsOfYAML11[strings.ToLower(n.text)] {
			y.Style = yaml.DoubleQuotedStyle
		}
	}
	return y
}

// wordsOfYAML11 are truth values in YAML 1.1, which other programs would misread without
// quotes.
var wordsOfYAML11 = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true}
