//go:build servers

package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// A service that has taken a request reports its result to a server that was killed and started
// again meanwhile.
func TestAResultIsReportedToAServerThatWasStartedAgain(t *testing.T) {
	t.Parallel()
	requests := make(chan http.Header, 2)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Header
		w.WriteHeader(http.StatusAccepted)
	}))
	defer service.Close()
	f := newFolder(t)
	s := f.serve(t, options{})
	s.apply(`{name: reindex, run: {http: {url: "` + service.URL + `", callback: true}}, policy: {timeout: 1h, retry: {attempts: 1, on: [lost]}}}`)
	run := s.runByHand("reindex").ID
	sent := <-requests
	s.kill()
	s = f.serve(t, options{})
	if r := s.run(run); r.State != job.StateRunning || r.Attempt != 1 {
		t.Fatalf("after the restart the run is %s, attempt %d", r.State, r.Attempt)
	}
	at, err := url.Parse(sent.Get("Belfry-Callback"))
	if err != nil || at.Path != "/api/v1/callbacks/1" {
		t.Fatalf("the callback is %q, %v", sent.Get("Belfry-Callback"), err)
	}
	report, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+at.Path, strings.NewReader(`{"state": "succeeded", "output": "1,000 pages"}`))
	if err != nil {
		t.Fatal(err)
	}
	report.Header.Set("Authorization", "Bearer "+sent.Get("Belfry-Callback-Secret"))
	report.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(report)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if r := s.ended(run); answer.StatusCode != http.StatusNoContent || r.Outcome != job.OutcomeSucceeded || r.Attempt != 1 {
		t.Errorf("after the report (%d) the run is %s, attempt %d: %s", answer.StatusCode, r.Outcome, r.Attempt, r.Reason)
	}
	if out := s.output(run); !strings.HasSuffix(out, "1,000 pages") {
		t.Errorf("the output is %q", out)
	}
	if len(requests) != 0 {
		t.Error("the request was sent twice")
	}
	s.stop()
}
