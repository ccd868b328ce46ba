package httpexec_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/executor"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func newExecutor(t testing.TB, config httpexec.Config) *httpexec.Executor {
	t.Helper()
	if config.Allow == nil {
		config.Allow = loopback
	}
	if config.TLSDirs == nil {
		config.TLSDirs = []string{os.TempDir()} // where t.TempDir is
	}
	e, err := httpexec.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// server answers on an address of this machine until the test ends.
func server(t testing.TB, host string, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	if host != "" {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// quiet is for servers whose clients go away on purpose.
var quiet = log.New(io.Discard, "", 0)

var runID = job.ID{0: 1, 15: 7}

// attempt returns an attempt to send a request.
func attempt(h job.HTTP) executor.Attempt {
	j := (&job.Job{
		Namespace: "web",
		Name:      "call",
		Params:    map[string]job.Param{"who": {Default: "you & me"}},
		Run:       job.RunSpec{HTTP: &h},
	}).WithDefaults(job.Defaults{})
	scheduled := time.Date(2026, 11, 20, 2, 30, 0, 0, time.UTC)
	return executor.Attempt{
		Job:    j,
		Run:    job.Run{ID: runID, Namespace: "web", Name: "call", Scheduled: scheduled},
		Number: 2,
		Data:   job.TemplateData{Run: runID, Attempt: 2, Shards: 1, Namespace: "web", Name: "call", Scheduled: scheduled},
		Start:  func() error { return nil },
	}
}

type written struct{ stdout, stderr bytes.Buffer }

func run(t testing.TB, e *httpexec.Executor, a executor.Attempt) (executor.Result, *written) {
	t.Helper()
	var w written
	r := e.Run(t.Context(), a, executor.Output{Stdout: &w.stdout, Stderr: &w.stderr})
	return r, &w
}

// wantFailure checks that an attempt failed with a reason that has parts in it.
func wantFailure(t testing.TB, r executor.Result, parts ...string) {
	t.Helper()
	if r.Outcome != job.OutcomeFailed {
		t.Errorf("the outcome is %s", r.Outcome)
	}
	for _, part := range parts {
		if !strings.Contains(r.Reason, part) {
			t.Errorf("the reason is %q, without %q", r.Reason, part)
		}
	}
}

func TestRequestNamesItsRun(t *testing.T) {
	var got *http.Request
	var body []byte
	s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "session=secret")
		fmt.Fprint(w, "thank you")
	})
	e := newExecutor(t, httpexec.Config{Version: "1.2.3"})
	a := attempt(job.HTTP{
		URL:     s.URL + "/hook?who={{ .Param.who }}&day={{ .Scheduled.Format \"2006-01-02\" }}",
		Headers: map[string]string{"X-Attempt": "{{ .Attempt }}", "Host": "hooks.example"},
		Body:    `{"who": {{ .Param.who }}}`,
	})
	a.Run.Shard, a.Run.Shards = 1, 3
	r, w := run(t, e, a)
	if r.Outcome != job.OutcomeSucceeded || r.HTTPStatus != 200 || r.Reason != "" {
		t.Fatalf("got %+v", r)
	}
	if got.Method != "POST" || got.URL.String() != "/hook?who=you+%26+me&day=2026-11-20" || got.Host != "hooks.example" {
		t.Errorf("got %s %s for %s", got.Method, got.URL, got.Host)
	}
	if want := `{"who": "you \u0026 me"}`; string(body) != want && string(body) != `{"who": "you & me"}` {
		t.Errorf("the body is %s", body)
	}
	for name, want := range map[string]string{
		"User-Agent":       "belfry/1.2.3",
		"Content-Type":     "application/json",
		"Belfry-Job":       "web/call",
		"Belfry-Run":       runID.String(),
		"Belfry-Attempt":   "2",
		"Belfry-Scheduled": "2026-11-20T02:30:00Z",
		"Belfry-Shard":     "1",
		"Belfry-Shards":    "3",
		"Idempotency-Key":  runID.String(),
		"X-Attempt":        "2",
	} {
		if got := got.Header.Get(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if got, want := w.stdout.String(), "HTTP/1.1 200 OK\nContent-Type: text/plain; charset=utf-8\nContent-Length: 9\n\nthank you"; got != want {
		t.Errorf("the output is\n%s", got)
	}
}

func TestJobsMayNotOverrideRunHeaders(t *testing.T) {
	var got http.Header
	s := server(t, "", func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	r, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: s.URL, Headers: map[string]string{
		"user-agent": "mine", "idempotency-key": "{{ .Scheduled.Format \"2006-01-02\" }}", "belfry-run": "forged",
	}}))
	if r.Outcome != job.OutcomeSucceeded {
		t.Fatal(r.Reason)
	}
	if got.Get("User-Agent") != "mine" || got.Get("Idempotency-Key") != "2026-11-20" || got.Get("Belfry-Run") != runID.String() || len(got["Idempotency-Key"]) != 1 {
		t.Errorf("got %v", got)
	}
}

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

func TestEndOfTheContextEndsTheRequest(t *testing.T) {
	for _, test := range []struct {
		cause   error
		outcome job.Outcome
		reason  string
	}{
		{executor.ErrTimeout, job.OutcomeTimedOut, "the timeout has passed"},
		{executor.ErrCancelled, job.OutcomeCancelled, "cancelled"},
		{executor.ErrFenced, job.OutcomeLost, "the node has lost touch with the store"},
	} {
		for _, when := range []string{"before", "within"} {
			t.Run(test.reason+" "+when+" the answer", func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
					if when == "within" {
						fmt.Fprintln(w, "so far")
						w.(http.Flusher).Flush()
					} else {
						cancel(test.cause)
					}
					<-r.Context().Done() // the connection is closed
				})
				// The output has the response so far while the server is still writing.
				out := writerFunc(func(p []byte) {
					if strings.Contains(string(p), "so far") {
						cancel(test.cause)
					}
				})
				r := newExecutor(t, httpexec.Config{}).Run(ctx, attempt(job.HTTP{URL: s.URL}), executor.Output{Stdout: out, Stderr: io.Discard})
				if r.Outcome != test.outcome || !strings.HasPrefix(r.Reason, test.reason+": GET "+s.URL+" was not answered") || r.Unstarted {
					t.Errorf("got %+v", r)
				}
				if when == "within" && r.HTTPStatus != 200 {
					t.Errorf("the status is %d", r.HTTPStatus)
				}
			})
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestNothingIsSentWithoutPermissionToStart(t *testing.T) {
	var calls atomic.Int32
	s := server(t, "", func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	e := newExecutor(t, httpexec.Config{})

	a := attempt(job.HTTP{URL: s.URL})
	a.Start = func() error { return errors.New("called back") }
	if r, _ := run(t, e, a); !r.Unstarted || r.Reason != "called back" || r.Outcome == job.OutcomeSucceeded {
		t.Errorf("got %+v", r)
	}

	a.Start = func() error { t.Error("it was started"); return nil }
	for _, test := range []struct {
		cause     error
		outcome   job.Outcome
		unstarted bool // another node may take it
	}{
		{executor.ErrCancelled, job.OutcomeCancelled, false},
		{executor.ErrTimeout, job.OutcomeTimedOut, false},
		{executor.ErrFenced, job.OutcomeLost, true},
		{errors.New("the node stops"), job.OutcomeCancelled, true},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(test.cause)
		r := e.Run(ctx, a, executor.Output{Stdout: io.Discard, Stderr: io.Discard})
		if r.Unstarted != test.unstarted || r.Outcome != test.outcome || r.Reason != test.cause.Error()+", before anything was sent" {
			t.Errorf("%v: got %+v", test.cause, r)
		}
	}
	if calls.Load() != 0 {
		t.Error("the server was called")
	}
}

func TestUnsendableRequestFailsBeforeItStarts(t *testing.T) {
	e := newExecutor(t, httpexec.Config{})
	for name, h := range map[string]job.HTTP{
		"a parameter that is not declared": {URL: "http://example.com/{{ .Param.other }}"},
		"a file that is not there":         {URL: "https://example.com", TLS: &job.TLS{CA: filepath.Join(t.TempDir(), "ca.pem")}},
	} {
		t.Run(name, func(t *testing.T) {
			a := attempt(h)
			a.Start = func() error { t.Error("it was started"); return nil }
			r, _ := run(t, e, a)
			wantFailure(t, r)
			if r.Unstarted {
				t.Error("another node would be asked to try")
			}
		})
	}
}

func TestFailureHasAReason(t *testing.T) {
	gone := server(t, "", nil)
	gone.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	})
	t.Cleanup(func() { silent.Close(); group.Wait() })
	plain := server(t, "", func(http.ResponseWriter, *http.Request) {})
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	t.Cleanup(secure.Close)

	secretly := func(address string) string {
		return strings.Replace(address, "://", "://me:hush@", 1) + "/x?token=hush"
	}
	e := newExecutor(t, httpexec.Config{})
	for _, test := range []struct{ url, reason string }{
		{gone.URL, gone.URL + "/x: connection refused"},
		{"http://" + silent.Addr().String(), "server"},
		{strings.Replace(plain.URL, "http:", "https:", 1), "does not speak TLS"},
		{secure.URL, "not signed by a trusted authority; run.http.tls.ca can name one"},
	} {
		r, w := run(t, e, attempt(job.HTTP{URL: secretly(test.url), Headers: map[string]string{"X-Key": "hush"}}))
		wantFailure(t, r, "GET http", test.reason)
		if strings.Contains(r.Reason+w.stdout.String()+w.stderr.String(), "hush") {
			t.Errorf("a secret is in the reason %q or the output %q, %q", r.Reason, &w.stdout, &w.stderr)
		}
	}
}

func TestGuardRefusesAnAddressBeforeAnythingIsSent(t *testing.T) {
	var calls atomic.Int32
	s := server(t, "", func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	e, err := httpexec.New(httpexec.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "2130706433", "0x7f000001"} {
		r, _ := run(t, e, attempt(job.HTTP{URL: "http://" + host + port}))
		wantFailure(t, r, "GET http://"+host)
		if !strings.HasPrefix(host, "2") && !strings.HasPrefix(host, "0x") {
			wantFailure(t, r, "open it with http.allow: [")
		}
	}
	if calls.Load() != 0 {
		t.Error("the server was called")
	}
}

func TestRedirectsAreFollowedUpToTheirLimit(t *testing.T) {
	s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		var left int
		fmt.Sscan(r.URL.Path[1:], &left)
		if left > 0 {
			http.Redirect(w, r, fmt.Sprintf("/%d?secret=hush", left-1), http.StatusFound)
		}
	})
	e := newExecutor(t, httpexec.Config{})
	limit := func(n int) *int { return &n }

	r, w := run(t, e, attempt(job.HTTP{URL: s.URL + "/10"}))
	if r.Outcome != job.OutcomeSucceeded || strings.Count(w.stderr.String(), "302 Found: redirected to "+s.URL+"/") != 10 {
		t.Errorf("got %+v, %q", r, &w.stderr)
	}
	if strings.Contains(w.stderr.String(), "hush") {
		t.Errorf("a query is in %q", &w.stderr)
	}
	r, _ = run(t, e, attempt(job.HTTP{URL: s.URL + "/11"}))
	wantFailure(t, r, "there are more than 10 redirects")
	r, _ = run(t, e, attempt(job.HTTP{URL: s.URL + "/3", Redirects: limit(2)}))
	wantFailure(t, r, "there are more than 2 redirects")
	r, w = run(t, e, attempt(job.HTTP{URL: s.URL + "/1", Redirects: limit(0)}))
	wantFailure(t, r, "status 302 Found, expected 2xx; redirects: 0 follows none")
	if got := w.stdout.String(); !strings.Contains(got, "Location: "+s.URL+"/0\n") {
		t.Errorf("the output is %q", got)
	}
	if r, _ = run(t, e, attempt(job.HTTP{URL: s.URL + "/1", Redirects: limit(0), Expect: []string{"302"}})); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("got %+v", r)
	}
}

func TestRedirectCannotLeadToAClosedAddress(t *testing.T) {
	inner := server(t, "127.0.0.2", func(http.ResponseWriter, *http.Request) { t.Error("the inner server was called") })
	s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, map[string]string{
			"/metadata": "http://169.254.169.254/latest/meta-data/iam",
			"/inner":    inner.URL,
			"/file":     "file:///etc/passwd",
		}[r.URL.Path], http.StatusTemporaryRedirect)
	})
	e := newExecutor(t, httpexec.Config{Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
	for path, reason := range map[string]string{
		"/metadata": "GET http://169.254.169.254/latest/meta-data/iam: address 169.254.169.254 is a link-local address, of the metadata service of most clouds: open it with http.allow: [169.254.169.254/32]",
		"/inner":    "address 127.0.0.2 is in 127.0.0.2/32, which http.deny closes",
		"/file":     "unsupported protocol scheme",
	} {
		r, _ := run(t, e, attempt(job.HTTP{URL: s.URL + path}))
		wantFailure(t, r, reason)
	}
}

func TestRedirectToAnotherHostTakesNoSecrets(t *testing.T) {
	var got http.Header
	var host string
	var body []byte
	record := func(_ http.ResponseWriter, r *http.Request) {
		got, host = r.Header, r.Host
		body, _ = io.ReadAll(r.Body)
	}
	other := server(t, "127.0.0.2", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
			return
		}
		record(w, r)
	})
	home := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/other":
			http.Redirect(w, r, other.URL+"/other", http.StatusTemporaryRedirect)
		case "/end":
			record(w, r)
		}
	})
	e := newExecutor(t, httpexec.Config{Version: "1"})
	h := job.HTTP{
		URL:     strings.Replace(home.URL, "://", "://me:hush@", 1) + "/same?token=hush",
		Headers: map[string]string{"X-Api-Key": "hush", "Cookie": "c=hush", "Accept": "text/plain", "Host": "front.example"},
		Body:    "news",
	}
	if r, _ := run(t, e, attempt(h)); r.Outcome != job.OutcomeSucceeded || got.Get("X-Api-Key") != "hush" || string(body) != "news" {
		t.Errorf("to the same host: %+v, %v, %q", r, got, body)
	}
	h.URL = strings.Replace(h.URL, "/same", "/other", 1)
	r, w := run(t, e, attempt(h))
	if len(body) > 0 || got.Get("Content-Type") != "" {
		t.Errorf("another host was sent the body %q, with %v", body, got)
	}
	if !strings.Contains(w.stderr.String(), "/other, another host, without the body") {
		t.Errorf("the log does not say that the body was left out: %s", w.stderr.String())
	}
	if r.Outcome != job.OutcomeSucceeded {
		t.Fatal(r.Reason)
	}
	if fmt.Sprint(got) == "" || strings.Contains(fmt.Sprint(got), "hush") || got.Get("Authorization") != "" || got.Get("Referer") != "" {
		t.Errorf("another host was sent %v", got)
	}
	if got.Get("Accept") != "text/plain" || got.Get("Belfry-Run") == "" || got.Get("Idempotency-Key") == "" || got.Get("User-Agent") != "belfry/1" {
		t.Errorf("another host was sent only %v", got)
	}
	if u, _ := url.Parse(other.URL); host != u.Host {
		t.Errorf("another host was called %s", host)
	}
	h.Headers["idempotency-Key"] = "hush"
	if r, _ := run(t, e, attempt(h)); r.Outcome != job.OutcomeSucceeded || got.Get("Idempotency-Key") != "" {
		t.Errorf("%+v; another host was sent the key of the job %v", r, got)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	e := newExecutor(t, httpexec.Config{})
	for range 20 {
		if r, _ := run(t, e, attempt(job.HTTP{URL: s.URL})); r.Outcome != job.OutcomeSucceeded {
			t.Fatal(r.Reason)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

// TestPostIsNotSentTwice has a server that closes a connection, which was used
// before, when it has read the request.
func TestPostIsNotSentTwice(t *testing.T) {
	var calls atomic.Int32
	s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if calls.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	})
	e := newExecutor(t, httpexec.Config{})
	run(t, e, attempt(job.HTTP{URL: s.URL, Body: "pay"}))
	r, _ := run(t, e, attempt(job.HTTP{URL: s.URL, Body: "pay"}))
	wantFailure(t, r, "the server closed the connection")
	if n := calls.Load(); n != 2 {
		t.Errorf("the server was called %d times by two attempts", n)
	}
}

func TestProxyIsUsedOnlyWhenConfigured(t *testing.T) {
	var asked []string
	proxy := server(t, "127.0.0.3", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		fmt.Fprint(w, "by proxy")
	})
	address, _ := url.Parse(proxy.URL)
	t.Setenv("HTTP_PROXY", proxy.URL)

	// The guard does not hold for the proxy itself.
	nothing := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	e := newExecutor(t, httpexec.Config{Allow: nothing, Proxy: http.ProxyURL(address)})
	r, w := run(t, e, attempt(job.HTTP{URL: "http://inside.example/x"}))
	if r.Outcome != job.OutcomeSucceeded || !strings.HasSuffix(w.stdout.String(), "by proxy") || len(asked) != 1 {
		t.Errorf("got %+v; the proxy was asked for %v", r, asked)
	}
	r, _ = run(t, e, attempt(job.HTTP{URL: "http://169.254.169.254/"}))
	wantFailure(t, r, "is a link-local address")

	direct := newExecutor(t, httpexec.Config{Allow: nothing})
	r, _ = run(t, direct, attempt(job.HTTP{URL: "http://127.0.0.1:1/"}))
	wantFailure(t, r, "is a loopback address")
	if len(asked) != 1 {
		t.Errorf("the proxy of the environment was asked for %v", asked)
	}
}

func TestTLSOptions(t *testing.T) {
	ca := newAuthority(t)
	var proto, client string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto, client = r.Proto, ""
		if len(r.TLS.PeerCertificates) > 0 {
			client = r.TLS.PeerCertificates[0].Subject.CommonName
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, "inside.example")},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    ca.pool,
	}
	s.StartTLS()
	defer s.Close()
	cert, key := ca.files(t, "node-a")
	e := newExecutor(t, httpexec.Config{})
	for _, test := range []struct {
		name    string
		options *job.TLS
		reason  string
		client  string
	}{
		{"none", nil, "invalid certificate of the server", ""},
		{"the authority, and another name than that of the certificate", &job.TLS{CA: ca.file}, "invalid certificate of the server", ""},
		{"authority and name", &job.TLS{CA: ca.file, ServerName: "inside.example"}, "", ""},
		{"a certificate of the node", &job.TLS{CA: ca.file, ServerName: "inside.example", Cert: cert, Key: key}, "", "node-a"},
		{"any certificate", &job.TLS{Insecure: true}, "", ""},
		{"a file that is no certificate", &job.TLS{CA: key}, "has none in PEM form", ""},
		{"a key without its certificate", &job.TLS{Cert: key, Key: key}, "read client certificate", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			proto = ""
			r, _ := run(t, e, attempt(job.HTTP{URL: s.URL, TLS: test.options}))
			if test.reason != "" {
				wantFailure(t, r, test.reason)
				return
			}
			if r.Outcome != job.OutcomeSucceeded || proto != "HTTP/2.0" || client != test.client {
				t.Errorf("got %+v by %s from %q", r, proto, client)
			}
		})
	}
}

func TestCertificateIsNotShownToAnotherHost(t *testing.T) {
	ca := newAuthority(t)
	shown := -1
	other := tlsServer(t, "127.0.0.2", ca, func(_ http.ResponseWriter, r *http.Request) { shown = len(r.TLS.PeerCertificates) })
	home := tlsServer(t, "127.0.0.1", ca, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	})
	cert, key := ca.files(t, "node-a")
	r, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: home.URL, TLS: &job.TLS{CA: ca.file, Cert: cert, Key: key}}))
	if r.Outcome != job.OutcomeSucceeded || shown != 0 {
		t.Errorf("got %+v; %d certificates were shown", r, shown)
	}
}

func TestChangedFilesAreReadAgain(t *testing.T) {
	old, renewed := newAuthority(t), newAuthority(t)
	s := tlsServer(t, "127.0.0.1", renewed, func(http.ResponseWriter, *http.Request) {})
	file := filepath.Join(t.TempDir(), "ca.pem")
	copyFile(t, file, old.file)
	e := newExecutor(t, httpexec.Config{})
	a := attempt(job.HTTP{URL: s.URL, TLS: &job.TLS{CA: file}})
	r, _ := run(t, e, a)
	wantFailure(t, r, "not signed by a trusted authority")
	copyFile(t, file, renewed.file)
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if r, _ := run(t, e, a); r.Outcome != job.OutcomeSucceeded {
		t.Error(r.Reason)
	}
}

// The node may read its own key and those of others, which a job may not use.
func TestTLSFilesAreThoseOfTheAllowedDirectories(t *testing.T) {
	ca := newAuthority(t)
	s := tlsServer(t, "127.0.0.1", ca, func(http.ResponseWriter, *http.Request) {})
	allowed, other := t.TempDir(), t.TempDir()
	copyFile(t, filepath.Join(allowed, "ca.pem"), ca.file)
	copyFile(t, filepath.Join(other, "ca.pem"), ca.file)
	if err := os.Symlink(filepath.Join(other, "ca.pem"), filepath.Join(allowed, "link.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("ca.pem", filepath.Join(allowed, "inside.pem")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dirs         []string
		file, reason string
	}{
		{[]string{other, allowed}, filepath.Join(allowed, "ca.pem"), ""},
		{[]string{allowed}, filepath.Join(allowed, "inside.pem"), ""},
		{[]string{allowed}, filepath.Join(other, "ca.pem"), "it is in none of the directories of http.tls_dirs"},
		{[]string{allowed}, allowed + "/../" + filepath.Base(other) + "/ca.pem", "it is in none of the directories of http.tls_dirs"},
		{[]string{allowed}, filepath.Join(allowed, "link.pem"), "escapes"},
		{[]string{allowed}, allowed, "is not a regular file"},
		{[]string{allowed}, "ca.pem", "is not an absolute path"},
		{[]string{}, filepath.Join(allowed, "ca.pem"), "http.tls_dirs in the configuration of the node names the directories that they may use, and it names none"},
	} {
		r, _ := run(t, newExecutor(t, httpexec.Config{TLSDirs: test.dirs}), attempt(job.HTTP{URL: s.URL, TLS: &job.TLS{CA: test.file}}))
		switch {
		case test.reason != "":
			wantFailure(t, r, test.reason)
		case r.Outcome != job.OutcomeSucceeded:
			t.Errorf("%s: %s", test.file, r.Reason)
		}
	}
	if _, err := httpexec.New(httpexec.Config{TLSDirs: []string{"certificates"}}); err == nil {
		t.Error("a relative directory is allowed")
	}
}

// A pipe that no process writes to would hold a run for ever.
func TestPipeAsTLSFileBlocksNothing(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "ca.pem")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ := run(t, newExecutor(t, httpexec.Config{}), attempt(job.HTTP{URL: "https://example.com", TLS: &job.TLS{CA: pipe}}))
	wantFailure(t, r, "is not a regular file")
}

func TestHangingFileSystemBlocksNothing(t *testing.T) {
	e := newExecutor(t, httpexec.Config{})
	release := e.HoldReads()
	defer release()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCancelled)
	r := e.Run(ctx, attempt(job.HTTP{URL: "https://example.com", TLS: &job.TLS{CA: filepath.Join(t.TempDir(), "ca.pem")}}), executor.Output{Stdout: io.Discard, Stderr: io.Discard})
	if r.Outcome != job.OutcomeCancelled {
		t.Errorf("got %+v", r)
	}
}

// With no descriptor left nothing is sent, and the job has not failed.
func TestAMachineWithoutDescriptorsFailsNoJob(t *testing.T) {
	s := server(t, "", func(http.ResponseWriter, *http.Request) {})
	ca := newAuthority(t)
	e := newExecutor(t, httpexec.Config{})
	e.RestAfterShortage(0)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	a, b := attempt(job.HTTP{URL: s.URL}), attempt(job.HTTP{URL: s.URL, TLS: &job.TLS{CA: ca.file}})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	dialled, _ := run(t, e, a)
	read, _ := run(t, e, b)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, r := range []executor.Result{dialled, read} {
		if !r.Unstarted || !strings.Contains(r.Reason, "the machine has no room") || !strings.Contains(r.Reason, "too many open files") {
			t.Errorf("got %+v", r)
		}
	}
	if r, _ := run(t, e, a); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("with descriptors again: %+v", r)
	}
}

func TestManyTLSOptionsKeepABoundedNumberOfTransports(t *testing.T) {
	ca := newAuthority(t)
	s := tlsServer(t, "127.0.0.1", ca, func(http.ResponseWriter, *http.Request) {})
	e := newExecutor(t, httpexec.Config{})
	for i := range 50 {
		h := job.HTTP{URL: s.URL, TLS: &job.TLS{Insecure: true, ServerName: fmt.Sprintf("host-%d.example", i)}}
		if r, _ := run(t, e, attempt(h)); r.Outcome != job.OutcomeSucceeded {
			t.Fatal(r.Reason)
		}
	}
	if n := e.Transports(); n > 32 {
		t.Errorf("%d transports are kept", n)
	}
}

func TestNewRefusesABadRange(t *testing.T) {
	if _, err := httpexec.New(httpexec.Config{Deny: []netip.Prefix{{}}}); err == nil || !strings.Contains(err.Error(), "http.deny") {
		t.Errorf("got %v", err)
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool(), file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue returns a certificate for a name or address.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// files writes a certificate and its key.
func (a *authority) files(t *testing.T, name string) (cert, key string) {
	t.Helper()
	pair := a.issue(t, name)
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, cert, "CERTIFICATE", pair.Certificate[0])
	writePEM(t, key, "PRIVATE KEY", der)
	return cert, key
}

// tlsServer asks for a certificate of the client and takes any or none.
func tlsServer(t *testing.T, host string, ca *authority, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, host)}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestABodyHasTheTypeThatItsValuesAreEscapedFor(t *testing.T) {
	var got string
	s := server(t, "", func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Content-Type") })
	e := newExecutor(t, httpexec.Config{})
	for body, want := range map[string]string{`{"a": 1}`: "application/json", "<a/>": "application/xml", "a": ""} {
		if r, _ := run(t, e, attempt(job.HTTP{URL: s.URL, Body: body})); r.Outcome != job.OutcomeSucceeded || got != want {
			t.Errorf("%s: %+v, sent as %q, want %q", body, r, got, want)
		}
	}
}
