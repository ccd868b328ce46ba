package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store/memory"
)

// described is the description of the API, as a client has it.
type described struct {
	tree       map[string]any
	tree30     map[string]any        // in OpenAPI 3.0
	operations map[string]*operation // by pattern: "GET /api/v1/jobs"
	mux        http.ServeMux         // finds the pattern of a request

	mu       sync.Mutex // guards what is below
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by URL
	seen     map[string]map[string]bool    // by pattern, the statuses that were answered
}

// operation is one of the description.
type operation struct {
	pattern, method, path string
	pointer               string // where it is
	node                  map[string]any
}

// theDescription is read once: it is the same for all servers.
var theDescription = sync.OnceValues(readDescription)

func description(t testing.TB) *described {
	t.Helper()
	d, err := theDescription()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	descriptionURL   = "https://belfry.test/openapi.json"
	description30URL = "https://belfry.test/openapi-3.0.json"
)

func readDescription() (*described, error) {
	s := memory.New(memory.Options{})
	tokens := auth.New(s, nil)
	behind, err := service.New(service.Config{Store: s, Tokens: tokens})
	if err != nil {
		return nil, err
	}
	text, text30, err := httpapi.Descriptions(httpapi.Config{Service: behind, Workers: host.New(host.Config{Store: s, Tokens: tokens}), Tokens: tokens, Metrics: http.NotFoundHandler(), Version: "test"})
	if err != nil {
		return nil, err
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	tree30, err := jsonschema.UnmarshalJSON(bytes.NewReader(text30))
	if err != nil {
		return nil, err
	}
	d := &described{
		tree: tree.(map[string]any), tree30: tree30.(map[string]any), operations: map[string]*operation{},
		compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, seen: map[string]map[string]bool{},
	}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(descriptionURL, tree); err != nil {
		return nil, err
	}
	strict, err := jsonschema.UnmarshalJSON(bytes.NewReader(text30))
	if err != nil {
		return nil, err
	}
	if err := d.compiler.AddResource(description30URL, withNulls(strict)); err != nil {
		return nil, err
	}
	for at, item := range d.tree["paths"].(map[string]any) {
		for method, node := range item.(map[string]any) {
			o := &operation{
				method: strings.ToUpper(method), path: at,
				pointer: pointer("paths", at, method), node: node.(map[string]any),
			}
			o.pattern = o.method + " " + at
			d.operations[o.pattern] = o
			d.mux.Handle(o.pattern, http.NotFoundHandler())
		}
	}
	return d, nil
}

// withNulls returns schemas of OpenAPI 3.0 as JSON Schema, which has no nullable.
func withNulls(tree any) any {
	switch t := tree.(type) {
	case map[string]any:
		if t["nullable"] == true {
			t["type"] = []any{t["type"], "null"}
		}
		for _, value := range t {
			withNulls(value)
		}
	case []any:
		for _, value := range t {
			withNulls(value)
		}
	}
	return tree
}

// pointer makes a JSON pointer.
func pointer(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return b.String()
}

// at follows a pointer, and references.
func (d *described) at(pointer string) (map[string]any, string) {
	node := any(d.tree)
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch n := node.(type) {
		case map[string]any:
			node = n[part]
		case []any:
			i, _ := strconv.Atoi(part)
			node = n[i]
		}
	}
	found, _ := node.(map[string]any)
	if ref, ok := found["$ref"].(string); ok {
		return d.at(strings.TrimPrefix(ref, "#"))
	}
	return found, pointer
}

// schema returns the schema at a pointer into a description.
func (d *described) schema(t testing.TB, description, pointer string) *jsonschema.Schema {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	url := description + "#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(pointer)
	if s := d.schemas[url]; s != nil {
		return s
	}
	s, err := d.compiler.Compile(url)
	if err != nil {
		t.Fatalf("the schema at %s: %v", pointer, err)
	}
	d.schemas[url] = s
	return s
}

// operationOf returns the operation that a request is for; nil if there is none.
func (d *described) operationOf(r *http.Request) *operation {
	if path.Clean(r.URL.EscapedPath()) != r.URL.EscapedPath() {
		return nil
	}
	_, pattern := d.mux.Handler(r)
	return d.operations[pattern]
}

// check compares an answer with what the description says: its status, its type,
// its headers and all that is in it.
func (d *described) check(t testing.TB, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	// A wrong request outside of any operation is a problem as well.
	at, what := "/components/schemas/Problem", r.Method+" "+r.URL.String()
	kind, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if r.URL.Path == "/mcp" && kind != "application/problem+json" {
		return // the protocol of assistants describes itself
	}
	o := d.operationOf(r)
	if o == nil || r.Method == http.MethodHead {
		if kind != "application/problem+json" {
			t.Errorf("%s is no operation, and is answered with %d, %s", what, w.Code, kind)
			return
		}
	} else {
		status := strconv.Itoa(w.Code)
		d.mu.Lock()
		if d.seen[o.pattern] == nil {
			d.seen[o.pattern] = map[string]bool{}
		}
		d.seen[o.pattern][status] = true
		d.mu.Unlock()
		responses := o.node["responses"].(map[string]any)
		if responses[status] == nil {
			t.Errorf("%s: the status %d is not described, which has %v: %s", what, w.Code, slices.Sorted(maps.Keys(responses)), w.Body)
			return
		}
		response, where := d.at(o.pointer + pointer("responses", status))
		headers, _ := response["headers"].(map[string]any)
		if tag := w.Header().Get("ETag"); tag != "" && headers["ETag"] == nil {
			t.Errorf("%s: the status %d has an ETag, which is not described", what, w.Code)
		}
		content, _ := response["content"].(map[string]any)
		if content == nil {
			if w.Body.Len() > 0 {
				t.Errorf("%s: the status %d has no content by its description, and it has %s", what, w.Code, w.Body)
			}
			return
		}
		if content[kind] == nil {
			t.Errorf("%s: the status %d has the type %s, and may have %v", what, w.Code, kind, slices.Sorted(maps.Keys(content)))
			return
		}
		at = where + pointer("content", kind, "schema")
	}
	var value any
	var err error
	switch kind {
	case "application/json", "application/problem+json":
		value, err = jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
	case "text/event-stream":
		value, err = eventsOf(w.Body.String())
	default:
		value = w.Body.String()
	}
	for _, form := range []string{descriptionURL, description30URL} {
		if err == nil {
			err = d.schema(t, form, at).Validate(value)
		}
	}
	if err != nil {
		t.Errorf("%s: the answer %d does not match its description: %v\n%s", what, w.Code, err, w.Body)
	}
}

// eventsOf returns server-sent events as the description has them.
func eventsOf(text string) (any, error) {
	list := []any{}
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		event := map[string]any{}
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "data":
				data, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
				if err != nil {
					return nil, err
				}
				event["data"] = data
			case "": // a comment
			default:
				event[field] = value
			}
		}
		if event["data"] != nil {
			list = append(list, event)
		}
	}
	return list, nil
}

// UPDATE=1 go test ./internal/server/httpapi writes it, for those who look at it without a
// server, and for test/openapi.
func TestOpenAPIDescriptionIsInTheDocumentation(t *testing.T) {
	for name, tree := range map[string]any{"openapi.json": description(t).tree, "openapi-3.0.json": description(t).tree30} {
		name = "../../../docs/" + name
		want, err := json.MarshalIndent(tree, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		got, err := os.ReadFile(name)
		if bytes.Equal(got, want) {
			continue
		}
		if os.Getenv("UPDATE") == "" {
			t.Errorf("%s is not what a server says, %v; after UPDATE=1 go test ./internal/server/httpapi look at its difference", name, err)
			continue
		}
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// It is written at the first request, beside others.
func TestOpenAPIDescriptionIsServed(t *testing.T) {
	s := newServer(t)
	var group sync.WaitGroup
	for path, tree := range map[string]any{"/openapi.json": description(t).tree, "/openapi-3.0.json": description(t).tree30} {
		for range 2 {
			group.Go(func() {
				answer := s.call("GET", path, "")
				got, err := jsonschema.UnmarshalJSON(answer.Body)
				if err != nil || answer.Code != http.StatusOK || !reflect.DeepEqual(got, tree) {
					t.Errorf("%s: the status is %d and the answer is another one, %v", path, answer.Code, err)
				}
			})
			group.Go(func() { s.call("GET", "/api/v1/jobs", "") })
		}
	}
	group.Wait()
}

func TestOpenAPIDescriptionHasEachRoute(t *testing.T) {
	d, routes := description(t), allPatterns(t)
	for _, pattern := range routes {
		if d.operations[pattern] == nil && pattern != "/" && pattern != "POST /mcp" {
			t.Errorf("%s is not described", pattern)
		}
	}
	for pattern := range d.operations {
		if !slices.Contains(routes, pattern) {
			t.Errorf("%s is described, and there is no such route", pattern)
		}
	}
}

func TestOpenAPIDescriptionSuitsClientGenerators(t *testing.T) {
	d := description(t)
	if d.tree["openapi"] != "3.1.0" {
		t.Errorf("the version is %v", d.tree["openapi"])
	}
	tags := map[string]bool{}
	for _, tag := range d.tree["tags"].([]any) {
		tags[tag.(map[string]any)["name"].(string)] = false
	}
	requires := map[string]httpapi.Route{}
	for _, r := range allRoutes(t) {
		requires[r.Pattern] = r
	}
	ids := map[any]string{}
	for pattern, o := range d.operations {
		id := o.node["operationId"]
		if before := ids[id]; id == nil || before != "" {
			t.Errorf("%s has the id %v, which %q has too", pattern, id, before)
		}
		ids[id] = pattern
		if o.node["summary"] == nil {
			t.Errorf("%s has no summary", pattern)
		}
		tag := o.node["tags"].([]any)[0].(string)
		if _, known := tags[tag]; !known {
			t.Errorf("%s is about %q, which is not described", pattern, tag)
		}
		tags[tag] = true

		want := `[{"token":["` + string(requires[pattern].Right.Role) + `"]}]`
		if requires[pattern].Public {
			want = `[]`
		}
		if got, err := json.Marshal(o.node["security"]); err != nil || string(got) != want {
			t.Errorf("%s has the security %s, %v, want %s", pattern, got, err, want)
		}
		has := map[string]bool{}
		parameters, _ := o.node["parameters"].([]any)
		for _, p := range parameters {
			p := p.(map[string]any)
			has[p["name"].(string)] = true
			if p["description"] == nil {
				t.Errorf("%s: the parameter %v has no description", pattern, p["name"])
			}
		}
		responses := o.node["responses"].(map[string]any)
		if has["If-Match"] && responses["412"] == nil {
			t.Errorf("%s takes If-Match and has no status 412", pattern)
		}
		if o.node["requestBody"] != nil && (responses["413"] == nil || responses["415"] == nil || responses["422"] == nil) {
			t.Errorf("%s takes a body and has not all problems of one", pattern)
		}
		for status := range responses {
			response, _ := d.at(o.pointer + pointer("responses", status))
			content, _ := response["content"].(map[string]any)
			if status[0] != '2' && content["application/problem+json"] == nil && content["text/plain"] == nil {
				t.Errorf("%s: the status %s is no problem", pattern, status)
			}
		}
	}
	for tag, used := range tags {
		if !used {
			t.Errorf("no operation is about %s", tag)
		}
	}
}

func TestOpenAPIDescriptionIsComplete(t *testing.T) {
	d := description(t)
	used := map[string]bool{}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[strings.TrimPrefix(ref, "#")] = true
				if node, _ := d.at(strings.TrimPrefix(ref, "#")); node == nil {
					t.Errorf("%s leads to %s, where there is nothing", where, ref)
				}
			}
			for key, inner := range v {
				if strings.HasPrefix(key, "x-") {
					t.Errorf("%s has %s, which no other schema has", where, key)
				}
				walk(where+pointer(key), inner)
			}
		case []any:
			for i, inner := range v {
				walk(fmt.Sprintf("%s/%d", where, i), inner)
			}
		}
	}
	walk("", d.tree)
	components := d.tree["components"].(map[string]any)
	for _, part := range []string{"schemas", "responses"} {
		for name := range components[part].(map[string]any) {
			if at := pointer("components", part, name); !used[at] {
				t.Errorf("nothing names %s", at)
			} else if part == "schemas" {
				d.schema(t, descriptionURL, at)
			}
		}
	}
}

// The tables of docs/api.md are written for people, and say of each route what it is
// for. In them …/ stands for the path of a job, and … for the path before it.
func TestTheGuideNamesEachRoute(t *testing.T) {
	const guide = "../../../docs/api.md"
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	before := ""
	for _, m := range regexp.MustCompile("`(GET|POST|PUT|DELETE) ([^` ?]+)[^`]*`").FindAllStringSubmatch(string(text), -1) {
		path := m[2]
		if path == "…" {
			path = before
		} else if rest, of := strings.CutPrefix(path, "…/"); of {
			path = "/jobs/{namespace}/{name}/" + rest
		}
		before = path
		named[m[1]+" "+path] = true
	}
	there := map[string]bool{}
	for _, pattern := range allPatterns(t) {
		if pattern == "/" {
			continue // what answers where there is nothing
		}
		route := strings.Replace(pattern, " /api/v1/", " /", 1)
		if there[route] = true; !named[route] {
			t.Errorf("%s does not name %s", guide, route)
		}
	}
	for route := range named {
		if !there[route] {
			t.Errorf("%s names %s, and there is no such route", guide, route)
		}
	}
}
