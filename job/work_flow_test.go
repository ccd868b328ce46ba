package job_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestAHandlerReadsTheStepsThatItNeedsAndFinallyAllOthers(t *testing.T) {
	docs, err := job.Decode("flow.yaml", []byte(`
name: f
params: {region: eu}
run:
  flow:
    steps:
      - {name: a, run: "true"}
      - {name: b, needs: a, run: "true"}
      - {name: c, needs: b, run: {handler: h}}
      - {name: d, needs: c, run: "echo {{ .Steps.a.Result.x }}"}
    finally:
      - {name: e, run: {handler: h}}
      - {name: f, run: "echo {{ .Param.region }}"}
`))
	if err != nil {
		t.Fatal(err)
	}
	flow := docs[0].Job.Run.Flow
	for i, want := range []string{"", "", "b", "a", "a b c d", ""} {
		if got := strings.Join(flow.Uses(i, []string{"region"}), " "); got != want {
			t.Errorf("step %s reads %q, want %q", flow.All()[i].Name, got, want)
		}
	}
	if wants := docs[0].Job.Place.Wants(docs[0].Job.Run.HandlerName()); wants != "" {
		t.Errorf("a flow needs a node with %s", wants)
	}
	if !slices.ContainsFunc(flow.All(), func(s *job.Step) bool { return s.Run.HandlerName() == "h" }) {
		t.Error("the handler of a step is not known")
	}
}
