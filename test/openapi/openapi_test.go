// Package openapi validates the description of the API by the schema of OpenAPI
// 3.1. It is a module of its own, because of the libraries for that; a test of
// internal/server/httpapi sees to it that what is validated is what a server says.
package openapi

import (
	"os"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
)

// mistakes returns what is wrong with a description.
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

func TestTheDescriptionIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes(t, text) {
		t.Error(m)
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
