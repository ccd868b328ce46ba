package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// line is a connection to a server in the time of testing/synctest.
type line struct {
	t *testing.T
	net.Conn
	reader *bufio.Reader
	served chan struct{} // closed when the answer has ended
}

// dialSlow sends a request, and what follows it, to a server of its own.
func dialSlow(t *testing.T, handler http.Handler, request string) *line {
	t.Helper()
	ours, theirs := net.Pipe()
	l := &line{t: t, Conn: ours, reader: bufio.NewReader(ours), served: make(chan struct{})}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(l.served)
		handler.ServeHTTP(w, r)
	})}
	listener := pipes{make(chan net.Conn, 1), make(chan struct{})}
	listener.made <- theirs
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { _ = web.Close(); _ = ours.Close() })
	if _, err := io.WriteString(ours, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return l
}

// head begins a request.
func head(method, path string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\nHost: 127.0.0.1:8420\nAuthorization: Bearer %s\n", method, path, token)
}

// until reads to a line that ends so.
func (l *line) until(end string) {
	l.t.Helper()
	for {
		text, err := l.reader.ReadString('\n')
		if err != nil {
			l.t.Fatalf("%v, and %q is still missing", err, end)
		}
		if strings.HasSuffix(strings.TrimSpace(text), end) {
			return
		}
	}
}

// over reports whether the answer has ended.
func (l *line) over() bool {
	synctest.Wait()
	select {
	case <-l.served:
		return true
	default:
		return false
	}
}

// watched is a server with a running run whose output is followed.
type watched struct {
	*node
	run  client.Run
	path string
}

// follows makes one, in a bubble of synctest.
func follows(t *testing.T) *watched {
	t.Helper()
	s := newServer(t)
	s.name, s.followers = "one", service.NewFollowers(s.store)
	w := &watched{node: s.node()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = s.followers.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	s.handle(s.store)
	ok[client.Change](s, "POST", "/api/v1/jobs", nightly)
	w.run = ok[client.Run](s, "POST", "/api/v1/jobs/default/nightly/run", "")
	w.start(w.run)
	w.path = "/api/v1/runs/" + w.run.ID.String() + "/output"
	return w
}

// writes stores output of the run.
func (w *watched) writes(seq int, offset int64, text string) {
	w.t.Helper()
	chunks := w.wrote(w.run, text)
	chunks[0].Seq, chunks[0].Offset = seq, offset
	if err := w.store.AppendOutput(w.t.Context(), chunks); err != nil {
		w.t.Fatal(err)
	}
}

// A client that follows something and does not read is cut off after 30 s, and not
// before; the others are served meanwhile.
func TestFollowerThatDoesNotReadIsDisconnected(t *testing.T) {
	for name, what := range map[string]struct {
		path    string
		happens func(w *watched, n int)
	}{
		"output": {"", func(w *watched, n int) {
			w.writes(n, int64(n), "x")
			w.followers.Wrote(w.run.ID)
		}},
		"events": {"/api/v1/events", func(w *watched, n int) {
			ok[client.Change](w.server, "POST", "/api/v1/jobs/default/nightly/"+[]string{"pause", "resume"}[n%2], "")
			time.Sleep(time.Second) // until it is noticed
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := follows(t)
				if what.path == "" {
					what.path = w.path
				} else {
					w.tells()
				}
				request := head("GET", what.path) + "Accept: text/event-stream\n\n"
				slow, reads := dialSlow(t, w.handler, request), dialSlow(t, w.handler, request)
				for _, l := range []*line{slow, reads} {
					l.until("200 OK")
					l.until(": " + map[string]string{"output": "begin", "events": "alive"}[name])
				}
				go func() { _, _ = io.Copy(io.Discard, reads.reader) }()
				synctest.Wait()
				what.happens(w, 0)
				time.Sleep(28 * time.Second)
				if slow.over() {
					t.Fatal("a client that was slow for 28 s is cut off")
				}
				slow.until("}") // it reads again
				what.happens(w, 1)
				time.Sleep(31 * time.Second)
				if !slow.over() {
					t.Fatal("a client that does not read has its place after 31 s")
				}
				if reads.over() {
					t.Error("one that reads is cut off")
				}
				if rest, err := io.ReadAll(slow.reader); err == nil && strings.HasSuffix(string(rest), "0\r\n\r\n") {
					t.Error("the end of the answer looks as if it were whole")
				}
			})
		})
	}
}

// hanging is a store that does not answer.
type hanging struct{ *memory.Store }

func (hanging) Sessions(ctx context.Context) ([]store.Session, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestHangingStoreIsBoundedByTheRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.handle(hanging{s.store})
		begun := time.Now()
		s.refused(client.TypeTimeout, http.StatusGatewayTimeout, "GET", "/api/v1/nodes", "")
		if took := time.Since(begun); took != 30*time.Second {
			t.Errorf("it took %s", took)
		}
		begun = time.Now()
		if w := s.call("GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable || time.Since(begun) != 5*time.Second {
			t.Errorf("whether it is ready is answered after %s: %d %s", time.Since(begun), w.Code, w.Body)
		}
	})
}

func TestMissingBodyTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		l := dialSlow(t, s.handler, head("POST", "/api/v1/jobs")+"Content-Type: application/json\nContent-Length: 100\n\n{")
		begun := time.Now()
		answer, err := http.ReadResponse(l.reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		if took := time.Since(begun); took != time.Minute || answer.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(body), string(client.TypeTooSlow)) {
			t.Errorf("after %s: %s: %s", took, answer.Status, body)
		}
		if !answer.Close {
			t.Error("the connection stays, and what is left of the body would be read as a request")
		}
	})
}
