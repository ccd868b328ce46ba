package compat_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/check/compat"
)

// intended are differences to the last release that break callers or documents on purpose, with the reason. A release empties it.
var intended = map[string]string{}

// released are the descriptions of the last release; before the first one, those of 30 November 2026. UPDATE=release writes them, when
// a release is made.
var released = []struct {
	name, now string
	compare   func(before, after []byte) ([]string, error)
}{
	{"openapi.json.gz", "../../../docs/openapi.json", compat.API},
	{"schema.json.gz", "../../../job/testdata/schema.json", compat.Schema},
}

func TestNothingThatWasReleasedBreaks(t *testing.T) {
	var found []string
	for _, r := range released {
		now, err := os.ReadFile(r.now)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", r.name)
		if os.Getenv("UPDATE") == "release" {
			pack(t, file, now)
		}
		breaks, err := r.compare(unpack(t, file), now)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		found = append(found, breaks...)
	}
	for _, text := range found {
		if intended[text] == "" {
			t.Errorf("%s\n\tThis breaks callers of the last release. Keep the old form beside the new one, or give it a line in the variable intended and in CHANGELOG.md.", text)
		}
	}
	for text := range intended {
		if !slices.Contains(found, text) {
			t.Errorf("%s: intended, and no difference", text)
		}
	}
}

func pack(t *testing.T, file string, text []byte) {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// an API with one of each.
const api = `{"paths": {
 "/jobs": {"get": {"security": [{"token": ["viewer"]}],
   "parameters": [{"in": "query", "name": "limit", "schema": {"type": "integer", "maximum": 100}}, {"in": "query", "name": "state", "schema": {"type": "string", "enum": ["on", "off"]}}],
   "responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}}}}},
  "post": {"security": [{"token": ["runner"]}], "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}}}, "responses": {"201": {}, "409": {}}}},
 "/nodes": {"get": {"responses": {"200": {}}}}},
 "components": {"schemas": {"Job": {"type": "object", "required": ["name"], "additionalProperties": true,
  "properties": {"name": {"type": "string", "maxLength": 63}, "after": {"$ref": "#/components/schemas/Job"}, "every": {"type": ["string", "null"]}, "size": {"type": "number"}}}}}}`

func TestEachKindOfBreakIsNamed(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"/nodes"`, `"/members"`, "/nodes: is gone"},
		{`"post"`, `"put"`, "POST /jobs: is gone"},
		{`["viewer"]`, `["admin"]`, `GET /jobs: needs the role "admin", it was "viewer"`},
		{`"name": "limit"`, `"name": "max"`, "GET /jobs: the query parameter limit is gone"},
		{`"name": "limit",`, `"name": "limit", "required": true,`, "GET /jobs: the query parameter limit is required"},
		{`"maximum": 100`, `"maximum": 99`, "GET /jobs query parameter limit: maximum is 99, it was 100"},
		{`["on", "off"]`, `["on"]`, "GET /jobs query parameter state: the value off is refused"},
		{`"requestBody": {`, `"requestBody": {"required": true, `, "POST /jobs: needs a body"},
		{`"201"`, `"202"`, "POST /jobs: answers 201 no more"},
		{`"required": ["name"]`, `"required": ["name", "size"]`, "Job: the field size is required"},
		{`"required": ["name"]`, `"required": []`, "Job: the field name may be missing"},
		{`"every": {"type": ["string", "null"]}`, `"each": {}`, "Job: the field every is gone"},
		{`["string", "null"]`, `"string"`, "Job.every: its type is [string], it was [string null]"},
		{`"type": "number"`, `"type": "integer"`, "Job.size: its type is [integer], it was [number]"},
		{`"maxLength": 63`, `"maxLength": 63, "pattern": "^a"`, "Job.name: pattern is another one"},
		{`"additionalProperties": true`, `"additionalProperties": false`, "Job: additionalProperties are refused"},
		{`{"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}}}, "responses": {"201"`, `{"content": {"text/plain": {}}}, "responses": {"201"`, "POST /jobs body: application/json is gone"},
		// What breaks none.
		{`["runner"]`, `["viewer"]`, ""},
		{`"maximum": 100`, `"maximum": 1000`, ""},
		{`["on", "off"]`, `["on", "off", "none"]`, ""},
		{`"409": {}`, `"422": {}`, ""},
		{`"size": {"type": "number"}`, `"size": {"type": "number"}, "more": {"type": "string"}`, ""},
		{`"/nodes"`, `"/members": {}, "/nodes"`, ""},
	} {
		if strings.Count(api, c.from) != 1 {
			t.Fatalf("%s is %d times in the API", c.from, strings.Count(api, c.from))
		}
		found, err := compat.API([]byte(api), []byte(strings.Replace(api, c.from, c.to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" && len(found) > 0 || c.want != "" && !slices.Contains(found, c.want) {
			t.Errorf("%s to %s: found %q, want %q", c.from, c.to, found, c.want)
		}
	}
}

func TestASchemaThatAcceptsLessIsNamed(t *testing.T) {
	const before = `{"$ref": "#/$defs/Job", "$defs": {"Job": {"properties": {"run": {"oneOf": [{"type": "string"}, {"type": "object"}]}, "kind": {"type": "string"}}}}}`
	for _, c := range []struct{ from, to, want string }{
		{`{"type": "string"}, {"type": "object"}`, `{"type": "string"}`, "Job.run: oneOf has 1 forms, it had 2"},
		{`"kind": {"type": "string"}`, `"kind": {"type": "string", "enum": ["job"]}`, "Job.kind: only some values are accepted"},
		{`"kind"`, `"sort"`, "Job: the field kind is gone"},
	} {
		found, err := compat.Schema([]byte(before), []byte(strings.Replace(before, c.from, c.to, 1)))
		if err != nil || !slices.Equal(found, []string{c.want}) {
			t.Errorf("%s to %s: found %q, want %q, error %v", c.from, c.to, found, c.want, err)
		}
	}
}
