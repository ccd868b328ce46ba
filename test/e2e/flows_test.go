//go:build servers

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// A service that counts rows, loads files, and is busy at first.
type warehouse struct {
	mu    sync.Mutex
	asked []string
	busy  bool
}

func (h *warehouse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+string(body)))
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/count":
		_, _ = io.WriteString(w, `{"rows": 3, "files": ["a+b", "c"]}`)
	case "/load":
		_, _ = fmt.Fprintf(w, `{"loaded": %q}`, r.URL.Query().Get("file"))
	case "/check":
		w.WriteHeader(http.StatusConflict)
	case "/busy":
		if h.busy = !h.busy; h.busy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	case "/large":
		_, _ = fmt.Fprintf(w, "%q", strings.Repeat("x", job.ResultMax))
	case "/tell":
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (h *warehouse) got(line string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.asked, line)
}

const httpFlow = `
name: load
run:
  flow:
    steps:
      - {name: count, run: {http: {url: "%[1]s/count"}}}
      - {name: each, needs: [count], for_each: "{{ .Steps.count.Result.files }}", run: {http: {url: "%[1]s/load?file={{ .Item }}", method: POST}}}
      - {name: check, needs: [count], allow_failure: true, run: {http: {url: "%[1]s/check?rows={{ .Steps.count.Result.rows }}"}}}
      - {name: busy, needs: [count], retry: {attempts: 1, backoff: 0s}, run: {http: {url: "%[1]s/busy"}}}
      - {name: never, needs: [count], if: "{{ gt .Steps.count.Result.rows 10 }}", run: {http: {url: "%[1]s/never"}}}
      - name: tell
        needs: [each, check, busy, never]
        run: {http: {url: "%[1]s/tell", method: POST, body: '{{ .Steps.each.Result }} {{ .Steps.check.Outcome }}'}}
      - {name: large, needs: [tell], run: {http: {url: "%[1]s/large"}}}
      - {name: report, needs: [large], when: failed, run: 'echo "$BELFRY_STEPS"'}
`

func TestHTTPStepsOfAFlowPassTheirAnswersOn(t *testing.T) {
	t.Parallel()
	service := &warehouse{}
	listens := httptest.NewServer(service)
	defer listens.Close()
	s := newFolder(t).serve(t, options{})
	s.apply(fmt.Sprintf(httpFlow, listens.URL))
	r := s.ended(s.runByHand("load").ID)
	want := map[string]struct{ state, result, reason string }{
		"count": {"succeeded", `{"rows":3,"files":["a+b","c"]}`, ""}, "each": {"succeeded", `[{"loaded":"a+b"},{"loaded":"c"}]`, ""},
		"check": {"failed", "", "status 409"}, "busy": {"succeeded", "", ""}, "never": {"skipped", "", ""}, "tell": {"succeeded", "", ""},
		"large": {"failed", "", "the result of a step at most"}, "report": {"succeeded", "", ""},
	}
	if r.Outcome != job.OutcomeFailed || len(r.Steps) != len(want) || !strings.Contains(r.Reason, "step large has failed") {
		t.Fatalf("the flow is %s (%s) with %d steps", r.Outcome, r.Reason, len(r.Steps))
	}
	for i := range r.Steps {
		step := &r.Steps[i]
		if w := want[step.Name]; step.State != w.state || !sameJSON(step.Result, w.result) || !strings.Contains(step.Reason, w.reason) {
			t.Errorf("step %s is %s (%s) with the result %s; want %+v", step.Name, step.State, step.Reason, step.Result, w)
		}
		if step.Name == "busy" && step.Attempt != 2 {
			t.Errorf("step busy took %d attempts", step.Attempt)
		}
	}
	for _, line := range []string{"GET /count", "POST /load?file=a%2Bb", "POST /load?file=c", "GET /check?rows=3", `POST /tell [{"loaded":"a+b"},{"loaded":"c"}] failed`} {
		if !service.got(line) {
			t.Errorf("%q was not asked, but %q", line, service.asked)
		}
	}
	s.stop()
}

// sameJSON reports whether two texts are the same JSON, or both none.
func sameJSON(a json.RawMessage, b string) bool {
	if b == "" {
		return len(a) == 0
	}
	var one, other any
	return json.Unmarshal(a, &one) == nil && json.Unmarshal([]byte(b), &other) == nil && reflect.DeepEqual(one, other)
}

// A flow of as many steps as may be ends, and one more is refused with its place.
func TestAFlowOfAsManyStepsAsAreAllowedEnds(t *testing.T) {
	t.Parallel()
	s := newFolder(t).serve(t, options{})
	var steps strings.Builder
	step := func(i int) {
		needs := ""
		if i >= 100 { // five layers
			needs = fmt.Sprintf(", needs: [s%d]", i-100)
		}
		fmt.Fprintf(&steps, "      - {name: s%d%s, wait: {for: 1ms}}\n", i, needs)
	}
	for i := range job.StepsMax {
		step(i)
	}
	s.apply("name: wide\nrun:\n  flow:\n    max_parallel: 1000\n    steps:\n" + steps.String())
	r := s.ended(s.runByHand("wide").ID)
	if r.Outcome != job.OutcomeSucceeded || len(r.Steps) != job.StepsMax {
		t.Errorf("the flow is %s (%s) with %d steps", r.Outcome, r.Reason, len(r.Steps))
	}
	step(job.StepsMax)
	if _, err := s.tryApply("name: wide\nrun:\n  flow:\n    steps:\n" + steps.String()); err == nil || !strings.Contains(err.Error(), "run.flow.steps") {
		t.Errorf("a flow with %d steps is answered with %v", job.StepsMax+1, err)
	}
	s.stop()
}
