package job_test

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestPlaceResolvesPointers(t *testing.T) {
	docs, err := job.Decode("jobs.yaml", []byte(`# A comment.
name: a
paused: false
labels: {"x/y": z}
schedule:
  cron:
    - 0 9 * * *
    - 0 10 * * *
run: {shell: "true"}
`))
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]string{
		"":                     "jobs.yaml:2:1",
		"/name":                "jobs.yaml:2:7",
		"/schedule/cron/1":     "jobs.yaml:8:7",
		"/schedule/cron/9":     "jobs.yaml:7:5", // what is nearest
		"/labels/x~1y":         "jobs.yaml:4:17",
		"/run/shell/command":   "jobs.yaml:9:14",
		"/policy/retry/within": "jobs.yaml:2:1",
	} {
		if got := docs[0].Place(pointer); got != want {
			t.Errorf("%s is at %s, want %s", pointer, got, want)
		}
	}
	if !docs[0].Says("paused") || docs[0].Says("policy") || (job.Document{Job: docs[0].Job}).Says("paused") {
		t.Error("what the document says is not what was written")
	}
	if got := (job.Document{Job: docs[0].Job}).Place("/name"); got != "" {
		t.Errorf("what was not read from text is at %q", got)
	}
}
