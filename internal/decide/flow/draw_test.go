package flow_test

import (
	"slices"
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
)

const drawn = `
name: load
run:
  flow:
    steps:
      - {name: extract, run: {shell: ./extract}}
      - {name: check, needs: [extract], allow_failure: true, run: {http: {url: "https://example.org/"}}}
      - {name: load, needs: [extract], for_each: "{{ .Steps.extract.Result.files }}", run: {shell: ./load}}
      - {name: approve, needs: [load, check], wait: {approval: "publish?", for: 12h}}
      - {name: publish, needs: [approve], run: {job: publish-report}}
      - {name: repair, needs: [load], when: failed, run: {handler: repair}}
    finally:
      - {name: tell, run: {handler: notify}}
      - {name: clean, needs: [tell], when: finished, run: {shell: ./clean}}
`

func drawing(t *testing.T) *job.Job {
	t.Helper()
	docs, err := job.Decode("flow.yaml", []byte(drawn))
	if err != nil {
		t.Fatal(err)
	}
	return docs[0].Job
}

func TestStepsAreInLayers(t *testing.T) {
	if got, want := flow.NewGraph(drawing(t).Run.Flow).Layers(), []int{0, 1, 1, 2, 3, 2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAGraphIsDrawn(t *testing.T) {
	for as, want := range map[flow.Drawing]string{
		flow.DrawText: `load
    1  extract  shell
    2  check    http      after extract, may fail
       load     shell     after extract, for each of {{ .Steps.extract.Result.files }}
    3  approve  approval  after load, check
       repair   handler   after load failed
    4  publish  job       after approve
 last  tell     handler
 last  clean    shell     after tell ended
`,
		flow.DrawMermaid: `---
title: load
---
flowchart TD
    s_extract["extract<br><small>shell</small>"]
    s_check["check<br><small>http</small>"]
    s_load[["load<br><small>shell</small>"]]
    s_approve(["approve<br><small>approval</small>"])
    s_publish["publish<br><small>job</small>"]
    s_repair["repair<br><small>handler</small>"]
    s_tell["tell<br><small>handler</small>"]
    s_clean["clean<br><small>shell</small>"]
    s_extract --> s_check
    s_extract --> s_load
    s_load --> s_approve
    s_check --> s_approve
    s_approve --> s_publish
    s_load -->|failed| s_repair
    s_publish -->|finally| s_tell
    s_repair -->|finally| s_tell
    s_tell -->|ended| s_clean
`,
		flow.DrawDOT: `digraph "load" {
    rankdir=TB;
    node [shape=box, style=rounded];
    "extract" [label="extract\nshell"];
    "check" [label="check\nhttp"];
    "load" [label="load\nshell", peripheries=2];
    "approve" [label="approve\napproval", shape=ellipse];
    "publish" [label="publish\njob"];
    "repair" [label="repair\nhandler"];
    "tell" [label="tell\nhandler"];
    "clean" [label="clean\nshell"];
    "extract" -> "check";
    "extract" -> "load";
    "load" -> "approve";
    "check" -> "approve";
    "approve" -> "publish";
    "load" -> "repair" [label="failed"];
    "publish" -> "tell" [label="finally"];
    "repair" -> "tell" [label="finally"];
    "tell" -> "clean" [label="ended"];
}
`,
	} {
		if got := flow.Draw(drawing(t), as); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", as, got, want)
		}
	}
}
