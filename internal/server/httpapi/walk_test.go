package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/belfry-cron/belfry/client"
)

// ask makes a request in a world of its own. The answer must be described, no
// failure of the server and, if it is a refusal, have changed nothing.
func ask(t *testing.T, o *operation, change func(w *world) *http.Request) (*httptest.ResponseRecorder, client.Problem) {
	t.Helper()
	w := newWorld(t)
	before := w.changes()
	r := change(w)
	answer := w.answer(r)
	var p client.Problem
	if answer.Code < 400 {
		return answer, p
	}
	what := r.Method + " " + r.URL.String()
	if answer.Code >= 500 && !o.endless() {
		t.Errorf("%s: the status is %d: %s", what, answer.Code, answer.Body)
	}
	if now := w.changes(); now != before {
		t.Errorf("%s is refused with %d, and has changed something", what, answer.Code)
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil {
		t.Errorf("%s: %v: %s", what, err, answer.Body)
	}
	return answer, p
}

// endless reports whether the answers of an operation have no end. The worlds have
// nothing to tell there, and say so with the status 503.
func (o *operation) endless() bool {
	succeeded, _ := o.node["responses"].(map[string]any)["200"].(map[string]any)
	content, _ := succeeded["content"].(map[string]any)
	return len(content) == 1 && content["text/event-stream"] != nil
}

// sorted returns the operations of the description in order.
func (d *described) sorted() (list []*operation) {
	for _, pattern := range slices.Sorted(maps.Keys(d.operations)) {
		list = append(list, d.operations[pattern])
	}
	return list
}

func TestOperationsFollowTheirDescriptions(t *testing.T) {
	for _, o := range description(t).sorted() {
		if strings.HasPrefix(o.path, "/hooks/") {
			continue // TestHooksKnowTheSignaturesOfTheProviders signs
		}
		bodies := []string{""}
		if o.node["requestBody"] != nil {
			bodies = examples(t, o)
		}
		for _, body := range bodies {
			answer, _ := ask(t, o, func(w *world) *http.Request { return w.request(o, w.target(o), body) })
			if answer.Code >= 300 && o.path != "/api/v1/schedules:preview" && !o.endless() {
				t.Errorf("%s with %s has the status %d: %s", o.pattern, body, answer.Code, answer.Body)
			}
		}
	}
}

// Each value of a body is taken away, and exchanged for others. What the schema
// refuses the server refuses as well, and says where it is.
func TestBodiesThatTheDescriptionRefusesAreRefused(t *testing.T) {
	d := description(t)
	every := oneOf(7)
	for _, o := range d.sorted() {
		if o.node["requestBody"] == nil {
			continue
		}
		at := o.pointer + "/requestBody/content/application~1json/schema"
		schema, tried, refused := d.schema(t, descriptionURL, at), 0, 0
		for _, example := range examples(t, o) {
			if example == "" {
				continue
			}
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(example))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(value); err != nil {
				t.Errorf("%s: an example does not match the schema: %v\n%s", o.pattern, err, example)
			}
			variants(value, func(where string, other any) {
				if tried++; tried%every != 0 {
					return
				}
				body, err := json.Marshal(value)
				if err != nil {
					t.Fatal(err)
				}
				wrong := schema.Validate(value)
				answer, p := ask(t, o, func(w *world) *http.Request { return w.request(o, w.target(o), string(body)) })
				if wrong != nil {
					refused++
					// Documents take null for what is left out.
					if other != nil && answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest {
						t.Errorf("%s: the schema refuses what is at %s, and the status is %d: %v\n%s", o.pattern, where, answer.Code, wrong, body)
					}
				}
				for _, e := range p.Errors {
					if e.Pointer != "" && !leads(value, e.Pointer) {
						t.Errorf("%s: the mistake at %s is said to be at %s, where there is nothing: %s\n%s", o.pattern, where, e.Pointer, answer.Body, body)
					}
				}
				if answer.Code == http.StatusUnprocessableEntity && len(p.Errors) == 0 {
					t.Errorf("%s: no mistake is named: %s\n%s", o.pattern, answer.Body, body)
				}
			})
		}
		t.Logf("%s: %d bodies, %d against the schema", o.pattern, tried/every, refused)
		if refused == 0 && tried > every && o.node["operationId"] != "signal-run" { // whose data may be anything
			t.Errorf("%s: no body was made that the schema refuses", o.pattern)
		}
	}
}

// oneOf returns of how many variants a walk takes one: 1 for make test-long. A place has 22 variants or so, which makes
// each place have others.
func oneOf(variants int) int {
	switch {
	case os.Getenv("BELFRY_WALKS") == "whole":
		return 1
	case testing.Short():
		return 23
	}
	return variants
}

// leads reports whether a pointer leads to a value, or to a place in an object
// that is there.
func leads(value any, pointer string) bool {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for _, part := range parts {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := value.(type) {
		case map[string]any:
			inner, found := v[part]
			if !found || inner == nil {
				return true // it is missing
			}
			value = inner
		case []any:
			index, err := strconv.Atoi(part)
			if err != nil || index < 0 || index >= len(v) {
				return false
			}
			value = v[index]
		default:
			return false
		}
	}
	return true
}

// strange are the values that each value is exchanged for.
var strange = []any{
	nil, true, json.Number("-1"), json.Number("0"), json.Number("1.5"), json.Number("1e400"), json.Number("9223372036854775808"),
	"", " ", "text", "\x00", "\uFFFD{{", "a/b", "1999-01-01T00:00:00Z", "9999-12-31T23:59:59Z", strings.Repeat("x", 2000), []any{}, []any{nil}, []any{"text", json.Number("1")},
	map[string]any{}, map[string]any{"unknown": true},
}

// variants changes each value that is inside of a value, and calls visit with
// where it has, and for what: nil for what was taken away.
func variants(value any, visit func(where string, other any)) {
	var walk func(where string, inner any, set func(any))
	walk = func(where string, inner any, set func(any)) {
		if set != nil {
			for _, other := range strange {
				set(other)
				visit(where, other)
			}
			set(inner)
		}
		switch v := inner.(type) {
		case map[string]any:
			v["no_such_field"] = "x"
			visit(where+"/no_such_field", "x")
			delete(v, "no_such_field")
			for _, key := range slices.Sorted(maps.Keys(v)) {
				had := v[key]
				delete(v, key)
				visit(where+pointer(key), nil)
				v[key] = had
				walk(where+pointer(key), had, func(other any) { v[key] = other })
			}
		case []any:
			for i := range v {
				walk(fmt.Sprintf("%s/%d", where, i), v[i], func(other any) { v[i] = other })
			}
		}
	}
	walk("", value, nil)
}

func TestMalformedBodiesAreRefused(t *testing.T) {
	for _, o := range description(t).sorted() {
		node, _ := o.node["requestBody"].(map[string]any)
		if node == nil {
			continue
		}
		deep := strings.Repeat("[", 10_001) // deeper than encoding/json reads
		tooDeep := http.StatusRequestEntityTooLarge
		if strings.HasSuffix(o.pattern, ":apply") || strings.HasSuffix(o.pattern, ":check") || o.node["operationId"] == "create-job" || o.method == http.MethodPut {
			tooDeep = http.StatusBadRequest // it is within the limits of the route
		}
		switch o.node["operationId"] {
		case "add-past-runs", "worker-join", "worker-claim", "worker-release", "worker-finish", "worker-output", "worker-versions":
			tooDeep = http.StatusBadRequest
		}
		for _, tt := range []struct {
			body, kind string
			want       int
		}{
			{`{`, "application/json", 400}, {`nonsense`, "application/json", 400}, {`{} {}`, "application/json", 400},
			{deep, "application/json", tooDeep}, {`{"name": ` + deep, "application/json", tooDeep},
			{"\xff\xfe", "application/json", 400}, {"\xef\xbb\xbf{}", "application/json", 400},
			{`[]`, "application/json", 422}, {`"text"`, "application/json", 422}, {`1`, "application/json", 422},
			{`{}`, "text/plain", 415}, {`{}`, "application/x-www-form-urlencoded", 415}, {`{}`, "nonsense;;", 415},
		} {
			answer, _ := ask(t, o, func(w *world) *http.Request {
				return w.request(o, w.target(o), tt.body, "Content-Type", tt.kind)
			})
			if answer.Code != tt.want {
				t.Errorf("%s with %.40q as %s has the status %d, want %d: %s", o.pattern, tt.body, tt.kind, answer.Code, tt.want, answer.Body)
			}
		}
		required := node["required"] == true
		if answer, _ := ask(t, o, func(w *world) *http.Request { return w.request(o, w.target(o), "") }); (answer.Code < 300) == required {
			t.Errorf("%s without a body has the status %d, and one is required: %t", o.pattern, answer.Code, required)
		}
	}
}

// Each parameter has values at its bounds and beyond.
func TestParametersThatTheDescriptionRefusesAreRefused(t *testing.T) {
	d, every, tried := description(t), oneOf(3), 0
	for _, o := range d.sorted() {
		if !strings.HasPrefix(o.path, "/api/") {
			continue
		}
		body := ""
		if o.node["requestBody"] != nil {
			body = examples(t, o)[0]
		}
		refused := func(what, parameter string, answer *httptest.ResponseRecorder, p client.Problem) {
			t.Helper()
			if answer.Code != http.StatusUnprocessableEntity || len(p.Errors) == 0 || p.Errors[0].Parameter != parameter {
				t.Errorf("%s: %s is not refused with its name: %d, %s", o.pattern, what, answer.Code, answer.Body)
			}
		}
		answer, p := ask(t, o, func(w *world) *http.Request { return w.request(o, w.target(o)+"?no_such=1", body) })
		refused("an unknown parameter", "no_such", answer, p)
		answer, _ = ask(t, o, func(w *world) *http.Request { return w.request(o, w.target(o)+"?a=%zz", body) })
		if answer.Code != http.StatusBadRequest {
			t.Errorf("%s: a query that cannot be read has the status %d: %s", o.pattern, answer.Code, answer.Body)
		}
		parameters, _ := o.node["parameters"].([]any)
		for i, node := range parameters {
			node := node.(map[string]any)
			name, in := node["name"].(string), node["in"].(string)
			schema := d.schema(t, descriptionURL, fmt.Sprintf("%s/parameters/%d/schema", o.pointer, i))
			for _, text := range texts(node["schema"].(map[string]any)) {
				if tried++; tried%every != 0 || in == "path" && text == ".." { // which leads elsewhere
					continue
				}
				value := read(node["schema"].(map[string]any), text)
				wrong := schema.Validate(value)
				answer, p := ask(t, o, func(w *world) *http.Request {
					target := w.target(o)
					switch in {
					case "query":
						return w.request(o, target+"?"+url.Values{name: {text}}.Encode(), body)
					case "path":
						target = strings.Replace(o.path, "{"+name+"}", url.PathEscape(text), 1)
						return w.request(o, w.target(&operation{path: target}), body)
					default:
						return w.request(o, target, body, name, text)
					}
				})
				if wrong != nil {
					refused(fmt.Sprintf("%s=%.60q, which the schema refuses: %v", name, text, wrong), name, answer, p)
				}
			}
			if in == "query" && node["explode"] != true {
				answer, p := ask(t, o, func(w *world) *http.Request { return w.request(o, w.target(o)+"?"+name+"=1&"+name+"=1", body) })
				refused("twice "+name, name, answer, p)
			}
		}
	}
}

// texts are values of a parameter: those that its schema names, at its bounds and
// beyond, and strange ones.
func texts(schema map[string]any) []string {
	list := []string{
		"x", "*", `"1"`, `W/"1"`, `"1", "2"`, "1", "-1", "1.5", "true", "99999999999999999999", "2026-03-28T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z",
		"00000000000000000000000000", "a/b", "ü", "\x00", "%", "..", "eyJ4IjoxfQ", "text/event-stream", strings.Repeat("x", 40_000),
	}
	if items, ok := schema["items"].(map[string]any); ok {
		schema = items
	}
	for _, value := range slices.Concat(anys(schema["enum"]), anys(schema["examples"]), []any{schema["default"], schema["example"]}) {
		if value != nil {
			list = append(list, fmt.Sprint(value), fmt.Sprint(value)+"x")
		}
	}
	for name, beyond := range map[string]int64{"minimum": -1, "maximum": 1} {
		if number, ok := schema[name].(json.Number); ok {
			n, _ := number.Int64()
			list = append(list, strconv.FormatInt(n, 10), strconv.FormatInt(n+beyond, 10))
		}
	}
	if number, ok := schema["maxLength"].(json.Number); ok {
		n, _ := number.Int64()
		list = append(list, strings.Repeat("x", int(n)), strings.Repeat("x", int(n)+1), strings.Repeat("ü", int(n)))
	}
	return list
}

func anys(value any) []any {
	list, _ := value.([]any)
	return list
}

// read reads the text of a parameter by its schema; what cannot be read
// stays a text, which the schema refuses.
func read(schema map[string]any, text string) any {
	switch kind := schema["type"]; kind {
	case "integer":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < math.MaxInt64 {
			return json.Number(text)
		}
	case "boolean":
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	case "array":
		return []any{read(schema["items"].(map[string]any), text)}
	}
	return text
}
