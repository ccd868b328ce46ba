package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// writeDescription30 writes the description in the form of OpenAPI 3.0, for generators of clients that do not read 3.1. Where
// a document may hold a text as a number, which YAML makes of digits, this form has the text: the API answers with it.
func (a *api) writeDescription30() ([]byte, error) {
	description, err := a.document()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(description, &tree); err != nil {
		return nil, fmt.Errorf("describe the API in OpenAPI 3.0: %w", err)
	}
	tree["openapi"] = "3.0.3"
	tree["info"].(map[string]any)["license"] = map[string]any{"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
	for _, item := range tree["paths"].(map[string]any) {
		for _, operation := range item.(map[string]any) {
			rolesInWords(operation.(map[string]any))
		}
	}
	for _, schema := range tree["components"].(map[string]any)["schemas"].(map[string]any) {
		schema30(schema)
	}
	eachSchema(tree["paths"])
	eachSchema(tree["components"].(map[string]any)["responses"])
	return json.MarshalIndent(tree, "", "  ")
}

// rolesInWords moves the role that an operation requires into its description: in OpenAPI 3.0, only OAuth has scopes.
func rolesInWords(operation map[string]any) {
	for _, security := range operation["security"].([]any) {
		roles := security.(map[string]any)["token"].([]any)
		security.(map[string]any)["token"] = []any{}
		text, _ := operation["description"].(string)
		operation["description"] = strings.TrimSpace(fmt.Sprintf("%s\n\nThe least role: %s.", text, roles[0]))
	}
}

// eachSchema rewrites the schemas of operations and responses.
func eachSchema(tree any) {
	switch t := tree.(type) {
	case map[string]any:
		for key, value := range t {
			if key == "schema" {
				schema30(value)
			} else {
				eachSchema(value)
			}
		}
	case []any:
		for _, value := range t {
			eachSchema(value)
		}
	}
}

// schema30 rewrites a schema, and the schemas in it, with the keywords of OpenAPI 3.0.
func schema30(tree any) {
	s, ok := tree.(map[string]any)
	if !ok {
		return // true or false
	}
	conditionsToChoice(s)
	if values, ok := s["properties"].(map[string]any); ok {
		for _, value := range values {
			schema30(value)
		}
	}
	for _, key := range []string{"items", "additionalProperties", "not"} {
		schema30(s[key])
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		choices, _ := s[key].([]any)
		for _, choice := range choices {
			schema30(choice)
		}
	}
	if types, ok := s["type"].([]any); ok {
		if slices.Contains(types, any("null")) {
			s["nullable"] = true
		}
		s["type"] = types[0]
	}
	if value, ok := s["const"]; ok {
		delete(s, "const")
		s["enum"] = []any{value}
	}
	if s["contentEncoding"] == "base64" {
		delete(s, "contentEncoding")
		s["format"] = "byte"
	}
	textOfChoice(s)
	if ref, ok := s["$ref"]; ok && len(s) > 1 {
		delete(s, "$ref") // beside which 3.0 ignores all others
		s["allOf"] = []any{map[string]any{"$ref": ref}}
	}
}

// conditionsToChoice makes a choice of if, then and else, which choose between documents by their kind.
func conditionsToChoice(s map[string]any) {
	var choices []any
	for at := s; at["if"] != nil; {
		otherwise := at["else"].(map[string]any)
		choices = append(choices, at["then"])
		if otherwise["if"] == nil {
			choices = append(choices, otherwise)
		}
		at = otherwise
	}
	if choices == nil {
		return
	}
	for _, key := range []string{"if", "then", "else"} {
		delete(s, key)
	}
	s["anyOf"] = choices
}

// textOfChoice makes a text of a choice between a text and the number 0, which is a duration without a unit.
func textOfChoice(s map[string]any) {
	choices, _ := s["anyOf"].([]any)
	if len(choices) != 2 {
		return
	}
	number, _ := choices[1].(map[string]any)["enum"].([]any)
	if text := choices[0].(map[string]any); text["type"] == "string" && len(number) == 1 && number[0] == 0.0 {
		delete(s, "anyOf")
		for key, value := range text {
			s[key] = value
		}
	}
}
