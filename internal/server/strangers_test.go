package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
)

// withTokens answers at /login when it has read the body, and elsewhere callers with a token: at /wait
// when it is released.
func withTokens(release <-chan struct{}) http.Handler {
	return guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			auth.Shown(r.Context())
		}
		if r.URL.Path == "/wait" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-release
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	}))
}

// strangersOf opens connections to an address that send an incomplete body, from addresses of this
// machine in turn.
func strangersOf(t *testing.T, address string, from []string, n int) {
	t.Helper()
	for i := range n {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from[i%len(from)]), 0))}
		c, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		// The server may have closed it already, because of another one.
		_, _ = io.WriteString(c, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\nx")
	}
}

// askWithToken sends a request with a token on a new connection, and returns its status.
func askWithToken(c net.Conn, path string) (int, error) {
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n", path)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, nil
}

// Thousands of requests whose bodies do not arrive, from one address and from several, displace each
// other, and none with a token.
func TestSlowBodiesOfStrangersDisplaceNoCallerWithAToken(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const filesElse = 200 // files of the test itself
	// Both ends of a connection are files of this process.
	n := min(6000, (int(min(fileLimit(), 1<<20))-filesElse)/2)
	most := n / 4
	l := limitConnections(inner, most, slog.New(slog.DiscardHandler))
	release := make(chan struct{})
	s := &http.Server{Handler: withTokens(release), ConnState: l.state, ConnContext: l.with}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	defer func() { _ = s.Close(); <-served }()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	waiting := dial()
	if status, err := askWithToken(waiting, "/wait"); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v", status, err)
	}
	several := []string{"127.0.0.1"}
	if runtime.GOOS == "linux" { // all of 127.0.0.0/8 is this machine
		several = []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"}
	}
	for _, from := range [][]string{{"127.0.0.1"}, several} {
		strangersOf(t, inner.Addr().String(), from, n/2)
		for range 4 {
			if status, err := askWithToken(dial(), "/"); err != nil || status != http.StatusOK {
				t.Fatalf("a caller with a token among strangers from %v: status %d, %v", from, status, err)
			}
		}
		l.mu.Lock()
		if l.n > most || l.strangers.Len() > strangersMost(most) {
			t.Errorf("%d connections of %d, %d of strangers", l.n, most, l.strangers.Len())
		}
		for address, same := range l.byAddress {
			if same.Len() > perAddressMost(most) {
				t.Errorf("%s has %d connections", address, same.Len())
			}
		}
		l.mu.Unlock()
	}
	close(release)
	if _, err := io.ReadFull(waiting, make([]byte, 1)); err != nil {
		t.Errorf("an answer to a caller with a token was cut off: %v", err)
	}
}

// pipeListener has one connection, in the time of testing/synctest.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l pipeListener) Close() error   { close(l.done); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestABodyWithoutATokenHasFiveSeconds(t *testing.T) {
	for _, c := range []struct {
		what, header string
		path         string
		want         time.Duration
	}{
		{"that is read", "", "/login", auth.StrangerTime},
		{"that is not read", "", "/unread", auth.StrangerTime},
		{"with a token", "Authorization: Bearer x\r\n", "/", readTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			handler := withTokens(nil)
			if c.path == "/unread" {
				handler = guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			}
			ours, theirs := net.Pipe()
			s := &http.Server{Handler: handler}
			l := pipeListener{make(chan net.Conn, 1), make(chan struct{})}
			l.conns <- theirs
			served := make(chan struct{})
			go func() { defer close(served); _ = s.Serve(l) }()
			begun := time.Now()
			go func() {
				_, _ = io.WriteString(ours, "POST "+c.path+" HTTP/1.1\r\nHost: x\r\n"+c.header+"Content-Length: 9000\r\n\r\nx")
			}()
			if _, err := io.ReadAll(ours); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
			// The server delays closing a connection by half a second, so that the answer arrives.
			if took := time.Since(begun); took < c.want || took > c.want+time.Second {
				t.Errorf("a body %s: the connection is closed after %s, want %s", c.what, took, c.want)
			}
			_ = s.Close()
			<-served
		})
	}
}
