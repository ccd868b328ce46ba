package httpapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
)

// applyBodies are of requests to apply, with whether they are read by an outline.
var applyBodies = map[string]bool{
	`{"documents":[{"name":"a"},{"name":"b","x":[{"y":"}\"]{"}]}],"owner":"team"}`: true,
	" {\n\"documents\" : [ { } , {\"a\":1}\t] , \"prune\": true } ":                true,
	`{"documents":[{}],"diff":true,"diff":false}`:                                  true,
	`{"documents":[{}],"unknown":1}`:                                               true,
	`{"documents":[{"a":tru}],"owner":"team"}`:                                     true,
	`{"documents":[{"a":1}{"b":2}]}`:                                               false,
	`{"documents":[{"a":1},]}`:                                                     false,
	`{"documents":[{"a":1}]`:                                                       true,
	`{"documents":[{"a":1}]}x`:                                                     true,
	`{"documents":[{"a":1}`:                                                        false,
	`{"documents":[{"a":"1]}`:                                                      false,
	`{"documents":[{"a":"\`:                                                        false,
	`{"documents":[]}`:                                                             false,
	`{"documents":[1,{}]}`:                                                         false,
	`{"documents":[{},null]}`:                                                      false,
	`{"documents":{"a":1}}`:                                                        false,
	`{"owner":"team","documents":[{"a":1}]}`:                                       false,
	`{"documents":[{"a":1}],"documents":[{}]}`:                                     false,
	`{"documents":[{"a":1}],"Documents":[{"b":1}]}`:                                false,
	`{"documents":[{"a":1}],"\u0064ocuments":[{"b":1}]}`:                           false,
	`{"documents":[{"a":1}],"owner":5}`:                                            true,
	`[]`:                                                                           false,
	``:                                                                             false,
}

// sameAsWhole compares what is read by an outline with what is read of the whole body.
func sameAsWhole(t *testing.T, body string) {
	t.Helper()
	var tree, whole any
	wrong, wrongWhole := readBody([]byte(body), &tree), json.Unmarshal([]byte(body), &whole)
	if !reflect.DeepEqual(wrong, wrongWhole) {
		t.Fatalf("%s is refused with %v, and as a whole with %v", body, wrong, wrongWhole)
	}
	if wrong != nil {
		return
	}
	emptied(whole)
	emptied(tree)
	if !reflect.DeepEqual(tree, whole) {
		t.Errorf("%s is checked as %v, and not as %v", body, tree, whole)
	}
	var apply, wholeApply client.Apply
	used := []byte(body)
	wrong, wrongWhole = readBody(used, &apply), json.Unmarshal([]byte(body), &wholeApply)
	clear(used)
	if !reflect.DeepEqual(wrong, wrongWhole) {
		t.Fatalf("%s cannot be applied: %v; as a whole: %v", body, wrong, wrongWhole)
	}
	if wrong == nil && !reflect.DeepEqual(apply, wholeApply) {
		t.Errorf("%s is\n%+v\nand not\n%+v", body, apply, wholeApply)
	}
}

// emptied empties the documents of a body.
func emptied(tree any) {
	body, _ := tree.(map[string]any)
	documents, _ := body["documents"].([]any)
	for _, d := range documents {
		if d, ok := d.(map[string]any); ok {
			clear(d)
		}
	}
}

func TestOutlineOfABodyMatchesTheWhole(t *testing.T) {
	for body, want := range applyBodies {
		sameAsWhole(t, body)
		outline, documents := outlineOf([]byte(body))
		if has := outline != nil; has != want {
			t.Errorf("%s has the outline %q", body, outline)
		}
		if want && strings.Count(string(outline), "{}") != len(documents) {
			t.Errorf("%s has the outline %q, and %d documents", body, outline, len(documents))
		}
	}
}

func TestDuplicateKeysAreFound(t *testing.T) {
	for body, want := range map[string]string{
		`{"params":{"a":"1","a":"2"}}`:                      "a",
		`{"params":{"a":"1"},"params":{"b":"2"}}`:           "params",
		`{"x":[{"a":1},{"b":{},"c":[],"b":null}]}`:          "b",
		`{"a":1,"\u0061":2}`:                                "a",
		`[[],{"":1,"":2}]`:                                  "",
		`{"a":"a","b":{"a":"b"},"c":["a","a",{"a":"a"}]}`:   "none",
		`{"a":{"b":{}},"c":[[],{}],"d":true,"e":"d","f":1}`: "none",
		`"a"`: "none",
		`5`:   "none",
	} {
		key, twice := repeatedKey([]byte(body))
		if !twice {
			key = "none"
		}
		if key != want {
			t.Errorf("%s has %q twice, want %q", body, key, want)
		}
	}
}

func BenchmarkRepeatedKey(b *testing.B) {
	body := []byte(`{"params":{"day":"2026-11-20","table":"orders","mode":"full"}}`)
	for b.Loop() {
		repeatedKey(body)
	}
}

// FuzzOutlines looks for applyBodies that are read otherwise by their outline.
func FuzzOutlines(f *testing.F) {
	for body := range applyBodies {
		f.Add(body)
	}
	f.Fuzz(sameAsWhole)
}
