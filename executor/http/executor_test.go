package httpexec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
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

// quiet is for servers whose clients disconnect on purpose.
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
		if !strings.Contains(r.Reason.String(), part) {
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
	if r.Outcome != job.OutcomeSucceeded || r.HTTPStatus != 200 || !r.Reason.IsZero() {
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
					<-r.Context().Done() // until the connection is closed
				})
				// The output has the response so far while the server is still writing.
				out := writerFunc(func(p []byte) {
					if strings.Contains(string(p), "so far") {
						cancel(test.cause)
					}
				})
				r := newExecutor(t, httpexec.Config{}).Run(ctx, attempt(job.HTTP{URL: s.URL}), executor.Output{Stdout: out, Stderr: io.Discard})
				if r.Outcome != test.outcome || !strings.HasPrefix(r.Reason.String(), test.reason+": GET "+s.URL+" was not answered") || r.Unstarted {
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
	if r, _ := run(t, e, a); !r.Unstarted || r.Reason.String() != "called back" || r.Outcome == job.OutcomeSucceeded {
		t.Errorf("got %+v", r)
	}

	a.Start = func() error { t.Error("it was started"); return nil }
	for _, test := range []struct {
		cause     error
		outcome   job.Outcome
		unstarted bool // another node may run it
	}{
		{executor.ErrCancelled, job.OutcomeCancelled, false},
		{executor.ErrTimeout, job.OutcomeTimedOut, false},
		{executor.ErrFenced, job.OutcomeLost, true},
		{errors.New("the node stops"), job.OutcomeCancelled, true},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(test.cause)
		r := e.Run(ctx, a, executor.Output{Stdout: io.Discard, Stderr: io.Discard})
		if r.Unstarted != test.unstarted || r.Outcome != test.outcome || r.Reason.String() != test.cause.Error()+", before anything was sent" {
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
		if strings.Contains(r.Reason.String()+w.stdout.String()+w.stderr.String(), "hush") {
			t.Errorf("a secret is in the reason %q or the output %q, %q", r.Reason, &w.stdout, &w.stderr)
		}
	}
}

// With no file descriptor left nothing is sent, and the job has not failed.
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
		if !r.Unstarted || !strings.Contains(r.Reason.String(), "the machine has no room") || !strings.Contains(r.Reason.String(), "too many open files") {
			t.Errorf("got %+v", r)
		}
	}
	if r, _ := run(t, e, a); r.Outcome != job.OutcomeSucceeded {
		t.Errorf("with descriptors again: %+v", r)
	}
}

func TestNewRefusesABadRange(t *testing.T) {
	if _, err := httpexec.New(httpexec.Config{Deny: []netip.Prefix{{}}}); err == nil || !strings.Contains(err.Error(), "http.deny") {
		t.Errorf("got %v", err)
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
