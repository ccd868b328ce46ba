package httpexec_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/job"
)

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

	// The guard does not apply to the proxy itself.
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
