package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/internal/server/auth"
)

func TestConnectionsLeaveDescriptorsForCommands(t *testing.T) {
	for _, c := range []struct {
		files    uint64
		capacity int
		want     int
	}{
		{1024, 512, 256}, // a quarter, since the capacity exceeds the limit
		{1024, 64, 640},  // the rest beside 64 commands
		{1024, 0, 896},   // without the role worker
		{65536, 512, connectionsMax},
		{1 << 63, 512, connectionsMax},
		{8, 512, 2},
	} {
		if got := connectionsFor(c.files, c.capacity); got != c.want {
			t.Errorf("with %d files and a capacity of %d: %d connections, want %d", c.files, c.capacity, got, c.want)
		}
	}
}

// Idle connections, which need no token, neither block others nor use the descriptors of commands.
func TestIdleConnectionsAreEvicted(t *testing.T) {
	const most = 8
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var said logtest.Log
	l := limitConnections(inner, most, slog.New(slog.NewTextHandler(&said, nil)))
	release := make(chan struct{})
	answering := make(chan struct{}, most)
	s := &http.Server{ConnState: l.state, ConnContext: l.with, Handler: guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth.Shown(r.Context())
		if r.URL.Path == "/slow" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			answering <- struct{}{}
			<-release
		}
		fmt.Fprint(w, "ok")
	}))}
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
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		return c
	}
	ask := func(c net.Conn, path string) error {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && path != "/slow" {
			_, err = io.ReadAll(answer.Body)
		}
		return err
	}
	idle := make([]net.Conn, 4*most)
	for i := range idle {
		idle[i] = dial()
	}
	if err := ask(dial(), "/"); err != nil {
		t.Fatalf("beside %d idle connections: %v", len(idle), err)
	}
	if _, err := idle[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the first idle connection is open still: %v", err)
	}
	if err := ask(idle[len(idle)-1], "/"); err != nil {
		t.Errorf("the last idle connection is closed already: %v", err)
	}
	for range most - 2 { // two have asked
		if err := ask(dial(), "/"); err != nil {
			t.Fatal(err)
		}
	}
	// The server counts a connection as idle a moment after its client has the answer.
	for deadline := time.Now().Add(2 * time.Minute); l.idleCount() < most; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are idle, want %d", l.idleCount(), most)
		}
	}
	// Connections with a request in progress are not closed for a new one, which is refused.
	busy := make([]net.Conn, most)
	for i := range busy {
		busy[i] = dial()
		if err := ask(busy[i], "/slow"); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		<-answering
	}
	if err := ask(dial(), "/"); err == nil {
		t.Error("a connection is accepted beyond the bound")
	}
	if said.Count("refused a connection") != 1 {
		t.Errorf("the log does not say that a connection was refused once:\n%s", said.String())
	}
	close(release)
	for _, c := range busy {
		if text, err := io.ReadAll(io.LimitReader(c, 5)); err != nil || len(text) == 0 {
			t.Errorf("an answer that had begun is not ended: %q, %v", text, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n > most {
		t.Errorf("%d connections are counted", l.n)
	}
}

func (c *connections) idleCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle.Len()
}
