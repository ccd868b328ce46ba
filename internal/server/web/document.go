package web

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fieldForm is how a field of the form writes what a document has.
type fieldForm int

const (
	asText   fieldForm = iota
	asScalar           // a number, or true or false
	asList             // a line for each item
	asPairs            // a line with key=value for each field
	asYAML             // what the document has, as it is written there
)

// nodeAt returns the value of a document at a path, nil if it has none. A short form counts as the
// first field that it replaces.
func nodeAt(text, path string) *yaml.Node {
	var root yaml.Node
	if yaml.Unmarshal([]byte(text), &root) != nil || len(root.Content) == 0 {
		return nil
	}
	node := root.Content[0]
	for i, key := range strings.Split(path, ".") {
		if node.Kind == yaml.ScalarNode && i > 0 && isShort(path, i) {
			return node
		}
		if node = valueOf(node, key); node == nil {
			return nil
		}
	}
	return node
}

// fieldOf returns the text of a field of a document, and false if the form cannot show what
// the document has there.
func fieldOf(text, path string, as fieldForm) (value string, ok bool) {
	node := nodeAt(text, path)
	if node == nil {
		return "", true
	}
	var lines []string
	switch {
	case as == asList && node.Kind == yaml.SequenceNode:
		for _, item := range node.Content {
			lines = append(lines, itemText(item))
		}
	case as == asList:
		lines = []string{itemText(node)}
	case as == asPairs && node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			if value.Kind != yaml.ScalarNode || strings.Contains(key.Value, "=") {
				return "", false
			}
			lines = append(lines, key.Value+"="+value.Value)
		}
	case as == asPairs:
		return "", node.Tag == "!!null"
	case as == asYAML:
		return yamlText(node), true
	default:
		if node = textOf(node); node == nil {
			return "", false
		}
		return node.Value, true
	}
	for _, line := range lines {
		if line == "" || line != strings.TrimSpace(line) || strings.ContainsAny(line, "\r\n") {
			return "", false
		}
	}
	return strings.Join(lines, "\n"), true
}

// textOf returns the text that a node is, alone in a list, or first in a mapping; nil if it is none.
func textOf(node *yaml.Node) *yaml.Node {
	for _, first := range []string{"command", "name"} {
		if value := valueOf(node, first); value != nil {
			node = value
		}
	}
	if node.Kind == yaml.SequenceNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	if node.Kind != yaml.ScalarNode {
		return nil
	}
	return node
}

// itemText writes an item of a list in a line: another job with its outcome as two words. It is ""
// for what has no line.
func itemText(item *yaml.Node) string {
	if item.Kind == yaml.ScalarNode {
		return item.Value
	}
	job, outcome := valueOf(item, "job"), valueOf(item, "outcome")
	switch {
	case job == nil || job.Kind != yaml.ScalarNode:
		return ""
	case outcome == nil && len(item.Content) == 2:
		return job.Value
	case outcome != nil && outcome.Kind == yaml.ScalarNode && len(item.Content) == 4:
		return job.Value + " " + outcome.Value
	}
	return ""
}

// itemOf reads a line as [itemText] writes it.
func itemOf(path, line string) *yaml.Node {
	job, outcome, two := strings.Cut(line, " ")
	if path != "schedule.on" || !two {
		return scalar(line)
	}
	return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{
		scalar("job"), scalar(job), scalar("outcome"), scalar(strings.TrimSpace(outcome)),
	}}
}

func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// shortFor are the fields that a document may write as the text of one that is in them.
var shortFor = map[string]string{"schedule": "cron", "run": "shell", "run.container": "image", "run.kubernetes": "image"}

// isShort reports whether a document may write the field at a part of a path as the text alone.
func isShort(path string, part int) bool {
	field, rest, _ := strings.Cut(path, ".")
	return part == 1 && rest != "" && rest == shortFor[field]
}

// expand writes a short form out, so that other fields have room beside it.
func expand(node *yaml.Node, field string) {
	text := *node
	*node = yaml.Node{Kind: yaml.MappingNode, HeadComment: text.HeadComment, LineComment: text.LineComment, FootComment: text.FootComment}
	text.HeadComment, text.LineComment, text.FootComment = "", "", ""
	node.Content = []*yaml.Node{{Kind: yaml.ScalarNode, Value: shortFor[field]}, &text}
}

func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// setField returns a document with another text in a field. The rest of it, comments included,
// stays as it is; "" removes the field, and what is empty without it.
func setField(text, path string, as fieldForm, value string) (string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return text, err
	}
	if len(root.Content) == 0 {
		root = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	if as == asList || as == asPairs {
		value = strings.Join(linesOf(value), "\n")
	}
	node := root.Content[0]
	keys := strings.Split(path, ".")
	var above []*yaml.Node
	for i, key := range keys {
		if node.Kind == yaml.ScalarNode && isShort(path, i) && !strings.Contains(strings.TrimSpace(value), "\n") {
			break // the short form takes the text itself
		}
		if short := strings.Join(keys[:i], "."); node.Kind == yaml.ScalarNode && value != "" && shortFor[short] != "" {
			expand(node, short)
		}
		if node.Kind != yaml.MappingNode {
			return text, fmt.Errorf("%s is not a mapping", strings.Join(keys[:i], "."))
		}
		next := valueOf(node, key)
		if next == nil {
			if value == "" {
				return text, nil
			}
			next = &yaml.Node{Kind: yaml.MappingNode}
			if i == len(keys)-1 {
				next = &yaml.Node{Kind: yaml.ScalarNode}
			}
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, next)
		}
		above = append(above, node)
		if i == len(keys)-1 && value == "" {
			for ; i == len(keys)-1 || i >= 0 && len(above[i+1].Content) == 0; i-- {
				remove(above[i], keys[i])
			}
			return encoded(&root)
		}
		node = next
	}
	switch as {
	case asList:
		setList(node, path, value)
	case asPairs:
		setPairs(node, value)
	case asYAML:
		setYAML(node, value)
	default:
		if own := textOf(node); own != nil {
			node = own
		}
		setScalar(node, as, value)
	}
	return encoded(&root)
}

// yamlText writes a part of a document; text that is no YAML yet stays as it was typed.
func yamlText(node *yaml.Node) string {
	if node.Kind == yaml.ScalarNode {
		return node.Value
	}
	text, err := encoded(&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{node}})
	if err != nil {
		return node.Value
	}
	return strings.TrimSpace(text)
}

// setYAML replaces a part of a document. What is no YAML is kept as a text, of which the check then says what is wrong.
func setYAML(node *yaml.Node, value string) {
	var root yaml.Node
	if yaml.Unmarshal([]byte(value), &root) != nil || len(root.Content) == 0 {
		setScalar(node, asText, value)
		return
	}
	*node = *root.Content[0]
}

// linesOf returns the lines that say something.
func linesOf(value string) (lines []string) {
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func setScalar(node *yaml.Node, as fieldForm, value string) {
	tag := "!!str"
	if as == asScalar {
		if _, err := strconv.Atoi(value); err == nil {
			tag = "!!int"
		} else if value == "true" || value == "false" {
			tag = "!!bool"
		}
	}
	node.Kind, node.Tag, node.Content, node.Value, node.Style = yaml.ScalarNode, tag, nil, value, 0
	if strings.Contains(value, "\n") {
		node.Style = yaml.LiteralStyle
	}
}

// setList gives a list other items. Those that stay keep their form and comments.
func setList(node *yaml.Node, path, value string) {
	lines := linesOf(value)
	if first := itemOf(path, lines[0]); node.Kind == yaml.ScalarNode && len(lines) == 1 && first.Kind == yaml.ScalarNode {
		setScalar(node, asText, lines[0])
		return
	}
	was := node.Content
	if node.Kind != yaml.SequenceNode {
		was = nil
		if node.Kind == yaml.ScalarNode && node.Value != "" {
			was = []*yaml.Node{{Kind: yaml.ScalarNode, Tag: node.Tag, Value: node.Value, Style: node.Style}}
		}
		node.Kind, node.Tag, node.Value, node.Style = yaml.SequenceNode, "", "", 0
	}
	node.Content = nil
	for _, line := range lines {
		item := itemOf(path, line)
		if at := slices.IndexFunc(was, func(n *yaml.Node) bool { return itemText(n) == line }); at >= 0 {
			item = was[at]
		}
		node.Content = append(node.Content, item)
	}
}

// setPairs gives a mapping other fields. Those that stay keep their comments.
func setPairs(node *yaml.Node, value string) {
	was := *node
	if node.Kind != yaml.MappingNode {
		node.Kind, node.Tag, node.Value, node.Style = yaml.MappingNode, "", "", 0
	}
	node.Content = nil
	for _, line := range linesOf(value) {
		key, value, _ := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); valueOf(node, key) != nil {
			continue // a key that is written twice has its first value
		}
		at, is := scalar(key), scalar(strings.TrimSpace(value))
		for i := 0; was.Kind == yaml.MappingNode && i+1 < len(was.Content); i += 2 {
			if was.Content[i].Value == key {
				at = was.Content[i]
				if was.Content[i+1].Value == is.Value {
					is = was.Content[i+1]
				}
			}
		}
		node.Content = append(node.Content, at, is)
	}
}

// remove removes a field of a mapping.
func remove(mapping *yaml.Node, key string) {
	for at := 0; at+1 < len(mapping.Content); at += 2 {
		if mapping.Content[at].Value == key {
			mapping.Content = append(mapping.Content[:at], mapping.Content[at+2:]...)
			return
		}
	}
}

func encoded(root *yaml.Node) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return "", err
	}
	return b.String(), e.Close()
}
