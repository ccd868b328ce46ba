// Package openapi validates the descriptions of the API by the schemas of OpenAPI 3.1 and 3.0. It
// is a module of its own, because of the libraries for that; a test of internal/server/httpapi
// checks that servers return these descriptions.
package openapi

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
)

// mistakes returns the mistakes of a description.
func mistakes(t *testing.T, text []byte) (list []string) {
	t.Helper()
	document, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(document)
	for _, err := range errs {
		list = append(list, err.Error())
	}
	if len(list) > 0 {
		return list
	}
	_, wrong := v.ValidateDocument()
	for _, w := range wrong {
		list = append(list, w.Error())
		for _, s := range w.SchemaValidationErrors {
			list = append(list, s.Location+": "+s.Reason)
		}
	}
	return list
}

func TestTheDescriptionsAreValid(t *testing.T) {
	for _, name := range []string{"openapi.json", "openapi-3.0.json"} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mistakes(t, text) {
			t.Errorf("%s: %s", name, m)
		}
	}
}

// keywords30 are the keywords of OpenAPI 3.0 schemas; linters and generators refuse others.
var keywords30 = strings.Fields(`$ref additionalProperties allOf anyOf default deprecated description discriminator enum example exclusiveMaximum
	exclusiveMinimum format items maxItems maxLength maxProperties maximum minItems minLength minProperties minimum multipleOf not nullable oneOf
	pattern properties readOnly required title type uniqueItems writeOnly`)

// keywords are the keywords of OpenAPI 3.1 schemas.
var keywords = slices.Concat(keywords30, strings.Fields(`$defs $id $schema const contains contentEncoding contentMediaType dependentRequired else
	examples if patternProperties prefixItems propertyNames then`))

// unknownKeywords returns the unknown keywords of a schema and its parts.
func unknownKeywords(at string, schema any, keywords []string) (list []string) {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if _, several := s["type"].([]any); several && !slices.Contains(keywords, "const") {
		list = append(list, at+": a list of types")
	}
	for key, value := range s {
		if !slices.Contains(keywords, key) && !strings.HasPrefix(key, "x-") {
			list = append(list, at+": "+key)
		}
		switch key {
		case "properties", "patternProperties", "$defs":
			for name, inner := range value.(map[string]any) {
				list = append(list, unknownKeywords(at+"."+name, inner, keywords)...)
			}
		case "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames":
			list = append(list, unknownKeywords(at+"."+key, value, keywords)...)
		case "allOf", "anyOf", "oneOf", "prefixItems":
			for _, inner := range value.([]any) {
				list = append(list, unknownKeywords(at+"."+key, inner, keywords)...)
			}
		}
	}
	return list
}

func TestSchemasHaveOnlyKeywordsOfOpenAPI(t *testing.T) {
	for name, keywords := range map[string][]string{"openapi.json": keywords, "openapi-3.0.json": keywords30} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		for at, schema := range d.Components.Schemas {
			for _, unknown := range unknownKeywords(at, schema, keywords) {
				t.Errorf("%s: %s is no keyword of its OpenAPI", name, unknown)
			}
		}
		if len(d.Components.Schemas) < 100 || len(unknownKeywords("x", map[string]any{"items": map[string]any{"patternDescription": "y"}}, keywords)) != 1 {
			t.Error("schemas are not looked through")
		}
	}
}

func TestInvalidDescriptionIsDetected(t *testing.T) {
	for name, text := range map[string]string{
		"a response without a description": `{"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {"/a": {"get": {"responses": {"200": {}}}}}}`,
		"a parameter that is nowhere":      `{"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {"/a": {"get": {"parameters": [{"name": "b", "in": "nowhere", "schema": {}}], "responses": {}}}}}`,
		"no version":                       `{"openapi": "3.1.0", "info": {"title": "x"}, "paths": {}}`,
	} {
		if len(mistakes(t, []byte(text))) == 0 {
			t.Errorf("%s is not seen", name)
		}
	}
}
