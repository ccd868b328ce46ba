package httpapi_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
)

// watchedBody notes whether it was read before a token was shown.
type watchedBody struct {
	io.Reader
	shown, read, early bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.read, b.early = true, b.early || !b.shown
	return b.Reader.Read(p)
}

func TestBodiesAreReadAfterTheTokenIsKnown(t *testing.T) {
	w := newWorld(t)
	path, _ := w.handOver(21, "s3cret")
	ok[client.Change](w.server, "POST", "/api/v1/jobs", `{"name": "pinged", "run": {"external": {}}}`)
	key := ok[client.PingKey](w.server, "POST", "/api/v1/jobs/default/pinged/ping-key", "")
	for _, c := range []struct {
		path, token, body string
		read              bool
	}{
		{"/api/v1/jobs", "", "{}", false},
		{"/api/v1/jobs", "wrong", "{}", false},
		{"/api/v1/jobs", token, `{"name": "a", "run": {"shell": "true"}}`, true},
		{"/ping/wrong", "", "output", false},
		{"/ping/" + key.Key, "", "output", true},
		{path, "", `{"state": "succeeded"}`, false},
		{path, "wrong", `{"state": "succeeded"}`, false},
		{path, "s3cret", `{"state": "succeeded"}`, true},
	} {
		body := &watchedBody{Reader: strings.NewReader(c.body)}
		r := httptest.NewRequest("POST", c.path, body)
		r.Host, r.ContentLength = "localhost", int64(len(c.body))
		r.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r.WithContext(auth.OnShown(r.Context(), func() { body.shown = true })))
		if body.early || body.read != c.read || body.shown != c.read || (answer.Code < 300) != c.read {
			t.Errorf("%s with %q: read %v, before a token %v, shown %v: %d %s", c.path, c.token, body.read, body.early, body.shown, answer.Code, answer.Body)
		}
	}
}

// Without a token a body may take 5 s, where it is read.
func TestABodyOfAStrangerHasFiveSeconds(t *testing.T) {
	w := newWorld(t) // its routes are shared with tests outside the bubble
	synctest.Test(t, func(t *testing.T) {
		request := strings.Replace(head("POST", "/api/v1/sign-in"), "Authorization: Bearer "+token+"\n", "", 1)
		l := dialSlow(t, w.handler, request+"Content-Type: application/json\nContent-Length: 100\n\n{")
		begun := time.Now()
		answer, err := http.ReadResponse(l.reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != auth.StrangerTime || answer.StatusCode != http.StatusRequestTimeout {
			t.Errorf("after %s: %s", took, answer.Status)
		}
	})
}

// A client that sends a body to its end before it reads receives the answer, and not a reset.
func TestABodyBeyondItsLimitIsReadBeforeTheAnswer(t *testing.T) {
	for what, header := range map[string]string{"with its length": "Content-Length: 4700000\n", "in chunks": "Transfer-Encoding: chunked\n"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			l := dialSlow(t, s.handler, head("POST", "/api/v1/jobs")+"Content-Type: application/json\n"+header+"\n")
			body := strings.Repeat("x", 4_700_000)
			if strings.Contains(header, "chunked") {
				body = "47b760\r\n" + body + "\r\n0\r\n\r\n"
			}
			if _, err := io.WriteString(l, body); err != nil && !errors.Is(err, io.EOF) {
				t.Fatalf("a body %s: %v", what, err)
			}
			answer, err := http.ReadResponse(l.reader, nil)
			if err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("a body %s: %v, %v", what, answer, err)
			}
		})
	}
}

// Guesses at the API and at the web UI count together.
func TestWrongTokensHaveOneCounter(t *testing.T) {
	s := newServer(t)
	for range 20 {
		s.tokens.Failed(netip.MustParseAddr("192.0.2.1"), s.now) // as the login page does
	}
	s.refused(client.TypeTooManyFailures, http.StatusTooManyRequests, "GET", "/api/v1/jobs", "", "Authorization", "Bearer wrong")
}

// Browsers apply the header to all ports of a host: it is for a server that has the port of https.
func TestBrowsersStayWithTLS(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct {
		host string
		tls  bool
		want bool
	}{{"belfry.example", true, true}, {"belfry.example:443", true, true}, {"belfry.example:8420", true, false}, {"belfry.example", false, false}} {
		r := httptest.NewRequest("GET", "/livez", nil)
		if r.Host = c.host; c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		answer := httptest.NewRecorder()
		s.handler.ServeHTTP(answer, r)
		if got := answer.Header().Get("Strict-Transport-Security"); (got != "") != c.want {
			t.Errorf("%s, with TLS %v: %q", c.host, c.tls, got)
		}
	}
}
