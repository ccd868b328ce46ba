package postgres

import (
	"errors"
	"io"
	"net"
	"testing"
)

func TestConnectionsEndAlthoughTheServerDoesNotAnswer(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l := &lines{open: map[*line]bool{}}
	dial := l.watch((&net.Dialer{}).DialContext)
	one, err := dial(t.Context(), "tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	two, err := dial(t.Context(), "tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Close(); err != nil || len(l.open) != 1 {
		t.Errorf("%v, and %d connections are open after the end of one of two", err, len(l.open))
	}
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, one)
		read <- err
	}()
	l.end()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection has ended with %v", err)
	}
	if _, err := dial(t.Context(), "tcp", server.Addr().String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection was made after the end: %v", err)
	}
}
