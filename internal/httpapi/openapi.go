package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// humaConfig is how the routes' library is used: JSON only, no pages of its own,
// unknown parameters are mistakes.
func (a *api) humaConfig() huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	registry.RegisterTypeAlias(reflect.TypeFor[client.Document](), reflect.TypeFor[document]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Belfry", Version: a.Version, Description: "A distributed crontab."},
			Components: &huma.Components{
				Schemas:         registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{fromLibrary},
	}
}

// document stands for client.Document in the description of the API.
type document struct{}

// documentMark is what the schema of a document is recognised by.
const documentMark = "x-belfry-document"

// Schema returns a stand-in, which describe replaces.
func (document) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Extensions: map[string]any{documentMark: true},
	}
}

// describe writes the description of the API. The schemas of documents are those
// of package job.
func (a *api) describe() ([]byte, error) {
	for _, item := range a.huma.OpenAPI().Paths {
		for _, operation := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if operation != nil {
				a.describeProblems(operation)
			}
		}
	}
	data, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	var documents map[string]any
	renamed := strings.ReplaceAll(string(job.Schema()), `"#/$defs/`, `"#/components/schemas/Document`)
	if err := json.Unmarshal([]byte(renamed), &documents); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	schemas := tree["components"].(map[string]any)["schemas"].(map[string]any)
	for name, schema := range documents["$defs"].(map[string]any) {
		schemas["Document"+name] = schema
	}
	delete(documents, "$defs")
	delete(documents, "$schema")
	delete(documents, "$id")
	schemas["Document"] = documents
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	return json.MarshalIndent(withDocuments(tree), "", "  ")
}

// withDocuments replaces the stand-ins for documents.
func withDocuments(tree any) any {
	switch t := tree.(type) {
	case map[string]any:
		if t[documentMark] != nil {
			return map[string]any{"$ref": "#/components/schemas/Document"}
		}
		for key, value := range t {
			t[key] = withDocuments(value)
		}
	case []any:
		for i, value := range t {
			t[i] = withDocuments(value)
		}
	}
	return tree
}

// describeProblems says that everything that is no success is a problem.
func (a *api) describeProblems(operation *huma.Operation) {
	for code := range operation.Responses {
		if !strings.HasPrefix(code, "2") {
			delete(operation.Responses, code)
		}
	}
	schema := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[client.Problem](), true, "Problem")
	operation.Responses["default"] = &huma.Response{
		Description: "A problem: its type is a stable name, and errors hold the place of each mistake.",
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
	}
}
