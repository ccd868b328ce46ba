package job

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// Two documents are equal exactly if Encode writes the same for both, apart from the server's
// additions.
func TestEqualDocumentsEncodeAlike(t *testing.T) {
	texts := []string{
		"name: a",
		"{name: a, namespace: default}",
		"{name: a, namespace: other}",
		"{name: a, uid: 01jd0000000000000000000000, version: 3}",
		"{name: a, labels: {}}",
		"{name: a, labels: {x: y}}",
		"{name: a, labels: {x: z}}",
		"{name: a, labels: {x: y, z: ''}}",
		"{name: a, labels: {y: y}}",
		"{name: a, run: {shell: 'true'}}",
		"{name: a, run: {shell: {command: 'true'}}}",
		"{name: a, run: {shell: {command: 'true', interpreter: bash}}}",
		"{name: a, schedule: {cron: '* * * * *'}}",
		"{name: a, schedule: {cron: ['* * * * *']}}",
		"{name: a, schedule: {cron: ['* * * * *', '@daily']}}",
		"{name: a, schedule: {start: '2026-12-24T18:00:00+01:00'}}",
		"{name: a, schedule: {start: '2026-12-24T17:00:00Z'}}",
		"{name: a, schedule: {start: '2026-12-24T18:00:01+01:00'}}",
		"{name: a, policy: {timeout: 90s}}",
		"{name: a, policy: {timeout: 1m30s}}",
		"{name: a, policy: {timeout: 0s}}",
		"{name: a, policy: {retry: {attempts: 1}}}",
		"{name: a, policy: {retry: {attempts: 2}}}",
		"{name: a, policy: {retry: {}}}",
		"{name: a, paused: true}",
		"{name: a, paused: false}",
		"{kind: pool, name: a, pool: {size: 2}}",
		"{kind: pool, name: a, pool: {size: 3}}",
		"{kind: calendar, name: a, calendar: {include: ['2026-12-24']}}",
	}
	var docs []Document
	for _, text := range texts {
		list, err := Decode("a.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		docs = append(docs, list...)
	}
	written := func(d Document) string {
		if d.Job != nil {
			j := *d.Job
			j.Namespace, j.UID, j.Version, j.Status = namespaceOf(j.Namespace), ID{}, 0, nil
			d.Job = &j
		}
		var b bytes.Buffer
		if err := Encode(&b, []Document{d}, JSON); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for i, a := range docs {
		for k, b := range docs {
			if got, want := Same(a, b), written(a) == written(b); got != want {
				t.Errorf("%s and %s say the same: %t, and are written alike: %t", texts[i], texts[k], got, want)
			}
			if a.Job == nil || b.Job == nil {
				continue
			}
			if ofA, ofB := Apart(a.Job, b.Job); (len(ofA)+len(ofB) == 0) != (written(a) == written(b)) {
				t.Errorf("%s and %s: what they say differently is %v and %v", texts[i], texts[k], ofA, ofB)
			}
		}
	}
}

func TestJobsAreComparedByTheirFields(t *testing.T) {
	a := &Job{
		Name: "a", Version: 1, Labels: map[string]string{"x": "y"}, Paused: true,
		Schedule: Schedule{Cron: []string{"@daily"}}, Policy: Policy{Priority: new(1)},
	}
	b := &Job{
		Namespace: DefaultNamespace, Name: "a", Version: 2, Labels: map[string]string{"x": "y"},
		Schedule: Schedule{Cron: []string{"@daily"}, MaxRuns: 3}, Policy: Policy{Priority: new(1)},
	}
	ofA, ofB := Apart(a, b)
	wantA := map[string]any{"paused": true, "schedule": map[string]any{"cron": []any{"@daily"}}}
	wantB := map[string]any{"schedule": map[string]any{"cron": []any{"@daily"}, "max_runs": json.Number("3")}}
	if !reflect.DeepEqual(ofA, wantA) || !reflect.DeepEqual(ofB, wantB) {
		t.Errorf("they say %v and %v, want %v and %v", ofA, ofB, wantA, wantB)
	}
}
