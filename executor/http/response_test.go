package httpexec_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/job"
)

func TestResponseDecidesTheOutcome(t *testing.T) {
	s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscan(r.URL.Path[1:], &status)
		w.WriteHeader(status)
		if r.Method != "HEAD" {
			fmt.Fprint(w, "all 12 done\n")
		}
	})
	e := newExecutor(t, httpexec.Config{})
	for _, test := range []struct {
		name, status string
		h            job.HTTP
		reason       string // "" for success
	}{
		{"2xx by default", "202", job.HTTP{}, ""},
		{"not 3xx by default", "304", job.HTTP{}, "status 304 Not Modified, expected 2xx"},
		{"not 5xx by default", "503", job.HTTP{}, "status 503 Service Unavailable, expected 2xx"},
		{"a status without a name", "599", job.HTTP{}, "status 599, expected 2xx"},
		{"one of several", "404", job.HTTP{Expect: []string{"200", "404"}}, ""},
		{"none of several", "201", job.HTTP{Expect: []string{"200", "4xx"}}, "status 201 Created, expected 200, 4xx"},
		{"the end of a range", "204", job.HTTP{Expect: []string{"200-204"}}, ""},
		{"beyond a range", "205", job.HTTP{Expect: []string{"200-204"}}, "status 205 Reset Content, expected 200-204"},
		{"a match", "200", job.HTTP{Match: `12`}, ""},
		{"a match of a line", "200", job.HTTP{Match: `^all \d+ done$`}, ""},
		{"no match", "200", job.HTTP{Match: "failed"}, `the answer does not match "failed"`},
		{"status before match", "500", job.HTTP{Match: "failed"}, "status 500 Internal Server Error, expected 2xx"},
		{"no body", "200", job.HTTP{Method: "HEAD"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.h.URL = s.URL + "/" + test.status
			r, _ := run(t, e, attempt(test.h))
			if test.reason == "" && r.Outcome != job.OutcomeSucceeded {
				t.Errorf("it %s: %s", r.Outcome, r.Reason)
			}
			if test.reason != "" {
				wantFailure(t, r, test.reason)
			}
			if fmt.Sprint(r.HTTPStatus) != test.status {
				t.Errorf("the status is %d", r.HTTPStatus)
			}
		})
	}
}

func TestMatchOfThePolicyCounts(t *testing.T) {
	s := server(t, "", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "failed") })
	a := attempt(job.HTTP{URL: s.URL})
	a.Job.Policy.Success = &job.Success{Match: "done"}
	r, _ := run(t, newExecutor(t, httpexec.Config{}), a)
	wantFailure(t, r, `the answer does not match "done"`)
}

func TestExpectedJSONOfTheResponse(t *testing.T) {
	s := server(t, "", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"status": "ok", "items": [{"n": 3}]}`)
	})
	e := newExecutor(t, httpexec.Config{})
	good := job.HTTP{URL: s.URL, Match: "ok", JSON: map[string]string{"status": "ok", "items.0.n": "3"}}
	if r, _ := run(t, e, attempt(good)); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("got %+v", r)
	}
	r, _ := run(t, e, attempt(job.HTTP{URL: s.URL, JSON: map[string]string{"items.0.n": "4"}}))
	wantFailure(t, r, `the answer has items.0.n: "3", expected "4"`)
}

func TestMatchReadsTheBeginningOfALongResponse(t *testing.T) {
	s := server(t, "", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "begin"+strings.Repeat(".", 2<<20)+"end")
	})
	e := newExecutor(t, httpexec.Config{})
	if r, w := run(t, e, attempt(job.HTTP{URL: s.URL, Match: "begin"})); r.Outcome != job.OutcomeSucceeded || !strings.HasSuffix(w.stdout.String(), "end") {
		t.Errorf("got %+v and %d bytes", r, w.stdout.Len())
	}
	r, _ := run(t, e, attempt(job.HTTP{URL: s.URL, Match: "end"}))
	wantFailure(t, r, `the first 1048576 bytes of the answer do not match "end"`)
}

func TestEndlessResponseIsCut(t *testing.T) {
	s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("all work and no play\n", 100)); err != nil {
				return
			}
		}
	})
	r, w := run(t, newExecutor(t, httpexec.Config{BodyMax: 100_000}), attempt(job.HTTP{URL: s.URL}))
	wantFailure(t, r, "the answer is longer than 100000 bytes")
	if r.HTTPStatus != 200 || w.stdout.Len() > 101_000 {
		t.Errorf("status %d, %d bytes", r.HTTPStatus, w.stdout.Len())
	}
}

func TestBrokenResponseFails(t *testing.T) {
	s := server(t, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: s.URL + "/x?token=hush"}))
	wantFailure(t, r, "GET "+s.URL+"/x: after 4 bytes of the answer: the server closed the connection")
}

// The cause of a failure is the status with the first line of text in the answer, or why there was no
// answer.
func TestFailureHasTheAnswerAsCause(t *testing.T) {
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{503, "\n{\n  \"error\": \"the database is down\"\n}\n", `503 Service Unavailable: "error": "the database is down"`},
		{404, "", "404 Not Found"},
		{503, strings.Repeat("x", 400), "503 Service Unavailable: " + strings.Repeat("x", 400)}, // it is masked before it is cut
		{502, "<!DOCTYPE HTML>\n<html><head>\n<style>\na {b: c}\n</style>\n<title>502 &amp; gone</title></head></html>", "502 Bad Gateway: 502 & gone"},
		{200, "fine", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		got, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: server.URL}))
		server.Close()
		if got.Cause != c.want {
			t.Errorf("%d %q: the cause is %q, want %q", c.status, c.body, got.Cause, c.want)
		}
		if gone, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: server.URL})); gone.Cause == "" || gone.Cause != gone.Reason.String() {
			t.Errorf("without an answer the cause is %q, the reason %q", gone.Cause, gone.Reason)
		}
	}
}
