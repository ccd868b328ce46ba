package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// write writes all output of a command to stdout at once, so that a failure leaves no partial
// output.
func write(env Env, data []byte) error {
	if _, err := env.Stdout.Write(data); err != nil {
		return failed("write the output: %v", err)
	}
	return nil
}

// tell writes messages for people beside the output of a command. Its errors have no reader.
func (env Env) tell(format string, args ...any) { _, _ = fmt.Fprintf(env.Stderr, format, args...) }

// encodeJSON writes a value in readable JSON.
func encodeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// encodeJSONLine writes a value in one line.
func encodeJSONLine(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// encodeYAML writes a value with the keys that it has in JSON.
func encodeYAML(w io.Writer, value any) error {
	var asJSON bytes.Buffer
	if err := encodeJSONLine(&asJSON, value); err != nil {
		return err
	}
	// JSON is YAML: reading it as a tree keeps the order of the keys.
	var tree yaml.Node
	if err := yaml.Unmarshal(asJSON.Bytes(), &tree); err != nil {
		return err
	}
	plain(&tree)
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(&tree); err != nil {
		return err
	}
	return encoder.Close()
}

// plain removes the marks of JSON from a tree: braces, and quotes where YAML
// needs none.
func plain(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		plain(child)
	}
}
