package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/sys/parallel"
)

// jsonFormat is JSON as encoding/json reads and writes it. The library reads each body
// twice, to check it and into its type, on one processor. It only requires the documents of
// [client.Apply], which may be many, to be objects: so it receives empty ones, and the real
// ones are checked on all processors. Other bodies are small, and checked for duplicate
// keys.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readBody}

// noInteger begins the error for a number that passes the description as a whole one, such
// as 1e3, but not encoding/json. Its path follows: the library reports only the text of a
// body's mistakes.
const noInteger = "no integer: "

func readBody(body []byte, into any) error {
	switch into := into.(type) {
	case *any:
		outline, documents := outlineOf(body)
		if outline != nil && areJSON(documents) && json.Unmarshal(outline, into) == nil {
			return nil
		}
	case *client.Apply: // the body has been checked, and its memory is used again
		outline, documents := outlineOf(bytes.Clone(body))
		if outline != nil && json.Unmarshal(outline, into) == nil {
			for i, d := range documents {
				into.Documents[i].RawMessage = d
			}
			return nil
		}
	case *client.Document: // job.Decode reports duplicate keys
	default:
		err := huma.DefaultJSONFormat.Unmarshal(body, into)
		var mistyped *json.UnmarshalTypeError
		if errors.As(err, &mistyped) {
			return errors.New(noInteger + mistyped.Field)
		}
		if err != nil {
			return err
		}
		if key, twice := repeatedKey(body); twice {
			return fmt.Errorf("%.80q is given twice", key)
		}
		return nil
	}
	return huma.DefaultJSONFormat.Unmarshal(body, into)
}

// repeatedKey returns a duplicate key in an object of a body, of which encoding/json would
// silently take the last. The body is JSON.
func repeatedKey(body []byte) (key string, twice bool) {
	type level struct {
		keys  map[string]bool // the keys so far; nil in a list
		value bool            // a key was read, and its value comes
	}
	levels := []level{{}}
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return "", false // the end
		}
		top := &levels[len(levels)-1]
		if token == json.Delim('}') || token == json.Delim(']') {
			levels = levels[:len(levels)-1]
			continue
		}
		if top.keys != nil && !top.value {
			key := token.(string)
			if top.keys[key] {
				return key, true
			}
			top.keys[key], top.value = true, true
			continue
		}
		top.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{keys: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		}
	}
}

// areJSON reports whether all texts are JSON.
func areJSON(texts [][]byte) bool {
	var wrong atomic.Bool
	const least = 64 // texts that are worth a goroutine
	parallel.Each(len(texts), least, func(i int) {
		if !json.Valid(texts[i]) {
			wrong.Store(true)
		}
	})
	return !wrong.Load()
}

// documentsFirst is how the bodies begin that have an outline.
var documentsFirst = regexp.MustCompile(`^\s*{\s*"documents"\s*:\s*\[`)

// outlineOf returns a body with each of its documents replaced by {}, and the documents.
// They and the outline are valid JSON if and only if the body is. It returns nil unless the
// body begins with documents, all of them objects, and has no other field of that name.
func outlineOf(body []byte) (outline []byte, documents [][]byte) {
	const space = " \t\r\n"
	first := documentsFirst.FindIndex(body)
	if first == nil {
		return nil, nil
	}
	for rest := body[first[1]:]; ; {
		rest = bytes.TrimLeft(rest, space)
		length := objectLength(rest)
		if length == 0 {
			return nil, nil
		}
		documents = append(documents, rest[:length:length])
		rest = bytes.TrimLeft(rest[length:], space)
		if bytes.HasPrefix(rest, []byte(",")) {
			rest = rest[1:]
			continue
		}
		if !bytes.HasPrefix(rest, []byte("]")) || bytes.Contains(rest, []byte(`\`)) || bytes.Contains(bytes.ToLower(rest), []byte("documents")) {
			return nil, nil
		}
		outline = append(outline, body[:first[1]]...)
		outline = append(outline, bytes.Repeat([]byte(",{}"), len(documents))[1:]...)
		return append(outline, rest...), documents
	}
}

// objectLength returns the length of the object at the beginning of a text, 0 for none. The
// text between its brackets need not be JSON.
func objectLength(text []byte) int {
	if !bytes.HasPrefix(text, []byte("{")) {
		return 0
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
