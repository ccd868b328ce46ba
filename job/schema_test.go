package job_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/belfry-cron/belfry/job"
)

func TestSchemaIsUpToDate(t *testing.T) {
	compareGolden(t, filepath.Join("testdata", "schema.json"), job.Schema())
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(job.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("belfry.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("belfry.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestSchemaAcceptsGoodSamples(t *testing.T) {
	schema := compileSchema(t)
	for name, data := range samples(t, "good") {
		for _, doc := range decode(t, name, string(data)) {
			var b bytes.Buffer
			if err := job.Encode(&b, []job.Document{doc}, job.JSON); err != nil {
				t.Fatal(err)
			}
			value, err := jsonschema.UnmarshalJSON(&b)
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(value); err != nil {
				t.Errorf("%s: %s: %v", name, doc.FullName(), err)
			}
		}
	}
}

func TestSchemaAgreesWithDecode(t *testing.T) {
	schema := compileSchema(t)
	for _, c := range []struct {
		text string
		good bool
	}{
		{`{"name": "a", "run": {"shell": "x"}}`, true},
		{`{"name": "a", "run": {"shell": {"command": "x", "args": [1, true, "y"]}, "env": {"PORT": 8080, "DEBUG": true}}}`, true},
		{`{"name": "a", "run": {"shell": "x", "umask": "022"}, "schedule": {"cron": "@daily"}, "policy": {"late_by": "forever", "timeout": "0"}}`, true},
		{`{"name": "a", "run": {"shell": "x"}, "schedule": {"on": "b"}}`, true},
		{`{"name": "a", "run": {"shell": "x"}, "schedule": {"on": {"job": "b", "outcome": "failed"}}}`, true},
		{`{"name": "a", "run": {"shell": "x", "limits": {"memory": 1048576}}, "policy": {"retry": {"on": "lost", "exit_codes": [1, 2]}}}`, true},
		{`{"kind": "pool", "name": "a", "pool": {"size": 1}}`, true},
		{`{"kind": "calendar", "name": "a", "calendar": {"weekdays": "mon-fri", "ics": ["a.ics"]}}`, true},
		{`{"kind": "jobs", "name": "a", "run": {"shell": "x"}}`, false},
		{`{"kind": "pool", "name": "a", "run": {"shell": "x"}}`, false},
		{`{"name": "a", "runs": {"shell": "x"}}`, false},
		{`{"name": "a", "run": {"shell": ["x"]}}`, false},
		{`{"name": "a", "run": {"shell": "x"}, "policy": {"overlap": "skp"}}`, false},
		{`{"name": "a", "run": {"shell": "x"}, "policy": {"timeout": "soon"}}`, false},
		{`{"name": "a", "run": {"shell": "x"}, "policy": {"timeout": 90}}`, false},
		{`{"name": "a", "run": {"shell": "x"}, "policy": {"priority": "5"}}`, false},
		{`{"name": "a", "run": {"shell": "x"}, "schedule": {"max_runs": 0}}`, false},
		{`{"name": "a", "run": {"shell": "x"}, "schedule": {"cron": []}}`, false},
		{`{"name": "a", "run": {"shell": "x"}, "paused": "yes"}`, false},
	} {
		_, err := job.Decode("a.json", []byte(c.text))
		value, jsonErr := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(c.text)))
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		schemaErr := schema.Validate(value)
		if (err == nil) != c.good {
			t.Errorf("Decode of %s: %v", c.text, err)
		}
		if (schemaErr == nil) != c.good {
			t.Errorf("the schema on %s: %v", c.text, schemaErr)
		}
	}
}
