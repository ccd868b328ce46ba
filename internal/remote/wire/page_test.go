package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
)

// page is the public page of the protocol.
const page = "../../../docs/worker-protocol.md"

// messages are the types that the page shows, in the order of its tables.
var messages = []any{
	wire.Join{}, wire.Joined{}, wire.Load{}, wire.Members{}, wire.Member{}, wire.Drain{}, wire.Hints{}, wire.Runs{}, wire.Ready{}, wire.Place{},
	wire.Attempts{}, wire.Attempt{}, wire.Claims{}, wire.Claim{}, wire.Run{}, wire.Step{}, wire.Mine{}, wire.Results{}, wire.Result{}, job.Usage{},
	wire.Finished{}, wire.Accepted{}, wire.Output{}, wire.Chunk{}, wire.SecretsOf{}, wire.Secrets{}, wire.Clock{},
}

func TestEachExampleOnThePageIsAMessage(t *testing.T) {
	types := map[string]reflect.Type{"Problem": reflect.TypeFor[client.Problem]()}
	for _, m := range messages {
		types[reflect.TypeOf(m).Name()] = reflect.TypeOf(m)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, block := range regexp.MustCompile("(?ms)^```json ([A-Za-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		name := block[1]
		shown[name] = true
		if types[name] == nil {
			t.Errorf("the page has an example of %s, which is no message", name)
			continue
		}
		if err := sameMessage([]byte(block[2]), types[name]); err != nil {
			t.Errorf("the example of %s: %v", name, err)
		}
	}
	for _, m := range messages {
		if name := reflect.TypeOf(m).Name(); !shown[name] && !isPart(reflect.TypeOf(m)) {
			t.Errorf("the page has no example of %s", name)
		}
	}
}

// isPart reports whether a message is only a part of others.
func isPart(t reflect.Type) bool {
	for _, m := range messages {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(m)) {
			of := f.Type
			for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer || of.Kind() == reflect.Map {
				of = of.Elem()
			}
			if of == t {
				return true
			}
		}
	}
	return false
}

// sameMessage reads an example strictly, writes it again and compares: so each of its fields is one of
// the message, and each value is read as it is meant.
func sameMessage(example []byte, of reflect.Type) error {
	message := reflect.New(of)
	d := json.NewDecoder(bytes.NewReader(example))
	d.DisallowUnknownFields()
	if err := d.Decode(message.Interface()); err != nil {
		return err
	}
	written, err := json.Marshal(message.Interface())
	if err != nil {
		return err
	}
	var want, got any
	if err := json.Unmarshal(example, &want); err != nil {
		return err
	}
	if err := json.Unmarshal(written, &got); err != nil {
		return err
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("it is written as %s", written)
	}
	return nil
}

func TestAWrongExampleIsFound(t *testing.T) {
	for example, of := range map[string]reflect.Type{
		`{"now": "2026-11-29T10:00:02Z", "zone": "UTC"}`: reflect.TypeFor[wire.Clock](), // a field that is not there
		`{"place": "a"}`: reflect.TypeFor[wire.Hints](), // a field that is always there
		`{"attempts": [{"job": "", "run": "", "attempt": "1", "token": "short"}]}`: reflect.TypeFor[wire.Attempts](),
	} {
		if sameMessage([]byte(example), of) == nil {
			t.Errorf("%s is taken for a message %s", example, of.Name())
		}
	}
}

// The tables of fields are written from the types: UPDATE=1 writes them.
func TestThePageListsEachField(t *testing.T) {
	const mark = "<!-- fields -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), mark)
	if !found {
		t.Fatalf("%s has no line %s", page, mark)
	}
	want := before + mark + tables()
	if want == string(text) {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("%s does not list the fields of the messages as they are: UPDATE=1 go test ./internal/remote/wire", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tables describes the fields of all messages.
func tables() string {
	var b strings.Builder
	for _, m := range messages {
		t := reflect.TypeOf(m)
		fmt.Fprintf(&b, "\n### %s\n\n| | |\n|---|---|\n", t.Name())
		for _, f := range reflect.VisibleFields(t) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "" {
				continue
			}
			about := strings.ReplaceAll(f.Tag.Get("doc"), "|", "\\|")
			if options == "" {
				about = "Always there. " + about
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, about)
		}
	}
	return b.String()
}
