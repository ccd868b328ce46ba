package web

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fieldOf returns the text of a field of a document, "" for one that is no single text. A short
// form stands for the first field that it is short for.
func fieldOf(text, path string) string {
	var root yaml.Node
	if yaml.Unmarshal([]byte(text), &root) != nil || len(root.Content) == 0 {
		return ""
	}
	node := root.Content[0]
	for i, key := range strings.Split(path, ".") {
		if node.Kind == yaml.ScalarNode && i > 0 && isShort(path, i) {
			return node.Value
		}
		if node = valueOf(node, key); node == nil {
			return ""
		}
	}
	switch {
	case node.Kind == yaml.ScalarNode:
		return node.Value
	case node.Kind == yaml.SequenceNode && len(node.Content) == 1:
		return node.Content[0].Value
	case node.Kind == yaml.MappingNode:
		if command := valueOf(node, "command"); command != nil {
			return command.Value
		}
	}
	return ""
}

// shortFor are the fields that a document may write as the text of one that is in them.
var shortFor = map[string]string{"schedule": "cron", "run": "shell"}

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

// isNumber reports whether a document writes a field as a number.
func isNumber(path string) bool { return path == "policy.retry.attempts" }

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
func setField(text, path, value string) (string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return text, err
	}
	if len(root.Content) == 0 {
		root = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	node := root.Content[0]
	keys := strings.Split(path, ".")
	var above []*yaml.Node
	for i, key := range keys {
		if node.Kind == yaml.ScalarNode && isShort(path, i) {
			break // the short form takes the text itself
		}
		if node.Kind == yaml.ScalarNode && i == 1 && value != "" && shortFor[keys[0]] != "" {
			expand(node, keys[0])
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
	if command := valueOf(node, "command"); command != nil {
		node = command
	} else if node.Kind == yaml.SequenceNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	tag := "!!str"
	if _, err := strconv.Atoi(value); err == nil && isNumber(path) {
		tag = "!!int"
	}
	node.Kind, node.Tag, node.Content, node.Value, node.Style = yaml.ScalarNode, tag, nil, value, 0
	if strings.Contains(value, "\n") {
		node.Style = yaml.LiteralStyle
	}
	return encoded(&root)
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
