package job_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// What a request says of its trace is bounded and is text, since each run that follows keeps it and commands get it.
func TestARunKeepsATraceOfBoundedText(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, c := range map[string]struct{ given, kept job.Trace }{
		"all":                    {job.Trace{Parent: parent, State: "a=1", Baggage: "tenant=7"}, job.Trace{Parent: parent, State: "a=1", Baggage: "tenant=7"}},
		"baggage alone":          {job.Trace{Baggage: "tenant=7"}, job.Trace{Baggage: "tenant=7"}},
		"a state of no parent":   {job.Trace{State: "a=1"}, job.Trace{}},
		"a short parent":         {job.Trace{Parent: parent[1:], State: "a=1"}, job.Trace{}},
		"a line break in it":     {job.Trace{Parent: parent[:54] + "\n", Baggage: "a=\n"}, job.Trace{}},
		"too much of the others": {job.Trace{Parent: parent, State: strings.Repeat("s", 513), Baggage: strings.Repeat("b", 1025)}, job.Trace{Parent: parent}},
	} {
		kept := c.given.Kept()
		if kept != c.kept {
			t.Errorf("%s: %v is kept", name, kept)
		}
		params := job.WithTrace(map[string]string{"day": "monday"}, kept)
		if job.TraceOf(params) != kept || params["day"] != "monday" {
			t.Errorf("%s: the parameters are %v", name, params)
		}
		if got := (job.TemplateData{Trace: kept}).Environment(); got["TRACEPARENT"] != kept.Parent || got["BAGGAGE"] != kept.Baggage {
			t.Errorf("%s: the environment is %v", name, got)
		}
	}
	if got := (job.Trace{}).Headers(); len(got) > 0 {
		t.Errorf("no trace has the headers %v", got)
	}
}
