package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/job"
)

// TestWaitExplainsWhyARunHasNotStarted has a server whose run begins after the explanation, or
// never.
func TestWaitExplainsWhyARunHasNotStarted(t *testing.T) {
	const id, why = "01M7WSD70J4JVRQ9N4TN6P9NR3", "no live node has the label a=b"
	for _, test := range []struct {
		args  string
		never bool
		code  ExitCode
		want  string
	}{
		{"job run j --wait --timeout 1m", false, ExitOK, "run " + id + " has not started: " + why + "\n"},
		{"job run j --logs --timeout 1m", false, ExitOK, "run " + id + " has not started: " + why + "\n"},
		{"logs -f " + id, false, ExitOK, "run " + id + " has not started: " + why + "\n"},
		{"job run j --wait --timeout 1ms", true, ExitTimedOut, "run " + id + " has not started after 1 ms: " + why + "\n  it is still waiting; belfry run cancel " + id + " cancels it\n"},
		{"job run j --logs --timeout 1ms", true, ExitTimedOut, "run " + id + " has not started after 1 ms: " + why + "\n"},
	} {
		var stderr logtest.Log
		run := func() string {
			if !test.never && strings.Contains(stderr.String(), "has not started") {
				return `{"id": "` + id + `", "job": "default/j", "state": "done", "outcome": "succeeded", "attempts": []}`
			}
			return `{"id": "` + id + `", "job": "default/j", "state": "ready", "reason": "` + why + `", "attempts": []}`
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/output") {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintln(w, run())
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for end := ""; end == ""; {
				select {
				case <-r.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
				if text := run(); strings.Contains(text, "done") {
					end = "id: 1:0\nevent: end\ndata: " + text + "\n\n"
				}
				fmt.Fprint(w, end)
			}
		}))
		home := t.TempDir()
		getenv := func(name string) string {
			return map[string]string{"HOME": home, "BELFRY_SERVER": server.URL, "BELFRY_TOKEN": "t"}[name]
		}
		env := Env{Stdin: strings.NewReader(""), Stdout: &logtest.Log{}, Stderr: &stderr, Getenv: getenv, Now: time.Now, Dir: home}
		if code := Run(t.Context(), env, strings.Fields(test.args)); code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s ends with %d and says\n%s\nwant %d and\n%s", test.args, code, stderr.String(), test.code, test.want)
		}
		server.Close()
	}
}

// 0 would mean no output where it was not counted.
func TestOutputWithoutACountIsShown(t *testing.T) {
	for _, test := range []struct {
		outcome job.Outcome
		size    int64
		want    string
	}{
		{job.OutcomeSucceeded, 0, "0"},
		{job.OutcomeFailed, 12, "12"},
		{job.OutcomeLost, 0, "-"},
		{job.OutcomeLost, 12, "12"}, // the report of its end was late
		{"", 0, "-"},
	} {
		if got := outputSize(test.outcome, test.size); got != test.want {
			t.Errorf("%d bytes of one that %q: %s, not %s", test.size, test.outcome, got, test.want)
		}
	}
}
